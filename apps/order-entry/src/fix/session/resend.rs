//! What is missing on either side: our request, and the answer to the peer's.

use core::mem;

use super::event::{End, Now};
use super::machine::{Session, State, Step};
use super::receiver::Place;
use super::rules::Header;
use super::sender::Again;
use super::store::MessageStore;
use crate::fix::codec::{FieldIndex, Message};
use crate::fix::orders::{Defect, Reason};
use crate::fix::tag::tags;

/// Requests from one number on, without a message that was missing in between. The first answer may
/// have been damaged on its way; what is damaged three times is so at the peer, which would be
/// asked for ever.
const REQUESTS_MAX: u32 = 3;

/// Messages of the peer that are missing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hole {
    /// The first of them when it was requested.
    begin: u64,
    /// Requests from there on.
    requests: u32,
    /// The last number that may be missing.
    pub(super) end: u64,
    /// The last number that was requested.
    pub(super) asked_end: u64,
    /// When it was requested, or when a message came that was missing.
    pub(super) since_ns: u64,
}

impl Hole {
    /// From `begin` to `end`, which the peer fills without a request.
    pub(super) const fn unrequested(begin: u64, end: u64, now: Now) -> Self {
        Self { begin, requests: 0, end, asked_end: end, since_ns: now.steady_ns }
    }
}

/// Messages of ours that the peer asked for.
#[derive(Debug)]
pub(super) struct Resending {
    next: u64,
    end: u64,
    /// The first number of the gap that is to be filled before the next message.
    gap_from: Option<u64>,
}

/// A message of the store, and its fields: allocated once.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    index: FieldIndex,
    bytes: Vec<u8>,
}

impl Scratch {
    pub(super) fn new(fields_max: usize, len_max: usize) -> Self {
        Self { index: FieldIndex::new(fields_max), bytes: Vec::with_capacity(len_max) }
    }
}

impl Resending {
    pub(super) const fn new(begin: u64, end: u64) -> Self {
        Self { next: begin, end, gap_from: None }
    }
}

impl<S: MessageStore> Session<S> {
    /// A number above the expected one: the message is kept, and what is missing is requested, once
    /// for each hole.
    pub(super) fn take_high(&mut self, now: Now, (place, seq): (Place, u64)) {
        let is_kept = self.receiver.enqueue(seq, place);
        let end = if is_kept { seq - 1 } else { seq };
        let counts = &mut self.sender.counts;
        if is_kept {
            counts.queued += 1;
        } else {
            counts.queue_full += 1;
        }
        match &mut self.hole {
            Some(hole) => hole.end = hole.end.max(end),
            None => self.request_resend(now, end),
        }
    }

    /// Messages of the peer that are missing.
    pub(in crate::fix) fn missing_count(&self) -> u64 {
        self.hole.map_or(0, |hole| (hole.end + 1).saturating_sub(self.sender.store.next_in()))
    }

    /// How long missing messages of the peer may take; `None` where none is missing.
    pub(in crate::fix) fn missing_timeout_ns(&self) -> Option<u64> {
        self.hole.map(|_| self.config.resend_timeout_ns)
    }

    /// Requests again where the last request is answered and something is missing still, or where
    /// no answer comes. After [`REQUESTS_MAX`] without progress the session ends.
    pub(super) fn check_hole(&mut self, now: Now) {
        let Some(hole) = self.hole else { return };
        let next_in = self.sender.store.next_in();
        let waited_ns = now.steady_ns.saturating_sub(hole.since_ns);
        if next_in > hole.end {
            self.hole = None;
        } else if self.state == State::Up && (next_in > hole.asked_end || waited_ns >= self.config.resend_timeout_ns) {
            self.request_resend(now, hole.end);
        }
    }

    fn request_resend(&mut self, now: Now, end: u64) {
        let begin = self.sender.store.next_in();
        let max = self.config.resend_request_max;
        let asked_end = if max == 0 { end } else { end.min(begin.saturating_add(max - 1)) };
        let requests = self.hole.filter(|hole| hole.begin == begin).map_or(0, |hole| hole.requests);
        if requests == REQUESTS_MAX {
            return self.give_hole_up(now, begin);
        }
        self.hole = Some(Hole { begin, requests: requests + 1, end, asked_end, since_ns: now.steady_ns });
        let sent = self.sender.send_admin(now, b"2", |out| {
            out.number(tags::BEGIN_SEQ_NO, begin).number(tags::END_SEQ_NO, if max == 0 { 0 } else { asked_end });
        });
        self.sender.counts.resends_requested += 1;
        self.note(sent.map(drop));
    }

