// Sockets that are bound, listen and connect more than once: which of them have a port still.
#define _GNU_SOURCE
#include "calls.h"
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

static int bind_to(int fd, int port) {
    struct sockaddr_in address = at("0.0.0.0", port);
    return bind(fd, (struct sockaddr *)&address, sizeof address);
}

static void say_port(int fd) {
    struct sockaddr_in name = {0};
    socklen_t len = sizeof name;
    getsockname(fd, (struct sockaddr *)&name, &len);
    int port = ntohs(name.sin_port);
    printf("port %s\n", port == 0 ? "none" : port >= 32768 ? "any" : "named");
}

// The peer resets the connection at once.
static void until_reset(int fd) {
    struct pollfd entry = {fd, 0, 0};
    poll(&entry, 1, 5000);
    printf("ended %x\n", entry.revents);
}

static void reset_by_the_peer(void) {
    for (int listened = 0; listened < 2; listened++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        struct sockaddr_in resets = at(peer, 7001);
        if (listened) {
            say("listen", listen(fd, 4));
            say("shutdown", shutdown(fd, SHUT_RD));
        }
        say("connect", connect(fd, (struct sockaddr *)&resets, sizeof resets));
        say("bind while it is connected", bind_to(fd, 7111));
        write(fd, "x", 1);
        until_reset(fd);
        say("bind", bind_to(fd, 7111 + listened));
        say_port(fd);
        say("listen", listen(fd, 4));
        close(fd);
    }
}

// Two that share a port by an option that one of them has set while it was connected.
static void shared(void) {
    struct sockaddr_in resets = at(peer, 7001);
    int fd = socket(AF_INET, SOCK_STREAM, 0), other = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    say("connect", connect(fd, (struct sockaddr *)&resets, sizeof resets));
    say("SO_REUSEADDR", setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
    setsockopt(other, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    write(fd, "x", 1);
    until_reset(fd);
    say("bind", bind_to(fd, 7125));
    say("bind of another", bind_to(other, 7125));
    close(fd), close(other);
}

// The port of a connection is in use.
static void say_taken(int fd) {
    struct sockaddr_in name = {0};
    socklen_t len = sizeof name;
    int other = socket(AF_INET, SOCK_STREAM, 0);
    getsockname(fd, (struct sockaddr *)&name, &len);
    say("bind of another to its port", bind_to(other, ntohs(name.sin_port)));
    close(other);
}

static void no_listener_any_more(void) {
    struct sockaddr_in echoes = at(peer, 7000), none = {.sin_family = AF_UNSPEC};
    for (int way = 0; way < 4; way++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (way == 3) say("bind", bind_to(fd, 7113));
        say("listen", listen(fd, 4));
        if (way == 1) say("dissolve", connect(fd, (struct sockaddr *)&none, sizeof none));
        else say("shutdown", shutdown(fd, SHUT_RD));
        if (way == 2) {
            say("listen", listen(fd, 4));
            say_port(fd), say_taken(fd);
            say("shutdown", shutdown(fd, SHUT_RDWR));
        }
        say("connect", connect(fd, (struct sockaddr *)&echoes, sizeof echoes));
        say_port(fd), say_taken(fd);
        say("bind to a port in use", bind_to(fd, way == 3 ? 7113 : 7000));
        if (way != 2) {
            say("dissolve", connect(fd, (struct sockaddr *)&none, sizeof none));
            say("connect", connect(fd, (struct sockaddr *)&echoes, sizeof echoes));
            say_port(fd), say_taken(fd);
        }
        // A reset, so that the port is free for the next who plays this.
        struct linger resets = {1, 0};
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &resets, sizeof resets);
        close(fd);
    }
}

// The peer resets what it accepted of us, or called, once it has a byte.
static void accepted(void) {
    struct sockaddr_in echoes = at(peer, 7000), none = {.sin_family = AF_UNSPEC};
    int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    say("bind", bind_to(listener, 7120));
    say("listen", listen(listener, 4));
    for (int way = 0; way < 2; way++) {
        int fd = accept(listener, NULL, NULL);
        say("bind while it is connected", bind_to(fd, 7121));
        write(fd, "x", 1);
        until_reset(fd);
        if (way) {
            say("dissolve", connect(fd, (struct sockaddr *)&none, sizeof none));
            say("connect", connect(fd, (struct sockaddr *)&echoes, sizeof echoes));
            say_taken(fd);
        } else {
            say("bind", bind_to(fd, 7122));
            say_port(fd);
        }
        close(fd);
    }
    close(listener);
}

// Calls that part for ever, from the other end.
static void calls(void) {
    struct linger resets = {1, 0};
    struct sockaddr_in address = at(peer, 7120);
    for (;;) {
        char byte;
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &resets, sizeof resets);
        int refused = connect(fd, (struct sockaddr *)&address, sizeof address);
        if (!refused) read(fd, &byte, 1);
        close(fd);
        // What the near kernel refuses meanwhile counts as its segments.
        if (refused) usleep(200000);
    }
}

int main(int count, char **arguments) {
    peer = arguments[1];
    if (count > 2 && strcmp(arguments[2], "calls") == 0) calls();
    struct part parts[] = {
        {"reset by the peer", reset_by_the_peer}, {"shared", shared}, {"no listener any more", no_listener_any_more},
        {"accepted", accepted},
    };
    return play(parts, sizeof parts / sizeof *parts, arguments[2]);
}
