//! PITCH messages to events: one match on the type byte, then reads at fixed places.

use zerocopy::little_endian::{U16, U64};

use super::*;
use crate::codec::{Codec, MessageError};
use crate::event::{self, Event};
use crate::units::{Locate, OrderRef, Price, Side, Symbol};

/// The decoder of one unit. It stores the unit's last second, so each unit needs its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pitch {
    second_ns: u64,
}

impl Codec for Pitch {
    const NAME: &'static str = "pitch";
    const BOOK_KINDS: &'static [u8] = &[
        UnitClear::KIND,
        AddLong::KIND,
        AddShort::KIND,
        AddExpanded::KIND,
        Executed::KIND,
        ExecutedAtPrice::KIND,
        ReduceLong::KIND,
        ReduceShort::KIND,
        ModifyLong::KIND,
        ModifyShort::KIND,
        Delete::KIND,
    ];

    #[inline]
    fn kind(message: &[u8]) -> Option<u8> {
        message.get(1).copied()
    }

    #[inline]
    fn decode(&mut self, message: &[u8]) -> Result<Event, MessageError> {
        Ok(self.event(Message::parse(message)?))
    }
}

impl Pitch {
    #[inline]
    fn event(&mut self, message: Message<'_>) -> Event {
        match message {
            Message::Time(m) => self.next_second(m),
            Message::UnitClear(m) => Event::Clear(event::Clear { at_ns: self.at_ns(&m.head) }),
            Message::AddLong(m) => {
                self.add(&m.head, m.order, m.side, m.qty.get(), (Symbol::from_six(m.symbol), price4(m.price)))
            }
            Message::AddShort(m) => {
                self.add(&m.head, m.order, m.side, m.qty.get().into(), (Symbol::from_six(m.symbol), price2(m.price)))
            }
            Message::AddExpanded(m) => self.add(&m.head, m.order, m.side, m.qty.get(), (m.symbol, price4(m.price))),
            Message::Executed(m) => self.executed(m),
            Message::ExecutedAtPrice(m) => self.executed_at_price(m),
            Message::ReduceLong(m) => self.cancel(&m.head, m.order, m.qty.get()),
            Message::ReduceShort(m) => self.cancel(&m.head, m.order, m.qty.get().into()),
            Message::ModifyLong(m) => self.modify(&m.head, m.order, m.qty.get(), price4(m.price)),
            Message::ModifyShort(m) => self.modify(&m.head, m.order, m.qty.get().into(), price2(m.price)),
            Message::Delete(m) => self.delete(m),
            Message::TradeLong(m) => self.trade(
                &m.head,
                m.side,
                m.qty.get().into(),
                (Symbol::from_six(m.symbol), price4(m.price)),
                m.execution,
            ),
            Message::TradeShort(m) => self.trade(
                &m.head,
                m.side,
                m.qty.get().into(),
                (Symbol::from_six(m.symbol), price2(m.price)),
                m.execution,
            ),
            Message::TradeExpanded(m) => {
                self.trade(&m.head, m.side, m.qty.get().into(), (m.symbol, price4(m.price)), m.execution)
            }
            Message::TradeBreak(m) => {
                Event::TradeBreak(event::TradeBreak { at_ns: self.at_ns(&m.head), trade: m.execution.get() })
            }
            Message::TradingStatus(m) => self.status(m),
            Message::EndOfSession(m) => {
                Event::System(event::System { at_ns: self.at_ns(&m.head), code: event::System::END_OF_MESSAGES })
            }
            Message::AuctionUpdate(AuctionUpdate { head, .. })
            | Message::AuctionSummary(AuctionSummary { head, .. })
            | Message::RetailImprovement(RetailImprovement { head, .. }) => {
                Event::Other(event::Other { at_ns: self.at_ns(head), kind: head.kind })
            }
        }
    }

    #[inline(always)]
    fn executed(&self, m: &Executed) -> Event {
        Event::Execute(event::Execute {
            at_ns: self.at_ns(&m.head),
            locate: Locate::default(),
            printable: true,
            order: OrderRef(m.order.get()),
            qty: m.qty.get(),
            remaining: None,
            price: None,
            trade: m.execution.get(),
        })
    }

    #[inline(always)]
    fn executed_at_price(&self, m: &ExecutedAtPrice) -> Event {
        Event::Execute(event::Execute {
            at_ns: self.at_ns(&m.head),
            locate: Locate::default(),
            printable: true,
            order: OrderRef(m.order.get()),
            qty: m.qty.get(),
            remaining: Some(m.remaining.get()),
            price: Some(price4(m.price)),
            trade: m.execution.get(),
        })
    }

    #[inline(always)]
    fn delete(&self, m: &Delete) -> Event {
        Event::Delete(event::Delete {
            at_ns: self.at_ns(&m.head),
            locate: Locate::default(),
            order: OrderRef(m.order.get()),
        })
    }

    #[inline(always)]
    fn status(&self, m: &TradingStatus) -> Event {
        Event::Status(event::Status {
            at_ns: self.at_ns(&m.head),
            locate: Locate::default(),
            symbol: m.symbol,
            state: m.state,
            is_halted: is_halted(m.state),
            operational: false,
            follows_group: None,
        })
    }

    #[inline]
    fn next_second(&mut self, m: &Time) -> Event {
        self.second_ns = u64::from(m.head.time.get()) * 1_000_000_000;
        Event::Clock(event::Clock { at_ns: self.second_ns })
    }

    #[inline]
    fn at_ns(&self, head: &Head) -> u64 {
        self.second_ns + u64::from(head.time.get())
    }

