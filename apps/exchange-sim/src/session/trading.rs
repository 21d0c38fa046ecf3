//! The trading of one stock: each message of the open market, and the stock's own parameters.
//!
//! Every action changes the book and emits one ITCH message, in this order, so that the two cannot
//! differ.

use market::Side;
use market::itch50::{
    AddOrder, AddOrderMpid, Message, OrderCancel, OrderDelete, OrderExecuted, OrderExecutedAtPrice, OrderReplace, Trade,
};

use super::book::Order;
use super::listing::Stock;
use super::{Session, itch_price};
use crate::random::Random;

/// Share of a burst's messages that are about one stock.
const BURST_HOT: f64 = 0.7;
/// One added order in this many carries the name of its firm.
const MPID_ONE_IN: u64 = 25;
const MPIDS: [[u8; 4]; 4] = [*b"ALFA", *b"BRVO", *b"CHRL", *b"DLTA"];

impl Session {
    /// One message of the open market.
    pub(super) fn trade(&mut self, time_ns: u64, burst: bool) {
        let hot = burst && self.random.chance(BURST_HOT);
        let idx = if hot { self.hot } else { self.popularity.draw(&mut self.random) };
        let halted = self.halt.is_some_and(|halt| halt.stock_idx == idx);
        let stock = &mut self.stocks[idx];
        stock.walk(&mut self.random);
        if let Some(side) = stock.walked_into() {
            return match !halted && self.random.chance(0.7) {
                true => self.execute(idx, side, time_ns),
                false => self.delete_best(idx, side, time_ns),
            };
        }
        let side = self.side();
        let orders = self.stocks[idx].book.orders(side).len();
        let depth = self.stocks[idx].depth;
        // How many of 1,000 messages add an order; of the rest those up to 880 delete one. Below
        // the target depth adds outnumber deletes (500 to 380, and all add below a quarter of the
        // depth); above it deletes outnumber adds (520 to 360, and none adds from twice the depth).
        let adds = match orders {
            _ if orders < depth / 4 => 1000,
            _ if orders < depth => 500,
            _ if orders < 2 * depth => 360,
            _ => 0,
        };
        match self.random.below(1000) {
            draw if draw < adds => self.add_on(idx, side, time_ns),
            draw if draw < 880 => self.delete(idx, side, time_ns),
            draw if draw < 950 || halted => self.replace(idx, side, time_ns),
            draw if draw < 970 => self.cancel(idx, side, time_ns),
            draw if draw < 988 => self.execute(idx, side, time_ns),
            draw if draw < 991 => self.improve(idx, side, time_ns),
            _ => self.hidden_trade(idx, time_ns),
        }
    }

    fn side(&mut self) -> Side {
        if self.random.chance(0.5) { Side::Buy } else { Side::Sell }
    }

    /// Round lots for the most part, and an odd lot in five.
    fn shares(&mut self) -> u32 {
        match self.random.chance(0.2) {
            true => 1 + self.random.below(99) as u32,
            false => 100 * (1 + self.random.geometric()),
        }
    }

    fn pick(&mut self, idx: usize, side: Side) -> usize {
        self.random.below(self.stocks[idx].book.orders(side).len() as u64) as usize
    }

    pub(super) fn add(&mut self, idx: usize, time_ns: u64) {
        let side = self.side();
        self.add_on(idx, side, time_ns);
    }

    fn add_on(&mut self, idx: usize, side: Side, time_ns: u64) {
        let shares = self.shares();
        self.order_reference += 1;
        let stock = &mut self.stocks[idx];
        let order = Order { reference: self.order_reference, price: stock.price(side, &mut self.random), shares };
        stock.book.insert(side, order);
        let (order, price, stock, side) =
            (order.reference.into(), itch_price(order.price).into(), stock.symbol, side.to_wire());
        let shares = shares.into();
        if self.random.below(MPID_ONE_IN) == 0 {
            let attribution = MPIDS[self.random.below(MPIDS.len() as u64) as usize];
            let head = self.head(AddOrderMpid::KIND, idx, time_ns);
            let message = AddOrderMpid { head, order, side, shares, stock, price, attribution };
            self.outbox.push(time_ns, Message::from(&message));
        } else {
            let head = self.head(AddOrder::KIND, idx, time_ns);
            self.outbox.push(time_ns, Message::from(&AddOrder { head, order, side, shares, stock, price }));
        }
    }

    fn delete(&mut self, idx: usize, side: Side, time_ns: u64) {
        let order_idx = self.pick(idx, side);
        self.delete_order(idx, (side, order_idx), time_ns);
    }

    fn delete_best(&mut self, idx: usize, side: Side, time_ns: u64) {
        let order_idx = self.stocks[idx].book.orders(side).len() - 1;
        self.delete_order(idx, (side, order_idx), time_ns);
    }

    fn delete_order(&mut self, idx: usize, (side, order_idx): (Side, usize), time_ns: u64) {
        let order = self.stocks[idx].book.remove(side, order_idx);
        let head = self.head(OrderDelete::KIND, idx, time_ns);
        self.outbox.push(time_ns, Message::from(&OrderDelete { head, order: order.reference.into() }));
    }

