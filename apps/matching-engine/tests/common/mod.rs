//! Random flow that makes sense, from a seed.
#![allow(dead_code, reason = "each test uses its part")]

pub(crate) mod reference;

use market::{Locate, Price, Side};
use matching_engine::{
    CancelReason, Capacity, CrossKind, CrossTerms, Display, Engine, Event, Life, NewOrder, OnHalt, OrderId, Owner, Peg,
    PegTo, PostOnly, Pricing, SelfTrade, SelfTradeRule, Sink, Terms,
};

pub(crate) const STOCK: Locate = Locate(1);
pub(crate) const OWNERS: u32 = 5;

/// One call to the engine. Orders are named by their tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Submit(NewOrder),
    Cancel(u64),
    Reduce(u64, u32),
    Replace(u64, u64, Terms),
    CancelAll(Owner),
    Halt(Locate),
    Quote(Locate),
    Cross(Locate, CrossKind, CrossTerms),
    Close(Locate),
    Break(u64),
}

/// SplitMix64: enough for flow, and the same on every machine.
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

/// Flow over `symbols` instruments around a price of 10.00.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    random: Random,
    symbols: u64,
    tokens: u64,
    steps: u64,
}

impl Flow {
    pub(crate) fn new(seed: u64, symbols: u16) -> Self {
        Self { random: Random(seed), symbols: symbols.into(), tokens: 0, steps: 0 }
    }

    /// The time of the step that comes next, ns. Three digits are left for tokens.
    pub(crate) fn now_ns(&self) -> u64 {
        self.steps * 10_000_000
    }

    pub(crate) fn next(&mut self) -> Step {
        self.steps += 1;
        let symbol = Locate(1 + self.random.below(self.symbols) as u16);
        match self.random.below(1000) {
            0..700 => Step::Submit(self.order(symbol)),
            700..800 => Step::Cancel(self.known()),
            800..860 => Step::Reduce(self.known(), 1 + self.random.below(300) as u32),
            860..960 => {
                let old = self.known();
                let token = self.token();
                Step::Replace(old, token, self.terms(false))
            }
            960..965 => Step::CancelAll(Owner(self.random.below(OWNERS.into()) as u32)),
            965..968 => Step::Halt(symbol),
            968..971 => Step::Quote(symbol),
            971..990 => self.cross(symbol),
            990..991 => Step::Close(symbol),
            _ => Step::Break(1 + self.random.below(1 + self.steps)),
        }
    }

    fn cross(&mut self, symbol: Locate) -> Step {
        let kind = self.random.pick(&[CrossKind::Opening, CrossKind::Closing, CrossKind::Halt]);
        let reference = self.price();
        let width = self.random.below(8) as i64 * 100;
        let collar = self.random.one_in(2).then(|| (Price(reference.0 - width), Price(reference.0 + width)));
        Step::Cross(symbol, kind, CrossTerms { reference, collar })
    }

    fn token(&mut self) -> u64 {
        self.tokens += 1;
        self.tokens
    }

    /// One of the newest tokens: most of their orders are live.
    fn known(&mut self) -> u64 {
        let back = self.random.below(40);
        self.tokens.saturating_sub(back)
    }

    fn price(&mut self) -> Price {
        Price::from_cents(990 + self.random.below(21) as i64)
    }

    fn order(&mut self, symbol: Locate) -> NewOrder {
        let random = &mut self.random;
        let rules = [
            SelfTradeRule::CancelNewest,
            SelfTradeRule::CancelOldest,
            SelfTradeRule::CancelBoth,
            SelfTradeRule::Decrement,
        ];
        let group = 1 + random.below(2) as u32;
        let self_trade = random.one_in(3).then(|| SelfTrade { group, rule: random.pick(&rules) });
        let side = random.pick(&[Side::Buy, Side::Sell]);
        let on_halt = random.pick(&[OnHalt::Keep, OnHalt::Keep, OnHalt::Cancel]);
        let owner = Owner(random.below(OWNERS.into()) as u32);
        NewOrder { owner, token: self.token(), symbol, side, self_trade, on_halt, terms: self.terms(true) }
    }

