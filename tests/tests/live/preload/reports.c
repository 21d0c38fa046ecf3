// The error queue and stamps of sockets, by a program that knows nothing of wirepath: reports
// ADDRESS-OF-THE-PEER. Prints what each call returns; of a time only whether it is near the wall
// clock. On the kernel's sockets and under the preload library it prints the same.
//
// The peer echoes bytes on TCP port 7000 and datagrams on UDP port 7000; no socket has UDP port
// 7002. It routes to 10.99.0.0/24, which it cannot reach.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/errqueue.h>
#include <linux/net_tstamp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "calls.h"

static void set(int fd, int level, int name, int value) {
    char what[32];
    snprintf(what, sizeof what, "option %d %d", level, name);
    say(what, setsockopt(fd, level, name, &value, sizeof value));
}

// Whether a time is set, and within three seconds of now.
static const char *time_of(const long *pair, long per_second) {
    if (pair[0] == 0 && pair[1] == 0) return "none";
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    double apart = (now.tv_sec - pair[0]) + (now.tv_nsec / 1e9 - (double)pair[1] / per_second);
    return apart > -0.01 && apart < 3 && pair[1] < per_second ? "near" : "far";
}

static void say_controls(struct msghdr *message) {
    for (struct cmsghdr *control = CMSG_FIRSTHDR(message); control; control = CMSG_NXTHDR(message, control)) {
        printf("  control %d %d len %zu", control->cmsg_level, control->cmsg_type, (size_t)control->cmsg_len);
        long values[6] = {0};
        memcpy(values, CMSG_DATA(control), control->cmsg_len - CMSG_LEN(0) < 48 ? control->cmsg_len - CMSG_LEN(0) : 48);
        int is_error = (control->cmsg_level == IPPROTO_IP && control->cmsg_type == IP_RECVERR) ||
                       (control->cmsg_level == IPPROTO_IPV6 && control->cmsg_type == 25);
        if (control->cmsg_level == SOL_SOCKET) {
            int micros = control->cmsg_type == 29 || control->cmsg_type == 63;
            int count = control->cmsg_type == 37 || control->cmsg_type == 65 ? 3 : 1;
            for (int i = 0; i < count; i++) printf(" %s", time_of(values + 2 * i, micros ? 1000000 : 1000000000));
        } else if (is_error) {
            struct sock_extended_err error;
            memcpy(&error, CMSG_DATA(control), sizeof error);
            printf(" errno %u origin %d type %d code %d info %u data %u", error.ee_errno, error.ee_origin,
                   error.ee_type, error.ee_code, error.ee_info, error.ee_data);
            unsigned char *offender = CMSG_DATA(control) + sizeof error;
            printf(" offender");
            for (unsigned i = 0; i < control->cmsg_len - CMSG_LEN(sizeof error); i++) printf(" %d", offender[i]);
        } else {
            unsigned char *bytes = CMSG_DATA(control);
            // The number of the interface is the same, and so is the peer's TTL.
            for (unsigned i = 0; i < control->cmsg_len - CMSG_LEN(0); i++) printf(" %d", bytes[i]);
        }
        printf("\n");
    }
}

// The message quotes a segment, whose header is longer or shorter by its options.
static int has_segment;

// One message with its control messages. Returns its length.
static long take(int fd, int flags, const char *tail) {
    static char bytes[2048], control[512];
    struct sockaddr_storage name;
    memset(&name, 0, sizeof name);
    memset(bytes, 0, sizeof bytes);
    struct iovec part = {bytes, sizeof bytes};
    struct msghdr message = {&name, sizeof name, &part, 1, control, sizeof control, 0};
    long len = recvmsg(fd, &message, flags);
    say("recvmsg", len < 0 || !has_segment ? len : len >= 20);
    if (len < 0) return len;
    printf("  flags %x name %d", message.msg_flags, message.msg_namelen);
    unsigned char *named = (unsigned char *)&name;
    for (unsigned i = 0; i < message.msg_namelen && i < sizeof name; i++) printf(" %d", named[i]);
    size_t tail_len = strlen(tail);
    int has_tail = len >= (long)tail_len && memcmp(bytes + len - tail_len, tail, tail_len) == 0;
    printf(" %s\n", has_tail ? tail : "other bytes");
    say_controls(&message);
    return len;
}

