// Calls by their numbers, formatted text, buffers in odd places: the same on the kernel's sockets
// and under the library. raw ADDRESS-OF-THE-PEER [PART].
#define _GNU_SOURCE
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "calls.h"

static char bytes[256];

static void echoed(int fd, int len) {
    memset(bytes, 0, sizeof bytes);
    say("recv", recv(fd, bytes, len, MSG_WAITALL));
    printf("%s", bytes);
}

static int prints(int fd, const char *format, ...) {
    va_list list;
    va_start(list, format);
    int count = vdprintf(fd, format, list);
    va_end(list);
    return count;
}

int __dprintf_chk(int fd, int flag, const char *format, ...);

static void text(void) {
    int fd = call(7000), count;
    count = dprintf(fd, "%d %s %.2f %c %ld %lld %x %g\n", 1, "two", 3.5, '4', 5L, 6LL, 7, 8.25);
    say("dprintf", count), echoed(fd, count);
    count = dprintf(fd, "%s %s %s %s %s %s %s %s %f %f %f %f %f %f %f %f %f %f\n", "a", "b", "c", "d", "e", "f", "g", "h",
                    1., 2., 3., 4., 5., 6., 7., 8., 9., 10.);
    say("dprintf", count), echoed(fd, count);
    count = prints(fd, "%s and %d\n", "a list", 42);
    say("vdprintf", count), echoed(fd, count);
    count = __dprintf_chk(fd, 1, "%s %d %f\n", "checked", 7, .5);
    say("__dprintf_chk", count), echoed(fd, count);
    say("nothing", dprintf(fd, "%s", ""));
    close(fd);
    say("closed", dprintf(fd, "text"));
    dprintf(1, "%s %d\n", "to a file", 1);
}

static void numbers(void) {
    int fd = call(7000), set = epoll_create1(0);
    struct pollfd entry = {fd, POLLIN};
    struct timespec none = {0, 1000000}, long_time = {20, 0};
    struct timeval soon = {0, 1000}, later = {20, 0};
    struct epoll_event of = {EPOLLIN, {.u64 = 3}}, event;
    struct { const void *mask; size_t len; } mask = {NULL, 8};
    fd_set reads;
    epoll_ctl(set, EPOLL_CTL_ADD, fd, &of);
    say("poll", syscall(SYS_poll, &entry, 1, 1));
    say("ppoll", syscall(SYS_ppoll, &entry, 1, &none, NULL, 8));
    FD_ZERO(&reads);
    FD_SET(fd, &reads);
    say("select", syscall(SYS_select, fd + 1, &reads, NULL, NULL, &soon));
    say("epoll_wait", syscall(SYS_epoll_wait, set, &event, 1, 1));
    write(fd, "x", 1);
    say("poll", syscall(SYS_poll, &entry, 1, 20000));
    say("revents", entry.revents), entry.revents = 0;
    say("ppoll", syscall(SYS_ppoll, &entry, 1, &long_time, NULL, 8));
    say("revents", entry.revents);
    FD_ZERO(&reads);
    FD_SET(fd, &reads);
    say("select", syscall(SYS_select, fd + 1, &reads, NULL, NULL, &later));
    say("set", FD_ISSET(fd, &reads) != 0);
    say("pselect6", syscall(SYS_pselect6, fd + 1, &reads, NULL, NULL, &long_time, &mask));
    say("set", FD_ISSET(fd, &reads) != 0);
    say("pselect6", syscall(SYS_pselect6, fd + 1, &reads, NULL, NULL, &long_time, NULL));
    say("epoll_wait", syscall(SYS_epoll_wait, set, &event, 1, 20000));
    say("value", event.data.u64);
    say("epoll_pwait2", syscall(SYS_epoll_pwait2, set, &event, 1, &long_time, NULL, 8));
    int another = syscall(SYS_epoll_create, 1);
    epoll_ctl(another, EPOLL_CTL_ADD, fd, &of);
    say("a set of epoll_create", epoll_wait(another, &event, 1, 20000)), close(another);
    recv(fd, bytes, 1, 0);
    say("dup2", syscall(SYS_dup2, fd, 99));
    say("write", write(99, "y", 1)), echoed(fd, 1), puts(""), close(99);
    char path[] = "/tmp/wirepath-raw-XXXXXX";
    int file = mkstemp(path);
    unlink(path);
    write(file, "0123456789", 10);
    off_t from = 2;
    say("sendfile", syscall(SYS_sendfile, fd, file, &from, 5));
    say("offset", from);
    echoed(fd, 5), puts("");
    close(file), close(fd), close(set);
}

