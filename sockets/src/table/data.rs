//! Bytes to and from a socket of either kind.

use std::io::IoSlice;

use wirepath::pipeline::Cx;

use super::message::SendFlags;
use super::{SocketId, Sockets};
use crate::errno::Errno;
use crate::socket::State;

impl Sockets {
    /// `send`: returns the number of bytes that were taken.
    ///
    /// # Errors
    /// `EAGAIN`: no room; `EPIPE`, `ENOTCONN`, `EDESTADDRREQ`, or the pending error.
    #[inline]
    pub fn send(&mut self, id: SocketId, bytes: &[u8], cx: &mut Cx<'_>) -> Result<usize, Errno> {
        let socket = self.find(id)?;
        match &mut socket.state {
            State::Stream(stream) if socket.error.is_none() && stream.sends_at_once(&socket.options) => {
                stream.send(bytes, cx)
            }
            _ => self.send_otherwise(id, bytes, cx),
        }
    }

    /// The slow path of a send: the bytes may wait, or are no stream's.
    fn send_otherwise(&mut self, id: SocketId, bytes: &[u8], cx: &mut Cx<'_>) -> Result<usize, Errno> {
        self.bind_if_unbound(id, cx)?;
        let socket = self.find(id)?;
        if !matches!(socket.state, State::Datagram(_)) {
            socket.report_error()?;
        }
        match &mut socket.state {
            State::Listener(_) => Err(Errno::EPIPE),
            State::Datagram(datagrams) if socket.options.cork || datagrams.pending.is_some() => {
                self.send_parts(id, &[IoSlice::new(bytes)], None, SendFlags::default(), cx)
            }
            State::Datagram(datagrams) => {
                let remote = datagrams.remote.ok_or(Errno::EDESTADDRREQ)?;
                self.send_to(id, bytes, remote, cx)
            }
            State::Stream(stream) if stream.sends_at_once(&socket.options) => stream.send(bytes, cx),
            State::Stream(_) => self.send_parts(id, &[IoSlice::new(bytes)], None, SendFlags::default(), cx),
        }
    }

    /// `recv` of a stream: 0 at the end of the peer's data.
    ///
    /// # Errors
    /// `EAGAIN`: nothing has come; `ENOTCONN`, or the pending error.
    #[inline]
    pub fn recv(&mut self, id: SocketId, into: &mut [u8], cx: &mut Cx<'_>) -> Result<usize, Errno> {
        let socket = self.find(id)?;
        let stream = match &mut socket.state {
            State::Stream(stream) => stream,
            State::Datagram(_) => return self.recv_from(id, into).map(|(count, _)| count),
            State::Listener(_) => return Err(Errno::ENOTCONN),
        };
        if stream.len() == 0 {
            return socket.end_of_stream();
        }
        let count = stream.read(into);
        if stream.is_paused {
            self.resume_if_read(id, cx)?;
        }
        Ok(count)
    }

    /// `recv` with `MSG_PEEK`: the bytes stay.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn peek(&mut self, id: SocketId, into: &mut [u8]) -> Result<usize, Errno> {
        let socket = self.find(id)?;
        match &socket.state {
            State::Stream(stream) if stream.len() == 0 => socket.end_of_stream(),
            State::Stream(stream) => Ok(stream.peek(into)),
            State::Datagram(datagrams) => datagrams.peek(into).map(|(count, _)| count).ok_or(Errno::EAGAIN),
            State::Listener(_) => Err(Errno::ENOTCONN),
        }
    }

    /// Bytes that `recv` would return; on a datagram socket the length of the next datagram
    /// (`FIONREAD`).
    ///
    /// # Errors
    /// `EBADF`.
    #[inline]
    pub fn readable_len(&self, id: SocketId) -> Result<usize, Errno> {
        Ok(match &self.get(id)?.state {
            State::Stream(stream) => stream.len(),
            State::Datagram(datagrams) => datagrams.next_len(),
            State::Listener(_) => return Err(Errno::EINVAL),
        })
    }

    /// Whether the receive buffer of a stream is full: no more bytes come until half of it is read.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn is_full(&self, id: SocketId) -> Result<bool, Errno> {
        Ok(matches!(&self.get(id)?.state, State::Stream(stream) if stream.is_paused))
    }
}
