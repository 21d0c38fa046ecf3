//! An order's path, from its states and risk checks to its record in the journal, and the same with
//! the journal mirrored into the memory of a peer by WRITE.

use market::{Price, Side, Symbol};
use order_entry::journal::Journal;
use order_entry::risk::{InstrumentIdx, InstrumentLimits, Limits, Market, NewOrder, Rate, RateLimits};
use order_entry::{ManagerConfig, OrderManager};
use rdma::mirror::MirrorOptions;
use rdma::testing::Mirrored;

/// Orders of a sample, all of which are under way at once.
pub const ORDERS: usize = 256;
/// Bytes of the journal: some 400 samples, and then another one begins.
const LEN: usize = 16 << 20;
const PRICE: Price = Price(1_000_000);
const SYMBOL: Symbol = Symbol(*b"ZIEXT   ");

/// How far an order's record goes before the order may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Into the journal.
    Journal,
    /// Into a WRITE that is posted.
    Posted,
    /// Into the frame of that WRITE.
    Framed,
}

/// A manager of orders with its journal, and the journal's mirror. Samples of each reach take turns
/// on one of these, so that they differ in nothing but what they do: two journals lie differently
/// in the caches, which is more than a WRITE costs.
pub struct MirroredOrders {
    manager: OrderManager<Vec<u8>>,
    mirrored: Mirrored,
    frame: Vec<u8>,
    /// The next order, of all samples.
    next: u64,
}

impl MirroredOrders {
    /// With limits that pass every order.
    #[allow(clippy::new_without_default, reason = "32 MB are no default")]
    pub fn new() -> Self {
        // Not zeros, so that the allocator touches the memory before the measurement does.
        let journal = Journal::create(vec![1; LEN], 1, 0, 0).expect("room for a header");
        let mut manager = OrderManager::new(ManagerConfig::new(wide()), journal);
        manager.arm(1);
        let options = MirrorOptions { window: 2 * ORDERS as u32, staging: 128 << 10, ..MirrorOptions::default() };
        let mut mirrored = Mirrored::new(&options, LEN);
        // Its pages are there before the first sample too.
        mirrored.copy.write(0, &vec![1; LEN]);
        let frame = vec![0; mirrored.devices[0].frame_len_max()];
        mirrored.post(manager.journal().written(0));
        let mut orders = Self { manager, mirrored, frame, next: 1 };
        orders.settle();
        orders
    }

    /// One order, as far as it is to go.
    #[inline]
    pub fn order(&mut self, reach: Reach) {
        let (id, now_ns) = (self.next, 1_000 * self.next);
        let order = NewOrder::limit(InstrumentIdx(0), Side::Buy, 100 + (id as u32 & 0xff), PRICE);
        let market = Market { reference: Some(PRICE), is_stale: false, heard_ns: now_ns, ..Market::default() };
        self.manager.new_order(id, SYMBOL, &order, &market, now_ns).expect("limits that pass every order");
        self.next += 1;
        if reach == Reach::Journal {
            return;
        }
        self.mirrored.mirror.post(&mut self.mirrored.devices[0], self.manager.journal().written(0));
        if reach == Reach::Framed {
            let now = self.mirrored.now;
            self.mirrored.devices[0].transmit(now, &mut self.frame).expect("a frame that is due");
        }
    }

    /// Behind a sample: the orders are none any more, and the mirror has all records.
    pub fn settle(&mut self) {
        let first = self.next.saturating_sub(ORDERS as u64).max(1);
        (first..self.next).for_each(|id| self.manager.unsent(id, 1_000 * self.next));
        if self.manager.journal().end() + (LEN >> 4) > LEN {
            *self = Self::new();
        }
        let end = self.manager.journal().end();
        while self.mirrored.mirror.acknowledged() < end {
            assert_eq!(self.mirrored.mirror.failure(), None, "a mirror that is there");
            self.mirrored.post(self.manager.journal().written(0));
            self.mirrored.carry(|_| true);
            if !self.mirrored.devices.iter().any(rdma::roce::Device::is_due) {
                // Frames that the measurement has thrown away are sent again.
                self.mirrored.tick();
            }
        }
    }
}

fn wide() -> Limits {
    let rate = Rate::new(u32::MAX, u32::MAX);
    let rates = RateLimits { orders: rate, cancels: rate };
    let mut limits = Limits::zero(1, 1, 1);
    limits.instruments.fill(InstrumentLimits {
        qty_max: 10_000,
        collar_bps: 500,
        spread_max_bps: 1_000,
        notional_max: i64::MAX,
        long_max: i64::MAX,
        short_max: i64::MAX,
        rates,
    });
    (limits.ports[0], limits.units[0]) = (rates, rates);
    limits.account.buy_credit_max = i64::MAX;
    limits.account.sell_credit_max = i64::MAX;
    // Orders with the same terms are 256 µs apart.
    limits.account.duplicate_window_ns = 100_000;
    limits.account.silence_max_ns = u64::MAX;
    limits.shortable.set(InstrumentIdx(0), true);
    limits
}
