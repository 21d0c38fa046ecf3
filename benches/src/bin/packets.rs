//! Sends packets through a measured path, to be run under callgrind or strace: `packets PATH
//! ROUNDS`.
//!
//! The measured functions have names that begin with `measured` and are never inlined, so that
//! callgrind can toggle its collection there.

use std::process::ExitCode;

use rdma::roce::Mtu;
use wirepath::pipeline::Cx;
use wirepath::pipeline::tcp::PreparedOrder;
use wirepath_benches::feed::Channels;
use wirepath_benches::forwarder::Forwarder;
use wirepath_benches::frames::UdpChecksum;
use wirepath_benches::live::reflector::Lockstep;
use wirepath_benches::measure::outside::between_marks;
use wirepath_benches::mlx5::{Cqes, Posting, Rings, SendRings};
use wirepath_benches::rdma::orders::{MirroredOrders, ORDERS, Reach};
use wirepath_benches::rdma::pair::{self as rdma_pair, Pair as RdmaPair};
use wirepath_benches::receiver::{ROUND, Receiver, Reception};
use wirepath_benches::sockets::{OwnExchange, OwnReception, SocketExchange, SocketReception};
use wirepath_benches::tcp::crowd::{self, Crowd};
use wirepath_benches::tcp::flood::{self, Flood};
use wirepath_benches::tcp::orders::{self, BATCH, Mlx5Orders, Orders};
use wirepath_benches::tcp::pair::{Cuts, PairConfig, Role, TcpPair};
use wirepath_benches::tcp::{Checksums, SEGMENT_LEN};
use wirepath_benches::trading::depth_feed::DepthFeed;
use wirepath_benches::trading::itch_day::{DaySize, ExposedDay, ItchDay};

const PATHS: &str = "udp, udp-verified, udp-1000, udp-burst-1, idle, forward, forward-live, mlx5-rx, mlx5-rx-full, \
    mlx5-rx-compressed, mlx5-tx, mlx5-tx-frames, mlx5-tx-multi, mlx5-tx-multi-frames, mlx5-tx-urgent, mlx5-tx-reap, \
    mlx5-tx-multi-reap, tcp-fire, mlx5-fire, mlx5-fire-preposted, mlx5-prepost, tcp-bulk, tcp-bulk-unchecked, tcp-bulk-cut, tcp-bulk-cut-unchecked, tcp-round-trip, \
    tcp-flood, tcp-flood-none, tcp-crowd-CONNECTIONS, host-udp, sockets-udp, host-tcp, sockets-tcp, \
    feed-1, feed-500, feed-idle-500, itch-books, itch-books-exposed, mdp3-books, \
    rdma-send, rdma-write, rdma-bulk-4096, rdma-bulk-1024, rdma-order, rdma-order-posted, rdma-order-framed";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(path), Some(rounds)) = (arguments.next(), arguments.next().and_then(|text| text.parse().ok())) else {
        eprintln!("packets: say a path and how many rounds of {ROUND} packets, as in `packets udp 40`; paths: {PATHS}");
        return ExitCode::from(2);
    };
    let usual = Reception::default();
    match path.as_str() {
        "udp" => receive(usual, rounds),
        "udp-verified" => receive(Reception { checksum: UdpChecksum::Right, ..usual }, rounds),
        "udp-1000" => receive(Reception { groups: 1000, ..usual }, rounds),
        "udp-burst-1" => receive(Reception { burst_len: 1, ..usual }, rounds),
        "idle" => idle(rounds),
        "forward" => forward(rounds),
        "mlx5-rx" => mlx5_receive(Cqes::Plain, rounds),
        "mlx5-rx-full" => mlx5_receive(Cqes::Full, rounds),
        "mlx5-rx-compressed" => mlx5_receive(Cqes::Compressed, rounds),
        "mlx5-tx" => mlx5_send(false, Posting::Bursts, rounds),
        "mlx5-tx-frames" => mlx5_send(false, Posting::Frames, rounds),
        "mlx5-tx-multi" => mlx5_send(true, Posting::Bursts, rounds),
        "mlx5-tx-multi-frames" => mlx5_send(true, Posting::Frames, rounds),
        "mlx5-tx-urgent" => mlx5_send(false, Posting::Urgent, rounds),
        "mlx5-tx-reap" => mlx5_reap(false, rounds),
        "mlx5-tx-multi-reap" => mlx5_reap(true, rounds),
        "feed-1" => feed(1, rounds),
        "feed-500" => feed(500, rounds),
        "feed-idle-500" => feed_idle(500, rounds),
        "tcp-fire" => fire(rounds),
        "mlx5-fire" => mlx5_fire(|_, _| (), measured_mlx5_fire, rounds),
        "mlx5-fire-preposted" => mlx5_fire(orders::prepost, measured_mlx5_fire, rounds),
        "mlx5-prepost" => mlx5_fire(measured_prepost, orders::fire, rounds),
        "tcp-bulk" => tcp_bulk(Checksums::On, Cuts::Tcp, rounds),
        "tcp-bulk-unchecked" => tcp_bulk(Checksums::Off, Cuts::Tcp, rounds),
        "tcp-bulk-cut" => tcp_bulk(Checksums::On, Cuts::Device, rounds),
        "tcp-bulk-cut-unchecked" => tcp_bulk(Checksums::Off, Cuts::Device, rounds),
        "tcp-round-trip" => tcp_round_trips(rounds),
        "tcp-flood" => tcp_flood(true, rounds),
        "tcp-flood-none" => tcp_flood(false, rounds),
        "host-udp" => host_udp(rounds),
        "sockets-udp" => sockets_udp(rounds),
        "host-tcp" => host_tcp(rounds),
        "sockets-tcp" => sockets_tcp(rounds),
        "itch-books" => itch_books(rounds),
        "itch-books-exposed" => itch_books_exposed(rounds),
        "mdp3-books" => mdp3_books(rounds),
        "rdma-send" => rdma_messages(measured_rdma_sends, rounds),
        "rdma-write" => rdma_messages(measured_rdma_writes, rounds),
        "rdma-bulk-4096" => rdma_bulk(Mtu::B4096, rounds),
        "rdma-bulk-1024" => rdma_bulk(Mtu::B1024, rounds),
        "rdma-order" => rdma_orders(Reach::Journal, rounds),
        "rdma-order-posted" => rdma_orders(Reach::Posted, rounds),
        "rdma-order-framed" => rdma_orders(Reach::Framed, rounds),
        "forward-live" => {
            if let Err(why) = forward_live(rounds) {
                eprintln!("packets: {why}");
                return ExitCode::FAILURE;
            }
        }
        _ => match crowd_of(&path) {
            Some(connections) => tcp_crowd(connections, rounds),
            None => {
                eprintln!("packets: no path {path}: choose one of {PATHS}");
                return ExitCode::from(2);
            }
        },
    }
    println!("packets {}", rounds * ROUND);
    ExitCode::SUCCESS
}

