// Datagrams that leave and come in fragments: the same on the kernel's sockets and under the
// library. fragments ADDRESS-OF-THE-PEER [PART]. The peer echoes at port 7000, and sends as many
// bytes as a datagram to port 7010 says to a group.
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "calls.h"

#define GROUP "239.1.1.7"

static unsigned char sent[65507], got[65536];

static int datagrams(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0), room = 1 << 20;
    struct timeval limit = {10, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    return fd;
}

static void compare(const char *what, long len) {
    say(what, len);
    say("same", len > 0 && memcmp(sent, got, len) == 0);
}

static void unconnected(void) {
    int lens[] = {100, 9000, 1473, 65507, 8};
    struct sockaddr_in to = at(peer, 7000), from;
    int fd = datagrams();
    for (int i = 0; i < 5; i++) {
        socklen_t room = sizeof from;
        say("sendto", sendto(fd, sent, lens[i], 0, (struct sockaddr *)&to, sizeof to));
        say("poll", ready(fd, POLLIN, 10000));
        compare("recvfrom", recvfrom(fd, got, sizeof got, 0, (struct sockaddr *)&from, &room));
        printf("from %s:%d\n", inet_ntoa(from.sin_addr), ntohs(from.sin_port));
    }
    close(fd);
}

static void connected(void) {
    int lens[] = {100, 9000, 65507, 8};
    struct sockaddr_in to = at(peer, 7000);
    struct epoll_event of = {EPOLLIN}, event;
    int fd = datagrams(), set = epoll_create1(0);
    say("connect", connect(fd, (struct sockaddr *)&to, sizeof to));
    say("add", epoll_ctl(set, EPOLL_CTL_ADD, fd, &of));
    for (int i = 0; i < 4; i++) {
        say("send", send(fd, sent, lens[i], 0));
        if (i % 2) say("epoll_wait", epoll_wait(set, &event, 1, 10000));
        compare("recv", recv(fd, got, sizeof got, 0));
    }
    say("none", epoll_wait(set, &event, 1, 0));
    close(fd), close(set);
}

// What came before `shutdown` is read after it.
static void shut(void) {
    struct sockaddr_in to = at(peer, 7000);
    int fd = datagrams();
    say("connect", connect(fd, (struct sockaddr *)&to, sizeof to));
    say("send", send(fd, sent, 9000, 0));
    say("poll", ready(fd, POLLIN, 10000));
    say("shutdown", shutdown(fd, SHUT_RD));
    compare("recv", recv(fd, got, sizeof got, 0));
    say("recv", recv(fd, got, sizeof got, 0));
    close(fd);
}

static void group(void) {
    int asks = datagrams(), hears = datagrams();
    struct sockaddr_in to = at(peer, 7010), any = at("0.0.0.0", 7011);
    struct ip_mreqn join = {.imr_multiaddr = at(GROUP, 0).sin_addr};
    say("connect", connect(asks, (struct sockaddr *)&to, sizeof to));
    struct sockaddr_in own;
    socklen_t own_room = sizeof own;
    getsockname(asks, (struct sockaddr *)&own, &own_room);
    join.imr_address = own.sin_addr;
    say("bind", bind(hears, (struct sockaddr *)&any, sizeof any));
    say("join", setsockopt(hears, IPPROTO_IP, IP_ADD_MEMBERSHIP, &join, sizeof join));
    int lens[] = {100, 9000, 65507, 8};
    for (int i = 0; i < 4; i++) {
        say("ask", send(asks, &lens[i], sizeof lens[i], 0) == sizeof lens[i]);
        compare("recv", recv(hears, got, sizeof got, 0));
    }
    close(asks), close(hears);
}

int main(int count, char **arguments) {
    if (count < 2) return 2;
    peer = arguments[1];
    for (unsigned i = 0; i < sizeof sent; i++) sent[i] = i ^ i >> 8;
    struct part parts[] = {{"unconnected", unconnected}, {"connected", connected}, {"shut", shut}, {"group", group}};
    return play(parts, sizeof parts / sizeof *parts, arguments[2]);
}
