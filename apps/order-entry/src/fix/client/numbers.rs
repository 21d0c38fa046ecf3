//! A session's numbers as client ids. No message is kept: what the venue has not received it never
//! gets, because the market has moved since.

use crate::fix::session::{MessageStore, StoreFull};
use crate::journal::SessionMark;

/// Nanoseconds of a minute.
const MINUTE_NS: u64 = 60_000_000_000;
/// Bits of an id that the ids of one second have.
const SECOND_BITS: u32 = 16;
/// The first of January 2020 in seconds since 1970: ids count from there, to fit sixteen digits.
const EPOCH_S: u64 = 1_577_836_800;

/// MsgSeqNums, and the base that makes client ids of them: id = base + MsgSeqNum. Where the numbers
/// begin anew, the base grows, so that no id is used twice.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    base: u64,
    next_out: u64,
    next_in: u64,
    begun_utc_ns: u64,
}

impl Numbers {
    /// Before the first connection.
    pub(super) const NEW: Self = Self { base: 0, next_out: 1, next_in: 1, begun_utc_ns: 0 };

    /// Numbers that go on at the mark of a journal. One without a number of the venue was made
    /// before the first message came, or between two sessions.
    pub(super) fn at(mark: &SessionMark) -> Self {
        let [base @ .., m0, m1, m2, m3] = mark.session;
        let mut base_bytes = [0; 8];
        base_bytes[..6].copy_from_slice(&base);
        let base = u64::from_le_bytes(base_bytes);
        if mark.next_id <= base || mark.next_inbound == 0 {
            return Self { base: mark.next_id.saturating_sub(1), ..Self::NEW };
        }
        let begun_utc_ns = u64::from(u32::from_le_bytes([m0, m1, m2, m3])) * MINUTE_NS;
        Self { base, next_out: mark.next_id - base, next_in: mark.next_inbound, begun_utc_ns }
    }

    /// Where the session stands. The place of the venue's name, which FIX has not, holds the base
    /// in six bytes, and the minute in four in which the numbers began.
    pub(super) fn mark(&self) -> SessionMark {
        let mut session = [0; 10];
        session[..6].copy_from_slice(&self.base.to_le_bytes()[..6]);
        let minute = u32::try_from(self.begun_utc_ns / MINUTE_NS).unwrap_or(u32::MAX);
        session[6..].copy_from_slice(&minute.to_le_bytes());
        SessionMark { session, next_inbound: self.next_in, next_id: self.next_id() }
    }

    /// The first ids of a journal follow the time, so that no other journal of the day has the
    /// same: a venue refuses a ClOrdID that it has seen.
    pub(super) const fn begin(&mut self, utc_ns: u64) {
        if self.base == 0 && self.next_out == 1 {
            self.base = (utc_ns / 1_000_000_000).saturating_sub(EPOCH_S) << SECOND_BITS;
        }
    }

    /// The client id of the message `seq`.
    pub(super) const fn id_of(&self, seq: u64) -> u64 {
        self.base.saturating_add(seq)
    }

    /// The client id of the next message.
    pub(super) const fn next_id(&self) -> u64 {
        self.base + self.next_out
    }
}

impl MessageStore for Numbers {
    fn next_out(&self) -> u64 {
        self.next_out
    }

    fn next_in(&self) -> u64 {
        self.next_in
    }

    fn set_next_out(&mut self, seq: u64) {
        self.next_out = seq;
    }

    fn set_next_in(&mut self, seq: u64) {
        self.next_in = seq;
    }

    fn put(&mut self, seq: u64, _message: &[u8]) -> Result<(), StoreFull> {
        self.next_out = seq + 1;
        Ok(())
    }

    fn get(&self, _seq: u64) -> Option<&[u8]> {
        None
    }

    fn next_kept(&self, _seq: u64) -> Option<u64> {
        None
    }

    fn reset(&mut self, utc_ns: u64) {
        self.base += self.next_out - 1;
        (self.next_out, self.next_in, self.begun_utc_ns) = (1, 1, utc_ns);
    }

    fn begun_utc_ns(&self) -> u64 {
        self.begun_utc_ns
    }

    fn set_begun_utc_ns(&mut self, utc_ns: u64) {
        self.begun_utc_ns = utc_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_from_their_mark() {
        let mut numbers = Numbers::NEW;
        numbers.begin(1_795_727_114_000_000_000);
        numbers.reset(1_795_727_160_000_000_000);
        (numbers.next_out, numbers.next_in) = (57, 9);
        let again = Numbers::at(&numbers.mark());
        assert_eq!((again.base, again.next_out, again.next_in), (numbers.base, 57, 9));
        assert_eq!(again.begun_utc_ns, 1_795_727_160_000_000_000 / MINUTE_NS * MINUTE_NS);
    }

    #[test]
    fn ids_rise_over_a_reset() {
        let mut numbers = Numbers { base: 100, next_out: 8, ..Numbers::NEW };
        let before = numbers.next_id();
        numbers.reset(0);
        assert_eq!((numbers.next_id(), numbers.next_out()), (before, 1));
    }

    #[test]
    fn mark_between_sessions_begins_numbers_and_keeps_ids() {
        let again = Numbers::at(&SessionMark { next_id: 58, ..SessionMark::default() });
        assert_eq!((again.next_id(), again.next_out(), again.next_in()), (58, 1, 1));
    }

    #[test]
    fn later_journal_has_greater_ids_of_sixteen_digits() {
        let begun = |utc_s: u64| {
            let mut numbers = Numbers::NEW;
            numbers.begin(utc_s * 1_000_000_000);
            numbers.next_id()
        };
        assert!(begun(1_795_727_115) - begun(1_795_727_114) > 60_000);
        // In the year 2100.
        assert!(begun(4_102_444_800) < 1 << 48);
    }
}
