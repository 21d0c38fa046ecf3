//! Recorded market data on a live wire: the captures of docs/captures.md, sent by AF_XDP on one end
//! of a veth at the pace at which they were recorded, or a stated multiple of it, and received by a
//! host of ours on the other. Every missing frame must have a named reason: sent = received + named
//! drops, and the datagrams are the recorded ones in their order.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::collections::BTreeSet;
use std::net::SocketAddrV4;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use wirepath::counters::Block;
use wirepath::device::af_xdp::{AfXdpConfig, AfXdpDevice};
use wirepath::device::pcap::{Pace, Pacer, Reader};
use wirepath::device::{Device, Offload, Queue, RxQueue, TxQueue};
use wirepath::mem::{Layout, Pool, Region};
use wirepath::proto::{ConsumerId, Group};
use wirepath::time::{Clock, MonotonicClock};
use wirepath::wire::checksum::Sum;
use wirepath::wire::ethernet::EthernetFrame;
use wirepath::wire::ipv4::{Ipv4Header, Ipv4Packet};
use wirepath::wire::udp::UdpHeader;
use wirepath::wire::{MacAddr, Protocol};
use wirepath_tests::live::{FAR, Live, LiveConfig, NEAR, THEIRS, TIMEOUT, Wire, table};

/// A frame and when it was recorded.
struct Frame {
    at_ns: u64,
    bytes: Vec<u8>,
}

impl Frame {
    /// The destination and the payload of its datagram.
    fn datagram(&self) -> Option<(SocketAddrV4, &[u8])> {
        let frame = EthernetFrame::parse(&self.bytes).ok()?;
        let packet = Ipv4Packet::parse(frame.payload).ok()?;
        if packet.header.protocol() != Protocol::UDP || packet.header.is_fragment() {
            return None;
        }
        let (udp, payload) = UdpHeader::parse(packet.payload).ok()?;
        Some((SocketAddrV4::new(packet.header.destination(), udp.destination_port()), payload))
    }
}

impl Frame {
    /// Converts a frame that was recorded on a loopback interface, which no wire carries and no
    /// host accepts, to the form that it would have on a wire: to the station of its group, from an
    /// address that a neighbor may have, with the checksums that a NIC would have computed.
    fn onto_the_wire(self) -> Self {
        const IP: usize = 14;
        const UDP: usize = IP + Ipv4Header::LEN;
        let is_plain = self.bytes.len() > IP && self.bytes[IP] == 0x45 && self.bytes[IP + 12] == 127;
        let Some((to, payload)) = self.datagram().filter(|_| is_plain) else { return self };
        let (mut bytes, payload) = (self.bytes.clone(), payload.to_vec());
        bytes[..6].copy_from_slice(&MacAddr::multicast_ipv4(*to.ip()).0);
        bytes[IP + 12..IP + 16].copy_from_slice(&THEIRS.octets());
        bytes[IP + 10..IP + 12].fill(0);
        let sum = Sum::of(&bytes[IP..UDP]).finish();
        bytes[IP + 10..IP + 12].copy_from_slice(&sum.to_be_bytes());
        let mut udp = *UdpHeader::parse(&bytes[UDP..]).unwrap().0;
        udp.fill_checksum(THEIRS, *to.ip(), &payload);
        udp.emit(&mut bytes[UDP..]).unwrap();
        Self { bytes, ..self }
    }
}

/// The whole frames of a capture.
fn read(path: &Path) -> Vec<Frame> {
    let mut reader = Reader::open(path).unwrap();
    let mut frames = Vec::new();
    while let Ok(Some(packet)) = reader.next() {
        frames.push(Frame { at_ns: packet.timestamp_ns, bytes: packet.bytes.to_vec() });
    }
    frames
}

