//! The log lines of refusals. Any user of the machine can be refused as often as he likes, and
//! must not fill the log's disk.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The time for which the lines of a user are counted.
const SPAN: Duration = Duration::from_secs(60);
/// The lines of a user in this time: one who is not served, and one whose programs are clients.
pub(super) const OF_A_STRANGER: u32 = 1;
pub(super) const OF_A_CLIENT: u32 = 20;
/// The most users with lines in this time.
const USERS_MAX: usize = 256;

/// Counts the lines of each user.
pub(super) struct RefusalLines {
    since: Instant,
    counts: HashMap<u32, u32>,
}

/// What is written of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    Line,
    /// It is the user's last line for a while.
    LastLine,
    Nothing,
}

impl RefusalLines {
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, counts: HashMap::new() }
    }

    /// A user who has `lines_max` lines is refused again.
    pub(super) fn count(&mut self, uid: u32, lines_max: u32, now: Instant) -> Written {
        if now.duration_since(self.since) >= SPAN {
            self.counts.clear();
            self.since = now;
        }
        if self.counts.len() >= USERS_MAX && !self.counts.contains_key(&uid) {
            return Written::Nothing;
        }
        let count = self.counts.entry(uid).or_default();
        *count = count.saturating_add(1);
        match (*count).cmp(&lines_max) {
            core::cmp::Ordering::Less => Written::Line,
            core::cmp::Ordering::Equal => Written::LastLine,
            core::cmp::Ordering::Greater => Written::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_user_are_bounded_and_come_again() {
        let begin = Instant::now();
        let mut lines = RefusalLines::new(begin);
        let mut count = |uid, lines_max, seconds| lines.count(uid, lines_max, begin + Duration::from_secs(seconds));
        assert_eq!(
            [0, 1, 59].map(|at| count(7, OF_A_STRANGER, at)),
            [Written::LastLine, Written::Nothing, Written::Nothing]
        );
        assert_eq!([0, 1, 2].map(|at| count(8, 2, at)), [Written::Line, Written::LastLine, Written::Nothing]);
        assert_eq!(count(7, OF_A_STRANGER, 60), Written::LastLine);
        (0..USERS_MAX as u32).for_each(|uid| _ = count(100 + uid, 1, 61));
        assert_eq!(count(7, 9, 61), Written::Line);
        assert_eq!(count(9, 9, 61), Written::Nothing);
    }
}
