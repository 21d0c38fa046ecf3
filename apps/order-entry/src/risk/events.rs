//! What became of orders that passed: reservations shrink, move and end.

use market::{Price, Side};

use super::gate::RiskGate;
use super::order::{InstrumentIdx, StrategyIdx};
use super::reservation::{Reservation, Terms, level_price, notional};
use crate::orders::OrderType;

impl RiskGate {
    /// The order in `slot` traded: the position moves, and the reservation shrinks, where the order
    /// has one. An instrument without limits has no position, and uses credit all the same.
    pub fn traded(&mut self, slot: usize, instrument: InstrumentIdx, side: Side, (qty, price): (u32, Price)) {
        self.book(instrument, side, (qty, price), 1);
        let Some(reservation) = live(&mut self.reservations, slot) else { return };
        reservation.working.leaves = reservation.working.leaves.saturating_sub(qty);
        // Their totals count executions of any id of the chain.
        for (_, terms) in &mut reservation.pending {
            terms.leaves = terms.leaves.saturating_sub(qty);
        }
        self.rehold(slot);
    }

    /// A trade of an order that holds nothing any more: after its end, of a drop copy, or of the
    /// journal. An instrument without limits has no position, and uses credit all the same.
    pub fn book_trade(&mut self, instrument: InstrumentIdx, side: Side, qty: u32, price: Price) {
        self.book(instrument, side, (qty, price), 1);
    }

    /// A trade was busted or corrected: it counts no more.
    pub fn reverse_trade(&mut self, instrument: InstrumentIdx, side: Side, qty: u32, price: Price) {
        self.book(instrument, side, (qty, price), -1);
    }

    /// The position is so many shares greater than was known, without a trade: the opening
    /// position. No credit is used. An instrument without limits is ignored.
    pub fn move_position(&mut self, instrument: InstrumentIdx, shares: i64) {
        if let Some(exposure) = self.exposures.instruments.get_mut(instrument.0 as usize) {
            exposure.position = exposure.position.saturating_add(shares);
        }
    }

    /// A trade is the strategy's too; `sign` −1 reverses one.
    pub(super) fn book_for(
        &mut self,
        strategy: StrategyIdx,
        (instrument, side): (InstrumentIdx, Side),
        (qty, price): (u32, Price),
        sign: i64,
    ) {
        self.levels.trade(strategy, side, notional(self.exposures.multiplier(instrument), qty, price), sign);
    }

    /// The money counts also where the instrument has no limits any more: it was spent or earned.
    fn book(&mut self, instrument: InstrumentIdx, side: Side, trade: (u32, Price), sign: i64) {
        self.exposures.trade(instrument, side, trade, sign);
    }

    /// The venue accepted the replace `id`: its terms hold, and those of replaces before it are
    /// void, because a session keeps the order of messages.
    pub fn replaced(&mut self, slot: usize, id: u64) {
        let Some(reservation) = live(&mut self.reservations, slot) else { return };
        let Some(place) = reservation.pending.iter().position(|(pending, _)| *pending == id) else { return };
        let (instrument, side) = (reservation.instrument, reservation.side);
        let levels = self.exposures.instruments[instrument.0 as usize].levels.of_mut(side);
        levels.remove(side, reservation.level());
        for (idx, (_, terms)) in reservation.pending.drain(..=place).enumerate() {
            if idx < place {
                levels.remove(side, terms.price);
            } else {
                reservation.working = terms;
            }
        }
        self.rehold(slot);
    }

    /// The venue refused the replace `id`, or ignored it for good: the terms before it hold.
    pub fn replace_refused(&mut self, slot: usize, id: u64) {
        let Some(reservation) = live(&mut self.reservations, slot) else { return };
        let Some(place) = reservation.pending.iter().position(|(pending, _)| *pending == id) else { return };
        let (_, terms) = reservation.pending.remove(place);
        let (instrument, side) = (reservation.instrument, reservation.side);
        self.exposures.instruments[instrument.0 as usize].levels.of_mut(side).remove(side, terms.price);
        self.rehold(slot);
    }

