// Every call that takes pointers, with bad ones: null, never mapped, to be read alone, across the
// end of a mapping. A call that fails with EFAULT changes what it changes on the kernel's sockets.
#define _GNU_SOURCE
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <setjmp.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include "calls.h"

enum { PAGE = 4096, KINDS = 4 };

static char *page;
static const char *names[KINDS] = {"null", "unmapped", "read-only", "straddling"};

// A bad pointer to `len` bytes; the straddling one has half of them.
static void *bad(int kind, int len) {
    switch (kind) {
    case 0: return NULL;
    case 1: return page + PAGE;
    case 2: return page + 2 * PAGE;
    default: return page + PAGE - len / 2;
    }
}

static void tell(const char *what, int kind, long result) {
    char line[128];
    int error = errno;
    snprintf(line, sizeof line, "%s %s", what, names[kind]);
    errno = error;
    say(line, result);
}

static int datagrams(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in address = at(peer, 7000);
    connect(fd, (struct sockaddr *)&address, sizeof address);
    return fd;
}

// Asks the echo for so many bytes, and waits for them.
static void ask(int fd, int len) {
    char bytes[64] = "0123456789abcdefghijklmnopqrstuvwxyz";
    write(fd, bytes, len);
    for (int waiting = 0; waiting < len; ioctl(fd, FIONREAD, &waiting)) ready(fd, POLLIN, 5000);
}

static void rest(const char *what, int fd) {
    char bytes[64] = {0};
    int got = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    say(what, got);
    if (got > 0) printf("%.*s\n", got, bytes);
}

static void receives(void) {
    for (int is_stream = 0; is_stream < 2; is_stream++) {
        int fd = is_stream ? call(7000) : datagrams();
        for (int kind = 0; kind < KINDS; kind++) {
            void *into = bad(kind, 16);
            struct iovec part = {into, 16}, good = {page, 16};
            struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
            tell("recv of nothing", kind, recv(fd, into, 16, MSG_DONTWAIT));
            ask(fd, 16), tell("recv", kind, recv(fd, into, 16, 0)), rest("left", fd);
            ask(fd, 16), tell("read", kind, read(fd, into, 16)), rest("left", fd);
            ask(fd, 16), tell("peek", kind, recv(fd, into, 16, MSG_PEEK)), rest("left", fd);
            ask(fd, 16), tell("readv", kind, readv(fd, &part, 1)), rest("left", fd);
            ask(fd, 16), tell("recvmsg", kind, recvmsg(fd, &message, 0)), rest("left", fd);
            message.msg_iov = kind == 2 ? NULL : bad(kind, sizeof part);
            ask(fd, 16), tell("recvmsg iovec", kind, recvmsg(fd, &message, 0)), rest("left", fd);
            message.msg_iov = &good, message.msg_name = into, message.msg_namelen = 16;
            if (!is_stream) ask(fd, 16), tell("recvmsg name", kind, recvmsg(fd, &message, 0)), rest("left", fd);
            if (kind != 2) ask(fd, 16), tell("recvmsg header", kind, recvmsg(fd, bad(kind, sizeof message), 0)), rest("left", fd);
            ask(fd, 16), tell("recvfrom len", kind, recvfrom(fd, page, 16, 0, (void *)page, bad(kind, 4))), rest("left", fd);
            ask(fd, 16), tell("recvfrom unwanted", kind, recvfrom(fd, page, 16, 0, NULL, bad(kind, 4))), rest("left", fd);
            if (kind != 2) ask(fd, 16), tell("recvmmsg", kind, recvmmsg(fd, bad(kind, sizeof(struct mmsghdr)), 1, 0, NULL)), rest("left", fd);
            ask(fd, 16), tell("ioctl", kind, ioctl(fd, FIONREAD, bad(kind, 4))), rest("left", fd);
        }
        // What is received fits in what is there of a longer buffer.
        ask(fd, 8), say("recv of less", recv(fd, page + PAGE - 8, 4000, 0));
        ask(fd, 8), say("recv of less in much", recv(fd, page + PAGE - 8, 1 << 20, 0));
        ask(fd, 8), say("recv at the end of all", recv(fd, (void *)-PAGE, 16, 0)), rest("left", fd);
        close(fd);
    }
}