    /// Terms that make sense; `any` with those that a replacement of another kind of order is
    /// unlikely to have.
    fn terms(&mut self, any: bool) -> Terms {
        let (qty, price) = (1 + self.random.below(500) as u32, self.price());
        let limit = Terms::limit(qty, price);
        let until = Life::Until((self.steps + 1 + self.random.below(60)) * 10_000_000 + self.tokens % 10_000_000);
        let min_qty = 1 + self.random.below(qty.into()) as u32;
        match self.random.below(if any { 20 } else { 12 }) {
            0..6 => limit,
            6 => Terms { life: until, ..limit },
            7 | 8 => Terms { display: Display::Reserve(1 + self.random.below(100) as u32), ..limit },
            9 | 10 => Terms { display: Display::Hidden, ..limit },
            11 => Terms { post_only: self.random.pick(&[PostOnly::Reject, PostOnly::Slide]), ..limit },
            12 | 13 => Terms { life: Life::ImmediateOrCancel, ..limit },
            14 => Terms { life: Life::FillOrKill, ..limit },
            15 => Terms { pricing: Pricing::Market, ..limit },
            16 => Terms { min_qty, display: Display::Hidden, ..limit },
            17 => {
                let kind = self.random.pick(&[CrossKind::Opening, CrossKind::Closing, CrossKind::Halt]);
                let pricing = if self.random.one_in(3) { Pricing::Market } else { Pricing::Limit(price) };
                Terms { life: Life::Cross(kind), pricing, ..limit }
            }
            18 => {
                let limit_price = self.random.one_in(2).then_some(price);
                Terms { pricing: Pricing::Stop { trigger: self.price(), limit: limit_price }, ..limit }
            }
            _ => {
                let to = self.random.pick(&[PegTo::Primary, PegTo::Market, PegTo::Midpoint]);
                let offset = self.random.below(5) as i32 * 100 - 200;
                let peg = Peg { to, offset, limit: self.random.one_in(2).then_some(price) };
                let min_qty = if self.random.one_in(3) { min_qty } else { 0 };
                Terms { pricing: Pricing::Peg(peg), display: Display::Hidden, min_qty, ..limit }
            }
        }
    }
}

/// An engine, and the ids of the orders by their tokens.
#[derive(Debug)]
pub(crate) struct Rig {
    pub(crate) engine: Engine,
    pub(crate) ids: Vec<OrderId>,
}

impl Rig {
    pub(crate) fn new(symbols: u16, orders: usize) -> Self {
        let capacity = Capacity { symbols, orders, owners: OWNERS as usize, trades: 1 << 12, ..Capacity::default() };
        Self { engine: Engine::new(capacity), ids: vec![OrderId(u64::MAX)] }
    }

    fn id(&self, token: u64) -> OrderId {
        self.ids.get(token as usize).copied().unwrap_or(OrderId(u64::MAX))
    }

    fn learn(&mut self, token: u64, id: Option<OrderId>) {
        self.ids.resize(token as usize + 1, OrderId(u64::MAX));
        self.ids[token as usize] = id.unwrap_or(OrderId(u64::MAX));
    }

    /// One step; its events are appended to `events`.
    pub(crate) fn apply(&mut self, step: &Step, now_ns: u64, events: &mut Vec<Event>) {
        self.play(step, now_ns, events);
    }

    pub(crate) fn play(&mut self, step: &Step, now_ns: u64, events: &mut impl Sink) {
        match *step {
            Step::Submit(new) => {
                let id = self.engine.submit(&new, now_ns, events).ok();
                self.learn(new.token, id);
            }
            Step::Cancel(token) => drop(self.engine.cancel(self.id(token), CancelReason::User, now_ns, events)),
            Step::Reduce(token, qty) => drop(self.engine.reduce(self.id(token), qty, now_ns, events)),
            Step::Replace(old, token, terms) => {
                let id = self.engine.replace(self.id(old), token, &terms, now_ns, events).ok();
                self.learn(token, id);
            }
            Step::CancelAll(owner) => {
                self.engine.cancel_all(owner, None, CancelReason::User, now_ns, events);
            }
            Step::Halt(symbol) => self.engine.halt(symbol, now_ns, events).unwrap(),
            Step::Quote(symbol) => self.engine.quote(symbol, now_ns, events).unwrap(),
            Step::Cross(symbol, kind, terms) => self.engine.cross(symbol, kind, &terms, now_ns, events).unwrap(),
            Step::Close(symbol) => self.engine.close(symbol, now_ns, events).unwrap(),
            Step::Break(number) => drop(self.engine.break_trade(number, now_ns, events)),
        }
    }
}
