//! The books of a feed, and which of our instruments' best prices have changed.

use market::event::{Event, Status};
use market::image::{ImageCounts, ImagePolicy, ImageRecovery, ImageRequest, ImageVerdict, LiveMessage};
use market::itch50::Itch50;
use market::{
    BookBuilder, BookIdx, Books, Capacity, Change, ChannelHandler, Codec, EventSink, Gap, Halts, MessageCounts,
    OrderBooks, Price, Side, Symbol,
};
use order_entry::risk::InstrumentIdx;

use crate::strategy::BookEvent;

/// Messages behind an image that one turn applies: some ten microseconds.
const MESSAGES_PER_TURN: usize = 256;

/// The books, what an image of them waits for, and what is to be told.
#[derive(Debug)]
pub(super) struct FeedBooks {
    builder: BookBuilder<Itch50, OrderBooks, Changes>,
    image: Option<ImageRecovery>,
    /// Messages that could not be decoded, as far as an image was asked for because of them.
    lost: u64,
    /// For messages that were counted when they arrived.
    uncounted: MessageCounts,
}

/// The whole book of an instrument.
#[derive(Clone, Copy, Debug)]
pub struct Depth<'a> {
    books: &'a OrderBooks,
    book: BookIdx,
}

impl<'a> Depth<'a> {
    /// Price, shares and orders of each level of a side, the best first.
    pub fn levels(self, side: Side) -> impl Iterator<Item = (Price, u64, u32)> + use<'a> {
        self.books.depth(self.book, side)
    }
}

/// Which books are to be told of.
#[derive(Debug)]
struct Changes {
    symbols: Box<[Symbol]>,
    /// The instrument of each book; `None` for books that nobody trades, or of which nothing
    /// changed yet.
    instruments: Box<[Option<InstrumentIdx>]>,
    /// Which of our instruments the venue does not trade.
    halts: Halts,
    /// Books whose best prices may have changed in this packet.
    changed: Vec<BookIdx>,
    is_all_changed: bool,
    /// A book has changed where any level of it has.
    follows_depth: bool,
    /// Packets wait behind a hole: orders do not pass on what is known.
    is_late: bool,
}

impl FeedBooks {
    /// Empty ones, for which images may be asked for where there are limits of that.
    pub(super) fn new(symbols: &[Symbol], capacity: Capacity, image: Option<ImagePolicy>) -> Self {
        let changes = Changes {
            symbols: symbols.into(),
            instruments: vec![None; capacity.books].into_boxed_slice(),
            halts: Halts::of(symbols),
            changed: Vec::with_capacity(symbols.len()),
            is_all_changed: false,
            follows_depth: false,
            is_late: false,
        };
        Self {
            builder: BookBuilder::with_sink(Itch50, OrderBooks::new(capacity), changes),
            image: image.map(ImageRecovery::new),
            lost: 0,
            uncounted: MessageCounts::new(),
        }
    }

    /// Tells also of books that have changed behind their best prices.
    pub(super) const fn follow_depth(&mut self) {
        self.builder.sink.follows_depth = true;
    }

    /// Gives the books of our instruments that have changed to `take`, each once.
    pub(super) fn publish(&mut self, at_ns: u64, mut take: impl FnMut(&BookEvent, Depth<'_>)) {
        let BookBuilder { books, sink, .. } = &mut self.builder;
        if core::mem::take(&mut sink.is_all_changed) {
            sink.changed.clear();
            for (number, symbol) in (0..).zip(&sink.symbols) {
                if let Some(book) = books.find(*symbol) {
                    take(&sink.told(InstrumentIdx(number), books, book, at_ns), Depth { books, book });
                }
            }
            return;
        }
        while let Some(book) = sink.changed.pop() {
            if let Some(instrument) = sink.instruments[book.0 as usize] {
                take(&sink.told(instrument, books, book, at_ns), Depth { books, book });
            }
        }
    }

    /// Whether the books are behind the venue's, and right otherwise.
    #[inline]
    pub(super) fn set_late(&mut self, is_late: bool) {
        let sink = &mut self.builder.sink;
        if sink.is_late != is_late {
            (sink.is_late, sink.is_all_changed) = (is_late, true);
        }
    }

    /// The books lack something although no number is missing; the last one delivered was `last`.
    /// An image has a message that could not be decoded.
    pub(super) fn want_what_was_lost(&mut self, last: u64) {
        let lost = self.builder.counts.lost_to_books;
        if lost > core::mem::replace(&mut self.lost, lost)
            && let Some(image) = &mut self.image
        {
            image.gap(Gap { from: last, to: last });
        }
    }

    /// The image that is to be asked for, if any.
    pub(super) fn wanted(&mut self, now_ns: u64) -> Option<ImageRequest> {
        self.image.as_mut()?.poll(now_ns)
    }

    /// No image came of a request.
    pub(super) fn image_failed(&mut self, id: u64, now_ns: u64) {
        if let Some(image) = &mut self.image {
            image.failed(id, now_ns);
        }
    }

    /// Puts an image's books in the place of ours, which are in `books` then, if the image is of
    /// use, and its states in the place of what we know of halts. The books are stale until
    /// [`FeedBooks::catch_up`] has applied what is queued.
    pub(super) fn take_image(
        &mut self,
        (id, first_live): (u64, u64),
        books: &mut OrderBooks,
        statuses: &[Status],
        now_ns: u64,
    ) {
        let Some(image) = &mut self.image else { return };
        if image.offer(id, first_live, now_ns) == ImageVerdict::Take {
            core::mem::swap(&mut self.builder.books, books);
            self.builder.books.mark_stale();
            self.builder.sink.renumbered();
            self.builder.sink.image_statuses(statuses, Itch50::IS_UNTOLD_HALTED);
        }
    }

    /// Applies a bounded number of the messages that are queued behind an image.
    pub(super) fn catch_up(&mut self) {
        let Some(image) = &mut self.image else { return };
        let (builder, uncounted) = (&mut self.builder, &mut self.uncounted);
        if image.catch_up(MESSAGES_PER_TURN, |_, message| builder.apply_queued(message, uncounted)) {
            self.builder.on_rebuilt();
        }
    }

    pub(super) fn image_counts(&self) -> Option<ImageCounts> {
        self.image.as_ref().map(|image| *image.counts())
    }

    /// Whether messages are queued for an image.
    fn is_behind_an_image(&self) -> bool {
        self.image.as_ref().is_some_and(ImageRecovery::is_active)
    }

    fn want_image(&mut self, gap: Gap) {
        if let Some(image) = &mut self.image {
            image.gap(gap);
        }
    }
}

impl ChannelHandler for FeedBooks {
    fn on_message(&mut self, seq: u64, message: &[u8]) {
        match self.image.as_mut().map(|image| image.live(seq, message)) {
            Some(LiveMessage::Queued) => self.builder.pass_on(seq, message),
            _ => self.builder.on_message(seq, message),
        }
    }