    fn replace(&mut self, idx: usize, side: Side, time_ns: u64) {
        let order_idx = self.pick(idx, side);
        let shares = self.shares();
        self.order_reference += 1;
        let stock = &mut self.stocks[idx];
        let old = stock.book.remove(side, order_idx);
        let new = Order { reference: self.order_reference, price: stock.price(side, &mut self.random), shares };
        stock.book.insert(side, new);
        let head = self.head(OrderReplace::KIND, idx, time_ns);
        let message = OrderReplace {
            head,
            old: old.reference.into(),
            new: new.reference.into(),
            shares: shares.into(),
            price: itch_price(new.price).into(),
        };
        self.outbox.push(time_ns, Message::from(&message));
    }

    /// Cancels a part of an order; a single share has no part, so its order is deleted.
    fn cancel(&mut self, idx: usize, side: Side, time_ns: u64) {
        let order_idx = self.pick(idx, side);
        let order = self.stocks[idx].book.orders(side)[order_idx];
        if order.shares == 1 {
            return self.delete_order(idx, (side, order_idx), time_ns);
        }
        let shares = 1 + self.random.below(u64::from(order.shares - 1)) as u32;
        self.stocks[idx].book.reduce(side, order_idx, shares);
        let head = self.head(OrderCancel::KIND, idx, time_ns);
        let message = OrderCancel { head, order: order.reference.into(), shares: shares.into() };
        self.outbox.push(time_ns, Message::from(&message));
    }

    /// An incoming order meets the oldest one of the best price.
    fn execute(&mut self, idx: usize, side: Side, time_ns: u64) {
        let shares = self.fill_shares(idx, side);
        self.match_number += 1;
        let order = self.fill(Fill { stock_idx: idx, side, shares });
        let head = self.head(OrderExecuted::KIND, idx, time_ns);
        let (order, shares, trade) = (order.reference.into(), shares.into(), self.match_number.into());
        self.outbox.push(time_ns, Message::from(&OrderExecuted { head, order, shares, trade }));
    }

    /// An execution at the mid, which is a better price than displayed.
    fn improve(&mut self, idx: usize, side: Side, time_ns: u64) {
        let shares = self.fill_shares(idx, side);
        self.match_number += 1;
        self.execute_at_price(Fill { stock_idx: idx, side, shares }, time_ns, b'Y');
    }

    pub(super) fn execute_at_price(&mut self, fill: Fill, time_ns: u64, printable: u8) {
        let order = self.fill(fill);
        let head = self.head(OrderExecutedAtPrice::KIND, fill.stock_idx, time_ns);
        let message = OrderExecutedAtPrice {
            head,
            order: order.reference.into(),
            shares: fill.shares.into(),
            trade: self.match_number.into(),
            printable,
            price: itch_price(self.stocks[fill.stock_idx].mid).into(),
        };
        self.outbox.push(time_ns, Message::from(&message));
    }

    /// More often than not, all shares of the best order.
    fn fill_shares(&mut self, idx: usize, side: Side) -> u32 {
        let resting = self.stocks[idx].book.orders(side).last().map_or(0, |order| order.shares);
        match self.random.chance(0.6) {
            true => resting,
            false => 1 + self.random.below(u64::from(resting)) as u32,
        }
    }

    /// Takes the shares off the best order, and returns the order as it was before.
    fn fill(&mut self, fill: Fill) -> Order {
        let book = &mut self.stocks[fill.stock_idx].book;
        let order_idx = book.orders(fill.side).len() - 1;
        let order = book.orders(fill.side)[order_idx];
        book.reduce(fill.side, order_idx, fill.shares);
        order
    }

    fn hidden_trade(&mut self, idx: usize, time_ns: u64) {
        let shares = self.shares();
        self.match_number += 1;
        let head = self.head(Trade::KIND, idx, time_ns);
        let message = Trade {
            head,
            // Nasdaq names no hidden orders since 2010 and calls all of them buys since 2014.
            order: 0.into(),
            side: b'B',
            shares: shares.into(),
            stock: self.stocks[idx].symbol,
            price: itch_price(self.stocks[idx].mid).into(),
            trade: self.match_number.into(),
        };
        self.outbox.push(time_ns, Message::from(&message));
    }
}

/// Shares that trade against the best order of one side.
#[derive(Clone, Copy)]
pub(super) struct Fill {
    pub stock_idx: usize,
    pub side: Side,
    pub shares: u32,
}

impl Stock {
    /// One message in sixteen moves the mid by a cent.
    fn walk(&mut self, random: &mut Random) {
        let moved = match random.below(32) {
            0 => self.mid + 1,
            1 => self.mid - 1,
            _ => return,
        };
        if (self.reference_price / 2..=self.reference_price * 2).contains(&moved) {
            self.mid = moved;
        }
    }

    /// The side whose best order the mid has reached.
    fn walked_into(&self) -> Option<Side> {
        if self.book.best(Side::Sell).is_some_and(|price| price <= self.mid) {
            return Some(Side::Sell);
        }
        self.book.best(Side::Buy).filter(|&price| price >= self.mid).map(|_| Side::Buy)
    }

    /// The price of a new order: mostly near the best, sometimes deep in the book, never across the
    /// mid.
    fn price(&self, side: Side, random: &mut Random) -> u32 {
        let level = if random.chance(0.7) { random.geometric() } else { random.below(15) as u32 };
        let distance = self.half_spread + level * self.level_step;
        match side {
            Side::Buy => self.mid.saturating_sub(distance).max(1),
            Side::Sell => self.mid + distance,
        }
    }
}
