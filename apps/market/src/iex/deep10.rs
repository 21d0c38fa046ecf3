//! DEEP 1.0: the total at each price, trades.

use zerocopy::little_endian::{I64, U32};

use super::messages::*;
use crate::codec::{message_set, stateless_codec};
use crate::event::{self, Event};
use crate::units::{Price, Side, Symbol};

message_set! {
    kind at 0, length least;
    SystemEvent SecurityDirectory TradingStatus OperationalHalt ShortSaleTest RetailLiquidity SecurityEvent
    PriceLevelBuy PriceLevelSell Trade TradeBreak OfficialPrice AuctionInfo
}

stateless_codec! {
    /// The decoder. It has no state: the messages carry their time and their instrument.
    Deep10, "deep10", b"85", false
}

#[inline]
fn event(message: Message<'_>) -> Event {
    match message {
        Message::PriceLevelBuy(m) => level(&m.head, m.symbol, Side::Buy, (m.qty, m.price)),
        Message::PriceLevelSell(m) => level(&m.head, m.symbol, Side::Sell, (m.qty, m.price)),
        Message::Trade(m) => trade(m),
        Message::TradeBreak(m) => trade_break(m),
        Message::SystemEvent(m) => system_event(m),
        Message::SecurityDirectory(m) => directory(m),
        Message::TradingStatus(m) => status(&m.head, m.symbol, false),
        Message::OperationalHalt(m) => status(&m.head, m.symbol, true),
        Message::ShortSaleTest(ShortSaleTest { head, .. })
        | Message::RetailLiquidity(RetailLiquidity { head, .. })
        | Message::SecurityEvent(SecurityEvent { head, .. })
        | Message::OfficialPrice(OfficialPrice { head, .. })
        | Message::AuctionInfo(AuctionInfo { head, .. }) => other(head),
    }
}

#[inline]
fn level(head: &Head, symbol: Symbol, side: Side, (qty, price): (U32, I64)) -> Event {
    Event::PriceLevel(event::PriceLevel {
        at_ns: head.at_ns(),
        symbol,
        side,
        qty: qty.get(),
        price: Price(price.get()),
        complete: head.detail & 1 != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{Codec, MessageError};

    /// From the specification, typed in a second time on purpose.
    const SPECIFIED: &[(u8, usize)] = &[
        (b'S', 10),
        (b'D', 31),
        (b'H', 22),
        (b'O', 18),
        (b'P', 19),
        (b'I', 18),
        (b'E', 18),
        (b'8', 30),
        (b'5', 30),
        (b'T', 38),
        (b'B', 38),
        (b'X', 26),
        (b'A', 80),
    ];

    #[test]
    fn lengths_are_those_of_the_specification() {
        assert_eq!(Message::LENGTHS, SPECIFIED);
    }

    #[test]
    fn quote_update_belongs_to_tops_only() {
        assert_eq!(Deep10.decode(&[b'Q'; 42]), Err(MessageError::Unknown { kind: b'Q' }));
    }

    #[test]
    fn level_in_transition_is_not_complete() {
        let mut level = PriceLevelSell {
            head: Head::new(PriceLevelSell::KIND, 0, 7),
            symbol: Symbol::NONE,
            qty: 5.into(),
            price: 10_000.into(),
        };
        for (flags, complete) in [(0, false), (1, true), (0xfe, false)] {
            level.head.detail = flags;
            let Ok(Event::PriceLevel(event)) = Deep10.decode(Message::from(&level).as_bytes()) else { panic!() };
            assert_eq!((event.side, event.complete), (Side::Sell, complete));
        }
    }

    #[test]
    fn halt_by_the_listing_market_and_one_of_iex_have_codes_of_their_own() {
        let told = |message: Message<'_>| match Deep10.decode(message.as_bytes()) {
            Ok(Event::Status(status)) => (status.is_halted, status.operational),
            other => panic!("{other:?}"),
        };
        let symbol = Symbol::NONE;
        for (state, is_halted) in
            [(b'H', Some(true)), (b'P', Some(true)), (b'O', Some(false)), (b'T', Some(false)), (b'?', None)]
        {
            let status = TradingStatus { head: Head::new(TradingStatus::KIND, state, 7), symbol, reason: *b"T1  " };
            assert_eq!(told(Message::from(&status)), (is_halted, false), "{state}");
        }
        for (state, is_halted) in [(b'O', Some(true)), (b'N', Some(false)), (b'H', None)] {
            let status = OperationalHalt { head: Head::new(OperationalHalt::KIND, state, 7), symbol };
            assert_eq!(told(Message::from(&status)), (is_halted, true), "{state}");
        }
    }
}
