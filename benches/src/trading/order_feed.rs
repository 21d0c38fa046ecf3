//! From the bytes of datagrams to books of single orders that are numbered: B3's UMDF and T7's
//! EOBI, with the same day of orders.

use market::b3_umdf::B3Umdf;
use market::eobi::Eobi;
use market::eobi::layout::{OrderAddRoot, OrderDeleteRoot, OrderModifySamePrioRoot, PartialOrderExecutionRoot};
use market::framing::b3_umdf::{B3Header, B3Packet};
use market::framing::eobi::{EobiBody, EobiHeader, EobiPacket};
use market::sbe::Block;
use market::{Capacity, NumberedBooks, Numbers, OfChannel, b3_umdf, eobi};

use super::packed;
use super::replayed::Replayed;
use crate::frames::shuffled;

/// Instruments, as of one group of futures and options.
const INSTRUMENTS: usize = 100;
/// Messages of a pass: some 8 MB.
const MESSAGES: usize = 100_000;
const CAPACITY: Capacity = Capacity { books: INSTRUMENTS, orders: 1 << 16, levels: 1 << 14 };
/// The last of four decimals of EOBI's prices, and a whole unit.
const UNIT: i64 = 10_000;

/// A channel of B3. Of 100 messages 48 add an order, 38 delete one, and 14 lower the quantity of
/// one.
pub type B3Feed = Replayed<B3Packet, B3Umdf, NumberedBooks>;
/// A product of T7. Of 100 messages 48 add an order, 38 delete one, 7 lower the quantity of one,
/// and 7 are executions.
pub type EobiFeed = Replayed<EobiPacket, Eobi, NumberedBooks<OfChannel>>;

fn check<N: Numbers>(books: &NumberedBooks<N>) {
    let counts = books.numbered_counts();
    assert!(counts.out_of_place == 0 && counts.unnumbered == 0, "each order is in its book");
}

/// B3's messages, as full packets.
pub fn b3() -> B3Feed {
    let mut numbers = [0_u32; INSTRUMENTS];
    let messages = Draw::day(|change, order| {
        numbers[order.instrument] += 1;
        b3_message(change, order, numbers[order.instrument])
    });
    let header = |idx, _| B3Header { channel: 1, sequence_version: 1, seq: idx as u32 + 1, sent_ns: 1, next_seq: None };
    Replayed::new(packed::<B3Packet>(messages, header), (B3Umdf::default(), <NumberedBooks>::new(CAPACITY)), check)
}

/// T7's messages, as full packets.
pub fn eobi() -> EobiFeed {
    let mut seq = 0;
    let messages = Draw::day(|change, order| {
        seq += 1;
        eobi_message(change, order, seq)
    });
    let header = |idx, _| EobiHeader {
        packet: idx as u32 + 1,
        product: 1,
        partition: 1,
        is_complete: true,
        is_reset: false,
        sent_ns: 1,
        body: EobiBody::default(),
    };
    Replayed::new(packed::<EobiPacket>(messages, header), (Eobi::default(), NumberedBooks::new(CAPACITY)), check)
}

/// What happens to an order.
#[derive(Clone, Copy)]
enum Change {
    Add,
    Lower,
    Execute,
    Delete,
}

#[derive(Clone, Copy)]
struct Resting {
    instrument: usize,
    id: u64,
    is_bid: bool,
    price: i64,
    qty: i64,
}

struct Draw {
    values: std::vec::IntoIter<u32>,
    resting: Vec<Resting>,
}

impl Draw {
    /// The messages of a day, each written by `write`.
    fn day(mut write: impl FnMut(Change, Resting) -> Vec<u8>) -> Vec<Vec<u8>> {
        let mut draw = Self { values: shuffled(u32::MAX, 8 * MESSAGES, 7).into_iter(), resting: Vec::new() };
        let next = |id| {
            let (change, order) = draw.next(id);
            write(change, order)
        };
        (1..=MESSAGES as u64).map(next).collect()
    }

