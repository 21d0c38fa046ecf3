//! The UserRefNums of one account of OUCH 5.0, and what they say after a break.

use crate::session::{Fate, Recovery, Resend};

/// Gives out UserRefNums, strictly increasing for the day, and remembers what the venue told about
/// them.
///
/// After a login as many account queries (`Q`) as [`login_queries`](Self::login_queries) says. An
/// answer is numbered by the session, so it arrives after the answers to all that the venue had
/// processed before the query. Until one is [`told`](Self::told) that says where the venue stands,
/// each unacknowledged message may be sent again under its old number, and is processed at most
/// once.
///
/// An answer does not say which query it is to. One to a query of an earlier connection, behind
/// which numbers were taken, says nothing about those: such answers are counted, and passed over.
#[derive(Clone, Copy, Debug)]
pub struct Account {
    next: u32,
    told: Option<u32>,
    /// Queries without an answer behind which no number was taken.
    asked: u8,
    /// The most queries without an answer behind which numbers were taken, the first of them
    /// `stale_below`.
    stale: u8,
    stale_below: u32,
}

impl Account {
    /// The most queries of a login.
    pub const LOGIN_QUERIES_MAX: u8 = 32;
    /// Answers to an earlier process that may still come, at most.
    const STALE_OF_A_RESTART: u8 = 8;

    /// A new day.
    pub const fn new() -> Self {
        Self { next: 1, told: None, asked: 0, stale: 0, stale_below: 0 }
    }

    /// An account that an earlier process has used; the first number is `next`.
    pub const fn resumed(next: u32) -> Self {
        Self { next, told: None, asked: 0, stale: Self::STALE_OF_A_RESTART, stale_below: next }
    }

    /// Takes the next number; `None` when the day's 2^32 are used up.
    #[inline]
    pub const fn take(&mut self) -> Option<u32> {
        let number = self.next;
        let Some(next) = number.checked_add(1) else { return None };
        self.next = next;
        if self.asked > 0 {
            self.stale = self.stale.saturating_add(self.asked);
            (self.asked, self.stale_below) = (0, number);
        }
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

    /// A login: how many account queries are to be sent now.
    pub const fn login_queries(&mut self) -> u8 {
        let stale = if self.stale < Self::LOGIN_QUERIES_MAX { self.stale } else { Self::LOGIN_QUERIES_MAX - 1 };
        self.asked = self.asked.saturating_add(stale + 1);
        stale + 1
    }

    /// One more account query was sent.
    pub const fn asked(&mut self) {
        self.asked = self.asked.saturating_add(1);
    }

    /// The venue answered an account query with its next free number. Where that is above ours,
    /// another program has used the account, or our record was lost: we go on from there. Returns
    /// whether this is the connection's first answer which says that the venue has processed no
    /// number from `next` on.
    pub const fn told(&mut self, next: u32) -> bool {
        if next > self.next {
            self.next = next;
        }
        if self.stale > 0 {
            self.stale -= 1;
            return false;
        }
        self.asked = self.asked.saturating_sub(1);
        let is_first = self.told.is_none();
        self.told = Some(next);
        is_first
    }

    /// The venue said something about a number that was taken: the answers to all queries that were
    /// sent before it have come.
    #[inline]
    pub const fn answered(&mut self, number: u64) {
        if number >= self.stale_below as u64 {
            self.stale = 0;
        }
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

    #[test]
    fn messages_below_the_told_number_were_processed_and_the_others_go_out_again() {
        let mut account = Account::new();
        for number in 1..=5 {
            assert_eq!(account.take(), Some(number));
        }
        account.disconnected();
        assert_eq!(account.fate(4), Fate::Unknown { resend: Some(Resend::SameNumber) });
        assert_eq!((account.login_queries(), account.told(4)), (1, true));
        assert_eq!(account.fate(3), Fate::Processed);
        assert_eq!(account.fate(4), Fate::NotProcessed { resend: Resend::SameNumber });
        assert_eq!(account.take(), Some(6));
    }

    #[test]
    fn answer_to_a_query_before_a_number_was_taken_says_nothing_about_that_number() {
        let mut account = Account::new();
        assert_eq!(account.login_queries(), 1);
        account.disconnected();
        // The first query's answer was lost with the line, and comes again.
        assert_eq!((account.login_queries(), account.told(1)), (1, true));
        assert_eq!(account.take(), Some(1));
        // That to the second query follows the order, or is lost with the line as well.
        for is_lost in [false, true] {
            let mut account = account;
            if !is_lost {
                assert!(!account.told(1));
            }
            account.disconnected();
            assert_eq!(account.login_queries(), if is_lost { 2 } else { 1 });
            if is_lost {
                assert!(!account.told(1));
                assert_eq!(account.fate(1), Fate::Unknown { resend: Some(Resend::SameNumber) });
            }
            assert!(account.told(2));
            assert_eq!(account.fate(1), Fate::Processed);
        }
    }

    #[test]
    fn message_about_a_number_shows_that_the_queries_before_it_were_answered() {
        let mut account = Account::resumed(7);
        assert_eq!(account.login_queries(), 9);
        account.answered(6);
        assert!(!account.told(7));
        account.disconnected();
        account.answered(7);
        assert_eq!((account.login_queries(), account.told(7)), (1, true));
    }

    #[test]
    fn account_that_others_used_goes_on_above_their_numbers() {
        let mut account = Account::new();
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
