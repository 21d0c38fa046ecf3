//! The end of the session behind a thrown kill switch: by then its cancels had their time.

use core::fmt;

use order_entry::journal::JournalMemory;
use order_entry::session::VenueSession;

use super::{Core, Notice};

/// When a thrown kill switch ends the session, which stays closed until a person arms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KillLine {
    /// So long after the switch was seen. By default never: the session stays, for the answers.
    pub after_ns: Option<u64>,
    /// The venue cancels all orders where the connection breaks, so that a broken connection ends
    /// those that live. By default false: then the connection stays while one lives, because by no
    /// other way can an order be canceled.
    pub cancels_on_disconnect: bool,
}

/// What the line has to do for the kill switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineDuty {
    /// Nothing.
    None,
    /// Log out, and stay away: no order lives.
    LogOut,
    /// Break the connection, and stay away: the venue cancels the orders that live.
    Break {
        /// How many.
        live: usize,
    },
}

impl LineDuty {
    pub(crate) fn is_none(self) -> bool {
        self == Self::None
    }
}

impl fmt::Display for LineDuty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the time of the kill switch is over: ")?;
        match self {
            Self::None => f.write_str("the session goes on"),
            Self::LogOut => f.write_str("no order lives, and the session is logged out until somebody arms"),
            Self::Break { live } => write!(
                f,
                "{live} orders live, and the connection is broken, so that the venue cancels them; it stays so until a \
                 person has compared, and arms"
            ),
        }
    }
}

impl<S: VenueSession, M: JournalMemory> Core<S, M> {
    /// What the kill switch has the line do now. Call it in each turn: a look at two numbers.
    pub(crate) fn line_duty(&self, now_ns: u64) -> LineDuty {
        let (Some(after_ns), Some(killed_ns)) = (self.kill_line.after_ns, self.mass_cancel.killed_ns) else {
            return LineDuty::None;
        };
        if !self.mass_cancel.is_killed || now_ns.saturating_sub(killed_ns) < after_ns {
            return LineDuty::None;
        }
        match self.manager.orders().live_count() {
            0 => LineDuty::LogOut,
            live if self.kill_line.cancels_on_disconnect => LineDuty::Break { live },
            _ => LineDuty::None,
        }
    }

    /// Marks when a thrown switch was seen, and says once that it cannot end the connection.
    pub(super) fn mind_killed_line(&mut self, now_ns: u64) {
        if !self.mass_cancel.is_killed {
            return;
        }
        let killed_ns = *self.mass_cancel.killed_ns.get_or_insert(now_ns);
        let (live, line) = (self.manager.orders().live_count(), self.kill_line);
        let is_over = line.after_ns.is_some_and(|after_ns| now_ns.saturating_sub(killed_ns) >= after_ns);
        if is_over && live > 0 && !line.cancels_on_disconnect && !self.mass_cancel.is_line_kept {
            self.mass_cancel.is_line_kept = true;
            self.notice(Notice::LineKept { live });
        }
    }
}
