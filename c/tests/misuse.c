/* Every misuse that the library can see is refused with its code, a sentence, and no effect. */
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <wirepath.h>

static int faults;

/* Whether a call gives this code, and a sentence that has these words. */
#define REFUSED(call, code, words) refused((int64_t)(call), code, words, #call, __LINE__)

static void refused(int64_t result, int code, const char *words, const char *call, int line)
{
    const char *sentence = wp_last_error();
    if (result == code && strstr(sentence, words) != NULL)
        return;
    printf("line %d: %s gives %lld, \"%s\", and not %d with \"%s\"\n", line, call, (long long)result, sentence, code, words);
    faults++;
}

#define DONE(call) done((int64_t)(call), #call, __LINE__)

static void done(int64_t result, const char *call, int line)
{
    if (result >= 0)
        return;
    printf("line %d: %s gives %lld, \"%s\"\n", line, call, (long long)result, wp_last_error());
    faults++;
}

/* Every call that takes a stack, with arguments that could be right: for a stack that is not to be called. Any
 * thread may call wp_release, which has a result of its own. */
static void each_call(wp_stack stack, int code, int code_of_release)
{
    struct sockaddr_in address = wp_ipv4(192, 0, 2, 9, 9), group = wp_ipv4(239, 9, 9, 9, 9);
    wp_tcp_info info = WP_TCP_INFO_INIT;
    wp_event events[1];
    wp_stat stats[1];
    wp_sub sub = {1};
    wp_flow flow = {1};
    wp_conn conn = {1};
    wp_order order = {1};
    wp_buffer buffer = {1};
    wp_timer timer = {1};
    uint64_t value;

    memset(events, 0, sizeof events);
    REFUSED(wp_poll(stack, events, 1), code, "");
    REFUSED(wp_flush(stack), code, "");
    REFUSED(wp_now(stack), code, "");
    REFUSED(wp_wait_fd(stack), code, "");
    REFUSED(wp_time_to_next(stack), code, "");
    REFUSED(wp_wait(stack, 1000), code, "");
    REFUSED(wp_hold(stack, events, &buffer), code, "");
    if (code_of_release < 0)
        REFUSED(wp_release(stack, buffer), code_of_release, "");
    else
        DONE(wp_release(stack, buffer));
    REFUSED(wp_udp_bind(stack, &address, 1, &sub), code, "");
    REFUSED(wp_udp_join(stack, &group, &address, 1, 1, &sub), code, "");
    REFUSED(wp_tcp_listen(stack, &address, NULL, 1, &sub), code, "");
    REFUSED(wp_unsubscribe(stack, sub), code, "");
    REFUSED(wp_udp_connect(stack, &address, &address, NULL, &flow), code, "");
    REFUSED(wp_udp_close(stack, flow), code, "");
    REFUSED(wp_udp_send(stack, flow, "x", 1, 0), code, "");
    REFUSED(wp_udp_send_to(stack, &address, &address, "x", 1, 0), code, "");
    REFUSED(wp_tcp_connect(stack, &address, &address, NULL, 1, &conn), code, "");
    REFUSED(wp_tcp_send(stack, conn, "x", 1, 0), code, "");
    REFUSED(wp_tcp_get_info(stack, conn, &info), code, "");
    REFUSED(wp_tcp_shutdown(stack, conn), code, "");
    REFUSED(wp_tcp_close(stack, conn), code, "");
    REFUSED(wp_tcp_abort(stack, conn), code, "");
    REFUSED(wp_tcp_pause(stack, conn), code, "");
    REFUSED(wp_tcp_resume(stack, conn), code, "");
    REFUSED(wp_order_prepare(stack, conn, "x", 1, &order), code, "");
    REFUSED(wp_order_patch(stack, order, 0, "x", 1), code, "");
    REFUSED(wp_order_fire(stack, order, 0), code, "");
    REFUSED(wp_order_warm(stack, order), code, "");
    REFUSED(wp_order_free(stack, order), code, "");
    REFUSED(wp_after(stack, 1, 1, &timer), code, "");
    REFUSED(wp_cancel(stack, timer), code, "");
    REFUSED(wp_counter(stack, "worker0/frames", &value), code, "");
    REFUSED(wp_stats(stack, stats, 1), code, "");
    REFUSED(wp_stamp(stack, 1), code, "");
    REFUSED(wp_close(stack), code, "");
}

