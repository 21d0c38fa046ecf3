//! The checks, in one pass without a write; what they need to change is written when all passed.

use market::{Price, Side};

use super::exposure::{Account, Exposure, Exposures, other};
use super::gate::{Buckets, RiskGate};
use super::levels::{Ask, Level};
use super::limits::{InstrumentLimits, Limits, RateLimits, SelfMatch};
use super::multiplier::Multiplier;
use super::order::{InstrumentIdx, Market, NewOrder, Replace, Route};
use super::passed::{Passed, Pending, TakenTokens};
use super::rate::{Bucket, Overflow, Rate};
use super::reject::{Limit, RiskReject};
use super::reservation::{Terms, level_price, notional};
use crate::orders::OrderType;

/// What the sums are asked for.
#[derive(Clone, Copy)]
struct Request {
    instrument: InstrumentIdx,
    side: Side,
    price: Price,
    /// Quantity that is not reserved yet.
    qty_more: u32,
    /// Notional that is not reserved yet.
    notional_more: i64,
}

/// The sums of an instrument and of the account, with their limits: each looked up once.
struct Sums<'a> {
    all: &'a Limits,
    limits: &'a InstrumentLimits,
    exposure: &'a mut Exposure,
    account: &'a mut Account,
}

/// The buckets that a message fills, with their rates.
struct Filled<'a> {
    instrument: (&'a mut Bucket, Rate),
    port: (&'a mut Bucket, Rate),
    unit: (&'a mut Bucket, Rate),
}

/// A port's or unit's buckets, and their limits.
type Routed<'a> = (&'a mut Buckets, &'a RateLimits);

impl RiskGate {
    /// All checks of a new order. If it passes, `slot` holds its reservation until
    /// [`RiskGate::ended`]. If not, nothing has changed but a counter.
    pub fn check_new(&mut self, slot: usize, order: &NewOrder, market: &Market, now_ns: u64) -> Result<(), RiskReject> {
        let passed = self.pass_new(slot, order, market, now_ns)?;
        self.hold(&passed, now_ns);
        Ok(())
    }

    /// All checks of a new order, without its reservation: [`RiskGate::hold`] makes it, unless the
    /// order is not sent. Nothing else may be asked of the gate in between.
    #[inline]
    pub(crate) fn pass_new(
        &mut self,
        slot: usize,
        order: &NewOrder,
        market: &Market,
        now_ns: u64,
    ) -> Result<Passed, RiskReject> {
        self.try_new(slot, order, market, now_ns).map_err(|reject| self.count_refused(reject))
    }

    /// All checks of a change of the order in `slot`. If it passes, the slot holds the most that
    /// the old and the new terms allow, one after the other, until [`RiskGate::replaced`] or
    /// [`RiskGate::replace_refused`].
    pub fn check_replace(
        &mut self,
        slot: usize,
        replace: &Replace,
        market: &Market,
        now_ns: u64,
    ) -> Result<(), RiskReject> {
        match self.try_replace(slot, replace, market, now_ns) {
            Ok(()) => {
                self.passed += 1;
                Ok(())
            }
            Err(reject) => Err(self.count_refused(reject)),
        }
    }

    /// The rates of a cancel. Nothing else holds a cancel back: neither a gate that is disarmed nor
    /// a stale book.
    pub fn check_cancel(&mut self, instrument: InstrumentIdx, route: Route, now_ns: u64) -> Result<(), RiskReject> {
        match self.try_cancel(instrument, route, now_ns) {
            Ok(()) => {
                self.passed += 1;
                Ok(())
            }
            Err(reject) => Err(self.count_refused(reject)),
        }
    }

    fn try_new(&mut self, slot: usize, order: &NewOrder, market: &Market, now_ns: u64) -> Result<Passed, RiskReject> {
        let NewOrder { instrument, side, qty, price, route, strategy, .. } = *order;
        self.may_trade(instrument, market, now_ns)?;
        let Self { limits, exposures, levels, reservations, ports, units, duplicates, pending, .. } = self;
        let slots = reservations.len();
        if reservations.get(slot).is_none_or(|reservation| reservation.is_live) {
            return Err(reject(Limit::OrderSlot, slots as i64, slot as i64));
        }
        let sums = Sums::of(limits, exposures, instrument)?;
        let multiplier = sums.exposure.multiplier;
        let is_market = order.instructions.order_type == OrderType::Market;
        let price = if is_market { market_value(sums.limits, market)? } else { price };
        let level = level_price(is_market, side, price);
        check_terms(sums.limits, multiplier, (qty, price), market)?;
        let terms = Terms { price, leaves: qty };
        let notional = terms.notional(multiplier);
        sums.check(&Request { instrument, side, price: level, qty_more: qty, notional_more: notional })?;
        let ask = Ask { strategy, side, qty, notional, notional_more: notional };
        levels.check(limits, sums.account, &ask)?;
        let window_ns = limits.account.duplicate_window_ns;
        let found = duplicates.find(super::duplicates::key(instrument, side, qty, price));
        let age_ns = duplicates.age_ns(&found, now_ns, window_ns);
        if window_ns == 0 || age_ns.is_some() {
            return Err(reject(Limit::Duplicate, window_ns as i64, age_ns.unwrap_or(0) as i64));
        }
        let (port, unit) = routed(limits, (ports, units), route)?;
        let mut filled = Filled {
            instrument: (&mut sums.exposure.orders_bucket, sums.limits.rates.orders),
            port: (&mut port.0.orders, port.1.orders),
            unit: (&mut unit.0.orders, unit.1.orders),
        };
        let tokens = filled.take_tokens(now_ns)?;
        let level_tokens = levels.take_tokens(limits, strategy, now_ns)?;
        let of = Pending { slot, instrument, side, is_market, route, strategy, ..Pending::NONE };
        *pending = Pending { terms, notional, found, tokens, level_tokens, ..of };
        Ok(Passed { price })
    }

    fn try_replace(&mut self, slot: usize, order: &Replace, market: &Market, now_ns: u64) -> Result<(), RiskReject> {
        let slots = self.reservations.len();
        let Some(reservation) = self.reservations.get(slot).filter(|reservation| reservation.is_live) else {
            return Err(reject(Limit::OrderSlot, slots as i64, slot as i64));
        };
        let (side, instrument, held) = (reservation.side, reservation.instrument, reservation.held);
        let strategy = reservation.strategy;
        if reservation.pending.is_full() {
            let (room, count) = (reservation.pending.capacity() as i64, reservation.pending.len() as i64);
            return Err(reject(Limit::PendingReplaces, room, count + 1));
        }
        let terms = Terms { price: order.price, leaves: order.qty.saturating_sub(order.cum) };
        let multiplier = self.exposures.multiplier(instrument);
        let needed = reservation.needed_with(terms, multiplier);
        let is_again = reservation.last_terms() == terms;
        self.may_trade(instrument, market, now_ns)?;
        let Self { limits, exposures, levels, reservations, ports, units, .. } = self;
        let sums = Sums::of(limits, exposures, instrument)?;
        check_terms(sums.limits, multiplier, (order.qty, order.price), market)?;
        if is_again {
            return Err(reject(Limit::Duplicate, limits.account.duplicate_window_ns as i64, 0));
        }
        let (qty_more, notional_more) = (needed.qty - held.qty, needed.notional - held.notional);
        sums.check(&Request { instrument, side, price: terms.price, qty_more, notional_more })?;
        if !order.is_short {
            sums.check_mark(side, qty_more)?;
        }
        let notional = notional(multiplier, order.qty, order.price);
        levels.check(limits, sums.account, &Ask { strategy, side, qty: order.qty, notional, notional_more })?;
        let (port, unit) = routed(limits, (ports, units), order.route)?;
        let level_tokens = levels.take_tokens(limits, strategy, now_ns)?;
        Filled {
            instrument: (&mut sums.exposure.orders_bucket, sums.limits.rates.orders),
            port: (&mut port.0.orders, port.1.orders),
            unit: (&mut unit.0.orders, unit.1.orders),
        }
        .with_one(now_ns)?;

        sums.exposure.hold(side, held, needed);
        sums.account.hold(side, held, needed);
        levels.commit(strategy, &level_tokens);
        levels.hold(strategy, side, held, needed);
        sums.exposure.levels.of_mut(side).add(side, terms.price);
        let reservation = &mut reservations[slot];
        reservation.held = needed;
        reservation.pending.push((order.id, terms));
        Ok(())
    }

    fn try_cancel(&mut self, instrument: InstrumentIdx, route: Route, now_ns: u64) -> Result<(), RiskReject> {
        let Self { limits, exposures, ports, units, .. } = self;
        let sums = Sums::of(limits, exposures, instrument)?;
        let (port, unit) = routed(limits, (ports, units), route)?;
        Filled {
            instrument: (&mut sums.exposure.cancels_bucket, sums.limits.rates.cancels),
            port: (&mut port.0.cancels, port.1.cancels),
            unit: (&mut unit.0.cancels, unit.1.cancels),
        }
        .with_one(now_ns)
    }

    /// The switch, the list of restricted instruments, and the state of the feed.
    fn may_trade(&self, instrument: InstrumentIdx, market: &Market, now_ns: u64) -> Result<(), RiskReject> {
        if !self.is_armed() {
            return Err(self.disarmed());
        }
        if self.limits.restricted.is_set(instrument) {
            return Err(reject(Limit::Restricted, 0, 0));
        }
        if market.is_stale {
            return Err(reject(Limit::StaleBook, 0, 0));
        }
        if market.is_halted {
            return Err(reject(Limit::Halted, 0, 0));
        }
        let silence_ns = now_ns.saturating_sub(market.heard_ns);
        let silence_max_ns = self.limits.account.silence_max_ns;
        // Not "greater", so that a limit of zero refuses each order.
        if silence_ns >= silence_max_ns {
            return Err(reject(Limit::SilentFeed, silence_max_ns as i64, silence_ns as i64));
        }
        Ok(())
    }
}

impl<'a> Sums<'a> {
    #[inline(always)]
    fn of(all: &'a Limits, exposures: &'a mut Exposures, instrument: InstrumentIdx) -> Result<Self, RiskReject> {
        let Exposures { instruments, account } = exposures;
        let idx = instrument.0 as usize;
        match (all.instruments.get(idx), instruments.get_mut(idx)) {
            (Some(limits), Some(exposure)) => Ok(Self { all, limits, exposure, account }),
            _ => Err(reject(Limit::UnknownInstrument, all.instruments.len() as i64, i64::from(instrument.0))),
        }
    }

    /// Position, credit and own orders.
    #[inline(always)]
    fn check(&self, request: &Request) -> Result<(), RiskReject> {
        let Request { instrument, side, price, qty_more, notional_more } = *request;
        let qty_more = i64::from(qty_more);
        let (limit, allowed, value) = self.exposure.worst(side, qty_more, self.limits);
        if value > allowed {
            return Err(reject(limit, allowed, value));
        }
        // A sale is short as far as it goes beyond the position.
        if side == Side::Sell && qty_more > 0 && value > 0 && !self.all.shortable.is_set(instrument) {
            return Err(reject(Limit::ShortSale, 0, value));
        }
        let of = &self.all.account;
        let (limit, allowed, value) = self.account.used(side, notional_more, (of.buy_credit_max, of.sell_credit_max));
        if value > allowed {
            return Err(RiskReject { level: Some(Level::Account), ..reject(limit, allowed, value) });
        }
        self.check_own_orders(side, price)
    }

    /// A replace keeps its order's mark: what is sold as long must be there, whatever may be sold
    /// short.
    fn check_mark(&self, side: Side, qty_more: u32) -> Result<(), RiskReject> {
        let (_, _, beyond) = self.exposure.worst(side, i64::from(qty_more), self.limits);
        if side == Side::Sell && qty_more > 0 && beyond > 0 {
            return Err(reject(Limit::ShortSale, 0, beyond));
        }
        Ok(())
    }

    #[inline(always)]
    fn check_own_orders(&self, side: Side, price: Price) -> Result<(), RiskReject> {
        let opposite = self.exposure.levels.of(other(side)).best(other(side));
        if self.all.account.self_match == SelfMatch::Refuse
            && let Some(own) = opposite
            && match side {
                Side::Buy => price >= own,
                Side::Sell => price <= own,
            }
        {
            return Err(reject(Limit::SelfMatch, own.0, price.0));
        }
        if !self.exposure.levels.of(side).has_room(side, price) {
            let levels = super::own_levels::LEVELS as i64;
            return Err(reject(Limit::OwnLevels, levels, levels + 1));
        }
        Ok(())
    }
}

impl Filled<'_> {
    /// The three buckets with one message more.
    #[inline(always)]
    fn take_tokens(&mut self, now_ns: u64) -> Result<TakenTokens, RiskReject> {
        Ok(TakenTokens {
            instrument: take_token(&mut *self.instrument.0, self.instrument.1, now_ns, Limit::InstrumentRate)?,
            port: take_token(&mut *self.port.0, self.port.1, now_ns, Limit::PortRate)?,
            unit: take_token(&mut *self.unit.0, self.unit.1, now_ns, Limit::UnitRate)?,
        })
    }

    /// Puts one message more into all three buckets, or into none.
    #[inline(always)]
    fn with_one(mut self, now_ns: u64) -> Result<(), RiskReject> {
        let TakenTokens { instrument, port, unit } = self.take_tokens(now_ns)?;
        self.instrument.0.commit(instrument);
        self.port.0.commit(port);
        self.unit.0.commit(unit);
        Ok(())
    }
}

/// The port and the unit of `route`.
#[inline(always)]
fn routed<'a>(
    limits: &'a Limits,
    (ports, units): (&'a mut [Buckets], &'a mut [Buckets]),
    route: Route,
) -> Result<(Routed<'a>, Routed<'a>), RiskReject> {
    let Route { port, unit } = route;
    let Some(port) = ports.get_mut(port as usize).zip(limits.ports.get(port as usize)) else {
        return Err(reject(Limit::UnknownPort, limits.ports.len() as i64, i64::from(port)));
    };
    let Some(unit) = units.get_mut(unit as usize).zip(limits.units.get(unit as usize)) else {
        return Err(reject(Limit::UnknownUnit, limits.units.len() as i64, i64::from(unit)));
    };
    Ok((port, unit))
}

