//! Logons: the first of a connection, and those that reset the numbers within one.

use super::config::Role;
use super::event::{End, Now};
use super::machine::{Session, State, Step};
use super::receiver::Place;
use super::resend::{Hole, Resending};
use super::rules::{Header, Kind};
use super::store::MessageStore;
use crate::fix::tag::tags;

impl<S: MessageStore> Session<S> {
    pub(super) fn send_logon(&mut self, now: Now, reset: bool) {
        let config = &self.config;
        let next_in = self.sender.store.next_in();
        // The answer counts the Logon that it answers.
        let next_in = if self.state == State::LogonSent { next_in } else { next_in + u64::from(self.hole.is_none()) };
        let heartbeat_s = self.heartbeat_ns / 1_000_000_000;
        let sent = self.sender.send_admin(now, b"A", |out| {
            out.number(tags::ENCRYPT_METHOD, 0).number(tags::HEART_BT_INT, heartbeat_s);
            if reset {
                out.field(tags::RESET_SEQ_NUM_FLAG, b"Y");
            }
            for (tag, value) in [(tags::USERNAME, &config.username), (tags::PASSWORD, &config.password)] {
                if let Some(value) = value {
                    out.field(tag, value.as_bytes());
                }
            }
            if config.next_expected {
                out.number(tags::NEXT_EXPECTED_MSG_SEQ_NUM, next_in);
            }
            if let Some(version) = config.version.appl_ver_id() {
                out.field(tags::DEFAULT_APPL_VER_ID, version.as_bytes());
            }
        });
        self.note(sent.map(drop));
    }

    /// The first message of a connection. One that breaks a rule ends it without a word, so that a
    /// stranger learns nothing.
    pub(super) fn take_first(&mut self, now: Now, place: Place, header: &Header) {
        let is_ours = header.is_begin_string_ours && header.are_comp_ids_ours && self.is_time_right(now, header);
        if header.kind == Kind::Logout && self.state == State::LogonSent && is_ours {
            self.note_logout_text(place);
            return self.close(End::PeerLoggedOut);
        }
        let (Kind::Logon { heartbeat_s, reset, next_expected }, Some(seq)) = (header.kind, header.seq) else {
            return self.close(End::NoLogon);
        };
        if !is_ours || header.defect.is_some() || self.lacks_appl_ver_id(place) {
            return self.close(End::NoLogon);
        }
        let is_acceptor = self.config.role == Role::Acceptor;
        if reset && is_acceptor {
            self.reset_numbers(now);
        } else if reset && !self.config.reset_on_logon {
            // The peer counts our Logon as the first.
            self.reset_numbers(now);
            self.sender.store.set_next_out(2);
        }
        if is_acceptor {
            self.heartbeat_ns = u64::from(heartbeat_s) * 1_000_000_000;
        }
        self.log_on(now, (place, seq), reset && is_acceptor, next_expected.filter(|_| self.config.next_expected));
    }

    /// The Logon is one of this session: answers it, and sees to the numbers.
    fn log_on(&mut self, now: Now, (place, seq): (Place, u64), reset: bool, next_expected: Option<u64>) {
        let next_in = self.sender.store.next_in();
        self.state = State::Up;
        if seq < next_in {
            return self.close_too_low(now, seq);
        }
        let next_out = self.sender.store.next_out();
        if next_expected.is_some_and(|expected| expected > next_out) {
            self.send_logout(now, "NextExpectedMsgSeqNum (789) is above the next number");
            return self.close(End::ExpectsTooHigh);
        }
        if seq > next_in && next_expected.is_some() {
            // The answer's 789 has the peer send what is missing.
            self.hole = Some(Hole::unrequested(next_in, seq - 1, now));
        }
        if self.config.role == Role::Acceptor {
            self.send_logon(now, reset);
        }
        self.steps.push_back(Step::LoggedOn);
        if let Some(expected) = next_expected {
            self.skipped.processed_below(expected);
            if expected < next_out {
                self.resending = Some(Resending::new(expected, next_out - 1));
            }
        }
        if seq == next_in {
            self.advance(now, seq);
        } else {
            self.take_high(now, (place, seq));
        }
    }

    /// A Logon within a session: 141=Y resets both numbers, anything else ends the connection.
    pub(super) fn take_second_logon(&mut self, now: Now, place: Place, header: &Header) {
        let (Kind::Logon { reset, .. }, Some(seq)) = (header.kind, header.seq) else { return };
        if let Place::Queue(..) = place {
            // The first Logon of this connection, whose number was too high when it came.
            return self.advance(now, seq);
        }
        if !reset || header.defect.is_some() {
            return self.close(End::SecondLogon);
        }
        self.reset_numbers(now);
        self.send_logon(now, true);
        if seq == 1 {
            self.advance(now, seq);
        } else {
            self.take_high(now, (place, seq));
        }
    }

    /// FIXT's Logon says the version of the application's messages (1137).
    fn lacks_appl_ver_id(&self, place: Place) -> bool {
        let wanted = self.config.version.appl_ver_id();
        wanted.is_some_and(|_| self.receiver.message(place).get(tags::DEFAULT_APPL_VER_ID).is_none())
    }
}
