//! A matcher that is obviously right: all orders in one vector, the best one found by comparing
//! each with each, an auction by trying each price. One instrument.

use market::{Price, Side};
use matching_engine::{
    Body, CancelReason, CrossKind, CrossTerms, Display, Event, Life, NewOrder, OnHalt, Peg, PegTo, PostOnly, Pricing,
    SelfTradeRule, Terms, TradingState,
};

use super::Step;

#[derive(Clone, Debug)]
struct Order {
    new: NewOrder,
    leaves: u32,
    executed: u32,
    shown: u32,
    /// Its price in the book; none while it waits, sleeps, or is for a cross.
    price: Option<Price>,
    time: u64,
    entered: u64,
    asleep: bool,
}

impl Order {
    fn terms(&self) -> &Terms {
        &self.new.terms
    }

    fn is_peg(&self) -> bool {
        matches!(self.terms().pricing, Pricing::Peg(_))
    }

    fn in_auction(&self) -> bool {
        !self.is_peg() && self.terms().min_qty == 0
    }

    fn cross(&self) -> Option<CrossKind> {
        if let Life::Cross(kind) = self.terms().life { Some(kind) } else { None }
    }
}

/// The matcher, and what it did.
#[derive(Debug, Default)]
pub(crate) struct Reference {
    orders: Vec<Order>,
    clock: u64,
    state: TradingState,
    last: i64,
    pegged_by: [i64; 2],
    /// In a copy that counts: whose shares, and how many have traded.
    traded: Option<(u64, u32)>,
    pub(crate) lines: Vec<String>,
}

/// A price as a number of which less is better.
fn rank(side: Side, price: Price) -> i64 {
    if side == Side::Buy { -price.0 } else { price.0 }
}

fn reaches(side: Side, limit: Price, price: Price) -> bool {
    rank(side, limit) <= rank(side, price)
}

fn other(side: Side) -> Side {
    if side == Side::Buy { Side::Sell } else { Side::Buy }
}

fn any(side: Side) -> Price {
    Price(if side == Side::Buy { i64::MAX / 2 } else { i64::MIN / 2 })
}

impl Reference {
    pub(crate) fn apply(&mut self, step: &Step, now_ns: u64) {
        if !matches!(step, Step::Break(_)) {
            self.expire(now_ns);
        }
        match *step {
            Step::Submit(new) => self.submit(new),
            Step::Cancel(token) => self.cancel_and_settle(token, u32::MAX, CancelReason::User),
            Step::Reduce(token, qty) => {
                if let Some(order) = self.orders.iter().find(|order| order.new.token == token) {
                    let decrement = order.leaves.saturating_sub(qty.saturating_sub(order.executed));
                    if decrement > 0 {
                        self.cancel_and_settle(token, decrement, CancelReason::User);
                    }
                }
            }
            Step::Replace(old, token, terms) => self.replace(old, token, terms),
            Step::CancelAll(owner) => {
                self.cancel_all(CancelReason::User, |order| order.new.owner == owner);
                self.settle();
            }
            Step::Halt(_) => {
                self.change_state(TradingState::Halted);
                self.cancel_all(CancelReason::Halted, |order| order.new.on_halt == OnHalt::Cancel);
            }
            Step::Quote(_) => self.change_state(TradingState::Quoting),
            Step::Close(_) => {
                self.cancel_all(CancelReason::Closed, |_| true);
                self.change_state(TradingState::Closed);
            }
            Step::Cross(_, kind, terms) => self.hold(kind, &terms),
            Step::Break(_) => {}
        }
    }

