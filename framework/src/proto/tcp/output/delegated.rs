//! Sequence numbers for another sender, such as an FPGA or a program on the NIC. It gets the
//! headers for the next bytes and sends when it decides to; afterwards the app reports which bytes
//! were sent.
//!
//! ```text
//!  SND.UNA ── sent ──▶ SND.NXT ── delegated, not reported ──▶ ... what the app hands over meanwhile waits
//!                                 `report`: they are data that was sent
//!                                 `withdraw`: the numbers are ours again
//! ```
//!
//! Until then no new data of ours leaves, because both senders would use the same numbers;
//! acknowledgments and retransmissions go on. The peer may acknowledge before the app has reported:
//! such an acknowledgment counts up to SND.NXT, and the excess is stored.

use core::fmt;

use arrayvec::ArrayVec;

use crate::proto::slab::NIL;
use crate::proto::tcp::event::{ConnectionId, SendError};
use crate::proto::tcp::machine::{Context, Tcp};
use crate::proto::tcp::output::interface::Output;
use crate::proto::tcp::payload::Payload;
use crate::proto::tcp::segment::Outgoing;
use crate::proto::tcp::seq::Seq;
use crate::proto::tcp::state::connection::{InputFlags, OutputFlags};
use crate::proto::tcp::state::queue::{Chunk, PUSH, SENT};
use crate::time::Instant;
use crate::wire::tcp::TcpFlags;

/// Why numbers cannot be delegated, reported or withdrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DelegateError {
    /// The connection cannot send.
    Send(SendError),
    /// Queued bytes must go first.
    DataWaits,
    /// None, or fewer than the peer has acknowledged already.
    TooFew {
        /// The minimum.
        least: usize,
    },
    /// More than may be in flight now.
    NoRoom {
        /// The room in the windows.
        room: usize,
    },
    /// More was reported than is delegated.
    TooMuch {
        /// The delegated bytes.
        delegated: usize,
    },
    /// The peer has acknowledged bytes of it: they were sent.
    WasSent {
        /// Their number.
        acknowledged: usize,
    },
    /// No path leads to the peer now.
    NoRoute,
    /// The limit of connections with delegated numbers is reached.
    TooMany {
        /// The most.
        limit: usize,
    },
}

impl fmt::Display for DelegateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Send(error) => error.fmt(f),
            Self::DataWaits => f.write_str("data waits to be sent before: delegate when it has left"),
            Self::TooFew { least } => write!(f, "the bytes are too few: delegate {least} at least"),
            Self::NoRoom { room } => write!(f, "the windows have room for {room} bytes: delegate fewer, or later"),
            Self::TooMuch { delegated } => write!(f, "only {delegated} bytes are delegated: report no more, in order"),
            Self::WasSent { acknowledged } => {
                write!(f, "the peer has acknowledged {acknowledged} of the bytes: report them as sent")
            }
            Self::TooMany { limit } => {
                write!(f, "{limit} connections have delegated numbers, the most of a worker: withdraw those of another")
            }
            Self::NoRoute => {
                f.write_str("no way leads to the peer now: its neighbor is not known, or the link is down; again later")
            }
        }
    }
}

impl std::error::Error for DelegateError {}

/// Connections with delegated numbers at the same time: so few that a linear search is enough.
const DELEGATIONS_MAX: usize = 64;

/// The connections with delegated numbers.
#[derive(Debug, Default)]
pub(crate) struct Delegations(ArrayVec<Delegation, DELEGATIONS_MAX>);

#[derive(Clone, Copy, Debug, Default)]
struct Delegation {
    slot: u32,
    /// Bytes from SND.NXT on that were not reported.
    len: u32,
    /// How many of them the peer has acknowledged already.
    acked: u32,
}

impl Delegations {
    fn get(&self, slot: u32) -> Delegation {
        self.0.iter().find(|entry| entry.slot == slot).copied().unwrap_or(Delegation { slot, len: 0, acked: 0 })
    }

