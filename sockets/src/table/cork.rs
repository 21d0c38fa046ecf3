//! Corked data, which waits for further data, or for room (`MSG_MORE`, `TCP_CORK`, `UDP_CORK`), and
//! leaves before the end of a stream.

use core::net::SocketAddrV4;
use std::io::IoSlice;

use wirepath::pipeline::Cx;
use wirepath::pipeline::tcp::{CallError, ConnectionId, ConnectionOptions};
use wirepath::time::{Duration, Instant};

use super::message::{DATAGRAM_LEN_MAX, mss_of};
use super::{SocketId, Sockets};
use crate::errno::Errno;
use crate::options::Options;
use crate::socket::State;
use crate::socket::datagram::{CorkedDatagram, check_broadcast};
use crate::socket::stream::{Phase, Stream};

/// How long corked bytes of a stream wait (tcp(7), `TCP_CORK`).
const CORKED_FOR: Duration = Duration::from_millis(200);

impl Sockets {
    /// Appends the bytes to the corked datagram, whose destination the first call named.
    pub(super) fn append_datagram(
        &mut self,
        id: SocketId,
        parts: &[IoSlice<'_>],
        to: Option<SocketAddrV4>,
        waits: bool,
        cx: &mut Cx<'_>,
    ) -> Result<usize, Errno> {
        if self.corked_datagram(id)?.is_some_and(|pending| pending.is_whole) {
            self.push_pending(id, cx)?;
        }
        let socket = self.find(id)?;
        let State::Datagram(datagrams) = &mut socket.state else { return Err(Errno::EOPNOTSUPP) };
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let remote = match (&datagrams.pending, to.or(datagrams.remote)) {
            // The first call has checked the socket.
            (Some(pending), _) => pending.remote,
            (None, None) => return Err(Errno::EDESTADDRREQ),
            (None, Some(remote)) if remote.port() == 0 => return Err(Errno::EINVAL),
            (None, Some(remote)) => {
                check_broadcast(remote, &socket.options, cx)?;
                if let Some(error) = socket.error.take() {
                    return Err(error);
                }
                if datagrams.is_write_shut {
                    return Err(Errno::EPIPE);
                }
                remote
            }
        };
        let before = datagrams.pending.as_ref().map_or(0, |pending| pending.bytes.len());
        if before + len > DATAGRAM_LEN_MAX {
            // As on Linux nothing is left of a datagram to which something could not be appended.
            datagrams.pending = None;
            return Err(Errno::EMSGSIZE);
        }
        let pending =
            datagrams.pending.get_or_insert_with(|| CorkedDatagram { remote, bytes: Vec::new(), is_whole: false });
        parts.iter().for_each(|part| pending.bytes.extend_from_slice(part));
        if waits {
            return Ok(len);
        }
        let sent = self.push_pending(id, cx);
        if sent == Err(Errno::EAGAIN)
            && let Some(pending) = self.corked_datagram(id)?
        {
            // The caller repeats the call, which appends its bytes again, or gives the datagram up.
            pending.bytes.truncate(before);
        }
        sent.map(|()| len)
    }

    /// Forgets what sends have appended to a datagram, because the caller does not repeat the last
    /// of them, which returned `EAGAIN` (Linux `udp_flush_pending_frames`): the next send would be
    /// appended to a message that was given up, and leave to its destination. One whose cork is
    /// over stays.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn give_up_datagram(&mut self, id: SocketId) -> Result<(), Errno> {
        if let State::Datagram(datagrams) = &mut self.find(id)?.state
            && datagrams.pending.as_ref().is_some_and(|pending| !pending.is_whole)
        {
            datagrams.pending = None;
        }
        Ok(())
    }

