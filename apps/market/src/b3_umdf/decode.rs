//! UMDF's messages to events: one match on the template. An update is the number of its instrument,
//! then what it changes.

use super::layout::{
    AuctionImbalance, ChannelReset, ClosingPrice, DeleteOrder, EmptyBook, ExecutionStatistics, ExecutionSummary,
    ForwardTrade, HighPrice, LastTradePrice, LowPrice, MassDeleteOrders, News, OpenInterest, OpeningPrice, Order,
    PriceBand, QuantityBand, SCHEMA_ID, SecurityDefinition, SecurityGroupPhase, SecurityStatus, Sequence,
    SequenceReset, SettlementPrice, SnapshotHeader, SnapshotOrders, TheoreticalOpeningPrice, Trade, TradeBust,
    split_head,
};
use crate::codec::{Decoder, MessageCounts, MessageError};
use crate::event::{self, DepthAction, Event, Liquidity};
use crate::loops::OpenSnapshot;
use crate::sbe::{MessageHead, SbeError, kind_of};
use crate::units::{Locate, OrderRef, Price, Price9, Side, Symbol};

/// The decoder of all feeds of a channel. Its state is how much of a snapshot is still to come.
#[derive(Clone, Copy, Debug, Default)]
pub struct B3Umdf {
    snapshot: Option<OpenSnapshot>,
}

/// The reference of an order in events: B3's number of it (SecondaryOrderID, which changes with its
/// priority) is unique within its instrument only.
pub const fn order_ref(security_id: u64, secondary_order_id: u64) -> OrderRef {
    OrderRef(secondary_order_id ^ security_id.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Evaluates a macro with the messages of which only the number counts, and when they were.
macro_rules! with_statistics {
    ($with:ident) => {
        $with!(
            OpeningPrice TheoreticalOpeningPrice ClosingPrice AuctionImbalance QuantityBand PriceBand HighPrice
            LowPrice LastTradePrice SettlementPrice OpenInterest ExecutionStatistics
        )
    };
}

/// The name of a template in reports; `None` for one that is not decoded.
pub const fn name(template: u8) -> Option<&'static str> {
    macro_rules! named {
        ($($message:ident)*) => {
            match template as u16 {
                $($message::ID => $message::NAME,)*
                SequenceReset::ID => SequenceReset::NAME,
                Sequence::ID => Sequence::NAME,
                SecurityStatus::ID => SecurityStatus::NAME,
                News::ID => News::NAME,
                EmptyBook::ID => EmptyBook::NAME,
                SecurityGroupPhase::ID => SecurityGroupPhase::NAME,
                ChannelReset::ID => ChannelReset::NAME,
                SecurityDefinition::ID => SecurityDefinition::NAME,
                SnapshotHeader::ID => SnapshotHeader::NAME,
                Order::ID => Order::NAME,
                DeleteOrder::ID => DeleteOrder::NAME,
                MassDeleteOrders::ID => MassDeleteOrders::NAME,
                Trade::ID => Trade::NAME,
                ForwardTrade::ID => ForwardTrade::NAME,
                ExecutionSummary::ID => ExecutionSummary::NAME,
                TradeBust::ID => TradeBust::NAME,
                SnapshotOrders::ID => SnapshotOrders::NAME,
                _ => return None,
            }
        };
    }
    Some(with_statistics!(named))
}

impl Decoder for B3Umdf {
    const NAME: &'static str = "b3_umdf";
    const BOOK_KINDS: &'static [u8] = &[
        EmptyBook::ID as u8,
        ChannelReset::ID as u8,
        Order::ID as u8,
        DeleteOrder::ID as u8,
        MassDeleteOrders::ID as u8,
        SnapshotHeader::ID as u8,
        SnapshotOrders::ID as u8,
        // What counts in the numbers of an instrument.
        SecurityStatus::ID as u8,
        OpeningPrice::ID as u8,
        TheoreticalOpeningPrice::ID as u8,
        ClosingPrice::ID as u8,
        AuctionImbalance::ID as u8,
        QuantityBand::ID as u8,
        PriceBand::ID as u8,
        HighPrice::ID as u8,
        LowPrice::ID as u8,
        LastTradePrice::ID as u8,
        SettlementPrice::ID as u8,
        OpenInterest::ID as u8,
        Trade::ID as u8,
        ForwardTrade::ID as u8,
        ExecutionSummary::ID as u8,
        ExecutionStatistics::ID as u8,
        TradeBust::ID as u8,
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
        let (head, body) = head_and_body(message)?;
        let kind = kind_of(head.template);
        let is_known = match head.template {
            Order::ID => order(head, body, each),
            DeleteOrder::ID => delete(head, body, each).map(|()| true),
            Trade::ID => trade(head, body, each).map(|()| true),
            _ => self.other(head, body, each).map(|()| true),
        };
        if !is_known.map_err(|error| MessageError::of_layout(error, kind))? {
            return Err(MessageError::Unknown { kind });
        }
        counts.by_type[usize::from(kind)] += 1;
        Ok(())
    }
}

