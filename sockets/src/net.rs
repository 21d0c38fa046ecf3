//! `std::net` over a [`Stack`]: the same names, the same calls, the same errors. A program changes
//! its `use` line, and passes the stack where it binds or connects.
//!
//! ```
//! use std::io::{self, Read, Write};
//! use std::time::Duration;
//!
//! use sockets::Stack;
//! use sockets::net::TcpStream;
//!
//! /// Sends a request, and returns what the peer answers within a second.
//! fn ask(stack: &Stack, request: &[u8], answer: &mut [u8]) -> io::Result<usize> {
//!     let second = Duration::from_secs(1);
//!     let stream = TcpStream::connect_timeout(stack, "192.0.2.2:80".parse().unwrap(), second)?;
//!     stream.set_nodelay(true)?;
//!     stream.set_read_timeout(Some(second))?;
//!     (&stream).write_all(request)?;
//!     (&stream).read(answer)
//! }
//! ```

use core::cell::Cell;
use core::net::{Ipv4Addr, SocketAddrV4};
use std::io::{self, IoSliceMut, Read, Write};
use std::rc::Rc;

use wirepath::proto::InterfaceId;
use wirepath::time::Duration;

use crate::errno::Errno;
use crate::options::{Options, Shutdown};
use crate::socket::datagram::DatagramInfo;
use crate::socket::error_queue::QueuedError;
use crate::stack::Stack;
use crate::table::message::RecvFlags;
use crate::table::{Kind, SocketId, Sockets};

/// A socket, closed when its last handle is dropped.
struct Handle {
    stack: Stack,
    id: SocketId,
    nonblocking: Cell<bool>,
}

impl Handle {
    fn new(stack: &Stack, kind: Kind) -> io::Result<Rc<Self>> {
        let id = stack.call(|sockets, _| sockets.socket(kind))?;
        Ok(Self::of(stack, id))
    }

    fn of(stack: &Stack, id: SocketId) -> Rc<Self> {
        Rc::new(Self { stack: stack.clone(), id, nonblocking: Cell::new(false) })
    }

