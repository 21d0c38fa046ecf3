//! A day of a few instruments on two lines that lose packets, and loops of snapshots that do too.
//! Whatever is lost, no book that is trusted differs from the venue's, and in the end all are its
//! books.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::layout::*;
use super::super::{B3Umdf, emit, order_ref};
use crate::arbitration::{Line, Window};
use crate::book::{BookIdx, Books, Capacity, NumberedBooks, Trust};
use crate::channel::{AbChannel, AbConfig, BookBuilder, ChannelHandler};
use crate::codec::MessageCounts;
use crate::framing::b3_umdf::{B3Header, B3Packet};
use crate::framing::{Framing, PacketWriter, Session};
use crate::loops::{LoopLines, Recovery, RecoveryConfig};
use crate::sbe::Block;
use crate::sequence::Gap;
use crate::units::{Side, Symbol};

const INSTRUMENTS: u64 = 3;
/// Orders in one message of a snapshot: few, so that a snapshot has many.
const ORDERS_PER_MESSAGE: usize = 2;
/// Loops and lines are never silent here, and the clock stands still.
const NOW_NS: u64 = 0;

/// Side, price and quantity of each order of an instrument, by its number.
type Resting = BTreeMap<u64, (u8, i64, i64)>;

/// The venue: it knows all books, and writes packets as it would.
struct Venue {
    books: [Resting; INSTRUMENTS as usize],
    rpt_seq: [u32; INSTRUMENTS as usize],
    orders: u64,
    version: u16,
    seq: u32,
    loop_ns: u64,
}

/// What happens next.
#[derive(Clone, Copy, Debug)]
enum Step {
    Order {
        instrument: u64,
        is_bid: bool,
        price: i64,
        qty: i64,
    },
    Change {
        instrument: u64,
        pick: usize,
        price: i64,
        qty: i64,
    },
    Delete {
        instrument: u64,
        pick: usize,
    },
    MassDelete {
        instrument: u64,
        is_bid: bool,
    },
    EmptyBook {
        instrument: u64,
    },
    Trade {
        instrument: u64,
    },
    HighPrice {
        instrument: u64,
    },
    Silence,
    /// Another engine takes over: the numbers begin anew, with empty books.
    NewVersion,
}

fn security_id(instrument: u64) -> u64 {
    200_000_000_000 + instrument
}

fn symbol(instrument: u64) -> Symbol {
    Symbol::from_number(security_id(instrument))
}

fn entry_type(is_bid: bool) -> u8 {
    if is_bid { b'0' } else { b'1' }
}

impl Venue {
    fn new() -> Self {
        Self { books: Default::default(), rpt_seq: [0; 3], orders: 0, version: 1, seq: 0, loop_ns: 0 }
    }

    /// The packet of a step.
    fn step(&mut self, step: Step) -> Vec<u8> {
        if let Step::NewVersion = step {
            self.books.iter_mut().for_each(BTreeMap::clear);
            (self.rpt_seq, self.version, self.seq) = ([0; 3], self.version + 1, 0);
        }
        // A silence repeats the last number.
        self.seq += u32::from(!matches!(step, Step::Silence));
        let mut message = Vec::new();
        self.write(step, &mut message);
        self.packet(self.seq, 0, &[message])
    }

