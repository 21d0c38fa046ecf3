// Plays the calls that it is sent: player SOCKET ADDRESS-OF-THE-PEER
// OWN-ADDRESS. A line from the unix socket is
// a call, `OP A B C SEED`, with sockets and epoll sets named by small numbers; the line that it
// answers has what the call returned, and the bytes as a hash. scripts.rs knows the same numbers.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <linux/sockios.h>
#include <time.h>
#include <unistd.h>

enum { SLOTS = 12, SETS = 3, LEN_MAX = 70000 };

static int fds[SLOTS], sets[SETS];
static const char *peer, *own;
static unsigned char bytes[LEN_MAX];
static char answer[4096];
static int used;

// Descriptors without a slot any more, because a duplicate of another took it: they stay open until
// the script ends.
static int left[256], left_count;

// The thread that waits in a call.
static pthread_t waiter;
static int waits_on, waits_for;
static volatile int has_ended;
static char waited[256];

static void put(const char *format, long number) {
    used += snprintf(answer + used, sizeof answer - used, format, number);
}

static void put_result(long result) {
    int error = result < 0 ? errno : 0;
    put("%ld", result);
    if (error) used += snprintf(answer + used, sizeof answer - used, " %s", strerrorname_np(error));
}

static void put_in_slot(int slot, int fd, int was_replaced) {
    if (fds[slot] >= 0 && !was_replaced && left_count < 256) left[left_count++] = fds[slot];
    fds[slot] = fd;
}

// How many descriptors the program has, without those of the library, which are high ones.
static int open_count(void) {
    DIR *all = opendir("/proc/self/fd");
    int count = 0;
    for (struct dirent *entry; (entry = readdir(all));) count += entry->d_name[0] != '.' && atoi(entry->d_name) < 900;
    closedir(all);
    return count;
}

static unsigned hash(const unsigned char *from, long len) {
    unsigned value = 2166136261u;
    for (long i = 0; i < len; i++) value = (value ^ from[i]) * 16777619u;
    return value;
}

static void fill(unsigned seed, long len) {
    unsigned value = seed | 1;
    for (long i = 0; i < len; i++) {
        value ^= value << 13, value ^= value >> 17, value ^= value << 5;
        bytes[i] = value;
    }
}

static struct sockaddr_in at(const char *ip, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, ip, &address.sin_addr);
    return address;
}

// An address of either family, as the sockets of the script have it.
union address {
    struct sockaddr any;
    struct sockaddr_in four;
    struct sockaddr_in6 six;
};

// The same for this socket, of which one of IPv6 has it in mapped form.
static socklen_t name_for(int fd, const char *ip, int port, union address *name) {
    int family = AF_INET;
    socklen_t len = sizeof family;
    getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &len);
    memset(name, 0, sizeof *name);
    name->four = at(ip, port);
    if (family != AF_INET6) return sizeof name->four;
    struct in_addr four = name->four.sin_addr;
    name->six = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons(port)};
    if (four.s_addr) {
        name->six.sin6_addr.s6_addr[10] = name->six.sin6_addr.s6_addr[11] = 0xff;
        memcpy(&name->six.sin6_addr.s6_addr[12], &four, sizeof four);
    }
    return sizeof name->six;
}

static void put_name(union address *name) {
    char text[INET6_ADDRSTRLEN] = "?";
    int is_six = name->any.sa_family == AF_INET6, port = ntohs(name->four.sin_port);
    inet_ntop(name->any.sa_family, is_six ? (void *)&name->six.sin6_addr : (void *)&name->four.sin_addr, text, sizeof text);
    used += snprintf(answer + used, sizeof answer - used, " %s:", text);
    // The kernel chooses those above, another in each run.
    put(port >= 32768 ? "any" : "%ld", port);
}

static void named(int fd, int (*ask)(int, struct sockaddr *, socklen_t *)) {
    union address name = {0};
    socklen_t len = sizeof name;
    int result = ask(fd, &name.any, &len);
    put_result(result);
    if (result == 0) put_name(&name);
    put(" ", 0);
}