/* Every handle that names nothing, on a stack that may be called: never given out, and made up. */
static void each_handle(wp_stack stack, uint64_t id)
{
    wp_tcp_info info = WP_TCP_INFO_INIT;
    wp_sub sub = {id};
    wp_flow flow = {id};
    wp_conn conn = {id};
    wp_order order = {id};
    wp_buffer buffer = {id};
    wp_timer timer = {id};

    REFUSED(wp_release(stack, buffer), WP_E_STALE, "");
    REFUSED(wp_unsubscribe(stack, sub), WP_E_STALE, "");
    REFUSED(wp_udp_close(stack, flow), WP_E_STALE, "");
    REFUSED(wp_udp_send(stack, flow, "x", 1, 0), WP_E_STALE, "");
    REFUSED(wp_tcp_send(stack, conn, "x", 1, 0), WP_E_STALE, "");
    REFUSED(wp_tcp_get_info(stack, conn, &info), WP_E_STALE, "");
    REFUSED(wp_tcp_shutdown(stack, conn), WP_E_STALE, "");
    REFUSED(wp_tcp_close(stack, conn), WP_E_STALE, "");
    REFUSED(wp_tcp_abort(stack, conn), WP_E_STALE, "");
    REFUSED(wp_tcp_pause(stack, conn), WP_E_STALE, "");
    REFUSED(wp_tcp_resume(stack, conn), WP_E_STALE, "");
    REFUSED(wp_order_prepare(stack, conn, "x", 1, &order), WP_E_STALE, "");
    order.id = id;
    REFUSED(wp_order_patch(stack, order, 0, "x", 1), WP_E_STALE, "");
    REFUSED(wp_order_fire(stack, order, 0), WP_E_STALE, "");
    REFUSED(wp_order_warm(stack, order), WP_E_STALE, "");
    REFUSED(wp_order_free(stack, order), WP_E_STALE, "");
    REFUSED(wp_cancel(stack, timer), WP_E_STALE, "");
}

