//! The receiving half: frames are copied from the ring into fresh mbufs.

use std::sync::Arc;

use super::device::Rules;
use super::ring::{BLOCK, Consumer};
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

impl RxQueue for MemoryRx {
    #[inline]
    fn receive(&mut self, burst: &mut Burst, limit: usize, pool: &Pool, _now: Instant) -> usize {
        let waiting = self.consumer.available() as usize;
        if waiting == 0 {
            return 0;
        }
        self.follow_rules();
        let limit = limit.min(burst.remaining_capacity()).min(waiting);
        let (mut read, mut received, mut bytes) = (0, 0, 0);
        while read < limit as u32 {
            let (frame_len, slot) = self.consumer.frame(read);
            let flow_tag = match steer(&self.steering, &slot[..frame_len]) {
                Steered::To(tag) => tag,
                Steered::Nowhere => {
                    read += 1;
                    self.drops.count(MemoryRxDrop::NotSteered);
                    continue;
                }
            };
            let Some(mbuf) = pool.alloc() else { break };
            read += 1;
            match fill(mbuf, slot, frame_len, flow_tag) {
                Ok(mbuf) => {
                    bytes += frame_len as u64;
                    received += 1;
                    burst.push(mbuf);
                }
                Err(mbuf) => {
                    mbuf.free();
                    self.drops.count(MemoryRxDrop::TooLong);
                }
            }
        }
        self.consumer.give_back(read);
        self.frames.add(received as u64);
        self.bytes.add(bytes);
        received
    }

    fn state(&self) -> RxState {
        if self.consumer.is_ended() { RxState::Ended } else { RxState::Open }
    }

    fn refresh_counters(&mut self) {}
}

/// Copies a frame into a fresh mbuf, in whole blocks, as both sides have room for them; the mbuf comes back where it
/// is too small.
#[inline]
fn fill(mut mbuf: Mbuf, slot: &[u8], frame_len: usize, flow_tag: Option<u32>) -> Result<Mbuf, Mbuf> {
    let blocks_len = frame_len.next_multiple_of(BLOCK).min(mbuf.tailroom()).min(slot.len());
    if blocks_len < frame_len {
        return Err(mbuf);
    }
    let Some(room) = mbuf.append(blocks_len) else { return Err(mbuf) };
    let (to, to_rest) = room.as_chunks_mut::<BLOCK>();
    let (from, from_rest) = slot[..blocks_len].as_chunks::<BLOCK>();
    for (to, from) in to.iter_mut().zip(from) {
        *to = *from;
    }
    to_rest.copy_from_slice(from_rest);
    mbuf.trim_to(frame_len);
    if flow_tag.is_some() {
        mbuf.set_rx_info(&RxInfo { flow_tag, ..RxInfo::default() });
    }
    Ok(mbuf)
}

enum Steered {
    To(Option<u32>),
    Nowhere,
}

/// Which rule names the frame. Without rules all frames come.
#[inline]
fn steer(rules: &[Rule], frame: &[u8]) -> Steered {
    if rules.is_empty() {
        return Steered::To(None);
    }
    match rules.iter().find(|rule| rule.matches(frame)) {
        Some(rule) => Steered::To(rule.flow_tag),
        None => Steered::Nowhere,
    }
}
