//! D, F and G of one instrument, ready but for the values of an order.

use super::enums::{HandlInst, OrdType, Side, TimeInForce};
use crate::fix::codec::{Char, Decimal, Digits, Float, Id, Precision, Template, TemplateBuilder, TemplateError};
use crate::fix::tag::tags;

/// What all orders of a set of templates have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderSpec {
    /// BeginString (8). By default `FIX.4.4`.
    pub begin_string: String,
    /// SenderCompID (49). By default empty, which no exchange takes.
    pub sender: String,
    /// TargetCompID (56). By default empty, which no exchange takes.
    pub target: String,
    /// Digits of the timestamps. By default milliseconds.
    pub precision: Precision,
    /// What ClOrdIDs begin with; sixteen digits follow. By default empty.
    pub id_prefix: String,
    /// Account (1). By default none.
    pub account: Option<String>,
    /// Symbol (55). By default empty.
    pub symbol: String,
    /// OrdType (40). By default limit.
    pub ord_type: OrdType,
    /// TimeInForce (59). By default a day.
    pub time_in_force: TimeInForce,
    /// HandlInst (21), which FIX 4.2 requires. By default none.
    pub handl_inst: Option<HandlInst>,
    /// Fields that the exchange wants in addition, of D and of G. By default none.
    pub extra: Vec<(u32, String)>,
}

impl Default for OrderSpec {
    fn default() -> Self {
        Self {
            begin_string: "FIX.4.4".into(),
            sender: String::new(),
            target: String::new(),
            precision: Precision::Millis,
            id_prefix: String::new(),
            account: None,
            symbol: String::new(),
            ord_type: OrdType::Limit,
            time_in_force: TimeInForce::Day,
            handl_inst: None,
            extra: Vec::new(),
        }
    }
}

/// A new order's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewOrder {
    /// The digits of ClOrdID (11).
    pub id: u64,
    /// Side (54).
    pub side: Side,
    /// OrderQty (38), whole shares, at most 99,999,999.
    pub quantity: u64,
    /// Price (44), not negative, below 100,000,000.
    pub price: Decimal,
}

/// A cancel's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CancelOrder {
    /// The digits of ClOrdID (11).
    pub id: u64,
    /// The digits of OrigClOrdID (41).
    pub orig_id: u64,
    /// Side (54) of the order.
    pub side: Side,
    /// OrderQty (38) of the order.
    pub quantity: u64,
}

/// A replacement's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplaceOrder {
    /// The digits of OrigClOrdID (41).
    pub orig_id: u64,
    /// The order as it is to become; its quantity counts what is executed.
    pub order: NewOrder,
}

/// The templates of one instrument: some 700 bytes.
#[derive(Clone, Debug)]
pub struct OrderTemplates {
    new: Template,
    cancel: Template,
    replace: Template,
    at_new: Places,
    at_cancel: Places,
    at_replace: Places,
}

/// Where the values of a template are. A template without one of them has it at a place of another,
/// and never writes it.
#[derive(Clone, Copy, Debug)]
struct Places {
    id: Id,
    orig_id: Id,
    quantity: Digits,
    price: Option<Float>,
    side: Char,
}

impl OrderTemplates {
    /// Builds the templates. Allocates.
    pub fn new(spec: &OrderSpec) -> Self {
        let (new, at_new) = template(spec, "D");
        let (cancel, at_cancel) = template(spec, "F");
        let (replace, at_replace) = template(spec, "G");
        Self { new, cancel, replace, at_new, at_cancel, at_replace }
    }

    /// A new order as bytes, ready to be sent. Some 250 instructions.
    #[inline]
    pub fn new_order(&mut self, seq: u64, utc_ns: u64, order: &NewOrder) -> Result<&[u8], TemplateError> {
        write(&mut self.new, &self.at_new, order)?;
        self.new.finish(seq, utc_ns)
    }

    /// A cancel as bytes, ready to be sent.
    #[inline]
    pub fn cancel(&mut self, seq: u64, utc_ns: u64, cancel: &CancelOrder) -> Result<&[u8], TemplateError> {
        let CancelOrder { id, orig_id, side, quantity } = *cancel;
        self.cancel.set_id(self.at_cancel.orig_id, orig_id)?;
        let order = NewOrder { id, side, quantity, price: Decimal(0) };
        write(&mut self.cancel, &self.at_cancel, &order)?;
        self.cancel.finish(seq, utc_ns)
    }

    /// A replacement as bytes, ready to be sent.
    #[inline]
    pub fn replace(&mut self, seq: u64, utc_ns: u64, replace: &ReplaceOrder) -> Result<&[u8], TemplateError> {
        self.replace.set_id(self.at_replace.orig_id, replace.orig_id)?;
        write(&mut self.replace, &self.at_replace, &replace.order)?;
        self.replace.finish(seq, utc_ns)
    }
}

