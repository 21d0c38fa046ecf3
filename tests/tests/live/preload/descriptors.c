// Numbers of descriptors: those that are closed where no call says so, those that are closed all at
// once, and streams of stdio over sockets. descriptors ADDRESS-OF-THE-PEER [PART].
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "calls.h"

// Closes a descriptor where no library sees it.
static void close_unseen(int fd) {
#if defined(__x86_64__)
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_close), "D"((long)fd) : "rcx", "r11", "memory");
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = SYS_close, x0 __asm__("x0") = fd;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8) : "memory");
#endif
}

// What a write to a new file says that has the number of a socket that was closed unseen.
static void taken(const char *what, int was, int fd) {
    printf("%s: same number %d\n", what, fd == was);
    say("write", write(fd, "12345678", 8));
    if (fd >= 0) close(fd);
}

static int gone(void) {
    int fd = call(7000);
    close_unseen(fd);
    return fd;
}

static void numbers(void) {
    int pair[2], was;
    was = gone(), taken("open", was, open("/dev/null", O_RDWR));
    was = gone(), taken("openat", was, openat(AT_FDCWD, "/dev/null", O_RDWR));
    was = gone(), taken("creat", was, creat("/dev/null", 0600));
    was = gone(), taken("memfd_create", was, memfd_create("x", 0));
    was = gone(), taken("eventfd", was, eventfd(0, EFD_NONBLOCK));
    was = gone(), taken("timerfd_create", was, timerfd_create(CLOCK_MONOTONIC, 0));
    was = gone(), taken("inotify_init", was, inotify_init());
    was = gone(), taken("epoll_create1", was, epoll_create1(0));
    was = gone(), taken("socket", was, socket(AF_UNIX, SOCK_STREAM, 0));
    was = gone(), taken("syscall", was, syscall(SYS_memfd_create, "x", 0));
    sigset_t none;
    sigemptyset(&none);
    was = gone(), taken("signalfd", was, signalfd(-1, &none, 0));
    was = gone();
    say("pipe", pipe(pair));
    taken("pipe", was, pair[0]);
    close(pair[1]);
    was = gone();
    say("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    taken("socketpair", was, pair[0]);
    close(pair[1]);
    // A connection of the kernel's, accepted into the number.
    int listener = socket(AF_INET, SOCK_STREAM, 0), near = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = at("127.0.0.1", 0);
    socklen_t len = sizeof address;
    bind(listener, (struct sockaddr *)&address, len);
    listen(listener, 5);
    getsockname(listener, (struct sockaddr *)&address, &len);
    say("connect", connect(near, (struct sockaddr *)&address, len));
    was = gone(), taken("accept", was, accept(listener, NULL, NULL));
    // A descriptor that another end of a socket passes.
    socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
    char room[CMSG_SPACE(sizeof(int))] = "", byte = 'x';
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *header = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    int null = open("/dev/null", O_RDWR);
    memcpy(CMSG_DATA(header), &null, sizeof null);
    say("sendmsg", sendmsg(pair[0], &message, 0));
    was = gone();
    say("recvmsg", recvmsg(pair[1], &message, 0));
    memcpy(&null, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof null);
    taken("passed", was, null);
    close(pair[0]), close(pair[1]), close(listener), close(near);
}

// The lowest number that is free is the program's, while the library works beside it.
static void lowest(void) {
    int fd = call(7000), first = eventfd(0, 0), others = 0;
    close(first);
    for (int i = 0; i < 1000000; i++) {
        int next = eventfd(0, 0);
        others += next != first;
        close(next);
    }
    printf("other numbers %d\n", others);
    close(fd);
}

static void streams(void) {
    int fd = call(7000);
    char line[64] = "";
    FILE *stream = fdopen(fd, "r+");
    printf("stream %d, its number %d\n", stream != NULL, fileno(stream) == fd);
    say("fprintf", fprintf(stream, "hello %d\n", 42));
    say("fflush", fflush(stream));
    printf("fgets %s", fgets(line, sizeof line, stream));
    say("shutdown", shutdown(fileno(stream), SHUT_WR));
    say("fgetc", fgetc(stream) == EOF);
    say("feof", feof(stream) != 0);
    say("fclose", fclose(stream));
    say("read", read(fd, line, 1));
    int other = open("/dev/null", O_RDWR);
    printf("same number %d\n", other == fd);
    say("file", write(other, "x", 1));
    close(other);
    stream = fdopen(99, "r");
    printf("no descriptor %d %s\n", stream != NULL, strerrorname_np(errno));
}

static void echoes(void) {
    char bytes[8] = "";
    int fd = call(7000);
    say("write", write(fd, "six", 3));
    say("read", recv(fd, bytes, 3, MSG_WAITALL));
    struct sockaddr_in address = at(peer, 7000);
    int datagrams = socket(AF_INET, SOCK_DGRAM, 0);
    say("connect", connect(datagrams, (struct sockaddr *)&address, sizeof address));
    say("send", send(datagrams, "four", 4, 0));
    say("poll", ready(datagrams, POLLIN, 5000));
    say("recv", recv(datagrams, bytes, 8, 0));
    close(fd);
    close(datagrams);
}

static void close_all(void) {
    for (int fd = 3; fd < 1024; fd++) close(fd);
}

// A server that closes whatever it has inherited, and whatever it has.
static void all_closed(void) {
    echoes();
    call(7000);
    close_all();
    echoes();
    call(7000);
    say("range", close_range(3, ~0U, 0));
    echoes();
    call(7000);
    closefrom(3);
    echoes();
    call(7000);
    for (int fd = 3; fd < 1024; fd++) fcntl(fd, F_GETFD) < 0 ?: dup2(1, fd);
    close_all();
    echoes();
}

static int high_numbers(void) {
    int count = 0;
    for (int fd = 900; fd < 1024; fd++) count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

// A child that closes all, and has sockets of its own by numbers that were its parent's.
static void children(void) {
    int fd = call(7000), status;
    char bytes[8];
    fflush(stdout);
    if (fork() == 0) {
        // What the library has open is its parent's.
        printf("high numbers %d\n", high_numbers());
        close_all();
        int pair[2];
        say("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
        say("write", write(pair[0], "x", 1));
        say("read", read(pair[1], bytes, 1));
        echoes();
        fflush(stdout);
        _exit(0);
    }
    wait(&status);
    say("child", status);
    say("write", write(fd, "six", 3));
    say("read", recv(fd, bytes, 3, MSG_WAITALL));
    close(fd);
}

// As daemon(3), by a process that has forked twice; who has started it waits for what it prints.
static void daemonise(void) {
    int done[2];
    char byte;
    pipe(done);
    fflush(stdout);
    if (fork() == 0) {
        setsid();
        if (fork() != 0) _exit(0);
        dup2(done[1], 3);
        for (int fd = 4; fd < 1024; fd++) close(fd);
        echoes();
        fflush(stdout);
        _exit(0);
    }
    wait(NULL);
    close(done[1]);
    say("done", read(done[0], &byte, 1));
    close(done[0]);
}

static void refusals(void) {
    char bytes[8] = "";
    int fd = call(7000);
    struct iovec part = {bytes, 4};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1025};
    say("writev", writev(fd, &part, -1));
    say("writev", writev(fd, &part, 1025));
    say("readv", readv(fd, &part, -1));
    say("readv", readv(fd, &part, 1025));
    say("none", readv(fd, &part, 0));
    say("none", writev(fd, &part, 0));
    say("no bytes", read(fd, bytes, 0));
    part.iov_len = 0;
    say("no bytes", readv(fd, &part, 1));
    say("null", readv(fd, NULL, 1));
    say("sendmsg", sendmsg(fd, &message, 0));
    say("recvmsg", recvmsg(fd, &message, MSG_DONTWAIT));
    say("flags", close_range(3, 99, 64));
    say("backwards", close_range(99, 3, 0));
    say("write", write(fd, "four", 4));
    say("read", recv(fd, bytes, 4, MSG_WAITALL));
    close(fd);
}

int main(int count, char **arguments) {
    if (count < 2) return 2;
    peer = arguments[1];
    struct part parts[] = {
        {"numbers", numbers}, {"lowest", lowest}, {"streams", streams}, {"all closed", all_closed}, {"children", children},
        {"daemonise", daemonise}, {"refusals", refusals},
    };
    return play(parts, sizeof parts / sizeof *parts, arguments[2]);
}