/* Every pointer as null, and lengths and counts at their ends. */
static void each_pointer(wp_stack stack, wp_flow flow)
{
    struct sockaddr_in local = wp_ipv4(192, 0, 2, 2, 6000), far_end = wp_ipv4(192, 0, 2, 1, 6000);
    struct sockaddr_in group = wp_ipv4(239, 1, 1, 2, 9000);
    wp_conn conn = {1};
    wp_order order = {1};
    wp_sub sub;
    wp_buffer buffer;
    wp_event none, events[1];
    wp_stat stats[1];
    wp_tcp_info info = WP_TCP_INFO_INIT;
    uint64_t value;
    char byte = 'x';

    memset(&none, 0, sizeof none);
    REFUSED(wp_poll(stack, NULL, 1), WP_E_ARGUMENT, "the array of events is null");
    REFUSED(wp_poll(stack, NULL, INT_MAX), WP_E_ARGUMENT, "the array of events is null");
    REFUSED(wp_poll(stack, events, -1), WP_E_ARGUMENT, "fewer than no events");
    REFUSED(wp_poll(stack, events, INT_MIN), WP_E_ARGUMENT, "fewer than no events");
    DONE(wp_poll(stack, events, 0));
    DONE(wp_poll(stack, NULL, 0));
    REFUSED(wp_hold(stack, NULL, &buffer), WP_E_ARGUMENT, "the event is null");
    REFUSED(wp_hold(stack, &none, NULL), WP_E_ARGUMENT, "the place");
    REFUSED(wp_hold(stack, &none, &buffer), WP_E_STALE, ""); /* an event without bytes */
    none.chunk = UINT64_MAX;
    REFUSED(wp_hold(stack, &none, &buffer), WP_E_STALE, "");
    REFUSED(wp_udp_bind(stack, NULL, 0, &sub), WP_E_ARGUMENT, "an address is null");
    REFUSED(wp_udp_bind(stack, &local, 0, NULL), WP_E_ARGUMENT, "the place");
    REFUSED(wp_udp_join(stack, NULL, NULL, 0, 0, &sub), WP_E_ARGUMENT, "an address is null");
    REFUSED(wp_udp_join(stack, &group, NULL, 0, 0, NULL), WP_E_ARGUMENT, "the place");
    REFUSED(wp_udp_join(stack, &group, NULL, SIZE_MAX, 0, &sub), WP_E_ARGUMENT, "the array of addresses is null");
    REFUSED(wp_udp_join(stack, &group, &far_end, SIZE_MAX, 0, &sub), WP_E_ARGUMENT, "1024");
    REFUSED(wp_tcp_listen(stack, NULL, NULL, 0, &sub), WP_E_ARGUMENT, "an address is null");
    REFUSED(wp_tcp_listen(stack, &local, NULL, 0, NULL), WP_E_ARGUMENT, "the place");
    REFUSED(wp_udp_connect(stack, NULL, NULL, NULL, &flow), WP_E_ARGUMENT, "an address is null");
    REFUSED(wp_udp_connect(stack, NULL, &far_end, NULL, NULL), WP_E_ARGUMENT, "the place");
    REFUSED(wp_udp_send(stack, flow, NULL, 1, 0), WP_E_ARGUMENT, "data is null");
    REFUSED(wp_udp_send(stack, flow, NULL, SIZE_MAX, 0), WP_E_ARGUMENT, "data is null");
    REFUSED(wp_udp_send(stack, flow, &byte, SIZE_MAX, 0), WP_E_TOO_LONG, "");
    REFUSED(wp_udp_send(stack, flow, &byte, 1, UINT32_MAX), WP_E_ARGUMENT, "flags");
    DONE(wp_udp_send(stack, flow, NULL, 0, 0));
    DONE(wp_udp_send(stack, flow, &byte, 0, 0));
    REFUSED(wp_udp_send_to(stack, NULL, &far_end, &byte, 1, 0), WP_E_ARGUMENT, "an address is null");
    REFUSED(wp_udp_send_to(stack, &local, NULL, &byte, 1, 0), WP_E_ARGUMENT, "an address is null");
    REFUSED(wp_udp_send_to(stack, &local, &far_end, NULL, 1, 0), WP_E_ARGUMENT, "data is null");
    REFUSED(wp_udp_send_to(stack, &local, &far_end, &byte, SIZE_MAX, 0), WP_E_TOO_LONG, "");
    REFUSED(wp_tcp_connect(stack, NULL, NULL, NULL, 0, &conn), WP_E_ARGUMENT, "an address is null");
    REFUSED(wp_tcp_connect(stack, NULL, &far_end, NULL, 0, NULL), WP_E_ARGUMENT, "the place");
    REFUSED(wp_tcp_send(stack, conn, NULL, 1, 0), WP_E_ARGUMENT, "data is null");
    REFUSED(wp_tcp_send(stack, conn, &byte, SIZE_MAX, 0), WP_E_TOO_LONG, "");
    REFUSED(wp_tcp_get_info(stack, conn, NULL), WP_E_ARGUMENT, "the place");
    info.size = 4;
    REFUSED(wp_tcp_get_info(stack, conn, &info), WP_E_ARGUMENT, "sizeof");
    info.size = UINT32_MAX;
    REFUSED(wp_tcp_get_info(stack, conn, &info), WP_E_ARGUMENT, "sizeof");
    REFUSED(wp_order_prepare(stack, conn, NULL, 1, &order), WP_E_ARGUMENT, "data is null");
    REFUSED(wp_order_prepare(stack, conn, &byte, 1, NULL), WP_E_ARGUMENT, "the place");
    REFUSED(wp_order_prepare(stack, conn, &byte, SIZE_MAX, &order), WP_E_TOO_LONG, "");
    REFUSED(wp_order_patch(stack, order, 0, NULL, 1), WP_E_ARGUMENT, "data is null");
    REFUSED(wp_order_patch(stack, order, SIZE_MAX, &byte, SIZE_MAX), WP_E_TOO_LONG, "");
    REFUSED(wp_order_fire(stack, order, 4), WP_E_ARGUMENT, "flags 0x4");
    REFUSED(wp_after(stack, 1, 1, NULL), WP_E_ARGUMENT, "the place");
    REFUSED(wp_counter(stack, NULL, &value), WP_E_ARGUMENT, "the name of the counter is null");
    REFUSED(wp_counter(stack, "worker0/frames", NULL), WP_E_ARGUMENT, "the place");
    REFUSED(wp_counter(stack, "", &value), WP_E_NAME, "");
    REFUSED(wp_counter(stack, "\xff", &value), WP_E_ARGUMENT, "UTF-8");
    REFUSED(wp_stats(stack, NULL, 1), WP_E_ARGUMENT, "the array of results is null");
    REFUSED(wp_stats(stack, stats, -1), WP_E_ARGUMENT, "fewer than no counters");
    REFUSED(wp_stamp(stack, 1), WP_E_UNSUPPORTED, "WP_TIMESTAMPS");
}

