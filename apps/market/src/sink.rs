//! The events of a channel for others than its books: a ring in shared memory, a publisher, a log.

use crate::book::{Books, Change};
use crate::event::{Event, Status};
use crate::sequence::Gap;

/// Receives what a [`BookBuilder`](crate::BookBuilder) builds its books from, after the books have
/// it. All methods have defaults that do nothing, and `()` is the sink where the books are enough:
/// it costs nothing.
///
/// A method is called on the data path: it must not allocate, block or make a system call.
pub trait EventSink {
    /// The channel's first packet has come. `set` is the place of its lines in the configuration,
    /// `number` its number in the packets. Not called where an application has one channel alone.
    fn opened(&mut self, set: u16, number: u32) {
        let _ = (set, number);
    }

    /// A packet begins, or packets that waited are given: they arrived, or were released, at
    /// `now_ns`, of the clock that the caller passes to its channel.
    fn packet(&mut self, now_ns: u64) {
        let _ = now_ns;
    }

    /// A packet of the channel's present session came, with something new or without: the channel
    /// lives.
    fn alive(&mut self) {}

    /// An event of the message with number `seq` (0 where it has none), and its effect on a book.
    fn event(&mut self, seq: u64, event: &Event, change: Option<Change>, books: &impl Books) {
        let _ = (seq, event, change, books);
    }

    /// An event of a snapshot, or one that the books had before and have again behind a snapshot of
    /// their instrument. `seq` is the number of the last message in the snapshot, or of the event's
    /// own. By default as [`EventSink::event`].
    fn recovered(&mut self, seq: u64, event: &Event, change: Option<Change>, books: &impl Books) {
        self.event(seq, event, change, books);
    }

    /// Messages are missing, or the channel was joined late, and `books` are marked so.
    fn gap(&mut self, gap: Gap, books: &impl Books) {
        let _ = (gap, books);
    }

    /// The books became stale although no number is missing: a message that they are built from
    /// could not be decoded.
    fn doubted(&mut self, books: &impl Books) {
        let _ = books;
    }

    /// The states of instruments that an image has, in its order: those of one moment, which take
    /// the place of what was told before, as [`Halts::take_image`](crate::Halts::take_image) does.
    /// The books are stale until [`EventSink::rebuilt`].
    fn image_statuses(&mut self, statuses: &[Status], is_untold_halted: bool) {
        let _ = (statuses, is_untold_halted);
    }

    /// A state of an instrument that was told when its message came, and is told again now that the
    /// message is applied behind an image: the image may have said an older state in between.
    fn status_again(&mut self, status: &Status, books: &impl Books) {
        let _ = (status, books);
    }

    /// The books were rebuilt from an image, and are whole. Events went on meanwhile, those of the
    /// last messages without an effect, because the books were behind them; the indices of books
    /// are new.
    fn rebuilt(&mut self, books: &impl Books) {
        let _ = books;
    }

    /// The feed restarts, and the books are empty.
    fn restart(&mut self) {}

    /// No more messages in this session.
    fn end_of_session(&mut self) {}

    /// A turn of the worker at `now_ns`, with packets or without: the place for work that is done
    /// bit by bit.
    fn turn<B: Books>(&mut self, books: &B, now_ns: u64) {
        let _ = (books, now_ns);
    }
}

impl EventSink for () {}

/// Two sinks, one after the other.
impl<A: EventSink, B: EventSink> EventSink for (A, B) {
    #[inline]
    fn opened(&mut self, set: u16, number: u32) {
        self.0.opened(set, number);
        self.1.opened(set, number);
    }

    #[inline]
    fn packet(&mut self, now_ns: u64) {
        self.0.packet(now_ns);
        self.1.packet(now_ns);
    }

    #[inline]
    fn alive(&mut self) {
        self.0.alive();
        self.1.alive();
    }

    #[inline]
    fn event(&mut self, seq: u64, event: &Event, change: Option<Change>, books: &impl Books) {
        self.0.event(seq, event, change, books);
        self.1.event(seq, event, change, books);
    }

    fn recovered(&mut self, seq: u64, event: &Event, change: Option<Change>, books: &impl Books) {
        self.0.recovered(seq, event, change, books);
        self.1.recovered(seq, event, change, books);
    }

    fn gap(&mut self, gap: Gap, books: &impl Books) {
        self.0.gap(gap, books);
        self.1.gap(gap, books);
    }

    fn doubted(&mut self, books: &impl Books) {
        self.0.doubted(books);
        self.1.doubted(books);
    }

    fn image_statuses(&mut self, statuses: &[Status], is_untold_halted: bool) {
        self.0.image_statuses(statuses, is_untold_halted);
        self.1.image_statuses(statuses, is_untold_halted);
    }

    fn status_again(&mut self, status: &Status, books: &impl Books) {
        self.0.status_again(status, books);
        self.1.status_again(status, books);
    }

    fn rebuilt(&mut self, books: &impl Books) {
        self.0.rebuilt(books);
        self.1.rebuilt(books);
    }

    fn restart(&mut self) {
        self.0.restart();
        self.1.restart();
    }

    fn end_of_session(&mut self) {
        self.0.end_of_session();
        self.1.end_of_session();
    }

    #[inline]
    fn turn<T: Books>(&mut self, books: &T, now_ns: u64) {
        self.0.turn(books, now_ns);
        self.1.turn(books, now_ns);
    }
}