static void odd(void) {
    char room[2 * sizeof(struct iovec) + 1], first[4] = "", second[4] = "";
    int fd = call(7000);
    struct iovec parts[2] = {{"ab", 2}, {"cde", 3}}, into[2] = {{first, 2}, {second, 3}};
    memcpy(room + 1, parts, sizeof parts);
    say("writev", writev(fd, (struct iovec *)(room + 1), 2));
    memcpy(room + 1, into, sizeof into);
    ready(fd, POLLIN, 20000);
    struct msghdr message = {.msg_iov = (struct iovec *)(room + 1), .msg_iovlen = 2};
    say("recvmsg", recvmsg(fd, &message, MSG_WAITALL));
    printf("%s %s\n", first, second);
    memcpy(room + 1, parts, sizeof parts);
    say("sendmsg", sendmsg(fd, &message, 0));
    memcpy(room + 1, into, sizeof into);
    ready(fd, POLLIN, 20000);
    say("readv", readv(fd, (struct iovec *)(room + 1), 2));
    // A set has no bytes, not even none.
    int set = epoll_create1(0);
    say("readv of a set", readv(set, NULL, 0)), say("writev", writev(set, NULL, 0));
    say("preadv2", preadv2(set, NULL, 0, -1, 0)), say("pwritev2", pwritev2(set, NULL, 0, -1, 0));
    close(set);
    close(fd);
}

// Arrays that are not aligned, of a call that waits.
static char entries[2 * sizeof(struct pollfd) + 1], message_room[sizeof(struct mmsghdr) + 1];
static int waits;

static void *polls(void *unused) {
    __atomic_store_n(&waits, gettid(), __ATOMIC_RELEASE);
    say("poll", poll((struct pollfd *)(entries + 1), 2, 20000));
    return NULL;
}

static void *receives(void *of) {
    __atomic_store_n(&waits, gettid(), __ATOMIC_RELEASE);
    say("recvmmsg", recvmmsg((int)(long)of, (struct mmsghdr *)(message_room + 1), 1, 0, NULL));
    return NULL;
}

// Another thread writes what the call only reads, and finds it afterwards.
static void written_meanwhile(void) {
    pthread_t thread;
    int fd = call(7000), datagrams = socket(AF_INET, SOCK_DGRAM, 0);
    struct pollfd list[2] = {{fd, POLLIN}, {-1, POLLIN}};
    memcpy(entries + 1, list, sizeof list);
    pthread_create(&thread, NULL, polls, NULL);
    until_it_sleeps(&waits), waits = 0;
    list[1].fd = 7, list[1].events = POLLOUT;
    memcpy(entries + 1 + sizeof *list, &list[1], sizeof *list);
    write(fd, "x", 1);
    pthread_join(thread, NULL);
    memcpy(list, entries + 1, sizeof list);
    printf("revents %d, then %d %d %d\n", list[0].revents, list[1].fd, list[1].events, list[1].revents);

    struct sockaddr_in address = at(peer, 7000);
    struct iovec part = {bytes, 4};
    struct mmsghdr message = {.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}};
    say("connect", connect(datagrams, (struct sockaddr *)&address, sizeof address));
    memcpy(message_room + 1, &message, sizeof message);
    pthread_create(&thread, NULL, receives, (void *)(long)datagrams);
    until_it_sleeps(&waits);
    message.msg_hdr.msg_iovlen = 9;
    memcpy(message_room + 1, &message, sizeof message);
    // One that is lost is sent again.
    do send(datagrams, "four", 4, 0);
    while (usleep(200000), pthread_tryjoin_np(thread, NULL) != 0);
    memcpy(&message, message_room + 1, sizeof message);
    printf("parts %zu, bytes %u\n", message.msg_hdr.msg_iovlen, message.msg_len);
    close(fd), close(datagrams);
}

static void *writes_later(void *of) {
    int fd = (int)(long)of;
    usleep(50000), write(fd, "cd", 2);
    usleep(50000), write(fd, "ef", 2);
    return NULL;
}

