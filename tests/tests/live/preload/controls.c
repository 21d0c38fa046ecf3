// Control messages of sendmsg, by a program that knows nothing of wirepath: controls
// ADDRESS-OF-THE-PEER. Prints what each call returns, and what the peer has got. On the kernel's
// sockets and under the preload library it prints the same.
//
// controls ADDRESS serve: that peer. It answers each datagram on UDP port 7005 with what it saw.
#define _GNU_SOURCE
#include <netinet/in.h>
#include <net/if.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>
#include "calls.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef SOL_UDP
#define SOL_UDP 17
#endif

static int serve(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0), on = 1;
    struct sockaddr_in here = at(peer, 7005);
    setsockopt(fd, IPPROTO_IP, IP_RECVTTL, &on, sizeof on);
    setsockopt(fd, IPPROTO_IP, IP_RECVTOS, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&here, sizeof here) != 0) return 1;
    for (;;) {
        char bytes[2048], control[256], answer[128], from[64];
        struct sockaddr_in name;
        struct iovec part = {bytes, sizeof bytes};
        struct msghdr message = {&name, sizeof name, &part, 1, control, sizeof control, 0};
        long len = recvmsg(fd, &message, 0);
        if (len < 0) return 1;
        int ttl = -1, tos = -1;
        for (struct cmsghdr *head = CMSG_FIRSTHDR(&message); head; head = CMSG_NXTHDR(&message, head)) {
            if (head->cmsg_type == IP_TTL) ttl = *(int *)CMSG_DATA(head);
            if (head->cmsg_type == IP_TOS) tos = *CMSG_DATA(head);
        }
        inet_ntop(AF_INET, &name.sin_addr, from, sizeof from);
        snprintf(answer, sizeof answer, "%ld bytes '%.2s' of %s, ttl %d, tos %d", len, bytes, from, ttl, tos);
        sendto(fd, answer, strlen(answer), 0, (struct sockaddr *)&name, sizeof name);
    }
}

static char control[512];
static size_t control_len;

static void clear(void) { memset(control, 0, sizeof control), control_len = 0; }

static void add(int level, int type, const void *value, size_t len) {
    struct cmsghdr *head = (struct cmsghdr *)(control + control_len);
    head->cmsg_level = level, head->cmsg_type = type, head->cmsg_len = CMSG_LEN(len);
    memcpy(CMSG_DATA(head), value, len);
    control_len += CMSG_SPACE(len);
}

static void add_int(int level, int type, int value) { add(level, type, &value, sizeof value); }

static void add_info(const char *source, int idx) {
    struct in_pktinfo info = {.ipi_ifindex = idx, .ipi_spec_dst = at(source, 0).sin_addr};
    add(IPPROTO_IP, IP_PKTINFO, &info, sizeof info);
}

static void add_segment(int len) {
    unsigned short segment = len;
    add(SOL_UDP, UDP_SEGMENT, &segment, sizeof segment);
}

static char bytes[4096];

// Sends with the control messages of `control`, to an address or to the peer of `connect`.
static void send_with(const char *what, int fd, void *to, int to_len, int len, int answers) {
    struct iovec parts[2] = {{bytes, len / 2}, {bytes + len / 2, len - len / 2}};
    struct msghdr message = {to, to_len, parts, 2, control, control_len, 0};
    long sent = sendmsg(fd, &message, MSG_NOSIGNAL);
    say(what, sent);
    for (int idx = 0; idx < answers && sent >= 0; idx++) {
        char answer[128];
        long got = ready(fd, POLLIN, 5000) == POLLIN ? recv(fd, answer, sizeof answer, MSG_DONTWAIT) : -1;
        printf("  %.*s\n", got < 0 ? 4 : (int)got, got < 0 ? "none" : answer);
    }
    clear();
}

static struct sockaddr_in server;
static char own[64];

static int datagrams(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    connect(fd, (struct sockaddr *)&server, sizeof server);
    return fd;
}

