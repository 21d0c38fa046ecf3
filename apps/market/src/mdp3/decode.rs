//! MDP 3.0 messages to events: one match on the template, then an event for each entry.

use super::layout::{
    AdminHeartbeat, AdminLogin, AdminLogout, Book, BookEntry, BookOrder, ChannelReset, DailyStatistics,
    FutureDefinition, LimitsBanding, OptionDefinition, OrderBook, OrderBookEntry, OrderSnapshot, QuoteRequest,
    SCHEMA_ID, SecurityStatus, SessionStatistics, Snapshot, SpreadDefinition, TradeSummary, TradeSummaryEntry, Volume,
    split_head,
};
use crate::codec::{Decoder, MessageCounts, MessageError};
use crate::event::{self, DepthAction, Event, Liquidity, OrderAction};
use crate::sbe::{Group, MessageHead, SbeError, kind_of};
use crate::units::{Locate, OrderRef, Price9, Side, Symbol};

/// The decoder of all feeds of a channel. It has no state.
///
/// An entry that no book has a place for (a side that is neither bid nor offer, an action that the
/// specification does not have) becomes an [`Event::Numbered`], so that the numbers of its
/// instrument stay whole.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mdp3;

/// The name of a template in reports; `None` for one that is not decoded.
pub const fn name(template: u8) -> Option<&'static str> {
    Some(match template as u16 {
        ChannelReset::ID => ChannelReset::NAME,
        AdminHeartbeat::ID => AdminHeartbeat::NAME,
        AdminLogin::ID => AdminLogin::NAME,
        AdminLogout::ID => AdminLogout::NAME,
        SecurityStatus::ID => SecurityStatus::NAME,
        Volume::ID => Volume::NAME,
        QuoteRequest::ID => QuoteRequest::NAME,
        Book::ID => Book::NAME,
        OrderBook::ID => OrderBook::NAME,
        TradeSummary::ID => TradeSummary::NAME,
        DailyStatistics::ID => DailyStatistics::NAME,
        LimitsBanding::ID => LimitsBanding::NAME,
        SessionStatistics::ID => SessionStatistics::NAME,
        Snapshot::ID => Snapshot::NAME,
        OrderSnapshot::ID => OrderSnapshot::NAME,
        FutureDefinition::ID => FutureDefinition::NAME,
        OptionDefinition::ID => OptionDefinition::NAME,
        SpreadDefinition::ID => SpreadDefinition::NAME,
        _ => return None,
    })
}

impl Decoder for Mdp3 {
    const NAME: &'static str = "mdp3";
    const BOOK_KINDS: &'static [u8] = &[
        kind_of(ChannelReset::ID),
        kind_of(Book::ID),
        kind_of(OrderBook::ID),
        kind_of(Snapshot::ID),
        kind_of(OrderSnapshot::ID),
        // What counts in the numbers of an instrument.
        kind_of(TradeSummary::ID),
        kind_of(Volume::ID),
        kind_of(DailyStatistics::ID),
        kind_of(LimitsBanding::ID),
        kind_of(SessionStatistics::ID),
        // Not decoded, and books lack what is in them.
        LONG_QUANTITY[0],
        LONG_QUANTITY[1],
        LONG_QUANTITY[2],
        LONG_QUANTITY[3],
        LONG_QUANTITY[4],
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
        let kind = kind_of(head.template);
        if head.schema != SCHEMA_ID {
            return Err(MessageError::Unknown { kind });
        }
        let decoded = match head.template {
            Book::ID => book(head, body, each),
            OrderBook::ID => order_book(head, body, each),
            TradeSummary::ID => trades(head, body, each),
            _ => other(head, body, each),
        };
        decoded.map_err(|error| MessageError::of_layout(error, kind))?;
        counts.by_type[usize::from(kind)] += 1;
        Ok(())
    }
}

/// Books, trades, volumes, statistics and snapshots of instruments whose quantities have 64 bits.
const LONG_QUANTITY: [u8; 5] = [64, 65, 66, 67, 69];

/// The bit of an event's last message.
const END_OF_EVENT: u8 = 1 << 7;

#[inline]
fn end(bits: u8, at_ns: u64, each: &mut impl FnMut(&Event)) {
    if bits & END_OF_EVENT != 0 {
        each(&Event::EndOfEvent(event::EndOfEvent { at_ns }));
    }
}

/// Instruments have positive numbers; the sign of others is kept apart by 32 bits.
#[inline]
fn symbol(security_id: i32) -> Symbol {
    Symbol::from_number(security_id as u32 as u64)
}

/// Quantities have a sign on the wire and no negative value.
#[inline]
fn quantity(wire: Option<i32>) -> u32 {
    wire.and_then(|wire| u32::try_from(wire).ok()).unwrap_or(0)
}

