// Timeouts of calls that take several steps, and signals in the midst of them. The far end echoes.
// deadlines ADDRESS-OF-THE-PEER [PART].
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "calls.h"

static int stream;
static volatile int ends;

// Sends a byte each 100 ms, 30 at most.
static void *drips(void *unused) {
    for (int i = 0; i < 30 && !ends; i++) usleep(100000), send(stream, "x", 1, 0);
    return NULL;
}

// Takes some of what comes each 50 ms, for 10 s at most.
static void *sips(void *unused) {
    static char bytes[100000];
    for (int i = 0; i < 200 && !ends; i++) usleep(50000), recv(stream, bytes, sizeof bytes, MSG_DONTWAIT);
    return NULL;
}

static void limit(int option, int milliseconds) {
    struct timeval time = {milliseconds / 1000, milliseconds % 1000 * 1000};
    setsockopt(stream, SOL_SOCKET, option, &time, sizeof time);
}

static void all_of_a_trickle(void) {
    char bytes[20];
    pthread_t thread;
    for (int flags = MSG_WAITALL; flags >= 0; flags = flags == MSG_WAITALL ? MSG_WAITALL | MSG_PEEK : -1) {
        stream = call(7000), ends = 0;
        limit(SO_RCVTIMEO, 450);
        pthread_create(&thread, NULL, drips, NULL);
        long got = recv(stream, bytes, sizeof bytes, flags);
        printf("some %d, all %d\n", got > 0, got == sizeof bytes);
        ends = 1, pthread_join(thread, NULL), close(stream);
    }
}

static void to_a_slow_reader(void) {
    static char bytes[64 << 20];
    pthread_t thread;
    time_t began = time(NULL);
    stream = call(7000), ends = 0;
    limit(SO_SNDTIMEO, 600);
    pthread_create(&thread, NULL, sips, NULL);
    long sent = send(stream, bytes, sizeof bytes, 0);
    // The reader goes on for ten seconds.
    printf("some %d, all %d, in time %d\n", sent > 0, sent == sizeof bytes, time(NULL) - began < 6);
    ends = 1, pthread_join(thread, NULL), close(stream);
}

static int alarms;
static void on_alarm(int number) { alarms++; }

static void *late(void *unused) {
    usleep(1500000);
    send(stream, "rest", 4, 0);
    return NULL;
}

// A call that has bytes already reports them, also where the handler restarts calls.
static void handler_that_restarts(void) {
    char bytes[8];
    pthread_t thread;
    sigset_t signals;
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    struct itimerval time = {.it_value = {0, 400000}};
    stream = call(7000);
    sigaction(SIGALRM, &action, NULL);
    sigemptyset(&signals), sigaddset(&signals, SIGALRM), pthread_sigmask(SIG_BLOCK, &signals, NULL);
    pthread_create(&thread, NULL, late, NULL);
    pthread_sigmask(SIG_UNBLOCK, &signals, NULL);
    send(stream, "half", 4, 0);
    setitimer(ITIMER_REAL, &time, NULL);
    say("recv", recv(stream, bytes, 8, MSG_WAITALL));
    say("alarms", alarms);
    // One that has none goes on.
    setitimer(ITIMER_REAL, &time, NULL);
    say("recv", recv(stream, bytes, 4, 0));
    say("alarms", alarms);
    pthread_join(thread, NULL), close(stream);
}

int main(int count, char **arguments) {
    if (count < 2) return 2;
    peer = arguments[1];
    struct part parts[] = {
        {"all of a trickle", all_of_a_trickle}, {"to a slow reader", to_a_slow_reader},
        {"handler that restarts", handler_that_restarts},
    };
    return play(parts, sizeof parts / sizeof *parts, arguments[2]);
}
