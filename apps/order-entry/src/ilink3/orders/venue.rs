//! The session behind the interface of all protocols, and our requests as messages.

use market::Side;
use zerocopy::IntoBytes;

use super::{Ilink3Client, IlinkClientError, State};
use crate::cl_ord_id::text_of;
use crate::ilink3::{CancelOrder, HEADER_LEN, MassAction, NO_PRICE, NewOrder, ReplaceOrder, StatusRequest};
use crate::journal::SessionMark;
use crate::orders::{Display, Instructions, OrderField, OrderRules, OrderType, TimeInForce, Vocabulary};
use crate::risk::InstrumentIdx;
use crate::session::{OrderTerms, SendError, SessionError, SessionEvent, VenueSession, WireOrder, WireTarget};
use crate::{ReasonCodes, Text};

/// Bytes of the longest message of ours, and of a Sequence in front of it.
const MESSAGE_LEN: usize = HEADER_LEN + ReplaceOrder::LEN + 32;
/// Bytes that an order leaves for cancels and keep-alives.
const SPARE: usize = 512;
/// Nine decimals of a price in our four.
const UNIT: i64 = 100_000;
/// The highest price that has nine decimals.
const PRICE_MAX: i64 = i64::MAX / UNIT;
/// The largest number that the venue takes (9726), less those that cancels may take after the last
/// order.
const NUMBER_MAX: u64 = 999_999_999 - 1_000_000;
/// No value, of fields that may have none.
const NONE: u8 = u8::MAX;

/// Whose orders they are, and what the venue calls the instruments.
#[derive(Clone, Debug)]
pub struct IlinkFirm {
    /// The operator (SenderID).
    pub operator: Text<20>,
    /// Where the operator is: country, and in some of them a part of it.
    pub location: Text<5>,
    /// The number under which the party details were registered.
    pub party_details: u64,
    /// The venue's numbers of the instruments (SecurityID), by the position of their limits.
    pub securities: Box<[i32]>,
}

fn sentence(error: IlinkClientError) -> SessionError {
    if error.is_gap() { SessionError::gap(error) } else { SessionError::new(error) }
}

impl Ilink3Client {
    fn closed(&self) -> Result<(), SendError> {
        let is_open = self.state == State::Settled && self.client.is_established();
        if is_open { Ok(()) } else { Err(SendError::Closed) }
    }

    fn security(&self, instrument: InstrumentIdx) -> Result<i32, SendError> {
        self.firm.securities.get(instrument.0 as usize).copied().ok_or(SendError::Range)
    }

    /// Sends a block, into which the session writes its number, and returns that.
    fn send(&mut self, now_ns: u64, template: u16, block: &[u8]) -> Result<u32, SendError> {
        self.skip(now_ns).map_err(|_| SendError::Room)?;
        let Self { client, out, .. } = self;
        out.write(|output| client.send(now_ns, template, block, &[], output)).map_err(|_| SendError::Room)
    }

    fn new_block(&self, now_ns: u64, wire: &WireOrder) -> Result<NewOrder, SendError> {
        Ok(NewOrder {
            price: nine_decimals(wire).into(),
            quantity: wire.qty.into(),
            security_id: self.security(wire.instrument)?.into(),
            side: side(wire.side),
            seq: 0.into(),
            sender: self.firm.operator,
            cl_ord_id: text_of(wire.id),
            party_details: self.firm.party_details.into(),
            order_request: wire.id.into(),
            sending_ns: self.wall_ns(now_ns).into(),
            stop_price: NO_PRICE.into(),
            location: self.firm.location,
            min_quantity: min_quantity(wire).into(),
            display_quantity: display_quantity(wire).into(),
            expire_date: u16::MAX.into(),
            order_type: order_type(wire),
            time_in_force: time_in_force(wire),
            manual: 0,
            exec_inst: 0,
            execution_mode: 0,
            liquidity_flag: NONE,
            managed: NONE,
            short_sale: NONE,
            discretion_price: NO_PRICE.into(),
            reservation_price: NO_PRICE.into(),
        })
    }