    #[inline]
    fn add(&self, head: &Head, order: U64, side: u8, qty: u32, (symbol, price): (Symbol, Price)) -> Event {
        let (locate, order, side) = (Locate::default(), OrderRef(order.get()), Side::from_wire(side));
        Event::Add(event::Add { at_ns: self.at_ns(head), locate, order, side, qty, symbol, price })
    }

    #[inline]
    fn trade(&self, head: &Head, side: u8, qty: u64, (symbol, price): (Symbol, Price), execution: U64) -> Event {
        let (locate, side, trade) = (Locate::default(), Some(Side::from_wire(side)), execution.get());
        Event::Trade(event::Trade { at_ns: self.at_ns(head), locate, side, symbol, qty, price, trade })
    }

    #[inline]
    fn cancel(&self, head: &Head, order: U64, qty: u32) -> Event {
        let at_ns = self.at_ns(head);
        Event::Cancel(event::Cancel { at_ns, locate: Locate::default(), order: OrderRef(order.get()), qty })
    }

    #[inline]
    fn modify(&self, head: &Head, order: U64, qty: u32, price: Price) -> Event {
        Event::Modify(event::Modify { at_ns: self.at_ns(head), order: OrderRef(order.get()), qty, price })
    }
}

/// Four decimals in 64 bits without a sign. A value beyond `i64` is no real price; it saturates so
/// that it cannot turn negative.
#[inline]
fn price4(wire: U64) -> Price {
    Price(i64::try_from(wire.get()).unwrap_or(i64::MAX))
}

#[inline]
fn price2(wire: U16) -> Price {
    Price::from_cents(wire.get().into())
}

/// Halted, and suspended on this exchange. Where orders are queued (`A`), or an instrument is
/// quoted only (`Q`), they are for an auction.
const fn is_halted(state: u8) -> Option<bool> {
    match state {
        b'H' | b'S' => Some(true),
        b'A' | b'Q' | b'T' => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the specification, typed in a second time on purpose.
    const SPECIFIED: &[(u8, usize)] = &[
        (0x20, 6),
        (0x97, 6),
        (0x21, 34),
        (0x22, 26),
        (0x2f, 41),
        (0x23, 26),
        (0x24, 38),
        (0x25, 18),
        (0x26, 16),
        (0x27, 27),
        (0x28, 19),
        (0x29, 14),
        (0x2a, 41),
        (0x2b, 33),
        (0x30, 43),
        (0x2c, 14),
        (0x31, 18),
        (0x95, 47),
        (0x96, 27),
        (0x98, 15),
        (0x2d, 6),
    ];

    #[test]
    fn lengths_are_those_of_the_specification() {
        assert_eq!(Message::LENGTHS, SPECIFIED);
    }

    #[test]
    fn time_of_a_message_is_its_second_plus_its_offset() {
        let mut codec = Pitch::default();
        let time = Time { head: Head::new(Time::LEN, Time::KIND, 34_200) };
        codec.decode(Message::from(&time).as_bytes()).unwrap();
        let clear = UnitClear { head: Head::new(UnitClear::LEN, UnitClear::KIND, 5) };
        let event = codec.decode(Message::from(&clear).as_bytes());
        assert_eq!(event, Ok(Event::Clear(event::Clear { at_ns: 34_200_000_000_005 })));
    }

    #[test]
    fn short_and_long_add_are_the_same_event() {
        let short = AddShort {
            head: Head::new(AddShort::LEN, AddShort::KIND, 1),
            order: 2.into(),
            side: b'S',
            qty: 300.into(),
            symbol: *b"ZVZZT ",
            price: 1_025.into(),
            flags: 1,
        };
        let long = AddLong {
            head: Head::new(AddLong::LEN, AddLong::KIND, 1),
            order: 2.into(),
            side: b'S',
            qty: 300.into(),
            symbol: *b"ZVZZT ",
            price: 102_500.into(),
            flags: 1,
        };
        let mut codec = Pitch::default();
        let from_short = codec.decode(Message::from(&short).as_bytes());
        assert_eq!(from_short, codec.decode(Message::from(&long).as_bytes()));
    }

    #[test]
    fn fields_that_a_venue_appends_are_left_out() {
        let delete = Delete { head: Head::new(Delete::LEN + 1, Delete::KIND, 1), order: 2.into() };
        let bytes = [Message::from(&delete).as_bytes(), &[7]].concat();
        assert_eq!(Message::parse(&bytes), Ok(Message::Delete(&delete)));
        assert!(Message::parse(&bytes[..Delete::LEN - 1]).is_err());
    }

    #[test]
    fn price_past_the_range_saturates() {
        assert_eq!(price4(u64::MAX.into()), Price(i64::MAX));
    }

    #[test]
    fn halted_and_suspended_are_halts_and_states_before_an_auction_are_not() {
        for (state, is_halted) in [
            (b'H', Some(true)),
            (b'S', Some(true)),
            (b'A', Some(false)),
            (b'Q', Some(false)),
            (b'T', Some(false)),
            (b'?', None),
        ] {
            let (head, symbol) = (Head::new(TradingStatus::LEN, TradingStatus::KIND, 1), Symbol::NONE);
            let status = TradingStatus { head, symbol, state, reg_sho: b'0', reserved: [0; 2] };
            let Ok(Event::Status(event)) = Pitch::default().decode(Message::from(&status).as_bytes()) else { panic!() };
            assert_eq!((event.is_halted, event.operational), (is_halted, false), "{state}");
        }
    }
}
