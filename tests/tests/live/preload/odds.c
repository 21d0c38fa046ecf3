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
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <linux/capability.h>
#include <linux/sockios.h>
#include <netinet/udp.h>

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

// What is left after five seconds is an error, and no test that hangs.
static void received(int fd) {
    char bytes[16];
    struct timeval limit = {5, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    int got = recv(fd, bytes, sizeof bytes, 0);
    say("recv", got);
    if (got > 0) printf("%.*s\n", got, bytes);
}

static int sends_to(int fd, const char *text, int flags, struct sockaddr_in *to) {
    return sendto(fd, text, strlen(text), flags, (void *)to, sizeof *to);
}

// Of the kernel's headers, not of libc's.
enum { MSG_PROBE = 0x10 };

// Flags of datagrams that only the kernel has, and one that no program may set.
static void only_the_kernels(void) {
    int fd = bound(SOCK_DGRAM, 7504);
    struct sockaddr_in echo = at(peer, 7000), beyond = at("10.98.0.1", 7000);
    say("MSG_PROBE", sends_to(fd, "unsent", MSG_PROBE, &echo));
    say("MSG_DONTROUTE", sends_to(fd, "near", MSG_DONTROUTE, &echo));
    received(fd);
    say("MSG_DONTROUTE by a router", sends_to(fd, "far", MSG_DONTROUTE, &beyond));
    say("connect", connect(fd, (void *)&echo, sizeof echo));
    say("MSG_PROBE", send(fd, "unsent", 6, MSG_PROBE));
    say("MSG_DONTROUTE", send(fd, "here", 4, MSG_DONTROUTE));
    received(fd);
    struct iovec part = {"text", 4};
    struct mmsghdr messages[1100] = {{{.msg_iov = &part, .msg_iovlen = 1}}};
    int compat = 0x80000000;
    say("sendmsg of compat", sendmsg(fd, &messages[0].msg_hdr, compat));
    say("sendmmsg of compat", sendmmsg(fd, messages, 1, compat));
    say("recvmsg of compat", recvmsg(fd, &messages[0].msg_hdr, compat));
    say("recvmmsg of compat", recvmmsg(fd, messages, 1, compat, NULL));
    // No part: none of them is for the echo to read.
    for (int idx = 0; idx < 1100; idx++) messages[idx].msg_hdr = (struct msghdr){0};
    say("sendmmsg of more than 1,024", sendmmsg(fd, messages, 1100, MSG_PROBE));
    close(fd);
    int stream = call(7000);
    say("MSG_DONTROUTE of a stream", send(stream, "bytes", 5, MSG_DONTROUTE | MSG_PROBE));
    received(stream);
    close(stream);
}

// What several calls append goes where the begin of the datagram went, whatever they name.
static void appended(void) {
    int on = 1, off = 0, here = bound(SOCK_DGRAM, 7505), fd = bound(SOCK_DGRAM, 7506);
    struct sockaddr_in local = at("127.0.0.1", 7505), echo = at(peer, 7000);
    say("begin here", sends_to(fd, "a", MSG_MORE, &local));
    say("append", sends_to(fd, "b", MSG_MORE, &echo));
    say("append", send(fd, "c", 1, 0));
    received(here);
    // Nothing has begun.
    struct sockaddr_in nowhere = at("127.0.0.1", 0);
    say("begin nowhere", sends_to(fd, "x", MSG_MORE, &nowhere));
    say("begin there", sends_to(fd, "d", MSG_MORE, &echo));
    say("append", sends_to(fd, "e", 0, &local));
    received(fd);
    say("UDP_CORK", setsockopt(fd, IPPROTO_UDP, UDP_CORK, &on, sizeof on));
    say("begin here", sends_to(fd, "f", 0, &local));
    say("append", sends_to(fd, "g", 0, &echo));
    say("UDP_CORK", setsockopt(fd, IPPROTO_UDP, UDP_CORK, &off, sizeof off));
    received(here);
    close(fd);
    // The cork is older than the socket's owner.
    fd = socket(AF_INET, SOCK_DGRAM, 0);
    say("UDP_CORK", setsockopt(fd, IPPROTO_UDP, UDP_CORK, &on, sizeof on));
    struct sockaddr_in any = at("0.0.0.0", 7506);
    say("bind", bind(fd, (void *)&any, sizeof any));
    say("begin here", sends_to(fd, "h", 0, &local));
    say("append", sends_to(fd, "i", 0, &echo));
    say("UDP_CORK", setsockopt(fd, IPPROTO_UDP, UDP_CORK, &off, sizeof off));
    received(here);
    say("whole", sends_to(fd, "j", 0, &echo));
    received(fd);
    close(fd), close(here);
}

// The time of the last datagram, kept from the first question on.
static void stamps(void) {
    struct timespec first = {0}, second = {0};
    struct timeval coarse = {0};
    struct sockaddr_in echo = at(peer, 7000);
    int fd = bound(SOCK_DGRAM, 7508), stream = call(7000);
    say("SIOCGSTAMPNS of nothing", ioctl(fd, SIOCGSTAMPNS, &first));
    sends_to(fd, "one", 0, &echo), received(fd);
    say("SIOCGSTAMPNS", ioctl(fd, SIOCGSTAMPNS, &first));
    usleep(20000);
    say("SIOCGSTAMP", ioctl(fd, SIOCGSTAMP, &coarse));
    say("SIOCGSTAMPNS", ioctl(fd, SIOCGSTAMPNS, &second));
    long age = time(NULL) - first.tv_sec;
    printf("now: %d, kept: %d %d\n", age >= 0 && age < 5, !memcmp(&first, &second, sizeof first),
           coarse.tv_sec == first.tv_sec && coarse.tv_usec == first.tv_nsec / 1000);
    // By loopback: the kernel has it.
    struct sockaddr_in here = at("127.0.0.1", 7508);
    sends_to(fd, "two", 0, &here), received(fd);
    say("SIOCGSTAMPNS", ioctl(fd, SIOCGSTAMPNS, &second));
    printf("later: %d\n", second.tv_sec > first.tv_sec || second.tv_nsec > first.tv_nsec);
    say("SIOCGSTAMPNS to nowhere", ioctl(fd, SIOCGSTAMPNS, NULL));
    write(stream, "x", 1), received(stream);
    say("SIOCGSTAMPNS of a stream", ioctl(stream, SIOCGSTAMPNS, &first));
    int cpu = -2, napi = -2;
    socklen_t len = sizeof cpu;
    say("SO_INCOMING_CPU", getsockopt(stream, SOL_SOCKET, SO_INCOMING_CPU, &cpu, &len));
    say("SO_INCOMING_NAPI_ID", getsockopt(stream, SOL_SOCKET, SO_INCOMING_NAPI_ID, &napi, &len));
    printf("a core: %d, of one that is set up: %d\n", cpu >= 0 && cpu < 4096, napi >= 0);
    close(fd), close(stream);
}

static void have_without(unsigned rights) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];
    syscall(SYS_capget, &header, data);
    data[0].effective = data[0].permitted & ~rights;
    syscall(SYS_capset, &header, data);
}