static void await_error(int fd) {
    say("poll", ready(fd, 0, 5000));
}

static int datagrams(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in any = at("0.0.0.0", 0);
    bind(fd, (struct sockaddr *)&any, sizeof any);
    return fd;
}

static void send_datagram(int fd, int port, const char *bytes) {
    struct sockaddr_in to = at(peer, port);
    say("sendto", sendto(fd, bytes, strlen(bytes), 0, (struct sockaddr *)&to, sizeof to));
}

// The kernel begins to stamp a moment after a socket asks for it. Returns a socket that keeps it so.
static int await_stamps(void) {
    int fd = datagrams(), flags = 0x18;
    setsockopt(fd, SOL_SOCKET, 37, &flags, sizeof flags);
    for (;;) {
        struct sockaddr_in to = at(peer, 7000);
        sendto(fd, "tick", 4, 0, (struct sockaddr *)&to, sizeof to);
        if (ready(fd, POLLIN, 5000) != POLLIN) return fd;
        char byte, control[128];
        struct iovec part = {&byte, 1};
        struct msghdr message = {NULL, 0, &part, 1, control, sizeof control, 0};
        recvmsg(fd, &message, 0);
        if (message.msg_controllen > 0) return fd;
    }
}

static void arrivals(void) {
    int stamped = await_stamps();
    int options[][3] = {{29, 1}, {35, 1}, {63, 1}, {64, 1}, {35, 0}, {37, 0x18}, {65, 0x18}, {29, 1}, {37, 0x18}, {37, 0x08}};
    int fd = datagrams();
    for (unsigned i = 0; i < sizeof options / sizeof *options; i++) {
        set(fd, SOL_SOCKET, options[i][0], options[i][1]);
        send_datagram(fd, 7000, "tick");
        say("in", ready(fd, POLLIN, 5000));
        take(fd, 0, "tick");
    }
    set(fd, SOL_SOCKET, 37, 1 << 30);
    set(fd, SOL_SOCKET, 37, SOF_TIMESTAMPING_OPT_STATS);
    close(fd);
    fd = call(7000);
    set(fd, SOL_SOCKET, 35, 1);
    set(fd, SOL_SOCKET, 37, 0x18);
    say("send", send(fd, "word", 4, 0));
    say("in", ready(fd, POLLIN, 5000));
    take(fd, MSG_PEEK, "word");
    take(fd, 0, "word");
    close(fd);
    close(stamped);
}

static void errors(void) {
    int fd = datagrams();
    take(fd, MSG_ERRQUEUE, "");
    set(fd, IPPROTO_IP, IP_RECVERR, 1);
    send_datagram(fd, 7002, "anyone?");
    await_error(fd);
    take(fd, MSG_ERRQUEUE, "anyone?");
    say("poll", ready(fd, POLLIN, 0));
    set(fd, IPPROTO_IP, IP_RECVTTL, 1);
    set(fd, IPPROTO_IP, IP_RECVTOS, 1);
    set(fd, IPPROTO_IP, IP_PKTINFO, 1);
    send_datagram(fd, 7002, "again");
    await_error(fd);
    char byte;
    say("recv", recv(fd, &byte, 1, MSG_DONTWAIT));
    say("recv", recv(fd, &byte, 1, MSG_DONTWAIT));
    await_error(fd);
    take(fd, MSG_ERRQUEUE, "again");
    take(fd, MSG_ERRQUEUE, "");
    send_datagram(fd, 7002, "SO_ERROR");
    await_error(fd);
    int error = 0;
    socklen_t len = sizeof error;
    say("SO_ERROR", getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len));
    printf("error %d\n", error);
    set(fd, IPPROTO_IP, IP_RECVERR, 0);
    say("poll", ready(fd, POLLIN, 0));
    take(fd, MSG_ERRQUEUE, "");
    send_datagram(fd, 7002, "silent");
    say("poll", ready(fd, POLLIN, 100));
    close(fd);
}

