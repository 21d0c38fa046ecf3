//! The output of a device with segmentation, as its receiver sees it.

use core::net::Ipv4Addr;

use proptest::prelude::*;
use zerocopy::IntoBytes;

use crate::counters::Block;
use crate::device::memory::*;
use crate::device::steering::Rule;
use crate::device::{Device, DeviceError, DeviceErrorKind, Offload, Queue, RxQueue, RxState, TxQueue};
use crate::mem::{Burst, Mbuf, Pool};
use crate::time::Instant;
use crate::wire::checksum::PseudoHeader;
use crate::wire::tcp::{TcpFields, TcpFlags};
use crate::wire::{
    EthernetFrame, Ipv4Fields, Ipv4Header, Ipv4Packet, Protocol, TcpHeader, TcpSegment, UdpFields, UdpHeader,
};

const SOURCE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const DESTINATION: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const LINK: [u8; 14] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
const SEQ: u32 = 0xffff_fe00;
const SLOTS: u32 = if cfg!(miri) { 16 } else { 64 };
const ALL: TcpFlags = TcpFlags(!(TcpFlags::SYN.0 | TcpFlags::RST.0 | TcpFlags::URG.0));

fn config() -> MemoryConfig {
    MemoryConfig { slots: SLOTS, segments: true, ..MemoryConfig::default() }
}

/// Two ports with a pool each.
struct Wire {
    tx_pool: Pool,
    rx_pool: Pool,
    block: Block,
    tx: Option<MemoryTx>,
    rx: MemoryRx,
    far: MemoryDevice,
}

fn wire(config: MemoryConfig) -> Wire {
    let block = Block::heap();
    let (tx_pool, rx_pool) = (Pool::heap(64).unwrap(), Pool::heap(128).unwrap());
    let (mut near, mut far) = pair("wire", config);
    let (_, tx) = near.take_queue(0).unwrap().open(&tx_pool, &block.scope("near")).unwrap();
    let (rx, _) = far.take_queue(0).unwrap().open(&rx_pool, &block.scope("far")).unwrap();
    Wire { tx_pool, rx_pool, block, tx: Some(tx), rx, far }
}

impl Wire {
    fn post(&mut self, mbuf: Mbuf, offload: Offload) -> Result<(), Mbuf> {
        let tx = self.tx.as_mut().unwrap();
        tx.post(mbuf, offload)?;
        tx.ring_doorbell(Instant::ZERO);
        Ok(())
    }

    fn received(&mut self) -> Vec<Vec<u8>> {
        let mut burst = Burst::new();
        self.rx.receive(&mut burst, SLOTS as usize, &self.rx_pool, Instant::ZERO);
        burst.drain(..).map(|mbuf| (mbuf.bytes().to_vec(), mbuf.free()).0).collect()
    }

    fn dropped(&self, name: &str) -> Option<u64> {
        self.block.snapshot().count(&format!("near/tx/drop/{name}"))
    }
}

/// Headers with checksum fields as a NIC expects them: zero, and the pseudo-header's sum.
fn headers(options_len: usize, payload_len: usize, flags: TcpFlags) -> Vec<u8> {
    let options = vec![1; options_len];
    let tcp_len = 20 + options_len + payload_len;
    let fields = Ipv4Fields {
        source: SOURCE,
        destination: DESTINATION,
        protocol: Protocol::TCP,
        ttl: 64,
        tos: 2,
        identification: 0xffff,
        dont_fragment: true,
        payload_len: tcp_len,
    };
    let ipv4 = Ipv4Header::new(&fields).unwrap();
    let (source_port, destination_port) = (1000, 80);
    let fields = TcpFields { source_port, destination_port, seq: SEQ, ack: 7, flags, window: 9, urgent_pointer: 0 };
    let mut tcp = TcpHeader::new(&fields, &options).unwrap();
    let pseudo =
        PseudoHeader { source: SOURCE, destination: DESTINATION, protocol: Protocol::TCP, len: tcp_len as u16 };
    tcp.set_checksum(pseudo.sum().fold());
    [&LINK[..], ipv4.as_bytes(), tcp.as_bytes(), &options].concat()
}

fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + (at >> 8) * 13) as u8).collect()
}

/// A frame whose payload is split into buffers after its headers: `first` bytes in the first
/// buffer, `others` in each other.
fn frame(pool: &Pool, headers: &[u8], payload: &[u8], first: usize, others: usize) -> Mbuf {
    let (with_headers, behind) = payload.split_at(first.min(payload.len()));
    let mut whole = pool.alloc_copy(&[headers, with_headers].concat()).unwrap();
    behind.chunks(others).for_each(|piece| whole.attach(pool.alloc_copy(piece).unwrap()));
    whole.set_l2_len(LINK.len());
    whole.set_l3_len(20);
    whole
}

