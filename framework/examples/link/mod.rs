//! Prints link changes, for the examples on a NIC.

use wirepath::proto::Host;

/// Prints a line when the link goes down and when it is back, because an app that waits for a link
/// looks like an idle one.
#[derive(Default)]
pub(crate) struct Link {
    is_down: bool,
}

impl Link {
    /// Two loads and a compare, for each turn.
    pub(crate) fn look(&mut self, host: &Host) {
        if host.is_up() == self.is_down {
            self.is_down = !host.is_up();
            println!("{}", if self.is_down { "the link is down: check cable and switch" } else { "the link is up" });
        }
    }
}
