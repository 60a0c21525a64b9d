/*
 * As an OCI hook (createContainer) of a container with RDMA devices: settings of NCCL and UCX for just
 * these devices, merged with what the container has itself, so that its own always win.
 *
 * The agent has written the settings into a folder of this container's device, or of the container
 * where its device is that of a claim, which several pods may have. The runtime has made
 * all mounts of the container and not yet changed its root, so a file below the root is the image's
 * or the pod's own. It is never written: what comes of both is made beside the settings, mounted over
 * it and has no name any more. Where that cannot be done the container starts with what it has.
 *
 * Every path below the root is the container's word, and is followed inside of the root alone
 * (openat2(2), RESOLVE_IN_ROOT; Linux 5.6).
 */
#define _GNU_SOURCE
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#define LONGEST (1024 * 1024)
#define TOO_LONG "it has more than 1 MiB"
#define LABEL "security.selinux"

/* NCCL keeps the first value that it reads of a variable (src/misc/param.cc), UCX the last
 * (src/ucs/config/parser.c). A program of the container's own is left alone. */
enum order { OWN_FIRST, OURS_FIRST, OWN_ALONE };

static const struct target {
    const char *name;   /* in the agent's folder */
    const char *folder; /* in the container */
    enum order order;
    mode_t mode; /* where the container has none; 0: then it gets none */
} TARGETS[] = {
    {"nccl.conf", "etc", OWN_FIRST, 0644},
    {"ucx.conf", "etc/ucx", OURS_FIRST, 0644},
    {"nccl_env.sh", "usr/local/bin", OWN_ALONE, 0755},
    {"nccl-topology.xml", "etc/kube-rdma", OWN_ALONE, 0644},
    /* The last value counts (opal/mca/base/mca_base_parse_paramfile.c); containers of others lack it. */
    {"openmpi-mca-params.conf", "etc/openmpi", OURS_FIRST, 0},
};

/* What keeps a file as it is where errno does not say it. */
static const char *reason;

static int refused(const char *why) {
    reason = why;
    return -1;
}

/* Closes what may not be open, and keeps errno for whoever tells it. */
static void closed(int file) {
    int kept = errno;
    if (file >= 0)
        close(file);
    errno = kept;
}

static int open_in(int root, const char *path, int flags, mode_t mode) {
    struct open_how how = {
        .flags = (unsigned)flags | O_CLOEXEC,
        .mode = mode,
        .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
    };
    return (int)syscall(SYS_openat2, root, path, &how, sizeof how);
}

/* A folder of the container, made where it is missing; a descriptor, or -1. */
static int open_folder(int root, const char *path) {
    int at = open_in(root, path, O_PATH | O_DIRECTORY, 0);
    if (at >= 0 || errno != ENOENT)
        return at;
    const char *slash = strrchr(path, '/');
    char above[PATH_MAX] = ".";
    if (slash)
        snprintf(above, sizeof above, "%.*s", (int)(slash - path), path);
    int parent = slash ? open_folder(root, above) : dup(root);
    if (parent < 0)
        return -1;
    int failed = mkdirat(parent, slash ? slash + 1 : path, 0755) && errno != EEXIST;
    closed(parent);
    return failed ? -1 : open_in(root, path, O_PATH | O_DIRECTORY, 0);
}

/* 0 if it is a file of a disk. What the kernel makes up may be what this container is not to see, and
 * its masks are not there yet. */
static int judge(int file, struct stat *status) {
    struct statfs system;
    if (fstat(file, status) || fstatfs(file, &system))
        return -1;
    if (!S_ISREG(status->st_mode) || system.f_type == PROC_SUPER_MAGIC ||
        system.f_type == SYSFS_MAGIC || system.f_type == CGROUP_SUPER_MAGIC ||
        system.f_type == CGROUP2_SUPER_MAGIC)
        return refused("it is no file of a disk");
    return status->st_size > LONGEST ? refused(TOO_LONG) : 0;
}

