//! What happens because time passes: heartbeats, questions to a silent peer, ends of waiting, the
//! end of the session's span.

use super::event::{End, Now};
use super::machine::{Session, State, Step};
use super::schedule::Schedule;
use super::store::MessageStore;
use crate::fix::tag::tags;

impl<S: MessageStore> Session<S> {
    /// When [`Session::poll`] is to be called next though no bytes came, by the steady clock;
    /// `None` where nothing is waited for. The end of the schedule's span is not among it: call
    /// `poll` once a second.
    pub fn deadline_ns(&self) -> Option<u64> {
        match self.state {
            State::Down => None,
            State::AwaitsLogon | State::LogonSent => Some(self.since_ns + self.config.logon_timeout_ns),
            State::LogoutSent(_) => Some(self.since_ns + self.config.logout_timeout_ns),
            State::Up => {
                let resend = self.hole.map(|hole| hole.since_ns + self.config.resend_timeout_ns);
                let beat = (self.heartbeat_ns > 0).then(|| {
                    let silent = self.received_ns + self.test_after_ns().min(self.dead_after_ns());
                    (self.sender.sent_ns + self.heartbeat_ns).min(silent)
                });
                resend.into_iter().chain(beat).min()
            }
        }
    }

    /// 1.2 intervals of silence for each question.
    fn test_after_ns(&self) -> u64 {
        self.heartbeat_ns * 12 / 10 * (self.tests_sent + 1)
    }

    fn dead_after_ns(&self) -> u64 {
        self.heartbeat_ns * 24 / 10
    }

    pub(super) fn run_timers(&mut self, now: Now) {
        let waited_ns = now.steady_ns.saturating_sub(self.since_ns);
        match self.state {
            State::Down => {}
            State::AwaitsLogon | State::LogonSent if waited_ns >= self.config.logon_timeout_ns => {
                self.close(End::LogonTimeout);
            }
            State::AwaitsLogon | State::LogonSent => {}
            State::LogoutSent(end) if waited_ns >= self.config.logout_timeout_ns => {
                self.close(if end == End::LoggedOut { End::LogoutTimeout } else { end });
            }
            State::LogoutSent(_) => {}
            State::Up => self.run_timers_of_session(now),
        }
    }

    fn run_timers_of_session(&mut self, now: Now) {
        if let Some(schedule) = self.config.schedule {
            self.date_numbers(&schedule, now);
        }
        let is_over = |schedule: &Schedule| schedule.span(now.utc_ns) != self.span && !self.is_before_its_numbers(now);
        if self.config.schedule.as_ref().is_some_and(is_over) {
            self.send_logout(now, "end of the session");
            self.reset_numbers(now);
            return self.close(End::Schedule);
        }
        if self.heartbeat_ns == 0 {
            return;
        }
        let silent_ns = now.steady_ns.saturating_sub(self.received_ns);
        if silent_ns >= self.dead_after_ns() {
            return self.close(End::Silent);
        }
        if silent_ns >= self.test_after_ns() {
            self.tests_sent += 1;
            let id = self.tests_sent;
            let sent = self.sender.send_admin(now, b"1", |out| {
                out.display(tags::TEST_REQ_ID, format_args!("TEST{id}"));
            });
            self.note(sent.map(drop));
        }
        if now.steady_ns.saturating_sub(self.sender.sent_ns) >= self.heartbeat_ns {
            let sent = self.sender.send_admin(now, b"0", |_| ());
            self.note(sent.map(drop));
        }
    }

    /// Both numbers become 1, and what was kept is forgotten.
    pub(super) fn reset_numbers(&mut self, now: Now) {
        self.sender.store.reset(now.utc_ns);
        self.receiver.clear_queue();
        (self.hole, self.resending) = (None, None);
        self.skipped.clear();
        self.steps.push_back(Step::Reset);
    }

    /// The wall clock was far ahead when the numbers began, and is set right: they are those of the
    /// span that is, and end with it. Where it has stepped back by less than half the time from one
    /// span to the next, they are rather those of the span that begins soon, as they were before.
    fn date_numbers(&mut self, schedule: &Schedule, now: Now) {
        let ahead_ns = self.sender.store.begun_utc_ns().saturating_sub(now.utc_ns);
        if ahead_ns > schedule.period_ns() / 2 {
            self.sender.store.set_begun_utc_ns(now.utc_ns);
            self.span = schedule.span(now.utc_ns);
        }
    }

    /// The wall clock has stepped back to a time before the numbers began: they are not of an older
    /// span.
    fn is_before_its_numbers(&self, now: Now) -> bool {
        now.utc_ns < self.sender.store.begun_utc_ns()
    }

    /// Whether the session is open; numbers of another span are reset.
    pub(super) fn begin_span(&mut self, now: Now) -> bool {
        let Some(schedule) = self.config.schedule else { return true };
        self.date_numbers(&schedule, now);
        self.span = schedule.span(now.utc_ns);
        let store = &self.sender.store;
        let begun_ns = store.begun_utc_ns();
        let is_new = begun_ns == 0 && store.next_out() == 1 && store.next_in() == 1;
        if is_new {
            self.sender.store.reset(now.utc_ns);
        } else if begun_ns != 0 && schedule.span(begun_ns) != self.span && !self.is_before_its_numbers(now) {
            self.reset_numbers(now);
        }
        self.span.is_some()
    }
}
