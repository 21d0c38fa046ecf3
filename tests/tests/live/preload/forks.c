// What a child of fork has of its parent's. forks ADDRESS-OF-THE-PEER [PART].
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "calls.h"

// Of forking.c: a signal comes while the process forks.
extern int raises;

static int ran[2];
static void on_signal(int number) { write(ran[1], &(pid_t){getpid()}, sizeof(pid_t)); }

// A signal that comes while a process forks is the parent's.
static void signals_of_the_parent(void) {
    struct sigaction action = {.sa_handler = on_signal};
    sigset_t before, after;
    pid_t who;
    int fd = call(7000), status;
    pipe(ran);
    sigaction(SIGUSR1, &action, NULL);
    sigprocmask(SIG_BLOCK, NULL, &before);
    raises = 1;
    pid_t child = fork();
    raises = 0;
    sigprocmask(SIG_BLOCK, NULL, &after);
    int is_same = memcmp(&before, &after, sizeof before) == 0;
    if (child == 0) _exit(is_same);
    waitpid(child, &status, 0);
    printf("masks are the same: %d, of the child: %d\n", is_same, WEXITSTATUS(status));
    close(ran[1]);
    while (read(ran[0], &who, sizeof who) == sizeof who) printf("handler of the %s\n", who == getpid() ? "parent" : "child");
    close(ran[0]), close(fd);
}

static FILE *stream;
static volatile int ends;

static void *asks(void *unused) {
    while (!ends) fileno(stream);
    return NULL;
}

// A child has its parent's streams, whatever another thread of the parent does with them.
static void streams_of_the_parent(void) {
    pthread_t thread;
    int fd = call(7000), same = 0, ended = 0;
    stream = fdopen(fd, "r+");
    pthread_create(&thread, NULL, asks, NULL);
    for (int i = 0; i < 60; i++) {
        int status;
        pid_t child = fork();
        if (child == 0) {
            alarm(5);
            _exit(fileno(stream) == fd);
        }
        waitpid(child, &status, 0);
        if (!WIFEXITED(status)) break;
        ended++, same += WEXITSTATUS(status);
    }
    printf("%d children ended, %d had the descriptor\n", ended, same);
    ends = 1, pthread_join(thread, NULL);
    fclose(stream);
}

int main(int count, char **arguments) {
    if (count < 2) return 2;
    peer = arguments[1];
    struct part parts[] = {{"signals", signals_of_the_parent}, {"streams", streams_of_the_parent}};
    return play(parts, sizeof parts / sizeof *parts, arguments[2]);
}
