//! The errors of calls, by the numbers of Linux (`asm-generic/errno.h`), which x86-64 and aarch64
//! share. Each is a number instead of an enum, so that it passes through a C ABI unchanged.

use core::fmt;

use wirepath::pipeline::tcp::{CallError, CloseReason, ConnectError, ListenError, SendError};
use wirepath::pipeline::{UdpConnectError, UdpSendError, UdpSendToError};
use wirepath::proto::{FlowErrorKind, PortError, SocketError};
use wirepath::wire::icmpv4::Unreachable;

/// Why a call failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

/// The constants, and their names for [`fmt::Debug`].
macro_rules! errnos {
    ($($name:ident = $number:literal, $words:literal;)*) => {
        impl Errno {
            $(#[doc = concat!($words, ".")] pub const $name: Self = Self($number);)*

            /// The name of the constant; `None` for a number that no call here returns.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

errnos! {
    EPERM = 1, "Not permitted";
    EBADF = 9, "Not an open descriptor";
    EAGAIN = 11, "The call would block";
    ENOMEM = 12, "No memory";
    EACCES = 13, "A broadcast address without SO_BROADCAST";
    EEXIST = 17, "The descriptor is in the set already";
    ENODEV = 19, "No such interface";
    EINVAL = 22, "An argument, or the state of the socket, does not allow the call";
    EMFILE = 24, "All descriptors are taken";
    EPIPE = 32, "The sending side is closed";
    ENOENT = 2, "The descriptor is not in the set";
    EDOM = 33, "A number out of its range";
    EPROTO = 71, "Not for this protocol";
    ENOMSG = 42, "The error queue has a stamp";
    ENONET = 64, "The source is isolated";
    ENOTSOCK = 88, "Not a socket";
    EDESTADDRREQ = 89, "No destination: name one, or connect";
    EMSGSIZE = 90, "The datagram is too long";
    EPROTOTYPE = 91, "The wrong kind of socket";
    ENOPROTOOPT = 92, "No such option";
    EOPNOTSUPP = 95, "Not for this kind of socket";
    EADDRINUSE = 98, "The address is in use";
    EADDRNOTAVAIL = 99, "The address is not ours, or no port is free";
    ENETDOWN = 100, "The link is down";
    ENETUNREACH = 101, "No route leads there";
    ECONNABORTED = 103, "The connection was aborted";
    ECONNRESET = 104, "The peer reset the connection";
    ENOBUFS = 105, "No packet buffer is free";
    EISCONN = 106, "Connected already";
    ENOTCONN = 107, "Not connected";
    ETIMEDOUT = 110, "The peer did not answer";
    ECONNREFUSED = 111, "Nobody listens there";
    EHOSTDOWN = 112, "The host does not exist";
    EHOSTUNREACH = 113, "The host, or the router to it, does not answer";
    EALREADY = 114, "The handshake is in progress";
    EINPROGRESS = 115, "The handshake has begun";
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "errno {}", self.0),
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", std::io::Error::from(*self))
    }
}

impl std::error::Error for Errno {}

impl From<Errno> for std::io::Error {
    fn from(errno: Errno) -> Self {
        Self::from_raw_os_error(errno.0)
    }
}

/// The `SO_ERROR` for the way in which a connection ended; `None` where it ended in order.
pub(crate) fn of_close(reason: CloseReason) -> Option<Errno> {
    match reason {
        CloseReason::Finished | CloseReason::LingerTimedOut => None,
        CloseReason::Aborted => Some(Errno::ECONNABORTED),
        CloseReason::Reset => Some(Errno::ECONNRESET),
        CloseReason::Refused => Some(Errno::ECONNREFUSED),
        CloseReason::NoRoute => Some(Errno::ENETUNREACH),
        CloseReason::Unreachable | CloseReason::NoNeighbor => Some(Errno::EHOSTUNREACH),
        // An unknown reason, of a later version: the connection is gone.
        _ => Some(Errno::ETIMEDOUT),
    }
}

/// Type and code of "fragmentation needed".
pub(crate) const FRAGMENTATION_NEEDED: (u8, u8) = (3, 4);

/// An ICMP error as a socket reports it.
pub(crate) struct IcmpErrorInfo {
    pub(crate) errno: Errno,
    /// A connected socket reports it without `IP_RECVERR` as well (RFC 1122 4.1.3.3).
    pub(crate) is_hard: bool,
    pub(crate) kind: u8,
    pub(crate) code: u8,
    /// The path MTU, or the offset of the refused byte.
    pub(crate) info: u32,
}

/// The errno of a socket for an ICMP error about its UDP flow (Linux `__udp4_lib_err`,
/// `icmp_err_convert`).
pub(crate) fn of_icmp(kind: FlowErrorKind) -> IcmpErrorInfo {
    match kind {
        FlowErrorKind::Unreachable(reason) => {
            let code = reason.code();
            let (errno, is_hard) = UNREACHABLE.get(usize::from(code)).copied().unwrap_or((Errno::EHOSTUNREACH, false));
            let info = if let Unreachable::FragmentationNeeded { mtu } = reason { mtu.into() } else { 0 };
            IcmpErrorInfo { errno, is_hard, kind: 3, code, info }
        }
        FlowErrorKind::TimeExceeded(reason) => {
            IcmpErrorInfo { errno: Errno::EHOSTUNREACH, is_hard: false, kind: 11, code: reason.code(), info: 0 }
        }
        FlowErrorKind::ParameterProblem { code, pointer } => {
            IcmpErrorInfo { errno: Errno::EPROTO, is_hard: true, kind: 12, code, info: pointer.into() }
        }
        // A kind of a later version: soft, as kinds that Linux does not know.
        _ => IcmpErrorInfo { errno: Errno::EHOSTUNREACH, is_hard: false, kind: 0, code: 0, info: 0 },
    }
}

/// The errno of each code of "destination unreachable", and whether it is hard (Linux
/// `icmp_err_convert`).
const UNREACHABLE: [(Errno, bool); 16] = [
    (Errno::ENETUNREACH, false),
    (Errno::EHOSTUNREACH, false),
    (Errno::ENOPROTOOPT, true),
    (Errno::ECONNREFUSED, true),
    (Errno::EMSGSIZE, true),
    (Errno::EOPNOTSUPP, false),
    (Errno::ENETUNREACH, true),
    (Errno::EHOSTDOWN, true),
    (Errno::ENONET, true),
    (Errno::ENETUNREACH, true),
    (Errno::EHOSTUNREACH, true),
    (Errno::ENETUNREACH, false),
    (Errno::EHOSTUNREACH, false),
    (Errno::EHOSTUNREACH, true),
    (Errno::EHOSTUNREACH, true),
    (Errno::EHOSTUNREACH, true),
];

impl From<ConnectError> for Errno {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::InTimeWait { .. } | ConnectError::NoPort { .. } | ConnectError::NotOurs(_) => {
                Self::EADDRNOTAVAIL
            }
            ConnectError::AddressInUse { .. } => Self::EADDRINUSE,
            ConnectError::TooMany { .. } => Self::ENOBUFS,
            ConnectError::NoRoute(_) | ConnectError::LocalAddress(_) => Self::ENETUNREACH,
            _ => Self::EINVAL,
        }
    }
}

