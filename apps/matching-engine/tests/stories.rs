//! The private and the public stream tell one story, and nothing is lost in it.
#![allow(clippy::unwrap_used, reason = "a panic is the report of a test")]

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::{Flow, OWNERS, Rig, Step};
use market::event::Event as Public;
use market::itch50::Itch50;
use market::{Books, Codec, Locate, OrderBooks, Price, Side, Symbol};
use matching_engine::{CrossKind, CrossTerms, Event, ItchView, Report, reports};

const SYMBOLS: u16 = 3;
const NAMES: [&str; SYMBOLS as usize] = ["ZAAA", "ZBBB", "ZCCC"];

/// The account of one order, by its owner's reports alone.
#[derive(Debug, Default)]
struct Account {
    /// Live shares.
    leaves: u32,
    /// Shares that it was entered with, less those that its predecessors traded.
    entered: u32,
    executed: u32,
    canceled: u32,
    ends: u32,
}

/// What the reports add up to.
#[derive(Debug, Default)]
struct Private {
    orders: BTreeMap<u64, Account>,
    /// Shares and money of each owner and instrument.
    positions: BTreeMap<(u32, u16), (i64, i64)>,
    /// Shares bought and sold under a match number, not counting what was broken.
    matches: BTreeMap<u64, [u64; 2]>,
    sides: BTreeMap<u64, Side>,
}

impl Private {
    fn take(&mut self, event: &Event) {
        for (owner, report) in reports(event) {
            match report {
                Report::Accepted { order, .. } => {
                    self.sides.insert(order.token, order.side);
                    let account = Account { leaves: order.leaves, entered: order.leaves, ..Account::default() };
                    assert!(self.orders.insert(order.token, account).is_none(), "accepted twice");
                }
                Report::Executed { order, qty, price, match_number, .. } => {
                    self.lose(order.token, qty, order.leaves).executed += qty;
                    self.book(owner.0, event.symbol, order.side, i64::from(qty), price);
                    self.matches.entry(match_number).or_default()[order.side as usize] += u64::from(qty);
                }
                Report::Canceled { order, decrement, .. } => {
                    self.lose(order.token, decrement, order.leaves).canceled += decrement;
                }
                Report::Replaced { old, new, .. } => {
                    let leaves = self.orders[&old.token].leaves;
                    self.lose(old.token, leaves, 0).canceled += leaves;
                    self.sides.insert(new.token, new.side);
                    let ends = u32::from(new.leaves == 0);
                    let account = Account { leaves: new.leaves, entered: new.leaves, ends, ..Account::default() };
                    assert!(self.orders.insert(new.token, account).is_none(), "the new number is new");
                }
                Report::PriorityUpdated { order, .. } | Report::Triggered { order } => {
                    assert_eq!(self.orders[&order.token].leaves, order.leaves);
                }
                Report::Broken { token, qty, price, .. } => {
                    self.book(owner.0, event.symbol, self.sides[&token], -i64::from(qty), price);
                }
                Report::Rejected { token, .. } => assert!(!self.orders.contains_key(&token)),
                other => panic!("{other:?} is new"),
            }
        }
    }

    fn lose(&mut self, token: u64, shares: u32, leaves: u32) -> &mut Account {
        let account = self.orders.get_mut(&token).unwrap();
        assert!(account.ends == 0, "order {token} has ended, and something happens to it");
        account.leaves -= shares;
        assert_eq!(account.leaves, leaves, "order {token}");
        account.ends += u32::from(leaves == 0);
        account
    }

    fn book(&mut self, owner: u32, symbol: Locate, side: Side, shares: i64, price: Price) {
        let shares = if side == Side::Buy { shares } else { -shares };
        let position = self.positions.entry((owner, symbol.0)).or_default();
        position.0 += shares;
        position.1 -= shares * price.0;
    }
}

/// What a receiver of the feed alone knows.
struct Feed {
    view: ItchView,
    bytes: Vec<u8>,
    books: OrderBooks,
    /// Printed shares by match number.
    printed: BTreeMap<u64, u64>,
    broken: Vec<u64>,
    references: BTreeSet<u64>,
}

impl Feed {
    fn new() -> Self {
        let names = NAMES.map(|name| Symbol::new(name).unwrap());
        Self {
            view: ItchView::new(names.to_vec()),
            bytes: Vec::new(),
            books: OrderBooks::new(market::Capacity { books: 4, orders: 1 << 12, levels: 1 << 12 }),
            printed: BTreeMap::new(),
            broken: Vec::new(),
            references: BTreeSet::new(),
        }
    }

    fn take(&mut self, event: &Event) {
        let (view, bytes, books) = (&self.view, &mut self.bytes, &mut self.books);
        let (printed, broken, references) = (&mut self.printed, &mut self.broken, &mut self.references);
        view.show(event, &mut |message: &[u8]| {
            bytes.extend_from_slice(message);
            let public = Itch50.decode(message).unwrap();
            match public {
                Public::Execute(it) if it.printable => *printed.entry(it.trade).or_default() += u64::from(it.qty),
                Public::Trade(it) => *printed.entry(it.trade).or_default() += it.qty,
                Public::TradeBreak(it) => broken.push(it.trade),
                Public::Add(it) => assert!(references.insert(it.order.0), "references are unique for the day"),
                Public::Replace(it) => assert!(references.insert(it.new.0), "references are unique for the day"),
                _ => {}
            }
            books.apply(&public);
        });
    }

