//! The kill switch and a line that breaks.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

mod common;

use common::{SECOND, Venue, book, gateway};
use order_entry::risk::KillSwitch;

#[test]
fn cancels_of_a_thrown_switch_that_the_line_lost_are_sent_again_after_the_reconnect() {
    let (kill, mut venue) = (KillSwitch::new(), Venue::new());
    let mut gateway = gateway(&kill, 1 << 16);
    venue.connect(&mut gateway, SECOND);
    gateway.core_mut().arm(SECOND);
    gateway.on_book(&book(100, SECOND));
    venue.pump(&mut gateway, SECOND);
    venue.accept(0, SECOND);
    venue.pump(&mut gateway, SECOND);
    kill.throw();
    gateway.tick(SECOND).unwrap();
    venue.is_deaf = true;
    venue.pump(&mut gateway, SECOND);
    assert_eq!(venue.mass_cancels, 0);
    venue.disconnect(&mut gateway, SECOND);
    venue.is_deaf = false;
    for reconnects in 1..3 {
        venue.connect(&mut gateway, (1 + reconnects) * SECOND);
        gateway.tick((1 + reconnects) * SECOND).unwrap();
        venue.pump(&mut gateway, (1 + reconnects) * SECOND);
        assert_eq!(venue.mass_cancels as u64, reconnects, "the order lives until the venue has answered");
        venue.disconnect(&mut gateway, (1 + reconnects) * SECOND);
    }
}
