/*
 * The one program of kube-rdma on a host: a CNI plugin (specification 0.3.0 to 1.1.0), by its second
 * name an IPAM plugin for others, and an OCI hook.
 *
 * It does no networking. It hands the call to the agent of this node and gives back the answer. A pod
 * that asks for nothing is none of the agent's business: where the runtime tells a pod's annotations,
 * such a pod is let through at once. While the agent is away, pods that ask wait. It is a static C
 * program because a host need not have anything else, and because every start and end of every pod
 * runs it.
 */
#define _GNU_SOURCE
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Error codes of the CNI specification 1.1, section "Error". */
enum { CODE_ENVIRONMENT = 4, CODE_IO = 5, CODE_DECODE = 6, CODE_TRY_AGAIN = 11, CODE_DOWN = 50 };

#define VERSIONS "[\"0.3.0\",\"0.3.1\",\"0.4.0\",\"1.0.0\",\"1.1.0\"]"
#define NEWEST "1.1.0"

extern char **environ;

static int write_all(int fd, struct text bytes) {
    while (bytes.length) {
        ssize_t written = write(fd, bytes.at, bytes.length);
        if (written < 0 && errno != EINTR)
            return -1;
        if (written > 0) {
            bytes.at += written;
            bytes.length -= (size_t)written;
        }
    }
    return 0;
}

/* The version that the caller speaks, to be echoed in what we say; digits and dots only. */
static const char *version_of(struct text input, const char *otherwise) {
    static char version[16];
    struct text value;
    if (!json_member(input, "cniVersion", &value) || value.length < 3 ||
        value.length - 2 >= sizeof version || value.at[0] != '"')
        return otherwise;
    memcpy(version, value.at + 1, value.length - 2);
    return strspn(version, "0123456789.") == value.length - 2 ? version : otherwise;
}

/* A CNI error on stdout; returns the exit code. The texts are ours and the C library's: nothing of
 * the call is in them that would have to be escaped. */
static int fail(const struct request *request, int code, const char *message, const char *details) {
    dprintf(STDOUT_FILENO, "{\"cniVersion\":\"%s\",\"code\":%d,\"msg\":\"%s\",\"details\":\"%s.\"}\n",
            version_of(request->input, "1.0.0"), code, message, details);
    return 1;
}

/* All of stdin; -1 with errno, EFBIG when it is too much. */
static int read_input(struct text *input) {
    static char bytes[MAX_INPUT + 1];
    size_t length = 0;
    for (;;) {
        ssize_t got = read(STDIN_FILENO, bytes + length, sizeof bytes - length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        length += (size_t)got;
        if (length > MAX_INPUT) {
            errno = EFBIG;
            return -1;
        }
        if (got == 0)
            break;
    }
    *input = (struct text){bytes, length};
    return 0;
}

/* Only what CNI names: the rest of the environment is the runtime's, and may hold secrets. */
static int read_environment(struct text *environment) {
    static char bytes[MAX_ENVIRONMENT];
    size_t length = 0;
    for (char **entry = environ; *entry; entry++) {
        size_t size = strlen(*entry) + 1;
        if (strncmp(*entry, "CNI_", 4))
            continue;
        if (size > sizeof bytes - length)
            return -1;
        memcpy(bytes + length, *entry, size);
        length += size;
    }
    *environment = (struct text){bytes, length};
    return 0;
}

/* Copies `value` if it can be one part of a path: letters, digits and `signs`, no dot in front. */
static int path_part(char *part, size_t room, const char *value, size_t length, const char *signs) {
    if (length == 0 || length >= room || value[0] == '.')
        return 0;
    for (size_t i = 0; i < length; i++) {
        char c = value[i];
        int plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!plain && (c == 0 || !strchr(signs, c)))
            return 0;
    }
    memcpy(part, value, length);
    part[length] = 0;
    return 1;
}

/* One of `NAME=value;NAME=value` in CNI_ARGS. */
static int cni_argument(const char *name, char *part, size_t room) {
    const char *at = getenv("CNI_ARGS");
    size_t length = strlen(name);
    while (at && *at) {
        size_t size = strcspn(at, ";");
        if (size > length && at[length] == '=' && !strncmp(at, name, length))
            return path_part(part, room, at + length + 1, size - length - 1, "-.");
        at += size + (at[size] == ';');
    }
    return 0;
}

