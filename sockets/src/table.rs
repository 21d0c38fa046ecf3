//! All sockets of a worker, as its app: what arrives for a connection or a consumer goes to its
//! socket, and each call of a socket is one method. No method waits: where a call would,
//! it returns `EAGAIN`, and [`Stack`](crate::Stack) waits.

use core::net::{Ipv4Addr, SocketAddrV4};

use wirepath::pipeline::tcp::{Accept, ConnectionId, ListenOptions, ListenerId, TcpData, TcpEvent};
use wirepath::pipeline::{App, Cx, Datagram, IcmpError};
use wirepath::proto::{ConsumerId, Flow, Group, InterfaceId, Sharing};
use wirepath::time::Duration;
use wirepath::worker::live::FlowSpec;

use crate::epoll::{Epoll, EpollEvent, Interest, Watch};
use crate::errno::{self, Errno};
use crate::options::{Options, Shutdown};
use crate::ready::Ready;
use crate::socket::datagram::{DatagramInfo, DatagramSocket, Membership};
use crate::socket::listener::Listener;
use crate::socket::stream::{Phase, Reported, Stream};
use crate::socket::{Socket, State, UNBOUND};
use crate::steering::{Flows, Steering, flow_from, flows_to};

/// No socket.
const NONE: u32 = u32::MAX;

/// Which kind of socket to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `SOCK_STREAM`: TCP.
    Stream,
    /// `SOCK_DGRAM`: UDP.
    Datagram,
}

/// Names a socket until it is closed. A name that was kept too long finds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SocketId {
    slot: u32,
    generation: u32,
}

struct Slot {
    generation: u32,
    socket: Option<Socket>,
}

/// The sockets of a worker.
pub struct Sockets {
    /// The first slot stays empty: its number is the consumer of connections that are gone.
    slots: Vec<Slot>,
    free: Vec<u32>,
    sockets_max: usize,
    /// The slot of each connection's socket, by the connection's place; [`NONE`] for no socket.
    by_connection: Vec<u32>,
    listeners: Vec<(ListenerId, SocketId)>,
    sets: Vec<Option<Epoll>>,
    flows: Flows,
}

impl Sockets {
    /// Room for so many sockets, accepted ones included, on a port whose frames are all ours.
    pub fn new(sockets_max: usize) -> Self {
        Self::steered(sockets_max, ())
    }

    /// The same on a port that gives the worker what its sockets name.
    pub fn steered(sockets_max: usize, steering: impl Steering + 'static) -> Self {
        Self {
            slots: vec![Slot { generation: 0, socket: None }],
            free: Vec::new(),
            sockets_max,
            by_connection: Vec::new(),
            listeners: Vec::new(),
            sets: Vec::new(),
            flows: Flows::new(Box::new(steering)),
        }
    }

    /// Sockets that are open.
    pub fn len(&self) -> usize {
        self.slots.len() - 1 - self.free.len()
    }

    /// Whether no socket is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    // Making, naming and ending.

    /// `socket`.
    ///
    /// # Errors
    /// `EMFILE`: as many as there may be.
    pub fn socket(&mut self, kind: Kind) -> Result<SocketId, Errno> {
        let state = match kind {
            Kind::Stream => State::Stream(Stream::new()),
            Kind::Datagram => State::Datagram(DatagramSocket::new()),
        };
        self.insert(Socket::new(state, Options::default()))
    }

    /// `bind`. A group is bound without being joined, as on Linux; port 0 takes a free one.
    ///
    /// # Errors
    /// `EADDRINUSE`, `EADDRNOTAVAIL`; `EINVAL`: bound already.
    pub fn bind(&mut self, id: SocketId, local: SocketAddrV4, cx: &mut Cx<'_>) -> Result<(), Errno> {
        let socket = self.find(id)?;
        if socket.local != UNBOUND {
            return Err(Errno::EINVAL);
        }
        match &socket.state {
            State::Datagram(_) => self.bind_datagrams(id, local, cx),
            // The machine finds out at `listen` or `connect` whether the port is free.
            State::Stream(_) => {
                check_own(local, cx)?;
                (socket.bound, socket.local) = (local, local);
                Ok(())
            }
            State::Listener(_) => Err(Errno::EINVAL),
        }
    }

