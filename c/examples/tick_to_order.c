/* A tick over UDP fires an order over TCP: `tick_to_order eth1 10.0.0.1 9100`. The order stands
 * prepared; only its price is written in. A tick is eight digits, the price; one of 100 or more is
 * not bought.
 *
 * Without arguments the gateway and the exchange are the other end of a wire of plain memory. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <wirepath.h>

#define ORDER "BUY 100 WIRE @ 00000000 IOC ACCOUNT 7\n"
#define PRICE_AT 15
#define LOCAL_PORT 40000 /* ours: other connections stay with the kernel */

static void must(int64_t result, const char *what)
{
    if (result < 0) {
        fprintf(stderr, "%s: %s\n", what, wp_last_error());
        exit(1);
    }
}

/* The other end of the memory wire: sends a hundred ticks, of which half are bought, and counts
 * orders. */

#define TICKS 100

static wp_stack far_end;
static wp_flow far_ticks;
static int far_sent, far_orders;

static void open_far_end(void)
{
    wp_options options = WP_OPTIONS_INIT;
    struct sockaddr_in from = wp_ipv4(192, 0, 2, 1, 40000), group = wp_ipv4(239, 1, 1, 1, 9000);
    struct sockaddr_in gateway = wp_ipv4(192, 0, 2, 1, 9100);
    wp_sub sub;
    options.address = "192.0.2.1/24";
    options.connections = 16;
    must(wp_open("memory:tick", &options, &far_end), "wp_open");
    must(wp_tcp_listen(far_end, &gateway, NULL, 0, &sub), "wp_tcp_listen");
    must(wp_udp_connect(far_end, &from, &group, NULL, &far_ticks), "wp_udp_connect");
}

static void poll_far_end(int is_open)
{
    wp_event events[32];
    if (is_open && far_sent < TICKS) {
        char tick[16];
        snprintf(tick, sizeof tick, "%08d", 90 + far_sent++ % 20);
        must(wp_udp_send(far_end, far_ticks, tick, 8, 0), "wp_udp_send");
    }
    int count = wp_poll(far_end, events, 32);
    must(count, "wp_poll");
    for (int i = 0; i < count; i++) {
        if (events[i].type != WP_EVENT_DATA)
            continue;
        for (size_t at = 0; at < events[i].len; at++)
            far_orders += events[i].data[at] == '\n';
    }
}

/* The trader. */

int main(int argc, char **argv)
{
    int is_live = argc == 4;
    wp_options options = WP_OPTIONS_INIT;
    struct sockaddr_in group = wp_ipv4(239, 1, 1, 1, 9000);
    struct sockaddr_in local = wp_ipv4(0, 0, 0, 0, LOCAL_PORT);
    struct sockaddr_in gateway = wp_ipv4(192, 0, 2, 1, 9100);
    wp_stack stack;
    wp_sub sub;
    wp_conn session;
    wp_order order = {0};
    int fired = 0, is_over = 0;

    options.connections = 16;
    if (is_live) {
        options.flags = WP_LOG | WP_ACCEPT_CHECKSUMS;
        if (inet_pton(AF_INET, argv[2], &gateway.sin_addr) != 1)
            return fprintf(stderr, "%s is no address\n", argv[2]), 2;
        gateway.sin_port = htons((uint16_t)atoi(argv[3]));
    } else {
        options.address = "192.0.2.2/24";
    }
    must(wp_open(is_live ? argv[1] : "memory:tick", &options, &stack), "wp_open");
    must(wp_udp_join(stack, &group, NULL, 0, 0, &sub), "wp_udp_join");
    if (!is_live)
        open_far_end();
    must(wp_tcp_connect(stack, &local, &gateway, NULL, 0, &session), "wp_tcp_connect");

    while (!is_over) {
        wp_event events[32];
        int count = wp_poll(stack, events, 32);
        must(count, "wp_poll");
        for (int i = 0; i < count; i++) {
            const wp_event *event = &events[i];
            int sent;
            switch (event->type) {
            case WP_EVENT_DATAGRAM:
                if (order.id == 0 || event->len < 8 || memcmp(event->data, "00000100", 8) >= 0)
                    break;
                must(wp_order_patch(stack, order, PRICE_AT, event->data, 8), "wp_order_patch");
                sent = wp_order_fire(stack, order, 0);
                if (sent < 0)
                    printf("no order was sent: %s\n", wp_last_error());
                fired += sent == WP_SENT;
                break;
            case WP_EVENT_CONNECTED:
                must(wp_order_prepare(stack, session, ORDER, strlen(ORDER), &order), "wp_order_prepare");
                printf("connected, and the order stands ready\n");
                fflush(stdout);
                break;
            case WP_EVENT_PEER_CLOSED:
                must(wp_tcp_close(stack, event->conn), "wp_tcp_close");
                break;
            case WP_EVENT_CLOSED:
                printf("the gateway is gone: %s\n", wp_closed_reason(event->reason));
                is_over = 1;
                break;
            }
        }
        if (!is_live) {
            poll_far_end(order.id != 0);
            is_over = is_over || (far_sent == TICKS && far_orders == TICKS / 2);
        }
    }
    printf("%d orders fired\n", fired);
    must(wp_close(stack), "wp_close");
    if (!is_live)
        must(wp_close(far_end), "wp_close");
    return is_live || (fired == TICKS / 2 && far_orders == TICKS / 2) ? 0 : 1;
}
