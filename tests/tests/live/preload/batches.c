/* Batches of sendmmsg whose messages have several destinations: some are the kernel's, some ours,
   and one may be refused by a rule. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct sockaddr_in to[4];
static struct iovec parts[4];
static struct mmsghdr batch[4];

static void aim(int idx, const char *host, int port) {
    to[idx].sin_family = AF_INET;
    to[idx].sin_port = htons(port);
    inet_pton(AF_INET, host, &to[idx].sin_addr);
    parts[idx] = (struct iovec){"echo", 4};
    batch[idx].msg_hdr = (struct msghdr){&to[idx], sizeof to[idx], &parts[idx], 1};
    batch[idx].msg_len = 99;
}

static void sends(const char *what, int fd, int from, int count) {
    int sent = sendmmsg(fd, batch + from, count, 0);
    printf("%s: %d%s,", what, sent, sent < 0 && errno == EACCES ? " EACCES" : sent < 0 ? " another error" : "");
    for (int idx = from; idx < from + count; idx++) printf(" %u", batch[idx].msg_len);
    printf("\n");
    fflush(stdout);
}

int main(int argc, char **argv) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in local = {.sin_family = AF_INET, .sin_port = htons(7400)};
    if (bind(fd, (void *)&local, sizeof local)) perror("bind");
    struct timeval patience = {10, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    aim(0, "127.0.0.1", 9), aim(1, argv[1], 7005), aim(2, argv[1], 7002), aim(3, argv[1], 7000);
    sends("batch", fd, 0, 4);
    sends("from the refused one", fd, 2, 2);
    sends("the last", fd, 3, 1);
    char bytes[10];
    for (int idx = 0; idx < atoi(argv[2]); idx++) printf("answer: %zd\n", recv(fd, bytes, sizeof bytes, 0));
    return 0;
}
