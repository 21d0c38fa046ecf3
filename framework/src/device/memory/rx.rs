//! The receive half: frames are copied from the ring into fresh mbufs.

use std::sync::Arc;

use super::device::{MemoryConfig, Rules};
use super::ring::{COPIED_LEN_MAX, Consumer, Frame, Frames};
use super::verification::copy_verified;
use crate::counters::{Counter, Drops, Scope, Unit};
use crate::device::steering::Rule;
use crate::device::{RxQueue, RxState};
use crate::mem::{Burst, ChecksumStatus, Mbuf, Pool, RxInfo, copy_frame};
use crate::time::Instant;

crate::drop_reasons! {
    /// Why a received frame does not reach the pipeline.
    pub(crate) enum MemoryRxDrop {
        /// There are steering rules and none matches the frame.
        NotSteered => "not_steered",
        /// The pool's buffers are smaller than the frame.
        TooLong => "too_long",
    }
}

/// The receive half of a memory port. A frame costs a copy, about 4 ns for 64 bytes.
pub struct MemoryRx {
    consumer: Consumer,
    rules: Arc<Rules>,
    skips_checksums: bool,
    verifies_checksums: bool,
    rules_version: u64,
    /// The queue's own copy of the rules.
    steering: Vec<Rule>,
    frames: Counter,
    bytes: Counter,
    drops: Drops<MemoryRxDrop>,
}

impl MemoryRx {
    pub(super) fn new(consumer: Consumer, rules: Arc<Rules>, config: &MemoryConfig, scope: &Scope) -> Self {
        let scope = scope.scope("rx");
        Self {
            consumer,
            rules,
            skips_checksums: config.skips_checksums,
            verifies_checksums: config.verifies_checksums && !config.skips_checksums,
            rules_version: 0,
            steering: Vec::new(),
            frames: scope.counter("frames", Unit::Frames),
            bytes: scope.counter("bytes", Unit::Bytes),
            drops: scope.drops(),
        }
    }

    /// Frames in the ring.
    pub fn waiting(&mut self) -> usize {
        self.consumer.available() as usize
    }

    /// Copies the rules after a change.
    #[inline]
    fn follow_rules(&mut self) {
        let version = self.rules.version();
        if version != self.rules_version {
            self.rules_version = version;
            self.steering = self.rules.copy();
        }
    }
}

/// The result of one pass over the ring: the number of frames that are done, and the bytes of those
/// received.
#[derive(Default)]
struct Taken {
    frames: u32,
    bytes: u64,
    too_long: u32,
    is_pool_empty: bool,
}

impl Taken {
    fn add(&mut self, row: &Self) {
        self.frames += row.frames;
        self.bytes += row.bytes;
        self.too_long += row.too_long;
    }
}

impl MemoryRx {
    /// Copies the `limit` oldest frames into fresh mbufs. If no buffer is free, the rest remains in
    /// the ring.
    #[inline]
    fn take_all(&mut self, burst: &mut Burst, limit: u32, pool: &Pool) -> Taken {
        let mut taken = Taken::default();
        let mut frames = self.consumer.frames(limit);
        while let Some(frame) = frames.next() {
            // A frame of 64 bytes, the most frequent size, is one line: a few instructions, where a
            // copy of variable length is a call.
            let bytes = if let Some((line, len)) = frame.line() {
                let Some(mbuf) = pool.alloc_line(line, len) else { break };
                burst.push(mbuf);
                len
            } else if let Some((mbuf, len)) = take_short(&frame, pool) {
                burst.push(mbuf);
                len
            } else {
                let row = take_row(frames.from(&frame), self.verifies_checksums, burst, pool);
                frames.go_on(&frame, row.frames);
                taken.add(&row);
                if row.is_pool_empty {
                    break;
                }
                continue;
            };
            taken.bytes += bytes as u64;
            taken.frames += 1;
        }
        taken
    }

    /// The same for frames that match a rule.
    fn take_steered(&mut self, burst: &mut Burst, limit: u32, pool: &Pool) -> Taken {
        let mut taken = Taken::default();
        let mut frames = self.consumer.frames(limit);
        while let Some(frame) = frames.next() {
            let (head, rest) = frames.bytes(&frame);
            match copy_in(head, rest, self.verifies_checksums, pool) {
                CopiedIn::Whole(mbuf) => match named_by(&self.steering, mbuf) {
                    Ok(mbuf) => {
                        taken.bytes += mbuf.len() as u64;
                        burst.push(mbuf);
                    }
                    Err(mbuf) => {
                        self.drops.count(MemoryRxDrop::NotSteered);
                        mbuf.free();
                    }
                },
                CopiedIn::TooLong => taken.too_long += 1,
                CopiedIn::PoolEmpty => break,
            }
            taken.frames += 1;
        }
        taken
    }
}

