/* Every misuse that the library can see is refused with its code, a sentence, and no effect. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static void *another_thread(void *stack)
{
    wp_event events[1];
    REFUSED(wp_poll(*(wp_stack *)stack, events, 1), WP_E_THREAD, "thread");
    REFUSED(wp_close(*(wp_stack *)stack), WP_E_THREAD, "thread");
    /* A stack that is left open goes with its thread. */
    wp_options options = WP_OPTIONS_INIT;
    wp_stack mine;
    options.address = "192.0.2.3/24";
    DONE(wp_open("memory:other", &options, &mine));
    DONE(wp_poll(mine, events, 1));
    return NULL;
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
    struct sockaddr_in group = wp_ipv4(239, 1, 1, 1, 9000), broken = local;
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
    REFUSED(wp_poll(none, events, 8), WP_E_STALE, "");
    REFUSED(wp_poll(forged, events, 8), WP_E_THREAD, "");
    forged.id = stack.id + 1;
    forged.id += 16;
    REFUSED(wp_poll(forged, events, 8), WP_E_STALE, "");
    REFUSED(wp_poll(stack, NULL, 8), WP_E_ARGUMENT, "the array of events is null");
    REFUSED(wp_poll(stack, events, -1), WP_E_ARGUMENT, "fewer than no events");
    DONE(wp_poll(stack, NULL, 0));
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
    REFUSED(wp_udp_join(stack, &group, NULL, 1, 0, &sub), WP_E_ARGUMENT, "the array of addresses is null");
    REFUSED(wp_udp_bind(stack, &local, 0, NULL), WP_E_ARGUMENT, "the place for the result is null");
    DONE(wp_udp_bind(stack, &local, 0, &sub)); /* the refused calls have bound nothing */
    REFUSED(wp_udp_bind(stack, &local, 0, &other), WP_E_REFUSED, "already");
    REFUSED(wp_udp_bind(stack, &local, 1, &other), WP_E_REFUSED, "192.0.2.1:5000");
    DONE(wp_unsubscribe(stack, sub));
    REFUSED(wp_unsubscribe(stack, sub), WP_E_STALE, "");
    REFUSED(wp_tcp_listen(stack, &local, NULL, 0, &sub), WP_E_REFUSED, "TCP");
    DONE(wp_udp_bind(peer, &far_end, 3, &sub));

    /* Datagrams. */
    REFUSED(wp_udp_connect(stack, &local, NULL, NULL, &flow), WP_E_ARGUMENT, "an address is null");
    REFUSED(wp_udp_connect(stack, &local, &local, NULL, &flow), WP_E_UNREACHABLE, "192.0.2.1");
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
    REFUSED(wp_tcp_connect(peer, NULL, &local, &tcp, 0, &conn), WP_E_REFUSED, "ack_delay");
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

    DONE(wp_close(stack));
    DONE(wp_close(peer));
    REFUSED(wp_poll(peer, events, 8), WP_E_STALE, "");
    if (faults == 0)
        printf("all refused, %d timers\n", timers);
    return faults != 0;
}
