//! FIX: requests D, F, G, H and q in the venue's words, and its answers as messages 8, 9 and r.
//! Versions differ only in how an answer is written.

use market::{Price, Side, Symbol};
use matching_engine::{CrossKind, Display, Life, Peg, PegTo, PostOnly, Pricing, RejectReason, Terms};
use order_entry::fix::codec::{Decimal, Writer};
use order_entry::fix::orders::{
    CancelReject, CancelRequest, CxlRejResponseTo, ExecTransType, ExecType, ExecutionReport, MassCancel,
    MassCancelReport, NewOrderSingle, OrdStatus, OrdType, ReplaceRequest, Side as FixSide, StatusRequest, TimeInForce,
    Utc,
};
use order_entry::fix::session::Version;
use order_entry::ouch;

use super::boe::Times;
use super::named::{
    Answer, AnswerKind, ChangeRequest, MassCancelRequest, NamedOrder, OrderRefusal, OrderRequest, OrderStatus,
    Protocol, Refused, Target,
};
use super::{Effect, Venue};

/// ExecRestatementReason (378): a part of the quantity was declined.
const RESTATED_BY_DECLINE: u64 = 5;
/// MassCancelRequestType (530): the orders of an instrument, all orders.
const OF_SECURITY: u64 = 1;
const ALL_ORDERS: u64 = 7;

impl Venue {
    /// Takes a new order (D).
    pub(crate) fn fix_new(&mut self, account: usize, request: &NewOrderSingle<'_>, times: Times) -> Effect {
        let fields = Fields {
            cl_ord_id: request.cl_ord_id,
            symbol: symbol_of(request.symbol),
            side: request.side,
            qty: request.order_qty,
            ord_type: request.ord_type,
            price: request.price,
            time_in_force: request.time_in_force.unwrap_or(TimeInForce::Day),
            exec_inst: request.exec_inst,
            stop_px: request.stop_px,
            min_qty: request.min_qty,
            max_floor: request.max_floor,
            expire_time: request.expire_time,
            peg_offset: request.peg_offset,
            epoch_ns: times.epoch_ns,
        };
        self.enter_named(account, Protocol::Fix, &fields.order(&fields.echo()), times.now_ns)
    }

    /// Takes a request to cancel (F).
    pub fn fix_cancel(&mut self, account: usize, request: &CancelRequest<'_>, now_ns: u64) -> Effect {
        let target = Target::ClOrdId(request.orig_cl_ord_id);
        let cl_ord_id = Some(request.cl_ord_id);
        let change = ChangeRequest { cl_ord_id, target, cancels_on_refusal: false, echo: &[] };
        self.cancel_named(account, Protocol::Fix, &change, now_ns)
    }

    /// Takes a request to replace (G).
    pub(crate) fn fix_replace(&mut self, account: usize, request: &ReplaceRequest<'_>, times: Times) -> Effect {
        let target = Target::ClOrdId(request.orig_cl_ord_id);
        let before = self.accounts()[account].named_order(Protocol::Fix, target);
        let echo = before.map(|order| (Echo::of(&order.request), order.symbol));
        let is_other =
            echo.is_some_and(|(echo, symbol)| echo.side != request.side || symbol != symbol_of(request.symbol));
        let before = echo.map_or(TimeInForce::Day, |(echo, _)| echo.time_in_force);
        let fields = Fields {
            cl_ord_id: request.cl_ord_id,
            symbol: symbol_of(request.symbol),
            side: request.side,
            qty: request.order_qty,
            ord_type: request.ord_type,
            price: request.price,
            time_in_force: request.time_in_force.unwrap_or(before),
            exec_inst: request.exec_inst,
            stop_px: request.stop_px,
            min_qty: request.min_qty,
            max_floor: request.max_floor,
            expire_time: request.expire_time,
            peg_offset: request.peg_offset,
            epoch_ns: times.epoch_ns,
        };
        let cl_ord_id = Some(request.cl_ord_id);
        let change = ChangeRequest { cl_ord_id, target, cancels_on_refusal: false, echo: &[] };
        let echo = fields.echo();
        let mut order = fields.order(&echo);
        if is_other {
            order.terms = Err("Side (54) and Symbol (55) must be the order's");
        }
        self.replace_named(account, Protocol::Fix, (&change, &order), times.now_ns)
    }

