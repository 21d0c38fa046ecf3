//! ITCH 5.0 messages to events: one match on the type byte, then reads at fixed places.

use zerocopy::big_endian::U32;

use super::*;
use crate::codec::stateless_codec;
use crate::event::{self, Event};
use crate::units::{OrderRef, Price, Side, Symbol};

stateless_codec! {
    /// The decoder. It has no state: the messages carry their time and their stock. Nasdaq tells
    /// the state of each stock that trades (Stock Trading Action), so one of which it tells none is
    /// halted.
    Itch50, "itch50", b"AFECXDU", true
}

/// The event of both messages that add an order: they differ behind these fields.
macro_rules! add {
    ($message:expr) => {
        Event::Add(event::Add {
            at_ns: $message.head.at_ns(),
            locate: $message.head.locate(),
            order: OrderRef($message.order.get()),
            side: Side::from_wire($message.side),
            qty: $message.shares.get(),
            symbol: $message.stock,
            price: price4($message.price),
        })
    };
}

#[inline]
fn event(message: Message<'_>) -> Event {
    match message {
        Message::AddOrder(m) => add!(m),
        Message::AddOrderMpid(m) => add!(m),
        Message::OrderExecuted(m) => executed(m),
        Message::OrderExecutedAtPrice(m) => executed_at_price(m),
        Message::OrderCancel(m) => Event::Cancel(event::Cancel {
            at_ns: m.head.at_ns(),
            locate: m.head.locate(),
            order: OrderRef(m.order.get()),
            qty: m.shares.get(),
        }),
        Message::OrderDelete(m) => Event::Delete(event::Delete {
            at_ns: m.head.at_ns(),
            locate: m.head.locate(),
            order: OrderRef(m.order.get()),
        }),
        Message::OrderReplace(m) => replaced(m),
        Message::Trade(m) => trade(m),
        Message::CrossTrade(m) => cross_trade(m),
        Message::BrokenTrade(m) => Event::TradeBreak(event::TradeBreak { at_ns: m.head.at_ns(), trade: m.trade.get() }),
        Message::StockDirectory(m) => Event::Directory(event::Directory {
            at_ns: m.head.at_ns(),
            locate: m.head.locate(),
            symbol: m.stock,
            round_lot: m.round_lot.get(),
        }),
        Message::TradingAction(m) => status(&m.head, m.stock, m.state, false),
        Message::OperationalHalt(m) => status(&m.head, m.stock, m.action, true),
        Message::SystemEvent(m) => Event::System(event::System { at_ns: m.head.at_ns(), code: m.event }),
        Message::RegSho(RegSho { head, .. })
        | Message::ParticipantPosition(ParticipantPosition { head, .. })
        | Message::MwcbLevels(MwcbLevels { head, .. })
        | Message::MwcbStatus(MwcbStatus { head, .. })
        | Message::IpoQuoting(IpoQuoting { head, .. })
        | Message::LuldCollar(LuldCollar { head, .. })
        | Message::Noii(Noii { head, .. })
        | Message::RetailInterest(RetailInterest { head, .. })
        | Message::DirectListing(DirectListing { head, .. }) => {
            Event::Other(event::Other { at_ns: head.at_ns(), kind: head.kind })
        }
    }
}

// Each is one arm of `event`, and is compiled into its match: hence `inline(always)`.

#[inline(always)]
fn executed(m: &OrderExecuted) -> Event {
    Event::Execute(event::Execute {
        at_ns: m.head.at_ns(),
        locate: m.head.locate(),
        printable: true,
        order: OrderRef(m.order.get()),
        qty: m.shares.get(),
        remaining: None,
        price: None,
        trade: m.trade.get(),
    })
}

#[inline(always)]
fn executed_at_price(m: &OrderExecutedAtPrice) -> Event {
    Event::Execute(event::Execute {
        at_ns: m.head.at_ns(),
        locate: m.head.locate(),
        printable: m.printable != b'N',
        order: OrderRef(m.order.get()),
        qty: m.shares.get(),
        remaining: None,
        price: Some(price4(m.price)),
        trade: m.trade.get(),
    })
}

#[inline(always)]
fn replaced(m: &OrderReplace) -> Event {
    Event::Replace(event::Replace {
        at_ns: m.head.at_ns(),
        locate: m.head.locate(),
        old: OrderRef(m.old.get()),
        new: OrderRef(m.new.get()),
        qty: m.shares.get(),
        price: price4(m.price),
    })
}

