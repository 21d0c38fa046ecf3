//! EOBI's messages to events: one match on the template. A change of a book is the message's
//! number with the instrument, then what it changes.

use zerocopy::little_endian::I64;
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::layout::{
    AddComplexInstrument, AddFlexibleInstrument, AddScaledSimpleInstrument, AuctionBbo, AuctionClearingPrice,
    CrossRequest, ExecutionSummary, FullOrderExecution, HEADER_LEN, Heartbeat, InstrumentStateChange,
    InstrumentSummary, MassInstrumentStateChange, MassInstrumentStateChangeRoot, OrderAdd, OrderDelete,
    OrderMassDelete, OrderModify, OrderModifySamePrio, PacketHeader, PartialOrderExecution, ProductStateChange,
    ProductSummary, ProductSummaryRoot, QuoteRequest, SnapshotOrder, TesTradeReport, TopOfBook, TradeReport,
    TradeReversal, split_head,
};
use super::loops::LoopPlace;
use crate::codec::{Decoder, MessageCounts, MessageError};
use crate::event::{self, DepthAction, Event};
use crate::loops::OpenSnapshot;
use crate::sbe::{MessageHead, SbeError};
use crate::units::{Locate, OrderRef, Price, Price9, Side, Symbol};

/// The decoder of a product's messages, and of the loop's.
#[derive(Clone, Copy, Debug, Default)]
pub struct Eobi {
    /// When the match was whose executions come.
    matched_ns: u64,
    /// The last live message of the product that the snapshots which come have in them.
    pub(super) last_seq: Option<u32>,
    /// TradSesStatus of the product's head in the loop.
    pub(super) product_status: Option<u8>,
    snapshot: Option<OpenSnapshot>,
    /// The time of the mass change of which more follows.
    mass_change_ns: Option<u64>,
    /// Where the loop is, for those who do not decode it.
    pub(super) place: LoopPlace,
}

/// The reference of an order in events. T7 names an order by its instrument, its side and its
/// priority time.
pub const fn order_ref(security_id: i64, side: Side, time_priority: u64) -> OrderRef {
    let of = (security_id as u64) << 1 | side as u64;
    OrderRef(time_priority ^ of.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// The instrument in events.
#[inline]
pub(super) fn symbol(security_id: I64) -> Symbol {
    Symbol::from_number(security_id.get() as u64)
}

/// A template as the type of a message: templates are 13000 to 14499, in hundreds with a few each.
const fn kind_of(template: u16) -> u8 {
    let (hundred, idx) = (template.wrapping_sub(13_000) / 100, template % 100);
    if hundred < 15 && idx < 16 { (hundred << 4 | idx) as u8 } else { 0xff }
}

/// The template of a message's type.
pub const fn template(kind: u8) -> u16 {
    13_000 + 100 * (kind >> 4) as u16 + (kind & 15) as u16
}

/// The name of a message's type in reports; `None` for one that is not decoded.
pub const fn name(kind: u8) -> Option<&'static str> {
    macro_rules! named {
        ($($message:ident)*) => {
            match template(kind) {
                $($message::ID => Some($message::NAME),)*
                _ => None,
            }
        };
    }
    named!(
        PacketHeader Heartbeat OrderAdd OrderModify OrderDelete OrderMassDelete FullOrderExecution
        PartialOrderExecution OrderModifySamePrio TradeReversal TradeReport ExecutionSummary TesTradeReport
        ProductStateChange InstrumentStateChange MassInstrumentStateChange AddComplexInstrument
        AddFlexibleInstrument AddScaledSimpleInstrument AuctionBbo AuctionClearingPrice CrossRequest QuoteRequest
        TopOfBook ProductSummary InstrumentSummary SnapshotOrder
    )
}

impl Decoder for Eobi {
    const NAME: &'static str = "eobi";
    const BOOK_KINDS: &'static [u8] = &[
        kind_of(OrderAdd::ID),
        kind_of(OrderModify::ID),
        kind_of(OrderModifySamePrio::ID),
        kind_of(OrderDelete::ID),
        kind_of(OrderMassDelete::ID),
        kind_of(FullOrderExecution::ID),
        kind_of(PartialOrderExecution::ID),
        kind_of(InstrumentSummary::ID),
        kind_of(SnapshotOrder::ID),
    ];

    #[inline]
    fn kind(message: &[u8]) -> Option<u8> {
        split_head(message).ok().map(|(head, _)| kind_of(head.template))
    }

    #[inline]
    fn decode_each(
        &mut self,
        message: &[u8],
        counts: &mut MessageCounts,
        each: &mut impl FnMut(&Event),
    ) -> Result<(), MessageError> {
        let (head, body) = split_head(message).map_err(|_| MessageError::Empty)?;
        let (kind, seq) = (kind_of(head.template), seq_of(message));
        let is_known = match head.template {
            OrderAdd::ID => add(head, body, seq, each),
            OrderDelete::ID => delete(head, body, seq, each),
            OrderModify::ID => modify(head, body, seq, each),
            OrderModifySamePrio::ID => modify_in_place(head, body, seq, each),
            PartialOrderExecution::ID | FullOrderExecution::ID => self.execute(head, body, seq, each),
            PacketHeader::ID => self.end_packet(head, body, each).map(|()| true),
            _ => self.other(head, body, seq, each),
        };
        if !is_known.map_err(|error| MessageError::of_layout(error, kind))? {
            return Err(MessageError::Unknown { kind });
        }
        counts.by_type[usize::from(kind)] += 1;
        Ok(())
    }
}

