/* wirepath for C: UDP and TCP past the kernel, in a loop of your own.
 *
 *     wp_stack stack;
 *     wp_sub sub;
 *     wp_event events[32];
 *     struct sockaddr_in group = wp_ipv4(239, 1, 1, 1, 9000);
 *
 *     if (wp_open("eth1", NULL, &stack) < 0 || wp_udp_join(stack, &group, NULL, 0, 1, &sub) < 0)
 *         return fprintf(stderr, "%s\n", wp_last_error()), 1;
 *     for (;;) {
 *         int count = wp_poll(stack, events, 32);
 *         for (int i = 0; i < count; i++)
 *             use(events[i].data, events[i].len);
 *     }
 *
 * A stack is one worker on the first queue of a device. It belongs to the thread that opened it,
 * starts no thread for frames, and calls none of your functions: wp_poll makes one turn and writes
 * its events into your array; every other call acts at once and does not wait.
 *
 * Results. A negative result is one of WP_E_..., and wp_last_error() has a sentence for it. A
 * handle is a number in a structure; zero names nothing. A handle that is stale, invented or of
 * another stack gives WP_E_STALE. A stack of another thread gives WP_E_THREAD, except to wp_release,
 * which any thread may call. A refused call has changed nothing, except where it says so.
 *
 * A child that is forked has none of its parent's stacks: their handles are stale there, and what
 * the child does and its end leave the parent's as they are. It may open its own.
 *
 * Your part, which no library can check: a pointer points to as much memory as the arguments say,
 * until the call returns. One that no program can have (null, the first page, the kernel's half) is
 * WP_E_ARGUMENT. It need not be aligned.
 *
 * Time is in nanoseconds, lengths in bytes, addresses and ports in network byte order
 * (sockaddr_in).
 *
 * Cost. "Hot" calls allocate nothing and make no system call of their own; the device may make one
 * for a doorbell (AF_XDP does, a ConnectX does not). docs/c.md has the instructions that a call and
 * an event add to the same in Rust.
 *
 * Standards: C99 or later, C++11 or later. Calls from a signal handler are not supported.
 */
#ifndef WIREPATH_H
#define WIREPATH_H

#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header; wp_version() returns that of the library. Before 1.0 their first two
 * numbers must be the same: the symbols have the version WIREPATH_0.1. */
#define WP_VERSION "0.1.0"

#define WP_API __attribute__((visibility("default")))

/* ---- Handles ---------------------------------------------------------------------------------- */

typedef struct wp_stack { uint64_t id; } wp_stack;   /* a worker with its port */
typedef struct wp_sub { uint64_t id; } wp_sub;       /* a binding, a membership, a listener */
typedef struct wp_flow { uint64_t id; } wp_flow;     /* prepared headers to one UDP destination */
typedef struct wp_conn { uint64_t id; } wp_conn;     /* a TCP connection */
typedef struct wp_order { uint64_t id; } wp_order;   /* a prepared segment of a connection */
typedef struct wp_buffer { uint64_t id; } wp_buffer; /* bytes that are held */
typedef struct wp_timer { uint64_t id; } wp_timer;   /* a timer that runs */

/* ---- Errors ----------------------------------------------------------------------------------- */

#define WP_E_ARGUMENT (-1)     /* null, out of range, an unknown flag, a structure of another version */
#define WP_E_STALE (-2)        /* the handle names nothing, or nothing any more */
#define WP_E_THREAD (-3)       /* the stack belongs to the thread that opened it */
#define WP_E_AGAIN (-4)        /* no room at the moment: poll, then call again */
#define WP_E_TOO_LONG (-5)     /* more bytes than this call may carry */
#define WP_E_UNREACHABLE (-6)  /* no route, no link, or no answer to ARP */
#define WP_E_REFUSED (-7)      /* the address or group is taken, not ours, or cannot be steered here */
#define WP_E_STATE (-8)        /* the connection is not in a state for this call, or there is no TCP */
#define WP_E_LIMIT (-9)        /* a table is full */
#define WP_E_OPEN (-10)        /* the port cannot be opened */
#define WP_E_NAME (-11)        /* there is no counter of this name */
#define WP_E_UNSUPPORTED (-12) /* the device cannot do that */
#define WP_E_ENDED (-13)       /* the device has ended: the capture is over, the interface is gone */
#define WP_E_BROKEN (-14)      /* the stack failed by a fault of its own: close it; your memory is intact */

