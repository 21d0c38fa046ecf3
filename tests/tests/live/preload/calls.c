// Calls of sockets by a program that knows nothing of wirepath: calls ADDRESS-OF-THE-PEER
// [last-words]. Prints what each returns. On the kernel's sockets and under the preload library it
// prints the same.
//
// The peer echoes bytes on TCP port 7000, closes at once on 7001, refuses 7002; echoes datagrams on
// UDP port 7000.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "calls.h"

static void streams(void) {
    char bytes[64] = "";
    int fd = call(7000);
    struct sockaddr_storage name;
    socklen_t len = sizeof name;
    say("getpeername", getpeername(fd, (struct sockaddr *)&name, &len));
    printf("peer %d %d len %d\n", name.ss_family, ntohs(((struct sockaddr_in *)&name)->sin_port), len);
    say("again", connect(fd, (struct sockaddr *)&name, len));
    say("write", write(fd, "hello, world", 12));
    say("poll in", ready(fd, POLLIN, 5000));
    say("poll both", ready(fd, POLLIN | POLLOUT, 5000));
    say("peek", recv(fd, bytes, 5, MSG_PEEK));
    say("waitall", recv(fd, bytes, 12, MSG_WAITALL));
    printf("%s\n", bytes);
    say("dontwait", recv(fd, bytes, 12, MSG_DONTWAIT));
    struct iovec parts[3] = {{"one ", 4}, {NULL, 0}, {"two", 3}};
    say("writev", writev(fd, parts, 3));
    int waiting = 0;
    while (ioctl(fd, FIONREAD, &waiting) == 0 && waiting < 7) usleep(1000);
    printf("waiting %d\n", waiting);
    char left[5] = "", right[5] = "";
    struct iovec into[2] = {{left, 4}, {right, 4}};
    say("readv", readv(fd, into, 2));
    printf("%s|%s\n", left, right);
    say("null", recv(fd, NULL, 10, MSG_DONTWAIT));
    say("empty", recv(fd, bytes, 0, MSG_DONTWAIT));
    say("sendto", sendto(fd, "to", 2, 0, (struct sockaddr *)&name, 0));
    say("sendto", sendto(fd, "to", 2, 0, (struct sockaddr *)&name, len));
    say("read", recv(fd, bytes, 4, MSG_WAITALL));
    say("shutdown", shutdown(fd, SHUT_WR));
    say("end", recv(fd, bytes, 12, 0));
    signal(SIGPIPE, SIG_IGN);
    say("write after", write(fd, "x", 1));
    say("close", close(fd));
    say("read closed", read(fd, bytes, 1));
}

static void refusals(void) {
    int fd = call(7002);
    close(fd);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in address = at(peer, 7000);
    say("nonblocking", connect(fd, (struct sockaddr *)&address, sizeof address));
    say("writable", ready(fd, POLLOUT, 5000));
    int error = -1;
    socklen_t len = sizeof error;
    say("SO_ERROR", getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len));
    printf("error %d len %d\n", error, len);
    say("first", connect(fd, (struct sockaddr *)&address, sizeof address));
    say("second", connect(fd, (struct sockaddr *)&address, sizeof address));
    char byte;
    say("nothing", recv(fd, &byte, 1, 0));
    close(fd);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    say("unconnected", send(fd, "x", 1, MSG_NOSIGNAL));
    say("unconnected", recv(fd, &byte, 1, 0));
    say("listening", accept(fd, NULL, NULL));
    close(fd);
}

static void options(void) {
    int fd = call(7000), value = 1, domain = 0;
    socklen_t len = sizeof value;
    say("NODELAY", setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, len));
    value = 0;
    say("NODELAY", getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, &len));
    printf("nodelay %d\n", value);
    say("DOMAIN", getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len));
    printf("domain %d\n", domain);
    say("TYPE", getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &len));
    printf("type %d\n", value);
    say("no such", setsockopt(fd, IPPROTO_TCP, 9999, &value, len));
    struct timeval time = {0, 50000};
    say("RCVTIMEO", setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
    say("timeout", recv(fd, &value, 4, 0));
    say("F_GETFL", fcntl(fd, F_GETFL) & O_NONBLOCK);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    say("nonblocking", recv(fd, &value, 4, 0));
    close(fd);
}

