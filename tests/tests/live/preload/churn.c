// Connections that are made and closed again and again, with a request and an answer each:
//   churn serve                          at port 7100, for ever
//   churn call PEER SECONDS THREADS RATE   for so long, RATE a second at most; prints how they went
// The caller closes three of four first, and resets every eighth.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PORT = 7100, LEN = 16 };

static struct sockaddr_in address = {.sin_family = AF_INET};
static long seconds, rate, next, done, failed;

// A request of a caller that leaves the closing to the server begins with this.
static const char CLOSE = 'c';

static void answer(int set, int fd) {
    char bytes[LEN];
    ssize_t got = recv(fd, bytes, LEN, MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0 || send(fd, bytes, got, MSG_NOSIGNAL) != got || bytes[0] == CLOSE) close(fd);
}

static int serve(void) {
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), set = epoll_create1(0), on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    address.sin_port = htons(PORT);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 4096)) return perror("listen"), 1;
    struct epoll_event event = {EPOLLIN, {.fd = listener}}, events[64];
    epoll_ctl(set, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        int ready = epoll_wait(set, events, 64, -1);
        for (int i = 0; i < ready; i++) {
            if (events[i].data.fd != listener) {
                answer(set, events[i].data.fd);
                continue;
            }
            for (int fd; (fd = accept(listener, NULL, NULL)) >= 0;) {
                event.data.fd = fd;
                epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
            }
        }
    }
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static double began;

static const char *one(long number) {
    char sent[LEN + 1], got[LEN];
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    struct timeval patience = {30, 0};
    struct linger resets = {1, 0};
    const char *why = NULL;
    if (fd < 0) return "socket";
    snprintf(sent, sizeof sent, "%c%015ld", number % 4 ? 'k' : CLOSE, number);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (number % 8 == 1) setsockopt(fd, SOL_SOCKET, SO_LINGER, &resets, sizeof resets);
    if (connect(fd, (struct sockaddr *)&address, sizeof address)) why = "connect";
    else if (send(fd, sent, LEN, MSG_NOSIGNAL) != LEN) why = "send";
    else if (recv(fd, got, LEN, MSG_WAITALL) != LEN) why = "recv";
    else if (memcmp(sent, got, LEN)) why = "other bytes";
    else if (number % 4 == 0 && recv(fd, got, 1, 0) != 0) why = "end";
    int error = errno;
    close(fd);
    errno = error;
    return why;
}

static void *calls(void *unused) {
    while (now() - began < seconds) {
        long number = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED);
        double early = began + (double)number / rate - now();
        if (early > 0) usleep(early * 1e6);
        const char *why = one(number);
        __atomic_fetch_add(&done, 1, __ATOMIC_RELAXED);
        if (why && __atomic_fetch_add(&failed, 1, __ATOMIC_RELAXED) < 3) printf("%ld: %s: %s\n", number, why, strerror(errno));
    }
    return NULL;
}

int main(int arguments_count, char **arguments) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (strcmp(arguments[1], "serve") == 0) return serve();
    inet_pton(AF_INET, arguments[2], &address.sin_addr);
    address.sin_port = htons(PORT);
    seconds = atol(arguments[3]), rate = atol(arguments[5]);
    int threads_count = atoi(arguments[4]);
    pthread_t threads[threads_count];
    began = now();
    for (int i = 0; i < threads_count; i++) pthread_create(&threads[i], NULL, calls, NULL);
    for (int i = 0; i < threads_count; i++) pthread_join(threads[i], NULL);
    printf("%ld connections, %.0f a second; %ld failed\n", done, done / (now() - began), failed);
    return failed != 0;
}