impl RxQueue for MemoryRx {
    #[inline]
    fn receive(&mut self, burst: &mut Burst, limit: usize, pool: &Pool, _now: Instant) -> usize {
        let waiting = self.consumer.available() as usize;
        if waiting == 0 {
            return 0;
        }
        self.follow_rules();
        let limit = limit.min(burst.remaining_capacity()).min(waiting) as u32;
        let before = burst.len();
        let taken = match self.steering.is_empty() {
            true => self.take_all(burst, limit, pool),
            false => self.take_steered(burst, limit, pool),
        };
        if self.skips_checksums {
            burst[before..].iter_mut().for_each(|mbuf| mbuf.set_l4_checksum(ChecksumStatus::Good));
        }
        if taken.too_long > 0 {
            self.drops.count_many(MemoryRxDrop::TooLong, taken.too_long.into());
        }
        self.consumer.give_back(taken.frames);
        let received = burst.len() - before;
        self.frames.add(received as u64);
        self.bytes.add(taken.bytes);
        received
    }

    fn state(&self) -> RxState {
        if self.consumer.is_ended() { RxState::Ended } else { RxState::Open }
    }

    fn refresh_counters(&mut self) {}
}

/// Takes a frame of at most three lines, such as an order with its headers: all three lines in one
/// piece. `None` if it is longer, or if no buffer is free.
#[inline(always)]
fn take_short(frame: &Frame<'_>, pool: &Pool) -> Option<(Mbuf, usize)> {
    let (lines, len) = frame.lines()?;
    Some((pool.alloc_lines(lines, len)?, len))
}

/// Takes a frame of any length, and the long frames that follow it, as in a bulk transfer. Not
/// inlined, so that the path of a short frame spills no register for it.
#[inline(never)]
fn take_row(mut frames: Frames<'_>, verifies: bool, burst: &mut Burst, pool: &Pool) -> Taken {
    let mut taken = Taken::default();
    let mut len_min = 0;
    while let Some((head, rest)) = frames.next_of(len_min) {
        len_min = COPIED_LEN_MAX + 1;
        match copy_in(head, rest, verifies, pool) {
            CopiedIn::Whole(mbuf) => {
                taken.bytes += mbuf.len() as u64;
                burst.push(mbuf);
            }
            CopiedIn::TooLong => taken.too_long += 1,
            CopiedIn::PoolEmpty => {
                taken.is_pool_empty = true;
                break;
            }
        }
        taken.frames += 1;
    }
    taken
}

/// Sets the flow tag of the rule that matches; the frame is returned if none does. Rules are
/// matched against whole frames.
fn named_by(steering: &[Rule], mut mbuf: Mbuf) -> Result<Mbuf, Mbuf> {
    let Some(rule) = steering.iter().find(|rule| rule.matches(mbuf.bytes())) else { return Err(mbuf) };
    let l4_checksum = mbuf.l4_checksum();
    mbuf.set_rx_info(&RxInfo { flow_tag: rule.flow_tag, l4_checksum, ..RxInfo::default() });
    Ok(mbuf)
}

enum CopiedIn {
    Whole(Mbuf),
    TooLong,
    PoolEmpty,
}

/// Copies a frame of any length into a fresh mbuf: if the frame has a head, the rest is in the
/// sender's buffer.
#[inline(always)]
fn copy_in(head: &[u8], rest: &[u8], verifies: bool, pool: &Pool) -> CopiedIn {
    let len = head.len() + rest.len();
    let Some(mut fresh) = pool.alloc_fresh(len) else {
        return if len > pool.layout().data_room() { CopiedIn::TooLong } else { CopiedIn::PoolEmpty };
    };
    if verifies {
        let verdict = copy_verified(fresh.bytes_mut(), head, rest);
        let mut mbuf = fresh.into_mbuf();
        mbuf.set_l4_checksum(verdict);
        return CopiedIn::Whole(mbuf);
    }
    let (head_room, rest_room) = fresh.bytes_mut().split_at_mut(head.len());
    copy_frame(head_room, head);
    if !rest.is_empty() {
        rest_room.copy_from_slice(rest);
    }
    CopiedIn::Whole(fresh.into_mbuf())
}
