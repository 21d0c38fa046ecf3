//! One suite that every device passes: the contract of [`device`](crate::device) as testable facts.
//! It runs on a device in memory, on a wrapper around one, in a namespace, or on a NIC in a lab.
//! The suite makes frames, posts them on one side of a link and checks the frames that the other
//! side receives. It reads no clock and makes frames from a fixed pattern, so a failure is
//! reproducible.
//!
//! [`run`] tries each fact on a fresh [`LinkUnderTest`] and returns those that do not hold, with
//! the reason.
//! It does not panic where a fact fails, so that a lab binary can print the whole list.

use core::fmt::Write as _;

use crate::device::{Offload, RxQueue, RxState, TxQueue};
use crate::mem::{BURST_MAX, Burst, Mbuf, Pool};
use crate::time::{Duration, Instant};

/// The properties of a kind of device that the suite needs, and a factory of links.
pub trait Rig {
    /// A fresh link with at least `buffers` buffers in each pool: frames posted to `tx` arrive at
    /// `rx`.
    fn link(&mut self, buffers: usize) -> LinkUnderTest;

    /// Bytes of the longest frame.
    fn frame_len_max(&self) -> usize;

    /// Bytes of the shortest frame: Ethernet's 60 on a real port, where shorter ones are padded.
    fn frame_len_min(&self) -> usize {
        14
    }

    /// The number of frames after which the sender's ring is full while the receiver does not poll;
    /// `None` if the ring is never full (a file).
    fn ring_len(&self) -> Option<usize>;

    /// Segments of a frame that the device can gather.
    fn tx_segments_max(&self) -> usize {
        1
    }

    /// Whether it inserts VLAN tags.
    fn inserts_vlan(&self) -> bool {
        false
    }

    /// Whether it can prepost a frame. A device that cannot must refuse each time.
    fn preposts(&self) -> bool {
        false
    }

    /// Buffers of the sender's pool that the receive half beside it has given to the kernel or the
    /// NIC from the start.
    fn buffers_lent(&self) -> usize {
        0
    }
}

/// The two queues between which the suite sends, one direction: a link of the device under test.
pub struct LinkUnderTest {
    /// The queue that the suite posts to.
    pub tx: Box<dyn TxQueue>,
    /// Buffers for posted frames.
    pub tx_pool: Pool,
    /// The queue that the suite receives from.
    pub rx: Box<dyn RxQueue>,
    /// Buffers for received frames.
    pub rx_pool: Pool,
    /// Frames that both sides have dropped by name so far.
    pub dropped: Box<dyn Fn() -> u64>,
}

/// A fact that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The fact, as the suite names it.
    pub fact: &'static str,
    /// The observation that contradicts it.
    pub seen: String,
}

type Fact = fn(&mut dyn Rig) -> Result<(), String>;
type Post = fn(&mut dyn TxQueue, Mbuf) -> Result<(), Mbuf>;

/// The facts, in the order of the tests.
const FACTS: &[(&str, Fact)] = &[
    ("frames of every length arrive unchanged", every_length_arrives_unchanged),
    ("frames arrive in the order of posting", order_is_kept),
    ("a burst never exceeds its limit or its room", limits_are_kept),
    ("a full ring gives the mbuf back untouched, and takes it later", full_ring_gives_the_mbuf_back),
    ("an urgent frame leaves without a doorbell, behind those before it", urgent_frame_leaves_at_once),
    ("frames leave by a doorbell that was deferred", deferred_doorbell_has_frames_leave),
    ("a preposted frame leaves when it is fired, as it was overwritten", preposted_frame_leaves_as_it_was_overwritten),
    ("a preposted frame gives way to what is posted", preposted_frame_gives_way_to_what_is_posted),
    ("every posted mbuf comes home", posted_mbufs_come_home),
    ("a held mbuf stays with its holder after it was sent", held_mbuf_stays),
    ("a rehearsed frame stays, and those posted around it arrive", dry_run_frames_stay),
    ("an empty pool loses no frame without a name", empty_pool_loses_nothing_unnamed),
    ("a frame that is too long is dropped by name", too_long_is_named),
    ("a chain is gathered in order", chain_is_gathered),
    ("a VLAN tag is inserted behind the addresses", vlan_is_inserted),
    ("a quiet link gives no frame and stays sound", quiet_link_gives_nothing),
    ("queues that are dropped give every mbuf back", dropped_queues_give_mbufs_back),
];

