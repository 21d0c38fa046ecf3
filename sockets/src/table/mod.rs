//! All sockets of a worker, as its app. Data for a connection or a consumer goes to its socket, and
//! each call of a socket is one method. No method waits: where the call would wait, the method
//! returns `EAGAIN`, and [`Stack`](crate::Stack) waits.
//!
//! ```text
//!   arrivals      what the worker received, to its socket
//!   buffers       packet buffers that wait in sockets
//!   connections   connect, listen, accept, shutdown
//!   datagrams     bind, connect and groups of datagram sockets
//!   lost          what sockets do whose interface is gone, or whose flows were taken from the port
//!   limits        streams that wait by an option; streams that are disconnected
//!   statistics    what a listing shows of a socket
//!   unread        datagrams of a socket for the one that takes its place
//!   groups        groups of other sockets, and this host's own datagrams to them
//!   closing       the end of a connection whose socket was closed
//!   message       bytes in several parts, with flags
//!   cork          bytes that wait for more
//!   data          bytes to and from either kind
//!   error_queue   error queues and timestamps
//!   sets          epoll
//! ```

mod arrivals;
mod buffers;
pub(crate) mod closing;
mod connections;
mod cork;
mod data;
pub(crate) mod datagrams;
mod error_queue;
mod groups;
mod limits;
mod lost;
pub(crate) mod message;
mod sets;
mod statistics;
mod unread;

use core::net::SocketAddrV4;
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use wirepath::counters::Scope;
use wirepath::pipeline::Cx;
use wirepath::pipeline::tcp::{ConnectionId, ListenerId};
use wirepath::proto::ConsumerId;
use wirepath::time::{Duration, Instant};
use wirepath::wire::Protocol;
use wirepath::worker::live::FlowSpec;

use self::buffers::Buffers;
use self::groups::ByPort;
use crate::epoll::{Epoll, Watch};
use crate::errno::Errno;
use crate::options::Options;
use crate::ready::Ready;
use crate::socket::datagram::DatagramSocket;
use crate::socket::stream::{Phase, Stream};
use crate::socket::{Socket, State, UNBOUND};
use crate::sockopt::System;
use crate::steering::{Flows, Steering};

/// No socket.
const NONE: u32 = u32::MAX;

/// The kind of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `SOCK_STREAM`: TCP.
    Stream,
    /// `SOCK_DGRAM`: UDP.
    Datagram,
}

/// Names a socket until it is closed. An id that is kept longer finds no socket.
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
    /// Slot 0 stays empty: its number is the consumer of connections whose socket is closed.
    slots: Vec<Slot>,
    /// Of a slot that is new.
    first_generation: u32,
    free: Vec<u32>,
    sockets_max: usize,
    /// The slot of each connection's socket, by the connection's place; [`NONE`] for no socket.
    by_connection: Vec<u32>,
    listeners: Vec<(ListenerId, SocketId)>,
    sets: Vec<Option<Epoll>>,
    /// Epoll sets in which an item has become ready since the last query.
    woken: Vec<usize>,
    /// A socket may be ready for something else since [`Sockets::take_moved`].
    has_moved: bool,
    /// A read has made the TCP machine deliver data again, in its next turn.
    has_resumed: bool,
    flows: Flows,
    /// Memberships of all sockets.
    members: usize,
    by_port: ByPort,
    /// Streams whose bytes wait for more, the oldest first.
    corked: VecDeque<(Instant, SocketId)>,
    buffers: Buffers,
    /// Why nothing is sent any more: the interface is gone, or the port has ended.
    lost: Option<Errno>,
    /// The kernel's settings that options by number depend on.
    pub(crate) system: System,
    stamps: error_queue::Stamps,
    /// Datagram sockets of which a send has found no room: they are told when there is some.
    starved: Vec<SocketId>,
    /// Streams that are not writable because enough of their bytes are unsent.
    throttled: VecDeque<SocketId>,
    /// How many of them are to be looked at before the worker may sleep.
    throttled_looks: usize,
    /// Connections that wait for their first data.
    deferred: usize,
    /// When the first of them has waited long enough, or an earlier time.
    overdue_at: Instant,
    /// Connections whose socket was closed while bytes that it had taken found no packet buffer or
    /// no chunk: the bytes leave before the FIN.
    closing: Vec<(ConnectionId, Stream)>,
}

impl Sockets {
    /// Room for `sockets_max` sockets, accepted ones included, on a port that gives all frames to
    /// the worker.
    pub fn new(sockets_max: usize) -> Self {
        Self::steered(sockets_max, ())
    }

