//! The events of a connection for its app, and the results of calls.

use core::fmt;
use core::net::{Ipv4Addr, SocketAddrV4};

use crate::time::Duration;

/// Names a connection until its [`Closed`](TcpEvent::Closed) was delivered; the slot then gets
/// another generation, so that a name that was kept too long finds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId {
    pub(super) slot: u32,
    pub(super) generation: u32,
}

impl ConnectionId {
    /// The slot in the table, below `TcpConfig::connections_max`: for tables of the app's own.
    /// Later connections reuse it.
    pub fn slot(self) -> usize {
        self.slot as usize
    }

    /// The name as a number, for callers in another language. Never 0.
    pub fn to_bits(self) -> u64 {
        (u64::from(self.generation) << 32) | (u64::from(self.slot) + 1)
    }

    /// The name that [`to_bits`](Self::to_bits) made a number of. Any other number names no
    /// connection, or one that the calls find by its slot and generation.
    pub fn from_bits(bits: u64) -> Self {
        Self { slot: (bits as u32).wrapping_sub(1), generation: (bits >> 32) as u32 }
    }
}

/// Names a listener: its slot and generation, so that a name that was kept too long finds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListenerId(pub(super) u32);

impl ListenerId {
    /// There are no more than 2^16 slots.
    pub(super) fn new(slot: u32, generation: u16) -> Self {
        Self(u32::from(generation) << 16 | slot)
    }

    pub(super) fn slot(self) -> u32 {
        self.0 & 0xffff
    }
}

/// An event of a connection. Data is delivered beside these, in order with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TcpEvent {
    /// The handshake is done, of a connection that we opened or that a listener accepted.
    Connected {
        /// The listener that accepted it.
        listener: Option<ListenerId>,
    },
    /// Our SYN has not left, because the link is down or no route leads to the peer. It leaves by
    /// itself as soon as there is a path.
    NoRoute,
    /// Data waits that was not delivered on arrival. The worker delivers it by
    /// [`on_tcp_data`](crate::pipeline::App::on_tcp_data), and no app gets this event: after
    /// [`resume`](crate::pipeline::tcp::TcpCalls::resume) there is nothing to do.
    Readable,
    /// A send was refused for lack of room, and there is room again.
    Writable,
    /// The peer sends no more; all its data was delivered.
    PeerClosed,
    /// The connection is gone, and its name is invalid after this.
    Closed(CloseReason),
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CloseReason {
    /// Both sides sent all their data, and it was acknowledged.
    Finished,
    /// We aborted it.
    Aborted,
    /// The peer reset it.
    Reset,
    /// The port is closed: the first segment was answered by a reset.
    Refused,
    /// No path led to the peer when our SYN was given up: the link was down, or the route gone.
    NoRoute,
    /// Our SYN was not answered: its retransmissions, or the user timeout, ran out.
    NoAnswer,
    /// The peer did not acknowledge for too long: retransmissions, or the user timeout, ran out.
    TimedOut,
    /// The peer did not answer keepalive probes.
    KeepaliveTimedOut,
    /// A router reported the peer unreachable during the handshake (RFC 5461 4.1).
    Unreachable,
    /// The peer, or the router to it, did not reply to ARP during the handshake.
    NoNeighbor,
    /// Queued data was not acknowledged within the linger time. The connection goes on in the
    /// background, and its end is not reported. The connection's identifier is now valid only for
    /// `abort`, which ends the connection. A new connection from the same port to the same peer
    /// ends it too.
    LingerTimedOut,
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Finished => "both sides finished",
            Self::Aborted => "aborted by us",
            Self::Reset => "reset by the peer: its log may say why",
            Self::Refused => "refused, no program listens there: check address and port",
            Self::NoRoute => {
                "the call found no way out: the link is down, or no route leads there; check cable, switch and routes"
            }
            Self::NoAnswer => "no answer to the SYN: check address, port, and filters on the path",
            Self::TimedOut => "the peer stopped acknowledging: it is gone, or the way to it is; connect again",
            Self::KeepaliveTimedOut => {
                "the peer answered no keepalive probe: it is gone, or the way to it is; connect again"
            }
            Self::Unreachable => "the network says that the peer cannot be reached: check address and routes",
            Self::NoNeighbor => "no answer to ARP for the peer, or the router to it: check cable, VLAN and addresses",
            Self::LingerTimedOut => {
                "what was handed over was not acknowledged within ConnectionOptions::linger, and goes on unheard: \
                 raise it to hear how it ends, or abort to end it"
            }
        })
    }
}