    fn replace_block(&self, now_ns: u64, target: &WireTarget, wire: &WireOrder) -> Result<ReplaceOrder, SendError> {
        Ok(ReplaceOrder {
            price: nine_decimals(wire).into(),
            quantity: wire.qty.into(),
            security_id: self.security(wire.instrument)?.into(),
            side: side(wire.side),
            seq: 0.into(),
            sender: self.firm.operator,
            cl_ord_id: text_of(wire.id),
            party_details: self.firm.party_details.into(),
            // The venue finds an order by its own number alone.
            order_id: target.venue_id.ok_or(SendError::Range)?.into(),
            stop_price: NO_PRICE.into(),
            order_request: wire.id.into(),
            sending_ns: self.wall_ns(now_ns).into(),
            location: self.firm.location,
            min_quantity: min_quantity(wire).into(),
            display_quantity: display_quantity(wire).into(),
            expire_date: u16::MAX.into(),
            order_type: order_type(wire),
            time_in_force: time_in_force(wire),
            manual: 0,
            // The quantity is a total: the venue takes off what has traded, on the way too.
            ofm_override: 1,
            exec_inst: 0,
            execution_mode: 0,
            liquidity_flag: NONE,
            managed: NONE,
            short_sale: NONE,
            discretion_price: NO_PRICE.into(),
        })
    }

    fn cancel_block(&self, now_ns: u64, target: &WireTarget) -> Result<CancelOrder, SendError> {
        Ok(CancelOrder {
            order_id: target.venue_id.ok_or(SendError::Range)?.into(),
            party_details: self.firm.party_details.into(),
            manual: 0,
            seq: 0.into(),
            sender: self.firm.operator,
            // That of the order, so that the answer names it.
            cl_ord_id: text_of(target.id),
            order_request: target.id.into(),
            sending_ns: self.wall_ns(now_ns).into(),
            location: self.firm.location,
            security_id: self.security(target.instrument)?.into(),
            side: side(target.side),
            liquidity_flag: NONE,
            orig_user: Text([0; 8]),
        })
    }
}

impl VenueSession for Ilink3Client {
    fn rules(&self) -> OrderRules {
        Self::rules()
    }

    fn reason_codes(&self) -> Option<ReasonCodes> {
        Some(ReasonCodes::Ilink3)
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
        Self::connected(self, now_ns).map_err(sentence)
    }

    fn disconnected(&mut self) {
        Self::disconnected(self);
    }

    fn receive(&mut self, now_ns: u64, input: &mut &[u8]) -> Result<Option<SessionEvent>, SessionError> {
        Self::receive(self, now_ns, input).map_err(|error| {
            if let IlinkClientError::Refused { ahead: Some(next), .. } = error {
                // The venue has seen the numbers below: no message of ours takes one of them.
                self.client.pass_over(next);
            }
            sentence(error)
        })
    }

    fn tick(&mut self, now_ns: u64) -> Result<(), SessionError> {
        Self::tick(self, now_ns).map_err(sentence)
    }

    fn is_open(&self) -> bool {
        self.closed().is_ok()
    }

    fn next_id(&self) -> u64 {
        Self::next_id(self)
    }

    /// The number is skipped: it never comes.
    fn skip_id(&mut self, now_ns: u64) {
        let (_, next, _) = self.client.numbers();
        self.client.pass_over(next.saturating_add(1));
        self.owed.skip = true;
        // Without room the next message, or the next turn, tells it.
        let _ = self.skip(now_ns);
    }

    fn may_send(&self, terms: &OrderTerms) -> Result<(), SendError> {
        self.closed()?;
        // The risk gate values no price below zero.
        if terms.qty == 0 || !terms.has_price(PRICE_MAX) {
            return Err(SendError::Range);
        }
        if let Some(field) = lacks(&terms.instructions) {
            return Err(SendError::Field(field));
        }
        if self.next_id() > NUMBER_MAX {
            return Err(SendError::Ids);
        }
        if self.out.room() < MESSAGE_LEN + SPARE { Err(SendError::Room) } else { Ok(()) }
    }

    fn may_cancel(&self) -> Result<(), SendError> {
        self.closed()?;
        if self.out.room() < MESSAGE_LEN { Err(SendError::Room) } else { Ok(()) }
    }

    fn new_order(&mut self, now_ns: u64, wire: &WireOrder) -> Result<(), SendError> {
        self.may_send(&wire.terms())?;
        let block = self.new_block(now_ns, wire)?;
        self.send(now_ns, NewOrder::KIND, block.as_bytes()).map(drop)
    }

    /// An order that the venue has not accepted yet has no number there, and cannot be replaced.
    fn replace_order(&mut self, now_ns: u64, target: &WireTarget, wire: &WireOrder) -> Result<(), SendError> {
        self.may_send(&wire.terms())?;
        let block = self.replace_block(now_ns, target, wire)?;
        self.send(now_ns, ReplaceOrder::KIND, block.as_bytes()).map(drop)
    }

