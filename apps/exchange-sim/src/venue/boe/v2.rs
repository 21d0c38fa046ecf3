//! Version 2.

use market::{Price, Symbol};
use matching_engine::{CrossKind, Display, Life, Peg, PegTo, Pricing, SelfTrade, Terms};
use order_entry::Text;
use order_entry::boe::v2::{
    CancelOrder, CancelRejected, Field, FieldId, Inbound, MassCancelAcknowledgment, ModifyOrder, NewOrder, Optional,
    OrderAcknowledgment, OrderCancelled, OrderExecution, OrderModified, OrderRejected, OrderRestated, PurgeOrders,
    PurgeRejected, ReturnFields, TradeCancelOrCorrect, UserModifyRejected,
};
use order_entry::boe::{BoeError, LoginRequest, OrderType, RestatementReason, TimeInForce, V2};

use super::super::named::{
    Answer, AnswerKind, ChangeRequest, MassCancelRequest, NamedOrder, OrderRefusal, OrderRequest, Protocol, Refused,
    Target,
};
use super::super::{Effect, Venue};
use super::{
    BoeWords, NO_FIRM_FILTER, NO_GROUPS, NO_LOCK_OUT, Received, Times, boe_side, cancel_code, liquidity_code,
    prevented, reason_code, side_of, slide, text,
};

impl BoeWords for V2 {
    const PROTOCOL: Protocol = Protocol::Boe2;
    type Returns = ReturnFields;

    fn returns(login: &LoginRequest<'_>) -> Result<ReturnFields, BoeError> {
        ReturnFields::of_login(login)
    }

    fn take(venue: &mut Venue, account: usize, message: Received<'_>, times: Times) -> Result<Effect, BoeError> {
        let kind = u8::try_from(message.kind).map_err(|_| BoeError::Unknown { kind: message.kind })?;
        let (inbound, optional) = Inbound::parse(kind, message.body)?;
        let echo = [&[kind], message.body].concat();
        Ok(match inbound {
            Inbound::NewOrder(order) => take_new(venue, account, (order, optional, &echo), message, times),
            Inbound::CancelOrder(cancel) => take_cancel(venue, account, cancel, message, times),
            Inbound::ModifyOrder(modify) => take_modify(venue, account, (modify, optional, &echo), message, times),
            Inbound::PurgeOrders(_) => {
                let (mut id, mut symbol, mut unsupported) = (Vec::new(), None, None);
                if PurgeOrders::risk_groups(message.body).next().is_some() {
                    unsupported = Some(NO_GROUPS);
                }
                for field in optional.fields() {
                    match field {
                        Field::MassCancelId(text) => id = text.trimmed().to_vec(),
                        Field::Symbol(text) => symbol = Some(symbol_of(&text.0)),
                        Field::MassCancelInst(text) => unsupported = unsupported.or(unsupported_of(&text)),
                        _ => {}
                    }
                }
                let request = MassCancelRequest { cl_ord_id: &id, symbol, side: None, unsupported, echo: &[] };
                venue.mass_cancel_named(account, Self::PROTOCOL, &request, times.now_ns)
            }
        })
    }

    fn write(answer: &Answer, returns: &ReturnFields, epoch_ns: u64, out: &mut [u8]) -> Option<(u16, usize)> {
        let (kind, len) = write(answer, returns, epoch_ns, out)?;
        Some((kind.into(), len))
    }
}