impl From<ListenError> for Errno {
    fn from(error: ListenError) -> Self {
        match error {
            ListenError::AddressInUse(_) => Self::EADDRINUSE,
            ListenError::NotOurs(_) => Self::EADDRNOTAVAIL,
            ListenError::TooMany { .. } => Self::ENOBUFS,
            _ => Self::EINVAL,
        }
    }
}

impl From<CallError> for Errno {
    fn from(error: CallError) -> Self {
        match error {
            CallError::NotFound | CallError::NotConnected => Self::ENOTCONN,
            _ => Self::EINVAL,
        }
    }
}

impl From<SendError> for Errno {
    fn from(error: SendError) -> Self {
        match error {
            SendError::NotFound | SendError::Closed => Self::EPIPE,
            SendError::TooLong { .. } | SendError::NotLinear => Self::EMSGSIZE,
            // There is no room, or the handshake is not finished: `EPOLLOUT` follows.
            _ => Self::EAGAIN,
        }
    }
}

impl From<SocketError> for Errno {
    fn from(error: SocketError) -> Self {
        match error {
            SocketError::GroupIsJoined(_) => Self::EINVAL,
            SocketError::Port(PortError::AddressInUse { .. } | PortError::FlowInUse { .. }) => Self::EADDRINUSE,
            SocketError::Port(_) => Self::EADDRNOTAVAIL,
            SocketError::Filter(_) => Self::EADDRNOTAVAIL,
            _ => Self::ENOBUFS,
        }
    }
}

impl From<UdpConnectError> for Errno {
    fn from(error: UdpConnectError) -> Self {
        match error {
            UdpConnectError::NeighborMissing(_) => Self::EHOSTUNREACH,
            _ => Self::ENETUNREACH,
        }
    }
}

impl From<UdpSendError> for Errno {
    fn from(error: UdpSendError) -> Self {
        match error {
            // The next turn takes sent buffers back.
            UdpSendError::PoolEmpty | UdpSendError::RingFull => Self::EAGAIN,
            UdpSendError::TooLong | UdpSendError::DontFragment { .. } => Self::EMSGSIZE,
            UdpSendError::LinkDown => Self::ENETDOWN,
            UdpSendError::NeighborMissing(_) => Self::EHOSTUNREACH,
            _ => Self::ENETUNREACH,
        }
    }
}

impl From<UdpSendToError> for Errno {
    fn from(error: UdpSendToError) -> Self {
        match error {
            UdpSendToError::Connect(error) => error.into(),
            UdpSendToError::Send(error) => error.into(),
            _ => Self::ENETUNREACH,
        }
    }
}
