//! The send half over plain memory: a decoder written from docs/mlx5.md alone reads the ring, and
//! a fake NIC completes the WQEs that each test asks for.

#![allow(clippy::unwrap_used)] // a panic here is the report

mod prepost;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::sq::WarmUp;
use super::tx::{Mlx5Tx, Mlx5TxDrop};
use crate::counters::{Block, DropReason};
use crate::device::mlx5::testing::plain_tx::{PLAIN_SQ_NUMBER, PLAIN_TX_LKEY, PlainTxConfig, PlainTxNic, plain_tx};
use crate::device::mlx5::testing::tx_decoder::{Accepts, Send, Wqe, decode};
use crate::device::{Offload, Preposted, TxQueue};
use crate::mem::{Burst, Held, Layout, Mbuf, Pool, Region};
use crate::time::{Duration, Instant, UnixTime};

/// A queue, its NIC, and its worker's pool.
struct Rig {
    tx: Option<Mlx5Tx>,
    nic: PlainTxNic,
    pool: Pool,
    block: Block,
    accepts: Accepts,
    config: PlainTxConfig,
    now: Instant,
    /// Bytes that the NIC may read, with their content at the time of the post, the newest last.
    registered: VecDeque<(u64, Vec<u8>)>,
    /// WQEs that the NIC has executed, and the frames that leave.
    done: VecDeque<(u16, Wqe)>,
    /// The layouts seen.
    seen: BTreeSet<Form>,
}

fn rig(config: PlainTxConfig) -> Rig {
    let layout = Layout::for_frames(9000);
    // A plan has 120 steps of 64 frames at most, and a large ring may keep all of them.
    let buffers = if config.blocks > 512 { 120 * 64 + 700 } else { 700 };
    let region = Arc::new(Region::heap(layout.region_len(buffers)).unwrap());
    let (pool, block) = (Pool::new(region, layout).unwrap(), Block::heap());
    let (tx, nic) = plain_tx(config, &pool, &block.scope("q")).unwrap();
    let accepts = Accepts {
        number: PLAIN_SQ_NUMBER,
        lkey: PLAIN_TX_LKEY,
        blocks: config.blocks,
        inline_len_min: config.inline_len_min.into(),
        frame_len_max: config.frame_len_max as usize,
        multi_packet: config.multi_packet,
        checksums: config.checksums,
        vlan_insert: config.vlan_insert,
        segmentation_len_max: config.segmentation_len_max as usize,
        wqe_units_max: config.wqe_units_max as usize,
    };
    let now = Instant::ZERO + Duration::from_secs(100);
    let (registered, done) = (VecDeque::new(), VecDeque::new());
    Rig { tx: Some(tx), nic, pool, block, accepts, config, now, registered, done, seen: BTreeSet::new() }
}

fn ring_of(blocks: u32) -> PlainTxConfig {
    PlainTxConfig { blocks, cqes: blocks.max(8), ..PlainTxConfig::default() }
}

/// `offload` with a tag, if there is one.
fn tagged(offload: Offload, vlan: Option<u16>) -> Offload {
    vlan.map_or(offload, |tci| offload.with_vlan(tci))
}

fn frame(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + seed * 13 + 1) as u8).collect()
}

impl Rig {
    fn tx(&mut self) -> &mut Mlx5Tx {
        self.tx.as_mut().unwrap()
    }

    fn mbuf(&self, bytes: &[u8]) -> Mbuf {
        self.pool.alloc_copy(bytes).expect("the pool is large enough")
    }

    /// A chain of these parts.
    fn chain(&self, parts: &[&[u8]]) -> Mbuf {
        let mut head = self.mbuf(parts[0]);
        parts[1..].iter().for_each(|part| head.attach(self.mbuf(part)));
        head
    }

    /// Records the bytes that a NIC may read of it.
    fn register(&mut self, mbuf: &Mbuf) {
        for bytes in mbuf.segments().filter(|bytes| !bytes.is_empty()) {
            self.registered.push_back((bytes.as_ptr().addr() as u64, bytes.to_vec()));
        }
        while self.registered.len() > 2_000 {
            self.registered.pop_front();
        }
    }

    fn post_mbuf(&mut self, mbuf: Mbuf, offload: Offload) -> Result<(), Mbuf> {
        self.register(&mbuf);
        self.tx().post(mbuf, offload)
    }

    /// Posts a linear frame; returns whether it was accepted.
    fn post(&mut self, bytes: &[u8], offload: Offload) -> bool {
        let mbuf = self.mbuf(bytes);
        self.post_mbuf(mbuf, offload).map_err(Mbuf::free).is_ok()
    }

    /// Posts frames of 64 bytes, which the ring must accept.
    fn post_plain(&mut self, count: usize) {
        (0..count).for_each(|seed| assert!(self.post(&frame(64, seed), Offload::NONE), "frame {seed}"));
    }

    fn ring(&mut self) {
        let now = self.now;
        self.tx().ring_doorbell(now);
    }

    /// The NIC reads all WQEs that it was notified of.
    fn fetch(&mut self) -> Vec<Wqe> {
        let mut wqes = Vec::new();
        while self.nic.sq.done() != self.nic.sq.producer_index() {
            let idx = self.nic.sq.done();
            let registered = &self.registered;
            let fetch = |addr: u64, len: usize| {
                registered.iter().rev().find_map(|(start, bytes)| {
                    let offset = usize::try_from(addr.checked_sub(*start)?).ok()?;
                    bytes.get(offset..offset.checked_add(len)?).map(<[u8]>::to_vec)
                })
            };
            let wqe = decode(&self.nic.sq, idx, &self.accepts, &fetch).unwrap_or_else(|why| panic!("WQE {idx}: {why}"));
            self.seen.extend(Form::ALL.into_iter().filter(|form| form.is_of(idx, &wqe, self.config.blocks)));
            self.nic.sq.set_done(idx.wrapping_add(wqe.blocks));
            self.done.push_back((idx, wqe.clone()));
            wqes.push(wqe);
        }
        wqes
    }

    /// Advances to near an index, as a queue that has worked for some time. A turn is some blocks
    /// long.
    fn work_until(&mut self, index: u16) {
        while self.nic.sq.producer_index() < index {
            self.post_plain(self.config.blocks.min(32) as usize / 4);
            self.ring();
            self.nic.complete_all();
            while self.tx().reap() > 0 {}
        }
    }

    /// The NIC completes the given number of its oldest WQEs, with one CQE for each signaled one.
    fn complete(&mut self, wqes: usize) -> usize {
        let mut cqes = 0;
        for (idx, wqe) in self.done.drain(..wqes.min(self.done.len())) {
            if wqe.is_signaled {
                cqes += 1;
                self.nic.cq.complete(0, 0, |cqe| {
                    cqe[48..56].copy_from_slice(&(1_000 + u64::from(idx)).to_be_bytes());
                    cqe[60..62].copy_from_slice(&idx.to_be_bytes());
                });
            }
        }
        cqes
    }

    /// An error CQE for the WQE at an index.
    fn fail(&mut self, idx: u16, syndrome: u8) {
        self.nic.cq.complete(13, 0, |cqe| {
            cqe[55] = syndrome;
            cqe[60..62].copy_from_slice(&idx.to_be_bytes());
        });
    }

    /// Rings, fetches, completes and reaps everything; returns the frames that left.
    fn flush(&mut self) -> Vec<Send> {
        self.ring();
        let wqes = self.fetch();
        self.complete(usize::MAX);
        while self.tx().reap() > 0 {}
        wqes.into_iter().flat_map(|wqe| wqe.sends).collect()
    }

    fn count(&self, name: &str) -> u64 {
        let snapshot = self.block.snapshot();
        snapshot.count(&format!("q/tx/{name}")).or_else(|| snapshot.count(&format!("q/{name}"))).unwrap()
    }

    fn dropped(&self, reason: Mlx5TxDrop) -> u64 {
        self.count(&format!("drop/{}", Mlx5TxDrop::NAMES[reason.index()]))
    }

    fn all_dropped(&self) -> u64 {
        Mlx5TxDrop::NAMES.iter().map(|name| self.count(&format!("drop/{name}"))).sum()
    }

    /// Checks that no WQE is in flight and there were no drops without a reason.
    fn check_home(&self) {
        assert_eq!(
            (self.pool.in_use(), self.pool.drops_without_reason()),
            (0, 0),
            "buffers out, packets without a name"
        );
    }

    /// Ends the queue. Every buffer is free.
    fn close(mut self) -> Self {
        drop(self.tx.take());
        self.check_home();
        self.block.check().unwrap();
        self
    }
}

fn bytes_of(sends: &[Send]) -> Vec<Vec<u8>> {
    sends.iter().map(|send| send.bytes.clone()).collect()
}

// Layouts of a frame.

#[test]
fn lone_small_frame_is_inline_and_its_mbuf_is_home_at_once() {
    for len in [14, 15, 17, 18, 19, 30, 60, 64, 225, 226] {
        let mut rig = rig(ring_of(64));
        assert!(rig.post(&frame(len, 1), Offload::NONE));
        assert_eq!((rig.pool.in_use(), rig.tx().in_flight()), (0, 0), "{len} bytes");
        rig.ring();
        let wqes = rig.fetch();
        assert_eq!(wqes[0].sends[0].bytes, frame(len, 1));
        assert!(!wqes[0].sends[0].is_fetched && !wqes[0].is_signaled);
        rig.close();
    }
}

#[test]
fn longer_frame_is_a_pointer_and_its_mbuf_comes_home_with_its_completion() {
    let mut rig = rig(ring_of(64));
    for len in [227, 1514, 1522] {
        assert!(rig.post(&frame(len, 1), Offload::NONE));
        rig.ring();
        let wqes = rig.fetch();
        assert_eq!((wqes.len(), wqes[0].ds, wqes[0].is_signaled), (1, 3, true));
        assert_eq!(wqes[0].sends[0].bytes, frame(len, 1));
        assert_eq!((rig.tx().reap(), rig.tx().in_flight(), rig.pool.in_use()), (0, 1, 1));
        rig.complete(1);
        assert_eq!((rig.tx().reap(), rig.tx().in_flight(), rig.pool.in_use()), (1, 0, 0));
    }
    rig.close();
}

