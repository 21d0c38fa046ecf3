//! What orders say besides, in each version of FIX.

use super::*;
use crate::orders::{Display, OrderType, TimeInForce};

const PLAIN: Instructions = Instructions::PLAIN;

fn wire_of(client: &FixClient, instructions: Instructions) -> WireOrder {
    let (id, instrument) = (client.next_id(), InstrumentIdx(0));
    let (side, qty, price) = (Side::Buy, 100, Price::from_cents(1_000));
    WireOrder { id, instrument, symbol: SYMBOL, side, is_short: false, qty, price, instructions }
}

/// The fields of a new order, and of its replace.
fn sent(version: Version, instructions: Instructions) -> [String; 2] {
    let (mut client, _) = open(version);
    let wire = wire_of(&client, instructions);
    client.new_order(1, &wire).unwrap();
    let new = String::from_utf8(client.to_send().to_vec()).unwrap();
    client.sent(new.len());
    client.replace_order(1, &target(wire.id), &wire_of(&client, instructions)).unwrap();
    [new, String::from_utf8(client.to_send().to_vec()).unwrap()]
}

#[test]
fn order_and_replace_say_each_instruction_in_each_version() {
    let of = |time_in_force| Instructions { time_in_force, ..PLAIN };
    let typed = |order_type| Instructions { order_type, ..PLAIN };
    let rows: &[(Instructions, &[&str])] = &[
        (PLAIN, &["\x0140=2\x01", "\x0159=0\x01"]),
        (of(TimeInForce::ImmediateOrCancel), &["\x0159=3\x01"]),
        (of(TimeInForce::FillOrKill), &["\x0159=4\x01"]),
        (of(TimeInForce::AtTheOpening), &["\x0159=2\x01"]),
        (of(TimeInForce::AtTheClose), &["\x0159=7\x01"]),
        (Instructions { is_post_only: true, ..PLAIN }, &["\x0118=6\x01", "\x0144=10\x01"]),
        (Instructions { min_qty: 30, ..PLAIN }, &["\x01110=30\x01"]),
        (Instructions { display: Display::Hidden, ..PLAIN }, &["\x01111=0\x01"]),
        (Instructions { display: Display::Shares(40), ..PLAIN }, &["\x01111=40\x01"]),
        (typed(OrderType::PrimaryPeg), &["\x0140=P\x01", "\x0118=R\x01", "\x0144=10\x01"]),
        (typed(OrderType::MarketPeg), &["\x0140=P\x01", "\x0118=P\x01"]),
        (typed(OrderType::MidpointPeg), &["\x0140=P\x01", "\x0118=M\x01"]),
        (Instructions { is_post_only: true, ..typed(OrderType::MidpointPeg) }, &["\x0118=6 M\x01"]),
        (Instructions { peg_offset: -100, ..typed(OrderType::MarketPeg) }, &["\x01211=-0.01\x01"]),
    ];
    for version in VERSIONS {
        for (instructions, fields) in rows {
            for message in sent(version, *instructions) {
                for field in *fields {
                    assert!(message.contains(field), "{field:?} is not in {message:?}");
                }
                assert_eq!(message.contains("\x0121=1\x01"), version == Version::Fix42, "{message:?}");
            }
        }
    }
}

#[test]
fn market_order_has_no_price() {
    let (mut client, mut venue) = open(Version::Fix44);
    let instructions = Instructions { order_type: OrderType::Market, ..PLAIN };
    client.new_order(1, &wire_of(&client, instructions)).unwrap();
    let sent = String::from_utf8(client.to_send().to_vec()).unwrap();
    assert!(sent.contains("\x0140=1\x01") && !sent.contains("\x0144="), "{sent:?}");
    pump(&mut client, &mut venue, 1);
    assert_eq!(venue.requests.last().map(|(kind, _)| kind.as_str()), Some("D"));
}

/// A session whose times have milliseconds may refuse more digits.
#[test]
fn times_have_the_digits_of_the_session() {
    let (mut client, _) = open(Version::Fix42);
    let wire = wire_of(&client, Instructions { is_post_only: true, ..PLAIN });
    client.new_order(1_234_567, &wire).unwrap();
    let sent = String::from_utf8(client.to_send().to_vec()).unwrap();
    let time = sent.split("\x0160=").nth(1).unwrap().split('\x01').next().unwrap();
    assert_eq!(time.len(), "20261128-16:49:31.123".len(), "{time}");
}