    /// Price and shares of each level of a side.
    fn levels(&self, symbol: u16, side: Side) -> Vec<(Price, u64)> {
        let Some(book) = self.books.find(Symbol::new(NAMES[usize::from(symbol) - 1]).unwrap()) else {
            return Vec::new();
        };
        self.books.depth(book, side).map(|(price, shares, _)| (price, shares)).collect()
    }
}

struct Day {
    rig: Rig,
    feed: Feed,
    private: Private,
    events: Vec<Event>,
}

/// Plays a seed over all instruments, closes them, and asks `check` after each step.
fn play(seed: u64, steps: usize, mut check: impl FnMut(&Day)) -> Day {
    let mut flow = Flow::new(seed, SYMBOLS);
    let mut day = Day { rig: Rig::new(SYMBOLS, 256), feed: Feed::new(), private: Private::default(), events: vec![] };
    let symbols = || (1..=SYMBOLS).map(Locate);
    let terms = CrossTerms { reference: Price::from_cents(10_00), collar: None };
    let opening = symbols().flat_map(|symbol| [Step::Quote(symbol), Step::Cross(symbol, CrossKind::Opening, terms)]);
    let middle: Vec<Step> = (0..steps).map(|_| flow.next()).collect();
    let steps: Vec<Step> = opening.chain(middle).chain(symbols().map(Step::Close)).collect();
    for (number, step) in steps.iter().enumerate() {
        let mut events = Vec::new();
        day.rig.apply(step, number as u64 * 10_000_000, &mut events);
        for event in &events {
            day.feed.take(event);
            day.private.take(event);
        }
        day.events.extend(events);
        check(&day);
    }
    day
}

const SEEDS: std::ops::Range<u64> = 100..130;

#[test]
fn feed_builds_the_displayed_book_of_the_engine() {
    for seed in SEEDS {
        play(seed, 600, |day| {
            for symbol in 1..=SYMBOLS {
                for side in [Side::Buy, Side::Sell] {
                    let ours: Vec<_> = day.rig.engine.displayed(Locate(symbol), side).collect();
                    assert_eq!(day.feed.levels(symbol, side), ours, "seed {seed}");
                }
            }
            let counts = day.feed.books.counts();
            assert_eq!((counts.unknown_orders, counts.repeated_orders, counts.beyond_size), (0, 0, 0), "seed {seed}");
        });
    }
}

#[test]
fn public_volume_equals_the_fills_by_match_number() {
    for seed in SEEDS {
        let day = play(seed, 600, |_| {});
        let bought: BTreeMap<u64, u64> =
            day.private.matches.iter().map(|(&number, sides)| (number, sides[0])).collect();
        let sold: BTreeMap<u64, u64> = day.private.matches.iter().map(|(&number, sides)| (number, sides[1])).collect();
        assert_eq!(bought, sold, "seed {seed}");
        let printed: BTreeMap<u64, u64> = day.feed.printed.into_iter().filter(|&(_, shares)| shares > 0).collect();
        assert_eq!(printed, bought, "seed {seed}");
        assert!(day.feed.broken.iter().all(|number| bought.contains_key(number)), "seed {seed}");
    }
}

#[test]
fn accepted_order_ends_exactly_once() {
    for seed in SEEDS {
        let day = play(seed, 600, |_| {});
        assert_eq!(day.rig.engine.orders_count(), 0);
        for (token, account) in &day.private.orders {
            assert_eq!((account.ends, account.leaves), (1, 0), "seed {seed}, order {token}");
            assert_eq!(account.entered, account.executed + account.canceled, "seed {seed}, order {token}");
        }
    }
}

#[test]
fn shares_and_money_are_conserved() {
    for seed in SEEDS {
        play(seed, 600, |day| {
            for symbol in 1..=SYMBOLS {
                let of = |owner| day.private.positions.get(&(owner, symbol)).copied().unwrap_or_default();
                let sum = (0..OWNERS).map(of).fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
                assert_eq!(sum, (0, 0), "seed {seed}");
            }
        });
    }
}

#[test]
fn same_inputs_give_the_same_bytes() {
    for seed in SEEDS {
        let [first, second] = [(); 2].map(|()| play(seed, 600, |_| {}));
        assert_eq!(first.feed.bytes, second.feed.bytes);
        assert_eq!(first.events, second.events);
        assert!(first.feed.bytes.len() > 10_000);
    }
}

#[test]
fn displayed_book_is_never_crossed_while_it_trades() {
    for seed in SEEDS {
        play(seed, 600, |day| {
            for symbol in (1..=SYMBOLS).map(Locate) {
                let top = day.rig.engine.top(symbol);
                let trades = day.rig.engine.trading_state(symbol) == matching_engine::TradingState::Trading;
                assert!(!trades || top.bid_qty == 0 || top.ask_qty == 0 || top.bid_px < top.ask_px, "seed {seed}");
            }
        });
    }
}

#[test]
fn full_engine_refuses_orders_and_keeps_the_rest() {
    let (mut flow, mut rig, mut events) = (Flow::new(7, 1), Rig::new(1, 8), Vec::new());
    rig.apply(&Step::Quote(Locate(1)), 0, &mut events);
    for _ in 0..2_000 {
        let (step, now_ns) = (flow.next(), flow.now_ns());
        rig.apply(&step, now_ns, &mut events);
        assert!(rig.engine.orders_count() <= 8);
    }
    let full = |event: &Event| matches!(event.body, matching_engine::Body::Rejected(it) if it.reason == matching_engine::RejectReason::Full);
    assert!(events.iter().filter(|event| full(event)).count() > 50);
}
