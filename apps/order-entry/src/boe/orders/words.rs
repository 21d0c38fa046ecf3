//! What the versions say differently: orders, replaces and cancels as messages.

use arrayvec::ArrayVec;
use market::{Side, Symbol};

use super::super::v2::{self, Field, FieldId, ReturnFields};
use super::super::{BoeError, Capacity, Message, OrderType as BoeOrderType, Side as BoeSide};
use super::super::{TimeInForce as BoeTimeInForce, V2, V3, Version, v3};
use super::read;
use crate::Text;
use crate::cl_ord_id::text_of;
use crate::orders::{Display, Instructions, OrderField, OrderType, TimeInForce, VenueMessage, Vocabulary};
use crate::session::{WireOrder, WireTarget};

/// Which of two orders of the firm that meet the venue cancels (match trade prevention).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelfMatchRule {
    /// The one that comes.
    CancelNewest,
    /// The one that rests.
    CancelOldest,
    /// Both.
    CancelBoth,
}

impl SelfMatchRule {
    /// The first character of PreventMatch.
    const fn modifier(self) -> u8 {
        match self {
            Self::CancelNewest => b'N',
            Self::CancelOldest => b'O',
            Self::CancelBoth => b'B',
        }
    }
}

/// The second character of PreventMatch: among orders of the firm.
const OF_FIRM: u8 = b'F';

/// Whose orders they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoeFirm {
    /// For whom the firm trades.
    pub capacity: Capacity,
    /// The firm that clears; by default the port's.
    pub clearing_firm: Text<4>,
    /// The customer's account; by default none.
    pub account: Text<16>,
    /// Of version 3: the operator, which the futures exchange demands.
    pub operator: Text<18>,
    /// What the venue does where two orders of the firm meet, as each order says it. By default the
    /// orders say nothing, and the port's own setting counts.
    pub self_match: Option<SelfMatchRule>,
}

impl BoeFirm {
    /// Orders in `capacity`, without names.
    pub const fn new(capacity: Capacity) -> Self {
        let (clearing_firm, account) = (Text([0; 4]), Text([0; 16]));
        Self { capacity, clearing_firm, account, operator: Text([0; 18]), self_match: None }
    }
}

/// A version's messages about orders. A call that writes returns the type and the length of the
/// body; `None` where `out` is too small.
pub trait OrderWords: Version {
    /// By this name a journal knows whose numbers it has.
    const NAME: [u8; 10];
    /// Whether one message cancels all orders of the session.
    const HAS_MASS_CANCEL: bool;
    /// What a login asks for.
    fn returns() -> ReturnFields;

    /// The first field that its orders cannot say.
    fn lacks(instructions: &Instructions) -> Option<OrderField>;

    /// Writes an order.
    fn new_order(firm: &BoeFirm, wire: &WireOrder, out: &mut [u8]) -> Option<(u16, usize)>;

    /// Writes a replace of `target`.
    fn modify(firm: &BoeFirm, target: &WireTarget, wire: &WireOrder, out: &mut [u8]) -> Option<(u16, usize)>;

    /// Writes a cancel of the order `id`.
    fn cancel(firm: &BoeFirm, id: u64, out: &mut [u8]) -> Option<(u16, usize)>;

    /// Writes a cancel of all orders of the session as `id`; `None` also where the version has
    /// none.
    fn mass_cancel(firm: &BoeFirm, id: u64, out: &mut [u8]) -> Option<(u16, usize)>;

    /// What a message says of which client id; `None` where it says nothing of an order.
    ///
    /// # Errors
    ///
    /// It is no message of the version.
    fn read(message: &Message<'_>) -> Result<Option<(u64, VenueMessage)>, BoeError>;
}

/// What orders of version 3 say: futures have no hidden orders, and no auction that an order could
/// name.
const FUTURES: Vocabulary = Vocabulary {
    order_types: &[OrderType::Limit, OrderType::Market],
    times_in_force: &[TimeInForce::Day, TimeInForce::ImmediateOrCancel, TimeInForce::FillOrKill],
    has_post_only: false,
    has_min_qty: true,
    has_hidden: false,
    has_reserve: false,
    has_peg_offset: false,
};

impl OrderWords for V2 {
    const NAME: [u8; 10] = *b"BOE 2     ";
    /// Purges have ports of their own.
    const HAS_MASS_CANCEL: bool = false;

