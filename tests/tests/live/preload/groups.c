#define _GNU_SOURCE
// Multicast: its output is the same on the kernel's sockets and under the library.
#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char *name_of(int error) {
    switch (error) {
    case 0: return "ok";
    case EAGAIN: return "EAGAIN";
    case ENODEV: return "ENODEV";
    case EADDRNOTAVAIL: return "EADDRNOTAVAIL";
    case EADDRINUSE: return "EADDRINUSE";
    case EINVAL: return "EINVAL";
    case EACCES: return "EACCES";
    case ENETUNREACH: return "ENETUNREACH";
    default: return strerror(error);
    }
}

static void says(const char *what, int result) { printf("%s: %s\n", what, result < 0 ? name_of(errno) : "ok"); }

static struct sockaddr_in at(const char *address, int port) {
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, address, &in.sin_addr);
    return in;
}

static int open_socket(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0), on = 1;
    struct timeval limit = {.tv_sec = 10};
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    return fd;
}

static int bind_to(int fd, const char *address, int port) {
    struct sockaddr_in in = at(address, port);
    return bind(fd, (void *)&in, sizeof in);
}

// The interface is an address, a name, or "-" for that of the route.
static int member(int fd, int option, const char *group, const char *interface) {
    struct ip_mreqn request = {.imr_multiaddr = at(group, 0).sin_addr};
    if (strchr(interface, '.'))
        request.imr_address = at(interface, 0).sin_addr;
    else if (strcmp(interface, "-"))
        request.imr_ifindex = if_nametoindex(interface);
    return setsockopt(fd, IPPROTO_IP, option, &request, sizeof request);
}

static int sends_by(int fd, const char *interface) {
    struct ip_mreqn request = {0};
    if (strchr(interface, '.'))
        request.imr_address = at(interface, 0).sin_addr;
    else
        request.imr_ifindex = if_nametoindex(interface);
    return setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &request, sizeof request);
}

static int send_to(int fd, const char *text, const char *group, int port) {
    struct sockaddr_in to = at(group, port);
    return sendto(fd, text, strlen(text), 0, (void *)&to, sizeof to);
}

// Waits for a datagram with this text; others, such as repetitions, are skipped.
static void hears(int fd, const char *text) {
    char bytes[64];
    for (;;) {
        int len = recv(fd, bytes, sizeof bytes - 1, 0);
        if (len < 0) {
            printf("no %s: %s\n", text, name_of(errno));
            return;
        }
        bytes[len] = 0;
        if (!strcmp(bytes, text)) {
            printf("heard %s\n", text);
            return;
        }
    }
}

// How many datagrams wait; each has been sent by this host, and is there at once.
static int waiting(int fd) {
    char bytes[64];
    int count = 0;
    while (recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) >= 0) count++;
    return count;
}

// Two feeds on two interfaces, joined before and after bind; the peers repeat them.
static void feeds(const char *first, const char *second) {
    int both = open_socket(), late = open_socket();
    says("join the first before bind", member(both, IP_ADD_MEMBERSHIP, "239.1.1.1", first));
    says("join the second before bind", member(both, IP_ADD_MEMBERSHIP, "239.1.1.2", second));
    says("bind", bind_to(both, "0.0.0.0", 5000));
    hears(both, "first");
    hears(both, "second");
    says("bind", bind_to(late, "0.0.0.0", 5000));
    says("join the second after bind", member(late, IP_ADD_MEMBERSHIP, "239.1.1.2", second));
    says("join it again", member(late, IP_ADD_MEMBERSHIP, "239.1.1.2", second));
    hears(late, "second");
    says("leave it", member(late, IP_DROP_MEMBERSHIP, "239.1.1.2", second));
    says("leave it again", member(late, IP_DROP_MEMBERSHIP, "239.1.1.2", second));
    says("join on no interface", member(late, IP_ADD_MEMBERSHIP, "239.1.1.3", "198.51.100.77"));
    says("join by the route", member(late, IP_ADD_MEMBERSHIP, "239.1.1.3", "-"));
    says("leave by the route", member(late, IP_DROP_MEMBERSHIP, "239.1.1.3", "-"));
}

