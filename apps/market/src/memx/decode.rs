//! Messages of MEMOIR Depth to events: one match on the template.
//!
//! The decoder keeps the names of a channel's instruments. A message that needs the name of one
//! that was not defined is refused and counted: the directory is sent at the start of the day and
//! is in each snapshot.

use super::layout::{
    BrokenTrade, ClearBook, CorrectedTrade, InstrumentDirectory, OrderAdded, OrderDeleted, OrderExecuted, OrderReduced,
    SCHEMA_ID, SessionStatus, ShortSaleRestriction, SnapshotComplete, Trade, TradingStatus, split_head,
};
use crate::codec::{Decoder, MessageCounts, MessageError};
use crate::event::{self, Event};
use crate::sbe::{MessageHead, SbeError, text_len};
use crate::units::{Locate, OrderRef, Price, Side, Symbol};

/// The decoder of one channel, or of several with the same directory. 512 KiB of names.
#[derive(Clone, Debug)]
pub struct MemoirDepth {
    /// By number; blank where it was not defined.
    symbols: Box<[Symbol]>,
}

impl Default for MemoirDepth {
    fn default() -> Self {
        Self { symbols: vec![Symbol::NONE; 1 << 16].into() }
    }
}

/// The name of a template in reports; `None` for one that is not decoded.
pub const fn name(template: u8) -> Option<&'static str> {
    Some(match template as u16 {
        InstrumentDirectory::ID => InstrumentDirectory::NAME,
        ShortSaleRestriction::ID => ShortSaleRestriction::NAME,
        TradingStatus::ID => TradingStatus::NAME,
        SessionStatus::ID => SessionStatus::NAME,
        OrderAdded::ID => OrderAdded::NAME,
        OrderDeleted::ID => OrderDeleted::NAME,
        OrderReduced::ID => OrderReduced::NAME,
        OrderExecuted::ID => OrderExecuted::NAME,
        Trade::ID => Trade::NAME,
        BrokenTrade::ID => BrokenTrade::NAME,
        CorrectedTrade::ID => CorrectedTrade::NAME,
        ClearBook::ID => ClearBook::NAME,
        SnapshotComplete::ID => SnapshotComplete::NAME,
        _ => return None,
    })
}

impl Decoder for MemoirDepth {
    const NAME: &'static str = "memoir_depth";
    const BOOK_KINDS: &'static [u8] = &[
        InstrumentDirectory::ID as u8,
        OrderAdded::ID as u8,
        OrderDeleted::ID as u8,
        OrderReduced::ID as u8,
        OrderExecuted::ID as u8,
        ClearBook::ID as u8,
    ];

    #[inline]
    fn kind(message: &[u8]) -> Option<u8> {
        split_head(message).ok().map(|(head, _)| head.template as u8)
    }

    #[inline]
    fn decode_each(
        &mut self,
        message: &[u8],
        counts: &mut MessageCounts,
        each: &mut impl FnMut(&Event),
    ) -> Result<(), MessageError> {
        let (head, body) = split_head(message).map_err(|_| MessageError::Empty)?;
        // The header has one byte for it.
        let kind = head.template as u8;
        if head.schema != SCHEMA_ID {
            return Err(MessageError::Unknown { kind });
        }
        let decoded = match head.template {
            OrderAdded::ID => self.added(head, body, each),
            OrderDeleted::ID => deleted(head, body, each),
            OrderReduced::ID => reduced(head, body, each),
            OrderExecuted::ID => executed(head, body, each),
            _ => self.other(head, body, each),
        };
        decoded.map_err(|refusal| match refusal {
            Refusal::Undefined => MessageError::Undefined { kind },
            Refusal::Layout(error) => MessageError::of_layout(error, kind),
        })?;
        counts.by_type[usize::from(kind)] += 1;
        Ok(())
    }
}

/// Why a message gave no event.
enum Refusal {
    Undefined,
    Layout(SbeError),
}

impl From<SbeError> for Refusal {
    fn from(error: SbeError) -> Self {
        Self::Layout(error)
    }
}

impl MemoirDepth {
    #[inline(always)]
    fn added(&self, head: MessageHead, body: &[u8], each: &mut impl FnMut(&Event)) -> Result<(), Refusal> {
        let m = OrderAdded::parse(head, body)?.root;
        each(&Event::Add(event::Add {
            at_ns: m.timestamp.get(),
            locate: Locate(m.security_id.get()),
            order: OrderRef(m.order_id.get()),
            side: Side::from_wire(m.side),
            qty: m.quantity.get(),
            symbol: self.symbol(m.security_id.get())?,
            price: price(m.price.get()),
        }));
        Ok(())
    }