/// The parts of a message of this schema.
#[inline]
pub(super) fn head_and_body(message: &[u8]) -> Result<(MessageHead, &[u8]), MessageError> {
    let (head, body) = split_head(message).map_err(|_| MessageError::Empty)?;
    if head.schema != SCHEMA_ID {
        return Err(MessageError::Unknown { kind: kind_of(head.template) });
    }
    Ok((head, body))
}

/// The bit of an event's last message.
const END_OF_EVENT: u8 = 1 << 7;

#[inline]
fn end(bits: u8, at_ns: u64, each: &mut impl FnMut(&Event)) {
    if bits & END_OF_EVENT != 0 {
        each(&Event::EndOfEvent(event::EndOfEvent { at_ns }));
    }
}

/// The number of an update of a book, which is 0 where it has none.
#[inline]
fn numbered(template: u16, rpt_seq: Option<u32>, at_ns: u64, security_id: u64) -> Event {
    let (symbol, rpt_seq) = (Symbol::from_number(security_id), rpt_seq.unwrap_or(0));
    Event::Numbered(event::Numbered { kind: template as u8, rpt_seq, at_ns, symbol })
}

/// The number of a message that changes no book: one without a number says nothing of the book.
fn counted(template: u16, rpt_seq: Option<u32>, at_ns: u64, security_id: u64) -> Event {
    match rpt_seq {
        Some(_) => numbered(template, rpt_seq, at_ns, security_id),
        None => without_books(template, at_ns),
    }
}

#[inline]
fn side(entry_type: u8) -> Option<Side> {
    match entry_type {
        b'0' => Some(Side::Buy),
        b'1' => Some(Side::Sell),
        _ => None,
    }
}

#[inline]
fn quantity(wire: i64) -> u32 {
    wire.clamp(0, u32::MAX.into()) as u32
}

/// Four decimals to nine.
#[inline]
fn price9(mantissa: i64) -> Price9 {
    Price(mantissa).into()
}

/// False where what happens to the order is not known: its book is stale then. One without a price
/// is in no book, and changes none.
#[inline]
fn order(head: MessageHead, body: &[u8], each: &mut impl FnMut(&Event)) -> Result<bool, SbeError> {
    let m = Order::parse(head, body)?.root;
    let (security_id, at_ns) = (m.security_id.get(), m.transact_time().unwrap_or(0));
    each(&numbered(Order::ID, m.rpt_seq(), at_ns, security_id));
    let (order, qty) = (order_ref(security_id, m.order_id.get()), quantity(m.size.get()));
    let is_known = match (m.action, side(m.entry_type), m.price().map(Price)) {
        (NEW, Some(side), Some(price)) => {
            let (locate, symbol) = (Locate::default(), Symbol::from_number(security_id));
            each(&Event::Add(event::Add { locate, side, qty, at_ns, order, price, symbol }));
            true
        }
        (CHANGE, Some(_), Some(price)) => {
            each(&Event::Modify(event::Modify { qty, at_ns, order, price }));
            true
        }
        (NEW | CHANGE, Some(_), None) => true,
        _ => {
            each(&missing_order(security_id, at_ns));
            false
        }
    };
    end(m.event_end, at_ns, each);
    Ok(is_known)
}

/// The deletion of an order that no book has: the instrument's book is stale.
fn missing_order(security_id: u64, at_ns: u64) -> Event {
    let (locate, order) = (Locate::default(), order_ref(security_id, 0));
    Event::Delete(event::Delete { locate, at_ns, order })
}

/// What happens to an order.
const NEW: u8 = 0;
const CHANGE: u8 = 1;

#[inline]
fn delete(head: MessageHead, body: &[u8], each: &mut impl FnMut(&Event)) -> Result<(), SbeError> {
    let m = DeleteOrder::parse(head, body)?.root;
    let (security_id, at_ns) = (m.security_id.get(), m.transact_time().unwrap_or(0));
    each(&numbered(DeleteOrder::ID, m.rpt_seq(), at_ns, security_id));
    // From version 15 on it has the order's price: one without is in no book.
    if m.price().is_some() || head.block_len < DELETE_LEN_WITH_PRICE {
        let (locate, order) = (Locate::default(), order_ref(security_id, m.order_id.get()));
        each(&Event::Delete(event::Delete { locate, at_ns, order }));
    }
    end(m.event_end, at_ns, each);
    Ok(())
}

/// Bytes of a deletion's block that holds the order's price.
const DELETE_LEN_WITH_PRICE: usize = 52;

