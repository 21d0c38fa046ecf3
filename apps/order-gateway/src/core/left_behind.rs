//! The orders that a gateway leaves at the venue when it ends.

use core::fmt;

use order_entry::journal::JournalMemory;
use order_entry::session::VenueSession;

use super::Core;

/// Orders that live when the gateway ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftBehind {
    /// How many.
    pub live: usize,
    /// How many of them are in doubt.
    pub in_doubt: usize,
    /// The venue cancels them where the connection ends, as the configuration says.
    pub end_with_the_connection: bool,
    /// The standby granted nothing at the end: it may have taken over, and trade with them.
    pub standby_may_have_them: bool,
}

impl fmt::Display for LeftBehind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { live, in_doubt, end_with_the_connection, standby_may_have_them } = *self;
        write!(f, "the gateway has ended, and {live} orders live at the venue, {in_doubt} of them in doubt: ")?;
        f.write_str(match end_with_the_connection {
            _ if standby_may_have_them => {
                "its standby may have taken over, and trade with them: look at its `status`; only where it does not \
                 trade, start the gateway again, or have the venue cancel them"
            }
            true => "by `cancel_on_disconnect` of [venue] it cancels them now, and the next start hears of it",
            false => "nobody cancels them; start the gateway again, or have the venue cancel them",
        })
    }
}

impl<S: VenueSession, M: JournalMemory> Core<S, M> {
    /// The orders that live, for who ends. `None` where none does.
    pub fn left_behind(&self) -> Option<LeftBehind> {
        let orders = self.manager.orders();
        let live = orders.live_count();
        let in_doubt = orders.live().filter(|(_, order)| order.is_in_doubt()).count();
        let end_with_the_connection = self.kill_line.cancels_on_disconnect;
        (live > 0).then_some(LeftBehind { live, in_doubt, end_with_the_connection, standby_may_have_them: false })
    }
}