    fn write(&mut self, step: Step, out: &mut Vec<u8>) {
        match step {
            Step::Order { instrument, is_bid, price, qty } => {
                self.orders += 1;
                self.books[instrument as usize].insert(self.orders, (entry_type(is_bid), price, qty));
                self.order(instrument, self.orders, 0, out);
            }
            Step::Change { instrument, pick, price, qty } => match self.picked(instrument, pick) {
                Some(id) => {
                    let side = self.books[instrument as usize][&id].0;
                    self.books[instrument as usize].insert(id, (side, price, qty));
                    self.order(instrument, id, 1, out);
                }
                None => self.high_price(instrument, out),
            },
            Step::Delete { instrument, pick } => match self.picked(instrument, pick) {
                Some(id) => {
                    let (entry_type, price, size) = self.books[instrument as usize].remove(&id).unwrap();
                    let root = DeleteOrderRoot {
                        security_id: security_id(instrument).into(),
                        event_end: 0x80,
                        entry_type,
                        size: size.into(),
                        order_id: id.into(),
                        rpt_seq: self.number(instrument).into(),
                        price: price.into(),
                        ..DeleteOrderRoot::NULL
                    };
                    emit::delete_order(&root, out);
                }
                None => self.high_price(instrument, out),
            },
            Step::MassDelete { instrument, is_bid } => {
                self.books[instrument as usize].retain(|_, order| order.0 != entry_type(is_bid));
                let root = MassDeleteOrdersRoot {
                    security_id: security_id(instrument).into(),
                    event_end: 0x80,
                    action: 3,
                    entry_type: entry_type(is_bid),
                    rpt_seq: self.number(instrument).into(),
                    ..MassDeleteOrdersRoot::NULL
                };
                emit::mass_delete_orders(&root, out);
            }
            Step::EmptyBook { instrument } => {
                self.books[instrument as usize].clear();
                let root = EmptyBookRoot {
                    security_id: security_id(instrument).into(),
                    event_end: 0x80,
                    ..EmptyBookRoot::NULL
                };
                out.extend(super::message(EmptyBook::ID, EmptyBookRoot::BLOCK_LEN, &root));
            }
            Step::Trade { instrument } => {
                let root = TradeRoot {
                    security_id: security_id(instrument).into(),
                    event_end: 0x80,
                    price: 1.into(),
                    size: 1.into(),
                    rpt_seq: self.number(instrument).into(),
                    ..TradeRoot::NULL
                };
                emit::trade(&root, out);
            }
            Step::HighPrice { instrument } => self.high_price(instrument, out),
            Step::Silence => emit::sequence(self.seq + 1, out),
            Step::NewVersion => out.extend(emit_head(SequenceReset::ID, 0)),
        }
    }

    fn high_price(&mut self, instrument: u64, out: &mut Vec<u8>) {
        let root = HighPriceRoot {
            security_id: security_id(instrument).into(),
            event_end: 0x80,
            rpt_seq: self.number(instrument).into(),
            ..HighPriceRoot::NULL
        };
        out.extend(super::message(HighPrice::ID, HighPriceRoot::BLOCK_LEN, &root));
    }

    fn order(&mut self, instrument: u64, id: u64, action: u8, out: &mut Vec<u8>) {
        let (entry_type, price, size) = self.books[instrument as usize][&id];
        let root = OrderRoot {
            security_id: security_id(instrument).into(),
            event_end: 0x80,
            action,
            entry_type,
            price: price.into(),
            size: size.into(),
            order_id: id.into(),
            rpt_seq: self.number(instrument).into(),
            ..OrderRoot::NULL
        };
        emit::order(&root, out);
    }

    fn picked(&self, instrument: u64, pick: usize) -> Option<u64> {
        let book = &self.books[instrument as usize];
        (!book.is_empty()).then(|| *book.keys().nth(pick % book.len()).unwrap())
    }

    fn number(&mut self, instrument: u64) -> u32 {
        self.rpt_seq[instrument as usize] += 1;
        self.rpt_seq[instrument as usize]
    }

    /// The loop of all snapshots as of now, a message in each packet.
    fn snapshots(&mut self) -> Vec<Vec<u8>> {
        let mut messages = Vec::new();
        for (instrument, book) in (0..).zip(&self.books) {
            let bids = book.values().filter(|order| order.0 == b'0').count();
            let root = SnapshotHeaderRoot {
                security_id: security_id(instrument).into(),
                last_seq: self.seq.into(),
                reports_total: (INSTRUMENTS as u32).into(),
                bids: (bids as u32).into(),
                offers: ((book.len() - bids) as u32).into(),
                last_rpt_seq: self.rpt_seq[instrument as usize].into(),
                last_sequence_version: self.version.into(),
                ..SnapshotHeaderRoot::NULL
            };
            let mut message = Vec::new();
            emit::snapshot_header(&root, &mut message);
            messages.push(message);
            let entry = |(&id, &(entry_type, price, size)): (&u64, &(u8, i64, i64))| SnapshotOrdersEntry {
                price: price.into(),
                size: size.into(),
                order_id: id.into(),
                entry_type,
                ..SnapshotOrdersEntry::NULL
            };
            let entries: Vec<_> = book.iter().map(entry).collect();
            for some in entries.chunks(ORDERS_PER_MESSAGE) {
                let mut message = Vec::new();
                emit::snapshot_orders(security_id(instrument), some, &mut message);
                messages.push(message);
            }
        }
        self.loop_ns += 1;
        (1..).zip(messages).map(|(seq, message)| self.packet(seq, self.loop_ns, &[message])).collect()
    }