/// The names of the facts that [`run`] tries.
pub fn facts() -> impl Iterator<Item = &'static str> {
    FACTS.iter().map(|&(fact, _)| fact)
}

/// Tries every fact on `rig`; returns the failures, none if the device conforms.
pub fn run(rig: &mut dyn Rig) -> Vec<Failure> {
    let mut failures = Vec::new();
    for &(fact, check) in FACTS {
        if let Err(seen) = check(rig) {
            failures.push(Failure { fact, seen });
        }
    }
    failures
}

/// Panics with all failures as one readable list: for a device's own test.
pub fn assert_conforms(rig: &mut dyn Rig) {
    let failures = run(rig);
    let mut list = String::new();
    for Failure { fact, seen } in &failures {
        // Writing to a String does not fail.
        let _ = write!(list, "\n  {fact}: {seen}");
    }
    assert!(failures.is_empty(), "the device does not conform:{list}");
}

/// Polls without a frame after which a link counts as drained: a device needs some turns to move a
/// frame. The suite reads no clock. If a device takes time, its rig waits in `receive`, a part of
/// the time in each empty poll.
const DRY_POLLS: usize = 1_000;

impl LinkUnderTest {
    fn now(&self) -> Instant {
        Instant::ZERO + Duration::from_secs(1)
    }

    /// Posts one linear frame; the mbuf is returned if the ring is full.
    fn post(&mut self, frame: &[u8]) -> Result<(), Mbuf> {
        let mbuf = self.tx_pool.alloc_copy(frame).expect("the rig's pools are as large as was asked");
        self.tx.post(mbuf, Offload::NONE)
    }

    /// Posts all frames, which the ring must take.
    fn post_all(&mut self, frames: &[Vec<u8>]) -> Result<(), String> {
        for (idx, frame) in frames.iter().enumerate() {
            if let Err(mbuf) = self.post(frame) {
                mbuf.free();
                return Err(format!("the ring was full at frame {idx}"));
            }
        }
        self.tx.ring_doorbell(self.now());
        Ok(())
    }

    /// Receives until the link is drained, `limit` frames per burst.
    fn drain(&mut self, limit: usize) -> Result<Vec<Vec<u8>>, String> {
        self.collect(limit, usize::MAX)
    }

    /// Receives until `wanted` frames have arrived, or the link is drained, `limit` frames per
    /// burst.
    fn collect(&mut self, limit: usize, wanted: usize) -> Result<Vec<Vec<u8>>, String> {
        let mut frames = Vec::new();
        let mut dry = 0;
        while frames.len() < wanted && dry < DRY_POLLS && self.rx.state() != RxState::Ended {
            let mut burst = Burst::new();
            let now = self.now();
            let count = self.rx.receive(&mut burst, limit, &self.rx_pool, now);
            if count != burst.len() || count > limit {
                return Err(format!("said {count}, gave {}, limit {limit}", burst.len()));
            }
            dry = if count == 0 { dry + 1 } else { 0 };
            for mbuf in burst.drain(..) {
                frames.push(mbuf.segments().flatten().copied().collect());
                mbuf.free();
            }
            self.tx.reap();
        }
        Ok(frames)
    }

    /// Sends all frames in portions that fit the ring, and receives them.
    fn transfer(&mut self, frames: &[Vec<u8>], limit: usize, ring_len: Option<usize>) -> Result<Vec<Vec<u8>>, String> {
        let portion = ring_len.unwrap_or(frames.len()).clamp(1, BURST_MAX);
        let mut received = Vec::new();
        if ring_len.is_none() {
            self.post_all(frames)?;
            return self.drain(limit);
        }
        for portion in frames.chunks(portion) {
            self.post_all(portion)?;
            received.extend(self.collect(limit, portion.len())?);
            self.reap_all()?;
        }
        // More frames than were sent.
        received.extend(self.drain(limit)?);
        Ok(received)
    }

    /// Reaps until every posted mbuf is freed, for at most the time that a frame may take; no other
    /// frame is in flight.
    fn reap_all(&mut self) -> Result<(), String> {
        let mut dry = 0;
        while self.tx.in_flight() > 0 && dry < DRY_POLLS && self.rx.state() != RxState::Ended {
            dry = if self.tx.reap() == 0 { dry + 1 } else { 0 };
            let (mut burst, now) = (Burst::new(), self.now());
            if self.rx.receive(&mut burst, 32, &self.rx_pool, now) > 0 {
                burst.drain(..).for_each(Mbuf::free);
                return Err("a frame arrived that was not sent".into());
            }
        }
        Ok(())
    }