    /// Takes a question about an order (H). One that is not known never lived.
    pub fn fix_status(&mut self, account: usize, request: &StatusRequest<'_>, now_ns: u64) -> Effect {
        let side = if request.side == FixSide::Buy { Side::Buy } else { Side::Sell };
        self.tell_status(account, Protocol::Fix, (request.cl_ord_id, symbol_of(request.symbol), side), now_ns)
    }

    /// Takes a request to cancel many orders (q): those of an instrument, or all.
    pub fn fix_mass_cancel(&mut self, account: usize, request: &MassCancel<'_>, now_ns: u64) -> Effect {
        let symbol = match (request.request_type, request.symbol) {
            (ALL_ORDERS, _) => None,
            // A symbol that is not listed refuses what this venue does not know.
            (OF_SECURITY, symbol) => Some(symbol.map_or(Symbol::NONE, symbol_of)),
            _ => Some(Symbol::NONE),
        };
        let echo = [u8::try_from(request.request_type).unwrap_or(u8::MAX)];
        let side = request.side.map(|side| if side == FixSide::Buy { Side::Buy } else { Side::Sell });
        let request = MassCancelRequest { cl_ord_id: request.cl_ord_id, symbol, side, unsupported: None, echo: &echo };
        self.mass_cancel_named(account, Protocol::Fix, &request, now_ns)
    }
}

/// What decides the terms of an order.
#[derive(Clone, Copy, Debug)]
struct Fields<'a> {
    cl_ord_id: &'a [u8],
    symbol: Symbol,
    side: FixSide,
    qty: Option<Decimal>,
    ord_type: OrdType,
    price: Option<Decimal>,
    time_in_force: TimeInForce,
    exec_inst: Option<&'a [u8]>,
    stop_px: Option<Decimal>,
    min_qty: Option<Decimal>,
    max_floor: Option<Decimal>,
    expire_time: Option<Utc>,
    peg_offset: Option<Decimal>,
    /// The day's begin since 1970.
    epoch_ns: u64,
}

impl<'a> Fields<'a> {
    fn order(&self, echo: &'a [u8]) -> OrderRequest<'a> {
        OrderRequest {
            cl_ord_id: self.cl_ord_id,
            symbol: self.symbol,
            side: if self.side == FixSide::Buy { Side::Buy } else { Side::Sell },
            qty: whole(self.qty).unwrap_or(0),
            price: self.price.and_then(Decimal::price),
            terms: self.terms(),
            self_trade: None,
            echo,
        }
    }

    fn echo(&self) -> [u8; 3] {
        [self.side.to_wire(), self.ord_type.to_wire(), self.time_in_force.to_wire()]
    }

    /// The engine's terms; what this venue does not do by FIX is an error in words.
    fn terms(&self) -> Result<Terms, &'static str> {
        let instructions = Instructions::of(self.exec_inst.unwrap_or_default())?;
        let qty = whole(self.qty).ok_or("OrderQty (38) must be whole shares")?;
        let min_qty = self.min_qty.map_or(Some(0), |min_qty| whole(Some(min_qty)));
        let min_qty = min_qty.ok_or("MinQty (110) must be whole shares")?;
        let pricing = self.pricing(instructions.peg_to)?;
        let post_only = if instructions.is_post_only { PostOnly::Slide } else { PostOnly::No };
        // What has no firm price or quantity cannot be shown: it rests hidden.
        let is_hidden = min_qty > 0 || matches!(pricing, Pricing::Peg(_));
        let display = match self.max_floor {
            None if is_hidden => Display::Hidden,
            None => Display::Full,
            Some(shares) => match whole(Some(shares)).ok_or("MaxFloor (111) must be whole shares")? {
                0 => Display::Hidden,
                shares => Display::Reserve(shares),
            },
        };
        Ok(Terms { qty, pricing, display, life: self.life()?, post_only, min_qty })
    }