static void duplicates(void) {
    char bytes[8];
    int fd = call(7000), copy = dup(fd);
    say("close", close(fd));
    say("write", write(copy, "dup", 3));
    say("read", recv(copy, bytes, 3, MSG_WAITALL));
    int other = open("/dev/null", O_RDWR);
    say("dup2", dup2(copy, other) == other);
    close(copy);
    say("write", write(other, "two", 3));
    say("read", recv(other, bytes, 3, MSG_WAITALL));
    int file = open("/dev/null", O_RDWR);
    say("over", dup2(file, other) == other);
    say("file", write(other, "x", 1));
    close(file);
    close(other);
    fd = call(7000);
    copy = fcntl(fd, F_DUPFD_CLOEXEC, 100);
    printf("dupfd %d\n", copy >= 100);
    say("range", close_range(3, 99, 0));
    say("write", write(copy, "six", 3));
    say("read", recv(copy, bytes, 3, MSG_WAITALL));
    close(copy);
}

static void sets(void) {
    int set = epoll_create1(0), fd = call(7000), event = eventfd(0, EFD_NONBLOCK);
    struct epoll_event of = {EPOLLIN, {.u64 = 1}}, got[8];
    say("add", epoll_ctl(set, EPOLL_CTL_ADD, fd, &of));
    say("twice", epoll_ctl(set, EPOLL_CTL_ADD, fd, &of));
    of.data.u64 = 2;
    say("eventfd", epoll_ctl(set, EPOLL_CTL_ADD, event, &of));
    say("silent", epoll_wait(set, got, 8, 10));
    write(fd, "x", 1);
    say("socket", epoll_wait(set, got, 8, 5000));
    printf("data %lu events %x\n", (unsigned long)got[0].data.u64, got[0].events);
    eventfd_write(event, 1);
    usleep(20000);
    int sum = 0;
    for (int tries = 0; tries < 100 && sum != 3; tries++) {
        sum = 0;
        int count = epoll_wait(set, got, 8, 1000);
        for (int i = 0; i < count; i++) sum += got[i].data.u64;
    }
    printf("both %d\n", sum);
    char byte;
    recv(fd, &byte, 1, 0);
    of.events = EPOLLIN | EPOLLOUT | EPOLLET;
    say("mod", epoll_ctl(set, EPOLL_CTL_MOD, fd, &of));
    say("del", epoll_ctl(set, EPOLL_CTL_DEL, event, NULL));
    say("edge", epoll_wait(set, got, 8, 1000));
    printf("events %x\n", got[0].events);
    say("no edge", epoll_wait(set, got, 8, 10));
    shutdown(fd, SHUT_WR);
    usleep(50000);
    say("end", epoll_wait(set, got, 8, 1000));
    say("negative", epoll_wait(set, got, 0, 0));
    say("not a set", epoll_ctl(fd, EPOLL_CTL_ADD, event, &of));
    close(fd);
    say("closed", epoll_wait(set, got, 8, 10));
    close(set);
    close(event);
}

static void selects(void) {
    int fd = call(7000), pipes[2];
    say("pipe", pipe(pipes));
    fd_set reads, writes;
    FD_ZERO(&reads);
    FD_ZERO(&writes);
    FD_SET(fd, &reads);
    FD_SET(pipes[0], &reads);
    FD_SET(fd, &writes);
    struct timeval time = {1, 0};
    say("select", select(64, &reads, &writes, NULL, &time));
    printf("%d %d %d\n", FD_ISSET(fd, &reads) != 0, FD_ISSET(pipes[0], &reads) != 0, FD_ISSET(fd, &writes) != 0);
    write(pipes[1], "x", 1);
    FD_ZERO(&reads);
    FD_SET(fd, &reads);
    FD_SET(pipes[0], &reads);
    time.tv_sec = 5;
    say("select", select(64, &reads, NULL, NULL, &time));
    printf("%d %d\n", FD_ISSET(fd, &reads) != 0, FD_ISSET(pipes[0], &reads) != 0);
    close(pipes[0]);
    close(pipes[1]);
    close(fd);
}