fn take_new(
    venue: &mut Venue,
    account: usize,
    (order, optional, echo): (&NewOrder, Optional<'_>, &[u8]),
    message: Received<'_>,
    times: Times,
) -> Effect {
    let options = Options::of(optional);
    let (terms, self_trade) = match options.self_trade() {
        Ok(self_trade) => {
            let terms = side_of(order.side).and_then(|_| options.terms(order.quantity.get(), times.epoch_ns));
            (terms, self_trade)
        }
        Err(words) => (Err(words), None),
    };
    let request = OrderRequest {
        cl_ord_id: order.cl_ord_id.trimmed(),
        symbol: options.symbol,
        side: side_of(order.side).unwrap_or(market::Side::Sell),
        qty: order.quantity.get(),
        price: options.price,
        terms,
        self_trade,
        echo,
    };
    if message.is_during_replay {
        venue.refuse_new_named(account, V2::PROTOCOL, &request, OrderRefusal::DuringReplay, times.now_ns);
        return Effect::None;
    }
    venue.enter_named(account, V2::PROTOCOL, &request, times.now_ns)
}

fn take_cancel(venue: &mut Venue, account: usize, cancel: &CancelOrder, message: Received<'_>, times: Times) -> Effect {
    let target = Target::ClOrdId(cancel.orig_cl_ord_id.trimmed());
    let request = ChangeRequest { cl_ord_id: None, target, cancels_on_refusal: false, echo: &[] };
    if message.is_during_replay {
        let why = (Refused::Cancel, OrderRefusal::DuringReplay);
        venue.refuse_named(account, V2::PROTOCOL, &request, why, times.now_ns);
        return Effect::None;
    }
    venue.cancel_named(account, V2::PROTOCOL, &request, times.now_ns)
}

/// Which of a purge's instructions this venue does not follow: the first letter filters by the
/// clearing firm, the third locks out.
const fn unsupported_of(instruction: &Text<16>) -> Option<&'static str> {
    match instruction.0 {
        [b'F', ..] => Some(NO_FIRM_FILTER),
        [_, _, b'L', ..] => Some(NO_LOCK_OUT),
        _ => None,
    }
}