static void follows(int fd, void *to, int to_len) {
    int ours = if_nametoindex("veth0");
    send_with("none", fd, to, to_len, 10, 1);
    add_int(IPPROTO_IP, IP_TTL, 7), send_with("ttl", fd, to, to_len, 10, 1);
    add_int(IPPROTO_IP, IP_TOS, 0xb8), send_with("tos", fd, to, to_len, 10, 1);
    add(IPPROTO_IP, IP_TOS, "\x20", 1), send_with("tos of a byte", fd, to, to_len, 10, 1);
    add_info(own, 0), send_with("source", fd, to, to_len, 10, 1);
    add_info("0.0.0.0", ours), send_with("interface", fd, to, to_len, 10, 1);
    add_info(own, ours), add_int(IPPROTO_IP, IP_TTL, 9), add_int(IPPROTO_IP, IP_TOS, 4);
    send_with("all", fd, to, to_len, 10, 1);
    add_segment(10), send_with("segments", fd, to, to_len, 35, 4);
    add_segment(10), add_int(IPPROTO_IP, IP_TTL, 3), send_with("segments with ttl", fd, to, to_len, 20, 2);
    add_segment(100), send_with("one segment", fd, to, to_len, 20, 1);
    add_segment(0), send_with("no segments", fd, to, to_len, 20, 1);
    add_segment(10), send_with("segments of nothing", fd, to, to_len, 0, 1);
    add_segment(1), send_with("too many segments", fd, to, to_len, 2000, 0);
    send_with("none again", fd, to, to_len, 10, 1);
}

static void connected(void) {
    int fd = datagrams();
    follows(fd, NULL, 0);
    close(fd);
}

static void named(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    add_int(IPPROTO_IP, IP_TTL, 8);
    send_with("the first of a socket", fd, &server, sizeof server, 10, 1);
    follows(fd, &server, sizeof server);
    add_int(IPPROTO_IP, IP_TTL, 8), send_with("to nobody", fd, NULL, 0, 10, 0);
    close(fd);
}

static void refused(void) {
    int fd = datagrams();
    struct cmsghdr *head = (struct cmsghdr *)control;
    add_int(IPPROTO_IP, IP_TTL, 0), send_with("ttl 0", fd, NULL, 0, 10, 0);
    add_int(IPPROTO_IP, IP_TTL, 256), send_with("ttl 256", fd, NULL, 0, 10, 0);
    add_int(IPPROTO_IP, IP_TTL, -1), send_with("ttl -1", fd, NULL, 0, 10, 0);
    add(IPPROTO_IP, IP_TTL, "\x07", 1), send_with("ttl of a byte", fd, NULL, 0, 10, 0);
    add_int(IPPROTO_IP, IP_TOS, 256), send_with("tos 256", fd, NULL, 0, 10, 0);
    add(IPPROTO_IP, IP_TOS, "\0\0", 2), send_with("tos of two bytes", fd, NULL, 0, 10, 0);
    add_int(IPPROTO_IP, IP_PKTINFO, 0), send_with("short pktinfo", fd, NULL, 0, 10, 0);
    add_info("192.0.2.77", 0), send_with("source of others", fd, NULL, 0, 10, 0);
    add_info("0.0.0.0", 9999), send_with("no such interface", fd, NULL, 0, 10, 0);
    add_int(SOL_UDP, UDP_SEGMENT, 10), send_with("segment of four bytes", fd, NULL, 0, 10, 0);
    add_int(SOL_UDP, 99, 1), send_with("unknown of UDP", fd, NULL, 0, 10, 0);
    add_int(IPPROTO_IP, 99, 1), send_with("unknown of IP", fd, NULL, 0, 10, 0);
    add_int(SOL_SOCKET, 99, 1), send_with("unknown of sockets", fd, NULL, 0, 10, 0);
    add_int(99, 1, 1), send_with("unknown level", fd, NULL, 0, 10, 1);
    add_int(IPPROTO_IPV6, 67, 1), send_with("traffic class of IPv4", fd, NULL, 0, 10, 1);
    add_int(IPPROTO_IP, IP_TTL, 7), head->cmsg_len = 8, send_with("too short", fd, NULL, 0, 10, 0);
    add_int(IPPROTO_IP, IP_TTL, 7), head->cmsg_len = 100, send_with("too long", fd, NULL, 0, 10, 0);
    add_int(IPPROTO_IP, IP_TTL, 7), control_len = 12, send_with("no header", fd, NULL, 0, 10, 1);
    struct iovec part = {bytes, 10};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = (void *)8, .msg_controllen = 24};
    say("bad pointer", sendmsg(fd, &message, 0));
    message.msg_control = NULL;
    say("null", sendmsg(fd, &message, 0));
    close(fd);
}