    /// What executions state besides is in their fixed fields.
    fn returns() -> ReturnFields {
        let ask = |returns: ReturnFields, kind, fields| returns.ask(kind, fields).unwrap_or_default();
        let terms = &[FieldId::LeavesQuantity, FieldId::Price];
        let returns = ask(ReturnFields::new(), v2::OrderModified::KIND, terms);
        let returns = ask(returns, v2::OrderRestated::KIND, &[FieldId::LeavesQuantity]);
        ask(returns, v2::OrderAcknowledgment::KIND, &[FieldId::LeavesQuantity])
    }

    /// All but the distance of a peg, a field that is not written here.
    fn lacks(instructions: &Instructions) -> Option<OrderField> {
        (instructions.peg_offset != 0).then_some(OrderField::PegOffset)
    }

    fn new_order(firm: &BoeFirm, wire: &WireOrder, out: &mut [u8]) -> Option<(u16, usize)> {
        let order = v2::NewOrder {
            cl_ord_id: text_of(wire.id),
            side: side(wire.side, wire.is_short),
            quantity: wire.qty.into(),
        };
        let mut fields = ArrayVec::<Field, 16>::from_iter([
            Field::OrderType(order_type(wire)),
            Field::TimeInForce(time_in_force(wire)),
            Field::Symbol(symbol(wire.symbol)),
            Field::Capacity(firm.capacity),
        ]);
        fields.extend(limit(wire).map(|price| Field::Price(price.into())));
        fields.extend(said_by_fields(&wire.instructions));
        // Each names nothing where it is empty.
        fields.extend((!is_empty(&firm.clearing_firm)).then_some(Field::ClearingFirm(firm.clearing_firm)));
        fields.extend((!is_empty(&firm.account)).then_some(Field::Account(firm.account)));
        let prevent = |rule: SelfMatchRule| Field::PreventMatch(Text([rule.modifier(), OF_FIRM, 0]));
        fields.extend(firm.self_match.map(prevent));
        Some((v2::NewOrder::KIND.into(), order.emit(&fields, out)?))
    }

    fn modify(firm: &BoeFirm, target: &WireTarget, wire: &WireOrder, out: &mut [u8]) -> Option<(u16, usize)> {
        let modify = v2::ModifyOrder { cl_ord_id: text_of(wire.id), orig_cl_ord_id: text_of(target.id) };
        let mut fields = ArrayVec::<Field, 8>::from_iter([
            Field::OrderQuantity(wire.qty.into()),
            Field::OrderType(order_type(wire)),
        ]);
        fields.extend(limit(wire).map(|price| Field::Price(price.into())));
        // The order keeps what a modify has no field for.
        let is_modified = |field: &Field| matches!(field, Field::ExecInst(_) | Field::MaxFloor(_));
        fields.extend(said_by_fields(&wire.instructions).into_iter().filter(is_modified));
        fields.extend((!is_empty(&firm.clearing_firm)).then_some(Field::ClearingFirm(firm.clearing_firm)));
        Some((v2::ModifyOrder::KIND.into(), modify.emit(&fields, out)?))
    }

    fn cancel(firm: &BoeFirm, id: u64, out: &mut [u8]) -> Option<(u16, usize)> {
        let cancel = v2::CancelOrder { orig_cl_ord_id: text_of(id) };
        let fields = [Field::ClearingFirm(firm.clearing_firm)];
        let named = if is_empty(&firm.clearing_firm) { &fields[..0] } else { &fields[..] };
        Some((v2::CancelOrder::KIND.into(), cancel.emit(named, out)?))
    }

