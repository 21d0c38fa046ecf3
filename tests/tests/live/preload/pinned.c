/* A thread that pins itself, with a real-time policy, before its first socket, as the thread of an
   engine does. It computes while its peer sends, prints where the library's own threads may run and
   by which policy, and computes on until a file is there. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void print_thread(const char *number) {
    char path[64], name[64] = "", line[256];
    snprintf(path, sizeof path, "/proc/self/task/%s/status", number);
    FILE *file = fopen(path, "r");
    if (!file) return;
    while (fgets(line, sizeof line, file)) {
        sscanf(line, "Name: %63s", name);
        char cores[128];
        if (strncmp(name, "wirepath", 8) == 0 && sscanf(line, "Cpus_allowed_list: %127s", cores) == 1)
            printf("%s cores %s policy %d\n", name, cores, sched_getscheduler(atoi(number)));
    }
    fclose(file);
}

int main(int argc, char **argv) {
    int core = atoi(argv[2]);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    struct sched_param priority = {1};
    if (sched_setaffinity(0, sizeof one, &one) || sched_setscheduler(0, SCHED_FIFO, &priority)) {
        perror("cannot pin");
        return 1;
    }
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in peer = {.sin_family = AF_INET, .sin_port = htons(7003)};
    inet_pton(AF_INET, argv[1], &peer.sin_addr);
    if (connect(fd, (void *)&peer, sizeof peer)) perror("connect");
    DIR *threads = opendir("/proc/self/task");
    for (struct dirent *thread; (thread = readdir(threads));) print_thread(thread->d_name);
    closedir(threads);
    fflush(stdout);
    while (access(argv[3], F_OK) != 0)
        for (volatile int turn = 0; turn < 100000; turn++) {}
    return 0;
}
