//! The session behind the interface of all protocols.

use market::{Price, Side};

use super::FixClient;
use super::books::Change;
use crate::ReasonCodes;
use crate::fix::codec::Decimal;
use crate::fix::orders::{CancelOrder, MassCancel, NewOrder, ReplaceOrder, Side as FixSide, StatusRequest};
use crate::fix::session::{MessageStore, SendError as FixSendError};
use crate::journal::SessionMark;
use crate::orders::OrderRules;
use crate::session::{OrderTerms, SendError, SessionError, SessionEvent, VenueSession, WireOrder, WireTarget};

/// Bytes that an order leaves for its cancel, heartbeats and a logout.
const SPARE: usize = 2 * 1_024;
/// Bytes of a cancel, whatever its names.
const CANCEL_LEN: usize = 1_024;
/// A template has eight digits for shares.
const QTY_MAX: u32 = 99_999_999;
/// A template has eight digits before the point, and four decimals of a price are behind it.
const PRICE_MAX: i64 = 99_999_999 * Price::SCALE;
/// MassCancelRequestType (530).
const ALL_ORDERS: u64 = 7;
/// MsgSeqNums of a template, less those that cancels and heartbeats may take after the last order.
pub(super) const SEQ_MAX: u64 = 99_000_000;

impl VenueSession for FixClient {
    fn rules(&self) -> OrderRules {
        Self::rules()
    }

    fn reason_codes(&self) -> Option<ReasonCodes> {
        Some(ReasonCodes::Fix)
    }

    fn resume(&mut self, mark: &SessionMark) {
        Self::resume(self, mark);
    }

    fn set_epoch_offset_ns(&mut self, epoch_offset_ns: u64) {
        self.epoch_offset_ns = epoch_offset_ns;
    }

    fn mark(&self) -> SessionMark {
        self.session.store().mark()
    }

    fn connected(&mut self, now_ns: u64) -> Result<(), SessionError> {
        Self::connected(self, self.now(now_ns))
    }

    fn disconnected(&mut self) {
        Self::disconnected(self);
    }

    fn receive(&mut self, now_ns: u64, input: &mut &[u8]) -> Result<Option<SessionEvent>, SessionError> {
        Self::receive(self, self.now(now_ns), input)
    }

    fn tick(&mut self, now_ns: u64) -> Result<(), SessionError> {
        Self::tick(self, self.now(now_ns))
    }

    fn is_open(&self) -> bool {
        Self::is_open(self)
    }

    fn next_id(&self) -> u64 {
        self.session.store().next_id()
    }

    fn skip_id(&mut self, now_ns: u64) {
        self.session.skip_number(self.now(now_ns));
    }

    fn may_send(&self, terms: &OrderTerms) -> Result<(), SendError> {
        self.closed()?;
        // FIX says all instructions.
        if terms.qty == 0 || terms.qty > QTY_MAX || !terms.has_price(PRICE_MAX) {
            return Err(SendError::Range);
        }
        if self.session.store().next_out() > SEQ_MAX {
            return Err(SendError::Ids);
        }
        if self.session.output_room() < SPARE { Err(SendError::Room) } else { Ok(()) }
    }

    fn may_cancel(&self) -> Result<(), SendError> {
        self.closed()?;
        if self.session.output_room() < CANCEL_LEN { Err(SendError::Room) } else { Ok(()) }
    }

    fn new_order(&mut self, now_ns: u64, wire: &WireOrder) -> Result<(), SendError> {
        self.may_send(&wire.terms())?;
        let (now, order) = (self.now(now_ns), terms(wire));
        let Self { session, templates, .. } = self;
        let of_instrument = templates.get(wire.instrument.0 as usize).ok_or(SendError::Range)?;
        let sent = match of_instrument.of(&wire.instructions) {
            Some(made) => session.send_made(now, |seq, utc_ns| made.new_order(seq, utc_ns, &order)),
            None => session.send(now, "D", |out| templates.common.new_order(wire, now.utc_ns, out)),
        };
        sent.map(drop).map_err(failed)
    }

