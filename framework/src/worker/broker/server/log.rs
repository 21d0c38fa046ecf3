//! Lines for the operator, of which there are not more than he can read.

use std::time::Instant;

use super::Broker;
use crate::worker::broker::error::Refusal;
use crate::worker::broker::refusals::Written;

/// The most log lines between two reviews.
const LINES_MAX: u32 = 20;

impl Broker {
    /// Logs the refusal of a process, unless its user has had his lines.
    pub(super) fn say_refused(
        &mut self,
        uid: u32,
        lines_max: u32,
        name: &str,
        refusal: &Refusal,
        report: &mut dyn FnMut(&str),
    ) {
        let more = match self.refusal_lines.count(uid, lines_max, Instant::now()) {
            Written::Line => "",
            Written::LastLine => " (its user's later refusals are not written for a minute)",
            Written::Nothing => return,
        };
        self.say(&format!("{name} is refused: {}{more}", refusal.sentence), report);
    }

    pub(super) fn say(&mut self, line: &str, report: &mut dyn FnMut(&str)) {
        self.lines += 1;
        match self.lines {
            ..LINES_MAX => report(line),
            LINES_MAX => report("more of this, which is not written for two seconds"),
            _ => (),
        }
    }
}
