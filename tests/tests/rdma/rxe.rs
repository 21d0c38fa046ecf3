//! The RoCE of Linux (rxe) in a guest. Needs root, iproute2 and QEMU.

use std::net::Ipv4Addr;

use wirepath_tests::netns::Namespace;
use wirepath_tests::rxe::{Guest, GuestConfig};

const GUEST: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);

/// The fixture itself: two programs within the guest speak to each other.
#[test]
fn guest_plays_ping_pong_with_itself() {
    let test = "guest_plays_ping_pong_with_itself";
    let Ok(namespace) = Namespace::new() else { return println!("SKIPPED {test}: run as root") };
    let config = GuestConfig { tap: "tap0", address: GUEST, mtu: 1500 };
    let Some(mut guest) = Guest::start(test, &namespace, &config) else { return };
    let pair = "ibv_rc_pingpong -d rxe0 -g 1 -n 10 & sleep 1; ibv_rc_pingpong -d rxe0 -g 1 -n 10 10.9.0.2";
    let finished = guest.run(pair);
    assert!(finished.code == 0 && finished.output.contains("10 iters"), "{finished:?}");
}
