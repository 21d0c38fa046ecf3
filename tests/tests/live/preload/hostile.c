// Each call that takes pointers, in each state of a socket, with each of its pointers bad in each
// way, or not aligned, while the others are good, or with several bad at once, drawn from a seed:
// hostile ADDRESS-OF-THE-PEER table|draws SEED COUNT; of the table, one in COUNT. A line for each call has
// its result, and what the socket has left, or what the peer got. A call that libc itself does not
// survive is "a fault".
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
#include "calls.h"

enum { PAGE = 4096, POINTERS = 5, LEN = 16 };
enum { GOOD, NONE, UNMAPPED, READ_ONLY, STRADDLING, MISALIGNED, KINDS };
static const char *kinds[KINDS] = {"good", "null", "unmapped", "read-only", "straddling", "misaligned"};

// For each pointer of a call: a page of its own, nothing behind it, and a page to be read alone.
static char *pages[POINTERS];

// A socket's states.
enum { FRESH, FRESH_DATAGRAMS, BOUND, DATAGRAMS, STREAM, LISTENER, ENDED, MAPPED, STATES };
static const char *states[STATES] = {"fresh",  "fresh datagrams", "bound", "datagrams",
                                     "stream", "listener",        "ended", "mapped"};

static int has_peer(int state) { return state == DATAGRAMS || state == STREAM || state == MAPPED; }

static int connected_by_v6(int port) {
    char name[64];
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    snprintf(name, sizeof name, "::ffff:%s", peer);
    inet_pton(AF_INET6, name, &address.sin6_addr);
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    connect(fd, (void *)&address, sizeof address);
    return fd;
}

static int connected(int kind, int port) {
    int fd = socket(AF_INET, kind, 0);
    struct sockaddr_in address = at(peer, port);
    connect(fd, (void *)&address, sizeof address);
    return fd;
}

static int bound(int kind) {
    int fd = socket(AF_INET, kind, 0);
    struct sockaddr_in address = at("0.0.0.0", 0);
    bind(fd, (void *)&address, sizeof address);
    return fd;
}

static void ask(int fd) {
    int waiting = 0;
    write(fd, "0123456789abcdef", LEN);
    for (int tries = 0; tries < 1000 && waiting < LEN; tries++) ready(fd, POLLIN, 10), ioctl(fd, FIONREAD, &waiting);
}

static int made(int state) {
    int fd = state == FRESH             ? socket(AF_INET, SOCK_STREAM, 0)
             : state == FRESH_DATAGRAMS ? socket(AF_INET, SOCK_DGRAM, 0)
             : state == BOUND           ? bound(SOCK_DGRAM)
             : state == DATAGRAMS       ? connected(SOCK_DGRAM, 7000)
             : state == STREAM          ? connected(SOCK_STREAM, 7000)
             : state == LISTENER        ? bound(SOCK_STREAM)
             : state == ENDED           ? connected(SOCK_STREAM, 7001)
                                        : connected_by_v6(7000);
    if (state == LISTENER) listen(fd, 4);
    if (state == ENDED) ready(fd, POLLRDHUP, 5000);
    if (state == STREAM || state == MAPPED) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, 4);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

// What the peer has got of a stream, or of datagrams before a mark.
static int left(int fd, int state) {
    char bytes[256];
    int sum = 0, got;
    if (!has_peer(state)) return 0;
    if (state == DATAGRAMS) send(fd, "the last one of this socket", 27, MSG_NOSIGNAL);
    else shutdown(fd, SHUT_WR);
    while (ready(fd, POLLIN, 5000) > 0 && (got = recv(fd, bytes, sizeof bytes, 0)) >= 0) {
        if (got == 0 && state != DATAGRAMS) break;
        if (got == 27 && state == DATAGRAMS) break;
        sum += got;
    }
    return sum;
}

struct call {
    const char *name;
    // Is called with pointers that are good or bad.
    long (*make)(int fd, void **to);
    // Bytes behind each pointer, and what they are.
    int lens[POINTERS];
    void (*fill)(int fd, int idx, void *into, void **to);
    // Bytes wait.
    int receives;
    int level, option;
    // The pointer of a time, without which the call would wait for ever.
    int time;
};

static const struct call *now;

static void fill_message(int fd, int idx, void *into, void **to) {
    struct msghdr message = {to[3], now->lens[3], to[1], 1, to[4], now->lens[4], 0};
    struct iovec part = {to[2], LEN};
    struct sockaddr_in name = at(peer, 7000);
    struct cmsghdr control = {CMSG_LEN(4), IPPROTO_IP, IP_TTL};
    const void *from[] = {&message, &part, "0123456789abcdef", &name, &control};
    int lens[] = {sizeof message, sizeof part, LEN, sizeof name, sizeof control};
    memcpy(into, from[idx], lens[idx] < now->lens[idx] ? lens[idx] : now->lens[idx]);
    if (idx == 4) *(int *)((char *)into + CMSG_LEN(0)) = 9;
}