    fn packet(&self, seq: u32, sent_ns: u64, messages: &[Vec<u8>]) -> Vec<u8> {
        let mut room = [0; 512];
        let header = B3Header { channel: 72, sequence_version: self.version, seq, sent_ns, next_seq: None };
        let mut writer = PacketWriter::<B3Packet>::new(header, &mut room).unwrap();
        messages.iter().for_each(|message| writer.push(message).unwrap());
        writer.finish().to_vec()
    }
}

/// What takes the messages of both lines, in order.
struct Handler {
    builder: BookBuilder<B3Umdf, NumberedBooks>,
    recovery: Recovery<B3Umdf>,
}

impl ChannelHandler for Handler {
    fn on_message(&mut self, seq: u64, message: &[u8]) {
        self.builder.on_message(seq, message);
        self.recovery.live(seq, message, &self.builder.books);
    }

    fn on_gap(&mut self, gap: Gap) {
        self.builder.on_gap(gap);
        self.recovery.gap(gap);
    }

    fn on_restart(&mut self) {
        self.builder.on_restart();
        self.recovery.restart();
    }
}

struct Receiver {
    channel: AbChannel<B3Packet>,
    handler: Handler,
    loops: LoopLines,
    counts: MessageCounts,
}

impl Receiver {
    fn new(messages_max: usize) -> Self {
        let books = NumberedBooks::new(Capacity { books: 4, orders: 512, levels: 512 });
        let config = RecoveryConfig { queue_len_max: 8_192, messages_max, ..RecoveryConfig::default() };
        let mut loops = LoopLines::new(2);
        loops.join(NOW_NS);
        Self {
            channel: AbChannel::new(AbConfig { window: Window { packets: 4, wait_ns: 1 }, ..AbConfig::default() }),
            handler: Handler { builder: BookBuilder::new(B3Umdf::default(), books), recovery: Recovery::new(config) },
            loops,
            counts: MessageCounts::new(),
        }
    }

    fn live(&mut self, line: Line, packet: &[u8]) {
        self.channel.on_packet(line, packet, NOW_NS, &mut self.handler);
        // Packets of another version wait for their witness: the session is the believed one.
        if let Some(session) = self.channel.arbiter().session() {
            self.handler.recovery.session(session);
        }
    }

    fn snapshots(&mut self, packets: &[Vec<u8>], lost: impl Fn(usize, usize) -> bool) {
        for (idx, bytes) in packets.iter().enumerate() {
            for (line_idx, line) in [Line::A, Line::B].into_iter().enumerate() {
                if lost(idx, line_idx) {
                    continue;
                }
                let packet = B3Packet::parse(bytes).unwrap();
                if self.loops.offer(line, &packet.header, bytes, NOW_NS) {
                    let Handler { builder, recovery } = &mut self.handler;
                    for (seq, message) in packet.numbered(0) {
                        recovery.snapshot(seq, message, &mut builder.books, &mut self.counts, |_, _, _, _| ());
                    }
                }
            }
        }
    }

    fn books(&self) -> &NumberedBooks {
        &self.handler.builder.books
    }

    fn trust(&self, instrument: u64) -> Option<Trust> {
        self.books().find(symbol(instrument)).map(|book| self.books().trust(book))
    }

    /// The orders of an instrument as the venue has them.
    fn resting(&self, venue: &Venue, instrument: u64) -> Resting {
        let books = self.books();
        let known = |id: u64| books.order(order_ref(security_id(instrument), id));
        let orders = (1..=venue.orders).filter_map(|id| Some((id, known(id)?)));
        orders.map(|(id, add)| (id, (entry_type(add.side == Side::Buy), add.price.0, i64::from(add.qty)))).collect()
    }

