//! The checks, in one pass without a write; what they need to change is written when all passed.

use market::{Price, Side};

use super::exposure::{Exposure, other};
use super::gate::RiskGate;
use super::limits::{InstrumentLimits, RateLimits, SelfMatch};
use super::order::{InstrumentIdx, Market, NewOrder, OrderPrice, Replace, Route};
use super::rate::{Bucket, Overflow, Rate};
use super::reject::{Limit, RiskReject};
use super::reservation::{Held, Reservation, Terms, notional};

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

/// The buckets with the message in them.
struct Admission {
    instrument: Bucket,
    port: Bucket,
    unit: Bucket,
}

impl RiskGate {
    /// All checks of a new order. If it passes, `slot` holds its reservation until
    /// [`RiskGate::ended`]. If not, nothing has changed but a counter.
    pub fn check_new(&mut self, slot: usize, order: &NewOrder, market: &Market, now_ns: u64) -> Result<(), RiskReject> {
        match self.try_new(slot, order, market, now_ns) {
            Ok(()) => {
                self.passed += 1;
                Ok(())
            }
            Err(reject) => Err(self.count_refused(reject)),
        }
    }

    /// All checks of a change of the order in `slot`. If it passes, the slot holds the greater of
    /// the old and the new terms until [`RiskGate::replaced`] or [`RiskGate::replace_refused`].
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

    fn try_new(&mut self, slot: usize, order: &NewOrder, market: &Market, now_ns: u64) -> Result<(), RiskReject> {
        let NewOrder { instrument, side, qty, price, route } = *order;
        self.may_trade(instrument, market, now_ns)?;
        if self.reservations.get(slot).is_none_or(|reservation| reservation.is_live) {
            return Err(reject(Limit::OrderSlot, self.reservations.len() as i64, slot as i64));
        }
        let terms = Terms { price: check_terms(self.instrument(instrument)?, side, qty, price, market)?, leaves: qty };
        let request = Request { instrument, side, price: terms.price, qty_more: qty, notional_more: terms.notional() };
        self.check_sums(&request)?;
        let window_ns = self.limits.account.duplicate_window_ns;
        let found = self.duplicates.find((instrument, side), (qty, terms.price), now_ns, window_ns);
        if window_ns == 0 || found.age_ns.is_some() {
            return Err(reject(Limit::Duplicate, window_ns as i64, found.age_ns.unwrap_or(0) as i64));
        }
        let admission = self.admit(instrument, route, now_ns)?;

        self.commit_rates(instrument, route, &admission);
        self.duplicates.insert(found, now_ns, window_ns);
        let held = Held { qty, notional: request.notional_more };
        self.exposures.hold(instrument, side, Held::default(), held);
        let reservation = &mut self.reservations[slot];
        reservation.is_live = true;
        reservation.side = side;
        reservation.instrument = instrument;
        reservation.working = terms;
        reservation.pending.clear();
        reservation.held = held;
        self.exposures.instruments[instrument.0 as usize].levels.of_mut(side).add(side, terms.price);
        Ok(())
    }

    fn try_replace(&mut self, slot: usize, order: &Replace, market: &Market, now_ns: u64) -> Result<(), RiskReject> {
        let Some(Reservation { side, instrument, pending, held, .. }) =
            self.reservations.get(slot).filter(|reservation| reservation.is_live)
        else {
            return Err(reject(Limit::OrderSlot, self.reservations.len() as i64, slot as i64));
        };
        let (side, instrument, held) = (*side, *instrument, *held);
        if pending.is_full() {
            return Err(reject(Limit::PendingReplaces, pending.capacity() as i64, pending.len() as i64 + 1));
        }
        self.may_trade(instrument, market, now_ns)?;
        let price = OrderPrice::Limit(order.price);
        check_terms(self.instrument(instrument)?, side, order.qty, price, market)?;
        let terms = Terms { price: order.price, leaves: order.qty.saturating_sub(order.cum) };
        let needed = held.or(terms);
        let (qty_more, notional_more) = (needed.qty - held.qty, needed.notional - held.notional);
        self.check_sums(&Request { instrument, side, price: terms.price, qty_more, notional_more })?;
        let admission = self.admit(instrument, order.route, now_ns)?;

        self.commit_rates(instrument, order.route, &admission);
        self.exposures.hold(instrument, side, held, needed);
        self.reservations[slot].held = needed;
        self.reservations[slot].pending.push((order.id, terms));
        self.exposures.instruments[instrument.0 as usize].levels.of_mut(side).add(side, terms.price);
        Ok(())
    }

