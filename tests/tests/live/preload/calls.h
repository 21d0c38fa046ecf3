// What the programs of this folder have in common: they print what each call returns, so that what
// they print on the kernel's sockets can be compared with what they print under the library.
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char *peer;

static void say(const char *what, long result) {
    int error = result < 0 ? errno : 0;
    printf("%s: %ld%s%s\n", what, result, error ? " " : "", error ? strerrorname_np(error) : "");
}

static struct sockaddr_in at(const char *ip, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, ip, &address.sin_addr);
    return address;
}

static int call(int port) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = at(peer, port);
    say("connect", connect(fd, (struct sockaddr *)&address, sizeof address));
    return fd;
}

static int ready(int fd, short events, int wait_ms) {
    struct pollfd entry = {fd, events, 0};
    int count = poll(&entry, 1, wait_ms);
    return count <= 0 ? count : entry.revents;
}

// Waits until a thread, which has said its number, sleeps.
static void until_it_sleeps(int *id) {
    char path[64], state = 0;
    while (state != 'S') {
        usleep(1000);
        snprintf(path, sizeof path, "/proc/self/task/%d/stat", __atomic_load_n(id, __ATOMIC_ACQUIRE));
        FILE *file = fopen(path, "r");
        if (!file) continue;
        fscanf(file, "%*d (%*[^)]) %c", &state);
        fclose(file);
    }
}

// Waits until the far end has echoed a datagram behind all that were sent to it.
static void until_all_is_echoed(void) {
    struct sockaddr_in echo = at(peer, 7000);
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    char byte;
    sendto(fd, "x", 1, 0, (struct sockaddr *)&echo, sizeof echo);
    ready(fd, POLLIN, 20000);
    recv(fd, &byte, 1, MSG_DONTWAIT);
    close(fd);
}

struct part {
    const char *name;
    void (*act)(void);
};

// Plays all parts, or the one that is named.
static int play(const struct part *parts, unsigned count, const char *only) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (unsigned i = 0; i < count; i++) {
        if (only && strcmp(only, parts[i].name) != 0) continue;
        printf("== %s\n", parts[i].name);
        fflush(stdout);
        parts[i].act();
    }
    return 0;
}
