/* What calls promise, over a wire of plain memory: events in order whatever the array's size, bytes that are
 * held, calls between the events of a poll, subscriptions that come and go, times of departure, statistics. */
#define _POSIX_C_SOURCE 199309L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <wirepath.h>

static wp_stack near_end, far_end;
static wp_event events[64];

#define MUST(fact) must(fact, #fact, __LINE__)

static void must(int is_fact, const char *fact, int line)
{
    if (is_fact)
        return;
    printf("line %d: not %s; the last error: %s\n", line, fact, wp_last_error());
    exit(1);
}

/* The next event of a type. Both ends make turns meanwhile; other events are dropped. */
static wp_event next(wp_stack stack, uint32_t type)
{
    for (int turn = 0; turn < 1000; turn++) {
        wp_stack other = stack.id == near_end.id ? far_end : near_end;
        wp_event drained[64];
        int count = wp_poll(stack, events, 1);
        MUST(count >= 0);
        if (count == 1 && events[0].type == type)
            return events[0];
        if (count == 0)
            MUST(wp_poll(other, drained, 64) >= 0);
    }
    printf("no event of type %u\n", type);
    exit(1);
}

static void open_both(void)
{
    wp_options options = WP_OPTIONS_INIT;
    options.flags = WP_TIMESTAMPS;
    options.connections = 8;
    options.held = 64;
    options.address = "192.0.2.1/24";
    MUST(wp_open("memory:events", &options, &near_end) == 0);
    options.address = "192.0.2.2/24";
    MUST(wp_open("memory:events", &options, &far_end) == 0);
}

static long long clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* A caller that was busy since its last poll. */
static void timer_is_not_early(void)
{
    const long long delay = 20000000;
    long long began;
    wp_timer timer;
    MUST(wp_poll(near_end, events, 64) >= 0);
    for (began = clock_ns(); clock_ns() - began < 2 * delay;)
        continue;
    began = clock_ns();
    MUST(wp_after(near_end, (uint64_t)delay, 5, &timer) == 0);
    for (;;) {
        int count = wp_poll(near_end, events, 1);
        MUST(count >= 0);
        if (count == 1 && events[0].type == WP_EVENT_TIMER)
            break;
    }
    MUST(clock_ns() - began >= delay);
}

/* Sends datagrams with a number each. */
static void send_numbers(wp_flow flow, int first, int count)
{
    for (int i = first; i < first + count; i++) {
        char text[16];
        int len = snprintf(text, sizeof text, "%d", i);
        MUST(wp_udp_send(near_end, flow, text, (size_t)len, WP_MORE) == WP_SENT);
    }
    MUST(wp_flush(near_end) == 0);
}

static int number(const uint8_t *data, size_t len)
{
    int value = 0;
    for (size_t at = 0; at < len; at++)
        value = 10 * value + (data[at] - '0');
    return value;
}

/* Events of one turn in arrays of every size, 0 among them, are all there and in order; bytes are valid until
 * the next poll, and those that are held for longer. */
static void arrays(wp_flow flow)
{
    wp_buffer held[20];
    wp_event kept[20];
    for (int size = 1; size <= 24; size++) {
        int seen = 0;
        send_numbers(flow, 0, 20);
        MUST(wp_poll(far_end, NULL, 0) == 0); /* the turn */
        while (seen < 20) {
            int count = wp_poll(far_end, events, size);
            MUST(count > 0 && count <= size);
            for (int i = 0; i < count; i++, seen++) {
                MUST(events[i].type == WP_EVENT_DATAGRAM && events[i].tag == 5);
                MUST(number(events[i].data, events[i].len) == seen);
                MUST(wp_hold(far_end, &events[i], &held[seen]) == 0);
                kept[seen] = events[i];
            }
        }
        for (int i = 0; i < 20; i++) {
            MUST(number(kept[i].data, kept[i].len) == i);
            MUST(wp_release(far_end, held[i]) == 0);
        }
    }
    send_numbers(flow, 7, 3);
    MUST(wp_poll(far_end, events, 64) == 3); /* in the turn itself */
    MUST(number(events[2].data, events[2].len) == 9);
}

/* Calls between the events of a poll act at once; a poll ends the validity of the bytes of the last one. */
static void calls_between_events(wp_flow flow)
{
    wp_event outer[8], inner[8];
    wp_buffer buffer;
    struct sockaddr_in back = wp_ipv4(192, 0, 2, 1, 6000), here = wp_ipv4(192, 0, 2, 2, 6000);
    wp_sub sub;
    wp_timer timer;
    send_numbers(flow, 1, 2);
    MUST(wp_poll(far_end, outer, 8) == 2);
    MUST(wp_udp_send_to(far_end, &here, &back, "answer", 6, 0) >= 0);
    MUST(wp_after(far_end, 1000000000, 1, &timer) == 0 && wp_cancel(far_end, timer) == 0);
    MUST(wp_udp_bind(far_end, &here, 6, &sub) == 0 && wp_unsubscribe(far_end, sub) == 0);
    MUST(number(outer[1].data, outer[1].len) == 2);
    MUST(wp_hold(far_end, &outer[1], &buffer) == 0);
    MUST(wp_poll(far_end, inner, 8) == 0);
    MUST(wp_hold(far_end, &outer[0], &buffer) == WP_E_STALE);
    MUST(number(outer[1].data, outer[1].len) == 2);
    MUST(wp_release(far_end, buffer) == 0 && wp_release(far_end, buffer) == WP_E_STALE);
}

