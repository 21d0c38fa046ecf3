/* market_ring.h: reads a ring of market data that another process writes. No library is needed:
 * the functions are in this header, for C11 and for C++ with GCC or Clang.
 *
 *     struct market_ring ring;
 *     int error = market_ring_open(&ring, "/dev/shm/nasdaq.ring");
 *     if (error) ...                                  // an errno; EPROTO: it is no ring
 *     for (;;) {
 *         struct market_ring_record record;
 *         uint64_t first, last;
 *         switch (market_ring_read(&ring, &record, &first, &last)) {
 *         case MARKET_RING_RECORD:  ... record.kind ...            break;
 *         case MARKET_RING_JOINED:                                 // told once: as an overrun
 *         case MARKET_RING_OVERRUN: ... first to last were missed  break;
 *         case MARKET_RING_EMPTY:   break;
 *         case MARKET_RING_CLOSED:  return;
 *         }
 *     }
 *
 * A reader never slows the writer. One that falls behind by more records than the ring has is told
 * the first and the last that it missed. A read copies 128 bytes and makes no system call.
 *
 * A writer that is killed closes nothing, and its next one writes another file: a reader that finds
 * nothing for a while, 100 ms say, asks `market_ring_writer_is_gone`, and opens the path again.
 *
 * Books of your own: keep them by `channel`, because a CLEAR empties those of its channel alone, and
 * order numbers may repeat in others. Ignore an ADD of an order that is there, and do not trade on a
 * record with MARKET_RING_FLAG_STALE. After MARKET_RING_OVERRUN and MARKET_RING_JOINED the books of
 * all channels lack orders that no record names, though no record is stale: those of a channel are
 * whole again at the first record without MARKET_RING_FLAG_STALE behind its next CLEAR. That comes
 * with a new session, and when the feed itself has healed its books; so start before the feed.
 */
#ifndef MARKET_RING_H
#define MARKET_RING_H

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MARKET_RING_MAGIC UINT64_C(0x3130474e49525057) /* "WPRING01" */
#define MARKET_RING_VERSION 1

/* Words of 8 bytes: of the header, of a record, and where the header's words are. */
#define MARKET_RING_HEADER_WORDS 512
#define MARKET_RING_RECORD_WORDS 16
#define MARKET_RING_GROUP 64
#define MARKET_RING_AT_MAGIC 0
#define MARKET_RING_AT_VERSION 1
#define MARKET_RING_AT_RECORDS 2
#define MARKET_RING_AT_QUOTES 3
#define MARKET_RING_AT_SESSION 4
#define MARKET_RING_AT_NEXT 16
#define MARKET_RING_AT_CLOSED 32
/* A word for each channel below 448, which changes while the channel lives. */
#define MARKET_RING_AT_LIFE 64

enum market_ring_kind {
    MARKET_RING_ADD = 1,
    MARKET_RING_EXECUTE = 2,
    MARKET_RING_CANCEL = 3,
    MARKET_RING_DELETE = 4,
    MARKET_RING_REPLACE = 5,
    MARKET_RING_MODIFY = 6,
    MARKET_RING_TRADE = 7,
    MARKET_RING_TRADE_BREAK = 8,
    MARKET_RING_QUOTE = 9,
    MARKET_RING_PRICE_LEVEL = 10,
    MARKET_RING_DIRECTORY = 11,
    MARKET_RING_STATUS = 12,         /* of each instrument of the channel where `symbol` is blank */
    MARKET_RING_SYSTEM = 13,
    MARKET_RING_CLEAR = 14,
    MARKET_RING_CLOCK = 15,
    MARKET_RING_OTHER = 16,
    MARKET_RING_DEPTH = 17,          /* a level by its position, which is in `other`; orders in `ask_qty` */
    MARKET_RING_ORDER = 18,          /* `other` is its priority */
    MARKET_RING_TRADE_SUMMARY = 19,  /* orders in `ask_qty` */
    MARKET_RING_NUMBERED = 20,       /* changes no book, but counts in `rpt_seq` */
    MARKET_RING_BOOK_RESET = 21,
    MARKET_RING_SNAPSHOT = 22,       /* `other` is the last packet in it, `qty` the loop's snapshots, */
    MARKET_RING_ORDER_SNAPSHOT = 23, /* `ask_qty` its part and, 32 bits higher, its parts */
    MARKET_RING_SNAPSHOT_END = 24,
    MARKET_RING_INSTRUMENT = 25,     /* `order` is its name, `price` its tick, `other` the depths, */
    MARKET_RING_END_OF_EVENT = 26,   /* `ask_qty` the eight letters of its group */
    MARKET_RING_GROUP_STATUS = 27    /* of the instruments of group `order`, or of `symbol` where it is one */
};

/* Bits of `flags`. */
#define MARKET_RING_FLAG_END_OF_EVENT 1
#define MARKET_RING_FLAG_SNAPSHOT 2
#define MARKET_RING_FLAG_GAP_BEFORE 4
#define MARKET_RING_FLAG_STALE 8
#define MARKET_RING_FLAG_UNCONFIRMED 16 /* of a quote: may miss something, which its next update shows */
#define MARKET_RING_FLAG_HALTED 32      /* of a quote: the venue does not trade the instrument */

