// Threads that are canceled while they wait. cancel ADDRESS-OF-THE-PEER [PART].
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <time.h>
#include <unistd.h>

#include "calls.h"

static int fd, set, listener, pipes[2], cleaned;

static void clean(void *unused) { cleaned++; }

// Each waits for ever.
static void by_recv(void) { char byte; recv(fd, &byte, 1, 0); }
static void by_read(void) { char byte; read(fd, &byte, 1); }
static void by_poll(void) { ready(fd, POLLIN, -1); }
static void by_both(void) {
    struct pollfd entries[2] = {{fd, POLLIN}, {pipes[0], POLLIN}};
    poll(entries, 2, -1);
}
static void by_epoll(void) { struct epoll_event event; epoll_wait(set, &event, 1, -1); }
static void by_select(void) {
    fd_set reads;
    FD_ZERO(&reads);
    FD_SET(fd, &reads);
    select(fd + 1, &reads, NULL, NULL, NULL);
}
static void by_accept(void) { accept(listener, NULL, NULL); }
static void by_pipe(void) { char byte; read(pipes[0], &byte, 1); }
static void by_poll_of_a_pipe(void) { ready(pipes[0], POLLIN, -1); }
// Never waits, and comes to cancellation points all the time.
static void by_turns(void) {
    char bytes[4];
    for (;;) write(fd, "four", 4), recv(fd, bytes, 4, MSG_WAITALL | MSG_DONTWAIT), ready(fd, POLLOUT, 0);
}

static void *wait_for_ever(void *act) {
    pthread_cleanup_push(clean, NULL);
    ((void (*)(void))act)();
    pthread_cleanup_pop(0);
    return NULL;
}

static void cancel(const char *what, void (*act)(void)) {
    pthread_t thread;
    void *result = NULL;
    struct timespec time;
    cleaned = 0;
    pthread_create(&thread, NULL, wait_for_ever, act);
    usleep(30000);
    pthread_cancel(thread);
    clock_gettime(CLOCK_REALTIME, &time);
    time.tv_sec += 5;
    int error = pthread_timedjoin_np(thread, &result, &time);
    printf("%s: %s, canceled %d, cleaned up %d\n", what, error ? strerrorname_np(error) : "joined", result == PTHREAD_CANCELED, cleaned);
}

static void waits(void) {
    char bytes[4];
    fd = call(7000);
    set = epoll_create1(0);
    struct epoll_event of = {EPOLLIN, {.u64 = 1}};
    epoll_ctl(set, EPOLL_CTL_ADD, fd, &of);
    pipe(pipes);
    struct sockaddr_in any = at("0.0.0.0", 7078);
    listener = socket(AF_INET, SOCK_STREAM, 0);
    bind(listener, (struct sockaddr *)&any, sizeof any);
    listen(listener, 5);
    for (int turns = 0; turns < 3; turns++) {
        cancel("recv", by_recv);
        cancel("read", by_read);
        cancel("poll", by_poll);
        cancel("poll of both", by_both);
        cancel("epoll_wait", by_epoll);
        cancel("select", by_select);
        cancel("accept", by_accept);
        cancel("read of a pipe", by_pipe);
        cancel("poll of a pipe", by_poll_of_a_pipe);
    }
    // Nothing has stayed locked.
    say("write", write(fd, "four", 4));
    say("recv", recv(fd, bytes, 4, MSG_WAITALL));
    close(fd);
    for (int turns = 0; turns < 20; turns++) {
        fd = call(7000);
        cancel("turns", by_turns);
        close(fd);
    }
    fd = call(7000);
    say("write", write(fd, "four", 4));
    say("recv", recv(fd, bytes, 4, MSG_WAITALL));
    close(fd), close(set), close(listener), close(pipes[0]), close(pipes[1]);
}

int main(int count, char **arguments) {
    if (count < 2) return 2;
    peer = arguments[1];
    struct part parts[] = {{"waits", waits}};
    return play(parts, sizeof parts / sizeof *parts, arguments[2]);
}
