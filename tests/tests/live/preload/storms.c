// Signals that come faster than calls end, with handlers that make calls themselves.
// storms ADDRESS-OF-THE-PEER [PART].
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "calls.h"

enum { ROUNDS = 100, BURST = 100 };
static int fd, strange, twice;
static char seen[ROUNDS * BURST];
static atomic_int queued, users, ended;

// Nothing has come: a call on the socket says so, whatever it interrupts.
static void look(void) {
    char byte;
    strange += recv(fd, &byte, 1, MSG_DONTWAIT) != -1 || errno != EAGAIN;
}

static void on_queued(int number, siginfo_t *info, void *context) {
    twice += info->si_code != SI_QUEUE || seen[info->si_value.sival_int]++;
    look();
    queued++;
}

static void on_user(int number) {
    look();
    users++;
}

static void *burst(void *none) {
    for (int round = 1; round <= ROUNDS; round++) {
        for (int place = (round - 1) * BURST; place < round * BURST; place++)
            if (sigqueue(getpid(), SIGRTMIN + 1, (union sigval){.sival_int = place})) perror("sigqueue");
        kill(getpid(), SIGUSR1);
        while (queued < round * BURST || users < round) sched_yield();
    }
    ended = 1;
    return NULL;
}

static void handle(int number, void (*handler)(int, siginfo_t *, void *), int flags) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = flags};
    sigaction(number, &action, NULL);
}

// The thread that makes calls gets all signals.
static pthread_t begin_beside(void *(*act)(void *)) {
    sigset_t all, before;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_create(&thread, NULL, act, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return thread;
}

static void bursts(void) {
    sigset_t mask;
    fd = call(7000);
    handle(SIGRTMIN + 1, on_queued, SA_SIGINFO | SA_RESTART);
    handle(SIGUSR1, (void *)on_user, SA_RESTART);
    pthread_t thread = begin_beside(burst);
    while (!ended) look();
    pthread_join(thread, NULL);
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    printf("queued %d, seen before %d, others %d, strange results %d, blocked %d\n", queued, twice, users,
           strange, sigismember(&mask, SIGUSR1) + sigismember(&mask, SIGUSR2) + sigismember(&mask, SIGRTMIN + 1));
    close(fd);
}

static void on_long(int number, siginfo_t *info, void *context) {
    // The kernel has put it on this stack.
    char here, *there = (char *)info;
    strange += there < &here || there > &here + 65536 || info->si_signo != SIGUSR2;
}

static void on_short(int number) {
    strange += number != SIGUSR2;
}

static void *send_always(void *none) {
    for (int sent = 0; sent < 300000; sent++) kill(getpid(), SIGUSR2);
    ended = 1;
    return NULL;
}

// A signal comes while its handler changes from one of three arguments to one of one.
static void changes(void) {
    ended = strange = 0;
    handle(SIGUSR2, (void *)on_short, 0);
    pthread_t thread = begin_beside(send_always);
    while (!ended) {
        handle(SIGUSR2, on_long, SA_SIGINFO);
        handle(SIGUSR2, (void *)on_short, 0);
    }
    pthread_join(thread, NULL);
    struct sigaction action;
    sigaction(SIGUSR2, NULL, &action);
    printf("strange %d, %s\n", strange, action.sa_handler == on_short ? "short" : "long");
    printf("flags %x\n", action.sa_flags);
}

int main(int count, char **arguments) {
    if (count < 2) return 2;
    peer = arguments[1];
    struct part parts[] = {{"bursts", bursts}, {"changes", changes}};
    return play(parts, sizeof parts / sizeof *parts, arguments[2]);
}
