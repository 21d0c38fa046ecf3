/* Receives a group and prints what came: `feed_receiver eth1 239.1.1.1 9000`.
 *
 * Without arguments it plays both ends of a wire of plain memory: for a look, and for tests. Every
 * hundredth packet is kept by wp_hold while later ones arrive, without a copy. */
#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <wirepath.h>

#define PACKETS 1000 /* of the memory wire */

static void must(int64_t result, const char *what)
{
    if (result < 0) {
        fprintf(stderr, "%s: %s\n", what, wp_last_error());
        exit(1);
    }
}

/* The other end of the memory wire: a publisher. */
static void publish(wp_stack exchange, wp_flow feed, uint64_t number)
{
    char packet[64];
    int len = snprintf(packet, sizeof packet, "%08" PRIu64 " price 101.25", number);
    must(wp_udp_send(exchange, feed, packet, (size_t)len, 0), "wp_udp_send");
    must(wp_poll(exchange, NULL, 0), "wp_poll");
}

int main(int argc, char **argv)
{
    int is_live = argc == 4;
    struct sockaddr_in group = wp_ipv4(239, 1, 1, 1, 9000);
    wp_options options = WP_OPTIONS_INIT;
    wp_stack stack, exchange = {0};
    wp_flow feed = {0};
    wp_sub sub;

    options.held = 64;
    if (is_live) {
        options.flags = WP_LOG | WP_ACCEPT_CHECKSUMS;
        if (inet_pton(AF_INET, argv[2], &group.sin_addr) != 1)
            return fprintf(stderr, "%s is no group\n", argv[2]), 2;
        group.sin_port = htons((uint16_t)atoi(argv[3]));
    } else {
        options.address = "192.0.2.2/24";
    }
    must(wp_open(is_live ? argv[1] : "memory:feed", &options, &stack), "wp_open");
    must(wp_udp_join(stack, &group, NULL, 0, 7, &sub), "wp_udp_join");
    if (!is_live) {
        struct sockaddr_in from = wp_ipv4(192, 0, 2, 1, 40000);
        options.address = "192.0.2.1/24";
        must(wp_open("memory:feed", &options, &exchange), "wp_open");
        must(wp_udp_connect(exchange, &from, &group, NULL, &feed), "wp_udp_connect");
    }

    uint64_t packets = 0, bytes = 0, frames = 0;
    wp_buffer kept = {0};
    const uint8_t *kept_data = NULL;
    size_t kept_len = 0;
    wp_event events[32];
    while (is_live || packets < PACKETS) {
        if (!is_live)
            publish(exchange, feed, packets);
        int count = wp_poll(stack, events, 32);
        must(count, "wp_poll");
        for (int i = 0; i < count; i++) {
            if (events[i].type != WP_EVENT_DATAGRAM || events[i].tag != 7)
                continue;
            packets++;
            bytes += events[i].len;
            if (packets % 100 == 0) {
                if (kept.id != 0)
                    must(wp_release(stack, kept), "wp_release");
                must(wp_hold(stack, &events[i], &kept), "wp_hold");
                kept_data = events[i].data;
                kept_len = events[i].len;
                printf("packet %" PRIu64 ": %.*s\n", packets, (int)kept_len, (const char *)kept_data);
                fflush(stdout);
            }
        }
    }
    printf("%" PRIu64 " packets, %" PRIu64 " bytes, kept: %.*s\n", packets, bytes, (int)kept_len,
           (const char *)kept_data);
    must(wp_counter(stack, "worker0/frames", &frames), "wp_counter");
    must(wp_release(stack, kept), "wp_release");
    must(wp_unsubscribe(stack, sub), "wp_unsubscribe");
    must(wp_udp_close(exchange, feed), "wp_udp_close");
    must(wp_close(exchange), "wp_close");
    must(wp_close(stack), "wp_close");
    return frames >= PACKETS ? 0 : 1;
}