// What the kernel carries for an offloaded socket fails, too.
static void by_loopback(void) {
    int fd = datagrams();
    set(fd, IPPROTO_IP, IP_RECVERR, 1);
    struct sockaddr_in to = at("127.0.0.1", 7002);
    say("sendto", sendto(fd, "by loopback", 11, 0, (struct sockaddr *)&to, sizeof to));
    await_error(fd);
    char byte;
    say("recv", recv(fd, &byte, 1, MSG_DONTWAIT));
    await_error(fd);
    take(fd, MSG_ERRQUEUE, "by loopback");
    take(fd, MSG_ERRQUEUE, "");
    say("poll", ready(fd, POLLIN, 0));
    struct sockaddr_in local;
    socklen_t len = sizeof local;
    getsockname(fd, (struct sockaddr *)&local, &len);
    set(fd, SOL_SOCKET, 35, 1);
    int other = socket(AF_INET, SOCK_DGRAM, 0);
    to.sin_port = local.sin_port;
    say("sendto", sendto(other, "stamped", 7, 0, (struct sockaddr *)&to, sizeof to));
    static char bytes[16], control[128];
    struct iovec part = {bytes, sizeof bytes};
    struct msghdr message = {NULL, 0, &part, 1, control, sizeof control, 0};
    say("recvmsg", recvmsg(fd, &message, 0));
    say_controls(&message);
    close(other);
    close(fd);
}

static void connected(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    set(fd, IPPROTO_IP, IP_RECVERR, 1);
    set(fd, SOL_SOCKET, 45, 1);
    struct sockaddr_in to = at(peer, 7002);
    say("connect", connect(fd, (struct sockaddr *)&to, sizeof to));
    int set_of_all = epoll_create1(0);
    struct epoll_event event = {EPOLLET | EPOLLPRI, {.fd = 1}};
    epoll_ctl(set_of_all, EPOLL_CTL_ADD, fd, &event);
    say("send", send(fd, "one", 3, 0));
    say("epoll", epoll_wait(set_of_all, &event, 1, 5000));
    printf("events %x\n", event.events);
    say("send", send(fd, "two", 3, 0));
    take(fd, MSG_ERRQUEUE, "one");
    take(fd, MSG_ERRQUEUE, "");
    close(set_of_all);
    close(fd);
}

static void mapped(void) {
    int fd = socket(AF_INET6, SOCK_DGRAM, 0);
    set(fd, IPPROTO_IP, IP_RECVERR, 1);
    struct sockaddr_in6 any = {.sin6_family = AF_INET6};
    bind(fd, (struct sockaddr *)&any, sizeof any);
    struct sockaddr_in6 to = {.sin6_family = AF_INET6, .sin6_port = htons(7002)};
    to.sin6_addr.s6_addr[10] = to.sin6_addr.s6_addr[11] = 0xff;
    inet_pton(AF_INET, peer, to.sin6_addr.s6_addr + 12);
    say("sendto", sendto(fd, "mapped", 6, 0, (struct sockaddr *)&to, sizeof to));
    await_error(fd);
    take(fd, MSG_ERRQUEUE, "mapped");
    close(fd);
}