    fn life(&self) -> Result<Life, &'static str> {
        Ok(match self.time_in_force {
            TimeInForce::Day => Life::Day,
            TimeInForce::ImmediateOrCancel => Life::ImmediateOrCancel,
            TimeInForce::FillOrKill => Life::FillOrKill,
            TimeInForce::AtTheOpening => Life::Cross(CrossKind::Opening),
            TimeInForce::AtTheClose => Life::Cross(CrossKind::Closing),
            TimeInForce::GoodTillDate => {
                let Utc(at_ns) = self.expire_time.ok_or("GoodTillDate (59=6) needs ExpireTime (126)")?;
                Life::Until(at_ns.saturating_sub(self.epoch_ns))
            }
            _ => return Err("TimeInForce (59) must be 0, 2, 3, 4, 6 or 7"),
        })
    }

    fn pricing(&self, peg_to: Option<PegTo>) -> Result<Pricing, &'static str> {
        let limit = self.price.map(|it| it.price().ok_or("Price (44) has more than four decimals")).transpose()?;
        let stop = self.stop_px.map(|it| it.price().ok_or("StopPx (99) has more than four decimals")).transpose()?;
        let needs_price = "a limit order needs Price (44)";
        Ok(match (self.ord_type, peg_to) {
            (OrdType::Pegged, Some(to)) => Pricing::Peg(Peg { to, offset: self.offset()?, limit }),
            (OrdType::Pegged, None) => return Err("a pegged order needs ExecInst (18) M, P or R"),
            (_, Some(_)) => return Err("ExecInst (18) M, P and R are of pegged orders (40=P)"),
            (OrdType::Market, None) => Pricing::Market,
            (OrdType::Limit, None) => Pricing::Limit(limit.ok_or(needs_price)?),
            (OrdType::Stop | OrdType::StopLimit, None) => Pricing::Stop {
                trigger: stop.ok_or("a stop needs StopPx (99)")?,
                limit: if self.ord_type == OrdType::Stop { None } else { Some(limit.ok_or(needs_price)?) },
            },
            _ => return Err("OrdType (40) must be 1, 2, 3, 4 or P"),
        })
    }

    /// The offset of a peg towards the other side: FIX adds it to the price, on both sides.
    fn offset(&self) -> Result<i32, &'static str> {
        let Some(offset) = self.peg_offset else { return Ok(0) };
        let offset = offset.price().and_then(|it| i32::try_from(it.0).ok()).filter(|it| *it != i32::MIN);
        let offset = offset.ok_or("PegOffsetValue (211) must be a price of four decimals")?;
        Ok(if self.side == FixSide::Buy { offset } else { -offset })
    }
}

/// ExecInst (18): what this venue knows of it.
#[derive(Clone, Copy, Debug, Default)]
struct Instructions {
    is_post_only: bool,
    peg_to: Option<PegTo>,
}

impl Instructions {
    fn of(codes: &[u8]) -> Result<Self, &'static str> {
        let mut read = Self::default();
        for code in codes {
            match code {
                b' ' => {}
                b'6' => read.is_post_only = true,
                b'M' => read.peg_to = Some(PegTo::Midpoint),
                b'P' => read.peg_to = Some(PegTo::Market),
                b'R' => read.peg_to = Some(PegTo::Primary),
                _ => return Err("ExecInst (18) must be 6, M, P or R"),
            }
        }
        Ok(read)
    }
}

/// The fields of the request that reports repeat.
#[derive(Clone, Copy, Debug)]
struct Echo {
    side: FixSide,
    ord_type: OrdType,
    time_in_force: TimeInForce,
}

impl Echo {
    fn of(request: &[u8]) -> Self {
        let field = |idx| request.get(idx).copied().unwrap_or(0);
        Self {
            side: FixSide::from_wire(field(0)).unwrap_or(FixSide::Buy),
            ord_type: OrdType::from_wire(field(1)).unwrap_or(OrdType::Limit),
            time_in_force: TimeInForce::from_wire(field(2)).unwrap_or(TimeInForce::Day),
        }
    }
}

/// The average to the nearest unit of a [`Decimal`].
pub(super) fn average(order: &NamedOrder) -> Decimal {
    let unit = i128::from(Decimal::SCALE / Price::SCALE);
    let (paid, count) = (i128::from(order.paid) * unit, i128::from(order.executed));
    let average = (paid + count / 2).checked_div(count).unwrap_or(0);
    Decimal(i64::try_from(average).unwrap_or(i64::MAX))
}

fn whole(shares: Option<Decimal>) -> Option<u32> {
    shares?.integer()?.try_into().ok()
}

fn symbol_of(text: &[u8]) -> Symbol {
    Symbol::new(&String::from_utf8_lossy(text)).unwrap_or(Symbol::NONE)
}

