// Waits in several ways: sets within sets, sets with descriptors of the kernel, several threads, and
// jumps out of a wait. waits ADDRESS-OF-THE-PEER [PART].
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "calls.h"

static void add(int set, int fd, unsigned events, long value) {
    struct epoll_event of = {events, {.u64 = value}};
    if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &of) < 0) say("add", -1);
}

// What a set reports: the sum of the values.
static void reports(const char *what, int set, int wait_ms) {
    struct epoll_event got[8];
    int count = epoll_wait(set, got, 8, wait_ms), sum = 0;
    for (int i = 0; i < count; i++) sum += got[i].data.u64;
    printf("%s: %d events, values %d\n", what, count, sum);
}

static void nested(void) {
    char bytes[2];
    int inner = epoll_create1(0), outer = epoll_create1(0), third = epoll_create1(0), fd = call(7000);
    add(inner, fd, EPOLLIN, 1), add(outer, inner, EPOLLIN, 2), add(third, outer, EPOLLIN, 4);
    reports("silent", third, 20);
    write(fd, "ab", 2);
    reports("third", third, 5000);
    reports("outer", outer, 0);
    say("poll", ready(outer, POLLIN, 0));
    reports("inner", inner, 0);
    reports("still", third, 0);
    say("recv", recv(fd, bytes, 2, MSG_WAITALL));
    reports("read", third, 20);
    reports("read", inner, 0);
    write(fd, "ab", 2);
    say("poll", ready(third, POLLIN, 5000));
    say("loop", epoll_ctl(inner, EPOLL_CTL_ADD, third, &(struct epoll_event){EPOLLIN}));
    int late = call(7000), event = eventfd(1, EFD_NONBLOCK);
    recv(fd, bytes, 2, MSG_WAITALL);
    add(inner, event, EPOLLIN, 8);
    reports("of the kernel", third, 0);
    reports("of the kernel", inner, 0);
    eventfd_read(event, &(eventfd_t){0});
    add(inner, late, EPOLLIN | EPOLLET, 16);
    reports("none", third, 20);
    write(late, "ab", 2);
    reports("of both", third, 5000);
    reports("of both", inner, 0);
    reports("once", inner, 0);
    reports("once", third, 0);
    close(inner);
    reports("closed", outer, 20);
    close(outer), close(third), close(fd), close(late), close(event);
}

static void one_shots(void) {
    char bytes[8];
    int fd = socket(AF_INET, SOCK_DGRAM, 0), other = socket(AF_INET, SOCK_DGRAM, 0), set = epoll_create1(0);
    struct sockaddr_in any = at("0.0.0.0", 7078), here = at("127.0.0.1", 7078), there = at(peer, 7000);
    struct epoll_event of = {EPOLLIN | EPOLLONESHOT, {.u64 = 5}};
    say("bind", bind(fd, (struct sockaddr *)&any, sizeof any));
    add(set, fd, of.events, 5);
    sendto(other, "loop", 4, 0, (struct sockaddr *)&here, sizeof here);
    reports("by loopback", set, 5000);
    say("recv", recv(fd, bytes, 8, 0));
    sendto(fd, "wire", 4, 0, (struct sockaddr *)&there, sizeof there);
    say("poll", ready(fd, POLLIN, 5000));
    reports("not again", set, 20);
    say("mod", epoll_ctl(set, EPOLL_CTL_MOD, fd, &of));
    reports("by the wire", set, 5000);
    sendto(other, "loop", 4, 0, (struct sockaddr *)&here, sizeof here);
    reports("not again", set, 20);
    say("recv", recv(fd, bytes, 8, 0)), say("recv", recv(fd, bytes, 8, 0));
    sendto(other, "loop", 4, 0, (struct sockaddr *)&here, sizeof here);
    say("mod", epoll_ctl(set, EPOLL_CTL_MOD, fd, &of));
    reports("by loopback", set, 5000);
    reports("not again", set, 20);
    say("del", epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL));
    say("del", epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL));
    close(fd), close(other), close(set);
}

static void one_shots_that_were_reported_before(void) {
    struct sockaddr_in there = at(peer, 7000);
    for (int type = SOCK_STREAM; type <= SOCK_DGRAM; type++) {
        int fd = socket(AF_INET, type, 0), set = epoll_create1(0);
        struct epoll_event of = {EPOLLOUT | EPOLLONESHOT, {.u64 = 6}};
        add(set, fd, of.events, 6);
        reports("before", set, 5000);
        say("connect", connect(fd, (struct sockaddr *)&there, sizeof there));
        reports("not again", set, 20);
        say("mod", epoll_ctl(set, EPOLL_CTL_MOD, fd, &of));
        reports("once more", set, 5000);
        reports("not again", set, 20);
        close(fd), close(set);
    }
}

