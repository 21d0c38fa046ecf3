//! [`ExposeSink`]: the books of a worker's channels into slots that other machines READ.
//!
//! An event marks its book, which costs a store or two. The marked books are published in the
//! worker's turns, a few in each, so that no burst of events is slowed by more than a bounded time,
//! and a book that changes often is published once a turn and not once an event. A turn that ends
//! within an event of the venue publishes nothing: no reader sees a book between two states.

use core::cell::RefCell;
use std::rc::Rc;

use market::event::Event;
use market::{BookIdx, BookSnapshot, Books, Change, EventSink, Gap, LastEvent};
use rdma::snapshot::Publisher;
use zerocopy::IntoBytes;

use crate::channels::Channels;

/// Books that one turn publishes of a channel: some two microseconds.
const PUBLISHED_PER_TURN: usize = 8;
/// Books that one turn marks, where all are to be published anew.
const RENEWED_PER_TURN: usize = 64;
/// Books whose flags one turn compares with those that were published, where some may have become
/// whole without an event.
const SWEPT_PER_TURN: usize = 8;

/// Publishes the books of a channel. Clones share the slots of their worker.
pub struct ExposeSink {
    shared: Rc<Shared>,
    channel: u16,
    /// The first of its slots.
    first: usize,
    books: Box<[Exposed]>,
    marked: Marked,
    receive_ns: u64,
    /// The last event left the books between two states.
    is_within: bool,
    /// Books below this are as they were published, or marked; 0 again where all are published
    /// anew.
    renewed: usize,
    /// The next book to be swept; `None` while nothing was ever missing.
    swept: Option<usize>,
    /// Books that were ever marked.
    used: usize,
}

struct Shared {
    publisher: RefCell<Publisher>,
    channels: Channels,
    unix_offset_ns: u64,
    slots: usize,
}

/// What a sink knows of a book.
#[derive(Clone, Copy, Default)]
struct Exposed {
    last: LastEvent,
    is_marked: bool,
    /// Stale and unconfirmed, as they were published.
    flags: (bool, bool),
}

/// The books that are to be published, each once, the oldest first.
struct Marked {
    ring: Box<[u32]>,
    head: usize,
    len: usize,
}

impl Marked {
    fn push(&mut self, book: usize) {
        let at = self.head + self.len;
        let at = if at >= self.ring.len() { at - self.ring.len() } else { at };
        self.ring[at] = book as u32;
        self.len += 1;
    }

    fn pop(&mut self) -> Option<usize> {
        self.len = self.len.checked_sub(1)?;
        let book = self.ring[self.head];
        self.head = if self.head + 1 == self.ring.len() { 0 } else { self.head + 1 };
        Some(book as usize)
    }
}

impl ExposeSink {
    /// A sink over the slots of a worker, which its channels share equally. `unix_offset_ns` as in
    /// [`SinkContext`](crate::SinkContext).
    pub fn new(publisher: Publisher, channels: Channels, unix_offset_ns: u64) -> Self {
        let slots = publisher.slots();
        Self::over(Rc::new(Shared { publisher: RefCell::new(publisher), channels, unix_offset_ns, slots }))
    }

    fn over(shared: Rc<Shared>) -> Self {
        let count = shared.slots / shared.channels.count();
        Self {
            shared,
            channel: 0,
            first: 0,
            books: vec![Exposed::default(); count].into(),
            marked: Marked { ring: vec![0; count].into(), head: 0, len: 0 },
            receive_ns: 0,
            is_within: false,
            renewed: 0,
            swept: None,
            used: 0,
        }
    }

    #[inline]
    fn mark(&mut self, book: usize) {
        // A book beyond the slots has none: see the notice at the start.
        let Some(exposed) = self.books.get_mut(book) else { return };
        if !exposed.is_marked {
            exposed.is_marked = true;
            self.marked.push(book);
        }
    }

    #[inline]
    fn changed(&mut self, book: BookIdx, seq: u64, exchange_ns: u64) {
        if let Some(exposed) = self.books.get_mut(book.0 as usize) {
            exposed.last = LastEvent { seq, exchange_ns, receive_ns: self.receive_ns };
            self.mark(book.0 as usize);
        }
    }

    /// All books are published anew, and from now on flags may change without an event.
    #[cold]
    fn renew(&mut self) {
        (self.renewed, self.swept) = (0, Some(self.swept.unwrap_or(0)));
    }

