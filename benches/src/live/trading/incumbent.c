/* A trader over kernel sockets, as one is written without a kernel bypass: the same day, decision,
 * checks and order as apps/order-entry/examples/trader.rs. It spins on two non-blocking sockets,
 * builds the books of the feed, and sends the order within the call that brought the tick.
 *
 *   incumbent INTERFACE-ADDRESS VENUE-ADDRESS VENUE-PORT
 *
 * Its journal is memory that is written before the order leaves, without a sum. It knows one line
 * and no recovery: both would only make it slower. */

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define GROUP "233.252.0.1"
#define GROUP_PORT 26477

/* ---- books ------------------------------------------------------------------------------- */

#define ORDERS (1u << 17)
#define BOOKS 512
#define LEVELS 128

struct order {
    uint64_t reference; /* 0: free */
    uint32_t price, shares;
    uint16_t locate;
    uint8_t side;
};

struct level {
    uint32_t price, shares;
};

struct side {
    struct level levels[LEVELS]; /* the best one last, where levels come and go */
    int count;
};

static struct order orders[ORDERS];
static struct side books[BOOKS][2]; /* bids, asks */

static struct order *find(uint64_t reference)
{
    uint64_t at = (reference * 0x9e3779b97f4a7c15u) >> (64 - 17);
    while (orders[at].reference && orders[at].reference != reference)
        at = (at + 1) & (ORDERS - 1);
    return &orders[at];
}

/* Removes an order, and moves back those behind it. */
static void forget(struct order *order)
{
    uint64_t hole = order - orders, at = hole;
    for (;;) {
        at = (at + 1) & (ORDERS - 1);
        if (!orders[at].reference)
            break;
        uint64_t home = (orders[at].reference * 0x9e3779b97f4a7c15u) >> (64 - 17);
        if (((at - home) & (ORDERS - 1)) >= ((at - hole) & (ORDERS - 1))) {
            orders[hole] = orders[at];
            hole = at;
        }
    }
    orders[hole].reference = 0;
}

static void change(struct side *side, bool is_ask, uint32_t price, int32_t shares)
{
    int at = side->count;
    while (at > 0 && (is_ask ? side->levels[at - 1].price < price : side->levels[at - 1].price > price))
        at--;
    if (at > 0 && side->levels[at - 1].price == price) {
        struct level *level = &side->levels[at - 1];
        level->shares += shares;
        if (level->shares == 0) {
            memmove(level, level + 1, (side->count - at) * sizeof *level);
            side->count--;
        }
    } else if (shares > 0 && side->count < LEVELS) {
        memmove(&side->levels[at + 1], &side->levels[at], (side->count - at) * sizeof side->levels[0]);
        side->levels[at] = (struct level){price, shares};
        side->count++;
    }
}

/* ---- wire -------------------------------------------------------------------------------- */

static uint16_t be16at(const uint8_t *at) { uint16_t v; memcpy(&v, at, 2); return be16toh(v); }
static uint32_t be32at(const uint8_t *at) { uint32_t v; memcpy(&v, at, 4); return be32toh(v); }
static uint64_t be64at(const uint8_t *at) { uint64_t v; memcpy(&v, at, 8); return be64toh(v); }

/* One message of ITCH 5.0: add (A) and delete (D), which are all that this day has. */
static void itch(const uint8_t *message, int len)
{
    uint16_t locate = len >= 3 ? be16at(message + 1) : 0;
    if (len == 36 && message[0] == 'A' && locate < BOOKS) {
        struct order order = {
            .reference = be64at(message + 11), .side = message[19], .shares = be32at(message + 20),
            .price = be32at(message + 32), .locate = locate,
        };
        *find(order.reference) = order;
        bool is_ask = order.side == 'S';
        change(&books[locate][is_ask], is_ask, order.price, order.shares);
    } else if (len == 19 && message[0] == 'D') {
        struct order *order = find(be64at(message + 11));
        if (!order->reference)
            return;
        bool is_ask = order->side == 'S';
        change(&books[order->locate][is_ask], is_ask, order->price, -(int32_t)order->shares);
        forget(order);
    }
}

static uint64_t next_seq = 1;

/* A packet of MoldUDP64: session 10, sequence 8, count 2, and messages with a length of two. */
static void mold(const uint8_t *packet, int len)
{
    if (len < 20 || be64at(packet + 10) != next_seq)
        return;
    int count = be16at(packet + 18), at = 20;
    for (int idx = 0; idx < count && at + 2 <= len; idx++) {
        int message_len = be16at(packet + at);
        if (at + 2 + message_len > len)
            return;
        itch(packet + at + 2, message_len);
        at += 2 + message_len;
        next_seq++;
    }
}

/* ---- orders ------------------------------------------------------------------------------ */

#define QTY 100
#define PER_SECOND 100

static int venue;
static int64_t position, reserved;
static bool is_live, is_killed, is_logged_in;
static uint32_t user_ref = 1;
static uint64_t sent_at[PER_SECOND];
static uint8_t *journal;
static size_t journal_end;

/* SoupBinTCP: length 2, type 'U', and OUCH 5.0's enter order of 47 bytes. */
static uint8_t packet[50] = {0, 48, 'U', 'O'};

