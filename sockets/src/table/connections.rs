//! From a fresh stream to a connection or a listener, and back: `connect`, `listen`, `accept`,
//! `shutdown`, and the end of each.

use core::net::SocketAddrV4;

use wirepath::pipeline::Cx;
use wirepath::pipeline::tcp::{ConnectionId, ConnectionOptions, ListenOptions, ListenerId};
use wirepath::worker::live::FlowSpec;

use super::{NONE, SocketId, Sockets};
use crate::errno::Errno;
use crate::options::Shutdown;
use crate::ready::Ready;
use crate::socket::listener::Listener;
use crate::socket::stream::{Phase, SocketState, Stream};
use crate::socket::{Socket, State};
use crate::steering::{flow_from, flows_to};

impl Sockets {
    /// `connect`. On a stream it begins the handshake and returns `EINPROGRESS`, then `EALREADY`
    /// until the handshake ends, 0 once it is done, and `EISCONN` from then on.
    ///
    /// # Errors
    /// As above, and the reason why there is no path to the peer.
    pub fn connect(&mut self, id: SocketId, remote: SocketAddrV4, cx: &mut Cx<'_>) -> Result<(), Errno> {
        let socket = self.find(id)?;
        match &mut socket.state {
            State::Listener(_) => Err(Errno::EISCONN),
            State::Datagram(_) => self.connect_datagrams(id, remote, cx),
            State::Stream(stream) => match (stream.socket_state, stream.phase) {
                (SocketState::Connected, _) => Err(Errno::EISCONN),
                (SocketState::Disconnecting, _) => Err(Errno::EINVAL),
                (SocketState::Unconnected, _) => self.connect_stream(id, remote, cx),
                (SocketState::Connecting, Phase::Connecting) => Err(Errno::EALREADY),
                (SocketState::Connecting, Phase::Open) => {
                    stream.socket_state = SocketState::Connected;
                    Ok(())
                }
                (SocketState::Connecting, Phase::Closed) => {
                    let error = socket.error.take().unwrap_or(Errno::ECONNABORTED);
                    self.take_connection(id);
                    Err(error)
                }
            },
        }
    }

    /// The result of a handshake that a caller waits for: as [`connect`](Self::connect), and begins
    /// no other one where somebody has disconnected the socket meanwhile.
    ///
    /// # Errors
    /// As those; `ECONNRESET`: it was disconnected.
    pub fn connected(&mut self, id: SocketId, remote: SocketAddrV4, cx: &mut Cx<'_>) -> Result<(), Errno> {
        let socket = self.find(id)?;
        match &socket.state {
            State::Stream(Stream { socket_state: SocketState::Unconnected, .. }) => {
                Err(socket.error.take().unwrap_or(Errno::ECONNABORTED))
            }
            _ => self.connect(id, remote, cx),
        }
    }

    /// `listen`. An unbound socket gets a free port.
    ///
    /// # Errors
    /// `EADDRINUSE`; `EINVAL`: connected; `EOPNOTSUPP`: a datagram socket.
    pub fn listen(&mut self, id: SocketId, backlog: usize, cx: &mut Cx<'_>) -> Result<(), Errno> {
        let socket = self.find(id)?;
        let shut = match &mut socket.state {
            State::Datagram(_) => return Err(Errno::EOPNOTSUPP),
            State::Listener(listener) => {
                listener.set_backlog(backlog);
                return Ok(cx.tcp().set_backlog(listener.id, handshakes_max(backlog))?);
            }
            State::Stream(stream)
                if stream.phase != Phase::Closed || stream.socket_state != SocketState::Unconnected =>
            {
                return Err(Errno::EINVAL);
            }
            State::Stream(stream) => (stream.is_read_shut, stream.is_write_shut),
        };
        let options = ListenOptions {
            backlog: handshakes_max(backlog),
            connections_per_source: None,
            connection: socket.options.of_connection(),
            consumer: id.consumer(),
            reuse_port: socket.options.reuse_port,
            ..ListenOptions::default()
        };
        let (local, listener) = listen_at(socket.local, &options, cx)?;
        socket.state = State::Listener(Listener::new(listener, shut, backlog));
        socket.local = local;
        self.listeners.push((listener, id));
        let flows = flows_to(local, cx.host, FlowSpec::tcp);
        let needed = self.need(id, flows.clone(), cx);
        needed.inspect_err(|_| self.unlisten(id, cx))?;
        self.flows.begin_to_listen(&flows);
        self.wake(id);
        Ok(())
    }

