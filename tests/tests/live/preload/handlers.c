// Calls that a handler may make wherever its signal comes, also within `malloc` (man 7
// signal-safety). The program has a `malloc` of its own, which counts who asks it for memory.
// handlers ADDRESS-OF-THE-PEER [PART], handlers ADDRESS "calls": connects there for ever.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include "calls.h"

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void __libc_free(void *);

// This thread is one of the program's, and is in a call.
static __thread int is_ours, is_in_call;
static __thread int asked;
static atomic_int asked_by_others;

static void note(void) {
    asked += is_in_call;
    asked_by_others += !is_ours;
}

void *malloc(size_t size) {
    note();
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
    note();
    return __libc_calloc(count, size);
}

void *realloc(void *old, size_t size) {
    note();
    return __libc_realloc(old, size);
}

void free(void *old) {
    if (old) note();
    __libc_free(old);
}

static long called(const char *what, int before, long result) {
    int error = errno;
    is_in_call = 0;
    if (result < 0 && error != EAGAIN && error != EINPROGRESS) printf("%s: %s\n", what, strerrorname_np(error));
    if (asked != before) printf("%s asks malloc %d times\n", what, asked - before);
    return result;
}

#define IN(what, call)                                                                             \
    ({                                                                                             \
        int before = asked;                                                                        \
        is_in_call = 1;                                                                            \
        long result = (call);                                                                      \
        called(what, before, result);                                                              \
    })

static int listener;
static struct sockaddr_in echo;

static void *all_calls(void *none) {
    is_ours = 1;
    struct sockaddr *to = (struct sockaddr *)&echo;
    socklen_t len = sizeof echo, value_len = sizeof(int);
    struct sockaddr_in name;
    int pair[2], value = 1, fd;
    char bytes[64];
    struct iovec part = {bytes, 1};
    struct msghdr message = {.msg_name = &echo, .msg_namelen = len, .msg_iov = &part, .msg_iovlen = 1};
    struct sigaction action;

    // A datagram comes back by the echo.
    int datagrams = IN("socket", socket(AF_INET, SOCK_DGRAM, 0));
    struct sockaddr_in any = {.sin_family = AF_INET};
    IN("bind", bind(datagrams, (struct sockaddr *)&any, len));
    IN("sendto", sendto(datagrams, "a", 1, 0, to, len));
    struct pollfd entries[2] = {{datagrams, POLLIN}, {listener, POLLIN}};
    IN("poll", poll(entries, 1, 10000));
    IN("recvfrom", recvfrom(datagrams, bytes, sizeof bytes, 0, (struct sockaddr *)&name, &len));
    IN("sendmsg", sendmsg(datagrams, &message, 0));
    fd_set set;
    FD_ZERO(&set);
    FD_SET(datagrams, &set);
    IN("select", select(datagrams + 1, &set, NULL, NULL, NULL));
    message.msg_namelen = sizeof name;
    IN("recvmsg", recvmsg(datagrams, &message, 0));
    IN("connect of datagrams", connect(datagrams, to, sizeof echo));
    IN("send", send(datagrams, "a", 1, 0));
    IN("recv", recv(datagrams, bytes, sizeof bytes, 0));
    IN("writev", writev(datagrams, &part, 1));
    IN("readv", readv(datagrams, &part, 1));
    IN("close", close(datagrams));

    int stream = IN("socket of a stream", socket(AF_INET, SOCK_STREAM, 0));
    IN("setsockopt", setsockopt(stream, SOL_SOCKET, SO_KEEPALIVE, &value, sizeof value));
    IN("connect", connect(stream, to, sizeof echo));
    IN("getsockopt", getsockopt(stream, SOL_SOCKET, SO_ERROR, &value, &value_len));
    IN("getsockname", getsockname(stream, (struct sockaddr *)&name, &len));
    IN("getpeername", getpeername(stream, (struct sockaddr *)&name, &len));
    IN("write", write(stream, "ab", 2));
    IN("read", read(stream, bytes, 1));
    IN("fcntl", fcntl(stream, F_SETFL, O_NONBLOCK));
    IN("ioctl", ioctl(stream, 0x541b /* FIONREAD */, &value));
    int other = IN("dup", dup(stream));
    IN("dup2", dup2(stream, other));
    fd = IN("fcntl of a duplicate", fcntl(stream, F_DUPFD, 300));
    int epfd = IN("epoll_create1", epoll_create1(0));
    struct epoll_event event = {EPOLLIN | EPOLLOUT};
    IN("epoll_ctl", epoll_ctl(epfd, EPOLL_CTL_ADD, stream, &event));
    IN("epoll_wait", epoll_wait(epfd, &event, 1, 10000));
    IN("shutdown", shutdown(stream, SHUT_WR));
    IN("close of a duplicate", close(other));
    IN("close of the last but one", close(fd));
    IN("close of a stream", close(stream));
    IN("close of a set", close(epfd));

    entries[0].fd = -1;
    IN("poll of a listener", poll(entries, 2, 60000));
    fd = IN("accept", accept(listener, NULL, NULL));
    IN("shutdown of both", shutdown(fd, SHUT_RDWR));
    IN("close of a connection", close(fd));
    fd = IN("accept4", accept4(listener, (struct sockaddr *)&name, &len, SOCK_CLOEXEC));
    IN("close of another connection", close(fd));
    fd = IN("socket of a listener", socket(AF_INET, SOCK_STREAM, 0));
    IN("bind of a listener", bind(fd, (struct sockaddr *)&any, sizeof any));
    IN("listen", listen(fd, 5));
    IN("accept without connections", (fcntl(fd, F_SETFL, O_NONBLOCK), accept(fd, NULL, NULL)));
    IN("close of a listener", close(fd));

    IN("pipe", pipe(pair));
    IN("write to a pipe", write(pair[1], "a", 1));
    IN("read from a pipe", read(pair[0], bytes, 1));
    IN("close of a pipe", close(pair[0]) | close(pair[1]));
    IN("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    IN("close of a pair", close(pair[0]) | close(pair[1]));
    IN("open", fd = open("/dev/null", O_RDWR));
    IN("close of a file", close(fd));
    IN("sigaction", sigaction(SIGUSR1, NULL, &action));
    IN("dup2 onto standard error", dup2(2, 2));
    // The thread ends in no call: what the library does then is part of `pthread_exit`.
    return NULL;
}

static void open_interface(void) {
    is_ours = 1;
    echo = at(peer, 7000);
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    sendto(fd, "a", 1, 0, (struct sockaddr *)&echo, sizeof echo);
    say("the echo answers", ready(fd, POLLIN, 10000));
    close(fd);
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(7100)};
    int one = 1;
    listener = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    bind(listener, (struct sockaddr *)&here, sizeof here);
    listen(listener, 5);
}