    #[inline]
    fn on_messages<'a>(&mut self, messages: impl Iterator<Item = (u64, &'a [u8])>) -> u64 {
        if !self.is_behind_an_image() {
            return self.builder.on_messages(messages);
        }
        let mut count = 0;
        for (seq, message) in messages {
            self.on_message(seq, message);
            count += 1;
        }
        count
    }

    fn on_gap(&mut self, gap: Gap) {
        self.builder.on_gap(gap);
        self.want_image(gap);
    }

    fn on_late_join(&mut self, gap: Gap) {
        self.builder.on_late_join(gap);
        self.want_image(gap);
    }

    fn on_restart(&mut self) {
        self.builder.on_restart();
        if let Some(image) = &mut self.image {
            image.restart();
        }
    }
}

impl Changes {
    /// The indices of books are new.
    fn renumbered(&mut self) {
        self.instruments.fill(None);
        self.changed.clear();
        self.is_all_changed = true;
    }

    /// What a strategy is told of a book.
    fn told(&self, instrument: InstrumentIdx, books: &OrderBooks, book: BookIdx, at_ns: u64) -> BookEvent {
        let is_halted = self.halts.is_halted(self.symbols[instrument.0 as usize]);
        let told = event(instrument, books, book, at_ns);
        BookEvent { is_halted, is_stale: told.is_stale || self.is_late, ..told }
    }

    /// The venue halts an instrument, or trades it again.
    #[cold]
    fn status(&mut self, status: &Status, books: &impl Books) {
        if !self.halts.take(status) {
            return;
        }
        // Where there is no book yet, nobody trades on it.
        if let Some(book) = books.find(status.symbol)
            && self.is_ours(book, books)
            && !self.changed.contains(&book)
        {
            self.changed.push(book);
        }
    }

    /// Whether `book` is one of our instruments', which is looked up until it is.
    fn is_ours(&mut self, book: BookIdx, books: &impl Books) -> bool {
        let known = &mut self.instruments[book.0 as usize];
        if known.is_none() {
            let symbol = books.symbol(book);
            let number = self.symbols.iter().position(|ours| *ours == symbol);
            *known = number.map(|number| InstrumentIdx(number as u32));
        }
        known.is_some()
    }
}

impl EventSink for Changes {
    #[inline]
    fn event(&mut self, _seq: u64, event: &Event, change: Option<Change>, books: &impl Books) {
        if let Event::Status(status) = event {
            return self.status(status, books);
        }
        let Some(Change { book, is_top }) = change else { return };
        if (is_top || self.follows_depth) && self.is_ours(book, books) && !self.changed.contains(&book) {
            self.changed.push(book);
        }
    }

    fn gap(&mut self, _gap: Gap, _books: &impl Books) {
        self.is_all_changed = true;
    }

    fn doubted(&mut self, _books: &impl Books) {
        self.is_all_changed = true;
    }

    fn image_statuses(&mut self, statuses: &[Status], is_untold_halted: bool) {
        self.halts.take_image(statuses, is_untold_halted);
    }

    fn status_again(&mut self, status: &Status, books: &impl Books) {
        self.status(status, books);
    }

    fn rebuilt(&mut self, _books: &impl Books) {
        self.is_all_changed = true;
    }

    fn restart(&mut self) {
        self.halts.clear();
        self.is_all_changed = true;
    }
}

fn event(instrument: InstrumentIdx, books: &OrderBooks, book: BookIdx, at_ns: u64) -> BookEvent {
    let top = books.top(book);
    let side = |price, qty: u64| (qty > 0).then(|| (price, u32::try_from(qty).unwrap_or(u32::MAX)));
    let (bid, offer) = (side(top.bid_px, top.bid_qty), side(top.ask_px, top.ask_qty));
    BookEvent { instrument, bid, offer, is_stale: books.is_stale(book), is_halted: false, at_ns }
}
