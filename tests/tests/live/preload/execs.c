// exec in all its forms. execs ADDRESS-OF-THE-PEER [FORM PORT].
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "calls.h"

extern char **environ;
static char *words[] = {"echo", "told", "a", "b", "c", "d", "e", NULL};

static int execs(const char *form, const char *file) {
    char *none[] = {NULL};
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    if (!strcmp(form, "execve")) return execve(file, words, environ);
    if (!strcmp(form, "execv")) return execv(file, words);
    if (!strcmp(form, "execvp")) return execvp(file, words);
    if (!strcmp(form, "execvpe")) return execvpe(file, words, environ);
    if (!strcmp(form, "execl")) return execl(file, "echo", "told", "a", "b", "c", "d", "e", NULL);
    if (!strcmp(form, "execlp")) return execlp(file, "echo", "told", "a", "b", "c", "d", "e", NULL);
    if (!strcmp(form, "execle")) return execle(file, "echo", "told", "a", "b", "c", "d", "e", NULL, none);
    if (!strcmp(form, "fexecve")) return fexecve(fd, words, environ);
    if (!strcmp(form, "execveat")) return syscall(SYS_execveat, AT_FDCWD, file, words, environ, 0);
    return syscall(SYS_execve, file, words, environ);
}

static const char *forms[] = {"execve", "execv",  "execl",    "execle", "fexecve", "execveat", "by number"};

// An exec that fails leaves the connection as it was.
static void failed(void) {
    char file[] = "/tmp/execs-XXXXXX", *large = malloc(300000), *many[] = {"echo", large, NULL}, bytes[8];
    int at = mkstemp(file), fd = call(7000);
    write(at, "not a program\n", 14), fchmod(at, 0755), close(at);
    for (int i = 0; i < 7; i++) say(forms[i], execs(forms[i], file));
    memset(large, 'x', 299999), large[299999] = 0;
    say("too long", execve("/bin/echo", many, environ));
    say("none", execl("/bin/no-such-program", "none", NULL));
    say("send", send(fd, "four", 4, 0));
    say("recv", recv(fd, bytes, 4, MSG_WAITALL));
    unlink(file), free(large), close(fd);
}

int main(int count, char **arguments) {
    if (count < 2) return 2;
    peer = arguments[1];
    if (count == 4) {
        char *bytes = calloc(1, 300000);
        int fd = call(atoi(arguments[3]));
        for (int sent = 0; sent < 300000;) sent += write(fd, bytes, 300000 - sent);
        fcntl(fd, F_SETFD, FD_CLOEXEC);
        execs(arguments[2], "/bin/echo");
        return 1;
    }
    struct part parts[] = {{"failed", failed}};
    return play(parts, sizeof parts / sizeof *parts, arguments[2]);
}
