//! A day of a product with a few instruments on two lines that lose packets, and a loop of
//! snapshots, with another product in it, that does too. Whatever is lost, no book that is trusted
//! differs from the venue's, and in the end all are its books.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::layout::*;
use super::super::{Eobi, emit, order_ref};
use crate::arbitration::{Line, Window};
use crate::book::{BookIdx, Books, Capacity, NumberedBooks, OfChannel, Trust};
use crate::channel::{AbChannel, AbConfig, BookBuilder, ChannelHandler};
use crate::codec::MessageCounts;
use crate::framing::eobi::{EobiBody, EobiHeader, EobiPacket};
use crate::framing::{Framing, PacketWriter};
use crate::loops::{LoopLines, Recovery, RecoveryConfig};
use crate::sbe::Block;
use crate::sequence::Gap;
use crate::units::{Side, Symbol};

const PRODUCT: i32 = 688;
const OTHER_PRODUCT: i32 = 689;
const INSTRUMENTS: i64 = 3;
/// Messages in one packet of the loop: few, so that a snapshot has many.
const MESSAGES_PER_PACKET: usize = 2;
/// Lines are never silent here, and the clock stands still.
const NOW_NS: u64 = 0;
/// A whole unit, and the last of four decimals of a price.
const UNIT: i64 = 10_000;

/// Price and quantity of each order of an instrument, by its side and priority.
type Resting = BTreeMap<(u8, u64), (i64, i64)>;

/// The venue: it knows all books, and writes packets as it would.
struct Venue {
    books: [Resting; INSTRUMENTS as usize],
    /// The last priority time.
    priority: u64,
    seq: u32,
    restarts: u64,
    packet: u32,
    loop_packet: u32,
    now_ns: u64,
}

/// What happens next.
#[derive(Clone, Copy, Debug)]
enum Step {
    Order {
        instrument: i64,
        side: u8,
        price: i64,
        qty: i64,
    },
    Modify {
        instrument: i64,
        pick: usize,
        price: i64,
        qty: i64,
    },
    Shrink {
        instrument: i64,
        pick: usize,
    },
    Execute {
        instrument: i64,
        pick: usize,
        is_full: bool,
    },
    Delete {
        instrument: i64,
        pick: usize,
    },
    MassDelete {
        instrument: i64,
    },
    State {
        instrument: i64,
    },
    Silence,
    /// The service that publishes begins anew; the books stay.
    Restart,
}

fn security_id(instrument: i64) -> i64 {
    5_000_000 + instrument
}

fn symbol(instrument: i64) -> Symbol {
    Symbol::from_number(security_id(instrument) as u64)
}

impl Venue {
    fn new() -> Self {
        let (priority, seq, restarts, packet, loop_packet, now_ns) = (0, 0, 0, 0, 0, 0);
        Self { books: Default::default(), priority, seq, restarts, packet, loop_packet, now_ns }
    }

    fn next(&mut self) -> u32 {
        self.seq += 1;
        self.seq
    }

    /// The packets of a step: an event may take two.
    fn step(&mut self, step: Step) -> Vec<Vec<u8>> {
        if let Step::Restart = step {
            (self.seq, self.packet, self.restarts) = (0, 0, self.restarts + 1);
        }
        let mut messages = vec![Vec::new()];
        self.write(step, &mut messages[0]);
        if let Step::Order { instrument, .. } = step {
            messages.push(Vec::new());
            self.state(instrument, &mut messages[1]);
        }
        let last = messages.len() - 1;
        (0..).zip(messages).map(|(idx, message)| self.live(idx == last, &message)).collect()
    }

    fn live(&mut self, is_complete: bool, message: &[u8]) -> Vec<u8> {
        self.packet += 1;
        self.write_packet(self.packet, PRODUCT, is_complete, &[message.to_vec()])
    }