    /// Everything that is rare.
    #[cold]
    fn other(&mut self, head: MessageHead, body: &[u8], each: &mut impl FnMut(&Event)) -> Result<(), Refusal> {
        match head.template {
            InstrumentDirectory::ID => {
                let directory = self.define(&InstrumentDirectory::parse(head, body)?);
                each(&Event::Directory(directory));
            }
            Trade::ID => {
                let m = Trade::parse(head, body)?.root;
                let (trade, qty) = (m.trade_id.get(), m.quantity.get());
                each(&self.print(m.timestamp.get(), m.security_id.get(), trade, qty, m.price.get())?);
            }
            CorrectedTrade::ID => {
                let m = CorrectedTrade::parse(head, body)?.root;
                let (at_ns, trade) = (m.timestamp.get(), m.trade_id.get());
                let now = self.print(at_ns, m.security_id.get(), trade, m.quantity.get(), m.price.get())?;
                each(&Event::TradeBreak(event::TradeBreak { at_ns, trade }));
                each(&now);
            }
            BrokenTrade::ID => {
                let m = BrokenTrade::parse(head, body)?.root;
                each(&Event::TradeBreak(event::TradeBreak { at_ns: m.timestamp.get(), trade: m.trade_id.get() }));
            }
            ClearBook::ID => {
                let m = ClearBook::parse(head, body)?.root;
                let symbol = self.symbol(m.security_id.get())?;
                each(&Event::BookReset(event::BookReset { rpt_seq: 0, at_ns: m.timestamp.get(), symbol }));
            }
            TradingStatus::ID => {
                let m = TradingStatus::parse(head, body)?.root;
                each(&Event::Status(event::Status {
                    at_ns: m.timestamp.get(),
                    locate: Locate(m.security_id.get()),
                    symbol: self.symbol(m.security_id.get())?,
                    state: m.status,
                    is_halted: is_halted(m.status),
                    // The reason of a state says who gave it, and one state ends another's whoever
                    // gave that.
                    operational: false,
                    follows_group: None,
                }));
            }
            SessionStatus::ID => {
                let m = SessionStatus::parse(head, body)?.root;
                each(&Event::System(event::System { code: m.session, at_ns: m.timestamp.get() }));
            }
            ShortSaleRestriction::ID => {
                let at_ns = ShortSaleRestriction::parse(head, body)?.root.timestamp.get();
                each(&Event::Other(event::Other { kind: ShortSaleRestriction::ID as u8, at_ns }));
            }
            SnapshotComplete::ID => {
                let at_ns = SnapshotComplete::parse(head, body)?.root.timestamp.get();
                each(&Event::Other(event::Other { kind: SnapshotComplete::ID as u8, at_ns }));
            }
            template => return Err(SbeError::UnknownTemplate(template).into()),
        }
        Ok(())
    }

    fn define(&mut self, directory: &InstrumentDirectory) -> event::Directory {
        let m = &directory.root;
        let security_id = m.security_id.get();
        let symbol = symbol(&m.root, &m.suffix, security_id);
        self.symbols[usize::from(security_id)] = symbol;
        event::Directory { locate: Locate(security_id), round_lot: m.round_lot.get(), at_ns: m.timestamp.get(), symbol }
    }

    fn print(&self, at_ns: u64, security_id: u16, trade: u64, qty: u32, mantissa: i64) -> Result<Event, Refusal> {
        Ok(Event::Trade(event::Trade {
            at_ns,
            locate: Locate(security_id),
            side: None,
            symbol: self.symbol(security_id)?,
            qty: qty.into(),
            price: price(mantissa),
            trade,
        }))
    }

    #[inline(always)]
    fn symbol(&self, security_id: u16) -> Result<Symbol, Refusal> {
        match self.symbols[usize::from(security_id)] {
            Symbol::NONE => Err(Refusal::Undefined),
            symbol => Ok(symbol),
        }
    }
}

/// Halted, and paused by a band of prices.
const fn is_halted(status: u8) -> Option<bool> {
    match status {
        b'H' | b'P' => Some(true),
        b'Q' | b'T' => Some(false),
        _ => None,
    }
}

#[inline(always)]
fn deleted(head: MessageHead, body: &[u8], each: &mut impl FnMut(&Event)) -> Result<(), Refusal> {
    let m = OrderDeleted::parse(head, body)?.root;
    let (at_ns, locate) = (m.timestamp.get(), Locate(m.security_id.get()));
    each(&Event::Delete(event::Delete { at_ns, locate, order: OrderRef(m.order_id.get()) }));
    Ok(())
}

#[inline(always)]
fn reduced(head: MessageHead, body: &[u8], each: &mut impl FnMut(&Event)) -> Result<(), Refusal> {
    let m = OrderReduced::parse(head, body)?.root;
    let (at_ns, locate) = (m.timestamp.get(), Locate(m.security_id.get()));
    each(&Event::Cancel(event::Cancel { at_ns, locate, order: OrderRef(m.order_id.get()), qty: m.quantity.get() }));
    Ok(())
}

#[inline(always)]
fn executed(head: MessageHead, body: &[u8], each: &mut impl FnMut(&Event)) -> Result<(), Refusal> {
    let m = OrderExecuted::parse(head, body)?.root;
    each(&Event::Execute(event::Execute {
        at_ns: m.timestamp.get(),
        locate: Locate(m.security_id.get()),
        printable: true,
        order: OrderRef(m.order_id.get()),
        qty: m.quantity.get(),
        remaining: None,
        price: Some(price(m.price.get())),
        trade: m.trade_id.get(),
    }));
    Ok(())
}

/// Six decimals to four.
#[inline(always)]
fn price(mantissa: i64) -> Price {
    Price(mantissa.div_euclid(100))
}

/// Root and suffix with a space between them, as CMS writes names (`BRK B`); the number where that
/// has more than eight bytes, none, or is no text.
fn symbol(root: &[u8], suffix: &[u8], security_id: u16) -> Symbol {
    let text = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..text_len(bytes)]).into_owned();
    let name = format!("{} {}", text(root), text(suffix));
    let name = name.trim_end();
    let known = Symbol::new(name)
        .filter(|_| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' '));
    known.unwrap_or(Symbol::from_number(security_id.into()))
}