    fn give_hole_up(&mut self, now: Now, begin: u64) {
        let sent = self.sender.send_admin(now, b"5", |out| {
            out.display(tags::TEXT, format_args!("ResendRequest (2) from {begin} is not answered"));
        });
        self.note(sent.map(drop));
        self.close(End::NotResent);
    }

    /// The peer asks for messages of ours.
    pub(super) fn begin_resend(&mut self, now: Now, (seq, header): (u64, &Header), (begin, end): (u64, u64)) {
        let last = self.sender.store.next_out() - 1;
        let is_to_infinity = end == 0 || end >= last;
        let wrong = match () {
            () if begin == 0 => Some(tags::BEGIN_SEQ_NO),
            () if end != 0 && end < begin => Some(tags::END_SEQ_NO),
            () => None,
        };
        if let Some(tag) = wrong {
            let sent =
                self.sender.reject(now, (header.msg_type.as_bytes(), seq), Defect { tag, reason: Reason::Value });
            return self.note(sent);
        }
        self.skipped.processed_below(begin);
        self.steps.push_back(Step::ResendRequested { begin });
        if begin <= last {
            self.resending = Some(Resending::new(begin, if is_to_infinity { last } else { end }));
        }
    }

    /// Goes on with a resend while little waits to be written, and stops at each message that is
    /// too old to be sent again, which is an event.
    pub(super) fn resend_some(&mut self, now: Now) {
        while let Some(mut resending) = self.resending.take() {
            if self.sender.output().len() >= self.config.resend_output_len || self.closing.is_some() {
                self.resending = Some(resending);
                return;
            }
            if resending.next > resending.end {
                self.fill_gap(now, &mut resending);
                return;
            }
            let kept = self.sender.store.next_kept(resending.next).filter(|kept| *kept <= resending.end);
            let is_stopped = match kept {
                Some(seq) if seq == resending.next => self.resend_one(now, &mut resending),
                kept => {
                    resending.gap_from.get_or_insert(resending.next);
                    resending.next = kept.unwrap_or(resending.end + 1);
                    false
                }
            };
            self.resending = Some(resending);
            if is_stopped {
                return;
            }
        }
    }

    /// Sends the next message again, or leaves it in the gap and says so.
    fn resend_one(&mut self, now: Now, resending: &mut Resending) -> bool {
        let seq = resending.next;
        resending.next += 1;
        let mut scratch = mem::take(&mut self.scratch);
        scratch.bytes.clear();
        scratch.bytes.extend_from_slice(self.sender.store.get(seq).unwrap_or(&[]));
        let is_stopped = match scratch.index.parse(&scratch.bytes) {
            Ok(message) => self.resend_message(now, resending, &message),
            // The store gave other bytes than it was given. The gap covers them.
            Err(_) => {
                resending.gap_from.get_or_insert(seq);
                false
            }
        };
        self.scratch = scratch;
        is_stopped
    }

    fn resend_message(&mut self, now: Now, resending: &mut Resending, message: &Message<'_>) -> bool {
        let seq = resending.next - 1;
        if self.is_stale(now, message) {
            resending.gap_from.get_or_insert(seq);
            self.skipped.add(seq);
            self.sender.counts.not_resent += 1;
            self.steps.push_back(Step::NotResent { seq });
            return true;
        }
        resending.next = seq;
        self.fill_gap(now, resending);
        resending.next = seq + 1;
        let again = Again { sending_time: message.get(tags::SENDING_TIME).unwrap_or(&[]) };
        let sent = self.sender.send_again(now, (message.msg_type(), seq), Some(again), |out| {
            for field in message.fields() {
                if !is_written_anew(field.tag()) {
                    out.raw(field.tag(), message.value(*field));
                }
            }
        });
        self.sender.counts.resent += 1;
        self.note(sent);
        false
    }

    fn is_stale(&self, now: Now, message: &Message<'_>) -> bool {
        let is_of_type = self.config.stale_types.iter().any(|stale| stale.as_bytes() == message.msg_type());
        let age_ns = now.utc_ns.saturating_sub(message.utc(tags::SENDING_TIME).unwrap_or(0));
        is_of_type && age_ns >= self.config.fresh_ns
    }

    /// Tells the peer to go on with the next message, where a gap is before it.
    fn fill_gap(&mut self, now: Now, resending: &mut Resending) {
        let Some(from) = resending.gap_from.take() else { return };
        let to = resending.next;
        let sent = self.sender.send_again(now, (b"4", from), None, |out| {
            out.number(tags::NEW_SEQ_NO, to).field(tags::GAP_FILL_FLAG, b"Y");
        });
        self.note(sent);
    }
}

/// Whether the header that is written has its own.
const fn is_written_anew(tag: u32) -> bool {
    matches!(tag, 8 | 9 | 34 | 35 | 43 | 49 | 52 | 56 | 122)
}
