//! Buffers, counters, and the ring between workers on one core.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use wirepath::counters::{Block, Unit};
use wirepath::mem::Pool;
use wirepath::worker::spsc::lossless;
use wirepath_benches::measure;

fn mbufs(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("mbuf");
    let pool = Pool::heap(64).expect("64 buffers are 120 KB");
    group.bench_function("alloc, free", |bencher| {
        bencher.iter(|| {
            if let Some(mbuf) = black_box(pool.alloc()) {
                mbuf.free();
            }
        });
    });
    group.bench_function("alloc, copy 64 bytes in, free", |bencher| {
        bencher.iter(|| {
            if let Some(mbuf) = black_box(pool.alloc_copy(black_box(&[7; 64]))) {
                mbuf.free();
            }
        });
    });
    let mbuf = pool.alloc_copy(&[7; 64]).expect("a buffer is free");
    group.bench_function("hold, let go", |bencher| bencher.iter(|| drop(black_box(mbuf.hold()))));
    group.finish();
    mbuf.free();
}

fn counters(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("counters");
    let block = Block::heap();
    let scope = block.scope("bench");
    let (counter, mut histogram) = (scope.counter("c", Unit::Frames), scope.histogram("h", Unit::Nanoseconds));
    group.bench_function("count one", |bencher| bencher.iter(|| black_box(&counter).inc()));
    group.bench_function("record in a histogram", |bencher| bencher.iter(|| histogram.record(black_box(812))));
    group.finish();
}

fn rings(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("spsc, both ends on one core");
    let (mut producer, mut consumer) = lossless::ring::<u64>(1_024).expect("1024 is a power of two");
    group.bench_function("push, pop", |bencher| {
        bencher.iter(|| {
            let pushed = producer.push(black_box(7));
            (pushed, consumer.pop())
        });
    });
    group.bench_function("push and take 32", |bencher| {
        bencher.iter(|| {
            producer.push_burst(black_box(&[7; 32]));
            let mut sum = 0;
            consumer.pop_each(32, |item| sum += item);
            sum
        });
    });
    group.finish();
}

criterion_group! { name = benches; config = measure::criterion(); targets = mbufs, counters, rings }
criterion_main!(benches);
