//! The error queues, and the stamps of messages: `IP_RECVERR`, `SO_TIMESTAMPING`, `MSG_ZEROCOPY`
//! (Linux `net/ipv4/ip_sockglue.c`, `net/core/skbuff.c`).

use core::net::SocketAddrV4;
use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};

use wirepath::device::{Offload, TxQueue};
use wirepath::forward;
use wirepath::mem::Mbuf;
use wirepath::pipeline::{Cx, IcmpError, TxTime, UdpSent};
use wirepath::proto::Resolution;
use wirepath::time::{Duration, Instant, UnixTime};

use super::message::{DATAGRAM_LEN_MAX, SendFlags};
use super::{SocketId, Sockets};
use crate::errno::{self, Errno, IcmpErrorInfo};
use crate::ready::Ready;
use crate::socket::error_queue::{AwaitedEvent, ErrorQueue, PendingStamps, QueuedError, QueuedPacket, TimestampKind};
use crate::socket::{Socket, State};
use crate::timestamping::{ControlMessage, MessageOf, MessageTimestamps, Timestamping, control_messages};
use crate::wall::Wall;

/// Sockets whose stamps one turn looks for.
const LOOKS_MAX: usize = 64;
/// How long a stamp waits for the next hop of its datagram: longer than any datagram does.
const NEIGHBOR_TIMEOUT: Duration = Duration::from_secs(10);
/// Time between two looks for stamps by the NIC, which no packet announces.
const HARDWARE_PERIOD: Duration = Duration::from_micros(50);
/// Stamps by the NIC that are not there yet, of all sockets together.
const HARDWARE_MAX: usize = 1_024;

/// Stamps of sent messages that are not there yet.
pub(super) struct Stamps {
    /// Sockets with stamps that they await.
    listed: VecDeque<SocketId>,
    /// Messages that the NIC stamps, in the order in which they were sent.
    hardware: VecDeque<NicStampedMessage>,
    next_token: u64,
    /// The wall clock that stamps are by.
    wall: Box<dyn Wall>,
}

/// A message that the NIC stamps.
struct NicStampedMessage {
    token: u64,
    id: SocketId,
    /// Stamps of the message's frames before the one that is reported.
    skip: usize,
    entry: QueuedError,
}

impl Stamps {
    pub(super) fn new() -> Self {
        Self { listed: VecDeque::new(), hardware: VecDeque::new(), next_token: 0, wall: Box::new(()) }
    }

    /// Whether a turn has nothing to look for.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sockets with stamps that they await, and messages that the NIC stamps.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.listed.len() + self.hardware.len()
    }

    /// When a turn looks for stamps that no packet announces.
    pub(super) fn next_deadline(&self, now: Instant) -> Instant {
        if self.hardware.is_empty() { Instant::MAX } else { now + HARDWARE_PERIOD }
    }
}

impl Sockets {
    /// The wall clock by which messages are stamped. By default the worker's time since 1970, for
    /// virtual time.
    pub fn follow_wall(&mut self, wall: impl Wall + 'static) {
        self.stamps.wall = Box::new(wall);
    }

    /// The wall time of an instant of the worker's clock, such as the arrival of a datagram.
    pub fn wall_at(&mut self, instant: Instant) -> UnixTime {
        self.stamps.wall.at(instant)
    }