    /// False where there is no room for one more.
    fn set(&mut self, delegation: Delegation) -> bool {
        match self.0.iter_mut().find(|entry| entry.slot == delegation.slot) {
            Some(entry) => {
                *entry = delegation;
                true
            }
            None => self.0.try_push(delegation).is_ok(),
        }
    }

    pub(crate) fn remove(&mut self, slot: u32) {
        self.0.retain(|entry| entry.slot != slot);
    }
}

impl<P: Payload> Tcp<P> {
    /// Delegates the next `len` bytes: returns the header of the first, and the most that a segment
    /// carries. A second call returns the same numbers with the current acknowledgment. `len` may
    /// differ then.
    pub fn delegate<O: Output<P>>(
        &mut self,
        id: ConnectionId,
        len: usize,
        now: Instant,
        output: &mut O,
    ) -> Result<(Outgoing, usize), DelegateError> {
        let slot = self.find(id).ok_or(DelegateError::Send(SendError::NotFound))?;
        let mut cx = self.context(slot, output, now);
        let room = cx.delegable()?;
        let acked = cx.shared.delegations.get(slot).acked;
        let least = (acked as usize).max(1);
        if len < least {
            return Err(DelegateError::TooFew { least });
        }
        if len > room {
            return Err(DelegateError::NoRoom { room });
        }
        if !cx.shared.delegations.set(Delegation { slot, len: len as u32, acked }) {
            return Err(DelegateError::TooMany { limit: DELEGATIONS_MAX });
        }
        cx.connection.set(OutputFlags::DELEGATED);
        let mut outgoing = cx.header(cx.connection.snd.nxt, TcpFlags::ACK | TcpFlags::PSH, 0);
        outgoing.ect = cx.connection.has(InputFlags::ECN);
        outgoing.sack_count = 0;
        Ok((outgoing, cx.connection.snd.mss.into()))
    }

    /// Delegated bytes that were not reported as sent.
    pub fn delegated_len(&self, id: ConnectionId) -> usize {
        self.find(id).map_or(0, |slot| self.shared.delegations.get(slot).len as usize)
    }

    /// Reports the next delegated bytes as sent. From now on they are sent data, which we
    /// retransmit. Returns them where there is no room to keep them: report them again soon. The
    /// delegation ends when all bytes are reported.
    pub fn report<O: Output<P>>(
        &mut self,
        id: ConnectionId,
        payload: P,
        now: Instant,
        output: &mut O,
    ) -> Result<(), (DelegateError, P)> {
        let Some(slot) = self.find(id) else { return Err((DelegateError::Send(SendError::NotFound), payload)) };
        let mut cx = self.context(slot, output, now);
        let delegated = cx.shared.delegations.get(slot).len as usize;
        if payload.len() > delegated {
            return Err((DelegateError::TooMuch { delegated }, payload));
        }
        cx.take_report(payload).map_err(|payload| (DelegateError::Send(SendError::NoChunk), payload))?;
        cx.flush_later();
        cx.arm();
        Ok(())
    }

    /// Ends the delegation: bytes that were not reported count as not sent. Data that waited leaves
    /// with the next tick.
    pub fn withdraw<O: Output<P>>(
        &mut self,
        id: ConnectionId,
        now: Instant,
        output: &mut O,
    ) -> Result<(), DelegateError> {
        let slot = self.find(id).ok_or(DelegateError::Send(SendError::NotFound))?;
        let mut cx = self.context(slot, output, now);
        match cx.shared.delegations.get(slot).acked as usize {
            0 => {
                cx.end_delegation();
                cx.flush_later();
                Ok(())
            }
            acknowledged => Err(DelegateError::WasSent { acknowledged }),
        }
    }
}