static void sends(int fd, int len, int way, unsigned seed) {
    union address to, here;
    socklen_t name_len = name_for(fd, peer, 7000, &to);
    struct iovec parts[3] = {{bytes, len / 3}, {NULL, 0}, {bytes + len / 3, len - len / 3}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 3};
    struct mmsghdr messages[3] = {{message}, {message}, {message}};
    int count = 2;
    if (way == 6) {
        // To this host, to the peer, and to this host again.
        name_for(fd, "127.0.0.1", 9, &here);
        for (count = 0; count < 3; count++) {
            messages[count].msg_hdr.msg_name = count == 1 ? &to : &here;
            messages[count].msg_hdr.msg_namelen = name_len;
        }
    }
    fill(seed, len);
    switch (way) {
    case 0: put_result(send(fd, bytes, len, MSG_NOSIGNAL)); break;
    case 1: put_result(writev(fd, parts, 3)); break;
    case 2: put_result(sendmsg(fd, &message, MSG_NOSIGNAL)); break;
    case 3: put_result(sendto(fd, bytes, len, MSG_NOSIGNAL, &to.any, name_len)); break;
    case 4: put_result(write(fd, bytes, len)); break;
    default: put_result(sendmmsg(fd, messages, count, MSG_NOSIGNAL));
    }
}

static void receives_messages(int fd, int len, int flags) {
    struct iovec parts[2] = {{bytes, len / 2}, {bytes + len / 2, len - len / 2}};
    struct mmsghdr batch[2] = {0};
    for (int i = 0; i < 2; i++) batch[i].msg_hdr.msg_iov = &parts[i], batch[i].msg_hdr.msg_iovlen = 1;
    int count = recvmmsg(fd, batch, 2, flags, NULL);
    put_result(count);
    for (int i = 0; i < count; i++) {
        long got = batch[i].msg_len, room = parts[i].iov_len;
        put(" %ld", got), put(":%lx", batch[i].msg_hdr.msg_flags);
        put(" %08lx", hash(parts[i].iov_base, got < room ? got : room));
    }
}

static void receives(int fd, int len, int flags, int way) {
    union address from = {0};
    struct iovec parts[2] = {{bytes, len / 2}, {bytes + len / 2, len - len / 2}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2, .msg_name = &from, .msg_namelen = sizeof from};
    socklen_t name_len = sizeof from;
    long got;
    memset(bytes, 0, len);
    switch (way) {
    case 0: got = recv(fd, bytes, len, flags); break;
    case 1: got = readv(fd, parts, 2); break;
    case 2: got = recvmsg(fd, &message, flags); break;
    case 3: got = recvfrom(fd, bytes, len, flags, &from.any, &name_len); break;
    case 5: return receives_messages(fd, len, flags);
    default: got = read(fd, bytes, len);
    }
    put_result(got);
    if (got < 0) return;
    put(" %08lx", hash(bytes, got < len ? got : len));
    if (way == 2) put(" flags %lx", message.msg_flags);
    if (way >= 2 && from.any.sa_family) put_name(&from);
}

static void *wait_in_call(void *unused) {
    static unsigned char into[LEN_MAX];
    fcntl(waits_on, F_SETFL, 0);
    long got = recv(waits_on, into, waits_for, 0);
    int error = got < 0 ? errno : 0;
    snprintf(waited, sizeof waited, "%ld %s %08x", got, error ? strerrorname_np(error) : "", got > 0 ? hash(into, got) : 0);
    has_ended = 1;
    return NULL;
}

static void is_interrupted(int number) {
}

// What `poll` reports of all, how many bytes wait, and whether some are on their way.
static void states(void) {
    long moving = 0;
    for (int i = 0; i < SLOTS; i++) {
        struct pollfd entry = {fds[i], POLLIN | POLLOUT | POLLRDHUP | POLLPRI, 0};
        int waiting = 0, unsent = 0;
        if (fds[i] < 0) {
            put(" -", 0);
            continue;
        }
        poll(&entry, 1, 0);
        put(" %lx", entry.revents);
        put(":%ld", ioctl(fds[i], FIONREAD, &waiting) == 0 ? waiting : -errno);
        if (ioctl(fds[i], SIOCOUTQ, &unsent) == 0 && !(entry.revents & (POLLERR | POLLHUP))) moving += unsent;
    }
    put(" moving %ld", moving > 0);
}

