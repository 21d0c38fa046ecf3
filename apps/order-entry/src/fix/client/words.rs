//! Orders that say more than the templates do, field by field.

use market::Price;

use super::venue::{digits, side};
use crate::fix::codec::{Decimal, Precision, Writer};
use crate::fix::orders::{HandlInst, NewOrderSingle, OrdType, ReplaceRequest, TimeInForce as FixTimeInForce, Utc};
use crate::orders::{Display, Instructions, OrderType, TimeInForce};
use crate::session::WireOrder;

/// What all orders of a session have in common.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) account: Option<String>,
    /// For whom orders trade: tag and value.
    pub(super) capacity: Option<(u32, String)>,
    pub(super) handl_inst: Option<HandlInst>,
    pub(super) precision: Precision,
}

impl Common {
    /// Writes the fields of a new order (D).
    pub(super) fn new_order(&self, wire: &WireOrder, utc_ns: u64, out: &mut Writer<'_>) {
        let (mut id, mut exec_inst) = ([0; 16], [0; 3]);
        let said = Said::of(wire);
        let order = NewOrderSingle {
            account: self.account.as_ref().map(|account| account.as_bytes()),
            cl_ord_id: digits(wire.id, &mut id),
            exec_inst: exec_inst_of(&wire.instructions, &mut exec_inst),
            handl_inst: self.handl_inst,
            order_qty: Some(said.qty),
            ord_type: said.ord_type,
            price: said.price,
            side: side(wire.side, wire.is_short),
            symbol: wire.symbol.as_str().as_bytes(),
            time_in_force: Some(said.time_in_force),
            transact_time: self.utc(utc_ns),
            stop_px: None,
            min_qty: said.min_qty,
            max_floor: said.max_floor,
            expire_time: None,
            peg_offset: said.peg_offset,
        };
        order.write(out);
        self.capacity(out);
    }

    /// Writes the fields of a replace (G) of the order `target`.
    pub(super) fn replace(&self, target: u64, wire: &WireOrder, utc_ns: u64, out: &mut Writer<'_>) {
        let (mut id, mut orig_id, mut exec_inst) = ([0; 16], [0; 16], [0; 3]);
        let said = Said::of(wire);
        let replace = ReplaceRequest {
            account: self.account.as_ref().map(|account| account.as_bytes()),
            cl_ord_id: digits(wire.id, &mut id),
            exec_inst: exec_inst_of(&wire.instructions, &mut exec_inst),
            handl_inst: self.handl_inst,
            order_id: None,
            order_qty: Some(said.qty),
            ord_type: said.ord_type,
            orig_cl_ord_id: digits(target, &mut orig_id),
            price: said.price,
            side: side(wire.side, wire.is_short),
            symbol: wire.symbol.as_str().as_bytes(),
            time_in_force: Some(said.time_in_force),
            transact_time: self.utc(utc_ns),
            stop_px: None,
            min_qty: said.min_qty,
            max_floor: said.max_floor,
            expire_time: None,
            peg_offset: said.peg_offset,
        };
        replace.write(out);
        self.capacity(out);
    }

    fn capacity(&self, out: &mut Writer<'_>) {
        if let Some((tag, value)) = &self.capacity {
            out.field(*tag, value.as_bytes());
        }
    }

    /// The time with the digits that the session's timestamps have.
    pub(super) const fn utc(&self, utc_ns: u64) -> Utc {
        let unit_ns = match self.precision {
            Precision::Millis => 1_000_000,
            Precision::Micros => 1_000,
            Precision::Nanos => 1,
        };
        Utc(utc_ns / unit_ns * unit_ns)
    }
}

/// What both messages say of an order alike.
struct Said {
    qty: Decimal,
    ord_type: OrdType,
    price: Option<Decimal>,
    time_in_force: FixTimeInForce,
    min_qty: Option<Decimal>,
    max_floor: Option<Decimal>,
    peg_offset: Option<Decimal>,
}

impl Said {
    fn of(wire: &WireOrder) -> Self {
        let Instructions { order_type, time_in_force, min_qty, display, peg_offset, .. } = wire.instructions;
        let ord_type = match order_type {
            OrderType::Limit => OrdType::Limit,
            OrderType::Market => OrdType::Market,
            OrderType::PrimaryPeg | OrderType::MarketPeg | OrderType::MidpointPeg => OrdType::Pegged,
        };
        Self {
            qty: Decimal::whole(wire.qty.into()),
            ord_type,
            price: (order_type != OrderType::Market).then(|| Decimal::from_price(wire.price)),
            time_in_force: match time_in_force {
                TimeInForce::Day => FixTimeInForce::Day,
                TimeInForce::ImmediateOrCancel => FixTimeInForce::ImmediateOrCancel,
                TimeInForce::FillOrKill => FixTimeInForce::FillOrKill,
                TimeInForce::AtTheOpening => FixTimeInForce::AtTheOpening,
                TimeInForce::AtTheClose => FixTimeInForce::AtTheClose,
            },
            min_qty: (min_qty > 0).then(|| Decimal::whole(min_qty.into())),
            // 0 shows nothing.
            max_floor: match display {
                Display::All => None,
                Display::Hidden => Some(Decimal::whole(0)),
                Display::Shares(shares) => Some(Decimal::whole(shares.into())),
            },
            peg_offset: (peg_offset != 0).then(|| Decimal::from_price(Price(peg_offset.into()))),
        }
    }
}

/// ExecInst (18): participate, don't initiate; and what a peg follows.
fn exec_inst_of<'a>(instructions: &Instructions, text: &'a mut [u8; 3]) -> Option<&'a [u8]> {
    let peg = match instructions.order_type {
        OrderType::Limit | OrderType::Market => None,
        OrderType::PrimaryPeg => Some(b'R'),
        OrderType::MarketPeg => Some(b'P'),
        OrderType::MidpointPeg => Some(b'M'),
    };
    let len = match (instructions.is_post_only, peg) {
        (false, None) => return None,
        (true, None) => {
            text[0] = b'6';
            1
        }
        (false, Some(peg)) => {
            text[0] = peg;
            1
        }
        (true, Some(peg)) => {
            *text = [b'6', b' ', peg];
            3
        }
    };
    Some(&text[..len])
}
