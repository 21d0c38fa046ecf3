//! The UserRefNums of one account of OUCH 5.0, and what they say after a break.

use crate::session::{Fate, Recovery, Resend};

/// Queries in front of a login's own, whose answers show that all answers behind are to this login.
pub const FENCE_LEN: usize = 4;

/// Gives out UserRefNums, strictly increasing for the day, and remembers what the venue told about
/// them.
///
/// An account query (`Q`) of each login asks for the next free number. Its answer is numbered by
/// the session, so it arrives after the answers to all that the venue had processed before the
/// query. Once it is [`told`](Self::told), each unacknowledged message that it does not cover may
/// be sent again under its old number, and is processed at most once.
///
/// An answer does not say which query it is to, and those of earlier connections, also of a process
/// that has died, may still come: what was sent behind such a query would be taken for lost. So a
/// login asks first about indices that it has drawn ([`fence`](Self::fence)); an answer names its
/// index (option 28), and no answer counts before those have come in a row.
#[derive(Clone, Copy, Debug)]
pub struct Account {
    next: u32,
    told: Option<u32>,
    fence: [u8; FENCE_LEN],
    /// Answers of the fence that have come.
    passed: usize,
}

impl Account {
    /// A new day.
    pub const fn new() -> Self {
        Self::resumed(1)
    }

    /// An account that an earlier process has used; the first number is `next`.
    pub const fn resumed(next: u32) -> Self {
        Self { next, told: None, fence: [0; FENCE_LEN], passed: 0 }
    }

    /// Takes the next number; `None` when the day's 2^32 are used up.
    #[inline]
    pub const fn take(&mut self) -> Option<u32> {
        let number = self.next;
        let Some(next) = number.checked_add(1) else { return None };
        self.next = next;
        Some(number)
    }

    /// The number that [`take`](Self::take) gives next.
    pub const fn next_number(&self) -> u32 {
        self.next
    }

    /// The line broke: what the venue told is out of date.
    pub const fn disconnected(&mut self) {
        self.told = None;
        self.passed = 0;
    }

    /// A login: the indices (1 to 200) of the account queries to send before the one of our own
    /// index, 0. `drawn` differs after a restart, as the time does; of two logins one in 1.6
    /// thousand million has the same fence.
    pub const fn fence(&mut self, drawn: u64) -> [u8; FENCE_LEN] {
        // Behind the fence before, so that logins of one process differ whatever is drawn.
        let mut bits = drawn ^ u32::from_le_bytes(self.fence) as u64;
        let mut idx = 0;
        while idx < FENCE_LEN {
            // The step of SplitMix64.
            bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            self.fence[idx] = 1 + ((mixed ^ mixed >> 31) % 200) as u8;
            idx += 1;
        }
        self.passed = 0;
        self.fence
    }

    /// The venue answered an account query about another index.
    pub const fn other_told(&mut self, idx: u8) {
        if self.passed == FENCE_LEN {
            return;
        }
        // An index that is not the next may be the first of the row.
        if self.fence[self.passed] != idx {
            self.passed = 0;
        }
        self.passed += (self.fence[self.passed] == idx) as usize;
    }

    /// Whether `next`, an answer to a query about our index, is above our own next number: another
    /// program has used the account, or our record was lost. What was sent in the numbers between
    /// is unknown here. [`Account::told`] goes on behind them.
    pub const fn lacks_below(&self, next: u32) -> bool {
        next > self.next
    }

    /// The venue answered an account query about our index with its next free number. Where that is
    /// above ours ([`Account::lacks_below`]), we go on from there. Returns whether this is the
    /// first answer to this connection: the venue has processed no number from `next` on, and never
    /// will where it was sent before.
    pub const fn told(&mut self, next: u32) -> bool {
        if next > self.next {
            self.next = next;
        }
        if self.passed < FENCE_LEN {
            self.passed = 0;
            return false;
        }
        let is_first = self.told.is_none();
        self.told = Some(next);
        is_first
    }
}

impl Default for Account {
    fn default() -> Self {
        Self::new()
    }
}

impl Recovery for Account {
    /// By the UserRefNum of an enter, replace, mass cancel, disable or enable. Cancels and modifies
    /// have the number of their order, and may always be sent again.
    fn fate(&self, number: u64) -> Fate {
        let resend = Resend::SameNumber;
        match self.told {
            None => Fate::Unknown { resend: Some(resend) },
            Some(next) if number < u64::from(next) => Fate::Processed,
            Some(_) => Fate::NotProcessed { resend },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Logs in, and takes the answers to the fence.
    fn log_in(account: &mut Account, drawn: u64) {
        account.fence(drawn).into_iter().for_each(|idx| account.other_told(idx));
    }

    #[test]
    fn messages_below_the_told_number_were_processed_and_the_others_go_out_again() {
        let mut account = Account::new();
        for number in 1..=5 {
            assert_eq!(account.take(), Some(number));
        }
        account.disconnected();
        assert_eq!(account.fate(4), Fate::Unknown { resend: Some(Resend::SameNumber) });
        log_in(&mut account, 1);
        assert!(account.told(4));
        assert_eq!(account.fate(3), Fate::Processed);
        assert_eq!(account.fate(4), Fate::NotProcessed { resend: Resend::SameNumber });
        assert_eq!((account.take(), account.told(6)), (Some(6), false));
    }

    #[test]
    fn answers_to_any_number_of_earlier_logins_say_nothing() {
        let mut account = Account::resumed(7);
        assert_eq!(account.take(), Some(7));
        let fences: Vec<_> = (0..100).map(|drawn| Account::new().fence(drawn)).collect();
        account.disconnected();
        let ours = account.fence(100);
        for fence in fences {
            fence.into_iter().for_each(|idx| account.other_told(idx));
            assert!(!account.told(7));
        }
        assert_eq!(account.fate(7), Fate::Unknown { resend: Some(Resend::SameNumber) });
        ours.into_iter().for_each(|idx| account.other_told(idx));
        assert!(account.told(8));
        assert_eq!(account.fate(7), Fate::Processed);
    }

    #[test]
    fn part_of_a_fence_is_none() {
        let mut account = Account::new();
        let fence = account.fence(5);
        fence[..FENCE_LEN - 1].iter().for_each(|&idx| account.other_told(idx));
        assert!(!account.told(1));
        account.other_told(fence[FENCE_LEN - 1]);
        assert!(!account.told(1));
        // Behind a part of it, the whole.
        account.other_told(fence[0]);
        fence.into_iter().for_each(|idx| account.other_told(idx));
        assert!(account.told(1));
    }

    #[test]
    fn account_that_others_used_goes_on_above_their_numbers() {
        let mut account = Account::new();
        log_in(&mut account, 9);
        assert!(account.told(100));
        assert_eq!(account.take(), Some(100));
    }

    #[test]
    fn used_up_numbers_do_not_begin_again() {
        let mut account = Account::resumed(u32::MAX);
        assert_eq!(account.take(), None);
        assert_eq!(account.take(), None);
    }
}
