//! The feed: MoldUDP64 with ITCH 5.0 on one line or two, to the best prices of our instruments.
//!
//! ```text
//!   line A, line B ─▶ channel ─ in order ─▶ books ─ best prices that changed ─▶ BookEvent
//!                        ▲ │                  ▲
//!                answers │ │ holes            │ an image, and what was queued behind it
//!                        └─┴──── recovery ────┘  ⇄ rings ⇄ a thread with kernel sockets ⇄ servers
//! ```
//!
//! Messages that no line brings make all books stale, and no order passes on stale books. Without
//! servers they stay so until the feed restarts. With a [`FeedRecovery`] a hole is first requested
//! again, while the packets behind it wait, and where that fails the books of an image take the
//! place of ours. Both is asked for here and done by feed-handler's recovery thread: this file
//! makes no system call.

mod books;
mod recovery;
#[cfg(test)]
mod tests;

use market::framing::mold_udp64::MoldUdp64;
use market::image::ImagePolicy;
use market::{AbChannel, AbConfig, Capacity, Line, SequenceCounts, Symbol, Window};

pub use self::books::Depth;
use self::books::FeedBooks;
pub use self::recovery::{FeedRecovery, RecoveryCounts};
use crate::strategy::BookEvent;

/// Packets that may wait behind a hole that is requested again: 60 ms of a busy feed, longer than
/// an answer takes.
const WINDOW_PACKETS: usize = feed_handler::values::WINDOW_PACKETS_ASKING;

/// Sizes and rules of a feed.
#[derive(Clone, Copy, Debug, Default)]
pub struct FeedConfig {
    /// Lines, holes and restarts. By default two lines.
    pub channel: AbConfig,
    /// Memory of the books. By default that of a whole Nasdaq day.
    pub books: Capacity,
    /// The strategy is told of each change of a book, and not of its best prices alone. By default
    /// false.
    pub follows_depth: bool,
}

/// The books of one channel.
#[derive(Debug)]
pub struct Feed {
    channel: AbChannel<MoldUdp64>,
    books: FeedBooks,
    recovery: Option<FeedRecovery>,
    /// Books behind a hole are late when it is so old.
    late_ns: u64,
}

impl Feed {
    /// A feed for `symbols`, whose positions are the numbers of instruments.
    pub fn new(symbols: &[Symbol], config: &FeedConfig) -> Self {
        let books = Self::books(symbols, config, None);
        Self { channel: AbChannel::new(config.channel), books, recovery: None, late_ns: u64::MAX }
    }

    /// The same, which recovers what no line brings. Where messages are requested again, a hole
    /// waits for its requests behind at least 2,048 packets, whatever the window of `config` says.
    /// The books are stale while it does.
    ///
    /// Panics where `recovery` was started for books of other sizes.
    pub fn with_recovery(symbols: &[Symbol], config: &FeedConfig, recovery: FeedRecovery) -> Self {
        assert_eq!(recovery.books(), config.books, "the books of an image take the place of the feed's");
        let late_ns = recovery.retry().map_or(u64::MAX, |retry| retry.delay_ns);
        let window = config.channel.window;
        let window = Window { packets: window.packets.max(WINDOW_PACKETS), ..window };
        let channel = match recovery.retry() {
            Some(retry) => AbChannel::with_requests(AbConfig { window, ..config.channel }, retry),
            None => AbChannel::new(config.channel),
        };
        let books = Self::books(symbols, config, recovery.image());
        Self { channel, books, recovery: Some(recovery), late_ns }
    }

    fn books(symbols: &[Symbol], config: &FeedConfig, image: Option<ImagePolicy>) -> FeedBooks {
        let mut books = FeedBooks::new(symbols, config.books, image);
        if config.follows_depth {
            books.follow_depth();
        }
        books
    }

    /// Takes a packet. Returns whether it shows that the feed lives: a packet of another session,
    /// or of none, does not, nor does one that waits behind a hole, because the books lack what is
    /// before it. [`Feed::publish`] then gives what it changed.
    #[must_use = "a feed that only sends what is not its own is silent"]
    pub fn on_packet(&mut self, line: Line, packet: &[u8], now_ns: u64) -> bool {
        let is_alive = self.channel.on_packet(line, packet, now_ns, &mut self.books);
        is_alive && !self.look_at_hole(now_ns)
    }

    /// Whether a hole is open. The other line had its chance when a hole is to be requested: from
    /// then on the books are those of a time that is over.
    #[inline]
    fn look_at_hole(&mut self, now_ns: u64) -> bool {
        let since_ns = self.channel.arbiter().hole_since_ns();
        self.books.set_late(since_ns.is_some_and(|since_ns| now_ns.saturating_sub(since_ns) >= self.late_ns));
        since_ns.is_some()
    }

    /// Gives the books of our instruments that have changed to `take`, each once.
    pub fn publish(&mut self, now_ns: u64, take: impl FnMut(&BookEvent, Depth<'_>)) {
        self.books.publish(now_ns, take);
    }

    /// Messages that came, and those that no line brought.
    pub fn counts(&self) -> &SequenceCounts {
        self.channel.arbiter().counts()
    }

    /// The outcome of the recovery, where there is one.
    pub fn recovery_counts(&self) -> Option<RecoveryCounts> {
        self.recovery.as_ref()?;
        let requests = self.channel.requests().copied().unwrap_or_default();
        Some(RecoveryCounts { requests, images: self.books.image_counts().unwrap_or_default() })
    }

    /// What the thread of the recovery tells people: a server that is not there.
    pub fn take_notice(&mut self) -> Option<String> {
        self.recovery.as_mut()?.take_notice()
    }

    /// Time passes: holes become gaps, or are asked for.
    pub fn tick(&mut self, now_ns: u64, take: impl FnMut(&BookEvent, Depth<'_>)) {
        self.channel.tick(now_ns, &mut self.books);
        if let Some(recovery) = &mut self.recovery
            && recovery.is_due(now_ns)
        {
            recovery.turn(&mut self.channel, &mut self.books, now_ns);
        }
        self.look_at_hole(now_ns);
        self.books.publish(now_ns, take);
    }
}
