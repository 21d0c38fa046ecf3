//! The standby's side, without sockets and clock.

use order_entry::journal::{Entry, HEADER_LEN, Journal, JournalError, Record};

use super::frame::{Frame, take_frames, too_small};
use super::promise::{Followed, Promise};
use order_entry::journal::JournalMemory;

#[derive(Debug)]
enum Copy<M> {
    /// No file header yet.
    Empty(M),
    Journal(Journal<M>),
}

/// A copy of the primary's journal, and the promises.
#[derive(Debug)]
pub struct Follower<M> {
    standby: u64,
    copy: Option<Copy<M>>,
    promise: Promise,
    pending: Vec<u8>,
    /// Records that are not whole yet.
    records: Vec<u8>,
    out: Vec<u8>,
}

impl<M: JournalMemory> Follower<M> {
    /// A standby over `memory`, which holds a part of the journal, or zeros. `standby` names the
    /// memory: no two standbys have the same one, and one that starts again has its own.
    ///
    /// # Errors
    ///
    /// The memory is no journal.
    pub fn new(standby: u64, memory: M) -> Result<Self, String> {
        let is_empty = memory.as_ref().iter().take(HEADER_LEN).all(|byte| *byte == 0);
        let copy = if is_empty { Copy::Empty(memory) } else { Copy::Journal(recover(memory)?) };
        let (pending, records, out) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { standby, copy: Some(copy), promise: Promise::default(), pending, records, out })
    }

    /// A connection was made.
    pub fn connected(&mut self) {
        self.pending.clear();
        self.records.clear();
        self.out.clear();
        let (journal, end) = match &self.copy {
            Some(Copy::Journal(journal)) => (journal.id(), journal.end() as u64),
            _ => (0, self.room()),
        };
        Frame::Follow { standby: self.standby, journal, end }.emit(&mut self.out);
    }

    /// Bytes for the primary.
    pub fn to_send(&self) -> &[u8] {
        &self.out
    }

    /// The socket took `len` bytes.
    pub fn sent(&mut self, len: usize) {
        self.out.drain(..len);
    }

    /// Takes bytes of the primary.
    ///
    /// # Errors
    ///
    /// They do not continue the copy, or do not fit it.
    pub fn receive(&mut self, bytes: &[u8], now_ns: u64) -> Result<(), String> {
        self.pending.extend_from_slice(bytes);
        let mut pending = core::mem::take(&mut self.pending);
        take_frames(&mut pending, |frame| self.take(frame, now_ns))?;
        self.pending = pending;
        Ok(())
    }

    fn take(&mut self, frame: Frame<'_>, now_ns: u64) -> Result<(), String> {
        match frame {
            Frame::Header(header) => self.begin(header)?,
            Frame::Records(records) => {
                let end = self.append(records)?;
                Frame::End { end }.emit(&mut self.out);
            }
            Frame::Renew { asked_ns, lease_ns } => {
                if self.promise.renew(lease_ns, now_ns)? {
                    let end = self.journal().map_or(0, |journal| journal.end() as u64);
                    Frame::Grant { asked_ns, end }.emit(&mut self.out);
                }
            }
            Frame::HandOver => self.promise.say(Followed::TakeOver),
            Frame::Leave => self.promise.say(Followed::Ended),
            Frame::TooSmall { needed } => return Err(too_small(self.room(), needed)),
            frame => return Err(format!("the primary sent {frame:?}, which is none of its messages")),
        }
        Ok(())
    }

    /// Bytes of the copy's memory.
    fn room(&self) -> u64 {
        let len = match &self.copy {
            Some(Copy::Journal(journal)) => journal.memory().as_ref().len(),
            Some(Copy::Empty(memory)) => memory.as_ref().len(),
            None => 0,
        };
        len as u64
    }

    fn begin(&mut self, header: &[u8]) -> Result<(), String> {
        let Some(Copy::Empty(mut memory)) = self.copy.take() else {
            return Err("the primary began the journal twice".to_owned());
        };
        match memory.as_mut().get_mut(..header.len()) {
            Some(place) if header.len() == HEADER_LEN => place.copy_from_slice(header),
            _ => return Err("the primary's journal has another header".to_owned()),
        }
        self.copy = Some(Copy::Journal(recover(memory)?));
        Ok(())
    }

    /// Returns the end of the copy.
    fn append(&mut self, records: &[u8]) -> Result<u64, String> {
        let Some(Copy::Journal(journal)) = &mut self.copy else {
            return Err("the primary sent records before their journal".to_owned());
        };
        self.records.extend_from_slice(records);
        let mut unknown = 0;
        let taken = journal.follow(&self.records, |record| unknown += is_unknown(record)).ok_or(
            "the primary's records do not continue the copy, or do not fit it: give the standby an empty journal, as \
             large as the primary's",
        )?;
        self.records.drain(..taken);
        refuse(unknown)?;
        Ok(journal.end() as u64)
    }

    /// What is due at `now_ns`. A standby that has granted nothing takes nothing over.
    pub fn poll(&mut self, now_ns: u64) -> Option<Followed> {
        self.promise.poll(now_ns)
    }

    /// Whether it has granted something, behind which it takes over when it hears no more.
    pub const fn has_promised(&self) -> bool {
        self.promise.has_promised()
    }

    /// The standby ends, and does not take over.
    pub fn leave(&mut self) {
        self.promise.leave();
        Frame::Leave.emit(&mut self.out);
    }

    /// The copy, once there is one.
    pub const fn journal(&self) -> Option<&Journal<M>> {
        match &self.copy {
            Some(Copy::Journal(journal)) => Some(journal),
            _ => None,
        }
    }
}

fn recover<M: JournalMemory>(memory: M) -> Result<Journal<M>, String> {
    let mut unknown = 0;
    let recovered = Journal::recover(memory, 0, |record| unknown += is_unknown(record));
    let (mut journal, _) = recovered.map_err(|error| error.to_string())?;
    refuse(unknown)?;
    // The primary may write what an older program does not know.
    journal.upgrade();
    Ok(journal)
}

/// 1 for a record that this program does not know.
fn is_unknown(record: &Record<'_>) -> u64 {
    Entry::decode(record.kind, record.payload).is_none().into()
}

/// A standby that would pass over records must not promise to take over.
fn refuse(unknown: u64) -> Result<(), String> {
    match unknown {
        0 => Ok(()),
        _ => Err(format!("{}: start the primary's version of order-gateway", JournalError::Unknown(unknown))),
    }
}
