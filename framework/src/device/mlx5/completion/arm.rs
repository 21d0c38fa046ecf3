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

use crate::device::mlx5::ring::{ArmRegister, DoorbellRecord};
use crate::device::mlx5::setup::parts::CqParts;

/// The arm word holds 24 bits of the consumer index.
const CONSUMER_INDEX_MASK: u32 = 0x00ff_ffff;
/// Where the arm word holds two bits of the number of events taken.
const SEQUENCE_SHIFT: u32 = 28;

/// The completion channel of one queue.
pub(crate) trait CompletionEvents {
    /// Readable while an event waits.
    fn fd(&self) -> RawFd;

    /// Takes an event, if one waits. A system call that does not block.
    fn take(&mut self) -> bool;

    /// Has the owner of the register write `word` there, if it is not ours: then the queue names
    /// none. A system call that does not block; returns whether the owner was told.
    fn ring_register(&mut self, word: u32) -> bool {
        let _ = word;
        false
    }

    /// Whether another process has the register.
    fn has_register(&self) -> bool {
        false
    }
}

/// Arms a completion queue.
pub(crate) struct Arming {
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
    pub(crate) fn new(parts: &CqParts, events: Box<dyn CompletionEvents>) -> Option<Self> {
        let register = ArmRegister::of(parts);
        if register.is_none() && !events.has_register() {
            return None;
        }
        let word = ArmRegister::word_of(parts);
        Some(Self { word, register, number: parts.number, events, taken: 0, armed_at: None })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.events.fd()
    }

    /// Takes the remaining events, once the queue receives none: libibverbs destroys a completion
    /// queue only after all events that the kernel reports of it were taken.
    pub(crate) fn drain(&mut self) {
        while self.events.take() {}
    }

    /// Asks for an event at the first CQE at or behind `consumer_idx`.
    pub(crate) fn arm(&mut self, consumer_idx: u32) {
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
        let is_armed = match &mut self.register {
            Some(register) => {
                register.write([word, self.number]);
                true
            }
            None => self.events.ring_register(word),
        };
        // Without the owner of the register nothing is armed, and the next sleep tries again.
        self.armed_at = is_armed.then_some(consumer_idx);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use proptest::prelude::*;

    use super::*;
    use crate::device::mlx5::testing::plain::PlainCq;

    /// A NIC, and the broker that passes its events on to the program of the queue.
    #[derive(Default)]
    struct Relay {
        /// CQEs that the NIC has written.
        written: u32,
        /// From which CQE on it signals, if it is armed.
        armed: Option<u32>,
        /// Events that the broker has not read, and that it has passed on.
        signaled: u32,
        passed_on: u32,
    }

    impl Relay {
        /// The NIC signals once for each arm (mlx5.md 2.9).
        fn look(&mut self) {
            if self.armed.is_some_and(|from| self.written > from) {
                self.armed = None;
                self.signaled += 1;
            }
        }
    }

    struct Relayed(Rc<RefCell<Relay>>);

    impl CompletionEvents for Relayed {
        fn fd(&self) -> RawFd {
            -1
        }

        fn take(&mut self) -> bool {
            let mut relay = self.0.borrow_mut();
            let is_there = relay.passed_on > 0;
            relay.passed_on -= u32::from(is_there);
            is_there
        }

        fn ring_register(&mut self, word: u32) -> bool {
            let mut relay = self.0.borrow_mut();
            relay.armed = Some(word & CONSUMER_INDEX_MASK);
            relay.look();
            true
        }

        fn has_register(&self) -> bool {
            true
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        /// The NIC writes a CQE.
        Write,
        /// The broker passes an event on.
        PassOn,
        /// The program consumes what is there, arms, and sleeps.
        Sleep,
        /// It wakes by a timer, and consumes what is there.
        Turn,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![Just(Step::Write), Just(Step::PassOn), Just(Step::Sleep), Just(Step::Turn)]
    }

    proptest! {
        /// The broker's delay lets each step come between any two others.
        #[test]
        fn sleeper_whose_events_another_process_passes_on_is_woken_by_each_frame(
            steps in proptest::collection::vec(step(), 0..64)
        ) {
            let relay = Rc::new(RefCell::new(Relay::default()));
            let (parts, _cq) = PlainCq::new(8, 64);
            let mut arming = Arming::new(&parts, Box::new(Relayed(Rc::clone(&relay)))).unwrap();
            let (mut consumed, mut sleeps) = (0, false);
            for step in steps {
                match step {
                    Step::Write => relay.borrow_mut().written += 1,
                    Step::PassOn => {
                        let mut relay = relay.borrow_mut();
                        let passed = relay.signaled.min(1);
                        relay.signaled -= passed;
                        relay.passed_on += passed;
                    }
                    Step::Sleep | Step::Turn => {
                        consumed = relay.borrow().written;
                        sleeps = matches!(step, Step::Sleep);
                        if sleeps {
                            arming.arm(consumed);
                        }
                    }
                }
                let mut relay = relay.borrow_mut();
                relay.look();
                let wakes = relay.signaled + relay.passed_on > 0;
                prop_assert!(!sleeps || relay.written == consumed || wakes, "after {step:?} it sleeps on");
                // And an event at most is on its way, so that a sleeper is woken for nothing once.
                prop_assert!(relay.signaled + relay.passed_on <= 1);
            }
        }
    }
}
