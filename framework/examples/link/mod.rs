//! What the examples on a NIC say of its link.

use wirepath::proto::Host;

/// Says a word when the link goes down, and when it is back: an app that waits looks as one that
/// has nothing to do.
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
