//! The UserRefNums of one account of OUCH 5.0, and what they say after a break.

use crate::session::{Fate, Recovery, Resend};

/// Gives out UserRefNums, strictly increasing for the day, and remembers what the venue told about
/// them.
///
/// After a reconnect [`disconnected`](Self::disconnected), then an account query (`Q`); its answer
/// is numbered by the session, so that it arrives after the answers to all that the venue had
/// processed. Until it comes, each unacknowledged message may be sent again under its old number,
/// and is processed at most once.
#[derive(Clone, Copy, Debug)]
pub struct Account {
    next: u32,
    told: Option<u32>,
}

impl Account {
    /// The first number is `next`, 1 on a new day.
    pub const fn new(next: u32) -> Self {
        Self { next, told: None }
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
    }

    /// The venue answered an account query with its next free number. Where that is above ours,
    /// another program has used the account, or our record was lost: we go on from there.
    pub const fn told(&mut self, next: u32) {
        self.told = Some(next);
        if next > self.next {
            self.next = next;
        }
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

    #[test]
    fn messages_below_the_told_number_were_processed_and_the_others_go_out_again() {
        let mut account = Account::new(1);
        for number in 1..=5 {
            assert_eq!(account.take(), Some(number));
        }
        account.disconnected();
        assert_eq!(account.fate(4), Fate::Unknown { resend: Some(Resend::SameNumber) });
        account.told(4);
        assert_eq!(account.fate(3), Fate::Processed);
        assert_eq!(account.fate(4), Fate::NotProcessed { resend: Resend::SameNumber });
        assert_eq!(account.take(), Some(6));
    }

    #[test]
    fn account_that_others_used_goes_on_above_their_numbers() {
        let mut account = Account::new(1);
        account.told(100);
        assert_eq!(account.take(), Some(100));
    }

    #[test]
    fn used_up_numbers_do_not_begin_again() {
        let mut account = Account::new(u32::MAX);
        assert_eq!(account.take(), None);
        assert_eq!(account.take(), None);
    }
}
