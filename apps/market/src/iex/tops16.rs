//! TOPS 1.6: best bid and offer, trades.

use super::messages::*;
use crate::codec::{message_set, stateless_codec};
use crate::event::{self, Event};
use crate::units::Price;

message_set! {
    kind at 0, length least;
    SystemEvent SecurityDirectory TradingStatus OperationalHalt ShortSaleTest RetailLiquidity QuoteUpdate Trade
    TradeBreak OfficialPrice AuctionInfo
}

stateless_codec! {
    /// The decoder. It has no state: the messages carry their time and their instrument.
    Tops16, "tops16", b"Q", false
}

#[inline]
fn event(message: Message<'_>) -> Event {
    match message {
        Message::QuoteUpdate(m) => quote(m),
        Message::Trade(m) => trade(m),
        Message::TradeBreak(m) => trade_break(m),
        Message::SystemEvent(m) => system_event(m),
        Message::SecurityDirectory(m) => directory(m),
        Message::TradingStatus(m) => status(&m.head, m.symbol, false),
        Message::OperationalHalt(m) => status(&m.head, m.symbol, true),
        Message::ShortSaleTest(ShortSaleTest { head, .. })
        | Message::RetailLiquidity(RetailLiquidity { head, .. })
        | Message::OfficialPrice(OfficialPrice { head, .. })
        | Message::AuctionInfo(AuctionInfo { head, .. }) => other(head),
    }
}

#[inline]
fn quote(m: &QuoteUpdate) -> Event {
    Event::Quote(event::Quote {
        at_ns: m.head.at_ns(),
        symbol: m.symbol,
        bid_px: Price(m.bid_px.get()),
        bid_qty: m.bid_qty.get(),
        ask_px: Price(m.ask_px.get()),
        ask_qty: m.ask_qty.get(),
        available: m.head.detail & 0x80 == 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{Codec, MessageError};
    use crate::units::Symbol;

    /// From the specification, typed in a second time on purpose.
    const SPECIFIED: &[(u8, usize)] = &[
        (b'S', 10),
        (b'D', 31),
        (b'H', 22),
        (b'O', 18),
        (b'P', 19),
        (b'I', 18),
        (b'Q', 42),
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
    fn price_level_belongs_to_deep_only() {
        assert_eq!(Tops16.decode(&[b'8'; 30]), Err(MessageError::Unknown { kind: b'8' }));
    }

    #[test]
    fn quote_of_a_halted_instrument_is_not_available() {
        let update = QuoteUpdate {
            head: Head::new(QuoteUpdate::KIND, 0x80, 1_499_697_138_426_334_905),
            symbol: Symbol::new("ZIEXT").unwrap(),
            bid_qty: 9_700.into(),
            bid_px: 990_500.into(),
            ask_px: 991_100.into(),
            ask_qty: 1_000.into(),
        };
        let expected = event::Quote {
            at_ns: 1_499_697_138_426_334_905,
            symbol: Symbol::new("ZIEXT").unwrap(),
            bid_px: Price(990_500),
            bid_qty: 9_700,
            ask_px: Price(991_100),
            ask_qty: 1_000,
            available: false,
        };
        assert_eq!(Tops16.decode(Message::from(&update).as_bytes()), Ok(Event::Quote(expected)));
    }
}