#[test]
fn frames_that_follow_the_first_share_a_wqe() {
    let mut rig = rig(ring_of(64));
    rig.post_plain(33);
    rig.ring();
    let wqes = rig.fetch();
    assert_eq!(wqes.iter().map(|wqe| wqe.sends.len()).collect::<Vec<_>>(), [1, 32]);
    let sent: Vec<_> = wqes.iter().flat_map(|wqe| bytes_of(&wqe.sends)).collect();
    assert_eq!(sent, (0..33).map(|seed| frame(64, seed)).collect::<Vec<_>>());
    assert_eq!((rig.count("frames"), rig.count("bytes"), rig.count("doorbells")), (33, 33 * 64, 1));
    rig.close();
}

#[test]
fn wqe_of_many_frames_ends_at_its_longest_and_another_begins() {
    let mut rig = rig(ring_of(64));
    let mut burst: Burst = (0..62).map(|seed| rig.mbuf(&frame(64, seed))).collect();
    burst.iter().for_each(|mbuf| {
        rig.registered.push_back((mbuf.data_ptr().addr() as u64, mbuf.bytes().to_vec()));
    });
    assert_eq!((rig.tx().post_burst(&mut burst, Offload::NONE), burst.len()), (62, 0));
    rig.ring();
    let wqes = rig.fetch();
    assert_eq!(wqes.iter().map(|wqe| (wqe.ds, wqe.sends.len())).collect::<Vec<_>>(), [(62, 60), (4, 2)]);
    rig.complete(2);
    assert_eq!(rig.tx().reap(), 62);
    rig.close();
}

#[test]
fn device_without_multi_packet_wqes_gets_one_for_each_frame() {
    let mut rig = rig(PlainTxConfig { multi_packet: false, ..ring_of(64) });
    rig.post_plain(5);
    let mut burst: Burst = (5..25).map(|seed| rig.mbuf(&frame(64, seed))).collect();
    let spans: Vec<_> = burst.iter().map(|mbuf| (mbuf.data_ptr().addr() as u64, mbuf.bytes().to_vec())).collect();
    rig.registered.extend(spans);
    assert_eq!(rig.tx().post_burst(&mut burst, Offload::NONE), 20);
    rig.ring();
    let wqes = rig.fetch();
    assert_eq!(wqes.len(), 25);
    let sent: Vec<_> = wqes.iter().flat_map(|wqe| bytes_of(&wqe.sends)).collect();
    assert_eq!(sent, (0..25).map(|seed| frame(64, seed)).collect::<Vec<_>>());
    rig.complete(usize::MAX);
    while rig.tx().reap() > 0 {}
    rig.check_home();
    rig.close();
}

#[test]
fn frames_with_other_wishes_end_the_common_wqe() {
    let mut rig = rig(ring_of(64));
    let checksums = Offload::IP_CHECKSUM | Offload::L4_CHECKSUM;
    for (seed, offload) in
        [Offload::NONE, Offload::NONE, Offload::NONE, checksums, checksums, Offload::NONE].into_iter().enumerate()
    {
        assert!(rig.post(&frame(64, seed), offload));
    }
    rig.ring();
    let wqes = rig.fetch();
    let shapes: Vec<_> = wqes.iter().map(|wqe| (wqe.sends.len(), wqe.sends[0].checksums)).collect();
    assert_eq!(shapes, [(1, (false, false)), (2, (false, false)), (2, (true, true)), (1, (false, false))]);
    rig.close();
}

#[test]
fn frames_of_a_run_have_their_own_wishes_and_leave_in_order() {
    let mut rig = rig(PlainTxConfig { multi_packet: false, ..ring_of(16) });
    let checksums = Offload::IP_CHECKSUM | Offload::L4_CHECKSUM;
    let offloads = [Offload::NONE, Offload::NONE, checksums, checksums, Offload::NONE];
    // Several times around the ring, whose end lies inside of a run.
    for _ in 0..10 {
        for (seed, offload) in offloads.into_iter().enumerate() {
            assert!(rig.post(&frame(300, seed), offload));
        }
        assert_eq!(rig.tx().room(), 16 - offloads.len());
        rig.ring();
        let sends: Vec<_> = rig.fetch().into_iter().flat_map(|wqe| wqe.sends).collect();
        for ((send, offload), seed) in sends.iter().zip(offloads).zip(0..) {
            assert_eq!(
                (&send.bytes, send.checksums),
                (&frame(300, seed), (offload == checksums, offload == checksums))
            );
        }
        assert_eq!(sends.len(), offloads.len());
        rig.complete(usize::MAX);
        while rig.tx().reap() > 0 {}
    }
    rig.check_home();
    rig.close();
}

#[test]
fn chain_is_a_pointer_for_each_buffer_and_empty_ones_are_none() {
    let mut rig = rig(ring_of(64));
    let parts = [frame(300, 1), vec![], frame(10, 2), frame(700, 3)];
    let mbuf = rig.chain(&parts.each_ref().map(Vec::as_slice));
    rig.post_mbuf(mbuf, Offload::NONE).unwrap();
    rig.ring();
    let wqes = rig.fetch();
    assert_eq!((wqes[0].ds, &wqes[0].sends[0].bytes), (5, &parts.concat()));
    rig.complete(1);
    assert_eq!(rig.tx().reap(), 1);
    rig.check_home();
    rig.close();
}

#[test]
fn small_chain_that_is_alone_is_gathered_inline() {
    let mut rig = rig(ring_of(64));
    let mbuf = rig.chain(&[&frame(20, 1), &frame(30, 2), &frame(40, 3)]);
    rig.post_mbuf(mbuf, Offload::NONE).unwrap();
    assert_eq!(rig.pool.in_use(), 0);
    let sends = rig.flush();
    assert_eq!(sends[0].bytes, [frame(20, 1), frame(30, 2), frame(40, 3)].concat());
    assert!(!sends[0].is_fetched);
    rig.close();
}

#[test]
fn held_mbuf_stays_with_its_holder() {
    let mut rig = rig(ring_of(64));
    for len in [60, 1000] {
        let mbuf = rig.mbuf(&frame(len, 7));
        let held = mbuf.hold();
        rig.post_mbuf(mbuf, Offload::NONE).unwrap();
        assert_eq!(rig.flush()[0].bytes, frame(len, 7));
        let back = held.into_mbuf().expect("the queue has let go of it");
        assert_eq!(back.bytes(), frame(len, 7));
        back.free();
    }
    rig.close();
}

#[test]
fn view_of_held_bytes_is_sent_from_where_they_lie() {
    let mut rig = rig(ring_of(64));
    let payload = rig.mbuf(&frame(900, 5));
    let held: Held = payload.hold();
    payload.free();
    let mut head = rig.mbuf(&frame(54, 1));
    head.attach(rig.pool.view(held.another()).unwrap());
    rig.post_mbuf(head, Offload::NONE).unwrap();
    assert_eq!(rig.flush()[0].bytes, [frame(54, 1), frame(900, 5)].concat());
    drop(held);
    rig.close();
}

#[test]
fn header_that_must_be_inline_is_so_whatever_the_frame() {
    let mut rig = rig(PlainTxConfig { inline_len_min: 18, ..ring_of(64) });
    let long = frame(1000, 1);
    assert!(
        rig.post(&frame(400, 0), Offload::NONE)
            && rig.post(&long, Offload::NONE)
            && rig.post(&frame(18, 2), Offload::NONE)
    );
    let chain = rig.chain(&[&long[..5], &long[5..17], &long[17..]]);
    rig.post_mbuf(chain, Offload::NONE).unwrap();
    assert!(rig.post(&long, Offload::NONE.with_vlan(0x6007)));
    let sends = bytes_of(&rig.flush());
    let tagged = [&long[..12], &[0x81, 0, 0x60, 7], &long[12..]].concat();
    assert_eq!(sends, [frame(400, 0), long.clone(), frame(18, 2), long, tagged]);
    rig.close();
}

#[test]
fn frame_shorter_than_the_inline_header_is_padded_as_it_will_be_on_the_wire() {
    let mut rig = rig(PlainTxConfig { inline_len_min: 18, ..ring_of(64) });
    for len in 14..18 {
        assert!(rig.post(&frame(len, 1), Offload::NONE));
        let sent = rig.flush()[0].bytes.clone();
        assert_eq!((sent.len(), &sent[..len]), (18, &frame(len, 1)[..]));
        assert!(sent[len..].iter().all(|&byte| byte == 0));
    }
    rig.close();
}

#[test]
fn tag_is_inserted_by_the_device_or_inline() {
    for (vlan_insert, inline_len_min, len) in
        [(true, 0, 1000), (false, 0, 1000), (true, 18, 1000), (true, 0, 60), (false, 0, 60), (false, 0, 14)]
    {
        let mut rig = rig(PlainTxConfig { vlan_insert, inline_len_min, ..ring_of(64) });
        let plain = frame(len, 3);
        for tci in [0, 0x6123, 0xffff] {
            assert!(rig.post(&plain, Offload::NONE.with_vlan(tci)));
            let tagged = [&plain[..12], &[0x81, 0], &tci.to_be_bytes(), &plain[12..]].concat();
            assert_eq!(rig.flush()[0].bytes, tagged, "{vlan_insert} {inline_len_min} {len}");
        }
        rig.close();
    }
}