/// The number of a message that has a header; 0 where T7 gives it none.
#[inline]
fn seq_of(message: &[u8]) -> u32 {
    let seq = message[4..HEADER_LEN].first_chunk().map_or(0, |seq| u32::from_le_bytes(*seq));
    if seq == u32::MAX { 0 } else { seq }
}

/// The number of a change of a book.
#[inline]
fn numbered(template: u16, seq: u32, at_ns: u64, symbol: Symbol) -> Event {
    Event::Numbered(event::Numbered { kind: kind_of(template), rpt_seq: seq, at_ns, symbol })
}

/// The deletion of an order that no book has: the instrument's book is stale.
fn missing_order(at_ns: u64) -> Event {
    Event::Delete(event::Delete { locate: Locate::default(), at_ns, order: OrderRef(0) })
}

fn without_books(template: u16, at_ns: u64) -> Event {
    Event::Other(event::Other { kind: kind_of(template), at_ns })
}

#[inline]
fn side(wire: u8) -> Option<Side> {
    match wire {
        1 => Some(Side::Buy),
        2 => Some(Side::Sell),
        _ => None,
    }
}

/// Units of a quantity, and of the last of four decimals of a price.
const UNIT: i64 = 10_000;

/// Whole units; `None` where it has others, or is too large.
#[inline]
fn quantity(wire: i64) -> Option<u32> {
    if wire % UNIT == 0 { u32::try_from(wire / UNIT).ok() } else { None }
}

/// Eight decimals to four; `None` where it has more.
#[inline]
fn price(wire: i64) -> Option<Price> {
    if wire % UNIT == 0 { Some(Price(wire / UNIT)) } else { None }
}

/// Eight decimals to nine.
fn price9(wire: i64) -> Price9 {
    Price9(wire.saturating_mul(10))
}

/// A resting order as T7 says it.
struct Order {
    security_id: I64,
    side: Side,
    time_priority: u64,
    qty: i64,
    /// Market orders have none, and are in no book.
    price: Option<i64>,
    at_ns: u64,
}

impl Order {
    fn reference(&self) -> OrderRef {
        order_ref(self.security_id.get(), self.side, self.time_priority)
    }

    /// It rests from now on. One that an event cannot say makes its book stale.
    #[inline]
    fn rest(&self, each: &mut impl FnMut(&Event)) {
        let Some(wire) = self.price else { return };
        let (Some(price), Some(qty)) = (price(wire), quantity(self.qty)) else {
            return each(&missing_order(self.at_ns));
        };
        let (locate, symbol) = (Locate::default(), symbol(self.security_id));
        let Self { side, at_ns, .. } = *self;
        each(&Event::Add(event::Add { locate, side, qty, at_ns, order: self.reference(), price, symbol }));
    }