/* The version of the library, "0.1.0". */
WP_API const char *wp_version(void);

/* A general sentence for a result; for a result that is no error, "no error". Static memory. */
WP_API const char *wp_strerror(int code);

/* The sentence of this thread's last refused call, with particulars: which address, which limit,
 * what to do. Valid until the next refused call of this thread; never null. */
WP_API const char *wp_last_error(void);

/* ---- Stacks ----------------------------------------------------------------------------------- */

/* Flags of wp_options. */
#define WP_LOG 1u              /* lines for the operator go to standard error; else there are none */
#define WP_ACCEPT_CHECKSUMS 2u /* accept checksums of the pseudo header only, as on a veth */
#define WP_TIMESTAMPS 4u       /* the device stamps frames: received ones (wp_event.timestamp_ns), and
                                  if it can, sent ones (wp_stamp). Without this flag a ConnectX stamps
                                  no frame; with it, one without a clock cannot be opened. Other devices
                                  stamp received frames in any case, AF_XDP if the driver does */

/* Options of a stack. Begin with WP_OPTIONS_INIT: it sets `size`, and zero is the default of all
 * other members. */
typedef struct wp_options {
    uint32_t size;        /* sizeof(wp_options) */
    uint32_t flags;       /* WP_LOG, WP_ACCEPT_CHECKSUMS, WP_TIMESTAMPS */
    const char *name;     /* for `wirepath stats`; null: the executable's */
    const char *address;  /* an address of the stack's own with its network, "10.0.0.2/24"; null: the
                             interface is shared with the kernel, and has the kernel's addresses, routes
                             and neighbors. A memory wire has no kernel and needs one. */
    const char *gateway;  /* of the default route, "10.0.0.1"; with `address` */
    uint32_t connections; /* TCP connections at the same time; 0: no TCP */
    uint32_t held;        /* buffers that wp_hold keeps at the same time; beyond, they are missing for receive */
} wp_options;
#define WP_OPTIONS_INIT { sizeof(wp_options), 0, NULL, NULL, NULL, 0, 0 }

/* Opens a port by its name, with one worker, on this thread: "eth1" (AF_XDP), "mlx5:eth1" or
 * "mlx5:0000:3b:00.0" (a ConnectX by its own queues), "pcap:day.pcap.gz", "memory:wire" (one end of
 * a wire within the process; the second open of the name is the other end). The stack receives the
 * frames of its subscriptions; the kernel keeps all others. `options` may be null. Maps the pool
 * and takes some 30 ms.
 *
 * WP_E_OPEN: no such interface, no privilege, another program on the queue, no memory; the sentence
 * says what to do next, and nothing is left on the interface. WP_E_ARGUMENT. WP_E_LIMIT: 255 stacks
 * a thread. */
WP_API int wp_open(const char *port, const wp_options *options, wp_stack *stack);

/* Closes a stack: resets open connections, removes rules and memberships, and invalidates held
 * bytes. All its handles are stale. Some milliseconds. A thread that ends closes its stacks. */
WP_API int wp_close(wp_stack stack);

/* ---- Events ----------------------------------------------------------------------------------- */

/* Types of events, and the members of wp_event that they set beside `type`. Others are zero. */
#define WP_EVENT_DATAGRAM 1u    /* tag, data, len, timestamp_ns, source, destination, ttl, tos, vlan */
#define WP_EVENT_DATA 2u        /* conn, tag, data, len, timestamp_ns: in order, each byte once */
#define WP_EVENT_CONNECTED 3u   /* conn, tag, source (the peer), destination (our end) */
#define WP_EVENT_ACCEPTED 4u    /* the same, of a connection to a listener, with the listener's tag */
#define WP_EVENT_WRITABLE 5u    /* conn, tag: a send was refused or cut short, and there is room again */
#define WP_EVENT_PEER_CLOSED 6u /* conn, tag: the peer sends no more; close when you are done */
#define WP_EVENT_CLOSED 7u      /* conn, tag, reason: the connection is gone and its handle stale */
#define WP_EVENT_NO_ROUTE 8u    /* conn, tag: the SYN waits for a path and leaves by itself */
#define WP_EVENT_TIMER 9u       /* token */
#define WP_EVENT_SENT 10u       /* token, timestamp_ns: a frame of wp_stamp left */