    fn write(&mut self, step: Step, out: &mut Vec<u8>) {
        match step {
            Step::Order { instrument, side, price, qty } => {
                self.priority += 1;
                self.books[instrument as usize].insert((side, self.priority), (price, qty));
                let root = OrderAddRoot {
                    security_id: security_id(instrument).into(),
                    time_priority: self.priority.into(),
                    display_qty: (qty * UNIT).into(),
                    side,
                    price: (price * UNIT).into(),
                    ..OrderAddRoot::NULL
                };
                emit::order_add(self.next(), &root, out);
            }
            Step::Modify { instrument, pick, price, qty } => {
                let Some((side, old)) = self.picked(instrument, pick) else { return self.state(instrument, out) };
                self.priority += 1;
                let book = &mut self.books[instrument as usize];
                let (prev_price, prev_qty) = book.remove(&(side, old)).unwrap();
                book.insert((side, self.priority), (price, qty));
                let root = OrderModifyRoot {
                    prev_time_priority: old.into(),
                    prev_price: (prev_price * UNIT).into(),
                    prev_display_qty: (prev_qty * UNIT).into(),
                    security_id: security_id(instrument).into(),
                    time_priority: self.priority.into(),
                    display_qty: (qty * UNIT).into(),
                    side,
                    price: (price * UNIT).into(),
                    ..OrderModifyRoot::NULL
                };
                emit::order_modify(self.next(), &root, out);
            }
            Step::Shrink { instrument, pick } => {
                let Some(key) = self.picked(instrument, pick) else { return self.state(instrument, out) };
                let (price, qty) = self.books[instrument as usize][&key];
                let less = (qty - 1).max(1);
                self.books[instrument as usize].insert(key, (price, less));
                let root = OrderModifySamePrioRoot {
                    prev_display_qty: (qty * UNIT).into(),
                    security_id: security_id(instrument).into(),
                    time_priority: key.1.into(),
                    display_qty: (less * UNIT).into(),
                    side: key.0,
                    price: (price * UNIT).into(),
                    ..OrderModifySamePrioRoot::NULL
                };
                emit::order_modify_same_prio(self.next(), &root, out);
            }
            Step::Execute { instrument, pick, is_full } => self.execute(instrument, pick, is_full, out),
            Step::Delete { instrument, pick } => {
                let Some(key) = self.picked(instrument, pick) else { return self.state(instrument, out) };
                let (price, qty) = self.books[instrument as usize].remove(&key).unwrap();
                let root = OrderDeleteRoot {
                    security_id: security_id(instrument).into(),
                    time_priority: key.1.into(),
                    display_qty: (qty * UNIT).into(),
                    side: key.0,
                    price: (price * UNIT).into(),
                    ..OrderDeleteRoot::NULL
                };
                emit::order_delete(self.next(), &root, out);
            }
            Step::MassDelete { instrument } => {
                self.books[instrument as usize].clear();
                let root =
                    OrderMassDeleteRoot { security_id: security_id(instrument).into(), ..OrderMassDeleteRoot::NULL };
                emit::order_mass_delete(self.next(), &root, out);
            }
            Step::State { instrument } => self.state(instrument, out),
            Step::Silence => emit::heartbeat(self.seq, out),
            Step::Restart => self.state(0, out),
        }
    }

    fn execute(&mut self, instrument: i64, pick: usize, is_full: bool, out: &mut Vec<u8>) {
        let Some(key) = self.picked(instrument, pick) else { return self.state(instrument, out) };
        let book = &mut self.books[instrument as usize];
        let (price, qty) = book[&key];
        let is_full = is_full || qty == 1;
        if is_full {
            book.remove(&key);
        } else {
            book.insert(key, (price, qty - 1));
        }
        let root = PartialOrderExecutionRoot {
            side: key.0,
            price: (price * UNIT).into(),
            time_priority: key.1.into(),
            security_id: security_id(instrument).into(),
            last_qty: if is_full { (qty * UNIT).into() } else { UNIT.into() },
            last_px: (price * UNIT).into(),
            ..PartialOrderExecutionRoot::NULL
        };
        let template = if is_full { FullOrderExecution::ID } else { PartialOrderExecution::ID };
        emit::message(template, self.next(), &root, PartialOrderExecutionRoot::BLOCK_LEN, out);
    }