    /// `recvmsg` with `MSG_ERRQUEUE`: the oldest entry of the error queue, and the number of its
    /// bytes that fit.
    ///
    /// # Errors
    /// `EAGAIN`: the queue is empty. This call never waits.
    pub fn recv_error(&mut self, id: SocketId, into: &mut [IoSliceMut<'_>]) -> Result<(usize, QueuedError), Errno> {
        let socket = self.find(id)?;
        let taken = socket.error_queue.as_mut().and_then(|error_queue| error_queue.pop());
        let (entry, error) = taken.ok_or(Errno::EAGAIN)?;
        if let Some(error) = error {
            socket.error = error;
        }
        let (mut copied, mut left) = (0, &entry.payload[..]);
        for part in into {
            let count = left.len().min(part.len());
            part[..count].copy_from_slice(&left[..count]);
            (copied, left) = (copied + count, &left[count..]);
        }
        if self.find(id)?.has_reports() {
            self.wake_for(id, Ready::ERR);
        }
        Ok((copied, entry))
    }

    /// Adds an entry to the error queue of a socket, as if it had occurred here: for a caller that
    /// sends a part of the socket's messages on another way. Returns false if there is no room.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn push_error(&mut self, id: SocketId, entry: QueuedError) -> Result<bool, Errno> {
        let socket = self.find(id)?;
        let receive_buffer = socket.options.receive_buffer as usize;
        let is_kept = socket.error_queue().push(entry, receive_buffer);
        if is_kept {
            self.wake_for(id, Ready::ERR);
        }
        Ok(is_kept)
    }