// Requests to a group by each interface; the peers answer with the text's case changed.
static void asks(const char *first, const char *second) {
    int fd = open_socket();
    says("bind", bind_to(fd, "0.0.0.0", 5001));
    const char *order[] = {first, second, first};
    for (int i = 0; i < 3; i++) {
        struct in_addr set;
        socklen_t len = sizeof set;
        says("IP_MULTICAST_IF", sends_by(fd, order[i]));
        says("its value", getsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &set, &len));
        says("send", send_to(fd, "ask", "239.1.1.9", 5002));
        hears(fd, i == 1 ? "answer by the second" : "answer by the first");
    }
    says("IP_MULTICAST_IF of no interface", sends_by(fd, "198.51.100.77"));
}

// This program's own members hear it once each.
static void self(const char *interface) {
    int all[3];
    for (int i = 0; i < 3; i++) {
        all[i] = open_socket();
        says("bind", bind_to(all[i], i == 1 ? "239.1.1.5" : "0.0.0.0", 5003));
        if (i < 2) says("join", member(all[i], IP_ADD_MEMBERSHIP, "239.1.1.5", interface));
    }
    int off = 0, sender = open_socket();
    // Without IP_MULTICAST_ALL a socket hears what it has joined itself.
    says("IP_MULTICAST_ALL", setsockopt(all[2], IPPROTO_IP, IP_MULTICAST_ALL, &off, sizeof off));
    says("IP_MULTICAST_IF", sends_by(sender, interface));
    says("send", send_to(sender, "one", "239.1.1.5", 5003));
    hears(all[0], "one");
    hears(all[1], "one");
    printf("more: %d %d %d\n", waiting(all[0]), waiting(all[1]), waiting(all[2]));
    says("IP_MULTICAST_LOOP", setsockopt(sender, IPPROTO_IP, IP_MULTICAST_LOOP, &off, sizeof off));
    says("send", send_to(sender, "two", "239.1.1.5", 5003));
    struct sockaddr_in to = at("239.1.1.5", 5003);
    int connected = open_socket();
    says("IP_MULTICAST_IF", sends_by(connected, interface));
    says("connect", connect(connected, (void *)&to, sizeof to));
    says("send", send(connected, "three", 5, 0));
    says("part", send(connected, "fo", 2, MSG_MORE));
    says("rest", send(connected, "ur", 2, 0));
    hears(all[0], "three");
    hears(all[0], "four");
    printf("more: %d %d\n", waiting(all[0]), waiting(all[1]));
}

// Joins groups about which a rule decides: one is the kernel's, one is refused.
static void ruled(const char *interface) {
    int fd = open_socket(), early = open_socket();
    says("bind", bind_to(fd, "0.0.0.0", 5000));
    says("join the kernel's", member(fd, IP_ADD_MEMBERSHIP, "239.1.1.1", interface));
    hears(fd, "first");
    says("join the refused", member(fd, IP_ADD_MEMBERSHIP, "239.1.1.8", interface));
    says("join the refused before bind", member(early, IP_ADD_MEMBERSHIP, "239.1.1.8", interface));
    says("bind", bind_to(early, "0.0.0.0", 5006));
}

// Hears a text that another program of this host sends.
static void receive(const char *interface, const char *text) {
    int fd = open_socket();
    says("bind", bind_to(fd, "0.0.0.0", 5004));
    says("join", member(fd, IP_ADD_MEMBERSHIP, "239.1.1.6", interface));
    hears(fd, text);
}

static void transmit(const char *interface, const char *text) {
    int fd = open_socket();
    says("IP_MULTICAST_IF", sends_by(fd, interface));
    says("send", send_to(fd, text, "239.1.1.6", 5004));
}

// A datagram to a group by the interface that its own control message names.
static int send_by(int fd, const char *text, const char *group, int port, int interface) {
    struct sockaddr_in to = at(group, port);
    struct iovec part = {(void *)text, strlen(text)};
    union {
        char bytes[CMSG_SPACE(sizeof(struct in_pktinfo))];
        struct cmsghdr align;
    } control = {0};
    struct msghdr message = {&to, sizeof to, &part, 1, control.bytes, sizeof control.bytes};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = IPPROTO_IP;
    header->cmsg_type = IP_PKTINFO;
    header->cmsg_len = CMSG_LEN(sizeof(struct in_pktinfo));
    struct in_pktinfo info = {.ipi_ifindex = interface};
    memcpy(CMSG_DATA(header), &info, sizeof info);
    return sendmsg(fd, &message, 0);
}

