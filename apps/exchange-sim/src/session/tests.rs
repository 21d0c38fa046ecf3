//! The day replayed by a book that does not use the model.

use std::collections::{BTreeMap, HashMap};

use market::event::Event;
use market::itch50::Itch50;
use market::{Codec, OrderRef};

use super::*;

struct Resting {
    locate: u16,
    side: Side,
    price: i64,
    shares: u32,
}

/// Orders by reference: an unknown reference, or more shares taken than rest, is a panic.
#[derive(Default)]
struct Replay {
    orders: HashMap<OrderRef, Resting>,
}

impl Replay {
    fn apply(&mut self, event: Event) {
        match event {
            Event::Add(add) => {
                let resting = Resting { locate: add.locate.0, side: add.side, price: add.price.0, shares: add.qty };
                assert!(add.qty > 0 && add.price.0 > 0);
                assert!(self.orders.insert(add.order, resting).is_none(), "reference used twice: {add:?}");
            }
            Event::Execute(execute) => self.take(execute.order, execute.qty),
            Event::Cancel(cancel) => self.take(cancel.order, cancel.qty),
            Event::Delete(delete) => drop(self.remove(delete.order)),
            Event::Replace(replace) => {
                let old = self.remove(replace.old);
                let resting = Resting { price: replace.price.0, shares: replace.qty, ..old };
                assert!(self.orders.insert(replace.new, resting).is_none(), "reference used twice: {replace:?}");
            }
            _ => {}
        }
    }

    fn take(&mut self, order: OrderRef, shares: u32) {
        let mut resting = self.remove(order);
        assert!((1..=resting.shares).contains(&shares), "{shares} of {} shares taken", resting.shares);
        resting.shares -= shares;
        if resting.shares > 0 {
            self.orders.insert(order, resting);
        }
    }

    fn remove(&mut self, order: OrderRef) -> Resting {
        self.orders.remove(&order).unwrap_or_else(|| panic!("unknown {order:?}"))
    }

    /// Best price and its shares.
    fn top(&self, locate: u16, side: Side) -> Option<PriceLevel> {
        let mut levels = BTreeMap::<i64, u64>::new();
        for order in self.orders.values().filter(|order| order.locate == locate && order.side == side) {
            *levels.entry(order.price).or_default() += u64::from(order.shares);
        }
        let best = match side {
            Side::Buy => levels.last_key_value(),
            Side::Sell => levels.first_key_value(),
        };
        best.map(|(&price, &shares)| PriceLevel { price: price as u32, shares })
    }
}

fn settings(seed: u64, symbols: u16, messages: u64) -> Settings {
    Settings { seed, symbols, messages, ..Settings::default() }
}

fn decode(message: &TimedMessage) -> Event {
    Itch50.decode(message.bytes()).unwrap()
}

fn system_codes(messages: &[TimedMessage]) -> String {
    let codes = messages.iter().filter_map(|message| match decode(message) {
        Event::System(system) => Some(char::from(system.code)),
        _ => None,
    });
    codes.collect()
}

#[test]
fn every_reference_is_known_and_tops_are_those_of_the_replay() {
    for (seed, symbols, messages) in [(1, 300, 200_000), (2, 1, 30_000), (3, 5, 36), (4, 7, 200), (5, 40, 50_000)] {
        let mut session = Session::new(&settings(seed, symbols, messages));
        let mut replay = Replay::default();
        let mut count = 0;
        for message in &mut session {
            replay.apply(decode(&message));
            count += 1;
        }
        assert_eq!(count, messages, "seed {seed}");
        assert_eq!(session.orders_resting(), replay.orders.len() as u64, "seed {seed}");
        for top in session.book_tops() {
            assert_eq!(top.bid, replay.top(top.locate, Side::Buy), "seed {seed} {}", top.symbol);
            assert_eq!(top.ask, replay.top(top.locate, Side::Sell), "seed {seed} {}", top.symbol);
        }
    }
}

#[test]
fn books_never_cross_and_stay_bounded() {
    let mut session = Session::new(&settings(9, 20, 100_000));
    while session.next().is_some() {
        for stock in &session.stocks {
            let (bid, ask) = (stock.book.best(Side::Buy), stock.book.best(Side::Sell));
            assert!(bid.zip(ask).is_none_or(|(bid, ask)| bid < ask), "{bid:?} {ask:?}");
        }
    }
    let largest = session.stocks.iter().map(|stock| stock.book.orders(Side::Buy).len() as f64 / stock.depth as f64);
    assert!(largest.fold(0.0, f64::max) <= 2.0);
}

#[test]
fn smallest_day_has_all_system_events_in_order() {
    let smallest: Vec<_> = Session::new(&settings(1, 1, 12)).collect();
    assert_eq!(smallest.len(), 12);
    assert_eq!(system_codes(&smallest), "OSQMEC");
}

#[test]
fn times_never_run_backwards_and_stand_in_the_messages() {
    let mut last_ns = START_NS;
    for message in Session::new(&settings(1, 30, 50_000)) {
        let head = message.bytes()[5..11].iter().fold(0, |ns, &byte| ns << 8 | u64::from(byte));
        assert_eq!(head, message.time_ns);
        assert!(message.time_ns >= last_ns);
        last_ns = message.time_ns;
    }
}

#[test]
fn large_day_has_every_type_and_halts_that_end() {
    let mut by_type = BTreeMap::<char, u64>::new();
    let mut halted = 0;
    for message in Session::new(&settings(1, 300, 500_000)) {
        *by_type.entry(message.bytes()[0].into()).or_default() += 1;
        if let Event::Status(status) = decode(&message) {
            halted += if status.state == b'H' { 1 } else { 0 };
        }
    }
    assert!("SRHAFECXDUPQ".chars().all(|kind| by_type.contains_key(&kind)), "{by_type:?}");
    assert!(halted > 0);
    assert_eq!(by_type[&'H'], 300 + 2 * halted, "each halt ends");
    assert_eq!(by_type[&'Q'], 600);
}