/// The price at which a market order is valued: that of the collar's edges which is worth more,
/// because a sale holds credit too. Without a collar it has none.
#[cold]
fn market_value(limits: &InstrumentLimits, market: &Market) -> Result<Price, RiskReject> {
    let reference = market.reference.ok_or(reject(Limit::NoReference, 0, 0))?;
    let outward = if reference.0 < 0 { Side::Sell } else { Side::Buy };
    match limits.collar_bps {
        0 => Err(reject(Limit::Collar, 0, reference.0)),
        collar_bps => Ok(edge(reference, outward, collar_bps)),
    }
}

/// Quantity, collar and notional of one order.
#[inline(always)]
fn check_terms(
    limits: &InstrumentLimits,
    multiplier: Multiplier,
    (qty, price): (u32, Price),
    market: &Market,
) -> Result<(), RiskReject> {
    if qty > limits.qty_max || qty == 0 {
        return Err(reject(Limit::Quantity, i64::from(limits.qty_max), i64::from(qty)));
    }
    let Some(reference) = market.reference else {
        return Err(reject(Limit::NoReference, 0, 0));
    };
    // In 128 bits, where no product of two prices overflows.
    let value = u128::from(reference.0.unsigned_abs());
    if u128::from(market.spread.0.unsigned_abs()) * 10_000 > value * u128::from(limits.spread_max_bps) {
        return Err(too_wide(limits, reference, market.spread));
    }
    let distance = u128::from(price.0.abs_diff(reference.0)) * 10_000;
    if distance > value * u128::from(limits.collar_bps) {
        return Err(off_collar(limits, reference, price));
    }
    let notional = notional(multiplier, qty, price);
    if notional > limits.notional_max {
        return Err(reject(Limit::Notional, limits.notional_max, notional));
    }
    Ok(())
}