    /// Whether a datagram of several calls is under way, so that the next send is appended to it.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn has_begun_datagram(&mut self, id: SocketId) -> Result<bool, Errno> {
        Ok(self.corked_datagram(id)?.is_some_and(|pending| !pending.is_whole))
    }

    fn corked_datagram(&mut self, id: SocketId) -> Result<Option<&mut CorkedDatagram>, Errno> {
        match &mut self.find(id)?.state {
            State::Datagram(datagrams) => Ok(datagrams.pending.as_mut()),
            State::Stream(_) | State::Listener(_) => Ok(None),
        }
    }

    /// Sends the datagram at the end of `UDP_CORK`. One that finds no room stays whole: the next
    /// send makes another datagram, behind it.
    ///
    /// # Errors
    /// As [`push_pending`](Self::push_pending).
    pub(crate) fn uncork_datagram(&mut self, id: SocketId, cx: &mut Cx<'_>) -> Result<(), Errno> {
        if let Some(pending) = self.corked_datagram(id)? {
            pending.is_whole = true;
        }
        self.push_pending(id, cx)
    }

    /// Appends the bytes to the corked ones, and sends whole segments.
    pub(super) fn append_stream(
        &mut self,
        id: SocketId,
        connection: ConnectionId,
        parts: &[IoSlice<'_>],
        waits: bool,
        cx: &mut Cx<'_>,
    ) -> Result<usize, Errno> {
        let mss = mss_of(connection, cx);
        let State::Stream(stream) = &mut self.find(id)?.state else { return Err(Errno::EPIPE) };
        if stream.pending.len() >= mss {
            // Corked data has found no room yet, so no new data is taken.
            stream.send_pending(connection, 0, cx);
            if stream.pending.len() >= mss {
                stream.is_writable = false;
                return Err(Errno::EAGAIN);
            }
        }
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let room = stream.pending_room(connection, cx);
        // Takes one segment more than there is room for, so that the TCP machine reports when there
        // is room.
        let taken = len.min(room + mss);
        let mut left = taken;
        for part in parts {
            let count = part.len().min(left);
            stream.pending.extend_from_slice(&part[..count]);
            left -= count;
        }
        stream.is_writable = taken == len;
        let keep = if waits { stream.pending.len() % mss } else { 0 };
        stream.send_pending(connection, keep, cx);
        if stream.pending.is_empty() {
            stream.corked_until = None;
        } else if stream.corked_until.is_none() {
            let until = cx.now + CORKED_FOR;
            stream.corked_until = Some(until);
            self.corked.push_back((until, id));
        }
        Ok(taken)
    }

    /// Sends corked data: at the end of a cork, after 200 ms, or when the sending side is shut.
    ///
    /// # Errors
    /// The errors of sending a datagram: after `EAGAIN` it still waits, and is gone after any
    /// other. The next call on a stream returns those of the stream.
    pub(crate) fn push_pending(&mut self, id: SocketId, cx: &mut Cx<'_>) -> Result<(), Errno> {
        match &mut self.find(id)?.state {
            State::Datagram(datagrams) => match datagrams.pending.take() {
                Some(pending) => {
                    let sent = self.transmit(id, &pending.bytes, pending.remote, cx);
                    if sent == Err(Errno::EAGAIN)
                        && let State::Datagram(datagrams) = &mut self.find(id)?.state
                    {
                        datagrams.pending = Some(pending);
                    }
                    sent.map(|_| ())
                }
                None => Ok(()),
            },
            State::Stream(stream) => {
                if let (Phase::Open, Some(connection)) = (stream.phase, stream.connection) {
                    stream.send_more(connection, false, cx);
                    if stream.pending.is_empty() {
                        stream.corked_until = None;
                    }
                }
                Ok(())
            }
            State::Listener(_) => Ok(()),
        }
    }

    /// Sends data whose cork is over.
    pub(super) fn uncork_due(&mut self, cx: &mut Cx<'_>) {
        while let Some((until, id)) = self.corked.front().copied()
            && until <= cx.now
        {
            self.corked.pop_front();
            let is_due = match self.find(id).map(|socket| &mut socket.state) {
                Ok(State::Stream(stream)) if stream.corked_until == Some(until) => {
                    stream.corked_until = None;
                    true
                }
                _ => false,
            };
            if is_due {
                // A stream reports the error with its next call.
                let _ = self.push_pending(id, cx);
            }
        }
    }

    /// The time at which the next cork is over.
    pub(super) fn uncorked_at(&self) -> Instant {
        self.corked.front().map_or(Instant::MAX, |(until, _)| *until)
    }
}

impl Stream {
    /// Whether bytes go to the machine as they are: none wait, and none are to be stamped.
    #[inline]
    pub(super) fn sends_at_once(&self, options: &Options) -> bool {
        !options.takes_slow_path() & self.pending.is_empty()
    }

    /// Sends bytes, as far as there is room.
    #[inline]
    pub(super) fn send(&mut self, bytes: &[u8], cx: &mut Cx<'_>) -> Result<usize, Errno> {
        let connection = self.sends_by()?;
        if bytes.is_empty() {
            return Ok(0);
        }
        let taken = cx.tcp().send(connection, bytes);
        self.is_writable = taken == Ok(bytes.len());
        Ok(taken?)
    }

    /// Sends corked data, except the last `keep` bytes, as far as there is room.
    fn send_pending(&mut self, connection: ConnectionId, keep: usize, cx: &mut Cx<'_>) {
        let end = self.pending.len().saturating_sub(keep);
        if end == 0 {
            return;
        }
        let sent = cx.tcp().send(connection, &self.pending[..end]).unwrap_or(0);
        self.pending.drain(..sent);
    }

    /// Sends all corked data before the FIN. The send buffer grows for it, because bytes that were
    /// taken must not be lost. False where packet buffers or chunks are missing for some of it:
    /// `Writable` reports when there are some.
    pub(super) fn send_last(&mut self, connection: ConnectionId, cx: &mut Cx<'_>) -> bool {
        self.send_pending(connection, 0, cx);
        if self.pending.is_empty() {
            return true;
        }
        if let Some(options) = cx.tcp().options(connection) {
            let send_buffer = ConnectionOptions::BUFFER_LEN_MAX;
            let _ = cx.tcp().set_options(connection, &ConnectionOptions { send_buffer, ..options });
        }
        self.send_pending(connection, 0, cx);
        self.pending.is_empty()
    }

    /// Sends all corked data, and the FIN behind it; the FIN waits while some data finds no room.
    pub(super) fn send_fin(&mut self, connection: ConnectionId, cx: &mut Cx<'_>) -> Result<(), CallError> {
        self.sends_fin = true;
        if self.send_last(connection, cx) { cx.tcp().shutdown(connection) } else { Ok(()) }
    }

    /// Sends the corked data, because there is room again, or because its cork is over.
    pub(super) fn send_more(&mut self, connection: ConnectionId, is_corked: bool, cx: &mut Cx<'_>) {
        if self.sends_fin {
            // An error means that the connection is gone already.
            let _ = self.send_fin(connection, cx);
            return;
        }
        let keep = if is_corked { self.pending.len() % mss_of(connection, cx) } else { 0 };
        self.send_pending(connection, keep, cx);
    }

    /// Bytes that the TCP machine would take.
    fn pending_room(&self, connection: ConnectionId, cx: &mut Cx<'_>) -> usize {
        let Some((info, options)) = cx.tcp().info(connection).zip(cx.tcp().options(connection)) else { return 0 };
        let waits = info.unacked_len as usize + info.unsent_len as usize + self.pending.len();
        (options.send_buffer as usize).saturating_sub(waits)
    }
}
