//! What an order that passed changes in the gate. It is written after the send, because nobody
//! waits for it but the next check.

use market::{Price, Side};

use super::duplicates::Found;
use super::gate::RiskGate;
use super::order::{InstrumentIdx, Route};
use super::rate::Bucket;
use super::reservation::{Held, Terms};

/// An order that passed all checks of [`RiskGate::pass_new`].
#[derive(Clone, Copy, Debug)]
#[must_use]
pub(crate) struct Passed {
    pub(super) slot: usize,
    pub(super) instrument: InstrumentIdx,
    pub(super) side: Side,
    pub(super) route: Route,
    pub(super) terms: Terms,
    pub(super) found: Found,
    pub(super) poured: Poured,
}

/// The buckets that the order fills, with one message more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Poured {
    pub(super) instrument: Bucket,
    pub(super) port: Bucket,
    pub(super) unit: Bucket,
}

impl Passed {
    /// The price at which the order is valued; that of a market order is the collar's edge.
    #[inline]
    pub(crate) const fn price(&self) -> Price {
        self.terms.price
    }
}

impl RiskGate {
    /// Reserves for an order that passed, before anything else is asked of the gate. Not inlined,
    /// so that a rehearsal runs the same instructions.
    #[inline(never)]
    pub(crate) fn hold(&mut self, passed: &Passed, now_ns: u64) {
        let Passed { slot, instrument, side, route, terms, found, poured } = *passed;
        let held = Held { qty: terms.leaves, notional: terms.notional() };
        self.passed += 1;
        self.ports[route.port as usize].orders.commit(poured.port);
        self.units[route.unit as usize].orders.commit(poured.unit);
        self.duplicates.insert(found, now_ns, self.limits.account.duplicate_window_ns);
        let exposure = &mut self.exposures.instruments[instrument.0 as usize];
        exposure.orders_bucket.commit(poured.instrument);
        exposure.hold(side, Held::default(), held);
        exposure.levels.of_mut(side).add(side, terms.price);
        self.exposures.account.hold(side, Held::default(), held);
        let reservation = &mut self.reservations[slot];
        // Replaces of the slot's order before ended with it.
        (reservation.is_live, reservation.side, reservation.instrument) = (true, side, instrument);
        (reservation.working, reservation.held) = (terms, held);
    }
}
