/*
 * As an OCI hook (createRuntime) of a container that holds a share: its limit of locked memory goes.
 *
 * Verbs pin memory, which counts against RLIMIT_MEMLOCK; what a container may use at all, its memory
 * cgroup bounds. The runtime has made the container's first process and waits for us, so the
 * program starts with what is set here. `kubectl exec` starts others: under containerd from the pod's
 * own containerd-shim, by a runtime that it starts as it has started ours, so that one is changed too.
 * No agent is asked: containers start again while it is away.
 */
#define _GNU_SOURCE
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define PARENT "containerd-shim" /* what /proc tells of a name ends after 15 signs */

/* A file of /proc/PID; -1 if it cannot be read. */
static ssize_t proc(pid_t pid, const char *file, char *content, size_t room) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
    int opened = open(path, O_RDONLY | O_CLOEXEC);
    if (opened < 0)
        return -1;
    ssize_t length = read(opened, content, room - 1);
    close(opened);
    content[length > 0 ? length : 0] = 0;
    return length;
}

/* Behind the name, which may hold anything, stand a state and the parent (proc_pid_stat(5)). */
static pid_t parent_of(pid_t pid) {
    char stat[512];
    if (proc(pid, "stat", stat, sizeof stat) <= 0)
        return 0;
    const char *behind = strrchr(stat, ')');
    int parent = 0;
    if (!behind || sscanf(behind + 1, " %*c %d", &parent) != 1)
        return 0;
    return parent;
}

/* Without CAP_SYS_RESOURCE, as in a user namespace, as far as the hard limit allows. */
static int unlimited(pid_t pid) {
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    if (!prlimit(pid, RLIMIT_MEMLOCK, &limit, NULL))
        return 0;
    int error = errno;
    if (error == EPERM && !prlimit(pid, RLIMIT_MEMLOCK, NULL, &limit)) {
        limit.rlim_cur = limit.rlim_max;
        prlimit(pid, RLIMIT_MEMLOCK, &limit, NULL);
    }
    errno = error;
    return -1;
}

/* The process that starts runtimes for this pod; 0 under a runtime that has none. */
static pid_t starter(void) {
    char name[32];
    pid_t pid = parent_of(getppid());
    if (pid <= 1 || proc(pid, "comm", name, sizeof name) <= 0)
        return 0;
    name[strcspn(name, "\n")] = 0;
    return strcmp(name, PARENT) ? 0 : pid;
}

/* A limit that stays stops no container: most of them never meet it. */
int hook_memlock(struct text state) {
    struct text value;
    char *end = NULL;
    long pid = json_member(state, "pid", &value) ? strtol(value.at, &end, 10) : 0;
    if (pid <= 0 || end != value.at + value.length) {
        dprintf(STDERR_FILENO, "kube-rdma: stdin is no OCI state with a pid.\n");
        return 1;
    }
    pid_t above = starter();
    int kept = above && unlimited(above);
    if (unlimited((pid_t)pid) || kept)
        dprintf(STDERR_FILENO, "kube-rdma: RLIMIT_MEMLOCK keeps its hard limit (%s).\n", strerror(errno));
    return 0;
}