    /// A place may be another instrument's now, and its last event was the one before's.
    #[cold]
    fn forget_events(&mut self) {
        self.books.iter_mut().for_each(|book| book.last = LastEvent::default());
    }

    /// Marks some of the books up to `end`.
    #[cold]
    fn mark_more(&mut self, end: usize) {
        let until = end.min(self.renewed + RENEWED_PER_TURN);
        (self.renewed..until).for_each(|book| self.mark(book));
        self.renewed = until;
        self.used = self.used.max(until);
    }

    #[cold]
    fn sweep(&mut self, from: usize, books: &impl Books) {
        let count = books.len().min(self.used);
        for book in from..count.min(from + SWEPT_PER_TURN) {
            if self.books[book].flags != flags_of(books, book) {
                self.mark(book);
            }
        }
        self.swept = Some(if from + SWEPT_PER_TURN < count { from + SWEPT_PER_TURN } else { 0 });
    }

    #[inline]
    fn take<B: Books>(&mut self, seq: u64, event: &Event, change: Option<Change>, books: &B) {
        self.is_within = !B::ends_event(event);
        if let Some(change) = change {
            self.changed(change.book, seq, event.at_ns());
        }
        match event {
            Event::EndOfEvent(end) => {
                books.published().iter().for_each(|&book| self.changed(book, seq, end.at_ns));
            }
            Event::Clear(_) => self.renew(),
            _ => (),
        }
    }

    #[inline]
    fn publish(&mut self, book: usize, books: &impl Books) {
        let exposed = &mut self.books[book];
        exposed.is_marked = false;
        let snapshot = if book < books.len() {
            exposed.flags = flags_of(books, book);
            BookSnapshot::of(books, BookIdx(book as u32), self.channel, exposed.last)
        } else {
            // Its instrument has another place since the books were rebuilt.
            BookSnapshot::gone(BookIdx(book as u32), self.channel)
        };
        self.shared.publisher.borrow_mut().publish(self.first + book, snapshot.as_bytes());
    }
}

/// Each channel has its own slots, and they are taken here, before its first packet.
impl Clone for ExposeSink {
    fn clone(&self) -> Self {
        Self::over(Rc::clone(&self.shared))
    }
}

#[inline]
fn flags_of(books: &impl Books, book: usize) -> (bool, bool) {
    let book = BookIdx(book as u32);
    (books.is_stale(book), books.is_unconfirmed(book))
}

impl EventSink for ExposeSink {
    fn opened(&mut self, set: u16, number: u32) {
        let place = self.shared.channels.place(set, number);
        self.channel = place.number;
        self.first = self.books.len() * place.place;
        if self.first + self.books.len() > self.shared.slots {
            // A channel beyond the configured ones has no slots.
            self.books = Box::default();
        }
    }

    #[inline]
    fn packet(&mut self, now_ns: u64) {
        self.receive_ns = now_ns + self.shared.unix_offset_ns;
    }

    #[inline]
    fn event(&mut self, seq: u64, event: &Event, change: Option<Change>, books: &impl Books) {
        self.take(seq, event, change, books);
    }

    fn recovered(&mut self, seq: u64, event: &Event, change: Option<Change>, books: &impl Books) {
        self.take(seq, event, change, books);
        // A snapshot may have made its book whole without a change.
        if let Event::SnapshotEnd(end) = event
            && let Some(book) = books.find(end.symbol)
        {
            self.mark(book.0 as usize);
        }
    }

    fn gap(&mut self, _: Gap, _: &impl Books) {
        self.is_within = false;
        self.renew();
    }

    fn doubted(&mut self, _: &impl Books) {
        self.is_within = false;
        self.renew();
    }

    fn rebuilt(&mut self, _: &impl Books) {
        self.forget_events();
        self.renew();
    }

    fn restart(&mut self) {
        self.is_within = false;
        self.forget_events();
        self.renew();
    }

    #[inline]
    fn turn<B: Books>(&mut self, books: &B, _: u64) {
        // Books that were mentioned and have no change yet have a value too.
        let end = books.len().max(self.used).min(self.books.len());
        if self.renewed < end {
            self.mark_more(end);
        }
        if let Some(from) = self.swept {
            self.sweep(from, books);
        }
        if self.marked.len == 0 || self.is_within {
            return;
        }
        for _ in 0..PUBLISHED_PER_TURN {
            let Some(book) = self.marked.pop() else { break };
            self.publish(book, books);
        }
    }
}

#[cfg(test)]
mod tests;