// A message that names the other interface leaves by it, also after a datagram with a member here.
static void aimed(const char *first, const char *second) {
    int member_here = open_socket(), fd = open_socket(), ttl = 7;
    says("bind", bind_to(member_here, "0.0.0.0", 5002));
    // The kernel lets no datagram with TTL 0 leave by an interface that has a member.
    says("join", member(member_here, IP_ADD_MEMBERSHIP, "239.1.1.9", first));
    says("join", member(member_here, IP_ADD_MEMBERSHIP, "239.1.1.9", second));
    says("bind", bind_to(fd, "0.0.0.0", 5001));
    says("IP_MULTICAST_TTL", setsockopt(fd, IPPROTO_IP, IP_MULTICAST_TTL, &ttl, sizeof ttl));
    says("send", send_to(fd, "ask", "239.1.1.9", 5002));
    hears(member_here, "ask");
    hears(fd, "answer by the first");
    says("send by the second", send_by(fd, "ask", "239.1.1.9", 5002, if_nametoindex(second)));
    hears(fd, "answer by the second");
    says("IP_MULTICAST_IF", sends_by(fd, second));
    says("send by the first", send_by(fd, "ask", "239.1.1.9", 5002, if_nametoindex("veth0")));
    hears(fd, "answer by the first");
}

// What is corked is one datagram, on the wire and for a member here.
static void corks(const char *interface) {
    int member_here = open_socket(), fd = open_socket(), on = 1, off = 0;
    says("bind", bind_to(member_here, "0.0.0.0", 5007));
    says("join", member(member_here, IP_ADD_MEMBERSHIP, "239.1.1.7", interface));
    says("cork before bind", setsockopt(fd, IPPROTO_UDP, UDP_CORK, &on, sizeof on));
    says("bind", bind_to(fd, "0.0.0.0", 5008));
    for (int turn = 0; turn < 2; turn++) {
        says("one", send_to(fd, "one", "239.1.1.7", 5007));
        says("two", send_to(fd, "two", "239.1.1.7", 5007));
        printf("before: %d\n", waiting(member_here));
        says("uncork", setsockopt(fd, IPPROTO_UDP, UDP_CORK, &off, sizeof off));
        hears(member_here, "onetwo");
        hears(fd, "answer to 6");
        says("three", send_to(fd, "three", "239.1.1.7", 5007));
        hears(member_here, "three");
        hears(fd, "answer to 5");
        says("cork", setsockopt(fd, IPPROTO_UDP, UDP_CORK, &on, sizeof on));
    }
    says("uncork", setsockopt(fd, IPPROTO_UDP, UDP_CORK, &off, sizeof off));
    printf("more: %d %d\n", waiting(member_here), waiting(fd));
}

// System calls by which this thread has read so far.
static long reads(void) {
    long count = -1;
    char line[128];
    FILE *file = fopen("/proc/thread-self/io", "r");
    while (file && fgets(line, sizeof line, file)) sscanf(line, "syscr: %ld", &count);
    if (file) fclose(file);
    return count;
}

// Sends to groups without a member here for a second, and prints how often the kernel was asked.
static void lonely(const char *interface) {
    int fd = open_socket();
    says("IP_MULTICAST_IF", sends_by(fd, interface));
    says("first", send_to(fd, "one", "239.1.1.11", 5009));
    reads();
    long before = reads();
    for (int turn = 0; turn < 100; turn++) {
        send_to(fd, "one", "239.1.1.11", 5009);
        send_to(fd, "one", "239.1.1.12", 5009);
        usleep(10000);
    }
    printf("reads: %ld\n", reads() - before);
}

// The two addresses of the far end, by the letters of the texts that it sends by them.
static const char *const senders[] = {"10.9.0.2", "10.9.0.3"};
enum { A = 1, B = 2, MARKER = 4, REQUESTS = 7010 };

// The letters that come with this number, until those that are expected and the marker have come,
// or one of them is lost. What comes by the kernel may be read behind the marker.
static int letters_of(int fd, int number, int expected) {
    char bytes[64], letter;
    int letters = 0, got;
    while ((letters & (expected | MARKER)) != (expected | MARKER)) {
        int len = recv(fd, bytes, sizeof bytes - 1, 0);
        if (len < 0) break;
        bytes[len] = 0;
        if (sscanf(bytes, "%c %d", &letter, &got) != 2 || got != number) continue;
        letters |= letter == 'A' ? A : letter == 'B' ? B : MARKER;
    }
    return letters;
}

