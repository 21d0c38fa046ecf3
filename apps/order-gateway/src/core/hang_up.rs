//! The end of the session behind a thrown kill switch: by then its cancels had their time.

use order_entry::journal::JournalMemory;
use order_entry::session::VenueSession;

use super::{Core, Notice};

/// When a thrown kill switch ends the session, which stays closed until a person arms: over
/// restarts too, but for the cancels of orders that live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KillLine {
    /// So long after the switch was seen; where orders live, after the session was open for their
    /// cancels. By default never: the session stays, for the answers.
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

    /// What a person is told, of a line that is connected or not.
    pub(crate) fn sentence(self, is_connected: bool) -> String {
        let what = match self {
            Self::None => "the session goes on".to_owned(),
            Self::LogOut if is_connected => {
                "no order lives, and the session is logged out until somebody arms".to_owned()
            }
            Self::LogOut => "no order lives, and no connection is made until somebody arms".to_owned(),
            Self::Break { live } => format!(
                "{live} orders live, and the connection is broken, so that the venue cancels them; it stays so until a \
                 person has compared, and arms"
            ),
        };
        format!("the time of the kill switch is over: {what}")
    }
}

impl<S: VenueSession, M: JournalMemory> Core<S, M> {
    /// What the kill switch has the line do now. Call it in each turn: a look at two numbers.
    ///
    /// While orders live and no session was open for their cancels, there is to be one: nobody else
    /// tells what became of them.
    pub(crate) fn line_duty(&self, now_ns: u64) -> LineDuty {
        let (Some(after_ns), kill) = (self.kill_line.after_ns, &self.mass_cancel) else { return LineDuty::None };
        let is_over = |since_ns: Option<u64>| since_ns.is_some_and(|at_ns| now_ns.saturating_sub(at_ns) >= after_ns);
        if !kill.is_killed {
            return LineDuty::None;
        }
        match self.manager.orders().live_count() {
            0 if kill.is_of_journal || is_over(kill.killed_ns) => LineDuty::LogOut,
            0 => LineDuty::None,
            live if kill.is_line_broken || self.kill_line.cancels_on_disconnect && is_over(kill.open_ns) => {
                LineDuty::Break { live }
            }
            _ => LineDuty::None,
        }
    }

    /// The connection was broken for the kill switch.
    pub(crate) const fn line_broken(&mut self) {
        self.mass_cancel.is_line_broken = true;
    }

    /// Marks when a thrown switch was seen, and since when the session is open for its cancels.
    /// Says once that the switch cannot end the connection.
    pub(super) fn track_kill(&mut self, now_ns: u64) {
        if !self.mass_cancel.is_killed {
            return;
        }
        let is_open = self.session.is_open();
        self.mass_cancel.killed_ns.get_or_insert(now_ns);
        self.mass_cancel.open_ns = is_open.then(|| self.mass_cancel.open_ns.unwrap_or(now_ns));
        let (live, line, open_ns) = (self.manager.orders().live_count(), self.kill_line, self.mass_cancel.open_ns);
        let is_over =
            line.after_ns.zip(open_ns).is_some_and(|(after_ns, at_ns)| now_ns.saturating_sub(at_ns) >= after_ns);
        if is_over && live > 0 && !line.cancels_on_disconnect && !self.mass_cancel.is_line_kept {
            self.mass_cancel.is_line_kept = true;
            self.notice(Notice::LineKept { live });
        }
    }
}
