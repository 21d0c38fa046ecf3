//! The events of a run: hosts, listeners, sessions, and the faults with their times. All of it is
//! drawn from the seed before the run begins.

use std::net::{Ipv4Addr, SocketAddrV4};

use wirepath::pipeline::tcp::ConnectionOptions;
use wirepath::wire::MacAddr;

use super::end::EndPlan;
use super::nic::NicConfig;

/// Milliseconds and seconds in nanoseconds.
pub const MS: u64 = 1_000_000;
/// A second.
pub const SECOND: u64 = 1_000 * MS;

/// A run.
#[derive(Clone, Debug)]
pub struct Script {
    /// The seed that it was drawn from.
    pub seed: u64,
    /// The hosts.
    pub hosts: Vec<HostPlan>,
    /// The listeners of all hosts.
    pub listeners: Vec<Listener>,
    /// The connections.
    pub sessions: Vec<Session>,
    /// The network without faults.
    pub line: Line,
    /// The impairments of all frames until `heals_at`.
    pub impairments: Impairments,
    /// The faults of single hosts and paths.
    pub injected_faults: Vec<InjectedFault>,
    /// When all faults end.
    pub heals_at: u64,
    /// When the run must have ended.
    pub ends_by: u64,
}

/// Which stack a host has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stack {
    /// Ours.
    Wirepath,
    /// smoltcp.
    Smoltcp,
}

/// A host.
#[derive(Clone, Debug)]
pub struct HostPlan {
    /// Its stack.
    pub stack: Stack,
    /// Its NIC.
    pub nic: NicConfig,
    /// Buffers of its pool.
    pub buffers: usize,
    /// Frames of a turn.
    pub burst_len: usize,
    /// The most nanoseconds between two turns of an idle host.
    pub turn_max: u64,
    /// The time of its clock when the world's clock shows 0.
    pub clock: u64,
    /// The drift of its clock in parts per million, up to 1000.
    pub drift_ppm: i64,
    /// It resolves its neighbors by ARP.
    pub uses_arp: bool,
    /// Its MTU in bytes.
    pub mtu: usize,
    /// The duration of TIME-WAIT.
    pub time_wait: u64,
    /// The most chunks of all connections.
    pub chunks_max: usize,
    /// The most chunks out of order of one connection.
    pub reassembly_max: u32,
}

/// A listener.
#[derive(Clone, Debug)]
pub struct Listener {
    /// The host.
    pub host: usize,
    /// The port.
    pub port: u16,
    /// The most handshakes at the same time.
    pub backlog: u32,
    /// The options of its connections.
    pub options: ConnectionOptions,
    /// When it closes.
    pub closes_at: Option<u64>,
}

/// A connection between two hosts.
#[derive(Clone, Debug)]
pub struct Session {
    /// The host that connects.
    pub client: usize,
    /// The host that listens.
    pub server: usize,
    /// The port that it listens at.
    pub port: u16,
    /// When the client connects.
    pub begins_at: u64,
    /// The client's options.
    pub options: ConnectionOptions,
    /// The behavior of both ends: client, server.
    pub ends: [EndPlan; 2],
    /// `Refused` is no error, because the listener closes.
    pub may_be_refused: bool,
    /// `TimedOut` is no error, because the listener closes.
    pub may_time_out: bool,
}

impl Session {
    /// Whether one of its ends may end before the other has closed.
    pub fn may_break(&self) -> bool {
        self.ends.iter().any(EndPlan::may_break)
    }
}

/// The network without faults.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// Bits a second of each host's port.
    pub rate: u64,
    /// Nanoseconds from one host to another.
    pub delay: u64,
    /// The most bytes that wait at a port; further frames are lost.
    pub queue_len: usize,
    /// Frames that wait behind more than this many bytes are marked if they support ECN (RFC 3168).
    pub mark_len: usize,
}

/// The faults that may befall each frame: probabilities in parts per million.
#[derive(Clone, Copy, Debug, Default)]
pub struct Impairments {
    /// A frame is lost.
    pub loss: u32,
    /// A frame is lost, and a random number of those after it.
    pub gap: u32,
    /// The most frames of such a gap.
    pub gap_max: u32,
    /// A frame arrives twice.
    pub duplication: u32,
    /// One of its bits is flipped.
    pub corruption: u32,
    /// A frame is delayed, so that others overtake it.
    pub delay: u32,
    /// The longest such delay, in nanoseconds.
    pub delay_max: u64,
    /// The longest delay of every frame, in nanoseconds; it may change the order.
    pub jitter: u64,
}

/// A fault of one host, for a time.
#[derive(Clone, Copy, Debug)]
pub struct InjectedFault {
    /// The host.
    pub host: usize,
    /// When it begins.
    pub from: u64,
    /// When it ends.
    pub to: u64,
    /// The kind of fault.
    pub kind: FaultKind,
}

/// The kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The network loses all frames to and from the host.
    Blackout,
    /// The network loses all frames to the host.
    RxBlackout,
    /// Its worker does not run.
    Stall,
    /// Its transmit ring accepts no frames.
    RingFull,
    /// Its pool has this many free buffers.
    PoolEmpty(usize),
    /// The MTU of the path to it; and whether a router reports longer packets.
    Mtu(u16, bool),
    /// Its clock jumps this far ahead, once.
    ClockJump(u64),
}

/// The address of a host.
pub fn address(host: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, host as u8 + 1)
}

/// The MAC address of a host.
pub fn mac(host: usize) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, host as u8 + 1])
}

/// The host of a MAC address; `None` for broadcast and multicast.
pub fn host_of(mac: &[u8]) -> Option<usize> {
    (mac[0] & 1 == 0).then(|| usize::from(mac[5]).wrapping_sub(1))
}

/// Where a host listens.
pub fn end(host: usize, port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(address(host), port)
}