    /// Makes a call that waits for at most `timeout`, or for no longer than a turn of the worker
    /// where the socket does not block.
    fn wait<T>(
        &self,
        timeout: Option<Duration>,
        act: impl FnMut(&mut Sockets, &mut wirepath::pipeline::Cx<'_>) -> Result<T, Errno>,
    ) -> io::Result<T> {
        Ok(self.stack.block(if self.nonblocking.get() { Some(Duration::ZERO) } else { timeout }, act)?)
    }

    fn options(&self) -> io::Result<Options> {
        Ok(self.stack.with_sockets(|sockets| sockets.options(self.id))?)
    }

    fn change(&self, change: impl Fn(&mut Options)) -> io::Result<()> {
        Ok(self.stack.call_and_turn(|sockets, cx| {
            let mut options = sockets.options(self.id)?;
            change(&mut options);
            sockets.set_options(self.id, &options, cx)
        })?)
    }

    fn local_addr(&self) -> io::Result<SocketAddrV4> {
        Ok(self.stack.with_sockets(|sockets| sockets.local_addr(self.id))?)
    }

    fn peer_addr(&self) -> io::Result<SocketAddrV4> {
        Ok(self.stack.with_sockets(|sockets| sockets.peer_addr(self.id))?)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let _ = self.stack.call_and_turn(|sockets, cx| sockets.close(self.id, cx));
    }
}

/// How long a call waits at most: no time at all is an error, as in `std::net`.
fn limit(time: core::time::Duration) -> io::Result<Duration> {
    match u64::try_from(time.as_nanos()).unwrap_or(u64::MAX) {
        0 => Err(io::ErrorKind::InvalidInput.into()),
        nanoseconds => Ok(Duration::from_nanos(nanoseconds)),
    }
}

/// The methods that every kind of socket has.
macro_rules! common {
    ($socket:ident) => {
        impl $socket {
            /// The local end.
            ///
            /// # Errors
            /// None of an open socket.
            pub fn local_addr(&self) -> io::Result<SocketAddrV4> {
                self.0.local_addr()
            }

            /// The pending error, once (`SO_ERROR`).
            ///
            /// # Errors
            /// None of an open socket.
            pub fn take_error(&self) -> io::Result<Option<io::Error>> {
                let error = self.0.stack.call_and_turn(|sockets, _| sockets.take_error(self.0.id))?;
                Ok(error.map(io::Error::from))
            }

            /// Whether calls return `WouldBlock` where they would wait.
            ///
            /// # Errors
            /// None of an open socket.
            pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
                self.0.nonblocking.set(nonblocking);
                Ok(())
            }

            /// Another handle to the same socket, which is closed with the last of them.
            ///
            /// # Errors
            /// None: the result is that of `std::net`.
            pub fn try_clone(&self) -> io::Result<Self> {
                Ok(Self(self.0.clone()))
            }

            /// How long calls that receive wait at most; without limit where there is none
            /// (`SO_RCVTIMEO`).
            ///
            /// # Errors
            /// `InvalidInput`: a time of zero.
            pub fn set_read_timeout(&self, timeout: Option<core::time::Duration>) -> io::Result<()> {
                let timeout = timeout.map(limit).transpose()?;
                self.set_options(|options| options.receive_timeout = timeout)
            }

            /// The same for calls that send (`SO_SNDTIMEO`).
            ///
            /// # Errors
            /// As [`set_read_timeout`](Self::set_read_timeout).
            pub fn set_write_timeout(&self, timeout: Option<core::time::Duration>) -> io::Result<()> {
                let timeout = timeout.map(limit).transpose()?;
                self.set_options(|options| options.send_timeout = timeout)
            }

            /// The time of [`set_read_timeout`](Self::set_read_timeout).
            ///
            /// # Errors
            /// None of an open socket.
            pub fn read_timeout(&self) -> io::Result<Option<core::time::Duration>> {
                Ok(self.options()?.receive_timeout.map(|time| core::time::Duration::from_nanos(time.as_nanos())))
            }

            /// The time of [`set_write_timeout`](Self::set_write_timeout).
            ///
            /// # Errors
            /// None of an open socket.
            pub fn write_timeout(&self) -> io::Result<Option<core::time::Duration>> {
                Ok(self.options()?.send_timeout.map(|time| core::time::Duration::from_nanos(time.as_nanos())))
            }

            /// Sets the TTL of sent packets (`IP_TTL`).
            ///
            /// # Errors
            /// `InvalidInput`: 0, or more than 255.
            pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
                let ttl = u8::try_from(ttl).ok().filter(|ttl| *ttl > 0).ok_or(io::ErrorKind::InvalidInput)?;
                self.set_options(|options| options.ttl = ttl)
            }

            /// The TTL of sent packets.
            ///
            /// # Errors
            /// None of an open socket.
            pub fn ttl(&self) -> io::Result<u32> {
                Ok(self.options()?.ttl.into())
            }

            /// The oldest entry of the error queue (`MSG_ERRQUEUE`), and how many of its bytes fit
            /// in `into`: ICMP errors, stamps and completions, as the options ask for them.
            ///
            /// # Errors
            /// `WouldBlock`: the queue is empty. This call waits for no longer than a turn of the
            /// worker.
            pub fn recv_error(&self, into: &mut [u8]) -> io::Result<(usize, QueuedError)> {
                let mut parts = [io::IoSliceMut::new(into)];
                let at_once = Some(Duration::ZERO);
                Ok(self.0.stack.block(at_once, |sockets, _| sockets.recv_error(self.0.id, &mut parts))?)
            }

            /// The options, all at once.
            ///
            /// # Errors
            /// None of an open socket.
            pub fn options(&self) -> io::Result<Options> {
                self.0.options()
            }

            /// Changes some of the options.
            ///
            /// # Errors
            /// `InvalidInput`: a value is out of range.
            pub fn set_options(&self, change: impl Fn(&mut Options)) -> io::Result<()> {
                self.0.change(change)
            }

            /// The name of the socket, for [`Stack::poll`] and for epoll sets.
            pub fn id(&self) -> SocketId {
                self.0.id
            }
        }
    };
}