    fn replace_order(&mut self, now_ns: u64, target: &WireTarget, wire: &WireOrder) -> Result<(), SendError> {
        self.may_send(&wire.terms())?;
        let (now, replace) = (self.now(now_ns), ReplaceOrder { orig_id: target.id, order: terms(wire) });
        let Self { session, templates, .. } = self;
        let of_instrument = templates.get(wire.instrument.0 as usize).ok_or(SendError::Range)?;
        let sent = match of_instrument.of(&wire.instructions) {
            Some(made) => session.send_made(now, |seq, utc_ns| made.replace(seq, utc_ns, &replace)),
            None => session.send(now, "G", |out| templates.common.replace(target.id, wire, now.utc_ns, out)),
        };
        sent.map(drop).map_err(failed)
    }

    fn cancel_order(&mut self, now_ns: u64, target: &WireTarget) -> Result<(), SendError> {
        self.closed()?;
        let (now, id) = (self.now(now_ns), self.session.store().next_id());
        let cancel = CancelOrder {
            id,
            orig_id: target.id,
            side: side(target.side, target.is_short),
            quantity: target.qty.into(),
        };
        let templates = self.templates.get(target.instrument.0 as usize).ok_or(SendError::Range)?;
        let sent = self.session.send_made(now, |seq, utc_ns| templates.day.cancel(seq, utc_ns, &cancel));
        sent.map_err(failed)?;
        self.changes.note(id, Change::Cancel(target.id));
        Ok(())
    }

    /// By an OrderMassCancelRequest (q) of all orders (530=7), which FIX 4.2 does not have. A venue
    /// that does not take it says so, by a report (r) or by a reject of its number.
    fn cancel_all(&mut self, now_ns: u64) -> Result<bool, SendError> {
        self.may_cancel()?;
        if !self.has_mass_cancel {
            return Ok(false);
        }
        let (now, id) = (self.now(now_ns), self.session.store().next_id());
        let mut text = [0; 16];
        let cancel = MassCancel {
            cl_ord_id: digits(id, &mut text),
            side: None,
            symbol: None,
            transact_time: self.templates.common.utc(now.utc_ns),
            request_type: ALL_ORDERS,
        };
        self.session.send(now, "q", |out| cancel.write(out)).map(|_| true).map_err(failed)
    }

    /// By an OrderStatusRequest (H).
    fn ask_status(&mut self, now_ns: u64, target: &WireTarget) -> Result<bool, SendError> {
        self.closed()?;
        let (now, id) = (self.now(now_ns), self.session.store().next_id());
        let mut text = [0; 16];
        let request = StatusRequest {
            cl_ord_id: digits(target.id, &mut text),
            order_id: None,
            side: side(target.side, target.is_short),
            symbol: target.symbol.as_str().as_bytes(),
        };
        self.session.send(now, "H", |out| request.write(out)).map_err(failed)?;
        self.changes.note(id, Change::Question);
        Ok(true)
    }

    fn unread(&self) -> &[u8] {
        self.unread.bytes()
    }

    fn log_out(&mut self, now_ns: u64) {
        self.session.logout(self.now(now_ns), "");
    }

    fn to_send(&self) -> &[u8] {
        self.session.output()
    }

    fn sent(&mut self, len: usize) {
        self.session.consume(len);
    }
}

impl FixClient {
    fn closed(&self) -> Result<(), SendError> {
        if self.is_open() { Ok(()) } else { Err(SendError::Closed) }
    }
}

fn terms(wire: &WireOrder) -> NewOrder {
    let WireOrder { id, qty, price, .. } = *wire;
    let side = side(wire.side, wire.is_short);
    NewOrder { id, side, quantity: qty.into(), price: Decimal::from_price(price) }
}

pub(super) const fn side(side: Side, is_short: bool) -> FixSide {
    match side {
        Side::Buy => FixSide::Buy,
        Side::Sell if is_short => FixSide::SellShort,
        Side::Sell => FixSide::Sell,
    }
}

/// A client id as the templates write it.
pub(super) fn digits(id: u64, text: &mut [u8; 16]) -> &[u8] {
    let mut rest = id;
    for digit in text.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    text
}

const fn failed(error: FixSendError) -> SendError {
    match error {
        FixSendError::NotLoggedOn => SendError::Closed,
        FixSendError::Template(_) => SendError::Range,
        _ => SendError::Room,
    }
}