/* Reasons of WP_EVENT_CLOSED. */
#define WP_CLOSED_FINISHED 1    /* both sides sent all, and it was acknowledged */
#define WP_CLOSED_ABORTED 2     /* by wp_tcp_abort */
#define WP_CLOSED_RESET 3       /* by the peer */
#define WP_CLOSED_REFUSED 4     /* no program listens there */
#define WP_CLOSED_NO_ROUTE 5    /* no path when the SYN was given up */
#define WP_CLOSED_NO_ANSWER 6   /* the SYN was not answered */
#define WP_CLOSED_TIMED_OUT 7   /* the peer stopped acknowledging */
#define WP_CLOSED_KEEPALIVE 8   /* the peer answered no probe */
#define WP_CLOSED_UNREACHABLE 9 /* a router says so */
#define WP_CLOSED_NO_NEIGHBOR 10 /* no answer to ARP */
#define WP_CLOSED_OTHER 11

/* An event. 96 bytes on 64-bit machines. */
typedef struct wp_event {
    uint32_t type;         /* WP_EVENT_...; ignore those that you do not know */
    uint32_t tag;          /* of the subscription, or of the connection's wp_tcp_connect or listener */
    wp_conn conn;
    const uint8_t *data;   /* where the NIC put the bytes; until the next wp_poll, or wp_release */
    size_t len;
    uint64_t chunk;        /* for wp_hold */
    uint64_t timestamp_ns; /* arrival, or departure, by the NIC's clock since 1970; 0 where the device stamps none */
    uint64_t token;        /* of wp_after, or wp_stamp */
    struct sockaddr_in source;
    struct sockaddr_in destination;
    int32_t reason;        /* WP_CLOSED_... */
    uint8_t ttl;
    uint8_t tos;           /* DSCP in the upper six bits, ECN in the lower two */
    uint16_t vlan;         /* tag control information; 0 where untagged */
} wp_event;

/* Makes one turn: receives up to 32 frames, runs them through the stack, expires timers, and rings
 * one doorbell for what was sent meanwhile. Writes up to `max` events and returns their number. If
 * events of the last turn did not fit, returns those and makes no turn. With `max` 0 it makes a
 * turn and writes none, until 1,024 events wait: then it returns WP_E_AGAIN. The bytes of the last
 * call's events are no longer valid. Reads the clock once: calls until the next poll use this time,
 * unless wp_time_to_next, wp_wait or wp_after was called in between.
 *
 * WP_E_ENDED: the device has ended and no event is left. WP_E_ARGUMENT.
 * Hot: an idle turn some 20 ns, of which the clock is half. */
WP_API int wp_poll(wp_stack stack, wp_event *events, int max);

/* A sentence for `reason`. Static memory. */
WP_API const char *wp_closed_reason(int reason);

/* Keeps the bytes of an event of the last poll without a copy: `data` stays valid until wp_release.
 * The pool lacks the buffer meanwhile; wp_options.held adds room for it. Hot.
 *
 * WP_E_STALE: the event has no bytes, or is older than the last poll. */
WP_API int wp_hold(wp_stack stack, const wp_event *event, wp_buffer *buffer);

/* Returns a held buffer to the pool. Called on another thread than the stack's, it only asks for that:
 * the next wp_poll returns the buffer, and nobody learns that the handle was stale. Hot on the
 * stack's thread; on another it allocates, and takes a lock that wp_poll does not take.
 *
 * WP_E_STALE: no such stack, or on its thread no such buffer. */
WP_API int wp_release(wp_stack stack, wp_buffer buffer);

/* ---- Sleeping --------------------------------------------------------------------------------- */

/* A descriptor that is readable while frames wait, or changes of the kernel's tables do, for epoll,
 * poll or select. The stack owns it: do not read or close it. Level-triggered; wp_poll takes both.
 * Ask for it before the first wp_time_to_next: until then changes of the kernel's tables do not wake
 * it, and that returns 20 ms at most.
 *
 * WP_E_UNSUPPORTED: the device can only be polled (memory wires, captures). */