/// A TCP segment whose headers the mbuf knows.
fn tcp(rig: &Rig, l2_len: usize, l3_len: usize, tcp_len: usize, payload_len: usize) -> (Mbuf, Vec<u8>) {
    let mut header = frame(l2_len + l3_len + tcp_len, 9);
    header[l2_len + l3_len + 12] = ((tcp_len / 4) << 4) as u8;
    let payload = frame(payload_len, 4);
    let mut parts: Vec<&[u8]> = vec![&header];
    parts.extend(payload.chunks(4000));
    let mut mbuf = rig.chain(&parts);
    mbuf.set_l2_len(l2_len);
    mbuf.set_l3_len(l3_len);
    (mbuf, [header, payload].concat())
}

#[test]
fn payload_is_cut_behind_its_header() {
    let mut rig = rig(ring_of(64));
    for (l2_len, l3_len, tcp_len, vlan) in [(14, 20, 20, None), (14, 60, 60, Some(5)), (18, 40, 32, None)] {
        let (mbuf, whole) = tcp(&rig, l2_len, l3_len, tcp_len, 20_000);
        rig.post_mbuf(mbuf, tagged(Offload::NONE.with_segment_len(1300), vlan)).unwrap();
        let sends = rig.flush();
        let header_len = l2_len + l3_len + tcp_len;
        let mut header = whole[..header_len].to_vec();
        if let Some(tci) = vlan {
            header.splice(12..12, [[0x81, 0], tci.to_be_bytes()].concat());
        }
        assert_eq!((sends.len(), sends[0].checksums, &sends[0].bytes), (1, (true, true), &header));
        assert_eq!(sends[0].cut, Some((whole[header_len..].to_vec(), 1300)));
    }
    rig.close();
}

#[test]
fn payload_of_one_segment_is_one_frame_with_checksums() {
    let mut rig = rig(ring_of(64));
    for payload_len in [0, 1, 1299, 1300] {
        let (mbuf, whole) = tcp(&rig, 14, 20, 20, payload_len);
        rig.post_mbuf(mbuf, Offload::NONE.with_segment_len(1300)).unwrap();
        let sends = rig.flush();
        assert_eq!((&sends[0].bytes, sends[0].checksums, &sends[0].cut), (&whole, (true, true), &None));
    }
    rig.close();
}

// Frames that can never be sent.

fn refused(config: PlainTxConfig, offload: Offload, reason: Mlx5TxDrop, mbuf: impl Fn(&Rig) -> Mbuf) {
    let mut rig = rig(config);
    // First in the ring, and behind another.
    for before in [0, 2] {
        rig.post_plain(before);
        let (mbuf, dropped) = (mbuf(&rig), rig.dropped(reason));
        assert!(rig.tx().post(mbuf, offload).is_ok(), "a frame that can never be sent is taken");
        assert_eq!(rig.dropped(reason), dropped + 1, "{reason:?}");
        assert_eq!(rig.flush().len(), before);
    }
    assert_eq!(rig.all_dropped(), 2);
    rig.close();
}

#[test]
fn what_can_never_be_sent_is_taken_and_counted_by_name() {
    let default = ring_of(64);
    let linear = |len| move |rig: &Rig| rig.mbuf(&frame(len, 1));
    refused(default, Offload::NONE, Mlx5TxDrop::TooLong, linear(1523));
    refused(default, Offload::NONE.with_vlan(1), Mlx5TxDrop::TooLong, linear(1519));
    refused(default, Offload::NONE, Mlx5TxDrop::TooLong, |rig| rig.chain(&[&frame(1000, 1), &frame(523, 1)]));
    refused(default, Offload::NONE, Mlx5TxDrop::TooShort, linear(13));
    refused(default, Offload::NONE, Mlx5TxDrop::TooShort, linear(0));
    refused(default, Offload::NONE, Mlx5TxDrop::TooManySegments, |rig| rig.chain(&[&[7; 20][..]; 70]));
    let none = PlainTxConfig { checksums: false, segmentation_len_max: 0, ..default };
    refused(none, Offload::IP_CHECKSUM, Mlx5TxDrop::OffloadUnsupported, linear(60));
    refused(none, Offload::L4_CHECKSUM, Mlx5TxDrop::OffloadUnsupported, linear(60));
    let cut = Offload::NONE.with_segment_len(500);
    refused(none, cut, Mlx5TxDrop::OffloadUnsupported, |rig| tcp(rig, 14, 20, 20, 2000).0);
    refused(default, cut, Mlx5TxDrop::HeadersUnknown, linear(1000));
    refused(default, cut, Mlx5TxDrop::HeadersUnknown, |rig| tcp(rig, 14, 20, 16, 2000).0);
    refused(default, cut, Mlx5TxDrop::HeadersUnknown, |rig| tcp(rig, 10, 20, 20, 2000).0);
    refused(default, cut, Mlx5TxDrop::HeaderTooLong, |rig| tcp(rig, 150, 60, 60, 2000).0);
    let small = PlainTxConfig { segmentation_len_max: 3000, ..default };
    refused(small, cut, Mlx5TxDrop::TooLong, |rig| tcp(rig, 14, 20, 20, 3001).0);
    let long = Offload::NONE.with_segment_len(1469);
    refused(default, long, Mlx5TxDrop::TooLong, |rig| tcp(rig, 14, 20, 20, 3000).0);
}

#[test]
fn no_wqe_is_longer_than_the_device_takes_it_and_none_is_shorter_than_need_be() {
    for units in [4, 8, 16, 32, 62, 63] {
        let mut rig = rig(PlainTxConfig { wqe_units_max: units, ..ring_of(256) });
        let mut longest = 0;
        for count in [1, 2, 70] {
            rig.post_plain(count);
            rig.ring();
            longest = rig.fetch().iter().map(|wqe| wqe.ds).fold(longest, usize::max);
            rig.flush();
        }
        assert_eq!(longest, (units as usize).min(62));
        let chain = rig.chain(&[&[7; 20][..]; 62]);
        assert!(rig.post_mbuf(chain, Offload::NONE).is_ok());
        assert_eq!(rig.dropped(Mlx5TxDrop::TooManySegments), 1);
        rig.flush();
    }
}

#[test]
fn header_that_is_repeated_is_no_longer_than_the_wqe_has_room_for() {
    let cut = Offload::NONE.with_segment_len(500);
    let short = PlainTxConfig { wqe_units_max: 8, ..ring_of(64) };
    // Behind 82 bytes inline there is a pointer.
    refused(short, cut, Mlx5TxDrop::HeaderTooLong, |rig| tcp(rig, 14, 48, 24, 2000).0);
    let mut rig = rig(short);
    let (segment, _) = tcp(&rig, 14, 48, 20, 2000);
    assert!(rig.post_mbuf(segment, cut).is_ok());
    assert!(rig.flush()[0].cut.is_some());
}

#[test]
fn bytes_outside_the_registered_region_are_never_pointed_to() {
    let other = Pool::heap(8).unwrap();
    let mut rig = rig(ring_of(64));
    let foreign = |len| other.alloc_copy(&frame(len, 1)).unwrap();
    // A small one is copied into the ring, so it may come from anywhere.
    assert!(rig.tx().post(foreign(60), Offload::NONE).is_ok());
    assert_eq!(rig.flush()[0].bytes, frame(60, 1));
    let mut head = rig.mbuf(&frame(300, 1));
    head.attach(foreign(100));
    let mut burst: Burst = [foreign(1000), head, foreign(64), rig.mbuf(&frame(64, 3))].into_iter().collect();
    rig.registered.push_back((burst[3].data_ptr().addr() as u64, frame(64, 3)));
    assert_eq!(rig.tx().post_burst(&mut burst, Offload::NONE), 4);
    let sends = rig.flush();
    assert_eq!(rig.dropped(Mlx5TxDrop::ForeignBuffer) + sends.len() as u64, 4);
    assert!(rig.dropped(Mlx5TxDrop::ForeignBuffer) >= 2);
    assert_eq!(sends.last().unwrap().bytes, frame(64, 3));
    assert_eq!((other.in_use(), other.drops_without_reason()), (0, 0));
    rig.close();
}

// The ring and its doorbell.

#[test]
fn full_ring_gives_the_mbuf_back_and_takes_it_later() {
    for blocks in [8, 16, 64] {
        for multi_packet in [false, true] {
            let mut rig = rig(PlainTxConfig { multi_packet, ..ring_of(blocks) });
            for _ in 0..5 {
                let mut posted = 0;
                let back = loop {
                    let mbuf = rig.mbuf(&frame(300, posted));
                    match rig.post_mbuf(mbuf, Offload::NONE) {
                        Ok(()) => posted += 1,
                        Err(back) => break back,
                    }
                };
                assert!(posted >= blocks as usize, "{posted} frames in {blocks} blocks");
                assert_eq!((back.bytes(), rig.tx().room()), (&frame(300, posted)[..], 0));
                back.free();
                assert_eq!(rig.flush().len(), posted);
                rig.check_home();
            }
            assert_eq!(rig.count("ring_full"), 5);
            rig.close();
        }
    }
}

#[test]
fn room_is_never_promised_in_vain() {
    for blocks in [8, 16, 32, 256] {
        for multi_packet in [false, true] {
            let mut rig = rig(PlainTxConfig { multi_packet, ..ring_of(blocks) });
            for len in [64, 226, 1000, 100, 64] {
                for before in [0, 1, 3, 7] {
                    (0..before).for_each(|seed| _ = rig.post(&frame(len, seed), Offload::NONE));
                    let room = rig.tx().room();
                    for seed in 0..room {
                        assert!(
                            rig.post(&frame(len, seed), Offload::NONE),
                            "{seed} of {room}, {blocks} blocks, {len} bytes"
                        );
                    }
                }
                rig.flush();
                assert!(rig.tx().room() + 3 >= blocks as usize);
            }
            rig.close();
        }
    }
}

