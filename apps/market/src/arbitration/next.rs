//! The packet that nearly every packet is: the expected one, while nothing waits.

use super::{Arbiter, Line, SessionEnd};
use crate::framing::Header;

impl<H> Arbiter<H> {
    /// Takes the packet where it is the expected one and nothing waits or is missing, as nearly
    /// always: all its messages are to be delivered, and neither [`Arbiter::offer`] nor
    /// [`Arbiter::poll`] is called. A few compares. Otherwise returns false and has changed
    /// nothing.
    ///
    /// Panics where this arbiter does not have the line.
    #[inline(always)]
    pub fn take_next(&mut self, line: Line, header: &Header, now_ns: u64) -> bool {
        if !self.is_calm() || !self.track.is_next(header) {
            return false;
        }
        assert!(line.0 < self.answers_line().0, "a line of this arbiter");
        self.offered = None;
        self.track.record_accepted(header);
        self.track.go_on(header);
        let restarts = self.track.counts().restarts;
        let line = &mut self.lines[line.0];
        line.receive(header, now_ns);
        line.follow(header, restarts);
        line.first += u64::from(header.count);
        true
    }

    /// Whether no packet waits, nothing is missing, and no end is announced.
    #[inline(always)]
    fn is_calm(&self) -> bool {
        let is_calm = self.horizon.is_none()
            && self.doubts.is_empty()
            && self.restarting.is_none()
            && self.session_end == SessionEnd::Open;
        debug_assert!(!is_calm || self.hole.is_none() && self.kept.is_empty(), "a hole has a horizon");
        is_calm
    }
}