// recvmmsg looks for an error before it looks for datagrams.
static void before_datagrams(void) {
    char bytes[2][64];
    struct iovec parts[2] = {{bytes[0], 64}, {bytes[1], 64}};
    struct mmsghdr batch[2] = {{{.msg_iov = &parts[0], .msg_iovlen = 1}}, {{.msg_iov = &parts[1], .msg_iovlen = 1}}};
    int fd = datagrams();
    set(fd, IPPROTO_IP, IP_RECVERR, 1);
    send_datagram(fd, 7000, "echo");
    say("poll", ready(fd, POLLIN, 5000));
    send_datagram(fd, 7002, "anyone?");
    await_error(fd);
    say("of the error queue", recvmmsg(fd, batch, 2, MSG_ERRQUEUE | MSG_DONTWAIT, NULL));
    for (int i = 0; i < 3; i++) say("recvmmsg", recvmmsg(fd, batch, 2, MSG_DONTWAIT, NULL));
    send_datagram(fd, 7000, "echo");
    say("poll", ready(fd, POLLIN, 5000));
    send_datagram(fd, 7002, "anyone?");
    await_error(fd);
    for (int i = 0; i < 3; i++) say("recvmmsg", recvmmsg(fd, batch, 2, MSG_DONTWAIT, NULL));
    close(fd);
}

// What only a connection has, which a twin does not.
static void about_connections(void) {
    int fd = call(7000), mtu = 0, bare = socket(AF_INET, SOCK_STREAM, 0);
    unsigned memory[9] = {0};
    struct sockaddr_in name = {0};
    char longer[sizeof name + 1];
    socklen_t lens[] = {sizeof mtu, sizeof name, sizeof longer, sizeof memory};
    say("send", send(fd, "word", 4, 0));
    say("in", ready(fd, POLLIN, 5000));
    say("IP_MTU", getsockopt(fd, IPPROTO_IP, IP_MTU, &mtu, &lens[0]));
    printf("%d of %u bytes\n", mtu, lens[0]);
    say("SO_PEERNAME", getsockopt(fd, SOL_SOCKET, SO_PEERNAME, &name, &lens[1]));
    printf("port %d of %u bytes\n", ntohs(name.sin_port), lens[1]);
    say("SO_PEERNAME", getsockopt(fd, SOL_SOCKET, SO_PEERNAME, longer, &lens[2]));
    say("SO_MEMINFO", getsockopt(fd, SOL_SOCKET, SO_MEMINFO, memory, &lens[3]));
    printf("%d %d %d %u, %u bytes\n", memory[0] > 0, memory[1] > 0, memory[3] > 0, memory[8], lens[3]);
    say("IP_MTU", getsockopt(bare, IPPROTO_IP, IP_MTU, &mtu, &lens[0]));
    say("SO_PEERNAME", getsockopt(bare, SOL_SOCKET, SO_PEERNAME, &name, &lens[1]));
    close(bare), close(fd);
}

// IP_MULTICAST_ALL of a datagram socket of each family, before it has an address and after.
static void begins_with(void) {
    for (int six = 0; six < 2; six++) {
        int fd = socket(six ? AF_INET6 : AF_INET, SOCK_DGRAM, 0), all = 9;
        socklen_t len = sizeof all;
        struct sockaddr_in6 any = {.sin6_family = six ? AF_INET6 : AF_INET};
        for (int bound = 0; bound < 2; bound++) {
            if (bound) say("bind", bind(fd, (struct sockaddr *)&any, six ? sizeof any : sizeof(struct sockaddr_in)));
            say("getsockopt", getsockopt(fd, IPPROTO_IP, IP_MULTICAST_ALL, &all, &len));
            printf("IP_MULTICAST_ALL %d\n", all);
        }
        close(fd);
    }
}

static void too_long(void) {
    static char bytes[1473];
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in to = at(peer, 7000);
    say("connect", connect(fd, (struct sockaddr *)&to, sizeof to));
    set(fd, IPPROTO_IP, IP_MTU_DISCOVER, 2);
    set(fd, IPPROTO_IP, IP_RECVERR, 1);
    say("fits", send(fd, bytes, 1472, 0));
    say("too long", send(fd, bytes, 1473, 0));
    say("poll", ready(fd, 0, 0));
    take(fd, MSG_ERRQUEUE, "");
    close(fd);
}