    /// `connect`. Of a stream it begins the handshake and returns `EINPROGRESS`, then `EALREADY`
    /// while that goes on, 0 once it is done, and `EISCONN` from then on.
    ///
    /// # Errors
    /// As above, and why there is no way to the peer.
    pub fn connect(&mut self, id: SocketId, remote: SocketAddrV4, cx: &mut Cx<'_>) -> Result<(), Errno> {
        let socket = self.find(id)?;
        match &mut socket.state {
            State::Listener(_) => Err(Errno::EISCONN),
            State::Datagram(_) => self.connect_datagrams(id, remote, cx),
            State::Stream(stream) => match (stream.reported, stream.phase) {
                (Reported::Connected, _) => Err(Errno::EISCONN),
                (Reported::ShutAfter, _) => Err(Errno::EINVAL),
                (Reported::Nothing, _) => self.connect_stream(id, remote, cx),
                (Reported::Begun, Phase::Connecting) => Err(Errno::EALREADY),
                (Reported::Begun, Phase::Open) => {
                    stream.reported = Reported::Connected;
                    Ok(())
                }
                (Reported::Begun, Phase::Closed) => {
                    let error = socket.error.take().unwrap_or(Errno::ECONNABORTED);
                    self.disconnect(id);
                    Err(error)
                }
            },
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
                return Ok(());
            }
            State::Stream(stream) if stream.phase != Phase::Closed || stream.reported != Reported::Nothing => {
                return Err(Errno::EINVAL);
            }
            State::Stream(stream) => (stream.is_read_shut, stream.is_write_shut),
        };
        let options = ListenOptions {
            backlog: u32::try_from(backlog.clamp(1, 65_535)).unwrap_or(u32::MAX),
            connections_per_source: None,
            connection: socket.options.of_connection(),
            consumer: id.consumer(),
            ..ListenOptions::default()
        };
        let (local, listener) = listen_at(socket.local, &options, cx)?;
        socket.state = State::Listener(Listener::new(listener, shut, backlog));
        socket.local = local;
        self.listeners.push((listener, id));
        let needed = self.need(id, flows_to(local, cx.host, FlowSpec::tcp));
        needed.inspect_err(|_| self.unlisten(id, cx))?;
        self.wake(id);
        Ok(())
    }

    /// `accept`: a connection whose handshake is done, and its peer.
    ///
    /// # Errors
    /// `EAGAIN`: none waits; `EINVAL`: not listening.
    pub fn accept(&mut self, id: SocketId) -> Result<(SocketId, SocketAddrV4), Errno> {
        let State::Listener(listener) = &mut self.find(id)?.state else { return Err(Errno::EINVAL) };
        let accepted = listener.pop().ok_or(Errno::EAGAIN)?;
        let State::Stream(stream) = &self.find(accepted)?.state else { return Err(Errno::EINVAL) };
        Ok((accepted, stream.remote))
    }

    /// `shutdown`. Wakes who waits in the direction that is closed.
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
                    // Linux shuts it and says this all the same.
                    self.wake(id);
                    return Err(Errno::ENOTCONN);
                }
            }
            State::Stream(stream) if stream.phase == Phase::Connecting => self.hang_up(id, Errno::ECONNRESET, cx),
            State::Stream(stream) => {
                let sends = stream.phase == Phase::Open && !stream.is_write_shut && how.writes();
                let (phase, connection) = (stream.phase, stream.connection);
                if stream.reported == Reported::Begun {
                    stream.reported = if phase == Phase::Open { Reported::Connected } else { Reported::ShutAfter };
                }
                stream.is_read_shut |= how.reads();
                stream.is_write_shut |= how.writes();
                self.wake(id);
                if phase == Phase::Closed {
                    // Linux shuts it and says this all the same.
                    return Err(Errno::ENOTCONN);
                }
                if sends && let Some(connection) = connection {
                    cx.tcp().shutdown(connection)?;
                }
            }
        }
        self.wake(id);
        Ok(())
    }

    /// `close` of the last descriptor. What was sent still leaves; a connection with bytes that
    /// nobody has read is reset, as Linux does (RFC 2525 2.17), so that the peer learns of it.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn close(&mut self, id: SocketId, cx: &mut Cx<'_>) -> Result<(), Errno> {
        self.find(id)?;
        let slot = &mut self.slots[id.slot as usize];
        let Some(socket) = slot.socket.take() else { return Err(Errno::EBADF) };
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(id.slot);
        for Watch { set, item } in &socket.watches {
            if let Some(Some(set)) = self.sets.get_mut(*set) {
                set.forget(*item);
            }
        }
        match socket.state {
            State::Datagram(_) => {
                cx.sockets.close(id.consumer());
                self.flows.release(&socket.flows);
            }
            State::Stream(stream) => {
                self.end(&stream, &socket.options, cx);
                self.flows.release_later(socket.flows, cx.now);
            }
            State::Listener(listener) => {
                self.flows.release(&socket.flows);
                self.end_listener(listener, cx);
            }
        }
        Ok(())
    }

    // Data.

    /// `send`: how many of the bytes were taken.
    ///
    /// # Errors
    /// `EAGAIN`: no room; `EPIPE`, `ENOTCONN`, `EDESTADDRREQ`, or the pending error.
    pub fn send(&mut self, id: SocketId, bytes: &[u8], cx: &mut Cx<'_>) -> Result<usize, Errno> {
        let socket = self.find(id)?;
        socket.report_error()?;
        match &mut socket.state {
            State::Listener(_) => Err(Errno::EPIPE),
            State::Datagram(datagrams) => {
                let remote = datagrams.remote.ok_or(Errno::EDESTADDRREQ)?;
                self.send_to(id, bytes, remote, cx)
            }
            State::Stream(stream) => {
                let connection = stream.sends_by()?;
                if bytes.is_empty() {
                    return Ok(0);
                }
                let taken = cx.tcp().send(connection, bytes);
                stream.is_writable = taken == Ok(bytes.len());
                Ok(taken?)
            }
        }
    }

    /// `sendto` of a datagram socket; an unbound one gets a free port.
    ///
    /// # Errors
    /// As [`send`](Self::send); `EMSGSIZE`, `EACCES`, and why there is no way to `remote`.
    pub fn send_to(
        &mut self,
        id: SocketId,
        bytes: &[u8],
        remote: SocketAddrV4,
        cx: &mut Cx<'_>,
    ) -> Result<usize, Errno> {
        let socket = self.find(id)?;
        socket.report_error()?;
        let State::Datagram(datagrams) = &socket.state else { return Err(Errno::EISCONN) };
        if datagrams.is_write_shut {
            return Err(Errno::EPIPE);
        }
        if remote.port() == 0 {
            return Err(Errno::EINVAL);
        }
        if remote.ip().is_broadcast() && !socket.options.broadcast {
            return Err(Errno::EACCES);
        }
        if socket.local == UNBOUND {
            self.bind_datagrams(id, UNBOUND, cx)?;
        }
        let Socket { state, local, options, .. } = self.find(id)?;
        let State::Datagram(datagrams) = state else { return Err(Errno::EISCONN) };
        datagrams.send(*local, remote, bytes, options, cx)?;
        Ok(bytes.len())
    }

    /// `recv` of a stream: 0 at the end of what the peer sent.
    ///
    /// # Errors
    /// `EAGAIN`: nothing has come; `ENOTCONN`, or the pending error.
    pub fn recv(&mut self, id: SocketId, into: &mut [u8], cx: &mut Cx<'_>) -> Result<usize, Errno> {
        let socket = self.find(id)?;
        let resume_at = socket.options.receive_buffer as usize / 2;
        let stream = match &mut socket.state {
            State::Stream(stream) => stream,
            State::Datagram(_) => return self.recv_from(id, into).map(|(count, _)| count),
            State::Listener(_) => return Err(Errno::ENOTCONN),
        };
        if stream.len() == 0 {
            return self.find(id)?.end_of_stream();
        }
        let count = stream.read(into);
        if stream.is_paused && stream.charge() <= resume_at {
            stream.is_paused = false;
            if let Some(connection) = stream.connection {
                cx.tcp().resume(connection)?;
            }
        }
        Ok(count)
    }

    /// `recvfrom` of a datagram socket: the bytes that were copied, and the rest of what it tells.
    ///
    /// # Errors
    /// `EAGAIN`: nothing has come; or the pending error.
    pub fn recv_from(&mut self, id: SocketId, into: &mut [u8]) -> Result<(usize, DatagramInfo), Errno> {
        let socket = self.find(id)?;
        socket.report_error()?;
        let State::Datagram(datagrams) = &mut socket.state else { return Err(Errno::EOPNOTSUPP) };
        match datagrams.read(into) {
            Some(read) => Ok(read),
            None if datagrams.is_read_shut => Ok((0, DatagramInfo::none(socket.local))),
            None => Err(Errno::EAGAIN),
        }
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

    // What a socket says of itself.

    /// `getsockname`.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn local_addr(&self, id: SocketId) -> Result<SocketAddrV4, Errno> {
        let socket = self.get(id)?;
        match &socket.state {
            // The route says which address a connected socket sends from.
            State::Datagram(datagrams) if socket.local.ip().is_unspecified() => {
                Ok(datagrams.remote.and_then(|remote| datagrams.source_to(remote)).unwrap_or(socket.local))
            }
            _ => Ok(socket.local),
        }
    }

    /// `getpeername`.
    ///
    /// # Errors
    /// `ENOTCONN`.
    pub fn peer_addr(&self, id: SocketId) -> Result<SocketAddrV4, Errno> {
        match &self.get(id)?.state {
            State::Stream(stream) if stream.phase == Phase::Open => Ok(stream.remote),
            State::Datagram(datagrams) => datagrams.remote.ok_or(Errno::ENOTCONN),
            _ => Err(Errno::ENOTCONN),
        }
    }

    /// `SO_ERROR`: the pending error, once.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn take_error(&mut self, id: SocketId) -> Result<Option<Errno>, Errno> {
        Ok(self.find(id)?.error.take())
    }

    /// What `poll` reports of it.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn ready(&self, id: SocketId) -> Result<Ready, Errno> {
        Ok(self.get(id)?.ready())
    }

    /// Bytes that `recv` would return, of a datagram socket those of the next datagram (`FIONREAD`).
    ///
    /// # Errors
    /// `EBADF`.
    pub fn readable_len(&self, id: SocketId) -> Result<usize, Errno> {
        Ok(match &self.get(id)?.state {
            State::Stream(stream) => stream.len(),
            State::Datagram(datagrams) => datagrams.peek(&mut []).map_or(0, |(_, info)| info.len),
            State::Listener(_) => 0,
        })
    }

    /// Datagrams that found the receive buffer full (`SO_RXQ_OVFL`); 0 of a stream.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn dropped(&self, id: SocketId) -> Result<u64, Errno> {
        Ok(match &self.get(id)?.state {
            State::Datagram(datagrams) => datagrams.dropped,
            State::Stream(_) | State::Listener(_) => 0,
        })
    }

    /// The options of a socket.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn options(&self, id: SocketId) -> Result<Options, Errno> {
        Ok(self.get(id)?.options)
    }

    /// Sets the options of a socket; those of a connection hold from its next segment on.
    ///
    /// # Errors
    /// `EINVAL`: out of range. Nothing has changed then.
    pub fn set_options(&mut self, id: SocketId, options: &Options, cx: &mut Cx<'_>) -> Result<(), Errno> {
        let socket = self.find(id)?;
        match &mut socket.state {
            State::Stream(Stream { connection: Some(connection), .. }) => {
                cx.tcp().set_options(*connection, &options.of_connection())?;
            }
            State::Datagram(datagrams) => datagrams.forget_flows(),
            State::Stream(_) | State::Listener(_) => (),
        }
        socket.options = *options;
        Ok(())
    }

    /// `IP_ADD_MEMBERSHIP`, and with a source `IP_ADD_SOURCE_MEMBERSHIP`.
    ///
    /// # Errors
    /// `EADDRINUSE`: a member already; `EINVAL`: not a group.
    pub fn join(
        &mut self,
        id: SocketId,
        group: Ipv4Addr,
        interface: InterfaceId,
        source: Option<Ipv4Addr>,
        cx: &mut Cx<'_>,
    ) -> Result<(), Errno> {
        let consumer = id.consumer();
        let socket = self.find(id)?;
        let State::Datagram(datagrams) = &mut socket.state else { return Err(Errno::ENOPROTOOPT) };
        let membership = Membership { group, interface, source };
        if !group.is_multicast() {
            return Err(Errno::EINVAL);
        }
        if datagrams.memberships.contains(&membership) {
            return Err(Errno::EADDRINUSE);
        }
        datagrams.memberships.push(membership);
        if socket.local == UNBOUND {
            return Ok(());
        }
        let port = socket.local.port();
        let joined =
            join_port(consumer, membership, port, cx).and_then(|()| self.need(id, vec![flow_of(membership, port)]));
        if joined.is_err()
            && let Ok(Socket { state: State::Datagram(datagrams), .. }) = self.find(id)
        {
            datagrams.memberships.retain(|other| *other != membership);
        }
        joined
    }

    /// `IP_DROP_MEMBERSHIP`, and with a source `IP_DROP_SOURCE_MEMBERSHIP`.
    ///
    /// # Errors
    /// `EADDRNOTAVAIL`: not a member.
    pub fn leave(
        &mut self,
        id: SocketId,
        group: Ipv4Addr,
        interface: InterfaceId,
        source: Option<Ipv4Addr>,
        cx: &mut Cx<'_>,
    ) -> Result<(), Errno> {
        let consumer = id.consumer();
        let socket = self.find(id)?;
        let State::Datagram(datagrams) = &mut socket.state else { return Err(Errno::ENOPROTOOPT) };
        let membership = Membership { group, interface, source };
        let place = datagrams.memberships.iter().position(|other| *other == membership).ok_or(Errno::EADDRNOTAVAIL)?;
        datagrams.memberships.remove(place);
        if socket.local == UNBOUND {
            return Ok(());
        }
        let port = socket.local.port();
        let flow = flow_of(membership, port);
        if let Some(place) = socket.flows.iter().position(|held| *held == flow) {
            socket.flows.remove(place);
            self.flows.release(&[flow]);
        }
        let group = Group { group, port, interface };
        match source {
            Some(source) => cx.sockets.leave_source(consumer, group, source)?,
            None => cx.sockets.leave(consumer, group)?,
        }
        Ok(())
    }

    // Epoll.

    /// `epoll_create`: the number of a new, empty set.
    pub fn epoll_create(&mut self) -> usize {
        match self.sets.iter().position(Option::is_none) {
            Some(idx) => {
                self.sets[idx] = Some(Epoll::default());
                idx
            }
            None => {
                self.sets.push(Some(Epoll::default()));
                self.sets.len() - 1
            }
        }
    }

    /// `close` of a set.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn epoll_close(&mut self, set: usize) -> Result<(), Errno> {
        let closed = self.sets.get_mut(set).and_then(Option::take).ok_or(Errno::EBADF)?;
        for id in closed.sockets() {
            if let Ok(socket) = self.find(id) {
                socket.watches.retain(|watch| watch.set != set);
            }
        }
        Ok(())
    }

    /// `EPOLL_CTL_ADD` of a socket by its descriptor `fd`.
    ///
    /// # Errors
    /// `EBADF`; `EEXIST`: in the set by that descriptor.
    pub fn epoll_add(&mut self, set: usize, id: SocketId, fd: i32, interest: Interest) -> Result<(), Errno> {
        self.find(id)?;
        let item = self.set(set)?.add(id, fd, interest)?;
        self.find(id)?.watches.push(Watch { set, item });
        Ok(())
    }

    /// `EPOLL_CTL_MOD`.
    ///
    /// # Errors
    /// `EBADF`, `ENOENT`.
    pub fn epoll_modify(&mut self, set: usize, id: SocketId, fd: i32, interest: Interest) -> Result<(), Errno> {
        self.set(set)?.modify(id, fd, interest)
    }

    /// `EPOLL_CTL_DEL`.
    ///
    /// # Errors
    /// `EBADF`, `ENOENT`.
    pub fn epoll_delete(&mut self, set: usize, id: SocketId, fd: i32) -> Result<(), Errno> {
        let item = self.set(set)?.delete(id, fd)?;
        self.find(id)?.watches.retain(|watch| *watch != Watch { set, item });
        Ok(())
    }

    /// `epoll_wait` without a wait: how many of `events` were filled in.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn epoll_wait(&mut self, set: usize, events: &mut [EpollEvent]) -> Result<usize, Errno> {
        let slots = &self.slots;
        let set = self.sets.get_mut(set).and_then(Option::as_mut).ok_or(Errno::EBADF)?;
        if !set.has_listed() {
            return Ok(0);
        }
        Ok(set.wait(events, |id| socket_of(slots, id).map_or(Ready::NONE, Socket::ready)))
    }

    // Helpers.

    fn set(&mut self, set: usize) -> Result<&mut Epoll, Errno> {
        self.sets.get_mut(set).and_then(Option::as_mut).ok_or(Errno::EBADF)
    }

    fn insert(&mut self, socket: Socket) -> Result<SocketId, Errno> {
        if self.len() >= self.sockets_max {
            return Err(Errno::EMFILE);
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, socket: None });
            self.slots.len() as u32 - 1
        });
        let place = &mut self.slots[slot as usize];
        place.socket = Some(socket);
        Ok(SocketId { slot, generation: place.generation })
    }

    fn find(&mut self, id: SocketId) -> Result<&mut Socket, Errno> {
        let slot = self.slots.get_mut(id.slot as usize).filter(|slot| slot.generation == id.generation);
        slot.and_then(|slot| slot.socket.as_mut()).ok_or(Errno::EBADF)
    }

    fn get(&self, id: SocketId) -> Result<&Socket, Errno> {
        socket_of(&self.slots, id).ok_or(Errno::EBADF)
    }

    /// Tells the sets of a socket that it has moved.
    fn wake(&mut self, id: SocketId) {
        let socket = self.slots.get(id.slot as usize).and_then(|slot| slot.socket.as_ref());
        for Watch { set, item } in socket.map_or(&[][..], |socket| &socket.watches) {
            if let Some(Some(set)) = self.sets.get_mut(*set) {
                set.list(*item);
            }
        }
    }

    fn connect_stream(&mut self, id: SocketId, remote: SocketAddrV4, cx: &mut Cx<'_>) -> Result<(), Errno> {
        let socket = self.find(id)?;
        let options = socket.options.of_connection();
        let connection = cx.tcp().connect(socket.local, remote, &options, id.consumer())?;
        if let Some(info) = cx.tcp().info(connection) {
            socket.local = info.local;
        }
        let local = socket.local;
        if let State::Stream(stream) = &mut socket.state {
            stream.call(connection, remote);
        }
        self.attach(connection, id);
        // The SYN leaves when the call returns: what answers it comes to us by then.
        if let Err(error) = self.need(id, vec![flow_from(remote, local)]) {
            self.by_connection[connection.slot()] = NONE;
            self.refuse(connection, cx);
            self.disconnect(id);
            return Err(error);
        }
        Err(Errno::EINPROGRESS)
    }

    /// Binds a unicast address for datagrams. A group is not bound: it is enough to join it with
    /// its port, and datagrams to other destinations then do not reach the socket. Where any of it
    /// fails the socket is unbound.
    fn bind_datagrams(&mut self, id: SocketId, local: SocketAddrV4, cx: &mut Cx<'_>) -> Result<(), Errno> {
        self.try_bind_datagrams(id, local, cx).inspect_err(|_| {
            cx.sockets.close(id.consumer());
            if let Ok(socket) = self.find(id) {
                socket.local = UNBOUND;
            }
        })
    }

    fn try_bind_datagrams(&mut self, id: SocketId, local: SocketAddrV4, cx: &mut Cx<'_>) -> Result<(), Errno> {
        let consumer = id.consumer();
        let socket = self.find(id)?;
        let State::Datagram(datagrams) = &socket.state else { return Err(Errno::EINVAL) };
        let (local, mut flows) = if local.ip().is_multicast() {
            (local, Vec::new())
        } else {
            check_own(local, cx)?;
            let shared = socket.options.reuse_address || socket.options.reuse_port;
            let sharing = if shared { Sharing::Shared } else { Sharing::Exclusive };
            let local = cx.sockets.bind(consumer, local, sharing)?;
            (local, flows_to(local, cx.host, FlowSpec::udp))
        };
        for membership in &datagrams.memberships {
            join_port(consumer, *membership, local.port(), cx)?;
            flows.push(flow_of(*membership, local.port()));
        }
        socket.local = local;
        self.need(id, flows)
    }

    /// Has the port give a socket's flows to the worker.
    fn need(&mut self, id: SocketId, flows: Vec<FlowSpec>) -> Result<(), Errno> {
        self.flows.hold(&flows)?;
        self.find(id)?.flows.extend(flows);
        Ok(())
    }

    fn connect_datagrams(&mut self, id: SocketId, remote: SocketAddrV4, cx: &mut Cx<'_>) -> Result<(), Errno> {
        if self.find(id)?.local == UNBOUND {
            self.bind_datagrams(id, UNBOUND, cx)?;
        }
        let socket = self.find(id)?;
        let State::Datagram(datagrams) = &mut socket.state else { return Err(Errno::EOPNOTSUPP) };
        // Made now, so that `getsockname` names the address of the route.
        datagrams.forget_flows();
        datagrams.prepare(socket.local, remote, &socket.options, cx)?;
        datagrams.remote = Some(remote);
        Ok(())
    }

    fn attach(&mut self, connection: ConnectionId, id: SocketId) {
        let place = connection.slot();
        if place >= self.by_connection.len() {
            self.by_connection.resize(place + 1, NONE);
        }
        self.by_connection[place] = id.slot;
    }

    /// Resets the connection of a socket that stays: `SO_ERROR` says `error`.
    fn hang_up(&mut self, id: SocketId, error: Errno, cx: &mut Cx<'_>) {
        let Ok(socket) = self.find(id) else { return };
        socket.error = Some(error);
        let State::Stream(stream) = &mut socket.state else { return };
        let connection = stream.connection;
        match stream.phase {
            Phase::Connecting => _ = self.disconnect(id),
            Phase::Open | Phase::Closed => stream.end(),
        }
        if let Some(connection) = connection {
            self.by_connection[connection.slot()] = NONE;
            self.refuse(connection, cx);
        }
        self.wake(id);
    }

    /// The socket of a connection, where it has one that is open.
    fn stream_of(&mut self, connection: ConnectionId) -> Option<(SocketId, &mut Socket)> {
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
    fn enqueue(&mut self, connection: ConnectionId, listener: ListenerId, cx: &mut Cx<'_>) {
        let at = self.listeners.iter().find(|(other, _)| *other == listener).map(|(_, id)| *id);
        let info = cx.tcp().info(connection);
        let (Some(at), Some(info)) = (at, info) else { return self.refuse(connection, cx) };
        let Ok(Socket { state: State::Listener(Listener { shut, .. }), options, flows, .. }) = self.get(at) else {
            return self.refuse(connection, cx);
        };
        let (options, flows, shut) = (*options, flows.clone(), *shut);
        let mut stream = Stream::accepted(connection, info.remote);
        (stream.is_read_shut, stream.is_write_shut) = shut;
        if stream.is_write_shut {
            let _ = cx.tcp().shutdown(connection);
        }
        let mut socket = Socket::new(State::Stream(stream), options);
        socket.local = info.local;
        let Ok(id) = self.insert(socket) else { return self.refuse(connection, cx) };
        // They are the listener's, and in place: only one more needs them.
        let _ = self.need(id, flows);
        self.attach(connection, id);
        if let Ok(Socket { state: State::Listener(listener), .. }) = self.find(at) {
            listener.push(id);
        }
        self.wake(at);
    }

    /// There is no socket for it: the peer is told so.
    fn refuse(&mut self, connection: ConnectionId, cx: &mut Cx<'_>) {
        let _ = cx.tcp().abort(connection);
    }

    /// Ends the connection of a socket that was closed.
    fn end(&mut self, stream: &Stream, options: &Options, cx: &mut Cx<'_>) {
        let Some(connection) = stream.connection else { return };
        if let Some(slot) = self.by_connection.get_mut(connection.slot()) {
            *slot = NONE;
        }
        let resets = stream.len() > 0 || options.linger.is_some_and(|linger| linger == Duration::ZERO);
        // Gone already is as good.
        let _ = if resets { cx.tcp().abort(connection) } else { cx.tcp().close(connection) };
    }

    /// `shutdown` of a listener.
    fn unlisten(&mut self, id: SocketId, cx: &mut Cx<'_>) {
        if let Some(State::Listener(listener)) = self.disconnect(id) {
            self.end_listener(listener, cx);
        }
    }

    /// The socket is as `bind` left it, and what it was is the caller's to end (Linux
    /// `tcp_disconnect`).
    fn disconnect(&mut self, id: SocketId) -> Option<State> {
        let socket = self.find(id).ok()?;
        let flows = core::mem::take(&mut socket.flows);
        socket.local = socket.bound;
        let was = core::mem::replace(&mut socket.state, State::Stream(Stream::new()));
        self.flows.release(&flows);
        Some(was)
    }

    /// Listens no more, and resets what was not handed over, as Linux does.
    fn end_listener(&mut self, mut listener: Listener, cx: &mut Cx<'_>) {
        cx.tcp().close_listener(listener.id);
        self.listeners.retain(|(other, _)| *other != listener.id);
        while let Some(id) = listener.pop() {
            if let Ok(Socket { state: State::Stream(Stream { connection: Some(connection), .. }), .. }) = self.find(id)
            {
                let _ = cx.tcp().abort(*connection);
            }
            let _ = self.close(id, cx);
        }
    }
}

