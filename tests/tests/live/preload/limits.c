// What is another way than on the kernel's sockets: limits ADDRESS-OF-THE-PEER PART.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "calls.h"

static void echo(void) {
    char bytes[4];
    int fd = call(7000);
    say("write", write(fd, "four", 4));
    say("read", recv(fd, bytes, 4, MSG_WAITALL));
    close(fd);
}

// The library panics in the middle of a call.
static void panics(void) {
    char byte;
    int fd = call(7000), set = epoll_create1(0);
    struct epoll_event of = {EPOLLIN, {.u64 = 1}};
    epoll_ctl(set, EPOLL_CTL_ADD, fd, &of);
    setenv("WIREPATH_TEST_PANIC", "turn", 1);
    say("recv", recv(fd, &byte, 1, 0));
    say("epoll_wait", epoll_wait(set, &of, 1, 5000));
    echo();
}

// A connection, and a listener, of a library that panics; then a listener of the kernel at its port.
static void resets(void) {
    char bytes[4];
    int fd = call(7003), listener = socket(AF_INET, SOCK_STREAM, 0), caller, on = 1;
    struct sockaddr_in any = at("0.0.0.0", 7079);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    bind(listener, (struct sockaddr *)&any, sizeof any), listen(listener, 5);
    say("nobody", ready(listener, POLLIN, 20));
    setenv("WIREPATH_TEST_PANIC", "turn", 1);
    say("recv", recv(fd, bytes, 1, 0));
    close(fd), close(listener);
    listener = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    say("bind", bind(listener, (struct sockaddr *)&any, sizeof any)), say("listen", listen(listener, 5));
    caller = accept(listener, NULL, NULL);
    say("recv", recv(caller, bytes, 4, MSG_WAITALL));
    say("send", send(caller, bytes, 4, 0));
}

static long pass(int by, int passed, int many) {
    char room[CMSG_SPACE(sizeof(int))] = "", byte = 'x';
    struct iovec part = {&byte, 1};
    struct mmsghdr list = {{.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room}};
    struct cmsghdr *header = CMSG_FIRSTHDR(&list.msg_hdr);
    *header = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(header), &passed, sizeof passed);
    return many ? sendmmsg(by, &list, 1, 0) : sendmsg(by, &list.msg_hdr, 0);
}

static void passing(void) {
    char bytes[4];
    int pair[2], fd = call(7000), null = open("/dev/null", O_RDWR);
    socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
    say("sendmsg", pass(pair[0], fd, 0));
    say("sendmmsg", pass(pair[0], fd, 1));
    say("file", pass(pair[0], null, 0));
    say("write", write(fd, "four", 4));
    say("read", recv(fd, bytes, 4, MSG_WAITALL));
}

static void set(int fd, const char *what, int level, int name, int value) {
    say(what, setsockopt(fd, level, name, &value, sizeof value));
}

// Options that only the kernel has.
static void options(void) {
    int fd = call(7000);
    set(fd, "SO_MARK", SOL_SOCKET, SO_MARK, 1);
    set(fd, "SO_MARK 0", SOL_SOCKET, SO_MARK, 0);
    set(fd, "SO_PEEK_OFF", SOL_SOCKET, SO_PEEK_OFF, 0);
    set(fd, "IP_TRANSPARENT", IPPROTO_IP, 19, 1);
    set(fd, "SO_PRIORITY", SOL_SOCKET, SO_PRIORITY, 3);
    say("SO_BINDTODEVICE", setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "lo", 2));
    say("O_ASYNC", fcntl(fd, F_SETFL, O_ASYNC));
    int ends[2];
    pipe(ends);
    say("splice", syscall(SYS_splice, fd, NULL, ends[1], NULL, 1, SPLICE_F_NONBLOCK));
    close(ends[0]), close(ends[1]), close(fd);
    // Set before, it keeps the socket there, where it works.
    char bytes[2];
    fd = socket(AF_INET, SOCK_STREAM, 0);
    set(fd, "SO_PEEK_OFF", SOL_SOCKET, SO_PEEK_OFF, 0);
    struct sockaddr_in address = at(peer, 7000);
    say("connect", connect(fd, (struct sockaddr *)&address, sizeof address));
    say("write", write(fd, "ab", 2));
    say("peek", recv(fd, bytes, 1, MSG_PEEK | MSG_WAITALL));
    say("peek", recv(fd, bytes + 1, 1, MSG_PEEK | MSG_WAITALL));
    printf("%.2s\n", bytes);
    close(fd);
}

int main(int count, char **arguments) {
    if (count < 3) return 2;
    peer = arguments[1];
    struct part parts[] = {
        {"echo", echo}, {"panic", panics}, {"resets", resets}, {"passing", passing}, {"options", options},
    };
    return play(parts, sizeof parts / sizeof *parts, arguments[2]);
}