WP_API int wp_wait_fd(wp_stack stack);

/* Nanoseconds that you may sleep on the descriptor before wp_poll has work: 0 to poll at once,
 * INT64_MAX if only a frame or a call brings work. Call it just before the sleep, after a poll that
 * returned no event; round the timeout of epoll_wait up. Some 100 ns. */
WP_API int64_t wp_time_to_next(wp_stack stack);

/* Sleeps until a frame comes or a timer is due, for at most `timeout_ns` (negative: no limit), and
 * may return early. On a device without a descriptor it sleeps 50 us at a time. Call wp_poll next.
 * One system call. */
WP_API int wp_wait(wp_stack stack, int64_t timeout_ns);

/* The time of the last poll, since the stack was opened. Hot. */
WP_API int64_t wp_now(wp_stack stack);

/* ---- Subscriptions ---------------------------------------------------------------------------- *
 * A subscription steers frames to the stack instead of the kernel, until it is removed. System
 * calls, not hot: some milliseconds on an interface. Each event has the `tag`.
 *
 * All return WP_E_REFUSED: the address is not ours, is subscribed to already by this stack or by
 * another one of wirepath on the interface, or the NIC or the kernel refuses the rule.
 * WP_E_ARGUMENT: also port 0.
 *
 * The kernel's sockets are not asked: on an interface that is shared with the kernel, a port that a
 * program of the kernel has as well is the stack's while the subscription lives, and that program
 * gets what comes by other interfaces alone. Choose ports that nobody else has; to reserve one
 * against the kernel's programs, bind a socket of the kernel to it, and leave it unread. */

/* Datagrams to a local address; INADDR_ANY is all addresses that the interface had at wp_open. */
WP_API int wp_udp_bind(wp_stack stack, const struct sockaddr_in *local, uint32_t tag, wp_sub *sub);

/* Datagrams to a group, from `count` senders (their ports do not matter), or from any where it is
 * 0. */
WP_API int wp_udp_join(wp_stack stack, const struct sockaddr_in *group, const struct sockaddr_in *sources, size_t count,
                       uint32_t tag, wp_sub *sub);

typedef struct wp_tcp_options wp_tcp_options;

/* Listens at a local address: WP_EVENT_ACCEPTED for each connection. Connections inherit `options`,
 * which may be null. WP_E_REFUSED also where the stack was opened without TCP. */
WP_API int wp_tcp_listen(wp_stack stack, const struct sockaddr_in *local, const wp_tcp_options *options, uint32_t tag,
                         wp_sub *sub);

/* Removes a subscription. Accepted connections stay. WP_E_STALE. WP_E_REFUSED: the kernel or the NIC
 * did not give the rule back, which wp_close ends; the handle is stale all the same. Of a listener
 * on a shared interface also: there is no rule left for one of its connections; then the listener
 * stays, and a repeated call is not WP_E_STALE. */
WP_API int wp_unsubscribe(wp_stack stack, wp_sub sub);

/* ---- Sending ---------------------------------------------------------------------------------- */

/* A flag of all calls that send: more frames follow at once. The frame leaves with the next such
 * call without the flag, with wp_flush, or with the next poll, so several frames share one
 * doorbell. */
#define WP_MORE 1u

/* Results of calls that send. */
#define WP_SENT 0           /* the frame has left, or leaves with the next doorbell */
#define WP_QUEUED 1         /* it waits for a neighbor (UDP), or a window, room or earlier data (TCP) */
#define WP_WAITS_FOR_PATH 2 /* TCP: no path to the peer; sent once and in order when there is one */

/* Rings the doorbell for all waiting frames. Hot. */
WP_API int wp_flush(wp_stack stack);

/* Requests the times at which the frames of the next call that sends leave: WP_EVENT_SENT comes with
 * `token` for each frame, a few polls later. A refused call leaves the request for
 * the next one. Frames that leave after that call, because they waited for a neighbor or a window,
 * have none. Open the stack with WP_TIMESTAMPS. Hot: some 20 ns with the send.
 *
 * WP_E_UNSUPPORTED: opened without the flag, or the device cannot stamp sent frames (AF_XDP,
 * captures). */