/// A UDP socket.
pub struct UdpSocket(Rc<Handle>);

common!(UdpSocket);

impl UdpSocket {
    /// Binds a socket; port 0 takes a free one.
    ///
    /// # Errors
    /// `AddrInUse`, `AddrNotAvailable`.
    pub fn bind(stack: &Stack, local: SocketAddrV4) -> io::Result<Self> {
        let handle = Handle::new(stack, Kind::Datagram)?;
        stack.call(|sockets, cx| sockets.bind(handle.id, local, cx))?;
        Ok(Self(handle))
    }

    /// Sets the peer: datagrams of other senders are not received, and [`send`](Self::send) sends
    /// to the peer.
    ///
    /// # Errors
    /// No route leads there.
    pub fn connect(&self, remote: SocketAddrV4) -> io::Result<()> {
        Ok(self.0.stack.call_and_turn(|sockets, cx| sockets.connect(self.0.id, remote, cx))?)
    }

    /// The peer of [`connect`](Self::connect).
    ///
    /// # Errors
    /// `NotConnected`.
    pub fn peer_addr(&self) -> io::Result<SocketAddrV4> {
        self.0.peer_addr()
    }

    /// Sends a datagram to the peer.
    ///
    /// # Errors
    /// As in `std::net`; `ConnectionRefused` where the peer reported that no socket has this port.
    pub fn send(&self, payload: &[u8]) -> io::Result<usize> {
        self.finish(|sockets, cx| sockets.send(self.0.id, payload, cx))
    }

    /// Sends a datagram.
    ///
    /// # Errors
    /// As in `std::net`.
    pub fn send_to(&self, payload: &[u8], remote: SocketAddrV4) -> io::Result<usize> {
        self.finish(|sockets, cx| sockets.send_to(self.0.id, payload, remote, cx))
    }

    /// Makes a send. One that gives up leaves nothing of a corked datagram, as on Linux.
    fn finish(
        &self,
        act: impl FnMut(&mut Sockets, &mut wirepath::pipeline::Cx<'_>) -> Result<usize, Errno>,
    ) -> io::Result<usize> {
        let timeout = self.0.options()?.send_timeout;
        self.0.wait(timeout, act).inspect_err(|error| {
            if error.kind() == io::ErrorKind::WouldBlock {
                let _ = self.0.stack.with_sockets(|sockets| sockets.give_up_datagram(self.0.id));
            }
        })
    }

    /// Receives a datagram; bytes that do not fit are lost.
    ///
    /// # Errors
    /// `WouldBlock`: the time is over, or the socket does not block.
    pub fn recv(&self, into: &mut [u8]) -> io::Result<usize> {
        self.recv_info(into).map(|(count, _)| count)
    }

    /// Receives a datagram, and returns its sender.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn recv_from(&self, into: &mut [u8]) -> io::Result<(usize, SocketAddrV4)> {
        self.recv_info(into).map(|(count, info)| (count, info.source))
    }

