//! What `setsockopt` sets and remembers, by the names of the options.

use wirepath::pipeline::tcp::{Congestion, ConnectionOptions, Keepalive, Linger};
use wirepath::time::Duration;

/// The options of a socket. Those of a listener are inherited by what it accepts, as on Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// `SO_REUSEADDR`: the port may be bound while connections of it are in TIME-WAIT, and a UDP
    /// port by others who say so too. By default off.
    pub reuse_address: bool,
    /// `SO_REUSEPORT`. By default off.
    pub reuse_port: bool,
    /// `SO_BROADCAST`: datagrams may go to the broadcast address. By default off.
    pub broadcast: bool,
    /// `SO_KEEPALIVE`. By default off.
    pub keepalive: bool,
    /// `TCP_KEEPIDLE`, `TCP_KEEPINTVL` and `TCP_KEEPCNT`. By default two hours, 75 s, nine times.
    pub keepalive_times: Keepalive,
    /// `SO_LINGER`; zero resets the connection. By default `None`: `close` returns at once.
    pub linger: Option<Duration>,
    /// `SO_RCVBUF` in bytes: what waits for `recv` at most, each segment and datagram counted as
    /// the whole packet buffer that it holds. By default 256 KiB.
    pub receive_buffer: u32,
    /// `SO_SNDBUF` in bytes: what waits to be sent or acknowledged at most. By default 256 KiB.
    pub send_buffer: u32,
    /// `SO_RCVLOWAT` in bytes: a stream is readable from so many on. By default 1.
    pub receive_low_water: u32,
    /// `SO_RCVTIMEO`. By default `None`: a call waits as long as it takes.
    pub receive_timeout: Option<Duration>,
    /// `SO_SNDTIMEO`. By default `None`.
    pub send_timeout: Option<Duration>,
    /// `TCP_NODELAY`. By default off, as on Linux; a connection of the framework's own has it on.
    pub nodelay: bool,
    /// `TCP_QUICKACK`. By default off.
    pub quickack: bool,
    /// `TCP_USER_TIMEOUT`. By default `None`.
    pub user_timeout: Option<Duration>,
    /// `TCP_MAXSEG`. By default `None`: what the path allows.
    pub mss_max: Option<u16>,
    /// `TCP_CONGESTION`. By default CUBIC.
    pub congestion: Congestion,
    /// `IP_TOS`. By default 0.
    pub tos: u8,
    /// `IP_TTL`. By default 64.
    pub ttl: u8,
    /// `IP_MULTICAST_TTL`. By default 1.
    pub multicast_ttl: u8,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            reuse_address: false,
            reuse_port: false,
            broadcast: false,
            keepalive: false,
            keepalive_times: Keepalive::default(),
            linger: None,
            receive_buffer: 256 << 10,
            send_buffer: 256 << 10,
            receive_low_water: 1,
            receive_timeout: None,
            send_timeout: None,
            nodelay: false,
            quickack: false,
            user_timeout: None,
            mss_max: None,
            congestion: Congestion::Cubic,
            tos: 0,
            ttl: 64,
            multicast_ttl: 1,
        }
    }
}

impl Options {
    /// What the machine is told of a connection.
    pub(crate) fn of_connection(&self) -> ConnectionOptions {
        ConnectionOptions {
            nodelay: self.nodelay,
            quickack: self.quickack,
            keepalive: self.keepalive.then_some(self.keepalive_times),
            user_timeout: self.user_timeout,
            linger: self.linger.map_or(Linger::Background, Linger::For),
            congestion: self.congestion,
            send_buffer: self.send_buffer,
            receive_buffer: self.receive_buffer,
            mss_max: self.mss_max,
            ttl: self.ttl,
            tos: self.tos,
            ..ConnectionOptions::default()
        }
    }
}

/// Which direction `shutdown` closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// `SHUT_RD`: reads return 0 once what has come is read.
    Read,
    /// `SHUT_WR`: a FIN follows what was sent.
    Write,
    /// `SHUT_RDWR`.
    Both,
}

impl Shutdown {
    pub(crate) fn reads(self) -> bool {
        self != Self::Write
    }

    pub(crate) fn writes(self) -> bool {
        self != Self::Read
    }
}
