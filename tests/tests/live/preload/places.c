// Sockets between ours and the kernel's: bound to an address of another interface, connected
// elsewhere after they were ours, accepted by the kernel. The output is the same on the kernel's
// sockets and under the library.
#define _GNU_SOURCE
#include "calls.h"

#include <net/if.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static int bound(int kind, const char *ip, int port) {
    int fd = socket(AF_INET, kind, 0);
    struct sockaddr_in address = at(ip, port);
    say("bind", bind(fd, (struct sockaddr *)&address, sizeof address));
    return fd;
}

static void echo_from(int kind) {
    int fd = bound(kind, "10.7.0.1", 0);
    struct sockaddr_in address = at(peer, 7000);
    char bytes[4];
    say("connect", connect(fd, (struct sockaddr *)&address, sizeof address));
    say("send", send(fd, "echo", 4, 0));
    say("poll", ready(fd, POLLIN, 10000));
    say("recv", recv(fd, bytes, 4, MSG_DONTWAIT));
    close(fd);
}

static void stream_of_another(void) { echo_from(SOCK_STREAM); }
static void datagrams_of_another(void) { echo_from(SOCK_DGRAM); }

static int bound6(const struct in6_addr *ip, struct sockaddr_in6 *name) {
    int fd = socket(AF_INET6, SOCK_DGRAM, 0);
    socklen_t len = sizeof *name;
    *name = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_addr = *ip};
    say("bind", bind(fd, (struct sockaddr *)name, len));
    getsockname(fd, (struct sockaddr *)name, &len);
    return fd;
}

static void peer_of_ipv6(void) {
    struct sockaddr_in6 name, of_server;
    socklen_t len = sizeof name;
    char bytes[4];
    int server = bound6(&in6addr_loopback, &of_server), fd = bound6(&in6addr_any, &name);
    say("connect", connect(fd, (struct sockaddr *)&of_server, sizeof of_server));
    say("send", send(fd, "ping", 4, 0));
    say("poll", ready(server, POLLIN, 10000));
    say("recvfrom", recvfrom(server, bytes, 4, MSG_DONTWAIT, (struct sockaddr *)&name, &len));
    say("sendto", sendto(server, "pong", 4, 0, (struct sockaddr *)&name, len));
    say("poll", ready(fd, POLLIN, 10000));
    say("recv", recv(fd, bytes, 4, MSG_DONTWAIT));
    say("getpeername", getpeername(fd, (struct sockaddr *)&name, &len));
    close(server), close(fd);
}

static void say_events(int set) {
    struct epoll_event event = {0};
    say("epoll_wait", epoll_wait(set, &event, 1, 10000));
    printf("events %x, data %d\n", event.events, event.data.fd);
}

static void in_a_set(void) {
    int server = bound(SOCK_DGRAM, "127.0.0.1", 7310), fd = bound(SOCK_DGRAM, "0.0.0.0", 0);
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.fd = 5};
    struct sockaddr_in address = at("127.0.0.1", 7310);
    say("epoll_ctl", epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
    say("connect", connect(fd, (struct sockaddr *)&address, sizeof address));
    say_events(set);
    say("modify", epoll_ctl(set, EPOLL_CTL_MOD, fd, &event));
    say_events(set);
    say("delete", epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL));
    close(server), close(fd), close(set);
}

// At the far end, until the test is over: nobody listens at first.
static void calls(void) {
    for (;; usleep(1000)) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        struct sockaddr_in address = at(peer, 7311);
        connect(fd, (struct sockaddr *)&address, sizeof address);
        close(fd);
    }
}

static void forks(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), set = epoll_create1(0), on = 1;
    struct epoll_event event = {.events = EPOLLIN, .data.fd = 6};
    struct sockaddr_in address = at("0.0.0.0", 7311);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    say("epoll_ctl", epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
    say("bind", bind(fd, (struct sockaddr *)&address, sizeof address));
    say("listen", listen(fd, 8));
    pid_t helper = fork();
    if (helper == 0) _exit(0);
    waitpid(helper, NULL, 0);
    for (int i = 0; i < 2; i++) {
        say_events(set);
        int accepted = accept(fd, NULL, NULL);
        say("write", write(accepted, "x", 1));
        close(accepted);
    }
    close(fd), close(set);
}

