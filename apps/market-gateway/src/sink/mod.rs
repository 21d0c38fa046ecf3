//! [`RingSink`]: the events and quotes of a worker's channels into its ring.
//!
//! All channels of a worker share one ring, whose only writer their worker is. Each has its own
//! part of the quotes. When books become stale, or whole again, the quotes that no event touches
//! are marked a few at a time, turn by turn, so that no turn is long.
//!
//! Books that were rebuilt from an image have orders that no record was about. So a `Clear` and
//! then all resting orders are published, some in each turn while events go on; readers that build
//! books of their own have the feed's when no record is stale any more. An order that was replaced
//! meanwhile is published at once, because the readers need not know the one before it; an order
//! that comes twice is one that a reader has. The orders come at a bounded rate: a turn takes less
//! than a microsecond, and readers that keep up with the feed would be overrun by one order after
//! the other.
//!
//! The quote of an instrument that the venue has halted says so: at once where a message was about
//! it, within some turns where it was about all instruments, or where an image has told of it.
//!
//! A gap, and a message that cannot be decoded, are a record at once, because silence would look
//! like a quiet market to readers that build books of their own.

use core::cell::{Cell, RefCell};
use core::ops::Range;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use feed_handler::{Channels, Error, Place, SinkContext};
use market::event::{Add, Clear, Event, GroupStatus, Instrument, Other, Status};
use market::{BookIdx, Books, Change, EventSink, Gap, Halts, Symbol, TopOfBook};
use market_ring::{Flags, OpenError, Quote, Record, RingConfig, RingReader, RingWriter};
use wirepath::counters::{Counter, Scope, Unit};

use crate::counts::GatewayCounts;

/// Quotes that one turn marks: some microseconds.
const MARKED_PER_TURN: usize = 64;
/// Parts of the resting orders that one turn looks at; at most every second one has an order.
const PARTS_PER_TURN: usize = 128;
/// Resting orders that one turn publishes behind another one that took long.
const ORDERS_PER_TURN: u64 = 16;
/// Time between two resting orders that are published: a million a second, the rate of a feed in
/// its busiest milliseconds. A day's three million orders take three seconds.
const ORDER_NS_MIN: u64 = 1_000;
/// Time in which the resting orders may fill the ring, so long a reader may pause: a small ring
/// gets them more slowly.
const FILL_NS_MIN: u64 = 40_000_000;

/// No event of the venue: the record of a gap or a doubt, which has flags alone.
const NOTHING: Event = Event::Other(Other { kind: 0, at_ns: 0 });

/// Writes a channel's events to the ring of its worker. Clones share the ring. An event costs a
/// copy of 128 bytes, a changed best price another one; nothing allocates or waits.
#[derive(Clone)]
pub struct RingSink {
    shared: Rc<Shared>,
    channel: u16,
    /// Where its quotes are in the ring.
    quotes: Range<usize>,
    /// Quotes that it has written: books below this.
    used: usize,
    /// The next quote to be marked; `used` and beyond: all are.
    marked: usize,
    /// Quotes that were written anew since the books were rebuilt, which gave them other indices.
    renewed: usize,
    /// The next part of the resting orders that is published, after the books were rebuilt.
    image: Option<usize>,
    receive_ns: u64,
    is_stale: bool,
    /// Between the begin and the end of a snapshot, whose state may be that of a group.
    is_in_snapshot: bool,
    halts: Halts,
}

struct Shared {
    ring: RefCell<RingWriter>,
    channels: Channels,
    counts: Arc<GatewayCounts>,
    /// For `wirepath stats`: changes of quotes for which the ring has no place.
    quotes_refused: Counter,
    /// The same of states of instruments whose halts have no place.
    halts_refused: Counter,
    unix_offset_ns: u64,
    /// Time between two resting orders, of all channels.
    order_ns: u64,
    /// When the next of them may be published.
    order_due_ns: Cell<u64>,
}

impl Shared {
    fn create(path: &Path, config: &RingConfig, channels: Channels, scope: &Scope) -> Result<Self, OpenError> {
        Ok(Self {
            ring: RefCell::new(RingWriter::create(path, config)?),
            channels,
            counts: Arc::default(),
            quotes_refused: scope.scope("ring").counter("quotes_refused", Unit::Events),
            halts_refused: scope.scope("ring").counter("halts_refused", Unit::Events),
            unix_offset_ns: 0,
            order_ns: ORDER_NS_MIN.max(FILL_NS_MIN / config.records.max(1) as u64),
            order_due_ns: Cell::new(0),
        })
    }
}

