// faults MODE PEER: what servers and those who run them do to a process. It prints the same on the
// kernel's sockets and under the preload library. The peer echoes on TCP and UDP port 7000.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static const char *peer;

static struct sockaddr_in at(const char *ip, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, ip, &address.sin_addr);
    return address;
}

static int call(int type) {
    int fd = socket(AF_INET, type, 0);
    struct sockaddr_in address = at(peer, 7000);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        perror("connect");
        exit(1);
    }
    return fd;
}

static int is_echoed(int fd) {
    char bytes[4] = "";
    return send(fd, "echo", 4, 0) == 4 && recv(fd, bytes, 4, MSG_WAITALL) == 4 && memcmp(bytes, "echo", 4) == 0;
}

// Closes all descriptors from 3 up, in each way that programs do it, while a connection is open. A
// later connection works.
static void closes(void) {
    for (int way = 0; way < 4; way++) {
        int fd = call(SOCK_STREAM), before = is_echoed(fd);
        switch (way) {
        case 0:
            for (int other = 3; other < 4096; other++) close(other);
            break;
        case 1:
            closefrom(3);
            break;
        case 2:
            close_range(3, ~0U, 0);
            break;
        case 3:
            for (int other = sysconf(_SC_OPEN_MAX) - 1; other >= 3; other--) close(other);
            break;
        }
        int after = send(fd, "x", 1, MSG_NOSIGNAL), error = errno;
        fd = call(SOCK_STREAM);
        printf("way %d: %d, then %d %s, and again: %d\n", way, before, after, strerrorname_np(error), is_echoed(fd));
        close(fd);
    }
}

// Listens on port 7100, becomes a daemon before or after it, and echoes.
static void daemonises(int is_early) {
    int listener = -1, on = 1;
    for (int step = 0; step < 2; step++) {
        if ((step == 0) == is_early) {
            struct sockaddr_in address = at("0.0.0.0", 7100);
            listener = socket(AF_INET, SOCK_STREAM, 0);
            setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
            if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 100)) {
                perror("listen");
                exit(1);
            }
        } else if (daemon(1, 0) != 0) {
            exit(1);
        }
    }
    for (;;) {
        char bytes[4096];
        int fd = accept(listener, NULL, NULL);
        for (ssize_t count; fd >= 0 && (count = recv(fd, bytes, sizeof bytes, 0)) > 0;) {
            for (ssize_t sent = 0, now; sent < count && (now = send(fd, bytes + sent, count - sent, 0)) > 0; sent += now) {
            }
        }
        close(fd);
    }
}

enum { THREADS = 100, ROUNDS = 20 };
static int shared, got[THREADS];

// Sends its number, and takes whichever comes, which may be another's.
static void *round_trips(void *number) {
    for (int round = 0; round < ROUNDS; round++) {
        unsigned char byte = (unsigned char)(long)number;
        if (send(shared, &byte, 1, 0) != 1 || recv(shared, &byte, 1, 0) != 1 || byte >= THREADS) return (void *)1;
        __atomic_add_fetch(&got[byte], 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

static void threads(int type) {
    pthread_t all[THREADS];
    int failed = 0, whole = 0;
    memset(got, 0, sizeof got);
    shared = call(type);
    // A datagram that is lost is a failure, and no reason to wait for ever.
    struct timeval patience = {30, 0};
    setsockopt(shared, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    for (long number = 0; number < THREADS; number++) pthread_create(&all[number], NULL, round_trips, (void *)number);
    for (int number = 0; number < THREADS; number++) {
        void *result;
        pthread_join(all[number], &result);
        failed += result != NULL;
    }
    for (int number = 0; number < THREADS; number++) whole += got[number] == ROUNDS;
    printf("type %d: %d failed, %d of %d have all\n", type, failed, whole, THREADS);
    close(shared);
}

// Connects and closes, again and again.
static void churns(int count) {
    int failed = 0;
    for (int number = 0; number < count; number++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        struct sockaddr_in address = at(peer, 7000);
        // Without TIME-WAIT every other time.
        struct linger now = {1, 0};
        if (number % 2) setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
        if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0 || !is_echoed(fd)) {
            if (failed++ == 0) printf("connection %d: %s\n", number, strerrorname_np(errno));
        }
        close(fd);
    }
    printf("%d of %d failed\n", failed, count);
}

int main(int count, char **arguments) {
    const char *mode = arguments[1];
    peer = arguments[2];
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!strcmp(mode, "closes")) {
        if (count > 3) setrlimit(RLIMIT_NOFILE, &(struct rlimit){atoi(arguments[3]), atoi(arguments[3])});
        closes();
    }
    if (!strcmp(mode, "daemon-early")) daemonises(1);
    if (!strcmp(mode, "daemon-late")) daemonises(0);
    if (!strcmp(mode, "threads")) {
        threads(SOCK_STREAM);
        threads(SOCK_DGRAM);
    }
    if (!strcmp(mode, "churn")) churns(atoi(arguments[3]));
    return 0;
}
