//! The wire: which frames arrive, when, how often and how whole.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::random::Random;

pub(super) struct Wire {
    faults: Faults,
    /// Frames on their way, the next to arrive first.
    frames: BinaryHeap<Reverse<Flight>>,
    count: u64,
}

/// Times are nanoseconds, shares are of 1000 frames.
struct Faults {
    latency: u64,
    jitter: u64,
    lost: u64,
    doubled: u64,
    damaged: u64,
    marked: u64,
}

/// A frame on its way to an end.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Flight {
    pub(super) at: u64,
    count: u64,
    pub(super) to: usize,
    pub(super) frame: Vec<u8>,
}

impl Wire {
    pub(super) fn new(random: &mut Random) -> Self {
        let mut share = |of: u64, max: u64| if random.below(of) == 0 { random.below(max) } else { 0 };
        let faults = Faults {
            latency: 1000 + share(1, 20_000),
            jitter: 1 + share(2, 20_000),
            // A bad wire loses all tries of a packet now and then.
            lost: share(2, 100).max(share(20, 500)),
            doubled: share(2, 100),
            damaged: share(3, 50),
            marked: share(2, 200),
        };
        Self { faults, frames: BinaryHeap::new(), count: 0 }
    }

    /// Most frames meet a congested switch.
    pub(super) fn congest(&mut self) {
        self.faults.marked = 800;
    }

    /// From now on nothing arrives that is sent.
    pub(super) fn cut(&mut self) {
        self.faults.lost = 1000;
    }

    /// Sends a frame; false if it does not arrive as it is.
    pub(super) fn send(&mut self, random: &mut Random, now: u64, to: usize, frame: &[u8]) -> bool {
        if random.happens(self.faults.lost) {
            return false;
        }
        let mut frame = frame.to_vec();
        if random.happens(self.faults.doubled) {
            self.carry(random, now, to, frame.clone());
        }
        let is_damaged = random.happens(self.faults.damaged);
        if is_damaged {
            // Behind Ethernet, IPv4 and UDP.
            let at = 42 + random.below(frame.len() as u64 - 42) as usize;
            frame[at] ^= 1 << random.below(8);
        }
        if random.happens(self.faults.marked) {
            // CE, in the traffic class of IPv4.
            frame[15] |= 3;
        }
        self.carry(random, now, to, frame);
        !is_damaged
    }

    fn carry(&mut self, random: &mut Random, now: u64, to: usize, frame: Vec<u8>) {
        self.count += 1;
        let at = now + self.faults.latency + random.below(self.faults.jitter);
        self.frames.push(Reverse(Flight { at, count: self.count, to, frame }));
    }

    pub(super) fn next(&self) -> Option<u64> {
        self.frames.peek().map(|Reverse(flight)| flight.at)
    }

    pub(super) fn arrive(&mut self, now: u64) -> Option<Flight> {
        if self.next()? > now {
            return None;
        }
        self.frames.pop().map(|Reverse(flight)| flight)
    }
}
