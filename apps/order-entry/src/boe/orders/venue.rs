//! The session behind the interface of all protocols.

use super::{BODY_LEN, BoeClientError, BoeOrderClient, OrderWords};
use crate::ReasonCodes;
use crate::journal::SessionMark;
use crate::orders::OrderRules;
use crate::session::{OrderTerms, SendError, SessionError, SessionEvent, VenueSession, WireOrder, WireTarget};

/// Bytes that an order leaves for cancels and heartbeats.
const SPARE: usize = 256;
/// Bytes of the longer header.
const HEADER_LEN: usize = 12;
/// The largest quantity of an order: Cboe's matching engines take no more shares.
const QUANTITY_MAX: u32 = 999_999;

fn sentence(error: BoeClientError) -> SessionError {
    if error.is_gap() { SessionError::gap(error) } else { SessionError::new(error) }
}

impl<W: OrderWords> BoeOrderClient<W> {
    fn closed(&self) -> Result<(), SendError> {
        if self.client.is_active() { Ok(()) } else { Err(SendError::Closed) }
    }

    fn take_id(&mut self, id: u64) {
        debug_assert_eq!(self.next_id, id, "the id is that of the call before");
        self.next_id += 1;
    }

    /// Writes a message that `write` makes.
    fn write(
        &mut self,
        now_ns: u64,
        write: impl FnOnce(&Self, &mut [u8]) -> Option<(u16, usize)>,
    ) -> Result<(), SendError> {
        let mut body = [0; BODY_LEN];
        let (kind, len) = write(self, &mut body).ok_or(SendError::Range)?;
        self.send(now_ns, kind, &body[..len]).map_err(|_| SendError::Room)
    }
}

impl<W: OrderWords> VenueSession for BoeOrderClient<W> {
    fn rules(&self) -> OrderRules {
        Self::rules()
    }

    fn reason_codes(&self) -> Option<ReasonCodes> {
        Some(ReasonCodes::Boe)
    }

    fn resume(&mut self, mark: &SessionMark) {
        Self::resume(self, mark);
    }

    fn resume_unit(&mut self, unit: u8, sequence: u32) {
        Self::resume_unit(self, unit, sequence);
    }

    fn mark(&self) -> SessionMark {
        Self::mark(self)
    }

    fn connected(&mut self, now_ns: u64) -> Result<(), SessionError> {
        Self::connected(self, now_ns).map_err(sentence)
    }

    fn disconnected(&mut self) {
        Self::disconnected(self);
    }

    fn receive(&mut self, now_ns: u64, input: &mut &[u8]) -> Result<Option<SessionEvent>, SessionError> {
        Self::receive(self, now_ns, input).map_err(sentence)
    }

    fn tick(&mut self, now_ns: u64) -> Result<(), SessionError> {
        let Self { client, out, .. } = self;
        out.write(|output| client.tick(now_ns, output)).map_err(SessionError::new)
    }

    fn is_open(&self) -> bool {
        self.client.is_active()
    }

    fn next_id(&self) -> u64 {
        self.next_id
    }

    fn skip_id(&mut self, _now_ns: u64) {
        self.next_id += 1;
    }

    fn may_send(&self, terms: &OrderTerms) -> Result<(), SendError> {
        self.closed()?;
        // Spreads of futures trade below zero too, but the risk gate values no such price.
        if terms.qty == 0 || terms.qty > QUANTITY_MAX || !terms.has_price(i64::MAX) {
            return Err(SendError::Range);
        }
        if let Some(field) = W::lacks(&terms.instructions) {
            return Err(SendError::Field(field));
        }
        if self.out.room() < HEADER_LEN + BODY_LEN + SPARE { Err(SendError::Room) } else { Ok(()) }
    }

    fn may_cancel(&self) -> Result<(), SendError> {
        self.closed()?;
        if self.out.room() < HEADER_LEN + BODY_LEN { Err(SendError::Room) } else { Ok(()) }
    }

    fn new_order(&mut self, now_ns: u64, wire: &WireOrder) -> Result<(), SendError> {
        self.may_send(&wire.terms())?;
        self.take_id(wire.id);
        self.write(now_ns, |it, out| W::new_order(&it.firm, wire, out))
    }

    fn replace_order(&mut self, now_ns: u64, target: &WireTarget, wire: &WireOrder) -> Result<(), SendError> {
        self.may_send(&wire.terms())?;
        self.take_id(wire.id);
        self.write(now_ns, |it, out| W::modify(&it.firm, target, wire, out))
    }

    fn cancel_order(&mut self, now_ns: u64, target: &WireTarget) -> Result<(), SendError> {
        self.may_cancel()?;
        self.write(now_ns, |it, out| W::cancel(&it.firm, target.id, out))
    }

    /// By a mass cancel of version 3, which takes an id. What became of each order is numbered, and
    /// replayed; a refusal is not.
    fn cancel_all(&mut self, now_ns: u64) -> Result<bool, SendError> {
        self.may_cancel()?;
        if W::HAS_MASS_CANCEL {
            let id = self.next_id;
            self.take_id(id);
            self.write(now_ns, |it, out| W::mass_cancel(&it.firm, id, out))?;
        }
        Ok(W::HAS_MASS_CANCEL)
    }

    /// BOE has no question; the next login answers.
    fn ask_status(&mut self, _now_ns: u64, _target: &WireTarget) -> Result<bool, SendError> {
        self.closed()?;
        Ok(false)
    }

    fn unread(&self) -> &[u8] {
        self.unread.bytes()
    }

    fn log_out(&mut self, now_ns: u64) {
        let Self { client, out, .. } = self;
        // A connection that is not logged in is closed by its owner alone.
        let _ = out.write(|output| client.logout(now_ns, output));
    }

    fn to_send(&self) -> &[u8] {
        self.out.to_send()
    }

    fn sent(&mut self, len: usize) {
        self.out.sent(len);
    }
}