    fn state(&mut self, instrument: i64, out: &mut Vec<u8>) {
        let root = InstrumentStateChangeRoot {
            security_id: security_id(instrument).into(),
            ..InstrumentStateChangeRoot::NULL
        };
        emit::instrument_state_change(self.next(), &root, out);
    }

    fn picked(&self, instrument: i64, pick: usize) -> Option<(u8, u64)> {
        let book = &self.books[instrument as usize];
        (!book.is_empty()).then(|| *book.keys().nth(pick % book.len()).unwrap())
    }

    /// The loop of all snapshots as of now: this product's, and the other's.
    fn snapshots(&mut self) -> Vec<Vec<u8>> {
        let mut messages = vec![Vec::new()];
        let head = ProductSummaryRoot { last_msg_seq_num_processed: self.seq.into(), ..ProductSummaryRoot::NULL };
        emit::product_summary(0, &head, &mut messages[0]);
        for (instrument, book) in (0..).zip(&self.books) {
            let root = InstrumentSummaryRoot {
                security_id: security_id(instrument).into(),
                tot_no_orders: (book.len() as u16).into(),
                ..InstrumentSummaryRoot::NULL
            };
            messages.push(Vec::new());
            emit::instrument_summary(messages.len() as u32 - 1, &root, messages.last_mut().unwrap());
            for (&(side, priority), &(price, qty)) in book {
                let root = SnapshotOrderRoot {
                    time_priority: priority.into(),
                    display_qty: (qty * UNIT).into(),
                    side,
                    price: (price * UNIT).into(),
                    ..SnapshotOrderRoot::NULL
                };
                messages.push(Vec::new());
                emit::snapshot_order(messages.len() as u32 - 1, &root, messages.last_mut().unwrap());
            }
        }
        let mut other = Vec::new();
        emit::product_summary(messages.len() as u32, &head, &mut other);
        let mut packets = Vec::new();
        let mut chunks = messages.chunks(MESSAGES_PER_PACKET).peekable();
        while let Some(chunk) = chunks.next() {
            self.loop_packet += 1;
            packets.push(self.write_packet(self.loop_packet, PRODUCT, chunks.peek().is_none(), chunk));
        }
        self.loop_packet += 1;
        packets.push(self.write_packet(self.loop_packet, OTHER_PRODUCT, true, &[other]));
        packets
    }

    fn write_packet(&mut self, packet: u32, product: i32, is_complete: bool, messages: &[Vec<u8>]) -> Vec<u8> {
        self.now_ns += 1;
        let mut room = [0; 512];
        // The first packets of a service say that it has restarted.
        let is_reset = self.restarts > 0 && packet < 4;
        let (partition, sent_ns, body) = (1, self.now_ns, EobiBody::default());
        let header = EobiHeader { packet, product, partition, is_complete, is_reset, sent_ns, body };
        let mut writer = PacketWriter::<EobiPacket>::new(header, &mut room).unwrap();
        messages.iter().for_each(|message| writer.push(message).unwrap());
        writer.finish().to_vec()
    }
}

/// What takes the messages of both lines, in order.
struct Handler {
    builder: BookBuilder<Eobi, NumberedBooks<OfChannel>>,
    recovery: Recovery<Eobi>,
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
    channel: AbChannel<EobiPacket>,
    handler: Handler,
    loops: LoopLines,
    counts: MessageCounts,
}

impl Receiver {
    fn new(messages_max: usize) -> Self {
        Self::with(messages_max, RecoveryConfig::default().replay_max)
    }

