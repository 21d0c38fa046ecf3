//! The gate: its state, and everything about it but the checks and the events of orders.

use std::hint::black_box;

use super::duplicates::Duplicates;
use super::exposure::Exposures;
use super::kill::KillSwitch;
use super::levels::Levels;
use super::limits::{Limits, StaleLimits};
use super::multiplier::Multiplier;
use super::order::{InstrumentIdx, NewOrder, StrategyIdx};
use super::passed::Pending;
use super::rate::Bucket;
use super::reject::{Limit, RiskReject};
use super::reservation::Reservation;

/// Sizes of a gate's tables. All memory is allocated at construction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RiskCapacity {
    /// Slots of live orders, 192 bytes each. By default 65,536.
    pub orders: usize,
    /// Orders that are sent inside the duplicates' window, 32 bytes each. By default 65,536.
    pub recent: usize,
}

impl Default for RiskCapacity {
    /// 65,536 of each.
    fn default() -> Self {
        Self { orders: 1 << 16, recent: 1 << 16 }
    }
}

/// What the gate decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RiskCounts {
    /// Orders, replaces and cancels that passed.
    pub passed: u64,
    /// Those that were refused, by [`Limit`] as a number.
    pub refused: [u64; Limit::ALL.len()],
    /// Entries of the duplicates' table that were lost inside the window: it is too small.
    pub duplicates_evicted: u64,
}

/// Buckets of a port or of a unit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Buckets {
    pub(super) orders: Bucket,
    pub(super) cancels: Bucket,
}

/// What an unarmed gate is armed for: more throws than any switch sees.
const DISARMED: u64 = u64::MAX;

/// All checks of one account, and the sums that they need. One thread owns it.
#[derive(Debug)]
pub struct RiskGate {
    pub(super) limits: Box<Limits>,
    kill: KillSwitch,
    /// The switch's count when the gate was armed.
    armed_for: u64,
    pub(super) exposures: Exposures,
    pub(super) levels: Levels,
    /// By order slot.
    pub(super) reservations: Box<[Reservation]>,
    pub(super) ports: Box<[Buckets]>,
    pub(super) units: Box<[Buckets]>,
    pub(super) duplicates: Duplicates,
    /// What the order changes that passed last.
    pub(super) pending: Pending,
    pub(super) passed: u64,
    refused: [u64; Limit::ALL.len()],
}

impl RiskGate {
    /// A disarmed gate with `limits`, whose numbers of instruments, ports and units are the gate's.
    pub fn new(limits: Box<Limits>, kill: KillSwitch, capacity: RiskCapacity) -> Self {
        Self {
            kill,
            armed_for: DISARMED,
            exposures: Exposures::new(&limits),
            levels: Levels::new(&limits),
            reservations: vec![Reservation::FREE; capacity.orders].into_boxed_slice(),
            ports: vec![Buckets::default(); limits.ports.len()].into_boxed_slice(),
            units: vec![Buckets::default(); limits.units.len()].into_boxed_slice(),
            duplicates: Duplicates::new(capacity.recent),
            limits,
            pending: Pending::NONE,
            passed: 0,
            refused: [0; Limit::ALL.len()],
        }
    }

    /// Lets orders pass, until the gate is disarmed or the kill switch is thrown.
    pub fn arm(&mut self) {
        self.arm_for(self.kill.throws());
    }

    /// The same for whoever saw the switch at [`KillSwitch::throws`] `throws`: no order passes
    /// where it was thrown since.
    pub fn arm_for(&mut self, throws: u64) {
        self.armed_for = throws;
    }

    /// The count of the switch now.
    pub(crate) fn kill_throws(&self) -> u64 {
        self.kill.throws()
    }

    /// Takes all rates of orders and replaces for used up at `now_ns`, from when they drain: what
    /// another process has sent a moment ago the venue counts too. Cancels wait for nothing.
    pub(crate) fn fill_rates(&mut self, now_ns: u64) {
        let Self { limits, exposures, levels, ports, units, .. } = self;
        for (exposure, limits) in exposures.instruments.iter_mut().zip(&limits.instruments) {
            exposure.orders_bucket = Bucket::full(limits.rates.orders, now_ns);
        }
        let of_ports = ports.iter_mut().zip(&limits.ports);
        for (buckets, limits) in of_ports.chain(units.iter_mut().zip(&limits.units)) {
            buckets.orders = Bucket::full(limits.orders, now_ns);
        }
        levels.fill_rates(limits, now_ns);
    }

    /// An order of these terms was sent at `at_ns`, by another process.
    pub(crate) fn remember(
        &mut self,
        instrument: InstrumentIdx,
        side: market::Side,
        (qty, price): (u32, market::Price),
        at_ns: u64,
    ) {
        let found = self.duplicates.find(super::duplicates::key(instrument, side, qty, price));
        self.duplicates.insert(&found, at_ns, 0);
    }

    /// Refuses orders and replaces from now on; cancels pass.
    pub fn disarm(&mut self) {
        self.armed_for = DISARMED;
    }

