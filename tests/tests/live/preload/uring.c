// Asks for a ring by liburing and by the number of its call, and then talks by epoll: uring
// ADDRESS-OF-THE-PEER. The functions are declared here, because mostly liburing is installed
// without its header.
#define _GNU_SOURCE
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "calls.h"

int io_uring_queue_init(unsigned entries, void *ring, unsigned flags);
int io_uring_queue_init_params(unsigned entries, void *ring, void *parameters);

int main(int count, char **arguments) {
    static long ring[256], parameters[32];
    char bytes[4];
    if (count < 2) return 2;
    peer = arguments[1];
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("queue_init: %s\n", io_uring_queue_init(8, ring, 0) == -ENOSYS ? "ENOSYS" : "a ring");
    printf("queue_init_params: %s\n", io_uring_queue_init_params(8, ring, parameters) == -ENOSYS ? "ENOSYS" : "a ring");
    memset(parameters, 0, sizeof parameters);
    long setup = syscall(SYS_io_uring_setup, 8, parameters);
    printf("io_uring_setup: %s\n", setup < 0 && errno == ENOSYS ? "ENOSYS" : "a ring");
    int fd = call(7000), set = epoll_create1(0);
    struct epoll_event of = {EPOLLIN, {.u64 = 1}};
    epoll_ctl(set, EPOLL_CTL_ADD, fd, &of);
    say("write", write(fd, "four", 4));
    say("epoll_wait", epoll_wait(set, &of, 1, 5000));
    say("read", recv(fd, bytes, 4, MSG_WAITALL));
}