static void datagrams(void) {
    char bytes[64] = "";
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in address = at(peer, 7000), from;
    socklen_t len = sizeof from;
    say("nothing", recv(fd, bytes, 8, MSG_DONTWAIT));
    say("sendto", sendto(fd, "datagram", 8, 0, (struct sockaddr *)&address, sizeof address));
    say("recvfrom", recvfrom(fd, bytes, sizeof bytes, 0, (struct sockaddr *)&from, &len));
    printf("%s from %d len %d\n", bytes, ntohs(from.sin_port), len);
    say("connect", connect(fd, (struct sockaddr *)&address, sizeof address));
    say("send", send(fd, "cut here", 8, 0));
    say("poll", ready(fd, POLLIN, 5000));
    struct iovec part = {bytes, 3};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    say("recvmsg", recvmsg(fd, &message, 0));
    printf("flags %x\n", message.msg_flags & MSG_TRUNC);
    say("empty", send(fd, "", 0, 0));
    say("empty", recv(fd, bytes, 8, 0));
    say("too long", send(fd, calloc(1, 70000), 70000, 0));
    struct mmsghdr many[3] = {0};
    struct iovec parts[3] = {{"a", 1}, {"bb", 2}, {"ccc", 3}};
    for (int i = 0; i < 3; i++) many[i].msg_hdr = (struct msghdr){.msg_iov = &parts[i], .msg_iovlen = 1};
    say("sendmmsg", sendmmsg(fd, many, 3, 0));
    char into[3][8];
    for (int i = 0; i < 3; i++) parts[i] = (struct iovec){into[i], 8};
    usleep(50000);
    say("recvmmsg", recvmmsg(fd, many, 3, 0, NULL));
    printf("%d %d %d\n", many[0].msg_len, many[1].msg_len, many[2].msg_len);
    // An error behind the first message is the next call's.
    send(fd, "d", 1, 0), send(fd, "e", 1, 0);
    parts[1].iov_base = (void *)8;
    until_all_is_echoed();
    say("recvmmsg", recvmmsg(fd, many, 2, MSG_DONTWAIT, NULL));
    say("its error", recv(fd, bytes, 8, MSG_DONTWAIT));
    say("nothing left", recv(fd, bytes, 8, MSG_DONTWAIT));
    close(fd);
    fd = socket(AF_INET, SOCK_DGRAM, 0);
    address.sin_port = htons(7002);
    connect(fd, (struct sockaddr *)&address, sizeof address);
    say("closed port", send(fd, "x", 1, 0));
    say("refused", recv(fd, bytes, 8, 0));
    close(fd);
}

static void mapped(void) {
    char bytes[8];
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_port = htons(7000)};
    char text[64];
    snprintf(text, sizeof text, "::ffff:%s", peer);
    inet_pton(AF_INET6, text, &address.sin6_addr);
    say("mapped", connect(fd, (struct sockaddr *)&address, sizeof address));
    struct sockaddr_in6 name = {0};
    socklen_t len = sizeof name;
    say("getpeername", getpeername(fd, (struct sockaddr *)&name, &len));
    inet_ntop(AF_INET6, &name.sin6_addr, text, sizeof text);
    printf("%s %d len %d\n", text, ntohs(name.sin6_port), len);
    say("write", write(fd, "six", 3));
    say("read", recv(fd, bytes, 3, MSG_WAITALL));
    close(fd);
}

static volatile int alarms;
static void on_alarm(int number) { alarms += number == SIGALRM; }

static void signals(void) {
    struct sigaction action = {.sa_handler = on_alarm};
    sigaction(SIGALRM, &action, NULL);
    int fd = call(7000);
    char byte;
    alarm(1);
    say("interrupted", recv(fd, &byte, 1, 0));
    alarm(1);
    say("poll", ready(fd, POLLIN, 5000));
    printf("alarms %d\n", alarms);
    struct sigaction before;
    sigaction(SIGALRM, NULL, &before);
    printf("own handler %d\n", before.sa_handler == on_alarm);
    close(fd);
}

static void on_child(int number) { alarms += number == SIGUSR1; }

// A signal that waits for the mask of the call ends it, also where no descriptor is a socket.
static void masks(void) {
    struct sigaction action = {.sa_handler = on_child};
    sigaction(SIGUSR1, &action, NULL);
    sigset_t blocked, none;
    sigemptyset(&none);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    int fds[2];
    pipe(fds);
    alarms = 0;
    raise(SIGUSR1);
    struct pollfd entry = {fds[0], POLLIN, 0};
    struct timespec time = {5, 0};
    say("ppoll", ppoll(&entry, 1, &time, &none));
    raise(SIGUSR1);
    fd_set reads;
    FD_ZERO(&reads);
    FD_SET(fds[0], &reads);
    say("pselect", pselect(fds[0] + 1, &reads, NULL, NULL, &time, &none));
    int fd = call(7000);
    raise(SIGUSR1);
    entry.fd = fd;
    say("ppoll of a socket", ppoll(&entry, 1, &time, &none));
    printf("signals %d\n", alarms);
    close(fd);
    close(fds[0]);
    close(fds[1]);
}