static int buffer_of(int fd, int option) {
    int value = 0;
    socklen_t len = sizeof value;
    getsockopt(fd, SOL_SOCKET, option, &value, &len);
    return value;
}

// Without CAP_NET_ADMIN the limits of the system hold.
static void forced(void) {
    int fd = bound(SOCK_DGRAM, 7507), stream = call(7000), len = 1 << 20;
    say("SO_RCVBUFFORCE", setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &len, sizeof len));
    printf("%d\n", buffer_of(fd, SO_RCVBUF));
    have_without(1u << CAP_NET_ADMIN);
    len = 1 << 21;
    say("SO_RCVBUFFORCE", setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &len, sizeof len));
    say("SO_SNDBUFFORCE", setsockopt(stream, SOL_SOCKET, SO_SNDBUFFORCE, &len, sizeof len));
    printf("%d\n", buffer_of(fd, SO_RCVBUF));
    have_without(0);
    close(fd), close(stream);
}

// A socket that this program passes to itself: what it does with one of them, the other sees.
static int passed(int fd) {
    int pair[2], received;
    char byte = 0, control[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec part = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control,
    };
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS, header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
    say("sendmsg", sendmsg(pair[0], &message, 0));
    say("recvmsg", recvmsg(pair[1], &message, 0));
    memcpy(&received, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof received);
    close(pair[0]), close(pair[1]);
    return received;
}

static void passes(void) {
    struct sockaddr_in echo = at(peer, 7000), name;
    for (int kind = SOCK_STREAM; kind <= SOCK_DGRAM; kind++) {
        int fd = socket(AF_INET, kind, 0), other = passed(fd);
        socklen_t len = sizeof name;
        say("connect", connect(fd, (void *)&echo, sizeof echo));
        say("getpeername of the other", getpeername(other, (void *)&name, &len));
        // A datagram that is lost is sent again.
        do say("send by the other", send(other, "four", 4, 0));
        while (!ready(fd, POLLIN, 20000));
        received(other);
        close(fd), close(other);
    }
}

static int nonblocking(void) { return socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0); }

static int connected_to(int fd, const char *ip, int port) {
    struct sockaddr_in address = at(ip, port);
    say("connect", connect(fd, (void *)&address, sizeof address));
    return fd;
}

static int new_one(void) { return socket(AF_INET, SOCK_STREAM, 0); }
static int bound_one(void) { return bound(SOCK_STREAM, 0); }

static int listening(void) {
    int fd = bound(SOCK_STREAM, 0);
    say("listen", listen(fd, 4));
    return fd;
}