fn replay(test: &str, name: &str, pace: Pace, frames_expected: usize) {
    let Some(path) = wirepath_captures::find(test, name) else { return };
    let Some(wire) = Wire::new(test) else { return };
    let frames: Vec<_> = read(&path).into_iter().map(Frame::onto_the_wire).collect();
    let expected: Vec<_> = frames.iter().filter_map(Frame::datagram).collect();
    assert_eq!((frames.len(), expected.len()), (frames_expected, frames_expected), "every frame carries a datagram");
    // A busy machine may keep the worker from its queue for as long as it likes: the ring holds a
    // whole capture.
    let own = LiveConfig::own(NEAR);
    let device = AfXdpConfig { rx_ring_len: 16_384, ..own.device.clone() };
    let live = Live::start(&wire.near, &LiveConfig { device, buffers: 18_000, ..own }).unwrap();
    let groups: BTreeSet<_> = expected.iter().map(|(to, _)| *to).collect();
    for group in groups {
        live.with(move |_, cx| cx.sockets.join(ConsumerId(0), Group::new(*group.ip(), group.port()))).unwrap();
    }
    let received = Arc::new(Mutex::new(Vec::new()));
    let keep = Arc::clone(&received);
    live.handle(move |datagram, _| keep.lock().unwrap().push((datagram.destination, datagram.payload.to_vec())));

    let start = std::time::Instant::now();
    let sent = wire.far.run(|| send(&frames, pace));
    println!("{name}: {sent} frames in {:.1} s at {pace:?}", start.elapsed().as_secs_f64());
    assert_eq!(sent, frames.len() as u64);
    live.until("what was sent is received or dropped by name", |live| {
        live.with_worker(|worker, _| worker.rx_mut().refresh_counters());
        live.count("device/rx/frames") + live.drops("device/rx") == sent
    });
    let counters = live.stop();
    assert_eq!(counters.count("host/udp/datagrams"), Some(sent), "{}", table(&counters));
    let received = received.lock().unwrap();
    assert!(received.iter().map(|(to, payload)| (*to, &payload[..])).eq(expected), "what came is not what was sent");
}

/// Sends the frames unchanged, each when it is due.
fn send(frames: &[Frame], pace: Pace) -> u64 {
    let layout = Layout::umem(2048);
    let pool = Pool::new(Arc::new(Region::heap(layout.region_len(512)).unwrap()), layout).unwrap();
    let config = AfXdpConfig { rx_ring_len: 64, tx_ring_len: 256, ..AfXdpConfig::new(FAR) };
    let block = Block::heap();
    let mut device = AfXdpDevice::open(&config).unwrap();
    let (_rx, mut tx) = device.take_queue(0).unwrap().open(&pool, &block.scope("far")).unwrap();
    let (mut clock, mut pacer) = (MonotonicClock::start(), Pacer::new(pace));
    for frame in frames {
        while !pacer.is_due(frame.at_ns, clock.now()) {
            std::thread::sleep(Duration::from_micros(50));
        }
        let mut posted = tx.post(pool.alloc_copy(&frame.bytes).unwrap(), Offload::NONE);
        while let Err(back) = posted {
            tx.ring_doorbell(clock.now());
            tx.reap();
            posted = tx.post(back, Offload::NONE);
        }
        tx.ring_doorbell(clock.now());
        tx.reap();
    }
    let start = std::time::Instant::now();
    while tx.in_flight() > 0 && start.elapsed() < TIMEOUT {
        tx.ring_doorbell(clock.now());
        tx.reap();
    }
    block.snapshot().count("far/tx/frames").unwrap()
}

const IEX: &str = "iex_tops16_20170710_uat.pcap.gz";
const PITCH: &str = "cboe_pitch_realtime_20140901.pcap";

#[test]
fn iex_capture_arrives_whole_at_a_hundred_times_its_pace() {
    replay("iex_capture_arrives_whole_at_a_hundred_times_its_pace", IEX, Pace::Times(100.0), 13_022);
}

#[test]
fn pitch_capture_arrives_whole_at_a_hundred_times_its_pace() {
    replay("pitch_capture_arrives_whole_at_a_hundred_times_its_pace", PITCH, Pace::Times(100.0), 739);
}

#[test]
fn truncated_production_capture_arrives_whole_at_its_pace() {
    let test = "truncated_production_capture_arrives_whole_at_its_pace";
    replay(test, "iex_tops_prod_20180103_truncated.pcapng", Pace::Recorded, 2);
}

#[test]
#[ignore = "400 seconds were recorded"]
fn iex_capture_arrives_whole_at_its_pace() {
    replay("iex_capture_arrives_whole_at_its_pace", IEX, Pace::Recorded, 13_022);
}

#[test]
#[ignore = "406 seconds were recorded"]
fn pitch_capture_arrives_whole_at_its_pace() {
    replay("pitch_capture_arrives_whole_at_its_pace", PITCH, Pace::Recorded, 739);
}
