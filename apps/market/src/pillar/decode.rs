//! Messages of the Integrated Feed to events.
//!
//! The decoder keeps the definitions of a channel's instruments, and the second of each matching
//! engine: a message says only the nanoseconds behind it. A message about an instrument that was
//! not defined is refused and counted, because its price would be a guess.

use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::*;
use crate::codec::{Codec, MessageError};
use crate::event::{self, Event};
use crate::units::{Locate, OrderRef, Price, Price9, Side, Symbol};

/// The decoder of one channel, or of several with the same definitions. 1.3 MB of address space,
/// of which what is used is touched.
#[derive(Clone, Debug)]
pub struct Pillar {
    /// The name of each instrument that was defined.
    symbols: Vec<u64>,
    /// What its messages are read by: see [`Definition`].
    definitions: Vec<u16>,
    /// The second of each matching engine, ns since 1970.
    second_ns: [u64; 256],
}

/// Instruments have smaller indices than this. The highest of 2025 are some 83,000.
const SYMBOL_INDEX_END: usize = 1 << 17;
/// More decimals than this no price has.
const DECIMALS_MAX: u8 = 9;

/// What the definition of an instrument says of its messages.
#[derive(Clone, Copy)]
struct Definition {
    symbol: Symbol,
    decimals: u8,
    system_id: u8,
}

impl Default for Pillar {
    fn default() -> Self {
        Self { symbols: vec![0; SYMBOL_INDEX_END], definitions: vec![0; SYMBOL_INDEX_END], second_ns: [0; 256] }
    }
}

impl Codec for Pillar {
    const NAME: &'static str = "pillar";
    const BOOK_KINDS: &'static [u8] = &[
        SequenceNumberReset::KIND,
        SymbolIndexMapping::KIND,
        SymbolClear::KIND,
        AddOrder::KIND,
        ModifyOrder::KIND,
        DeleteOrder::KIND,
        OrderExecution::KIND,
        ReplaceOrder::KIND,
    ];

    #[inline]
    fn kind(message: &[u8]) -> Option<u8> {
        message.get(2).copied()
    }

    #[inline]
    fn decode(&mut self, message: &[u8]) -> Result<Event, MessageError> {
        let (Some(&kind), Some(&high)) = (message.get(2), message.get(3)) else { return Err(MessageError::Empty) };
        if high != 0 {
            return Err(MessageError::Unknown { kind });
        }
        match kind {
            AddOrder::KIND => self.add(view(message, kind)?),
            ModifyOrder::KIND => self.modify(view(message, kind)?),
            DeleteOrder::KIND => self.delete(view(message, kind)?),
            OrderExecution::KIND => self.execution(view(message, kind)?),
            ReplaceOrder::KIND => self.replace(view(message, kind)?),
            NonDisplayedTrade::KIND => self.trade(view(message, kind)?),
            CrossTrade::KIND => self.cross(view(message, kind)?),
            TradeCancel::KIND => self.trade_cancel(view(message, kind)?),
            SourceTimeReference::KIND => Ok(self.next_second(view(message, kind)?)),
            SymbolIndexMapping::KIND => Ok(self.define(view(message, kind)?)),
            SecurityStatus::KIND => self.status(view(message, kind)?),
            SymbolClear::KIND => self.symbol_clear(view(message, kind)?),
            SequenceNumberReset::KIND => {
                let reset: &SequenceNumberReset = view(message, kind)?;
                Ok(Event::Clear(event::Clear { at_ns: at_ns(reset.source_time.get(), reset.source_time_ns.get()) }))
            }
            MESSAGE_UNAVAILABLE
            | REFRESH_HEADER
            | IMBALANCE
            | ADD_ORDER_REFRESH
            | CROSS_CORRECTION
            | RETAIL_PRICE_IMPROVEMENT
            | STOCK_SUMMARY => Ok(Event::Other(event::Other { at_ns: 0, kind })),
            _ => Err(MessageError::Unknown { kind }),
        }
    }
}

impl Pillar {
    #[inline(always)]
    fn add(&self, m: &AddOrder) -> Result<Event, MessageError> {
        let definition = self.definition(m.of.symbol_index.get(), AddOrder::KIND)?;
        Ok(Event::Add(event::Add {
            at_ns: self.at_ns(&m.of, definition),
            locate: locate(&m.of),
            order: OrderRef(m.order_id.get()),
            side: Side::from_wire(m.side),
            qty: m.volume.get(),
            symbol: definition.symbol,
            price: definition.price(m.price.get()),
        }))
    }

    #[inline(always)]
    fn modify(&self, m: &ModifyOrder) -> Result<Event, MessageError> {
        let definition = self.definition(m.of.symbol_index.get(), ModifyOrder::KIND)?;
        Ok(Event::Modify(event::Modify {
            at_ns: self.at_ns(&m.of, definition),
            order: OrderRef(m.order_id.get()),
            qty: m.volume.get(),
            price: definition.price(m.price.get()),
        }))
    }