fn wishes(segment_len: usize) -> Offload {
    (Offload::L4_CHECKSUM | Offload::IP_CHECKSUM.when(segment_len > 0)).with_segment_len(segment_len as u16)
}

/// The expected values of one segment.
struct Expected<'a> {
    payload: &'a [u8],
    idx: usize,
    seq: u32,
    flags: TcpFlags,
    options_len: usize,
    /// The field as posted, if checksums are skipped; it may be right by chance.
    left_checksum: Option<u16>,
}

/// Parses a frame and compares all fields that a receiver reads.
fn check(bytes: &[u8], vlan: Option<u16>, expected: &Expected<'_>) {
    let ethernet = EthernetFrame::parse(bytes).unwrap();
    assert_eq!(ethernet.tags.outer().map(|tag| tag.vid()), vlan);
    assert_eq!(bytes[..12], LINK[..12]);
    let packet = Ipv4Packet::parse(ethernet.payload).unwrap();
    packet.verify_checksum().unwrap();
    assert_eq!(packet.total_len(), ethernet.payload.len(), "no more and no less than the packet");
    assert_eq!(packet.header.identification(), 0xffff_u16.wrapping_add(expected.idx as u16));
    assert!(packet.header.dont_fragment());
    let segment = TcpSegment::parse(packet.payload).unwrap();
    match expected.left_checksum {
        Some(left) => assert_eq!(segment.header.checksum(), left),
        None => segment.verify_checksum(SOURCE, DESTINATION).unwrap(),
    }
    let &Expected { seq, flags, .. } = expected;
    let (source_port, destination_port) = (1000, 80);
    let fields = TcpFields { source_port, destination_port, seq, ack: 7, flags, window: 9, urgent_pointer: 0 };
    assert_eq!(segment.header.fields(), fields);
    assert_eq!(segment.options, vec![1; expected.options_len]);
    assert!(segment.payload == expected.payload, "payload of {}", expected.idx);
}

/// The flags of one segment of a packet with all flags.
fn flags_of(idx: usize, count: usize) -> TcpFlags {
    let first = if idx == 0 { TcpFlags::CWR } else { TcpFlags::NONE };
    let last = if idx + 1 == count { TcpFlags::PSH | TcpFlags::FIN } else { TcpFlags::NONE };
    TcpFlags::ACK | TcpFlags::ECE | first | last
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 6 } else { 400 }))]

    #[test]
    fn cut_frames_are_those_of_a_sender_that_cut_them_itself(
        len in 0usize..9_000,
        segment_len in 150usize..1_400,
        options_len in (0usize..=10).prop_map(|words| words * 4),
        (first, others) in (0usize..1_400, 300usize..1_400),
        vlan in prop::option::of(0u16..4095),
        (skips_checksums, sender_goes, is_steered) in any::<(bool, bool, bool)>(),
    ) {
        // A ring under Miri is small.
        let len = len.min(segment_len * SLOTS as usize);
        let mut wire = wire(MemoryConfig { skips_checksums, ..config() });
        if is_steered {
            wire.far.steer(&Rule::tcp(DESTINATION, 80), 0).unwrap();
        }
        let payload = payload(len);
        let headers = headers(options_len, len, ALL);
        let left_checksum = skips_checksums.then(|| u16::from_be_bytes([headers[50], headers[51]]));
        let mbuf = frame(&wire.tx_pool, &headers, &payload, first, others);
        let kept = wire.tx_pool.in_use();
        let tags = if vlan.is_some() { 4 } else { 0 };
        prop_assert!(54 + tags + options_len + segment_len <= 1522, "else it is too long");
        wire.post(mbuf, vlan.map_or(wishes(segment_len), |tci| wishes(segment_len).with_vlan(tci))).unwrap();
        prop_assert!(wire.tx_pool.in_use() == kept || wire.tx_pool.in_use() == 0, "lent or copied");
        if sender_goes {
            wire.tx = None;
            prop_assert_eq!(wire.tx_pool.in_use(), 0);
        }
        let frames = wire.received();
        let pieces: Vec<&[u8]> = if len == 0 { vec![&[]] } else { payload.chunks(segment_len).collect() };
        prop_assert_eq!(frames.len(), pieces.len());
        for (idx, (frame, payload)) in frames.iter().zip(&pieces).enumerate() {
            let seq = SEQ.wrapping_add((idx * segment_len) as u32);
            let flags = flags_of(idx, pieces.len());
            check(frame, vlan, &Expected { payload, idx, seq, flags, options_len, left_checksum });
        }
        if let Some(tx) = &mut wire.tx {
            tx.reap();
            prop_assert_eq!(tx.in_flight(), 0);
            prop_assert_eq!(tx.room(), SLOTS as usize);
        }
        prop_assert_eq!((wire.tx_pool.in_use(), wire.tx_pool.drops_without_reason(), wire.rx_pool.in_use()), (0, 0, 0));
    }
}