    fn with(messages_max: usize, replay_max: usize) -> Self {
        let books = NumberedBooks::new(Capacity { books: 4, orders: 512, levels: 512 });
        let config = RecoveryConfig { queue_len_max: 8_192, messages_max, replay_max, ..RecoveryConfig::default() };
        let mut loops = LoopLines::new(2);
        loops.join(NOW_NS);
        let window = Window { packets: 4, wait_ns: 1 };
        let config_of_channel = AbConfig { window, number: Some(PRODUCT as u32), ..AbConfig::default() };
        Self {
            channel: AbChannel::new(config_of_channel),
            handler: Handler { builder: BookBuilder::new(Eobi::default(), books), recovery: Recovery::new(config) },
            loops,
            counts: MessageCounts::new(),
        }
    }

    fn live(&mut self, line: Line, packets: &[Vec<u8>]) {
        for packet in packets {
            self.channel.on_packet(line, packet, NOW_NS, &mut self.handler);
        }
    }

    fn snapshots(&mut self, packets: &[Vec<u8>], lost: impl Fn(usize, usize) -> bool) {
        for (idx, bytes) in packets.iter().enumerate() {
            for (line_idx, line) in [Line::A, Line::B].into_iter().enumerate() {
                if lost(idx, line_idx) {
                    continue;
                }
                let packet = EobiPacket::parse(bytes).unwrap();
                let header = EobiPacket::loop_header(&packet.raw);
                if self.loops.offer(line, &header, bytes, NOW_NS) && header.channel == PRODUCT as u32 {
                    let Handler { builder, recovery } = &mut self.handler;
                    for message in packet.messages() {
                        recovery.snapshot(header.seq, message, &mut builder.books, &mut self.counts, |_, _, _, _| ());
                    }
                }
            }
        }
    }

    fn books(&self) -> &NumberedBooks<OfChannel> {
        &self.handler.builder.books
    }

    fn trust(&self, instrument: i64) -> Option<Trust> {
        self.books().find(symbol(instrument)).map(|book| self.books().trust(book))
    }

    /// The orders of an instrument as the venue has them.
    fn resting(&self, venue: &Venue, instrument: i64) -> Resting {
        let id = security_id(instrument);
        let keys = (1..=venue.priority).flat_map(|priority| [(1, priority), (2, priority)]);
        let known = |(side, priority)| {
            let of = if side == 1 { Side::Buy } else { Side::Sell };
            let add = self.books().order(order_ref(id, of, priority)).filter(|add| add.side == of)?;
            Some(((side, priority), (add.price.0, i64::from(add.qty))))
        };
        keys.filter_map(known).collect()
    }

    /// Whether it has all that was sent so far.
    fn is_up_to_date(&self, venue: &Venue) -> bool {
        let arbiter = self.channel.arbiter();
        (arbiter.counts().restarts, arbiter.next_seq()) == (venue.restarts, u64::from(venue.seq) + 1)
    }

    fn check(&self, venue: &Venue) -> Result<(), TestCaseError> {
        for instrument in 0..INSTRUMENTS {
            if self.trust(instrument) == Some(Trust::Sure) {
                let expected = venue.books[instrument as usize].clone();
                prop_assert_eq!(self.resting(venue, instrument), expected, "instrument {}", instrument);
            }
        }
        Ok(())
    }
}

fn any_step() -> impl Strategy<Value = Step> {
    let (instrument, pick) = (|| 0..INSTRUMENTS, any::<usize>);
    prop_oneof![
        8 => (instrument(), 1_u8..3, 1_i64..9, 1_i64..9)
            .prop_map(|(instrument, side, price, qty)| Step::Order { instrument, side, price, qty }),
        3 => (instrument(), pick(), 1_i64..9, 1_i64..9)
            .prop_map(|(instrument, pick, price, qty)| Step::Modify { instrument, pick, price, qty }),
        2 => (instrument(), pick()).prop_map(|(instrument, pick)| Step::Shrink { instrument, pick }),
        3 => (instrument(), pick(), any::<bool>())
            .prop_map(|(instrument, pick, is_full)| Step::Execute { instrument, pick, is_full }),
        3 => (instrument(), pick()).prop_map(|(instrument, pick)| Step::Delete { instrument, pick }),
        1 => instrument().prop_map(|instrument| Step::MassDelete { instrument }),
        2 => instrument().prop_map(|instrument| Step::State { instrument }),
        1 => Just(Step::Silence),
    ]
}

