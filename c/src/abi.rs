//! The structures and constants of `wirepath.h`.

use core::ffi::c_char;
use core::ptr;

use libc::sockaddr_in;

/// A handle: `wp_stack`, `wp_conn` and the others, each a type of its own in C. 0 names nothing.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handle {
    /// The number, which a table gave out.
    pub id: u64,
}

/// `wp_options`: how to open a stack. Zero is the default of every member but `size`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct StackOptions {
    /// The size of the structure in the header that the caller was compiled with.
    pub size: u32,
    /// `WP_LOG`, `WP_ACCEPT_CHECKSUMS`, `WP_TIMESTAMPS`.
    pub flags: u32,
    /// The name for `wirepath stats`; by default that of the executable.
    pub name: *const c_char,
    /// The stack's own address with its prefix, `10.0.0.2/24`; by default the kernel's addresses.
    pub address: *const c_char,
    /// The gateway of the default route, with `address`.
    pub gateway: *const c_char,
    /// The most connections at one time; 0 disables TCP.
    pub connections: u32,
    /// The most buffers that the caller holds at one time.
    pub held: u32,
}

/// `wp_tcp_options`: the options of a connection. Zero is the default of every member but `size`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpOptions {
    /// The size of the structure in the header that the caller was compiled with.
    pub size: u32,
    /// `WP_TCP_NAGLE`, `WP_TCP_QUICKACK`, `WP_TCP_KEEPALIVE`.
    pub flags: u32,
    /// The delay of an acknowledgment.
    pub ack_delay_ns: u64,
    /// The longest time that data may stay unacknowledged.
    pub user_timeout_ns: u64,
    /// The minimum retransmission timeout.
    pub rto_min_ns: u64,
    /// The limit in bytes a second.
    pub pacing_rate: u64,
    /// The most bytes that wait to be sent or acknowledged.
    pub send_buffer: u32,
    /// The receive buffer, which limits the window.
    pub receive_buffer: u32,
}

/// `wp_udp_options`: the options of a flow of datagrams.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct UdpOptions {
    /// The size of the structure in the header that the caller was compiled with.
    pub size: u32,
    /// `WP_UDP_DONT_FRAGMENT`, `WP_UDP_NO_CHECKSUM`.
    pub flags: u32,
    /// TTL; 0 means 1 for groups and 64 for hosts.
    pub ttl: u8,
    /// Type of service.
    pub tos: u8,
    /// Must be zero.
    pub reserved: [u8; 6],
}

/// `wp_event`: one event.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// `WP_EVENT_…`.
    pub kind: u32,
    /// The tag of the subscription or the connection.
    pub tag: u32,
    /// The connection.
    pub connection: Handle,
    /// The bytes, valid until the next poll unless they are held.
    pub data: *const u8,
    /// The number of bytes.
    pub len: usize,
    /// Names the bytes for `wp_hold`.
    pub chunk: u64,
    /// The NIC's arrival timestamp, since the epoch; 0 if there is none.
    pub timestamp_ns: u64,
    /// The token of a timer, or of a frame that was sent.
    pub token: u64,
    /// The sender of a datagram, the peer of a connection.
    pub source: sockaddr_in,
    /// The destination of a datagram, our end of a connection.
    pub destination: sockaddr_in,
    /// `WP_CLOSED_…`.
    pub reason: i32,
    /// TTL of a datagram.
    pub ttl: u8,
    /// Type of service of a datagram.
    pub tos: u8,
    /// Tag control information of its VLAN tag.
    pub vlan: u16,
}

/// `wp_tcp_info`: a connection at a moment.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpInfo {
    /// Bytes of the structure as the caller was compiled with it.
    pub size: u32,
    /// `WP_TCP_ESTABLISHED` and the others: Linux's numbers.
    pub state: u32,
    /// The retransmission timeout.
    pub rto_ns: u64,
    /// The smoothed round trip time; 0 before the first sample.
    pub srtt_ns: u64,
    /// Its variation.
    pub rttvar_ns: u64,
    /// The recent least.
    pub rtt_min_ns: u64,
    /// Since a segment of the peer arrived.
    pub silence_ns: u64,
    /// Bytes sent for the first time.
    pub bytes_sent: u64,
    /// Bytes that the peer acknowledged.
    pub bytes_acked: u64,
    /// Bytes received in order.
    pub bytes_received: u64,
    /// Segments sent.
    pub segments_out: u64,
    /// Segments received.
    pub segments_in: u64,
    /// The largest payload of our segments.
    pub mss: u32,
    /// The congestion window.
    pub cwnd: u32,
    /// The peer's window.
    pub send_window: u32,
    /// Ours.
    pub receive_window: u32,
    /// Bytes sent and not acknowledged.
    pub unacked: u32,
    /// Bytes that wait to be sent.
    pub unsent: u32,
    /// Bytes received that a paused connection keeps.
    pub unread: u32,
    /// Segments sent again.
    pub resent: u32,
    /// Retransmission timeouts.
    pub timeouts: u32,
    /// Zero.
    pub reserved: u32,
}

/// `wp_stat`: a counter with its name.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Stat {
    /// Its name, which a zero byte ends.
    pub name: [c_char; STAT_NAME_LEN],
    /// `WP_STAT_COUNTER` or `WP_STAT_GAUGE`.
    pub kind: u32,
    /// Its value.
    pub value: u64,
}

/// Bytes of a counter's name with the zero byte: names have 96 at most.
pub const STAT_NAME_LEN: usize = 100;

