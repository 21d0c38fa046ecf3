//! The question that a call puts to the rules, and their answer.

use core::fmt;
use core::net::SocketAddrV4;

/// The decision about a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Our stack serves it on the interface; what reaches a listener or a bound datagram socket by
    /// loopback and other interfaces waits until ours has nothing.
    Offload,
    /// The kernel's stack serves it.
    Os,
    /// Both stacks serve it, with equal rights: the kernel's side has its turn while ours has more,
    /// and a `connect` that ours cannot make is the kernel's.
    Both,
    /// No stack serves it: the call fails with `EACCES`.
    Refuse,
}

impl Role {
    /// The word in a file of rules.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Offload => "offload",
            Self::Os => "os",
            Self::Both => "both",
            Self::Refuse => "refuse",
        }
    }

    pub(super) fn from_word(word: &str) -> Option<Self> {
        [Self::Offload, Self::Os, Self::Both, Self::Refuse].into_iter().find(|role| role.as_str() == word)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The intended use of a socket; the kinds are VMA's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Traffic {
    /// `listen`. Accepted connections follow the listener.
    TcpServer,
    /// `connect` of a stream.
    TcpClient,
    /// `bind` of a datagram socket, and a join: then the address is the group's.
    UdpReceiver,
    /// The first datagram to an address that was not connected to.
    UdpSender,
    /// `connect` of a datagram socket.
    UdpConnect,
}

impl Traffic {
    pub(super) const ALL: [Self; 5] =
        [Self::TcpServer, Self::TcpClient, Self::UdpReceiver, Self::UdpSender, Self::UdpConnect];

    /// The word in a file of rules.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TcpServer => "tcp-server",
            Self::TcpClient => "tcp-client",
            Self::UdpReceiver => "udp-receiver",
            Self::UdpSender => "udp-sender",
            Self::UdpConnect => "udp-connect",
        }
    }

    /// Whether this use names a peer.
    pub(super) const fn has_remote(self) -> bool {
        matches!(self, Self::TcpClient | Self::UdpSender | Self::UdpConnect)
    }
}

impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A query to the rules.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// The file name of the program: the last part of its `argv[0]`.
    pub program: &'a str,
    /// Distinguishes two runs of one program: `WIREPATH_APPLICATION_ID`, in VMA
    /// `VMA_APPLICATION_ID`.
    pub application_id: Option<&'a str>,
    /// The intended use of the socket.
    pub traffic: Traffic,
    /// The socket's own address, unspecified where none is bound; for a join the group and the
    /// bound port.
    pub local: SocketAddrV4,
    /// The socket's peer, where the call names one. A rule that names a peer matches no query
    /// without a peer.
    pub remote: Option<SocketAddrV4>,
}

/// The answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision<'a> {
    /// The decision about the socket.
    pub role: Role,
    /// The rule that decided, short enough for a table: "rule 3 of trading.toml".
    pub why: &'a str,
}