/* Whether the runtime calls us for the cluster's network, by the mark of our entry in its list. */
static int is_chained(struct text input) {
    struct text mark;
    return json_member(input, "chain", &mark) && json_is(mark, "true");
}

/* What the runtime says about the pod: NULL where it does not tell annotations, as older ones and
 * whoever wrote our entry before it asked for them. Without any, containerd says null. */
static const struct text *annotations_of(struct text input) {
    static struct text annotations;
    struct text runtime;
    if (!is_chained(input) || !json_member(input, "runtimeConfig", &runtime) ||
        !json_member(runtime, "io.kubernetes.cri.pod-annotations", &annotations))
        return NULL;
    return &annotations;
}

/* Whether none of the annotations asks for networks. A doubt counts as asking. */
static int asks_for_nothing(struct text annotations) {
    return json_is(annotations, "null") ||
           (json_lacks(annotations, "k8s.v1.cni.cncf.io/networks") &&
            json_lacks(annotations, "k8s.volcengine.com/pod-networks") &&
            json_lacks(annotations, "k8s.volcengine.com/pod-networks-definition") &&
            json_lacks(annotations, "v1.multus-cni.io/default-network"));
}

/* Whether a claim of the pod's namespace is prepared on this node: the pod may have it, and asks by it
 * without an annotation. A doubt counts as yes. */