const NO_ADDRESS: sockaddr_in =
    sockaddr_in { sin_family: 0, sin_port: 0, sin_addr: libc::in_addr { s_addr: 0 }, sin_zero: [0; 8] };

impl Event {
    /// An event with all members zero.
    pub const EMPTY: Self = Self {
        kind: 0,
        tag: 0,
        connection: Handle { id: 0 },
        data: ptr::null(),
        len: 0,
        chunk: 0,
        timestamp_ns: 0,
        token: 0,
        source: NO_ADDRESS,
        destination: NO_ADDRESS,
        reason: 0,
        ttl: 0,
        tos: 0,
        vlan: 0,
    };
}

/// The constants of the header, by their names there: a test compares both.
macro_rules! constants {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $value:expr;)*) => {
        $($(#[$doc])* pub const $name: $type = $value;)*

        /// All constants.
        pub const CONSTANTS: &[(&str, i64)] = &[$((stringify!($name), $name as i64)),*];
    };
}

constants! {
    /// A datagram.
    WP_EVENT_DATAGRAM: u32 = 1;
    /// Bytes of a connection.
    WP_EVENT_DATA: u32 = 2;
    /// The handshake of a connection that we opened is done.
    WP_EVENT_CONNECTED: u32 = 3;
    /// A listener accepted a connection.
    WP_EVENT_ACCEPTED: u32 = 4;
    /// There is room to send again.
    WP_EVENT_WRITABLE: u32 = 5;
    /// The peer sends no more.
    WP_EVENT_PEER_CLOSED: u32 = 6;
    /// The connection is gone.
    WP_EVENT_CLOSED: u32 = 7;
    /// Our SYN waits for a path.
    WP_EVENT_NO_ROUTE: u32 = 8;
    /// A timer expired.
    WP_EVENT_TIMER: u32 = 9;
    /// A frame left for which the time was asked.
    WP_EVENT_SENT: u32 = 10;

    /// Lines for the operator go to standard error.
    WP_LOG: u32 = 1;
    /// Checksums that cover the pseudo header only are accepted.
    WP_ACCEPT_CHECKSUMS: u32 = 2;
    /// The device stamps frames.
    WP_TIMESTAMPS: u32 = 4;

    /// More calls follow: the frames leave with a later one.
    WP_MORE: u32 = 1;
    /// An order leaves at once or not at all.
    WP_NOW_OR_NEVER: u32 = 2;

    /// Left, or leaves with the next doorbell.
    WP_SENT: i32 = 0;
    /// Waits for a neighbor, a window or room; leaves by itself.
    WP_QUEUED: i32 = 1;
    /// Waits for a path to the peer.
    WP_WAITS_FOR_PATH: i32 = 2;

    /// Nagle's algorithm.
    WP_TCP_NAGLE: u32 = 1;
    /// Acknowledge each burst.
    WP_TCP_QUICKACK: u32 = 2;
    /// Probe a silent peer after 15 s, every 5 s, three times.
    WP_TCP_KEEPALIVE: u32 = 4;

    /// Refuse what is longer than the MTU.
    WP_UDP_DONT_FRAGMENT: u32 = 1;
    /// Send no UDP checksum.
    WP_UDP_NO_CHECKSUM: u32 = 2;

    /// States of a connection, by Linux's numbers.
    WP_TCP_ESTABLISHED: u32 = 1;
    /// Our SYN is not answered yet.
    WP_TCP_SYN_SENT: u32 = 2;
    /// The peer's SYN is answered, and not confirmed yet.
    WP_TCP_SYN_RECEIVED: u32 = 3;
    /// Our side is closed, and that is not acknowledged yet.
    WP_TCP_FIN_WAIT_1: u32 = 4;
    /// Our side is closed.
    WP_TCP_FIN_WAIT_2: u32 = 5;
    /// Both sides are closed, and late segments are waited for.
    WP_TCP_TIME_WAIT: u32 = 6;
    /// Gone; its event is on the way.
    WP_TCP_CLOSED: u32 = 7;
    /// The peer's side is closed.
    WP_TCP_CLOSE_WAIT: u32 = 8;
    /// Both sides are closed, and ours is not acknowledged yet.
    WP_TCP_LAST_ACK: u32 = 9;
    /// Both sides closed at the same time.
    WP_TCP_CLOSING: u32 = 11;

    /// A number that only grows.
    WP_STAT_COUNTER: u32 = 1;
    /// A number that is set.
    WP_STAT_GAUGE: u32 = 2;

    /// Both sides finished.
    WP_CLOSED_FINISHED: i32 = 1;
    /// We aborted it.
    WP_CLOSED_ABORTED: i32 = 2;
    /// The peer reset it.
    WP_CLOSED_RESET: i32 = 3;
    /// No listener at that port.
    WP_CLOSED_REFUSED: i32 = 4;
    /// No path when our SYN was given up.
    WP_CLOSED_NO_ROUTE: i32 = 5;
    /// Our SYN was not answered.
    WP_CLOSED_NO_ANSWER: i32 = 6;
    /// The peer stopped acknowledging.
    WP_CLOSED_TIMED_OUT: i32 = 7;
    /// The peer answered no probe.
    WP_CLOSED_KEEPALIVE: i32 = 8;
    /// A router reported that the peer cannot be reached.
    WP_CLOSED_UNREACHABLE: i32 = 9;
    /// No answer to ARP.
    WP_CLOSED_NO_NEIGHBOR: i32 = 10;
    /// Any other reason, of a later version.
    WP_CLOSED_OTHER: i32 = 11;
}