static void selects(void) {
    fd_set readable, writable;
    struct timeval now = {0};
    FD_ZERO(&readable);
    FD_ZERO(&writable);
    for (int i = 0; i < SLOTS; i++)
        if (fds[i] >= 0) {
            FD_SET(fds[i], &readable);
            FD_SET(fds[i], &writable);
        }
    put_result(select(FD_SETSIZE, &readable, &writable, NULL, &now));
    for (int i = 0; i < SLOTS; i++)
        if (fds[i] >= 0) put(" %ld", FD_ISSET(fds[i], &readable) * 2 + FD_ISSET(fds[i], &writable));
}

// The same by pselect, and all by ppoll, which block a signal meanwhile.
static void waits_masked(int by_poll) {
    struct pollfd all[SLOTS];
    fd_set readable;
    struct timespec now = {0};
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR2);
    FD_ZERO(&readable);
    for (int i = 0; i < SLOTS; i++) {
        all[i] = (struct pollfd){fds[i], POLLIN | POLLOUT, 0};
        if (fds[i] >= 0) FD_SET(fds[i], &readable);
    }
    put_result(by_poll ? ppoll(all, SLOTS, &now, &mask) : pselect(FD_SETSIZE, &readable, NULL, NULL, &now, &mask));
    for (int i = 0; i < SLOTS; i++)
        if (fds[i] >= 0) put(" %lx", by_poll ? all[i].revents : FD_ISSET(fds[i], &readable) != 0);
}

// Options that change nothing of what the script's other calls return, and those that can only be
// read. scripts.rs knows how many there are.
static const struct option {
    int level, name, len;
    // Is set, and its value is the same on both sides.
    int is_set, is_same;
} options[] = {
    {SOL_SOCKET, SO_KEEPALIVE, 4, 1, 1},        {SOL_SOCKET, SO_BROADCAST, 4, 1, 1},
    {SOL_SOCKET, SO_PRIORITY, 4, 0, 1},         {SOL_SOCKET, SO_LINGER, 8, 0, 1},
    {SOL_SOCKET, SO_TYPE, 4, 1, 1},             {SOL_SOCKET, SO_DOMAIN, 4, 1, 1},
    {SOL_SOCKET, SO_PROTOCOL, 4, 1, 1},         {SOL_SOCKET, SO_ACCEPTCONN, 4, 1, 1},
    {SOL_SOCKET, SO_RCVBUF, 4, 0, 0},           {SOL_SOCKET, SO_SNDBUF, 4, 0, 0},
    {SOL_SOCKET, SO_RCVTIMEO, 16, 0, 1},        {SOL_SOCKET, SO_REUSEPORT, 4, 0, 1},
    {SOL_SOCKET, SO_TIMESTAMPNS, 4, 1, 1},      {SOL_SOCKET, SO_RXQ_OVFL, 4, 1, 1},
    {IPPROTO_IP, IP_TTL, 4, 1, 1},              {IPPROTO_IP, IP_TOS, 4, 1, 1},
    {IPPROTO_IP, IP_PKTINFO, 4, 1, 1},          {IPPROTO_IP, IP_RECVTTL, 4, 1, 1},
    {IPPROTO_IP, IP_RECVTOS, 4, 1, 1},          {IPPROTO_IP, IP_FREEBIND, 4, 1, 1},
    {IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 4, 1, 1}, {IPPROTO_IP, IP_MULTICAST_TTL, 4, 1, 1},
    {IPPROTO_IP, IP_MULTICAST_LOOP, 4, 1, 1},   {IPPROTO_IP, IP_MULTICAST_ALL, 4, 1, 1},
    {IPPROTO_IP, IP_MINTTL, 4, 0, 1},           {IPPROTO_IP, IP_MTU_DISCOVER, 4, 0, 1},
    {IPPROTO_TCP, TCP_NODELAY, 4, 1, 1},        {IPPROTO_TCP, TCP_KEEPIDLE, 4, 1, 1},
    {IPPROTO_TCP, TCP_KEEPINTVL, 4, 1, 1},      {IPPROTO_TCP, TCP_KEEPCNT, 4, 1, 1},
    {IPPROTO_TCP, TCP_SYNCNT, 4, 1, 1},         {IPPROTO_TCP, TCP_LINGER2, 4, 1, 1},
    {IPPROTO_TCP, TCP_QUICKACK, 4, 1, 0},       {IPPROTO_TCP, TCP_CORK, 4, 0, 1},
    {IPPROTO_TCP, TCP_USER_TIMEOUT, 4, 0, 1},   {IPPROTO_TCP, TCP_CONGESTION, 16, 0, 0},
    {IPPROTO_TCP, TCP_DEFER_ACCEPT, 4, 0, 1},   {IPPROTO_TCP, TCP_NOTSENT_LOWAT, 4, 0, 1},
    {IPPROTO_TCP, 77, 4, 1, 1},                 {IPPROTO_IP, 77, 4, 1, 1},
    {SOL_SOCKET, 999, 4, 1, 1},                 {999, 1, 4, 1, 1},
};
enum { OPTIONS = sizeof options / sizeof *options };

