//! When a completion queue raises an event: arming and moderation; mlx5.md 2.9 ("Arm").
//!
//! The driver writes an arm word beside its consumer index and rings. The NIC clears the word, so
//! that it notices the same value a second time. It raises one event as soon as there is an entry
//! that the driver had not read when it armed.

use crate::hca::{Dma, Unmapped};

/// The value of the arm word until the driver writes it. The first value that a driver writes can
/// be 0, with which the record starts. So the NIC stores a value that no driver writes (two of its
/// bits are reserved).
pub(super) const NOT_ARMED: u32 = u32::MAX;

const SOLICITED_ONLY: u32 = 1 << 24;

/// Whether the driver wants an event of this queue, and since when there is a reason for one.
#[derive(Debug)]
pub(super) struct Arming {
    /// Where the arm word lies.
    address: u64,
    armed: Option<Armed>,
    /// Entries that no event announced.
    unannounced: u32,
    /// When the oldest of them was written, in cycles.
    unannounced_since: u64,
    /// The index behind the last solicited entry or error.
    behind_solicited: Option<u32>,
    moderation: Moderation,
}

#[derive(Clone, Copy, Debug)]
struct Armed {
    /// Entries from here on are news.
    consumer: u32,
    solicited_only: bool,
}

/// Events are held back until so many entries are there, or the oldest is so old. A 0 in either
/// switches it off.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moderation {
    pub(super) count: u16,
    pub(super) period_us: u16,
}

impl Arming {
    /// Puts the word into the state in which each value that a driver writes is a change.
    pub(super) fn new(address: u64, dma: &dyn Dma) -> Result<Self, Unmapped> {
        dma.store_be32(address, NOT_ARMED)?;
        Ok(Self {
            address,
            armed: None,
            unannounced: 0,
            unannounced_since: 0,
            behind_solicited: None,
            moderation: Moderation::default(),
        })
    }

    pub(super) fn moderate(&mut self, moderation: Moderation) {
        self.moderation = moderation;
    }

    /// The word as it lies there.
    pub(super) fn word(&self, dma: &dyn Dma) -> Result<u32, Unmapped> {
        dma.load_be32(self.address)
    }

    /// An entry was written. `behind` is the index after it.
    #[inline]
    pub(super) fn note_entry(&mut self, behind: u32, solicited: bool, now: u64) {
        if self.unannounced == 0 {
            self.unannounced_since = now;
        }
        self.unannounced = self.unannounced.saturating_add(1);
        if solicited {
            self.behind_solicited = Some(behind);
        }
    }

    /// Takes the arm word, where one was written.
    #[inline]
    pub(super) fn take_word(&mut self, dma: &dyn Dma) -> Result<(), Unmapped> {
        if dma.load_be32(self.address)? == NOT_ARMED {
            return Ok(());
        }
        let word = dma.swap_be32(self.address, NOT_ARMED)?;
        self.armed = Some(Armed { consumer: word & 0xff_ffff, solicited_only: word & SOLICITED_ONLY != 0 });
        Ok(())
    }

    /// Whether an event is due; then the queue is no longer armed. `producer` is the index of the
    /// next entry.
    #[inline]
    pub(super) fn take_event(&mut self, producer: u32, now: u64) -> bool {
        let Some(armed) = self.armed else { return false };
        let end = if armed.solicited_only { self.behind_solicited } else { Some(producer) };
        let news = end.map_or(0, |end| news_between(armed.consumer, end));
        if news == 0 || self.is_held_back(news, now) {
            return false;
        }
        self.armed = None;
        self.unannounced = 0;
        true
    }

    fn is_held_back(&self, news: u32, now: u64) -> bool {
        let Moderation { count, period_us } = self.moderation;
        if count == 0 || period_us == 0 {
            return false;
        }
        let waited_ns = now.saturating_sub(self.unannounced_since);
        news.min(self.unannounced) < u32::from(count) && waited_ns < u64::from(period_us) * 1000
    }
}