/// MsgType (35) of an answer; none where FIX has no words for it.
pub(crate) const fn msg_type(answer: &Answer) -> Option<&'static str> {
    match answer.kind {
        // FIX tells no new time of an order.
        AnswerKind::Refreshed { .. } => None,
        AnswerKind::MassCanceled { .. } | AnswerKind::Refused(Refused::MassCancel, _) => Some("r"),
        AnswerKind::Refused(..) => Some("9"),
        _ => Some("8"),
    }
}

/// Writes the fields of an answer behind the header, in the words of a version; `utc_ns` is
/// TransactTime.
pub(crate) fn write(answer: &Answer, version: Version, utc_ns: u64, out: &mut Writer<'_>) {
    match (answer.kind, &answer.order) {
        (AnswerKind::MassCanceled { count }, _) => mass_cancel_report(answer, Ok(count)).write(out),
        (AnswerKind::Refused(Refused::MassCancel, reason), _) => mass_cancel_report(answer, Err(reason)).write(out),
        (AnswerKind::Refused(refused, reason), _) => write_refusal(answer, refused, reason, utc_ns, out),
        (_, Some(order)) => write_execution(answer, order, version, utc_ns, out),
        // All others are about an order.
        (_, None) => {}
    }
}

fn mass_cancel_report(answer: &Answer, outcome: Result<u32, OrderRefusal>) -> MassCancelReport<'_> {
    let request_type = answer.request.as_ref().and_then(|echo| echo.first()).copied().unwrap_or(0);
    MassCancelReport {
        cl_ord_id: Some(&answer.cl_ord_id),
        order_id: b"NONE",
        text: outcome.err().map(|reason| reason.text().as_bytes()),
        request_type: request_type.into(),
        // 0 is a refusal, others repeat the request's type.
        response: if outcome.is_ok() { request_type.into() } else { 0 },
        reject_reason: outcome.is_err().then_some(1),
        total_affected: outcome.ok().map(u64::from),
    }
}

fn write_refusal(answer: &Answer, refused: Refused, reason: OrderRefusal, utc_ns: u64, out: &mut Writer<'_>) {
    let order_id = named(answer.order.as_ref().map_or(0, |order| order.order_id));
    let report = CancelReject {
        account: None,
        cl_ord_id: &answer.cl_ord_id,
        order_id: order_id.as_bytes(),
        ord_status: answer.order.as_ref().map_or(OrdStatus::Rejected, |order| ord_status(order.status)),
        orig_cl_ord_id: answer.orig_cl_ord_id.as_deref().unwrap_or_default(),
        text: Some(reason.text().as_bytes()),
        transact_time: Some(Utc(utc_ns)),
        // CxlRejReason (102).
        cxl_rej_reason: Some(match reason {
            OrderRefusal::TooLate => 0,
            OrderRefusal::Unknown => 1,
            OrderRefusal::Duplicate => 6,
            _ => 2,
        }),
        cxl_rej_response_to: if refused == Refused::Cancel {
            CxlRejResponseTo::Cancel
        } else {
            CxlRejResponseTo::Replace
        },
    };
    report.write(out);
}

fn write_execution(answer: &Answer, order: &NamedOrder, version: Version, utc_ns: u64, out: &mut Writer<'_>) {
    let status = ord_status(order.status);
    let (exec_type, exec_trans_type) = exec_type_of(answer.kind, order, version, status);
    let (exec_id, exec_ref_id, last) = match answer.kind {
        AnswerKind::Executed { qty, price, match_number, .. } => {
            (exec_id(answer.number, match_number), None, Some((qty, price)))
        }
        AnswerKind::Broken { qty, price, match_number, fill } => {
            let exec_ref_id = fill.map(|number| exec_id(number, match_number));
            (answer.number.to_string(), exec_ref_id, Some((qty, price)))
        }
        _ => (answer.number.to_string(), None, None),
    };
    let text = match answer.kind {
        AnswerKind::Canceled { reason, .. } => ouch::CancelReason(reason.letter()).name().unwrap_or("canceled"),
        AnswerKind::Rejected(reason) => reason.text(),
        _ => "",
    };
    let order_id = named(order.order_id);
    let echo = Echo::of(&order.request);
    let report = ExecutionReport {
        account: None,
        avg_px: Some(average(order)),
        cl_ord_id: Some(&answer.cl_ord_id),
        cum_qty: shares(order.executed),
        exec_id: exec_id.as_bytes(),
        exec_ref_id: exec_ref_id.as_ref().map(String::as_bytes),
        exec_trans_type,
        last_px: last.map(|(_, price)| Decimal::from_price(price)),
        last_qty: last.map(|(qty, _)| shares(qty)),
        order_id: order_id.as_bytes(),
        order_qty: Some(shares(order.qty)),
        ord_status: status,
        ord_type: Some(echo.ord_type),
        orig_cl_ord_id: answer.orig_cl_ord_id.as_deref(),
        price: order.price.map(Decimal::from_price),
        side: echo.side,
        symbol: order.symbol.0.trim_ascii_end(),
        text: Some(text.as_bytes()).filter(|text| !text.is_empty()),
        time_in_force: Some(echo.time_in_force),
        transact_time: Some(Utc(utc_ns)),
        ord_rej_reason: if let AnswerKind::Rejected(reason) = answer.kind { Some(reject_code(reason)) } else { None },
        exec_type,
        leaves_qty: shares(order.leaves),
        exec_restatement_reason: (exec_type == ExecType::Restated).then_some(RESTATED_BY_DECLINE),
    };
    report.write(out);
}

