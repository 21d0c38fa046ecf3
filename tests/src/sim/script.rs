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
    /// Who takes part.
    pub hosts: Vec<HostPlan>,
    /// Who listens.
    pub listeners: Vec<Listener>,
    /// Who connects.
    pub sessions: Vec<Session>,
    /// The network at its best.
    pub line: Line,
    /// The faults of the network until `heals_at`.
    pub weather: Weather,
    /// Faults of hosts and paths.
    pub mishaps: Vec<Mishap>,
    /// From now on nothing goes wrong.
    pub heals_at: u64,
    /// By then all is over.
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
    /// Which stack.
    pub stack: Stack,
    /// Its NIC.
    pub nic: NicConfig,
    /// Buffers of its pool.
    pub buffers: usize,
    /// Frames of a turn.
    pub burst_len: usize,
    /// Nanoseconds between two turns where nothing happens, at most.
    pub turn_max: u64,
    /// The time of its clock when the world's clock shows 0.
    pub clock: u64,
    /// How many parts per million its clock goes wrong, up to 1000.
    pub drift_ppm: i64,
    /// It asks for its neighbors.
    pub uses_arp: bool,
    /// Bytes of its longest packet.
    pub mtu: usize,
    /// The duration of TIME-WAIT.
    pub time_wait: u64,
    /// Pieces that wait in all connections.
    pub chunks_max: usize,
    /// Pieces out of order of one connection.
    pub reassembly_max: u32,
}

/// A listener.
#[derive(Clone, Debug)]
pub struct Listener {
    /// Whose.
    pub host: usize,
    /// Where.
    pub port: u16,
    /// Handshakes at the same time.
    pub backlog: u32,
    /// How it behaves.
    pub options: ConnectionOptions,
    /// When it closes.
    pub closes_at: Option<u64>,
}

/// Two ends that talk.
#[derive(Clone, Debug)]
pub struct Session {
    /// Who connects.
    pub client: usize,
    /// To whom.
    pub server: usize,
    /// To which port.
    pub port: u16,
    /// When.
    pub begins_at: u64,
    /// The client's options.
    pub options: ConnectionOptions,
    /// The behavior of both ends: client, server.
    pub ends: [EndPlan; 2],
    /// It is not an error if no socket listens.
    pub may_be_refused: bool,
    /// It is not an error if the peer does not answer for too long.
    pub may_time_out: bool,
}

impl Session {
    /// Whether one of its ends may leave the other without an end.
    pub fn may_break(&self) -> bool {
        self.ends.iter().any(EndPlan::may_break)
    }
}

/// The network at its best.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// Bits a second of each host's port.
    pub rate: u64,
    /// Nanoseconds from one host to another.
    pub delay: u64,
    /// Bytes that wait in front of a port; more are lost.
    pub queue_len: usize,
    /// Frames that wait behind this many bytes are marked if ECN allows it (RFC 3168).
    pub mark_len: usize,
}

/// The faults that may befall each frame: probabilities in parts per million.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weather {
    /// It is lost.
    pub loss: u32,
    /// The frame is lost with those after it, this many at most.
    pub gap: u32,
    /// Frames of a gap.
    pub gap_max: u32,
    /// It comes twice.
    pub duplication: u32,
    /// One of its bits is flipped.
    pub corruption: u32,
    /// It comes late.
    pub delay: u32,
    /// So late at most.
    pub delay_max: u64,
    /// Every frame is delayed by up to this time, in order or not.
    pub jitter: u64,
}

/// Something that goes wrong for a time.
#[derive(Clone, Copy, Debug)]
pub struct Mishap {
    /// Where.
    pub host: usize,
    /// From when.
    pub from: u64,
    /// To when.
    pub to: u64,
    /// The kind of fault.
    pub kind: MishapKind,
}

/// The kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MishapKind {
    /// No frame comes to or from the host.
    Blackout,
    /// No frame comes to the host; those from it leave.
    Deaf,
    /// Its worker does not run.
    Stall,
    /// Its sending ring takes nothing.
    RingFull,
    /// Its pool has this many buffers left.
    PoolEmpty(usize),
    /// Packets to it are at most this long; a router reports longer ones, or not.
    Mtu(u16, bool),
    /// Its clock jumps this far ahead, once.
    ClockJump(u64),
}

/// The address of a host.
pub fn address(host: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, host as u8 + 1)
}

/// The station of a host.
pub fn station(host: usize) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, host as u8 + 1])
}

/// The host of a station; `None` is all of them.
pub fn host_of(station: &[u8]) -> Option<usize> {
    (station[0] & 1 == 0).then(|| usize::from(station[5]).wrapping_sub(1))
}

/// Where a host listens.
pub fn end(host: usize, port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(address(host), port)
}
