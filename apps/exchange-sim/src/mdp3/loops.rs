//! The loops of definitions and of snapshots: a packet of each at a time, from instrument to
//! instrument, and from the first again.

use super::translator::Translator;
use crate::packetizer::{Mdp3Feed, Packet, Packetizer};
use crate::settings::Settings;

/// Instruments in a packet: some 1,000 bytes, within the least MTU where they are one.
const PER_PACKET: [usize; 2] = [4, 2];

/// Which messages a loop has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoopKind {
    Definitions,
    Snapshots,
}

/// One loop.
#[derive(Debug)]
pub(super) struct Loop {
    kind: LoopKind,
    packets: Packetizer<Mdp3Feed>,
    /// Instruments of this round, the last one first.
    left: Vec<usize>,
    total: u32,
    /// Rounds that began.
    pub(super) begun: u64,
}

impl Loop {
    pub(super) fn new(kind: LoopKind, settings: &Settings, start_ns: u64) -> Self {
        Self { kind, packets: Packetizer::of(Mdp3Feed, settings, start_ns), left: Vec::new(), total: 0, begun: 0 }
    }

    /// Makes the packet that is due. `last_seq` is that of the incremental feed, which has sent all
    /// that the books have.
    pub(super) fn turn(&mut self, books: &Translator, last_seq: u32, time_ns: u64, out: &mut Vec<Packet>) {
        if self.left.is_empty() {
            self.left = (0..books.len()).rev().filter(|&idx| self.has(books, idx)).collect();
            self.total = self.left.len() as u32;
            self.packets.restart_numbers();
            self.begun += u64::from(!self.left.is_empty());
        }
        for _ in 0..PER_PACKET[self.kind as usize] {
            let Some(idx) = self.left.pop() else { break };
            let message = match self.kind {
                LoopKind::Definitions => books.definition(idx),
                LoopKind::Snapshots => books.snapshot(idx, last_seq, self.total, time_ns),
            };
            self.packets.push_bytes(time_ns, &message, out);
        }
        self.packets.flush(time_ns, out);
        // A loop without an instrument yet has heartbeats alone.
        self.packets.pass_time(time_ns, out);
    }

    fn has(&self, books: &Translator, idx: usize) -> bool {
        self.kind == LoopKind::Definitions || books.is_active(idx)
    }
}