impl SocketId {
    /// By which the worker's machines name the socket.
    fn consumer(self) -> ConsumerId {
        ConsumerId(self.slot)
    }
}

impl Stream {
    /// The connection that bytes go to.
    fn sends_by(&self) -> Result<ConnectionId, Errno> {
        match (self.phase, self.connection) {
            (Phase::Connecting, _) => Err(Errno::EAGAIN),
            (Phase::Open, Some(connection)) if !self.is_write_shut => Ok(connection),
            _ => Err(Errno::EPIPE),
        }
    }
}

impl Socket {
    /// What a read of a stream without bytes says (Linux `tcp_recvmsg_locked`).
    fn end_of_stream(&mut self) -> Result<usize, Errno> {
        let State::Stream(stream) = &self.state else { return Err(Errno::ENOTCONN) };
        let (phase, is_shut) = (stream.phase, stream.is_read_shut);
        if stream.is_peer_closed {
            return Ok(0);
        }
        self.report_error()?;
        match phase {
            _ if is_shut => Ok(0),
            Phase::Closed => Err(Errno::ENOTCONN),
            Phase::Connecting | Phase::Open => Err(Errno::EAGAIN),
        }
    }
}

fn socket_of(slots: &[Slot], id: SocketId) -> Option<&Socket> {
    let slot = slots.get(id.slot as usize).filter(|slot| slot.generation == id.generation);
    slot.and_then(|slot| slot.socket.as_ref())
}