/// The number of connections in the name of a path that has one.
fn crowd_of(path: &str) -> Option<usize> {
    path.strip_prefix("tcp-crowd-")?.parse().ok().filter(|&connections| connections > 0)
}

fn receive(reception: Reception, rounds: usize) {
    let mut receiver = Receiver::new(reception);
    for _ in 0..rounds {
        receiver.feed();
        between_marks(|| measured_reception(&mut receiver));
    }
    assert_eq!(receiver.app().received, (rounds * ROUND) as u64, "a datagram was not received");
}

/// Turns that receive nothing count as packets.
fn idle(rounds: usize) {
    let mut receiver = Receiver::new(Reception::default());
    for _ in 0..rounds {
        measured_idleness(&mut receiver);
    }
}

/// The feed handler's app, with `count` channels.
fn feed(count: u32, rounds: usize) {
    let mut channels = Channels::open(count);
    for _ in 0..rounds {
        channels.feed();
        between_marks(|| measured_feed(&mut channels));
    }
}

/// As [`idle`].
fn feed_idle(count: u32, rounds: usize) {
    let mut channels = Channels::open(count);
    for _ in 0..rounds {
        measured_feed_idleness(&mut channels);
    }
}

/// A packet is a message; the books hold orders before the first that counts.
fn itch_books(rounds: usize) {
    let mut day = ItchDay::draw(DaySize::CHANNEL);
    day.packets(3_000);
    let end = day.messages() + (rounds * ROUND) as u64;
    while day.messages() < end {
        measured_itch_books(&mut day);
    }
}

/// As [`itch_books`].
fn itch_books_exposed(rounds: usize) {
    let mut day = ExposedDay::expose(DaySize::CHANNEL);
    day.packets(3_000);
    let end = day.messages() + (rounds * ROUND) as u64;
    while day.messages() < end {
        measured_itch_books_exposed(&mut day);
    }
}

/// As [`itch_books`].
fn mdp3_books(rounds: usize) {
    let mut feed = DepthFeed::draw();
    feed.packets(500);
    let end = feed.messages() + (rounds * ROUND) as u64;
    while feed.messages() < end {
        measured_mdp3_books(&mut feed);
    }
}

/// A packet is a message, whatever it takes.
fn rdma_messages(measured: fn(&mut RdmaPair), rounds: usize) {
    let mut pair = RdmaPair::new(rdma_pair::PairConfig::default());
    for _ in 0..rounds {
        between_marks(|| measured(&mut pair));
    }
}

/// A packet is an order.
fn rdma_orders(reach: Reach, rounds: usize) {
    const _: () = assert!(ROUND == ORDERS);
    let mut orders = MirroredOrders::new();
    for _ in 0..rounds {
        measured_rdma_orders(&mut orders, reach);
        orders.settle();
    }
}

