//! The primary's side, without sockets and clock.

use order_entry::journal::{HEADER_LEN, Journal};

use super::frame::{CONTENT_MAX, Frame, take_frames};
use order_entry::journal::JournalMemory;

/// A standby whose copy lacks no more than this is near enough to be waited for.
const NEAR: usize = 64 * 1_024;
/// Bytes that wait for the standby's socket.
const OUT_MAX: usize = 256 * 1_024;

/// What the gateway writes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrimaryEvent {
    /// From now on nothing is sent without the grants of this standby.
    Attached(u64),
    /// The standby has left: the primary is alone.
    Left,
}

/// A standby's connection.
#[derive(Debug, Default)]
struct Follows {
    standby: u64,
    /// Records before are sent, and acknowledged.
    sent: usize,
    acknowledged: usize,
    /// The last question.
    asked_ns: u64,
    /// It has granted, so it takes over by itself when nothing more comes.
    has_promised: bool,
}

/// Whether bytes may be sent to the venue, and what goes to the standby.
#[derive(Debug)]
pub struct Primary {
    lease_ns: u64,
    /// The standby without whose grants nothing is sent; 0 for none.
    standby: u64,
    granted_until_ns: u64,
    is_fenced: bool,
    follows: Option<Follows>,
    pending: Vec<u8>,
    out: Vec<u8>,
}

impl Primary {
    /// A primary whose journal names `standby`; 0 for none.
    pub fn new(lease_ns: u64, standby: u64) -> Self {
        let (pending, out) = (Vec::new(), Vec::new());
        Self { lease_ns, standby, granted_until_ns: 0, is_fenced: false, follows: None, pending, out }
    }

    /// A connection was made: the one before is forgotten.
    pub fn connected(&mut self) {
        self.disconnected();
    }

    /// The connection is gone. Grants hold until their end.
    pub fn disconnected(&mut self) {
        self.follows = None;
        self.pending.clear();
        self.out.clear();
    }

    /// Whether bytes may be sent to the venue now.
    pub const fn may_send(&self, now_ns: u64) -> bool {
        !self.is_fenced && (self.standby == 0 || now_ns < self.granted_until_ns)
    }

    /// Whether bytes whose records end at `end` may be sent: the standby has the records.
    pub fn has(&self, end: usize) -> bool {
        self.standby == 0 || self.follows.as_ref().is_some_and(|follows| follows.acknowledged >= end)
    }

    /// A person knows that the standby does not run.
    pub const fn alone(&mut self) {
        self.standby = 0;
    }

    /// Bytes for the standby.
    pub fn to_send(&self) -> &[u8] {
        &self.out
    }

    /// The standby's socket took `len` bytes.
    pub fn sent(&mut self, len: usize) {
        self.out.drain(..len);
    }

    /// Takes bytes of the standby. On an error the connection is closed.
    pub fn receive<M: JournalMemory>(
        &mut self,
        bytes: &[u8],
        journal: &Journal<M>,
    ) -> Result<Option<PrimaryEvent>, String> {
        self.pending.extend_from_slice(bytes);
        let mut pending = core::mem::take(&mut self.pending);
        let mut event = None;
        take_frames(&mut pending, |frame| {
            event = self.take(frame, journal)?.or(event);
            Ok(())
        })?;
        self.pending = pending;
        Ok(event)
    }

    fn take<M: JournalMemory>(
        &mut self,
        frame: Frame<'_>,
        journal: &Journal<M>,
    ) -> Result<Option<PrimaryEvent>, String> {
        match (frame, &mut self.follows) {
            (Frame::Follow { standby, journal: id, end }, None) => {
                let end = self.admit(standby, id, end, journal)?;
                if id == 0 {
                    Frame::Header(journal.header()).emit(&mut self.out);
                }
                self.follows =
                    Some(Follows { standby, sent: end, acknowledged: end, asked_ns: 0, has_promised: false });
            }
            (Frame::End { end }, Some(follows)) => follows.acknowledge(end),
            (Frame::Grant { asked_ns, end }, Some(follows)) => {
                follows.acknowledge(end);
                // Only what was asked on this connection is an answer.
                if follows.standby == self.standby && asked_ns <= follows.asked_ns {
                    follows.has_promised = true;
                    self.granted_until_ns = self.granted_until_ns.max(asked_ns.saturating_add(self.lease_ns));
                }
            }
            (Frame::Leave, Some(follows)) if follows.standby == self.standby => {
                (self.standby, self.follows) = (0, None);
                return Ok(Some(PrimaryEvent::Left));
            }
            (Frame::Leave, _) => self.follows = None,
            (frame, _) => return Err(format!("the standby sent {frame:?}, which is none of its messages now")),
        }
        Ok(None)
    }

    /// Where the records begin that the standby lacks.
    fn admit<M: JournalMemory>(&self, standby: u64, id: u64, end: u64, journal: &Journal<M>) -> Result<usize, String> {
        if self.standby != 0 && self.standby != standby {
            return Err("another standby may still take over: say `alone` when it does not run".to_owned());
        }
        match (id, usize::try_from(end)) {
            (0, _) => Ok(HEADER_LEN),
            (id, Ok(end)) if id == journal.id() && (HEADER_LEN..=journal.end()).contains(&end) => Ok(end),
            _ => Err("the standby's copy is no part of this journal: it must begin with an empty file".to_owned()),
        }
    }

    /// Asks for grants and sends records. Call it in each turn.
    pub fn poll<M: JournalMemory>(&mut self, now_ns: u64, journal: &Journal<M>) -> Option<PrimaryEvent> {
        let follows = self.follows.as_mut()?;
        while self.out.len() < OUT_MAX && follows.sent < journal.end() {
            let records = journal.written(follows.sent);
            let records = &records[..records.len().min(CONTENT_MAX)];
            follows.sent += records.len();
            Frame::Records(records).emit(&mut self.out);
        }
        if self.standby == follows.standby {
            if now_ns.saturating_sub(follows.asked_ns) >= self.lease_ns / 4 && !self.is_fenced {
                follows.asked_ns = now_ns;
                Frame::Renew { asked_ns: now_ns, lease_ns: self.lease_ns }.emit(&mut self.out);
            }
        } else if journal.end() - follows.acknowledged <= NEAR {
            // It has promised nothing yet, and takes over only after it has.
            self.standby = follows.standby;
            self.granted_until_ns = now_ns.saturating_add(self.lease_ns);
            return Some(PrimaryEvent::Attached(self.standby));
        }
        None
    }

    /// Sends nothing to the venue any more, and has the standby take over. False where none has a
    /// grant in force: if this message were lost, nobody would trade.
    pub fn hand_over(&mut self, now_ns: u64) -> bool {
        let has_promised = |follows: &Follows| follows.standby == self.standby && follows.has_promised;
        let is_there = self.standby != 0 && self.follows.as_ref().is_some_and(has_promised) && self.may_send(now_ns);
        if is_there {
            self.is_fenced = true;
            Frame::HandOver.emit(&mut self.out);
        }
        is_there
    }

    /// Ends for good: the standby ends as well.
    pub fn leave(&mut self) {
        if self.follows.is_some() && !self.is_fenced {
            Frame::Leave.emit(&mut self.out);
        }
    }
}

impl Follows {
    fn acknowledge(&mut self, end: u64) {
        let end = usize::try_from(end).unwrap_or(usize::MAX).min(self.sent);
        self.acknowledged = self.acknowledged.max(end);
    }
}
