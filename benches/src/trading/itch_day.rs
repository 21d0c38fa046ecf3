//! From the bytes of datagrams to books of each order: MoldUDP64, ITCH 5.0, and the books of all
//! instruments.

use exchange_sim::{Session, Settings};
use feed_handler::Channels;
use feed_handler::expose::ExposeSink;
use market::framing::mold_udp64::{MoldHeader, MoldUdp64};
use market::itch50::Itch50;
use market::{BookSnapshot, Books, Capacity, EventSink, OrderBooks};
use rdma::snapshot::Publisher;

use super::packed;
use super::replayed::Replayed;

/// How large a day is.
#[derive(Clone, Copy)]
pub struct DaySize {
    /// Its instruments.
    pub symbols: u16,
    /// Its messages.
    pub messages: u64,
    /// The memory of its books.
    pub capacity: Capacity,
}

impl DaySize {
    /// One channel's share: a hundred instruments, whose books stay in a core's caches.
    pub const CHANNEL: Self =
        Self { symbols: 100, messages: 400_000, capacity: Capacity { books: 128, orders: 1 << 13, levels: 1 << 13 } };
    /// A whole venue: as many instruments as Nasdaq lists, in books of the default size, which no
    /// cache holds.
    pub const VENUE: Self = Self {
        symbols: 9_000,
        messages: 2_000_000,
        capacity: Capacity { books: 16_384, orders: 1 << 22, levels: 1 << 20 },
    };
}

/// A simulator's day from its first message on, so that each order is found, and the books of it.
/// Its types have the proportions of a Nasdaq day.
pub type ItchDay = Replayed<MoldUdp64, Itch50, OrderBooks>;
/// The same, with the books in slots that other machines may READ.
pub type ExposedDay = Replayed<MoldUdp64, Itch50, OrderBooks, ExposeSink>;

impl ItchDay {
    /// Draws a day.
    pub fn draw(size: DaySize) -> Self {
        Self::new(packets(size), (Itch50, OrderBooks::new(size.capacity)), check)
    }
}

impl ExposedDay {
    /// Draws the same day.
    pub fn expose(size: DaySize) -> Self {
        let publisher = Publisher::new(size.capacity.books, BookSnapshot::LEN);
        let mut sink = ExposeSink::new(publisher, Channels::default(), 0);
        sink.opened(0, 0);
        Self::with_sink(packets(size), (Itch50, OrderBooks::new(size.capacity)), sink, check)
    }
}

fn packets(size: DaySize) -> Vec<Vec<u8>> {
    let settings = Settings { symbols: size.symbols, messages: size.messages, ..Settings::default() };
    let messages = Session::new(&settings).map(|message| message.bytes().to_vec()).collect();
    packed::<MoldUdp64>(messages, |_, idx| MoldHeader::new(*b"0000000001", idx as u64 + 1))
}

fn check(books: &OrderBooks) {
    let counts = books.counts();
    let refused = (counts.unknown_orders, counts.orders_full, counts.levels_full, counts.books_full);
    assert_eq!(refused, (0, 0, 0, 0), "each order is found, and each has room");
}