    /// As [`recv_from`](Self::recv_from), with everything that `recvmsg` reports: destination,
    /// interface, timestamp, TTL, TOS.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn recv_info(&self, into: &mut [u8]) -> io::Result<(usize, DatagramInfo)> {
        // One that has arrived needs neither the time nor a doorbell.
        match self.0.stack.read_without_clock(|sockets| sockets.recv_from(self.0.id, into)) {
            None | Some(Err(Errno::EAGAIN)) => (),
            Some(done) => return Ok(done?),
        }
        let timeout = self.0.options()?.receive_timeout;
        self.0.wait(timeout, |sockets, _| match sockets.recv_from(self.0.id, into) {
            // As on Linux, only a call that would wait learns that the socket is shut down.
            Err(Errno::EAGAIN) if !self.0.nonblocking.get() => sockets.end_of_datagrams(self.0.id),
            read => read,
        })
    }

    /// Receives a datagram, and leaves it.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn peek(&self, into: &mut [u8]) -> io::Result<usize> {
        self.peek_from(into).map(|(count, _)| count)
    }

    /// The same, and returns its sender.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn peek_from(&self, into: &mut [u8]) -> io::Result<(usize, SocketAddrV4)> {
        const PEEK: RecvFlags = RecvFlags { peek: true, truncate: false };
        let timeout = self.0.options()?.receive_timeout;
        let (count, info) = self.0.wait(timeout, |sockets, cx| {
            let mut parts = [IoSliceMut::new(&mut *into)];
            match sockets.recv_parts(self.0.id, &mut parts, PEEK, cx) {
                Err(Errno::EAGAIN) if !self.0.nonblocking.get() => {
                    sockets.end_of_datagrams(self.0.id).map(|(count, info)| (count, Some(info)))
                }
                peeked => peeked,
            }
        })?;
        info.map(|info| (count, info.source)).ok_or(io::ErrorKind::NotConnected.into())
    }

    /// Whether datagrams may go to the broadcast address (`SO_BROADCAST`).
    ///
    /// # Errors
    /// None of an open socket.
    pub fn set_broadcast(&self, broadcast: bool) -> io::Result<()> {
        self.set_options(|options| options.broadcast = broadcast)
    }

    /// Whether this host's members of a group get the datagrams that it sends
    /// (`IP_MULTICAST_LOOP`).
    ///
    /// # Errors
    /// None of an open socket.
    pub fn set_multicast_loop_v4(&self, comes_back: bool) -> io::Result<()> {
        self.set_options(|options| options.multicast_loop = comes_back)
    }

    /// The TTL of datagrams to groups (`IP_MULTICAST_TTL`).
    ///
    /// # Errors
    /// `InvalidInput`: more than 255.
    pub fn set_multicast_ttl_v4(&self, ttl: u32) -> io::Result<()> {
        let ttl = u8::try_from(ttl).map_err(|_| io::ErrorKind::InvalidInput)?;
        self.set_options(|options| options.multicast_ttl = ttl)
    }

    /// Joins a group on the host's interface.
    ///
    /// # Errors
    /// `AddrInUse`: a member already.
    pub fn join_multicast_v4(&self, group: Ipv4Addr) -> io::Result<()> {
        Ok(self.0.stack.call_and_turn(|sockets, cx| sockets.join(self.0.id, group, InterfaceId::ANY, None, cx))?)
    }

    /// Joins a group for one source.
    ///
    /// # Errors
    /// `AddrInUse`: a member already.
    pub fn join_source_v4(&self, group: Ipv4Addr, source: Ipv4Addr) -> io::Result<()> {
        Ok(self
            .0
            .stack
            .call_and_turn(|sockets, cx| sockets.join(self.0.id, group, InterfaceId::ANY, Some(source), cx))?)
    }

    /// Leaves a group.
    ///
    /// # Errors
    /// `AddrNotAvailable`: not a member.
    pub fn leave_multicast_v4(&self, group: Ipv4Addr) -> io::Result<()> {
        Ok(self.0.stack.call_and_turn(|sockets, cx| sockets.leave(self.0.id, group, InterfaceId::ANY, None, cx))?)
    }
}

/// A TCP socket that listens.
pub struct TcpListener(Rc<Handle>);

common!(TcpListener);

impl TcpListener {
    /// Listens at `local`, with a backlog of 128; port 0 takes a free one.
    ///
    /// # Errors
    /// `AddrInUse`, `AddrNotAvailable`.
    pub fn bind(stack: &Stack, local: SocketAddrV4) -> io::Result<Self> {
        const BACKLOG: usize = 128;
        let handle = Handle::new(stack, Kind::Stream)?;
        stack.call(|sockets, cx| {
            sockets.bind(handle.id, local, cx)?;
            sockets.listen(handle.id, BACKLOG, cx)
        })?;
        Ok(Self(handle))
    }