    /// The venue changed the order by itself, or canceled a part of it: `leaves` are open at
    /// `price`. Quantities of unanswered replaces stay, because they are intended totals.
    pub fn restated(&mut self, slot: usize, leaves: u32, price: Price) {
        let Some(reservation) = live(&mut self.reservations, slot) else { return };
        let (instrument, side) = (reservation.instrument, reservation.side);
        if price != reservation.working.price {
            let levels = self.exposures.instruments[instrument.0 as usize].levels.of_mut(side);
            levels.remove(side, reservation.level());
            // A full side keeps the old price, which is as near as the gate can say.
            if levels.has_room(side, level_price(reservation.is_market, side, price)) {
                reservation.working.price = price;
            }
            levels.add(side, reservation.level());
        }
        reservation.working.leaves = leaves;
        self.rehold(slot);
    }

    /// The order is dead: the slot is free, and all that it held is released.
    pub fn ended(&mut self, slot: usize) {
        let Some(reservation) = live(&mut self.reservations, slot) else { return };
        reservation.is_live = false;
        let (instrument, side) = (reservation.instrument, reservation.side);
        let levels = self.exposures.instruments[instrument.0 as usize].levels.of_mut(side);
        levels.remove(side, reservation.level());
        for (_, terms) in reservation.pending.drain(..) {
            levels.remove(side, terms.price);
        }
        reservation.working = Terms::default();
        self.rehold(slot);
    }

    /// Takes an order over that lives at the venue, from the journal or from a standby: it is
    /// reserved without a check. Whether there was a free slot, and limits for the instrument.
    pub fn restore_order(&mut self, slot: usize, instrument: InstrumentIdx, side: Side, open: (u32, Price)) -> bool {
        self.restore_order_of(StrategyIdx(0), OrderType::Limit, slot, (instrument, side), open)
    }

    /// The same for an order of any strategy and type.
    pub fn restore_order_of(
        &mut self,
        strategy: StrategyIdx,
        order_type: OrderType,
        slot: usize,
        (instrument, side): (InstrumentIdx, Side),
        (leaves, price): (u32, Price),
    ) -> bool {
        let Some(exposure) = self.exposures.instruments.get_mut(instrument.0 as usize) else { return false };
        let Some(reservation) = self.reservations.get_mut(slot).filter(|reservation| !reservation.is_live) else {
            return false;
        };
        let is_market = order_type == OrderType::Market;
        let level = level_price(is_market, side, price);
        if !exposure.levels.of(side).has_room(side, level) {
            return false;
        }
        exposure.levels.of_mut(side).add(side, level);
        let (working, free) = (Terms { price, leaves }, Reservation::FREE);
        let restored = Reservation { is_live: true, side, is_market, instrument, strategy, working, ..free };
        *reservation = restored;
        self.rehold(slot);
        true
    }

    /// Takes a replace over that the venue may have, as [`RiskGate::restore_order`] does an order.
    /// `open` are the shares that would be open, and the price.
    pub fn restore_replace(&mut self, slot: usize, id: u64, open: (u32, Price)) -> bool {
        let Some(reservation) = live(&mut self.reservations, slot) else { return false };
        let (instrument, side) = (reservation.instrument, reservation.side);
        let levels = self.exposures.instruments[instrument.0 as usize].levels.of_mut(side);
        let (leaves, price) = open;
        if reservation.pending.is_full() || !levels.has_room(side, price) {
            return false;
        }
        levels.add(side, price);
        reservation.pending.push((id, Terms { price, leaves }));
        self.rehold(slot);
        true
    }

    /// Makes what `slot` holds what its terms need.
    fn rehold(&mut self, slot: usize) {
        let reservation = &mut self.reservations[slot];
        let multiplier = self.exposures.multiplier(reservation.instrument);
        let (held, needed) = (reservation.held, reservation.needed(multiplier));
        reservation.held = needed;
        self.exposures.hold(reservation.instrument, reservation.side, held, needed);
        self.levels.hold(reservation.strategy, reservation.side, held, needed);
    }
}

/// The order that lives in `slot`.
fn live(reservations: &mut [Reservation], slot: usize) -> Option<&mut Reservation> {
    reservations.get_mut(slot).filter(|reservation| reservation.is_live)
}