    /// It is gone.
    #[inline]
    fn leave(&self, each: &mut impl FnMut(&Event)) {
        if self.price.is_some() {
            let (locate, at_ns) = (Locate::default(), self.at_ns);
            each(&Event::Delete(event::Delete { locate, at_ns, order: self.reference() }));
        }
    }
}

/// The side of an order, behind the number of what happens to it. Where there is none, the book is
/// stale.
macro_rules! side_or_stale {
    ($m:ident, $template:expr, $seq:ident, $at_ns:expr, $each:ident) => {{
        $each(&numbered($template, $seq, $at_ns, symbol($m.security_id)));
        let Some(side) = side($m.side) else {
            $each(&missing_order($at_ns));
            return Ok(false);
        };
        side
    }};
}

/// False where the side of the order is not known: its book is stale then.
#[inline]
fn add(head: MessageHead, body: &[u8], seq: u32, each: &mut impl FnMut(&Event)) -> Result<bool, SbeError> {
    let m = OrderAdd::parse(head, body)?.root;
    let at_ns = m.time_priority.get();
    let side = side_or_stale!(m, OrderAdd::ID, seq, at_ns, each);
    let (security_id, qty) = (m.security_id, m.display_qty.get());
    Order { security_id, side, time_priority: at_ns, qty, price: m.price(), at_ns }.rest(each);
    Ok(true)
}

#[inline]
fn delete(head: MessageHead, body: &[u8], seq: u32, each: &mut impl FnMut(&Event)) -> Result<bool, SbeError> {
    let m = OrderDelete::parse(head, body)?.root;
    let at_ns = m.transact_time.get();
    let side = side_or_stale!(m, OrderDelete::ID, seq, at_ns, each);
    let (security_id, time_priority) = (m.security_id, m.time_priority.get());
    Order { security_id, side, time_priority, qty: 0, price: m.price(), at_ns }.leave(each);
    Ok(true)
}

/// The order loses its priority.
#[inline]
fn modify(head: MessageHead, body: &[u8], seq: u32, each: &mut impl FnMut(&Event)) -> Result<bool, SbeError> {
    let m = OrderModify::parse(head, body)?.root;
    let at_ns = m.time_priority.get();
    let side = side_or_stale!(m, OrderModify::ID, seq, at_ns, each);
    let (security_id, qty) = (m.security_id, m.display_qty.get());
    let time_priority = m.prev_time_priority.get();
    Order { security_id, side, time_priority, qty: 0, price: m.prev_price(), at_ns }.leave(each);
    Order { security_id, side, time_priority: at_ns, qty, price: m.price(), at_ns }.rest(each);
    Ok(true)
}

/// The order keeps its priority: it has another quantity.
#[inline]
fn modify_in_place(head: MessageHead, body: &[u8], seq: u32, each: &mut impl FnMut(&Event)) -> Result<bool, SbeError> {
    let m = OrderModifySamePrio::parse(head, body)?.root;
    let at_ns = m.transact_time.get();
    let side = side_or_stale!(m, OrderModifySamePrio::ID, seq, at_ns, each);
    let Some(wire) = m.price() else { return Ok(true) };
    let (Some(price), Some(qty)) = (price(wire), quantity(m.display_qty.get())) else {
        each(&missing_order(at_ns));
        return Ok(true);
    };
    let order = order_ref(m.security_id.get(), side, m.time_priority.get());
    each(&Event::Modify(event::Modify { qty, at_ns, order, price }));
    Ok(true)
}

