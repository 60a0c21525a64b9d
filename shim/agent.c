/*
 * One question to the agent over its unix socket. All numbers are 32 bits, big-endian.
 *
 *     request   "krq1" zero, length of environment, length of input; environment; input
 *     answer    "kra1" exit code, length of output; output
 *
 * The network namespace travels as a descriptor beside the first byte (SCM_RIGHTS), so the agent
 * never has to find a path of the host from inside its container. The answer is taken whole before
 * a byte of it is used: an agent that dies in the middle leaves no half of a result on stdout.
 */
#define _GNU_SOURCE
#include "shim.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* The path itself. A build for tests puts all that the shim touches under one folder. */
const char *under_root(const char *path) {
#ifdef KUBE_RDMA_TEST
    static char full[PATH_MAX];
    const char *root = getenv("KUBE_RDMA_ROOT");
    snprintf(full, sizeof full, "%s%s", root ? root : "", path);
    return full;
#else
    return path;
#endif
}

static long timeout_ms(const struct request *request) {
#ifdef KUBE_RDMA_TEST
    const char *chosen = getenv(request->adds ? "KUBE_RDMA_ADD_TIMEOUT_MS" : "KUBE_RDMA_TIMEOUT_MS");
    if (chosen)
        return atol(chosen);
#endif
    return request->adds ? ADD_TIMEOUT_MS : TIMEOUT_MS;
}

static long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Wait until the socket is ready; one deadline for the whole call, however the bytes drip. */
static int wait_for(int s, short events, long deadline) {
    for (;;) {
        long left = deadline - now_ms();
        struct pollfd watched = {.fd = s, .events = events};
        int ready = poll(&watched, 1, left > 0 ? (int)left : 0);
        if (ready > 0)
            return 0;
        if (ready == 0)
            errno = ETIMEDOUT;
        if (ready == 0 || errno != EINTR)
            return -1;
    }
}

/* `netns` goes with the first byte; -1 for none. */
static int send_all(int s, struct text bytes, int netns, long deadline) {
    while (bytes.length) {
        struct iovec piece = {(void *)bytes.at, bytes.length};
        struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
        union {
            char room[CMSG_SPACE(sizeof(int))];
            struct cmsghdr aligned;
        } control = {{0}};
        if (netns >= 0) {
            message.msg_control = control.room;
            message.msg_controllen = sizeof control.room;
            struct cmsghdr *header = CMSG_FIRSTHDR(&message);
            header->cmsg_level = SOL_SOCKET;
            header->cmsg_type = SCM_RIGHTS;
            header->cmsg_len = CMSG_LEN(sizeof(int));
            memcpy(CMSG_DATA(header), &netns, sizeof(int));
        }
        if (wait_for(s, POLLOUT, deadline))
            return -1;
        ssize_t sent = sendmsg(s, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno != EINTR && errno != EAGAIN)
            return -1;
        if (sent > 0) {
            bytes.at += sent;
            bytes.length -= (size_t)sent;
            netns = -1;
        }
    }
    return 0;
}

/* An end before `length` bytes is an error without errno. */
static int receive_all(int s, char *bytes, size_t length, long deadline) {
    while (length) {
        if (wait_for(s, POLLIN, deadline))
            return -1;
        ssize_t got = recv(s, bytes, length, MSG_DONTWAIT);
        if (got == 0)
            errno = 0;
        if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN))
            return -1;
        if (got > 0) {
            bytes += got;
            length -= (size_t)got;
        }
    }
    return 0;
}

static int connect_agent(long deadline) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *path = under_root(SOCKET_PATH);
    if (strlen(path) >= sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    strcpy(address.sun_path, path);
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s < 0)
        return -1;
    /* connect() waits while the agent's queue is full, and knows no other limit than this. */
    long left = deadline - now_ms();
    struct timeval limit = {left / 1000, left % 1000 * 1000 + 1};
    setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    int failed;
    do
        failed = connect(s, (struct sockaddr *)&address, sizeof address);
    while (failed && errno == EINTR);
    if (failed) {
        int error = errno;
        close(s);
        errno = error;
        return -1;
    }
    return s;
}

static int send_request(int s, const struct request *request, long deadline) {
    struct {
        char magic[4];
        uint32_t zero, environment, input;
    } header = {
        {'k', 'r', 'q', '1'},
        0,
        htonl((uint32_t)request->environment.length),
        htonl((uint32_t)request->input.length),
    };
    struct text first = {(const char *)&header, sizeof header};
    return send_all(s, first, request->netns, deadline) ||
           send_all(s, request->environment, -1, deadline) ||
           send_all(s, request->input, -1, deadline);
}

static int receive_answer(int s, struct answer *answer, long deadline) {
    static char output[MAX_ANSWER];
    struct {
        char magic[4];
        uint32_t exit_code, length;
    } header;
    if (receive_all(s, (char *)&header, sizeof header, deadline))
        return -1;
    uint32_t length = ntohl(header.length), exit_code = ntohl(header.exit_code);
    if (memcmp(header.magic, "kra1", 4) || length > sizeof output || exit_code > 255) {
        errno = EPROTO;
        return -1;
    }
    if (receive_all(s, output, length, deadline))
        return -1;
    answer->exit_code = (int)exit_code;
    answer->output = (struct text){output, length};
    return 0;
}

enum outcome ask_agent(const struct request *request, struct answer *answer) {
    long deadline = now_ms() + timeout_ms(request);
    enum outcome outcome = AWAY;
    int s = connect_agent(deadline);
    if (s >= 0 && !send_request(s, request, deadline))
        outcome = receive_answer(s, answer, deadline) ? SILENT : ANSWERED;
    answer->error = errno;
    if (s >= 0)
        close(s);
    return outcome;
}
