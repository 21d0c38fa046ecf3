// A library of a program's (forks.c), whose constructor runs before that of the preload library. Its
// handler is so called last before a fork.
#include <pthread.h>
#include <signal.h>

int raises;

static void before_fork(void) {
    if (raises) raise(SIGUSR1);
}

__attribute__((constructor)) static void begin(void) { pthread_atfork(before_fork, 0, 0); }