    /// `accept`: a connection whose handshake is done, and its peer.
    ///
    /// # Errors
    /// `EAGAIN`: none waits; `EINVAL`: not listening. `EACCES`, `EADDRINUSE`, once: a broker has
    /// taken its flow back.
    pub fn accept(&mut self, id: SocketId) -> Result<(SocketId, SocketAddrV4), Errno> {
        let Socket { state: State::Listener(listener), error, .. } = self.find(id)? else { return Err(Errno::EINVAL) };
        let accepted = listener.pop().ok_or_else(|| error.take().unwrap_or(Errno::EAGAIN))?;
        let State::Stream(stream) = &self.find(accepted)?.state else { return Err(Errno::EINVAL) };
        Ok((accepted, stream.remote))
    }

    /// `shutdown`. Wakes callers that wait in the closed direction.
    ///
    /// # Errors
    /// `ENOTCONN`.
    pub fn shutdown(&mut self, id: SocketId, how: Shutdown, cx: &mut Cx<'_>) -> Result<(), Errno> {
        match &mut self.find(id)?.state {
            State::Listener(_) => {
                if how.reads() {
                    self.unlisten(id, cx);
                }
            }
            State::Datagram(datagrams) => {
                let connected = datagrams.remote.is_some();
                datagrams.is_read_shut |= how.reads();
                datagrams.is_write_shut |= how.writes();
                if !connected {
                    // Linux shuts the direction and returns this error nevertheless.
                    self.wake(id);
                    return Err(Errno::ENOTCONN);
                }
            }
            State::Stream(stream) if stream.phase == Phase::Connecting => self.hang_up(id, Errno::ECONNRESET, cx),
            State::Stream(stream) => {
                // Of one that was shut before it connected the end leaves now, as on Linux.
                let sends = stream.phase == Phase::Open && !stream.sends_fin && how.writes();
                let (phase, connection) = (stream.phase, stream.connection);
                if stream.socket_state == SocketState::Connecting {
                    stream.socket_state =
                        if phase == Phase::Open { SocketState::Connected } else { SocketState::Disconnecting };
                }
                stream.is_read_shut |= how.reads();
                stream.is_write_shut |= how.writes();
                if sends && let Some(connection) = connection {
                    stream.send_fin(connection, cx)?;
                }
                if phase == Phase::Closed {
                    // Linux shuts the direction and returns this error nevertheless.
                    self.wake(id);
                    return Err(Errno::ENOTCONN);
                }
            }
        }
        self.wake(id);
        Ok(())
    }

    /// Whether a stream with the default options that is bound to `local` could connect to `remote`
    /// now: no earlier connection still has both ends.
    pub fn is_free(local: SocketAddrV4, remote: SocketAddrV4, cx: &mut Cx<'_>) -> bool {
        cx.tcp().is_free(local, remote, &ConnectionOptions::default())
    }

    pub(super) fn connect_stream(&mut self, id: SocketId, remote: SocketAddrV4, cx: &mut Cx<'_>) -> Result<(), Errno> {
        let socket = self.find(id)?;
        let options = socket.options.of_connection();
        if let Some(error) = self.lost {
            return Err(error);
        }
        let socket = self.find(id)?;
        let connection = cx.tcp().connect(socket.local, remote, &options, id.consumer())?;
        if let Some(info) = cx.tcp().info(connection) {
            socket.local = info.local;
        }
        let local = socket.local;
        // Linux `tcp_connect_init`: the error of an earlier connection is no more.
        socket.error = None;
        if let State::Stream(stream) = &mut socket.state {
            stream.call(connection, remote);
        }
        self.attach(connection, id);
        // Steers the answers to the worker before the SYN leaves, which is when the call returns.
        if let Err(error) = self.need(id, vec![flow_from(remote, local)], cx) {
            self.by_connection[connection.slot()] = NONE;
            self.refuse(connection, cx);
            self.take_connection(id);
            return Err(error);
        }
        Err(Errno::EINPROGRESS)
    }

    pub(super) fn attach(&mut self, connection: ConnectionId, id: SocketId) {
        let place = connection.slot();
        if place >= self.by_connection.len() {
            self.by_connection.resize(place + 1, NONE);
        }
        self.by_connection[place] = id.slot;
    }