#[inline(always)]
fn trade(m: &Trade) -> Event {
    Event::Trade(event::Trade {
        at_ns: m.head.at_ns(),
        locate: m.head.locate(),
        side: Some(Side::from_wire(m.side)),
        symbol: m.stock,
        qty: m.shares.get().into(),
        price: price4(m.price),
        trade: m.trade.get(),
    })
}

#[inline(always)]
fn cross_trade(m: &CrossTrade) -> Event {
    Event::Trade(event::Trade {
        at_ns: m.head.at_ns(),
        locate: m.head.locate(),
        side: None,
        symbol: m.stock,
        qty: m.shares.get(),
        price: price4(m.price),
        trade: m.trade.get(),
    })
}

#[inline]
fn status(head: &Head, symbol: Symbol, state: u8, operational: bool) -> Event {
    let (at_ns, locate, is_halted) = (head.at_ns(), head.locate(), is_halted(state));
    Event::Status(event::Status { at_ns, locate, symbol, state, is_halted, operational, follows_group: None })
}

/// Halted, and paused by a band of prices. Where an instrument is quoted only, orders for the cross
/// are taken.
const fn is_halted(state: u8) -> Option<bool> {
    match state {
        b'H' | b'P' => Some(true),
        b'Q' | b'T' => Some(false),
        _ => None,
    }
}

#[inline]
fn price4(wire: U32) -> Price {
    Price(wire.get().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{Codec, MessageCounts, MessageError};

    #[test]
    fn short_and_long_messages_of_a_known_type_are_wrong_length() {
        for &(kind, expected) in Message::LENGTHS {
            for found in [expected - 1, expected + 1] {
                let mut message = vec![0; found];
                message[0] = kind;
                assert_eq!(Itch50.decode(&message), Err(MessageError::Length { kind, expected, found }));
            }
        }
    }

    #[test]
    fn unknown_type_is_counted_and_skipped() {
        let mut counts = MessageCounts::new();
        assert_eq!(Itch50.decode_counted(b"zzz", &mut counts), None);
        assert_eq!(Itch50.decode_counted(b"", &mut counts), None);
        assert_eq!((counts.unknown, counts.empty, counts.total()), (1, 1, 2));
    }

    #[test]
    fn replace_and_priced_execution_keep_every_field() {
        let replace = OrderReplace {
            head: Head::new(OrderReplace::KIND, crate::Locate(7), 34_200_000_000_001),
            old: 1.into(),
            new: 2.into(),
            shares: 300.into(),
            price: 1_234_500.into(),
        };
        let expected = event::Replace {
            at_ns: 34_200_000_000_001,
            locate: crate::Locate(7),
            old: OrderRef(1),
            new: OrderRef(2),
            qty: 300,
            price: Price(1_234_500),
        };
        assert_eq!(Itch50.decode(Message::from(&replace).as_bytes()), Ok(Event::Replace(expected)));
    }

    #[test]
    fn unprintable_execution_carries_its_own_price() {
        let executed = OrderExecutedAtPrice {
            head: Head::new(OrderExecutedAtPrice::KIND, crate::Locate(1), 5),
            order: 9.into(),
            shares: 10.into(),
            trade: 11.into(),
            printable: b'N',
            price: 50_000.into(),
        };
        let Ok(Event::Execute(event)) = Itch50.decode(Message::from(&executed).as_bytes()) else { panic!() };
        assert_eq!((event.printable, event.price, event.remaining), (false, Some(Price(50_000)), None));
    }

    #[test]
    fn stock_is_halted_and_paused_and_not_while_it_is_quoted_for_a_cross() {
        let head = |kind| Head::new(kind, crate::Locate(1), 5);
        let (stock, reserved, reason) = (Symbol::new("ZVZZT").unwrap(), b' ', *b"    ");
        let told = |message: Message<'_>| match Itch50.decode(message.as_bytes()) {
            Ok(Event::Status(event::Status { is_halted, operational, .. })) => (is_halted, operational),
            other => panic!("{other:?}"),
        };
        for (state, is_halted) in
            [(b'H', Some(true)), (b'P', Some(true)), (b'Q', Some(false)), (b'T', Some(false)), (b'?', None)]
        {
            let action = TradingAction { head: head(TradingAction::KIND), stock, state, reserved, reason };
            assert_eq!(told(Message::from(&action)), (is_halted, false), "{state}");
        }
        let halt = OperationalHalt { head: head(OperationalHalt::KIND), stock, market: b'Q', action: b'H' };
        assert_eq!(told(Message::from(&halt)), (Some(true), true));
    }
}
