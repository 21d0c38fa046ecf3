//! `std::net` over a [`Stack`]: the same names, the same calls, the same errors. A program changes
//! its `use` line, and passes the stack where it binds or connects.

use core::net::{Ipv4Addr, SocketAddrV4};
use std::io::{self, Read, Write};

use wirepath::proto::InterfaceId;
use wirepath::time::Duration;

use crate::errno::Errno;
use crate::options::{Options, Shutdown};
use crate::socket::datagram::DatagramInfo;
use crate::socket::error_queue::QueuedError;
use crate::stack::Stack;
use crate::table::{Kind, SocketId, Sockets};

/// A socket, closed when it is dropped.
struct Handle {
    stack: Stack,
    id: SocketId,
    nonblocking: bool,
}

impl Handle {
    fn new(stack: &Stack, kind: Kind) -> io::Result<Self> {
        let id = stack.call(|sockets, _| sockets.socket(kind))?;
        Ok(Self { stack: stack.clone(), id, nonblocking: false })
    }

    /// Makes a call that waits for at most `timeout`, or for no longer than a turn of the worker
    /// where the socket does not block.
    fn wait<T>(
        &self,
        timeout: Option<Duration>,
        act: impl FnMut(&mut Sockets, &mut wirepath::pipeline::Cx<'_>) -> Result<T, Errno>,
    ) -> io::Result<T> {
        Ok(self.stack.block(if self.nonblocking { Some(Duration::ZERO) } else { timeout }, act)?)
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
            pub fn set_nonblocking(&mut self, nonblocking: bool) -> io::Result<()> {
                self.0.nonblocking = nonblocking;
                Ok(())
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
pub struct UdpSocket(Handle);

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
            Err(Errno::EAGAIN) if !self.0.nonblocking => sockets.end_of_datagrams(self.0.id),
            read => read,
        })
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
pub struct TcpListener(Handle);

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
        Ok((TcpStream(Handle { stack: self.0.stack.clone(), id, nonblocking: false }), remote))
    }
}

/// A TCP connection.
pub struct TcpStream(Handle);

common!(TcpStream);

impl TcpStream {
    /// Connects, and waits until the handshake is done.
    ///
    /// # Errors
    /// `ConnectionRefused`, `TimedOut`, `HostUnreachable`, `NetworkUnreachable`.
    pub fn connect(stack: &Stack, remote: SocketAddrV4) -> io::Result<Self> {
        let handle = Handle::new(stack, Kind::Stream)?;
        stack.block(None, |sockets, cx| match sockets.connect(handle.id, remote, cx) {
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
}

impl Read for TcpStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let timeout = self.0.options()?.receive_timeout;
        self.0.wait(timeout, |sockets, cx| sockets.recv(self.0.id, into, cx))
    }
}

impl Write for TcpStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let timeout = self.0.options()?.send_timeout;
        self.0.wait(timeout, |sockets, cx| sockets.send(self.0.id, bytes, cx))
    }

    /// Does nothing: written bytes have been handed to the connection already.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
