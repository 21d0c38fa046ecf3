//! The whole receive path under conditions that the table of figures does not show, and the send
//! path. A figure is for one packet, without the time to feed the wire and to drain it.

use core::net::{Ipv4Addr, SocketAddrV4};
use std::time;

use criterion::{Criterion, criterion_group, criterion_main};
use wirepath::pipeline::{Checksum, UdpFlow, UdpOptions};
use wirepath_benches::frames::{PAYLOAD_LEN, SENDER, UdpChecksum};
use wirepath_benches::receiver::{ROUND, Receiver, Reception};
use wirepath_benches::{decoding, measure};

fn receiving(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("receive");
    let usual = Reception::default();
    let full = Reception { payload_len: 1_472, ..usual };
    for (name, reception) in [
        ("64 bytes", usual),
        ("64 bytes, checksum verified", Reception { checksum: UdpChecksum::Right, ..usual }),
        ("1514 bytes", full),
        ("1514 bytes, checksum verified", Reception { checksum: UdpChecksum::Right, ..full }),
        ("one consumer of one source", Reception { source_specific: true, ..usual }),
        ("four consumers of any source", Reception { consumers: 4, ..usual }),
        ("four consumers of one source", Reception { consumers: 4, source_specific: true, ..usual }),
        ("64 groups", Reception { groups: 64, ..usual }),
        ("burst 1", Reception { burst_len: 1, ..usual }),
        ("burst 64", Reception { burst_len: 64, ..usual }),
    ] {
        let mut receiver = Receiver::new(reception);
        group.bench_function(name, |bencher| measure::packets(bencher, |rounds| receiver.time(rounds)));
    }
    group.finish();
}

fn sending(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("send, prepared flow");
    for (name, payload_len, checksum) in [
        ("64 bytes", PAYLOAD_LEN, Checksum::Compute),
        ("64 bytes, no checksum", PAYLOAD_LEN, Checksum::Zero),
        ("1514 bytes", 1_472, Checksum::Compute),
    ] {
        let mut receiver = Receiver::new(Reception::default());
        let options = UdpOptions { checksum, ..UdpOptions::default() };
        let local = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 5_000);
        let flow = receiver.with_app(|_, cx| UdpFlow::connect(local, SENDER, &options, cx));
        let mut flow = flow.expect("the sender is a neighbor");
        let payload = vec![7; payload_len];
        group.bench_function(name, |bencher| {
            measure::packets(bencher, |rounds| time_sends(&mut receiver, &mut flow, &payload, rounds));
        });
    }
    group.finish();
}

/// Nanoseconds a datagram; each sample fills the wire.
fn time_sends(receiver: &mut Receiver, flow: &mut UdpFlow, payload: &[u8], rounds: usize) -> f64 {
    let mut spent = time::Duration::ZERO;
    for _ in 0..rounds {
        let start = time::Instant::now();
        let sent = receiver.with_app(|_, cx| (0..ROUND).filter(|_| flow.send(payload, cx).is_ok()).count());
        spent += start.elapsed();
        assert_eq!((sent, receiver.drain_sent()), (ROUND, ROUND), "a datagram was not sent");
    }
    spent.as_nanos() as f64 / (rounds * ROUND) as f64
}

/// A pass over 8,000 messages.
fn decoders(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decode 8000 messages");
    let (mut itch, mut tops) = (decoding::itch(), decoding::tops());
    group.bench_function("ITCH 5.0 in MoldUDP64", |bencher| bencher.iter(|| itch.pass()));
    group.bench_function("TOPS 1.6 in IEX-TP", |bencher| bencher.iter(|| tops.pass()));
    group.finish();
}

criterion_group! { name = benches; config = measure::criterion(); targets = receiving, sending, decoders }
criterion_main!(benches);