// Sets an option to a value, of which so many bytes are named; returns what it is then, in so much
// room.
static void has_option(int fd, int number, int len, int value) {
    const struct option *option = &options[number % OPTIONS];
    int values[4] = {value, value, value, value};
    socklen_t room = len;
    if (option->is_set) put_result(setsockopt(fd, option->level, option->name, values, len)), put(" ", 0);
    memset(values, 0, sizeof values);
    put_result(getsockopt(fd, option->level, option->name, values, &room));
    put(" len %ld", room);
    if (option->is_same) put(" %08lx", hash((unsigned char *)values, sizeof values));
}

// Joins or leaves a group at the address of the interface.
static void is_member(int fd, int number, int joins) {
    struct ip_mreqn group = {.imr_multiaddr.s_addr = htonl(0xefc80101 + number)};
    inet_pton(AF_INET, own, &group.imr_address);
    put_result(setsockopt(fd, IPPROTO_IP, joins ? IP_ADD_MEMBERSHIP : IP_DROP_MEMBERSHIP, &group, sizeof group));
}

// Whether a set has something to report, for those who poll it.
static void set_is_ready(int set) {
    struct pollfd entry = {set, POLLIN, 0};
    put_result(poll(&entry, 1, 0)), put(" %lx", entry.revents);
}

// What a set reports in some calls: one call may leave out sockets that the next one reports, here
// those of the kernel while the library has others.
static void waits(int set, int max) {
    struct epoll_event events[16];
    unsigned reported[SLOTS + SETS] = {0};
    for (int calls = 0; calls < 40; calls++) {
        struct timespec pause = {0, 50000};
        int count = epoll_wait(set, events, max, 0);
        if (count < 0) return put_result(count);
        for (int i = 0; i < count; i++) reported[events[i].data.u64] |= events[i].events;
        nanosleep(&pause, NULL);
    }
    for (int i = 0; i < SLOTS + SETS; i++)
        if (reported[i]) put(" %ld", i), put(":%lx", reported[i]);
}

// A child of fork looks at a socket, closes it and exits: its parent's goes on as before.
static void forks(int fd) {
    int type = 0, status = 0;
    socklen_t len = sizeof type;
    pid_t child = fork();
    if (child == 0) {
        int is_known = getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0;
        is_known &= fcntl(fd, F_GETFL) != -1;
        _exit(is_known << 4 | (close(fd) == 0) << 3 | type);
    }
    put_result(child < 0 ? -1 : 0);
    waitpid(child, &status, 0);
    put(" %lx", status);
}