#[test]
fn all_that_is_cut_leaves_or_nothing() {
    let mut wire = wire(config());
    let payload = payload(3_000);
    let headers = headers(12, payload.len(), TcpFlags::ACK);
    let count = payload.len().div_ceil(200);
    for _ in 0..SLOTS as usize / count {
        let mbuf = frame(&wire.tx_pool, &headers, &payload, 1_000, 1_000);
        wire.post(mbuf, wishes(200)).unwrap();
    }
    let mbuf = frame(&wire.tx_pool, &headers, &payload, 1_000, 1_000);
    let before = wire.tx.as_mut().unwrap().room();
    let mbuf = wire.post(mbuf, wishes(200)).unwrap_err();
    assert_eq!((wire.tx.as_mut().unwrap().room(), mbuf.len()), (before, headers.len() + payload.len()));
    assert!(before > 0, "there was room for some");
    assert_eq!(wire.received().len() as u32 % count as u32, 0);
    wire.post(mbuf, wishes(200)).unwrap();
    assert_eq!(wire.received().len(), count);
}

#[test]
fn slots_are_lent_again_where_nobody_reaps() {
    let mut wire = wire(config());
    let payload = payload(2_500);
    let headers = headers(0, payload.len(), TcpFlags::ACK);
    for round in 0..3 * SLOTS as usize {
        let mbuf = frame(&wire.tx_pool, &headers, &payload, 700, 900);
        wire.post(mbuf, wishes(400 + round)).unwrap();
        let bytes: usize = wire.received().iter().map(|frame| frame.len() - headers.len()).sum();
        assert_eq!(bytes, payload.len());
        assert!(wire.tx_pool.in_use() <= 3 * SLOTS as usize);
    }
}

#[test]
fn frames_that_are_not_cut_get_their_checksums() {
    let mut wire = wire(config());
    for len in [0, 1, 100, 1_000] {
        let payload = payload(len);
        let mbuf = frame(&wire.tx_pool, &headers(0, len, TcpFlags::ACK), &payload, len / 2, 900);
        wire.post(mbuf, wishes(0)).unwrap();
        let udp = UdpHeader::new(&UdpFields { source_port: 5, destination_port: 6, payload_len: len }).unwrap();
        let [tcp, udp] = [wire.received(), wire.sent_udp(udp, &payload)];
        let packet = Ipv4Packet::parse(&tcp[0][LINK.len()..]).unwrap();
        TcpSegment::parse(packet.payload).unwrap().verify_checksum(SOURCE, DESTINATION).unwrap();
        let packet = Ipv4Packet::parse(&udp[0][LINK.len()..]).unwrap();
        packet.verify_checksum().unwrap();
        let (header, received) = UdpHeader::parse(packet.payload).unwrap();
        assert_ne!(header.checksum(), 0, "none would be verified");
        header.verify_checksum(SOURCE, DESTINATION, received).unwrap();
        assert_eq!(received, payload);
    }
}

impl Wire {
    /// The frames that arrive for a datagram whose checksums are left to the device, including
    /// IPv4's.
    fn sent_udp(&mut self, mut udp: UdpHeader, payload: &[u8]) -> Vec<Vec<u8>> {
        let fields = Ipv4Fields {
            source: SOURCE,
            destination: DESTINATION,
            protocol: Protocol::UDP,
            ttl: 64,
            tos: 0,
            identification: 1,
            dont_fragment: true,
            payload_len: 8 + payload.len(),
        };
        let mut ipv4 = Ipv4Header::new(&fields).unwrap();
        let pseudo =
            PseudoHeader { source: SOURCE, destination: DESTINATION, protocol: Protocol::UDP, len: udp.length() };
        udp.set_checksum(pseudo.sum().fold());
        ipv4.set_identification(77);
        let mut bytes = [&LINK[..], ipv4.as_bytes(), udp.as_bytes(), payload].concat();
        bytes[LINK.len() + 10] ^= 0x55;
        let mut mbuf = self.tx_pool.alloc_copy(&bytes).unwrap();
        mbuf.set_l2_len(LINK.len());
        mbuf.set_l3_len(20);
        self.post(mbuf, wishes(0) | Offload::IP_CHECKSUM).unwrap();
        self.received()
    }
}