static int bound_to_any(struct sockaddr_in *name) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in any = {.sin_family = AF_INET};
    bind(fd, (struct sockaddr *)&any, sizeof any);
    socklen_t len = sizeof *name;
    getsockname(fd, (struct sockaddr *)name, &len);
    name->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return fd;
}

// What comes by loopback reaches a socket that is bound to all addresses, and no longer one that is
// connected to the peer.
static void by_loopback(void) {
    struct sockaddr_in name, address = at(peer, 7000);
    int fd = bound_to_any(&name), other = socket(AF_INET, SOCK_DGRAM, 0), set = epoll_create1(0);
    struct epoll_event of = {EPOLLIN, {.u64 = 7}}, got[2];
    epoll_ctl(set, EPOLL_CTL_ADD, fd, &of);
    char bytes[2][8];
    struct iovec parts[2] = {{bytes[0], 8}, {bytes[1], 8}};
    struct mmsghdr many[2] = {{.msg_hdr = {.msg_iov = &parts[0], .msg_iovlen = 1}}, {.msg_hdr = {.msg_iov = &parts[1], .msg_iovlen = 1}}};
    say("sendto", sendto(other, "near", 4, 0, (struct sockaddr *)&name, sizeof name));
    say("recvmmsg", recvmmsg(fd, many, 2, MSG_WAITFORONE, NULL));
    say("sendto", sendto(other, "near", 4, 0, (struct sockaddr *)&name, sizeof name));
    int waiting = 0;
    say("FIONREAD", ioctl(fd, FIONREAD, &waiting));
    printf("waiting %d\n", waiting);
    say("readv", readv(fd, parts, 2));
    say("connect", connect(fd, (struct sockaddr *)&address, sizeof address));
    sendto(other, "third", 5, 0, (struct sockaddr *)&name, sizeof name);
    say("filtered", epoll_wait(set, got, 2, 50));
    say("filtered", recv(fd, bytes, 8, MSG_DONTWAIT));
    say("send", send(fd, "peer", 4, 0));
    say("heard", epoll_wait(set, got, 2, 5000));
    say("recv", recv(fd, bytes, 8, 0));
    close(fd);
    close(other);
    close(set);
}

// Of sockets that share a port one gets each datagram: that which bound last, or one by the flow's
// hash.
static void sharers(void) {
    int options[] = {SO_REUSEADDR, SO_REUSEPORT}, on = 1;
    for (int idx = 0; idx < 2; idx++) {
        struct sockaddr_in name = {.sin_family = AF_INET}, address = at(peer, 7000);
        socklen_t len = sizeof name;
        int fds[3], got[3] = {0}, all = 0;
        for (int place = 0; place < 3; place++) {
            fds[place] = socket(AF_INET, SOCK_DGRAM, 0);
            setsockopt(fds[place], SOL_SOCKET, options[idx], &on, sizeof on);
            say("bind", bind(fds[place], (struct sockaddr *)&name, len));
            getsockname(fds[place], (struct sockaddr *)&name, &len);
        }
        for (int round = 0; round < 8; round++) {
            sendto(fds[0], "round", 5, 0, (struct sockaddr *)&address, sizeof address);
            struct pollfd polled[3] = {{fds[0], POLLIN}, {fds[1], POLLIN}, {fds[2], POLLIN}};
            poll(polled, 3, 5000);
            for (int place = 0; place < 3; place++) {
                char bytes[8];
                int came = recv(fds[place], bytes, 8, MSG_DONTWAIT) == 5;
                got[place] += came;
                all += came;
            }
        }
        printf("all %d, one socket got all %d\n", all, got[0] == 8 || got[1] == 8 || got[2] == 8);
        if (options[idx] == SO_REUSEADDR) printf("the last got %d\n", got[2]);
        for (int place = 0; place < 3; place++) close(fds[place]);
    }
}

// `select` says how much of its time is left.
static void time_left(void) {
    int fd = call(7000);
    fd_set reads;
    FD_ZERO(&reads);
    FD_SET(fd, &reads);
    struct timeval time = {0, 30000};
    say("select", select(fd + 1, &reads, NULL, NULL, &time));
    printf("left %ld %ld\n", (long)time.tv_sec, (long)time.tv_usec);
    close(fd);
}