static int listened(void) {
    int fd = listening();
    say("shutdown", shutdown(fd, SHUT_RD));
    return fd;
}

// Nobody answers there.
static int in_progress(void) { return connected_to(nonblocking(), "10.98.0.1", 7000); }

static int just_connected(void) {
    int fd = connected_to(nonblocking(), peer, 7000);
    say("poll", ready(fd, POLLOUT, 20000));
    return fd;
}

static int established(void) { return connected_to(new_one(), peer, 7000); }

static int refused(void) { return connected_to(new_one(), peer, 7999); }

static int refused_later(void) {
    int fd = connected_to(nonblocking(), peer, 7999);
    say("poll", ready(fd, POLLOUT, 20000));
    fcntl(fd, F_SETFL, 0);
    return fd;
}

static int half_closed(void) {
    int fd = connected_to(new_one(), peer, 7003);
    say("shutdown", shutdown(fd, SHUT_WR));
    return fd;
}

static int half_closed_by_the_peer(void) {
    int fd = connected_to(new_one(), peer, 7001);
    say("poll", ready(fd, POLLRDHUP, 20000));
    return fd;
}

// Also the peer has acknowledged that it is.
static int closed_by_both(void) {
    int fd = half_closed_by_the_peer();
    struct sockaddr_in name;
    socklen_t len = sizeof name;
    say("shutdown", shutdown(fd, SHUT_WR));
    for (int turn = 0; turn < 20000 && getpeername(fd, (void *)&name, &len) == 0; turn++) usleep(1000);
    return fd;
}

// The peer ends its side when it has seen our end.
static int in_time_wait(void) {
    int fd = established();
    say("shutdown", shutdown(fd, SHUT_WR));
    say("poll", ready(fd, 0, 20000));
    return fd;
}

static int reset(void) {
    int fd = half_closed_by_the_peer();
    say("send", send(fd, "x", 1, 0));
    say("poll", ready(fd, 0, 20000));
    return fd;
}

static int reset_and_read(void) {
    int fd = reset();
    char byte;
    say("recv", recv(fd, &byte, 1, 0));
    return fd;
}

static int shut(void) {
    int fd = new_one();
    say("shutdown", shutdown(fd, SHUT_RDWR));
    return fd;
}

static int dissolved(void) {
    int fd = established();
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    say("dissolve", connect(fd, &none, sizeof none));
    return fd;
}

static int dissolved_in_progress(void) {
    int fd = in_progress();
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    say("dissolve", connect(fd, &none, sizeof none));
    fcntl(fd, F_SETFL, 0);
    return fd;
}

// Twice, and what the socket is then.
static void say_connects(int (*make)(void), const char *state, int asks_at_first) {
    struct sockaddr_in echo = at(peer, 7000), name = {0};
    socklen_t len = sizeof name;
    printf("-- %s\n", state);
    int fd = make(), error = -1;
    for (int turn = 0; turn < 2; turn++) {
        len = sizeof error;
        if (asks_at_first != turn) {
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len);
            printf("SO_ERROR: %d\n", error);
        }
        say("connect", connect(fd, (void *)&echo, sizeof echo));
        say("poll", ready(fd, POLLIN | POLLOUT | POLLRDHUP, 0));
    }
    len = sizeof name;
    say("getpeername", getpeername(fd, (void *)&name, &len));
    printf("to %d\n", ntohs(name.sin_port));
    say("send", send(fd, "echo", 4, MSG_NOSIGNAL | MSG_DONTWAIT));
    close(fd);
}

static void connects(void) {
    static const struct { const char *name; int (*make)(void); } states[] = {
        {"new", new_one}, {"bound", bound_one}, {"listening", listening}, {"listened", listened},
        {"in progress", in_progress}, {"just connected", just_connected}, {"established", established},
        {"refused", refused}, {"refused later", refused_later}, {"half closed", half_closed},
        {"half closed by the peer", half_closed_by_the_peer}, {"closed by both", closed_by_both},
        {"in TIME-WAIT", in_time_wait}, {"reset", reset}, {"reset and read", reset_and_read}, {"shut", shut},
        {"dissolved", dissolved}, {"dissolved in progress", dissolved_in_progress},
    };
    for (unsigned idx = 0; idx < sizeof states / sizeof *states; idx++)
        for (int asks_at_first = 0; asks_at_first < 2; asks_at_first++)
            say_connects(states[idx].make, states[idx].name, asks_at_first);
}

int main(int argc, char **argv) {
    static const struct part parts[] = {{"batches", batches}, {"flags", flags}, {"unsent", unsent},
                                        {"files", files}, {"sets", sets}, {"preclose", preclose},
                                        {"only-the-kernels", only_the_kernels}, {"appended", appended}, {"stamps", stamps},
                                        {"passes", passes}, {"connects", connects}, {"forced", forced}};
    peer = argv[1];
    return play(parts, sizeof parts / sizeof *parts, argv[2]);
}