WP_API int wp_stamp(wp_stack stack, uint64_t token);

/* ---- UDP -------------------------------------------------------------------------------------- */

#define WP_UDP_DONT_FRAGMENT 1u /* refuse what is longer than the MTU, by WP_E_TOO_LONG */
#define WP_UDP_NO_CHECKSUM 2u   /* send zero for the UDP checksum, which IPv4 allows */

typedef struct wp_udp_options {
    uint32_t size;  /* sizeof(wp_udp_options) */
    uint32_t flags; /* WP_UDP_... */
    uint8_t ttl;    /* 0: 1 for groups, 64 for hosts */
    uint8_t tos;
    uint8_t reserved[6]; /* zero */
} wp_udp_options;
#define WP_UDP_OPTIONS_INIT { sizeof(wp_udp_options), 0, 0, 0, { 0, 0, 0, 0, 0, 0 } }

/* Prepares the headers of datagrams to one destination. If `local` is null or INADDR_ANY, the route
 * determines the source address; its port is the source port. The headers follow changes of routes
 * and neighbors. `options` may be null. Not hot: once for each destination.
 *
 * WP_E_UNREACHABLE: no route, or the destination is this host. WP_E_LIMIT. WP_E_ARGUMENT. */
WP_API int wp_udp_connect(wp_stack stack, const struct sockaddr_in *local, const struct sockaddr_in *remote,
                          const wp_udp_options *options, wp_flow *flow);

/* Forgets a flow. WP_E_STALE. */
WP_API int wp_udp_close(wp_stack stack, wp_flow flow);

/* Sends a copy of up to 65,507 bytes as a datagram, in fragments if it is longer than the MTU. All
 * or nothing. Returns WP_SENT or WP_QUEUED.
 *
 * WP_E_AGAIN: the ring or the pool is empty. WP_E_TOO_LONG. WP_E_UNREACHABLE. WP_E_STALE.
 * Hot: some 30 ns for 64 bytes, and the device's doorbell unless WP_MORE. */
WP_API int wp_udp_send(wp_stack stack, wp_flow flow, const void *data, size_t len, uint32_t flags);

/* As wp_udp_send, without a flow: looks up the path each time, some 100 ns. Neither address may be
 * null. */
WP_API int wp_udp_send_to(wp_stack stack, const struct sockaddr_in *local, const struct sockaddr_in *remote,
                          const void *data, size_t len, uint32_t flags);

/* ---- TCP -------------------------------------------------------------------------------------- */

#define WP_TCP_NAGLE 1u     /* let small segments wait (else TCP_NODELAY) */
#define WP_TCP_QUICKACK 2u  /* acknowledge at the end of each turn */
#define WP_TCP_KEEPALIVE 4u /* probe a silent peer after 15 s, every 5 s, three times */

/* Options of a connection; zero is the default of every member but `size`. */
struct wp_tcp_options {
    uint32_t size;            /* sizeof(wp_tcp_options) */
    uint32_t flags;           /* WP_TCP_... */
    uint64_t ack_delay_ns;    /* 1 ms; at least that */
    uint64_t user_timeout_ns; /* how long data may stay unacknowledged; 0: until retransmissions run out */
    uint64_t rto_min_ns;      /* the least retransmission timeout, 200 ms; a private line allows less */
    uint64_t pacing_rate;     /* bytes a second at most; 0: no limit */
    uint32_t send_buffer;     /* bytes that may wait, 256 KiB */
    uint32_t receive_buffer;  /* the window, 256 KiB */
};
#define WP_TCP_OPTIONS_INIT { sizeof(wp_tcp_options), 0, 0, 0, 0, 0, 0, 0 }

/* Opens a connection: the SYN leaves before the call returns. WP_EVENT_CONNECTED or WP_EVENT_CLOSED
 * follows. If `local` is null, the route determines the address, and the port is any free one. An
 * interface that is shared with the kernel requires a local port: the peer's segments to it are
 * steered here until the connection has ended, TIME-WAIT included.
 *
 * WP_E_ARGUMENT: no local port there, an option out of range. WP_E_REFUSED: the stack has such a
 * connection, or one in TIME-WAIT; as above, the kernel's sockets are not asked. WP_E_UNREACHABLE. WP_E_LIMIT: wp_options.connections. WP_E_STATE: the stack was opened without
 * TCP. */