static void fill_messages(int fd, int idx, void *into, void **to) {
    struct mmsghdr messages[2] = {{{.msg_iov = to[1], .msg_iovlen = 1}}, {{.msg_iov = to[1], .msg_iovlen = 1}}};
    struct iovec part = {to[2], LEN};
    struct timespec time = {1, 0};
    const void *from[] = {messages, &part, "0123456789abcdef", &time};
    memcpy(into, from[idx], now->lens[idx]);
}

static void fill_parts(int fd, int idx, void *into, void **to) {
    struct iovec parts[2] = {{to[1], LEN / 2}, {to[2], LEN / 2}};
    if (idx == 0) memcpy(into, parts, sizeof parts);
    else memcpy(into, "0123456789abcdef", LEN / 2);
}

static void fill_text(int fd, int idx, void *into, void **to) { memcpy(into, "0123456789abcdef", now->lens[idx]); }

static void fill_name(int fd, int idx, void *into, void **to) {
    struct sockaddr_in name = at(peer, 7000);
    if (now->lens[idx] == sizeof name && idx == now->level) memcpy(into, &name, sizeof name);
    else if (now->lens[idx] == sizeof(socklen_t)) *(socklen_t *)into = sizeof name;
    else memcpy(into, "0123456789abcdef", now->lens[idx]);
}

static void fill_option(int fd, int idx, void *into, void **to) {
    memset(into, 0, now->lens[idx]);
    if (idx == 1) *(socklen_t *)into = now->lens[0];
    else if (now->lens[0] <= 12) *(int *)into = 1;
}

static void fill_waits(int fd, int idx, void *into, void **to) {
    struct pollfd entry = {fd, POLLIN | POLLOUT, 0};
    memset(into, 0, now->lens[idx]);
    if (now->lens[idx] == sizeof entry) memcpy(into, &entry, sizeof entry);
    else if (now->lens[idx] == sizeof(fd_set)) FD_SET(fd, (fd_set *)into);
}

static void fill_event(int fd, int idx, void *into, void **to) {
    struct epoll_event event = {EPOLLIN | EPOLLOUT, {.u64 = 7}};
    memset(into, 0, now->lens[idx]);
    if (now->lens[idx] == sizeof event) memcpy(into, &event, sizeof event);
}

static void fill_zero(int fd, int idx, void *into, void **to) { memset(into, 0, now->lens[idx]); }

static int set_with(int fd) {
    int set = epoll_create1(0);
    struct epoll_event event = {EPOLLIN | EPOLLOUT, {.u64 = 7}};
    if (fd >= 0) epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
    return set;
}

static int set = -1;