#[test]
fn longest_wqe_finds_room_again_and_again_in_any_ring() {
    for blocks in (3..=13).map(|log| 1 << log) {
        let mut rig = rig(ring_of(blocks));
        let segments = rig.tx().segments_max();
        let whole = frame(1500, 1);
        let parts: Vec<&[u8]> = whole.chunks(1500usize.div_ceil(segments)).collect();
        for turn in 0..40 {
            // Unsignaled inline frames lie between.
            for _ in 0..turn % 3 {
                assert!(rig.post(&frame(20, turn), Offload::NONE));
                rig.flush();
            }
            let mbuf = rig.chain(&parts);
            rig.post_mbuf(mbuf, Offload::NONE).unwrap();
            assert_eq!(rig.flush()[0].bytes, whole, "{blocks} blocks, turn {turn}");
        }
        rig.close();
    }
}

#[test]
fn wqe_goes_over_the_end_of_the_ring_between_any_two_units() {
    for blocks in [8, 16, 32] {
        let mut rig = rig(ring_of(blocks));
        for start in 0..blocks as usize {
            for len in [200, 100, 34, 64] {
                // Urgent frames are always inline, a chain has pointers, and then many share a WQE.
                assert!(rig.post(&frame(len, start), Offload::URGENT));
                rig.fetch();
                let parts = [frame(250, 1), frame(250, 2), frame(250, 3), frame(250, 4), frame(250, 5)];
                let mbuf = rig.chain(&parts.each_ref().map(Vec::as_slice));
                rig.post_mbuf(mbuf, Offload::NONE).unwrap();
                assert_eq!(rig.flush()[0].bytes, parts.concat());
                assert!(rig.post(&frame(400, 0), Offload::NONE));
                rig.post_plain(9);
                let sends = rig.flush();
                assert_eq!((sends.len(), &sends[9].bytes), (10, &frame(64, 8)));
            }
            rig.post_plain(1);
            rig.flush();
        }
        rig.close();
    }
}

#[test]
fn record_and_register_tell_the_same() {
    let mut rig = rig(PlainTxConfig { blueflame_len: 0, ..ring_of(8) });
    for turn in 0..100u16 {
        assert!(rig.post(&frame(60, 1), Offload::NONE));
        rig.post_plain(usize::from(turn % 3));
        let before = rig.nic.sq.record();
        rig.nic.sq.clear_register();
        assert_eq!(rig.nic.sq.record(), before, "nothing is told before the doorbell");
        rig.ring();
        let wqes = rig.fetch();
        let last = (rig.nic.sq.producer_index()).wrapping_sub(wqes.last().unwrap().blocks);
        assert_eq!(rig.nic.sq.register()[..8], rig.nic.sq.block(last)[..8], "the last control segment");
        assert_eq!(rig.nic.sq.record() >> 16, 0);
        rig.complete(usize::MAX);
        while rig.tx().reap() > 0 {}
    }
    rig.close();
}

#[test]
fn quiet_doorbell_tells_nothing() {
    let mut rig = rig(ring_of(64));
    rig.nic.sq.set_record(0xdead_beef);
    rig.ring();
    assert_eq!((rig.nic.sq.record(), rig.count("doorbells")), (0xdead_beef, 0));
    assert!(rig.nic.sq.register().iter().all(|&byte| byte == 0));
    rig.nic.sq.set_record(0);
    rig.close();
}

#[test]
fn blueflame_carries_what_is_in_the_ring_and_halves_take_turns() {
    let mut rig = rig(ring_of(16));
    let mut half = 0;
    for turn in 0..60 {
        let len = [60, 20, 98][turn % 3];
        assert!(rig.post(&frame(len, turn), Offload::NONE));
        rig.nic.sq.clear_register();
        let first = rig.nic.sq.producer_index();
        rig.ring();
        let blocks = rig.fetch()[0].blocks;
        let in_ring: Vec<u8> = (0..blocks).flat_map(|block| rig.nic.sq.block(first.wrapping_add(block))).collect();
        let register = rig.nic.sq.register();
        let (written, other) = if half == 0 { register.split_at(256) } else { (&register[256..], &register[..256]) };
        assert_eq!(written[..in_ring.len()], in_ring, "turn {turn}");
        assert!(written[in_ring.len()..].iter().chain(other).all(|&byte| byte == 0), "turn {turn}");
        half ^= 1;
        rig.complete(usize::MAX);
        while rig.tx().reap() > 0 {}
    }
    rig.close();
}

#[test]
fn more_than_one_wqe_or_a_long_one_rings_the_plain_doorbell_and_turns_the_halves_too() {
    let mut rig = rig(PlainTxConfig { blueflame_len: 128, ..ring_of(64) });
    for (turn, lens) in [vec![60, 60], vec![200], vec![1000, 64, 64], vec![60, 60]].into_iter().enumerate() {
        lens.iter().for_each(|&len| assert!(rig.post(&frame(len, 1), Offload::NONE)));
        rig.nic.sq.clear_register();
        rig.ring();
        let wqes = rig.fetch();
        let last = rig.nic.sq.producer_index().wrapping_sub(wqes.last().unwrap().blocks);
        let register = rig.nic.sq.register();
        let (half, other) = if turn % 2 == 0 { register.split_at(128) } else { (&register[128..], &register[..128]) };
        assert_eq!(half[..8], rig.nic.sq.block(last)[..8], "turn {turn}");
        assert!(half[8..].iter().chain(other).all(|&byte| byte == 0), "turn {turn}");
    }
    rig.close();
}

#[test]
fn urgent_frame_leaves_without_a_doorbell() {
    let mut rig = rig(ring_of(64));
    let urgent = Offload::URGENT;
    assert!(rig.post(&frame(100, 1), urgent));
    assert_eq!(bytes_of(&rig.fetch()[0].sends), [frame(100, 1)]);
    // Frames that wait leave with it, in order.
    rig.post_plain(3);
    assert!(rig.post(&frame(100, 2), urgent));
    assert_eq!(rig.fetch().iter().map(|wqe| wqe.sends.len()).sum::<usize>(), 4);
    assert_eq!(rig.count("doorbells"), 2);
    rig.close();
}

#[test]
fn urgent_frame_waits_for_no_burst_that_is_open() {
    let mut rig = rig(ring_of(64));
    // The first is alone, those behind it are in one open multi-packet WQE.
    rig.post_plain(32);
    let mbuf = rig.pool.alloc_copy(&frame(100, 7)).unwrap();
    rig.tx().post_urgent(mbuf).map_err(Mbuf::free).unwrap();
    let sent: Vec<_> = rig.fetch().iter().flat_map(|wqe| bytes_of(&wqe.sends)).collect();
    assert_eq!((sent.len(), sent.last()), (33, Some(&frame(100, 7))));
    assert_eq!(rig.count("doorbells"), 1);
    rig.close();
}

#[test]
fn nothing_leaves_before_its_answers_would_be_ours() {
    let mut rig = rig(PlainTxConfig { shares_rules: true, ..ring_of(64) });
    let urgent = Offload::URGENT;
    assert!(!rig.post(&frame(100, 1), Offload::NONE) && !rig.post(&frame(100, 1), urgent));
    rig.ring();
    assert_eq!((rig.tx().room(), rig.fetch().len()), (0, 0));
    assert!(rig.tx().warm(WarmUp::Ring, |_| ()).is_none());
    assert_eq!((rig.count("refused_before_ready"), rig.count("refused_in_error")), (2, 0));
    rig.nic.objects.may_send.store(true, std::sync::atomic::Ordering::Release);
    assert!(rig.post(&frame(100, 1), Offload::NONE), "at once, without a doorbell before");
    rig.ring();
    assert_eq!(bytes_of(&rig.fetch()[0].sends), [frame(100, 1)]);
    rig.close();
}

/// The NIC's record is written before its register, as seen by an observer that reads them in
/// reverse order.
#[test]
fn record_is_written_before_the_register() {
    let mut rig = rig(PlainTxConfig { blueflame_len: 0, inline_len_min: 0, ..ring_of(8) });
    let watch = rig.nic.sq.watch();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looks = scope.spawn(|| {
            let mut looks = 0u64;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let Some((register, record)) = watch.look() else { continue };
                // The WQE that the register names is one block; the record is after it.
                let ahead = record.wrapping_sub(register);
                assert!((1..0x8000).contains(&ahead), "register {register}, record {record}");
                looks += 1;
            }
            looks
        });
        for seed in 0..20_000 {
            assert!(rig.post(&frame(300, seed), Offload::NONE));
            rig.ring();
            rig.nic.complete_all();
            rig.tx().reap();
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(looks.join().unwrap() > 0);
    });
    rig.close();
}

// Completions.

#[test]
fn completion_is_asked_for_once_in_some_blocks_and_never_not_at_all() {
    for (blocks, every) in [(8, 2), (64, 16), (1024, 64)] {
        let mut rig = rig(PlainTxConfig { multi_packet: false, ..ring_of(blocks) });
        // Frames that are wholly inline: no mbuf waits for them.
        let (mut since, mut silent) = (0, 0);
        for turn in 0..blocks * 3 {
            assert!(rig.post(&frame(20, 1), Offload::NONE), "turn {turn} of a ring of {blocks}");
            rig.ring();
            let wqe = rig.fetch().remove(0);
            since += u32::from(wqe.blocks);
            silent += usize::from(!wqe.is_signaled);
            assert_eq!(wqe.is_signaled, since >= every, "turn {turn}");
            since = if wqe.is_signaled { 0 } else { since };
            rig.complete(usize::MAX);
            rig.tx().reap();
        }
        assert!(silent > 0);
        rig.close();
    }
}