/// What a modify does not name stays as the order has it.
fn take_modify(
    venue: &mut Venue,
    account: usize,
    (modify, optional, echo): (&ModifyOrder, Optional<'_>, &[u8]),
    message: Received<'_>,
    times: Times,
) -> Effect {
    let target = Target::ClOrdId(modify.orig_cl_ord_id.trimmed());
    let cancels_on_refusal = optional.fields().any(|field| field == Field::CancelOrigOnReject(b'Y'));
    let cl_ord_id = Some(modify.cl_ord_id.trimmed());
    let change = ChangeRequest { cl_ord_id, target, cancels_on_refusal, echo: &[] };
    if message.is_during_replay {
        let why = (Refused::Replace, OrderRefusal::DuringReplay);
        venue.refuse_named(account, V2::PROTOCOL, &change, why, times.now_ns);
        return Effect::None;
    }
    let before = venue.accounts()[account].named_order(V2::PROTOCOL, target);
    let (mut qty, side) = before.map_or((0, market::Side::Buy), |order| (order.qty, order.side));
    let before_price = before.and_then(|order| order.price);
    let kept = venue.terms_of_named(account, V2::PROTOCOL, target);
    let kept = kept.unwrap_or(Terms::limit(qty, before_price.unwrap_or_default()));
    let mut options = Options { price: before_price, ..Options::of_terms(&kept) };
    let mut is_other_side = false;
    options.read(optional);
    for field in optional.fields() {
        match field {
            Field::OrderQuantity(shares) => qty = shares.get(),
            Field::Side(named) => is_other_side = side_of(named) != Ok(side),
            _ => {}
        }
    }
    // How long the order lives, and whether it may take, a modify cannot name.
    let terms = options.terms(qty, times.epoch_ns);
    let terms = terms.map(|terms| Terms { life: kept.life, post_only: kept.post_only, ..terms });
    let order = OrderRequest {
        cl_ord_id: modify.cl_ord_id.trimmed(),
        symbol: Symbol::NONE,
        side,
        qty,
        price: options.price,
        terms: if is_other_side { Err("the order is of the other side") } else { terms },
        self_trade: None,
        echo,
    };
    venue.replace_named(account, V2::PROTOCOL, (&change, &order), times.now_ns)
}

/// The optional fields that change what an order does; others are repeated alone.
#[derive(Clone, Copy, Debug)]
struct Options {
    symbol: Symbol,
    price: Option<Price>,
    order_type: OrderType,
    time_in_force: TimeInForce,
    expire_ns: u64,
    min_qty: u32,
    max_floor: u32,
    is_hidden: bool,
    is_post_only: bool,
    exec_inst: u8,
    peg_offset: i64,
    stop_price: Option<Price>,
    prevent_match: [u8; 3],
}

impl Default for Options {
    fn default() -> Self {
        Self {
            symbol: Symbol::NONE,
            price: None,
            order_type: OrderType::LIMIT,
            time_in_force: TimeInForce::DAY,
            expire_ns: 0,
            min_qty: 0,
            max_floor: 0,
            is_hidden: false,
            is_post_only: false,
            exec_inst: 0,
            peg_offset: 0,
            stop_price: None,
            prevent_match: [0; 3],
        }
    }
}

impl Options {
    fn of(optional: Optional<'_>) -> Self {
        let mut options = Self::default();
        options.read(optional);
        options
    }

    /// What makes these terms, apart from how long they last and whether they may take.
    fn of_terms(terms: &Terms) -> Self {
        let mut options = Self { min_qty: terms.min_qty, ..Self::default() };
        match terms.display {
            Display::Full => {}
            Display::Hidden => options.is_hidden = !matches!(terms.pricing, Pricing::Peg(_)),
            Display::Reserve(shares) => options.max_floor = shares,
        }
        match terms.pricing {
            Pricing::Market => options.order_type = OrderType::MARKET,
            Pricing::Limit(price) => options.price = Some(price),
            Pricing::Stop { trigger, limit } => {
                options.order_type = if limit.is_some() { OrderType::STOP_LIMIT } else { OrderType::STOP };
                (options.stop_price, options.price) = (Some(trigger), limit);
            }
            Pricing::Peg(Peg { to, offset, limit }) => {
                options.order_type = OrderType::PEG;
                options.exec_inst = match to {
                    PegTo::Market => b'P',
                    PegTo::Primary => b'R',
                    PegTo::Midpoint => b'M',
                };
                (options.peg_offset, options.price) = (offset.into(), limit);
            }
        }
        options
    }

    fn read(&mut self, optional: Optional<'_>) {
        for field in optional.fields() {
            match field {
                Field::Symbol(text) => self.symbol = symbol_of(&text.0),
                Field::Price(price) => self.price = Some(Price(price.get())),
                Field::OrderType(kind) => self.order_type = kind,
                Field::TimeInForce(life) => self.time_in_force = life,
                Field::ExpireTime(time) => self.expire_ns = time.get(),
                Field::MinQuantity(shares) => self.min_qty = shares.get(),
                Field::MaxFloor(shares) => self.max_floor = shares.get(),
                Field::DisplayIndicator(code) => self.is_hidden = code == b'I',
                Field::RoutingInst(text) => self.is_post_only = text.0[0] == b'P',
                Field::ExecInst(code) => self.exec_inst = code,
                Field::PegDifference(offset) => self.peg_offset = offset.get(),
                Field::StopPrice(price) => self.stop_price = Some(Price(price.get())),
                Field::PreventMatch(text) => self.prevent_match = text.0,
                _ => {}
            }
        }
    }

    fn self_trade(&self) -> Result<Option<SelfTrade>, &'static str> {
        let [modifier, level, group] = self.prevent_match;
        prevented(modifier, level, group)
    }

    fn terms(&self, qty: u32, epoch_ns: u64) -> Result<Terms, &'static str> {
        let pricing = self.pricing()?;
        let life = life(self.time_in_force, self.expire_ns, epoch_ns)?;
        let display = match (self.is_hidden || matches!(pricing, Pricing::Peg(_)), self.max_floor) {
            (true, _) => Display::Hidden,
            (false, 0) => Display::Full,
            (false, shares) => Display::Reserve(shares),
        };
        Ok(Terms { qty, pricing, display, life, post_only: slide(self.is_post_only), min_qty: self.min_qty })
    }

    fn pricing(&self) -> Result<Pricing, &'static str> {
        let price = self.price.ok_or("the order needs a Price");
        let trigger = self.stop_price.ok_or("a stop needs a StopPrice");
        Ok(match self.order_type {
            OrderType::MARKET => Pricing::Market,
            OrderType::LIMIT => Pricing::Limit(price?),
            OrderType::STOP => Pricing::Stop { trigger: trigger?, limit: None },
            OrderType::STOP_LIMIT => Pricing::Stop { trigger: trigger?, limit: Some(price?) },
            OrderType::PEG => {
                let to = match self.exec_inst {
                    b'P' => PegTo::Market,
                    b'R' => PegTo::Primary,
                    b'M' => PegTo::Midpoint,
                    _ => return Err("a pegged order needs ExecInst P, R or M"),
                };
                let offset = i32::try_from(self.peg_offset).map_err(|_| "PegDifference is out of range")?;
                Pricing::Peg(Peg { to, offset, limit: self.price })
            }
            _ => return Err("OrdType must be 1, 2, 3, 4 or P"),
        })
    }
}

