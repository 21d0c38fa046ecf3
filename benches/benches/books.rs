//! Books of a whole Nasdaq day: the cost of an update, and of a restart of the feed in the middle
//! of it. And the cost of routing a packet to its channel, with one channel and with 500. For
//! instructions instead of time: `valgrind --tool=callgrind --collect-atstart=no
//! --toggle-collect='packets::measured*' packets feed-500 40`.

use core::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use market::event::{Add, Delete, Event};
use market::{Books, Capacity, Locate, OrderBooks, OrderRef, Price, Side, Symbol};
use wirepath_benches::feed::Channels;
use wirepath_benches::measure;

/// Orders that rest when the feed restarts.
const RESTING: u64 = 1_000_000;

fn add(order: u64) -> Event {
    Event::Add(Add {
        at_ns: 0,
        locate: Locate(1),
        order: OrderRef(order),
        side: if order.is_multiple_of(2) { Side::Buy } else { Side::Sell },
        qty: 100,
        symbol: Symbol(*b"ZIEXT   "),
        price: Price((order % 1_000) as i64),
    })
}

fn delete(order: u64) -> Event {
    Event::Delete(Delete { at_ns: 0, locate: Locate(1), order: OrderRef(order) })
}

fn full() -> OrderBooks {
    let mut books = OrderBooks::new(Capacity::default());
    for order in 0..RESTING {
        books.apply(&add(order));
    }
    books
}

fn books(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("books of a Nasdaq day");
    let mut books = full();
    let mut order = RESTING;
    group.bench_function("an order added and one deleted", |bencher| {
        bencher.iter(|| {
            black_box(books.apply(&add(order)));
            black_box(books.apply(&delete(order - RESTING)));
            order += 1;
        });
    });
    // Each sample copies 210 MB, which takes time although the figure does not include it.
    group.sample_size(10).measurement_time(Duration::from_secs(5));
    group.bench_function("a million orders, begun anew", |bencher| {
        bencher.iter_batched_ref(|| books.clone(), |books| books.clear(), BatchSize::PerIteration);
    });
    // The writes that follow pay for the clear.
    group.bench_function("begun anew, and a thousand orders added", |bencher| {
        bencher.iter(|| {
            books.clear();
            for order in 0..1_000 {
                black_box(books.apply(&add(order)));
            }
        });
    });
    group.finish();
}

/// Heartbeats, so that no book is in the figure.
fn channels(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("feed handler");
    for count in [1, 500] {
        let mut channels = Channels::open(count);
        group.bench_function(format!("a packet, channels: {count}"), |bencher| {
            measure::packets(bencher, |rounds| channels.time(rounds));
        });
        group.bench_function(format!("a turn without packets, channels: {count}"), |bencher| {
            bencher.iter(|| channels.idle());
        });
    }
    group.finish();
}

criterion_group! { name = benches; config = measure::criterion(); targets = books, channels }
criterion_main!(benches);