static void sends(void) {
    for (int state = 0; state < 4; state++) {
        int fd = state == 0 ? call(7000) : state == 1 ? datagrams() : socket(AF_INET, state == 2 ? SOCK_DGRAM : SOCK_STREAM, 0);
        struct sockaddr_in here = at("0.0.0.0", 0), to = at(peer, 7000);
        if (state == 2) bind(fd, (struct sockaddr *)&here, sizeof here);
        for (int kind = 0; kind < KINDS; kind++) {
            if (kind == 2) continue;
            void *from = bad(kind, 16);
            struct iovec parts[2] = {{page, 8}, {from, 16}};
            struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
            struct mmsghdr messages[1] = {{message}};
            tell("send", kind, send(fd, from, 16, MSG_NOSIGNAL));
            tell("writev", kind, writev(fd, parts, 2));
            tell("write", kind, write(fd, from, 16));
            tell("sendmsg", kind, sendmsg(fd, &message, MSG_NOSIGNAL));
            tell("sendmsg header", kind, sendmsg(fd, bad(kind, sizeof message), MSG_NOSIGNAL));
            tell("sendmmsg", kind, sendmmsg(fd, messages, 1, MSG_NOSIGNAL));
            tell("sendmmsg list", kind, sendmmsg(fd, bad(kind, sizeof messages), 1, MSG_NOSIGNAL));
            if (state != 3) tell("sendto", kind, sendto(fd, from, 16, MSG_NOSIGNAL, (void *)&to, sizeof to));
            if (kind != 0 && state != 3) tell("sendto address", kind, sendto(fd, page, 16, MSG_NOSIGNAL, bad(kind, 16), 16));
            if (kind != 0 && state == 0) tell("sendfile", kind, sendfile(fd, 0, bad(kind, 8), 16));
        }
        rest("came back", fd);
        close(fd);
    }
    // An array of buffers that is only to be read, with an empty one.
    static const struct iovec constant[2] = {{NULL, 0}, {"abc", 3}};
    int fd = call(7000);
    say("writev of a constant", writev(fd, constant, 2));
    ready(fd, POLLIN, 5000), rest("came back", fd);
    struct iovec negative = {page, -1};
    say("readv of a negative length", readv(fd, &negative, 1));
    say("writev of a negative length", writev(fd, &negative, 1));
    close(fd);
}

static void names_and_options(void) {
    int fd = call(7000), listener = socket(AF_INET, SOCK_STREAM, 0), fresh = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in here = at("0.0.0.0", 0);
    bind(listener, (struct sockaddr *)&here, sizeof here);
    say("listen", listen(listener, 4));
    fcntl(listener, F_SETFL, O_NONBLOCK);
    for (int kind = 0; kind < KINDS; kind++) {
        socklen_t len = 16;
        int on = 1;
        tell("getsockname", kind, getsockname(fd, bad(kind, 16), &len));
        tell("getpeername", kind, getpeername(fd, bad(kind, 16), &len));
        tell("getsockname len", kind, getsockname(fd, (void *)page, bad(kind, 4)));
        len = 4;
        tell("getsockopt", kind, getsockopt(fd, SOL_SOCKET, SO_RCVBUF, bad(kind, 4), &len));
        tell("getsockopt len", kind, getsockopt(fd, SOL_SOCKET, SO_TYPE, page, bad(kind, 4)));
        tell("accept", kind, accept(listener, bad(kind, 16), &len));
        if (kind == 2) continue;
        tell("setsockopt", kind, setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, bad(kind, 4), 4));
        tell("setsockopt level", kind, setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, bad(kind, 4), 4));
        tell("setsockopt of a fresh one", kind, setsockopt(fresh, SOL_SOCKET, SO_KEEPALIVE, bad(kind, 4), 4));
        tell("connect", kind, connect(fresh, bad(kind, 16), 16));
        tell("bind", kind, bind(fresh, bad(kind, 16), 16));
        tell("ioctl", kind, ioctl(fd, FIONBIO, bad(kind, 4)));
        say("still", setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on));
    }
    socklen_t negative = -1, huge = 1 << 30;
    say("getsockopt of a negative length", getsockopt(fd, SOL_SOCKET, SO_TYPE, page, &negative));
    say("getsockopt of more than there is", getsockopt(fd, SOL_SOCKET, SO_TYPE, page + PAGE - 4, &huge));
    say("connect to a long address", connect(fresh, (void *)page, 4000));
    close(fd), close(listener), close(fresh);
}

