//! The receiving half: frames are copied from the ring into fresh mbufs.

use std::sync::Arc;

use super::device::Rules;
use super::ring::{BLOCK, Consumer, Frame};
use crate::counters::{Counter, Drops, Scope, Unit};
use crate::device::steering::Rule;
use crate::device::{RxQueue, RxState};
use crate::mem::{Burst, Mbuf, Pool, RxInfo};
use crate::time::Instant;

crate::drop_reasons! {
    /// Why a received frame does not reach the pipeline.
    pub enum MemoryRxDrop {
        /// There are steering rules and none of them names the frame.
        NotSteered => "not_steered",
        /// The pool's buffers are smaller than the frame.
        TooLong => "too_long",
    }
}

/// The receiving half of a memory port. A frame costs a copy, about 4 ns for 64 bytes.
pub struct MemoryRx {
    consumer: Consumer,
    rules: Arc<Rules>,
    rules_version: u64,
    /// The queue's own copy of the rules.
    steering: Vec<Rule>,
    frames: Counter,
    bytes: Counter,
    drops: Drops<MemoryRxDrop>,
}

impl MemoryRx {
    pub(super) fn new(consumer: Consumer, rules: Arc<Rules>, scope: &Scope) -> Self {
        let scope = scope.scope("rx");
        Self {
            consumer,
            rules,
            rules_version: 0,
            steering: Vec::new(),
            frames: scope.counter("frames", Unit::Frames),
            bytes: scope.counter("bytes", Unit::Bytes),
            drops: scope.drops(),
        }
    }

    /// Frames that wait in the ring.
    pub fn waiting(&mut self) -> usize {
        self.consumer.available() as usize
    }

    /// Takes over the rules where they changed.
    #[inline]
    fn follow_rules(&mut self) {
        let version = self.rules.version();
        if version != self.rules_version {
            self.rules_version = version;
            self.steering = self.rules.copy();
        }
    }
}

impl MemoryRx {
    /// Copies the `limit` oldest frames into fresh mbufs. Returns how many need not be looked at again: where no
    /// buffer is free, the rest stays in the ring.
    #[inline]
    fn take_all(&mut self, burst: &mut Burst, limit: u32, pool: &Pool) -> u32 {
        let mut taken = 0;
        for frame in self.consumer.frames(limit) {
            match copy_in(&frame, pool) {
                CopiedIn::Whole(mbuf) => burst.push(mbuf),
                CopiedIn::TooLong => self.drops.count(MemoryRxDrop::TooLong),
                CopiedIn::PoolEmpty => break,
            }
            taken += 1;
        }
        taken
    }

    /// The same for those that a rule names.
    fn take_steered(&mut self, burst: &mut Burst, limit: u32, pool: &Pool) -> u32 {
        let mut taken = 0;
        for frame in self.consumer.frames(limit) {
            match self.steering.iter().find(|rule| rule.matches(frame.bytes())) {
                None => self.drops.count(MemoryRxDrop::NotSteered),
                Some(rule) => match copy_in(&frame, pool) {
                    CopiedIn::Whole(mut mbuf) => {
                        mbuf.set_rx_info(&RxInfo { flow_tag: rule.flow_tag, ..RxInfo::default() });
                        burst.push(mbuf);
                    }
                    CopiedIn::TooLong => self.drops.count(MemoryRxDrop::TooLong),
                    CopiedIn::PoolEmpty => break,
                },
            }
            taken += 1;
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
        self.consumer.give_back(taken);
        let received = &burst[before..];
        self.frames.add(received.len() as u64);
        self.bytes.add(received.iter().map(|mbuf| mbuf.len() as u64).sum());
        received.len()
    }

    fn state(&self) -> RxState {
        if self.consumer.is_ended() { RxState::Ended } else { RxState::Open }
    }

    fn refresh_counters(&mut self) {}
}

enum CopiedIn {
    Whole(Mbuf),
    TooLong,
    PoolEmpty,
}

/// Copies a frame in whole blocks, which slots and buffers both have room for. The first is a few instructions, and
/// many frames are no longer; the rest is a call.
#[inline(always)]
fn copy_in(frame: &Frame<'_>, pool: &Pool) -> CopiedIn {
    if frame.blocks.len() * BLOCK > pool.layout().data_room() {
        return CopiedIn::TooLong;
    }
    let mbuf = pool.alloc_filled(frame.len, |room| {
        let (room, _) = room.as_chunks_mut::<BLOCK>();
        if let (Some((to, to_rest)), Some((from, from_rest))) = (room.split_first_mut(), frame.blocks.split_first()) {
            *to = *from;
            if !from_rest.is_empty() {
                to_rest[..from_rest.len()].copy_from_slice(from_rest);
            }
        }
    });
    mbuf.map_or(CopiedIn::PoolEmpty, CopiedIn::Whole)
}