impl Eobi {
    /// An order trades, wholly or in part. Its price is the trade's, unless the message says so.
    #[inline]
    fn execute(
        &self,
        head: MessageHead,
        body: &[u8],
        seq: u32,
        each: &mut impl FnMut(&Event),
    ) -> Result<bool, SbeError> {
        macro_rules! executed {
            ($message:ident, $remaining:expr) => {{
                let m = $message::parse(head, body)?.root;
                let at_ns = self.matched_ns;
                let side = side_or_stale!(m, $message::ID, seq, at_ns, each);
                let Some(resting) = m.price() else { return Ok(true) };
                let Some(qty) = quantity(m.last_qty.get()) else {
                    each(&missing_order(at_ns));
                    return Ok(true);
                };
                let last = Some(m.last_px.get()).filter(|&last| last != resting);
                each(&Event::Execute(event::Execute {
                    locate: Locate::default(),
                    printable: true,
                    qty,
                    at_ns,
                    order: order_ref(m.security_id.get(), side, m.time_priority.get()),
                    trade: m.trd_match_id.get().into(),
                    price: last.map(|last| price9(last).rounded(side)),
                    remaining: $remaining,
                }));
                Ok(true)
            }};
        }
        match head.template {
            PartialOrderExecution::ID => executed!(PartialOrderExecution, None),
            _ => executed!(FullOrderExecution, Some(0)),
        }
    }

    /// The packet's header, which comes behind its messages.
    #[inline]
    fn end_packet(&mut self, head: MessageHead, body: &[u8], each: &mut impl FnMut(&Event)) -> Result<(), SbeError> {
        let m = PacketHeader::parse(head, body)?.root;
        if m.completion_indicator == COMPLETE {
            self.matched_ns = 0;
            each(&Event::EndOfEvent(event::EndOfEvent { at_ns: m.transact_time.get() }));
        }
        Ok(())
    }

    /// Templates that are not of the market's every moment.
    #[cold]
    #[inline(never)]
    fn other(
        &mut self,
        head: MessageHead,
        body: &[u8],
        seq: u32,
        each: &mut impl FnMut(&Event),
    ) -> Result<bool, SbeError> {
        macro_rules! left_out {
            ($message:ident) => {
                $message::parse(head, body).map(|m| each(&without_books(head.template, m.root.transact_time.get())))?
            };
        }
        match head.template {
            Heartbeat::ID => {
                Heartbeat::parse(head, body)?;
                each(&without_books(head.template, 0));
            }
            OrderMassDelete::ID => {
                let m = OrderMassDelete::parse(head, body)?.root;
                let (at_ns, symbol) = (m.transact_time.get(), symbol(m.security_id));
                each(&Event::BookReset(event::BookReset { rpt_seq: seq, at_ns, symbol }));
            }
            ExecutionSummary::ID => {
                self.matched_ns = ExecutionSummary::parse(head, body)?.root.exec_id.get();
                each(&without_books(head.template, self.matched_ns));
            }
            TradeReport::ID | TradeReversal::ID => trade(head, body, each)?,
            ProductStateChange::ID => {
                let m = ProductStateChange::parse(head, body)?.root;
                let (status, at_ns) = (m.trad_ses_status, m.transact_time.get());
                let code = if status == HALTED { b'H' } else { m.trading_session_sub_id };
                each(&Event::System(event::System { code, at_ns }));
                each(&product_state(status, at_ns));
            }
            InstrumentStateChange::ID => {
                let m = InstrumentStateChange::parse(head, body)?.root;
                let states = (m.security_status, m.security_trading_status());
                each(&status(m.security_id, states, m.transact_time.get()));
            }
            MassInstrumentStateChange::ID => self.mass_status(head, body, each)?,
            AddComplexInstrument::ID | AddFlexibleInstrument::ID | AddScaledSimpleInstrument::ID => {
                define(head, body, each)?;
            }
            ProductSummary::ID => {
                self.begin_product(&ProductSummary::parse(head, body)?.root);
                self.snapshot = None;
            }
            InstrumentSummary::ID => self.begin_snapshot(head, body, each)?,
            SnapshotOrder::ID => return self.snapshot_order(head, body, each),
            TesTradeReport::ID => left_out!(TesTradeReport),
            AuctionBbo::ID => left_out!(AuctionBbo),
            AuctionClearingPrice::ID => left_out!(AuctionClearingPrice),
            CrossRequest::ID => left_out!(CrossRequest),
            QuoteRequest::ID => left_out!(QuoteRequest),
            TopOfBook::ID => left_out!(TopOfBook),
            template => return Err(SbeError::UnknownTemplate(template)),
        }
        Ok(true)
    }