// Asks the far end for a datagram of each address to the group, and one to this socket behind them.
// What was lost comes by the next request.
static void comes(const char *what, int fd, int expected) {
    static int number;
    int letters = 0;
    for (int turn = 0; turn < 20 && (letters & (expected | MARKER)) != (expected | MARKER); turn++) {
        char text[16];
        snprintf(text, sizeof text, "%d", ++number);
        send_to(fd, text, senders[0], REQUESTS);
        letters |= letters_of(fd, number, expected);
    }
    printf("%s: of %s%s%s\n", what, letters & A ? "A" : "", letters & B ? "B" : "", letters & MARKER ? "" : " nothing");
}

static int source(int fd, int option, const char *group, const char *interface, int sender) {
    struct ip_mreq_source request = {.imr_multiaddr = at(group, 0).sin_addr, .imr_interface = at(interface, 0).sin_addr,
                                     .imr_sourceaddr = at(senders[sender == B], 0).sin_addr};
    return setsockopt(fd, IPPROTO_IP, option, &request, sizeof request);
}

static int source_by_index(int fd, int option, const char *group, int sender) {
    struct group_source_req request = {.gsr_interface = if_nametoindex("veth0")};
    struct sockaddr_in of_group = at(group, 0), of_sender = at(senders[sender == B], 0);
    memcpy(&request.gsr_group, &of_group, sizeof of_group);
    memcpy(&request.gsr_source, &of_sender, sizeof of_sender);
    return setsockopt(fd, IPPROTO_IP, option, &request, sizeof request);
}

static int set_filter(int fd, const char *group, const char *interface, int mode, int letters) {
    char bytes[IP_MSFILTER_SIZE(2)] = {0};
    struct ip_msfilter *filter = (void *)bytes;
    filter->imsf_multiaddr = at(group, 0).sin_addr, filter->imsf_interface = at(interface, 0).sin_addr;
    filter->imsf_fmode = mode;
    for (int letter = A; letter <= B; letter++)
        if (letters & letter) filter->imsf_slist[filter->imsf_numsrc++] = at(senders[letter == B], 0).sin_addr;
    return setsockopt(fd, IPPROTO_IP, IP_MSFILTER, filter, IP_MSFILTER_SIZE(filter->imsf_numsrc));
}

static void say_filter(int fd, const char *group, const char *interface) {
    char bytes[IP_MSFILTER_SIZE(4)] = {0};
    struct ip_msfilter *filter = (void *)bytes;
    socklen_t len = sizeof bytes;
    filter->imsf_multiaddr = at(group, 0).sin_addr, filter->imsf_interface = at(interface, 0).sin_addr;
    filter->imsf_numsrc = 4;
    says("the filter", getsockopt(fd, IPPROTO_IP, IP_MSFILTER, filter, &len));
    printf("mode %d, sources %d\n", filter->imsf_fmode, filter->imsf_numsrc);
}

