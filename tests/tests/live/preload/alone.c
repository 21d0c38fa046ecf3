/* Linked statically, so that no library is loaded beside it: asks an echo server by TCP. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int count, char **words) {
    struct sockaddr_in server = {.sin_family = AF_INET, .sin_port = htons(7000)};
    char answer[5] = "";
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (count != 2 || inet_aton(words[1], &server.sin_addr) == 0) return 2;
    if (connect(fd, (struct sockaddr *)&server, sizeof server) != 0) return perror("connect"), 1;
    if (send(fd, "hello", 5, 0) != 5 || recv(fd, answer, 5, MSG_WAITALL) != 5)
        return perror("echo"), 1;
    printf("%.5s\n", answer);
    return close(fd);
}