static void prepare(void)
{
    uint8_t *order = packet + 3;
    order[5] = 'B';
    uint32_t qty = htobe32(QTY);
    memcpy(order + 6, &qty, 4);
    memcpy(order + 10, "WIRE    ", 8);
    order[26] = '3'; /* immediate or cancel */
    order[27] = 'Y';
    order[28] = 'P';
    order[29] = 'N';
    order[30] = 'N';
    memset(order + 31, ' ', 14);
}

static uint64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static bool passes(uint32_t price, uint32_t reference, uint64_t now)
{
    int64_t off = (int64_t)price - reference, notional = (int64_t)price * QTY;
    uint64_t *oldest = &sent_at[user_ref % PER_SECOND];
    return !is_killed && (off < 0 ? -off : off) * 10000 <= 500 * (int64_t)reference &&
           position + QTY <= 1000 && reserved + notional <= 100000000000 && now - *oldest >= 1000000000u;
}

static void trade(void)
{
    struct side *asks = &books[1][1];
    if (!is_logged_in || is_live || position >= 1000 || asks->count == 0)
        return;
    uint32_t price = asks->levels[asks->count - 1].price;
    if (price >= 100000)
        return;
    uint64_t now = now_ns();
    if (!passes(price, price, now))
        return;
    uint32_t id = htobe32(user_ref);
    uint64_t limit = htobe64(price);
    memcpy(packet + 4, &id, 4);
    memcpy(packet + 3 + 18, &limit, 8);
    if (journal_end + 64 <= (64u << 20)) {
        memcpy(journal + journal_end, &now, 8);
        memcpy(journal + journal_end + 8, packet, sizeof packet);
        journal_end += 64;
    }
    if (send(venue, packet, sizeof packet, MSG_NOSIGNAL) != sizeof packet)
        return;
    sent_at[user_ref++ % PER_SECOND] = now;
    reserved += (int64_t)price * QTY;
    is_live = true;
}

/* ---- the session ------------------------------------------------------------------------- */

static uint8_t input[65536];
static size_t input_len;

static void answers(void)
{
    ssize_t got = recv(venue, input + input_len, sizeof input - input_len, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN))
        exit(0); /* the venue has gone: the day is over */
    if (got < 0)
        return;
    input_len += got;
    size_t at = 0;
    while (input_len - at >= 3 && input_len - at >= 2u + be16at(input + at)) {
        if (input[at + 2] == 'A')
            is_logged_in = true;
        if (input[at + 2] == 'S' && input[at + 3] == 'A') {
            is_live = false; /* accepted, and dead */
            reserved = 0;
        }
        at += 2 + be16at(input + at);
    }
    memmove(input, input + at, input_len - at);
    input_len -= at;
}

static void login(void)
{
    uint8_t request[49];
    memset(request, ' ', sizeof request);
    request[0] = 0, request[1] = 47, request[2] = 'L';
    memcpy(request + 3, "TRADER", 6);
    memcpy(request + 9, "SECRET", 6);
    request[48] = '1';
    if (send(venue, request, sizeof request, 0) != sizeof request)
        exit(1);
}

static void beat(uint64_t now)
{
    static uint64_t last;
    if (now - last < 1000000000u)
        return;
    last = now;
    const uint8_t heartbeat[3] = {0, 1, 'R'};
    send(venue, heartbeat, sizeof heartbeat, MSG_NOSIGNAL);
}

/* ---- set-up ------------------------------------------------------------------------------ */

static int check(int result, const char *what)
{
    if (result < 0) {
        perror(what);
        exit(1);
    }
    return result;
}

static int join(const char *interface)
{
    int feed = check(socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0), "socket");
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(GROUP_PORT), .sin_addr.s_addr = inet_addr(GROUP)};
    struct ip_mreq request = {.imr_multiaddr = at.sin_addr, .imr_interface.s_addr = inet_addr(interface)};
    int room = 4 << 20;
    setsockopt(feed, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
    check(bind(feed, (struct sockaddr *)&at, sizeof at), "bind");
    check(setsockopt(feed, IPPROTO_IP, IP_ADD_MEMBERSHIP, &request, sizeof request), "join");
    return feed;
}

static int dial(const char *address, const char *port)
{
    int connection = check(socket(AF_INET, SOCK_STREAM, 0), "socket"), on = 1;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(port)), .sin_addr.s_addr = inet_addr(address)};
    check(connect(connection, (struct sockaddr *)&to, sizeof to), "connect");
    setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return connection;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return fprintf(stderr, "incumbent INTERFACE-ADDRESS VENUE-ADDRESS VENUE-PORT\n"), 2;
    journal = mmap(NULL, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (journal == MAP_FAILED)
        return perror("mmap"), 1;
    prepare();
    int feed = join(argv[1]);
    venue = dial(argv[2], argv[3]);
    login();
    for (uint64_t turn = 0;; turn++) {
        uint8_t datagram[2048];
        ssize_t len = recv(feed, datagram, sizeof datagram, 0);
        if (len > 0) {
            mold(datagram, len);
            trade();
        }
        answers();
        if (turn % 256 == 0)
            beat(now_ns());
    }
}
