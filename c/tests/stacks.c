/* Several stacks in a process: the handles of one name nothing in another, a child that is forked has none of
 * them, and bytes that one thread holds are released by another. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <wirepath.h>

#define MUST(fact) must(fact, #fact, __LINE__)

static void must(int is_fact, const char *fact, int line)
{
    if (is_fact)
        return;
    printf("line %d: not %s; the last error: %s\n", line, fact, wp_last_error());
    fflush(stdout);
    _exit(1);
}

/* One of two stacks at the ends of a wire, with one object of each kind, made in the same order. */
struct end {
    wp_stack stack;
    wp_sub sub, listener;
    wp_flow flow;
    wp_timer timer;
    wp_conn conn;
    wp_order order;
    wp_event datagram;
    wp_buffer buffer;
};

static struct end ends[2];

static void open_end(struct end *end, const char *address)
{
    wp_options options = WP_OPTIONS_INIT;
    options.connections = 4;
    options.held = 64;
    options.address = address;
    MUST(wp_open("memory:stacks", &options, &end->stack) == 0);
}

/* Both ends make turns until each has an event of the type. Each holds the bytes of its first datagram. */
static void both_have(uint32_t type)
{
    int has[2] = {0, 0};
    for (int turn = 0; turn < 10000 && !(has[0] && has[1]); turn++) {
        for (int i = 0; i < 2; i++) {
            wp_event event;
            int count = wp_poll(ends[i].stack, &event, 1);
            MUST(count >= 0);
            if (count == 0 || event.type != type || has[i])
                continue;
            has[i] = 1;
            if (type == WP_EVENT_DATAGRAM && ends[i].buffer.id == 0) {
                ends[i].datagram = event;
                MUST(wp_hold(ends[i].stack, &event, &ends[i].buffer) == 0);
            }
        }
    }
    MUST(has[0] && has[1]);
}

static void make_the_same_at_both(void)
{
    struct sockaddr_in at[2] = {wp_ipv4(192, 0, 2, 1, 5000), wp_ipv4(192, 0, 2, 2, 5000)};
    open_end(&ends[0], "192.0.2.1/24");
    open_end(&ends[1], "192.0.2.2/24");
    for (int i = 0; i < 2; i++) {
        struct end *end = &ends[i];
        MUST(wp_udp_bind(end->stack, &at[i], 1, &end->sub) == 0);
        MUST(wp_tcp_listen(end->stack, &at[i], NULL, 2, &end->listener) == 0);
        MUST(wp_udp_connect(end->stack, &at[i], &at[1 - i], NULL, &end->flow) == 0);
        MUST(wp_after(end->stack, 1000000000000, 3, &end->timer) == 0);
    }
    for (int i = 0; i < 2; i++)
        MUST(wp_udp_send(ends[i].stack, ends[i].flow, "datagram", 8, 0) >= 0);
    both_have(WP_EVENT_DATAGRAM);
    /* Each side opens a connection to the other's listener. */
    for (int i = 0; i < 2; i++) {
        struct sockaddr_in local = at[i];
        local.sin_port = htons(6000);
        MUST(wp_tcp_connect(ends[i].stack, &local, &at[1 - i], NULL, 4, &ends[i].conn) == 0);
    }
    both_have(WP_EVENT_CONNECTED);
    for (int i = 0; i < 2; i++)
        MUST(wp_order_prepare(ends[i].stack, ends[i].conn, "order", 5, &ends[i].order) == 0);
}

static void each_handle_of_another_stack(const struct end *end, const struct end *other)
{
    wp_stack stack = end->stack;
    wp_tcp_info info = WP_TCP_INFO_INIT;
    wp_order order;
    wp_buffer buffer;
    MUST(wp_hold(stack, &other->datagram, &buffer) == WP_E_STALE);
    MUST(wp_release(stack, other->buffer) == WP_E_STALE);
    MUST(wp_udp_send(stack, other->flow, "x", 1, 0) == WP_E_STALE && wp_udp_close(stack, other->flow) == WP_E_STALE);
    MUST(wp_tcp_send(stack, other->conn, "x", 1, 0) == WP_E_STALE);
    MUST(wp_tcp_get_info(stack, other->conn, &info) == WP_E_STALE);
    MUST(wp_order_prepare(stack, other->conn, "x", 1, &order) == WP_E_STALE);
    MUST(wp_order_patch(stack, other->order, 0, "x", 1) == WP_E_STALE);
    MUST(wp_order_fire(stack, other->order, 0) == WP_E_STALE && wp_order_warm(stack, other->order) == WP_E_STALE);
    MUST(wp_order_free(stack, other->order) == WP_E_STALE);
    MUST(wp_tcp_pause(stack, other->conn) == WP_E_STALE && wp_tcp_resume(stack, other->conn) == WP_E_STALE);
    MUST(wp_tcp_shutdown(stack, other->conn) == WP_E_STALE && wp_tcp_close(stack, other->conn) == WP_E_STALE);
    MUST(wp_tcp_abort(stack, other->conn) == WP_E_STALE && wp_cancel(stack, other->timer) == WP_E_STALE);
    MUST(wp_unsubscribe(stack, other->sub) == WP_E_STALE && wp_unsubscribe(stack, other->listener) == WP_E_STALE);
}

/* What was refused there is whole here. */
static void each_handle_of_its_own(const struct end *end)
{
    wp_tcp_info info = WP_TCP_INFO_INIT;
    MUST(wp_release(end->stack, end->buffer) == 0);
    MUST(wp_udp_send(end->stack, end->flow, "x", 1, 0) >= 0);
    MUST(wp_tcp_get_info(end->stack, end->conn, &info) == 0 && info.state == WP_TCP_ESTABLISHED);
    MUST(wp_order_fire(end->stack, end->order, 0) == WP_SENT);
    MUST(wp_cancel(end->stack, end->timer) == 0);
}