static void after_a_shutdown(void) {
    struct sockaddr_in there = at(peer, 7000), any = at("0.0.0.0", 7079), here = at("127.0.0.1", 7079);
    struct epoll_event got = {0};
    int fd = socket(AF_INET, SOCK_DGRAM, 0), other = socket(AF_INET, SOCK_DGRAM, 0), set = epoll_create1(0), len = 0;
    say("connect", connect(fd, (struct sockaddr *)&there, sizeof there));
    add(set, fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLONESHOT, 3);
    say("shutdown", shutdown(fd, SHUT_RD));
    say("wait", epoll_wait(set, &got, 1, 5000)), say("events", got.events);
    close(fd);
    fd = socket(AF_INET, SOCK_DGRAM, 0);
    say("bind", bind(fd, (struct sockaddr *)&any, sizeof any));
    say("sendto", sendto(other, "loop", 4, 0, (struct sockaddr *)&here, sizeof here));
    say("poll", ready(fd, POLLIN, 5000));
    say("shutdown", shutdown(fd, SHUT_RDWR));
    say("ioctl", ioctl(fd, FIONREAD, &len)), say("len", len);
    close(fd), close(other), close(set);
}

static void listeners_that_listen_no_more(void) {
    char bytes[8];
    struct sockaddr_in there = at(peer, 7000), any = at("0.0.0.0", 7080), here = at("127.0.0.1", 7080);
    int fd = socket(AF_INET, SOCK_STREAM, 0), set = epoll_create1(0), other = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    say("bind", bind(fd, (struct sockaddr *)&any, sizeof any));
    say("listen", listen(fd, 1));
    add(set, fd, EPOLLIN, 4);
    reports("listens", set, 20);
    say("shutdown", shutdown(fd, SHUT_RD));
    reports("not connected", set, 5000);
    say("listen", listen(fd, 1));
    reports("listens", set, 20);
    say("connect", connect(other, (struct sockaddr *)&here, sizeof here));
    reports("calls", set, 5000);
    close(accept(fd, NULL, NULL)), close(other);
    say("shutdown", shutdown(fd, SHUT_RD));
    say("connect", connect(fd, (struct sockaddr *)&there, sizeof there));
    reports("connected", set, 20);
    say("recv", recv(fd, bytes, 8, MSG_DONTWAIT));
    say("send", send(fd, "ab", 2, 0));
    reports("echo", set, 5000);
    say("recv", recv(fd, bytes, 8, 0));
    close(fd), close(set);
}

static void of_the_kernel(void) {
    struct itimerspec soon = {{0}, {0, 1000000}};
    struct signalfd_siginfo info;
    unsigned long times;
    sigset_t signals;
    int set = epoll_create1(0), fd = call(7000), timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    sigemptyset(&signals), sigaddset(&signals, SIGUSR1), sigprocmask(SIG_BLOCK, &signals, NULL);
    int signal = signalfd(-1, &signals, SFD_NONBLOCK), pair[2];
    pipe(pair);
    add(set, fd, EPOLLIN, 1), add(set, timer, EPOLLIN, 2), add(set, signal, EPOLLIN, 4), add(set, pair[0], EPOLLIN, 8);
    reports("silent", set, 20);
    timerfd_settime(timer, 0, &soon, NULL);
    reports("timer", set, 5000);
    say("read", read(timer, &times, sizeof times));
    kill(getpid(), SIGUSR1);
    reports("signal", set, 5000);
    say("read", read(signal, &info, sizeof info));
    write(fd, "x", 1);
    reports("socket", set, 5000);
    write(pair[1], "x", 1);
    // Ours may report them by turns.
    int seen = 0;
    while (seen != 9) {
        struct epoll_event got[8];
        for (int count = epoll_wait(set, got, 8, 5000); count > 0; count--) seen |= got[count - 1].data.u64;
    }
    close(fd), close(set), close(timer), close(signal), close(pair[0]), close(pair[1]);
}

#define THREADS 4
static int shared, ids[THREADS], woken[THREADS];