static void act(int op, int a, int b, int c, unsigned seed) {
    union address address = {0};
    socklen_t len = sizeof address;
    int fd = fds[a % SLOTS], on = 1, error = 0, result;
    switch (op) {
    case 0: put_result((fds[a] = socket(b & 2 ? AF_INET6 : AF_INET, (b & 1 ? SOCK_DGRAM : SOCK_STREAM) | SOCK_NONBLOCK, 0)) < 0 ? -1 : 0); break;
    case 1: len = name_for(fd, "0.0.0.0", b, &address), put_result(bind(fd, &address.any, len)); break;
    case 2: put_result(listen(fd, b)); break;
    case 3: len = name_for(fd, peer, b, &address), put_result(connect(fd, &address.any, len)); break;
    case 4:
        result = accept4(fd, &address.any, &len, SOCK_NONBLOCK);
        put_result(result < 0 ? result : 0);
        if (result >= 0) put_name(&address), fds[b] = result;
        break;
    case 5: sends(fd, b, c, seed); break;
    case 6: receives(fd, b, seed, c); break;
    case 7: put_result(shutdown(fd, b)); break;
    case 8:
        error = fds[b] >= 0 ? fds[b] : 200 + b;
        result = c == 0   ? dup(fd)
                 : c == 1 ? fcntl(fd, F_DUPFD_CLOEXEC, 3)
                 : c == 2 ? dup2(fd, error)
                          : dup3(fd, error, O_CLOEXEC);
        put_result(result < 0 ? result : 0);
        if (result >= 0) put_in_slot(b, result, c >= 2);
        break;
    case 9: put_result(close(fd)), fds[a] = -1; break;
    case 10: put_result((sets[a] = epoll_create1(EPOLL_CLOEXEC)) < 0 ? -1 : 0); break;
    case 11: {
        struct epoll_event event = {seed, {.u64 = a}};
        put_result(epoll_ctl(sets[b], c, fd, &event));
        break;
    }
    case 12: waits(sets[a], b); break;
    case 13:
        len = sizeof error;
        put_result(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len)), put(" error %ld", error);
        break;
    case 14: states(); break;
    case 15:
        waits_on = fd, waits_for = b, has_ended = 0;
        pthread_create(&waiter, NULL, wait_in_call, NULL);
        put("0", 0);
        break;
    case 16:
        for (int i = 0; i < SLOTS; i++) fds[i] >= 0 ? close(fds[i]) : 0, fds[i] = -1;
        for (int i = 0; i < SETS; i++) sets[i] >= 0 ? close(sets[i]) : 0, sets[i] = -1;
        while (left_count > 0) close(left[--left_count]);
        put("%ld", open_count());
        break;
    case 17:
        // A signal that comes before the call does not interrupt it: another follows.
        while (b && !has_ended) {
            struct timespec pause = {0, 2000000};
            nanosleep(&pause, NULL);
            if (!has_ended) pthread_kill(waiter, SIGUSR1);
        }
        pthread_join(waiter, NULL);
        fcntl(fd, F_SETFL, O_NONBLOCK);
        used += snprintf(answer + used, sizeof answer - used, "%s", waited);
        break;
    case 18: put_result(recv(fd, (void *)8, 16, MSG_DONTWAIT)), put(" ", 0), put_result(send(fd, (void *)8, 16, MSG_NOSIGNAL)); break;
    case 19: named(fd, getsockname), named(fd, getpeername); break;
    case 20: put_result(fcntl(fd, F_GETFL)); break;
    case 21: selects(); break;
    case 22: put_result(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on)); break;
    case 23: has_option(fd, b, c, seed); break;
    case 24: is_member(fd, b, c); break;
    case 25: {
        struct epoll_event event = {seed, {.u64 = SLOTS + b}};
        put_result(epoll_ctl(sets[a], c, sets[b], &event));
        break;
    }
    case 26: set_is_ready(sets[a]); break;
    case 27: put_result(close_range(fd, fd, 0)), fds[a] = -1; break;
    case 28: waits_masked(1); break;
    case 29: waits_masked(0); break;
    case 30: forks(fd); break;
    default: put("no such call", 0);
    }
}

int main(int count, char **arguments) {
    struct sockaddr_un place = {.sun_family = AF_UNIX};
    struct sigaction handler = {.sa_handler = is_interrupted};
    int op, a, b, c;
    unsigned seed;
    peer = arguments[2], own = arguments[3];
    strncpy(place.sun_path, arguments[1], sizeof place.sun_path - 1);
    int control = socket(AF_UNIX, SOCK_STREAM, 0);
    if (connect(control, (struct sockaddr *)&place, sizeof place) != 0) return 1;
    sigaction(SIGUSR1, &handler, NULL);
    signal(SIGPIPE, SIG_IGN);
    FILE *calls = fdopen(dup(control), "r");
    memset(fds, -1, sizeof fds), memset(sets, -1, sizeof sets);
    while (fscanf(calls, "%d %d %d %d %u", &op, &a, &b, &c, &seed) == 5) {
        used = 0;
        act(op, a, b, c, seed);
        put("\n", 0);
        if (write(control, answer, used) != used) return 1;
    }
    return 0;
}