/* The stacks are another process's, whichever thread has forked. */
static void every_stack_is_stale(void)
{
    wp_event event;
    for (int i = 0; i < 2; i++) {
        MUST(wp_poll(ends[i].stack, &event, 1) == WP_E_STALE);
        MUST(wp_udp_send(ends[i].stack, ends[i].flow, "x", 1, 0) == WP_E_STALE);
        MUST(wp_release(ends[i].stack, ends[i].buffer) == WP_E_STALE);
        MUST(wp_close(ends[i].stack) == WP_E_STALE);
    }
}

static void child(void)
{
    wp_stack own;
    wp_event event;
    wp_options options = WP_OPTIONS_INIT;
    every_stack_is_stale();
    options.address = "192.0.2.3/24";
    MUST(wp_open("memory:child", &options, &own) == 0);
    MUST(wp_poll(own, &event, 1) == 0);
    exit(0); /* as a program that ends: what is open is closed */
}

static void *fork_a_child(void *unused)
{
    int status = 0;
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid == 0)
        child();
    MUST(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return unused;
}

static void fork_leaves_the_parents_stacks(void)
{
    pthread_t thread;
    fork_a_child(NULL);
    MUST(pthread_create(&thread, NULL, fork_a_child, NULL) == 0 && pthread_join(thread, NULL) == 0);
    for (int i = 0; i < 2; i++)
        MUST(wp_udp_send(ends[i].stack, ends[i].flow, "again", 5, 0) == WP_SENT);
    both_have(WP_EVENT_DATAGRAM);
}

static void *release_all(void *place)
{
    wp_buffer *buffers = place;
    for (int i = 0; i < 32; i++)
        MUST(wp_release(ends[1].stack, buffers[i]) == 0);
    return NULL;
}

/* More bytes than the pool has buffers, each held here and released on another thread. */
static void buffers_come_back_from_another_thread(void)
{
    wp_buffer buffers[32];
    wp_event events[32];
    for (int round = 0; round < 1000; round++) {
        int held = 0;
        pthread_t thread;
        for (int i = 0; i < 32; i++)
            MUST(wp_udp_send(ends[0].stack, ends[0].flow, "x", 1, WP_MORE) == WP_SENT);
        MUST(wp_flush(ends[0].stack) == 0);
        for (int turn = 0; turn < 1000 && held < 32; turn++) {
            int count = wp_poll(ends[1].stack, events, 32 - held);
            MUST(count >= 0);
            for (int i = 0; i < count; i++)
                if (events[i].type == WP_EVENT_DATAGRAM)
                    MUST(wp_hold(ends[1].stack, &events[i], &buffers[held++]) == 0);
            MUST(wp_poll(ends[0].stack, NULL, 0) == 0);
        }
        MUST(held == 32);
        MUST(pthread_create(&thread, NULL, release_all, buffers) == 0 && pthread_join(thread, NULL) == 0);
        MUST(wp_poll(ends[1].stack, NULL, 0) == 0);
        MUST(wp_release(ends[1].stack, buffers[0]) == WP_E_STALE);
    }
}

/* Polls without a place for events make turns, until too many events wait. */
static void polls_without_an_array(void)
{
    wp_event events[64];
    wp_timer timer;
    int result = 0, sent = 0, seen = 0, has_expired = 0;
    MUST(wp_udp_send(ends[0].stack, ends[0].flow, "x", 1, 0) == WP_SENT);
    sent++;
    MUST(wp_poll(ends[1].stack, NULL, 0) == 0); /* an event waits */
    MUST(wp_after(ends[1].stack, 1000000, 77, &timer) == 0);
    for (int64_t start = wp_now(ends[1].stack); wp_now(ends[1].stack) < start + 5000000;)
        MUST(wp_poll(ends[1].stack, NULL, 0) == 0);
    MUST(wp_cancel(ends[1].stack, timer) == WP_E_STALE); /* it has expired */
    while (result == 0) {
        MUST(sent < 100000);
        sent += wp_udp_send(ends[0].stack, ends[0].flow, "x", 1, 0) == WP_SENT;
        result = wp_poll(ends[1].stack, NULL, 0);
    }
    MUST(result == WP_E_AGAIN && sent > 1000);
    for (int count = 1; count > 0;) {
        count = wp_poll(ends[1].stack, events, 64);
        MUST(count >= 0);
        for (int i = 0; i < count; i++) {
            seen += events[i].type == WP_EVENT_DATAGRAM;
            has_expired += events[i].type == WP_EVENT_TIMER && events[i].token == 77;
        }
    }
    MUST(seen == sent && has_expired == 1);
}

int main(void)
{
    make_the_same_at_both();
    each_handle_of_another_stack(&ends[0], &ends[1]);
    each_handle_of_another_stack(&ends[1], &ends[0]);
    fork_leaves_the_parents_stacks();
    for (int i = 0; i < 2; i++)
        each_handle_of_its_own(&ends[i]);
    wp_event event;
    while (wp_poll(ends[0].stack, &event, 1) > 0 || wp_poll(ends[1].stack, &event, 1) > 0)
        continue;
    buffers_come_back_from_another_thread();
    polls_without_an_array();
    MUST(wp_close(ends[0].stack) == 0 && wp_close(ends[1].stack) == 0);
    printf("as promised\n");
    return 0;
}
