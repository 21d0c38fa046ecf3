//! Where each word of the file is. Positions and lengths count words of eight bytes.
//! `include/market_ring.h` repeats these numbers for programs in C; a test reads a ring by it.

/// The first word of each file: "WPRING01".
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"WPRING01");
/// A reader refuses another version.
pub(crate) const VERSION: u64 = 1;

/// Words of the header: a page, so that its words share no cache line with what follows.
pub(crate) const HEADER_WORDS: usize = 512;
/// Words of a record, and of a quote: 128 bytes, the pair of cache lines that x86 prefetches
/// together.
pub(crate) const RECORD_WORDS: usize = 16;
/// Quotes that share a word which changes with any of them.
pub(crate) const GROUP: usize = 64;

pub(crate) const AT_MAGIC: usize = 0;
pub(crate) const AT_VERSION: usize = 1;
pub(crate) const AT_RECORDS: usize = 2;
pub(crate) const AT_QUOTES: usize = 3;
/// Drawn anew for each file, so that a reader tells a restart of the writer.
pub(crate) const AT_SESSION: usize = 4;
/// The sequence that the next record gets. Alone in its cache lines, because the writer stores it
/// with each record.
pub(crate) const AT_NEXT: usize = 16;
/// Set once the writer has ended the stream in order.
pub(crate) const AT_CLOSED: usize = 32;
/// A word for each channel, which changes while the channel lives. A writer that is older leaves
/// them at 0.
pub(crate) const AT_LIFE: usize = 64;
/// Channels that have such a word.
pub(crate) const LIVES: usize = HEADER_WORDS - AT_LIFE;

/// The most records of a ring: 128 GiB, more than any machine of today gives to one.
pub(crate) const RECORDS_MAX: u64 = 1 << 30;
/// The most instruments.
pub(crate) const QUOTES_MAX: u64 = 1 << 22;

/// Where the parts of a file begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Records; a power of two.
    pub(crate) records: u64,
    /// Quotes; a multiple of [`GROUP`].
    pub(crate) quotes: u64,
}

impl Layout {
    /// The layout for at least so many records and quotes; `None` above the limits.
    pub(crate) fn at_least(records: usize, quotes: usize) -> Option<Self> {
        let records = (records.max(2) as u64).checked_next_power_of_two()?;
        let quotes = (quotes as u64).checked_next_multiple_of(GROUP as u64)?;
        Self::exactly(records, quotes)
    }

    /// The layout that a header tells; `None` where no writer of ours would tell it.
    pub(crate) fn exactly(records: u64, quotes: u64) -> Option<Self> {
        let fits = records.is_power_of_two() && (2..=RECORDS_MAX).contains(&records);
        (fits && quotes <= QUOTES_MAX && quotes.is_multiple_of(GROUP as u64)).then_some(Self { records, quotes })
    }

    /// Words of the whole file.
    pub(crate) fn words(&self) -> usize {
        self.ring() + self.records as usize * RECORD_WORDS
    }

    /// The word of the group that a quote is in.
    pub(crate) fn group(&self, quote: usize) -> usize {
        HEADER_WORDS + quote / GROUP
    }

    /// The first word of a quote.
    pub(crate) fn quote(&self, quote: usize) -> usize {
        let groups = (self.quotes as usize / GROUP).next_multiple_of(RECORD_WORDS);
        HEADER_WORDS + groups + quote * RECORD_WORDS
    }

    /// The first word of the record with a sequence.
    pub(crate) fn record(&self, seq: u64) -> usize {
        self.ring() + (seq & (self.records - 1)) as usize * RECORD_WORDS
    }

    fn ring(&self) -> usize {
        self.quote(self.quotes as usize)
    }
}