    #[inline(always)]
    fn delete(&self, m: &DeleteOrder) -> Result<Event, MessageError> {
        let definition = self.definition(m.of.symbol_index.get(), DeleteOrder::KIND)?;
        Ok(Event::Delete(event::Delete {
            at_ns: self.at_ns(&m.of, definition),
            locate: locate(&m.of),
            order: OrderRef(m.order_id.get()),
        }))
    }

    #[inline(always)]
    fn execution(&self, m: &OrderExecution) -> Result<Event, MessageError> {
        let definition = self.definition(m.of.symbol_index.get(), OrderExecution::KIND)?;
        Ok(Event::Execute(event::Execute {
            at_ns: self.at_ns(&m.of, definition),
            locate: locate(&m.of),
            printable: m.printable_flag != 0,
            order: OrderRef(m.order_id.get()),
            qty: m.volume.get(),
            remaining: None,
            price: Some(definition.price(m.price.get())),
            trade: m.trade_id.get().into(),
        }))
    }

    #[inline(always)]
    fn replace(&self, m: &ReplaceOrder) -> Result<Event, MessageError> {
        let definition = self.definition(m.of.symbol_index.get(), ReplaceOrder::KIND)?;
        Ok(Event::Replace(event::Replace {
            at_ns: self.at_ns(&m.of, definition),
            locate: locate(&m.of),
            old: OrderRef(m.order_id.get()),
            new: OrderRef(m.new_order_id.get()),
            qty: m.volume.get(),
            price: definition.price(m.price.get()),
        }))
    }

    fn trade(&self, m: &NonDisplayedTrade) -> Result<Event, MessageError> {
        self.print(&m.of, NonDisplayedTrade::KIND, m.trade_id.get(), m.price.get(), m.volume.get())
    }

    fn cross(&self, m: &CrossTrade) -> Result<Event, MessageError> {
        self.print(&m.of, CrossTrade::KIND, m.cross_id.get(), m.price.get(), m.volume.get())
    }

    fn print(&self, of: &SymbolHead, kind: u8, trade: u32, price: u32, volume: u32) -> Result<Event, MessageError> {
        let definition = self.definition(of.symbol_index.get(), kind)?;
        Ok(Event::Trade(event::Trade {
            at_ns: self.at_ns(of, definition),
            locate: locate(of),
            side: None,
            symbol: definition.symbol,
            qty: volume.into(),
            price: definition.price(price),
            trade: trade.into(),
        }))
    }

    fn trade_cancel(&self, m: &TradeCancel) -> Result<Event, MessageError> {
        let definition = self.definition(m.of.symbol_index.get(), TradeCancel::KIND)?;
        Ok(Event::TradeBreak(event::TradeBreak {
            at_ns: self.at_ns(&m.of, definition),
            trade: m.trade_id.get().into(),
        }))
    }

    fn status(&self, m: &SecurityStatus) -> Result<Event, MessageError> {
        let definition = self.definition(m.symbol_index.get(), SecurityStatus::KIND)?;
        Ok(Event::Status(event::Status {
            at_ns: at_ns(m.source_time.get(), m.source_time_ns.get()),
            locate: Locate::default(),
            symbol: definition.symbol,
            state: m.security_status,
            is_halted: is_halted(m),
            operational: false,
            follows_group: None,
        }))
    }

    fn symbol_clear(&self, m: &SymbolClear) -> Result<Event, MessageError> {
        let definition = self.definition(m.symbol_index.get(), SymbolClear::KIND)?;
        Ok(Event::BookReset(event::BookReset {
            rpt_seq: 0,
            at_ns: at_ns(m.source_time.get(), m.source_time_ns.get()),
            symbol: definition.symbol,
        }))
    }

    /// Only the low byte of the engine's number is used: instruments name it by one byte.
    fn next_second(&mut self, m: &SourceTimeReference) -> Event {
        let second_ns = at_ns(m.source_time.get(), 0);
        self.second_ns[usize::from(m.id.get() as u8)] = second_ns;
        Event::Clock(event::Clock { at_ns: second_ns })
    }

    /// A definition that cannot be meant (an index beyond the table, a price without sense) defines
    /// nothing, so that the messages it is about stay refused.
    fn define(&mut self, m: &SymbolIndexMapping) -> Event {
        let index = m.symbol_index.get() as usize;
        if index >= SYMBOL_INDEX_END || m.price_scale_code > DECIMALS_MAX {
            return Event::Other(event::Other { at_ns: 0, kind: SymbolIndexMapping::KIND });
        }
        let symbol = symbol(&m.symbol, m.symbol_index.get());
        self.symbols[index] = u64::from_ne_bytes(symbol.0);
        self.definitions[index] = u16::from_be_bytes([m.price_scale_code + 1, m.system_id]);
        let (locate, round_lot) = (Locate(u16::try_from(index).unwrap_or(0)), m.lot_size.get().into());
        Event::Directory(event::Directory { locate, round_lot, at_ns: 0, symbol })
    }