    /// The next connection, and its peer.
    ///
    /// # Errors
    /// `WouldBlock`: the time is over, or the socket does not block.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddrV4)> {
        let timeout = self.0.options()?.receive_timeout;
        let (id, remote) = self.0.wait(timeout, |sockets, _| sockets.accept(self.0.id))?;
        Ok((TcpStream(Handle::of(&self.0.stack, id)), remote))
    }

    /// The connections of [`accept`](Self::accept), without end.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming(self)
    }
}

/// The connections of a listener ([`TcpListener::incoming`]).
pub struct Incoming<'a>(&'a TcpListener);

impl Iterator for Incoming<'_> {
    type Item = io::Result<TcpStream>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.0.accept().map(|(stream, _)| stream))
    }
}

/// A TCP connection.
pub struct TcpStream(Rc<Handle>);

common!(TcpStream);

impl TcpStream {
    /// Connects, and waits until the handshake is done.
    ///
    /// # Errors
    /// `ConnectionRefused`, `TimedOut`, `HostUnreachable`, `NetworkUnreachable`.
    pub fn connect(stack: &Stack, remote: SocketAddrV4) -> io::Result<Self> {
        Self::connect_within(stack, remote, None)
    }

    /// The same, and waits for at most `timeout`.
    ///
    /// # Errors
    /// As [`connect`](Self::connect); `InvalidInput`: a time of zero.
    pub fn connect_timeout(stack: &Stack, remote: SocketAddrV4, timeout: core::time::Duration) -> io::Result<Self> {
        let timeout = Some(limit(timeout)?);
        Self::connect_within(stack, remote, timeout).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
            _ => error,
        })
    }

    fn connect_within(stack: &Stack, remote: SocketAddrV4, timeout: Option<Duration>) -> io::Result<Self> {
        let handle = Handle::new(stack, Kind::Stream)?;
        stack.block(timeout, |sockets, cx| match sockets.connect(handle.id, remote, cx) {
            Err(Errno::EINPROGRESS | Errno::EALREADY) => Err(Errno::EAGAIN),
            done => done,
        })?;
        Ok(Self(handle))
    }

    /// The peer.
    ///
    /// # Errors
    /// `NotConnected`.
    pub fn peer_addr(&self) -> io::Result<SocketAddrV4> {
        self.0.peer_addr()
    }

    /// Closes one direction or both.
    ///
    /// # Errors
    /// `NotConnected`.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        Ok(self.0.stack.call_and_turn(|sockets, cx| sockets.shutdown(self.0.id, how, cx))?)
    }

    /// Reads and leaves the bytes.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn peek(&self, into: &mut [u8]) -> io::Result<usize> {
        let timeout = self.0.options()?.receive_timeout;
        self.0.wait(timeout, |sockets, _| sockets.peek(self.0.id, into))
    }

    /// Whether small writes leave at once, and do not wait for the acknowledgment of earlier ones
    /// (`TCP_NODELAY`).
    ///
    /// # Errors
    /// None of an open socket.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.set_options(|options| options.nodelay = nodelay)
    }

    /// Whether they do.
    ///
    /// # Errors
    /// None of an open socket.
    pub fn nodelay(&self) -> io::Result<bool> {
        Ok(self.options()?.nodelay)
    }
}

impl Read for &TcpStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let timeout = self.0.options()?.receive_timeout;
        self.0.wait(timeout, |sockets, cx| sockets.recv(self.0.id, into, cx))
    }
}

impl Write for &TcpStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let timeout = self.0.options()?.send_timeout;
        self.0.wait(timeout, |sockets, cx| sockets.send(self.0.id, bytes, cx))
    }

    /// Does nothing: written bytes have been handed to the connection already.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for TcpStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        (&*self).read(into)
    }
}

impl Write for TcpStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&*self).flush()
    }
}