/// An address that a socket is bound to is the host's.
fn check_own(local: SocketAddrV4, cx: &Cx<'_>) -> Result<(), Errno> {
    let is_ours = local.ip().is_unspecified() || cx.host.is_own(*local.ip());
    if is_ours { Ok(()) } else { Err(Errno::EADDRNOTAVAIL) }
}

/// Datagrams to a group, from its one source where there is one.
fn flow_of(membership: Membership, port: u16) -> FlowSpec {
    let flow = FlowSpec::udp(membership.group, port);
    match membership.source {
        Some(source) => flow.from(&[source]),
        None => flow,
    }
}

fn join_port(consumer: ConsumerId, membership: Membership, port: u16, cx: &mut Cx<'_>) -> Result<(), Errno> {
    let group = Group { group: membership.group, port, interface: membership.interface };
    match membership.source {
        Some(source) => cx.sockets.join_source(consumer, group, source)?,
        None => cx.sockets.join(consumer, group)?,
    }
    Ok(())
}

/// Ports that an unbound listener may get (RFC 6335 6: the dynamic ones).
const DYNAMIC_PORTS: core::ops::RangeInclusive<u16> = 49_152..=65_535;

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

impl App for Sockets {
    fn tick(&mut self, cx: &mut Cx<'_>) {
        self.flows.tick(cx.now);
    }

