//! The venue's own flow of orders.

use super::*;

const SECOND: u64 = 1_000_000_000;

/// Ten seconds of a venue with a flow of 1,000 messages a second, in turns of a millisecond.
fn flowing() -> (Venue, Vec<(u64, Vec<u8>)>) {
    let mut venue = venue(&[]);
    venue.house_shares = 1_000;
    venue.set_flow(1_000, 7);
    venue.flow(0);
    venue.take_public();
    let messages = (1..=10_000).flat_map(|ms| {
        venue.flow(ms * SECOND / 1_000);
        let top = venue.engine.top(Locate(1));
        assert!(top.bid_px < top.ask_px, "{top:?}");
        venue.take_public()
    });
    let messages = messages.collect();
    (venue, messages)
}

#[test]
fn flow_has_its_rate_and_the_same_seed_gives_the_same_messages() {
    let (_, messages) = flowing();
    // A turn may go beyond what is due by the messages of one order.
    assert!((10_000..10_004).contains(&messages.len()), "{}", messages.len());
    assert_eq!(flowing().1, messages);
}

#[test]
fn flow_catches_up_in_bounded_calls() {
    let mut venue = venue(&[]);
    venue.set_flow(1_000, 7);
    venue.flow(0);
    venue.take_public();
    assert!(venue.flow(SECOND));
    let first = venue.take_public().len();
    assert!((1..1_000).contains(&first), "{first}");
    let calls = (0..10).take_while(|_| venue.flow(SECOND)).count();
    assert!((1..10).contains(&calls), "{calls}");
    assert!(first + venue.take_public().len() >= 1_000);
}

#[test]
fn flow_puts_back_what_an_account_takes_of_the_house() {
    let (mut venue, _) = flowing();
    let best = venue.engine.top(Locate(1));
    for number in 1..=10 {
        let now_ns = (10 + u64::from(number)) * SECOND;
        let ioc = TimeInForce::IMMEDIATE_OR_CANCEL;
        let order = EnterOrder { time_in_force: ioc, ..enter(number, Side::BUY, 900, TEN + 100) };
        let mut bytes = [0; 128];
        let len = order.emit(&[], &mut bytes).unwrap();
        venue.receive(0, &bytes[..len], now_ns).unwrap();
        while venue.flow(now_ns) {}
    }
    let top = venue.engine.top(Locate(1));
    assert_eq!((top.bid_px, top.ask_px), (best.bid_px, best.ask_px));
    assert!(top.ask_qty >= 500, "{top:?}");
    assert!(venue.accounts()[0].trades().fills >= 10);
}