static void *exclusive(void *number) {
    long at = (long)number;
    struct epoll_event got;
    int set = epoll_create1(0);
    add(set, shared, EPOLLIN | EPOLLEXCLUSIVE, at);
    __atomic_store_n(&ids[at], gettid(), __ATOMIC_RELEASE);
    woken[at] = epoll_wait(set, &got, 1, 1000);
    close(set);
    return NULL;
}

static void exclusives(void) {
    pthread_t threads[THREADS];
    int count = 0;
    shared = call(7000);
    for (long i = 0; i < THREADS; i++) {
        pthread_create(&threads[i], NULL, exclusive, (void *)i);
        until_it_sleeps(&ids[i]);
    }
    write(shared, "x", 1);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL), count += woken[i];
    printf("woken %d\n", count);
    close(shared);
}

// What Linux refuses of an exclusive item.
static void exclusive_items(void) {
    int fd = call(7000), set = epoll_create1(0);
    unsigned added[] = {EPOLLRDHUP, EPOLLPRI, EPOLLONESHOT, EPOLLET | EPOLLOUT, 0};
    struct epoll_event event = {EPOLLIN | EPOLLEXCLUSIVE};
    say("no item", epoll_ctl(set, EPOLL_CTL_MOD, fd, &event));
    event.events = EPOLLIN;
    say("no item", epoll_ctl(set, EPOLL_CTL_MOD, fd, &event));
    for (int i = 0; i < 5; i++) {
        event.events = EPOLLIN | EPOLLEXCLUSIVE | added[i];
        say("add", epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
    }
    say("change", epoll_ctl(set, EPOLL_CTL_MOD, fd, &event));
    say("delete", epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL));
    close(set), close(fd);
}

static sigjmp_buf back;
static int reader_id;

static void jump(int number) { siglongjmp(back, number); }

static void *receives(void *fd) {
    char byte;
    sigset_t signals;
    sigemptyset(&signals), sigaddset(&signals, SIGALRM), pthread_sigmask(SIG_BLOCK, &signals, NULL);
    __atomic_store_n(&reader_id, gettid(), __ATOMIC_RELEASE);
    return (void *)recv((long)fd, &byte, 1, 0);
}

// The main thread sleeps first, so that it is the one that waits for frames.
static void jumps(void) {
    char byte;
    void *received;
    pthread_t thread;
    struct itimerval time = {.it_value = {0, 300000}};
    int fd = call(7000), other = call(7000);
    signal(SIGALRM, jump);
    pthread_create(&thread, NULL, receives, (void *)(long)other);
    if (sigsetjmp(back, 1) == 0) {
        until_it_sleeps(&reader_id);
        setitimer(ITIMER_REAL, &time, NULL);
        say("recv", recv(fd, &byte, 1, 0));
    }
    write(other, "x", 1);
    pthread_join(thread, &received);
    say("received", (long)received);
    write(fd, "x", 1);
    say("recv", recv(fd, &byte, 1, 0));
    close(fd), close(other);
}

struct receiver {
    int fd, id;
};

static void *receives_early(void *of) {
    struct receiver *receiver = of;
    char bytes[8];
    __atomic_store_n(&receiver->id, gettid(), __ATOMIC_SEQ_CST);
    return (void *)recv(receiver->fd, bytes, sizeof bytes, 0);
}