/// Why a listener cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ListenError {
    /// Another listener has the address.
    AddressInUse(SocketAddrV4),
    /// The address is not ours.
    NotOurs(NotOurs),
    /// The configuration's limit of listeners is reached.
    TooMany {
        /// `TcpConfig::listeners_max`.
        limit: usize,
    },
    /// Port 0, a backlog of none, or an option out of range.
    Option(OptionError),
    /// The worker has no TCP.
    NoTcp,
}

/// Why a connection cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectError {
    /// The last connection of these ends is in TIME-WAIT: late segments of it would reach the next.
    InTimeWait {
        /// Our end.
        local: SocketAddrV4,
        /// The peer's.
        remote: SocketAddrV4,
        /// The remaining time.
        wait: Duration,
    },
    /// There is such a connection already.
    AddressInUse {
        /// Our end.
        local: SocketAddrV4,
        /// The peer's.
        remote: SocketAddrV4,
    },
    /// All ports of the range are in use for this peer.
    NoPort {
        /// The peer.
        remote: SocketAddrV4,
    },
    /// The configuration's limit of connections is reached.
    TooMany {
        /// `TcpConfig::connections_max`.
        limit: usize,
    },
    /// No route leads there.
    NoRoute(Ipv4Addr),
    /// The peer's port is 0, or its address is no host's.
    BadAddress(SocketAddrV4),
    /// The peer would be ourselves.
    LocalAddress(SocketAddrV4),
    /// The local address is not ours.
    NotOurs(NotOurs),
    /// The interface is shared with the kernel, and no subscription brings the answers here: the
    /// kernel would get them, and would reset the connection because it does not know it.
    NotSubscribed {
        /// Our end, port 0 for any.
        local: SocketAddrV4,
        /// The peer's.
        remote: SocketAddrV4,
    },
    /// An option out of range.
    Option(OptionError),
    /// The worker has no TCP.
    NoTcp,
}

/// A local address that the worker's host does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotOurs {
    /// The requested address.
    pub address: Ipv4Addr,
    /// The first of ours, where there is one.
    pub ours: Option<Ipv4Addr>,
}

/// The option that is out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionError {
    /// Its name.
    pub option: &'static str,
    /// Its range.
    pub range: &'static str,
}

/// Why data is refused. It is returned to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendError {
    /// There is no such connection any more.
    NotFound,
    /// The handshake is not done.
    NotConnected,
    /// We have closed our side, or the connection ended.
    Closed,
    /// The send buffer is full: `Writable` reports when there is room.
    Full,
    /// More bytes than the send buffer holds.
    TooLong {
        /// The maximum.
        limit: usize,
    },
    /// No buffer of the pool is free: `Writable` reports when one is.
    PoolEmpty,
    /// An mbuf without a byte, or of several buffers: only linear ones can be sent without a copy.
    NotLinear,
    /// The configured number of chunks waits in all connections, or this connection's share:
    /// `Writable` reports when there is room.
    NoChunk,
}

/// Why a call on a connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallError {
    /// There is no such connection any more.
    NotFound,
    /// The handshake is not done.
    NotConnected,
    /// An option out of range.
    Option(OptionError),
}

/// Why an ICMP message about a connection changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IcmpRefusal {
    /// No such connection.
    NoConnection,
    /// The quoted segment is not in flight (RFC 5927 4.1).
    NotInFlight,
    /// Our segments are as small already.
    NotSmaller,
    /// Larger segments passed: the claim is accepted once the quoted segment is lost (RFC 5927
    /// 7.2).
    Contradicted,
    /// The handshake is done: the route may recover (RFC 5927 5.2).
    Soft,
}