/// ExecType (150), and ExecTransType (20) where the version has it.
fn exec_type_of(
    kind: AnswerKind,
    order: &NamedOrder,
    version: Version,
    status: OrdStatus,
) -> (ExecType, Option<ExecTransType>) {
    let kind = match kind {
        AnswerKind::Executed { .. } => ExecType::Trade,
        AnswerKind::Broken { .. } => ExecType::TradeCancel,
        AnswerKind::Rejected(_) => ExecType::Rejected,
        AnswerKind::Replaced => ExecType::Replaced,
        AnswerKind::Status => ExecType::OrderStatus,
        AnswerKind::Canceled { .. } if order.leaves > 0 => ExecType::Restated,
        AnswerKind::Canceled { .. } if order.status == OrderStatus::Expired => ExecType::Expired,
        AnswerKind::Canceled { .. } => ExecType::Canceled,
        _ => ExecType::New,
    };
    match (version, kind) {
        // FIX 4.2 says a fill by its state, and a trade that is taken back by 20=1.
        (Version::Fix42, ExecType::Trade | ExecType::TradeCancel) => {
            let is_canceled = kind == ExecType::TradeCancel;
            let trans = if is_canceled { ExecTransType::Cancel } else { ExecTransType::New };
            (ExecType::from_wire(status.to_wire()).unwrap_or(ExecType::New), Some(trans))
        }
        // A state is told by 20=3.
        (Version::Fix42, ExecType::OrderStatus) => {
            (ExecType::from_wire(status.to_wire()).unwrap_or(ExecType::New), Some(ExecTransType::Status))
        }
        (Version::Fix42, kind) => (kind, Some(ExecTransType::New)),
        (_, kind) => (kind, None),
    }
}

const fn ord_status(status: OrderStatus) -> OrdStatus {
    match status {
        OrderStatus::New => OrdStatus::New,
        OrderStatus::PartiallyFilled => OrdStatus::PartiallyFilled,
        OrderStatus::Filled => OrdStatus::Filled,
        OrderStatus::Canceled => OrdStatus::Canceled,
        OrderStatus::Expired => OrdStatus::Expired,
        OrderStatus::Replaced => OrdStatus::Replaced,
        OrderStatus::Rejected => OrdStatus::Rejected,
    }
}

/// OrdRejReason (103).
const fn reject_code(reason: OrderRefusal) -> u64 {
    match reason {
        OrderRefusal::Engine(RejectReason::Symbol) => 1,
        OrderRefusal::Engine(RejectReason::Closed | RejectReason::Halted) => 2,
        OrderRefusal::Duplicate => 6,
        OrderRefusal::Terms(_) | OrderRefusal::Engine(RejectReason::Terms | RejectReason::Display) => 11,
        _ => 0,
    }
}

pub(super) fn shares(count: u32) -> Decimal {
    Decimal::whole(count.into())
}

/// The identifier of an execution (17): the number of its answer, and that of the match.
pub(super) fn exec_id(number: u64, match_number: u64) -> String {
    format!("{number}-{match_number}")
}

fn named(order_id: u64) -> String {
    if order_id == 0 { "NONE".to_owned() } else { order_id.to_string() }
}