static void memory(void) {
    all_calls(NULL);
    pthread_t thread;
    pthread_create(&thread, NULL, all_calls, NULL);
    pthread_join(thread, NULL);
    // The library's own thread holds locks that a handler waits for, so that it must not wait for
    // the program's `malloc` either. It looks after all sockets twice a second.
    int before = asked_by_others;
    usleep(1500000);
    printf("threads of the library ask malloc %d times\n", asked_by_others - before);
}

enum { HANDLERS = 4000 };
static atomic_int handled, strange;

static void next(void) {
    static unsigned seed = 1;
    struct itimerval in = {.it_value.tv_usec = 20 + rand_r(&seed) % 60};
    setitimer(ITIMER_REAL, &in, NULL);
}

static void on_alarm(int number) {
    int error = errno;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    int count = sendto(fd, "a", 1, MSG_DONTWAIT, (struct sockaddr *)&echo, sizeof echo);
    int other = dup(fd);
    struct pollfd entries[2] = {{fd, POLLOUT}, {listener, POLLIN}};
    int events = poll(entries, 2, 0);
    strange += fd < 0 || other < 0 || count != 1 || events < 1 || close(fd) || close(other);
    int connection = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
    strange += connection < 0 ? errno != EAGAIN : close(connection);
    int stream = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    count = connect(stream, (struct sockaddr *)&echo, sizeof echo);
    strange += (count != 0 && errno != EINPROGRESS) || close(stream);
    errno = error;
    if (++handled < HANDLERS) next();
}

// The handler comes upon `malloc`, upon calls, and upon itself never.
static void storm(void) {
    unsigned seed = 7;
    void *blocks[64] = {0};
    char bytes[256];
    fcntl(listener, F_SETFL, O_NONBLOCK);
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    int fd = call(7000);
    next();
    for (unsigned turn = 0; handled < HANDLERS; turn++) {
        int place = rand_r(&seed) % 64;
        free(blocks[place]);
        blocks[place] = malloc(1 + rand_r(&seed) % 3000);
        if (turn % 16) continue;
        strange += send(fd, "ab", 2, MSG_DONTWAIT) < 0 && errno != EAGAIN;
        strange += recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) < 0 && errno != EAGAIN;
        ready(fd, POLLIN, 0);
    }
    printf("handlers %d, strange results %d\n", handled, strange);
    close(fd);
}

int main(int count, char **arguments) {
    peer = arguments[1];
    if (count > 2 && !strcmp(arguments[2], "calls")) {
        struct sockaddr_in server = at(peer, 7100);
        for (;; usleep(20000)) {
            int fd = socket(AF_INET, SOCK_STREAM, 0);
            connect(fd, (struct sockaddr *)&server, sizeof server);
            close(fd);
        }
    }
    open_interface();
    return play((struct part[]){{"memory", memory}, {"storm", storm}}, 2, arguments[2]);
}