/* Groups are joined and left while frames come. */
static void groups(void)
{
    struct sockaddr_in local = wp_ipv4(192, 0, 2, 1, 7000), group = wp_ipv4(239, 1, 1, 1, 9000);
    struct sockaddr_in stranger = wp_ipv4(192, 0, 2, 77, 0);
    wp_flow flow;
    wp_sub all, some;
    MUST(wp_udp_connect(near_end, &local, &group, NULL, &flow) == 0);
    for (int round = 0; round < 3; round++) {
        MUST(wp_udp_join(far_end, &group, NULL, 0, 11, &all) == 0);
        MUST(wp_udp_send(near_end, flow, "1", 1, 0) == WP_SENT);
        MUST(wp_poll(far_end, events, 64) == 1 && events[0].tag == 11);
        MUST(events[0].destination.sin_addr.s_addr == group.sin_addr.s_addr);
        MUST(wp_unsubscribe(far_end, all) == 0);
        MUST(wp_udp_send(near_end, flow, "2", 1, 0) == WP_SENT);
        MUST(wp_poll(far_end, events, 64) == 0);
        MUST(wp_udp_join(far_end, &group, &stranger, 1, 12, &some) == 0);
        MUST(wp_udp_send(near_end, flow, "3", 1, 0) == WP_SENT);
        MUST(wp_poll(far_end, events, 64) == 0);
        MUST(wp_unsubscribe(far_end, some) == 0);
    }
    MUST(wp_udp_close(near_end, flow) == 0);
}

static uint64_t stat_of(const wp_stat *stats, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (strcmp(stats[i].name, name) == 0)
            return stats[i].value;
    printf("no counter %s\n", name);
    exit(1);
}

static void statistics(void)
{
    uint64_t value;
    int count = wp_stats(far_end, NULL, 0), some;
    MUST(count > 20);
    wp_stat *stats = calloc((size_t)count, sizeof *stats);
    MUST(stats != NULL && wp_stats(far_end, stats, count) == count);
    MUST(wp_counter(far_end, "worker0/frames", &value) == 0 && value > 0);
    MUST(stat_of(stats, count, "worker0/frames") == value);
    memset(stats, 0xee, (size_t)count * sizeof *stats);
    some = wp_stats(far_end, stats, 3);
    MUST(some == count && stats[2].kind <= WP_STAT_GAUGE && (stats[3].name[0] & 0xff) == 0xee);
    free(stats);
}

/* Lengths at their ends, on a connection whose handshake is done. */
static void lengths(wp_conn conn)
{
    wp_order order;
    char byte = 'x';
    MUST(wp_tcp_send(near_end, conn, NULL, 0, 0) == 0 && wp_tcp_send(near_end, conn, &byte, 0, 0) == 0);
    MUST(wp_tcp_send(near_end, conn, &byte, SIZE_MAX, 0) == WP_E_TOO_LONG);
    MUST(wp_order_prepare(near_end, conn, NULL, 0, &order) == WP_E_ARGUMENT);
    MUST(wp_order_prepare(near_end, conn, &byte, SIZE_MAX, &order) == WP_E_TOO_LONG);
    MUST(wp_order_prepare(near_end, conn, "price 0", 7, &order) == 0);
    MUST(wp_order_patch(near_end, order, 6, "1", 1) == 0);
    MUST(wp_order_patch(near_end, order, 7, NULL, 0) == 0);
    MUST(wp_order_patch(near_end, order, 7, "1", 1) == WP_E_ARGUMENT);
    MUST(wp_order_patch(near_end, order, SIZE_MAX, "1", 1) == WP_E_ARGUMENT);
    MUST(wp_order_patch(near_end, order, 0, "1", SIZE_MAX) == WP_E_TOO_LONG);
    MUST(wp_order_warm(near_end, order) == 1);
    MUST(wp_order_free(near_end, order) == 0 && wp_order_free(near_end, order) == WP_E_STALE);
    MUST(wp_order_fire(near_end, order, 0) == WP_E_STALE);
}