    #[inline(always)]
    fn definition(&self, symbol_index: u32, kind: u8) -> Result<Definition, MessageError> {
        let index = symbol_index as usize;
        let [decimals, system_id] = self.definitions.get(index).copied().unwrap_or(0).to_be_bytes();
        if decimals == 0 {
            return Err(MessageError::Undefined { kind });
        }
        Ok(Definition { symbol: Symbol(self.symbols[index].to_ne_bytes()), decimals: decimals - 1, system_id })
    }

    #[inline(always)]
    fn at_ns(&self, of: &SymbolHead, definition: Definition) -> u64 {
        self.second_ns[usize::from(definition.system_id)] + u64::from(of.source_time_ns.get())
    }
}

impl Definition {
    /// The price with four decimals. Limits have no more (rule 612 of Regulation NMS); of a trade
    /// that has, the rest is cut off.
    #[inline(always)]
    fn price(self, wire: u32) -> Price {
        const UNIT: [i64; DECIMALS_MAX as usize + 1] =
            [1_000_000_000, 100_000_000, 10_000_000, 1_000_000, 100_000, 10_000, 1_000, 100, 10, 1];
        Price9(i64::from(wire) * UNIT[usize::from(self.decimals)]).rounded(Side::Buy)
    }
}

/// The fields of a message, at the front of its bytes.
#[inline(always)]
fn view<M: FromBytes + Immutable + KnownLayout + Unaligned>(message: &[u8], kind: u8) -> Result<&M, MessageError> {
    match M::ref_from_prefix(message) {
        Ok((view, _)) => Ok(view),
        Err(_) => Err(MessageError::Length { kind, expected: size_of::<M>(), found: message.len() }),
    }
}

/// The index as a shortcut to the book, where it fits; 0 is none.
#[inline(always)]
fn locate(of: &SymbolHead) -> Locate {
    Locate(u16::try_from(of.symbol_index.get()).unwrap_or(0))
}

fn at_ns(seconds: u32, ns: u32) -> u64 {
    u64::from(seconds) * 1_000_000_000 + u64::from(ns)
}

/// The name up to its first zero; the number where the name has more than eight bytes or is no
/// text.
fn symbol(name: &[u8; 11], index: u32) -> Symbol {
    let len = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    match str::from_utf8(&name[..len]).ok().filter(|name| !name.is_empty() && name.is_ascii()).and_then(Symbol::new) {
        Some(symbol) => symbol,
        None => Symbol::from_number(index.into()),
    }
}

/// The condition of a security that is neither delayed nor halted; a blank one is that of tape A
/// in versions of before.
const NOT_HALTED: [u8; 2] = *b"~ ";

