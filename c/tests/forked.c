/* A parent that is killed at once, while a child that it has forked lives. Prints the child. */
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include <wirepath.h>

int main(int argc, char **argv)
{
    struct sockaddr_in local = wp_ipv4(0, 0, 0, 0, 9200);
    wp_stack stack;
    wp_sub sub;
    wp_event event;
    pid_t child;
    if (argc < 2 || wp_open(argv[1], NULL, &stack) != 0 || wp_udp_bind(stack, &local, 1, &sub) != 0) {
        printf("%s\n", wp_last_error());
        return 1;
    }
    wp_poll(stack, &event, 1);
    child = fork();
    if (child == 0) {
        close(1), close(2); /* who reads them waits for their end */
        sleep(60);
        _exit(0);
    }
    printf("%d\n", (int)child);
    fflush(stdout);
    raise(SIGKILL);
    return 1;
}
