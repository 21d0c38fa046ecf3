//! What a received message does, by its number and its type.

use super::event::{End, Now};
use super::machine::{Question, Session, State, Step};
use super::receiver::{Input, Place};
use super::rules::{Header, Kind, is_known};
use super::store::MessageStore;
use crate::fix::orders::{BusinessReason, Defect, Reason};
use crate::fix::tag::tags;

impl<S: MessageStore> Session<S> {
    /// Takes the next message: the one behind the hole once it is filled, else the next of the
    /// input. `false` where there is none.
    pub(super) fn take_next(&mut self, now: Now) -> bool {
        let next_in = self.sender.store.next_in();
        if let Some(place) = self.receiver.next_queued(next_in) {
            self.take(now, place);
            return true;
        }
        self.check_hole(now);
        match self.receiver.next_input() {
            None => return false,
            Some(Input::Message(place)) => self.take(now, place),
            Some(Input::Garbled) => {
                self.sender.counts.garbled += 1;
                if matches!(self.state, State::AwaitsLogon | State::LogonSent) {
                    self.close(End::NoLogon);
                }
            }
        }
        true
    }

    fn take(&mut self, now: Now, place: Place) {
        let message = self.receiver.message(place);
        let header = Header::parse(&message, self.config.version, &self.config.sender, &self.config.target);
        if matches!(self.state, State::AwaitsLogon | State::LogonSent) {
            return self.take_first(now, place, &header);
        }
        let Some(seq) = header.seq else {
            self.send_logout(now, "MsgSeqNum (34) is missing");
            return self.close(End::NoSeq);
        };
        if !header.is_begin_string_ours {
            self.pass_over(now, &header, Defect { tag: tags::BEGIN_STRING, reason: Reason::Value });
            return self.begin_logout(now, "BeginString (8) is that of another version", End::BeginString);
        }
        // Where a field of the three is missing, that is the defect.
        let is_header_whole = !matches!(header.defect, Some(Defect { tag: 49 | 52 | 56, .. }));
        if is_header_whole && !header.are_comp_ids_ours {
            let tag = tags::SENDER_COMP_ID;
            self.refuse(now, &header, Defect { tag, reason: Reason::CompId });
            return self.begin_logout(now, "CompID problem", End::CompId);
        }
        if is_header_whole && matches!(place, Place::Input(..)) && !self.is_time_right(now, &header) {
            self.refuse(now, &header, Defect { tag: tags::SENDING_TIME, reason: Reason::SendingTime });
            return self.begin_logout(now, "SendingTime accuracy problem", End::SendingTime);
        }
        self.take_by_number(now, (place, seq), &header);
    }

    fn take_by_number(&mut self, now: Now, (place, seq): (Place, u64), header: &Header) {
        match header.kind {
            Kind::Logon { .. } => return self.take_second_logon(now, place, header),
            Kind::SequenceReset { new_seq, gap_fill: false } => return self.take_reset(now, seq, new_seq, header),
            Kind::Logout => return self.take_logout(now, (place, seq)),
            _ => {}
        }
        let next_in = self.sender.store.next_in();
        if seq < next_in {
            return self.take_low(now, seq, header);
        }
        if let (Kind::ResendRequest { begin, end }, Place::Input(..), None) = (header.kind, place, header.defect) {
            // Answered even where its own number is too high, or two sides that ask each other
            // would wait for ever.
            self.begin_resend(now, (seq, header), (begin, end));
        }
        if seq > next_in {
            return self.take_high(now, (place, seq));
        }
        self.take_in_order(now, (place, seq), header);
    }

    fn take_in_order(&mut self, now: Now, (place, seq): (Place, u64), header: &Header) {
        if let Some(defect) = header.defect {
            return self.refuse(now, header, defect);
        }
        match header.kind {
            Kind::TestRequest => {
                let id = self.receiver.message(place).get(tags::TEST_REQ_ID).unwrap_or(&[]);
                let sent = self.sender.send_admin(now, b"0", |out| {
                    out.field(tags::TEST_REQ_ID, id);
                });
                self.note(sent.map(drop));
            }
            Kind::Reject => self.steps.push_back(Step::Rejected(place)),
            Kind::SequenceReset { new_seq, .. } => {
                if new_seq <= seq {
                    return self.refuse(now, header, Defect { tag: tags::NEW_SEQ_NO, reason: Reason::Value });
                }
                return self.advance(now, new_seq - 1);
            }
            Kind::Application => return self.take_application(now, (place, seq), header),
            Kind::Heartbeat => self.take_heartbeat(place),
            Kind::ResendRequest { .. } | Kind::Logout | Kind::Logon { .. } => {}
        }
        self.advance(now, seq);
    }

    /// A Heartbeat may answer our question.
    fn take_heartbeat(&mut self, place: Place) {
        let Some(id) = self.question else { return };
        if self.receiver.message(place).get(tags::TEST_REQ_ID).is_some_and(|text| Question(id).is(text)) {
            self.question = None;
            self.steps.push_back(Step::Answered { id });
        }
    }