    /// Resets the connection of an open socket, and sets its `SO_ERROR` to `error`.
    pub(super) fn hang_up(&mut self, id: SocketId, error: Errno, cx: &mut Cx<'_>) {
        let Ok(socket) = self.find(id) else { return };
        socket.error = Some(error);
        socket.keep_traffic(cx);
        let State::Stream(stream) = &mut socket.state else { return };
        let connection = stream.connection;
        match stream.phase {
            Phase::Connecting => _ = self.take_connection(id),
            Phase::Open | Phase::Closed => stream.end(),
        }
        if let Some(connection) = connection {
            self.by_connection[connection.slot()] = NONE;
            self.refuse(connection, cx);
        }
        self.wake(id);
    }

    /// The socket of a connection, if it is open.
    pub(super) fn stream_of(&mut self, connection: ConnectionId) -> Option<(SocketId, &mut Socket)> {
        let slot = *self.by_connection.get(connection.slot())?;
        let place = self.slots.get_mut(slot as usize)?;
        let id = SocketId { slot, generation: place.generation };
        let socket = place.socket.as_mut()?;
        match &socket.state {
            State::Stream(stream) if stream.connection == Some(connection) => Some((id, socket)),
            _ => None,
        }
    }

    /// A listener's connection has finished its handshake.
    pub(super) fn enqueue(&mut self, connection: ConnectionId, listener: ListenerId, cx: &mut Cx<'_>) {
        let at = self.listeners.iter().find(|(other, _)| *other == listener).map(|(_, id)| *id);
        let info = cx.tcp().info(connection);
        let (Some(at), Some(info)) = (at, info) else { return self.refuse(connection, cx) };
        let Ok(Socket { state: State::Listener(Listener { shut, .. }), options, raw, flows, .. }) = self.get(at) else {
            return self.refuse(connection, cx);
        };
        let (options, raw, flows, shut) = (*options, *raw, flows.clone(), *shut);
        let mut stream = Stream::accepted(connection, info.remote);
        (stream.is_read_shut, stream.is_write_shut) = shut;
        if stream.is_write_shut {
            stream.sends_fin = true;
            let _ = cx.tcp().shutdown(connection);
        }
        let mut socket = Socket::new(State::Stream(stream), options);
        (socket.local, socket.raw) = (info.local, raw);
        if cx.tcp().options(connection) != Some(options.of_connection()) {
            // Applies options that were changed during the handshake. This fails only if the
            // connection is gone.
            let _ = cx.tcp().set_options(connection, &options.of_connection());
        }
        let Ok(id) = self.insert(socket) else { return self.refuse(connection, cx) };
        // The listener has these flows installed already: now one more socket needs them.
        let _ = self.need(id, flows, cx);
        self.attach(connection, id);
        if let Some(span) = raw.defers_for() {
            return self.defer(at, id, cx.now + span);
        }
        if let Ok(Socket { state: State::Listener(listener), .. }) = self.find(at) {
            listener.push(id);
        }
        self.wake_for(at, Ready::IN);
    }

    /// A connection belongs to no socket any more.
    pub(super) fn detach(&mut self, connection: ConnectionId) {
        if let Some(slot) = self.by_connection.get_mut(connection.slot()) {
            *slot = NONE;
        }
    }

    /// Resets a connection for which there is no socket.
    pub(super) fn refuse(&mut self, connection: ConnectionId, cx: &mut Cx<'_>) {
        let _ = cx.tcp().abort(connection);
    }

    /// `shutdown` of a listener.
    pub(super) fn unlisten(&mut self, id: SocketId, cx: &mut Cx<'_>) {
        self.hand_on(id, cx);
        if let Some(State::Listener(listener)) = self.take_connection(id) {
            self.end_listener(listener, cx);
        }
    }

    /// A listener is about to be closed that another process opens again: who begins to connect
    /// meanwhile is not refused, and tries again a second later.
    ///
    /// # Errors
    /// `EINVAL`: it does not listen.
    pub fn silence_syns(&mut self, id: SocketId, cx: &mut Cx<'_>) -> Result<(), Errno> {
        let State::Listener(listener) = &self.get(id)?.state else { return Err(Errno::EINVAL) };
        cx.tcp().silence_syns(listener.id);
        Ok(())
    }

