// A library of a program's, whose constructor runs before that of the preload library.
#include <signal.h>
#include <string.h>

int early_result, early_signals;

static void on_signal(int number) { early_signals++; }

__attribute__((constructor)) static void begin(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    early_result = sigaction(SIGUSR2, &action, 0);
}
