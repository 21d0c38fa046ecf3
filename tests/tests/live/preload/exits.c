// A process that ends: exits ADDRESS-OF-THE-PEER WHAT.
//
// looks: while another thread of it looks at the stream
// waits: while one waits for bytes of a peer that sends none, and one for room
// prints: with text in a stream of stdio
// forks: after a fork, before which it has closed the stream, and listens elsewhere
// vforks: after a child of vfork has made a stream, closed all and ended
// _exit, _Exit, quick_exit, exit_group, execv: by that call, right after its last send
// filtered: by execv, where a filter of system calls refuses execveat
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define LEN 400000
static int stream;
static char bytes[LEN];

static void *looks(void *unused) {
    char byte;
    (void)unused;
    while (recv(stream, &byte, 1, MSG_DONTWAIT | MSG_PEEK) != 0) continue;
    return NULL;
}

static void *receives(void *unused) {
    char byte;
    (void)unused;
    if (recv(stream, &byte, 1, 0) < 0) perror("recv");
    return NULL;
}

static void *sends(void *unused) {
    (void)unused;
    while (send(stream, bytes, LEN, MSG_NOSIGNAL) > 0) continue;
    perror("send");
    return NULL;
}

static int in_thread(void *(*what)(void *)) {
    pthread_t thread;
    return pthread_create(&thread, NULL, what, NULL);
}

static int send_all(void) {
    for (size_t sent = 0; sent < LEN;) {
        ssize_t len = send(stream, bytes, LEN - sent, 0);
        if (len < 0) return perror("send"), 1;
        sent += len;
    }
    return 0;
}

static int refuse_execveat(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_execveat, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) return -1;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static int ends_by(const char *what) {
    if (strcmp(what, "_exit") == 0) _exit(0);
    if (strcmp(what, "_Exit") == 0) _Exit(0);
    if (strcmp(what, "quick_exit") == 0) quick_exit(0);
    if (strcmp(what, "exit_group") == 0) syscall(SYS_exit_group, 0);
    if (strcmp(what, "execv") == 0) {
        char *nothing[] = {"/nowhere", NULL}, *none[] = {"true", NULL};
        // One that fails leaves the stream as it is.
        execv(nothing[0], nothing);
        if (send(stream, "more", 4, 0) != 4) return perror("send"), 1;
        execv("/bin/true", none);
    }
    if (strcmp(what, "filtered") == 0) {
        char *none[] = {"true", NULL};
        if (refuse_execveat() < 0) return perror("seccomp"), 1;
        execv("/bin/true", none);
    }
    return 2;
}

// The memory of a child of vfork is its parent's, and its descriptors are not.
static int vforks(struct sockaddr_in *peer) {
    static volatile int made;
    if (vfork() == 0) {
        made = socket(AF_INET, SOCK_STREAM, 0);
        connect(made, (struct sockaddr *)peer, sizeof *peer);
        close_range(3, ~0, 0);
        _exit(0);
    }
    uint64_t one = 1, sum = 0;
    int file = syscall(SYS_eventfd2, 0, 0);
    if (file != made) printf("another number\n");
    for (int i = 0; i < 2; i++) write(file, &one, sizeof one);
    read(file, &sum, sizeof sum);
    if (sum != 2) printf("what was written to a file came back as %d\n", (int)sum);
    return send_all();
}

int main(int argc, char **argv) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(7300)}, own = address;
    if (argc < 3 || inet_pton(AF_INET, argv[1], &address.sin_addr) != 1) return 2;
    const char *what = argv[2];
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (strcmp(what, "forks") == 0) {
        if (bind(listener, (struct sockaddr *)&own, sizeof own) < 0 || listen(listener, 5) < 0) return perror("listen"), 1;
    }
    stream = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(stream, (struct sockaddr *)&address, sizeof address) < 0) return perror("connect"), 1;
    if (strcmp(what, "looks") == 0) {
        if (in_thread(looks) != 0 || send_all() != 0) return 1;
    } else if (strcmp(what, "waits") == 0) {
        if (in_thread(receives) != 0 || in_thread(sends) != 0) return 1;
        usleep(100000);
    } else if (strcmp(what, "prints") == 0) {
        FILE *file = fdopen(stream, "w");
        fprintf(file, "the last words");
    } else if (strcmp(what, "vforks") == 0) {
        if (vforks(&address) != 0) return 1;
    } else if (strcmp(what, "forks") != 0) {
        return send_all() != 0 ? 1 : ends_by(what);
    } else {
        if (send_all() != 0) return 1;
        close(stream);
        pid_t child = fork();
        if (child == 0) _exit(0);
        waitpid(child, NULL, 0);
    }
    exit(0);
}
