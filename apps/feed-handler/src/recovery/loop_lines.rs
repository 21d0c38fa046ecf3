//! One loop of MDP 3.0, with its lines: kernel sockets that are members of their groups while the
//! loop is wanted.

use std::io;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};

use arrayvec::ArrayVec;
use market::Line;
use market::framing::Framing;
use market::framing::mdp3::Mdp3Packet;
use market::mdp3::LoopLines;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use wirepath::counters::{Counter, Scope, Unit};

use super::link::PACKET_LEN_MAX;
use super::plan::LoopLine;

/// Bytes that wait in the kernel while the worker is busy: 50 ms of a loop of 4,000 packets a
/// second. The kernel allows less where `net.core.rmem_max` is lower, and then the next loop brings
/// what was dropped.
const SOCKET_LEN: usize = 1 << 19;
/// Time between two attempts to join.
const RETRY_NS: u64 = 1_000_000_000;
/// Datagrams of no use that are read before others are served.
const LOOKS_MAX: usize = 64;

/// What is counted of all loops of a worker.
pub(super) struct LoopCounters {
    /// Groups that were joined.
    joined: Counter,
    /// Packets that were passed to the worker.
    packets: Counter,
    /// Copies of the other line.
    duplicates: Counter,
    /// Packets of senders that are none of the line's.
    other_sender: Counter,
    /// Packets that are none of MDP 3.0, or too long for one.
    malformed: Counter,
}

impl LoopCounters {
    pub(super) fn new(scope: &Scope) -> Self {
        let scope = scope.scope("loops");
        Self {
            joined: scope.counter("joined", Unit::Events),
            packets: scope.counter("packets", Unit::Datagrams),
            duplicates: scope.counter("duplicates", Unit::Datagrams),
            other_sender: scope.counter("other_sender", Unit::Datagrams),
            malformed: scope.counter("malformed", Unit::Datagrams),
        }
    }
}

/// The lines of one loop.
pub(super) struct JoinedLoop {
    lines: Vec<LoopLine>,
    interface: Ipv4Addr,
    /// For each line, while the loop is wanted.
    sockets: Vec<UdpSocket>,
    merged: LoopLines,
    not_before_ns: u64,
    /// The line that was read last.
    turn: usize,
}

impl JoinedLoop {
    /// A loop that is not joined.
    pub(super) fn new(lines: &[LoopLine], interface: Ipv4Addr) -> Self {
        let (sockets, merged) = (Vec::with_capacity(lines.len()), LoopLines::new());
        Self { lines: lines.to_vec(), interface, sockets, merged, not_before_ns: 0, turn: 0 }
    }

    /// Joins the groups of all lines, unless they are joined, or an attempt has just failed.
    pub(super) fn join(&mut self, now_ns: u64, counters: &mut LoopCounters) -> io::Result<()> {
        if self.sockets.len() == self.lines.len() || now_ns < self.not_before_ns {
            return Ok(());
        }
        self.not_before_ns = now_ns.saturating_add(RETRY_NS);
        self.sockets.clear();
        for line in &self.lines {
            self.sockets.push(member(line, self.interface)?);
            counters.joined.inc();
        }
        Ok(())
    }

    /// Leaves the groups.
    pub(super) fn leave(&mut self) {
        self.sockets.clear();
        self.not_before_ns = 0;
    }

    /// The next packet that no line has brought before. `None` where none came, or too many that
    /// are of no use.
    pub(super) fn next(&mut self, counters: &mut LoopCounters) -> Option<ArrayVec<u8, PACKET_LEN_MAX>> {
        // One byte more than a packet shows that one is too long.
        let mut bytes = [0; PACKET_LEN_MAX + 1];
        for _ in 0..LOOKS_MAX {
            let (idx, len, sender) = self.receive(&mut bytes)?;
            let senders = &self.lines[idx].senders;
            if !senders.is_empty() && !senders.iter().any(|&own| sender == IpAddr::V4(own)) {
                counters.other_sender.inc();
                continue;
            }
            let (Ok(packet), Ok(copy)) = (Mdp3Packet::parse(&bytes[..len]), ArrayVec::try_from(&bytes[..len])) else {
                counters.malformed.inc();
                continue;
            };
            if self.merged.is_new(Line(idx), &packet.raw) {
                counters.packets.inc();
                return Some(copy);
            }
            counters.duplicates.inc();
        }
        None
    }

    /// A datagram of the lines in turn: that of one line is mostly the other's last.
    fn receive(&mut self, bytes: &mut [u8]) -> Option<(usize, usize, IpAddr)> {
        for _ in 0..self.sockets.len() {
            self.turn = (self.turn + 1) % self.sockets.len();
            if let Ok((len, sender)) = self.sockets[self.turn].recv_from(bytes) {
                return Some((self.turn, len, sender.ip()));
            }
        }
        None
    }
}

/// A socket that is a member of the line's group. Other processes of this host may be too, which
/// the standard library does not allow (`SO_REUSEADDR`).
fn member(line: &LoopLine, interface: Ipv4Addr) -> io::Result<UdpSocket> {
    let flags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_recv_buffer_size(&socket, SOCKET_LEN)?;
    rustix::net::bind(&socket, &line.group)?;
    let group = line.group.ip();
    if line.senders.is_empty() {
        sockopt::set_ip_add_membership(&socket, group, &interface)?;
    }
    for sender in &line.senders {
        sockopt::set_ip_add_source_membership(&socket, group, &interface, sender)?;
    }
    Ok(socket.into())
}
