//! The session behind the interface of all protocols.

use market::Side;

use super::{Ouch42Client, token};
use crate::ReasonCodes;
use crate::journal::SessionMark;
use crate::orders::OrderRules;
use crate::ouch::v42::{CancelOrder, EnterOrder, IMMEDIATE_OR_CANCEL, MARKET_HOURS, ReplaceOrder};
use crate::ouch::{Side as OuchSide, YesNo, words};
use crate::session::{OrderTerms, SendError, SessionError, SessionEvent, VenueSession, WireOrder, WireTarget};
use crate::soupbin::HEADER_LEN;

/// Bytes that an order leaves for cancels, heartbeats and a probe.
const SPARE: usize = 256;

impl Ouch42Client {
    fn closed(&self) -> Result<(), SendError> {
        if self.is_open() { Ok(()) } else { Err(SendError::Closed) }
    }

    fn take_id(&mut self, id: u64) {
        debug_assert_eq!(self.next_id, id, "the id is that of the call before");
        self.next_id += 1;
    }
}

impl VenueSession for Ouch42Client {
    fn rules(&self) -> OrderRules {
        Self::rules()
    }

    fn reason_codes(&self) -> Option<ReasonCodes> {
        Some(ReasonCodes::Ouch42)
    }

    fn resume(&mut self, mark: &SessionMark) {
        Self::resume(self, mark);
    }

    fn set_epoch_offset_ns(&mut self, epoch_offset_ns: u64) {
        self.epoch_offset_ns = epoch_offset_ns;
    }

    fn mark(&self) -> SessionMark {
        Self::mark(self)
    }

    fn connected(&mut self, now_ns: u64) -> Result<(), SessionError> {
        Self::connected(self, now_ns).map_err(SessionError::new)
    }

    fn disconnected(&mut self) {
        Self::disconnected(self);
    }

    fn receive(&mut self, now_ns: u64, input: &mut &[u8]) -> Result<Option<SessionEvent>, SessionError> {
        Self::receive(self, now_ns, input).map_err(SessionError::new)
    }

    fn tick(&mut self, now_ns: u64) -> Result<(), SessionError> {
        Self::tick(self, now_ns).map_err(SessionError::new)
    }

    fn is_open(&self) -> bool {
        Self::is_open(self)
    }

    fn next_id(&self) -> u64 {
        self.next_id
    }

    fn skip_id(&mut self, _now_ns: u64) {
        self.next_id += 1;
    }

    fn may_send(&self, terms: &OrderTerms) -> Result<(), SendError> {
        self.closed()?;
        words::check_42(terms)?;
        if self.next_id > token::ID_MAX {
            return Err(SendError::Ids);
        }
        if self.out.room() < EnterOrder::LEN + SPARE { Err(SendError::Room) } else { Ok(()) }
    }

    fn may_cancel(&self) -> Result<(), SendError> {
        self.closed()?;
        if self.out.room() < HEADER_LEN + CancelOrder::LEN { Err(SendError::Room) } else { Ok(()) }
    }

    fn new_order(&mut self, now_ns: u64, wire: &WireOrder) -> Result<(), SendError> {
        let (terms, instructions) = (wire.terms(), &wire.instructions);
        self.may_send(&terms)?;
        let side = match (wire.side, wire.is_short) {
            (Side::Buy, _) => OuchSide::BUY,
            (Side::Sell, false) => OuchSide::SELL,
            (Side::Sell, true) => OuchSide::SELL_SHORT,
        };
        let order = EnterOrder {
            token: token::of_id(wire.id),
            side,
            shares: wire.qty.into(),
            stock: wire.symbol,
            price: (words::price(&terms) as u32).into(),
            time_in_force: time_in_force(wire).into(),
            display: words::display_42(instructions),
            min_quantity: instructions.min_qty.into(),
            cross_type: words::cross_type(instructions.time_in_force),
            ..self.order()
        };
        let mut message = [0; EnterOrder::LEN];
        order.emit(&mut message);
        self.take_id(wire.id);
        self.send(now_ns, &message).map_err(|_| SendError::Room)
    }

    fn replace_order(&mut self, now_ns: u64, target: &WireTarget, wire: &WireOrder) -> Result<(), SendError> {
        let (terms, instructions) = (wire.terms(), &wire.instructions);
        self.may_send(&terms)?;
        let replace = ReplaceOrder {
            token: token::of_id(target.id),
            new_token: token::of_id(wire.id),
            shares: wire.qty.into(),
            price: (words::price(&terms) as u32).into(),
            time_in_force: time_in_force(wire).into(),
            display: words::display_42(instructions),
            intermarket_sweep: YesNo::NO,
            min_quantity: instructions.min_qty.into(),
        };
        let mut message = [0; ReplaceOrder::LEN];
        replace.emit(&mut message);
        self.take_id(wire.id);
        self.send(now_ns, &message).map_err(|_| SendError::Room)
    }

    fn cancel_order(&mut self, now_ns: u64, target: &WireTarget) -> Result<(), SendError> {
        self.may_cancel()?;
        let mut message = [0; CancelOrder::LEN];
        CancelOrder { token: token::of_id(target.id), shares: 0.into() }.emit(&mut message);
        self.send(now_ns, &message).map_err(|_| SendError::Room)
    }

    /// 4.2 has none.
    fn cancel_all(&mut self, _now_ns: u64) -> Result<bool, SendError> {
        self.closed()?;
        Ok(false)
    }

    /// By a probe. One that is under way is waited for: a request behind it is asked about later.
    fn ask_status(&mut self, now_ns: u64, _target: &WireTarget) -> Result<bool, SendError> {
        self.closed()?;
        if self.probe.is_none() {
            self.probe(now_ns, false).map_err(|_| SendError::Room)?;
        }
        Ok(true)
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

const fn time_in_force(wire: &WireOrder) -> u32 {
    if words::is_immediate(wire.instructions.time_in_force) { IMMEDIATE_OR_CANCEL } else { MARKET_HOURS }
}
