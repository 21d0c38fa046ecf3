// Reads a ring to its end and prints what it finds. reader PATH
#include "market_ring.h"

#include <stdio.h>

int main(int argc, char **argv) {
    struct market_ring ring;
    struct market_ring_record record;
    struct market_ring_quote quote;
    uint64_t first, last;
    int error = argc == 2 ? market_ring_open(&ring, argv[1]) : EINVAL;
    if (error) {
        printf("%s\n", strerror(error));
        return 1;
    }
    ring.next = market_ring_oldest(&ring);
    printf("reading\n");
    fflush(stdout);
    for (;;) {
        switch (market_ring_read(&ring, &record, &first, &last)) {
        case MARKET_RING_RECORD:
            printf("record %llu: venue %llu, kind %d, flags %d, channel %d, locate %u, %c %.8s, order %llu, %llu at %lld\n",
                   (unsigned long long)record.stamp - 1, (unsigned long long)record.venue_seq, record.kind, record.flags,
                   record.channel, record.locate, record.side, record.symbol, (unsigned long long)record.order,
                   (unsigned long long)record.qty, (long long)record.price);
            break;
        case MARKET_RING_JOINED:
            printf("joined behind %llu to %llu\n", (unsigned long long)first, (unsigned long long)last);
            break;
        case MARKET_RING_OVERRUN:
            printf("missed %llu to %llu\n", (unsigned long long)first, (unsigned long long)last);
            break;
        case MARKET_RING_EMPTY:
            if (!market_ring_writer_is_gone(&ring)) break;
            /* What it wrote at last is read first. */
            if (market_ring_load(&ring, MARKET_RING_AT_NEXT, __ATOMIC_ACQUIRE) != ring.next) break;
            if (market_ring_load(&ring, MARKET_RING_AT_CLOSED, __ATOMIC_ACQUIRE)) break;
            printf("the writer is gone\n");
            market_ring_close(&ring);
            return 0;
        case MARKET_RING_CLOSED:
            for (first = 0; first < ring.quotes; first++)
                if (market_ring_read_quote(&ring, first, &quote) && quote.updates)
                    printf("quote %llu: %llu updates, %.8s %llu at %lld, %llu at %lld\n", (unsigned long long)first,
                           (unsigned long long)quote.updates, quote.symbol, (unsigned long long)quote.bid_qty,
                           (long long)quote.bid_px, (unsigned long long)quote.ask_qty, (long long)quote.ask_px);
            market_ring_close(&ring);
            return 0;
        }
    }
}