static void peeks(void) {
    pthread_t thread;
    int fd = call(7000);
    struct timeval time = {0, 50000};
    write(fd, "ab", 2);
    ready(fd, POLLIN, 20000);
    pthread_create(&thread, NULL, writes_later, (void *)(long)fd);
    memset(bytes, 0, sizeof bytes);
    say("peek", recv(fd, bytes, 6, MSG_PEEK | MSG_WAITALL)), puts(bytes);
    say("none waits", recv(fd, bytes, 8, MSG_PEEK | MSG_WAITALL | MSG_DONTWAIT));
    pthread_join(thread, NULL);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    say("time is over", recv(fd, bytes, 8, MSG_PEEK | MSG_WAITALL));
    shutdown(fd, SHUT_WR);
    time.tv_sec = 20;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    say("to the end", recv(fd, bytes, 8, MSG_PEEK | MSG_WAITALL));
    say("recv", recv(fd, bytes, 8, MSG_WAITALL));
    say("end", recv(fd, bytes, 8, MSG_PEEK | MSG_WAITALL));
    close(fd);
}

static void *writes_bytes(void *of) {
    for (int i = 0; i < 200; i++) usleep(1000), write((int)(long)of, "x", 1);
    return NULL;
}

// More segments than a receive buffer has room for, each of a byte.
static void low_water(void) {
    pthread_t thread;
    int fd = call(7000), low_water = 200, on = 1;
    struct timeval time = {5, 0};
    char got[200];
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &low_water, sizeof low_water);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    pthread_create(&thread, NULL, writes_bytes, (void *)(long)fd);
    say("low water", recv(fd, got, sizeof got, 0));
    pthread_join(thread, NULL);
    write(fd, "ab", 2);
    say("does not wait", (usleep(50000), recv(fd, got, sizeof got, MSG_DONTWAIT)));
    pthread_create(&thread, NULL, writes_later, (void *)(long)fd);
    say("fewer are asked for", recv(fd, got, 4, 0));
    pthread_join(thread, NULL);
    shutdown(fd, SHUT_WR);
    say("end", recv(fd, got, 8, 0)), say("end", recv(fd, got, 8, 0));
    close(fd);
}

static volatile int waiting_threads[2];

static void *waits_to_read(void *of) {
    int fd = ((int)(long)of) & 0xffff, number = (int)(long)of >> 16;
    char got[8];
    waiting_threads[number] = gettid();
    return (void *)(long)recv(fd, got, sizeof got, 0);
}

// How often a thread has gone to sleep.
static long sleeps_of(int thread) {
    char path[64], line[128];
    long count = -1;
    snprintf(path, sizeof path, "/proc/self/task/%d/status", thread);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) sscanf(line, "voluntary_ctxt_switches: %ld", &count);
    if (file) fclose(file);
    return count;
}

static int asleep(int thread) {
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
    FILE *file = fopen(path, "r");
    if (file) fscanf(file, "%*d %*s %c", &state), fclose(file);
    return state == 'S';
}

// The receive of one stream waits for a low water. Packets of others wake its thread perhaps, which
// sleeps first and so has the device, and do not wake that of a stream without one.
static void low_water_of_another(void) {
    pthread_t threads[2];
    int fds[2] = {call(7000), call(7000)}, low_water = 8, datagrams = socket(AF_INET, SOCK_DGRAM, 0), before = 0;
    struct sockaddr_in address = at(peer, 7000);
    setsockopt(fds[0], SOL_SOCKET, SO_RCVLOWAT, &low_water, sizeof low_water);
    connect(datagrams, (struct sockaddr *)&address, sizeof address);
    for (int i = 0; i < 2; i++) {
        pthread_create(&threads[i], NULL, waits_to_read, (void *)(long)(fds[i] | i << 16));
        while (!waiting_threads[i] || !asleep(waiting_threads[i])) usleep(1000);
        usleep(20000);
    }
    before = sleeps_of(waiting_threads[1]);
    for (int i = 0; i < 100; i++) {
        write(datagrams, "x", 1);
        usleep(1000);
        for (int tries = 0; tries < 5000; tries++, usleep(1000))
            if (recv(datagrams, bytes, sizeof bytes, MSG_DONTWAIT) >= 0) break;
    }
    say("woken by packets of others", sleeps_of(waiting_threads[1]) - before > 30);
    for (int i = 0; i < 2; i++) {
        void *got = NULL;
        write(fds[i], "01234567", 8);
        pthread_join(threads[i], &got);
        say("got", (long)got);
        close(fds[i]);
    }
    close(datagrams);
}

int main(int count, char **arguments) {
    if (count < 2) return 2;
    peer = arguments[1];
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct part parts[] = {{"text", text}, {"numbers", numbers}, {"odd", odd}, {"written meanwhile", written_meanwhile},
                           {"peeks", peeks},
                           {"low water", low_water}, {"low water of another", low_water_of_another}};
    return play(parts, sizeof parts / sizeof *parts, arguments[2]);
}