#[inline]
fn trade(head: MessageHead, body: &[u8], each: &mut impl FnMut(&Event)) -> Result<(), SbeError> {
    macro_rules! traded {
        ($message:ident, $action:ident) => {{
            let m = $message::parse(head, body)?.root;
            let at_ns = m.transact_time().unwrap_or(0);
            each(&Event::TradeSummary(event::TradeSummary {
                aggressor: None,
                action: DepthAction::$action,
                orders: 0,
                at_ns,
                price: price9(m.price.get()),
                symbol: Symbol::from_number(m.security_id.get()),
                qty: m.size.get().max(0) as u64,
                trade: m.trade_id.get(),
                rpt_seq: m.rpt_seq().unwrap_or(0),
            }));
            end(m.event_end, at_ns, each);
        }};
    }
    match head.template {
        Trade::ID => traded!(Trade, New),
        ForwardTrade::ID => traded!(ForwardTrade, New),
        _ => traded!(TradeBust, Delete),
    }
    Ok(())
}

impl B3Umdf {
    /// Templates that are not of the market's every moment.
    #[cold]
    #[inline(never)]
    fn other(&mut self, head: MessageHead, body: &[u8], each: &mut impl FnMut(&Event)) -> Result<(), SbeError> {
        match head.template {
            SequenceReset::ID => SequenceReset::parse(head, body).map(|_| each(&without_books(head.template, 0))),
            Sequence::ID => Sequence::parse(head, body).map(|_| each(&without_books(head.template, 0))),
            SecurityStatus::ID => status(head, body, each),
            News::ID => {
                let m = News::parse(head, body)?.root;
                each(&without_books(head.template, m.orig_time().unwrap_or(0)));
                Ok(())
            }
            SecurityGroupPhase::ID => {
                let m = SecurityGroupPhase::parse(head, body)?.root;
                let (state, at_ns) = (m.phase, m.transact_time().unwrap_or(0));
                let (group, symbol, is_halted) = (Symbol::of_field(&m.group), Symbol::NONE, is_halted(state));
                each(&Event::GroupStatus(event::GroupStatus { state, is_halted, at_ns, group, symbol }));
                end(m.event_end, at_ns, each);
                Ok(())
            }
            EmptyBook::ID => {
                let m = EmptyBook::parse(head, body)?.root;
                let (at_ns, symbol) = (m.entry_time().unwrap_or(0), Symbol::from_number(m.security_id.get()));
                each(&Event::BookReset(event::BookReset { rpt_seq: 0, at_ns, symbol }));
                end(m.event_end, at_ns, each);
                Ok(())
            }
            ChannelReset::ID => {
                let m = ChannelReset::parse(head, body)?.root;
                let at_ns = m.entry_time().unwrap_or(0);
                each(&Event::Clear(event::Clear { at_ns }));
                end(m.event_end, at_ns, each);
                Ok(())
            }
            MassDeleteOrders::ID => mass_delete(head, body, each),
            ForwardTrade::ID | TradeBust::ID => trade(head, body, each),
            SecurityDefinition::ID => define(head, body, each),
            SnapshotHeader::ID => self.begin_snapshot(head, body, each),
            SnapshotOrders::ID => self.snapshot_orders(head, body, each),
            ExecutionSummary::ID => {
                let m = ExecutionSummary::parse(head, body)?.root;
                let at_ns = m.transact_time().unwrap_or(0);
                each(&counted(head.template, m.rpt_seq(), at_ns, m.security_id.get()));
                Ok(())
            }
            _ => statistics(head, body, each),
        }
    }

    /// The book that follows is made anew: whatever rested is gone.
    fn begin_snapshot(
        &mut self,
        head: MessageHead,
        body: &[u8],
        each: &mut impl FnMut(&Event),
    ) -> Result<(), SbeError> {
        let m = SnapshotHeader::parse(head, body)?.root;
        let snapshot = event::Snapshot {
            rpt_seq: m.last_rpt_seq().unwrap_or(0),
            at_ns: 0,
            symbol: Symbol::from_number(m.security_id.get()),
            last_seq: m.last_seq.get().into(),
            total: m.reports_total.get(),
            part: 1,
            parts: 1,
        };
        self.snapshot = OpenSnapshot::begin(snapshot, m.bids.get().saturating_add(m.offers.get()), each);
        Ok(())
    }

