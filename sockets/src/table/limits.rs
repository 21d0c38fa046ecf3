//! What waits: by an option, a stream until few of its bytes are unsent (`TCP_NOTSENT_LOWAT`), and
//! an accepted connection for its first data (`TCP_DEFER_ACCEPT`); a datagram socket for room.

use std::io::IoSlice;

use wirepath::pipeline::Cx;
use wirepath::pipeline::tcp::ConnectionId;
use wirepath::time::{Duration, Instant};

use super::message::mss_of;
use super::{SocketId, Sockets};
use crate::errno::Errno;
use crate::ready::Ready;
use crate::socket::listener::Listener;
use crate::socket::stream::Stream;
use crate::socket::{Socket, State};

/// Throttled streams that a turn looks at: of each it reads the connection, some 50 ns.
const LOOKS_MAX: usize = 16;

/// The time from one look for room to the next, for datagram sockets that wait for it.
const STARVED_LOOK: Duration = Duration::from_millis(1);

/// Segments that a stream takes below its low water, although they exceed it.
const SEGMENTS_AT_LEAST: usize = 4;

impl Sockets {
    /// Sends bytes of a stream until `low_water` are unsent (Linux `sk_stream_memory_free`). While
    /// fewer are, some whole segments are taken, as Linux takes a whole `sk_buff`: otherwise a
    /// small low water would cut the bytes into small segments.
    pub(super) fn send_above_low_water(
        &mut self,
        id: SocketId,
        connection: ConnectionId,
        parts: &[IoSlice<'_>],
        low_water: u32,
        cx: &mut Cx<'_>,
    ) -> Result<usize, Errno> {
        let at_least = SEGMENTS_AT_LEAST * mss_of(connection, cx);
        let mut sent = 0;
        let mut has_room = true;
        'parts: for part in parts {
            let mut rest = &part[..];
            while !rest.is_empty() {
                let room = low_water.saturating_sub(unsent(connection, cx)) as usize;
                if room == 0 {
                    self.throttle(id)?;
                    return if sent > 0 { Ok(sent) } else { Err(Errno::EAGAIN) };
                }
                let piece = &rest[..rest.len().min(room.max(at_least))];
                match cx.tcp().send(connection, piece) {
                    Ok(taken) => {
                        (sent, rest) = (sent + taken, &rest[taken..]);
                        has_room = taken == piece.len();
                    }
                    Err(_) if sent > 0 => has_room = false,
                    Err(error) => {
                        if let State::Stream(stream) = &mut self.find(id)?.state {
                            stream.is_writable = false;
                        }
                        return Err(error.into());
                    }
                }
                if !has_room {
                    break 'parts;
                }
            }
        }
        if let State::Stream(stream) = &mut self.find(id)?.state {
            stream.is_writable = has_room;
        }
        if is_above(connection, low_water, cx) {
            self.throttle(id)?;
        }
        Ok(sent)
    }

    /// Whether a stream takes no bytes now, because enough of them are unsent. It becomes writable
    /// once they are few. Corked bytes do not count: further ones fill their segment, as Linux
    /// fills its last `sk_buff` without a look at the limit. Nothing but those would have them
    /// leave.
    pub(super) fn has_enough_unsent(&mut self, id: SocketId, cx: &mut Cx<'_>) -> Result<bool, Errno> {
        let socket = self.find(id)?;
        let (State::Stream(stream), Some(low_water)) = (&socket.state, socket.options.unsent_low_water) else {
            return Ok(false);
        };
        let has = stream.connection.is_some_and(|connection| unsent(connection, cx) >= low_water);
        if has {
            self.throttle(id)?;
        }
        Ok(has)
    }

    fn throttle(&mut self, id: SocketId) -> Result<(), Errno> {
        let State::Stream(stream) = &mut self.find(id)?.state else { return Ok(()) };
        stream.is_writable = false;
        if !core::mem::replace(&mut stream.is_throttled, true) {
            self.throttled.push_back(id);
        }
        Ok(())
    }

    /// Frames have come, or a low water has changed: throttled streams may be writable, and the
    /// worker does not sleep before it has looked at each.
    #[inline]
    pub(crate) fn look_at_throttled(&mut self) {
        self.throttled_looks = self.throttled.len();
    }

    /// A send of this socket has found no room: a turn that finds some says so, as Linux does when
    /// its buffers are free again (`sock_def_write_space`). An edge-triggered program waits for it.
    #[cold]
    pub(super) fn await_room(&mut self, id: SocketId) {
        if !self.starved.contains(&id) {
            self.starved.push(id);
        }
    }

    /// Tells the sockets that wait for room, if there is some: for one datagram at least.
    #[cold]
    pub(super) fn feed_starved(&mut self, cx: &mut Cx<'_>) {
        if cx.tx.room() > 0 && cx.pool.available() > 0 {
            for id in core::mem::take(&mut self.starved) {
                self.wake_for(id, Ready::OUT);
            }
        }
    }

