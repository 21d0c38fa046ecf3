/* Prints the sizes of the structures, the places of their members, and the constants, as this
 * compiler has them. A test compares the lines with the library. */
#include <stddef.h>
#include <stdio.h>

#include <wirepath.h>

#define SIZE(type) printf(#type " %zu\n", sizeof(type))
#define PLACE(type, member) printf(#type "." #member " %zu\n", offsetof(type, member))

int main(void)
{
    SIZE(wp_conn);
    SIZE(wp_options);
    PLACE(wp_options, flags);
    PLACE(wp_options, name);
    PLACE(wp_options, address);
    PLACE(wp_options, gateway);
    PLACE(wp_options, connections);
    PLACE(wp_options, held);
    SIZE(wp_udp_options);
    PLACE(wp_udp_options, ttl);
    PLACE(wp_udp_options, tos);
    SIZE(wp_tcp_options);
    PLACE(wp_tcp_options, ack_delay_ns);
    PLACE(wp_tcp_options, user_timeout_ns);
    PLACE(wp_tcp_options, rto_min_ns);
    PLACE(wp_tcp_options, pacing_rate);
    PLACE(wp_tcp_options, send_buffer);
    PLACE(wp_tcp_options, receive_buffer);
    SIZE(wp_tcp_info);
    PLACE(wp_tcp_info, state);
    PLACE(wp_tcp_info, rto_ns);
    PLACE(wp_tcp_info, srtt_ns);
    PLACE(wp_tcp_info, rttvar_ns);
    PLACE(wp_tcp_info, rtt_min_ns);
    PLACE(wp_tcp_info, silence_ns);
    PLACE(wp_tcp_info, bytes_sent);
    PLACE(wp_tcp_info, bytes_acked);
    PLACE(wp_tcp_info, bytes_received);
    PLACE(wp_tcp_info, segments_out);
    PLACE(wp_tcp_info, segments_in);
    PLACE(wp_tcp_info, mss);
    PLACE(wp_tcp_info, cwnd);
    PLACE(wp_tcp_info, send_window);
    PLACE(wp_tcp_info, receive_window);
    PLACE(wp_tcp_info, unacked);
    PLACE(wp_tcp_info, unsent);
    PLACE(wp_tcp_info, unread);
    PLACE(wp_tcp_info, resent);
    PLACE(wp_tcp_info, timeouts);
    PLACE(wp_tcp_info, reserved);
    SIZE(wp_stat);
    PLACE(wp_stat, name);
    PLACE(wp_stat, kind);
    PLACE(wp_stat, value);
    SIZE(wp_event);
    PLACE(wp_event, type);
    PLACE(wp_event, tag);
    PLACE(wp_event, conn);
    PLACE(wp_event, data);
    PLACE(wp_event, len);
    PLACE(wp_event, chunk);
    PLACE(wp_event, timestamp_ns);
    PLACE(wp_event, token);
    PLACE(wp_event, source);
    PLACE(wp_event, destination);
    PLACE(wp_event, reason);
    PLACE(wp_event, ttl);
    PLACE(wp_event, tos);
    PLACE(wp_event, vlan);
    return 0;
}