static int may_have_claim(void) {
    char namespace[64], path[512];
    if (!cni_argument("K8S_POD_NAMESPACE", namespace, sizeof namespace))
        return 0;
    snprintf(path, sizeof path, CLAIMED_PATH "/%s", namespace);
    return access(under_root(path), F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

/* Whether this pod asks for something of ours, by its annotations, else by the word that the agent
 * left. A doubt counts as yes, except for a pod that the agent has never seen and of which the
 * runtime tells nothing: see docs/decisions/0008-shim.md. */
static int pod_asks(struct text input) {
    const struct text *annotations = annotations_of(input);
    if (may_have_claim())
        return 1;
    if (annotations)
        return !asks_for_nothing(*annotations);
    char namespace[64], name[254], path[512];
    if (!cni_argument("K8S_POD_NAMESPACE", namespace, sizeof namespace) ||
        !cni_argument("K8S_POD_NAME", name, sizeof name))
        return 0;
    snprintf(path, sizeof path, ASKING_PATH "/%s/%s", namespace, name);
    return access(under_root(path), F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

/* Leave a note for the agent. If that fails, it still finds the sandbox gone by comparing. */
static void remember_delete(void) {
    const char *container = getenv("CNI_CONTAINERID"), *interface = getenv("CNI_IFNAME");
    char id[129], link[16], path[512];
    if (!container || !path_part(id, sizeof id, container, strlen(container), "-._"))
        return;
    if (!interface || !path_part(link, sizeof link, interface, strlen(interface), "-._@"))
        return;
    snprintf(path, sizeof path, MISSED_PATH "/%s@%s", id, link);
    int note = open(under_root(path), O_CREAT | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (note >= 0)
        close(note);
}

/* Whether another plugin's configuration came, which names us in its ipam block only. */
static int for_other_plugin(const struct request *request) {
    static const char own[] = "\"kube-rdma\"";
    struct text type;
    return json_member(request->input, "type", &type) &&
           (type.length != sizeof own - 1 || memcmp(type.at, own, type.length));
}

/* What the plugins before us made, as an ADD of ours answers that makes nothing. */
static int has_previous(struct text input, struct text *previous) {
    return json_member(input, "prevResult", previous) && previous->at[0] == '{';
}

static int pass_on(struct text previous) {
    return write_all(STDOUT_FILENO, previous) || write_all(STDOUT_FILENO, (struct text){"\n", 1});
}

/* An ADD that the agent has not seen. Behind another plugin its result can be passed on; called on
 * its own by a meta-plugin, or for addresses, somebody asked for us by name. */
static int add_without_agent(const struct request *request, const char *message) {
    struct text previous;
    if (has_previous(request->input, &previous) && !for_other_plugin(request) &&
        !pod_asks(request->input))
        return pass_on(previous);
    return fail(request, CODE_TRY_AGAIN, message,
                "This pod asks for an RDMA network and waits for the agent, other pods start; look "
                "at kube-rdma's pod on this node");
}

static int without_agent(const struct request *request, const char *verb, enum outcome outcome,
                         int error) {
    char message[256];
    snprintf(message, sizeof message, "kube-rdma's agent %s (%s)",
             outcome == AWAY ? "does not answer on " SOCKET_PATH : "took the call and gave no answer",
             error ? strerror(error) : "it hung up");
    const char *look = "It is tried again; look at kube-rdma's pod on this node";
    if (!strcmp(verb, "GC"))
        return 0; /* the agent compares with the living sandboxes whenever it starts */
    if (!strcmp(verb, "DEL")) {
        remember_delete();
        return 0;
    }
    if (!strcmp(verb, "STATUS"))
        return fail(request, CODE_DOWN, message, look);
    if (!strcmp(verb, "ADD") && outcome == AWAY)
        return add_without_agent(request, message);
    return fail(request, CODE_TRY_AGAIN, message, look);
}

/* Whether the call needs no agent: its answer is the same whatever the agent would say. STATUS of our
 * entry is always good, for an error there makes the whole node NotReady, pods that ask for nothing
 * included; those that ask are told by their own ADD. */
static int answered_here(const struct request *request, const char *verb, int *exit_code) {
    struct text previous;
    if (!is_chained(request->input) || for_other_plugin(request))
        return 0;
    *exit_code = 0;
    if (!strcmp(verb, "STATUS"))
        return 1;
    const struct text *annotations = annotations_of(request->input);
    if (strcmp(verb, "ADD") || !annotations || !asks_for_nothing(*annotations) ||
        may_have_claim() || !has_previous(request->input, &previous))
        return 0;
    *exit_code = pass_on(previous);
    return 1;
}

/* Never waits, whatever the path is; the agent checks that it is a network namespace. */
static int open_netns(void) {
    const char *path = getenv("CNI_NETNS");
    return path && *path ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
}

static int run_hook(int argc, char **argv, struct text state) {
    if (argc == 3 && !strcmp(argv[2], "memlock"))
        return hook_memlock(state);
    if (argc == 4 && !strcmp(argv[2], "settings"))
        return hook_settings(state, argv[3]);
    dprintf(STDERR_FILENO, "kube-rdma: a hook is memlock, or settings with their folder.\n");
    return 1;
}

int main(int argc, char **argv) {
    int hook = argc > 1 && !strcmp(argv[1], "hook");
    struct request request = {.netns = -1};
    const char *verb = getenv("CNI_COMMAND");
    if (!hook && (argc > 1 || !verb)) {
        dprintf(STDERR_FILENO, "kube-rdma: CNI plugin and OCI hook, run by a container runtime.\n");
        return fail(&request, CODE_ENVIRONMENT, "CNI_COMMAND is not set",
                    "A container runtime sets it; people use the command of the agent's image");
    }
    if (read_input(&request.input))
        return fail(&request, errno == EFBIG ? CODE_DECODE : CODE_IO,
                    errno == EFBIG ? "stdin is larger than 2 MiB" : "stdin cannot be read",
                    "Look at the CNI configuration of this node");
    if (hook)
        return run_hook(argc, argv, request.input);
    if (!strcmp(verb, "VERSION")) {
        dprintf(STDOUT_FILENO, "{\"cniVersion\":\"%s\",\"supportedVersions\":" VERSIONS "}\n",
                version_of(request.input, NEWEST));
        return 0;
    }
    int exit_code;
    if (answered_here(&request, verb, &exit_code))
        return exit_code;
    if (read_environment(&request.environment))
        return fail(&request, CODE_ENVIRONMENT, "the CNI_ variables are larger than 64 KiB",
                    "Look at what the container runtime sets");
    request.netns = open_netns();
    request.adds = !strcmp(verb, "ADD");

    struct answer answer = {0};
    enum outcome outcome = ask_agent(&request, &answer);
    if (outcome != ANSWERED)
        return without_agent(&request, verb, outcome, answer.error);
    if (write_all(STDOUT_FILENO, answer.output))
        return 1;
    return answer.exit_code;
}
