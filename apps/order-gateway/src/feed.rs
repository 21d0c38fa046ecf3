//! The feed: MoldUDP64 with ITCH 5.0 on one line or two, to the best prices of our instruments.

use market::framing::mold_udp64::MoldUdp64;
use market::itch50::Itch50;
use market::{
    AbChannel, AbConfig, BookBuilder, BookIdx, Books, Capacity, ChannelHandler, Codec, Gap, Line, OrderBooks,
    SequenceCounts, Symbol,
};
use order_entry::risk::InstrumentIdx;

use crate::strategy::BookEvent;

/// Sizes and rules of a feed.
#[derive(Clone, Copy, Debug, Default)]
pub struct FeedConfig {
    /// Lines, holes and restarts. By default two lines.
    pub channel: AbConfig,
    /// Memory of the books. By default that of a whole Nasdaq day.
    pub books: Capacity,
}

/// The books of one channel.
#[derive(Debug)]
pub struct Feed {
    channel: AbChannel<MoldUdp64>,
    state: State,
}

#[derive(Debug)]
struct State {
    builder: BookBuilder<Itch50, OrderBooks>,
    symbols: Box<[Symbol]>,
    /// The instrument of each book; `None` for books that nobody trades.
    instruments: Box<[Option<InstrumentIdx>]>,
    /// Books whose best prices may have changed in this packet.
    changed: Vec<BookIdx>,
    is_all_changed: bool,
}

impl Feed {
    /// A feed for `symbols`, whose positions are the numbers of instruments.
    pub fn new(symbols: &[Symbol], config: &FeedConfig) -> Self {
        let books = config.books.books;
        let state = State {
            builder: BookBuilder::new(Itch50, OrderBooks::new(config.books)),
            symbols: symbols.into(),
            instruments: vec![None; books].into_boxed_slice(),
            changed: Vec::with_capacity(symbols.len()),
            is_all_changed: false,
        };
        Self { channel: AbChannel::new(config.channel), state }
    }

    /// Takes a packet. Returns whether it shows that the feed lives: a packet of another session,
    /// or of none, does not. [`Feed::publish`] then gives what it changed.
    #[must_use = "a feed that only sends what is not its own is silent"]
    pub fn on_packet(&mut self, line: Line, packet: &[u8], now_ns: u64) -> bool {
        self.channel.on_packet(line, packet, now_ns, &mut self.state)
    }

    /// Gives the books of our instruments that have changed to `take`, each once.
    pub fn publish(&mut self, now_ns: u64, take: impl FnMut(&BookEvent)) {
        self.state.publish(now_ns, take);
    }

    /// Messages that came, and those that no line brought.
    pub fn counts(&self) -> &SequenceCounts {
        self.channel.arbiter().counts()
    }

    /// Time passes: holes become gaps.
    pub fn tick(&mut self, now_ns: u64, take: impl FnMut(&BookEvent)) {
        self.channel.tick(now_ns, &mut self.state);
        self.state.publish(now_ns, take);
    }
}

impl State {
    fn publish(&mut self, at_ns: u64, mut take: impl FnMut(&BookEvent)) {
        if core::mem::take(&mut self.is_all_changed) {
            for number in 0..self.symbols.len() {
                if let Some(book) = self.builder.books.find(self.symbols[number]) {
                    take(&self.event(InstrumentIdx(number as u32), book, at_ns));
                }
            }
            self.changed.clear();
            return;
        }
        while let Some(book) = self.changed.pop() {
            if let Some(instrument) = self.instruments[book.0 as usize] {
                take(&self.event(instrument, book, at_ns));
            }
        }
    }

    fn event(&self, instrument: InstrumentIdx, book: BookIdx, at_ns: u64) -> BookEvent {
        let top = self.builder.books.top(book);
        let side = |price, qty: u64| (qty > 0).then(|| (price, u32::try_from(qty).unwrap_or(u32::MAX)));
        let (bid, offer) = (side(top.bid_px, top.bid_qty), side(top.ask_px, top.ask_qty));
        BookEvent { instrument, bid, offer, is_stale: self.builder.books.is_stale(book), at_ns }
    }

    /// The instrument of `book`, which is looked up once.
    fn instrument(&mut self, book: BookIdx) -> Option<InstrumentIdx> {
        let known = self.instruments[book.0 as usize];
        if known.is_some() {
            return known;
        }
        let symbol = self.builder.books.symbol(book);
        let number = self.symbols.iter().position(|known| *known == symbol)?;
        self.instruments[book.0 as usize] = Some(InstrumentIdx(number as u32));
        self.instruments[book.0 as usize]
    }
}

impl ChannelHandler for State {
    fn on_message(&mut self, _seq: u64, message: &[u8]) {
        let mut codec = Itch50;
        let Some(event) = codec.decode_counted(message, &mut self.builder.counts) else { return };
        let Some(change) = self.builder.books.apply(&event) else { return };
        if change.is_top && self.instrument(change.book).is_some() && !self.changed.contains(&change.book) {
            self.changed.push(change.book);
        }
    }

    fn on_gap(&mut self, gap: Gap) {
        self.builder.on_gap(gap);
        self.is_all_changed = true;
    }

    fn on_restart(&mut self) {
        self.builder.on_restart();
        self.is_all_changed = true;
    }
}
