//! The options of a connection, named after the socket options.

use crate::time::Duration;

/// The congestion control.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Congestion {
    /// RFC 9438: Linux's default.
    #[default]
    Cubic,
    /// RFC 5681 with NewReno's window.
    Reno,
    /// Only the peer's window: for a private line without other traffic.
    None,
}

/// Probes of a silent peer (`SO_KEEPALIVE`, RFC 9293 3.8.4). Linux answers one probe in 500 ms
/// (`tcp_invalid_ratelimit`): with shorter intervals a live peer may seem dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Silence of the peer before the first probe (`TCP_KEEPIDLE`). By default two hours.
    pub idle: Duration,
    /// From one probe to the next (`TCP_KEEPINTVL`). By default 75 s.
    pub interval: Duration,
    /// Unanswered probes until the connection is given up (`TCP_KEEPCNT`). By default 9.
    pub count: u8,
}

impl Keepalive {
    /// For a session whose death must be detected soon: after 15 s, every 5 s, three times. A dead
    /// peer is detected after half a minute, where no data is in flight. With data in flight the
    /// machine retransmits instead, for ten minutes unless `ConnectionOptions::user_timeout` is
    /// shorter: set both.
    pub const SESSION: Self = Self { idle: Duration::from_secs(15), interval: Duration::from_secs(5), count: 3 };
}

impl Default for Keepalive {
    /// After two hours, the least that RFC 9293 3.8.4 allows as a default; then as on Linux every
    /// 75 s, nine times.
    fn default() -> Self {
        Self { idle: Duration::from_secs(7_200), interval: Duration::from_secs(75), count: 9 }
    }
}

/// The handling of unacknowledged data on close (`SO_LINGER`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Linger {
    /// Unsent data is sent in the background.
    #[default]
    Background,
    /// Like it, but `Closed` follows after this time at the latest, as a socket's `close` returns.
    /// After a timeout its reason is `LingerTimedOut`, and the remaining data is sent in the
    /// background until it is acknowledged, given up or aborted. Zero resets at once.
    For(Duration),
}

/// The options of a connection; accepted connections inherit their listener's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionOptions {
    /// Send small segments at once (`TCP_NODELAY`). Off is Nagle's algorithm (RFC 9293 3.7.4). By
    /// default on.
    pub nodelay: bool,
    /// Acknowledge at the end of each burst (`TCP_QUICKACK`, but it stays). By default off.
    pub quickack: bool,
    /// The delayed-ACK time (RFC 9293 3.8.6.3 forbids 500 ms), in steps of 10 µs. By default 1 ms.
    pub ack_delay: Duration,
    /// The same of an interactive connection, whole milliseconds below 256: where the last eight
    /// pieces of data of the peer have each acknowledged data of ours, an answer is likely to take
    /// the acknowledgment along, and one of its own costs a frame. Linux waits for 40 ms there. By
    /// default `None`: as `ack_delay` says.
    pub interactive_ack_delay: Option<Duration>,
    /// Probes of a silent peer. By default `None`; for a listener after two hours.
    pub keepalive: Option<Keepalive>,
    /// How long data may stay unacknowledged (`TCP_USER_TIMEOUT`, RFC 5482). None: until the
    /// retransmissions run out. By default `None`.
    pub user_timeout: Option<Duration>,
    /// How often our SYN, or SYN-ACK, is sent again (`TCP_SYNCNT`). By default `None`: as often as
    /// `TcpConfig::syn_retries` says.
    pub syn_retries: Option<u8>,
    /// How long a connection that the app has closed waits for the peer's end after its own was
    /// acknowledged (`TCP_LINGER2`), in whole seconds; zero resets it at once. By default 60 s.
    pub fin_wait: Duration,
    /// The behavior on close. By default [`Linger::Background`].
    pub linger: Linger,
    /// The congestion control (`TCP_CONGESTION`). By default [`Congestion::Cubic`].
    pub congestion: Congestion,
    /// The minimum retransmission timeout. RFC 6298 2.4 says 1 s, Linux 200 ms; a private line
    /// allows far less. By default 200 ms.
    pub rto_min: Duration,
    /// Bytes a second at most (`SO_MAX_PACING_RATE`). By default `None`: no limit.
    pub pacing_rate: Option<u64>,
    /// The most bytes that wait, unsent or unacknowledged (`SO_SNDBUF`). By default 256 KiB.
    pub send_buffer: u32,
    /// The most bytes that the peer may have in flight (`SO_RCVBUF`): the window. By default 256
    /// KiB.
    pub receive_buffer: u32,
    /// Limit of a segment's payload (`TCP_MAXSEG`); otherwise by the path. By default `None`.
    pub mss_max: Option<u16>,
    /// Offer timestamps (RFC 7323). By default on.
    pub timestamps: bool,
    /// Offer SACK (RFC 2018). By default on.
    pub sack: bool,
    /// Offer ECN (RFC 3168). By default off.
    pub ecn: bool,
    /// TTL (`IP_TTL`). By default 64.
    pub ttl: u8,
    /// Type of service (`IP_TOS`); the ECN bits are the connection's own. By default 0.
    pub tos: u8,
}

impl ConnectionOptions {
    /// Windows are at most 2^16 shifted by 14 (RFC 7323 2.3).
    pub const BUFFER_LEN_MAX: u32 = 1 << 30;
    /// The longest [`fin_wait`](Self::fin_wait), as on Linux (`TCP_FIN_TIMEOUT_MAX`).
    pub const FIN_WAIT_MAX: Duration = Duration::from_secs(120);
    /// No timer is finer.
    pub const TIMER_MIN: Duration = Duration::from_millis(1);
}

impl Default for ConnectionOptions {
    /// A line for orders: small segments at once, acknowledgments within a millisecond, a timeout
    /// of 200 ms at least as on Linux. 256 KiB each way.
    fn default() -> Self {
        Self {
            nodelay: true,
            quickack: false,
            ack_delay: Duration::from_millis(1),
            interactive_ack_delay: None,
            keepalive: None,
            user_timeout: None,
            syn_retries: None,
            fin_wait: Duration::from_secs(60),
            linger: Linger::Background,
            congestion: Congestion::Cubic,
            rto_min: Duration::from_millis(200),
            pacing_rate: None,
            send_buffer: 256 << 10,
            receive_buffer: 256 << 10,
            mss_max: None,
            timestamps: true,
            sack: true,
            ecn: false,
            ttl: 64,
            tos: 0,
        }
    }
}