    fn try_cancel(&mut self, instrument: InstrumentIdx, route: Route, now_ns: u64) -> Result<(), RiskReject> {
        let limits = self.instrument(instrument)?.rates.cancels;
        let (port_limits, unit_limits) = self.route(route)?;
        let (port, unit) = (route.port as usize, route.unit as usize);
        let exposure = &mut self.exposures.instruments[instrument.0 as usize];
        let of_instrument = pour(&mut exposure.cancels_bucket, limits, now_ns, Limit::InstrumentRate)?;
        let of_port = pour(&mut self.ports[port].cancels, port_limits.cancels, now_ns, Limit::PortRate)?;
        let of_unit = pour(&mut self.units[unit].cancels, unit_limits.cancels, now_ns, Limit::UnitRate)?;
        exposure.cancels_bucket.commit(of_instrument);
        self.ports[port].cancels.commit(of_port);
        self.units[unit].cancels.commit(of_unit);
        Ok(())
    }

    fn instrument(&self, instrument: InstrumentIdx) -> Result<&InstrumentLimits, RiskReject> {
        let limits = self.limits.instruments.get(instrument.0 as usize);
        let count = self.limits.instruments.len();
        limits.ok_or_else(|| reject(Limit::UnknownInstrument, count as i64, i64::from(instrument.0)))
    }

    fn route(&self, route: Route) -> Result<(RateLimits, RateLimits), RiskReject> {
        let Route { port, unit } = route;
        let (ports, units) = (&self.limits.ports, &self.limits.units);
        let Some(of_port) = ports.get(port as usize) else {
            return Err(reject(Limit::UnknownPort, ports.len() as i64, i64::from(port)));
        };
        let Some(of_unit) = units.get(unit as usize) else {
            return Err(reject(Limit::UnknownUnit, units.len() as i64, i64::from(unit)));
        };
        Ok((*of_port, *of_unit))
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
        let silence_ns = now_ns.saturating_sub(market.heard_ns);
        let silence_max_ns = self.limits.account.silence_max_ns;
        // Not "greater", so that a limit of zero refuses each order.
        if silence_ns >= silence_max_ns {
            return Err(reject(Limit::SilentFeed, silence_max_ns as i64, silence_ns as i64));
        }
        Ok(())
    }

    /// Position, credit and own orders.
    fn check_sums(&self, request: &Request) -> Result<(), RiskReject> {
        let Request { instrument, side, price, qty_more, notional_more } = *request;
        let exposure = &self.exposures.instruments[instrument.0 as usize];
        let limits = self.instrument(instrument)?;
        let qty_more = i64::from(qty_more);
        let (limit, allowed, value) = exposure.worst(side, qty_more, limits);
        if value > allowed {
            return Err(reject(limit, allowed, value));
        }
        // A sale is short as far as it goes beyond the position.
        if side == Side::Sell && qty_more > 0 && value > 0 && !self.limits.shortable.is_set(instrument) {
            return Err(reject(Limit::ShortSale, 0, value));
        }
        let (limit, allowed, value) = self.exposures.account.used(side, notional_more, &self.limits.account);
        if value > allowed {
            return Err(reject(limit, allowed, value));
        }
        self.check_own_orders(exposure, side, price)
    }