#[inline(always)]
fn write(template: &mut Template, at: &Places, order: &NewOrder) -> Result<(), TemplateError> {
    template.set_id(at.id, order.id)?;
    template.set_digits(at.quantity, order.quantity)?;
    template.set_char(at.side, order.side.to_wire());
    match at.price {
        Some(place) => template.set_float(place, order.price),
        None => Ok(()),
    }
}

/// The template of one type: fields in rising order of tags.
fn template(spec: &OrderSpec, msg_type: &str) -> (Template, Places) {
    let OrderSpec { begin_string, sender, target, precision, .. } = spec;
    let mut builder = TemplateBuilder::new(begin_string, msg_type, sender, target, *precision);
    let (is_new, is_cancel) = (msg_type == "D", msg_type == "F");
    if let Some(account) = &spec.account {
        builder.text(tags::ACCOUNT, account);
    }
    let id = builder.id(tags::CL_ORD_ID, &spec.id_prefix);
    if let (Some(handl_inst), false) = (spec.handl_inst, is_cancel) {
        builder.text(tags::HANDL_INST, &char::from(handl_inst.to_wire()).to_string());
    }
    let quantity = builder.digits(tags::ORDER_QTY);
    if !is_cancel {
        builder.text(tags::ORD_TYPE, &char::from(spec.ord_type.to_wire()).to_string());
    }
    let orig_id = if is_new { id } else { builder.id(tags::ORIG_CL_ORD_ID, &spec.id_prefix) };
    let has_price = !is_cancel && matches!(spec.ord_type, OrdType::Limit | OrdType::StopLimit);
    let price = has_price.then(|| builder.float(tags::PRICE));
    let side = builder.char(tags::SIDE);
    builder.text(tags::SYMBOL, &spec.symbol);
    if !is_cancel {
        builder.text(tags::TIME_IN_FORCE, &char::from(spec.time_in_force.to_wire()).to_string());
    }
    builder.utc(tags::TRANSACT_TIME);
    if !is_cancel {
        for (tag, value) in &spec.extra {
            builder.text(*tag, value);
        }
    }
    (builder.build(), Places { id, orig_id, quantity, price, side })
}

#[cfg(test)]
mod tests {
    use super::super::{CancelRequest, NewOrderSingle, ReplaceRequest};
    use super::*;
    use crate::fix::codec::FieldIndex;

    fn templates() -> OrderTemplates {
        OrderTemplates::new(&OrderSpec {
            sender: "US".into(),
            target: "THEM".into(),
            id_prefix: "X".into(),
            symbol: "MSFT".into(),
            account: Some("A1".into()),
            extra: vec![(18, "6".into())],
            ..OrderSpec::default()
        })
    }

    const ORDER: NewOrder = NewOrder { id: 42, side: Side::Sell, quantity: 300, price: Decimal(1_012_500_000) };

    #[test]
    fn new_order_reads_as_it_was_written() {
        let mut templates = templates();
        let bytes = templates.new_order(7, 1_795_727_114_123_456_789, &ORDER).unwrap();
        let mut index = FieldIndex::new(64);
        let order = NewOrderSingle::parse(&index.parse(bytes).unwrap()).unwrap();
        assert_eq!((order.cl_ord_id, order.side, order.symbol), (&b"X0000000000000042"[..], Side::Sell, &b"MSFT"[..]));
        assert_eq!((order.order_qty, order.price), (Some(Decimal::whole(300)), Some(ORDER.price)));
        assert_eq!((order.exec_inst, order.account), (Some(&b"6"[..]), Some(&b"A1"[..])));
        assert_eq!(order.transact_time.0, 1_795_727_114_123_000_000);
    }

    #[test]
    fn cancel_and_replace_name_the_order() {
        let mut templates = templates();
        let mut index = FieldIndex::new(64);
        let cancel = CancelOrder { id: 43, orig_id: 42, side: Side::Sell, quantity: 300 };
        let cancel = templates.cancel(8, 1_000, &cancel).unwrap();
        let cancel = CancelRequest::parse(&index.parse(cancel).unwrap()).unwrap();
        assert_eq!((cancel.cl_ord_id, cancel.orig_cl_ord_id), (&b"X0000000000000043"[..], &b"X0000000000000042"[..]));
        let replace = ReplaceOrder { orig_id: 43, order: NewOrder { id: 44, ..ORDER } };
        let replace = templates.replace(9, 1_000, &replace).unwrap();
        let replace = ReplaceRequest::parse(&index.parse(replace).unwrap()).unwrap();
        assert_eq!((replace.cl_ord_id, replace.orig_cl_ord_id), (&b"X0000000000000044"[..], &b"X0000000000000043"[..]));
        assert_eq!(replace.price, Some(ORDER.price));
    }
}