    fn tell(&mut self, line: String) {
        self.lines.push(line);
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn at(&self, token: u64) -> Option<usize> {
        self.orders.iter().position(|order| order.new.token == token)
    }

    fn expire(&mut self, now_ns: u64) {
        loop {
            let ends = |order: &Order| if let Life::Until(at) = order.terms().life { at } else { u64::MAX };
            let Some(first) = self.orders.iter().min_by_key(|order| ends(order)) else { return };
            if ends(first) > now_ns {
                return;
            }
            self.cancel_and_settle(first.new.token, u32::MAX, CancelReason::Timeout);
        }
    }

    fn change_state(&mut self, state: TradingState) {
        if state != TradingState::Trading {
            for order in self.orders.iter_mut().filter(|order| order.is_peg()) {
                order.price = None;
            }
            self.pegged_by = [-1; 2];
        }
        if self.state != state {
            self.state = state;
            self.tell(format!("state {state:?}"));
        }
    }

    fn is_refused(&self, side: Side, terms: &Terms) -> bool {
        let immediate = matches!(terms.life, Life::ImmediateOrCancel | Life::FillOrKill)
            || (terms.pricing == Pricing::Market && !matches!(terms.life, Life::Cross(_)));
        match self.state {
            TradingState::Closed | TradingState::Halted => return true,
            TradingState::Quoting => return immediate,
            TradingState::Trading => {}
        }
        let Pricing::Limit(limit) = terms.pricing else { return false };
        terms.post_only == PostOnly::Reject && self.best_contra(side, limit, terms.qty).is_some()
    }

    fn submit(&mut self, new: NewOrder) {
        if self.is_refused(new.side, &new.terms) {
            return self.tell(format!("reject {}", new.token));
        }
        self.tell(format!("accept {}", new.token));
        self.enter(new, 0, false);
        self.settle();
    }

    fn replace(&mut self, old: u64, token: u64, terms: Terms) {
        let Some(at) = self.at(old) else { return };
        if self.is_refused(self.orders[at].new.side, &terms) {
            return self.cancel_and_settle(old, u32::MAX, CancelReason::Replace);
        }
        let order = self.orders.remove(at);
        let new = NewOrder { token, terms, ..order.new };
        let leaves = terms.qty.saturating_sub(order.executed);
        let was_displayed = order.shown > 0;
        let rests = match terms.pricing {
            Pricing::Limit(limit) if matches!(terms.life, Life::Day | Life::Until(_)) => {
                self.state != TradingState::Trading || self.best_contra(new.side, limit, leaves).is_none()
            }
            _ => false,
        };
        let shown = if was_displayed && rests { shown_of(&terms, leaves) } else { 0 };
        self.tell(format!("replace {old} by {token} leaves {leaves} out {was_displayed} shown {shown}"));
        if leaves > 0 {
            self.enter(new, order.executed, shown > 0);
        }
        self.settle();
    }

    fn enter(&mut self, new: NewOrder, executed: u32, is_quiet: bool) {
        let token = new.token;
        let leaves = new.terms.qty - executed;
        let (time, entered) = (self.tick(), self.tick());
        self.orders.push(Order { new, leaves, executed, shown: 0, price: None, time, entered, asleep: false });
        let at = self.orders.len() - 1;
        if self.orders[at].cross().is_some() {
            return;
        }
        match new.terms.pricing {
            Pricing::Stop { .. } => self.orders[at].asleep = true,
            Pricing::Peg(_) => match self.peg_price(&self.orders[at]) {
                Some(price) if self.state == TradingState::Trading => self.arrive(token, price, false),
                _ if new.terms.life == Life::ImmediateOrCancel => self.cancel(token, u32::MAX, CancelReason::Immediate),
                _ => {}
            },
            Pricing::Limit(limit) if self.state != TradingState::Trading => self.rest(token, limit, is_quiet),
            Pricing::Limit(limit) => self.arrive(token, limit, is_quiet),
            Pricing::Market => self.arrive(token, any(new.side), false),
        }
    }

    fn arrive(&mut self, token: u64, limit: Price, is_quiet: bool) {
        let order = self.orders[self.at(token).unwrap()].clone();
        let terms = *order.terms();
        let need = if terms.life == Life::FillOrKill { order.leaves } else { terms.min_qty.min(order.leaves) };
        if need > 0 && self.available(&order, limit) < u64::from(need) {
            return self.rest_or_cancel(token, limit, is_quiet);
        }
        if terms.post_only == PostOnly::Slide
            && let Some(contra) = self.best_contra(order.new.side, limit, order.leaves)
        {
            let price = self.orders[contra].price.unwrap();
            // Prices of the flow are whole cents, but for pegged ones at half a cent.
            let slid = match order.new.side {
                Side::Buy => Price((price.0 - 1).div_euclid(100) * 100),
                Side::Sell => Price((price.0 + 100).div_euclid(100) * 100),
            };
            return self.rest_or_cancel(token, slid, false);
        }
        self.take(token, limit);
        self.rest_or_cancel(token, limit, is_quiet);
    }

    fn rest_or_cancel(&mut self, token: u64, limit: Price, is_quiet: bool) {
        let Some(at) = self.at(token) else { return };
        let order = &self.orders[at];
        let immediate = matches!(order.terms().life, Life::ImmediateOrCancel | Life::FillOrKill);
        if immediate || limit == any(order.new.side) {
            self.cancel(token, u32::MAX, CancelReason::Immediate);
        } else {
            self.rest(token, limit, is_quiet);
        }
    }

    fn rest(&mut self, token: u64, price: Price, is_quiet: bool) {
        let (at, time) = (self.at(token).unwrap(), self.tick());
        let order = &mut self.orders[at];
        (order.price, order.time) = (Some(price), time);
        order.shown = shown_of(&order.new.terms, order.leaves);
        let shown = order.shown;
        if shown > 0 && !is_quiet {
            self.tell(format!("show {token}: {shown} at {}", price.0));
        }
    }

    /// The order that one of `side`, with `leaves` shares, trades with next.
    fn best_contra(&self, side: Side, limit: Price, leaves: u32) -> Option<usize> {
        let contra = other(side);
        let eligible = |order: &Order| {
            order.new.side == contra
                && order.price.is_some_and(|price| reaches(side, limit, price))
                && (order.shown > 0 || order.terms().min_qty.min(order.leaves) <= leaves)
        };
        let key = |order: &Order| (rank(contra, order.price.unwrap()), order.shown == 0, order.time);
        (0..self.orders.len()).filter(|&at| eligible(&self.orders[at])).min_by_key(|&at| key(&self.orders[at]))
    }

    /// Shares that an order could trade: by doing it in a copy.
    fn available(&self, order: &Order, limit: Price) -> u64 {
        let (orders, clock, state) = (self.orders.clone(), self.clock, self.state);
        let mut copy = Self { orders, clock, state, ..Self::default() };
        let token = order.new.token;
        let before = order.executed;
        // A self-trade that would not only cancel the resting order ends the count.
        let at = copy.at(token).unwrap();
        if let Some(self_trade) = &mut copy.orders[at].new.self_trade
            && self_trade.rule != SelfTradeRule::CancelOldest
        {
            self_trade.rule = SelfTradeRule::CancelNewest;
        }
        copy.orders[at].leaves = order.leaves;
        copy.traded = Some((token, before));
        copy.take(token, limit);
        u64::from(copy.traded.map_or(0, |(_, executed)| executed - before))
    }

    fn take(&mut self, token: u64, limit: Price) {
        loop {
            let Some(at) = self.at(token) else { return };
            let (side, leaves) = (self.orders[at].new.side, self.orders[at].leaves);
            let Some(contra) = self.best_contra(side, limit, leaves) else { return };
            let maker = self.orders[contra].new.token;
            let price = self.orders[contra].price.unwrap();
            let groups = [at, contra].map(|at| self.orders[at].new.self_trade.map(|it| it.group));
            if groups[0].is_some() && groups[0] == groups[1] {
                self.prevent(token, maker);
                continue;
            }
            let resting = &self.orders[contra];
            let qty = leaves.min(if resting.shown > 0 { resting.shown } else { resting.leaves });
            self.trade(maker, token, qty, price);
            self.refill(maker);
        }
    }

    fn prevent(&mut self, taker: u64, maker: u64) {
        let [arriving, resting] = [taker, maker].map(|token| self.orders[self.at(token).unwrap()].clone());
        let common = arriving.leaves.min(resting.leaves);
        let (of_maker, of_taker) = match arriving.new.self_trade.unwrap().rule {
            SelfTradeRule::CancelNewest => (0, u32::MAX),
            SelfTradeRule::CancelOldest => (u32::MAX, 0),
            SelfTradeRule::CancelBoth => (u32::MAX, u32::MAX),
            SelfTradeRule::Decrement => (common, common),
        };
        for (token, decrement) in [(maker, of_maker), (taker, of_taker)] {
            if decrement > 0 {
                self.cancel(token, decrement, CancelReason::SelfMatch);
            }
        }
    }

    fn trade(&mut self, maker: u64, taker: u64, qty: u32, price: Price) {
        self.last = price.0;
        let displayed = [maker, taker].map(|token| self.orders[self.at(token).unwrap()].shown > 0);
        self.tell(format!("trade {maker} {taker}: {qty} at {} displayed {displayed:?}", price.0));
        for token in [maker, taker] {
            let at = self.at(token).unwrap();
            let order = &mut self.orders[at];
            order.leaves -= qty;
            order.executed += qty;
            order.shown = order.shown.saturating_sub(qty);
            if let Some((traded, executed)) = &mut self.traded
                && *traded == token
            {
                *executed = order.executed;
            }
            // What is left of a displayed order that shows nothing waits for its refill.
            if order.leaves == 0 && token == taker {
                self.orders.remove(at);
            }
        }
    }

    fn refill(&mut self, token: u64) {
        let at = self.at(token).unwrap();
        let time = self.tick();
        let order = &mut self.orders[at];
        if order.leaves == 0 {
            self.orders.remove(at);
            return;
        }
        let (Some(price), 0) = (order.price, order.shown) else { return };
        let shown = shown_of(&order.new.terms, order.leaves);
        if shown > 0 {
            (order.shown, order.time) = (shown, time);
            self.tell(format!("show {token}: {shown} at {}", price.0));
        }
    }

    fn cancel(&mut self, token: u64, decrement: u32, reason: CancelReason) {
        let at = self.at(token).unwrap();
        let order = &mut self.orders[at];
        let decrement = decrement.min(order.leaves);
        order.leaves -= decrement;
        let hidden = order.shown.saturating_sub(order.leaves);
        order.shown -= hidden;
        let hidden = match (hidden, order.leaves) {
            (0, _) => "0".to_string(),
            (_, 0) => "all".to_string(),
            (part, _) => part.to_string(),
        };
        if order.leaves == 0 {
            self.orders.remove(at);
        }
        self.tell(format!("cancel {token}: {decrement} {reason:?} hidden {hidden}"));
    }

    fn cancel_and_settle(&mut self, token: u64, decrement: u32, reason: CancelReason) {
        if self.at(token).is_some() {
            self.cancel(token, decrement, reason);
            self.settle();
        }
    }

    fn cancel_all(&mut self, reason: CancelReason, which: impl Fn(&Order) -> bool) {
        let tokens: Vec<u64> = self.orders.iter().filter(|order| which(order)).map(|order| order.new.token).collect();
        for token in tokens {
            self.cancel(token, u32::MAX, reason);
        }
    }

    fn settle(&mut self) {
        if self.state != TradingState::Trading {
            return;
        }
        loop {
            let woke = self.wake();
            let moved = self.reprice();
            if !woke && !moved {
                return;
            }
        }
    }

    fn wake(&mut self) -> bool {
        for side in [Side::Buy, Side::Sell] {
            let trigger = |order: &Order| match order.terms().pricing {
                Pricing::Stop { trigger, limit } if order.asleep && order.new.side == side => Some((trigger, limit)),
                _ => None,
            };
            // Reached from the other side: a buy at 10 wakes when trades are at 10 or above.
            let reached = |order: &Order| {
                self.last > 0 && trigger(order).is_some_and(|(trigger, _)| reaches(side, Price(self.last), trigger))
            };
            let first = self.orders.iter().filter(|order| reached(order));
            let first = first.min_by_key(|order| (rank(other(side), trigger(order).unwrap().0), order.time)).cloned();
            let Some(order) = first else { continue };
            let token = order.new.token;
            let at = self.at(token).unwrap();
            self.orders[at].asleep = false;
            self.tell(format!("wake {token}"));
            self.arrive(token, trigger(&order).unwrap().1.unwrap_or(any(side)), false);
            return true;
        }
        false
    }

    fn tops(&self) -> [i64; 2] {
        [Side::Buy, Side::Sell].map(|side| {
            let shown = self.orders.iter().filter(|order| order.shown > 0 && order.new.side == side);
            shown.map(|order| order.price.unwrap()).min_by_key(|&price| rank(side, price)).map_or(0, |price| price.0)
        })
    }

    fn reprice(&mut self) -> bool {
        let tops = self.tops();
        let mut pegs: Vec<Order> = self.orders.iter().filter(|order| order.is_peg()).cloned().collect();
        if pegs.is_empty() || tops == self.pegged_by {
            return false;
        }
        self.pegged_by = tops;
        pegs.sort_by_key(|order| order.entered);
        for peg in &pegs {
            let price = self.peg_price(peg);
            let at = self.at(peg.new.token).unwrap();
            if self.orders[at].price != price {
                self.orders[at].price = None;
            }
        }
        for peg in &pegs {
            let Some(at) = self.at(peg.new.token) else { continue };
            if self.orders[at].price.is_none()
                && let Some(price) = self.peg_price(&self.orders[at])
            {
                self.arrive(peg.new.token, price, false);
            }
        }
        true
    }

    fn peg_price(&self, order: &Order) -> Option<Price> {
        let Pricing::Peg(Peg { to, offset, limit }) = order.terms().pricing else { panic!("not pegged") };
        let [bid, ask] = self.tops();
        let (own, contra) = if order.new.side == Side::Buy { (bid, ask) } else { (ask, bid) };
        let base = match to {
            PegTo::Primary => own,
            PegTo::Market => contra,
            PegTo::Midpoint if bid == 0 || ask == 0 => 0,
            PegTo::Midpoint => (bid + ask) / 2,
        };
        if base == 0 {
            return None;
        }
        let price =
            Price(if order.new.side == Side::Buy { base + i64::from(offset) } else { base - i64::from(offset) });
        // The less aggressive of the two.
        Some(limit.map_or(price, |limit| if reaches(order.new.side, limit, price) { price } else { limit }))
    }

    fn auction_limit(order: &Order) -> Price {
        match order.terms().pricing {
            Pricing::Limit(limit) => order.price.unwrap_or(limit),
            _ => any(order.new.side),
        }
    }

    /// Those who take part, and how they rank: limit, then displayed, for the cross, hidden, time.
    fn in_cross(&self, kind: CrossKind, side: Side, price: Price) -> Vec<&Order> {
        let takes_part = |order: &&Order| {
            order.new.side == side
                && order.in_auction()
                && (order.price.is_some() || order.cross() == Some(kind))
                && reaches(side, Self::resting_limit(order), price)
        };
        let mut orders: Vec<&Order> = self.orders.iter().filter(takes_part).collect();
        let class = |order: &Order| match (order.shown > 0, order.cross()) {
            (true, _) => 0,
            (_, Some(_)) => 1,
            _ => 2,
        };
        orders.sort_by_key(|order| (rank(side, Self::resting_limit(order)), class(order), order.time));
        orders
    }

    /// An order in the book stands at its price; one for a cross at its limit.
    fn resting_limit(order: &Order) -> Price {
        order.price.unwrap_or_else(|| Self::auction_limit(order))
    }

    fn hold(&mut self, kind: CrossKind, terms: &CrossTerms) {
        let (low, high) = terms.collar.unwrap_or((Price(1), matching_engine::PRICE_MAX));
        let best = (980..=1020).map(Price::from_cents).filter(|price| (low..=high).contains(price)).map(|price| {
            let shares = |side| self.in_cross(kind, side, price).iter().map(|order| u64::from(order.leaves)).sum();
            let (demand, supply): (u64, u64) = (shares(Side::Buy), shares(Side::Sell));
            let distance = price.0.abs_diff(terms.reference.0);
            (std::cmp::Reverse(demand.min(supply)), demand.abs_diff(supply), distance, price)
        });
        let best = best.min().filter(|(shares, ..)| shares.0 > 0);
        let (price, mut traded) = (best.map_or(Price(0), |(.., price)| price), 0);
        while best.is_some() {
            let first = |side| self.in_cross(kind, side, price).first().map(|order| (*order).clone());
            let (Some(buy), Some(sell)) = (first(Side::Buy), first(Side::Sell)) else { break };
            let at_once = |order: &Order| if order.shown > 0 { order.shown } else { order.leaves };
            let qty = at_once(&buy).min(at_once(&sell));
            traded += qty;
            let last_of_sell = sell.leaves == qty;
            self.trade(buy.new.token, sell.new.token, qty, price);
            self.refill(buy.new.token);
            if !last_of_sell {
                self.refill(sell.new.token);
            }
        }
        self.tell(format!("cross {kind:?} {traded} at {}", price.0));
        let rest: Vec<u64> = self.orders.iter().filter(|it| it.cross() == Some(kind)).map(|it| it.new.token).collect();
        for token in rest {
            self.cancel(token, u32::MAX, CancelReason::CrossOver);
        }
        self.uncross(kind, low, high);
        self.change_state(TradingState::Trading);
        self.release_minimums();
        self.settle();
    }

    fn release_minimums(&mut self) {
        let waits = |order: &&Order| !order.in_auction() && !order.is_peg() && order.price.is_some();
        let mut waiting: Vec<_> = self.orders.iter().filter(waits).map(|it| (it.entered, it.new.token)).collect();
        waiting.sort_unstable();
        for (_, token) in waiting {
            let Some(at) = self.at(token) else { continue };
            let (side, price) = (self.orders[at].new.side, self.orders[at].price.unwrap());
            let meets = |it: &Order| it.new.side == other(side) && it.price.is_some_and(|at| reaches(side, price, at));
            if self.orders.iter().any(meets) {
                self.orders[at].price = None;
                self.arrive(token, price, false);
            }
        }
    }

    fn uncross(&mut self, kind: CrossKind, low: Price, high: Price) {
        loop {
            let first = |side| self.in_cross(kind, side, any(other(side))).first().map(|order| (*order).clone());
            let (Some(buy), Some(sell)) = (first(Side::Buy), first(Side::Sell)) else { return };
            let (bid, ask) = (buy.price.unwrap(), sell.price.unwrap());
            if bid < ask {
                return;
            }
            let order = if bid > high {
                buy
            } else if ask < low {
                sell
            } else {
                return;
            };
            self.cancel(order.new.token, u32::MAX, CancelReason::Collar);
        }
    }
}

fn shown_of(terms: &Terms, leaves: u32) -> u32 {
    match terms.display {
        Display::Full => leaves,
        Display::Hidden => 0,
        Display::Reserve(shares) => shares.min(leaves),
    }
}

/// The engine's event in the reference's words; none for those that it does not have.
pub(crate) fn line(event: &Event) -> Option<String> {
    Some(match event.body {
        Body::Accepted(it) => format!("accept {}", it.order.token),
        Body::Rejected(it) => format!("reject {}", it.token),
        Body::Displayed(it) => format!("show {}: {} at {}", it.order.token, it.shares, it.price.0),
        Body::Executed(it) => {
            let displayed = [it.maker.displayed, it.taker.displayed];
            let (maker, taker) = (it.maker.order.token, it.taker.order.token);
            format!("trade {maker} {taker}: {} at {} displayed {displayed:?}", it.qty, it.price.0)
        }
        Body::Canceled(it) => {
            let hidden = match it.public {
                matching_engine::Removed::Nothing => "0".into(),
                matching_engine::Removed::Part(shares) => shares.to_string(),
                // The event does not say how many, because the feed does not.
                matching_engine::Removed::All => "all".into(),
            };
            format!("cancel {}: {} {:?} hidden {hidden}", it.order.token, it.decrement, it.reason)
        }
        Body::Replaced(it) => format!(
            "replace {} by {} leaves {} out {} shown {}",
            it.old.token,
            it.new.token,
            it.new.leaves,
            it.was_displayed,
            it.displayed.unwrap_or(0)
        ),
        Body::Triggered(order) => format!("wake {}", order.token),
        Body::Crossed(it) => format!("cross {:?} {} at {}", it.kind, it.shares, it.price.0),
        Body::StateChanged(state) => format!("state {state:?}"),
        Body::Broken(_) | Body::Imbalance(_) => return None,
        other => panic!("{other:?} is new"),
    })
}