    /// As [`new`](Self::new), for a port that steers to the worker only the flows that its sockets
    /// name.
    pub fn steered(sockets_max: usize, steering: impl Steering + 'static) -> Self {
        Self {
            slots: vec![Slot { generation: 0, socket: None }],
            first_generation: 0,
            free: Vec::new(),
            sockets_max,
            by_connection: Vec::new(),
            listeners: Vec::new(),
            sets: Vec::new(),
            woken: Vec::new(),
            has_moved: false,
            has_resumed: false,
            flows: Flows::new(Box::new(steering)),
            members: 0,
            by_port: ByPort::default(),
            corked: VecDeque::new(),
            buffers: Buffers::default(),
            lost: None,
            system: System::default(),
            stamps: error_queue::Stamps::new(),
            starved: Vec::new(),
            throttled: VecDeque::new(),
            throttled_looks: 0,
            deferred: 0,
            overdue_at: Instant::MAX,
            closing: Vec::new(),
        }
    }

    /// The kernel's settings that options by number follow: by default those of a fresh kernel, and
    /// an unnamed interface.
    pub fn follow_system(&mut self, system: System) {
        self.system = system;
    }

    /// New sockets are numbered from this generation on, so that the numbers of another stack's
    /// name none of them. To be called before the first one.
    pub fn number_from(&mut self, generation: u32) {
        self.first_generation = generation;
    }

    /// Whether a broker passes on the frames of these sockets, each wherever it arrives: then other
    /// stacks may listen at the same ports, and each connection has all frames of its own.
    pub fn is_forwarded(&self) -> bool {
        self.flows.hands_over()
    }

    /// Whether other stacks of this process may listen at the same ports: each has the connections
    /// whose frames come to it.
    pub fn shares_listeners(&self) -> bool {
        self.flows.shares_listeners()
    }

    /// Shows a kernel socket of this process that keeps `port` for a socket of this kind, before
    /// the socket is bound, listens or connects: where a broker lends the queue and another user
    /// has made the kernel's socket, the broker takes it for one of this process's user from then
    /// on. Without effect elsewhere.
    pub fn claim(&mut self, kind: Kind, socket: BorrowedFd<'_>, port: u16) {
        let protocol = match kind {
            Kind::Stream => Protocol::TCP,
            Kind::Datagram => Protocol::UDP,
        };
        self.flows.claim(socket, protocol, port);
    }

    /// Why no frame will come any more although the interface exists, if that is so: the broker of
    /// the port has ended, or someone has taken its program off. A system call. The caller then
    /// [ends](Self::lose) all sockets.
    pub fn why_ended(&self) -> Option<String> {
        self.flows.why_ended()
    }

    /// The sentence for an interface that spreads frames of our flows over queues which are not
    /// ours, if it does.
    pub fn unsteered(&self) -> Option<String> {
        self.flows.unsteered()
    }

    /// Counts in `scope` what waits in sockets outside of packet buffers.
    pub fn count_in(&mut self, scope: &Scope) {
        self.buffers.count_in(&scope.scope("sockets"));
    }

    /// Sockets that are open.
    pub fn len(&self) -> usize {
        self.slots.len() - 1 - self.free.len()
    }

