// Sockets at the edges of what they can hold: edges PART ADDRESS. Prints what each call returns. On
// the kernel's sockets and under the preload library it prints the same.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "calls.h"

// One port for each kind of a holder: its protocol, its options, its address.
enum { FIRST_PORT = 7200, KINDS = 24 };

static const char *own;

static int kind_of_type(int kind) { return kind / 8 == 0 ? SOCK_DGRAM : SOCK_STREAM; }

static int socket_with(int type, int options) {
    int fd = socket(AF_INET, type, 0), on = 1;
    if (options & 1) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (options & 2) setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
    return fd;
}

// Has a port for each kind, until it is ended. The last of them listens.
static void hold(void) {
    for (int kind = 0; kind < KINDS; kind++) {
        int fd = socket_with(kind_of_type(kind), kind % 8 / 2);
        struct sockaddr_in address = at(kind % 2 ? own : "0.0.0.0", FIRST_PORT + kind);
        if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0) perror("bind");
        if (kind / 8 == 2 && listen(fd, 4) < 0) perror("listen");
    }
    pause();
}

// Tries to have each of these ports as well.
static void try(void) {
    const char *addresses[] = {"0.0.0.0", own, "127.0.0.1"};
    for (int kind = 0; kind < KINDS; kind++) {
        for (int options = 0; options < 4; options++) {
            for (int where = 0; where < 3; where++) {
                int fd = socket_with(kind_of_type(kind), options);
                struct sockaddr_in address = at(addresses[where], FIRST_PORT + kind);
                char what[64];
                snprintf(what, sizeof what, "kind %d options %d at %d: bind", kind, options, where);
                int bound = bind(fd, (struct sockaddr *)&address, sizeof address);
                say(what, bound);
                if (bound == 0 && kind_of_type(kind) == SOCK_STREAM) say("listen", listen(fd, 4));
                close(fd);
            }
        }
    }
}

// Datagrams up to the longest, which a wire with an MTU of 1500 carries in 45 fragments.
static void datagrams(void) {
    static char sent[65536], got[65536];
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct timeval limit = {10, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    struct sockaddr_in address = at(peer, 7000);
    say("connect", connect(fd, (struct sockaddr *)&address, sizeof address));
    for (int i = 0; i < 65536; i++) sent[i] = i ^ i >> 8;
    int lengths[] = {0, 1, 1472, 1473, 2953, 30000, 65506, 65507, 65508, 65507};
    for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        long count = send(fd, sent, lengths[i], 0);
        say("send", count);
        if (count < 0) continue;
        memset(got, 0, sizeof got);
        say("recv", recv(fd, got, sizeof got, 0));
        printf("same %d\n", memcmp(sent, got, lengths[i]) == 0);
    }
    say("send", send(fd, sent, 65507, 0));
    say("peek", recv(fd, got, 10, MSG_PEEK | MSG_TRUNC));
    struct iovec part = {got, 2000};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    say("recvmsg", recvmsg(fd, &message, 0));
    printf("cut %d same %d\n", message.msg_flags == MSG_TRUNC, memcmp(sent, got, 2000) == 0);
    struct iovec parts[3] = {{sent, 20000}, {sent + 20000, 40000}, {sent + 60000, 5507}};
    struct msghdr long_message = {.msg_iov = parts, .msg_iovlen = 3};
    say("sendmsg", sendmsg(fd, &long_message, 0));
    say("recv", recv(fd, got, sizeof got, 0));
    printf("same %d\n", memcmp(sent, got, 65507) == 0);
    int never = IP_PMTUDISC_DO;
    say("DO", setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &never, sizeof never));
    say("send", send(fd, sent, 1473, 0));
    say("send", send(fd, sent, 1472, 0));
    say("recv", recv(fd, got, sizeof got, 0));
    close(fd);
}

// Datagrams that are not answered.
static void sends(void) {
    static char sent[65536];
    int fd = socket(AF_INET, SOCK_DGRAM, 0), lengths[] = {0, 1473, 30000, 65507};
    struct sockaddr_in address = at(peer, 7000);
    for (int i = 0; i < 65536; i++) sent[i] = i ^ i >> 8;
    say("connect", connect(fd, (struct sockaddr *)&address, sizeof address));
    for (int i = 0; i < 4; i++) say("send", send(fd, sent, lengths[i], 0));
}

