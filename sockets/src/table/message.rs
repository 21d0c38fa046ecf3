//! `recvmsg` and `sendmsg`: bytes in several parts, with flags.

use core::net::SocketAddrV4;
use std::io::{IoSlice, IoSliceMut};

use wirepath::pipeline::Cx;
use wirepath::pipeline::tcp::{ConnectionId, SendError};

use super::{SocketId, Sockets};
use crate::control::SendControl;
use crate::errno::Errno;
use crate::options::MtuDiscover;
use crate::socket::State;
use crate::socket::datagram::DatagramInfo;

/// The longest payload of a datagram: that of an IPv4 packet minus the headers.
pub(super) const DATAGRAM_LEN_MAX: usize = 65_507;

/// Datagrams of one send at most (Linux `UDP_MAX_SEGMENTS`).
const SEGMENTS_MAX: usize = 128;

/// Flags of a call that receives. The caller implements `MSG_DONTWAIT` and `MSG_WAITALL`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecvFlags {
    /// `MSG_PEEK`: the data stays in the socket.
    pub peek: bool,
    /// `MSG_TRUNC`: of a stream the bytes are thrown away instead of copied; of a datagram its
    /// whole length is returned.
    pub truncate: bool,
}

/// Flags of a call that sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendFlags {
    /// `MSG_MORE`: more data follows; data that does not fill a segment, or the datagram, waits for
    /// it.
    pub more: bool,
    /// `MSG_ZEROCOPY`: the error queue of a socket with `SO_ZEROCOPY` reports the call's
    /// completion. The bytes are copied, and reported so.
    pub zerocopy: bool,
    /// The caller sends the rest itself if not all bytes are taken: a stamp or completion is then
    /// reported with the last part, or by [`Sockets::end_send`].
    pub resumes: bool,
}

impl Sockets {
    /// `recvmsg` into several parts: returns the number of bytes and, for a datagram, its ancillary
    /// data.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn recv_parts(
        &mut self,
        id: SocketId,
        into: &mut [IoSliceMut<'_>],
        flags: RecvFlags,
        cx: &mut Cx<'_>,
    ) -> Result<(usize, Option<DatagramInfo>), Errno> {
        let socket = self.find(id)?;
        let stream = match &mut socket.state {
            State::Stream(stream) => stream,
            State::Listener(_) => return Err(Errno::ENOTCONN),
            State::Datagram(_) => {
                socket.report_error()?;
                let State::Datagram(datagrams) = &mut socket.state else { return Err(Errno::EOPNOTSUPP) };
                let read = if flags.peek { datagrams.peek_parts(into) } else { datagrams.read_parts(into) };
                return match read {
                    Some((_, info)) if flags.truncate => Ok((info.len, Some(info))),
                    Some((count, info)) => Ok((count, Some(info))),
                    None => Err(datagrams.nothing()),
                };
            }
        };
        if stream.len() == 0 {
            return socket.end_of_stream().map(|count| (count, None));
        }
        let wanted = || into.iter().map(|part| part.len()).sum();
        let count = match (flags.peek, flags.truncate) {
            (true, true) => stream.len().min(wanted()),
            (true, false) => {
                stream.note_first();
                stream.peek_parts(into)
            }
            (false, true) => stream.discard(wanted()),
            (false, false) => into.iter_mut().map(|part| stream.read(part)).sum(),
        };
        if stream.is_paused {
            self.resume_if_read(id, cx)?;
        }
        Ok((count, None))
    }

    /// Makes the machine, which is paused, deliver data again once half of the kept data is read.
    pub(super) fn resume_if_read(&mut self, id: SocketId, cx: &mut Cx<'_>) -> Result<(), Errno> {
        let socket = self.find(id)?;
        let resume_at = socket.options.receive_buffer as usize / 2;
        let State::Stream(stream) = &mut socket.state else { return Ok(()) };
        if stream.is_paused && stream.charge() <= resume_at {
            stream.is_paused = false;
            if let Some(connection) = stream.connection {
                self.has_resumed = true;
                cx.tcp().resume(connection)?;
            }
        }
        Ok(())
    }

