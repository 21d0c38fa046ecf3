//! When frames left that asked for it: a short list, oldest first, until somebody takes them.

use std::collections::VecDeque;

/// The number of a frame, and when it left, as its device writes it.
pub(in crate::device) type Departure = (u64, u64);

/// TxTimestamps that wait to be taken. Who asks for times takes them every turn, and a turn
/// completes fewer; who never takes them costs no more than this.
const WAITING_MAX: usize = 256;

/// TxTimestamps that wait, and the number of the next frame that asks.
pub(in crate::device) struct TxTimestamps {
    sequence: u64,
    waiting: VecDeque<Departure>,
}

impl TxTimestamps {
    pub(in crate::device) fn new() -> Self {
        Self { sequence: 0, waiting: VecDeque::with_capacity(WAITING_MAX) }
    }

    /// Frames that asked so far.
    pub(in crate::device) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Back to an earlier number: those since then were not meant.
    pub(in crate::device) fn set_sequence(&mut self, sequence: u64) {
        self.sequence = sequence;
    }

    /// The number of a frame that asks.
    pub(in crate::device) fn next_sequence(&mut self) -> u64 {
        let sequence = self.sequence;
        self.sequence += 1;
        sequence
    }

    /// Notes that a frame left; `false`, and it is forgotten, where too many wait.
    pub(in crate::device) fn push(&mut self, departure: Departure) -> bool {
        if self.waiting.len() == WAITING_MAX {
            return false;
        }
        self.waiting.push_back(departure);
        true
    }

    /// The oldest.
    pub(in crate::device) fn pop(&mut self) -> Option<Departure> {
        self.waiting.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_that_nobody_reads_stays_short() {
        let mut departures = TxTimestamps::new();
        for expected in 0..1_000 {
            let sequence = departures.next_sequence();
            let taken = departures.push((sequence, sequence + 7));
            assert_eq!((sequence, taken), (expected, expected < WAITING_MAX as u64));
        }
        for sequence in 0..WAITING_MAX as u64 {
            assert_eq!(departures.pop(), Some((sequence, sequence + 7)));
        }
        assert_eq!(departures.pop(), None);
    }
}