static long does_read(int fd, void **to) { return read(fd, to[0], LEN); }
static long does_readv(int fd, void **to) { return readv(fd, to[0], 2); }
static long does_preadv2(int fd, void **to) { return preadv2(fd, to[0], 2, -1, 0); }
static long does_recv(int fd, void **to) { return recv(fd, to[0], LEN, 0); }
static long does_peek(int fd, void **to) { return recv(fd, to[0], LEN, MSG_PEEK); }
static long does_recvfrom(int fd, void **to) { return recvfrom(fd, to[0], LEN, 0, to[1], to[2]); }
static long does_recvmsg(int fd, void **to) { return recvmsg(fd, to[0], 0); }
static long does_recvmmsg(int fd, void **to) { return recvmmsg(fd, to[0], 2, MSG_DONTWAIT, to[3]); }
static long numbered_recvfrom(int fd, void **to) { return syscall(SYS_recvfrom, fd, to[0], LEN, 0, to[1], to[2]); }
static long numbered_recvmsg(int fd, void **to) { return syscall(SYS_recvmsg, fd, to[0], 0); }
static long does_write(int fd, void **to) { return write(fd, to[0], LEN); }
static long does_writev(int fd, void **to) { return writev(fd, to[0], 2); }
static long does_pwritev2(int fd, void **to) { return pwritev2(fd, to[0], 2, -1, 0); }
static long does_send(int fd, void **to) { return send(fd, to[0], LEN, MSG_NOSIGNAL); }
static long does_sendto(int fd, void **to) { return sendto(fd, to[0], LEN, MSG_NOSIGNAL, to[1], 16); }
static long does_sendmsg(int fd, void **to) { return sendmsg(fd, to[0], MSG_NOSIGNAL); }
static long does_sendmmsg(int fd, void **to) { return sendmmsg(fd, to[0], 2, MSG_NOSIGNAL); }
static long numbered_sendto(int fd, void **to) {
    return syscall(SYS_sendto, fd, to[0], LEN, MSG_NOSIGNAL, to[1], 16);
}
static long does_bind(int fd, void **to) { return bind(fd, to[0], 16); }
static long does_connect(int fd, void **to) { return connect(fd, to[0], 16); }
static long does_getsockname(int fd, void **to) { return getsockname(fd, to[0], to[1]); }
static long does_getpeername(int fd, void **to) { return getpeername(fd, to[0], to[1]); }
static long does_accept(int fd, void **to) { return accept(fd, to[0], to[1]); }
static long does_accept4(int fd, void **to) { return accept4(fd, to[0], to[1], SOCK_NONBLOCK); }
static long does_get(int fd, void **to) { return getsockopt(fd, now->level, now->option, to[0], to[1]); }
static long does_set(int fd, void **to) { return setsockopt(fd, now->level, now->option, to[0], now->lens[0]); }
static long does_ioctl(int fd, void **to) { return ioctl(fd, now->option, to[0]); }
static long does_fcntl(int fd, void **to) { return fcntl(fd, now->option, to[0]); }
static long does_poll(int fd, void **to) { return poll(to[0], 1, 0); }
static long does_ppoll(int fd, void **to) { return ppoll(to[0], 1, to[1], to[2]); }
static long numbered_ppoll(int fd, void **to) { return syscall(SYS_ppoll, to[0], 1, to[1], to[2], 8); }
static long does_select(int fd, void **to) { return select(fd + 1, to[0], to[1], to[2], &(struct timeval){0}); }
static long numbered_select(int fd, void **to) { return syscall(SYS_select, fd + 1, to[0], to[1], to[2], to[3]); }
static long does_pselect(int fd, void **to) {
    return pselect(fd + 1, to[0], to[1], to[2], &(struct timespec){0}, to[3]);
}
static long does_add(int fd, void **to) { return epoll_ctl(set, EPOLL_CTL_ADD, fd, to[0]); }
static long does_modify(int fd, void **to) { return epoll_ctl(set, EPOLL_CTL_MOD, fd, to[0]); }
static long does_wait(int fd, void **to) { return epoll_wait(set, to[0], 1, 0); }
static long does_pwait(int fd, void **to) { return epoll_pwait(set, to[0], 1, 0, to[1]); }
static long does_pwait2(int fd, void **to) { return epoll_pwait2(set, to[0], 1, to[1], to[2]); }

enum { HEADER = sizeof(struct msghdr), PART = sizeof(struct iovec), SET = sizeof(fd_set) };
enum { EVENT = sizeof(struct epoll_event), TIME = 16, MASK = 8 };

#define GET(level, name, len) {"getsockopt " #name, does_get, {len, 4}, fill_option, 0, level, name}
#define SETS(level, name, len) {"setsockopt " #name, does_set, {len}, fill_option, 0, level, name}
#define BOTH(level, name, len) GET(level, name, len), SETS(level, name, len)