    /// Checks that both pools are as before, except buffers that a receive half owns, and that
    /// there were no drops without a reason.
    fn nothing_leaks(&self, buffers_lent: usize) -> Result<(), String> {
        let in_use = self.tx_pool.in_use();
        if in_use > buffers_lent {
            return Err(format!("{} posted mbufs did not come home", in_use - buffers_lent));
        }
        match self.tx_pool.drops_without_reason() + self.rx_pool.drops_without_reason() {
            0 => Ok(()),
            unnamed => Err(format!("{unnamed} mbufs were dropped without a reason")),
        }
    }
}

/// A frame of `len` bytes between two locally administered addresses, with a pattern that depends
/// on `seed`. Its EtherType is the first one for experiments (0x88b5), so no stack on the way
/// answers it.
fn frame(len: usize, seed: usize) -> Vec<u8> {
    let mut frame = vec![0x02, 0, 0, 0, 0, 1, 0x02, 0, 0, 0, 0, 2, 0x88, 0xb5];
    frame.extend((frame.len()..len).map(|at| (at * 7 + seed * 13) as u8));
    frame.truncate(len);
    frame
}

fn frames(count: usize, len: usize) -> Vec<Vec<u8>> {
    (0..count).map(|seed| frame(len, seed)).collect()
}

fn same(sent: &[Vec<u8>], received: &[Vec<u8>]) -> Result<(), String> {
    if sent.len() != received.len() {
        return Err(format!("{} frames were sent, {} received", sent.len(), received.len()));
    }
    match sent.iter().zip(received).position(|(sent, received)| sent != received) {
        None => Ok(()),
        Some(idx) => Err(format!("frame {idx} of {} bytes is not what was sent", sent[idx].len())),
    }
}

fn every_length_arrives_unchanged(rig: &mut dyn Rig) -> Result<(), String> {
    let (min, max) = (rig.frame_len_min(), rig.frame_len_max());
    let lens = (min..min + 200).chain((min + 200..max).step_by(97)).chain(max - 2..=max).filter(|&len| len <= max);
    let sent: Vec<_> = lens.enumerate().map(|(seed, len)| frame(len, seed)).collect();
    let mut link = rig.link(sent.len() + BURST_MAX);
    let received = link.transfer(&sent, 32, rig.ring_len())?;
    same(&sent, &received)?;
    link.nothing_leaks(rig.buffers_lent())
}

fn order_is_kept(rig: &mut dyn Rig) -> Result<(), String> {
    let sent = frames(3_000, rig.frame_len_min().max(64));
    let mut link = rig.link(sent.len() + BURST_MAX);
    same(&sent, &link.transfer(&sent, 32, rig.ring_len())?)
}

fn limits_are_kept(rig: &mut dyn Rig) -> Result<(), String> {
    for limit in [1, 2, 31, 32, BURST_MAX] {
        let sent = frames(100, rig.frame_len_min().max(64));
        let mut link = rig.link(sent.len() + BURST_MAX);
        same(&sent, &link.transfer(&sent, limit, rig.ring_len())?).map_err(|seen| format!("limit {limit}: {seen}"))?;
    }
    let mut link = rig.link(BURST_MAX * 2);
    link.post_all(&frames(1, 64))?;
    let mut burst = Burst::new();
    while !burst.is_full() {
        burst.push(link.rx_pool.alloc().ok_or("the rig's pool is too small")?);
    }
    let now = link.now();
    let count = (0..DRY_POLLS).map(|_| link.rx.receive(&mut burst, 32, &link.rx_pool, now)).sum::<usize>();
    burst.drain(..).for_each(Mbuf::free);
    if count == 0 { Ok(()) } else { Err(format!("{count} frames came into a full burst")) }
}