/// A step, whether line A and line B bring its packets, and where a loop of snapshots follows it,
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
        restart_at in prop::option::of(1_usize..80),
        messages_max in 2_usize..64,
    ) {
        let (mut venue, mut receiver) = (Venue::new(), Receiver::new(messages_max));
        for (idx, (step, by_a, by_b, snapshots)) in moments.into_iter().enumerate() {
            let is_restart = restart_at == Some(idx);
            if is_restart {
                // It takes longer than holes may stay open.
                receiver.channel.tick(NOW_NS + 1, &mut receiver.handler);
            }
            let packets = venue.step(if is_restart { Step::Restart } else { step });
            for (line, arrives) in [(Line::A, by_a), (Line::B, by_b)] {
                if arrives || is_restart {
                    receiver.live(line, &packets);
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
        // Nothing is lost any more: holes become gaps, and whole loops heal what is left.
        for _ in 0..12 {
            let packets = venue.step(Step::State { instrument: 0 });
            [Line::A, Line::B].into_iter().for_each(|line| receiver.live(line, &packets));
        }
        prop_assert!(receiver.is_up_to_date(&venue));
        for _ in 0..4 {
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
    begun_with(RecoveryConfig::default().replay_max)
}

fn begun_with(replay_max: usize) -> (Venue, Receiver) {
    let (mut venue, mut receiver) = (Venue::new(), Receiver::with(64, replay_max));
    for instrument in (0..INSTRUMENTS).chain(0..INSTRUMENTS) {
        both(&mut venue, &mut receiver, Step::Order { instrument, side: 1, price: 5, qty: 1 });
    }
    (venue, receiver)
}

fn both(venue: &mut Venue, receiver: &mut Receiver, step: Step) {
    let packets = venue.step(step);
    [Line::A, Line::B].into_iter().for_each(|line| receiver.live(line, &packets));
}

fn trusts(receiver: &Receiver) -> Vec<Option<Trust>> {
    (0..INSTRUMENTS).map(|instrument| receiver.trust(instrument)).collect()
}

const BID: Step = Step::Order { instrument: 0, side: 1, price: 6, qty: 2 };

/// An order of instrument 0 was lost on both lines, and what came behind it shows that.
fn hurt() -> (Venue, Receiver) {
    let (mut venue, mut receiver) = begun();
    let _lost = venue.step(BID);
    for _ in 0..8 {
        both(&mut venue, &mut receiver, BID);
    }
    assert_eq!(trusts(&receiver), [Some(Trust::Unconfirmed); 3]);
    (venue, receiver)
}

#[test]
fn packet_that_both_lines_lost_leaves_the_products_books_unconfirmed_each_until_its_snapshot() {
    let (mut venue, mut receiver) = hurt();
    let snapshots = venue.snapshots();
    both(&mut venue, &mut receiver, BID);
    // The head of the product, and the first instrument with its orders.
    receiver.snapshots(&snapshots[..7], |_, _| false);
    assert_eq!((receiver.trust(0), receiver.trust(2)), (Some(Trust::Sure), Some(Trust::Unconfirmed)));
    receiver.snapshots(&snapshots[7..], |_, _| false);
    assert_eq!(trusts(&receiver), [Some(Trust::Sure); 3]);
    receiver.check(&venue).unwrap();
}

#[test]
fn mass_deletion_of_an_instrument_confirms_its_book() {
    let (mut venue, mut receiver) = hurt();
    both(&mut venue, &mut receiver, Step::MassDelete { instrument: 1 });
    assert_eq!(trusts(&receiver), [Trust::Unconfirmed, Trust::Sure, Trust::Unconfirmed].map(Some));
}

#[test]
fn handler_that_hears_a_restarted_service_first_trusts_no_book_until_its_snapshot() {
    for silence in [false, true] {
        let (mut venue, mut receiver) = (Venue::new(), Receiver::new(64));
        let _before_it_began = venue.step(BID);
        let mut restart = venue.step(Step::Restart);
        if silence {
            // A heartbeat of the restarted service comes before its first number.
            (venue.seq, venue.packet) = (0, 0);
            both(&mut venue, &mut receiver, Step::Silence);
            restart = venue.step(Step::State { instrument: 0 });
        }
        [Line::A, Line::B].into_iter().for_each(|line| receiver.live(line, &restart));
        both(&mut venue, &mut receiver, BID);
        assert!(receiver.is_up_to_date(&venue) && receiver.trust(0) == Some(Trust::Stale));
        let snapshots = venue.snapshots();
        receiver.snapshots(&snapshots, |_, _| false);
        assert_eq!(trusts(&receiver), [Some(Trust::Sure); 3]);
        receiver.check(&venue).unwrap();
    }
}

#[test]
fn reset_packet_that_reaches_beyond_the_numbers_so_far_is_a_restart_once_a_second_packet_agrees() {
    for (before, messages) in [(1, 1), (1, 4), (3, 3), (3, 4)] {
        let (mut venue, mut receiver) = (Venue::new(), Receiver::new(64));
        for _ in 0..before {
            let packets = venue.step(Step::State { instrument: 0 });
            receiver.live(Line::A, &packets);
        }
        (venue.seq, venue.packet, venue.restarts) = (0, 1, 1);
        let states: Vec<Vec<u8>> = (0..messages)
            .map(|_| {
                let mut message = Vec::new();
                venue.state(0, &mut message);
                message
            })
            .collect();
        let reset = venue.write_packet(1, PRODUCT, true, &states);
        receiver.live(Line::A, &[reset]);
        let next = venue.step(Step::State { instrument: 0 });
        receiver.live(Line::A, &next);
        assert!(receiver.is_up_to_date(&venue), "{messages} messages behind {before}");
    }
}

#[test]
fn snapshots_with_more_behind_them_than_is_applied_at_once_wait_for_the_next_loop() {
    let (mut venue, mut receiver) = begun_with(8);
    let _lost = venue.step(BID);
    for _ in 0..8 {
        both(&mut venue, &mut receiver, BID);
    }
    let snapshots = venue.snapshots();
    receiver.snapshots(&snapshots[..8], |_, _| false);
    for _ in 0..8 {
        both(&mut venue, &mut receiver, BID);
    }
    receiver.snapshots(&snapshots[8..], |_, _| false);
    assert_eq!((receiver.trust(0), receiver.trust(2)), (Some(Trust::Sure), Some(Trust::Unconfirmed)));
    assert!(receiver.handler.recovery.counts().too_far >= 1);
    let fresh = venue.snapshots();
    receiver.snapshots(&fresh, |_, _| false);
    assert_eq!(trusts(&receiver), [Some(Trust::Sure); 3]);
    receiver.check(&venue).unwrap();
}

#[test]
fn orders_behind_a_lost_packet_of_the_loop_are_no_other_instruments() {
    for lost in 0..6 {
        let (mut venue, mut receiver) = hurt();
        let snapshots = venue.snapshots();
        receiver.snapshots(&snapshots, |idx, _| idx == lost);
        receiver.check(&venue).unwrap();
        assert_eq!(receiver.trust(0), Some(Trust::Unconfirmed), "packet {lost}");
    }
}

#[test]
fn service_that_restarts_leaves_no_book_sure_until_its_snapshot() {
    let (mut venue, mut receiver) = begun();
    both(&mut venue, &mut receiver, Step::Restart);
    both(&mut venue, &mut receiver, BID);
    assert!(receiver.is_up_to_date(&venue) && receiver.trust(0) == Some(Trust::Stale));
    let snapshots = venue.snapshots();
    receiver.snapshots(&snapshots, |_, _| false);
    assert_eq!(trusts(&receiver), [Some(Trust::Sure); 3]);
    receiver.check(&venue).unwrap();
}