    /// The control messages of `recvmsg` that report the times of a received datagram, or of the
    /// bytes of a stream that the last call has read.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn time_messages(
        &mut self,
        id: SocketId,
        datagram: Option<&crate::DatagramInfo>,
    ) -> Result<Vec<ControlMessage>, Errno> {
        let mut messages = Vec::new();
        let interface_idx = self.system.interface_idx;
        let Self { slots, stamps, .. } = self;
        let socket = super::socket_of(slots, id).ok_or(Errno::EBADF)?;
        let (arrived, hardware, of) = match (&socket.state, datagram) {
            (_, Some(info)) => {
                /// Ethernet, IPv4 and UDP headers.
                const HEADERS_LEN: usize = 14 + 20 + 8;
                let frame_len = (info.len + HEADERS_LEN) as u32;
                (info.arrived, info.timestamp, MessageOf::Datagram { interface_idx, frame_len })
            }
            (State::Stream(stream), None) => match stream.last_read {
                Some((arrived, hardware)) => (arrived, hardware, MessageOf::Stream),
                None => return Ok(messages),
            },
            _ => return Ok(messages),
        };
        let options = &socket.options;
        if options.ancillary.timestamp.is_some() || options.timestamping != Timestamping::NONE {
            let times = MessageTimestamps { software: Some(stamps.wall.at(arrived)), hardware };
            control_messages(&times, of, options, &mut messages);
        }
        Ok(messages)
    }

    /// The control messages that report the times of an entry of the error queue.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn error_time_messages(&self, id: SocketId, entry: &QueuedError) -> Result<Vec<ControlMessage>, Errno> {
        let mut messages = Vec::new();
        control_messages(&entry.times, MessageOf::ErrorQueue, &self.get(id)?.options, &mut messages);
        Ok(messages)
    }

    /// Sets `SO_TIMESTAMPING` (Linux `sock_set_timestamping`).
    pub(crate) fn set_timestamping(
        &mut self,
        id: SocketId,
        flags: Timestamping,
        is_new: bool,
        cx: &mut Cx<'_>,
    ) -> Result<(), Errno> {
        let is_unknown = flags.0 & !Timestamping::SUPPORTED.0 != 0;
        if is_unknown || (flags.has(Timestamping::OPT_ID_TCP) && !flags.has(Timestamping::OPT_ID)) {
            return Err(Errno::EINVAL);
        }
        let socket = self.find(id)?;
        if flags.has(Timestamping::OPT_ID) && !socket.options.timestamping.has(Timestamping::OPT_ID) {
            let first = match &socket.state {
                State::Listener(_) => return Err(Errno::EINVAL),
                State::Datagram(_) => None,
                State::Stream(stream) => {
                    let info = stream.connection.and_then(|connection| cx.tcp().info(connection));
                    let info = info.ok_or(Errno::EINVAL)?;
                    Some(match (stream.phase, flags.has(Timestamping::OPT_ID_TCP)) {
                        // The SYN, which is not acknowledged yet, has a number of its own.
                        (crate::socket::stream::Phase::Connecting, false) => -1,
                        (_, false) => info.bytes_acked as i64,
                        (_, true) => {
                            (info.bytes_sent + u64::from(info.unsent_len)) as i64 + stream.pending.len() as i64
                        }
                    })
                }
            };
            let error_queue = socket.error_queue();
            match first {
                Some(first) => error_queue.first_byte = first,
                None => error_queue.next_datagram = 0,
            }
        }
        if flags.has(Timestamping::TX_HARDWARE) {
            // A device without stamps never reports one, as on Linux.
            let _ = cx.enable_timestamps();
        }
        socket.options.timestamping = flags;
        socket.options.ancillary.has_new_times = is_new;
        Ok(())
    }

    /// Sends a datagram of a socket that has stamps or errors reported.
    #[cold]
    pub(super) fn transmit_reported(
        &mut self,
        id: SocketId,
        bytes: &[u8],
        remote: SocketAddrV4,
        cx: &mut Cx<'_>,
    ) -> Result<(), Errno> {
        let Socket { state, local, options, .. } = self.find(id)?;
        let sent = if options.timestamping.stamps_sent() {
            self.send_stamped(id, bytes, remote, cx)
        } else {
            let State::Datagram(datagrams) = state else { return Err(Errno::EISCONN) };
            datagrams.send(*local, remote, bytes, options, cx).map(|_| ())
        };
        let now = cx.now;
        let Socket { state: State::Datagram(datagrams), options, traffic, .. } = self.find(id)? else { return sent };
        if sent.is_ok() {
            traffic.sent(bytes.len(), now);
        }
        if sent == Err(Errno::EMSGSIZE) && options.receive_errors && bytes.len() <= DATAGRAM_LEN_MAX {
            let port = datagrams.remote.map_or(0, |remote| remote.port());
            if let Some(mtu) = datagrams.path_mtu(remote) {
                let entry = QueuedError::too_long(mtu as u32, SocketAddrV4::new(*remote.ip(), port));
                self.push_error(id, entry)?;
            }
        }
        sent
    }

    /// Sends a datagram, and stamps it.
    #[cold]
    pub(super) fn send_stamped(
        &mut self,
        id: SocketId,
        bytes: &[u8],
        remote: SocketAddrV4,
        cx: &mut Cx<'_>,
    ) -> Result<(), Errno> {
        let now = cx.now;
        let token = self.stamps.next_token;
        let Socket { state, local, options, .. } = self.find(id)?;
        let State::Datagram(datagrams) = state else { return Err(Errno::EISCONN) };
        let flags = options.timestamping;
        let keeps_frame = !flags.has(Timestamping::OPT_TSONLY);
        let mut frame = None;
        let mut send = |cx: &mut Cx<'_>| {
            let (tx, rest) = cx.split_tx();
            let mut tx = FirstFrame { tx, keeps: keeps_frame, frame: &mut frame };
            rest.with_tx(&mut tx, |cx| datagrams.send(*local, remote, bytes, options, cx))
        };
        let (sent, frames) =
            if flags.has(Timestamping::TX_HARDWARE) { cx.timestamped(token, send) } else { (send(cx), 0) };
        let sent = sent?;
        let source = datagrams.source_to(remote).map_or(*local.ip(), |source| *source.ip());
        let ttl = if remote.ip().is_multicast() { options.multicast_ttl } else { options.ttl };
        let tos = options.tos;
        let error_queue = self.find(id)?.error_queue();
        let number = if flags.has(Timestamping::OPT_ID) {
            error_queue.next_datagram = error_queue.next_datagram.wrapping_add(1);
            error_queue.next_datagram.wrapping_sub(1)
        } else {
            0
        };
        if sent == UdpSent::Waiting {
            let until = AwaitedEvent::Neighbor(*remote.ip(), now + NEIGHBOR_TIMEOUT);
            self.await_stamps(id, PendingStamps { until, number, flags });
            return Ok(());
        }
        let has_packet = keeps_frame && flags.has(Timestamping::OPT_CMSG);
        let packet = has_packet.then(|| QueuedPacket { source, destination: *remote.ip(), ttl, tos });
        let payload = frame.unwrap_or_default().into_boxed_slice();
        let offender = packet.map(|packet| packet.source);
        let entry = QueuedError {
            payload,
            packet,
            offender,
            ..QueuedError::stamp(TimestampKind::Sent, number, MessageTimestamps::default())
        };
        if frames > 0 {
            // The first frame stands for the datagram, as on Linux.
            self.ask_hardware(NicStampedMessage { token, id, skip: 0, entry: entry.clone() });
        }
        self.push_sent_stamps(id, &entry, flags, frames > 0, now);
        Ok(())
    }

    /// Reports a message that was given to the device: its entry in the queue of the device, and
    /// its way out of it.
    fn push_sent_stamps(
        &mut self,
        id: SocketId,
        entry: &QueuedError,
        flags: Timestamping,
        has_hardware: bool,
        now: Instant,
    ) {
        let times = MessageTimestamps { software: Some(self.wall_at(now)), hardware: None };
        if flags.has(Timestamping::TX_SCHED) {
            let _ = self.push_error(id, QueuedError { info: TimestampKind::Queued as u32, times, ..entry.clone() });
        }
        if flags.has(Timestamping::TX_SOFTWARE) && (!has_hardware || flags.has(Timestamping::OPT_TX_SWHW)) {
            let _ = self.push_error(id, QueuedError { times, ..entry.clone() });
        }
    }

    fn ask_hardware(&mut self, asked: NicStampedMessage) {
        if self.stamps.hardware.len() == HARDWARE_MAX {
            self.stamps.hardware.pop_front();
        }
        self.stamps.next_token += 1;
        self.stamps.hardware.push_back(asked);
    }

    fn await_stamps(&mut self, id: SocketId, awaited: PendingStamps) {
        let Ok(socket) = self.find(id) else { return };
        let error_queue = socket.error_queue();
        error_queue.await_stamps(awaited);
        if !core::mem::replace(&mut error_queue.is_listed, true) {
            self.stamps.listed.push_back(id);
        }
    }

    /// Sends bytes of a socket that asks for stamps or completions.
    #[cold]
    pub(super) fn send_reported(
        &mut self,
        id: SocketId,
        parts: &[IoSlice<'_>],
        to: Option<SocketAddrV4>,
        flags: SendFlags,
        cx: &mut Cx<'_>,
    ) -> Result<usize, Errno> {
        let socket = self.find(id)?;
        let is_stream = !matches!(socket.state, State::Datagram(_));
        let has_hardware = is_stream && socket.options.timestamping.has(Timestamping::TX_HARDWARE);
        let token = self.stamps.next_token;
        let (sent, frames) = if has_hardware {
            cx.timestamped(token, |cx| self.send_bytes(id, parts, to, flags, cx))
        } else {
            (self.send_bytes(id, parts, to, flags, cx), 0)
        };
        let sent = sent?;
        let len: usize = parts.iter().map(|part| part.len()).sum();
        if sent > 0 && (sent == len || !flags.resumes) {
            self.finish_send(id, flags, frames, cx)?;
        }
        Ok(sent)
    }

    /// Reports a call that has sent a part of its bytes, and ends with that: for a caller that has
    /// repeated it (`SendFlags::resumes`).
    ///
    /// # Errors
    /// `EBADF`.
    pub fn end_send(&mut self, id: SocketId, flags: SendFlags, cx: &mut Cx<'_>) -> Result<(), Errno> {
        let options = &self.find(id)?.options;
        if options.timestamping.stamps_sent() || (flags.zerocopy && options.zerocopy) {
            return self.finish_send(id, flags, 0, cx);
        }
        Ok(())
    }

    /// The end of a call that has sent bytes: completes `MSG_ZEROCOPY`, because they are copied,
    /// and has the last byte of a stream stamped (Linux `tcp_tx_timestamp`).
    fn finish_send(&mut self, id: SocketId, flags: SendFlags, frames: usize, cx: &mut Cx<'_>) -> Result<(), Errno> {
        let socket = self.find(id)?;
        if flags.zerocopy && socket.options.zerocopy {
            let receive_buffer = socket.options.receive_buffer as usize;
            if socket.error_queue().complete(receive_buffer) {
                self.wake_for(id, Ready::ERR);
            }
        }
        let socket = self.find(id)?;
        let wanted = socket.options.timestamping;
        let State::Stream(stream) = &socket.state else { return Ok(()) };
        let info = stream.connection.and_then(|connection| cx.tcp().info(connection));
        let Some(info) = info.filter(|_| wanted.stamps_sent()) else { return Ok(()) };
        let end = info.bytes_sent + u64::from(info.unsent_len) + stream.pending.len() as u64;
        let error_queue = socket.error_queue();
        let number =
            if wanted.has(Timestamping::OPT_ID) { (end as i64 - error_queue.first_byte - 1) as u32 } else { 0 };
        let has_hardware = frames > 0 && info.bytes_sent == end;
        if frames > 0 {
            // The last of the frames has the last byte, if that one has left.
            let token = self.stamps.next_token;
            let skip = if has_hardware { frames - 1 } else { usize::MAX };
            let entry = QueuedError::stamp(TimestampKind::Sent, number, MessageTimestamps::default());
            self.ask_hardware(NicStampedMessage { token, id, skip, entry });
        }
        let mut flags = wanted;
        if has_hardware && !wanted.has(Timestamping::OPT_TX_SWHW) {
            flags.0 &= !Timestamping::TX_SOFTWARE.0;
        }
        self.await_stamps(id, PendingStamps { until: AwaitedEvent::Byte(end), number, flags });
        self.settle_stamps_of(id, cx);
        Ok(())
    }

    /// Reports the stamps that this turn has made known.
    #[cold]
    pub(super) fn settle_stamps(&mut self, cx: &mut Cx<'_>) {
        for _ in 0..self.stamps.listed.len().min(LOOKS_MAX) {
            let Some(id) = self.stamps.listed.pop_front() else { break };
            self.settle_stamps_of(id, cx);
            let Ok(socket) = self.find(id) else { continue };
            let error_queue = socket.error_queue();
            error_queue.is_listed = !error_queue.awaited.is_empty();
            if error_queue.is_listed {
                self.stamps.listed.push_back(id);
            }
        }
        while let Some(TxTime { token, at }) = cx.take_timestamp() {
            self.settle_hardware(token, at);
        }
    }

    fn settle_hardware(&mut self, token: u64, at: UnixTime) {
        // Stamps come in the order of the messages: earlier ones were lost.
        while self.stamps.hardware.front().is_some_and(|asked| asked.token < token) {
            self.stamps.hardware.pop_front();
        }
        let Some(asked) = self.stamps.hardware.front_mut().filter(|asked| asked.token == token) else { return };
        if asked.skip > 0 {
            asked.skip -= 1;
            return;
        }
        if let Some(NicStampedMessage { id, entry, .. }) = self.stamps.hardware.pop_front() {
            let times = MessageTimestamps { software: None, hardware: Some(at) };
            // An error means that the socket is closed.
            let _ = self.push_error(id, QueuedError { times, ..entry });
        }
    }

    fn settle_stamps_of(&mut self, id: SocketId, cx: &mut Cx<'_>) {
        let Ok(socket) = self.find(id) else { return };
        let info = match &socket.state {
            State::Stream(stream) => stream.connection.and_then(|connection| cx.tcp().info(connection)),
            State::Datagram(_) | State::Listener(_) => None,
        };
        let mut found: Vec<(QueuedError, Timestamping)> = Vec::new();
        let mut acknowledged = Vec::new();
        let error_queue = socket.error_queue();
        for awaited in &mut error_queue.awaited {
            let (is_sent, is_acked) = match (awaited.until, &info) {
                (AwaitedEvent::Byte(end), Some(info)) => (info.bytes_sent >= end, info.bytes_acked >= end),
                (AwaitedEvent::Neighbor(remote, _), _) => {
                    (matches!(cx.host.resolve(remote, cx.now), Resolution::Station { .. }), false)
                }
                // The connection has ended.
                (AwaitedEvent::Byte(_), None) => (false, false),
            };
            let sent = Timestamping(awaited.flags.0 & (Timestamping::TX_SCHED | Timestamping::TX_SOFTWARE).0);
            let entry = QueuedError::stamp(TimestampKind::Sent, awaited.number, MessageTimestamps::default());
            if is_sent && sent != Timestamping::NONE {
                awaited.flags.0 &= !sent.0;
                found.push((entry.clone(), sent));
            }
            if is_acked && awaited.flags.has(Timestamping::TX_ACK) {
                awaited.flags.0 &= !Timestamping::TX_ACK.0;
                acknowledged.push(awaited.number);
            }
        }
        let now = cx.now;
        let is_over = info.is_none();
        let awaits = Timestamping::TX_SCHED | Timestamping::TX_SOFTWARE;
        error_queue.awaited.retain(|awaited| match awaited.until {
            AwaitedEvent::Byte(_) => !is_over && awaited.flags.has(awaits | Timestamping::TX_ACK),
            AwaitedEvent::Neighbor(_, until) => now < until && awaited.flags.has(awaits),
        });
        for (entry, flags) in found {
            self.push_sent_stamps(id, &entry, flags, false, now);
        }
        for number in acknowledged {
            let times = MessageTimestamps { software: Some(self.wall_at(now)), hardware: None };
            let _ = self.push_error(id, QueuedError::stamp(TimestampKind::Acknowledged, number, times));
        }
    }
}

