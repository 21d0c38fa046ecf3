//! Work requests, and what becomes of them.

use core::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::handle::AhHandle;
use super::keys::Access;
use crate::wire::aeth::Nak;
use crate::wire::qpn::Qpn;

/// The most pieces of memory of a request.
pub const SGES_MAX: usize = 4;
/// The most bytes that a request can carry itself.
pub const INLINE_MAX: usize = SGES_MAX * size_of::<Sge>();
/// Bytes in front of a datagram in its receive: the global route header, or that of IPv6, or in
/// the last twenty bytes that of IPv4.
pub const GRH_LEN: usize = 40;
/// The longest message.
pub const MESSAGE_MAX: u32 = 1 << 31;

/// A piece of registered memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes)]
#[repr(C)]
pub struct Sge {
    /// The first byte.
    pub address: u64,
    /// Bytes.
    pub len: u32,
    /// The key of the region.
    pub lkey: u32,
}

/// Memory of the peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remote {
    /// The first byte, as the peer counts.
    pub address: u64,
    /// The key that the peer gave.
    pub rkey: u32,
}

/// What a memory window is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The key that the window has from now on: the upper 24 bits of
    /// [`Mw::key`](crate::roce::Mw::key), and eight bits that are the caller's to change each time
    /// ([`Mw::next_key`](crate::roce::Mw::next_key)).
    pub key: u32,
    /// The key of the region, which needs [`Access::MW_BIND`].
    pub region: u32,
    /// The first byte, as requests count.
    pub address: u64,
    /// Bytes; at least one.
    pub len: u64,
    /// What the peer may do: remote rights alone, whatever those of the region are.
    pub access: Access,
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    /// The way there.
    pub ah: AhHandle,
    /// The queue pair; [`Qpn::MULTICAST`] for all of a group.
    pub qpn: Qpn,
    /// The key that the receivers have. One whose highest bit is set stands for the sender's own.
    pub qkey: u32,
}

/// What a request of the send queue does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOperation {
    /// Sends a message into a receive of the peer.
    Send,
    /// Sends a message with immediate data.
    SendImm([u8; 4]),
    /// Writes memory of the peer.
    Write(Remote),
    /// Writes memory of the peer, and completes a receive of it with immediate data.
    WriteImm(Remote, [u8; 4]),
    /// Reads memory of the peer.
    Read(Remote),
    /// Reads eight bytes of the peer, and writes `swap` if they were `compare`, in one step.
    CompareSwap {
        /// Aligned to eight bytes.
        remote: Remote,
        /// What must be there.
        compare: u64,
        /// What is written then.
        swap: u64,
    },
    /// Reads eight bytes of the peer and adds to them, in one step.
    FetchAdd {
        /// Aligned to eight bytes.
        remote: Remote,
        /// The number to add.
        add: u64,
    },
    /// Sends a message, behind which the peer's memory window of this key is bound no more. Over a
    /// reliable connection.
    SendInvalidate(u32),
    /// Binds a memory window to a part of a region, for the peer of this queue pair alone. Nothing
    /// is sent; the request has no data.
    BindWindow(Binding),
    /// Ends the binding of the memory window of this key. Nothing is sent; the request has no data.
    /// Behind READs and atomic operations of our own that use the memory it needs a fence.
    Invalidate(u32),
}

/// What a request sends, or where its answer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data<'a> {
    /// Registered memory, which must not change until the request is complete.
    Sges(&'a [Sge]),
    /// The bytes themselves, up to [`INLINE_MAX`]; of SENDs, WRITEs and datagrams only.
    Inline(&'a [u8]),
}

/// A request for the send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendRequest<'a> {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// What it does.
    pub operation: SendOperation,
    /// What it sends, or where its answer goes.
    pub data: Data<'a>,
    /// It has a completion also if it succeeds.
    pub signaled: bool,
    /// The peer's completion wakes who waits for solicited events only.
    pub solicited: bool,
    /// It begins when all READs and atomic operations before it are complete.
    pub fence: bool,
    /// Where a datagram goes; `None` over a connection.
    pub destination: Option<Destination>,
}

impl<'a> SendRequest<'a> {
    /// A request with a completion.
    pub const fn new(wr_id: u64, operation: SendOperation, data: Data<'a>) -> Self {
        Self { wr_id, operation, data, signaled: true, solicited: false, fence: false, destination: None }
    }

    /// The same as a datagram.
    #[must_use]
    pub const fn to(self, destination: Destination) -> Self {
        Self { destination: Some(destination), ..self }
    }
}

/// Why a work request was not taken. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PostError {
    /// No such queue pair.
    UnknownQp,
    /// The queue pair's state takes none: receives from INIT on, sends from RTS on.
    State,
    /// The queue is full.
    QueueFull,
    /// More than [`SGES_MAX`] pieces, or more inline bytes than [`INLINE_MAX`].
    TooManySges,
    /// A message or a receive of more than [`MESSAGE_MAX`] bytes; a READ whose answers are half of
    /// all sequence numbers, together with the
    /// [packets under way](crate::roce::DeviceConfig::unacknowledged_packets); an atomic operation
    /// whose answer has not eight; a datagram longer than a packet; a request about a memory window
    /// with any.
    Length,
    /// The service has no such operation, or it takes no inline data. The receives of the queue
    /// pair come from a shared queue.
    Operation,
    /// A datagram without a destination, or by an address handle that was destroyed or is of
    /// another protection domain; a destination over a connection.
    Destination,
    /// No such shared receive queue.
    UnknownSrq,
    /// A piece names the memory of a packet pool, which only its mbufs reach.
    PoolMemory,
    /// The mbuf is of a pool that is not registered in the queue pair's protection domain.
    ForeignMbuf,
    /// The mbuf to receive into has a second handle, or is a view or a chain.
    SharedMbuf,
    /// The queue pair has no places for mbufs.
    MbufsNotAllowed,
    /// `ibv_post_send` or `ibv_post_recv` failed with this errno.
    Call(i32),
}