static void refused_options(void) {
    int fd = call(7000), value = 0;
    socklen_t len = sizeof value;
    struct timeval negative = {-1, 0};
    fd_set none;
    FD_ZERO(&none);
    say("negative", select(1, &none, NULL, NULL, &negative));
    close(fd);
    fd = socket(AF_INET6, SOCK_STREAM, 0);
    say("DOMAIN", getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &value, &len));
    printf("domain %d\n", value);
    close(fd);
    // Both listeners of nginx's default: one for each family.
    int four = socket(AF_INET, SOCK_STREAM, 0), six = socket(AF_INET6, SOCK_STREAM, 0);
    value = 1;
    say("V6ONLY", setsockopt(six, IPPROTO_IPV6, IPV6_V6ONLY, &value, sizeof value));
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(8099)};
    struct sockaddr_in6 any6 = {.sin6_family = AF_INET6, .sin6_port = htons(8099)};
    say("bind", bind(four, (struct sockaddr *)&any, sizeof any));
    say("bind", bind(six, (struct sockaddr *)&any6, sizeof any6));
    say("listen", listen(four, 5));
    say("listen", listen(six, 5));
    close(four);
    close(six);
}

// Writes all at once, and ends: nobody is left to send it.
static int last_words(void) {
    static char much[1000000];
    return write(call(7003), much, sizeof much) == sizeof much ? 0 : 1;
}

static void loopback(void) {
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = at("127.0.0.1", 0);
    say("bind", bind(listener, (struct sockaddr *)&address, sizeof address));
    socklen_t len = sizeof address;
    getsockname(listener, (struct sockaddr *)&address, &len);
    say("listen", listen(listener, 5));
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    say("connect", connect(fd, (struct sockaddr *)&address, sizeof address));
    int accepted = accept(listener, NULL, NULL);
    say("accept", accepted > 0);
    say("write", write(accepted, "x", 1));
    char byte;
    say("read", read(fd, &byte, 1));
    close(fd);
    close(accepted);
    close(listener);
}

static void children(void) {
    int fd = call(7000), status;
    fflush(stdout);
    if (fork() == 0) {
        // A child that does not touch the sockets of its parent.
        close(fd);
        _exit(system("true"));
    }
    wait(&status);
    say("child", WEXITSTATUS(status));
    char bytes[4];
    say("write", write(fd, "four", 4));
    say("read", recv(fd, bytes, 4, MSG_WAITALL));
    close(fd);
}

static void ends(void) {
    char byte;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in address = at(peer, 7000);
    say("connect", connect(fd, (struct sockaddr *)&address, sizeof address));
    say("shutdown", shutdown(fd, SHUT_RD));
    say("blocking", recv(fd, &byte, 1, 0));
    say("dontwait", recv(fd, &byte, 1, MSG_DONTWAIT));
    close(fd);
    fd = call(7000);
    say("POLLWRNORM", ready(fd, POLLWRNORM | POLLRDNORM, 5000));
    say("write", write(fd, "x", 1));
    say("POLLRDNORM", ready(fd, POLLRDNORM, 5000));
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    say("dissolve", connect(fd, &none, sizeof none));
    struct tcp_info info = {0};
    socklen_t len = sizeof info;
    say("TCP_INFO", getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len));
    printf("state %d\n", info.tcpi_state);
    int error = -1;
    len = sizeof error;
    say("SO_ERROR", getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len));
    printf("error %d\n", error);
    say("again", connect(fd, (struct sockaddr *)&address, sizeof address));
    say("write", write(fd, "y", 1));
    say("read", recv(fd, &byte, 1, MSG_WAITALL));
    printf("%c\n", byte);
    close(fd);
}

// What random scripts of calls have found.
static void found_by_scripts(void) {
    int fresh = socket(AF_INET, SOCK_STREAM, 0), talks = call(7000), fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in address = at(peer, 7000);
    struct pollfd entries[2] = {{talks, POLLOUT, 0}, {fresh, POLLIN | POLLOUT, 0}};
    say("poll of what is ready on both sides", poll(entries, 2, 0));
    printf("%x %x\n", entries[0].revents, entries[1].revents);
    connect(fd, (struct sockaddr *)&address, sizeof address);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    say("accept of datagrams", accept(fd, NULL, NULL));
    int listener = socket(AF_INET, SOCK_STREAM, 0), waiting = 0;
    say("listen", listen(listener, 4));
    ready(listener, POLLIN, 0);
    say("shutdown of its sends", shutdown(listener, SHUT_WR));
    say("it listens", ioctl(listener, FIONREAD, &waiting));
    say("shutdown", shutdown(fd, SHUT_WR));
    say("send of nowhere after it", send(fd, (void *)8, 16, MSG_NOSIGNAL));
    int shut = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in silent = at(peer, 7009);
    say("sendto", sendto(shut, "x", 1, 0, (struct sockaddr *)&silent, sizeof silent));
    say("shutdown without a peer", shutdown(shut, SHUT_RD));
    fcntl(shut, F_SETFL, O_NONBLOCK);
    say("recv after it", recv(shut, &waiting, 1, MSG_PEEK));
    close(fresh), close(talks), close(fd), close(listener), close(shut);
}