/// How long an order lives; `expire_ns` is since 1970.
pub(super) fn life(time_in_force: TimeInForce, expire_ns: u64, epoch_ns: u64) -> Result<Life, &'static str> {
    match time_in_force {
        TimeInForce::DAY | TimeInForce::GOOD_TILL_CANCEL => Ok(Life::Day),
        TimeInForce::IMMEDIATE_OR_CANCEL => Ok(Life::ImmediateOrCancel),
        TimeInForce::FILL_OR_KILL => Ok(Life::FillOrKill),
        TimeInForce::GOOD_TILL_DATE => Ok(Life::Until(expire_ns.saturating_sub(epoch_ns))),
        TimeInForce::AT_THE_OPEN => Ok(Life::Cross(CrossKind::Opening)),
        TimeInForce::AT_THE_CLOSE => Ok(Life::Cross(CrossKind::Closing)),
        _ => Err("TimeInForce must be 0, 1, 2, 3, 4, 6 or 7"),
    }
}

pub(super) fn symbol_of(padded: &[u8; 8]) -> Symbol {
    Symbol(padded.map(|byte| if byte == 0 { b' ' } else { byte }))
}

fn write(answer: &Answer, returns: &ReturnFields, epoch_ns: u64, out: &mut [u8]) -> Option<(u8, usize)> {
    let at_ns = (epoch_ns + answer.at_ns).into();
    let (cl_ord_id, order) = (text(&answer.cl_ord_id), answer.order.as_ref());
    let order_id = order.map_or(0, |order| order.order_id).into();
    let fields = |kind| optional_fields(answer, returns.asked(kind));
    macro_rules! emit {
        ($name:ident { $($fields:tt)* }) => {{
            let message = $name { at_ns, reserved: 0, $($fields)* };
            Some(($name::KIND, message.emit(&fields($name::KIND), out)?))
        }};
    }
    match answer.kind {
        AnswerKind::Accepted => emit!(OrderAcknowledgment { cl_ord_id, order_id }),
        AnswerKind::Rejected(why) => {
            emit!(OrderRejected { cl_ord_id, reason: reason_code(why), text: text(why.text().as_bytes()) })
        }
        AnswerKind::Executed { qty, price, liquidity, .. } => emit!(OrderExecution {
            cl_ord_id,
            exec_id: answer.number.into(),
            last_shares: qty.into(),
            last_price: price.0.into(),
            leaves: order.map_or(0, |order| order.leaves).into(),
            base_liquidity: liquidity_code(liquidity),
            sub_liquidity: 0,
            contra_broker: text(b""),
        }),
        AnswerKind::Canceled { .. } if order.is_some_and(|order| order.leaves > 0) => {
            emit!(OrderRestated { cl_ord_id, order_id, reason: RestatementReason::WASH })
        }
        AnswerKind::Canceled { reason, is_rate, .. } => {
            emit!(OrderCancelled { cl_ord_id, reason: cancel_code(reason, is_rate) })
        }
        // No message of BOE asks for a state.
        AnswerKind::Status => None,
        AnswerKind::Replaced => emit!(OrderModified { cl_ord_id, order_id }),
        AnswerKind::Refreshed { .. } => emit!(OrderRestated { cl_ord_id, order_id, reason: RestatementReason::RELOAD }),
        AnswerKind::Broken { qty, price, fill, .. } => emit!(TradeCancelOrCorrect {
            cl_ord_id,
            order_id,
            exec_ref_id: fill.unwrap_or(0).into(),
            side: boe_side(order?.side),
            base_liquidity: 0,
            clearing_firm: text(b""),
            clearing_account: text(b""),
            last_shares: qty.into(),
            last_price: price.0.into(),
            corrected_price: 0.into(),
            orig_at_ns: at_ns,
        }),
        AnswerKind::Refused(Refused::Cancel, why) => {
            emit!(CancelRejected { cl_ord_id, reason: reason_code(why), text: text(why.text().as_bytes()) })
        }
        AnswerKind::Refused(Refused::Replace, why) => {
            emit!(UserModifyRejected { cl_ord_id, reason: reason_code(why), text: text(why.text().as_bytes()) })
        }
        AnswerKind::Refused(Refused::MassCancel, why) => {
            emit!(PurgeRejected { reason: reason_code(why), text: text(why.text().as_bytes()) })
        }
        AnswerKind::MassCanceled { count } => {
            let cancelled_count = count.into();
            let message = MassCancelAcknowledgment { at_ns, mass_cancel_id: cl_ord_id, cancelled_count, reserved: 0 };
            Some((MassCancelAcknowledgment::KIND, message.emit(out)?))
        }
    }
}