fn full_ring_gives_the_mbuf_back(rig: &mut dyn Rig) -> Result<(), String> {
    let Some(ring_len) = rig.ring_len() else { return Ok(()) };
    let len = rig.frame_len_min().max(64);
    let mut link = rig.link(ring_len + 2 * BURST_MAX);
    let mut sent = Vec::new();
    let refused = loop {
        if sent.len() > ring_len {
            return Err(format!("{} frames went into a ring of {ring_len}", sent.len()));
        }
        let next = frame(len, sent.len());
        match link.post(&next) {
            Ok(()) => sent.push(next),
            Err(mbuf) => break mbuf,
        }
    };
    let untouched = refused.bytes() == frame(len, sent.len());
    link.tx.ring_doorbell(link.now());
    same(&sent, &link.drain(32)?)?;
    let later = link.tx.post(refused, Offload::NONE);
    link.tx.ring_doorbell(link.now());
    match (untouched, later) {
        (false, _) => Err("the refused mbuf was changed".into()),
        (_, Err(mbuf)) => {
            mbuf.free();
            Err("the ring did not take the frame after it was drained".into())
        }
        (true, Ok(())) => same(&[frame(len, sent.len())], &link.drain(32)?),
    }
}

fn deferred_doorbell_has_frames_leave(rig: &mut dyn Rig) -> Result<(), String> {
    let mut link = rig.link(2 * BURST_MAX);
    let sent = frames(3, rig.frame_len_min().max(64));
    for frame in &sent {
        link.post(frame).map_err(Mbuf::free).map_err(|()| "the ring was full at once")?;
    }
    if let Some(doorbell) = link.tx.defer_doorbell(link.now()) {
        doorbell.ring();
    }
    same(&sent, &link.drain(32)?)
}

fn urgent_frame_leaves_at_once(rig: &mut dyn Rig) -> Result<(), String> {
    let len = rig.frame_len_min().max(64);
    let posts: [Post; 2] = [|tx, mbuf| tx.post(mbuf, Offload::URGENT), |tx, mbuf| tx.post_urgent(mbuf)];
    // After some frames that wait for a doorbell, and alone.
    for (before, post) in [3, 0].into_iter().flat_map(|before| posts.map(|post| (before, post))) {
        let mut link = rig.link(2 * BURST_MAX);
        let sent = frames(before + 1, len);
        for frame in &sent[..before] {
            link.post(frame).map_err(Mbuf::free).map_err(|()| "the ring was full at once")?;
        }
        let mbuf = link.tx_pool.alloc_copy(&sent[before]).ok_or("the rig's pool is too small")?;
        post(&mut *link.tx, mbuf).map_err(Mbuf::free).map_err(|()| "the ring was full at once")?;
        same(&sent, &link.drain(32)?).map_err(|seen| format!("behind {before} frames: {seen}"))?;
        link.reap_all()?;
        link.nothing_leaks(rig.buffers_lent())?;
    }
    Ok(())
}

fn preposted_frame_leaves_as_it_was_overwritten(rig: &mut dyn Rig) -> Result<(), String> {
    let (len, can) = (rig.frame_len_min().max(64), rig.preposts());
    for before in [0, 3] {
        let mut link = rig.link(2 * BURST_MAX);
        let mut sent = frames(before, len);
        for frame in &sent {
            link.post(frame).map_err(Mbuf::free).map_err(|()| "the ring was full at once")?;
        }
        let Some(which) = link.tx.prepost(&frame(len, 98)) else {
            return if can { Err("the frame does not stand".into()) } else { Ok(()) };
        };
        if !can {
            return Err("a frame stands, and the rig says that none can".into());
        }
        link.tx.ring_doorbell(link.now());
        same(&sent, &link.drain(32)?).map_err(|seen| format!("before it is fired: {seen}"))?;
        let fired = frame(len, 99);
        let standing = link.tx.preposted(which).ok_or("the frame stands no more, and nothing was posted")?;
        same(&[frame(len, 98)], &[standing.to_vec()])?;
        standing.copy_from_slice(&fired);
        if !link.tx.fire_preposted(which) || link.tx.fire_preposted(which) {
            return Err("it cannot be fired once, or twice".into());
        }
        sent = vec![fired];
        same(&sent, &link.drain(32)?).map_err(|seen| format!("behind {before} frames: {seen}"))?;
        link.reap_all()?;
        link.nothing_leaks(rig.buffers_lent())?;
    }
    Ok(())
}