impl RingSink {
    /// Makes the ring of a worker at `path`; its quotes are divided equally among the configured
    /// channels.
    pub fn create(
        path: &Path,
        config: &RingConfig,
        context: &SinkContext,
        counts: Arc<GatewayCounts>,
    ) -> Result<Self, Error> {
        let shared = Shared::create(path, config, channels_of(context), &context.scope).map_err(Error::failed)?;
        let instruments = context.plan.instruments_max();
        Ok(Self::over(Shared { counts, unix_offset_ns: context.unix_offset_ns, ..shared }, instruments))
    }

    /// Quotes with which each instrument that the books of a worker have a place for has one.
    pub fn quotes_wanted(context: &SinkContext) -> usize {
        channels_of(context).count() * context.plan.instruments_max()
    }

    /// Channels of a worker whose life a ring does not tell: the first and the last.
    pub fn lifeless_channels(context: &SinkContext) -> Option<(usize, usize)> {
        lifeless(channels_of(context).numbers_end())
    }

    /// With room for the halts of so many instruments of a channel.
    fn over(shared: Shared, instruments: usize) -> Self {
        Self {
            shared: Rc::new(shared),
            channel: 0,
            quotes: 0..0,
            used: 0,
            marked: 0,
            renewed: usize::MAX,
            image: None,
            receive_ns: 0,
            is_stale: false,
            is_in_snapshot: false,
            halts: Halts::new(instruments),
        }
    }

    #[inline]
    fn publish(&mut self, venue_seq: u64, event: Event, flags: Flags) -> u64 {
        let (receive_ns, channel) = (self.receive_ns, self.channel);
        let record = Record { venue_seq, receive_ns, publish_ns: 0, channel, flags, event };
        self.shared.ring.borrow_mut().publish(&record);
        self.shared.counts.add_record();
        record.exchange_ns()
    }

    #[inline]
    fn quote(&mut self, book: BookIdx, venue_seq: u64, exchange_ns: u64, books: &impl Books) {
        let TopOfBook { bid_px, bid_qty, ask_px, ask_qty } = books.top(book);
        let quote = Quote {
            venue_seq,
            exchange_ns,
            receive_ns: self.receive_ns,
            publish_ns: 0,
            symbol: books.symbol(book),
            channel: self.channel,
            bid_px,
            bid_qty,
            ask_px,
            ask_qty,
            flags: self.marks(book, books),
        };
        let idx = self.quotes.start + book.0 as usize;
        let is_written = idx < self.quotes.end && self.shared.ring.borrow_mut().update(idx, &quote);
        if is_written {
            self.used = self.used.max(book.0 as usize + 1);
        }
        self.shared.counts.add_quote(is_written);
        if !is_written {
            self.shared.quotes_refused.inc();
        }
    }

    /// Marks the quote of a book that was rebuilt, where an event has written it since, or the
    /// image has left its best prices alone: it keeps the numbers and times of the event. `false`
    /// where it says something else than the book.
    fn keep_quote(&mut self, book: BookIdx, books: &impl Books) -> bool {
        let (symbol, top, mut is_same) = (books.symbol(book), books.top(book), false);
        self.shared.ring.borrow_mut().revise(self.quotes.start + book.0 as usize, |quote| {
            let Quote { bid_px, bid_qty, ask_px, ask_qty, .. } = *quote;
            is_same = quote.symbol == symbol && TopOfBook { bid_px, bid_qty, ask_px, ask_qty } == top;
            quote.flags = if is_same { self.marks(book, books) } else { quote.flags };
        });
        is_same
    }

    /// All orders are gone, once in a session.
    #[cold]
    fn clear_quotes(&mut self) {
        let mut ring = self.shared.ring.borrow_mut();
        for idx in self.quotes.start..self.quotes.start + self.used {
            ring.revise(idx, |quote| {
                let flags = with_halt(Flags::END_OF_EVENT, self.halts.is_halted(quote.symbol));
                (quote.bid_qty, quote.ask_qty, quote.flags) = (0, 0, flags);
            });
        }
        self.marked = self.used;
    }

    /// Writes some quotes anew, after books were rebuilt: each has another place then.
    #[cold]
    fn renew(&mut self, books: &impl Books) {
        let until = self.used.max(books.len()).min(self.renewed + MARKED_PER_TURN);
        for book in self.renewed..until {
            if book < books.len() {
                let book = BookIdx(book as u32);
                if !self.keep_quote(book, books) {
                    self.quote(book, 0, 0, books);
                }
            } else {
                // Its instrument has another place now, or is none of the books any more.
                let idx = self.quotes.start + book;
                self.shared.ring.borrow_mut().revise(idx, |quote| {
                    (quote.bid_qty, quote.ask_qty, quote.flags) = (0, 0, Flags::END_OF_EVENT.and(Flags::STALE));
                    quote.symbol = Symbol::default();
                });
            }
        }
        self.renewed = if until < self.used.max(books.len()) { until } else { usize::MAX };
    }

