//! Requests: state, risk, journal, and only then the bytes.

use market::{Price, Side};
use order_entry::journal::{Entry, Intent};
use order_entry::orders::{OrderKey, VenueEvent};
use order_entry::risk::{InstrumentIdx, NewOrder, OrderPrice, Replace, RiskReject};

use super::Core;
use crate::JournalMemory;
use crate::orders::{OrderRequest, Refusal};
use crate::session::{SendError, Session, WireOrder};

impl<S: Session, M: JournalMemory> Core<S, M> {
    /// Sends an order, and returns its id.
    pub(crate) fn send_order(&mut self, request: &OrderRequest, now_ns: u64) -> Result<u64, Refusal> {
        self.try_order(request, now_ns).inspect_err(|_| self.counts.refused += 1)
    }

    /// Sends a replace, and returns its id.
    pub(crate) fn send_replace(&mut self, id: u64, terms: (u32, Price), now_ns: u64) -> Result<u64, Refusal> {
        self.try_replace(id, terms, now_ns).inspect_err(|_| self.counts.refused += 1)
    }

    fn try_order(&mut self, request: &OrderRequest, now_ns: u64) -> Result<u64, Refusal> {
        let OrderRequest { instrument, side, qty, price, is_ioc } = *request;
        let idx = instrument.0 as usize;
        let (of, market) = (*self.instruments.get(idx).ok_or(Refusal::Unknown)?, self.markets[idx]);
        self.may_send(qty, price)?;
        let id = self.session.next_id();
        let slot = self.table.may_open(id, instrument).map_err(Refusal::State)?;
        let order = NewOrder { instrument, side, qty, price: OrderPrice::Limit(price), route: of.route };
        let is_short = self.is_short(instrument, side, qty);
        if let Err(reject) = self.gate.check_new(slot, &order, &market, now_ns) {
            return Err(self.refused(instrument, reject, now_ns));
        }
        let intent = Intent::New { id, symbol: of.symbol, instrument, side, qty, price };
        let opened = self
            .intend(&intent, now_ns)
            .and_then(|()| self.table.open(id, (instrument, side), (qty, price), now_ns).map_err(Refusal::State));
        if let Err(refusal) = opened {
            self.gate.ended(slot);
            return Err(refusal);
        }
        let wire = WireOrder { id, symbol: of.symbol, side, is_short, qty, price, is_ioc };
        if let Err(error) = self.write(|session, output| session.new_order(now_ns, &wire, output)) {
            self.note(&Entry::Unsent { id }, now_ns);
            self.table.abandon(slot);
            self.gate.ended(slot);
            return Err(Refusal::Session(error));
        }
        self.counts.orders += 1;
        Ok(id)
    }

    fn try_replace(&mut self, of: u64, terms: (u32, Price), now_ns: u64) -> Result<u64, Refusal> {
        let (qty, price) = terms;
        self.may_send(qty, price)?;
        let slot = self.table.find(OrderKey::Client(of)).ok_or(Refusal::Unknown)?;
        let id = self.session.next_id();
        self.table.may_replace(slot, id).map_err(Refusal::State)?;
        let order = self.table.get(slot).ok_or(Refusal::Unknown)?;
        let (instrument, side, cum, target) = (order.instrument, order.side, order.cum(), order.accepted_id());
        let idx = instrument.0 as usize;
        let (of, market) = (*self.instruments.get(idx).ok_or(Refusal::Unknown)?, self.markets[idx]);
        let replace = Replace { id, qty, cum, price, route: of.route };
        if let Err(reject) = self.gate.check_replace(slot, &replace, &market, now_ns) {
            return Err(self.refused(instrument, reject, now_ns));
        }
        if let Err(refusal) = self.intend(&Intent::Replace { target, id, qty, price }, now_ns) {
            self.gate.replace_refused(slot, id);
            return Err(refusal);
        }
        if let Err(error) = self.table.request_replace(slot, id, terms, now_ns) {
            self.gate.replace_refused(slot, id);
            return Err(Refusal::State(error));
        }
        let wire = WireOrder { id, symbol: of.symbol, side, is_short: false, qty, price, is_ioc: false };
        if let Err(error) = self.write(|session, output| session.replace(now_ns, target, &wire, output)) {
            self.apply_noted(OrderKey::Client(id), VenueEvent::ReplaceRefused { id, reason: 0 }, 0, now_ns);
            return Err(Refusal::Session(error));
        }
        self.counts.replaces += 1;
        Ok(id)
    }