    fn on_datagram(&mut self, datagram: &Datagram<'_>, _: &mut Cx<'_>) {
        let slot = datagram.consumer.0;
        let Some(place) = self.slots.get_mut(slot as usize) else { return };
        let id = SocketId { slot, generation: place.generation };
        let Some(Socket { state: State::Datagram(datagrams), options, .. }) = &mut place.socket else { return };
        if datagrams.push(datagram, options.receive_buffer as usize) {
            self.wake(id);
        }
    }

    fn on_icmp_error(&mut self, error: &IcmpError, _: &mut Cx<'_>) {
        let slot = error.consumer.0;
        let Some(place) = self.slots.get_mut(slot as usize) else { return };
        let id = SocketId { slot, generation: place.generation };
        let Some(socket) = &mut place.socket else { return };
        let State::Datagram(datagrams) = &socket.state else { return };
        // Without a peer it could be about any datagram: Linux reports it only by `IP_RECVERR`.
        if datagrams.remote == Some(error.flow.remote)
            && let Some(errno) = errno::of_icmp(error.kind)
        {
            socket.error = Some(errno);
            self.wake(id);
        }
    }

    fn on_tcp_accept(&mut self, listener: ListenerId, _: Flow) -> Accept {
        let at = self.listeners.iter().find(|(other, _)| *other == listener).map(|(_, id)| *id);
        let is_full = self.len() >= self.sockets_max
            || at.is_none_or(|id| match self.get(id) {
                Ok(Socket { state: State::Listener(listener), .. }) => listener.is_full(),
                _ => true,
            });
        if is_full { Accept::Ignore } else { Accept::Yes }
    }

