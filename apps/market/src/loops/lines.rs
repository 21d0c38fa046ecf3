//! The packets of a loop: snapshots or definitions, on lines A and B.
//!
//! Their numbers begin at 1 with each loop, so [`crate::AbChannel`] would take a new loop for late
//! packets. What they carry needs no order either: a snapshot says itself of which live packet it
//! is, and a definition is the same in each loop. So the lines are merged by what makes a packet
//! one of its kind, its number, its send time and its bytes, which both lines share.
//!
//! Anybody may send to a group. So a packet passes when two lines have brought the same bytes; one
//! that a line lost comes with the next loop. Where all other lines are silent, or there is none,
//! a packet passes at once: then who can send as one of the line's senders is believed.
//!
//! Whether a loop is whole is not asked of the packets' numbers: [`super::Recovery`] and
//! [`super::DefinitionLoop`] count the instruments, because those that one loop loses come with the
//! next.

use core::hash::BuildHasher;
use std::hash::RandomState;

use crate::arbitration::Line;
use crate::framing::Header;

/// Numbers that are remembered: the slower line may be so many packets behind. A copy that is
/// farther behind passes as new, and costs its messages again.
const REMEMBERED: usize = 1_024;
/// Packets of one number that are remembered, so that a forged one does not displace the other
/// line's.
const WAYS: usize = 4;
/// Lines that bring nothing for so long do not confirm anything: loops are never silent, because
/// they have heartbeats.
pub(super) const SILENT_NS: u64 = 3_000_000_000;

/// The counts of a loop's lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoopCounts {
    /// Packets that passed, by the line that brought the last copy they needed: A, then B, then all
    /// others.
    pub passed: [u64; 3],
    /// Copies of packets that had passed, or of the same line.
    pub duplicates: u64,
    /// Packets that no other line has brought: lost there, or forged.
    pub unconfirmed: u64,
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
/// use market::framing::{Header, PacketKind, Session};
/// use market::loops::LoopLines;
///
/// let mut lines = LoopLines::new(2);
/// lines.join(0);
/// let (channel, session, kind) = (0, Session::default(), PacketKind::Data);
/// let packet = |seq| Header { channel, session, seq, count: 1, kind, sent_ns: 10 };
/// assert!(!lines.offer(Line::A, &packet(1), b"bytes", 0), "it waits for the other line's copy");
/// assert!(lines.offer(Line::B, &packet(1), b"bytes", 0));
/// assert!(!lines.offer(Line::B, &packet(2), b"forged", 0));
/// assert!(!lines.offer(Line::A, &packet(2), b"other bytes", 0));
/// ```
#[derive(Debug)]
pub struct LoopLines {
    /// The last packets of each place, which their number chooses; the newest first.
    recent: Box<[[Seen; WAYS]]>,
    /// When each line brought something last.
    heard_ns: Vec<u64>,
    /// Drawn, so that nobody can make other bytes of the same digest.
    digests: RandomState,
    last: u64,
    counts: LoopCounts,
}

/// A packet that came.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    seq: u64,
    sent_ns: u64,
    digest: u64,
    line: Line,
    has_passed: bool,
}

impl LoopLines {
    /// So many lines, without a packet yet.
    pub fn new(lines: usize) -> Self {
        Self {
            recent: vec![[Seen::default(); WAYS]; REMEMBERED].into(),
            heard_ns: vec![0; lines],
            digests: RandomState::new(),
            last: 0,
            counts: LoopCounts::default(),
        }
    }

    /// Their groups are joined: none of them is silent so far.
    pub fn join(&mut self, now_ns: u64) {
        self.heard_ns.fill(now_ns);
    }

    /// Whether a packet, all of whose bytes are given, passes now. Costs a digest of the bytes, and
    /// a look into memory of 160 KiB.
    ///
    /// Panics where there is no such line.
    pub fn offer(&mut self, line: Line, header: &Header, bytes: &[u8], now_ns: u64) -> bool {
        self.heard_ns[line.0] = now_ns;
        let is_silent = |&heard_ns: &u64| now_ns.saturating_sub(heard_ns) >= SILENT_NS;
        let mut others = self.heard_ns.iter().enumerate().filter(|&(idx, _)| idx != line.0);
        let is_alone = others.all(|(_, heard_ns)| is_silent(heard_ns));
        let Header { seq, sent_ns, .. } = *header;
        let digest = self.digests.hash_one(bytes);
        let place = &mut self.recent[seq as usize % REMEMBERED];
        let is_same = |seen: &&mut Seen| (seen.seq, seen.sent_ns, seen.digest) == (seq, sent_ns, digest);
        let passes = match place.iter_mut().find(is_same) {
            Some(seen) => {
                let passes = !seen.has_passed && (seen.line != line || is_alone);
                seen.has_passed |= passes;
                self.counts.duplicates += u64::from(!passes);
                passes
            }
            None => {
                place.rotate_right(1);
                let displaced =
                    core::mem::replace(&mut place[0], Seen { seq, sent_ns, digest, line, has_passed: is_alone });
                self.counts.unconfirmed += u64::from(displaced.sent_ns > 0 && !displaced.has_passed);
                self.follow(seq);
                is_alone
            }
        };
        self.counts.passed[line.0.min(2)] += u64::from(passes);
        passes
    }

    /// Counts loops, and numbers that no line has brought.
    fn follow(&mut self, seq: u64) {
        self.counts.begun += u64::from(seq == 1);
        // The first packet is any of its loop, and one that goes back begins another, or is late.
        if self.last > 0 && seq > self.last {
            self.counts.skipped += seq - self.last - 1;
        }
        self.last = seq;
    }

    /// The counts so far.
    pub const fn counts(&self) -> &LoopCounts {
        &self.counts
    }
}