const NO_TCP: &str =
    "TCP is off here: enable it by Port::tcp(), or by Worker::with_tcp in a loop of your own; a trunk has none";

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => SendError::NotFound.fmt(f),
            Self::NotConnected => f.write_str("the handshake is not done: wait for Connected, or abort"),
            Self::Option(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for IcmpRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoConnection => "no such connection",
            Self::NotInFlight => "the quoted segment is not in flight",
            Self::NotSmaller => "our segments are as small already",
            Self::Contradicted => "larger segments have passed: accepted once the quoted segment is lost",
            Self::Soft => "the connection is established",
        })
    }
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddressInUse(local) => {
                write!(f, "{local} is listened at already: close that listener, or take another port")
            }
            Self::NotOurs(error) => error.fmt(f),
            Self::TooMany { limit } => write!(f, "all {limit} listeners are taken: raise TcpConfig::listeners_max"),
            Self::Option(error) => error.fmt(f),
            Self::NoTcp => f.write_str(NO_TCP),
        }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InTimeWait { local, remote, wait } => write!(
                f,
                "the last connection from {local} to {remote} is remembered for another {wait}: try again then, take local port 0, or \
                 lower TcpConfig::time_wait; with timestamps on both sides it is a second"
            ),
            Self::AddressInUse { local, remote } => {
                write!(f, "there is a connection from {local} to {remote} already: take local port 0 for a free one")
            }
            Self::NoPort { remote } => {
                write!(f, "all ports are taken by connections to {remote}: widen TcpConfig::ports")
            }
            Self::TooMany { limit } => write!(f, "all {limit} connections are taken: raise TcpConfig::connections_max"),
            Self::NoRoute(remote) => write!(f, "no route leads to {remote}: add a route for its network"),
            Self::BadAddress(remote) => {
                write!(f, "{remote} is no host's address and port: name one host, and its port")
            }
            Self::LocalAddress(remote) => {
                write!(
                    f,
                    "{remote} is an address of this host, and no frame to it leaves by the wire: name another host"
                )
            }
            Self::NotOurs(error) => error.fmt(f),
            Self::NotSubscribed { local, remote } => {
                let (ip, port) = (remote.ip().octets(), remote.port());
                write!(f, "no subscription brings the answers of {remote} here, so the kernel would get them: ")?;
                match local.port() {
                    0 => write!(
                        f,
                        "subscribe(tcp_from({ip:?}, {port})), or connect from the local port that is subscribed to"
                    ),
                    local => write!(
                        f,
                        "subscribe(tcp_from({ip:?}, {port}).local_port({local})) before Port::run, or wait for its answer"
                    ),
                }
            }
            Self::Option(error) => error.fmt(f),
            Self::NoTcp => f.write_str(NO_TCP),
        }
    }
}

impl fmt::Display for NotOurs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, ours } = self;
        match ours {
            Some(ours) => {
                write!(f, "{address} is not an address of this host: take {ours}, or 0.0.0.0 for any of ours")
            }
            None => write!(f, "{address} is not an address of this host, which has none: give it one first"),
        }
    }
}

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} must be {}", self.option, self.range)
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => f.write_str("there is no such connection any more: its Closed event gave the reason"),
            Self::NotConnected => f.write_str("the handshake is not done: wait for Connected"),
            Self::Closed => f.write_str("the connection is closed for sending: connect again to send more"),
            Self::Full => {
                f.write_str("the send buffer is full: wait for Writable, or raise ConnectionOptions::send_buffer")
            }
            Self::TooLong { limit } => write!(f, "more than the {limit} bytes of the send buffer: send in parts"),
            Self::NotLinear => f.write_str("an mbuf to send must have bytes, all in one buffer: copy them with send"),
            Self::PoolEmpty => f.write_str("no buffer is free: wait for Writable, or make the pool larger"),
            Self::NoChunk => f.write_str(
                "all chunks are taken, or this connection's share: wait for Writable, or raise TcpConfig::chunks_max and the pool",
            ),
        }
    }
}

impl std::error::Error for ListenError {}
impl std::error::Error for ConnectError {}
impl std::error::Error for OptionError {}
impl std::error::Error for NotOurs {}
impl std::error::Error for SendError {}
impl std::error::Error for CallError {}
impl std::error::Error for IcmpRefusal {}
