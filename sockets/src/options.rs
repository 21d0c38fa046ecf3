//! The options that `setsockopt` sets, by their names.

use core::net::Ipv4Addr;

use wirepath::pipeline::tcp::{Congestion, ConnectionOptions, Keepalive, Linger};
use wirepath::time::Duration;

use crate::timestamping::Timestamping;

/// How long the acknowledgment of a request waits for its answer, as on Linux (`TCP_DELACK_MIN`).
pub(crate) const INTERACTIVE_ACK_DELAY: Duration = Duration::from_millis(40);

/// The options of a socket. Accepted connections inherit those of the listener, as on Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// `SO_REUSEADDR`: the port may be bound while connections of it are in TIME-WAIT, and a UDP
    /// port by other sockets that set this option too. By default off.
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
    /// `SO_RCVBUF` in bytes: the limit of data that waits for `recv`. Each segment and datagram
    /// counts as the whole packet buffer that it holds. By default 256 KiB.
    pub receive_buffer: u32,
    /// `SO_SNDBUF` in bytes: the limit of data that is not sent or not acknowledged. By default 256
    /// KiB.
    pub send_buffer: u32,
    /// `SO_RCVLOWAT` in bytes: a stream is readable from this many bytes on. By default 1.
    pub receive_low_water: u32,
    /// `SO_RCVTIMEO`. By default `None`: a call waits without limit.
    pub receive_timeout: Option<Duration>,
    /// `SO_SNDTIMEO`. By default `None`.
    pub send_timeout: Option<Duration>,
    /// `TCP_NODELAY`. By default off, as on Linux; a connection of the framework's own has it on.
    pub nodelay: bool,
    /// `TCP_QUICKACK`. By default off.
    pub quickack: bool,
    /// `TCP_USER_TIMEOUT`. By default `None`.
    pub user_timeout: Option<Duration>,
    /// `TCP_SYNCNT`: how often a SYN is sent again. By default 6, as on Linux.
    pub syn_retries: u8,
    /// `TCP_LINGER2`: how long a closed connection waits for the peer's end; zero, which is the
    /// option's -1, resets it. By default 60 s, as on Linux; 120 s at most.
    pub fin_wait: Duration,
    /// `TCP_MAXSEG`. By default `None`: as much as the path allows.
    pub mss_max: Option<u16>,
    /// `TCP_CONGESTION`. By default CUBIC.
    pub congestion: Congestion,
    /// `IP_TOS`. By default 0.
    pub tos: u8,
    /// `IP_TTL`. By default 64.
    pub ttl: u8,
    /// `IP_MINTTL` of a datagram socket: datagrams with less are dropped, and counted. By default
    /// 0.
    pub ttl_min: u8,
    /// `TCP_WINDOW_CLAMP`: the most that the receive window shows. By default `None`.
    pub window_clamp: Option<u32>,
    /// `TCP_NOTSENT_LOWAT` in bytes: a stream takes no more while this number is unsent, and is
    /// writable again from half of it on. By default `None`: the send buffer alone limits them.
    pub unsent_low_water: Option<u32>,
    /// `IP_MULTICAST_TTL`. By default 1; with 0 datagrams do not leave the host.
    pub multicast_ttl: u8,
    /// `IP_MULTICAST_IF`: the source address of datagrams to groups, where the socket is not bound
    /// to an address. By default unspecified: the route determines it.
    pub multicast_source: Ipv4Addr,
    /// `IP_MULTICAST_LOOP`. By default on, as on Linux.
    pub multicast_loop: bool,
    /// `IP_MULTICAST_ALL`. By default on, as on Linux.
    pub multicast_all: bool,
    /// `IP_MTU_DISCOVER`. By default [`MtuDiscover::Want`], as on Linux.
    pub mtu_discover: MtuDiscover,
    /// `SO_MAX_PACING_RATE` of a stream, bytes a second. By default `None`.
    pub pacing_rate: Option<u64>,
    /// `TCP_CORK` and `UDP_CORK`: data that does not fill a segment, or the datagram, waits. By
    /// default off.
    pub cork: bool,
    /// The ancillary data that `recvmsg` returns. By default none.
    pub ancillary: Ancillary,
    /// `IP_RECVERR`: ICMP errors about the socket's flows are kept in its error queue, and reported
    /// by its next call also where it has no peer. By default off.
    pub receive_errors: bool,
    /// `SO_TIMESTAMPING`: the times of received and sent messages. By default nothing is stamped.
    pub timestamping: Timestamping,
    /// `SO_ZEROCOPY`: `MSG_ZEROCOPY` reports completions. By default off.
    pub zerocopy: bool,
    /// `SO_SELECT_ERR_QUEUE`: an error is `POLLPRI` as well. By default off.
    pub select_error_queue: bool,
}