/// Entries from `consumer`, of which 24 bits are known, to `end`; 0 where the driver is ahead.
fn news_between(consumer: u32, end: u32) -> u32 {
    let distance = end.wrapping_sub(consumer) & 0xff_ffff;
    if distance < 1 << 23 { distance } else { 0 }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a panic here is the report
    use super::*;
    use crate::hca::testing::PlainMemory;

    const WORD: u64 = 0x1004;

    fn arming() -> (PlainMemory, Arming) {
        let memory = PlainMemory::new(0x1000, 8);
        let arming = Arming::new(WORD, &memory).unwrap();
        (memory, arming)
    }

    fn arm(memory: &PlainMemory, arming: &mut Arming, word: u32) {
        memory.put_be32(WORD, word);
        arming.take_word(memory).unwrap();
    }

    #[test]
    fn a_first_arm_value_of_0_is_seen() {
        let (memory, mut arming) = arming();
        arming.note_entry(1, false, 0);
        assert!(!arming.take_event(1, 0), "not armed yet");
        arm(&memory, &mut arming, 0);
        assert!(arming.take_event(1, 0));
    }

    #[test]
    fn the_same_value_twice_arms_twice() {
        let (memory, mut arming) = arming();
        arming.note_entry(1, false, 0);
        for _ in 0..2 {
            arm(&memory, &mut arming, 0);
            assert!(arming.take_event(1, 0));
            arming.take_word(&memory).unwrap();
            assert!(!arming.take_event(1, 0), "one event for one arm");
        }
    }

    #[test]
    fn an_entry_from_before_the_arm_is_announced_at_once_and_a_read_one_is_not() {
        let (memory, mut arming) = arming();
        for behind in 1..=5 {
            arming.note_entry(behind, false, 0);
        }
        arm(&memory, &mut arming, 5);
        assert!(!arming.take_event(5, 0), "all read");
        arm(&memory, &mut arming, 4);
        assert!(arming.take_event(5, 0));
    }

    #[test]
    fn the_consumer_index_wraps_at_24_bits() {
        let (memory, mut arming) = arming();
        arming.note_entry(0x100_0001, false, 0);
        arm(&memory, &mut arming, 0xff_ffff);
        assert!(arming.take_event(0x100_0001, 0));
        arm(&memory, &mut arming, 2);
        assert!(!arming.take_event(0x100_0001, 0), "the driver is ahead: nothing is news");
    }

    #[test]
    fn solicited_only_waits_for_a_solicited_entry() {
        let (memory, mut arming) = arming();
        arm(&memory, &mut arming, SOLICITED_ONLY);
        arming.note_entry(1, false, 0);
        assert!(!arming.take_event(1, 0));
        arming.note_entry(2, true, 0);
        assert!(arming.take_event(2, 0));
    }

    #[test]
    fn moderation_holds_until_the_count_or_the_time() {
        let (memory, mut arming) = arming();
        arming.moderate(Moderation { count: 3, period_us: 10 });
        arm(&memory, &mut arming, 0);
        arming.note_entry(1, false, 1000);
        arming.note_entry(2, false, 9000);
        assert!(!arming.take_event(2, 10_999));
        assert!(arming.take_event(2, 11_000), "the oldest is 10 us old");

        arm(&memory, &mut arming, 2);
        for behind in 3..=4 {
            arming.note_entry(behind, false, 20_000);
            assert!(!arming.take_event(behind, 20_000));
        }
        arming.note_entry(5, false, 20_000);
        assert!(arming.take_event(5, 20_000), "the third");
    }

    #[test]
    fn half_a_moderation_is_none() {
        for moderation in [Moderation { count: 9, period_us: 0 }, Moderation { count: 0, period_us: 9 }] {
            let (memory, mut arming) = arming();
            arming.moderate(moderation);
            arm(&memory, &mut arming, 0);
            arming.note_entry(1, false, 0);
            assert!(arming.take_event(1, 0), "{moderation:?}");
        }
    }
}
