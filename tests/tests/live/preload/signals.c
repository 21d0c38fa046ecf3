// Signal handlers that make calls themselves, and handlers that were set before the library was there.
// signals ADDRESS-OF-THE-PEER [PART].
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/time.h>
#include <unistd.h>

#include "calls.h"

static int busy, alarms;

// Waits in a call of its own, and is not interrupted there.
static void on_alarm(int number) {
    char bytes[4];
    alarms += number == SIGALRM;
    write(busy, "six", 3);
    alarms += 10 * (ready(busy, POLLIN, 5000) == POLLIN);
    alarms += 100 * (recv(busy, bytes, 3, MSG_WAITALL) == 3);
    ready(busy, POLLIN, 20);
}

static void in_a_while(int flags) {
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = flags};
    struct itimerval time = {.it_value = {0, 200000}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &time, NULL);
}

static void handlers(void) {
    char byte;
    int fd = call(7000), set = epoll_create1(0);
    struct epoll_event of = {EPOLLIN, {.u64 = 1}};
    busy = call(7000);
    epoll_ctl(set, EPOLL_CTL_ADD, fd, &of);
    in_a_while(0), say("recv", recv(fd, &byte, 1, 0));
    in_a_while(0), say("poll", ready(fd, POLLIN, 3000));
    in_a_while(SA_RESTART), say("poll", ready(fd, POLLIN, 3000));
    in_a_while(0), say("epoll_wait", epoll_wait(set, &of, 1, 3000));
    struct sockaddr_in any = at("0.0.0.0", 7077);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    bind(listener, (struct sockaddr *)&any, sizeof any);
    listen(listener, 5);
    in_a_while(0), say("accept", accept(listener, NULL, NULL));
    struct timeval time = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    in_a_while(SA_RESTART), say("with a timeout", recv(fd, &byte, 1, 0));
    printf("alarms %d\n", alarms);
    close(fd), close(busy), close(set), close(listener);
}

// Set by a constructor of a library of the program's (early.c).
extern int early_result, early_signals;

static void early(void) {
    struct sigaction action;
    say("sigaction of a constructor", early_result);
    raise(SIGUSR2);
    printf("signals %d\n", early_signals);
    int fd = call(7000);
    raise(SIGUSR2);
    printf("signals %d\n", early_signals);
    close(fd);
}

int main(int count, char **arguments) {
    if (count < 2) return 2;
    peer = arguments[1];
    struct part parts[] = {{"handlers", handlers}, {"early", early}};
    return play(parts, sizeof parts / sizeof *parts, arguments[2]);
}