#[test]
fn last_wqe_before_a_doorbell_completes_where_mbufs_wait_for_it() {
    let mut rig = rig(PlainTxConfig { multi_packet: false, ..ring_of(1024) });
    for count in [1, 2, 7, 63, 64, 65, 130] {
        (0..count).for_each(|seed| assert!(rig.post(&frame(300, seed), Offload::NONE)));
        rig.ring();
        let wqes = rig.fetch();
        let signaled = wqes.iter().filter(|wqe| wqe.is_signaled).count();
        assert!(wqes.last().unwrap().is_signaled);
        assert!((count / 64..=count / 64 + 1).contains(&signaled), "{signaled} of {count}");
        rig.complete(usize::MAX);
        while rig.tx().reap() > 0 {}
        assert_eq!(rig.tx().in_flight(), 0);
    }
    rig.close();
}

#[test]
fn reap_is_bounded_and_goes_on_where_it_stopped() {
    let mut rig = rig(ring_of(256));
    for seed in 0..150 {
        assert!(rig.post(&frame(300, seed), Offload::NONE));
        rig.ring();
    }
    rig.fetch();
    assert_eq!(rig.complete(usize::MAX), 150);
    assert_eq!([rig.tx().reap(), rig.tx().reap(), rig.tx().reap(), rig.tx().reap()], [64, 64, 22, 0]);
    assert_eq!(rig.nic.cq.consumer_index(), 150);
    rig.close();
}

#[test]
fn completion_of_nothing_in_flight_is_counted_and_changes_nothing() {
    let mut rig = rig(ring_of(64));
    (0..3).for_each(|seed| assert!(rig.post(&frame(300, seed), Offload::NONE)));
    rig.ring();
    let pi = rig.nic.sq.producer_index();
    let mut invalid = 0;
    for counter in [pi, pi + 1, 0u16.wrapping_sub(1), 30_000] {
        rig.nic.cq.complete(0, 0, |cqe| cqe[60..62].copy_from_slice(&counter.to_be_bytes()));
        invalid += 1;
    }
    for (opcode, format) in [(2, 0), (14, 0), (5, 0), (12, 0), (0, 3), (0, 1)] {
        rig.nic.cq.complete(opcode, format, |_| ());
        invalid += 1;
    }
    assert_eq!((rig.tx().reap(), rig.tx().in_flight(), rig.tx().is_failed()), (0, 3, false));
    assert_eq!(rig.count("completions_invalid"), invalid);
    assert_eq!(rig.flush().len(), 3);
    rig.check_home();
    rig.close();
}

#[test]
fn completion_that_never_came_is_made_up_for_by_a_later_one() {
    let mut rig = rig(ring_of(64));
    for seed in 0..4 {
        assert!(rig.post(&frame(300, seed), Offload::TIMESTAMP.when(seed == 1)));
        rig.ring();
    }
    rig.fetch();
    let (idx, _) = rig.done[2];
    rig.nic.cq.complete(0, 0, |cqe| cqe[60..62].copy_from_slice(&idx.to_be_bytes()));
    assert_eq!((rig.tx().reap(), rig.tx().in_flight()), (3, 1));
    assert_eq!((rig.count("completions_missed"), rig.count("timestamps_lost")), (2, 1));
    assert_eq!(rig.tx().take_timestamp(), None);
    rig.close();
}

// Transmit timestamps.

