//! What a gateway has handed on, for the main thread to read while a worker counts.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

/// Counts of all workers together.
#[derive(Debug, Default)]
pub struct GatewayCounts {
    records: AtomicU64,
    quotes: AtomicU64,
    quotes_refused: AtomicU64,
    halts_refused: AtomicU64,
    gaps: AtomicU64,
}

impl GatewayCounts {
    /// Events written to rings.
    pub fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }

    /// Quotes replaced.
    pub fn quotes(&self) -> u64 {
        self.quotes.load(Ordering::Relaxed)
    }

    /// Quotes of instruments for which the ring has no place.
    pub fn quotes_refused(&self) -> u64 {
        self.quotes_refused.load(Ordering::Relaxed)
    }

    /// States of instruments whose halts have no place: their quotes do not say them.
    pub fn halts_refused(&self) -> u64 {
        self.halts_refused.load(Ordering::Relaxed)
    }

    /// Gaps, each of which is a record of its channel.
    pub fn gaps(&self) -> u64 {
        self.gaps.load(Ordering::Relaxed)
    }

    /// A sentence as soon as a quote has no place in a ring, and one as soon as a halt has none.
    pub fn notices(&self) -> [Option<&'static str>; 2] {
        [(self.quotes_refused() > 0).then_some(NO_PLACE), (self.halts_refused() > 0).then_some(NO_PLACE_OF_HALT)]
    }

    pub(crate) fn add_record(&self) {
        self.records.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_quote(&self, is_written: bool) {
        if is_written { &self.quotes } else { &self.quotes_refused }.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_refused_halts(&self, count: u64) {
        self.halts_refused.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn add_gap(&self) {
        self.gaps.fetch_add(1, Ordering::Relaxed);
    }
}

impl fmt::Display for GatewayCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (records, quotes, gaps) = (self.records(), self.quotes(), self.gaps());
        write!(f, "handed on {records} events and {quotes} changes of quotes, {gaps} gaps")?;
        for (refused, no_place) in [(self.quotes_refused(), NO_PLACE), (self.halts_refused(), NO_PLACE_OF_HALT)] {
            if refused > 0 {
                write!(f, "; {refused} changes of {no_place}")?;
            }
        }
        Ok(())
    }
}

/// What an operator is told when the first quote has no place, and at the end.
pub(crate) const NO_PLACE: &str =
    "quotes had no place in the ring: give it more with --quotes, and name each channel in the configuration";

/// The same of halts.
pub(crate) const NO_PLACE_OF_HALT: &str =
    "halts had no place, so quotes may not say them: raise `instruments` of [books] in the configuration";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_quote_without_a_place_is_told() {
        let counts = GatewayCounts::default();
        counts.add_quote(true);
        assert_eq!(counts.notices(), [None; 2]);
        counts.add_quote(false);
        assert_eq!(counts.notices(), [Some(NO_PLACE), None]);
        assert_eq!(counts.to_string().matches(NO_PLACE).count(), 1, "{counts}");
        counts.add_refused_halts(2);
        assert_eq!(counts.notices(), [NO_PLACE, NO_PLACE_OF_HALT].map(Some));
        assert!(counts.to_string().ends_with(&format!("; 2 changes of {NO_PLACE_OF_HALT}")), "{counts}");
    }
}