    /// A listener is about to end: connections that nobody has accepted go to another listener of
    /// the same address, of this process or of another one. A process that closes its descriptor of
    /// a listener that others share loses none on Linux, because the queue is theirs as well; with
    /// `tcp_migrate_req` those of a group go on, too.
    pub(super) fn hand_on(&mut self, id: SocketId, cx: &mut Cx<'_>) {
        let Ok(Socket { state: State::Listener(listener), local, .. }) = self.find(id) else { return };
        let (name, local) = (listener.id, *local);
        let sharer = self.listeners.iter().copied().find(|(_, other)| {
            let is_same = self.get(*other).is_ok_and(|socket| socket.local == local);
            *other != id && is_same
        });
        if sharer.is_none() && !self.flows.hands_over() {
            return;
        }
        let Ok(Socket { state: State::Listener(listener), .. }) = self.find(id) else { return };
        let (waiting, deferred) = listener.take_all();
        self.deferred -= deferred;
        for accepted in waiting {
            match sharer {
                Some((_, sharer)) => self.give_to(sharer, accepted),
                None => self.hand_over(id, accepted, cx),
            }
        }
        match sharer {
            Some((sharer, _)) => cx.tcp().move_handshakes(name, sharer),
            None => cx.tcp().hand_over_handshakes(name),
        }
    }

    fn give_to(&mut self, listener: SocketId, accepted: SocketId) {
        if let Ok(Socket { state: State::Stream(stream), .. }) = self.find(accepted) {
            stream.deferred_by = None;
        }
        if let Ok(Socket { state: State::Listener(listener), .. }) = self.find(listener) {
            listener.push(accepted);
        }
        self.wake_for(listener, Ready::IN);
    }

    /// Hands a connection over to another process; one that cannot go stays in the queue.
    fn hand_over(&mut self, listener: SocketId, accepted: SocketId, cx: &mut Cx<'_>) {
        let mut is_gone = false;
        if let Ok(Socket { state: State::Stream(stream), .. }) = self.find(accepted)
            && let Some(connection) = stream.connection
        {
            let mut received = vec![0; stream.len()];
            stream.peek(&mut received);
            is_gone = cx.tcp().hand_over(connection, &received);
            if is_gone {
                stream.end();
                self.detach(connection);
            }
        }
        if is_gone {
            let _ = self.close(accepted, cx);
        } else if let Ok(Socket { state: State::Listener(listener), .. }) = self.find(listener) {
            listener.push(accepted);
        }
    }

    /// Stops listening, and resets connections that were not accepted, as Linux does.
    pub(super) fn end_listener(&mut self, mut listener: Listener, cx: &mut Cx<'_>) {
        cx.tcp().close_listener(listener.id);
        self.listeners.retain(|(other, _)| *other != listener.id);
        self.deferred -= listener.deferred.len();
        let deferred = core::mem::take(&mut listener.deferred);
        deferred.into_iter().for_each(|(_, id)| listener.push(id));
        while let Some(id) = listener.pop() {
            if let Ok(Socket { state: State::Stream(Stream { connection: Some(connection), .. }), .. }) = self.find(id)
            {
                let _ = cx.tcp().abort(*connection);
            }
            let _ = self.close(id, cx);
        }
    }
}

/// Ports that an unbound listener may get (RFC 6335 6: the dynamic ones).
const DYNAMIC_PORTS: core::ops::RangeInclusive<u16> = 49_152..=65_535;

/// Handshakes that a listener has open at most, by the argument of `listen`.
fn handshakes_max(backlog: usize) -> u32 {
    backlog.clamp(1, 65_535) as u32
}

/// Listens at `local`; port 0 takes the first of the dynamic ports that is free.
fn listen_at(
    local: SocketAddrV4,
    options: &ListenOptions,
    cx: &mut Cx<'_>,
) -> Result<(SocketAddrV4, ListenerId), Errno> {
    if local.port() != 0 {
        return Ok((local, cx.tcp().listen(local, options)?));
    }
    for port in DYNAMIC_PORTS {
        let local = SocketAddrV4::new(*local.ip(), port);
        match cx.tcp().listen(local, options).map_err(Errno::from) {
            Err(Errno::EADDRINUSE) => (),
            other => return Ok((local, other?)),
        }
    }
    Err(Errno::EADDRINUSE)
}
