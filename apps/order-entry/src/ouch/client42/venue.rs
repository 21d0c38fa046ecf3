//! The session behind the interface of all protocols.

use market::{Price, Side};

use super::{Ouch42Client, token};
use crate::journal::SessionMark;
use crate::orders::OrderRules;
use crate::ouch::v42::{CancelOrder, EnterOrder, IMMEDIATE_OR_CANCEL, MARKET_HOURS, ReplaceOrder};
use crate::ouch::{Display, PRICE_MAX, QUANTITY_MAX, Side as OuchSide, YesNo};
use crate::session::{SendError, SessionError, SessionEvent, VenueSession, WireOrder, WireTarget};
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

    fn may_send(&self, qty: u32, price: Price) -> Result<(), SendError> {
        self.closed()?;
        if qty == 0 || qty > QUANTITY_MAX || price.0 <= 0 || price.0 > i64::from(PRICE_MAX) {
            return Err(SendError::Range);
        }
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
        self.may_send(wire.qty, wire.price)?;
        let side = match (wire.side, wire.is_short) {
            (Side::Buy, _) => OuchSide::BUY,
            (Side::Sell, false) => OuchSide::SELL,
            (Side::Sell, true) => OuchSide::SELL_SHORT,
        };
        let time_in_force = if wire.is_ioc { IMMEDIATE_OR_CANCEL } else { MARKET_HOURS };
        let terms = (wire.qty, wire.price);
        let order = self.enter_order(token::of_id(wire.id), side, terms, wire.symbol, time_in_force);
        let mut message = [0; EnterOrder::LEN];
        order.emit(&mut message);
        self.take_id(wire.id);
        self.send(now_ns, &message).map_err(|_| SendError::Room)
    }

    fn replace_order(&mut self, now_ns: u64, target: &WireTarget, wire: &WireOrder) -> Result<(), SendError> {
        self.may_send(wire.qty, wire.price)?;
        let replace = ReplaceOrder {
            token: token::of_id(target.id),
            new_token: token::of_id(wire.id),
            shares: wire.qty.into(),
            price: (wire.price.0 as u32).into(),
            time_in_force: MARKET_HOURS.into(),
            display: Display::VISIBLE,
            intermarket_sweep: YesNo::NO,
            min_quantity: 0.into(),
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
