//! Orders that say more than a limit and a day.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

mod common;

use common::{SECOND, STOCK, TestGateway, Venue, book, gateway, recovered};
use market::Price;
use order_entry::Refusal;
use order_entry::orders::{Display, Instructions, OrderField, OrderType, TimeInForce};
use order_entry::ouch::{self, CrossType, MARKET_PRICE};
use order_entry::risk::{KillSwitch, Limit};
use order_entry::session::SendError;
use order_gateway::BookEvent;

const PLAIN: Instructions = Instructions::PLAIN;
const MARKET_ON_CLOSE: Instructions =
    Instructions { order_type: OrderType::Market, time_in_force: TimeInForce::AtTheClose, ..PLAIN };

/// A gateway that is connected and armed, and whose strategy orders so.
fn trading(instructions: Instructions) -> (TestGateway, Venue) {
    let (mut gateway, mut venue) = (gateway(&KillSwitch::new(), 1 << 16), Venue::new());
    venue.connect(&mut gateway, SECOND);
    gateway.core_mut().arm(SECOND);
    gateway.strategy_mut().instructions = instructions;
    (gateway, venue)
}

#[test]
fn instructions_reach_the_venue_and_survive_a_restart() {
    let said = Instructions { display: Display::Hidden, is_post_only: true, min_qty: 10, ..PLAIN };
    let (mut gateway, mut venue) = trading(said);
    gateway.on_book(&book(100, SECOND));
    venue.pump(&mut gateway, SECOND);
    assert_eq!(venue.orders[0].display, ouch::Display::HIDDEN);
    let again = recovered(gateway.core().journal().memory().clone());
    let (_, order) = again.core().orders().live().next().unwrap();
    assert_eq!(*order.instructions(), said);
}

#[test]
fn what_the_protocol_cannot_say_is_refused_by_its_name_before_anything_is_reserved() {
    let (mut gateway, _) = trading(Instructions { time_in_force: TimeInForce::FillOrKill, ..PLAIN });
    let end = gateway.core().journal().end();
    gateway.on_book(&book(100, SECOND));
    let refusal = Refusal::Session(SendError::Field(OrderField::TimeInForce));
    assert_eq!(gateway.strategy().refusals, [refusal]);
    assert_eq!(refusal.to_string(), "the venue's protocol cannot say this time in force");
    assert_eq!((gateway.core().journal().end(), gateway.core().risk().open_notional()), (end, (0, 0)));
}

#[test]
fn order_that_contradicts_itself_is_refused() {
    let (mut gateway, _) = trading(Instructions { min_qty: 101, ..PLAIN });
    gateway.on_book(&book(100, SECOND));
    assert_eq!(gateway.strategy().refusals, [Refusal::Contradiction(OrderField::MinQuantity)]);
}

/// Its price is the venue's word for none, which nobody may take for a limit.
#[test]
fn market_order_holds_what_it_may_cost_at_the_edge_of_the_collar() {
    let (mut gateway, mut venue) = trading(MARKET_ON_CLOSE);
    gateway.on_book(&book(100, SECOND));
    venue.pump(&mut gateway, SECOND);
    let order = venue.orders[0];
    assert_eq!((order.price.get(), order.cross_type), (MARKET_PRICE.into(), CrossType::CLOSING));
    // Five percent above the middle.
    let (edge, held) = (Price(1_050_052), gateway.core().risk().open_notional());
    assert_eq!(held, (100 * edge.0, 0));
    venue.accept(0, SECOND);
    venue.pump(&mut gateway, SECOND);
    assert_eq!(gateway.core().risk().open_notional(), held);
    let again = recovered(gateway.core().journal().memory().clone());
    assert_eq!(again.core().risk().open_notional(), held);
}

#[test]
fn market_order_without_a_reference_price_is_refused_by_the_limits_name() {
    let (mut gateway, _) = trading(MARKET_ON_CLOSE);
    gateway.on_book(&BookEvent { offer: None, ..book(100, SECOND) });
    let [Refusal::Risk(reject)] = gateway.strategy().refusals[..] else { panic!("refused once, by risk") };
    assert_eq!(reject.limit, Limit::NoReference);
    assert_eq!(gateway.core().risk().position(STOCK), Some(0));
}

/// Venues take it so: what is left of the order is shown.
#[test]
fn replace_below_the_shares_that_an_iceberg_shows_shows_all_and_a_greater_one_shows_them_again() {
    let (mut gateway, mut venue) = trading(Instructions { display: Display::Shares(40), ..PLAIN });
    gateway.on_book(&book(100, SECOND));
    venue.pump(&mut gateway, SECOND);
    venue.accept(0, SECOND);
    venue.pump(&mut gateway, SECOND);
    for (id, qty, shown) in [(1, 30, 30), (2, 100, 40)] {
        gateway.strategy_mut().replace = Some(id);
        gateway.on_book(&book(qty, SECOND + id));
        let bytes = gateway.core().to_send();
        // The value of the option is at the message's end.
        assert_eq!(bytes.last_chunk(), Some(&u32::to_be_bytes(shown)), "{qty}: {}", bytes.escape_ascii());
        venue.pump(&mut gateway, SECOND + id);
    }
    assert_eq!(gateway.strategy().ids, [1, 2, 3]);
}

#[test]
fn market_order_is_not_replaced() {
    let (mut gateway, mut venue) = trading(MARKET_ON_CLOSE);
    gateway.on_book(&book(100, SECOND));
    venue.pump(&mut gateway, SECOND);
    venue.accept(0, SECOND);
    venue.pump(&mut gateway, SECOND);
    let end = gateway.core().journal().end();
    gateway.strategy_mut().replace = Some(1);
    gateway.on_book(&book(200, SECOND + 1));
    assert_eq!((gateway.strategy().ids.len(), gateway.core().journal().end()), (1, end));
}