    /// Publishes some of the orders that rest in books that were rebuilt, as many as are due.
    #[cold]
    fn publish_image(&mut self, from: usize, books: &impl Books, now_ns: u64) {
        let until = books.order_parts().min(from + PARTS_PER_TURN);
        let order_ns = self.shared.order_ns;
        // What was not published while the worker had other work comes in no burst.
        let mut due_ns = self.shared.order_due_ns.get().max(now_ns.saturating_sub(ORDERS_PER_TURN * order_ns));
        let mut next = from;
        while next < until && due_ns <= now_ns {
            books.orders_of(next, |order| {
                due_ns += order_ns;
                self.publish_resting(order);
            });
            next += 1;
        }
        self.shared.order_due_ns.set(due_ns);
        self.image = (next < books.order_parts()).then_some(next);
    }

    #[cold]
    fn publish_resting(&mut self, order: Add) {
        let flags = Flags::END_OF_EVENT.and(Flags::SNAPSHOT).and(Flags::STALE);
        self.publish(0, Event::Add(order), flags);
    }

    /// Publishes an event with what it is worth, and the quotes that it changes.
    #[inline]
    fn publish_event<B: Books>(&mut self, seq: u64, event: &Event, change: Option<Change>, books: &B, flags: Flags) {
        let book = change.map(|change| change.book).or_else(|| books.find(event.symbol()?));
        let is_stale = book.map_or(self.is_stale, |book| books.is_stale(book)) || self.image.is_some();
        let is_end = B::ends_event(event);
        let flags = if is_end { flags.and(Flags::END_OF_EVENT) } else { flags };
        let exchange_ns = self.publish(seq, *event, if is_stale { flags.and(Flags::STALE) } else { flags });
        match event {
            Event::Clear(_) => self.clear_quotes(),
            Event::Replace(replace) if self.image.is_some() => {
                books.order(replace.new).into_iter().for_each(|order| self.publish_resting(order));
            }
            Event::Snapshot(_) => self.is_in_snapshot = true,
            Event::SnapshotEnd(_) => self.is_in_snapshot = false,
            Event::Status(status) => self.status(status, books),
            Event::GroupStatus(status) => self.group_status(status, books),
            Event::Instrument(instrument) => self.define(instrument, books),
            Event::EndOfEvent(_) => {
                books.published().iter().for_each(|&book| self.quote(book, seq, exchange_ns, books));
            }
            _ => (),
        }
        if let Some(change) = change
            && change.is_top
            && is_end
        {
            self.quote(change.book, seq, exchange_ns, books);
        }
    }

    /// Marks some quotes as stale, or as whole again, as halted, or as traded again.
    #[cold]
    fn mark(&mut self, books: &impl Books) {
        let until = self.used.min(self.marked + MARKED_PER_TURN);
        (self.marked..until).for_each(|book| self.mark_quote(BookIdx(book as u32), books));
        self.marked = until;
    }

    fn mark_quote(&self, book: BookIdx, books: &impl Books) {
        let flags = self.marks(book, books);
        self.shared.ring.borrow_mut().revise(self.quotes.start + book.0 as usize, |quote| quote.flags = flags);
    }

    /// What a quote is worth.
    fn marks(&self, book: BookIdx, books: &impl Books) -> Flags {
        let flags = match (books.is_stale(book), books.is_unconfirmed(book)) {
            (true, _) => Flags::END_OF_EVENT.and(Flags::STALE),
            (false, true) => Flags::END_OF_EVENT.and(Flags::UNCONFIRMED),
            (false, false) => Flags::END_OF_EVENT,
        };
        with_halt(flags, self.halts.is_halted(books.symbol(book)))
    }

    /// Gives states to the halts, and counts those that find no place.
    fn take_states<T>(&mut self, states: impl FnOnce(&mut Halts) -> T) -> T {
        let before = self.halts.refused();
        let result = states(&mut self.halts);
        let refused = self.halts.refused() - before;
        if refused > 0 {
            self.shared.halts_refused.add(refused);
            self.shared.counts.add_refused_halts(refused);
        }
        result
    }

    /// The venue halts an instrument, or each of the channel, or trades it again.
    #[cold]
    fn status(&mut self, status: &Status, books: &impl Books) {
        let of_snapshot = self.is_in_snapshot;
        if self.take_states(|halts| if of_snapshot { halts.take_snapshot(status) } else { halts.take(status) }) {
            self.mark_meant(status.symbol, books);
        }
    }

    /// The venue halts the instruments of a group, or trades them again.
    #[cold]
    fn group_status(&mut self, status: &GroupStatus, books: &impl Books) {
        if self.take_states(|halts| halts.take_group(status)) {
            self.mark_meant(status.symbol, books);
        }
    }