static void departures(void) {
    int flags = SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_TX_SCHED | SOF_TIMESTAMPING_SOFTWARE;
    int fd = datagrams();
    char bytes[16];
    send_datagram(fd, 7000, "first");
    take(fd, 0, "first");
    set(fd, SOL_SOCKET, 37, flags | SOF_TIMESTAMPING_OPT_ID | SOF_TIMESTAMPING_OPT_TSONLY);
    for (int i = 0; i < 2; i++) {
        send_datagram(fd, 7000, "tick");
        await_error(fd);
        take(fd, MSG_ERRQUEUE, "");
        take(fd, MSG_ERRQUEUE, "");
        // The kernel stamps what it receives for other sockets, and reports that here, too.
        say("recv", recv(fd, bytes, sizeof bytes, 0));
    }
    take(fd, MSG_ERRQUEUE, "");
    set(fd, IPPROTO_IP, IP_PKTINFO, 1);
    set(fd, SOL_SOCKET, 65, SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_OPT_CMSG);
    send_datagram(fd, 7000, "whole frame");
    await_error(fd);
    take(fd, MSG_ERRQUEUE, "whole frame");
    set(fd, SOL_SOCKET, 37, SOF_TIMESTAMPING_TX_SOFTWARE);
    send_datagram(fd, 7000, "not reported");
    await_error(fd);
    take(fd, MSG_ERRQUEUE, "not reported");
    set(fd, SOL_SOCKET, 37, 0);
    send_datagram(fd, 7000, "not stamped");
    take(fd, MSG_ERRQUEUE, "");
    close(fd);
}

static void acknowledgments(void) {
    int flags = SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_TX_SCHED | SOF_TIMESTAMPING_TX_ACK;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    set(fd, SOL_SOCKET, 37, SOF_TIMESTAMPING_OPT_ID);
    close(fd);
    fd = call(7000);
    char bytes[16];
    say("send", send(fd, "before", 6, 0));
    say("recv", recv(fd, bytes, 6, MSG_WAITALL));
    flags |= SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_OPT_ID | SOF_TIMESTAMPING_OPT_TSONLY;
    set(fd, SOL_SOCKET, 37, flags);
    for (int i = 0; i < 2; i++) {
        say("send", send(fd, "four", 4, 0));
        say("recv", recv(fd, bytes, 4, MSG_WAITALL));
        for (int entry = 0; entry < 3; entry++) {
            await_error(fd);
            take(fd, MSG_ERRQUEUE, "");
        }
    }
    take(fd, MSG_ERRQUEUE, "");
    close(fd);
}

// Sends without copies, as far as the caller can see; reports the calls that are completed.
static void complete(int fd) {
    int value = 2;
    say("SO_ZEROCOPY", setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &value, sizeof value));
    static char bytes[1024];
    say("send", send(fd, bytes, sizeof bytes, MSG_ZEROCOPY));
    take(fd, MSG_ERRQUEUE, "");
    set(fd, SOL_SOCKET, SO_ZEROCOPY, 1);
    say("send", send(fd, bytes, sizeof bytes, MSG_ZEROCOPY));
    await_error(fd);
    take(fd, MSG_ERRQUEUE, "");
    say("send", send(fd, bytes, sizeof bytes, 0));
    say("send", send(fd, bytes, sizeof bytes, MSG_ZEROCOPY));
    await_error(fd);
    take(fd, MSG_ERRQUEUE, "");
    take(fd, MSG_ERRQUEUE, "");
    close(fd);
}

static void zerocopy(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in to = at(peer, 7000);
    say("connect", connect(fd, (struct sockaddr *)&to, sizeof to));
    complete(fd);
    complete(call(7000));
}

