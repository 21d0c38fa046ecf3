//! The same work in two shapes: each packet through all nodes, or each node over all packets of a
//! burst.
//!
//! ```text
//!  single       p1: Ethernet IPv4 UDP table   p2: Ethernet IPv4 UDP table   p3 …
//!  sub-bursts   Ethernet: p1 p2 p3 …   IPv4: p1 p2 p3 …   UDP: p1 p2 p3 …   table: p1 p2 p3 …
//! ```
//! Both prefetch the headers of a whole burst before they begin. With sub-bursts the buckets of all
//! flows can be prefetched before the first is read. Single packets can have that advantage too, if
//! a pass over the raw frames comes first.

use core::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time;

use arrayvec::ArrayVec;
use wirepath::mem::{Layout, Mbuf, Pool, Region};
use wirepath::proto::{ConsumerId, FilterId, HashSeed, Subscriber};
use wirepath::testing::proto::{Demux, DemuxCapacity};
use wirepath::wire::ethernet::EthernetFrame;
use wirepath::wire::ipv4::Ipv4Packet;
use wirepath::wire::udp::UdpHeader;
use wirepath::wire::{EtherType, Protocol};

use crate::frames::{HEADERS_LEN, PAYLOAD_LEN, UdpChecksum, frame, shuffled};
use crate::prefetch;

/// Packets in a burst.
const BURST: usize = 32;

/// The order of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One packet through all nodes, then the next, as the pipeline does.
    Single,
    /// The same, after a pass over the raw frames that prefetches the buckets of their flows.
    SingleWithLook,
    /// Each node over the whole burst.
    SubBursts,
    /// The same, and the UDP node prefetches the buckets before the table is read.
    SubBurstsWithLook,
}

/// The memory that the work is spread over.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    /// Packets in rotation; 256 stay in the L1 cache, 32,768 exceed the L2 cache.
    pub packets: usize,
    /// Flows in the table; consecutive packets have different ones.
    pub flows: u32,
}

/// Packets in their buffers, and a table with their flows.
pub struct Workshop {
    // Before the pool: mbufs must be dropped first.
    packets: Vec<Mbuf>,
    table: Demux,
    /// Datagrams for each of eight consumers.
    received: [u64; 8],
    _pool: Pool,
}

impl Workshop {
    /// Everything allocated: buffers, packets in an order that no prefetcher can learn, and the
    /// flows.
    pub fn new(spread: Spread) -> Self {
        let layout = Layout::default();
        let region = Region::heap(layout.region_len(spread.packets)).expect("the machine has some 60 MB");
        let pool = Pool::new(Arc::new(region), layout).expect("a fresh region takes a pool");
        let mut packets: Vec<Mbuf> = shuffled(spread.flows, spread.packets, 7)
            .into_iter()
            .map(|flow| pool.alloc_copy(&frame(end(flow), PAYLOAD_LEN, UdpChecksum::Zero)).expect("as many as packets"))
            .collect();
        for (idx, other) in shuffled(spread.packets as u32, spread.packets, 8).into_iter().enumerate() {
            packets.swap(idx, other as usize);
        }
        let capacity = DemuxCapacity { locals: spread.flows as usize, connections: 1, shared_subscribers: 1 };
        let mut table = Demux::new(capacity, HashSeed::new(1, 2));
        for flow in 0..spread.flows {
            let subscriber = Subscriber { consumer: ConsumerId(flow % 8), filter: FilterId::ANY };
            table.bind(end(flow), subscriber).expect("the table has room for all flows");
        }
        Self { packets, table, received: [0; 8], _pool: pool }
    }

    /// Nanoseconds a packet, over `count` packets at least.
    pub fn time(&mut self, shape: Shape, count: usize) -> f64 {
        let laps = count.div_ceil(self.packets.len());
        let before: u64 = self.received.iter().sum();
        let start = time::Instant::now();
        for _ in 0..laps {
            match shape {
                Shape::Single => self.lap_single::<false>(),
                Shape::SingleWithLook => self.lap_single::<true>(),
                Shape::SubBursts => self.lap_sub_bursts::<false>(),
                Shape::SubBurstsWithLook => self.lap_sub_bursts::<true>(),
            }
        }
        let spent = start.elapsed().as_nanos() as f64;
        let received = self.received.iter().sum::<u64>() - before;
        assert_eq!(received, (laps * self.packets.len()) as u64, "a datagram was not received");
        spent / received as f64
    }

