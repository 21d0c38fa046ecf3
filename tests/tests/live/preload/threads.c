// Sockets of several threads: made in one and used in another, in sets of several threads' sockets,
// and a listener that several threads accept on. threads ADDRESS-OF-THE-PEER [PART].
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "calls.h"

#define THREADS 4
static int streams[THREADS], datagrams[THREADS];
static pthread_barrier_t all;

static int connected(int kind) {
    int fd = socket(AF_INET, kind, 0);
    struct sockaddr_in address = at(peer, 7000);
    return connect(fd, (struct sockaddr *)&address, sizeof address) < 0 ? -1 : fd;
}

static void *makes(void *number) {
    long at = (long)number;
    streams[at] = connected(SOCK_STREAM), datagrams[at] = connected(SOCK_DGRAM);
    // None ends before all have begun, so that each has an engine of its own.
    pthread_barrier_wait(&all);
    return NULL;
}

static void make(void) {
    pthread_t threads[THREADS];
    pthread_barrier_init(&all, NULL, THREADS);
    for (long i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, makes, (void *)i);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    int made = 0;
    for (int i = 0; i < THREADS; i++) made += (streams[i] >= 0) + (datagrams[i] >= 0);
    printf("made %d\n", made);
}

static void end(void) {
    for (int i = 0; i < THREADS; i++) close(streams[i]), close(datagrams[i]);
}

static int of(long value) { return value < THREADS ? streams[value] : datagrams[value - THREADS]; }

// Waits until a set has reported all values of a mask, and reads what is there.
static void collect(const char *what, int set, int mask) {
    char bytes[8];
    int seen = 0, odd = 0;
    while (seen != mask) {
        struct epoll_event got[16];
        int count = epoll_wait(set, got, 16, 5000);
        if (count <= 0) break;
        for (int i = 0; i < count; i++) {
            int fd = of(got[i].data.u64);
            if (recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) != 2) odd++;
            seen |= 1 << got[i].data.u64;
        }
    }
    printf("%s: %x, %d odd\n", what, seen, odd);
}

static void add(int set, int op, unsigned events) {
    for (long i = 0; i < 2 * THREADS; i++) {
        struct epoll_event event = {events, {.u64 = i}};
        if (epoll_ctl(set, op, of(i), &event) < 0) say("ctl", -1);
    }
}

static void send_all(int mask) {
    for (long i = 0; i < 2 * THREADS; i++)
        if (mask >> i & 1 && send(of(i), "ab", 2, 0) != 2) say("send", -1);
}

// One set with the sockets of four threads.
static void one_set(void) {
    make();
    int set = epoll_create1(0);
    struct epoll_event got[16];
    add(set, EPOLL_CTL_ADD, EPOLLIN);
    say("silent", epoll_wait(set, got, 16, 20));
    send_all(0xff), collect("level", set, 0xff);
    send_all(0x42), collect("two", set, 0x42);
    add(set, EPOLL_CTL_MOD, EPOLLIN | EPOLLET);
    send_all(0x81), collect("edge", set, 0x81);
    add(set, EPOLL_CTL_MOD, EPOLLIN | EPOLLONESHOT);
    send_all(0x3c), collect("one shot", set, 0x3c);
    send_all(0x3c);
    for (long i = 0; i < 2 * THREADS; i++)
        if (0x3c >> i & 1) say("poll", ready(of(i), POLLIN, 5000));
    say("not again", epoll_wait(set, got, 16, 20));
    end();
    say("closed", epoll_wait(set, got, 16, 20));
    close(set);
}

static void one_poll(void) {
    make();
    struct pollfd entries[2 * THREADS];
    for (long i = 0; i < 2 * THREADS; i++) entries[i] = (struct pollfd){of(i), POLLIN, 0};
    say("silent", poll(entries, 2 * THREADS, 20));
    send_all(0xff);
    for (long i = 0; i < 2 * THREADS; i++) say("each", ready(of(i), POLLIN, 5000));
    say("all", poll(entries, 2 * THREADS, 5000));
    end();
}

static int late, set_of_late, waiter;

static void *waits_for_late(void *unused) {
    struct epoll_event got;
    __atomic_store_n(&waiter, gettid(), __ATOMIC_RELEASE);
    return (void *)(long)epoll_wait(set_of_late, &got, 1, 20000);
}

static void *makes_late(void *unused) {
    late = connected(SOCK_STREAM);
    struct epoll_event event = {EPOLLIN, {.u64 = 1}};
    epoll_ctl(set_of_late, EPOLL_CTL_ADD, late, &event);
    send(late, "ab", 2, 0);
    return NULL;
}

// A socket of another thread enters a set that a thread sleeps on.
static void late_member(void) {
    pthread_t waits, makes;
    void *woken;
    set_of_late = epoll_create1(0);
    pthread_create(&waits, NULL, waits_for_late, NULL);
    until_it_sleeps(&waiter);
    pthread_create(&makes, NULL, makes_late, NULL);
    pthread_join(makes, NULL), pthread_join(waits, &woken);
    say("woken", (long)woken);
    close(late), close(set_of_late);
}

static int listener;

static void *serves(void *unused) {
    char bytes[64];
    // Its own engine, before it accepts.
    close(socket(AF_INET, SOCK_DGRAM, 0));
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        if (fd < 0) return NULL;
        ssize_t len;
        while ((len = read(fd, bytes, sizeof bytes)) > 0) write(fd, bytes, len);
        close(fd);
    }
}

static void listens(int kind) {
    struct sockaddr_in any = at("0.0.0.0", 7100);
    listener = socket(AF_INET, SOCK_STREAM | kind, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    say("bind", bind(listener, (struct sockaddr *)&any, sizeof any));
    say("listen", listen(listener, 64));
}

// Threads that accept on one listener, until standard input ends.
static void accepts(void) {
    pthread_t thread;
    listens(0);
    for (int i = 0; i < THREADS; i++) pthread_create(&thread, NULL, serves, NULL);
    getchar();
}

// A listener and its connections in the epoll set of each of several threads.
static void *polls(void *unused) {
    char bytes[64];
    int set = epoll_create1(0);
    close(socket(AF_INET, SOCK_DGRAM, 0));
    struct epoll_event event = {EPOLLIN, {.fd = listener}}, got[16];
    epoll_ctl(set, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        int count = epoll_wait(set, got, 16, -1);
        for (int i = 0; i < count; i++) {
            int fd = got[i].data.fd;
            if (fd == listener) {
                event.data.fd = accept(listener, NULL, NULL);
                if (event.data.fd >= 0) epoll_ctl(set, EPOLL_CTL_ADD, event.data.fd, &event);
                continue;
            }
            ssize_t len = read(fd, bytes, sizeof bytes);
            if (len > 0) write(fd, bytes, len);
            else close(fd);
        }
    }
}

static void sets(void) {
    pthread_t thread;
    listens(SOCK_NONBLOCK);
    for (int i = 0; i < THREADS; i++) pthread_create(&thread, NULL, polls, NULL);
    getchar();
}

int main(int count, char **arguments) {
    if (count < 2) return 2;
    peer = arguments[1];
    if (count > 2 && strcmp(arguments[2], "accepts") == 0) return accepts(), 0;
    if (count > 2 && strcmp(arguments[2], "sets") == 0) return sets(), 0;
    struct part parts[] = {{"one set", one_set}, {"one poll", one_poll}, {"late member", late_member}};
    return play(parts, sizeof parts / sizeof *parts, arguments[2]);
}
