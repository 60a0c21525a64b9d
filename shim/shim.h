/* What the parts of the shim share: main.c decides, agent.c speaks, hook.c and settings.c
 * prepare a container, json.c looks into JSON. */
#ifndef KUBE_RDMA_SHIM_H
#define KUBE_RDMA_SHIM_H

#include <stddef.h>
#include <stdint.h>

/* Where the host and the agent meet; docs/decisions/0008-shim.md says what each is for. */
#ifndef SOCKET_PATH
#define SOCKET_PATH "/run/kube-rdma/agent.sock"
#endif
#ifndef MISSED_PATH
#define MISSED_PATH "/run/kube-rdma/missed"
#endif
#ifndef ASKING_PATH
#define ASKING_PATH "/var/lib/kube-rdma/asking"
#endif
#ifndef CLAIMED_PATH
#define CLAIMED_PATH "/var/lib/kube-rdma/claimed"
#endif

/* An ADD is waited for as long as the kubelet waits for a sandbox, four minutes (twice its
 * runtimeRequestTimeout), less what is left of them when we are run: work that is just done is not
 * thrown away, and who gave us up ends us, which the agent sees. Everything else is answered before
 * the kubelet's two minutes for ending a sandbox are over, so that a DEL can be noted. */
#ifndef ADD_TIMEOUT_MS
#define ADD_TIMEOUT_MS 230000
#endif
#ifndef TIMEOUT_MS
#define TIMEOUT_MS 100000
#endif

/* A configuration with its previous result takes a few KiB, the annotations of a pod up to 256 KiB,
 * and six times as much where each of their signs is escaped. The agent has the same limits. */
#define MAX_INPUT (2 * 1024 * 1024)
#define MAX_ENVIRONMENT (64 * 1024)
#define MAX_ANSWER (1024 * 1024)

struct text {
    const char *at;
    size_t length;
};

struct request {
    struct text environment; /* NAME=value entries, each ended by a NUL */
    struct text input;       /* all of stdin */
    int netns;               /* a descriptor, or -1 */
    int adds;                /* whether it is an ADD */
};

struct answer {
    int exit_code;
    struct text output;
    int error; /* errno of what went wrong, 0 when the agent hung up or answered nonsense */
};

enum outcome {
    ANSWERED,
    AWAY,   /* the agent cannot have seen the whole request: nothing was begun */
    SILENT, /* the agent has the request and gave no answer: it may have begun */
};

/* agent.c */
enum outcome ask_agent(const struct request *request, struct answer *answer);
const char *under_root(const char *path);

/* hook.c */
int hook_memlock(struct text state);

/* settings.c */
int hook_settings(struct text state, const char *shared);

/* json.c */
int json_member(struct text object, const char *key, struct text *value);
int json_lacks(struct text object, const char *key);
int json_is(struct text value, const char *word);

#endif