    fn snapshot_orders(
        &mut self,
        head: MessageHead,
        body: &[u8],
        each: &mut impl FnMut(&Event),
    ) -> Result<(), SbeError> {
        let message = SnapshotOrders::parse(head, body)?;
        let security_id = message.root.security_id.get();
        let symbol = Symbol::from_number(security_id);
        let Some(snapshot) = self.snapshot.filter(|snapshot| snapshot.symbol() == symbol) else {
            // Of none that has begun.
            each(&without_books(head.template, 0));
            return Ok(());
        };
        let count = message.entries.len() as u32;
        for entry in message.entries {
            let (Some(side), Some(price)) = (side(entry.entry_type), entry.price()) else { continue };
            each(&Event::Add(event::Add {
                locate: Locate::default(),
                side,
                qty: quantity(entry.size.get()),
                at_ns: 0,
                order: order_ref(security_id, entry.order_id.get()),
                price: Price(price),
                symbol,
            }));
        }
        self.snapshot = snapshot.behind(count, each);
        Ok(())
    }
}

/// The event of a message that is about no book.
fn without_books(template: u16, at_ns: u64) -> Event {
    Event::Other(event::Other { kind: kind_of(template), at_ns })
}

fn status(head: MessageHead, body: &[u8], each: &mut impl FnMut(&Event)) -> Result<(), SbeError> {
    let m = SecurityStatus::parse(head, body)?.root;
    let (security_id, at_ns) = (m.security_id.get(), m.transact_time().unwrap_or(0));
    each(&counted(head.template, m.rpt_seq(), at_ns, security_id));
    each(&Event::Status(event::Status {
        locate: Locate::default(),
        state: m.status,
        is_halted: is_halted(m.status),
        operational: false,
        follows_group: follows_group(m.trading_event),
        at_ns,
        symbol: Symbol::from_number(security_id),
    }));
    end(m.event_end, at_ns, each);
    Ok(())
}

/// Paused (2), closed (4) and forbidden (18) are states and phases without trade. Open (17),
/// reserved for an auction (21) and the final closing call (101) end them; unknown (20) says
/// nothing.
const fn is_halted(state: u8) -> Option<bool> {
    match state {
        2 | 4 | 18 => Some(true),
        17 | 21 | 101 => Some(false),
        _ => None,
    }
}

/// An instrument leaves its group (101), so that phases of that are not its own, or comes back
/// (102) (SecurityTradingEvent).
const fn follows_group(trading_event: u8) -> Option<bool> {
    match trading_event {
        101 => Some(false),
        102 => Some(true),
        _ => None,
    }
}

/// All orders of a side are gone. Before version 16 only those up to a position might be, which
/// books of orders do not know: then nothing but the next snapshot says what is left.
fn mass_delete(head: MessageHead, body: &[u8], each: &mut impl FnMut(&Event)) -> Result<(), SbeError> {
    let m = MassDeleteOrders::parse(head, body)?.root;
    let (security_id, at_ns) = (m.security_id.get(), m.transact_time().unwrap_or(0));
    each(&numbered(head.template, m.rpt_seq(), at_ns, security_id));
    let has_position = head.version < 16 && m.position().is_some();
    if let Some(side) = side(m.entry_type).filter(|_| !has_position) {
        each(&Event::Depth(event::Depth {
            side,
            liquidity: Liquidity::Direct,
            action: DepthAction::DeleteFrom,
            level: 1,
            orders: 0,
            at_ns,
            price: Price9(0),
            symbol: Symbol::from_number(security_id),
            qty: 0,
            rpt_seq: m.rpt_seq().unwrap_or(0),
        }));
    } else {
        each(&missing_order(security_id, at_ns));
    }
    end(m.event_end, at_ns, each);
    Ok(())
}

/// Prices, bands, volumes: nothing of them is in a book, but each counts in its instrument's
/// numbers.
fn statistics(head: MessageHead, body: &[u8], each: &mut impl FnMut(&Event)) -> Result<(), SbeError> {
    macro_rules! told {
        ($($message:ident)*) => {
            match head.template {
                $($message::ID => {
                    let m = $message::parse(head, body)?.root;
                    let at_ns = m.entry_time().unwrap_or(0);
                    each(&counted(head.template, m.rpt_seq(), at_ns, m.security_id.get()));
                    end(m.event_end, at_ns, each);
                })*
                template => return Err(SbeError::UnknownTemplate(template)),
            }
        };
    }
    with_statistics!(told);
    Ok(())
}

fn define(head: MessageHead, body: &[u8], each: &mut impl FnMut(&Event)) -> Result<(), SbeError> {
    let m = SecurityDefinition::parse(head, body)?.root;
    each(&Event::Instrument(event::Instrument {
        depth: 0,
        implied_depth: 0,
        action: m.update_action,
        total: m.total.get(),
        at_ns: 0,
        symbol: Symbol::from_number(m.security_id.get()),
        tick: Price9(m.min_price_increment().unwrap_or(0).saturating_mul(10)),
        // Options of one series differ behind the eighth byte.
        name: Symbol::of_field(&m.symbol),
        group: Symbol::of_field(&m.group),
    }));
    Ok(())
}