    /// An instrument has a group, which may be halted.
    #[cold]
    fn define(&mut self, instrument: &Instrument, books: &impl Books) {
        if self.take_states(|halts| halts.define(instrument)) {
            self.mark_instrument(instrument.symbol, books);
        }
    }

    /// One instrument alone, so that a replay of many books does not begin the marking anew with
    /// each.
    fn mark_meant(&mut self, symbol: Symbol, books: &impl Books) {
        if symbol == Symbol::NONE {
            self.marked = 0;
        } else {
            self.mark_instrument(symbol, books);
        }
    }

    fn mark_instrument(&self, symbol: Symbol, books: &impl Books) {
        // The first quote of one that has none yet will say so.
        if let Some(book) = books.find(symbol).filter(|book| (book.0 as usize) < self.used) {
            self.mark_quote(book, books);
        }
    }
}

impl EventSink for RingSink {
    fn opened(&mut self, set: u16, number: u32) {
        let Place { number, place } = self.shared.channels.place(set, number);
        self.channel = number;
        let all = self.shared.ring.borrow().quotes();
        let each = all / self.shared.channels.count();
        let first = each * place;
        // A channel that a replay has learned beyond the configured ones has none.
        self.quotes = first.min(all)..(first + each).min(all);
    }

    #[inline]
    fn packet(&mut self, now_ns: u64) {
        self.receive_ns = now_ns + self.shared.unix_offset_ns;
    }

    #[inline]
    fn alive(&mut self) {
        self.shared.ring.borrow_mut().alive(self.channel);
    }

    #[inline]
    fn event(&mut self, seq: u64, event: &Event, change: Option<Change>, books: &impl Books) {
        self.publish_event(seq, event, change, books, Flags::default());
    }

    fn recovered(&mut self, seq: u64, event: &Event, change: Option<Change>, books: &impl Books) {
        self.publish_event(seq, event, change, books, Flags::SNAPSHOT);
    }

    fn gap(&mut self, gap: Gap, _: &impl Books) {
        (self.is_stale, self.marked, self.image) = (true, 0, None);
        self.halts.gap();
        self.shared.counts.add_gap();
        self.publish(gap.to, NOTHING, Flags::END_OF_EVENT.and(Flags::STALE).and(Flags::GAP_BEFORE));
    }

    fn doubted(&mut self, _: &impl Books) {
        (self.is_stale, self.marked) = (true, 0);
        self.publish(0, NOTHING, Flags::END_OF_EVENT.and(Flags::STALE));
    }

    fn image_statuses(&mut self, statuses: &[Status], is_untold_halted: bool) {
        self.take_states(|halts| halts.take_image(statuses, is_untold_halted));
    }

    fn status_again(&mut self, status: &Status, _: &impl Books) {
        self.take_states(|halts| halts.take(status));
    }

    fn rebuilt(&mut self, books: &impl Books) {
        self.is_stale = false;
        (self.marked, self.renewed) = (self.used.max(books.len()), 0);
        if books.order_parts() > 0 {
            let flags = Flags::END_OF_EVENT.and(Flags::SNAPSHOT).and(Flags::STALE);
            self.publish(0, Event::Clear(Clear { at_ns: 0 }), flags);
            self.image = Some(0);
        }
    }

    fn restart(&mut self) {
        (self.is_stale, self.renewed, self.image) = (false, usize::MAX, None);
        self.halts.clear();
        self.publish(0, Event::Clear(Clear { at_ns: 0 }), Flags::END_OF_EVENT);
        self.clear_quotes();
    }

    #[inline]
    fn turn<B: Books>(&mut self, books: &B, now_ns: u64) {
        // Books that are whole again, because an image was put in their place, say so here first.
        // Books by event are judged one by one.
        if self.is_stale && (B::BY_EVENT || books.are_whole()) {
            (self.is_stale, self.marked) = (false, 0);
        }
        if self.marked < self.used {
            self.mark(books);
        }
        if self.renewed != usize::MAX {
            self.renew(books);
        }
        if let Some(from) = self.image {
            self.publish_image(from, books, now_ns);
        }
    }
}

/// The channels of a worker.
fn channels_of(context: &SinkContext) -> Channels {
    Channels::new(&context.plan.sets, &context.first_channels)
}

/// The channels before `end` that have no place for their life.
fn lifeless(end: usize) -> Option<(usize, usize)> {
    (end > RingReader::LIVES).then(|| (RingReader::LIVES, end - 1))
}

fn with_halt(flags: Flags, is_halted: bool) -> Flags {
    if is_halted { flags.and(Flags::HALTED) } else { flags }
}

#[cfg(test)]
mod tests;