// Fills a stream whose peer does not read. Returns how much it has taken.
static unsigned fill(int fd) {
    static char bytes[65536];
    unsigned taken = 0;
    fcntl(fd, F_SETFL, O_NONBLOCK);
    for (int idle = 0; idle < 10; idle++) {
        long count;
        while ((count = send(fd, bytes, sizeof bytes, MSG_NOSIGNAL)) > 0) taken += count, idle = 0;
        usleep(10000);
    }
    fcntl(fd, F_SETFL, 0);
    return taken;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void close_with(int fd, int on, int seconds) {
    struct linger linger = {on, seconds};
    say("SO_LINGER", setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
    double start = now();
    say("close", close(fd));
    printf("%s\n", on && seconds && now() - start > seconds * 0.9 ? "at its limit" : "before");
}

// Ends streams that still have to send. The control connection says to the peer that one has ended,
// and how much it was.
static void lingers(void) {
    int control = call(7003), fd = call(7003);
    unsigned count = fill(fd);
    close_with(fd, 1, 1);
    say("control", write(control, &count, sizeof count));

    static char bytes[1000000];
    fd = call(7003);
    count = 0;
    while (count < sizeof bytes) count += write(fd, bytes + count, sizeof bytes - count);
    close_with(fd, 1, 20);
    say("control", write(control, &count, sizeof count));

    fd = call(7003);
    count = fill(fd);
    close_with(fd, 1, 0);
    say("control", write(control, &count, sizeof count));

    fd = call(7003);
    count = fill(fd);
    close_with(fd, 0, 0);
    say("control", write(control, &count, sizeof count));
    say("over", read(control, bytes, 1));
}

// A listener that lets its callers wait until the peer says so.
static void backlog(void) {
    int listener = socket_with(SOCK_STREAM, 1);
    struct sockaddr_in address = at("0.0.0.0", 7100);
    say("bind", bind(listener, (struct sockaddr *)&address, sizeof address));
    say("listen", listen(listener, 1));
    int control = call(7003);
    char byte;
    say("go", read(control, &byte, 1));
    for (int number = 0; number < 3; number++) {
        say("waits", ready(listener, POLLIN, 20000));
        int fd = accept(listener, NULL, NULL);
        say("accept", fd < 0 ? fd : 0);
        say("read", read(fd, &byte, 1));
        printf("%c\n", byte);
    }
    say("more", ready(listener, POLLIN, 0));
}

// At the far end: what `resets` asks for by its control connection, a byte for each. The window of
// its streams is small, so that what fills them never arrives whole.
static void peer_that_resets(void) {
    int listener = socket_with(SOCK_STREAM, 1), room = 4096, stream = -1;
    struct sockaddr_in address = at(own, 7004);
    struct linger at_once = {1, 0};
    setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    bind(listener, (struct sockaddr *)&address, sizeof address);
    listen(listener, 4);
    for (int control;; close(control)) {
        char asked;
        control = accept(listener, NULL, NULL);
        while (read(control, &asked, 1) == 1) {
            if (asked == 'a') stream = accept(listener, NULL, NULL);
            if (asked == 'f') shutdown(stream, SHUT_WR);
            if (asked != 'r') continue;
            setsockopt(stream, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
            close(stream);
        }
    }
}

// A stream in the state that these steps lead to: f, the peer's FIN; w, more data than the peer
// has room for; s, our FIN. Behind such data ours is never acknowledged.
static int stream_after(int control, const char *steps) {
    static char bytes[65536];
    int fd = call(7004);
    write(control, "a", 1);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    for (; *steps; steps++) {
        if (*steps == 'f') write(control, "f", 1), say("end", ready(fd, POLLRDHUP, 20000));
        if (*steps == 'w') while (send(fd, bytes, sizeof bytes, 0) > 0);
        if (*steps == 's') say("shutdown", shutdown(fd, SHUT_WR));
    }
    return fd;
}

static void say_error(int fd) {
    int error = -1;
    socklen_t len = sizeof error;
    say("getsockopt", getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len));
    printf("SO_ERROR: %s\n", strerrorname_np(error));
}

static void say_recv(int fd) {
    char byte;
    say("recv", recv(fd, &byte, 1, 0));
}

static void say_send(int fd) { say("send", send(fd, "x", 1, MSG_NOSIGNAL)); }

static void say_name(int fd) {
    struct sockaddr_in name;
    socklen_t len = sizeof name;
    say("getpeername", getpeername(fd, (struct sockaddr *)&name, &len));
}

// What a program sees of a reset in each state, by whichever call is the first.
static void resets(void) {
    static const char *const states[][2] = {
        {"ESTABLISHED", ""}, {"ESTABLISHED, full", "w"}, {"FIN-WAIT-1", "ws"}, {"FIN-WAIT-2", "s"},
        {"CLOSE-WAIT", "f"}, {"CLOSE-WAIT, full", "fw"}, {"CLOSING", "wsf"}, {"LAST-ACK", "fws"},
    };
    void (*const asks[])(int) = {say_error, say_recv, say_send, say_name};
    int control = call(7004);
    for (unsigned state = 0; state < sizeof states / sizeof *states; state++) {
        for (unsigned first = 0; first < 4; first++) {
            printf("-- %s\n", states[state][0]);
            int fd = stream_after(control, states[state][1]);
            write(control, "r", 1);
            // Where both have ended, poll does not wait.
            for (int turn = 0; turn < 20000 && !(ready(fd, 0, 20000) & POLLERR); turn++) usleep(1000);
            say("reset", ready(fd, 0, 0));
            for (unsigned idx = 0; idx < 8; idx++) asks[(first + idx) % 4](fd);
            say("poll", ready(fd, POLLIN | POLLOUT | POLLRDHUP, 0));
            close(fd);
        }
    }
    close(control);
}

int main(int argc, char **argv) {
    const struct part parts[] = {
        {"hold", hold}, {"try", try}, {"datagrams", datagrams}, {"sends", sends},
        {"lingers", lingers}, {"backlog", backlog}, {"resets", resets},
        {"peer that resets", peer_that_resets},
    };
    own = peer = argv[2];
    return play(parts, sizeof parts / sizeof *parts, argv[1]);
}
