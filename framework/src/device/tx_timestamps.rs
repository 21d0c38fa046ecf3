//! Transmit timestamps of frames that asked for one: a short queue, oldest first.

use std::collections::VecDeque;

/// The sequence number of a frame, and its timestamp in the device's format.
pub(super) type Departure = (u64, u64);

/// Maximum number of pending timestamps. An application that requests them takes them every turn,
/// and a turn completes fewer; one that never takes them costs no more than this.
const WAITING_MAX: usize = 256;

/// Pending timestamps, and the sequence number of the next frame that asks for one.
pub(super) struct TxTimestamps {
    sequence: u64,
    waiting: VecDeque<Departure>,
}

impl TxTimestamps {
    pub(super) fn new() -> Self {
        Self { sequence: 0, waiting: VecDeque::with_capacity(WAITING_MAX) }
    }

    /// Number of frames so far that asked for a timestamp.
    pub(super) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Returns to an earlier number: the requests since then are void.
    pub(super) fn set_sequence(&mut self, sequence: u64) {
        self.sequence = sequence;
    }

    /// Assigns a sequence number to a frame that asks for a timestamp.
    pub(super) fn next_sequence(&mut self) -> u64 {
        let sequence = self.sequence;
        self.sequence += 1;
        sequence
    }

    /// Adds a timestamp; `false`, and it is lost, if too many are pending.
    pub(super) fn push(&mut self, departure: Departure) -> bool {
        if self.waiting.len() == WAITING_MAX {
            return false;
        }
        self.waiting.push_back(departure);
        true
    }

    /// The oldest timestamp.
    pub(super) fn pop(&mut self) -> Option<Departure> {
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