WP_API int wp_tcp_connect(wp_stack stack, const struct sockaddr_in *local, const struct sockaddr_in *remote,
                          const wp_tcp_options *options, uint32_t tag, wp_conn *conn);

/* Sends a copy of as many bytes from the front as there is room for, and returns their number.
 * WP_EVENT_WRITABLE comes when there is room for the rest. Without a path to the peer the bytes
 * wait.
 *
 * WP_E_AGAIN: no room at all. WP_E_STATE: the handshake is not done, or our side is closed.
 * WP_E_STALE.
 * Hot: some 40 ns for 64 bytes, and the device's doorbell unless WP_MORE. */
WP_API int64_t wp_tcp_send(wp_stack stack, wp_conn conn, const void *data, size_t len, uint32_t flags);

/* A connection at a moment, as TCP_INFO of Linux has it. Begin with WP_TCP_INFO_INIT. */
typedef struct wp_tcp_info {
    uint32_t size;           /* sizeof(wp_tcp_info) */
    uint32_t state;          /* WP_TCP_ESTABLISHED... */
    uint64_t rto_ns;         /* the retransmission timeout */
    uint64_t srtt_ns;        /* the smoothed round trip time; 0 before the first sample */
    uint64_t rttvar_ns;
    uint64_t rtt_min_ns;     /* the recent least */
    uint64_t silence_ns;     /* since a segment of the peer arrived */
    uint64_t bytes_sent;     /* for the first time */
    uint64_t bytes_acked;
    uint64_t bytes_received; /* in order */
    uint64_t segments_out;
    uint64_t segments_in;
    uint32_t mss;            /* the largest payload of our segments */
    uint32_t cwnd;           /* the congestion window, in bytes */
    uint32_t send_window;    /* the peer's, in bytes */
    uint32_t receive_window; /* ours, in bytes */
    uint32_t unacked;        /* bytes sent and not acknowledged */
    uint32_t unsent;         /* bytes that wait to be sent */
    uint32_t unread;         /* bytes that a paused connection keeps */
    uint32_t resent;         /* segments sent again */
    uint32_t timeouts;       /* retransmission timeouts */
    uint32_t reserved;       /* zero */
} wp_tcp_info;
#define WP_TCP_INFO_INIT \
    { sizeof(wp_tcp_info), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* States of a connection: the numbers of Linux's <netinet/tcp.h>. */
#define WP_TCP_ESTABLISHED 1
#define WP_TCP_SYN_SENT 2
#define WP_TCP_SYN_RECEIVED 3
#define WP_TCP_FIN_WAIT_1 4
#define WP_TCP_FIN_WAIT_2 5
#define WP_TCP_TIME_WAIT 6
#define WP_TCP_CLOSED 7
#define WP_TCP_CLOSE_WAIT 8
#define WP_TCP_LAST_ACK 9
#define WP_TCP_CLOSING 11

/* Reads the state of a connection. No system call. WP_E_STALE. WP_E_ARGUMENT: `info` is null, or of a
 * newer version. */
WP_API int wp_tcp_get_info(wp_stack stack, wp_conn conn, wp_tcp_info *info);

/* Ends our direction: a FIN follows the sent data. The peer's data still comes. WP_E_STALE,
 * WP_E_STATE. */
WP_API int wp_tcp_shutdown(wp_stack stack, wp_conn conn);

/* Ends both directions: sent data is still delivered, then WP_EVENT_CLOSED comes. WP_E_STALE. */
WP_API int wp_tcp_close(wp_stack stack, wp_conn conn);

/* Ends the connection at once with a reset; WP_EVENT_CLOSED follows. WP_E_STALE. */
WP_API int wp_tcp_abort(wp_stack stack, wp_conn conn);

/* Stops the data events of this connection: data waits, and the window closes. WP_E_STALE. Hot. */
WP_API int wp_tcp_pause(wp_stack stack, wp_conn conn);

/* Resumes the data events: data that waited comes with the next poll. WP_E_STALE. Hot. */
WP_API int wp_tcp_resume(wp_stack stack, wp_conn conn);

/* ---- Prepared orders -------------------------------------------------------------------------- */

/* A flag of wp_order_fire: the order leaves now, or the call returns WP_E_AGAIN and has no effect.
 * For orders that are worthless when late. WP_MORE has no effect beside it. */
#define WP_NOW_OR_NEVER 2u

/* Prepares a segment of a connection whose handshake is done: headers, checksum and payload stand
 * ready. Not hot. WP_E_STATE, WP_E_STALE, WP_E_TOO_LONG (more than a segment), WP_E_ARGUMENT (no
 * byte). */
WP_API int wp_order_prepare(wp_stack stack, wp_conn conn, const void *data, size_t len, wp_order *order);

/* Overwrites bytes of the payload, and updates the checksum by the difference. WP_E_ARGUMENT:
 * beyond the payload. WP_E_STALE. Hot: proportional to the bytes that change. */
WP_API int wp_order_patch(wp_stack stack, wp_order order, size_t offset, const void *data, size_t len);

/* Sends the payload, and keeps the order for the next time. Rings the doorbell unless WP_MORE.
 * Returns WP_SENT, WP_QUEUED or WP_WAITS_FOR_PATH.
 *
 * WP_E_AGAIN, WP_E_STATE, WP_E_STALE (also if the connection is gone: free the order). Hot: some 40
 * ns. */
WP_API int wp_order_fire(wp_stack stack, wp_order order, uint32_t flags);

/* Runs the code of wp_order_fire without sending, so that an order after a quiet time finds warm
 * caches. Returns 1 if an order would leave at once, else 0. WP_E_STATE, WP_E_STALE. */
WP_API int wp_order_warm(wp_stack stack, wp_order order);

/* Frees an order. Closing a connection does not free its orders. WP_E_STALE. */
WP_API int wp_order_free(wp_stack stack, wp_order order);

/* ---- Timers and counters ---------------------------------------------------------------------- */

/* Starts a timer: WP_EVENT_TIMER with `token` comes once, `delay_ns` from now; never earlier, and
 * later by at most 262 us plus the time between two polls. Reads the clock. Hot: some 60 ns.
 * WP_E_LIMIT: 1,024 timers run. */
WP_API int wp_after(wp_stack stack, uint64_t delay_ns, uint64_t token, wp_timer *timer);

/* Cancels a timer. WP_E_STALE: it has expired or was cancelled; its event may be in the queue.
 * Hot. */
WP_API int wp_cancel(wp_stack stack, wp_timer timer);

/* Reads a counter or gauge by its name in `wirepath stats`, such as "worker0/frames" or
 * "worker0/udp/drop/no_consumer"; gauges may be 256 turns old. Reads all counters to find one: some
 * 10 us. WP_E_NAME. */
WP_API int wp_counter(wp_stack stack, const char *name, uint64_t *value);

/* A counter or gauge with its name. */
typedef struct wp_stat {
    char name[100]; /* as in `wirepath stats`; a zero byte ends it */
    uint32_t kind;  /* WP_STAT_... */
    uint64_t value;
} wp_stat;

#define WP_STAT_COUNTER 1u /* a number that only grows */
#define WP_STAT_GAUGE 2u   /* a number that is set, at most 256 turns ago */

/* Writes up to `max` counters and gauges of the stack, and returns how many it has, some hundred: with
 * null and 0 it only counts them. `wirepath stats` alone has distributions and texts. Not hot: some
 * 20 us. */
WP_API int wp_stats(wp_stack stack, wp_stat *stats, int max);

/* An address from four numbers and a port in the order of the machine. */
static inline struct sockaddr_in wp_ipv4(uint8_t a, uint8_t b, uint8_t c, uint8_t d, uint16_t port)
{
    struct sockaddr_in address;
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl((uint32_t)a << 24 | (uint32_t)b << 16 | (uint32_t)c << 8 | (uint32_t)d);
    address.sin_port = htons(port);
    return address;
}

#ifdef __cplusplus
}
#endif

#endif