// A thread waits on a socket that has no address yet, until another one has sent.
static void early(void) {
    char byte;
    struct receiver receiver = {socket(AF_INET, SOCK_DGRAM, 0), 0};
    struct timeval time = {0, 50000};
    setsockopt(receiver.fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    say("timeout", recv(receiver.fd, &byte, 1, 0));
    say("dontwait", recv(receiver.fd, &byte, 1, MSG_DONTWAIT));
    time.tv_sec = 20;
    setsockopt(receiver.fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    pthread_t thread;
    void *received;
    pthread_create(&thread, NULL, receives_early, &receiver);
    until_it_sleeps(&receiver.id);
    struct sockaddr_in address = at(peer, 7000);
    say("sendto", sendto(receiver.fd, "early", 5, 0, (struct sockaddr *)&address, sizeof address));
    pthread_join(thread, &received);
    say("received", (long)received);
    close(receiver.fd);
}

static void *polls_early(void *of) {
    struct receiver *receiver = of;
    __atomic_store_n(&receiver->id, gettid(), __ATOMIC_SEQ_CST);
    return (void *)(long)ready(receiver->fd, POLLIN, 20000);
}

static void *selects_early(void *of) {
    struct receiver *receiver = of;
    struct timeval time = {20, 0};
    fd_set reads;
    FD_ZERO(&reads);
    FD_SET(receiver->fd, &reads);
    __atomic_store_n(&receiver->id, gettid(), __ATOMIC_SEQ_CST);
    return (void *)(long)select(receiver->fd + 1, &reads, NULL, NULL, &time);
}

static void *waits_early(void *of) {
    struct receiver *receiver = of;
    struct epoll_event event;
    int set = epoll_create1(0);
    add(set, receiver->fd, EPOLLIN, 1);
    __atomic_store_n(&receiver->id, gettid(), __ATOMIC_SEQ_CST);
    long count = epoll_wait(set, &event, 1, 20000);
    close(set);
    return (void *)count;
}

// The same by calls that wait for readiness; the last sender connects first.
static void early_readiness(void) {
    void *(*waits[])(void *) = {polls_early, selects_early, waits_early, polls_early};
    struct sockaddr_in address = at(peer, 7000);
    for (int i = 0; i < 4; i++) {
        struct receiver receiver = {socket(AF_INET, SOCK_DGRAM, 0), 0};
        pthread_t thread;
        void *result;
        char bytes[8];
        pthread_create(&thread, NULL, waits[i], &receiver);
        until_it_sleeps(&receiver.id);
        if (i == 3) say("connect", connect(receiver.fd, (struct sockaddr *)&address, sizeof address));
        const void *to = i == 3 ? NULL : &address;
        say("sendto", sendto(receiver.fd, "early", 5, 0, to, to ? sizeof address : 0));
        pthread_join(thread, &result);
        say("ready", (long)result);
        say("recv", recv(receiver.fd, bytes, sizeof bytes, MSG_DONTWAIT));
        close(receiver.fd);
    }
}

// Datagrams that the kernel has put together, beside room to send, which is ours.
static void in_pieces(void) {
    int fds[] = {socket(AF_INET, SOCK_DGRAM, 0), -1};
    struct sockaddr_in to = at(peer, 7000);
    static char bytes[5000];
    say("sendto", sendto(fds[0], bytes, sizeof bytes, 0, (struct sockaddr *)&to, sizeof to));
    say("poll", ready(fds[0], POLLIN, 5000));
    fds[1] = dup(fds[0]);
    for (int i = 0; i < 40; i++) say("both", ready(fds[i % 2], POLLIN | POLLOUT, 0));
    for (int i = 0; i < 40; i++) {
        fd_set in, out;
        struct timeval none = {0, 0};
        FD_ZERO(&in);
        FD_ZERO(&out);
        FD_SET(fds[i % 2], &in);
        FD_SET(fds[i % 2], &out);
        say("select", select(fds[i % 2] + 1, &in, &out, NULL, &none));
    }
    say("recv", recv(fds[0], bytes, sizeof bytes, 0));
    say("room", ready(fds[1], POLLIN | POLLOUT, 0));
    close(fds[0]), close(fds[1]);
}

// A socket whose connect has failed is told once more by the call that returns the error.
static void failed_connect(void) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), set = epoll_create1(0);
    struct sockaddr_in to = at(peer, 7003);
    struct epoll_event event = {EPOLLOUT | EPOLLET};
    say("connect", connect(fd, (struct sockaddr *)&to, sizeof to));
    say("poll", ready(fd, POLLOUT, 5000));
    say("add", epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
    for (int i = 0; i < 4; i++) {
        if (i == 2) say("connect", connect(fd, (struct sockaddr *)&to, sizeof to));
        event.events = 0;
        say("wait", epoll_wait(set, &event, 1, 0));
        printf("events %x\n", event.events);
    }
    close(set), close(fd);
}

int main(int count, char **arguments) {
    if (count < 2) return 2;
    peer = arguments[1];
    struct part parts[] = {
        {"nested", nested}, {"one shots", one_shots}, {"reported before", one_shots_that_were_reported_before}, {"after a shutdown", after_a_shutdown},
        {"no more", listeners_that_listen_no_more}, {"of the kernel", of_the_kernel},
        {"exclusives", exclusives}, {"exclusive items", exclusive_items}, {"jumps", jumps}, {"early", early},
        {"early readiness", early_readiness}, {"in pieces", in_pieces},
        {"failed connect", failed_connect},
    };
    setvbuf(stdout, NULL, _IOLBF, 0);
    return play(parts, sizeof parts / sizeof *parts, arguments[2]);
}