/* Appends all of a file, and ends its last line. */
static int append(int to, int from) {
    static char bytes[64 * 1024];
    char last = '\n';
    ssize_t got, total = 0;
    while ((got = read(from, bytes, sizeof bytes)) > 0) {
        if ((total += got) > LONGEST)
            return refused(TOO_LONG);
        if (write(to, bytes, (size_t)got) != got)
            return -1;
        last = bytes[got - 1];
    }
    return got == 0 && (last == '\n' || write(to, "\n", 1) == 1) ? 0 : -1;
}

/* Whoever may read the container's own file may read what takes its place, and nobody else. SELinux
 * lets a container read what has the label of its own files. */
static int guard_as(int merged, int place, const struct stat *own) {
    char label[256], path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", place);
    ssize_t length = getxattr(path, LABEL, label, sizeof label);
    if (length > 0 && fsetxattr(merged, LABEL, label, (size_t)length, 0))
        return -1;
    return fchown(merged, own->st_uid, own->st_gid) || fchmod(merged, own->st_mode & 0777);
}

/* Writes what comes of `ours` and the container's own. */
static int merge(const char *path, int ours, int own, enum order order) {
    struct stat status;
    int merged = open(path, O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (merged < 0)
        return -1;
    int first = order == OURS_FIRST ? ours : own, last = order == OURS_FIRST ? own : ours;
    int failed = judge(own, &status) || append(merged, first) || append(merged, last) ||
                 guard_as(merged, own, &status);
    closed(merged);
    return failed;
}

/* Mounts it on the very file that was judged, whatever its path leads to by now: others may write
 * to a volume. It is made read-only before, where nobody but the agent can write. */
static int mount_over(int own, const char *merged) {
    unsigned long only_read = MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV;
    char place[64];
    if (mount(merged, merged, NULL, MS_BIND, NULL))
        return -1;
    snprintf(place, sizeof place, "/proc/self/fd/%d", own);
    int failed =
        mount(NULL, merged, NULL, only_read, NULL) || mount(merged, place, NULL, MS_BIND, NULL);
    int kept = errno;
    umount2(merged, MNT_DETACH);
    errno = kept;
    return failed;
}

/* What is mounted needs no name: of a container that starts again and again nothing is left. */
static int cover(const char *path, int ours, int own, enum order order) {
    int failed = merge(path, ours, own, order) || mount_over(own, path);
    int kept = errno;
    unlink(path);
    errno = kept;
    return failed;
}

/* The container's own file, made empty where it is missing. */
static int own_file(int root, const struct target *target, const char *inside) {
    int own = open_in(root, inside, O_RDONLY | O_NONBLOCK, 0);
    if (own >= 0 || errno != ENOENT)
        return own;
    int folder = open_folder(root, target->folder);
    if (folder < 0)
        return -1;
    int flags = O_CREAT | O_EXCL | O_RDONLY | O_NOFOLLOW | O_CLOEXEC;
    own = openat(folder, target->name, flags, target->mode);
    closed(folder);
    if (own < 0 || !fchmod(own, target->mode))
        return own;
    closed(own);
    return -1;
}

static int is_left_alone(int root, const struct target *target, const char *inside) {
    int own = open_in(root, inside, O_PATH | O_NOFOLLOW, 0);
    int is_there = own >= 0;
    closed(own);
    return target->order == OWN_ALONE ? is_there : !is_there && !target->mode;
}

static int inject(int root, const char *settings, const char *id, const struct target *target) {
    char path[PATH_MAX], inside[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", settings, target->name);
    int ours = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (ours < 0)
        return errno != ENOENT;
    snprintf(inside, sizeof inside, "%s/%s", target->folder, target->name);
    snprintf(path, sizeof path, "%s/%s-%s", settings, id, target->name);
    int failed = 0;
    if (!is_left_alone(root, target, inside)) {
        int own = own_file(root, target, inside);
        failed = own < 0 || cover(path, ours, own, target->order);
        closed(own);
    }
    closed(ours);
    return failed;
}

/* A text without escapes: paths and names of runtimes have none. */
static int text_member(struct text object, const char *key, char *value, size_t room) {
    struct text found;
    if (!json_member(object, key, &found) || found.length < 2 || found.at[0] != '"' ||
        found.length - 2 >= room || memchr(found.at, '\\', found.length))
        return 0;
    memcpy(value, found.at + 1, found.length - 2);
    value[found.length - 2] = 0;
    return 1;
}

/* The container's root, as its configuration names it; -1 if it does not. */
static int open_root(const char *bundle) {
    static char content[MAX_INPUT];
    char path[PATH_MAX], root[PATH_MAX];
    snprintf(path, sizeof path, "%s/config.json", bundle);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return -1;
    struct text config = {content, 0}, member;
    ssize_t got;
    while ((got = read(file, content + config.length, sizeof content - config.length)) > 0)
        config.length += (size_t)got;
    closed(file);
    if (got < 0)
        return -1;
    if (!json_member(config, "root", &member) || !text_member(member, "path", root, sizeof root))
        return refused("the bundle's config.json names no root");
    int is_whole = root[0] == '/';
    snprintf(path, sizeof path, "%s%s%s", is_whole ? "" : bundle, is_whole ? "" : "/", root);
    return open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* What containerd and CRI-O call them (internal/cri/annotations/annotations.go of containerd@v2, the
 * annotations and the labels of the kubelet in internal/factory/container/container.go of cri-o). */
static const char *const SANDBOX[] = {"io.kubernetes.cri.sandbox-id",
                                      "io.kubernetes.cri-o.SandboxID"};
static const char *const CONTAINER[] = {"io.kubernetes.cri.container-name",
                                        "io.kubernetes.container.name"};

/* An annotation that can be the name of a folder. */
static int annotation(struct text state, const char *const keys[2], char *value, size_t room) {
    struct text annotations;
    if (!json_member(state, "annotations", &annotations))
        return 0;
    for (int i = 0; i < 2; i++)
        if (text_member(annotations, keys[i], value, room))
            return *value && *value != '.' && !strchr(value, '/');
    return 0;
}

/* The device of a claim may be in several pods, so its folder has one for each container, by sandbox
 * and name. A device of one container alone has none below its own. */
static void of_container(struct text state, const char *settings, char *folder, size_t room) {
    char sandbox[256], name[256];
    struct stat status;
    snprintf(folder, room, "%s", settings);
    if (!annotation(state, SANDBOX, sandbox, sizeof sandbox) ||
        !annotation(state, CONTAINER, name, sizeof name))
        return;
    snprintf(folder, room, "%s/%s/%s", settings, sandbox, name);
    if (stat(folder, &status) || !S_ISDIR(status.st_mode))
        snprintf(folder, room, "%s", settings);
}

int hook_settings(struct text state, const char *shared) {
    char bundle[PATH_MAX], id[256], settings[PATH_MAX];
    of_container(state, shared, settings, sizeof settings);
    if (!text_member(state, "bundle", bundle, sizeof bundle) ||
        !text_member(state, "id", id, sizeof id) || strchr(id, '/')) {
        dprintf(STDERR_FILENO, "kube-rdma: stdin is no OCI state with an id and a bundle.\n");
        return 1;
    }
    int root = open_root(bundle);
    if (root < 0) {
        dprintf(STDERR_FILENO, "kube-rdma: all files stay as the container has them (%s).\n",
                reason ? reason : strerror(errno));
        return 0;
    }
    for (size_t i = 0; i < sizeof TARGETS / sizeof *TARGETS; i++) {
        reason = NULL;
        if (inject(root, settings, id, &TARGETS[i]))
            dprintf(STDERR_FILENO, "kube-rdma: %s stays as the container has it (%s).\n",
                    TARGETS[i].name, reason ? reason : strerror(errno));
    }
    close(root);
    return 0;
}
