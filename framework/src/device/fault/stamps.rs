//! Sequence numbers of transmit timestamps. The inner device counts the frames that reach it; the
//! worker counts those that it posted, including lost and reordered ones.

use std::collections::VecDeque;

/// Maximum number of frames with an outstanding timestamp; beyond it the oldest is discarded.
const OUTSTANDING_MAX: usize = 1024;

pub(super) struct Stamps {
    /// Timestamps that the worker requested.
    asked: u64,
    /// The inner device's number of the first of `outstanding`.
    first: u64,
    /// The worker's numbers in the order in which the inner device accepted the frames.
    outstanding: VecDeque<u64>,
}

impl Stamps {
    pub(super) fn new() -> Self {
        Self { asked: 0, first: 0, outstanding: VecDeque::with_capacity(OUTSTANDING_MAX) }
    }

    /// The worker's number of the next frame that requests a timestamp.
    pub(super) fn next(&self) -> u64 {
        self.asked
    }

    /// Counts a request: the inner device accepted the worker's frame, or a fault removed it.
    pub(super) fn ask(&mut self) {
        self.asked += 1;
    }

    /// The inner device accepted the frame with the worker's `number`.
    pub(super) fn posted(&mut self, number: u64) {
        if self.outstanding.len() == OUTSTANDING_MAX {
            self.outstanding.pop_front();
            self.first += 1;
        }
        self.outstanding.push_back(number);
    }

    /// Returns the worker's number of the inner device's frame `sequence`, and discards it and
    /// those before it.
    pub(super) fn translate(&mut self, sequence: u64) -> Option<u64> {
        let before = usize::try_from(sequence.checked_sub(self.first)?).ok()?;
        let number = *self.outstanding.get(before)?;
        self.outstanding.drain(..=before);
        self.first = sequence + 1;
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_and_reordered_frames_keep_their_numbers() {
        let mut stamps = Stamps::new();
        (0..4).for_each(|_| stamps.ask());
        // Frame 1 was lost, 3 overtook 2.
        [0, 3, 2].into_iter().for_each(|number| stamps.posted(number));
        assert_eq!(stamps.next(), 4);
        assert_eq!([0, 1, 2, 3].map(|sequence| stamps.translate(sequence)), [Some(0), Some(3), Some(2), None]);
    }

    #[test]
    fn timestamps_that_nobody_takes_are_forgotten() {
        let mut stamps = Stamps::new();
        (0..5_000).for_each(|number| stamps.posted(number));
        assert_eq!(stamps.translate(0), None);
        assert_eq!(stamps.translate(4_999), Some(4_999));
    }
}
