/* On an interface that is shared with the kernel: a listener closes, and its connection stays. */
#include <stdio.h>
#include <string.h>

#include <wirepath.h>

static wp_stack stack;

static int failed(const char *what)
{
    printf("%s: %s\n", what, wp_last_error());
    return 1;
}

/* The next event but those about room. */
static wp_event next(void)
{
    wp_event event;
    for (;;) {
        int count = wp_poll(stack, &event, 1);
        if (count < 0)
            event.type = 0;
        if (count < 0 || (count == 1 && event.type != WP_EVENT_WRITABLE))
            return event;
        wp_wait(stack, 10000000);
    }
}

int main(int argc, char **argv)
{
    struct sockaddr_in local = wp_ipv4(0, 0, 0, 0, 9100);
    wp_options options = WP_OPTIONS_INIT;
    wp_event event;
    wp_sub listener;
    options.connections = 4;
    if (argc < 2 || wp_open(argv[1], &options, &stack) != 0)
        return failed("open");
    if (wp_tcp_listen(stack, &local, NULL, 1, &listener) != 0)
        return failed("listen");
    event = next();
    if (event.type != WP_EVENT_ACCEPTED || wp_unsubscribe(stack, listener) != 0)
        return failed("unsubscribe");
    if (wp_tcp_send(stack, event.conn, "closed", 6, 0) != 6)
        return failed("send");
    event = next();
    if (event.type != WP_EVENT_DATA || event.len != 5 || memcmp(event.data, "later", 5) != 0)
        return failed("no data");
    event = next();
    if (event.type != WP_EVENT_PEER_CLOSED)
        return failed("no end");
    wp_tcp_close(stack, event.conn);
    wp_close(stack);
    printf("as promised\n");
    return 0;
}