    fn mass_cancel(_firm: &BoeFirm, _id: u64, _out: &mut [u8]) -> Option<(u16, usize)> {
        None
    }

    fn read(message: &Message<'_>) -> Result<Option<(u64, VenueMessage)>, BoeError> {
        read::read_v2(message)
    }
}

impl OrderWords for V3 {
    const NAME: [u8; 10] = *b"BOE 3     ";
    const HAS_MASS_CANCEL: bool = true;

    /// Version 3 has fixed fields alone.
    fn returns() -> ReturnFields {
        ReturnFields::new()
    }

    fn lacks(instructions: &Instructions) -> Option<OrderField> {
        FUTURES.lacks(instructions)
    }

    fn new_order(firm: &BoeFirm, wire: &WireOrder, out: &mut [u8]) -> Option<(u16, usize)> {
        let order = v3::NewOrder {
            cl_ord_id: text_of(wire.id),
            side: side(wire.side, false),
            quantity: wire.qty.into(),
            clearing_firm: firm.clearing_firm,
            clearing_account: Text([0; 4]),
            price: limit(wire).unwrap_or(0).into(),
            order_type: order_type(wire),
            time_in_force: time_in_force(wire),
            min_quantity: wire.instructions.min_qty.into(),
            symbol: symbol(wire.symbol),
            capacity: firm.capacity,
            account: firm.account,
            prevent_match: prevented(firm.self_match),
            expire_ns: 0.into(),
            maturity_date: 0.into(),
            open_close: b'N',
            cmta_number: 0.into(),
            stop_price: 0.into(),
            group_id: 0.into(),
            // The firm's own account, and by a machine.
            cti_code: b'2',
            manual: b'N',
            operator: firm.operator,
            frequent_trader: Text([0; 6]),
            handling: 0,
            country: Text([0; 2]),
        };
        put(v3::NewOrder::KIND, &order, out)
    }

    fn modify(firm: &BoeFirm, target: &WireTarget, wire: &WireOrder, out: &mut [u8]) -> Option<(u16, usize)> {
        let modify = v3::ModifyOrder {
            cl_ord_id: text_of(wire.id),
            orig_cl_ord_id: text_of(target.id),
            clearing_firm: firm.clearing_firm,
            quantity: wire.qty.into(),
            price: limit(wire).unwrap_or(0).into(),
            order_type: order_type(wire),
            cancel_orig_on_reject: b'N',
            stop_price: 0.into(),
            manual: b'N',
            operator: firm.operator,
            frequent_trader: Text([0; 6]),
            handling: 0,
        };
        put(v3::ModifyOrder::KIND, &modify, out)
    }

    fn cancel(firm: &BoeFirm, id: u64, out: &mut [u8]) -> Option<(u16, usize)> {
        let cancel = v3::CancelOrder {
            orig_cl_ord_id: text_of(id),
            clearing_firm: firm.clearing_firm,
            manual: b'N',
            operator: firm.operator,
        };
        put(v3::CancelOrder::KIND, &cancel, out)
    }

    /// Of all firms of the session, because it has the orders of one alone; without a lock-out,
    /// which orders behind it would meet.
    fn mass_cancel(firm: &BoeFirm, id: u64, out: &mut [u8]) -> Option<(u16, usize)> {
        let cancel = v3::MassCancelOrder {
            mass_cancel_id: text_of(id),
            clearing_firm: firm.clearing_firm,
            product: Text([0; 6]),
            instruction: v3::MassCancelInst {
                firm_filter: b'A',
                // Each order's own cancel has a number and is replayed; the acknowledgment is not.
                acknowledgment: b'B',
                lockout: b'N',
                instruments: b'B',
                long_lived: b'C',
                reserved: [0; 11],
            },
            manual: b'N',
            operator: firm.operator,
        };
        put(v3::MassCancelOrder::KIND, &cancel, out)
    }