    fn check_own_orders(&self, exposure: &Exposure, side: Side, price: Price) -> Result<(), RiskReject> {
        let opposite = exposure.levels.of(other(side)).best(other(side));
        if self.limits.account.self_match == SelfMatch::Refuse
            && let Some(own) = opposite
            && match side {
                Side::Buy => price >= own,
                Side::Sell => price <= own,
            }
        {
            return Err(reject(Limit::SelfMatch, own.0, price.0));
        }
        if !exposure.levels.of(side).has_room(side, price) {
            let levels = super::own_levels::LEVELS as i64;
            return Err(reject(Limit::OwnLevels, levels, levels + 1));
        }
        Ok(())
    }

    /// The three buckets with one more order.
    fn admit(&mut self, instrument: InstrumentIdx, route: Route, now_ns: u64) -> Result<Admission, RiskReject> {
        let (port_limits, unit_limits) = self.route(route)?;
        let (port, unit) = (route.port as usize, route.unit as usize);
        let rate = self.instrument(instrument)?.rates.orders;
        let bucket = &mut self.exposures.instruments[instrument.0 as usize].orders_bucket;
        Ok(Admission {
            instrument: pour(bucket, rate, now_ns, Limit::InstrumentRate)?,
            port: pour(&mut self.ports[port].orders, port_limits.orders, now_ns, Limit::PortRate)?,
            unit: pour(&mut self.units[unit].orders, unit_limits.orders, now_ns, Limit::UnitRate)?,
        })
    }

    fn commit_rates(&mut self, instrument: InstrumentIdx, route: Route, admission: &Admission) {
        self.exposures.instruments[instrument.0 as usize].orders_bucket.commit(admission.instrument);
        self.ports[route.port as usize].orders.commit(admission.port);
        self.units[route.unit as usize].orders.commit(admission.unit);
    }
}

/// Quantity, collar and notional of one order. Returns the price at which it is valued.
fn check_terms(
    limits: &InstrumentLimits,
    side: Side,
    qty: u32,
    price: OrderPrice,
    market: &Market,
) -> Result<Price, RiskReject> {
    if qty > limits.qty_max || qty == 0 {
        return Err(reject(Limit::Quantity, i64::from(limits.qty_max), i64::from(qty)));
    }
    let Some(reference) = market.reference else {
        return Err(reject(Limit::NoReference, 0, 0));
    };
    let price = match price {
        OrderPrice::Limit(price) => price,
        OrderPrice::Market => edge(reference, side, limits.collar_bps),
    };
    // In 128 bits, where no product of two prices overflows.
    let distance = u128::from(price.0.abs_diff(reference.0)) * 10_000;
    if distance > u128::from(reference.0.unsigned_abs()) * u128::from(limits.collar_bps) {
        return Err(off_collar(limits, reference, price));
    }
    let notional = notional(qty, price);
    if notional > limits.notional_max {
        return Err(reject(Limit::Notional, limits.notional_max, notional));
    }
    Ok(price)
}

/// The worst price inside the collar.
fn edge(reference: Price, side: Side, collar_bps: u32) -> Price {
    let width = i128::from(reference.0.unsigned_abs()) * i128::from(collar_bps) / 10_000;
    let width = i64::try_from(width).unwrap_or(i64::MAX);
    match side {
        Side::Buy => Price(reference.0.saturating_add(width)),
        Side::Sell => Price(reference.0.saturating_sub(width)),
    }
}

/// The bucket with one message more, or the limit that it would break.
fn pour(bucket: &mut Bucket, rate: Rate, now_ns: u64, limit: Limit) -> Result<Bucket, RiskReject> {
    bucket.with_one(rate, now_ns).map_err(|Overflow(messages)| reject(limit, rate.burst() as i64, messages as i64))
}

#[cold]
fn off_collar(limits: &InstrumentLimits, reference: Price, price: Price) -> RiskReject {
    let side = if price > reference { Side::Buy } else { Side::Sell };
    reject(Limit::Collar, edge(reference, side, limits.collar_bps).0, price.0)
}

#[cold]
const fn reject(limit: Limit, allowed: i64, value: i64) -> RiskReject {
    RiskReject { limit, allowed, value }
}
