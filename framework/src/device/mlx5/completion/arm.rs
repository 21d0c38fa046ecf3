//! Completion events: how a loop sleeps until the NIC has written a CQE (mlx5.md 2.9, *Arm*).
//!
//! ```text
//!  a turn without frames ──▶ arm: word, register ──▶ sleep on the channel's descriptor
//!                             ▲                                   │ the NIC writes a CQE, or had written one: one event
//!                             └── take the event ◀── turns ◀──────┘
//! ```
//!
//! The NIC signals once for each arm, at the first CQE at or behind the index that the arm names.
//! So no frame is missed between the last look at the ring and the sleep.

use std::os::fd::RawFd;

use super::super::ring::{ArmRegister, DoorbellRecord};
use super::super::setup::parts::CqParts;

/// The arm word holds 24 bits of the consumer index.
const CONSUMER_INDEX_MASK: u32 = 0x00ff_ffff;
/// Where the arm word holds two bits of the number of events taken.
const SEQUENCE_SHIFT: u32 = 28;

/// The completion channel of one queue.
pub(in crate::device::mlx5) trait CompletionEvents {
    /// Readable while an event waits.
    fn fd(&self) -> RawFd;

    /// Takes an event, if one waits. A system call that does not block.
    fn take(&mut self) -> bool;

    /// Has the owner of the register write `word` there, if it is not ours: then the queue names
    /// none. A system call.
    fn ring_register(&mut self, word: u32) {
        let _ = word;
    }

    /// Whether another process has the register.
    fn has_register(&self) -> bool {
        false
    }
}

/// Arms a completion queue.
pub(in crate::device::mlx5) struct Arming {
    word: DoorbellRecord,
    /// `None` where the owner of the register writes it.
    register: Option<ArmRegister>,
    number: u32,
    events: Box<dyn CompletionEvents>,
    /// The number of events taken.
    taken: u32,
    /// The consumer index of the last arm, while its event has not been taken.
    armed_at: Option<u32>,
}

impl Arming {
    /// For a queue that signals through `events`. `None` if nobody has the register, because
    /// libmlx5 does not show it.
    pub(in crate::device::mlx5) fn new(parts: &CqParts, events: Box<dyn CompletionEvents>) -> Option<Self> {
        let register = ArmRegister::of(parts);
        if register.is_none() && !events.has_register() {
            return None;
        }
        let word = ArmRegister::word_of(parts);
        Some(Self { word, register, number: parts.number, events, taken: 0, armed_at: None })
    }

    pub(in crate::device::mlx5) fn fd(&self) -> RawFd {
        self.events.fd()
    }

    /// Takes the remaining events, once the queue receives none: libibverbs destroys a completion
    /// queue only after all events that the kernel reports of it were taken.
    pub(in crate::device::mlx5) fn drain(&mut self) {
        while self.events.take() {}
    }

    /// Asks for an event at the first CQE at or behind `consumer_idx`.
    pub(in crate::device::mlx5) fn arm(&mut self, consumer_idx: u32) {
        if let Some(armed_at) = self.armed_at {
            // Nothing was consumed since the last arm, so its event waits or is still to come. If
            // something was, the event has been signaled, or is on its way to the descriptor.
            if armed_at == consumer_idx || !self.events.take() {
                return;
            }
            self.taken = self.taken.wrapping_add(1);
        }
        let word = self.taken << SEQUENCE_SHIFT | consumer_idx & CONSUMER_INDEX_MASK;
        self.word.write(word);
        match &mut self.register {
            Some(register) => register.write([word, self.number]),
            None => self.events.ring_register(word),
        }
        self.armed_at = Some(consumer_idx);
    }
}