    fn read(message: &Message<'_>) -> Result<Option<(u64, VenueMessage)>, BoeError> {
        read::read_v3(message)
    }
}

const fn prevented(rule: Option<SelfMatchRule>) -> v3::PreventMatch {
    match rule {
        Some(rule) => v3::PreventMatch { modifier: rule.modifier(), level: OF_FIRM, group: 0 },
        None => v3::PreventMatch { modifier: 0, level: 0, group: 0 },
    }
}

fn put(kind: u16, message: &(impl zerocopy::IntoBytes + zerocopy::Immutable), out: &mut [u8]) -> Option<(u16, usize)> {
    let body = message.as_bytes();
    out.get_mut(..body.len())?.copy_from_slice(body);
    Some((kind, body.len()))
}

const fn side(side: Side, is_short: bool) -> BoeSide {
    match (side, is_short) {
        (Side::Buy, _) => BoeSide::BUY,
        (Side::Sell, false) => BoeSide::SELL,
        (Side::Sell, true) => BoeSide::SELL_SHORT,
    }
}

const fn order_type(wire: &WireOrder) -> BoeOrderType {
    match wire.instructions.order_type {
        OrderType::Limit => BoeOrderType::LIMIT,
        OrderType::Market => BoeOrderType::MARKET,
        OrderType::PrimaryPeg | OrderType::MarketPeg | OrderType::MidpointPeg => BoeOrderType::PEG,
    }
}

/// The price on the wire; none of a market order.
fn limit(wire: &WireOrder) -> Option<i64> {
    (wire.instructions.order_type != OrderType::Market).then_some(wire.price.0)
}

const fn time_in_force(wire: &WireOrder) -> BoeTimeInForce {
    match wire.instructions.time_in_force {
        TimeInForce::Day => BoeTimeInForce::DAY,
        TimeInForce::ImmediateOrCancel => BoeTimeInForce::IMMEDIATE_OR_CANCEL,
        TimeInForce::FillOrKill => BoeTimeInForce::FILL_OR_KILL,
        TimeInForce::AtTheOpening => BoeTimeInForce::AT_THE_OPEN,
        TimeInForce::AtTheClose => BoeTimeInForce::AT_THE_CLOSE,
    }
}

/// DisplayIndicator of an order that nobody sees.
const INVISIBLE: u8 = b'I';
/// RoutingInst of an order that never takes.
const POST_ONLY: Text<4> = Text([b'P', 0, 0, 0]);

/// What version 2 says in optional fields that a plain order does not have.
fn said_by_fields(instructions: &Instructions) -> ArrayVec<Field, 5> {
    let mut fields = ArrayVec::new();
    let exec_inst = match instructions.order_type {
        OrderType::Limit | OrderType::Market => None,
        OrderType::PrimaryPeg => Some(b'R'),
        OrderType::MarketPeg => Some(b'P'),
        OrderType::MidpointPeg => Some(b'M'),
    };
    fields.extend(exec_inst.map(Field::ExecInst));
    let (min_qty, shown) = instructions.quantities();
    fields.extend((min_qty > 0).then(|| Field::MinQuantity(min_qty.into())));
    fields.extend((shown > 0).then(|| Field::MaxFloor(shown.into())));
    fields.extend(instructions.is_post_only.then_some(Field::RoutingInst(POST_ONLY)));
    fields.extend((instructions.display == Display::Hidden).then_some(Field::DisplayIndicator(INVISIBLE)));
    fields
}

/// Cboe pads with zeros.
fn symbol(symbol: Symbol) -> Text<8> {
    let len = symbol.0.trim_ascii_end().len();
    let mut padded = symbol.0;
    padded[len..].fill(0);
    Text(padded)
}

fn is_empty<const LEN: usize>(text: &Text<LEN>) -> bool {
    text.trimmed().is_empty()
}