static void waits(void) {
    int fd = datagrams(), set = epoll_create1(0);
    struct epoll_event event = {EPOLLIN, {.u64 = 7}};
    say("epoll_ctl", epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
    for (int kind = 0; kind < KINDS; kind++) {
        fd_set good;
        struct timeval now = {0};
        FD_ZERO(&good);
        FD_SET(fd, &good);
        tell("epoll_wait for nothing", kind, epoll_wait(set, bad(kind, 12), 1, 0));
        ask(fd, 4);
        tell("epoll_wait", kind, epoll_wait(set, bad(kind, 12), 1, 0));
        tell("poll", kind, poll(bad(kind, 8), 1, 0));
        if (kind > 0) tell("select", kind, select(fd + 1, bad(kind, 8), NULL, NULL, &now));
        tell("epoll_ctl", kind, kind == 2 ? 0 : epoll_ctl(set, EPOLL_CTL_MOD, fd, bad(kind, 12)));
        if (kind != 0 && kind != 2) {
            tell("select timeout", kind, select(fd + 1, &good, NULL, NULL, bad(kind, 16)));
            struct pollfd entry = {fd, POLLIN, 0};
            tell("ppoll timeout", kind, ppoll(&entry, 1, bad(kind, 16), NULL));
            tell("ppoll mask", kind, ppoll(&entry, 1, NULL, bad(kind, 8)));
        }
        rest("left", fd);
    }
    say("select with a constant timeout", select(fd + 1, NULL, NULL, NULL, bad(2, 16)));
    say("epoll_ctl that needs none", epoll_ctl(set, EPOLL_CTL_DEL, fd, (void *)8));
    close(fd), close(set);
}

static sigjmp_buf back;
static volatile int count;
static volatile long address;

static void leaves(int number, siginfo_t *info, void *context) {
    count++, address = (char *)info->si_addr - page;
    siglongjmp(back, 1);
}

static void plain(int number) {
    count++;
    siglongjmp(back, 2);
}

static void touch(void) {
    int way = sigsetjmp(back, 1);
    if (way == 0) *(volatile char *)(page + PAGE + 8) = 1;
    printf("left by %d, %d faults at %ld\n", way, count, address);
}

static int status_of(void (*act)(void)) {
    int status;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) act(), _exit(7);
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static void by_fault(void) { *(volatile char *)(page + PAGE) = 1; }
static void by_raise(void) { raise(SIGSEGV); }
static void ignored(void) { signal(SIGSEGV, SIG_IGN), raise(SIGSEGV); }
static void ignored_fault(void) { signal(SIGSEGV, SIG_IGN), by_fault(); }

static void faults(void) {
    struct sigaction action = {.sa_sigaction = leaves, .sa_flags = SA_SIGINFO | SA_RESTART}, before;
    int fd = call(7000);
    printf("default ends by %d, raised by %d, ignored by %d and %d\n", status_of(by_fault), status_of(by_raise), status_of(ignored), status_of(ignored_fault));
    sigaction(SIGSEGV, NULL, &before);
    printf("before: %d %x\n", before.sa_handler == SIG_DFL, before.sa_flags);
    sigemptyset(&action.sa_mask), sigaddset(&action.sa_mask, SIGUSR1);
    say("sigaction", sigaction(SIGSEGV, &action, &before));
    touch(), touch();
    say("send beside a handler", send(fd, page + PAGE, 4, 0));
    sigaction(SIGSEGV, NULL, &before);
    printf("it is %d with %x, mask %d, %d faults\n", before.sa_sigaction == leaves, before.sa_flags & ~0x4000000, sigismember(&before.sa_mask, SIGUSR1), count);
    action.sa_handler = plain, action.sa_flags = SA_RESETHAND;
    sigaction(SIGSEGV, &action, NULL);
    touch();
    sigaction(SIGSEGV, NULL, &before);
    printf("reset: %d\n", before.sa_handler == SIG_DFL);
    say("send after a reset", send(fd, page + PAGE, 4, 0));
    sysv_signal(SIGSEGV, plain);
    say("send beside one of System V", send(fd, page + PAGE, 4, 0));
    touch();
    say("send after it", send(fd, page + PAGE, 4, 0));
    printf("then it ends by %d\n", status_of(by_fault));
    close(fd);
}

static const struct part parts[] = {
    {"receives", receives}, {"sends", sends}, {"names and options", names_and_options}, {"waits", waits}, {"faults", faults},
};

int main(int argc, char **argv) {
    peer = argv[1];
    page = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(page + 2 * PAGE, PAGE, PROT_READ), munmap(page + PAGE, PAGE);
    return play(parts, sizeof parts / sizeof *parts, argv[2]);
}