static void *another_thread(void *stack)
{
    wp_event events[1];
    each_call(*(wp_stack *)stack, WP_E_THREAD, 0); /* the next poll finds no such buffer */
    /* A stack that is left open goes with its thread. */
    wp_options options = WP_OPTIONS_INIT;
    wp_stack mine;
    options.address = "192.0.2.3/24";
    DONE(wp_open("memory:other", &options, &mine));
    DONE(wp_poll(mine, events, 1));
    return NULL;
}

/* A standard error that takes nothing is no fault of the stack. */
static void lines_without_room(void)
{
    struct sockaddr_in local = wp_ipv4(192, 0, 2, 1, 5000), far_end = wp_ipv4(192, 0, 2, 2, 5000);
    wp_options options = WP_OPTIONS_INIT;
    wp_stack ends[2];
    int shown = dup(2), full = open("/dev/full", O_WRONLY);
    if (shown < 0 || full < 0 || dup2(full, 2) != 2)
        faults++;
    options.flags = WP_LOG;
    options.address = "192.0.2.1/24";
    DONE(wp_open("memory:lines", &options, &ends[0]));
    options.address = "192.0.2.2/24";
    DONE(wp_open("memory:lines", &options, &ends[1]));
    for (int i = 0; i < 5; i++) { /* the port is nobody's: the drops are logged at the end */
        wp_udp_send_to(ends[0], &local, &far_end, "x", 1, 0);
        DONE(wp_poll(ends[1], NULL, 0));
        DONE(wp_poll(ends[0], NULL, 0));
    }
    DONE(wp_close(ends[0]));
    DONE(wp_close(ends[1]));
    dup2(shown, 2);
    close(shown);
    close(full);
}