    /// Nor be canceled, but with all others.
    fn cancel_order(&mut self, now_ns: u64, target: &WireTarget) -> Result<(), SendError> {
        self.may_cancel()?;
        let block = self.cancel_block(now_ns, target)?;
        let number = self.send(now_ns, CancelOrder::KIND, block.as_bytes())?;
        self.cancels.note(number, target.id);
        Ok(())
    }

    /// By one message for all orders of the session's firm; the venue tells the end of each.
    fn cancel_all(&mut self, now_ns: u64) -> Result<bool, SendError> {
        self.may_cancel()?;
        let block = MassAction {
            party_details: self.firm.party_details.into(),
            order_request: self.next_id().into(),
            manual: 0,
            seq: 0.into(),
            sender: self.firm.operator,
            sending_ns: self.wall_ns(now_ns).into(),
            group: Text([0; 6]),
            location: self.firm.location,
            security_id: i32::MAX.into(),
            scope: 7,
            segment: NONE,
            request_type: NONE,
            side: NONE,
            order_type: 0,
            time_in_force: NONE,
            liquidity_flag: NONE,
            orig_user: Text([0; 8]),
        };
        self.send(now_ns, MassAction::KIND, block.as_bytes()).map(|_| true)
    }

    /// By the venue's number; an order without one has its answer with the next login.
    fn ask_status(&mut self, now_ns: u64, target: &WireTarget) -> Result<bool, SendError> {
        self.may_cancel()?;
        let Some(order_id) = target.venue_id else { return Ok(false) };
        let block = StatusRequest {
            party_details: self.firm.party_details.into(),
            status_request: self.next_id().into(),
            manual: 0,
            seq: 0.into(),
            sender: self.firm.operator,
            order_id: order_id.into(),
            sending_ns: self.wall_ns(now_ns).into(),
            location: self.firm.location,
        };
        self.send(now_ns, StatusRequest::KIND, block.as_bytes()).map(|_| true)
    }

    fn unread(&self) -> &[u8] {
        self.unread.bytes()
    }

    fn log_out(&mut self, now_ns: u64) {
        Self::log_out(self, now_ns);
    }

    fn to_send(&self) -> &[u8] {
        self.out.to_send()
    }

    fn sent(&mut self, len: usize) {
        self.out.sent(len);
    }
}

const fn side(side: Side) -> u8 {
    match side {
        Side::Buy => 1,
        Side::Sell => 2,
    }
}

/// What orders say. A product of CME shows its orders, though not all of each.
const VOCABULARY: Vocabulary = Vocabulary {
    order_types: &[OrderType::Limit, OrderType::Market],
    times_in_force: &[TimeInForce::Day, TimeInForce::ImmediateOrCancel, TimeInForce::FillOrKill],
    has_post_only: false,
    has_min_qty: true,
    has_hidden: false,
    has_reserve: true,
    has_peg_offset: false,
};

/// The first field that iLink 3 cannot say. A minimum is of an order that trades at once alone.
fn lacks(instructions: &Instructions) -> Option<OrderField> {
    let Instructions { min_qty, time_in_force, .. } = *instructions;
    let is_bad_minimum = min_qty > 0 && time_in_force != TimeInForce::ImmediateOrCancel;
    VOCABULARY.lacks(instructions).or(is_bad_minimum.then_some(OrderField::MinQuantity))
}

/// The limit, which is not above [`PRICE_MAX`]; none of a market order.
const fn nine_decimals(wire: &WireOrder) -> i64 {
    match wire.instructions.order_type {
        OrderType::Market => NO_PRICE,
        _ => wire.price.0.saturating_mul(UNIT),
    }
}

/// OrdType: a market order has the venue's protection.
const fn order_type(wire: &WireOrder) -> u8 {
    match wire.instructions.order_type {
        OrderType::Market => b'1',
        _ => b'2',
    }
}

const fn time_in_force(wire: &WireOrder) -> u8 {
    match wire.instructions.time_in_force {
        TimeInForce::ImmediateOrCancel => 3,
        TimeInForce::FillOrKill => 4,
        _ => 0,
    }
}

const fn min_quantity(wire: &WireOrder) -> u32 {
    match wire.instructions.min_qty {
        0 => u32::MAX,
        shares => shares,
    }
}

const fn display_quantity(wire: &WireOrder) -> u32 {
    match wire.instructions.display {
        Display::Shares(shares) => shares,
        Display::All | Display::Hidden => u32::MAX,
    }
}