/// How a request ended; the numbers are those of `ibv_wc_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Status {
    /// Done.
    Success = 0,
    /// The receive is too small.
    LocalLength = 1,
    /// The request is malformed.
    LocalQpOperation = 2,
    /// A key, a range or a right of the request's own memory is wrong.
    LocalProtection = 4,
    /// A memory window was not bound, or not invalidated: its key is wrong, it is bound already, or
    /// not to this queue pair, or the region, the range or the rights are wrong.
    MwBind = 6,
    /// The queue pair is in the state ERR.
    Flushed = 5,
    /// The peer's answer is none to this request.
    BadResponse = 7,
    /// The peer reached for memory without the right, in a message with a receive.
    LocalAccess = 8,
    /// The peer calls the request invalid.
    RemoteInvalidRequest = 9,
    /// The peer's memory has another key, range or right.
    RemoteAccess = 10,
    /// The peer cannot go on.
    RemoteOperation = 11,
    /// The peer does not answer, after all retries.
    RetryExceeded = 12,
    /// The peer has no receive, after all retries.
    RnrRetryExceeded = 13,
    /// A NIC says something else.
    General = 21,
}

impl From<Nak> for Status {
    /// What a refusal means to the requester.
    fn from(nak: Nak) -> Self {
        match nak {
            Nak::PsnSequence => Self::RetryExceeded,
            Nak::InvalidRequest => Self::RemoteInvalidRequest,
            Nak::RemoteAccess => Self::RemoteAccess,
            Nak::RemoteOperational => Self::RemoteOperation,
        }
    }
}

/// What a completion is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CompletionKind {
    /// A SEND.
    #[default]
    Send,
    /// A WRITE.
    Write,
    /// A READ.
    Read,
    /// A compare and swap.
    CompareSwap,
    /// A fetch and add.
    FetchAdd,
    /// A memory window was bound.
    BindWindow,
    /// A memory window was invalidated.
    Invalidate,
    /// A receive, by a SEND of the peer.
    Receive,
    /// A receive, by the immediate data of a WRITE.
    ReceiveWriteImm,
    /// A send or a receive that failed: a NIC says of neither which it was.
    Unknown,
}

/// An entry of a completion queue. If the status is not [`Status::Success`], only it, `wr_id` and
/// `qpn` mean something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkCompletion {
    /// That of the request.
    pub wr_id: u64,
    /// How it ended.
    pub status: Status,
    /// What it is about.
    pub kind: CompletionKind,
    /// Bytes that were received, or read.
    pub byte_len: u32,
    /// The queue pair.
    pub qpn: Qpn,
    /// Immediate data.
    pub imm: Option<[u8; 4]>,
    /// The key of the memory window that the peer has invalidated by this message.
    pub invalidated: Option<u32>,
    /// The sender of a datagram, of which the first [`GRH_LEN`] bytes of the receive are a header.
    pub source: Option<Qpn>,
}

impl CompletionKind {
    /// True for the end of a receive.
    pub(crate) const fn is_receive(self) -> bool {
        matches!(self, Self::Receive | Self::ReceiveWriteImm)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Success => "success",
            Self::LocalLength => "local length error",
            Self::LocalQpOperation => "local QP operation error",
            Self::LocalProtection => "local protection error",
            Self::MwBind => "memory window bind error",
            Self::Flushed => "work request flushed",
            Self::BadResponse => "bad response",
            Self::LocalAccess => "local access error",
            Self::RemoteInvalidRequest => "remote invalid request",
            Self::RemoteAccess => "remote access error",
            Self::RemoteOperation => "remote operation error",
            Self::RetryExceeded => "transport retries exceeded",
            Self::RnrRetryExceeded => "RNR retries exceeded",
            Self::General => "general error",
        })
    }
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownQp => "no such queue pair: it was destroyed, or belongs to another device",
            Self::State => "queue pair in a state that takes no such request: receives from INIT on, sends from RTS on",
            Self::QueueFull => "queue full: poll the completion queue first, or create a longer queue",
            Self::TooManySges => "too many pieces of memory, or too many inline bytes",
            Self::Length => "message or receive too long, or the answer of an atomic operation not of eight bytes",
            Self::Operation => "operation that the queue pair's service does not have",
            Self::Destination => {
                "a datagram needs a destination by an address handle of its protection domain, and a connection none"
            }
            Self::Call(errno) => {
                return write!(f, "rdma-core: {}", std::io::Error::from_raw_os_error(*errno));
            }
            Self::UnknownSrq => "no such shared receive queue: it was destroyed, or belongs to another device",
            Self::PoolMemory => "a piece names the memory of a packet pool: post its mbufs",
            Self::ForeignMbuf => {
                "mbuf of a packet pool that is not registered in the queue pair's protection domain: register it"
            }
            Self::SharedMbuf => "an mbuf to receive into is one buffer, and has no second handle",
            Self::MbufsNotAllowed => "queue pair without places for mbufs: call allow_mbufs behind create_qp",
        })
    }
}

impl core::error::Error for PostError {}