/* Bits of `bits`: see each kind. */
#define MARKET_RING_BIT_IS_SO 1         /* printable, operational, available, complete, implied */
#define MARKET_RING_BIT_HAS_PRICE 2     /* of an execution: it has a price of its own */
#define MARKET_RING_BIT_HAS_REMAINING 4 /* of an execution: `ask_qty` shares remain */
#define MARKET_RING_BIT_NINE_DECIMALS 8 /* the price is in units of 10^-9 */
#define MARKET_RING_BIT_HALTED 16       /* of a status: no order trades in this state */
#define MARKET_RING_BIT_TRADED 32       /* of a status: orders trade; neither bit: it says nothing of that */
#define MARKET_RING_BIT_FOLLOWS_GROUP 64 /* of a status: the instrument follows its group from now on */
#define MARKET_RING_BIT_APART 128       /* of a status: its state is its own from now on */

/* The letter of an action on a level or an order: N new, C change, D delete, T delete through, F
 * delete from, O overlay, S snapshot. */

/* A record; fields that its kind does not have are zero. Prices are in units of 1/10,000 where the
 * bits do not say otherwise. */
struct market_ring_record {
    uint64_t stamp; /* its sequence in the ring plus one */
    uint64_t venue_seq;
    uint64_t exchange_ns;
    uint64_t receive_ns;
    uint64_t publish_ns;
    uint8_t kind;
    uint8_t flags;
    uint16_t channel;
    uint32_t locate;
    uint8_t side;   /* 'B', 'S', or 0 where unknown */
    uint8_t letter; /* of a status, a system event, an action; the type of another message */
    uint8_t bits;
    uint8_t reserved[5];
    char symbol[8];  /* padded with spaces, without a zero at the end */
    uint64_t order;  /* of a replace the old one */
    uint64_t other;  /* of a trade or execution its number, of a replace the new order */
    int64_t price;   /* of a quote the bid */
    uint64_t qty;    /* of a quote those bid */
    int64_t ask_px;
    uint64_t ask_qty;
    uint64_t rpt_seq; /* the update's number among those of its instrument */
    uint64_t zero;
};

/* The best bid and offer of an instrument. `updates` less the value that was seen before, less one,
 * were merged. */
struct market_ring_quote {
    uint64_t version;
    uint64_t updates;
    uint64_t venue_seq;
    uint64_t exchange_ns;
    uint64_t receive_ns;
    uint64_t publish_ns;
    char symbol[8];
    uint64_t channel;
    int64_t bid_px;
    uint64_t bid_qty;
    int64_t ask_px;
    uint64_t ask_qty;
    uint64_t flags;
    uint64_t zero[3];
};

enum market_ring_result {
    MARKET_RING_EMPTY = 0,
    MARKET_RING_RECORD = 1,
    MARKET_RING_OVERRUN = 2,
    MARKET_RING_CLOSED = 3,
    MARKET_RING_JOINED = 4 /* the first answer, where records were written before: books lack them */
};

struct market_ring {
    const uint64_t *words;
    size_t len;       /* bytes */
    uint64_t records; /* a power of two */
    uint64_t quotes;
    uint64_t next;    /* the sequence of the record that is read next */
    uint64_t session; /* another after a restart of the writer */
    int fd;
    int has_begun;
};

static inline uint64_t market_ring_load(const struct market_ring *ring, uint64_t at, int order) {
    return order == __ATOMIC_ACQUIRE ? __atomic_load_n(ring->words + at, __ATOMIC_ACQUIRE)
                                     : __atomic_load_n(ring->words + at, __ATOMIC_RELAXED);
}

static inline uint64_t market_ring_quote_at(const struct market_ring *ring, uint64_t idx) {
    uint64_t groups = (ring->quotes / MARKET_RING_GROUP + MARKET_RING_RECORD_WORDS - 1) / MARKET_RING_RECORD_WORDS;
    return MARKET_RING_HEADER_WORDS + (groups + idx) * MARKET_RING_RECORD_WORDS;
}

static inline uint64_t market_ring_record_at(const struct market_ring *ring, uint64_t seq) {
    return market_ring_quote_at(ring, ring->quotes) + (seq & (ring->records - 1)) * MARKET_RING_RECORD_WORDS;
}

static inline void market_ring_close(struct market_ring *ring) {
    if (ring->words) {
        munmap((void *)(uintptr_t)ring->words, ring->len);
        close(ring->fd);
    }
    ring->words = NULL;
}

/* Whether the process that writes has ended, in order or not. Two system calls. */
static inline int market_ring_writer_is_gone(const struct market_ring *ring) {
    if (flock(ring->fd, LOCK_SH | LOCK_NB) != 0) return 0;
    flock(ring->fd, LOCK_UN);
    return 1;
}