static int listener_at(int port) {
    int fd = open_socket();
    struct timeval limit = {.tv_usec = 300000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    says("bind", bind_to(fd, "0.0.0.0", port));
    return fd;
}

// What each member has of two senders, while it changes which of them it wants.
static void sources(const char *near) {
    const char *group = "239.1.1.20";
    int fd = listener_at(5030), other = listener_at(5031), off = 0;
    says("IP_MULTICAST_ALL", setsockopt(fd, IPPROTO_IP, IP_MULTICAST_ALL, &off, sizeof off));
    comes("no member", fd, 0);

    says("join A", source(fd, IP_ADD_SOURCE_MEMBERSHIP, group, near, A)), comes("A", fd, A);
    says("join A again", source(fd, IP_ADD_SOURCE_MEMBERSHIP, group, near, A));
    says("join any", member(fd, IP_ADD_MEMBERSHIP, group, near));
    says("block B", source(fd, IP_BLOCK_SOURCE, group, near, B)), comes("A", fd, A);
    says("join B", source(fd, IP_ADD_SOURCE_MEMBERSHIP, group, near, B)), comes("both", fd, A | B);
    say_filter(fd, group, near);
    says("leave A", source(fd, IP_DROP_SOURCE_MEMBERSHIP, group, near, A)), comes("B", fd, B);
    says("leave A again", source(fd, IP_DROP_SOURCE_MEMBERSHIP, group, near, A));

    says("join A elsewhere", source(other, IP_ADD_SOURCE_MEMBERSHIP, group, near, A));
    comes("A elsewhere", other, A), comes("B", fd, B);
    says("leave B", source(fd, IP_DROP_SOURCE_MEMBERSHIP, group, near, B)), comes("none", fd, 0);
    comes("A elsewhere", other, A);
    says("leave A elsewhere", source(other, IP_DROP_SOURCE_MEMBERSHIP, group, near, A));

    says("join", member(fd, IP_ADD_MEMBERSHIP, group, near)), comes("both", fd, A | B);
    says("block A", source(fd, IP_BLOCK_SOURCE, group, near, A)), comes("B", fd, B);
    says("block A again", source(fd, IP_BLOCK_SOURCE, group, near, A));
    say_filter(fd, group, near);
    says("block B", source(fd, IP_BLOCK_SOURCE, group, near, B)), comes("none", fd, 0);
    says("unblock A", source(fd, IP_UNBLOCK_SOURCE, group, near, A)), comes("A", fd, A);
    says("unblock A again", source(fd, IP_UNBLOCK_SOURCE, group, near, A));
    says("unblock B", source(fd, IP_UNBLOCK_SOURCE, group, near, B)), comes("both", fd, A | B);
    // Who is no member hears what another of the host is a member of.
    comes("by another's", other, A | B);

    says("only B", set_filter(fd, group, near, MCAST_INCLUDE, B)), comes("B", fd, B);
    say_filter(fd, group, near);
    says("all but B", set_filter(fd, group, near, MCAST_EXCLUDE, B)), comes("A", fd, A);
    say_filter(fd, group, near);
    says("all but both", set_filter(fd, group, near, MCAST_EXCLUDE, A | B)), comes("none", fd, 0);
    says("only both", set_filter(fd, group, near, MCAST_INCLUDE, A | B)), comes("both", fd, A | B);
    says("all", set_filter(fd, group, near, MCAST_EXCLUDE, 0)), comes("both", fd, A | B);
    // Of a member who blocks nobody it makes one of this source alone.
    says("join A", source(fd, IP_ADD_SOURCE_MEMBERSHIP, group, near, A)), comes("A", fd, A);
    says("only nobody", set_filter(fd, group, near, MCAST_INCLUDE, 0)), comes("none", fd, 0);
    says("leave", member(fd, IP_DROP_MEMBERSHIP, group, near));

    says("join A by its index", source_by_index(fd, MCAST_JOIN_SOURCE_GROUP, group, A)), comes("A", fd, A);
    says("leave A by its index", source_by_index(fd, MCAST_LEAVE_SOURCE_GROUP, group, A)), comes("none", fd, 0);
    says("join", member(fd, IP_ADD_MEMBERSHIP, group, near));
    says("block A by its index", source_by_index(fd, MCAST_BLOCK_SOURCE, group, A)), comes("B", fd, B);
    says("unblock A by its index", source_by_index(fd, MCAST_UNBLOCK_SOURCE, group, A)), comes("both", fd, A | B);
    says("leave", member(fd, IP_DROP_MEMBERSHIP, group, near)), comes("none", fd, 0);

    int early = open_socket();
    struct timeval limit = {.tv_usec = 300000};
    setsockopt(early, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    says("join A before bind", source(early, IP_ADD_SOURCE_MEMBERSHIP, group, near, A));
    says("bind", bind_to(early, "0.0.0.0", 5032)), comes("A", early, A);
}

int main(int count, char **words) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (count < 3) return 2;
    if (!strcmp(words[1], "feeds")) feeds(words[2], words[3]);
    else if (!strcmp(words[1], "asks")) asks(words[2], words[3]);
    else if (!strcmp(words[1], "self")) self(words[2]);
    else if (!strcmp(words[1], "ruled")) ruled(words[2]);
    else if (!strcmp(words[1], "receive")) receive(words[2], words[3]);
    else if (!strcmp(words[1], "aimed")) aimed(words[2], words[3]);
    else if (!strcmp(words[1], "corks")) corks(words[2]);
    else if (!strcmp(words[1], "sources")) sources(words[2]);
    else if (!strcmp(words[1], "lonely")) lonely(words[2]);
    else if (!strcmp(words[1], "transmit")) transmit(words[2], words[3]);
    return 0;
}