#[test]
fn frame_that_asks_learns_when_it_left() {
    let mut rig = rig(ring_of(64));
    let asking = Offload::TIMESTAMP;
    for (len, offload) in [(300, asking), (64, Offload::NONE), (64, asking), (64, Offload::NONE), (20, asking)] {
        assert!(rig.post(&frame(len, 1), offload));
    }
    assert_eq!(rig.tx().take_timestamp(), None);
    rig.ring();
    let wqes = rig.fetch();
    assert!(wqes.iter().filter(|wqe| wqe.is_signaled).count() >= 3);
    rig.complete(usize::MAX);
    rig.tx().reap();
    let taken: Vec<_> = core::iter::from_fn(|| rig.tx().take_timestamp()).collect();
    assert_eq!(taken.iter().map(|taken| taken.sequence).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(taken[0].at, UnixTime::from_nanos(1_000));
    assert!(taken.is_sorted_by_key(|taken| taken.at));
    rig.close();
}

#[test]
fn raw_departure_is_a_count_and_no_time_of_day() {
    let asking = Offload::TIMESTAMP;
    let mut raw = rig(PlainTxConfig { raw_timestamps: true, ..ring_of(64) });
    let mut dated = rig(ring_of(64));
    for rig in [&mut raw, &mut dated] {
        assert!(rig.post(&frame(300, 1), asking));
        rig.flush();
    }
    assert_eq!((raw.tx().take_timestamp(), raw.tx().take_ticks()), (None, Some((0, 1_000))));
    assert_eq!((dated.tx().take_ticks(), dated.tx().take_timestamp().map(|stamp| stamp.sequence)), (None, Some(0)));
    raw.close();
    dated.close();
}

#[test]
fn departures_that_nobody_takes_are_lost_by_name() {
    let mut rig = rig(ring_of(64));
    for _ in 0..300 {
        assert!(rig.post(&frame(20, 1), Offload::TIMESTAMP));
        rig.flush();
    }
    assert_eq!(rig.count("timestamps_lost"), 300 - 256);
    assert_eq!(core::iter::from_fn(|| rig.tx().take_timestamp()).count(), 256);
    rig.close();
}

#[test]
fn refused_frame_that_asked_keeps_its_number() {
    let mut rig = rig(ring_of(64));
    let asking = Offload::TIMESTAMP;
    assert!(rig.post(&frame(2000, 1), asking) && rig.post(&frame(60, 1), asking));
    rig.flush();
    assert_eq!(rig.tx().take_timestamp().unwrap().sequence, 1);
    rig.close();
}

// Errors.

const SYNDROMES: [(u8, Mlx5TxDrop); 7] = [
    (0x01, Mlx5TxDrop::LocalLength),
    (0x02, Mlx5TxDrop::LocalQpOperation),
    (0x04, Mlx5TxDrop::LocalProtection),
    (0x05, Mlx5TxDrop::Flushed),
    (0x11, Mlx5TxDrop::LocalAccess),
    (0x15, Mlx5TxDrop::OtherError),
    (0xff, Mlx5TxDrop::OtherError),
];

#[test]
fn frame_that_fails_is_counted_by_its_syndrome_and_those_behind_as_flushed() {
    for (syndrome, reason) in SYNDROMES {
        let mut rig = rig(PlainTxConfig { multi_packet: false, ..ring_of(64) });
        (0..10).for_each(|seed| assert!(rig.post(&frame(300, seed), Offload::NONE)));
        rig.ring();
        rig.fetch();
        rig.fail(4, syndrome);
        assert_eq!((rig.tx().reap(), rig.tx().in_flight(), rig.tx().is_failed()), (5, 5, true));
        assert_eq!(rig.dropped(reason), 1);
        // From now on mbufs are refused, until the queue has restarted.
        assert!(!rig.post(&frame(60, 1), Offload::NONE));
        assert_eq!((rig.tx().room(), rig.count("refused_in_error"), rig.count("ring_full")), (0, 1, 0));
        (5..10).for_each(|idx| rig.fail(idx, 0x05));
        assert_eq!((rig.tx().reap(), rig.tx().in_flight()), (5, 0));
        assert_eq!(rig.all_dropped(), 6);
        assert_eq!(rig.dropped(Mlx5TxDrop::Flushed), if reason == Mlx5TxDrop::Flushed { 6 } else { 5 });
        rig.close();
    }
}

#[test]
fn error_of_a_wqe_that_is_not_in_flight_sends_nothing_home_and_stops_the_queue_all_the_same() {
    for counter in [3, 4, u16::MAX, 30_000] {
        let mut rig = rig(PlainTxConfig { multi_packet: false, ..ring_of(64) });
        (0..3).for_each(|seed| assert!(rig.post(&frame(300, seed), Offload::NONE)));
        rig.ring();
        rig.fail(counter, 4);
        assert_eq!((rig.tx().reap(), rig.tx().in_flight(), rig.tx().is_failed()), (0, 3, true));
        assert_eq!((rig.count("completions_invalid"), rig.all_dropped()), (1, 0));
        rig.ring();
        assert_eq!((rig.tx().is_failed(), rig.nic.objects.resets.get()), (false, 1));
        assert_eq!(rig.dropped(Mlx5TxDrop::Flushed), 3);
        rig.check_home();
        rig.close();
    }
}

#[test]
fn queue_comes_back_after_an_error_and_counts_from_zero() {
    for (flushed, ring_first) in [(0, true), (3, true), (0, false)] {
        let mut rig = rig(PlainTxConfig { multi_packet: false, ..ring_of(64) });
        rig.post_plain(5);
        rig.flush();
        (0..6).for_each(|seed| assert!(rig.post(&frame(300, seed), Offload::NONE)));
        rig.ring();
        let failed = rig.nic.sq.done().wrapping_add(1);
        rig.fetch();
        // Posted, but the NIC was not notified of it before the failure.
        if !ring_first {
            rig.post_plain(2);
        }
        rig.fail(failed, 0x04);
        (0..flushed).for_each(|idx| rig.fail(failed + 1 + idx, 0x05));
        rig.tx().reap();
        rig.ring();
        assert_eq!((rig.nic.objects.resets.get(), rig.nic.objects.readies.get()), (1, 1));
        assert_eq!((rig.tx().is_failed(), rig.tx().in_flight(), rig.nic.sq.record()), (false, 0, 0));
        let lost = if ring_first { 4 } else { 6 };
        assert_eq!((rig.dropped(Mlx5TxDrop::LocalProtection), rig.dropped(Mlx5TxDrop::Flushed)), (1, lost));
        rig.check_home();
        rig.nic.sq.set_done(0);
        rig.done.clear();
        rig.post_plain(40);
        assert_eq!(rig.flush().len(), 40);
        rig.check_home();
        rig.close();
    }
}

#[test]
fn reset_that_fails_is_tried_again() {
    let mut rig = rig(ring_of(64));
    assert!(rig.post(&frame(300, 1), Offload::NONE));
    rig.ring();
    rig.fetch();
    rig.fail(0, 0x02);
    rig.tx().reap();
    rig.nic.objects.failing.set(1);
    rig.ring();
    assert!(rig.tx().is_failed());
    rig.ring();
    assert_eq!(rig.nic.objects.resets.get(), 1, "not at once");
    rig.now += Duration::from_millis(10);
    rig.ring();
    assert!(!rig.tx().is_failed());
    rig.close();
}

#[test]
fn error_without_a_completion_is_heard_of_by_the_kernel() {
    let mut rig = rig(ring_of(64));
    rig.post_plain(3);
    rig.ring();
    rig.nic.objects.has_failed.set(true);
    rig.tx().refresh_counters();
    assert!(rig.tx().is_failed());
    rig.ring();
    assert_eq!((rig.tx().is_failed(), rig.nic.objects.resets.get()), (false, 1));
    assert_eq!(rig.dropped(Mlx5TxDrop::Flushed), 3);
    rig.check_home();
    rig.close();
}

#[test]
fn queue_that_has_lost_its_completions_takes_nothing_more_and_gives_every_mbuf_back() {
    let mut rig = rig(ring_of(64));
    (0..3).for_each(|seed| assert!(rig.post(&frame(300, seed), Offload::NONE)));
    rig.ring();
    rig.nic.objects.has_lost_cq.set(true);
    rig.tx().refresh_counters();
    for _ in 0..3 {
        rig.now += Duration::from_secs(1);
        rig.ring();
        assert!(!rig.post(&frame(60, 1), Offload::NONE));
    }
    assert_eq!((rig.nic.objects.resets.get(), rig.count("cq_errors")), (0, 1));
    rig.close();
}

#[test]
fn frames_of_a_failed_wqe_of_many_are_all_counted() {
    let mut rig = rig(ring_of(64));
    rig.post_plain(20);
    rig.ring();
    rig.fetch();
    let (idx, wqe) = rig.done[1].clone();
    assert_eq!(wqe.sends.len(), 19);
    rig.fail(idx, 0x04);
    assert_eq!(rig.tx().reap(), 19);
    assert_eq!(rig.dropped(Mlx5TxDrop::LocalProtection), 19);
    rig.close();
}

// Dry runs.

#[test]
fn rehearsal_puts_nothing_on_the_wire() {
    for depth in [WarmUp::Ring, WarmUp::Doorbell] {
        let mut rig = rig(ring_of(16));
        for turn in 0..50 {
            rig.post_plain(2);
            let (mut frames, bytes) = (rig.count("frames"), rig.count("bytes"));
            let parts = [frame(250, 1), frame(250, 2)];
            let chain = rig.chain(&parts.each_ref().map(Vec::as_slice));
            let mbufs: Vec<_> = (0..5).map(|seed| rig.mbuf(&frame(64, seed))).collect();
            let now = rig.now;
            let rehearsed = rig.tx().warm(depth, |tx| {
                let mut taken = usize::from(tx.post(chain, Offload::TIMESTAMP).map_err(Mbuf::free).is_ok());
                for (idx, mbuf) in mbufs.into_iter().enumerate() {
                    let offload = Offload::URGENT.when(idx == 4);
                    taken += usize::from(tx.post(mbuf, offload).map_err(Mbuf::free).is_ok());
                }
                tx.ring_doorbell(now);
                tx.reap();
                taken
            });
            assert!(rehearsed.unwrap() >= 5, "turn {turn}");
            // Only frames posted before are there, and at most a NOP.
            let wqes = rig.fetch();
            frames += 2;
            assert_eq!(wqes.iter().map(|wqe| wqe.sends.len()).sum::<usize>(), 2, "turn {turn}");
            let nothing = wqes.iter().filter(|wqe| wqe.sends.is_empty()).count();
            assert_eq!(nothing > 0, depth == WarmUp::Doorbell);
            assert_eq!((rig.count("frames"), rig.count("bytes")), (frames, bytes + 128));
            rig.complete(usize::MAX);
            while rig.tx().reap() > 0 {}
            rig.check_home();
            // And the next frame is posted as if there had been no dry run.
            assert!(rig.post(&frame(100, turn), Offload::TIMESTAMP));
            assert_eq!(bytes_of(&rig.flush()), [frame(100, turn)]);
            assert_eq!(rig.tx().take_timestamp().unwrap().sequence, turn as u64);
        }
        assert_eq!((rig.all_dropped(), rig.count("dry_runs")), (0, 50));
        rig.close();
    }
}

#[test]
fn rehearsal_in_a_full_ring_leaves_it_full() {
    for depth in [WarmUp::Ring, WarmUp::Doorbell] {
        let mut rig = rig(PlainTxConfig { multi_packet: false, ..ring_of(8) });
        (0..8).for_each(|seed| assert!(rig.post(&frame(300, seed), Offload::NONE)));
        let mbuf = rig.mbuf(&frame(60, 1));
        let taken = rig.tx().warm(depth, |tx| tx.post(mbuf, Offload::NONE).map_err(Mbuf::free).is_ok());
        assert_eq!(taken, Some(false));
        assert_eq!(rig.flush().len(), 8);
        rig.close();
    }
}

#[test]
fn completion_that_comes_during_a_rehearsal_counts() {
    let mut rig = rig(ring_of(16));
    assert!(rig.post(&frame(300, 1), Offload::NONE));
    rig.ring();
    rig.fetch();
    rig.complete(1);
    let mbuf = rig.mbuf(&frame(300, 2));
    let reaped = rig.tx().warm(WarmUp::Ring, |tx| {
        tx.post(mbuf, Offload::NONE).map_err(Mbuf::free).unwrap();
        tx.reap()
    });
    assert_eq!((reaped, rig.tx().in_flight()), (Some(1), 0));
    rig.check_home();
    rig.close();
}

#[test]
fn there_is_no_rehearsal_while_the_queue_is_in_error() {
    let mut rig = rig(ring_of(16));
    assert!(rig.post(&frame(300, 1), Offload::NONE));
    rig.ring();
    rig.fail(0, 4);
    rig.tx().reap();
    assert_eq!(rig.tx().warm(WarmUp::Doorbell, |_| panic!("it was called")), None::<()>);
    rig.close();
}

#[test]
fn error_that_comes_during_a_rehearsal_is_recovered_from_behind_it() {
    for depth in [WarmUp::Ring, WarmUp::Doorbell] {
        let mut rig = rig(ring_of(16));
        rig.work_until(5);
        assert!(rig.post(&frame(300, 1), Offload::NONE));
        rig.ring();
        rig.fetch();
        let idx = rig.done.back().unwrap().0;
        rig.fail(idx, 4);
        let mbufs: Vec<_> = (0..4).map(|seed| rig.mbuf(&frame(300, seed))).collect();
        let now = rig.now;
        rig.tx().warm(depth, |tx| {
            for mbuf in mbufs {
                _ = tx.post(mbuf, Offload::TIMESTAMP).map_err(Mbuf::free);
                tx.ring_doorbell(now);
                tx.room();
            }
        });
        assert!(rig.tx().is_failed());
        assert_eq!(rig.nic.objects.resets.get(), 0, "not within the dry_run");
        rig.check_home();
        rig.ring();
        assert_eq!((rig.tx().is_failed(), rig.nic.objects.resets.get()), (false, 1));
        rig.nic.sq.set_done(0);
        rig.done.clear();
        assert_eq!(bytes_of(&rig.flush()), [] as [Vec<u8>; 0], "nothing of the dry_run, nor of what was before");
        assert!(rig.post(&frame(300, 9), Offload::NONE));
        assert_eq!(bytes_of(&rig.flush()), [frame(300, 9)]);
        assert_eq!((rig.dropped(Mlx5TxDrop::LocalProtection), rig.all_dropped()), (1, 1));
        rig.close();
    }
}

#[test]
fn rehearsal_that_panics_is_over() {
    let mut rig = rig(ring_of(16));
    let mbuf = rig.mbuf(&frame(300, 1));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        rig.tx().warm(WarmUp::Ring, |tx| {
            tx.post(mbuf, Offload::NONE).map_err(Mbuf::free).unwrap();
            std::panic::resume_unwind(Box::new("of the app's own"));
        })
    }));
    assert!(panicked.is_err());
    rig.check_home();
    assert!(rig.post(&frame(300, 2), Offload::NONE));
    assert_eq!(bytes_of(&rig.flush()), [frame(300, 2)]);
    rig.close();
}

#[test]
fn rehearsal_within_a_rehearsal_is_a_part_of_it() {
    let mut rig = rig(ring_of(16));
    let mbufs: Vec<_> = (0..3).map(|seed| rig.mbuf(&frame(300, seed))).collect();
    let now = rig.now;
    rig.tx().warm(WarmUp::Ring, |tx| {
        for mbuf in mbufs {
            tx.dry_run(mbuf, Offload::NONE);
            tx.ring_doorbell(now);
        }
        tx.ring_doorbell(now);
    });
    let mbufs: Vec<_> = (0..2).map(|seed| rig.mbuf(&frame(300, seed))).collect();
    rig.tx().warm(WarmUp::Ring, |tx| {
        for mbuf in mbufs {
            tx.warm(WarmUp::Ring, |_| ());
            tx.post(mbuf, Offload::NONE).map_err(Mbuf::free).unwrap();
            tx.ring_doorbell(now);
        }
    });
    assert_eq!((rig.flush().len(), rig.count("frames"), rig.count("dry_runs")), (0, 0, 2));
    rig.close();
}

#[test]
fn rehearsed_frame_that_can_never_be_sent_is_no_drop() {
    let mut rig = rig(ring_of(16));
    let (short, alone) = (rig.mbuf(&frame(5, 1)), rig.mbuf(&frame(9_000, 1)));
    rig.tx().warm(WarmUp::Ring, |tx| tx.post(short, Offload::NONE).map_err(Mbuf::free).unwrap());
    rig.tx().dry_run(alone, Offload::NONE);
    assert_eq!(rig.all_dropped(), 0);
    rig.close();
}