    /// The product's part of the loop begins.
    pub(super) fn begin_product(&mut self, m: &ProductSummaryRoot) {
        (self.last_seq, self.product_status) = (Some(m.last_msg_seq_num_processed.get()), m.trad_ses_status());
    }

    /// The book that follows is made anew. Without the product's head nothing says of when it is.
    fn begin_snapshot(
        &mut self,
        head: MessageHead,
        body: &[u8],
        each: &mut impl FnMut(&Event),
    ) -> Result<(), SbeError> {
        let m = InstrumentSummary::parse(head, body)?.root;
        let at_ns = m.last_update_time.get();
        let Some(last_seq) = self.last_seq else {
            each(&without_books(head.template, at_ns));
            return Ok(());
        };
        let snapshot = event::Snapshot {
            rpt_seq: last_seq,
            at_ns,
            symbol: symbol(m.security_id),
            last_seq: last_seq.into(),
            total: 0,
            part: 1,
            parts: 1,
        };
        // Before the orders, of which there may be none. The state of the product is told with each
        // instrument, because nobody knows which of them the books take.
        if let Some(product_status) = self.product_status {
            each(&product_state(product_status, at_ns));
        }
        each(&status(m.security_id, (m.security_status, m.security_trading_status()), at_ns));
        self.snapshot = OpenSnapshot::begin(snapshot, m.tot_no_orders.get().into(), each);
        Ok(())
    }

    /// The states of all instruments of the product, then those of the ones that it names, in one
    /// message or several. T7 means those of one kind (simple, or a strategy of some kind), which
    /// are not told apart here: so a halt of one kind is one of all, and what opens one opens all.
    fn mass_status(&mut self, head: MessageHead, body: &[u8], each: &mut impl FnMut(&Event)) -> Result<(), SbeError> {
        let m = MassInstrumentStateChange::parse(head, body)?.root;
        let entries = body.get(MassInstrumentStateChangeRoot::BLOCK_LEN..).unwrap_or_default();
        let needed = usize::from(m.no_related_sym) * size_of::<InstrumentState>();
        let overrun = SbeError::GroupOverrun { needed, found: entries.len() };
        let entries = entries.get(..needed).and_then(|entries| <[InstrumentState]>::ref_from_bytes(entries).ok());
        let (entries, at_ns) = (entries.ok_or(overrun)?, m.transact_time.get());
        let more_follows = (m.last_fragment == NOT_LAST).then_some(at_ns);
        // Again in a later part, it would be that of the instruments which the first one named.
        if core::mem::replace(&mut self.mass_change_ns, more_follows) != Some(at_ns) {
            let states = (m.security_mass_status, m.security_mass_trading_status());
            each(&status_of(Symbol::NONE, states, at_ns));
        }
        for entry in entries {
            let trading = Some(entry.security_trading_status).filter(|&state| state != u8::MAX);
            each(&status(entry.security_id, (entry.security_status, trading), at_ns));
        }
        Ok(())
    }

    fn snapshot_order(
        &mut self,
        head: MessageHead,
        body: &[u8],
        each: &mut impl FnMut(&Event),
    ) -> Result<bool, SbeError> {
        let m = SnapshotOrder::parse(head, body)?.root;
        let Some(snapshot) = self.snapshot else {
            // Of none that has begun.
            each(&without_books(head.template, 0));
            return Ok(true);
        };
        let side = side(m.side);
        let number = snapshot.symbol().number().unwrap_or(0) as i64;
        let (security_id, time_priority, qty) = (I64::new(number), m.time_priority.get(), m.display_qty.get());
        match side {
            Some(side) => Order { security_id, side, time_priority, qty, price: m.price(), at_ns: 0 }.rest(each),
            None => each(&missing_order(0)),
        }
        self.snapshot = snapshot.behind(1, each);
        Ok(side.is_some())
    }
}

/// CompletionIndicator.
pub(super) const COMPLETE: u8 = 1;
/// LastFragment.
const NOT_LAST: u8 = 0;
/// TradSesStatus.
const HALTED: u8 = 1;
/// See [`HALTED`].
const OPEN: u8 = 2;
/// See [`HALTED`].
const CLOSED: u8 = 3;