    fn on_tcp_event(&mut self, connection: ConnectionId, event: TcpEvent, cx: &mut Cx<'_>) {
        if let TcpEvent::Connected { listener: Some(listener) } = event {
            return self.enqueue(connection, listener, cx);
        }
        let Some((id, socket)) = self.stream_of(connection) else { return };
        let State::Stream(stream) = &mut socket.state else { return };
        match event {
            TcpEvent::Connected { .. } => {
                stream.phase = Phase::Open;
                stream.is_writable = true;
            }
            TcpEvent::Writable => stream.is_writable = true,
            TcpEvent::PeerClosed => stream.is_peer_closed = true,
            TcpEvent::Closed(reason) => {
                // Who was told of the peer's end and still sends hears what a write would (RFC 9293
                // 3.10.7.4, Linux `tcp_reset`).
                let is_in_close_wait = stream.is_peer_closed && !stream.is_write_shut;
                let error = errno::of_close(reason);
                socket.error = if is_in_close_wait && error.is_some() { Some(Errno::EPIPE) } else { error };
                stream.end();
                self.by_connection[connection.slot()] = NONE;
            }
            _ => return,
        }
        self.wake(id);
    }

    fn on_tcp_data(&mut self, data: &TcpData<'_>, cx: &mut Cx<'_>) {
        let connection = data.connection;
        let Some((id, socket)) = self.stream_of(connection) else { return };
        let receive_buffer = socket.options.receive_buffer as usize;
        let State::Stream(stream) = &mut socket.state else { return };
        if stream.is_read_shut && stream.is_write_shut {
            // Nobody will read it: the peer is told (RFC 1122 4.2.2.13).
            return self.hang_up(id, Errno::ECONNRESET, cx);
        }
        stream.push(data.hold());
        if !stream.is_paused && stream.charge() >= receive_buffer {
            stream.is_paused = cx.tcp().pause(connection).is_ok();
        }
        self.wake(id);
    }
}
