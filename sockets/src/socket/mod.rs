//! One socket of each kind: its state, its queue, and its readiness. A socket knows neither other
//! sockets, nor the table, nor the waiting callers.

pub(crate) mod datagram;
pub(crate) mod error_queue;
pub(crate) mod listener;
pub(crate) mod stream;

use core::net::{Ipv4Addr, SocketAddrV4};
use std::io::IoSliceMut;

use wirepath::mem::Held;
use wirepath::time::Instant;
use wirepath::worker::live::FlowSpec;

use self::datagram::DatagramSocket;
use self::error_queue::ErrorQueue;
use self::listener::Listener;
use self::stream::{Phase, Stream};
use crate::epoll::Watch;
use crate::errno::Errno;
use crate::options::Options;
use crate::ready::Ready;
use crate::sockopt::RawOptions;

/// An address that is not bound yet.
pub(crate) const UNBOUND: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);

/// Bytes that one buffer of the pool counts as in `SO_RCVBUF`, even if it holds fewer. The kernel
/// counts `truesize` in the same way, so that small messages cannot use up the pool.
pub(crate) const BUFFER_CHARGE: usize = 2_048;

/// A socket.
pub(crate) struct Socket {
    pub(crate) state: State,
    pub(crate) options: Options,
    /// Values of setsockopt that `Options` has no field for.
    pub(crate) raw: RawOptions,
    /// The address given to `bind`; it does not include a port that `listen` or `connect` chose.
    pub(crate) bound: SocketAddrV4,
    /// `getsockname`.
    pub(crate) local: SocketAddrV4,
    /// `SO_ERROR`: reported once, by the next call.
    pub(crate) error: Option<Errno>,
    /// The flows that the port steers to the worker for this socket.
    pub(crate) flows: Vec<FlowSpec>,
    /// A flow of its own was taken from the port, and it has got none since.
    pub(crate) taken_back: Option<Errno>,
    /// The epoll sets that it is in.
    pub(crate) watches: Vec<Watch>,
    /// Datagrams; of a connection, what it had received and sent when it ended.
    pub(crate) traffic: Traffic,
    /// Errors and stamps, where they were asked for.
    pub(crate) error_queue: Option<Box<ErrorQueue>>,
}

/// The counts of received and sent packets and bytes of a socket.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) rx_bytes: u64,
    pub(crate) rx_packets: u64,
    pub(crate) tx_bytes: u64,
    pub(crate) tx_packets: u64,
    pub(crate) retransmits: u64,
    /// When the last packet came or left.
    pub(crate) active: Option<Instant>,
}

/// The kind of the socket, with the state that only this kind has.
pub(crate) enum State {
    Datagram(DatagramSocket),
    Stream(Stream),
    Listener(Listener),
}

impl Socket {
    pub(crate) fn new(state: State, options: Options) -> Self {
        let raw = RawOptions::default();
        Self {
            state,
            options,
            raw,
            bound: UNBOUND,
            local: UNBOUND,
            error: None,
            flows: Vec::new(),
            taken_back: None,
            watches: Vec::new(),
            traffic: Traffic::default(),
            error_queue: None,
        }
    }

    /// The readiness that `poll` reports (Linux `tcp_poll`, `datagram_poll`).
    pub(crate) fn ready(&self) -> Ready {
        let ready = match &self.state {
            State::Datagram(socket) => socket.ready(),
            State::Stream(stream) => stream.ready(self.options.receive_low_water as usize),
            State::Listener(listener) => listener.ready(),
        };
        let has_reports = self.has_reports();
        let raises = if self.options.select_error_queue { Ready::ERR | Ready::PRI } else { Ready::ERR };
        ready | Ready::when(self.error.is_some() || has_reports, raises)
    }

    /// `Err` with the pending error, once.
    pub(crate) fn report_error(&mut self) -> Result<(), Errno> {
        self.error.take().map_or(Ok(()), Err)
    }

    /// Whether [`refuse_datagrams`](Self::refuse_datagrams) returns an error.
    #[inline]
    pub(crate) fn refuses_datagrams(&self) -> bool {
        self.error.is_some() || matches!(&self.state, State::Datagram(datagrams) if datagrams.is_write_shut)
    }

    /// `Err` with what Linux reports before it reads the bytes of a datagram.
    pub(crate) fn refuse_datagrams(&mut self) -> Result<(), Errno> {
        self.report_error()?;
        match &self.state {
            State::Datagram(datagrams) if datagrams.is_write_shut => Err(Errno::EPIPE),
            _ => Ok(()),
        }
    }

    /// The result of reading from a stream without bytes (Linux `tcp_recvmsg_locked`).
    pub(crate) fn end_of_stream(&mut self) -> Result<usize, Errno> {
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

/// Bytes that wait for the program.
pub(crate) enum Payload {
    /// In the packet buffers that they came in.
    Held(Held),
    /// A copy: of a datagram that this host sent (`IP_MULTICAST_LOOP`), or because packet buffers
    /// are scarce.
    Copied(Box<[u8]>),
}

impl Payload {
    /// Received bytes; with `is_copied` the packet buffers are free again.
    #[inline]
    pub(crate) fn of(held: Held, is_copied: bool) -> Self {
        if is_copied { Self::copied(&held) } else { Self::Held(held) }
    }

    #[cold]
    fn copied(held: &Held) -> Self {
        let mut bytes = vec![0; held.len()].into_boxed_slice();
        copy_held(held, 0, &mut bytes);
        Self::Copied(bytes)
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Held(held) => held.len(),
            Self::Copied(bytes) => bytes.len(),
        }
    }

    /// Copies bytes, from `offset` on, into `into`, and returns their number.
    #[inline]
    pub(crate) fn copy(&self, offset: usize, into: &mut [u8]) -> usize {
        let bytes = match self {
            Self::Held(held) => match held.bytes() {
                Some(bytes) => bytes,
                None => return copy_held(held, offset, into),
            },
            Self::Copied(bytes) => bytes,
        };
        let bytes = bytes.get(offset..).unwrap_or_default();
        let count = bytes.len().min(into.len());
        into[..count].copy_from_slice(&bytes[..count]);
        count
    }

    /// Copies the bytes from `offset` on into several parts.
    #[inline]
    pub(crate) fn copy_parts(&self, into: &mut [IoSliceMut<'_>]) -> usize {
        if let [part] = into {
            return self.copy(0, part);
        }
        into.iter_mut().fold(0, |copied, part| copied + self.copy(copied, part))
    }
}

/// Copies bytes of `held`, from `offset` on, into `into`, and returns their number.
#[cold]
fn copy_held(held: &Held, offset: usize, into: &mut [u8]) -> usize {
    let (mut skip, mut copied) = (offset, 0);
    for segment in held.segments() {
        let Some(bytes) = segment.get(skip..) else {
            skip -= segment.len();
            continue;
        };
        skip = 0;
        let count = bytes.len().min(into.len() - copied);
        into[copied..copied + count].copy_from_slice(&bytes[..count]);
        copied += count;
    }
    copied
}