// Sockets that are polled one after the other: what reaches the last by loopback is reported.
static void polled_in_turn(void) {
    enum { COUNT = 17 };
    struct sockaddr_in names[COUNT];
    int fds[COUNT], sender = socket(AF_INET, SOCK_DGRAM, 0), polls = 0, found = -1;
    for (int i = 0; i < COUNT; i++) fds[i] = bound_to_any(&names[i]);
    say("sendto", sendto(sender, "near", 4, 0, (struct sockaddr *)&names[COUNT - 1], sizeof *names));
    while (found < 0 && polls < 1000000)
        if (ready(fds[polls++ % COUNT], POLLIN | POLLOUT, 0) & POLLIN) found = (polls - 1) % COUNT;
    printf("found %d\n", found);
    for (int i = 0; i < COUNT; i++) close(fds[i]);
    close(sender);
}

// A port that the program has not named is free again when its connection has failed or ended.
static void bound_again(void) {
    struct sockaddr_in refuses = at(peer, 7002), echoes = at(peer, 7000), any = at("0.0.0.0", 0), none = {.sin_family = AF_UNSPEC};
    for (int way = 0; way < 5; way++) {
        int fd = socket(AF_INET, way == 1 ? SOCK_STREAM | SOCK_NONBLOCK : SOCK_STREAM, 0);
        if (way == 2) say("bind", bind(fd, (struct sockaddr *)&any, sizeof any));
        if (way == 3) {
            struct sockaddr_in named = at("0.0.0.0", 7098);
            say("bind", bind(fd, (struct sockaddr *)&named, sizeof named));
        }
        struct sockaddr_in *to = way == 4 ? &echoes : &refuses;
        say("connect", connect(fd, (struct sockaddr *)to, sizeof *to));
        if (way == 1) ready(fd, POLLOUT, 5000);
        if (way == 4) {
            say("bind of a connected one", bind(fd, (struct sockaddr *)&any, sizeof any));
            say("dissolve", connect(fd, (struct sockaddr *)&none, sizeof none));
        }
        struct sockaddr_in next = at("0.0.0.0", 7081 + way), name = {0};
        struct sockaddr_in theirs = at(peer, 7081);
        say("bind to the peer's", bind(fd, (struct sockaddr *)&theirs, sizeof theirs));
        say("bind again", bind(fd, (struct sockaddr *)&next, sizeof next));
        say("and again", bind(fd, (struct sockaddr *)&next, sizeof next));
        fcntl(fd, F_SETFL, 0);
        if (way == 1) say("the error", connect(fd, (struct sockaddr *)&echoes, sizeof echoes));
        say("connect", connect(fd, (struct sockaddr *)&echoes, sizeof echoes));
        socklen_t len = sizeof name;
        getsockname(fd, (struct sockaddr *)&name, &len);
        printf("port %d\n", ntohs(name.sin_port));
        char bytes[4] = "";
        struct timeval limit = {5, 0};
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        say("write", write(fd, "bind", 4));
        say("read", recv(fd, bytes, 4, MSG_WAITALL));
        // A reset, so that the port is free for the next who plays this.
        struct linger resets = {1, 0};
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &resets, sizeof resets);
        close(fd);
    }
    // Of a datagram socket, when it is no longer connected.
    for (int way = 0; way < 3; way++) {
        int fd = socket(AF_INET, SOCK_DGRAM, 0);
        struct sockaddr_in to = at("0.0.0.0", way == 1 ? 7096 : 0), own;
        socklen_t len = sizeof own;
        char byte = 0;
        say("connect", connect(fd, (struct sockaddr *)&echoes, sizeof echoes));
        say("dissolve", connect(fd, (struct sockaddr *)&none, sizeof none));
        getsockname(fd, (struct sockaddr *)&own, &len);
        printf("port %d\n", ntohs(own.sin_port));
        if (way < 2) say("bind", bind(fd, (struct sockaddr *)&to, sizeof to));
        say("sendto", sendto(fd, "x", 1, 0, (struct sockaddr *)&echoes, sizeof echoes));
        say("recv", recv(fd, &byte, 1, 0));
        getsockname(fd, (struct sockaddr *)&own, &len);
        printf("%c %d\n", byte, way == 1 ? ntohs(own.sin_port) : own.sin_port != 0);
        close(fd);
    }
}