/// A packet is one of a message of as many as a round has.
fn rdma_bulk(mtu: Mtu, rounds: usize) {
    let message_len = ROUND * mtu.bytes() as usize;
    let mut pair = RdmaPair::new(rdma_pair::PairConfig { mtu, message_len, ..Default::default() });
    for _ in 0..rounds {
        measured_rdma_bulk(&mut pair);
    }
}

fn forward(rounds: usize) {
    let mut forwarder = Forwarder::new();
    for _ in 0..rounds {
        forwarder.feed();
        measured_forwarding(&mut forwarder);
        forwarder.clear();
    }
}

/// The mlx5 device alone, from CQE to mbuf.
fn mlx5_receive(cqes: Cqes, rounds: usize) {
    let mut rings = Rings::new(cqes);
    for _ in 0..rounds {
        rings.feed();
        let mut received = 0;
        while received < ROUND {
            received += measured_mlx5_receive(&mut rings);
            rings.clear();
        }
    }
}

/// The mlx5 device alone, from mbuf to doorbell.
fn mlx5_send(multi_packet: bool, posting: Posting, rounds: usize) {
    let mut rings = SendRings::new(multi_packet);
    for _ in 0..rounds {
        rings.prepare();
        match posting {
            Posting::Bursts => measured_mlx5_bursts(&mut rings),
            Posting::Frames => measured_mlx5_frames(&mut rings),
            Posting::Urgent => measured_mlx5_urgent(&mut rings),
        }
        rings.complete();
        while rings.reap() > 0 {}
        assert!(rings.is_home(), "every mbuf comes home");
    }
}

/// The mlx5 device alone, from completion to pool.
fn mlx5_reap(multi_packet: bool, rounds: usize) {
    let mut rings = SendRings::new(multi_packet);
    for _ in 0..rounds {
        rings.prepare();
        rings.send(Posting::Bursts);
        rings.complete();
        while measured_mlx5_reap(&mut rings) > 0 {}
        assert!(rings.is_home(), "every mbuf comes home");
    }
}

/// Prepared orders, from the patch to the wire.
fn fire(rounds: usize) {
    let mut orders = Orders::new();
    for _ in 0..rounds * ROUND / BATCH {
        measured_fire(&mut orders);
        orders.settle();
    }
}

/// The same over mlx5, with a step before each order.
fn mlx5_fire(before: fn(&mut PreparedOrder, &mut Cx<'_>), fire: fn(&mut PreparedOrder, &mut Cx<'_>), rounds: usize) {
    let mut orders = Mlx5Orders::new();
    for _ in 0..rounds * ROUND / BATCH {
        orders.batch(before, fire);
        orders.settle();
    }
}

/// Over AF_XDP, in new namespaces; needs root.
fn forward_live(rounds: usize) -> Result<(), String> {
    Lockstep::run(|lockstep| {
        between_marks(|| {
            let mut frames = 0;
            while frames < rounds * ROUND {
                frames += lockstep.round()?;
            }
            Ok(())
        })
    })?
}

/// Both ends; a packet is a full segment.
fn tcp_bulk(checksums: Checksums, cuts: Cuts, rounds: usize) {
    let mut pair = TcpPair::new(PairConfig { cuts, ..PairConfig::one(checksums, Role::Sink) });
    pair.bulk(100 * ROUND * SEGMENT_LEN);
    measured_tcp_bulk(&mut pair, rounds * ROUND * SEGMENT_LEN);
}

/// Both ends; a packet is a request and its response.
fn tcp_round_trips(rounds: usize) {
    let mut pair = TcpPair::new(PairConfig::one(Checksums::On, Role::Echo));
    pair.round_trip(100 * ROUND);
    measured_tcp_round_trips(&mut pair, rounds * ROUND);
}

/// Half bursts of full segments, with or without as many SYNs from random sources before them. The
/// difference is the flood's cost.
fn tcp_flood(is_flooded: bool, rounds: usize) {
    let mut flood = Flood::new();
    for _ in 0..rounds * ROUND / flood::HALF {
        if is_flooded {
            flood.flood();
        }
        measured_tcp_flood(&mut flood);
    }
}

/// Datagrams to an app of a host; beside it [`sockets_udp`].
fn host_udp(rounds: usize) {
    let mut reception = OwnReception::new();
    for _ in 0..rounds {
        reception.feed();
        measured_host_udp(&mut reception);
    }
    assert_eq!(reception.received(), (rounds * ROUND) as u64, "a datagram was not received");
}

/// Datagrams to a socket, a call for each.
fn sockets_udp(rounds: usize) {
    let mut reception = SocketReception::new();
    for _ in 0..rounds {
        reception.feed();
        measured_sockets_udp(&mut reception);
    }
    assert_eq!(reception.received, (rounds * ROUND) as u64, "a datagram was not received");
}

