//! The books of all channels of a ring, behind one record and before the next.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use market::event::{self, DepthAction, Event, Liquidity, Other};
use market::{BookIdx, Books, Capacity, OrderBooks, OrderRef, Side, Symbol};
use market_ring::{Flags, Read, Record, RingReader, WholeChannels};

use super::{Depth, Image, ImageRequest};

/// Why there is no image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Unknown(Symbol),
    /// Several channels bring it.
    Ambiguous(Symbol, Vec<u16>),
    /// The feed's books, or ours, lack something.
    NotWhole(u16),
    /// They are not built of orders.
    NoOrders(u16),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(symbol) => write!(f, "no order of {symbol} has come so far"),
            Self::Ambiguous(symbol, channels) => {
                write!(f, "channels {channels:?} bring {symbol}: say which is meant")
            }
            Self::NotWhole(channel) => {
                write!(
                    f,
                    "books of channel {channel} miss something until the next image of the feed, or session: ask again"
                )
            }
            Self::NoOrders(channel) => {
                write!(f, "the feed of channel {channel} has no orders of which images are made")
            }
        }
    }
}

struct Channel {
    books: OrderBooks,
    /// The orders of each book, so that an image takes as long as its own book is large.
    orders: Vec<HashSet<OrderRef>>,
    /// The feed's books miss something until its next `Clear`.
    is_doubtful: bool,
    /// It has events that these books are not built from.
    is_other: bool,
}

impl Channel {
    fn new(capacity: Capacity) -> Self {
        Self { books: OrderBooks::new(capacity), orders: Vec::new(), is_doubtful: false, is_other: false }
    }

    fn apply(&mut self, record: &Record, is_whole: bool) {
        let event = &record.event;
        let change = self.books.apply(event);
        if let Some(change) = change {
            self.keep_orders(event, change.book);
        }
        let book = change.map(|change| change.book).or_else(|| self.books.find(event.symbol()?));
        // A book that has no place for its orders, here as in the feed, is one that is stale alone.
        let is_lacking = book.is_some_and(|book| self.books.is_stale(book));
        match event {
            Event::Clear(_) => {
                self.orders.clear();
                self.is_doubtful = false;
            }
            // A gap, or a message that cannot be decoded.
            Event::Other(Other { kind: 0, .. }) if record.flags.contains(Flags::STALE) => self.is_doubtful = true,
            // Orders of the feed's image, which follow a `Clear`, are stale until it is whole.
            _ => self.is_doubtful |= record.flags.contains(Flags::STALE) && is_whole && !is_lacking,
        }
        self.is_other |= is_other(event);
    }

    fn keep_orders(&mut self, event: &Event, book: BookIdx) {
        let at = book.0 as usize;
        if at >= self.orders.len() {
            self.orders.resize_with(at + 1, HashSet::new);
        }
        let orders = &mut self.orders[at];
        match event {
            Event::Add(add) => _ = orders.insert(add.order),
            Event::Replace(replace) => {
                orders.remove(&replace.old);
                orders.insert(replace.new);
            }
            Event::BookReset(_) => orders.clear(),
            Event::Execute(event::Execute { order, .. })
            | Event::Cancel(event::Cancel { order, .. })
            | Event::Delete(event::Delete { order, .. })
                if self.books.order(*order).is_none() =>
            {
                orders.remove(order);
            }
            _ => (),
        }
    }

    fn orders_of(&self, book: BookIdx) -> Vec<Event> {
        let orders = self.orders.get(book.0 as usize).into_iter().flatten();
        let symbol = self.books.symbol(book);
        let found = orders.filter_map(|order| self.books.order(*order)).filter(|add| add.symbol == symbol);
        let mut found: Vec<_> = found.collect();
        found.sort_unstable_by_key(|add| add.order);
        found.into_iter().map(Event::Add).collect()
    }
}

/// Whether an event changes books of another kind.
const fn is_other(event: &Event) -> bool {
    matches!(
        event,
        Event::PriceLevel(_)
            | Event::Depth(_)
            | Event::Order(_)
            | Event::Quote(_)
            | Event::Numbered(_)
            | Event::Snapshot(_)
            | Event::OrderSnapshot(_)
    )
}

/// See the module.
pub(super) struct RingBooks {
    reader: RingReader,
    capacity: Capacity,
    channels: BTreeMap<u16, Channel>,
    whole: WholeChannels,
}

impl RingBooks {
    /// With so much room for the books of each channel, whose memory is touched when it is used.
    pub(super) fn new(reader: RingReader, capacity: Capacity) -> Self {
        Self { reader, capacity, channels: BTreeMap::new(), whole: WholeChannels::default() }
    }

    /// The first record that the books do not have.
    pub(super) fn next_seq(&self) -> u64 {
        self.reader.next_seq()
    }

    /// Records that are written and not read.
    pub(super) fn behind(&self) -> u64 {
        self.reader.behind()
    }

    /// Reads so many records at most, and returns how many there were.
    pub(super) fn read(&mut self, most: usize) -> usize {
        for count in 0..most {
            let read = self.reader.read();
            self.whole.take(&read);
            match read {
                Read::Record { record, .. } => self.apply(&record),
                Read::Empty | Read::Closed => return count,
                Read::Joined { .. } | Read::Overrun { .. } | Read::Unknown { .. } => (),
            }
        }
        most
    }

    fn apply(&mut self, record: &Record) {
        let is_whole = self.whole.is_whole(record.channel);
        let channel = self.channels.entry(record.channel).or_insert_with(|| Channel::new(self.capacity));
        channel.apply(record, is_whole);
    }

    pub(super) fn image(&self, request: &ImageRequest) -> Result<Image, Refusal> {
        let symbol = request.symbol;
        let found: Vec<_> = self
            .channels
            .iter()
            .filter(|(number, _)| request.channel.is_none_or(|wanted| wanted == **number))
            .filter_map(|(&number, channel)| Some((number, channel, channel.books.find(symbol)?)))
            .collect();
        let (number, channel, book) = match found[..] {
            [] => return Err(Refusal::Unknown(symbol)),
            [one] => one,
            _ => return Err(Refusal::Ambiguous(symbol, found.iter().map(|(number, ..)| *number).collect())),
        };
        if channel.is_other {
            return Err(Refusal::NoOrders(number));
        }
        if channel.is_doubtful || !self.whole.is_whole(number) || channel.books.is_stale(book) {
            return Err(Refusal::NotWhole(number));
        }
        let events = match request.depth {
            Depth::Levels => levels(&channel.books, book, symbol),
            Depth::Orders => channel.orders_of(book),
        };
        let flags = Flags::END_OF_EVENT.and(Flags::SNAPSHOT);
        let records =
            events.into_iter().map(|event| Record { channel: number, flags, ..Record::new(0, event) }).collect();
        Ok(Image { session: self.reader.session(), seq: self.next_seq(), channel: number, records })
    }
}

fn levels(books: &OrderBooks, book: BookIdx, symbol: Symbol) -> Vec<Event> {
    let level = |side: Side| {
        books.depth(book, side).enumerate().map(move |(idx, (price, qty, orders))| {
            Event::Depth(event::Depth {
                side,
                liquidity: Liquidity::Direct,
                action: DepthAction::Snapshot,
                level: u8::try_from(idx + 1).unwrap_or(u8::MAX),
                orders,
                at_ns: 0,
                price: price.into(),
                symbol,
                qty,
                rpt_seq: 0,
            })
        })
    };
    level(Side::Buy).chain(level(Side::Sell)).collect()
}
