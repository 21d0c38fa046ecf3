//! The frames that were marked for a transmit timestamp: the device numbers them, a sender knows
//! them by its token.

use std::collections::VecDeque;

/// Marked frames whose timestamp is not read yet, 16 bytes each. More than a device keeps
/// timestamps for. Beyond it the oldest request is given up, because a frame that failed may never
/// report a timestamp.
const PENDING_MAX: usize = 1_024;

/// The frames that were marked.
pub(super) struct PendingTimestamps {
    /// The device's number of the next marked frame.
    next: u64,
    /// Numbers and tokens, oldest first.
    waiting: VecDeque<(u64, u64)>,
    /// Timestamps that will never arrive and are not counted yet.
    pub(super) lost: u64,
}

impl PendingTimestamps {
    /// Nothing marked. Allocates all its memory here.
    pub(super) fn new() -> Self {
        Self { next: 0, waiting: VecDeque::with_capacity(PENDING_MAX), lost: 0 }
    }

    pub(super) fn push(&mut self, token: u64) {
        if self.waiting.len() == PENDING_MAX {
            self.waiting.pop_front();
            self.lost += 1;
        }
        self.waiting.push_back((self.next, token));
        self.next += 1;
    }

    /// The token of frame `number`. Frames before it will get no timestamp: a device reports them
    /// in order.
    pub(super) fn token(&mut self, number: u64) -> Option<u64> {
        while let Some(&(oldest, token)) = self.waiting.front() {
            if oldest > number {
                return None;
            }
            self.waiting.pop_front();
            if oldest == number {
                return Some(token);
            }
            self.lost += 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_that_was_passed_over_is_lost() {
        let mut pending = PendingTimestamps::new();
        (100..105).for_each(|token| pending.push(token));
        assert_eq!([0, 2, 1, 4, 9].map(|number| pending.token(number)), [Some(100), Some(102), None, Some(104), None]);
        assert_eq!(pending.lost, 2);
    }

    #[test]
    fn device_that_never_answers_costs_no_more_than_the_table() {
        let mut pending = PendingTimestamps::new();
        (0..5_000).for_each(|token| pending.push(token));
        assert_eq!((pending.waiting.len(), pending.lost), (PENDING_MAX, 5_000 - PENDING_MAX as u64));
        assert_eq!(pending.token(4_999), Some(4_999));
    }
}
