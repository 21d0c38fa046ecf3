//! Checksums over headers, short and full payloads.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use wirepath::wire::checksum::{checksum, verify_ipv4_header};
use wirepath_benches::measure;

fn checksums(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("checksum");
    let bytes: Vec<u8> = (0..1_460).map(|at| (at * 7) as u8).collect();
    for len in [20, 64, 1_460] {
        group.bench_function(format!("{len} bytes"), |bencher| bencher.iter(|| checksum(black_box(&bytes[..len]))));
    }
    let header: [u8; 20] = [0x45; 20];
    group.bench_function("verify an IPv4 header", |bencher| bencher.iter(|| verify_ipv4_header(black_box(&header))));
    group.finish();
}

criterion_group! { name = benches; config = measure::criterion(); targets = checksums }
criterion_main!(benches);
