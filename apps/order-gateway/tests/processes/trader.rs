//! A strategy that does everything at once, and the sizes and limits of its gateway.

use crate::limits;
use market::{Price, Side};
use order_entry::orders::{Instructions, OrderCapacity};
use order_entry::risk::{
    AccountLimits, InstrumentIdx, InstrumentLimits, Limits, Rate, RateLimits, RiskCapacity, SelfMatch,
};
use order_gateway::{BookEvent, OrderRequest, Orders, Strategy};

const STOCK: InstrumentIdx = InstrumentIdx(0);
/// Time between two requests.
const PACE_NS: u64 = 20_000;
/// Open orders beyond which it cancels.
const OPEN_MAX: usize = 30;

/// Rests, takes, replaces and cancels, as a seed draws it.
#[derive(Debug)]
pub struct Trader {
    pub is_active: bool,
    random: u64,
    price: Price,
}

impl Trader {
    pub fn new(seed: u64, is_active: bool) -> Self {
        Self { is_active, random: seed | 1, price: Price(0) }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    fn enter(&mut self, is_ioc: bool, orders: &mut Orders<'_>) {
        let side = if self.draw(2) == 0 { Side::Buy } else { Side::Sell };
        // The house has three prices on each side, one cent from the other.
        let cents = if is_ioc { 3 } else { -(self.draw(6) as i64) };
        let better = if side == Side::Buy { cents } else { -cents };
        let (qty, price) = (1 + self.draw(300) as u32, Price(self.price.0 + 100 * better));
        let instructions = if is_ioc { Instructions::IMMEDIATE_OR_CANCEL } else { Instructions::PLAIN };
        let _ = orders.send(&OrderRequest { instructions, ..OrderRequest::limit(STOCK, side, qty, price) });
    }

    fn act(&mut self, orders: &mut Orders<'_>) {
        let live: Vec<(u64, u32, Price)> =
            orders.live().map(|order| (order.accepted_id(), order.qty(), order.price())).collect();
        let kind = if live.len() > OPEN_MAX { 9 } else { self.draw(10) };
        match (kind, live.len()) {
            (0..=3, _) | (_, 0) => self.enter(false, orders),
            (4..=6, _) => self.enter(true, orders),
            (kind, count) => {
                let (id, qty, price) = live[self.draw(count as u64) as usize];
                if kind == 9 {
                    let _ = orders.cancel(id);
                } else {
                    let _ = orders.replace(id, qty + self.draw(50) as u32, price);
                }
            }
        }
    }
}

impl Strategy for Trader {
    fn on_book(&mut self, book: &BookEvent, orders: &mut Orders<'_>) {
        let Some(price) = book.reference() else { return };
        self.price = price;
        if self.is_active {
            orders.set_timer(Some(book.at_ns));
        }
    }

    fn on_timer(&mut self, orders: &mut Orders<'_>) {
        self.act(orders);
        orders.set_timer(Some(orders.now_ns() + PACE_NS));
    }
}

pub fn capacity() -> OrderCapacity {
    OrderCapacity { orders: 4_096, executions: 1 << 16, instruments: 1 }
}

pub fn risk() -> RiskCapacity {
    RiskCapacity { orders: 4_096, recent: 4_096 }
}

/// What the load needs: no limit of these stops it.
pub fn limits() -> Box<Limits> {
    let rates = RateLimits { orders: Rate::new(1_000_000, 100_000), cancels: Rate::new(1_000_000, 100_000) };
    let mut limits = limits::limits();
    let wide = InstrumentLimits {
        qty_max: 10_000,
        collar_bps: 5_000,
        spread_max_bps: 1_000,
        long_max: 1_000_000,
        short_max: 1_000_000,
        ..limits.instruments[0]
    };
    limits.instruments[0] = InstrumentLimits { rates, ..wide };
    (limits.ports[0], limits.units[0]) = (rates, rates);
    let self_match = SelfMatch::Venue;
    limits.account = AccountLimits { silence_max_ns: 60_000_000_000, self_match, ..limits.account };
    limits.shortable.set(STOCK, true);
    limits
}