/* Maps a ring read-only; its records are read from now on. Returns 0 or an errno: ENOENT where no
 * publisher has started, EPROTO where the file is no ring of this version. */
static inline int market_ring_open(struct market_ring *ring, const char *path) {
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC), error = 0;
    void *map;
    memset(ring, 0, sizeof *ring);
    if (fd < 0) return errno;
    if (fstat(fd, &status) != 0) error = errno;
    else if (status.st_size < MARKET_RING_HEADER_WORDS * 8) error = EPROTO;
    if (error) {
        close(fd);
        return error;
    }
    map = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
        error = errno;
        close(fd);
        return error;
    }
    ring->fd = fd;
    ring->words = (const uint64_t *)map;
    ring->len = (size_t)status.st_size;
    ring->records = market_ring_load(ring, MARKET_RING_AT_RECORDS, __ATOMIC_ACQUIRE);
    ring->quotes = market_ring_load(ring, MARKET_RING_AT_QUOTES, __ATOMIC_ACQUIRE);
    ring->session = market_ring_load(ring, MARKET_RING_AT_SESSION, __ATOMIC_ACQUIRE);
    ring->next = market_ring_load(ring, MARKET_RING_AT_NEXT, __ATOMIC_ACQUIRE);
    if (market_ring_load(ring, MARKET_RING_AT_MAGIC, __ATOMIC_ACQUIRE) != MARKET_RING_MAGIC ||
        market_ring_load(ring, MARKET_RING_AT_VERSION, __ATOMIC_ACQUIRE) != MARKET_RING_VERSION ||
        ring->records < 2 || ring->records > UINT64_C(1) << 30 || (ring->records & (ring->records - 1)) != 0 ||
        ring->quotes > UINT64_C(1) << 22 || ring->quotes % MARKET_RING_GROUP != 0 ||
        (market_ring_record_at(ring, 0) + ring->records * MARKET_RING_RECORD_WORDS) * 8 != ring->len) {
        market_ring_close(ring);
        return EPROTO;
    }
    return 0;
}

/* The oldest record that is safely in the ring: half a ring behind the writer. */
static inline uint64_t market_ring_oldest(const struct market_ring *ring) {
    uint64_t next = market_ring_load(ring, MARKET_RING_AT_NEXT, __ATOMIC_ACQUIRE);
    return next > ring->records / 2 ? next - ring->records / 2 : 0;
}

/* The next record, or what happened instead: `first` and `last` are set on an overrun, and where
 * records had been written before this reader came. */
static inline enum market_ring_result market_ring_read(struct market_ring *ring, struct market_ring_record *record,
                                                       uint64_t *first, uint64_t *last) {
    uint64_t at = market_ring_record_at(ring, ring->next), words[MARKET_RING_RECORD_WORDS], seq = ring->next;
    uint64_t stamp = market_ring_load(ring, at, __ATOMIC_ACQUIRE);
    int idx;
    if (!ring->has_begun) {
        ring->has_begun = 1;
        *first = 0;
        *last = seq - 1;
        if (seq > 0) return MARKET_RING_JOINED;
    }
    if (stamp == seq + 1) {
        for (idx = 0; idx < MARKET_RING_RECORD_WORDS; idx++)
            words[idx] = market_ring_load(ring, at + (uint64_t)idx, __ATOMIC_RELAXED);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (market_ring_load(ring, at, __ATOMIC_RELAXED) == stamp) {
            memcpy(record, words, sizeof *record);
            record->stamp = stamp;
            ring->next = seq + 1;
            return MARKET_RING_RECORD;
        }
    } else if (stamp <= seq) {
        uint64_t closed = market_ring_load(ring, MARKET_RING_AT_CLOSED, __ATOMIC_ACQUIRE);
        if (closed && market_ring_load(ring, MARKET_RING_AT_NEXT, __ATOMIC_ACQUIRE) == seq) return MARKET_RING_CLOSED;
        return MARKET_RING_EMPTY;
    }
    ring->next = market_ring_oldest(ring);
    if (ring->next <= seq) ring->next = seq + 1;
    *first = seq;
    *last = ring->next - 1;
    return MARKET_RING_OVERRUN;
}

/* Copies a quote. 1: it is whole; 0: the writer is replacing it, or there is none at this position. */
static inline int market_ring_read_quote(const struct market_ring *ring, uint64_t idx, struct market_ring_quote *quote) {
    uint64_t words[MARKET_RING_RECORD_WORDS], at, version;
    int word;
    if (idx >= ring->quotes) return 0;
    at = market_ring_quote_at(ring, idx);
    version = market_ring_load(ring, at, __ATOMIC_ACQUIRE);
    for (word = 0; word < MARKET_RING_RECORD_WORDS; word++)
        words[word] = market_ring_load(ring, at + (uint64_t)word, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    if (version % 2 != 0 || market_ring_load(ring, at, __ATOMIC_RELAXED) != version) return 0;
    memcpy(quote, words, sizeof *quote);
    return 1;
}

#ifdef __cplusplus
}
#endif

#endif
