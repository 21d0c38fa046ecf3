//! The packets of a loop: snapshots (market recovery) or definitions (replay), on lines A and B.
//!
//! Their numbers begin at 1 with each loop, so [`crate::AbChannel`] would take a new loop for late
//! packets. What they carry needs no order either: a snapshot says itself of which live packet it
//! is, and a definition is the same in each loop. So the lines are merged by what makes a packet
//! one of its kind, its number and its send time, which both lines share: the first copy passes at
//! once, the second is dropped, and nothing waits. A forged packet can displace none, because it
//! would have to know a send time to the nanosecond.
//!
//! Whether a loop is whole is not asked of the packets' numbers: [`super::Recovery`] and
//! [`DefinitionLoop`] count the instruments, because those that one loop loses come with the next.

mod definitions;

pub use definitions::DefinitionLoop;

use crate::arbitration::Line;
use crate::framing::mdp3::Mdp3Header;

/// Packets that are remembered: the slower line may be so many packets behind. A copy that is
/// farther behind passes as new, and costs its messages again.
const REMEMBERED: usize = 1_024;

/// The counts of a loop's lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoopCounts {
    /// Packets that passed, by line: A, then B, then all others.
    pub first: [u64; 3],
    /// Copies of packets that had passed.
    pub duplicates: u64,
    /// Loops that began: packets with number 1.
    pub begun: u64,
    /// Packets that no line had brought when one with a later number of their loop came. Some may
    /// have come after it.
    pub skipped: u64,
}

/// The lines of one loop. [`LoopLines::new`] allocates their memory.
///
/// ```
/// use market::Line;
/// use market::framing::mdp3::Mdp3Header;
/// use market::mdp3::LoopLines;
///
/// let mut lines = LoopLines::new();
/// let packet = |seq, sent_ns| Mdp3Header { seq, sent_ns };
/// assert!(lines.is_new(Line::A, &packet(1, 10)));
/// assert!(!lines.is_new(Line::B, &packet(1, 10)), "the other line's copy");
/// assert!(lines.is_new(Line::B, &packet(2, 20)), "lost on line A");
/// assert!(lines.is_new(Line::A, &packet(1, 90)), "the next loop");
/// ```
#[derive(Debug)]
pub struct LoopLines {
    /// Number and send time of the last packet in each place, which its number chooses.
    recent: Box<[(u32, u64)]>,
    last: u32,
    counts: LoopCounts,
}

impl Default for LoopLines {
    fn default() -> Self {
        Self::new()
    }
}

impl LoopLines {
    /// Lines without a packet yet: on the way into their group, and after it was left.
    pub fn new() -> Self {
        Self { recent: vec![(0, 0); REMEMBERED].into(), last: 0, counts: LoopCounts::default() }
    }

    /// Whether no line has brought this packet. Costs a look into memory of 16 KiB.
    pub fn is_new(&mut self, line: Line, packet: &Mdp3Header) -> bool {
        let Mdp3Header { seq, sent_ns } = *packet;
        let place = &mut self.recent[seq as usize % REMEMBERED];
        if *place == (seq, sent_ns) {
            self.counts.duplicates += 1;
            return false;
        }
        *place = (seq, sent_ns);
        self.counts.first[line.0.min(2)] += 1;
        self.counts.begun += u64::from(seq == 1);
        // The first packet is any of its loop, and one that goes back begins another, or is late.
        if self.last > 0 && seq > self.last {
            self.counts.skipped += u64::from(seq - self.last - 1);
        }
        self.last = seq;
        true
    }

    /// The counts so far.
    pub const fn counts(&self) -> &LoopCounts {
        &self.counts
    }
}

#[cfg(test)]
mod tests;
