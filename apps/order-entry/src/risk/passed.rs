//! What an order that passed changes in the gate. It is written after the send, because nobody
//! waits for it but the next check. Until then it stands in the gate, because an order waits for
//! each copy of it that is handed on.

use market::{Price, Side};

use super::duplicates::Found;
use super::gate::RiskGate;
use super::levels::LevelTokens;
use super::order::{InstrumentIdx, Route, StrategyIdx};
use super::rate::Bucket;
use super::reservation::{Held, Terms, level_price};

/// An order that passed all checks of [`RiskGate::pass_new`], for [`RiskGate::hold`].
#[derive(Debug)]
#[must_use]
pub(crate) struct Passed {
    pub(super) price: Price,
}

impl Passed {
    /// The price at which the order is valued; that of a market order is an edge of the collar.
    #[inline]
    pub(crate) const fn price(&self) -> Price {
        self.price
    }
}

/// What the order changes that passed last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) slot: usize,
    pub(super) instrument: InstrumentIdx,
    pub(super) side: Side,
    pub(super) is_market: bool,
    pub(super) route: Route,
    pub(super) strategy: StrategyIdx,
    pub(super) terms: Terms,
    pub(super) notional: i64,
    pub(super) found: Found,
    pub(super) tokens: TakenTokens,
    pub(super) level_tokens: LevelTokens,
}

impl Pending {
    /// None yet.
    pub(super) const NONE: Self = Self {
        slot: 0,
        instrument: InstrumentIdx(0),
        side: Side::Buy,
        is_market: false,
        route: Route { port: 0, unit: 0 },
        strategy: StrategyIdx(0),
        terms: Terms { price: Price(0), leaves: 0 },
        notional: 0,
        found: Found::NONE,
        tokens: TakenTokens { instrument: Bucket::EMPTY, port: Bucket::EMPTY, unit: Bucket::EMPTY },
        level_tokens: LevelTokens::EMPTY,
    };
}

/// The buckets that the order fills, with one message more.
#[derive(Clone, Copy, Debug)]
pub(super) struct TakenTokens {
    pub(super) instrument: Bucket,
    pub(super) port: Bucket,
    pub(super) unit: Bucket,
}

impl RiskGate {
    /// Reserves for an order that passed, before anything else is asked of the gate. Not inlined,
    /// so that a rehearsal runs the same instructions.
    #[inline(never)]
    pub(crate) fn hold(&mut self, _: &Passed, now_ns: u64) {
        let Self { pending, exposures, levels, limits, .. } = self;
        let Pending { slot, instrument, side, is_market, route, strategy, terms, notional, .. } = *pending;
        let (found, tokens) = (&pending.found, &pending.tokens);
        let held = Held { qty: terms.leaves, notional };
        self.passed += 1;
        self.ports[route.port as usize].orders.commit(tokens.port);
        self.units[route.unit as usize].orders.commit(tokens.unit);
        self.duplicates.insert(found, now_ns, limits.account.duplicate_window_ns);
        let exposure = &mut exposures.instruments[instrument.0 as usize];
        exposure.orders_bucket.commit(tokens.instrument);
        exposure.hold(side, Held::default(), held);
        exposure.levels.of_mut(side).add(side, level_price(is_market, side, terms.price));
        exposures.account.hold(side, Held::default(), held);
        levels.commit(strategy, &pending.level_tokens);
        levels.hold(strategy, side, Held::default(), held);
        let reservation = &mut self.reservations[slot];
        // Replaces of the slot's order before ended with it.
        (reservation.is_live, reservation.side, reservation.instrument) = (true, side, instrument);
        (reservation.strategy, reservation.working, reservation.held) = (strategy, terms, held);
        reservation.is_market = is_market;
    }
}
