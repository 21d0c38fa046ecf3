//! A FIX session allocates when it is constructed and not after: orders out, heartbeats, a hole and
//! its resend.
#![allow(clippy::unwrap_used, reason = "a test may unwrap: a panic is the report")]

use order_entry::fix::codec::Decimal;
use order_entry::fix::orders::{NewOrder, NewOrderSingle, OrderSpec, OrderTemplates, Side};
use order_entry::fix::session::{Event, MemoryStore, Now, Role, Session, SessionConfig};

#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;

const SECOND_NS: u64 = 1_000_000_000;

fn session(role: Role, sender: &str, target: &str) -> Session<MemoryStore> {
    let (sender, target) = (sender.into(), target.into());
    Session::new(SessionConfig { role, sender, target, ..SessionConfig::default() }, MemoryStore::new(1_000, 1 << 20))
}

/// All that waits on one side goes to the other; `is_lost` loses it. Returns the orders that came.
fn carry(from: &mut Session<MemoryStore>, to: &mut Session<MemoryStore>, now: Now, is_lost: bool) -> u64 {
    let mut orders = 0;
    if !is_lost {
        let taken = to.receive(now, from.output());
        assert_eq!(taken, from.output().len());
    }
    from.consume(from.output().len());
    while let Some(event) = to.poll(now) {
        if let Event::Message { message, .. } = event {
            orders += u64::from(NewOrderSingle::parse(&message).is_ok());
        }
    }
    orders
}

#[test]
fn session_allocates_nothing_after_its_construction() {
    let mut now = Now { steady_ns: 0, utc_ns: 1_795_694_400 * SECOND_NS };
    let (mut up, mut down) = (session(Role::Initiator, "UP", "DOWN"), session(Role::Acceptor, "DOWN", "UP"));
    let spec = OrderSpec { sender: "UP".into(), target: "DOWN".into(), symbol: "MSFT".into(), ..OrderSpec::default() };
    let mut templates = OrderTemplates::new(&spec);
    let before = allocations::count();
    down.connected(now);
    up.connected(now);
    carry(&mut up, &mut down, now, false);
    carry(&mut down, &mut up, now, false);
    let mut orders = 0;
    for id in 0..100 {
        now.steady_ns += SECOND_NS;
        now.utc_ns += SECOND_NS;
        let order = NewOrder { id, side: Side::Buy, quantity: 100, price: Decimal::whole(10) };
        up.send_made(now, |seq, utc_ns| templates.new_order(seq, utc_ns, &order)).unwrap();
        // Each tenth is lost: a hole, a request, and a gap fill, because it is an order. The
        // request has no end (16=0), so the next order, which the peer keeps behind the hole, is
        // filled too.
        orders += carry(&mut up, &mut down, now, id % 10 == 9);
        carry(&mut down, &mut up, now, false);
        orders += carry(&mut up, &mut down, now, false);
    }
    assert_eq!(allocations::count() - before, 0);
    assert_eq!(orders, 81);
    assert_eq!(up.counts().not_resent, 18);
}
