//! The results of a feed, as plain values that leave the worker's thread at the end.

use core::net::SocketAddrV4;

use market::{
    BookCounts, BookIdx, Books, EventSink, Gap, HoleCounts, LineCounts, MessageCounts, SequenceCounts, Symbol,
    TopOfBook,
};

use super::app::Feed;
use super::channel::{Channel, GapLog};
use super::latency::Latency;
use super::recovery::RecoveryTally;
use crate::format::{Format, Protocol};

/// The whole feed.
#[derive(Clone, Debug)]
pub struct FeedTally {
    /// In the order of their first packets.
    pub channels: Vec<ChannelTally>,
    /// Datagrams to groups beyond [`GROUPS_MAX`](super::GROUPS_MAX).
    pub groups_refused: u64,
    /// Latencies of packets.
    pub latency: Latency,
}

/// One channel.
#[derive(Clone, Debug)]
pub struct ChannelTally {
    /// The operator's name for it, or its first group.
    pub name: String,
    /// The format of its packets.
    pub format: Format,
    /// Its number in the packets.
    pub channel: u32,
    /// Delivered, duplicate, late and missing messages.
    pub sequence: SequenceCounts,
    /// The outcomes of holes.
    pub holes: HoleCounts,
    /// Messages that should have waited, but no buffer was free for them.
    pub not_kept: u64,
    /// Messages that the decoder was given: those of [`SequenceCounts::delivered`], or, where the
    /// sequence numbers packets, those in the delivered packets.
    pub built: u64,
    /// Messages by type, and those that could not be decoded.
    pub messages: MessageCounts,
    /// Its first number, where it was joined late on purpose and has not restarted since.
    pub joined_at: Option<u64>,
    /// The first gaps, up to [`ChannelTally::GAPS_MAX`].
    pub gaps: Vec<Gap>,
    /// Each line that was received or configured.
    pub lines: Vec<LineTally>,
    /// Its books.
    pub books: BooksTally,
    /// What servers brought; `None` where it has none.
    pub recovery: Option<RecoveryTally>,
}

/// One line of a channel.
#[derive(Clone, Debug)]
pub struct LineTally {
    /// `A`, `B` …, or as configured.
    pub name: String,
    /// Its group.
    pub group: SocketAddrV4,
    /// Its counts.
    pub counts: LineCounts,
}

/// The books of one channel.
#[derive(Clone, Debug)]
pub struct BooksTally {
    /// Instruments that were mentioned.
    pub instruments: usize,
    /// Of these, with a bid and an offer.
    pub two_sided: usize,
    /// Of these, stale because messages are missing.
    pub stale: usize,
    /// Of those that are not, unconfirmed: what is missing may be theirs.
    pub unconfirmed: usize,
    /// Their counts.
    pub counts: BookCounts,
    /// The counts that their kind alone has, by name.
    pub own_counts: Vec<(&'static str, u64)>,
    /// Best bid and offer of the requested ones.
    pub tops: Vec<Top>,
}

/// Best bid and offer of one instrument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Top {
    /// The instrument.
    pub symbol: Symbol,
    /// Its best prices.
    pub top: TopOfBook,
    /// Messages of its channel are missing.
    pub stale: bool,
}

/// The instruments whose top of book is wanted at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tops {
    /// Every instrument's.
    All,
    /// Up to this many of the books with prices; those with a bid and an offer come first.
    First(usize),
}

impl FeedTally {
    /// Adds another worker's results.
    pub(crate) fn add(&mut self, other: Self) {
        self.channels.extend(other.channels);
        self.groups_refused += other.groups_refused;
        // Both histograms have the same bounds, so adding cannot fail.
        let _ = self.latency.histogram.add(&other.latency.histogram);
    }
}

impl ChannelTally {
    /// Gaps that are listed at most; [`SequenceCounts::gaps`] counts all.
    pub const GAPS_MAX: usize = GapLog::GAPS_MAX;
}

impl<P: Protocol, S: EventSink + Clone> Feed<P, S> {
    /// Everything that happened so far.
    pub fn tally(&self, tops: Tops) -> FeedTally {
        let channels = self.channels.iter().map(|channel| self.channel_tally(channel, tops)).collect();
        FeedTally { channels, groups_refused: self.groups_refused, latency: self.sampler.latency() }
    }

    fn channel_tally(&self, channel: &Channel<P, S>, tops: Tops) -> ChannelTally {
        let set = &self.sets[usize::from(channel.key.set)];
        let sources = || set.lines.iter().map(|&source| &self.sources[source as usize]);
        let first = sources().map(|source| source.group).min();
        let mut lines: Vec<_> = sources()
            .zip(channel.arbiter.lines())
            .map(|(source, counts)| LineTally {
                name: source.name.clone().unwrap_or_default(),
                group: source.group,
                counts,
            })
            .collect();
        if set.name.is_none() {
            // The line that a learned set received first is random; the lower address is line A.
            lines.sort_by_key(|line| line.group);
            lines.iter_mut().zip('A'..).for_each(|(line, letter)| line.name = letter.to_string());
        }
        ChannelTally {
            name: set.name.clone().or(first.map(|group| group.to_string())).unwrap_or_default(),
            format: P::FORMAT,
            channel: channel.key.channel,
            sequence: *channel.arbiter.counts(),
            holes: *channel.arbiter.holes(),
            not_kept: channel.not_kept,
            built: channel.delivered(),
            messages: channel.builder.counts.clone(),
            joined_at: channel.joined_at,
            gaps: channel.gaps.gaps.clone(),
            lines,
            books: books_tally(&channel.builder.books, tops),
            recovery: channel.recovery.as_ref().map(|recovery| recovery.tally::<P::Books>(channel.arbiter.answers())),
        }
    }
}

fn books_tally(books: &impl Books, tops: Tops) -> BooksTally {
    let all = || {
        (0..books.len() as u32).map(BookIdx).map(|idx| Top {
            symbol: books.symbol(idx),
            top: books.top(idx),
            stale: books.is_stale(idx),
        })
    };
    let is_priced = |top: &Top| top.top.bid_qty > 0 || top.top.ask_qty > 0;
    let two_sided = |top: &Top| top.top.bid_qty > 0 && top.top.ask_qty > 0;
    let wanted = match tops {
        Tops::All => all().collect(),
        Tops::First(count) => {
            all().filter(two_sided).chain(all().filter(|top| is_priced(top) && !two_sided(top))).take(count).collect()
        }
    };
    let mut own_counts = Vec::new();
    books.own_counts(|name, count| own_counts.push((name, count)));
    BooksTally {
        instruments: books.len(),
        two_sided: all().filter(two_sided).count(),
        stale: all().filter(|top| top.stale).count(),
        unconfirmed: (0..books.len() as u32).filter(|&idx| books.is_unconfirmed(BookIdx(idx))).count(),
        counts: *books.counts(),
        own_counts,
        tops: wanted,
    }
}
