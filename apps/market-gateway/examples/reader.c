/* Reads a gateway's ring to its end and prints the latest quotes, prices in ten-thousandths.
 *
 *     cc -O2 -I apps/market-ring/include apps/market-gateway/examples/reader.c -o reader
 *     ./reader /dev/shm/nasdaq.ring
 */
#include "market_ring.h"

#include <stdio.h>

/* A symbol is the sender's bytes: what is no printable ASCII would reach the terminal. */
static void print_symbol(const char *symbol) {
    for (int idx = 0; idx < 8; idx++) putchar(symbol[idx] >= ' ' && symbol[idx] <= '~' ? symbol[idx] : '?');
}

int main(int argc, char **argv) {
    struct market_ring ring;
    struct market_ring_record record;
    struct market_ring_quote quote;
    uint64_t first, last, records = 0, missed = 0, idx;
    enum market_ring_result result;
    int error = argc == 2 ? market_ring_open(&ring, argv[1]) : EINVAL;
    if (error) {
        fprintf(stderr, "reader: %s\n", strerror(error));
        return 1;
    }
    printf("reading\n");
    fflush(stdout);
    while ((result = market_ring_read(&ring, &record, &first, &last)) != MARKET_RING_CLOSED) {
        if (result == MARKET_RING_RECORD) records++;
        if (result == MARKET_RING_OVERRUN || result == MARKET_RING_JOINED) missed += last - first + 1;
    }
    for (idx = 0; idx < ring.quotes; idx++)
        if (market_ring_read_quote(&ring, idx, &quote) && quote.updates) {
            print_symbol(quote.symbol);
            printf(" %llu at %lld, %llu at %lld\n", (unsigned long long)quote.bid_qty, (long long)quote.bid_px,
                   (unsigned long long)quote.ask_qty, (long long)quote.ask_px);
        }
    printf("%llu events, %llu missed\n", (unsigned long long)records, (unsigned long long)missed);
    market_ring_close(&ring);
    return 0;
}
