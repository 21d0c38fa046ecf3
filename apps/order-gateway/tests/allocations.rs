//! From the book to the bytes of the order, and from the fill to the position: no allocation.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

mod common;

use common::{SECOND, Venue, config, session};
use order_entry::journal::Journal;
use order_entry::risk::KillSwitch;
use order_gateway::{BookEvent, Core, Gateway, OrderRequest, Orders, Strategy};

#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;

#[derive(Debug, Default)]
struct Plain {
    sent: u64,
}

impl Strategy for Plain {
    fn on_book(&mut self, book: &BookEvent, orders: &mut Orders<'_>) {
        let Some((price, qty)) = book.bid else { return };
        let side = market::Side::Buy;
        let request = OrderRequest::limit(book.instrument, side, qty, price);
        self.sent += u64::from(orders.send(&request).is_ok());
    }
}

#[test]
fn order_and_its_answers_allocate_nothing() {
    // A venue that has answered ten orders, so that its bytes can be given to another gateway.
    let (mut model, mut venue) = (common::gateway(&KillSwitch::new(), 1 << 16), Venue::new());
    venue.connect(&mut model, SECOND);
    let journal = Journal::create(vec![0; 1 << 16], 8, 0, 0).unwrap();
    let core = Core::new(config(&KillSwitch::new()), session(), journal);
    let mut gateway = Gateway::new(Plain::default(), core);
    venue.disconnected();
    let mut answers = Vec::new();
    gateway.connected(SECOND).unwrap();
    answers.extend_from_slice(&venue.answers_to(gateway.core().to_send(), SECOND));
    let len = gateway.core().to_send().len();
    gateway.core_mut().sent(len);
    gateway.received(&answers, SECOND).unwrap();
    let query = gateway.core().to_send().to_vec();
    gateway.core_mut().sent(query.len());
    let answers = venue.answers_to_more(&query, SECOND);
    gateway.received(&answers, SECOND).unwrap();
    gateway.core_mut().arm(SECOND);

    let before = allocations::count();
    for qty in 1..20 {
        gateway.on_book(&common::book(qty, SECOND + u64::from(qty)));
    }
    assert_eq!(allocations::count(), before);
    assert_eq!(gateway.strategy().sent, 19);
    let orders = gateway.core().to_send().to_vec();
    gateway.core_mut().sent(orders.len());
    venue.answers_to_more(&orders, SECOND);
    (0..19).for_each(|idx| {
        venue.accept(idx, SECOND);
        venue.fill(idx, 1, idx as u64, SECOND);
    });
    let answers = venue.answers_to_more(&[], SECOND);
    let before = allocations::count();
    gateway.received(&answers, SECOND).unwrap();
    assert_eq!(allocations::count(), before);
    assert_eq!(gateway.core().counts().trades.fills, 19);
}