/// The fields that were asked for and that the order has.
fn optional_fields(answer: &Answer, asked: impl Iterator<Item = FieldId>) -> Vec<Field> {
    let Some(order) = &answer.order else { return Vec::new() };
    asked.filter_map(|id| known_field(answer, order, id).or_else(|| repeated_field(order, id))).collect()
}

fn known_field(answer: &Answer, order: &NamedOrder, id: FieldId) -> Option<Field> {
    let last = match answer.kind {
        AnswerKind::Executed { qty, price, .. } | AnswerKind::Broken { qty, price, .. } => Some((qty, price)),
        _ => None,
    };
    Some(match id {
        FieldId::Side => Field::Side(boe_side(order.side)),
        FieldId::Price => Field::Price(order.price?.0.into()),
        FieldId::WorkingPrice => Field::WorkingPrice(order.price?.0.into()),
        FieldId::Symbol => Field::Symbol(text(order.symbol.0.trim_ascii_end())),
        FieldId::OrderQuantity => Field::OrderQuantity(order.qty.into()),
        FieldId::LeavesQuantity => Field::LeavesQuantity(order.leaves.into()),
        FieldId::LastShares => Field::LastShares(last?.0.into()),
        FieldId::LastPrice => Field::LastPrice(last?.1.0.into()),
        FieldId::OrigClOrdId => Field::OrigClOrdId(text(answer.orig_cl_ord_id.as_ref()?)),
        _ => return None,
    })
}

fn repeated_field(order: &NamedOrder, id: FieldId) -> Option<Field> {
    let (&kind, body) = order.request.split_first()?;
    Inbound::parse(kind, body).ok()?.1.fields().find(|field| field.id() == id)
}
