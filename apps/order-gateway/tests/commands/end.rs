//! A gateway that is ended: by whom the orders that live are left, and that no kill is lost.

use std::process::Command;

use order_entry::risk::{KillCause, KillSwitch};

use super::common::{Venue, gateway};
use super::said::{end, was_killed};
use super::{Running, limits};

const JOURNAL_LEN: usize = 2 << 20;

/// The journal of a gateway with a live order, whose process has died.
fn journal_with_an_order() -> Vec<u8> {
    let (kill, mut venue) = (KillSwitch::new(), Venue::new());
    let mut gateway = gateway(&kill, JOURNAL_LEN);
    venue.accept_one_order(&mut gateway);
    gateway.core().journal().memory().clone()
}

#[test]
fn gateway_that_ends_with_live_orders_says_so_by_its_exit_code_unless_the_venue_cancels_them() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("journal"), journal_with_an_order()).unwrap();
    let mut running = Running::begin(directory, &limits(1, "ZIEXT", ""));
    running.wait_for("lets orders pass");
    running.signal("INT");
    running.wait_for("1 orders live at the venue, 1 of them in doubt: nobody cancels them");
    assert_eq!(end(&mut running.child), Some(1));
    let config = std::fs::read_to_string(running.path("config")).unwrap();
    let config = config.replace("[venue]", "[venue]\ncancel_on_disconnect = true");
    std::fs::write(running.path("config"), config).unwrap();
    running.again();
    running.wait_for("lets orders pass");
    running.signal("INT");
    running.wait_for("1 orders live at the venue, 1 of them in doubt: by `cancel_on_disconnect`");
    assert_eq!(end(&mut running.child), Some(0));
}

/// One comes microseconds behind the other, as from a script.
#[test]
fn kill_by_a_signal_that_another_one_to_end_follows_at_once_is_in_the_journal() {
    for _ in 0..3 {
        let mut gateway = Running::start();
        let pid = gateway.child.id();
        let both = format!("kill -s USR1 {pid}; kill -s INT {pid}");
        assert!(Command::new("sh").args(["-c", &both]).status().unwrap().success());
        assert_eq!(end(&mut gateway.child), Some(0));
        assert!(was_killed(&gateway, KillCause::Signal));
    }
}