/// A trade of an auction, or one that is entered by hand, or void.
fn trade(head: MessageHead, body: &[u8], each: &mut impl FnMut(&Event)) -> Result<(), SbeError> {
    macro_rules! traded {
        ($message:ident, $action:ident, $trade:expr) => {{
            let m = $message::parse(head, body)?.root;
            each(&Event::TradeSummary(event::TradeSummary {
                aggressor: None,
                action: DepthAction::$action,
                orders: 0,
                at_ns: m.transact_time.get(),
                price: price9(m.last_px.get()),
                symbol: symbol(m.security_id),
                qty: (m.last_qty.get() / UNIT).max(0) as u64,
                trade: $trade(m),
                // It changes no book.
                rpt_seq: 0,
            }));
        }};
    }
    match head.template {
        TradeReport::ID => traded!(TradeReport, New, |m: super::layout::TradeReportRoot| m.trd_match_id().unwrap_or(0)),
        _ => traded!(TradeReversal, Delete, |m: super::layout::TradeReversalRoot| m.trd_match_id.get()),
    }
    Ok(())
}

/// The state of an instrument: its SecurityStatus and its SecurityTradingStatus.
fn status(security_id: I64, states: (u8, Option<u8>), at_ns: u64) -> Event {
    status_of(symbol(security_id), states, at_ns)
}

/// See [`status`].
fn status_of(symbol: Symbol, (status, trading): (u8, Option<u8>), at_ns: u64) -> Event {
    let (locate, state) = (Locate::default(), trading.unwrap_or(0));
    let is_halted = is_halted(status, trading);
    Event::Status(event::Status { locate, state, is_halted, operational: false, follows_group: None, at_ns, symbol })
}

/// An instrument that is inactive (2), expired (4), knocked out (6), suspended (9), about to be
/// deleted (11), or knocked out and suspended (12) does not trade. Otherwise its trading status
/// says so: halted (2), closed (200) and restricted (201) are states without trade; in the book,
/// continuous trading, auctions of each kind, calls and trade at close (202 to 217) it trades.
const fn is_halted(status: u8, trading: Option<u8>) -> Option<bool> {
    match (status, trading) {
        (2 | 4 | 6 | 9 | 11 | 12, _) | (_, Some(2 | 200 | 201)) => Some(true),
        (_, Some(202..=217)) => Some(false),
        _ => None,
    }
}

/// The state of a product is that of each of its instruments, apart from their own.
fn product_state(trad_ses_status: u8, at_ns: u64) -> Event {
    let is_halted = match trad_ses_status {
        HALTED | CLOSED => Some(true),
        OPEN => Some(false),
        _ => None,
    };
    let (locate, symbol, state) = (Locate::default(), Symbol::NONE, trad_ses_status);
    Event::Status(event::Status { locate, state, is_halted, operational: true, follows_group: None, at_ns, symbol })
}

/// The state of an instrument in a change of many, 32 bytes each.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct InstrumentState {
    security_id: I64,
    limits: [u8; 16],
    security_status: u8,
    security_trading_status: u8,
    pad: [u8; 6],
}

/// An instrument that is created in the day.
fn define(head: MessageHead, body: &[u8], each: &mut impl FnMut(&Event)) -> Result<(), SbeError> {
    macro_rules! defined {
        ($message:ident) => {{
            let m = $message::parse(head, body)?.root;
            each(&Event::Instrument(event::Instrument {
                depth: 0,
                implied_depth: 0,
                action: b'A',
                total: 0,
                at_ns: m.transact_time.get(),
                symbol: symbol(m.security_id),
                tick: Price9(0),
                name: Symbol::of_field(&m.security_desc),
                group: Symbol::NONE,
            }));
        }};
    }
    match head.template {
        AddComplexInstrument::ID => defined!(AddComplexInstrument),
        AddFlexibleInstrument::ID => defined!(AddFlexibleInstrument),
        _ => defined!(AddScaledSimpleInstrument),
    }
    Ok(())
}
