//! The session behind the interface of all protocols.

use market::{Side, Symbol};

use super::{OUT_LEN, OuchClient};
use crate::journal::SessionMark;
use crate::orders::OrderRules;
use crate::ouch::v50::{EnterOrder, MassCancel, ReplaceOrder};
use crate::ouch::{Side as OuchSide, TimeInForce, YesNo, words};
use crate::session::{OrderTerms, SendError, SessionError, SessionEvent, VenueSession, WireOrder, WireTarget};
use crate::soupbin::HEADER_LEN;
use crate::{ReasonCodes, Text};

/// Bytes that an order leaves for a heartbeat, an account query and a mass cancel.
const SPARE: usize = 64;
/// Bytes of a mass cancel, which is longer than a cancel of one order.
const CANCEL_LEN: usize = HEADER_LEN + 1 + MassCancel::LEN + 2;

impl OuchClient {
    fn closed(&self) -> Result<(), SendError> {
        if self.is_open() { Ok(()) } else { Err(SendError::Closed) }
    }

    fn take(&mut self, id: u64) -> Result<u32, SendError> {
        let taken = self.account.take().ok_or(SendError::Ids)?;
        debug_assert_eq!(u64::from(taken), id, "the id is that of the call before");
        Ok(taken)
    }
}

impl VenueSession for OuchClient {
    fn rules(&self) -> OrderRules {
        Self::rules()
    }

    fn reason_codes(&self) -> Option<ReasonCodes> {
        Some(ReasonCodes::Ouch50)
    }

    fn resume(&mut self, mark: &SessionMark) {
        Self::resume(self, mark);
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
        u64::from(self.account.next_number())
    }

    fn skip_id(&mut self, _now_ns: u64) {
        // At the day's last number the next order is refused for want of one.
        let _ = self.account.take();
    }

    fn may_send(&self, terms: &OrderTerms) -> Result<(), SendError> {
        self.closed()?;
        words::check_50(terms)?;
        if self.account.next_number() == u32::MAX {
            return Err(SendError::Ids);
        }
        if OUT_LEN - self.out_len < EnterOrder::LEN + words::OPTIONS_LEN + SPARE {
            Err(SendError::Room)
        } else {
            Ok(())
        }
    }

    fn may_cancel(&self) -> Result<(), SendError> {
        self.closed()?;
        if OUT_LEN - self.out_len < CANCEL_LEN { Err(SendError::Room) } else { Ok(()) }
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
            user_ref: self.take(wire.id)?.into(),
            quantity: wire.qty.into(),
            price: words::price(&terms).into(),
            display: words::display_50(instructions),
            capacity: self.capacity,
            cross_type: words::cross_type(instructions.time_in_force),
            ..EnterOrder::new(side, wire.symbol, time_in_force(wire))
        };
        let options = words::options(instructions, &self.port[usize::from(wire.is_short)]);
        self.enter(now_ns, &order, &options).map_err(|_| SendError::Room)
    }

    fn replace_order(&mut self, now_ns: u64, target: &WireTarget, wire: &WireOrder) -> Result<(), SendError> {
        let (terms, instructions) = (wire.terms(), &wire.instructions);
        self.may_send(&terms)?;
        let replace = ReplaceOrder {
            orig_user_ref: (target.id as u32).into(),
            user_ref: self.take(wire.id)?.into(),
            quantity: wire.qty.into(),
            price: words::price(&terms).into(),
            time_in_force: time_in_force(wire),
            display: words::display_50(instructions),
            intermarket_sweep: YesNo::NO,
            cl_ord_id: Text::BLANK,
        };
        let options = words::options(instructions, &self.port[usize::from(wire.is_short)]);
        self.replace(now_ns, &replace, &options).map_err(|_| SendError::Room)
    }

    fn cancel_order(&mut self, now_ns: u64, target: &WireTarget) -> Result<(), SendError> {
        self.closed()?;
        self.cancel(now_ns, target.id as u32).map_err(|_| SendError::Room)
    }

    /// Without a number for a mass cancel each order is canceled by itself, which takes none.
    fn cancel_all(&mut self, now_ns: u64) -> Result<bool, SendError> {
        self.may_cancel()?;
        let Some(user_ref) = self.account.take().map(Into::into) else { return Ok(false) };
        let cancel = MassCancel { user_ref, firm: self.firm, symbol: Symbol::NONE };
        let mut message = [0; MassCancel::LEN + 2];
        let len = cancel.emit(&[], &mut message).unwrap_or_default();
        self.write(|client, output| client.send(now_ns, &message[..len], output)).map_err(|_| SendError::Room)?;
        Ok(true)
    }

    fn ask_status(&mut self, now_ns: u64, _target: &WireTarget) -> Result<bool, SendError> {
        self.closed()?;
        self.ask(now_ns).map_err(|_| SendError::Room)?;
        Ok(true)
    }

    fn unread(&self) -> &[u8] {
        self.unread_bytes()
    }

    fn log_out(&mut self, now_ns: u64) {
        // A connection that is not logged in is closed by its owner alone.
        let _ = Self::log_out(self, now_ns);
    }

    fn to_send(&self) -> &[u8] {
        Self::to_send(self)
    }

    fn sent(&mut self, len: usize) {
        Self::sent(self, len);
    }
}

const fn time_in_force(wire: &WireOrder) -> TimeInForce {
    match words::is_immediate(wire.instructions.time_in_force) {
        true => TimeInForce::IMMEDIATE_OR_CANCEL,
        false => TimeInForce::DAY,
    }
}
