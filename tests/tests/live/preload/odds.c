// Calls whose odd cases differ easily from the kernel's: several messages in one wait that come by
// both sides, flags, files and pipes, sets that are one, and a descriptor that is replaced while a
// thread waits on it.
#define _GNU_SOURCE
#include "calls.h"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <unistd.h>
#include <linux/sockios.h>

static int bound(int kind, int port) {
    int fd = socket(AF_INET, kind, 0), on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    struct sockaddr_in local = at("0.0.0.0", port);
    say("bind", bind(fd, (void *)&local, sizeof local));
    return fd;
}

static int receiver;

// By loopback, by the wire (an echo), and both once more.
static void *feed(void *unused) {
    int other = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in here = at("127.0.0.1", 7500), echo = at(peer, 7000);
    for (int turn = 0; turn < 2; turn++) {
        usleep(100000);
        sendto(other, "here", 4, 0, (void *)&here, sizeof here);
        usleep(100000);
        sendto(receiver, "wire", 4, 0, (void *)&echo, sizeof echo);
        until_all_is_echoed();
    }
    close(other);
    return NULL;
}

static void messages_of(int flags, unsigned want) {
    char bytes[4][8] = {{0}};
    struct iovec parts[4];
    struct mmsghdr batch[4] = {{{0}}};
    for (int idx = 0; idx < 4; idx++) {
        parts[idx] = (struct iovec){bytes[idx], 8};
        batch[idx].msg_hdr.msg_iov = &parts[idx], batch[idx].msg_hdr.msg_iovlen = 1;
    }
    pthread_t feeder;
    pthread_create(&feeder, NULL, feed, NULL);
    int count = recvmmsg(receiver, batch, want, flags, NULL);
    say("recvmmsg", count);
    for (int idx = 0; idx < count; idx++) printf("%u %.4s\n", batch[idx].msg_len, bytes[idx]);
    pthread_join(feeder, NULL);
}

static void batches(void) {
    receiver = bound(SOCK_DGRAM, 7500);
    struct timeval limit = {5, 0};
    setsockopt(receiver, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    messages_of(0, 4);
    messages_of(MSG_WAITFORONE, 1);
    usleep(300000);
    close(receiver);
}

static void flags(void) {
    int fd = bound(SOCK_STREAM, 7501);
    say("listen", listen(fd, 4));
    fcntl(fd, F_SETFL, O_NONBLOCK);
    say("accept4 of unknown flags", accept4(fd, NULL, NULL, 1));
    say("accept4", accept4(fd, NULL, NULL, SOCK_CLOEXEC));
    int queued = -1;
    say("SIOCOUTQNSD of a listener", ioctl(fd, SIOCOUTQNSD, &queued));
    close(fd);
    int datagrams = bound(SOCK_DGRAM, 7502);
    say("SIOCOUTQNSD of datagrams", ioctl(datagrams, SIOCOUTQNSD, &queued));
    close(datagrams);
}

static void unsent(void) {
    int fd = call(7003), queued = -1;
    say("SIOCOUTQNSD", ioctl(fd, SIOCOUTQNSD, &queued));
    printf("unsent: %d\n", queued);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    static char bytes[1 << 16];
    // The peer reads nothing, so that its window closes.
    for (int idle = 0; idle < 20; usleep(10000))
        if (send(fd, bytes, sizeof bytes, 0) < 0) idle++;
    int sent = 0;
    say("SIOCOUTQNSD", ioctl(fd, SIOCOUTQNSD, &queued));
    say("SIOCOUTQ", ioctl(fd, SIOCOUTQ, &sent));
    printf("unsent: %d, as many as unacknowledged: %d\n", queued > 0, queued == sent);
    close(fd);
}

static void files(void) {
    int fd = call(7000), ends[2], file = open("/proc/self/exe", O_RDONLY);
    off_t at_begin = 0;
    pipe(ends);
    write(ends[1], "pipe", 4);
    say("sendfile of a pipe", sendfile(fd, ends[0], NULL, 4));
    say("sendfile of a pipe with an offset", sendfile(fd, ends[0], &at_begin, 4));
    say("sendfile of a socket", sendfile(fd, fd, NULL, 4));
    say("sendfile of nothing", sendfile(fd, -1, NULL, 4));
    say("sendfile", sendfile(fd, file, NULL, 4));
    char bytes[8];
    say("recv", recv(fd, bytes, 4, MSG_WAITALL));
    printf("%.3s\n", bytes + 1);
    close(fd), close(file), close(ends[0]), close(ends[1]);
}

static void sets(void) {
    int fd = call(7000);
    fd_set one;
    struct timeval patience = {5, 0};
    FD_ZERO(&one);
    FD_SET(fd, &one);
    say("select of one set twice", select(fd + 1, &one, &one, NULL, &patience));
    printf("set: %d\n", FD_ISSET(fd, &one));
    FD_ZERO(&one);
    FD_SET(fd, &one);
    say("select of one set thrice", select(fd + 1, &one, &one, &one, &patience));
    printf("set: %d\n", FD_ISSET(fd, &one));
    close(fd);
}

static int waited_on, waiter;
static void handle(int signal) {}

// On the kernel by the signal, under the library before it (EBADF): Java takes both for a close.
static void ended(const char *what, long result) {
    printf("%s of a replaced descriptor: %ld %d\n", what, result, errno == EINTR || errno == EBADF);
}

static void *reads(void *unused) {
    char byte;
    __atomic_store_n(&waiter, gettid(), __ATOMIC_RELEASE);
    ended("read", read(waited_on, &byte, 1));
    say("read again", read(waited_on, &byte, 1));
    return NULL;
}

static void *accepts(void *unused) {
    __atomic_store_n(&waiter, gettid(), __ATOMIC_RELEASE);
    ended("accept", accept(waited_on, NULL, NULL));
    return NULL;
}

// As Java closes a socket: another file takes the number, and a signal ends the wait.
static void replace(void *(*waits)(void *), int fd) {
    int ends[2];
    pthread_t thread;
    socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    close(ends[1]);
    waited_on = fd, waiter = 0;
    pthread_create(&thread, NULL, waits, NULL);
    until_it_sleeps(&waiter);
    int taken = dup2(ends[0], fd);
    usleep(50000);
    pthread_kill(thread, SIGUSR1);
    pthread_join(thread, NULL);
    // The thread has spoken: the kernel ends its wait by the signal, the library already by dup2.
    say("dup2", taken == fd);
    close(fd), close(ends[0]);
}

static void preclose(void) {
    struct sigaction action = {.sa_handler = handle};
    sigaction(SIGUSR1, &action, NULL);
    replace(reads, call(7000));
    int fd = bound(SOCK_STREAM, 7503);
    say("listen", listen(fd, 4));
    replace(accepts, fd);
    // Nothing listens there any more.
    int again = bound(SOCK_STREAM, 7503);
    say("listen", listen(again, 4));
    close(again);
}

int main(int argc, char **argv) {
    static const struct part parts[] = {{"batches", batches}, {"flags", flags}, {"unsent", unsent},
                                        {"files", files}, {"sets", sets}, {"preclose", preclose}};
    peer = argv[1];
    return play(parts, sizeof parts / sizeof *parts, argv[2]);
}