#[inline]
fn place(entry_type: u8) -> Option<(Side, Liquidity)> {
    Some(match entry_type {
        b'0' => (Side::Buy, Liquidity::Direct),
        b'1' => (Side::Sell, Liquidity::Direct),
        b'E' => (Side::Buy, Liquidity::Implied),
        b'F' => (Side::Sell, Liquidity::Implied),
        _ => return None,
    })
}

/// All levels of the instrument are gone.
const BOOK_RESET: u8 = b'J';

#[inline]
fn depth_action(action: u8) -> Option<DepthAction> {
    Some(match action {
        0 => DepthAction::New,
        1 => DepthAction::Change,
        2 => DepthAction::Delete,
        3 => DepthAction::DeleteThru,
        4 => DepthAction::DeleteFrom,
        5 => DepthAction::Overlay,
        _ => return None,
    })
}

#[inline]
fn order_action(action: u8) -> Option<OrderAction> {
    Some(match action {
        0 => OrderAction::New,
        1 => OrderAction::Change,
        2 => OrderAction::Delete,
        _ => return None,
    })
}

#[inline]
fn book(head: MessageHead, body: &[u8], each: &mut impl FnMut(&Event)) -> Result<(), SbeError> {
    let message = Book::parse(head, body)?;
    let at_ns = message.root.transact_time.get();
    for entry in message.entries.clone() {
        each(&level(&entry, at_ns));
    }
    if message.orders.len() > 0 {
        orders(&message.entries, message.orders, at_ns, each);
    }
    end(message.root.event_end, at_ns, each);
    Ok(())
}

#[inline]
fn level(entry: &BookEntry, at_ns: u64) -> Event {
    let (symbol, rpt_seq) = (symbol(entry.security_id.get()), entry.rpt_seq.get());
    let (Some((side, liquidity)), Some(action)) = (place(entry.entry_type), depth_action(entry.action)) else {
        return if entry.entry_type == BOOK_RESET {
            Event::BookReset(event::BookReset { rpt_seq, at_ns, symbol })
        } else {
            Event::Numbered(event::Numbered { kind: entry.entry_type, rpt_seq, at_ns, symbol })
        };
    };
    Event::Depth(event::Depth {
        side,
        liquidity,
        action,
        level: entry.level,
        orders: quantity(entry.order_count()),
        at_ns,
        price: Price9(entry.price.get()),
        symbol,
        qty: quantity(entry.size()).into(),
        rpt_seq,
    })
}

/// The orders behind the levels of the same message, each of which names its level's entry by its
/// position from 1.
#[cold]
fn orders(entries: &Group<'_, BookEntry>, orders: Group<'_, BookOrder>, at_ns: u64, each: &mut impl FnMut(&Event)) {
    for order in orders {
        let entry = order.reference_id().and_then(|idx| entries.get(usize::from(idx).checked_sub(1)?));
        let Some(entry) = entry else { continue };
        let (Some((side, _)), Some(action)) = (place(entry.entry_type), order_action(order.order_action)) else {
            continue;
        };
        each(&Event::Order(event::Order {
            side,
            action,
            qty: quantity(order.display_qty()),
            at_ns,
            order: OrderRef(order.order_id.get()),
            priority: order.priority().unwrap_or(0),
            price: Price9(entry.price.get()),
            symbol: symbol(entry.security_id.get()),
        }));
    }
}

#[inline]
fn order_book(head: MessageHead, body: &[u8], each: &mut impl FnMut(&Event)) -> Result<(), SbeError> {
    let message = OrderBook::parse(head, body)?;
    let at_ns = message.root.transact_time.get();
    for entry in message.entries {
        if let Some(event) = order(&entry, at_ns) {
            each(&event);
        }
    }
    end(message.root.event_end, at_ns, each);
    Ok(())
}

#[inline]
fn order(entry: &OrderBookEntry, at_ns: u64) -> Option<Event> {
    let (side, _) = place(entry.entry_type)?;
    Some(Event::Order(event::Order {
        side,
        action: order_action(entry.action)?,
        qty: quantity(entry.display_qty()),
        at_ns,
        order: OrderRef(entry.order_id()?),
        priority: entry.priority().unwrap_or(0),
        price: Price9(entry.price.get()),
        symbol: symbol(entry.security_id.get()),
    }))
}

#[inline]
fn trades(head: MessageHead, body: &[u8], each: &mut impl FnMut(&Event)) -> Result<(), SbeError> {
    let message = TradeSummary::parse(head, body)?;
    let at_ns = message.root.transact_time.get();
    for entry in message.entries {
        each(&trade(&entry, at_ns));
    }
    end(message.root.event_end, at_ns, each);
    Ok(())
}