    #[inline(never)]
    fn lap_single<const LOOK: bool>(&mut self) {
        for burst in self.packets.chunks_mut(BURST) {
            burst.iter().for_each(Mbuf::prefetch);
            if LOOK {
                for mbuf in burst.iter() {
                    if let Some(destination) = peek(mbuf.bytes()) {
                        prefetch::line(self.table.bucket(self.table.hash(destination)));
                    }
                }
            }
            for mbuf in burst {
                if ethernet(mbuf)
                    && ipv4(mbuf)
                    && let Some(destination) = udp(mbuf)
                {
                    deliver(&self.table, destination, &mut self.received);
                }
                put_back(mbuf);
            }
        }
    }

    #[inline(never)]
    fn lap_sub_bursts<const LOOK: bool>(&mut self) {
        for burst in self.packets.chunks_mut(BURST) {
            burst.iter().for_each(Mbuf::prefetch);
            let (mut ipv4_burst, mut udp_burst) = (ArrayVec::<_, BURST>::new(), ArrayVec::<_, BURST>::new());
            for mbuf in burst.iter_mut() {
                if ethernet(mbuf) {
                    ipv4_burst.push(mbuf);
                }
            }
            for mbuf in ipv4_burst {
                if ipv4(mbuf) {
                    udp_burst.push(mbuf);
                }
            }
            let mut found = ArrayVec::<_, BURST>::new();
            for mbuf in udp_burst {
                if let Some(destination) = udp(mbuf) {
                    if LOOK {
                        prefetch::line(self.table.bucket(self.table.hash(destination)));
                    }
                    found.push(destination);
                }
            }
            for destination in found {
                deliver(&self.table, destination, &mut self.received);
            }
            burst.iter_mut().for_each(put_back);
        }
    }
}

#[inline(always)]
fn ethernet(mbuf: &mut Mbuf) -> bool {
    let Ok(frame) = EthernetFrame::parse(mbuf.bytes()) else { return false };
    let (ethertype, header_len) = (frame.ethertype, frame.header_len());
    mbuf.set_l2_len(header_len);
    mbuf.advance(header_len);
    ethertype == EtherType::IPV4
}

#[inline(always)]
fn ipv4(mbuf: &mut Mbuf) -> bool {
    let Ok(packet) = Ipv4Packet::parse(mbuf.bytes()) else { return false };
    if packet.verify_checksum().is_err() || packet.header.is_fragment() {
        return false;
    }
    let (protocol, header_len, payload_len) = (packet.header.protocol(), packet.header_len(), packet.payload.len());
    mbuf.set_l3_len(header_len);
    mbuf.narrow(header_len, payload_len);
    protocol == Protocol::UDP
}

#[inline(always)]
fn udp(mbuf: &mut Mbuf) -> Option<SocketAddrV4> {
    let (header, payload) = UdpHeader::parse(mbuf.bytes()).ok()?;
    let (port, payload_len) = (header.destination_port(), payload.len());
    let destination: &[u8; 4] = mbuf.behind(4)?.first_chunk()?;
    let destination = SocketAddrV4::new(Ipv4Addr::from_octets(*destination), port);
    mbuf.narrow(HEADERS_LEN - 34, payload_len);
    Some(destination)
}

#[inline(always)]
fn deliver(table: &Demux, destination: SocketAddrV4, received: &mut [u64; 8]) {
    if let Some(consumer) = table.only_consumer(destination) {
        received[consumer.0 as usize % 8] += 1;
    } else {
        deliver_displaced(table, destination, received);
    }
}

/// One flow in twenty is not in its home bucket.
#[inline(never)]
fn deliver_displaced(table: &Demux, destination: SocketAddrV4, received: &mut [u64; 8]) {
    let remote = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
    if let wirepath::proto::DemuxMatch::One(one) = table.lookup(wirepath::proto::Flow { local: destination, remote }) {
        received[one.consumer.0 as usize % 8] += 1;
    }
}

/// The destination of a raw frame in the usual format: all that a pass before the work can know.
#[inline(always)]
fn peek(frame: &[u8]) -> Option<SocketAddrV4> {
    let [a, b, c, d] = *frame.get(30..34)?.first_chunk()?;
    let [high, low] = *frame.get(36..38)?.first_chunk()?;
    Some(SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([high, low])))
}

/// Restores the headers, for the next lap.
#[inline(always)]
fn put_back(mbuf: &mut Mbuf) {
    let grown = mbuf.prepend(HEADERS_LEN).is_some();
    assert!(grown, "the headers were taken off a moment ago");
}

/// Flow number `idx`: a unicast destination.
fn end(idx: u32) -> SocketAddrV4 {
    let address = Ipv4Addr::from_bits(Ipv4Addr::new(10, 64, 0, 0).to_bits() + idx);
    SocketAddrV4::new(address, 7_000 + (idx % 8) as u16)
}
