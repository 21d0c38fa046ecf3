// A process that ends while another thread of it is in calls: exits ADDRESS-OF-THE-PEER.
#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LEN 400000
static int stream;

static void *looks(void *unused) {
    char byte;
    (void)unused;
    while (recv(stream, &byte, 1, MSG_DONTWAIT | MSG_PEEK) != 0) continue;
    return NULL;
}

int main(int argc, char **argv) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(7300)};
    pthread_t thread;
    char *bytes = calloc(1, LEN);
    if (argc < 2 || bytes == NULL || inet_pton(AF_INET, argv[1], &address.sin_addr) != 1) return 2;
    stream = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(stream, (struct sockaddr *)&address, sizeof address) < 0) return perror("connect"), 1;
    if (pthread_create(&thread, NULL, looks, NULL) != 0) return 1;
    for (size_t sent = 0; sent < LEN;) {
        ssize_t len = send(stream, bytes + sent, LEN - sent, 0);
        if (len < 0) return perror("send"), 1;
        sent += len;
    }
    exit(0);
}
