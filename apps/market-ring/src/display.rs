//! Records and what a reader is told, as lines for people.

use core::fmt;

use market::{Price, Price9, Symbol};

use crate::fields::{Fields, HAS_PRICE, NINE_DECIMALS, name};
use crate::reader::Read;
use crate::record::{Flags, Record};

impl fmt::Display for Read {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record { seq, record } => write!(f, "{seq}: {record}"),
            Self::Joined { before } => write!(f, "{before} records came before: books lack their orders"),
            Self::Overrun { first, last } => write!(f, "records {first} to {last} are missing: books are void"),
            Self::Unknown { seq } => write!(f, "{seq}: an event of a newer publisher"),
            Self::Empty => f.write_str("nothing new"),
            Self::Closed => f.write_str("the session is over"),
        }
    }
}

impl fmt::Display for Record {
    /// Channel, event, what the event has of symbol, side, quantity, price and order, and the
    /// flags.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = Fields::of(&self.event);
        write!(f, "channel {} {}", self.channel, name(of.kind))?;
        let symbol = Symbol(of.symbol.to_le_bytes());
        if of.symbol != 0 && symbol != Symbol::NONE {
            write!(f, " {symbol}")?;
        }
        if of.side.is_ascii_graphic() {
            write!(f, " {}", char::from(of.side))?;
        }
        if of.qty > 0 || of.price != 0 {
            write!(f, " {}", of.qty)?;
        }
        match of.bits {
            bits if bits & NINE_DECIMALS > 0 => write!(f, " at {}", Price9(of.price))?,
            bits if bits & HAS_PRICE > 0 || of.price != 0 => write!(f, " at {}", Price(of.price))?,
            _ => (),
        }
        if of.ask_qty > 0 {
            write!(f, ", {} at {}", of.ask_qty, Price(of.ask_px))?;
        }
        if of.order > 0 {
            write!(f, " order {}", of.order)?;
        }
        let flags = [(Flags::SNAPSHOT, "snapshot"), (Flags::GAP_BEFORE, "gap before"), (Flags::STALE, "stale")];
        flags.into_iter().filter(|(flag, _)| self.flags.contains(*flag)).try_for_each(|(_, word)| write!(f, ", {word}"))
    }
}

#[cfg(test)]
mod tests {
    use market::event::{Add, Delete, Event};
    use market::{Locate, OrderRef, Side};

    use super::*;

    #[test]
    fn record_is_a_line_for_people() {
        let order = OrderRef(44);
        let add = Event::Add(Add {
            locate: Locate(1),
            side: Side::Buy,
            qty: 100,
            at_ns: 1,
            order,
            price: Price(159_900),
            symbol: Symbol::new("AAPL").unwrap(),
        });
        let record = Record { channel: 2, ..Record::new(1, add) };
        assert_eq!(Read::Record { seq: 7, record }.to_string(), "7: channel 2 Add AAPL B 100 at 15.9900 order 44");
        let delete = Event::Delete(Delete { locate: Locate(1), at_ns: 1, order });
        let flags = Flags::END_OF_EVENT.and(Flags::STALE);
        let record = Record { flags, ..Record::new(1, delete) };
        assert_eq!(record.to_string(), "channel 0 Delete order 44, stale");
    }
}