int main(void)
{
    wp_options options = WP_OPTIONS_INIT;
    wp_stack stack, peer, none = {0}, forged = {0x1234567890abcdef};
    wp_sub sub, other;
    wp_flow flow;
    wp_conn conn;
    wp_order order;
    wp_buffer buffer;
    wp_timer timer;
    wp_event events[8];
    struct sockaddr_in local = wp_ipv4(192, 0, 2, 1, 5000), far_end = wp_ipv4(192, 0, 2, 2, 5000);
    struct sockaddr_in group = wp_ipv4(239, 1, 1, 1, 9000), broken = local, no_port = local;
    char byte = 0;
    uint64_t value;

    if (strcmp(wp_last_error(), "no error") != 0 || strcmp(wp_strerror(0), "no error") != 0)
        faults++;

    /* Opening. */
    REFUSED(wp_open(NULL, NULL, &stack), WP_E_ARGUMENT, "the name of the port is null");
    REFUSED(wp_open("memory:a", NULL, NULL), WP_E_ARGUMENT, "the place for the result is null");
    REFUSED(wp_open("dpdk:eth1", NULL, &stack), WP_E_OPEN, "names no port");
    REFUSED(wp_open("no-such-if0", NULL, &stack), WP_E_OPEN, "no-such-if0");
    REFUSED(wp_open("\xff\xfe", NULL, &stack), WP_E_ARGUMENT, "UTF-8");
    options.size = 4;
    REFUSED(wp_open("memory:a", &options, &stack), WP_E_ARGUMENT, "sizeof");
    options.size = sizeof options + 8;
    REFUSED(wp_open("memory:a", &options, &stack), WP_E_ARGUMENT, "sizeof");
    options.size = sizeof options;
    options.flags = 1u << 31;
    REFUSED(wp_open("memory:a", &options, &stack), WP_E_ARGUMENT, "flags 0x80000000");
    options.flags = 0;
    options.address = "192.0.2.1";
    REFUSED(wp_open("memory:b", &options, &stack), WP_E_ARGUMENT, "192.0.2.1");
    options.address = "192.0.2.1/24";
    options.gateway = "nowhere";
    REFUSED(wp_open("memory:c", &options, &stack), WP_E_ARGUMENT, "nowhere");
    options.gateway = NULL;
    options.size = 8; /* an older caller's: flags alone, so no address and no TCP */
    DONE(wp_open("memory:d", &options, &stack));
    REFUSED(wp_tcp_connect(stack, NULL, &far_end, NULL, 0, &conn), WP_E_UNREACHABLE, "192.0.2.2");
    DONE(wp_close(stack));
    REFUSED(wp_close(stack), WP_E_STALE, "names nothing");
    options.size = sizeof options;

    DONE(wp_open("memory:misuse", &options, &stack)); /* without TCP */
    options.address = "192.0.2.2/24";
    options.connections = 4;
    DONE(wp_open("memory:misuse", &options, &peer));

    /* Stacks. */
    each_call(none, WP_E_STALE, WP_E_STALE);
    each_call(forged, WP_E_THREAD, WP_E_STALE);
    forged.id = stack.id + 17; /* a place that was never taken */
    each_call(forged, WP_E_STALE, WP_E_STALE);
    forged.id = stack.id + 0x100; /* a later generation */
    each_call(forged, WP_E_STALE, WP_E_STALE);
    each_handle(peer, 0);
    each_handle(peer, 1);
    each_handle(peer, UINT64_MAX);
    each_handle(peer, 0x100000001);
    pthread_t thread;
    pthread_create(&thread, NULL, another_thread, &stack);
    pthread_join(thread, NULL);
    REFUSED(wp_wait_fd(stack), WP_E_UNSUPPORTED, "no descriptor");
    DONE(wp_wait(stack, 1000));
    DONE(wp_wait(stack, 0));

    /* Subscriptions. */
    REFUSED(wp_udp_bind(stack, NULL, 0, &sub), WP_E_ARGUMENT, "an address is null");
    broken.sin_family = AF_INET6;
    REFUSED(wp_udp_bind(stack, &broken, 0, &sub), WP_E_ARGUMENT, "AF_INET");
    REFUSED(wp_udp_bind(stack, &group, 0, &sub), WP_E_ARGUMENT, "wp_udp_join");
    REFUSED(wp_udp_join(stack, &local, NULL, 0, 0, &sub), WP_E_ARGUMENT, "wp_udp_bind");
    no_port.sin_port = 0;
    REFUSED(wp_udp_bind(stack, &no_port, 0, &sub), WP_E_ARGUMENT, "port 0");
    no_port = far_end;
    no_port.sin_port = 0;
    REFUSED(wp_tcp_listen(peer, &no_port, NULL, 0, &sub), WP_E_ARGUMENT, "port");
    no_port = group;
    no_port.sin_port = 0;
    REFUSED(wp_udp_join(stack, &no_port, NULL, 0, 0, &sub), WP_E_ARGUMENT, "port 0");
    REFUSED(wp_udp_join(stack, &group, NULL, 1, 0, &sub), WP_E_ARGUMENT, "the array of addresses is null");
    REFUSED(wp_udp_bind(stack, &local, 0, NULL), WP_E_ARGUMENT, "the place for the result is null");
    DONE(wp_udp_bind(stack, &local, 0, &sub)); /* the refused calls have bound nothing */
    REFUSED(wp_udp_bind(stack, &local, 0, &other), WP_E_REFUSED, "already");
    REFUSED(wp_udp_bind(stack, &local, 1, &other), WP_E_REFUSED, "192.0.2.1:5000");
    DONE(wp_unsubscribe(stack, sub));
    REFUSED(wp_unsubscribe(stack, sub), WP_E_STALE, "");
    REFUSED(wp_tcp_listen(stack, &local, NULL, 0, &sub), WP_E_REFUSED, "TCP");
    DONE(wp_udp_bind(peer, &far_end, 3, &sub));
    DONE(wp_udp_connect(peer, &far_end, &local, NULL, &flow));
    each_pointer(peer, flow);
    DONE(wp_udp_close(peer, flow));
    REFUSED(wp_udp_close(peer, flow), WP_E_STALE, ""); /* once more */
    DONE(wp_udp_connect(peer, &far_end, &local, NULL, &flow)); /* in the same place */
    DONE(wp_udp_close(peer, flow));

    /* Datagrams. */
    REFUSED(wp_udp_connect(stack, &local, NULL, NULL, &flow), WP_E_ARGUMENT, "an address is null");
    REFUSED(wp_udp_connect(stack, &local, &local, NULL, &flow), WP_E_UNREACHABLE, "192.0.2.1");
    wp_udp_options later = WP_UDP_OPTIONS_INIT;
    later.reserved[5] = 1;
    REFUSED(wp_udp_connect(stack, &local, &far_end, &later, &flow), WP_E_ARGUMENT, "reserved");
    DONE(wp_udp_connect(stack, &local, &far_end, NULL, &flow));
    REFUSED(wp_udp_send(stack, flow, NULL, 1, 0), WP_E_ARGUMENT, "data is null");
    REFUSED(wp_udp_send(stack, flow, &byte, (size_t)-1, 0), WP_E_TOO_LONG, "");
    REFUSED(wp_udp_send(stack, flow, &byte, 1, 8), WP_E_ARGUMENT, "flags 0x8");
    REFUSED(wp_udp_send(peer, flow, &byte, 1, 0), WP_E_STALE, "");
    static char much[70000];
    REFUSED(wp_udp_send(stack, flow, much, sizeof much, 0), WP_E_TOO_LONG, "65,507");
    REFUSED(wp_udp_send_to(stack, &local, NULL, &byte, 1, 0), WP_E_ARGUMENT, "an address is null");

    /* Bytes: a datagram in fragments, and one in a frame. */
    memset(much, 'x', sizeof much);
    for (int i = 0; i < 3; i++) { /* the first wait for ARP */
        wp_udp_send(stack, flow, NULL, 0, 0);
        DONE(wp_poll(peer, NULL, 0));
        DONE(wp_poll(stack, NULL, 0));
    }
    while (wp_poll(peer, events, 8) > 0)
        continue;
    DONE(wp_udp_send(stack, flow, much, 5000, 0));
    DONE(wp_udp_send(stack, flow, "short", 5, 0));
    int count = 0, turns = 0;
    wp_event first;
    while (count < 2 && turns++ < 100) {
        int got = wp_poll(peer, events, 1); /* one place: the second waits for the next poll */
        DONE(got);
        if (got == 1 && count++ == 0) {
            first = events[0];
            if (first.tag != 3 || first.len != 5000 || memcmp(first.data, much, 5000) != 0)
                printf("datagram of %zu bytes, tag %u\n", first.len, first.tag), faults++;
            DONE(wp_hold(peer, &first, &buffer));
        }
    }
    if (count != 2 || events[0].len != 5 || memcmp(first.data, much, 5000) != 0)
        printf("%d datagrams, the last of %zu bytes\n", count, events[0].len), faults++;
    REFUSED(wp_hold(peer, &first, &buffer), WP_E_STALE, "");
    REFUSED(wp_hold(peer, NULL, &buffer), WP_E_ARGUMENT, "the event is null");
    REFUSED(wp_release(stack, buffer), WP_E_STALE, "");
    DONE(wp_release(peer, buffer));
    REFUSED(wp_release(peer, buffer), WP_E_STALE, "");
    DONE(wp_udp_close(stack, flow));
    REFUSED(wp_udp_send(stack, flow, &byte, 1, 0), WP_E_STALE, "");

    /* Connections. */
    conn.id = 77;
    REFUSED(wp_tcp_connect(stack, NULL, &far_end, NULL, 0, &conn), WP_E_STATE, "wp_options.connections");
    REFUSED(wp_tcp_send(peer, conn, &byte, 1, 0), WP_E_STALE, "");
    REFUSED(wp_tcp_close(peer, conn), WP_E_STALE, "");
    REFUSED(wp_tcp_abort(peer, conn), WP_E_STALE, "");
    REFUSED(wp_tcp_pause(peer, conn), WP_E_STALE, "");
    REFUSED(wp_order_prepare(peer, conn, &byte, 1, &order), WP_E_STALE, "");
    conn.id = 0;
    REFUSED(wp_tcp_send(peer, conn, &byte, 1, 0), WP_E_STALE, "");
    conn.id = UINT64_MAX;
    REFUSED(wp_tcp_shutdown(peer, conn), WP_E_STALE, "");
    REFUSED(wp_tcp_send(stack, conn, &byte, 1, 0), WP_E_STALE, "");
    wp_tcp_options tcp = WP_TCP_OPTIONS_INIT;
    tcp.ack_delay_ns = 400000000000;
    REFUSED(wp_tcp_connect(peer, NULL, &local, &tcp, 0, &conn), WP_E_ARGUMENT, "ack_delay");
    REFUSED(wp_tcp_listen(peer, &far_end, &tcp, 0, &sub), WP_E_ARGUMENT, "ack_delay");
    no_port = local;
    no_port.sin_port = 0;
    REFUSED(wp_tcp_connect(peer, NULL, &no_port, NULL, 0, &conn), WP_E_ARGUMENT, "");
    DONE(wp_tcp_connect(peer, NULL, &local, NULL, 9, &conn));
    REFUSED(wp_tcp_send(peer, conn, &byte, 1, 0), WP_E_STATE, "");
    REFUSED(wp_order_prepare(peer, conn, &byte, 1, &order), WP_E_STATE, "");
    DONE(wp_tcp_abort(peer, conn));
    int closed = 0;
    for (turns = 0; turns < 10; turns++) {
        count = wp_poll(peer, events, 8);
        for (int i = 0; i < count; i++)
            closed += events[i].type == WP_EVENT_CLOSED && events[i].conn.id == conn.id && events[i].tag == 9 &&
                      events[i].reason == WP_CLOSED_ABORTED;
    }
    if (closed != 1)
        printf("%d ends of a connection\n", closed), faults++;
    REFUSED(wp_tcp_abort(peer, conn), WP_E_STALE, "");

    /* Pointers that no program has, and some that are not aligned. */
    REFUSED(wp_poll(peer, (wp_event *)8, 1), WP_E_ARGUMENT, "the array of events is 0x8, which is no address");
    REFUSED(wp_poll(peer, (wp_event *)0xdeadbeefdeadbeef, 1), WP_E_ARGUMENT, "which is no address");
    REFUSED(wp_udp_send_to(peer, &far_end, &local, (char *)4095, 1, 0), WP_E_ARGUMENT, "data is 0xfff");
    REFUSED(wp_udp_bind(peer, (struct sockaddr_in *)16, 0, &sub), WP_E_ARGUMENT, "an address is 0x10");
    REFUSED(wp_counter(peer, (char *)UINTPTR_MAX, &value), WP_E_ARGUMENT, "the name of the counter is");
    REFUSED(wp_tcp_connect(peer, NULL, &local, (wp_tcp_options *)24, 0, &conn), WP_E_ARGUMENT, "a structure of options");
    static char odd[1 + sizeof(wp_event) * 2];
    DONE(wp_poll(peer, (wp_event *)(odd + 1), 2));
    memcpy(odd + 1, &far_end, sizeof far_end);
    DONE(wp_udp_connect(peer, (struct sockaddr_in *)(odd + 1), &local, NULL, &flow));
    DONE(wp_udp_close(peer, flow));

    /* Timers, counters. */
    DONE(wp_after(peer, 1000000000, 1, &timer));
    REFUSED(wp_cancel(stack, timer), WP_E_STALE, "");
    DONE(wp_cancel(peer, timer));
    REFUSED(wp_cancel(peer, timer), WP_E_STALE, "");
    REFUSED(wp_counter(peer, "no/such", &value), WP_E_NAME, "no/such");
    REFUSED(wp_counter(peer, NULL, &value), WP_E_ARGUMENT, "the name of the counter is null");
    REFUSED(wp_counter(peer, "worker0/frames", NULL), WP_E_ARGUMENT, "the place");
    DONE(wp_counter(peer, "worker0/frames", &value));
    int timers = 0;
    while (wp_after(peer, 1000000000, 1, &timer) == 0)
        timers++;
    REFUSED(wp_after(peer, 1000000000, 1, &timer), WP_E_LIMIT, "1024");

    lines_without_room();
    DONE(wp_close(stack));
    DONE(wp_close(peer));
    each_call(peer, WP_E_STALE, WP_E_STALE);
    if (faults == 0)
        printf("all refused, %d timers\n", timers);
    return faults != 0;
}