fn preposted_frame_gives_way_to_what_is_posted(rig: &mut dyn Rig) -> Result<(), String> {
    let len = rig.frame_len_min().max(64);
    let mut link = rig.link(2 * BURST_MAX);
    let mut sent = Vec::new();
    for seed in 0..8 {
        let Some(which) = link.tx.prepost(&frame(len, 98)) else { return Ok(()) };
        let next = frame(len, seed);
        let mbuf = link.tx_pool.alloc_copy(&next).ok_or("the rig's pool is too small")?;
        let offload = Offload::URGENT.when(seed % 2 == 0);
        link.tx.post(mbuf, offload).map_err(Mbuf::free).map_err(|()| "the ring was full at once")?;
        if link.tx.preposted(which).is_some() || link.tx.fire_preposted(which) {
            return Err("the frame stands behind another that was posted".into());
        }
        sent.push(next);
    }
    link.tx.ring_doorbell(link.now());
    same(&sent, &link.drain(32)?)?;
    // A frame still preposted at the end never leaves.
    if link.tx.prepost(&frame(len, 98)).is_none() {
        return Err("the frame does not stand behind others".into());
    }
    link.tx.ring_doorbell(link.now());
    same(&[], &link.drain(32)?)?;
    link.reap_all()?;
    link.nothing_leaks(rig.buffers_lent())
}

fn posted_mbufs_come_home(rig: &mut dyn Rig) -> Result<(), String> {
    let sent = frames(500, rig.frame_len_min().max(64));
    let mut link = rig.link(sent.len() + BURST_MAX);
    link.transfer(&sent, 32, rig.ring_len())?;
    link.reap_all()?;
    match link.tx.in_flight() {
        0 => link.nothing_leaks(rig.buffers_lent()),
        in_flight => Err(format!("{in_flight} frames are still in flight")),
    }
}

fn held_mbuf_stays(rig: &mut dyn Rig) -> Result<(), String> {
    let sent = frame(100, 3);
    let mut link = rig.link(BURST_MAX);
    let mbuf = link.tx_pool.alloc_copy(&sent).ok_or("the rig's pool is too small")?;
    let held = mbuf.hold();
    link.tx.post(mbuf, Offload::NONE).map_err(|mbuf| {
        mbuf.free();
        "the ring was full at once"
    })?;
    link.tx.ring_doorbell(link.now());
    same(core::slice::from_ref(&sent), &link.drain(32)?)?;
    link.reap_all()?;
    match held.into_mbuf() {
        Ok(mbuf) => {
            let kept = mbuf.bytes() == sent;
            mbuf.free();
            if kept { link.nothing_leaks(rig.buffers_lent()) } else { Err("the held bytes changed".into()) }
        }
        Err(_) => Err("the device still holds a frame that was sent".into()),
    }
}

fn dry_run_frames_stay(rig: &mut dyn Rig) -> Result<(), String> {
    let (sent, ghost) = (frames(24, rig.frame_len_min().max(64)), frame(rig.frame_len_min().max(100), 99));
    let mut link = rig.link(sent.len() + BURST_MAX);
    let portion = rig.ring_len().map_or(sent.len(), |slots| (slots / 2).clamp(1, 4));
    let mut received = Vec::new();
    for (turn, portion) in sent.chunks(portion).enumerate() {
        for (idx, frame) in portion.iter().enumerate() {
            let offload = Offload::URGENT.when(turn % 2 == 0);
            let mbuf = link.tx_pool.alloc_copy(&ghost).ok_or("the rig's pool is too small")?;
            link.tx.dry_run(mbuf, offload);
            let mbuf = link.tx_pool.alloc_copy(frame).ok_or("the rig's pool is too small")?;
            link.tx.post(mbuf, offload).map_err(|mbuf| {
                mbuf.free();
                format!("the ring was full at frame {idx}")
            })?;
        }
        let mbuf = link.tx_pool.alloc_copy(&ghost).ok_or("the rig's pool is too small")?;
        link.tx.dry_run(mbuf, Offload::NONE);
        link.tx.ring_doorbell(link.now());
        received.extend(link.collect(32, portion.len())?);
    }
    received.extend(link.drain(32)?);
    same(&sent, &received)?;
    link.reap_all()?;
    match link.tx.in_flight() {
        0 => link.nothing_leaks(rig.buffers_lent()),
        in_flight => Err(format!("{in_flight} frames are still in flight")),
    }
}

fn empty_pool_loses_nothing_unnamed(rig: &mut dyn Rig) -> Result<(), String> {
    let sent = frames(BURST_MAX.min(rig.ring_len().unwrap_or(BURST_MAX)), rig.frame_len_min().max(64));
    let mut link = rig.link(sent.len() + BURST_MAX);
    let hoard: Vec<_> = core::iter::from_fn(|| link.rx_pool.alloc()).collect();
    link.post_all(&sent)?;
    let starved = link.drain(32)?;
    hoard.into_iter().for_each(Mbuf::free);
    let fed = link.drain(32)?;
    let (received, dropped) = ((starved.len() + fed.len()) as u64, (link.dropped)());
    if received + dropped == sent.len() as u64 {
        return link.nothing_leaks(rig.buffers_lent());
    }
    Err(format!("{} sent, {received} received, {dropped} dropped by name", sent.len()))
}