    /// Whether orders may pass.
    pub fn is_armed(&self) -> bool {
        self.kill.throws() == self.armed_for
    }

    /// Refuses the orders and replaces of one strategy from now on; cancels pass. Neither the kill
    /// switch nor the arming of the gate changes it. False where the strategy has no limits.
    pub fn stop_strategy(&mut self, strategy: StrategyIdx) -> bool {
        self.levels.set_stopped(strategy, true)
    }

    /// Takes the orders of one strategy again. False where the strategy has no limits.
    pub fn resume_strategy(&mut self, strategy: StrategyIdx) -> bool {
        self.levels.set_stopped(strategy, false)
    }

    /// The strategies that are stopped. For people: costs a look at each.
    pub fn stopped_strategies(&self) -> impl Iterator<Item = StrategyIdx> + '_ {
        (0..self.limits.strategies.len()).map(|idx| StrategyIdx(idx as u16)).filter(|idx| self.levels.is_stopped(*idx))
    }

    /// Whether the strategy is stopped.
    pub fn is_stopped(&self, strategy: StrategyIdx) -> bool {
        self.levels.is_stopped(strategy)
    }

    /// Why the gate refuses orders.
    #[cold]
    pub(super) const fn disarmed(&self) -> RiskReject {
        let limit = if self.armed_for == DISARMED { Limit::Disarmed } else { Limit::KillSwitch };
        RiskReject { limit, allowed: 0, value: 0, level: None }
    }

    /// Puts `limits` in force and returns those before, for another thread to free. Orders that
    /// live keep what they reserved, also where the new limits are lower. A block that is refused
    /// comes back with the reason.
    pub fn swap_limits(&mut self, limits: Box<Limits>) -> Result<Box<Limits>, (StaleLimits, Box<Limits>)> {
        let current = &self.limits;
        if limits.version <= current.version {
            let (current, offered) = (current.version, limits.version);
            return Err((StaleLimits::Version { current, offered }, limits));
        }
        let shape = |limits: &Limits| {
            (limits.instruments.len(), limits.ports.len(), limits.units.len(), limits.strategies.len())
        };
        if shape(&limits) != shape(current) {
            return Err((StaleLimits::Shape, limits));
        }
        let of = |idx: usize| InstrumentIdx(idx as u32);
        let is_other = |idx: &usize| limits.multiplier(of(*idx)) != current.multiplier(of(*idx));
        if let Some(idx) = (0..limits.instruments.len()).find(is_other) {
            let (current, offered) = (current.multiplier(of(idx)), limits.multiplier(of(idx)));
            return Err((StaleLimits::Multiplier { instrument: of(idx), current, offered }, limits));
        }
        Ok(core::mem::replace(&mut self.limits, limits))
    }

    /// The limits in force.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What was decided so far.
    pub fn counts(&self) -> RiskCounts {
        let duplicates_evicted = self.duplicates.evicted();
        RiskCounts { passed: self.passed, refused: self.refused, duplicates_evicted }
    }

    /// What one contract of an instrument is worth for each 1 of its price; 1 without limits.
    pub fn multiplier(&self, instrument: InstrumentIdx) -> Multiplier {
        self.exposures.multiplier(instrument)
    }

    /// Bought less sold; `None` for an instrument without limits.
    pub fn position(&self, instrument: InstrumentIdx) -> Option<i64> {
        self.exposures.instruments.get(instrument.0 as usize).map(|exposure| exposure.position)
    }

    /// Spent less earned, in units of [`Price`](market::Price).
    pub const fn cash(&self) -> i64 {
        self.exposures.account.cash
    }

    /// Notional that open buys and open sells hold.
    pub const fn open_notional(&self) -> (i64, i64) {
        let open = &self.exposures.account.open;
        (*open.of(market::Side::Buy), *open.of(market::Side::Sell))
    }

    /// Quantity that open buys and open sells of one instrument hold; `None` without limits.
    pub fn open_qty(&self, instrument: InstrumentIdx) -> Option<(i64, i64)> {
        let open = &self.exposures.instruments.get(instrument.0 as usize)?.open;
        Some((*open.of(market::Side::Buy), *open.of(market::Side::Sell)))
    }

    /// Whether a sale goes beyond the position, with all other open sales filled: it is marked
    /// short.
    #[inline]
    pub fn is_short(&self, order: &NewOrder) -> bool {
        let open = self.open_qty(order.instrument).map_or(0, |(_, sells)| sells);
        let position = self.position(order.instrument).unwrap_or(0);
        order.side == market::Side::Sell && position.saturating_sub(open).saturating_sub(i64::from(order.qty)) < 0
    }

    /// Reads what an order in `slot` will hold, so that its check finds the memory in the cache.
    pub(crate) fn warm(&self, slot: usize) {
        if let Some(reservation) = self.reservations.get(slot) {
            black_box(reservation.is_live);
        }
    }

    #[cold]
    pub(super) fn count_refused(&mut self, reject: RiskReject) -> RiskReject {
        self.refused[reject.limit as usize] += 1;
        reject
    }
}