// Set-up and the end.

#[test]
fn ring_that_cannot_work_is_refused_in_words() {
    let refused = |config: PlainTxConfig| {
        let pool = Pool::heap(4).unwrap();
        plain_tx(config, &pool, &Block::heap().scope("q")).map(|_| ()).unwrap_err().to_string()
    };
    for blocks in [1, 4, 12, 65_536] {
        assert!(refused(ring_of(blocks)).contains("power of two between 8 and 32768"), "{blocks}");
    }
    assert!(refused(PlainTxConfig { cqes: 32, ..ring_of(64) }).contains("as many completion entries"));
}

#[test]
fn dropped_queue_rings_for_what_waits_and_gives_every_mbuf_back() {
    let mut rig = rig(ring_of(64));
    (0..3).for_each(|seed| assert!(rig.post(&frame(300, seed), Offload::NONE)));
    rig.ring();
    rig.post_plain(5);
    let rig = rig.close();
    assert_eq!((rig.count("doorbells"), rig.count("frames"), rig.count("bytes")), (2, 8, 1220));
    // The NIC completed nothing, so their fate is unknown.
    assert_eq!((rig.dropped(Mlx5TxDrop::Flushed), rig.nic.objects.resets.get()), (8, 1));
}

#[test]
fn mbufs_that_the_nic_does_not_let_go_of_stay_with_it() {
    let mut rig = rig(PlainTxConfig { multi_packet: false, ..ring_of(64) });
    for seed in 0..5 {
        assert!(rig.post(&frame(300, seed), Offload::NONE));
        rig.ring();
    }
    rig.fetch();
    assert_eq!(rig.complete(2), 2);
    rig.nic.objects.failing.set(1);
    drop(rig.tx.take());
    assert_eq!((rig.pool.in_use(), rig.pool.drops_without_reason(), rig.count("leaked")), (3, 0, 3));
    assert_eq!(rig.dropped(Mlx5TxDrop::Flushed), 3);
}

#[test]
fn dropped_queue_counts_no_frame_as_lost_that_the_nic_has_sent() {
    for (before, waiting) in [(0, 0), (3, 0), (3, 1), (5, 4)] {
        let mut rig = rig(ring_of(64));
        for _ in 0..before {
            assert!(rig.post(&frame(60, 1), Offload::NONE));
            rig.ring();
        }
        rig.post_plain(waiting);
        // As at the start of drop; no WQE was signaled.
        rig.tx().ask_for_rest();
        assert_eq!(rig.nic.complete_all(), usize::from(before + waiting > 0));
        let rig = rig.close();
        assert_eq!((rig.all_dropped(), rig.count("frames")), (0, (before + waiting) as u64));
    }
}

// Everything at once.

#[derive(Clone, Debug)]
enum Step {
    Post { parts: Vec<usize>, offload: (bool, bool, Option<u16>, bool, bool), held: bool },
    Segment { header: (usize, usize), payload: usize, mss: u16, vlan: Option<u16> },
    Burst { count: usize, len: usize, checksums: bool },
    Ring,
    Complete(usize),
    Reap,
    Warm(bool),
    Prepost(usize),
    Fire,
}

fn step() -> impl Strategy<Value = Step> {
    let len = prop_oneof![14usize..80, 14usize..300, 200usize..1530];
    let parts = prop_oneof![
        6 => len.clone().prop_map(|len| vec![len]),
        2 => prop::collection::vec(0usize..400, 1..8),
    ];
    let offload = (any::<bool>(), any::<bool>(), prop::option::weighted(0.2, any::<u16>()), prop::bool::weighted(0.1));
    let offload =
        (offload, prop::bool::weighted(0.1)).prop_map(|((ip, l4, vlan, stamp), urgent)| (ip, l4, vlan, stamp, urgent));
    prop_oneof![
        8 => (parts, offload, prop::bool::weighted(0.1)).prop_map(|(parts, offload, held)| Step::Post { parts, offload, held }),
        1 => ((14usize..30, 5usize..16), 0usize..9000, 100u16..1400, prop::option::of(any::<u16>()))
            .prop_map(|(header, payload, mss, vlan)| Step::Segment { header, payload, mss, vlan }),
        2 => len.clone().prop_map(Step::Prepost),
        2 => Just(Step::Fire),
        3 => (1usize..64, len, any::<bool>()).prop_map(|(count, len, checksums)| Step::Burst { count, len, checksums }),
        4 => Just(Step::Ring),
        3 => (0usize..20).prop_map(Step::Complete),
        3 => Just(Step::Reap),
        1 => any::<bool>().prop_map(Step::Warm),
    ]
}

fn config() -> impl Strategy<Value = PlainTxConfig> {
    let logs = prop_oneof![8 => 3u32..9, 1 => 9u32..14];
    let ring = (logs, prop_oneof![Just(0u32), Just(64), Just(128), Just(256)]);
    (ring, any::<(bool, bool, bool, bool)>(), prop::bool::weighted(0.8)).prop_map(
        |((log, blueflame_len), (multi_packet, vlan_insert, inline, segments), checksums)| PlainTxConfig {
            blueflame_len,
            multi_packet,
            checksums,
            vlan_insert,
            inline_len_min: if inline { 18 } else { 0 },
            segmentation_len_max: if segments { 65_536 } else { 0 },
            ..ring_of(1 << log)
        },
    )
}

/// The variants of a WQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Form {
    Inline,
    Pointer,
    MultiPacket,
    Segmented,
    Checksums,
    Tag,
    Quiet,
    Nop,
    OverTheEndOfTheRing,
    OverTheEndOfTheIndex,
}

impl Form {
    const ALL: [Self; 10] = [
        Self::Inline,
        Self::Pointer,
        Self::MultiPacket,
        Self::Segmented,
        Self::Checksums,
        Self::Tag,
        Self::Quiet,
        Self::Nop,
        Self::OverTheEndOfTheRing,
        Self::OverTheEndOfTheIndex,
    ];

    fn is_of(self, idx: u16, wqe: &Wqe, ring: u32) -> bool {
        let any = |is_so: fn(&Send) -> bool| wqe.sends.iter().any(is_so);
        match self {
            Self::Inline => any(|send| !send.is_fetched),
            Self::Pointer => any(|send| send.is_fetched && send.cut.is_none()),
            Self::MultiPacket => wqe.sends.len() > 1,
            Self::Segmented => any(|send| send.cut.is_some()),
            Self::Checksums => any(|send| send.checksums == (true, true)),
            Self::Tag => any(|send| send.bytes.get(12..14) == Some(&[0x81, 0])),
            Self::Quiet => !wqe.is_signaled,
            Self::Nop => wqe.sends.is_empty(),
            Self::OverTheEndOfTheRing => u32::from(idx) % ring + u32::from(wqe.blocks) > ring,
            Self::OverTheEndOfTheIndex => idx.checked_add(wqe.blocks).is_none(),
        }
    }
}

/// The frames that a queue accepted and should have sent.
struct Ledger {
    rig: Rig,
    taken: VecDeque<Send>,
    sent: usize,
    held: Vec<Held>,
    /// A frame that may be preposted.
    standing: Option<(Preposted, Vec<u8>)>,
    seed: usize,
}

impl Ledger {
    /// For a queue whose index is near `start`.
    fn new(config: PlainTxConfig, start: u16) -> Self {
        let mut rig = rig(config);
        rig.work_until(start);
        let sent = rig.count("frames") as usize;
        Self { rig, taken: VecDeque::new(), sent, held: vec![], standing: None, seed: 0 }
    }

    fn expect(&mut self, bytes: Vec<u8>, checksums: (bool, bool), vlan: Option<u16>, cut: Option<(Vec<u8>, usize)>) {
        let mut bytes = bytes;
        if let Some(tci) = vlan {
            bytes.splice(12..12, [[0x81, 0], tci.to_be_bytes()].concat());
        }
        if cut.is_none() && bytes.len() < usize::from(self.rig.config.inline_len_min) {
            bytes.resize(self.rig.config.inline_len_min.into(), 0);
        }
        self.taken.push_back(Send { checksums, bytes, cut, is_fetched: false });
    }

    /// Posts; expects the frame if it was accepted and not dropped by name.
    fn post(&mut self, mbuf: Mbuf, offload: Offload, bytes: Vec<u8>, cut: Option<(Vec<u8>, usize)>) {
        let (dropped, expected) = (self.rig.all_dropped(), mbuf.segments().map(<[u8]>::to_vec).collect::<Vec<_>>());
        let wants_cut = offload.segment_len().is_some();
        match self.rig.post_mbuf(mbuf, offload) {
            Err(back) => {
                assert_eq!(back.segments().map(<[u8]>::to_vec).collect::<Vec<_>>(), expected, "it came back changed");
                back.free();
            }
            Ok(()) if self.rig.all_dropped() > dropped => {}
            Ok(()) => {
                let checksums =
                    (offload.has(Offload::IP_CHECKSUM) || wants_cut, offload.has(Offload::L4_CHECKSUM) || wants_cut);
                self.expect(bytes, checksums, offload.vlan(), cut);
            }
        }
    }

    /// The NIC reads the accepted frames, in order.
    fn fetch(&mut self) {
        for wqe in self.rig.fetch() {
            for send in wqe.sends {
                let expected = self.taken.pop_front().expect("nothing leaves that was not posted");
                assert_eq!(Send { is_fetched: false, ..send }, expected);
                self.sent += 1;
            }
        }
    }

    /// Fires the preposted frame: whole, or not at all.
    fn fire(&mut self) {
        let Some((which, mut expected)) = self.standing.take() else { return };
        let Some(bytes) = self.rig.tx().preposted(which) else {
            assert!(!self.rig.tx().fire_preposted(which));
            return;
        };
        assert_eq!(bytes, expected, "as it was made to stand");
        bytes[13] ^= 0x55;
        expected[13] ^= 0x55;
        assert!(self.rig.tx().fire_preposted(which));
        self.expect(expected, (false, false), None, None);
        self.fetch();
    }