    /// Whether no socket is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// `socket`.
    ///
    /// # Errors
    /// `EMFILE`: `sockets_max` sockets are open.
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
        let is_bound = match &socket.state {
            // A socket may be bound again after `connect` to `AF_UNSPEC`.
            State::Datagram(_) => socket.local.port() != 0,
            State::Stream(_) | State::Listener(_) => socket.local != UNBOUND,
        };
        if is_bound {
            return Err(Errno::EINVAL);
        }
        match &socket.state {
            State::Datagram(_) if local.port() == 0 && socket.raw.binds_no_port => {
                check_own(local, cx)?;
                (socket.bound, socket.local) = (local, local);
                Ok(())
            }
            State::Datagram(_) => {
                self.bind_datagrams(id, local, cx)?;
                self.find(id)?.bound = local;
                Ok(())
            }
            // The TCP machine checks at `listen` or `connect` whether the port is free.
            State::Stream(_) => {
                check_own(local, cx)?;
                (socket.bound, socket.local) = (local, local);
                Ok(())
            }
            State::Listener(_) => Err(Errno::EINVAL),
        }
    }

    /// Forgets the local end of a stream without a connection, whose port `connect` or `listen`
    /// chose: it may be bound again. Returns false where the stream is connected, connecting, or
    /// listening, or the socket is no stream; then nothing has changed.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn unbind(&mut self, id: SocketId) -> Result<bool, Errno> {
        let socket = self.find(id)?;
        let is_closed = matches!(&socket.state, State::Stream(Stream { phase: Phase::Closed, .. }));
        if is_closed {
            (socket.bound, socket.local) = (UNBOUND, UNBOUND);
        }
        Ok(is_closed)
    }

    /// `close` of the last descriptor. Data that was sent still leaves. A connection with unread
    /// bytes is reset, as on Linux (RFC 2525 2.17), so that the peer learns of it.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn close(&mut self, id: SocketId, cx: &mut Cx<'_>) -> Result<(), Errno> {
        if matches!(self.find(id)?.state, State::Listener(_)) {
            self.hand_on(id, cx);
        }
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
            State::Datagram(datagrams) => {
                self.by_port.change(id.slot, socket.local.port(), 0);
                cx.sockets.close(id.consumer());
                self.flows.release(&socket.flows);
                self.members -= datagrams.memberships.len();
                if !datagrams.memberships.is_empty() {
                    self.share_memberships(socket.local.port(), cx);
                }
            }
            State::Stream(stream) => {
                match stream.last_connection {
                    Some(connection) => self.flows.release_later(connection, socket.flows, cx.now),
                    None => self.flows.release(&socket.flows),
                }
                self.end(stream, &socket.options, cx);
            }
            State::Listener(listener) => {
                self.flows.end_listening(&socket.flows);
                self.flows.release(&socket.flows);
                self.end_listener(listener, cx);
            }
        }
        Ok(())
    }

    /// Closes all sockets, and resets their connections, because the program can use them no more.
    pub fn reset_all(&mut self, cx: &mut Cx<'_>) {
        for slot in 0..self.slots.len() as u32 {
            let id = SocketId { slot, generation: self.slots[slot as usize].generation };
            if let Ok(socket) = self.find(id) {
                socket.options.linger = Some(Duration::ZERO);
                let _ = self.close(id, cx);
            }
        }
        self.refuse_closing(cx);
    }

    /// Gives the port back: it steers no flow here any more, and all frames are the kernel's.
    pub fn give_port_back(&mut self) {
        self.flows = Flows::new(Box::new(()));
    }

    /// `getsockname`.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn local_addr(&self, id: SocketId) -> Result<SocketAddrV4, Errno> {
        let socket = self.get(id)?;
        match &socket.state {
            // A connected socket sends from the route's source address.
            State::Datagram(datagrams) if socket.local.ip().is_unspecified() => {
                Ok(datagrams.source.unwrap_or(socket.local))
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

    /// Restores an error that a call took but did not report, because it had bytes to report first:
    /// the next call reports it.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn restore_error(&mut self, id: SocketId, error: Errno) -> Result<(), Errno> {
        self.find(id)?.error.get_or_insert(error);
        Ok(())
    }

    /// `SO_ERROR`: the pending error, once.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn take_error(&mut self, id: SocketId) -> Result<Option<Errno>, Errno> {
        Ok(self.find(id)?.error.take())
    }

    /// The readiness that `poll` reports.
    ///
    /// # Errors
    /// `EBADF`.
    #[inline]
    pub fn ready(&self, id: SocketId) -> Result<Ready, Errno> {
        Ok(self.get(id)?.ready())
    }

    /// The options of a socket.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn options(&self, id: SocketId) -> Result<Options, Errno> {
        Ok(self.get(id)?.options)
    }

    /// One of the options, without a copy of them all.
    ///
    /// # Errors
    /// `EBADF`.
    #[inline]
    pub fn option<T>(&self, id: SocketId, of: impl FnOnce(&Options) -> T) -> Result<T, Errno> {
        Ok(of(&self.get(id)?.options))
    }

    /// Sets the options of a socket; those of a connection hold from its next segment on.
    ///
    /// # Errors
    /// `EINVAL`: out of range. Nothing has changed then.
    pub fn set_options(&mut self, id: SocketId, options: &Options, cx: &mut Cx<'_>) -> Result<(), Errno> {
        let was = self.find(id)?.options;
        if options.timestamping != was.timestamping {
            self.set_timestamping(id, options.timestamping, options.ancillary.has_new_times, cx)?;
        }
        let socket = self.find(id)?;
        match &mut socket.state {
            State::Stream(Stream { connection: Some(connection), .. }) => {
                let changed = cx.tcp().set_options(*connection, &options.of_connection());
                changed.inspect_err(|_| socket.options = was)?;
            }
            State::Datagram(datagrams) => datagrams.forget_flows(),
            State::Listener(listener) => cx.tcp().set_listen_options(listener.id, &options.of_connection())?,
            State::Stream(_) => (),
        }
        let takes_all = core::mem::replace(&mut socket.options, *options).multicast_all;
        if takes_all != options.multicast_all {
            let port = socket.local.port();
            self.share_memberships(port, cx);
        }
        Ok(())
    }

    /// Whether a call or a turn has changed what sockets are ready for since the last call of this:
    /// a timer or an ICMP error that the kernel has received changes them without a frame.
    #[inline]
    pub fn take_moved(&mut self) -> bool {
        core::mem::take(&mut self.has_moved)
    }

    /// Whether a call that reads has given the next turn data to deliver, since the last call of
    /// this.
    #[inline]
    pub fn take_resumed(&mut self) -> bool {
        core::mem::take(&mut self.has_resumed)
    }

    fn insert(&mut self, socket: Socket) -> Result<SocketId, Errno> {
        if self.len() >= self.sockets_max {
            return Err(Errno::EMFILE);
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: self.first_generation, socket: None });
            self.slots.len() as u32 - 1
        });
        let place = &mut self.slots[slot as usize];
        place.socket = Some(socket);
        Ok(SocketId { slot, generation: place.generation })
    }

    #[inline]
    pub(crate) fn find(&mut self, id: SocketId) -> Result<&mut Socket, Errno> {
        let slot = self.slots.get_mut(id.slot as usize).filter(|slot| slot.generation == id.generation);
        slot.and_then(|slot| slot.socket.as_mut()).ok_or(Errno::EBADF)
    }

    #[inline]
    fn get(&self, id: SocketId) -> Result<&Socket, Errno> {
        socket_of(&self.slots, id).ok_or(Errno::EBADF)
    }

    /// Lists a socket's items in its epoll sets, because the socket has changed.
    pub(crate) fn wake(&mut self, id: SocketId) {
        self.wake_for(id, Ready::ALL);
    }

    /// Lists only the items that ask for the changes `moved`, so that an edge of one kind does not
    /// report another kind.
    #[inline]
    pub(crate) fn wake_for(&mut self, id: SocketId, moved: Ready) {
        self.has_moved = true;
        if socket_of(&self.slots, id).is_some_and(|socket| !socket.watches.is_empty()) {
            self.list_items(id, moved);
        }
    }

    fn list_items(&mut self, id: SocketId, moved: Ready) {
        let mut is_awake = false;
        for idx in 0.. {
            // Read again each time, because the list belongs to this table.
            let Some(watch) = socket_of(&self.slots, id).and_then(|socket| socket.watches.get(idx)).copied() else {
                return;
            };
            let Some(Some(set)) = self.sets.get_mut(watch.set) else { continue };
            if !set.asks_for(watch.item, moved) {
                continue;
            }
            if set.is_exclusive(watch.item) {
                if is_awake {
                    continue;
                }
                // One that was woken already may be at work for long, as one that has left the wait
                // queue on Linux.
                is_awake = set.sleepers > set.awaited;
                set.awaited += usize::from(is_awake);
            }
            self.list(watch);
        }
    }

    /// Makes the port steer a socket's flows to the worker.
    fn need(&mut self, id: SocketId, flows: Vec<FlowSpec>, cx: &mut Cx<'_>) -> Result<(), Errno> {
        self.flows.hold(&flows, cx)?;
        let socket = self.find(id)?;
        socket.flows.extend(flows);
        socket.taken_back = None;
        Ok(())
    }

    /// Returns the socket to its state after `bind`, and returns its connection, which the caller
    /// ends (Linux `tcp_disconnect`, which reports that as it reports an error).
    fn take_connection(&mut self, id: SocketId) -> Option<State> {
        let socket = self.find(id).ok()?;
        let flows = core::mem::take(&mut socket.flows);
        socket.local = socket.bound;
        let was = core::mem::replace(&mut socket.state, State::Stream(Stream::new()));
        if matches!(was, State::Listener(_)) {
            self.flows.end_listening(&flows);
        }
        self.flows.release(&flows);
        self.wake_for(id, Ready::ERR);
        Some(was)
    }
}

impl SocketId {
    /// `SO_COOKIE`: no other socket of this table has it, also after this one is closed.
    pub(crate) fn cookie(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.slot)
    }

    /// The socket's id in the worker's demultiplexer and TCP machine.
    fn consumer(self) -> ConsumerId {
        ConsumerId(self.slot)
    }
}

#[inline]
fn socket_of(slots: &[Slot], id: SocketId) -> Option<&Socket> {
    let slot = slots.get(id.slot as usize).filter(|slot| slot.generation == id.generation);
    slot.and_then(|slot| slot.socket.as_ref())
}

/// Refuses a local address that the host does not have.
fn check_own(local: SocketAddrV4, cx: &Cx<'_>) -> Result<(), Errno> {
    let is_ours = local.ip().is_unspecified() || cx.host.is_own(*local.ip());
    if is_ours { Ok(()) } else { Err(Errno::EADDRNOTAVAIL) }
}