// What is shut before a socket is connected stays shut.
static void shut_before(void) {
    struct sockaddr_in address = at(peer, 7000);
    int ways[] = {SHUT_RD, SHUT_WR, SHUT_RDWR};
    for (int kind = 0; kind < 2; kind++) {
        for (int idx = 0; idx < 3; idx++) {
            int fd = socket(AF_INET, kind ? SOCK_DGRAM : SOCK_STREAM, 0);
            char byte;
            say("shutdown", shutdown(fd, ways[idx]));
            say("connect", connect(fd, (struct sockaddr *)&address, sizeof address));
            printf("%x\n", ready(fd, POLLIN | POLLOUT | POLLRDHUP, 100));
            say("send", send(fd, "x", 1, MSG_NOSIGNAL));
            if (ways[idx] != SHUT_WR) say("recv", recv(fd, &byte, 0, 0));
            close(fd);
        }
    }
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    say("shutdown", shutdown(fd, SHUT_WR));
    say("dissolve", connect(fd, &none, sizeof none));
    say("connect", connect(fd, (struct sockaddr *)&address, sizeof address));
    say("send", send(fd, "x", 1, MSG_NOSIGNAL));
    close(fd);
}

ssize_t __read(int, void *, size_t), __write(int, const void *, size_t), __send(int, const void *, size_t, int);
int __connect(int, const struct sockaddr *, socklen_t), __fcntl(int, int, ...);

// Names of libc's that are used less, and calls by their number.
// The kernel's socket chooses the port and judges the address.
static void ports_and_addresses_of_the_twin(void) {
    struct sockaddr_in there = at(peer, 7000), name, foreign = at("203.0.113.9", 7090);
    for (int type = SOCK_STREAM; type <= SOCK_DGRAM; type++) {
        int fd = socket(AF_INET, type, 0), on = 1;
        unsigned range = 41907u << 16 | 41907;
        socklen_t len = sizeof name;
        say("IP_LOCAL_PORT_RANGE", setsockopt(fd, IPPROTO_IP, 51, &range, sizeof range));
        say("connect", connect(fd, (struct sockaddr *)&there, sizeof there));
        say("getsockname", getsockname(fd, (struct sockaddr *)&name, &len)), say("port", ntohs(name.sin_port));
        say("send", send(fd, "ab", 2, 0)), say("poll", ready(fd, POLLIN, 5000));
        close(fd);
        fd = socket(AF_INET, type, 0);
        say("bind", bind(fd, (struct sockaddr *)&foreign, sizeof foreign));
        say("IP_FREEBIND", setsockopt(fd, IPPROTO_IP, IP_FREEBIND, &on, sizeof on));
        say("bind", bind(fd, (struct sockaddr *)&foreign, sizeof foreign));
        if (type == SOCK_STREAM) say("listen", listen(fd, 1));
        close(fd);
    }
}