/// The values of `IP_MTU_DISCOVER`: what becomes of a datagram that is longer than the MTU, and
/// whether a router's report of the path's MTU counts. A stream always discovers the path's MTU, so
/// it takes [`Want`](Self::Want) and [`Do`](Self::Do) alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MtuDiscover {
    /// `IP_PMTUDISC_DONT`: it leaves in fragments, and no error tells of reports.
    Dont,
    /// `IP_PMTUDISC_WANT`: it leaves in fragments. Ours allow routers to cut it further, where
    /// Linux forbids that for a datagram that fits, and cuts the next one itself.
    #[default]
    Want,
    /// `IP_PMTUDISC_DO`: `EMSGSIZE`, and routers may not cut it.
    Do,
    /// `IP_PMTUDISC_PROBE`: as `Do`, by the interface's MTU.
    Probe,
    /// `IP_PMTUDISC_INTERFACE`: `EMSGSIZE` by the interface's MTU; routers may cut it.
    Interface,
    /// `IP_PMTUDISC_OMIT`: it leaves in fragments by the interface's MTU; routers may cut it.
    Omit,
}

impl MtuDiscover {
    pub(crate) const ALL: [Self; 6] = [Self::Dont, Self::Want, Self::Do, Self::Probe, Self::Interface, Self::Omit];

    /// The packets have DF set, and none is cut.
    pub(crate) fn forbids_fragments(self) -> bool {
        matches!(self, Self::Do | Self::Probe)
    }

    pub(crate) fn ignores_path_mtu(self) -> bool {
        matches!(self, Self::Probe | Self::Interface | Self::Omit)
    }
}

/// The control messages of `recvmsg`. [`DatagramInfo`](crate::DatagramInfo) always has all the
/// data; the code that makes the messages reads here which ones are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ancillary {
    /// `IP_PKTINFO`.
    pub packet_info: bool,
    /// `IP_RECVORIGDSTADDR`: the address and port that the datagram was sent to.
    pub original_destination: bool,
    /// `IP_RECVTTL`.
    pub ttl: bool,
    /// `IP_RECVTOS`.
    pub tos: bool,
    /// `SO_RXQ_OVFL`.
    pub dropped: bool,
    /// `SO_TIMESTAMP` or `SO_TIMESTAMPNS`: the time of arrival.
    pub timestamp: Option<TimestampResolution>,
    /// The messages with times have the types of the options with 64 bits (`SO_TIMESTAMP_NEW` and
    /// so on), as the last such option decided.
    pub has_new_times: bool,
}

/// The unit of the time of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampResolution {
    /// `SO_TIMESTAMP`.
    Microseconds,
    /// `SO_TIMESTAMPNS`.
    Nanoseconds,
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
            syn_retries: 6,
            fin_wait: Duration::from_secs(60),
            mss_max: None,
            congestion: Congestion::Cubic,
            tos: 0,
            ttl: 64,
            ttl_min: 0,
            window_clamp: None,
            unsent_low_water: None,
            multicast_ttl: 1,
            multicast_source: Ipv4Addr::UNSPECIFIED,
            multicast_loop: true,
            multicast_all: true,
            mtu_discover: MtuDiscover::default(),
            pacing_rate: None,
            cork: false,
            ancillary: Ancillary::default(),
            receive_errors: false,
            timestamping: Timestamping::NONE,
            zerocopy: false,
            select_error_queue: false,
        }
    }
}

impl Options {
    /// Whether a send leaves something in the error queue: a stamp, or the path MTU.
    #[inline]
    pub(crate) fn reports_sends(&self) -> bool {
        self.receive_errors | self.timestamping.stamps_sent()
    }

    /// Whether `recvmsg` returns control messages with what it receives.
    #[inline]
    pub fn asks_for_control(&self) -> bool {
        let Ancillary { packet_info, original_destination, ttl, tos, dropped, timestamp, .. } = self.ancillary;
        packet_info | original_destination | ttl | tos | dropped | timestamp.is_some() | (self.timestamping.0 != 0)
    }

    /// Whether received messages have times.
    #[inline]
    pub(crate) fn asks_for_times(&self) -> bool {
        self.ancillary.timestamp.is_some() | (self.timestamping.0 != 0)
    }

    /// Whether a send of a stream takes the slow path: the bytes wait, are stamped, or have a low
    /// water.
    #[inline]
    pub(crate) fn takes_slow_path(&self) -> bool {
        self.cork | self.timestamping.stamps_sent() | self.unsent_low_water.is_some()
    }

    /// The options as the TCP machine takes them.
    pub(crate) fn of_connection(&self) -> ConnectionOptions {
        ConnectionOptions {
            nodelay: self.nodelay,
            quickack: self.quickack,
            interactive_ack_delay: Some(INTERACTIVE_ACK_DELAY),
            keepalive: self.keepalive.then_some(self.keepalive_times),
            user_timeout: self.user_timeout,
            syn_retries: Some(self.syn_retries),
            fin_wait: self.fin_wait,
            linger: self.linger.map_or(Linger::Background, Linger::For),
            congestion: self.congestion,
            send_buffer: self.send_buffer,
            receive_buffer: self.window_clamp.map_or(self.receive_buffer, |clamp| clamp.min(self.receive_buffer)),
            mss_max: self.mss_max,
            ttl: self.ttl,
            tos: self.tos,
            pacing_rate: self.pacing_rate,
            ..ConnectionOptions::default()
        }
    }
}

/// Which direction `shutdown` closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// `SHUT_RD`: reads return 0 once all received data is read.
    Read,
    /// `SHUT_WR`: a FIN follows the sent data.
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