static void mapped(void) {
    int fd = socket(AF_INET6, SOCK_DGRAM, 0);
    struct sockaddr_in6 to = {.sin6_family = AF_INET6, .sin6_port = htons(7005)};
    char text[96];
    snprintf(text, sizeof text, "::ffff:%s", peer), inet_pton(AF_INET6, text, &to.sin6_addr);
    struct in6_pktinfo info = {0};
    snprintf(text, sizeof text, "::ffff:%s", own), inet_pton(AF_INET6, text, &info.ipi6_addr);
    for (int is_connected = 0; is_connected < 2; is_connected++) {
        void *name = is_connected ? NULL : &to;
        int len = is_connected ? 0 : sizeof to;
        if (is_connected) say("connect", connect(fd, (struct sockaddr *)&to, sizeof to));
        add(IPPROTO_IPV6, IPV6_PKTINFO, &info, sizeof info), send_with("source", fd, name, len, 10, 1);
        add_int(IPPROTO_IPV6, IPV6_TCLASS, 0xb8), send_with("traffic class", fd, name, len, 10, 1);
        add_int(IPPROTO_IPV6, IPV6_HOPLIMIT, 7), send_with("hop limit", fd, name, len, 10, 1);
        add_int(IPPROTO_IP, IP_TTL, 7), send_with("ttl", fd, name, len, 10, 1);
        add_int(IPPROTO_IP, IP_TOS, 8), send_with("tos", fd, name, len, 10, 1);
        add(IPPROTO_IPV6, IPV6_PKTINFO, &in6addr_loopback, 16), send_with("short", fd, name, len, 10, 0);
        struct in6_pktinfo other = {.ipi6_addr = IN6ADDR_LOOPBACK_INIT};
        add(IPPROTO_IPV6, IPV6_PKTINFO, &other, sizeof other), send_with("not mapped", fd, name, len, 10, 0);
        add_segment(10), send_with("segments", fd, name, len, 20, 2);
    }
    close(fd);
}

static void several(void) {
    int fd = datagrams();
    struct iovec part = {bytes, 10};
    add_int(IPPROTO_IP, IP_TTL, 5);
    struct mmsghdr messages[3] = {{.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}}};
    messages[1] = messages[2] = messages[0];
    messages[1].msg_hdr.msg_control = control, messages[1].msg_hdr.msg_controllen = control_len;
    messages[2].msg_hdr.msg_control = (void *)8, messages[2].msg_hdr.msg_controllen = 24;
    say("sendmmsg", sendmmsg(fd, messages, 3, 0));
    clear();
    send_with("after", fd, NULL, 0, 10, 3);
    close(fd);
}

static void streams(void) {
    int fd = call(7000), fresh = socket(AF_INET, SOCK_STREAM, 0);
    char back[64];
    add_int(IPPROTO_IP, IP_TTL, 0), send_with("ttl", fd, NULL, 0, 10, 0);
    add_int(SOL_UDP, UDP_SEGMENT, 5), send_with("segment", fd, NULL, 0, 10, 0);
    say("back", recv(fd, back, 20, MSG_WAITALL));
    add_int(SOL_SOCKET, 99, 1), send_with("unknown of sockets", fd, NULL, 0, 10, 0);
    add_int(IPPROTO_IP, IP_TTL, 7), ((struct cmsghdr *)control)->cmsg_len = 8, send_with("too short", fd, NULL, 0, 10, 0);
    add_int(IPPROTO_IP, IP_TTL, 7), ((struct cmsghdr *)control)->cmsg_len = 8;
    send_with("too short, of a fresh one", fresh, NULL, 0, 10, 0);
    close(fd), close(fresh);
}

// Waits until the peer answers, and notes the address that it sees.
static void meet(void) {
    int fd = datagrams();
    char byte = 'm', answer[128];
    do send(fd, &byte, 1, 0), usleep(20000);
    while (ready(fd, POLLIN, 100) != POLLIN);
    // A port that was closed when the first was sent is an error of the next call.
    while (recv(fd, answer, sizeof answer, MSG_DONTWAIT) < 0) ready(fd, POLLIN, 100);
    struct sockaddr_in name;
    socklen_t len = sizeof name;
    getsockname(fd, (struct sockaddr *)&name, &len);
    inet_ntop(AF_INET, &name.sin_addr, own, sizeof own);
    close(fd);
}

int main(int count, char **arguments) {
    if (count < 2) return 2;
    peer = arguments[1];
    if (count == 3 && strcmp(arguments[2], "serve") == 0) return serve();
    for (unsigned idx = 0; idx < sizeof bytes; idx++) bytes[idx] = 'a' + idx % 26;
    server = at(peer, 7005);
    meet();
    struct part parts[] = {
        {"connected", connected}, {"named", named}, {"refused", refused}, {"mapped", mapped},
        {"several", several}, {"streams", streams},
    };
    return play(parts, sizeof parts / sizeof *parts, count > 2 ? arguments[2] : NULL);
}