impl Socket {
    /// The state of errors and stamps, made at the first use.
    pub(crate) fn error_queue(&mut self) -> &mut ErrorQueue {
        self.error_queue.get_or_insert_default()
    }

    /// Adds an ICMP error to the error queue, unless that is full.
    pub(super) fn keep_icmp_error(&mut self, error: &IcmpError<'_>) {
        let IcmpErrorInfo { errno, kind, code, info, .. } = errno::of_icmp(error.kind);
        let entry = QueuedError::icmp(errno, (kind, code), error.reporter, error.flow.remote);
        let (source, destination) = (error.reporter, *error.flow.local.ip());
        let packet = Some(QueuedPacket { source, destination, ttl: error.ttl, tos: error.tos });
        let payload = error.quoted.into();
        let receive_buffer = self.options.receive_buffer as usize;
        self.error_queue().push(QueuedError { info, payload, packet, ..entry }, receive_buffer);
    }

    /// Whether the error queue has entries.
    pub(crate) fn has_reports(&self) -> bool {
        self.error_queue.as_ref().is_some_and(|error_queue| !error_queue.is_empty())
    }
}

/// The device, which keeps a copy of the first frame that a call posts.
struct FirstFrame<'a> {
    tx: &'a mut dyn TxQueue,
    keeps: bool,
    frame: &'a mut Option<Vec<u8>>,
}

impl TxQueue for FirstFrame<'_> {
    fn post(&mut self, mbuf: Mbuf, offload: Offload) -> Result<(), Mbuf> {
        let frame = (self.keeps && self.frame.is_none()).then(|| mbuf.segments().collect::<Vec<_>>().concat());
        self.tx.post(mbuf, offload)?;
        if frame.is_some() {
            *self.frame = frame;
        }
        Ok(())
    }

    // What leaves without `post` is not kept, and a call takes no timestamps.
    forward!(
        tx: post_unmarked, dry_run, ring_doorbell, reap, room, in_flight, has_timestamps, refresh_counters;
        by_default: post_urgent, post_burst, prepost, preposted, fire_preposted, take_timestamp
    );
}