/// So many hundredths of a percent of a price.
fn part(price: Price, bps: u16) -> i64 {
    i64::try_from(i128::from(price.0.unsigned_abs()) * i128::from(bps) / 10_000).unwrap_or(i64::MAX)
}

/// The worst price inside the collar.
fn edge(reference: Price, side: Side, collar_bps: u16) -> Price {
    let width = part(reference, collar_bps);
    match side {
        Side::Buy => Price(reference.0.saturating_add(width)),
        Side::Sell => Price(reference.0.saturating_sub(width)),
    }
}

/// The bucket with one message more, or the limit that it would break.
#[inline(always)]
pub(super) fn take_token(bucket: &mut Bucket, rate: Rate, now_ns: u64, limit: Limit) -> Result<Bucket, RiskReject> {
    bucket.with_one(rate, now_ns).map_err(|Overflow(messages)| reject(limit, rate.burst() as i64, messages as i64))
}

#[cold]
fn off_collar(limits: &InstrumentLimits, reference: Price, price: Price) -> RiskReject {
    let side = if price > reference { Side::Buy } else { Side::Sell };
    reject(Limit::Collar, edge(reference, side, limits.collar_bps).0, price.0)
}

#[cold]
fn too_wide(limits: &InstrumentLimits, reference: Price, spread: Price) -> RiskReject {
    reject(Limit::Spread, part(reference, limits.spread_max_bps), spread.0)
}

#[cold]
pub(super) const fn reject(limit: Limit, allowed: i64, value: i64) -> RiskReject {
    RiskReject { limit, allowed, value, level: None }
}
