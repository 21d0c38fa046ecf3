//! Requests: the manager checks them and writes them down, and only then the session writes bytes.

use market::Price;
use order_entry::Refusal;
use order_entry::journal::JournalMemory;
use order_entry::orders::{Display, Instructions, OrderField, OrderKey, OrderType};
use order_entry::risk::NewOrder;
use order_entry::session::{OrderTerms, VenueSession, WireOrder, WireTarget};

use super::Core;
use crate::orders::OrderRequest;

impl<S: VenueSession, M: JournalMemory> Core<S, M> {
    /// Sends an order, and returns its id.
    pub(crate) fn send_order(&mut self, request: &OrderRequest, now_ns: u64) -> Result<u64, Refusal> {
        self.try_order(request, now_ns).inspect_err(|refusal| self.counts.refused.count(refusal))
    }

    /// Sends a replace, and returns its id.
    pub(crate) fn send_replace(&mut self, id: u64, terms: (u32, Price), now_ns: u64) -> Result<u64, Refusal> {
        self.try_replace(id, terms, now_ns).inspect_err(|refusal| self.counts.refused.count(refusal))
    }

    fn try_order(&mut self, request: &OrderRequest, now_ns: u64) -> Result<u64, Refusal> {
        let OrderRequest { instrument, side, qty, price, instructions, strategy } = *request;
        if let Some(field) = instructions.contradiction(qty) {
            return Err(Refusal::Contradiction(field));
        }
        let idx = instrument.0 as usize;
        let (of, market) = (*self.instruments.get(idx).ok_or(Refusal::Unknown)?, self.markets[idx]);
        self.session.may_send(&OrderTerms { qty, price, instructions }).map_err(Refusal::Session)?;
        let id = self.session.next_id();
        let order = NewOrder { instrument, side, qty, price, instructions, route: of.route, strategy };
        let opened = self.manager.new_order(id, of.symbol, &order, &market, now_ns);
        self.skip_after_disk(&opened, id, now_ns);
        let is_short = self.manager.orders().get(opened?).is_some_and(|order| order.is_short());
        let wire = WireOrder { id, instrument, symbol: of.symbol, side, is_short, qty, price, instructions };
        let sent = self.session.new_order(now_ns, &wire);
        self.used(id, now_ns);
        if let Err(error) = sent {
            self.manager.unsent(id, now_ns);
            return Err(Refusal::Session(error));
        }
        self.counts.orders += 1;
        Ok(id)
    }

    fn try_replace(&mut self, of: u64, (qty, price): (u32, Price), now_ns: u64) -> Result<u64, Refusal> {
        let slot = self.manager.orders().find(OrderKey::Client(of)).ok_or(Refusal::Unknown)?;
        let target = self.target(slot).ok_or(Refusal::Unknown)?;
        let instructions = self.replaced_instructions(slot, qty)?;
        self.session.may_send(&OrderTerms { qty, price, instructions }).map_err(Refusal::Session)?;
        let WireTarget { instrument, symbol, side, is_short, .. } = target;
        let idx = instrument.0 as usize;
        let (of, market) = (*self.instruments.get(idx).ok_or(Refusal::Unknown)?, self.markets[idx]);
        let id = self.session.next_id();
        let noted = self.manager.replace(slot, id, (qty, price), (&market, of.route), now_ns);
        self.skip_after_disk(&noted, id, now_ns);
        noted?;
        let wire = WireOrder { id, instrument, symbol, side, is_short, qty, price, instructions };
        let sent = self.session.replace_order(now_ns, &target, &wire);
        self.used(id, now_ns);
        if let Err(error) = sent {
            self.manager.replace_unsent(id, now_ns);
            return Err(Refusal::Session(error));
        }
        self.counts.replaces += 1;
        Ok(id)
    }

    /// What a replace of the order in `slot` by one of `qty` shares says besides: what the order
    /// said. One that is smaller than what it showed shows all. One that has no price cannot be
    /// given another.
    fn replaced_instructions(&self, slot: usize, qty: u32) -> Result<Instructions, Refusal> {
        let order = self.manager.orders().get(slot).ok_or(Refusal::Unknown)?;
        let mut instructions = *order.instructions();
        if instructions.order_type == OrderType::Market {
            return Err(Refusal::Contradiction(OrderField::OrderType));
        }
        if let Display::Shares(shown) = &mut instructions.display {
            *shown = qty.min(*shown);
        }
        match instructions.contradiction(qty) {
            Some(field) => Err(Refusal::Contradiction(field)),
            None => Ok(instructions),
        }
    }

    /// Cancels what is open of the order in `slot`. A full journal does not stop a cancel.
    pub(crate) fn send_cancel(&mut self, slot: usize, now_ns: u64) -> Result<(), Refusal> {
        let target = self.cancelable(slot)?;
        let route = self.instruments.get(target.instrument.0 as usize).ok_or(Refusal::Unknown)?.route;
        self.manager.cancel(slot, route, now_ns)?;
        let written = self.write_cancel(&target, now_ns);
        self.mark_numbers(now_ns);
        written
    }

    /// Cancels past the rates of the gate. With `is_again` a cancel of all was sent before, and the
    /// record of this one leaves the journal's room for answers.
    pub(super) fn cancel_past_rates(&mut self, slot: usize, is_again: bool, now_ns: u64) -> Result<(), Refusal> {
        let target = self.cancelable(slot)?;
        match is_again {
            true => self.manager.cancel_again(slot, now_ns)?,
            false => self.manager.cancel_past_rates(slot, now_ns)?,
        };
        let written = self.write_cancel(&target, now_ns);
        self.mark_cancels(now_ns);
        written
    }

    fn cancelable(&self, slot: usize) -> Result<WireTarget, Refusal> {
        self.session.may_cancel().map_err(Refusal::Session)?;
        self.target(slot).ok_or(Refusal::Unknown)
    }

    fn write_cancel(&mut self, target: &WireTarget, now_ns: u64) -> Result<(), Refusal> {
        if let Err(error) = self.session.cancel_order(now_ns, target) {
            self.manager.cancel_unsent(target.id, now_ns);
            return Err(Refusal::Session(error));
        }
        self.counts.cancels += 1;
        Ok(())
    }

    /// The order in `slot` by the names that a venue knows.
    pub(super) fn target(&self, slot: usize) -> Option<WireTarget> {
        let order = self.manager.orders().get(slot)?;
        let instrument = order.instrument;
        let symbol = self.instruments.get(instrument.0 as usize)?.symbol;
        let (id, venue_id, qty) = (order.accepted_id(), order.venue_id(), order.qty());
        let (side, is_short) = (order.side, order.is_short());
        Some(WireTarget { id, venue_id, instrument, symbol, side, is_short, qty })
    }

    /// The disk failed under the request `id`, whose id the journal may have: no other takes it.
    fn skip_after_disk<T>(&mut self, noted: &Result<T, Refusal>, id: u64, now_ns: u64) {
        if matches!(noted, Err(Refusal::Disk)) {
            self.used(id, now_ns);
        }
    }

    /// The journal has a request of this id: the session goes on behind it, also where nothing of
    /// it was written.
    fn used(&mut self, id: u64, now_ns: u64) {
        if self.session.next_id() == id {
            self.session.skip_id(now_ns);
        }
        self.marked_id = self.marked_id.max(id.saturating_add(1));
        self.mark_numbers(now_ns);
    }
}