impl<P: Payload, O: Output<P>> Context<'_, P, O> {
    /// The number of bytes that may be delegated.
    fn delegable(&mut self) -> Result<usize, DelegateError> {
        let connection = &*self.connection;
        if !connection.state.is_synchronized() {
            return Err(DelegateError::Send(SendError::NotConnected));
        }
        if !connection.state.may_send() {
            return Err(DelegateError::Send(SendError::Closed));
        }
        let is_new = !connection.has(OutputFlags::DELEGATED);
        if is_new && (connection.send.next_unsent != NIL || connection.sack.lost_len != 0) {
            return Err(DelegateError::DataWaits);
        }
        let buffer = connection.options.send_buffer.saturating_sub(connection.send.len);
        let window = connection.unused_send_window();
        Ok(window.min(buffer).min(self.cwnd_room()) as usize)
    }

    /// Takes data that the other sender has sent: drops bytes that are acknowledged already, and
    /// keeps the others until they are.
    fn take_report(&mut self, mut payload: P) -> Result<(), P> {
        let mss = (self.connection.snd.mss as usize).max(1);
        if self.shared.chunks.free_count() < payload.len().div_ceil(mss) {
            return Err(payload);
        }
        let acked = payload.len().min(self.shared.delegations.get(self.slot).acked as usize);
        if acked > 0 {
            payload.advance(acked);
            self.pass_acknowledged(acked as u32);
        }
        while !payload.is_empty() {
            // Where no second handle is available, the chunk is split when it is retransmitted.
            let rest = if payload.len() > mss { payload.split_off(mss) } else { None };
            self.take_sent(payload);
            match rest {
                Some(rest) => payload = rest,
                None => break,
            }
        }
        Ok(())
    }

    /// The peer has acknowledged the next `len` bytes already, and so all before: nothing is in
    /// flight.
    #[cold]
    fn pass_acknowledged(&mut self, len: u32) {
        self.use_up(len);
        let connection = &mut *self.connection;
        connection.snd.nxt += len;
        connection.snd.una = connection.snd.nxt;
        connection.tally.bytes_acked += u64::from(len);
    }

    /// The next bytes were sent, and the peer has not acknowledged them yet.
    fn take_sent(&mut self, payload: P) {
        let len = payload.len() as u32;
        self.use_up(len);
        let (seq, next) = (self.connection.snd.nxt, self.connection.send.next_unsent);
        let prev = match next {
            NIL => self.connection.send.queue.tail,
            next => self.shared.chunks[next].prev,
        };
        let mut chunk = Chunk::new(seq, len, Some(payload));
        chunk.flags = PUSH | SENT;
        let idx = self.connection.send.queue.insert_after(&mut self.shared.chunks, prev, chunk);
        let idx = idx.map_err(|_| ()).expect("free chunks were counted before");
        self.connection.send.grow(len);
        self.connection.tally.segments_out += 1;
        self.shared.tally.segments_out += 1;
        self.has_left(idx);
    }

    /// Marks `len` of the delegated numbers as used: the numbers of queued data advance by as many.
    fn use_up(&mut self, len: u32) {
        let mut idx = self.connection.send.next_unsent;
        while let Some(chunk) = self.shared.chunks.get_mut(idx) {
            chunk.seq += len;
            idx = chunk.next;
        }
        let mut delegation = self.shared.delegations.get(self.slot);
        delegation.len -= len;
        delegation.acked = delegation.acked.saturating_sub(len);
        match delegation.len {
            0 => self.end_delegation(),
            _ => _ = self.shared.delegations.set(delegation),
        }
    }

    fn end_delegation(&mut self) {
        if self.connection.snd.flight() == 0 {
            // Data behind it is sent only now.
            self.connection.clock.wait_since(Instant::MAX);
        }
        self.connection.clear(OutputFlags::DELEGATED);
        self.shared.delegations.remove(self.slot);
    }

    /// The valid part of an acknowledgment beyond SND.NXT: for delegated bytes, all up to SND.NXT.
    /// The rest is stored until they are reported.
    #[cold]
    pub(crate) fn acknowledge_delegated(&mut self, ack: Seq) -> Seq {
        let mut delegation = self.shared.delegations.get(self.slot);
        let beyond = ack - self.connection.snd.nxt;
        if !self.connection.has(OutputFlags::DELEGATED)
            || ack.is_before(self.connection.snd.nxt)
            || beyond > delegation.len
        {
            return ack;
        }
        delegation.acked = delegation.acked.max(beyond);
        self.shared.delegations.set(delegation);
        self.connection.snd.nxt
    }
}