/// Both ends; a packet is a request and its response. Beside it [`sockets_tcp`].
fn host_tcp(rounds: usize) {
    let mut pair = OwnExchange::new();
    (0..100).for_each(|_| pair.exchange());
    measured_host_tcp(&mut pair, rounds * ROUND);
}

/// The same by sockets: four calls.
fn sockets_tcp(rounds: usize) {
    let mut pair = SocketExchange::new();
    (0..100).for_each(|_| pair.exchange());
    measured_sockets_tcp(&mut pair, rounds * ROUND);
}

/// The server alone.
fn tcp_crowd(connections: usize, rounds: usize) {
    const { assert!(crowd::BATCH == ROUND, "a batch counts as a round") };
    let mut crowd = Crowd::new(connections);
    for _ in 0..rounds {
        crowd.send_batch();
        measured_tcp_crowd(&mut crowd);
        crowd.take_answers();
    }
}

#[inline(never)]
fn measured_tcp_bulk(pair: &mut TcpPair, bytes: usize) {
    pair.bulk(bytes);
}

#[inline(never)]
fn measured_tcp_round_trips(pair: &mut TcpPair, count: usize) {
    pair.round_trip(count);
}

#[inline(never)]
fn measured_tcp_flood(flood: &mut Flood) {
    flood.transfer();
}

#[inline(never)]
fn measured_tcp_crowd(crowd: &mut Crowd) {
    crowd.receive_batch();
}

#[inline(never)]
fn measured_host_udp(reception: &mut OwnReception) {
    reception.drain();
}

#[inline(never)]
fn measured_sockets_udp(reception: &mut SocketReception) {
    reception.drain();
}

#[inline(never)]
fn measured_host_tcp(pair: &mut OwnExchange, count: usize) {
    (0..count).for_each(|_| pair.exchange());
}

#[inline(never)]
fn measured_sockets_tcp(pair: &mut SocketExchange, count: usize) {
    (0..count).for_each(|_| pair.exchange());
}

#[inline(never)]
fn measured_reception(receiver: &mut Receiver) {
    receiver.drain();
}

#[inline(never)]
fn measured_idleness(receiver: &mut Receiver) {
    for _ in 0..ROUND {
        receiver.idle();
    }
}

#[inline(never)]
fn measured_feed(channels: &mut Channels) {
    channels.drain();
}

#[inline(never)]
fn measured_feed_idleness(channels: &mut Channels) {
    for _ in 0..ROUND {
        channels.idle();
    }
}

#[inline(never)]
fn measured_forwarding(forwarder: &mut Forwarder) {
    forwarder.drain();
}

#[inline(never)]
fn measured_fire(orders: &mut Orders) {
    orders.fire();
}

#[inline(never)]
fn measured_mlx5_fire(order: &mut PreparedOrder, cx: &mut Cx<'_>) {
    orders::fire(order, cx);
}

#[inline(never)]
fn measured_prepost(order: &mut PreparedOrder, cx: &mut Cx<'_>) {
    orders::prepost(order, cx);
}

#[inline(never)]
fn measured_mlx5_receive(rings: &mut Rings) -> usize {
    rings.receive()
}

#[inline(never)]
fn measured_mlx5_bursts(rings: &mut SendRings) {
    rings.send(Posting::Bursts);
}

#[inline(never)]
fn measured_mlx5_frames(rings: &mut SendRings) {
    rings.send(Posting::Frames);
}

#[inline(never)]
fn measured_mlx5_urgent(rings: &mut SendRings) {
    rings.send(Posting::Urgent);
}

#[inline(never)]
fn measured_mlx5_reap(rings: &mut SendRings) -> usize {
    rings.reap()
}

#[inline(never)]
fn measured_rdma_sends(pair: &mut RdmaPair) {
    (0..ROUND).for_each(|_| pair.send());
}

#[inline(never)]
fn measured_rdma_writes(pair: &mut RdmaPair) {
    for _ in 0..ROUND {
        pair.write(0);
        pair.complete();
    }
}

#[inline(never)]
fn measured_rdma_orders(orders: &mut MirroredOrders, reach: Reach) {
    (0..ORDERS).for_each(|_| orders.order(reach));
}

#[inline(never)]
fn measured_rdma_bulk(pair: &mut RdmaPair) {
    pair.write_bulk(1);
}

#[inline(never)]
fn measured_itch_books(day: &mut ItchDay) {
    day.packets(1);
}

#[inline(never)]
fn measured_itch_books_exposed(day: &mut ExposedDay) {
    day.packets(1);
}

#[inline(never)]
fn measured_mdp3_books(feed: &mut DepthFeed) {
    feed.packets(1);
}
