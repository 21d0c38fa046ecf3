// What a child of fork has of its parent's. forks ADDRESS-OF-THE-PEER [PART].
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
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

// By calls that run no handler of pthread_atfork.
static pid_t fork_by(int way) {
#ifdef SYS_fork
    if (way == 2) return syscall(SYS_fork);
#endif
    return way == 0 ? _Fork() : syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

static int echoes(int fd) {
    char bytes[4];
    return write(fd, "four", 4) == 4 && recv(fd, bytes, 4, MSG_WAITALL) == 4 && memcmp(bytes, "four", 4) == 0;
}

// Such a child closes what it has of its parent's, and makes a socket of its own.
static void forks_unseen(void) {
    for (int way = 0; way < 3; way++) {
        int fd = call(7000), datagrams = socket(AF_INET, SOCK_DGRAM, 0), ends[2], status = 0;
        struct sockaddr_in echo = at(peer, 7000);
        connect(datagrams, (struct sockaddr *)&echo, sizeof echo);
        pipe(ends);
        pid_t child = fork_by(way);
        if (child == 0) {
            char byte;
            alarm(60);
            close(fd), close(datagrams);
            read(ends[0], &byte, 1);
            int own = socket(AF_INET, SOCK_STREAM, 0);
            if (connect(own, (struct sockaddr *)&echo, sizeof echo) < 0) _exit(2);
            _exit(echoes(own) ? 0 : 3);
        }
        printf("meanwhile: %d\n", echoes(fd));
        write(ends[1], "x", 1);
        say("waitpid", waitpid(child, &status, 0) == child);
        printf("status %d, afterwards: %d\n", status, echoes(fd));
        close(fd), close(datagrams), close(ends[0]), close(ends[1]);
    }
}

int main(int count, char **arguments) {
    if (count < 2) return 2;
    peer = arguments[1];
    struct part parts[] = {{"signals", signals_of_the_parent}, {"streams", streams_of_the_parent},
                           {"unseen", forks_unseen}};
    return play(parts, sizeof parts / sizeof *parts, arguments[2]);
}