    /// Whether it has all that was sent so far.
    fn is_up_to_date(&self, venue: &Venue) -> bool {
        let arbiter = self.channel.arbiter();
        arbiter.session() == Some(Session(venue.version.into())) && arbiter.next_seq() == u64::from(venue.seq) + 1
    }

    fn check(&self, venue: &Venue) -> Result<(), TestCaseError> {
        for instrument in 0..INSTRUMENTS {
            if self.trust(instrument) == Some(Trust::Sure) {
                prop_assert_eq!(
                    self.resting(venue, instrument),
                    venue.books[instrument as usize].clone(),
                    "instrument {}",
                    instrument
                );
            }
        }
        Ok(())
    }
}

fn any_step() -> impl Strategy<Value = Step> {
    let instrument = || 0..INSTRUMENTS;
    prop_oneof![
        8 => (instrument(), any::<bool>(), 1_i64..9, 1_i64..9)
            .prop_map(|(instrument, is_bid, price, qty)| Step::Order { instrument, is_bid, price, qty }),
        3 => (instrument(), any::<usize>(), 1_i64..9, 1_i64..9)
            .prop_map(|(instrument, pick, price, qty)| Step::Change { instrument, pick, price, qty }),
        4 => (instrument(), any::<usize>()).prop_map(|(instrument, pick)| Step::Delete { instrument, pick }),
        1 => (instrument(), any::<bool>()).prop_map(|(instrument, is_bid)| Step::MassDelete { instrument, is_bid }),
        1 => instrument().prop_map(|instrument| Step::EmptyBook { instrument }),
        2 => instrument().prop_map(|instrument| Step::Trade { instrument }),
        2 => instrument().prop_map(|instrument| Step::HighPrice { instrument }),
        1 => Just(Step::Silence),
    ]
}

/// A step, whether line A and line B bring its packet, and where a loop of snapshots follows it,
/// which of its packets are lost, by line.
type Moment = (Step, bool, bool, Option<[u64; 2]>);

fn any_moment() -> impl Strategy<Value = Moment> {
    let arrives = || prop::bool::weighted(0.8);
    // Half of the bits of one mask in four.
    let lost = || prop_oneof![3 => Just(0), 1 => any::<u64>().prop_map(|mask| mask & mask.rotate_left(7))];
    (any_step(), arrives(), arrives(), prop::option::weighted(0.3, [lost(), lost()]))
}

proptest! {
    #[test]
    fn books_that_are_trusted_are_the_venues_and_in_the_end_all_are(
        moments in prop::collection::vec(any_moment(), 1..80),
        new_version_at in prop::option::of(1_usize..80),
        messages_max in 2_usize..64,
    ) {
        let (mut venue, mut receiver) = (Venue::new(), Receiver::new(messages_max));
        for (idx, (step, by_a, by_b, snapshots)) in moments.into_iter().enumerate() {
            let step = if new_version_at == Some(idx) { Step::NewVersion } else { step };
            let packet = venue.step(step);
            for (line, arrives) in [(Line::A, by_a), (Line::B, by_b)] {
                if arrives {
                    receiver.live(line, &packet);
                }
            }
            if let Some(lost) = snapshots {
                let packets = venue.snapshots();
                receiver.snapshots(&packets, |idx, line| lost[line] >> (idx % 64) & 1 != 0);
            }
            if receiver.is_up_to_date(&venue) {
                receiver.check(&venue)?;
            }
        }
        // Nothing is lost any more: holes become gaps, and two whole loops heal what is left.
        for _ in 0..12 {
            let packet = venue.step(Step::Trade { instrument: 0 });
            [Line::A, Line::B].into_iter().for_each(|line| receiver.live(line, &packet));
        }
        prop_assert!(receiver.is_up_to_date(&venue));
        for _ in 0..3 {
            let packets = venue.snapshots();
            receiver.snapshots(&packets, |_, _| false);
        }
        for instrument in 0..INSTRUMENTS {
            prop_assert!(receiver.trust(instrument).is_none_or(|trust| trust == Trust::Sure), "{}", instrument);
            prop_assert_eq!(receiver.resting(&venue, instrument), venue.books[instrument as usize].clone());
        }
        prop_assert!(!receiver.handler.recovery.wants_snapshots());
        let total: usize = venue.books.iter().map(BTreeMap::len).sum();
        prop_assert_eq!(receiver.books().orders().orders_count(), total);
        for book in (0..receiver.books().len() as u32).map(BookIdx) {
            prop_assert_eq!(receiver.books().top(book), receiver.books().orders().top(book), "it is published");
        }
    }
}

