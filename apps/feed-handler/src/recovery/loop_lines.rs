//! One loop of a channel, with its lines: kernel sockets that are members of their groups while the
//! loop is wanted.

use std::io;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};

use arrayvec::ArrayVec;
use market::Line;
use market::framing::Framing;
use market::loops::LoopLines;
use wirepath::counters::{Counter, Scope, Unit};

use super::link::PACKET_LEN_MAX;
use super::plan::RecoveryGroup;

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
    /// Copies of packets that were passed.
    duplicates: Counter,
    /// Packets that one line alone has brought: lost on the others, or forged.
    unconfirmed: Counter,
    /// Packets of senders that are none of the line's.
    other_sender: Counter,
    /// Packets that are none of the channel's format, or too long for one.
    malformed: Counter,
}

impl LoopCounters {
    pub(super) fn new(scope: &Scope) -> Self {
        let scope = scope.scope("loops");
        Self {
            joined: scope.counter("joined", Unit::Events),
            packets: scope.counter("packets", Unit::Datagrams),
            duplicates: scope.counter("duplicates", Unit::Datagrams),
            unconfirmed: scope.counter("unconfirmed", Unit::Datagrams),
            other_sender: scope.counter("other_sender", Unit::Datagrams),
            malformed: scope.counter("malformed", Unit::Datagrams),
        }
    }
}

/// The lines of one loop.
pub(super) struct JoinedLoop {
    lines: Vec<RecoveryGroup>,
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
    pub(super) fn new(lines: &[RecoveryGroup], interface: Ipv4Addr) -> Self {
        let (sockets, merged) = (Vec::with_capacity(lines.len()), LoopLines::new(lines.len()));
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
            self.sockets.push(line.join(self.interface)?);
            counters.joined.inc();
        }
        self.merged.join(now_ns);
        Ok(())
    }

    /// Leaves the groups.
    pub(super) fn leave(&mut self) {
        self.sockets.clear();
        self.not_before_ns = 0;
    }

    /// The next packet that its lines agree on. `None` where none came, or too many that are of no
    /// use.
    pub(super) fn next<F: Framing>(
        &mut self,
        now_ns: u64,
        counters: &LoopCounters,
    ) -> Option<ArrayVec<u8, PACKET_LEN_MAX>> {
        // One byte more than a packet shows that one is too long.
        let mut bytes = [0; PACKET_LEN_MAX + 1];
        for _ in 0..LOOKS_MAX {
            let (idx, len, sender) = self.receive(&mut bytes)?;
            if !self.lines[idx].takes(sender) {
                counters.other_sender.inc();
                continue;
            }
            let (Ok(packet), Ok(copy)) = (F::parse(&bytes[..len]), ArrayVec::try_from(&bytes[..len])) else {
                counters.malformed.inc();
                continue;
            };
            let before = *self.merged.counts();
            let passes = self.merged.offer(Line(idx), &F::loop_header(&packet.raw), &bytes[..len], now_ns);
            counters.duplicates.add(self.merged.counts().duplicates - before.duplicates);
            counters.unconfirmed.add(self.merged.counts().unconfirmed - before.unconfirmed);
            if passes {
                counters.packets.inc();
                return Some(copy);
            }
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