static int listener(int port) {
    int fd = bound(SOCK_STREAM, "0.0.0.0", port);
    say("listen", listen(fd, 64));
    return fd;
}

static int call_loopback(int port) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = at("127.0.0.1", port);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0) return fd;
    close(fd);
    return -1;
}

static void caller_that_resets(void) {
    int fd = listener(7312), caller = call_loopback(7312);
    struct linger at_once = {1, 0};
    setsockopt(caller, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(caller);
    struct sockaddr_in name;
    memset(&name, 0xaa, sizeof name);
    socklen_t len = sizeof name;
    int accepted = accept(fd, (struct sockaddr *)&name, &len);
    char text[INET_ADDRSTRLEN];
    inet_ntop(AF_INET, &name.sin_addr, text, sizeof text);
    printf("accept %d, length %d, family %d, address %s\n", accepted >= 0, len, name.sin_family, text);
    close(accepted), close(fd);
}

static void group(void) {
    int fd = bound(SOCK_DGRAM, "0.0.0.0", 7313), on = 1;
    struct ip_mreqn request = {.imr_multiaddr = at("239.7.7.7", 0).sin_addr, .imr_ifindex = if_nametoindex("veth0")};
    // First: a datagram that comes before it has none.
    say("IP_PKTINFO", setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof on));
    say("join", setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &request, sizeof request));
    char bytes[8], control[128];
    struct iovec part = {bytes, sizeof bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    say("recvmsg", recvmsg(fd, &message, 0));
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    struct in_pktinfo *info = (struct in_pktinfo *)CMSG_DATA(header);
    char own[INET_ADDRSTRLEN], to[INET_ADDRSTRLEN];
    inet_ntop(AF_INET, &info->ipi_spec_dst, own, sizeof own);
    inet_ntop(AF_INET, &info->ipi_addr, to, sizeof to);
    printf("interface %d, own %s, to %s\n", info->ipi_ifindex == request.imr_ifindex, own, to);
    close(fd);
}

// At the far end, until the test is over: calls for each byte of a control connection, by IPv4 or
// by IPv6, and ends the call when it has its echo.
static void calls_on_request(void) {
    struct sockaddr_in own = at("0.0.0.0", 7003), address4 = at(peer, 7314);
    struct sockaddr_in6 address6 = {.sin6_family = AF_INET6, .sin6_port = htons(7314)};
    int server = socket(AF_INET, SOCK_STREAM, 0);
    inet_pton(AF_INET6, "fd00:98::1", &address6.sin6_addr);
    bind(server, (struct sockaddr *)&own, sizeof own);
    listen(server, 8);
    for (;;) {
        int control = accept(server, NULL, NULL);
        char family, bytes[4];
        while (read(control, &family, 1) == 1) {
            int fd = socket(family == '4' ? AF_INET : AF_INET6, SOCK_STREAM, 0);
            if (family == '4') connect(fd, (struct sockaddr *)&address4, sizeof address4);
            else connect(fd, (struct sockaddr *)&address6, sizeof address6);
            write(fd, "ping", 4);
            recv(fd, bytes, 4, MSG_WAITALL);
            close(fd);
        }
        close(control);
    }
}

static int control;

static void say_end(const char *what, int (*ask)(int, struct sockaddr *, socklen_t *), int fd) {
    struct sockaddr_in6 name = {0};
    socklen_t len = sizeof name;
    char text[INET6_ADDRSTRLEN];
    int result = ask(fd, (struct sockaddr *)&name, &len);
    printf("%s: %d, family %d, length %d, %s\n", what, result, name.sin6_family, len,
           inet_ntop(AF_INET6, &name.sin6_addr, text, sizeof text));
}