/// A delayed opening (3), a trading halt (4), no more trade today (6) and the end of the day (X)
/// are halts; 5 resumes. In a session (P, E, O, L) the condition says whether the security is
/// halted. Other states, such as a short sale restriction, say nothing of it.
fn is_halted(m: &SecurityStatus) -> Option<bool> {
    match m.security_status {
        b'3' | b'4' | b'6' | b'X' => Some(true),
        b'5' => Some(false),
        b'P' | b'E' | b'O' | b'L' => Some(!NOT_HALTED.contains(&m.halt_condition)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;
    use zerocopy::little_endian::{U16, U32, U64};

    use super::*;

    const DEFINITION: SymbolIndexMapping = SymbolIndexMapping {
        head: Head::new(SymbolIndexMapping::LEN, SymbolIndexMapping::KIND),
        symbol_index: U32::new(82_014),
        symbol: *b"AAAC\0\0\0\0\0\0\0",
        reserved_1: 0,
        market_id: U16::new(1),
        system_id: 10,
        exchange_code: b'P',
        price_scale_code: 6,
        security_type: b'E',
        lot_size: U16::new(100),
        prev_close_price: U32::new(0),
        prev_close_volume: U32::new(0),
        price_resolution: 0,
        round_lot: b'Y',
        mpv: U16::new(1),
        unit_of_trade: U16::new(1),
        reserved_2: U16::new(0),
    };

    const ADD: AddOrder = AddOrder {
        head: Head::new(AddOrder::LEN, AddOrder::KIND),
        of: SymbolHead { source_time_ns: U32::new(5), symbol_index: U32::new(82_014), symbol_seq_num: U32::new(0) },
        order_id: U64::new(7),
        price: U32::new(176_540_000),
        volume: U32::new(300),
        side: b'S',
        firm_id: *b"     ",
        reserved_1: 0,
    };

    fn second(id: u32, source_time: u32) -> SourceTimeReference {
        let head = Head::new(SourceTimeReference::LEN, SourceTimeReference::KIND);
        SourceTimeReference { head, id: id.into(), symbol_seq_num: 0.into(), source_time: source_time.into() }
    }

    #[test]
    fn order_has_name_and_decimals_of_its_definition_and_the_second_of_its_engine() {
        let mut codec = Pillar::default();
        codec.decode(DEFINITION.as_bytes()).unwrap();
        codec.decode(second(10, 34_200).as_bytes()).unwrap();
        codec.decode(second(11, 40_000).as_bytes()).unwrap();
        let Ok(Event::Add(add)) = codec.decode(ADD.as_bytes()) else { panic!("no order") };
        assert_eq!((add.symbol.as_str(), add.price, add.qty), ("AAAC", Price(1_765_400), 300));
        assert_eq!((add.side, add.at_ns), (Side::Sell, 34_200_000_000_005));
    }

    #[test]
    fn order_of_an_instrument_that_was_not_defined_is_refused_and_counted() {
        let (mut codec, mut counts) = (Pillar::default(), crate::MessageCounts::new());
        assert_eq!(codec.decode_counted(ADD.as_bytes(), &mut counts), None);
        assert_eq!((counts.undefined, counts.total()), (1, 1));
    }

    #[test]
    fn definition_with_an_index_or_decimals_that_cannot_be_meant_defines_nothing() {
        let mut codec = Pillar::default();
        for wrong in [
            SymbolIndexMapping { symbol_index: u32::MAX.into(), ..DEFINITION },
            SymbolIndexMapping { price_scale_code: 10, ..DEFINITION },
        ] {
            assert!(matches!(codec.decode(wrong.as_bytes()), Ok(Event::Other(_))));
            assert_eq!(codec.decode(ADD.as_bytes()), Err(MessageError::Undefined { kind: AddOrder::KIND }));
        }
    }

    #[test]
    fn fields_that_a_newer_version_added_at_the_end_are_not_read() {
        let mut codec = Pillar::default();
        codec.decode(DEFINITION.as_bytes()).unwrap();
        let longer = [ADD.as_bytes(), &[1, 2, 3]].concat();
        assert_eq!(codec.decode(&longer), codec.decode(ADD.as_bytes()));
        let error = MessageError::Length { kind: AddOrder::KIND, expected: AddOrder::LEN, found: AddOrder::LEN - 1 };
        assert_eq!(codec.decode(&ADD.as_bytes()[..AddOrder::LEN - 1]), Err(error));
    }

    #[test]
    fn type_beyond_one_byte_is_not_taken_for_its_low_byte() {
        let mut codec = Pillar::default();
        let other = AddOrder { head: Head { len: ADD.head.len, kind: 0x0164.into() }, ..ADD };
        assert_eq!(codec.decode(other.as_bytes()), Err(MessageError::Unknown { kind: AddOrder::KIND }));
    }

    #[test]
    fn name_longer_than_a_symbol_is_the_number() {
        assert_eq!(symbol(b"ABRpCpDpE\0\0", 9).number(), Some(9));
        assert_eq!(symbol(b"BRK.A\0\0\0\0\0\0", 9).as_str(), "BRK.A");
        assert_eq!(symbol(b"\xff\0\0\0\0\0\0\0\0\0\0", 9).number(), Some(9));
    }

    #[test]
    fn security_with_a_halt_condition_is_halted_in_each_session() {
        let mut codec = Pillar::default();
        codec.decode(DEFINITION.as_bytes()).unwrap();
        for (states, halt_condition, is_halted) in [
            (&b"346X"[..], b'~', Some(true)),
            (b"5", b'P', Some(false)),
            (b"PEOL", b'~', Some(false)),
            (b"PEOL", b' ', Some(false)),
            (b"PEOL", b'M', Some(true)),
            (b"ACDIGRT?", b'~', None),
        ] {
            for &security_status in states {
                let status = SecurityStatus {
                    head: Head::new(SecurityStatus::LEN, SecurityStatus::KIND),
                    source_time: 0.into(),
                    source_time_ns: 0.into(),
                    symbol_index: DEFINITION.symbol_index,
                    symbol_seq_num: 0.into(),
                    security_status,
                    halt_condition,
                };
                let Ok(Event::Status(event)) = codec.decode(status.as_bytes()) else { panic!() };
                assert_eq!(
                    event.is_halted,
                    is_halted,
                    "{} {}",
                    char::from(security_status),
                    char::from(halt_condition)
                );
            }
        }
    }
}