/// A venue with two orders of each instrument, and a receiver that has them.
fn begun() -> (Venue, Receiver) {
    let (mut venue, mut receiver) = (Venue::new(), Receiver::new(64));
    for instrument in (0..INSTRUMENTS).chain(0..INSTRUMENTS) {
        both(&mut venue, &mut receiver, Step::Order { instrument, is_bid: true, price: 5, qty: 1 });
    }
    (venue, receiver)
}

fn both(venue: &mut Venue, receiver: &mut Receiver, step: Step) {
    let packet = venue.step(step);
    [Line::A, Line::B].into_iter().for_each(|line| receiver.live(line, &packet));
}

fn trusts(receiver: &Receiver) -> Vec<Option<Trust>> {
    (0..INSTRUMENTS).map(|instrument| receiver.trust(instrument)).collect()
}

const BID: Step = Step::Order { instrument: 0, is_bid: true, price: 6, qty: 2 };

/// Instrument 0 has lost an order on both lines, and what came behind it shows that.
fn hurt() -> (Venue, Receiver) {
    let (mut venue, mut receiver) = begun();
    let _lost = venue.step(BID);
    for _ in 0..8 {
        both(&mut venue, &mut receiver, BID);
    }
    both(&mut venue, &mut receiver, Step::HighPrice { instrument: 1 });
    assert_eq!(trusts(&receiver), [Trust::Stale, Trust::Unconfirmed, Trust::Unconfirmed].map(Some));
    (venue, receiver)
}

#[test]
fn packet_that_both_lines_lost_hurts_one_book_until_its_snapshot() {
    let (mut venue, mut receiver) = hurt();
    let snapshots = venue.snapshots();
    both(&mut venue, &mut receiver, BID);
    receiver.snapshots(&snapshots, |_, _| false);
    assert_eq!(trusts(&receiver), [Some(Trust::Sure); 3]);
    receiver.check(&venue).unwrap();
    assert_eq!(receiver.books().numbered_counts().healed_by_snapshot, 1);
}

#[test]
fn snapshot_that_lost_a_packet_heals_nothing_and_spoils_nothing() {
    let (mut venue, mut receiver) = hurt();
    let before = receiver.resting(&venue, 0);
    let packets = venue.snapshots();
    receiver.snapshots(&packets, |idx, line| (idx, line) == (3, 0));
    assert_eq!((receiver.trust(0), receiver.resting(&venue, 0)), (Some(Trust::Stale), before));
    assert_eq!(receiver.handler.recovery.counts().incomplete, 1);
    let packets = venue.snapshots();
    receiver.snapshots(&packets, |_, _| false);
    assert_eq!(receiver.trust(0), Some(Trust::Sure));
}

#[test]
fn snapshot_of_the_version_before_is_refused() {
    let (mut venue, mut receiver) = begun();
    both(&mut venue, &mut receiver, BID);
    let old = venue.snapshots();
    both(&mut venue, &mut receiver, Step::NewVersion);
    let _lost = venue.step(BID);
    for _ in 0..12 {
        both(&mut venue, &mut receiver, BID);
    }
    receiver.snapshots(&old, |_, _| false);
    assert_eq!((receiver.trust(0), receiver.handler.recovery.counts().other_session), (Some(Trust::Stale), 3));
    let packets = venue.snapshots();
    receiver.snapshots(&packets, |_, _| false);
    assert_eq!(receiver.trust(0), Some(Trust::Sure));
    receiver.check(&venue).unwrap();
}

#[test]
fn another_sequence_version_is_believed_with_the_second_line() {
    let (mut venue, mut receiver) = begun();
    let packet = venue.step(Step::NewVersion);
    receiver.live(Line::A, &packet);
    assert!(!receiver.resting(&venue, 0).is_empty(), "one packet voids no book");
    receiver.live(Line::B, &packet);
    assert!(receiver.resting(&venue, 0).is_empty());
}
