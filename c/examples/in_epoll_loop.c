/* A standing epoll loop that gains a stack: it sleeps on the stack's descriptor beside its own,
 * here standard input, and polls when frames came or a timer is due. `in_epoll_loop eth1 5000`
 * answers datagrams to that port until a line "stop" comes. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <wirepath.h>

static void must(int64_t result, const char *what)
{
    if (result < 0) {
        fprintf(stderr, "%s: %s\n", what, wp_last_error());
        exit(1);
    }
}

static void watch(int set, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data = {.fd = fd}};
    if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) != 0) {
        perror("epoll_ctl");
        exit(1);
    }
}

/* Milliseconds for epoll_wait, rounded up: 0 polls at once, -1 sleeps until something comes. */
static int timeout(int64_t ns)
{
    if (ns == INT64_MAX)
        return -1;
    int64_t ms = ns / 1000000 + (ns % 1000000 != 0);
    return ms > INT_MAX ? INT_MAX : (int)ms;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return fprintf(stderr, "usage: in_epoll_loop INTERFACE PORT\n"), 2;
    wp_options options = WP_OPTIONS_INIT;
    wp_stack stack;
    wp_sub sub;
    wp_timer timer;
    struct sockaddr_in local = wp_ipv4(0, 0, 0, 0, (uint16_t)atoi(argv[2]));
    int timers = 0, answered = 0, sleeps = 0, is_over = 0;

    options.flags = WP_LOG | WP_ACCEPT_CHECKSUMS;
    must(wp_open(argv[1], &options, &stack), "wp_open");
    must(wp_udp_bind(stack, &local, 0, &sub), "wp_udp_bind");
    must(wp_after(stack, 100000000, 1, &timer), "wp_after");

    int set = epoll_create1(EPOLL_CLOEXEC), fd = wp_wait_fd(stack);
    must(fd, "wp_wait_fd");
    watch(set, fd);
    watch(set, STDIN_FILENO);

    while (!is_over) {
        wp_event events[32];
        int count = wp_poll(stack, events, 32);
        must(count, "wp_poll");
        for (int i = 0; i < count; i++) {
            if (events[i].type == WP_EVENT_TIMER) {
                timers++;
                must(wp_after(stack, 100000000, 1, &timer), "wp_after");
            } else if (events[i].type == WP_EVENT_DATAGRAM) {
                /* The answers of one turn share a doorbell, that of the next poll. */
                int sent = wp_udp_send_to(stack, &events[i].destination, &events[i].source, events[i].data,
                                          events[i].len, WP_MORE);
                answered += sent >= 0;
                if (sent < 0)
                    printf("no answer: %s\n", wp_last_error());
            }
        }
        if (count > 0)
            continue;
        int64_t next = wp_time_to_next(stack);
        must(next, "wp_time_to_next");
        struct epoll_event ready[8];
        int woken = epoll_wait(set, ready, 8, timeout(next));
        sleeps += next > 0;
        if (woken < 0 && errno != EINTR)
            return perror("epoll_wait"), 1;
        for (int i = 0; i < woken; i++) {
            char line[64];
            if (ready[i].data.fd == STDIN_FILENO) {
                ssize_t len = read(STDIN_FILENO, line, sizeof line);
                is_over = len <= 0 || (len >= 4 && memcmp(line, "stop", 4) == 0);
            }
        }
    }
    printf("%d answered, %d timers, %d sleeps\n", answered, timers, sleeps);
    must(wp_close(stack), "wp_close");
    return 0;
}