static void other_names(void) {
    struct sockaddr_in address = at(peer, 7000), name = {0};
    socklen_t len = sizeof name;
    char bytes[16] = "";
    struct iovec part = {"four", 4}, into = {bytes, 4};
    int fd = socket(AF_INET, SOCK_STREAM, 0), value = 0;
    say("__connect", __connect(fd, (struct sockaddr *)&address, sizeof address));
    say("__write", __write(fd, "one ", 4));
    say("__send", __send(fd, "two ", 4, 0));
    say("pwritev2", pwritev2(fd, &part, 1, -1, 0));
    say("pwritev2 at an offset", pwritev2(fd, &part, 1, 0, 0));
    say("pwritev2 with unknown flags", pwritev2(fd, &part, 1, -1, 0x40000000));
    while (ioctl(fd, FIONREAD, &value) == 0 && value < 12) usleep(1000);
    say("__read", __read(fd, bytes, 4));
    say("preadv2", preadv2(fd, &into, 1, -1, 0));
    say("preadv2 at an offset", preadv2(fd, &into, 1, 0, 0));
    say("preadv2 with unknown flags", preadv2(fd, &into, 1, -1, 0x40000000));
    say("preadv2 of no parts", preadv2(fd, &into, 0, -1, 0));
    say("preadv2 of what is there", preadv2(fd, &into, 1, -1, RWF_NOWAIT));
    say("preadv2 of nothing", preadv2(fd, &into, 1, -1, RWF_NOWAIT));
    printf("%s\n", bytes);
    say("__fcntl", __fcntl(fd, F_SETFL, O_NONBLOCK));
    say("nonblocking", recv(fd, bytes, 4, 0));
    close(fd);
    fd = syscall(SYS_socket, AF_INET, SOCK_STREAM, 0);
    say("SYS_connect", syscall(SYS_connect, fd, &address, sizeof address));
    say("SYS_getpeername", syscall(SYS_getpeername, fd, &name, &len));
    printf("port %d\n", ntohs(name.sin_port));
    say("SYS_sendto", syscall(SYS_sendto, fd, "four", 4, 0, NULL, 0));
    say("SYS_recvfrom", syscall(SYS_recvfrom, fd, bytes, 4, MSG_WAITALL, NULL, NULL));
    say("SYS_writev", syscall(SYS_writev, fd, &part, 1));
    ready(fd, POLLIN, 5000);
    say("SYS_readv", syscall(SYS_readv, fd, &into, 1));
    say("SYS_pwritev2", syscall(SYS_pwritev2, fd, &part, 1, -1L, -1L, 0));
    ready(fd, POLLIN, 5000);
    say("SYS_preadv2", syscall(SYS_preadv2, fd, &into, 1, -1L, -1L, 0));
    len = sizeof value;
    say("SYS_getsockopt", syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_TYPE, &value, &len));
    say("SYS_shutdown", syscall(SYS_shutdown, fd, SHUT_WR));
    say("end", syscall(SYS_recvfrom, fd, bytes, 4, 0, NULL, NULL));
    int copy = syscall(SYS_dup, fd);
    say("SYS_fcntl", syscall(SYS_fcntl, copy, F_SETFL, O_NONBLOCK));
    say("SYS_sendmsg of nothing", syscall(SYS_sendmsg, copy, NULL, 0));
    close(fd), close(copy);
}

// Handlers that interrupt calls, and those of System V, which run once.
static void other_signals(void) {
    int fd = call(7000);
    char byte;
    alarms = 0;
    sighandler_t before = signal(SIGALRM, on_alarm);
    say("siginterrupt", siginterrupt(SIGALRM, 1));
    alarm(1);
    say("interrupted", recv(fd, &byte, 1, 0));
    signal(SIGALRM, on_alarm);
    alarm(1);
    say("interrupted again", recv(fd, &byte, 1, 0));
    say("siginterrupt", siginterrupt(SIGALRM, 0));
    struct timeval limit = {2, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    alarm(1);
    say("not restarted, as it has a timeout", recv(fd, &byte, 1, 0));
    sysv_signal(SIGUSR2, on_child);
    raise(SIGUSR2);
    struct sigaction action;
    sigaction(SIGUSR2, NULL, &action);
    printf("alarms %d, reset %d\n", alarms, action.sa_handler == SIG_DFL);
    say("no such signal", siginterrupt(999, 1));
    signal(SIGALRM, before);
    close(fd);
}

int main(int count, char **arguments) {
    if (count < 2) return 2;
    peer = arguments[1];
    if (count == 3 && strcmp(arguments[2], "last-words") == 0) return last_words();
    struct part parts[] = {
        {"streams", streams}, {"refusals", refusals}, {"options", options}, {"duplicates", duplicates},
        {"found by scripts", found_by_scripts}, {"bound again", bound_again}, {"shut before", shut_before},
        {"sets", sets}, {"selects", selects}, {"datagrams", datagrams}, {"mapped", mapped},
        {"signals", signals}, {"loopback", loopback}, {"children", children},
        {"masks", masks}, {"by loopback", by_loopback}, {"polled in turn", polled_in_turn}, {"sharers", sharers},
        {"time left", time_left}, {"refused options", refused_options}, {"ends", ends},
        {"ports and addresses", ports_and_addresses_of_the_twin}, {"other names", other_names}, {"other signals", other_signals},
    };
    return play(parts, sizeof parts / sizeof *parts, arguments[2]);
}