    /// When the next look for room is due.
    pub(super) fn starved_at(&self, now: Instant) -> Instant {
        if self.starved.is_empty() { Instant::MAX } else { now + STARVED_LOOK }
    }

    /// When the next look at the throttled streams is due.
    pub(super) fn throttled_at(&self, now: Instant) -> Instant {
        if self.throttled_looks > 0 { now } else { Instant::MAX }
    }

    /// Makes the throttled streams writable of which less than half of the low water is unsent. A
    /// turn looks at a few of them, and the next one at the next few.
    pub(super) fn release_throttled(&mut self, cx: &mut Cx<'_>) {
        self.throttled_looks = self.throttled_looks.saturating_sub(LOOKS_MAX);
        for _ in 0..self.throttled.len().min(LOOKS_MAX) {
            let Some(id) = self.throttled.pop_front() else { return };
            let waits = match self.find(id) {
                Ok(Socket { state: State::Stream(stream), options, .. }) => match stream.connection {
                    Some(connection) => options.unsent_low_water.is_some_and(|low| is_above(connection, low, cx)),
                    None => false,
                },
                _ => false,
            };
            if waits {
                self.throttled.push_back(id);
                continue;
            }
            if let Ok(Socket { state: State::Stream(stream), .. }) = self.find(id) {
                (stream.is_throttled, stream.is_writable) = (false, true);
                self.wake_for(id, Ready::OUT);
            }
        }
    }

    /// Keeps a connection back until its first data, or until `until`.
    pub(super) fn defer(&mut self, listener: SocketId, id: SocketId, until: Instant) {
        if let Ok(Socket { state: State::Stream(stream), .. }) = self.find(id) {
            stream.deferred_by = Some(listener);
        }
        if let Ok(Socket { state: State::Listener(listener), .. }) = self.find(listener) {
            listener.deferred.push((until, id));
            self.deferred += 1;
            self.overdue_at = self.overdue_at.min(until);
        }
    }

    /// The first data of a connection has come, or its end: it can be accepted.
    pub(super) fn accept_deferred(&mut self, id: SocketId) {
        let Ok(Socket { state: State::Stream(stream), .. }) = self.find(id) else { return };
        let Some(at) = stream.deferred_by.take() else { return };
        let Ok(Socket { state: State::Listener(listener), .. }) = self.find(at) else { return };
        listener.deferred.retain(|(_, other)| *other != id);
        listener.push(id);
        self.deferred -= 1;
        self.wake_for(at, Ready::IN);
    }

    /// Gives out the connections whose first data has not come in time.
    pub(super) fn accept_overdue(&mut self, now: Instant) {
        if now < self.overdue_at {
            return;
        }
        let due: Vec<SocketId> = self.deferrals().filter(|(until, _)| *until <= now).map(|(_, id)| id).collect();
        due.into_iter().for_each(|id| self.accept_deferred(id));
        self.overdue_at = self.deferrals().map(|(until, _)| until).min().unwrap_or(Instant::MAX);
    }

    /// When the next of them is given out, or an earlier time.
    pub(super) fn accepts_overdue_at(&self) -> Instant {
        if self.deferred == 0 { Instant::MAX } else { self.overdue_at }
    }

    fn deferrals(&self) -> impl Iterator<Item = (Instant, SocketId)> {
        let listeners = self.listeners.iter().filter_map(|(_, id)| match &self.get(*id).ok()?.state {
            State::Listener(Listener { deferred, .. }) => Some(deferred),
            State::Stream(_) | State::Datagram(_) => None,
        });
        listeners.flatten().copied()
    }

    /// Ends a stream's connection, or a listener, and returns it to its state after `bind` (Linux
    /// `tcp_disconnect`).
    pub(super) fn disconnect_stream(&mut self, id: SocketId, cx: &mut Cx<'_>) -> Result<(), Errno> {
        match self.take_connection(id) {
            Some(State::Listener(listener)) => self.end_listener(listener, cx),
            Some(State::Stream(Stream { connection: Some(connection), .. })) => {
                use wirepath::pipeline::tcp::State as TcpState;
                let state = cx.tcp().info(connection).map(|info| info.state);
                self.detach(connection);
                self.refuse(connection, cx);
                let is_over = [TcpState::Closing, TcpState::LastAck, TcpState::TimeWait, TcpState::Closed];
                if state.is_some_and(|state| !is_over.contains(&state)) {
                    self.find(id)?.error = Some(Errno::ECONNRESET);
                }
            }
            _ => (),
        }
        self.wake(id);
        Ok(())
    }
}

/// Bytes that have never been sent.
fn unsent(connection: ConnectionId, cx: &mut Cx<'_>) -> u32 {
    cx.tcp().info(connection).map_or(0, |info| info.unsent_len)
}

/// Whether a stream stays unwritable: at least half of `low_water` is unsent (Linux
/// `__sk_stream_is_writeable`).
fn is_above(connection: ConnectionId, low_water: u32, cx: &mut Cx<'_>) -> bool {
    u64::from(unsent(connection, cx)) * 2 >= u64::from(low_water)
}