static const struct call calls[] = {
    {"read", does_read, {LEN}, fill_zero, 1},
    {"readv", does_readv, {2 * PART, LEN / 2, LEN / 2}, fill_parts, 1},
    {"preadv2", does_preadv2, {2 * PART, LEN / 2, LEN / 2}, fill_parts, 1},
    {"recv", does_recv, {LEN}, fill_zero, 1},
    {"peek", does_peek, {LEN}, fill_zero, 1},
    {"recvfrom", does_recvfrom, {LEN, 16, 4}, fill_name, 1, 1},
    {"recvmsg", does_recvmsg, {HEADER, PART, LEN, 16, 64}, fill_message, 1},
    {"recvmmsg", does_recvmmsg, {2 * sizeof(struct mmsghdr), PART, LEN, TIME}, fill_messages, 1},
    {"recvfrom by its number", numbered_recvfrom, {LEN, 16, 4}, fill_name, 1, 1},
    {"recvmsg by its number", numbered_recvmsg, {HEADER, PART, LEN, 16, 64}, fill_message, 1},
    {"write", does_write, {LEN}, fill_text},
    {"writev", does_writev, {2 * PART, LEN / 2, LEN / 2}, fill_parts},
    {"pwritev2", does_pwritev2, {2 * PART, LEN / 2, LEN / 2}, fill_parts},
    {"send", does_send, {LEN}, fill_text},
    {"sendto", does_sendto, {LEN, 16}, fill_name, 0, 1},
    {"sendmsg", does_sendmsg, {HEADER, PART, LEN, 16, CMSG_SPACE(4)}, fill_message},
    {"sendmmsg", does_sendmmsg, {2 * sizeof(struct mmsghdr), PART, LEN}, fill_messages},
    {"sendto by its number", numbered_sendto, {LEN, 16}, fill_name, 0, 1},
    {"bind", does_bind, {16}, fill_zero},
    {"connect", does_connect, {16}, fill_name},
    {"getsockname", does_getsockname, {16, 4}, fill_name},
    {"getpeername", does_getpeername, {16, 4}, fill_name},
    {"accept", does_accept, {16, 4}, fill_name},
    {"accept4", does_accept4, {16, 4}, fill_name},
    BOTH(SOL_SOCKET, SO_RCVBUF, 4),
    BOTH(SOL_SOCKET, SO_KEEPALIVE, 4),
    BOTH(SOL_SOCKET, SO_REUSEADDR, 4),
    BOTH(SOL_SOCKET, SO_LINGER, 8),
    BOTH(SOL_SOCKET, SO_RCVTIMEO, 16),
    BOTH(SOL_SOCKET, SO_BROADCAST, 4),
    GET(SOL_SOCKET, SO_ERROR, 4),
    GET(SOL_SOCKET, SO_TYPE, 4),
    BOTH(IPPROTO_TCP, TCP_NODELAY, 4),
    BOTH(IPPROTO_TCP, TCP_KEEPIDLE, 4),
    BOTH(IPPROTO_TCP, TCP_USER_TIMEOUT, 4),
    BOTH(IPPROTO_TCP, TCP_CONGESTION, 6),
    GET(IPPROTO_TCP, TCP_INFO, 104),
    BOTH(IPPROTO_IP, IP_TTL, 4),
    BOTH(IPPROTO_IP, IP_TOS, 4),
    BOTH(IPPROTO_IP, IP_MULTICAST_TTL, 4),
    BOTH(IPPROTO_IP, IP_MULTICAST_LOOP, 1),
    BOTH(IPPROTO_IP, IP_MULTICAST_IF, 4),
    BOTH(IPPROTO_IP, IP_PKTINFO, 4),
    SETS(IPPROTO_IP, IP_ADD_MEMBERSHIP, 12),
    SETS(IPPROTO_IP, MCAST_JOIN_GROUP, sizeof(struct group_req)),
    GET(IPPROTO_IP, IP_MSFILTER, 16),
    BOTH(IPPROTO_IPV6, IPV6_V6ONLY, 4),
    {"ioctl FIONREAD", does_ioctl, {4}, fill_zero, 1, 0, FIONREAD},
    {"ioctl FIONBIO", does_ioctl, {4}, fill_zero, 0, 0, FIONBIO},
    {"ioctl SIOCOUTQ", does_ioctl, {4}, fill_zero, 0, 0, SIOCOUTQ},
    {"ioctl SIOCATMARK", does_ioctl, {4}, fill_zero, 0, 0, SIOCATMARK},
    {"fcntl F_GETLK", does_fcntl, {sizeof(struct flock)}, fill_zero, 0, 0, F_GETLK},
    {"fcntl F_GETOWN_EX", does_fcntl, {8}, fill_zero, 0, 0, F_GETOWN_EX},
    {"fcntl F_SETOWN_EX", does_fcntl, {8}, fill_zero, 0, 0, F_SETOWN_EX},
    {"poll", does_poll, {sizeof(struct pollfd)}, fill_waits, 1},
    {"ppoll", does_ppoll, {sizeof(struct pollfd), TIME, MASK}, fill_waits, 1, .time = 1},
    {"ppoll by its number", numbered_ppoll, {sizeof(struct pollfd), TIME, MASK}, fill_waits, 1, .time = 1},
    {"select", does_select, {SET, SET, SET}, fill_waits, 1},
    {"select by its number", numbered_select, {SET, SET, SET, TIME}, fill_waits, 1, .time = 3},
    {"pselect", does_pselect, {SET, SET, SET, MASK}, fill_waits, 1},
    {"epoll_ctl ADD", does_add, {EVENT}, fill_event},
    {"epoll_ctl MOD", does_modify, {EVENT}, fill_event},
    {"epoll_wait", does_wait, {EVENT}, fill_zero, 1},
    {"epoll_pwait", does_pwait, {EVENT, MASK}, fill_zero, 1},
    {"epoll_pwait2", does_pwait2, {EVENT, TIME, MASK}, fill_zero, 1, .time = 1},
};
enum { CALLS = sizeof calls / sizeof *calls };