    /// Cancels what is open of the order in `slot`. A full journal does not stop a cancel.
    pub(crate) fn send_cancel(&mut self, slot: usize, now_ns: u64) -> Result<(), Refusal> {
        if !self.session.is_open() {
            return Err(Refusal::Session(SendError::Closed));
        }
        let order = self.table.get(slot).ok_or(Refusal::Unknown)?;
        let instrument = order.instrument;
        let route = self.instruments.get(instrument.0 as usize).ok_or(Refusal::Unknown)?.route;
        if let Err(reject) = self.gate.check_cancel(instrument, route, now_ns) {
            return Err(self.refused(instrument, reject, now_ns));
        }
        self.cancel_unchecked(slot, now_ns)
    }

    fn cancel_unchecked(&mut self, slot: usize, now_ns: u64) -> Result<(), Refusal> {
        let target = self.table.request_cancel(slot, now_ns).map_err(Refusal::State)?;
        self.note(&Entry::Intent(Intent::Cancel { target }), now_ns);
        if let Err(error) = self.write(|session, output| session.cancel(now_ns, target, output)) {
            self.apply_noted(OrderKey::Client(target), VenueEvent::CancelRefused { reason: 0 }, 0, now_ns);
            return Err(Refusal::Session(error));
        }
        self.counts.cancels += 1;
        Ok(())
    }

    /// Cancels everything, past the rates of the gate: by the venue's mass cancel, or order by
    /// order. What cannot be written now is done when the line has room.
    pub(crate) fn send_cancel_all(&mut self, now_ns: u64) {
        match self.write(|session, output| session.cancel_all(now_ns, output)) {
            Ok(true) => self.counts.cancels += 1,
            Ok(false) => {
                for slot in 0..self.table.used() {
                    if self.table.get(slot).is_some_and(|order| order.is_live()) {
                        self.is_mass_cancel_due |=
                            matches!(self.cancel_unchecked(slot, now_ns), Err(Refusal::Session(_)));
                    }
                }
            }
            Err(_) => self.is_mass_cancel_due = true,
        }
    }

    fn may_send(&mut self, qty: u32, price: Price) -> Result<(), Refusal> {
        self.write(|session, output| session.may_send(qty, price, output)).map_err(Refusal::Session)
    }

    /// Writes down what is about to be sent.
    fn intend(&mut self, intent: &Intent, now_ns: u64) -> Result<(), Refusal> {
        let (entry, stamp) = (Entry::Intent(*intent), self.stamp(now_ns));
        let from = self.journal.end();
        self.journal.append_request(entry.kind(), stamp, &entry.encode()).map_err(Refusal::Journal)?;
        let len = self.journal.end() - from;
        if self.journal.memory().before_send(from, len).is_ok() {
            return Ok(());
        }
        self.take_back(intent, now_ns);
        Err(Refusal::Disk)
    }

    /// The disk has failed: the intent is not sent, and no other is before a person arms again.
    #[cold]
    fn take_back(&mut self, intent: &Intent, now_ns: u64) {
        let entry = match *intent {
            Intent::New { id, .. } => Entry::Unsent { id },
            Intent::Replace { target, id, .. } => {
                let event = VenueEvent::ReplaceRefused { id, reason: 0 };
                Entry::Answer { number: 0, key: OrderKey::Client(target), event }
            }
            Intent::Cancel { .. } => return,
        };
        self.note(&entry, now_ns);
        self.session.skip_id();
        self.disarm(now_ns);
    }

    fn refused(&mut self, instrument: InstrumentIdx, reject: RiskReject, now_ns: u64) -> Refusal {
        self.note(&Entry::Refused { instrument, reject }, now_ns);
        Refusal::Risk(reject)
    }

    /// Whether a sale goes beyond the position, with all other open sales filled.
    fn is_short(&self, instrument: InstrumentIdx, side: Side, qty: u32) -> bool {
        let open = self.gate.open_qty(instrument).map_or(0, |(_, sells)| sells);
        let position = self.gate.position(instrument).unwrap_or(0);
        side == Side::Sell && position.saturating_sub(open).saturating_sub(i64::from(qty)) < 0
    }
}