#[inline]
fn trade(entry: &TradeSummaryEntry, at_ns: u64) -> Event {
    let (symbol, rpt_seq) = (symbol(entry.security_id.get()), entry.rpt_seq.get());
    let Some(action) = depth_action(entry.action) else {
        return Event::Numbered(event::Numbered { kind: TradeSummary::ID as u8, rpt_seq, at_ns, symbol });
    };
    let aggressor = match entry.aggressor {
        1 => Some(Side::Buy),
        2 => Some(Side::Sell),
        _ => None,
    };
    Event::TradeSummary(event::TradeSummary {
        aggressor,
        action,
        orders: quantity(Some(entry.order_count.get())),
        at_ns,
        price: Price9(entry.price.get()),
        symbol,
        qty: quantity(Some(entry.size.get())).into(),
        trade: entry.trade_id().unwrap_or(0),
        rpt_seq,
    })
}

/// Templates that are not of the market's every moment.
#[cold]
#[inline(never)]
fn other(head: MessageHead, body: &[u8], each: &mut impl FnMut(&Event)) -> Result<(), SbeError> {
    match head.template {
        ChannelReset::ID => {
            let message = ChannelReset::parse(head, body)?;
            let at_ns = message.root.transact_time.get();
            each(&Event::Clear(event::Clear { at_ns }));
            end(message.root.event_end, at_ns, each);
        }
        AdminHeartbeat::ID => AdminHeartbeat::parse(head, body).map(|_| each(&without_books(head.template)))?,
        AdminLogin::ID => AdminLogin::parse(head, body).map(|_| each(&without_books(head.template)))?,
        AdminLogout::ID => AdminLogout::parse(head, body).map(|_| each(&without_books(head.template)))?,
        SecurityStatus::ID => status(&SecurityStatus::parse(head, body)?, each),
        QuoteRequest::ID => QuoteRequest::parse(head, body).map(|_| each(&without_books(head.template)))?,
        Volume::ID | DailyStatistics::ID | LimitsBanding::ID | SessionStatistics::ID => {
            return statistics(head, body, each);
        }
        Snapshot::ID => snapshot(Snapshot::parse(head, body)?, each),
        OrderSnapshot::ID => order_snapshot(OrderSnapshot::parse(head, body)?, each),
        FutureDefinition::ID | OptionDefinition::ID | SpreadDefinition::ID => return definition(head, body, each),
        template => return Err(SbeError::UnknownTemplate(template)),
    }
    Ok(())
}

/// The event of a message that is about no book.
fn without_books(template: u16) -> Event {
    Event::Other(event::Other { kind: kind_of(template), at_ns: 0 })
}

/// The state of an instrument (SecurityTradingStatus).
fn state_of(symbol: Symbol, state: u8, is_halted: Option<bool>, at_ns: u64) -> Event {
    let locate = Locate::default();
    Event::Status(event::Status { locate, state, is_halted, operational: false, follows_group: None, at_ns, symbol })
}

/// Halted (2), closed (4), not available for trading (18) and behind the close (26) are states in
/// which nothing matches. A new price indication (15), ready to trade (17), before the opening
/// (21), before and in a cross (24, 25), private and public workup (201, 202) end them; unknown
/// (20) and unchanged (103) say nothing.
const fn is_halted(state: u8) -> Option<bool> {
    match state {
        2 | 4 | 18 | 26 => Some(true),
        15 | 17 | 21 | 24 | 25 | 201 | 202 => Some(false),
        _ => None,
    }
}

fn status(message: &SecurityStatus, each: &mut impl FnMut(&Event)) {
    let (root, at_ns) = (&message.root, message.root.transact_time.get());
    match (root.security_id(), root.trading_status()) {
        (Some(id), Some(state)) => each(&state_of(symbol(id), state, is_halted(state), at_ns)),
        // A status without an instrument is that of a whole product group.
        (None, Some(state)) => {
            let (group, symbol) = (Symbol::of_field(&root.security_group), Symbol::NONE);
            let is_halted = is_halted(state);
            each(&Event::GroupStatus(event::GroupStatus { state, is_halted, at_ns, group, symbol }));
        }
        (_, None) => each(&Event::Other(event::Other { kind: SecurityStatus::ID as u8, at_ns })),
    }
    end(root.event_end, at_ns, each);
}