static int pointers_of(const struct call *call) {
    int count = 0;
    while (count < POINTERS && call->lens[count]) count++;
    return count;
}

// Pages behind each other: one that is written, a hole, one to be read alone.
static void *place(int idx, int kind, int len) {
    char *page = pages[idx];
    switch (kind) {
    case NONE: return NULL;
    case UNMAPPED: return page + PAGE + 64;
    case READ_ONLY: return page + 2 * PAGE;
    // Half of it, at a place that is aligned as structures are.
    case STRADDLING: return page + PAGE - (len >= 16 ? len / 2 & ~7 : len / 2);
    case MISALIGNED: return page + 1;
    default: return page;
    }
}

static void fill(int fd, int idx, int kind, void **to) {
    static char bytes[512] __attribute__((aligned(16)));
    int len = now->lens[idx];
    now->fill(fd, idx, bytes, to);
    if (kind == READ_ONLY) mprotect(pages[idx] + 2 * PAGE, PAGE, PROT_READ | PROT_WRITE);
    if (kind == STRADDLING) len = pages[idx] + PAGE - (char *)to[idx];
    if (kind != NONE && kind != UNMAPPED) memcpy(to[idx], bytes, len);
    if (kind == READ_ONLY) mprotect(pages[idx] + 2 * PAGE, PAGE, PROT_READ);
}

static sigjmp_buf back;
static void leaves(int number) { siglongjmp(back, 1); }

static void play_once(const struct call *call, int state, const int *bad) {
    if (call->time && bad[call->time] == NONE) return;
    // The kernel hears of the reset by its first send before it makes the second.
    if (call->make == does_sendmmsg && state == ENDED) return;
    int fd = made(state), count = pointers_of(call), used = 0;
    void *to[POINTERS] = {0};
    char line[256];
    now = call;
    set = set_with(call->make == does_add ? -1 : fd);
    if (call->receives && has_peer(state)) ask(fd);
    for (int idx = 0; idx < count; idx++) to[idx] = place(idx, bad[idx], call->lens[idx]);
    for (int idx = 0; idx < count; idx++) fill(fd, idx, bad[idx], to);
    used += snprintf(line, sizeof line, "%s of %s:", call->name, states[state]);
    for (int idx = 0; idx < count; idx++) {
        if (bad[idx]) used += snprintf(line + used, sizeof line - used, " %d %s", idx, kinds[bad[idx]]);
    }
    if (sigsetjmp(back, 1)) {
        printf("%s: a fault\n", line);
    } else {
        // A descriptor's number is the kernel's choice.
        long result = call->make(fd, to);
        int error = result < 0 ? errno : 0;
        printf("%s: %ld %s, left %d\n", line, result, error ? strerrorname_np(error) : "-", left(fd, state));
    }
    close(set), close(fd);
}

static uint64_t seed;

// One bad pointer at a time, of one in so many of all such calls.
static void plays_the_table(int stride) {
    unsigned count = 0;
    for (int at = 0; at < CALLS; at++) {
        for (int state = 0; state < STATES; state++) {
            for (int idx = 0; idx < pointers_of(&calls[at]); idx++) {
                for (int kind = GOOD; kind < KINDS; kind++) {
                    int bad[POINTERS] = {0};
                    bad[idx] = kind;
                    // All of them good: once.
                    if (kind == GOOD && idx > 0) continue;
                    if (count++ % stride == seed % stride) play_once(&calls[at], state, bad);
                }
            }
        }
    }
}

static int below(int limit) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (seed >> 33) % limit;
}

static void plays_draws(int draws) {
    while (draws-- > 0) {
        const struct call *call = &calls[below(CALLS)];
        int state = below(STATES), bad[POINTERS] = {0};
        for (int idx = 0; idx < POINTERS; idx++) bad[idx] = below(2) ? below(KINDS) : GOOD;
        play_once(call, state, bad);
    }
}

int main(int count, char **arguments) {
    if (count < 5) return 2;
    peer = arguments[1];
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGSEGV, leaves), signal(SIGPIPE, SIG_IGN);
    for (int idx = 0; idx < POINTERS; idx++) {
        char *page = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        munmap(page + PAGE, PAGE), mprotect(page + 2 * PAGE, PAGE, PROT_READ), munmap(page + 3 * PAGE, PAGE);
        pages[idx] = page;
    }
    seed = strtoull(arguments[3], NULL, 10);
    strcmp(arguments[2], "table") == 0 ? plays_the_table(atoi(arguments[4])) : plays_draws(atoi(arguments[4]));
    return 0;
}