#[test]
fn what_cannot_be_cut_is_a_named_drop() {
    let mut wire = wire(config());
    let short = wire.tx_pool.alloc_copy(&LINK).unwrap();
    wire.post(short, wishes(100)).unwrap();
    let mut no_lens = frame(&wire.tx_pool, &headers(0, 500, TcpFlags::ACK), &payload(500), 500, 1);
    no_lens.set_l3_len(0);
    wire.post(no_lens, wishes(100)).unwrap();
    let mut udp = headers(0, 500, TcpFlags::ACK);
    udp[LINK.len() + 9] = 17;
    let udp = frame(&wire.tx_pool, &udp, &payload(500), 500, 1);
    wire.post(udp, wishes(100)).unwrap();
    let headers_apart = frame(&wire.tx_pool, &headers(40, 0, TcpFlags::ACK)[..60], &payload(500), 0, 500);
    wire.post(headers_apart, wishes(100)).unwrap();
    assert_eq!(wire.dropped("offload_unsupported"), Some(4));
    for segment_len in [1_500, 20] {
        let frame = frame(&wire.tx_pool, &headers(0, 3_000, TcpFlags::ACK), &payload(3_000), 500, 1_000);
        wire.post(frame, wishes(segment_len)).unwrap();
    }
    assert_eq!(wire.dropped("too_long"), Some(2), "longer than a frame, and more than the ring has");
    assert!(wire.received().is_empty() && wire.tx_pool.in_use() == 0);
}

#[test]
fn frames_without_room_behind_headers_are_refused_at_open() {
    let (mut near, far) = pair("wire", MemoryConfig { frame_len_max: 127, ..config() });
    assert_eq!(far.capabilities().tx.segmentation_len_max, SLOTS as usize / 4 * 536);
    let pool = Pool::heap(8).unwrap();
    let Err(error @ DeviceError::SetUp { kind: DeviceErrorKind::InvalidConfig, .. }) =
        near.take_queue(0).unwrap().open(&pool, &Block::heap().scope("near"))
    else {
        panic!("it was opened")
    };
    assert_eq!(
        error.to_string(),
        "wire.0 is to cut segments, but frames of 127 bytes may have no room behind their headers: set frame_len_max above 127, or \
         leave segments off"
    );
}

#[test]
fn cut_frames_cross_threads_and_outlive_their_sender() {
    let (posts, len, segment_len) = (if cfg!(miri) { 8 } else { 20_000 }, 1_900, 500);
    let (mut near, mut far) = pair("wire", config());
    let (near, far) = (near.take_queue(0).unwrap(), far.take_queue(0).unwrap());
    let sender = std::thread::spawn(move || {
        let pool = Pool::heap(64).unwrap();
        let (_rx, mut tx) = near.open(&pool, &Block::heap().scope("near")).unwrap();
        let (headers, payload) = (headers(12, len, TcpFlags::ACK), payload(len));
        for _ in 0..posts {
            tx.reap();
            let mut mbuf = frame(&pool, &headers, &payload, 1_100, 800);
            while let Err(back) = tx.post(mbuf, wishes(segment_len)) {
                mbuf = back;
                tx.ring_doorbell(Instant::ZERO);
                std::thread::yield_now();
            }
        }
        tx.ring_doorbell(Instant::ZERO);
        // The port is dropped at once, and with it the pool: frames in flight must survive.
    });
    let pool = Pool::heap(64).unwrap();
    let (mut rx, _tx) = far.open(&pool, &Block::heap().scope("far")).unwrap();
    let payload = payload(len);
    let mut expected = (0..posts).flat_map(|_| payload.chunks(segment_len));
    while rx.state() != RxState::Ended {
        let mut burst = Burst::new();
        if rx.receive(&mut burst, 32, &pool, Instant::ZERO) == 0 {
            std::thread::yield_now();
        }
        for mbuf in burst.drain(..) {
            let packet = Ipv4Packet::parse(&mbuf.bytes()[LINK.len()..]).unwrap();
            let segment = TcpSegment::parse(packet.payload).unwrap();
            segment.verify_checksum(SOURCE, DESTINATION).unwrap();
            assert_eq!(Some(segment.payload), expected.next());
            mbuf.free();
        }
    }
    sender.join().unwrap();
    assert_eq!(expected.next(), None);
}
