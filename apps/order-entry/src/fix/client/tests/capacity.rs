//! For whom orders trade, as each version of FIX says it.

use super::*;

#[test]
fn order_and_replace_have_their_capacity_in_the_field_of_the_version() {
    for (version, field) in VERSIONS.into_iter().zip(["\x0147=P\x01", "\x01528=P\x01", "\x01528=P\x01"]) {
        let (sender, venue) = ("TRADER".to_owned(), "VENUE".to_owned());
        let session = SessionConfig { version, sender, target: venue, ..SessionConfig::default() };
        let (instruments, capacity) = (vec![SYMBOL], Some(OrderCapacity::Principal));
        let config = FixClientConfig { instruments, capacity, epoch_offset_ns: UTC, ..FixClientConfig::new(session) };
        let (mut client, mut venue) = (FixClient::new(config), Venue::new(version));
        connect(&mut client, &mut venue, 0);
        let (instrument, side, price) = (InstrumentIdx(0), Side::Buy, Price::from_cents(1_000));
        let id = client.next_id();
        let wire = WireOrder {
            id,
            instrument,
            symbol: SYMBOL,
            side,
            is_short: false,
            qty: 100,
            price,
            instructions: Instructions::PLAIN,
        };
        client.new_order(1, &wire).unwrap();
        client.replace_order(1, &target(id), &WireOrder { id: client.next_id(), ..wire }).unwrap();
        let sent = String::from_utf8(client.to_send().to_vec()).unwrap();
        assert_eq!(sent.matches(field).count(), 2, "{sent:?}");
    }
}