    /// `sendmsg` of several parts: returns the number of bytes that were taken. On a datagram
    /// socket the parts make one datagram, to `to` or to its peer; a stream ignores `to`.
    ///
    /// # Errors
    /// As [`send`](Self::send) and [`send_to`](Self::send_to).
    pub fn send_parts(
        &mut self,
        id: SocketId,
        parts: &[IoSlice<'_>],
        to: Option<SocketAddrV4>,
        flags: SendFlags,
        cx: &mut Cx<'_>,
    ) -> Result<usize, Errno> {
        let socket = self.find(id)?;
        if let (State::Stream(stream), [part]) = (&mut socket.state, parts)
            && !(flags.more | flags.zerocopy)
            && socket.error.is_none()
            && stream.sends_at_once(&socket.options)
        {
            return stream.send(part, cx);
        }
        if socket.options.timestamping.stamps_sent() || flags.zerocopy {
            return self.send_reported(id, parts, to, flags, cx);
        }
        self.send_bytes(id, parts, to, flags, cx)
    }

    /// As [`send_parts`](Self::send_parts), with control messages, which a datagram follows instead
    /// of the socket's options. Headers are prepared for this call alone, some 30 ns. A stream
    /// follows none, as on Linux.
    ///
    /// # Errors
    /// As above; `EINVAL`: a source that is not ours, `MSG_MORE` or a cork, or more segments than
    /// 128; `ENODEV`: another interface; `EMSGSIZE`: segments over the MTU.
    pub fn send_controlled(
        &mut self,
        id: SocketId,
        parts: &[IoSlice<'_>],
        to: Option<SocketAddrV4>,
        flags: SendFlags,
        control: &SendControl,
        cx: &mut Cx<'_>,
    ) -> Result<usize, Errno> {
        if control.is_none() || !matches!(self.find(id)?.state, State::Datagram(_)) {
            return self.send_parts(id, parts, to, flags, cx);
        }
        if control.interface_idx != 0 && control.interface_idx != self.system.interface_idx {
            return Err(Errno::ENODEV);
        }
        if control.source.is_some_and(|source| !cx.host.is_own(source)) {
            return Err(Errno::EINVAL);
        }
        self.bind_if_unbound(id, cx)?;
        let socket = self.find(id)?;
        let State::Datagram(datagrams) = &mut socket.state else { return Err(Errno::EINVAL) };
        if datagrams.pending.is_some() {
            // The first call of a corked datagram has said all of it.
            return self.send_parts(id, parts, to, flags, cx);
        }
        if flags.more || socket.options.cork {
            return Err(Errno::EINVAL);
        }
        datagrams.save_flows();
        let (options, local) = (socket.options, socket.local);
        if let Some(ttl) = control.ttl {
            (socket.options.ttl, socket.options.multicast_ttl) = (ttl, ttl);
        }
        socket.options.tos = control.tos.unwrap_or(options.tos);
        if control.segment_len.is_some() && !options.mtu_discover.forbids_fragments() {
            socket.options.mtu_discover = MtuDiscover::Do;
        }
        socket.local.set_ip(control.source.unwrap_or(*local.ip()));
        let sent = match control.segment_len {
            None => self.send_parts(id, parts, to, flags, cx),
            Some(len) => self.send_segments(id, parts, to, flags, len.into(), cx),
        };
        let socket = self.find(id)?;
        (socket.options, socket.local) = (options, local);
        if let State::Datagram(datagrams) = &mut socket.state {
            datagrams.restore_flows();
        }
        sent
    }

    /// Sends datagrams of `len` bytes each, the last one shorter (`UDP_SEGMENT`): none before there
    /// is room for all of them. After that the call fails by the first alone.
    fn send_segments(
        &mut self,
        id: SocketId,
        parts: &[IoSlice<'_>],
        to: Option<SocketAddrV4>,
        flags: SendFlags,
        len: usize,
        cx: &mut Cx<'_>,
    ) -> Result<usize, Errno> {
        let whole = gather(parts)?;
        let (first, rest) = whole.split_at(whole.len().min(len));
        let count = 1 + rest.len().div_ceil(len);
        if count > SEGMENTS_MAX {
            return Err(Errno::EINVAL);
        }
        if cx.tx.room() < count || cx.pool.available() < count {
            self.await_room(id);
            return Err(Errno::EAGAIN);
        }
        self.send_parts(id, &[IoSlice::new(first)], to, flags, cx)?;
        for segment in rest.chunks(len) {
            if self.send_parts(id, &[IoSlice::new(segment)], to, flags, cx).is_err() {
                break;
            }
        }
        Ok(whole.len())
    }

    /// As [`send_parts`](Self::send_parts), without a report.
    pub(super) fn send_bytes(
        &mut self,
        id: SocketId,
        parts: &[IoSlice<'_>],
        to: Option<SocketAddrV4>,
        flags: SendFlags,
        cx: &mut Cx<'_>,
    ) -> Result<usize, Errno> {
        self.bind_if_unbound(id, cx)?;
        let socket = self.find(id)?;
        let waits = flags.more || socket.options.cork;
        match &mut socket.state {
            State::Datagram(datagrams) if waits || datagrams.pending.is_some() => {
                self.append_datagram(id, parts, to, waits, cx)
            }
            State::Datagram(_) => match parts {
                [part] => self.send_datagram(id, part, to, cx),
                _ => {
                    let whole = gather(parts)?;
                    self.send_datagram(id, &whole, to, cx)
                }
            },
            State::Listener(_) => {
                socket.report_error()?;
                Err(Errno::EPIPE)
            }
            State::Stream(stream) => {
                if let Some(error) = socket.error.take() {
                    return Err(error);
                }
                let connection = stream.sends_by()?;
                let low_water = socket.options.unsent_low_water;
                if low_water.is_some() && self.has_enough_unsent(id, cx)? {
                    return Err(Errno::EAGAIN);
                }
                let State::Stream(stream) = &mut self.find(id)?.state else { return Err(Errno::EPIPE) };
                if waits || !stream.pending.is_empty() {
                    return self.append_stream(id, connection, parts, waits, cx);
                }
                if let Some(low_water) = low_water {
                    return self.send_above_low_water(id, connection, parts, low_water, cx);
                }
                let taken = send_gathered(connection, parts, cx);
                let len: usize = parts.iter().map(|part| part.len()).sum();
                if let State::Stream(stream) = &mut self.find(id)?.state {
                    stream.is_writable = len == 0 || taken == Ok(len);
                }
                Ok(taken?)
            }
        }
    }

    fn send_datagram(
        &mut self,
        id: SocketId,
        bytes: &[u8],
        to: Option<SocketAddrV4>,
        cx: &mut Cx<'_>,
    ) -> Result<usize, Errno> {
        match to {
            Some(to) => self.send_whole(id, bytes, to, cx),
            None => self.send(id, bytes, cx),
        }
    }

    /// Bytes that are not sent, or not acknowledged (`SIOCOUTQ`); 0 on a datagram socket, because
    /// the device has them.
    ///
    /// # Errors
    /// `EBADF`; `EINVAL`: a listener.
    pub fn unsent_len(&self, id: SocketId, cx: &mut Cx<'_>) -> Result<usize, Errno> {
        match &self.get(id)?.state {
            State::Datagram(_) => Ok(0),
            State::Listener(_) => Err(Errno::EINVAL),
            State::Stream(stream) => {
                let info = stream.connection.and_then(|connection| cx.tcp().info(connection));
                let len = info.map_or(0, |info| info.unacked_len as usize + info.unsent_len as usize);
                Ok(len + stream.pending.len())
            }
        }
    }

    /// Bytes of a stream that were never sent yet (`SIOCOUTQNSD`); 0 of datagrams.
    ///
    /// # Errors
    /// `EBADF`; `EINVAL`: a listener.
    pub fn never_sent_len(&self, id: SocketId, cx: &mut Cx<'_>) -> Result<usize, Errno> {
        match &self.get(id)?.state {
            State::Datagram(_) => Ok(0),
            State::Listener(_) => Err(Errno::EINVAL),
            State::Stream(stream) => {
                let info = stream.connection.and_then(|connection| cx.tcp().info(connection));
                Ok(info.map_or(0, |info| info.unsent_len as usize) + stream.pending.len())
            }
        }
    }
}

pub(super) fn mss_of(connection: ConnectionId, cx: &mut Cx<'_>) -> usize {
    cx.tcp().info(connection).map_or(1, |info| usize::from(info.snd_mss).max(1))
}

/// Sends parts of a stream as if they were one: short parts share a buffer, so that they do not
/// become separate segments, and each byte is copied once.
fn send_gathered(connection: ConnectionId, parts: &[IoSlice<'_>], cx: &mut Cx<'_>) -> Result<usize, SendError> {
    if let [part] = parts {
        return if part.is_empty() { Ok(0) } else { cx.tcp().send(connection, part) };
    }
    let mss = mss_of(connection, cx);
    let mut left = parts.iter().map(|part| &part[..]).filter(|part| !part.is_empty()).peekable();
    let (mut sent, mut rest): (usize, &[u8]) = (0, &[]);
    let failed = |sent: usize, error| if sent > 0 { Ok(sent) } else { Err(error) };
    loop {
        if rest.is_empty() {
            let Some(next) = left.next() else { return Ok(sent) };
            rest = next;
        }
        // Whole segments of a long part, and all of the last part, are sent without a copy.
        let direct = if left.peek().is_none() { rest.len() } else { rest.len() / mss * mss };
        let mbuf = if direct > 0 { None } else { cx.pool.alloc() };
        let Some(mut mbuf) = mbuf else {
            // Where there is no buffer, the machine takes what its last one has room for, and
            // reports when there is one.
            let direct = if direct > 0 { direct } else { rest.len() };
            match cx.tcp().send(connection, &rest[..direct]) {
                Ok(count) if count < direct => return Ok(sent + count),
                Ok(count) => (sent, rest) = (sent + count, &rest[count..]),
                Err(error) => return failed(sent, error),
            }
            continue;
        };
        let room = mss.min(mbuf.tailroom());
        let mut len = 0;
        while len < room {
            if rest.is_empty() {
                let Some(next) = left.next() else { break };
                rest = next;
            }
            let count = rest.len().min(room - len);
            let Some(into) = mbuf.append(count) else { break };
            into.copy_from_slice(&rest[..count]);
            (len, rest) = (len + count, &rest[count..]);
        }
        if let Err((error, mbuf)) = cx.tcp().send_mbuf(connection, mbuf) {
            // There may be room for a part of it.
            let some = cx.tcp().send(connection, mbuf.bytes());
            mbuf.free();
            return match some {
                Ok(count) => Ok(sent + count),
                Err(_) => failed(sent, error),
            };
        }
        sent += len;
    }
}

/// Joins all parts of a datagram in one piece.
fn gather(parts: &[IoSlice<'_>]) -> Result<Vec<u8>, Errno> {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    if len > DATAGRAM_LEN_MAX {
        return Err(Errno::EMSGSIZE);
    }
    let mut whole = Vec::with_capacity(len);
    parts.iter().for_each(|part| whole.extend_from_slice(part));
    Ok(whole)
}