    fn take_application(&mut self, now: Now, (place, seq): (Place, u64), header: &Header) {
        let msg_type = header.msg_type.as_bytes();
        if !is_known(msg_type, self.config.version) {
            return self.refuse(now, header, Defect { tag: tags::MSG_TYPE, reason: Reason::MsgType });
        }
        let supported = &self.config.supported_types;
        if !supported.is_empty() && !supported.iter().any(|supported| supported.as_bytes() == msg_type) {
            let sent = self.sender.business_reject(now, (msg_type, seq), BusinessReason::UnsupportedMsgType);
            self.note(sent);
        } else {
            self.steps.push_back(Step::Message { place, seq, poss_dup: header.poss_dup });
        }
        self.advance(now, seq);
    }

    /// SequenceReset without gap fill: its own number says nothing.
    fn take_reset(&mut self, now: Now, seq: u64, new_seq: u64, header: &Header) {
        let next_in = self.sender.store.next_in();
        let too_low = Defect { tag: tags::NEW_SEQ_NO, reason: Reason::Value };
        match header.defect.or((new_seq < next_in).then_some(too_low)) {
            Some(defect) => {
                let sent = self.sender.reject(now, (header.msg_type.as_bytes(), seq), defect);
                self.note(sent);
            }
            None if new_seq > next_in => {
                // It may stand for itself alone.
                if new_seq > next_in + u64::from(seq == next_in) {
                    self.steps.push_back(Step::Skipped { from: next_in });
                }
                self.advance(now, new_seq - 1);
            }
            None => {}
        }
    }

    fn take_logout(&mut self, now: Now, (place, seq): (Place, u64)) {
        self.note_logout_text(place);
        self.advance_if_next(now, seq);
        match self.state {
            State::LogoutSent(end) => self.close(end),
            _ => {
                self.send_logout(now, "");
                self.close(End::PeerLoggedOut);
            }
        }
    }

    pub(super) fn note_logout_text(&mut self, place: Place) {
        let text = self.receiver.message(place).get(tags::TEXT).unwrap_or(&[]);
        self.logout_text.clear();
        self.logout_text.extend(text.iter().copied().take(self.logout_text.capacity()));
    }

    /// A number that was taken already: a possible duplicate is left out, anything else means that
    /// the two sides do not agree.
    fn take_low(&mut self, now: Now, seq: u64, header: &Header) {
        if !header.poss_dup {
            return self.close_too_low(now, seq);
        }
        let tag = tags::ORIG_SENDING_TIME;
        let msg_type = header.msg_type.as_bytes();
        let is_reset = matches!(header.kind, Kind::SequenceReset { .. });
        match (header.orig_ns, header.sending_ns) {
            _ if is_reset => self.sender.counts.duplicates += 1,
            (None, _) => {
                let sent = self.sender.reject(now, (msg_type, seq), Defect { tag, reason: Reason::Missing });
                self.note(sent);
            }
            (Some(orig_ns), Some(sending_ns)) if orig_ns > sending_ns => {
                let sent = self.sender.reject(now, (msg_type, seq), Defect { tag, reason: Reason::SendingTime });
                self.note(sent);
                self.begin_logout(now, "OrigSendingTime (122) is after SendingTime (52)", End::SendingTime);
            }
            _ => self.sender.counts.duplicates += 1,
        }
    }

    pub(super) fn close_too_low(&mut self, now: Now, seq: u64) {
        let next_in = self.sender.store.next_in();
        let sent = self.sender.send_admin(now, b"5", |out| {
            let text = format_args!("MsgSeqNum too low, expecting {next_in} but received {seq}");
            out.display(tags::TEXT, text);
        });
        self.note(sent.map(drop));
        self.close(End::SeqTooLow);
    }

    /// A Reject (3); the message's number is taken where it is the next.
    fn refuse(&mut self, now: Now, header: &Header, defect: Defect) {
        let seq = header.seq.unwrap_or(0);
        let sent = self.sender.reject(now, (header.msg_type.as_bytes(), seq), defect);
        self.note(sent);
        self.pass_over(now, header, defect);
    }

    /// Takes the number of a message that is not taken itself, where it is the next. The caller
    /// hears of one that was for it.
    fn pass_over(&mut self, now: Now, header: &Header, defect: Defect) {
        let seq = header.seq.unwrap_or(0);
        if seq == self.sender.store.next_in() && matches!(header.kind, Kind::Application | Kind::Reject) {
            let msg_type = header.msg_type.as_bytes().first().copied().unwrap_or(b'?');
            self.steps.push_back(Step::Refused { msg_type, seq, defect });
        }
        self.advance_if_next(now, seq);
    }

    pub(super) fn is_time_right(&self, now: Now, header: &Header) -> bool {
        let difference = |sending_ns: u64| sending_ns.abs_diff(now.utc_ns);
        header.sending_ns.is_some_and(|sending_ns| difference(sending_ns) <= self.config.latency_ns_max)
    }

    /// The message `seq` is taken, and all before it.
    pub(super) fn advance(&mut self, now: Now, seq: u64) {
        self.sender.store.set_next_in(seq + 1);
        self.sender.counts.received += 1;
        if let Some(hole) = &mut self.hole {
            hole.since_ns = now.steady_ns;
        }
    }

    fn advance_if_next(&mut self, now: Now, seq: u64) {
        if seq == self.sender.store.next_in() {
            self.advance(now, seq);
        }
    }
}