    fn post_burst(&mut self, count: usize, len: usize, checksums: bool) {
        let frames: Vec<_> = (0..count).map(|idx| frame(len, self.seed + idx)).collect();
        let mut burst: Burst = frames.iter().map(|bytes| self.rig.mbuf(bytes)).collect();
        for mbuf in &burst {
            let bytes = mbuf.bytes();
            self.rig.registered.push_back((bytes.as_ptr().addr() as u64, bytes.to_vec()));
        }
        let offload = Offload::IP_CHECKSUM.when(checksums) | Offload::L4_CHECKSUM.when(checksums);
        let dropped = self.rig.all_dropped();
        let taken = self.rig.tx().post_burst(&mut burst, offload);
        assert_eq!(taken + burst.len(), count);
        for (mbuf, bytes) in burst.drain(..).zip(&frames[taken..]) {
            assert_eq!(mbuf.bytes(), bytes);
            mbuf.free();
        }
        if self.rig.all_dropped() == dropped {
            frames.into_iter().take(taken).for_each(|bytes| self.expect(bytes, (checksums, checksums), None, None));
        }
    }

    fn warm(&mut self, deep: bool) {
        let depth = if deep { WarmUp::Doorbell } else { WarmUp::Ring };
        let mbufs = [self.rig.mbuf(&frame(64, 1)), self.rig.mbuf(&frame(400, 1)), self.rig.mbuf(&frame(64, 1))];
        let now = self.rig.now;
        self.rig.tx().warm(depth, |tx| {
            mbufs.into_iter().for_each(|mbuf| _ = tx.post(mbuf, Offload::NONE).map_err(Mbuf::free));
            tx.room();
            tx.ring_doorbell(now);
            tx.reap();
        });
        self.fetch();
    }

    fn step(&mut self, step: &Step) {
        self.seed += 1;
        match step {
            Step::Post { parts, offload: (ip_checksum, l4_checksum, vlan, timestamp, urgent), held } => {
                let parts: Vec<_> = parts.iter().enumerate().map(|(idx, &len)| frame(len, self.seed + idx)).collect();
                let mbuf = self.rig.chain(&parts.iter().map(Vec::as_slice).collect::<Vec<_>>());
                if *held {
                    self.held.push(mbuf.hold());
                }
                let (ip_checksum, l4_checksum, vlan) = (*ip_checksum, *l4_checksum, *vlan);
                let (timestamp, urgent) = (*timestamp, *urgent);
                let flags = Offload::IP_CHECKSUM.when(ip_checksum)
                    | Offload::L4_CHECKSUM.when(l4_checksum)
                    | Offload::TIMESTAMP.when(timestamp)
                    | Offload::URGENT.when(urgent);
                let offload = tagged(flags, vlan);
                self.post(mbuf, offload, parts.concat(), None);
                self.fetch();
            }
            Step::Segment { header: (l2_len, words), payload, mss, vlan } => {
                let (mbuf, whole) = tcp(&self.rig, *l2_len, 20, words * 4, *payload);
                let offload = tagged(Offload::NONE.with_segment_len(*mss), *vlan);
                let header_len = l2_len + 20 + words * 4;
                let is_cut = *payload > usize::from(*mss);
                let (bytes, payload) = if is_cut { whole.split_at(header_len) } else { (&whole[..], &[][..]) };
                self.post(mbuf, offload, bytes.to_vec(), is_cut.then(|| (payload.to_vec(), (*mss).into())));
            }
            Step::Burst { count, len, checksums } => self.post_burst(*count, *len, *checksums),
            Step::Ring => {
                self.rig.ring();
                self.fetch();
            }
            Step::Complete(wqes) => _ = self.rig.complete(*wqes),
            Step::Reap => _ = self.rig.tx().reap(),
            Step::Warm(deep) => self.warm(*deep),
            Step::Prepost(len) => {
                let bytes = frame(*len, self.seed);
                self.standing = self.rig.tx().prepost(&bytes).map(|which| (which, bytes));
            }
            Step::Fire => self.fire(),
        }
        while self.held.len() > 20 {
            self.held.remove(0);
        }
    }
}

/// The start index: it has 16 bits.
fn start() -> impl Strategy<Value = u16> {
    prop_oneof![7 => Just(0), 1 => 65_450u16..65_530]
}

/// Checks the generator of the property below: its steps write WQEs of all variants.
#[test]
fn every_form_of_a_wqe_is_tried() {
    let mut runner = TestRunner::deterministic();
    let (strategy, mut seen) = ((config(), start(), prop::collection::vec(step(), 1..120)), BTreeSet::new());
    for _ in 0..48 {
        if seen.len() == Form::ALL.len() {
            break;
        }
        let (config, start, steps) = strategy.new_tree(&mut runner).unwrap().current();
        let mut ledger = Ledger::new(config, start);
        steps.iter().for_each(|step| ledger.step(step));
        seen.append(&mut ledger.rig.seen);
    }
    assert_eq!(seen, BTreeSet::from(Form::ALL));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Whatever frames are posted, at any position of a ring of any size, with completions as late
    /// as possible: docs/mlx5.md has each WQE, the frames are those that were posted, and every
    /// mbuf is freed.
    #[test]
    fn every_wqe_is_one_that_the_fact_sheet_knows(
        config in config(),
        start in start(),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut ledger = Ledger::new(config, start);
        for step in &steps {
            ledger.step(step);
        }
        ledger.rig.ring();
        ledger.fetch();
        ledger.rig.complete(usize::MAX);
        while ledger.rig.tx().reap() > 0 {}
        ledger.held.clear();
        prop_assert!(ledger.taken.is_empty(), "{} frames never left", ledger.taken.len());
        prop_assert_eq!(ledger.rig.tx().in_flight(), 0);
        prop_assert_eq!(ledger.rig.count("frames"), ledger.sent as u64);
        prop_assert_eq!(ledger.rig.count("completions_invalid") + ledger.rig.count("completions_missed"), 0);
        ledger.rig.check_home();
        ledger.rig.close();
    }

    /// With any bytes in the CQ, nothing panics, no mbuf is lost or freed twice, and no WQE in
    /// flight is forgotten.
    #[test]
    fn whatever_the_nic_writes_no_mbuf_is_lost(
        config in config(),
        steps in prop::collection::vec((step(), prop::option::of((any::<[u8; 32]>(), any::<[u8; 32]>(), 0u8..4, 0u16..40))), 1..80),
    ) {
        let (mut rig, mut standing) = (rig(config), None);
        for (step, cqe) in &steps {
            match step {
                Step::Post { parts, offload: (ip_checksum, l4_checksum, vlan, timestamp, urgent), .. } => {
                    let parts: Vec<_> = parts.iter().map(|&len| frame(len, 1)).collect();
                    let mbuf = rig.chain(&parts.iter().map(Vec::as_slice).collect::<Vec<_>>());
                    let (ip_checksum, l4_checksum, vlan) = (*ip_checksum, *l4_checksum, *vlan);
                    let (timestamp, urgent) = (*timestamp, *urgent);
                    let flags = Offload::IP_CHECKSUM.when(ip_checksum) | Offload::L4_CHECKSUM.when(l4_checksum) | Offload::TIMESTAMP.when(timestamp) | Offload::URGENT.when(urgent);
                let offload = tagged(flags, vlan);
                    _ = rig.tx().post(mbuf, offload).map_err(Mbuf::free);
                }
                Step::Segment { .. } | Step::Burst { .. } => {
                    let mut burst: Burst = (0..20).map(|_| rig.mbuf(&frame(64, 1))).collect();
                    rig.tx().post_burst(&mut burst, Offload::NONE);
                    burst.drain(..).for_each(Mbuf::free);
                }
                Step::Ring => rig.ring(),
                Step::Prepost(len) => standing = rig.tx().prepost(&frame(*len, 1)),
                Step::Fire => _ = standing.is_some_and(|which| rig.tx().fire_preposted(which)),
                Step::Complete(_) => _ = rig.nic.complete_all(),
                Step::Reap => _ = rig.tx().reap(),
                Step::Warm(deep) => {
                    rig.now += Duration::from_millis(700);
                    let depth = if *deep { WarmUp::Doorbell } else { WarmUp::Ring };
                    let mut mbufs: Vec<_> = [64, 400, 3].map(|len| rig.mbuf(&frame(len, 1))).into();
                    let (now, dropped) = (rig.now, rig.dropped(Mlx5TxDrop::TooShort));
                    rig.tx().warm(depth, |tx| {
                        for mbuf in mbufs.drain(..) {
                            _ = tx.post(mbuf, Offload::NONE).map_err(Mbuf::free);
                            tx.reap();
                            tx.ring_doorbell(now);
                        }
                    });
                    mbufs.into_iter().for_each(Mbuf::free);
                    prop_assert_eq!(rig.dropped(Mlx5TxDrop::TooShort), dropped);
                }
            }
            if let Some((first, second, kind, near)) = cqe {
                let near = rig.nic.sq.producer_index().wrapping_sub(*near);
                let opcode = [0, 13, 13, second[31] >> 4 & 0xe][usize::from(*kind)];
                rig.nic.cq.complete(opcode, 0, |cqe| {
                    cqe[..32].copy_from_slice(first);
                    cqe[32..].copy_from_slice(second);
                    // CQEs that are nearly right are the dangerous ones.
                    if *kind != 3 {
                        cqe[60..62].copy_from_slice(&near.to_be_bytes());
                    }
                });
            }
            prop_assert_eq!(rig.tx().in_flight() > 0, rig.pool.in_use() > 0);
        }
        rig.close();
    }
}