static void takes_a_caller(int set, int listener, char family) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = 7};
    struct sockaddr_in6 name = {0};
    socklen_t len = sizeof name;
    char text[INET6_ADDRSTRLEN], bytes[4];
    int domain = 0;
    write(control, &family, 1);
    say_events(set);
    int fd = accept(listener, (struct sockaddr *)&name, &len);
    printf("accept: %d, family %d, length %d, %s\n", fd >= 0, name.sin6_family, len,
           inet_ntop(AF_INET6, &name.sin6_addr, text, sizeof text));
    say_end("getpeername", getpeername, fd);
    say_end("getsockname", getsockname, fd);
    len = sizeof domain;
    getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len);
    printf("domain %d\n", domain);
    say("epoll_ctl", epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
    say_events(set);
    say("recv", recv(fd, bytes, 4, MSG_WAITALL));
    printf("%.4s\n", bytes);
    say("send", send(fd, bytes, 4, 0));
    // It closes when it has its echo.
    say_events(set);
    say("recv", recv(fd, bytes, 4, 0));
    close(fd);
}

static void listener_of_both(void) {
    int fd = socket(AF_INET6, SOCK_STREAM, 0), set = epoll_create1(0), on = 1;
    struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons(7314)};
    struct epoll_event event = {.events = EPOLLIN, .data.fd = 8};
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    say("bind", bind(fd, (struct sockaddr *)&any, sizeof any));
    say("listen", listen(fd, 8));
    say("epoll_ctl", epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
    control = call(7003);
    for (const char *each = "464664"; *each; each++) takes_a_caller(set, fd, *each);
    close(control), close(fd), close(set);
}

static int reused(int port) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    struct sockaddr_in address = at("0.0.0.0", port);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    say("bind", bind(fd, (struct sockaddr *)&address, sizeof address));
    say("listen", listen(fd, 8));
    return fd;
}

static int polled(int fd) {
    struct pollfd entry = {fd, POLLIN, 0};
    poll(&entry, 1, 10000);
    return entry.revents;
}

// A listener whose program has no descriptor left: who has called waits until one is closed.
static void no_descriptor(void) {
    int fd = reused(7314), set = epoll_create1(0), held[64], count = 0, loopback = call_loopback(7314);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = 9};
    struct rlimit few;
    control = call(7003);
    getrlimit(RLIMIT_NOFILE, &few);
    rlim_t before = few.rlim_cur;
    few.rlim_cur = 60;
    say("setrlimit", setrlimit(RLIMIT_NOFILE, &few));
    while (count < 64 && (held[count] = dup(0)) >= 0) count++;
    say("dup", held[count]);
    say("epoll_ctl", epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
    for (int by_the_wire = 0; by_the_wire < 2; by_the_wire++) {
        char bytes[4];
        if (by_the_wire) write(control, "4", 1);
        for (int turn = 0; turn < 3; turn++) {
            printf("poll: %x\n", polled(fd));
            say_events(set);
            say("accept", accept(fd, NULL, NULL));
        }
        close(held[--count]);
        int accepted = accept(fd, NULL, NULL);
        say("accept", accepted >= 0 ? 0 : -1);
        if (!by_the_wire) write(loopback, "echo", 4);
        say("recv", recv(accepted, bytes, 4, MSG_WAITALL));
        say("send", send(accepted, bytes, 4, 0));
        close(accepted);
        held[count++] = dup(0);
    }
    few.rlim_cur = before;
    setrlimit(RLIMIT_NOFILE, &few);
    while (count) close(held[--count]);
    close(loopback), close(control), close(fd), close(set);
}

int main(int count, char **arguments) {
    peer = arguments[1];
    struct part parts[] = {
        {"stream of another address", stream_of_another},
        {"datagrams of another address", datagrams_of_another},
        {"peer of IPv6", peer_of_ipv6},
        {"in a set", in_a_set},
        {"forks", forks},
        {"calls", calls},
        {"caller that resets", caller_that_resets},
        {"group", group},
        {"calls on request", calls_on_request},
        {"listener of both", listener_of_both},
        {"no descriptor", no_descriptor},
    };
    return play(parts, sizeof parts / sizeof *parts, arguments[2]);
}
