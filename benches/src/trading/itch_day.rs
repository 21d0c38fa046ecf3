//! From the bytes of datagrams to books of each order: MoldUDP64, ITCH 5.0, and the books of all
//! instruments.

use exchange_sim::{Session, Settings};
use market::framing::mold_udp64::{MoldHeader, MoldUdp64};
use market::itch50::Itch50;
use market::{Books, Capacity, OrderBooks};

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

impl ItchDay {
    /// Draws a day.
    pub fn draw(size: DaySize) -> Self {
        let settings = Settings { symbols: size.symbols, messages: size.messages, ..Settings::default() };
        let messages = Session::new(&settings).map(|message| message.bytes().to_vec()).collect();
        let packets = packed::<MoldUdp64>(messages, |_, idx| MoldHeader::new(*b"0000000001", idx as u64 + 1));
        Self::new(packets, (Itch50, OrderBooks::new(size.capacity)), |books| {
            let counts = books.counts();
            let refused = (counts.unknown_orders, counts.orders_full, counts.levels_full, counts.books_full);
            assert_eq!(refused, (0, 0, 0, 0), "each order is found, and each has room");
        })
    }
}
