// A server that is told of the requests of all its clients at once: answers CLIENTS FOLDER PART.
// It goes on where a file of FOLDER is there, by a pipe that it waits on meanwhile.
#define _GNU_SOURCE
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *folder;

// Waits for the test's word, which is given by opening the pipe.
static void await(const char *name) {
    char path[512], byte;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    mkfifo(path, 0600);
    int fd = open(path, O_RDONLY);
    while (read(fd, &byte, 1) > 0) {}
    close(fd);
}

static void answer(int fd) {
    char request[64];
    if (recv(fd, request, sizeof request, 0) > 0) send(fd, "answer", 6, 0);
}

int main(int argc, char **argv) {
    int clients = atoi(argv[1]), on = 1;
    const char *part = argv[3];
    folder = argv[2];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(7000)};
    if (strcmp(part, "datagrams") == 0) {
        struct sockaddr_in other = {.sin_family = AF_INET, .sin_port = htons(7001)};
        bind(socket(AF_INET, SOCK_DGRAM, 0), (struct sockaddr *)&other, sizeof other);
    }
    int listener = socket(AF_INET, SOCK_STREAM, 0), set = epoll_create1(0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    bind(listener, (struct sockaddr *)&address, sizeof address);
    listen(listener, clients);
    for (int i = 0; i < clients; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.fd = accept(listener, NULL, NULL)};
        epoll_ctl(set, EPOLL_CTL_ADD, event.data.fd, &event);
    }
    await("requested");
    struct epoll_event events[64];
    int count = epoll_wait(set, events, 64, -1);
    if (strcmp(part, "one") == 0) {
        answer(events[0].data.fd);
        await("never");
    }
    for (int i = 0; i < count; i++) answer(events[i].data.fd);
    for (int left = clients - count; left > 0; left -= count) {
        count = epoll_wait(set, events, 64, -1);
        for (int i = 0; i < count; i++) answer(events[i].data.fd);
    }
    await("never");
}
