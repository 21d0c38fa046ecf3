// Sockets that enter epoll sets before they name an address: the kernel has their items then, and
// the library takes them over. early_sets ADDRESS-OF-THE-PEER [PART].
#define _GNU_SOURCE
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "calls.h"

enum { ALL = EPOLLIN | EPOLLOUT | EPOLLRDHUP };

static const char *const names[] = {"connect of datagrams", "bind of datagrams", "connect", "listen"};

static int named_by(int way) { return socket(AF_INET, way < 2 ? SOCK_DGRAM : SOCK_STREAM, 0); }

// Names an address.
static void name(int fd, int way) {
    struct sockaddr_in address = way % 2 ? at("0.0.0.0", 7300 + way) : at(peer, 7000);
    int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (way % 2 == 0) return say(names[way], connect(fd, (struct sockaddr *)&address, sizeof address));
    say("bind", bind(fd, (struct sockaddr *)&address, sizeof address));
    if (way == 3) say(names[way], listen(fd, 4));
}

static int enter(int fd, unsigned events) {
    int set = epoll_create1(0);
    struct epoll_event event = {events, {.u64 = 7}};
    say("add", epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
    return set;
}

// What a set reports within some waits: those that the library answers with what it has look at the
// kernel's side by turns.
static unsigned reported(int set) {
    struct epoll_event found[2];
    unsigned events = 0;
    for (int i = 0; i < 40; i++, usleep(50))
        for (int count = epoll_wait(set, found, 2, 0); count > 0;) events |= found[--count].events;
    return events;
}

static void say_reported(const char *when, int set) { printf("reported %s: %x\n", when, reported(set)); }

// A call of this host's own, which the kernel brings: with it the library reports no room to send.
static void call_from_here(int way, int set) {
    struct sockaddr_in address = at("127.0.0.1", 7300 + way);
    int fd = socket(AF_INET, way == 1 ? SOCK_DGRAM : SOCK_STREAM, 0);
    say("call", connect(fd, (struct sockaddr *)&address, sizeof address));
    if (way == 1) say("send", send(fd, "x", 1, 0));
    printf("reported of the call: %x\n", reported(set) & ~EPOLLOUT);
    close(fd);
}

static void reported_before(void) {
    const unsigned triggers[] = {0, EPOLLET, EPOLLONESHOT, EPOLLET | EPOLLONESHOT};
    for (int way = 0; way < 4; way++)
        for (int i = 0; i < 8; i++) {
            int fd = named_by(way), set = enter(fd, ALL | triggers[i / 2]);
            printf("%s, trigger %x\n", names[way], triggers[i / 2]);
            if (i % 2) say_reported("before", set);
            name(fd, way);
            say_reported("after", set);
            if (way == 1) call_from_here(way, set);
            close(fd), close(set);
        }
}

// The descriptor by which the socket entered is closed, another has its number.
static void closed(void) {
    for (int way = 0; way < 4; way++)
        for (int i = 0; i < 4; i++) {
            int is_edge = i / 2, by_dup2 = i % 2;
            int fd = named_by(way), set = enter(fd, ALL | (is_edge ? EPOLLET : 0)), other = dup(fd);
            struct epoll_event event = {ALL};
            printf("%s, closed by %s, edge %d\n", names[way], by_dup2 ? "dup2" : "close", is_edge);
            if (is_edge) say_reported("before", set);
            if (!by_dup2) close(fd);
            int taken = by_dup2 ? dup2(0, fd) : open("/dev/null", O_RDWR);
            printf("same number %d\n", taken == fd);
            name(other, way);
            say_reported("after", set);
            if (way % 2) call_from_here(way, set);
            say("delete", epoll_ctl(set, EPOLL_CTL_DEL, other, &event));
            close(other);
            say_reported("of none", set);
            close(taken), close(set);
        }
}

int main(int count, char **arguments) {
    if (count < 2) return 2;
    peer = arguments[1];
    struct part parts[] = {{"reported before", reported_before}, {"closed", closed}};
    return play(parts, sizeof parts / sizeof *parts, arguments[2]);
}