/// Volume, settlements, limits, opening prices: nothing of them is in a book, but each counts in
/// its instrument's numbers.
fn statistics(head: MessageHead, body: &[u8], each: &mut impl FnMut(&Event)) -> Result<(), SbeError> {
    macro_rules! numbered {
        ($message:ident) => {{
            let message = $message::parse(head, body)?;
            let at_ns = message.root.transact_time.get();
            for entry in message.entries {
                let (symbol, rpt_seq) = (symbol(entry.security_id.get()), entry.rpt_seq.get());
                each(&Event::Numbered(event::Numbered { kind: $message::ID as u8, rpt_seq, at_ns, symbol }));
            }
            end(message.root.event_end, at_ns, each);
        }};
    }
    match head.template {
        Volume::ID => numbered!(Volume),
        DailyStatistics::ID => numbered!(DailyStatistics),
        LimitsBanding::ID => numbered!(LimitsBanding),
        _ => numbered!(SessionStatistics),
    }
    Ok(())
}

fn snapshot(message: Snapshot<'_>, each: &mut impl FnMut(&Event)) {
    let (root, at_ns) = (message.root, message.root.transact_time.get());
    let symbol = symbol(root.security_id.get());
    each(&Event::Snapshot(event::Snapshot {
        rpt_seq: root.rpt_seq.get(),
        at_ns,
        symbol,
        last_seq: root.last_seq.get().into(),
        total: root.reports_total.get(),
        part: 1,
        parts: 1,
    }));
    if let Some(state) = root.trading_status() {
        // It may be that of the group, whose end the group's next status tells.
        each(&state_of(symbol, state, is_halted(state), at_ns));
    }
    for entry in message.entries {
        // Other entries are statistics.
        let (Some((side, liquidity)), Some(level)) = (place(entry.entry_type), entry.level()) else { continue };
        each(&Event::Depth(event::Depth {
            side,
            liquidity,
            action: DepthAction::Snapshot,
            level: u8::try_from(level).unwrap_or(0),
            orders: quantity(entry.order_count()),
            at_ns,
            price: Price9(entry.price.get()),
            symbol,
            qty: quantity(entry.size()).into(),
            rpt_seq: root.rpt_seq.get(),
        }));
    }
    each(&Event::SnapshotEnd(event::SnapshotEnd { at_ns, symbol }));
    // A snapshot is consistent by itself.
    each(&Event::EndOfEvent(event::EndOfEvent { at_ns }));
}

fn order_snapshot(message: OrderSnapshot<'_>, each: &mut impl FnMut(&Event)) {
    let (root, at_ns) = (message.root, message.root.transact_time.get());
    let symbol = symbol(root.security_id.get());
    each(&Event::OrderSnapshot(event::Snapshot {
        rpt_seq: 0,
        at_ns,
        symbol,
        last_seq: root.last_seq.get().into(),
        total: root.reports_total.get(),
        part: root.chunk.get(),
        parts: root.chunks.get(),
    }));
    for entry in message.entries {
        let Some((side, _)) = place(entry.entry_type) else { continue };
        each(&Event::Order(event::Order {
            side,
            action: OrderAction::Snapshot,
            qty: quantity(Some(entry.display_qty.get())),
            at_ns,
            order: OrderRef(entry.order_id.get()),
            priority: entry.priority().unwrap_or(0),
            price: Price9(entry.price.get()),
            symbol,
        }));
    }
    each(&Event::SnapshotEnd(event::SnapshotEnd { at_ns, symbol }));
}

fn definition(head: MessageHead, body: &[u8], each: &mut impl FnMut(&Event)) -> Result<(), SbeError> {
    macro_rules! define {
        ($message:ident, $tick:expr) => {{
            let message = $message::parse(head, body)?;
            let root = &message.root;
            let (mut depth, mut implied_depth) = (0, 0);
            for feed in message.feeds {
                let levels = u8::try_from(feed.depth).unwrap_or(0);
                match &feed.feed_type {
                    b"GBX" => depth = levels,
                    b"GBI" => implied_depth = levels,
                    _ => {}
                }
            }
            let mut name = Symbol::NONE;
            name.0.copy_from_slice(&root.symbol[..8]);
            name.0.iter_mut().filter(|byte| **byte == 0).for_each(|byte| *byte = b' ');
            each(&Event::Instrument(event::Instrument {
                depth,
                implied_depth,
                action: root.update_action,
                total: root.reports_total().unwrap_or(0),
                at_ns: root.last_update_time.get(),
                symbol: symbol(root.security_id.get()),
                tick: Price9($tick(root)),
                name,
                group: Symbol::of_field(&root.security_group),
            }));
            end(root.event_end, root.last_update_time.get(), each);
        }};
    }
    match head.template {
        FutureDefinition::ID => {
            define!(FutureDefinition, |root: &super::layout::FutureDefinitionRoot| root.min_tick.get())
        }
        OptionDefinition::ID => {
            define!(OptionDefinition, |root: &super::layout::OptionDefinitionRoot| root.min_tick().unwrap_or(0))
        }
        _ => define!(SpreadDefinition, |root: &super::layout::SpreadDefinitionRoot| root.min_tick().unwrap_or(0)),
    }
    Ok(())
}