fn too_long_is_named(rig: &mut dyn Rig) -> Result<(), String> {
    let len = rig.frame_len_max() + 1;
    let mut link = rig.link(BURST_MAX);
    let Some(mbuf) = link.tx_pool.alloc_copy(&frame(len, 0)) else {
        return Ok(()); // No buffer has this size, so no such frame can be made.
    };
    if let Err(mbuf) = link.tx.post(mbuf, Offload::NONE) {
        mbuf.free();
        return Err("it was given back as if the ring were full".into());
    }
    link.tx.ring_doorbell(link.now());
    match (link.drain(32)?.len(), (link.dropped)()) {
        (0, 1) => link.nothing_leaks(rig.buffers_lent()),
        (received, dropped) => Err(format!("{received} received, {dropped} dropped by name")),
    }
}

fn chain_is_gathered(rig: &mut dyn Rig) -> Result<(), String> {
    if rig.tx_segments_max() < 3 {
        return Ok(());
    }
    let whole = frame(300, 5);
    let mut link = rig.link(BURST_MAX);
    let part = |range: core::ops::Range<usize>| link.tx_pool.alloc_copy(&whole[range]).ok_or("the pool is too small");
    let (mut head, mut middle, payload) = (part(0..60)?, part(60..200)?, part(200..300)?);
    // The last segment is a view of an mbuf that is held elsewhere, as in a retransmission.
    let held = payload.hold();
    payload.free();
    middle.attach(link.tx_pool.view(held).map_err(|_| "the pool is too small")?);
    head.attach(middle);
    link.tx.post(head, Offload::NONE).map_err(|mbuf| {
        mbuf.free();
        "the ring was full at once"
    })?;
    link.tx.ring_doorbell(link.now());
    same(core::slice::from_ref(&whole), &link.drain(32)?)?;
    link.reap_all()?;
    link.nothing_leaks(rig.buffers_lent())
}

fn vlan_is_inserted(rig: &mut dyn Rig) -> Result<(), String> {
    if !rig.inserts_vlan() {
        return Ok(());
    }
    let plain = frame(100, 1);
    let mut link = rig.link(BURST_MAX);
    let mbuf = link.tx_pool.alloc_copy(&plain).ok_or("the rig's pool is too small")?;
    let offload = Offload::NONE.with_vlan(0x6123);
    link.tx.post(mbuf, offload).map_err(|mbuf| {
        mbuf.free();
        "the ring was full at once"
    })?;
    link.tx.ring_doorbell(link.now());
    let tagged = [&plain[..12], &[0x81, 0x00, 0x61, 0x23], &plain[12..]].concat();
    same(&[tagged], &link.drain(32)?)
}

fn quiet_link_gives_nothing(rig: &mut dyn Rig) -> Result<(), String> {
    let mut link = rig.link(BURST_MAX);
    link.tx.ring_doorbell(link.now());
    match link.drain(32)?.len() {
        0 => link.nothing_leaks(rig.buffers_lent()),
        frames => Err(format!("{frames} frames came from nowhere")),
    }
}

/// Frames posted without a doorbell, frames in flight, and the buffers in the receive ring.
fn dropped_queues_give_mbufs_back(rig: &mut dyn Rig) -> Result<(), String> {
    let mut link = rig.link(BURST_MAX * 2);
    let sent = frames(4, rig.frame_len_min().max(64));
    link.post_all(&sent)?;
    if let Err(mbuf) = link.post(&sent[0]) {
        mbuf.free();
    }
    let (mut burst, now) = (Burst::new(), link.now());
    link.rx.receive(&mut burst, 1, &link.rx_pool, now);
    burst.drain(..).for_each(Mbuf::free);
    let LinkUnderTest { tx, tx_pool, rx, rx_pool, dropped } = link;
    drop((tx, rx, dropped));
    match (tx_pool.in_use(), rx_pool.in_use(), tx_pool.drops_without_reason() + rx_pool.drops_without_reason()) {
        (0, 0, 0) => Ok(()),
        (posted, received, unnamed) => Err(format!(
            "{posted} of the sender and {received} of the receiver stayed out, {unnamed} went without a reason"
        )),
    }
}