    fn below(&mut self, end: usize) -> usize {
        self.values.next().unwrap_or(0) as usize % end
    }

    fn next(&mut self, id: u64) -> (Change, Resting) {
        let kind = self.below(100);
        if self.resting.len() < INSTRUMENTS || kind < 48 {
            return (Change::Add, self.add(id));
        }
        let at = self.below(self.resting.len());
        if kind < 86 || self.resting[at].qty == 1 {
            return (Change::Delete, self.resting.swap_remove(at));
        }
        self.resting[at].qty -= 1;
        (if kind < 93 { Change::Lower } else { Change::Execute }, self.resting[at])
    }

    /// A few instruments have most of the orders, and the best levels most of a book's.
    fn add(&mut self, id: u64) -> Resting {
        let instrument = self.below(INSTRUMENTS).min(self.below(INSTRUMENTS));
        let (is_bid, level) = (self.below(2) == 0, self.below(20).min(self.below(20)) as i64);
        let price = if is_bid { 450_000 - 100 * level } else { 450_100 + 100 * level };
        let order = Resting { instrument, id, is_bid, price, qty: 1 + self.below(50) as i64 };
        self.resting.push(order);
        order
    }
}

fn b3_message(change: Change, order: Resting, rpt_seq: u32) -> Vec<u8> {
    let Resting { instrument, id, is_bid, price, qty } = order;
    let (security_id, entry_type) = ((200_000_000_000 + instrument as u64).into(), if is_bid { b'0' } else { b'1' });
    let (order_id, rpt_seq, event_end) = (id.into(), rpt_seq.into(), 0x80);
    let mut out = Vec::new();
    if let Change::Delete = change {
        let root = b3_umdf::layout::DeleteOrderRoot {
            security_id,
            event_end,
            entry_type,
            order_id,
            rpt_seq,
            price: price.into(),
            ..b3_umdf::layout::DeleteOrderRoot::NULL
        };
        b3_umdf::emit::delete_order(&root, &mut out);
        return out;
    }
    let root = b3_umdf::layout::OrderRoot {
        security_id,
        event_end,
        action: u8::from(!matches!(change, Change::Add)),
        entry_type,
        price: price.into(),
        size: qty.into(),
        order_id,
        rpt_seq,
        ..b3_umdf::layout::OrderRoot::NULL
    };
    b3_umdf::emit::order(&root, &mut out);
    out
}

fn eobi_message(change: Change, order: Resting, seq: u32) -> Vec<u8> {
    let Resting { instrument, id, is_bid, price, qty } = order;
    let security_id = (5_000_000 + instrument as i64).into();
    let (side, time_priority) = (if is_bid { 1 } else { 2 }, id.into());
    let (price, display_qty) = ((price * UNIT).into(), (qty * UNIT).into());
    let mut out = Vec::new();
    match change {
        Change::Add => {
            let root = OrderAddRoot { security_id, time_priority, display_qty, side, price, ..OrderAddRoot::NULL };
            eobi::emit::order_add(seq, &root, &mut out);
        }
        Change::Lower => {
            let root = OrderModifySamePrioRoot {
                security_id,
                time_priority,
                display_qty,
                side,
                price,
                ..OrderModifySamePrioRoot::NULL
            };
            eobi::emit::order_modify_same_prio(seq, &root, &mut out);
        }
        Change::Execute => {
            let (last_qty, last_px) = (UNIT.into(), price);
            let root = PartialOrderExecutionRoot {
                side,
                price,
                time_priority,
                security_id,
                last_qty,
                last_px,
                ..PartialOrderExecutionRoot::NULL
            };
            eobi::emit::partial_order_execution(seq, &root, &mut out);
        }
        Change::Delete => {
            let root = OrderDeleteRoot { security_id, time_priority, side, price, ..OrderDeleteRoot::NULL };
            eobi::emit::order_delete(seq, &root, &mut out);
        }
    }
    out
}
