//! What goes out: numbers, the header, the store, and the bytes that wait to be written.

use super::config::SessionConfig;
use super::event::{Now, SendError, SessionCounts};
use super::store::MessageStore;
use crate::fix::codec::{UtcText, Writer};
use crate::fix::orders::{BusinessReason, Defect};
use crate::fix::tag::tags;

/// The outgoing half of a session.
#[derive(Debug)]
pub(super) struct Sender<S> {
    pub(super) store: S,
    pub(super) counts: SessionCounts,
    /// When the last message was written.
    pub(super) sent_ns: u64,
    begin_string: &'static str,
    comp_ids: [String; 2],
    with_reason_above_11: bool,
    utc: UtcText,
    /// Where a message is made.
    scratch: Box<[u8]>,
    out: Vec<u8>,
    written: usize,
}

/// How a message is marked that may have come before.
#[derive(Clone, Copy)]
pub(super) struct Again<'a> {
    /// SendingTime (52) of the first time.
    pub(super) sending_time: &'a [u8],
}

impl<S: MessageStore> Sender<S> {
    pub(super) fn new(config: &SessionConfig, store: S) -> Self {
        Self {
            store,
            counts: SessionCounts::default(),
            sent_ns: 0,
            begin_string: config.version.begin_string(),
            comp_ids: [config.sender.clone(), config.target.clone()],
            with_reason_above_11: config.version != super::Version::Fix42,
            utc: UtcText::new(config.precision),
            scratch: vec![0; config.message_len_max + 256].into(),
            out: Vec::with_capacity(config.output_len_max),
            written: 0,
        }
    }

    /// The bytes that wait to be written.
    pub(super) fn output(&self) -> &[u8] {
        self.out.get(self.written..).unwrap_or(&[])
    }

    /// The first `len` of them are written.
    pub(super) fn consume(&mut self, len: usize) {
        self.written = (self.written + len).min(self.out.len());
        if self.written == self.out.len() {
            self.discard_output();
        }
    }

    pub(super) fn discard_output(&mut self) {
        self.out.clear();
        self.written = 0;
    }

    /// Bytes that the output takes, once what is written has made room.
    pub(super) fn output_room(&self) -> usize {
        self.out.capacity() - self.output().len()
    }

    /// Writes a message without keeping it: of the session, whose numbers a resend fills.
    pub(super) fn send_admin(
        &mut self,
        now: Now,
        msg_type: &[u8],
        body: impl FnOnce(&mut Writer<'_>),
    ) -> Result<u64, SendError> {
        let seq = self.store.next_out();
        let len = self.encode(now, msg_type, seq, None, body)?;
        self.store.set_next_out(seq + 1);
        self.push(now, len);
        Ok(seq)
    }

    /// Keeps an application message, and writes it where `is_up`.
    pub(super) fn send_kept(
        &mut self,
        now: Now,
        is_up: bool,
        msg_type: &[u8],
        body: impl FnOnce(&mut Writer<'_>),
    ) -> Result<u64, SendError> {
        let seq = self.store.next_out();
        let (start, end) = self.encode(now, msg_type, seq, None, body)?;
        self.store.put(seq, &self.scratch[start..end]).map_err(SendError::Store)?;
        if is_up {
            self.push(now, (start, end));
        }
        Ok(seq)
    }

    /// Keeps and writes a message that is made already. A copy to the store and one to the output.
    #[inline]
    pub(super) fn send_made(&mut self, now: Now, seq: u64, message: &[u8]) -> Result<(), SendError> {
        self.room(message.len())?;
        self.store.put(seq, message).map_err(SendError::Store)?;
        self.out.extend_from_slice(message);
        self.sent_ns = now.steady_ns;
        self.counts.sent += 1;
        Ok(())
    }

    /// Writes a message under a number of before.
    pub(super) fn send_again(
        &mut self,
        now: Now,
        (msg_type, seq): (&[u8], u64),
        again: Option<Again<'_>>,
        body: impl FnOnce(&mut Writer<'_>),
    ) -> Result<(), SendError> {
        let mut own = [0; UtcText::LEN_MAX];
        let text = self.utc.write(now.utc_ns);
        own[..text.len()].copy_from_slice(text);
        let len = text.len();
        let again = again.unwrap_or(Again { sending_time: &own[..len] });
        let len = self.encode(now, msg_type, seq, Some(again), body)?;
        self.push(now, len);
        Ok(())
    }

    /// A Reject (3) of the message `seq`.
    pub(super) fn reject(&mut self, now: Now, (msg_type, seq): (&[u8], u64), defect: Defect) -> Result<(), SendError> {
        let reason = defect.reason.to_wire();
        let with_reason = self.with_reason_above_11 || reason <= 11;
        self.send_admin(now, b"3", |out| {
            out.number(tags::REF_SEQ_NUM, seq).display(tags::TEXT, defect.reason);
            out.number(tags::REF_TAG_ID, defect.tag.into()).field(tags::REF_MSG_TYPE, msg_type);
            if with_reason {
                out.number(tags::SESSION_REJECT_REASON, reason);
            }
        })?;
        self.counts.rejects += 1;
        Ok(())
    }

    /// A BusinessMessageReject (j) of the message `seq`; it is an application message, and kept.
    pub(super) fn business_reject(
        &mut self,
        now: Now,
        (msg_type, seq): (&[u8], u64),
        reason: BusinessReason,
    ) -> Result<(), SendError> {
        self.send_kept(now, true, b"j", |out| {
            out.number(tags::REF_SEQ_NUM, seq).display(tags::TEXT, reason).field(tags::REF_MSG_TYPE, msg_type);
            out.number(tags::BUSINESS_REJECT_REASON, reason.to_wire());
        })?;
        self.counts.rejects += 1;
        Ok(())
    }

    /// Makes a message in the scratch and returns where. Fields of the header rise by their tags.
    fn encode(
        &mut self,
        now: Now,
        msg_type: &[u8],
        seq: u64,
        again: Option<Again<'_>>,
        body: impl FnOnce(&mut Writer<'_>),
    ) -> Result<(usize, usize), SendError> {
        let [sender, target] = &self.comp_ids;
        let mut writer = Writer::new(&mut self.scratch);
        writer.field(tags::MSG_TYPE, msg_type).number(tags::MSG_SEQ_NUM, seq);
        if again.is_some() {
            writer.field(tags::POSS_DUP_FLAG, b"Y");
        }
        writer.field(tags::SENDER_COMP_ID, sender.as_bytes());
        writer.field(tags::SENDING_TIME, self.utc.write(now.utc_ns));
        writer.field(tags::TARGET_COMP_ID, target.as_bytes());
        if let Some(again) = again {
            writer.field(tags::ORIG_SENDING_TIME, again.sending_time);
        }
        body(&mut writer);
        let place = writer.finish_at(self.begin_string.as_bytes()).map_err(|_| SendError::TooLong)?;
        self.room(place.1 - place.0)?;
        Ok(place)
    }

    fn push(&mut self, now: Now, (start, end): (usize, usize)) {
        self.out.extend_from_slice(&self.scratch[start..end]);
        self.sent_ns = now.steady_ns;
        self.counts.sent += 1;
    }

    /// Whether the output takes `len` more bytes; what is written already makes room first.
    #[inline]
    fn room(&mut self, len: usize) -> Result<(), SendError> {
        if self.out.len() + len > self.out.capacity() {
            self.out.drain(..self.written);
            self.written = 0;
            if self.out.len() + len > self.out.capacity() {
                return Err(SendError::OutputFull);
            }
        }
        Ok(())
    }
}