// Stamps by the NIC, of what is received and sent: none, where the NIC makes none.
static void by_nic(void) {
    int flags = SOF_TIMESTAMPING_TX_HARDWARE | SOF_TIMESTAMPING_RX_HARDWARE | SOF_TIMESTAMPING_RAW_HARDWARE;
    int fd = datagrams();
    send_datagram(fd, 7000, "first");
    take(fd, 0, "first");
    set(fd, SOL_SOCKET, 37, flags | SOF_TIMESTAMPING_OPT_ID | SOF_TIMESTAMPING_OPT_TSONLY);
    send_datagram(fd, 7000, "tick");
    take(fd, 0, "tick");
    say("poll", ready(fd, 0, 100));
    take(fd, MSG_ERRQUEUE, "");
    close(fd);
}

// A network that the peer says it cannot reach.
static void unreachable(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in to = at("10.99.0.1", 7002);
    say("connect", connect(fd, (struct sockaddr *)&to, sizeof to));
    say("poll", ready(fd, POLLIN | POLLOUT, 0));
    has_segment = 1;
    take(fd, MSG_ERRQUEUE, "");
    has_segment = 0;
    take(fd, MSG_ERRQUEUE, "");
    say("poll", ready(fd, POLLIN | POLLOUT, 0));
    close(fd);
    fd = datagrams();
    set(fd, IPPROTO_IP, IP_RECVERR, 1);
    say("sendto", sendto(fd, "unreachable", 11, 0, (struct sockaddr *)&to, sizeof to));
    await_error(fd);
    take(fd, MSG_ERRQUEUE, "unreachable");
    close(fd);
    fd = socket(AF_INET, SOCK_DGRAM, 0);
    say("connect", connect(fd, (struct sockaddr *)&to, sizeof to));
    say("send", send(fd, "soft", 4, 0));
    say("poll", ready(fd, 0, 200));
    close(fd);
}

// An entry whose bytes do not fit in memory of the program is lost.
static void bad_buffers(void) {
    int fd = datagrams();
    struct sockaddr_in to = at(peer, 7002);
    char *page = mmap(NULL, 2 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(page + 4096, 4096);
    char *bad[] = {NULL, page + 4096, page + 4096 - 4}, bytes[64];
    set(fd, IPPROTO_IP, IP_RECVERR, 1);
    for (int idx = 0; idx < 3; idx++) {
        say("sendto", sendto(fd, "to nobody", 9, 0, (struct sockaddr *)&to, sizeof to));
        await_error(fd);
        struct iovec part = {bad[idx], 64};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
        say("recvmsg", recvmsg(fd, &message, MSG_ERRQUEUE));
        say("no more", recv(fd, bytes, 64, MSG_ERRQUEUE));
        sendto(fd, "to nobody", 9, 0, (struct sockaddr *)&to, sizeof to);
        await_error(fd);
        say("recv", recv(fd, bad[idx], 64, MSG_ERRQUEUE));
        say("no more", recv(fd, bytes, 64, MSG_ERRQUEUE));
    }
    sendto(fd, "to nobody", 9, 0, (struct sockaddr *)&to, sizeof to);
    await_error(fd);
    say("as much as is there", recv(fd, page + 4096 - 9, 4000, MSG_ERRQUEUE));
    close(fd);
}

int main(int count, char **arguments) {
    if (count < 2) return 2;
    peer = arguments[1];
    struct part parts[] = {
        {"arrivals", arrivals}, {"errors", errors}, {"by loopback", by_loopback}, {"connected", connected}, {"mapped", mapped},
        {"before datagrams", before_datagrams}, {"begins with", begins_with}, {"about connections", about_connections}, {"too long", too_long}, {"departures", departures}, {"acknowledgments", acknowledgments},
        {"zerocopy", zerocopy}, {"unreachable", unreachable}, {"by the NIC", by_nic},
        {"bad buffers", bad_buffers},
    };
    return play(parts, sizeof parts / sizeof *parts, count > 2 ? arguments[2] : NULL);
}