/* A connection from its start to its end, an order with the time at which it left. */
static void connection(wp_flow flow)
{
    struct sockaddr_in there = wp_ipv4(192, 0, 2, 2, 9100);
    wp_tcp_info info = WP_TCP_INFO_INIT;
    wp_conn conn, accepted;
    wp_order order;
    wp_sub listener;
    wp_event event;
    MUST(wp_tcp_listen(far_end, &there, NULL, 21, &listener) == 0);
    MUST(wp_tcp_connect(near_end, NULL, &there, NULL, 22, &conn) == 0);
    MUST(wp_tcp_get_info(near_end, conn, &info) == 0 && info.state == WP_TCP_SYN_SENT);
    event = next(near_end, WP_EVENT_CONNECTED);
    MUST(event.conn.id == conn.id && event.tag == 22 && event.source.sin_port == there.sin_port);
    event = next(far_end, WP_EVENT_ACCEPTED);
    accepted = event.conn;
    MUST(event.tag == 21);
    lengths(conn);

    MUST(wp_order_prepare(near_end, conn, "price 0", 7, &order) == 0);
    MUST(wp_order_patch(near_end, order, 6, "9", 1) == 0);
    MUST(wp_stamp(near_end, 77) == 0);
    MUST(wp_order_fire(near_end, order, WP_NOW_OR_NEVER) == WP_SENT);
    event = next(far_end, WP_EVENT_DATA);
    MUST(event.conn.id == accepted.id && event.len == 7 && memcmp(event.data, "price 9", 7) == 0);
    event = next(near_end, WP_EVENT_SENT);
    MUST(event.token == 77 && event.timestamp_ns > 0);
    MUST(wp_order_fire(near_end, order, 0) == WP_SENT); /* is not stamped: one wp_stamp, one call */
    next(far_end, WP_EVENT_DATA);

    MUST(wp_stamp(near_end, 78) == 0 && wp_stamp(near_end, 79) == 0); /* the last one counts */
    static char too_long[70000]; /* a refused call leaves the request for the next one */
    MUST(wp_udp_send(near_end, flow, too_long, sizeof too_long, 0) == WP_E_TOO_LONG);
    MUST(wp_udp_send(near_end, flow, "x", 1, 0) == WP_SENT);
    MUST(wp_time_to_next(near_end) == 0); /* its time is there */
    event = next(near_end, WP_EVENT_SENT);
    MUST(event.token == 79);

    while (wp_poll(far_end, events, 64) > 0) /* the datagram */
        continue;
    MUST(wp_tcp_pause(far_end, accepted) == 0);
    MUST(wp_tcp_send(near_end, conn, "later", 5, 0) == 5);
    MUST(wp_poll(far_end, events, 64) == 0);
    MUST(wp_tcp_resume(far_end, accepted) == 0);
    event = next(far_end, WP_EVENT_DATA);
    MUST(event.len == 5 && memcmp(event.data, "later", 5) == 0);

    info.size = 8; /* an older caller's */
    info.rto_ns = 1;
    MUST(wp_tcp_get_info(near_end, conn, &info) == 0 && info.state == WP_TCP_ESTABLISHED && info.rto_ns == 1);
    info.size = sizeof info;
    MUST(wp_tcp_get_info(near_end, conn, &info) == 0 && info.size == sizeof info);
    MUST(info.bytes_sent == 19 && info.mss > 500 && info.rto_ns > 0 && info.receive_window > 0);

    MUST(wp_unsubscribe(far_end, listener) == 0); /* the connection stays */
    MUST(wp_tcp_shutdown(near_end, conn) == 0 && wp_tcp_send(near_end, conn, "x", 1, 0) == WP_E_STATE);
    event = next(far_end, WP_EVENT_PEER_CLOSED);
    MUST(wp_tcp_close(far_end, event.conn) == 0);
    event = next(far_end, WP_EVENT_CLOSED);
    MUST(event.reason == WP_CLOSED_FINISHED && strlen(wp_closed_reason(event.reason)) > 5);
    MUST(wp_tcp_close(far_end, accepted) == WP_E_STALE && wp_tcp_get_info(far_end, accepted, &info) == WP_E_STALE);
    MUST(wp_order_free(near_end, order) == 0);
}

int main(void)
{
    struct sockaddr_in local = wp_ipv4(192, 0, 2, 1, 5000), remote = wp_ipv4(192, 0, 2, 2, 5000);
    wp_flow flow;
    wp_sub sub;
    open_both();
    MUST(wp_udp_bind(far_end, &remote, 5, &sub) == 0);
    MUST(wp_udp_connect(near_end, &local, &remote, NULL, &flow) == 0);
    MUST(wp_udp_send(near_end, flow, "first", 5, 0) == WP_QUEUED); /* waits for ARP */
    MUST(next(far_end, WP_EVENT_DATAGRAM).len == 5);
    arrays(flow);
    calls_between_events(flow);
    groups();
    timer_is_not_early();
    connection(flow);
    statistics();
    MUST(wp_close(near_end) == 0 && wp_close(far_end) == 0);
    printf("as promised\n");
    return 0;
}
