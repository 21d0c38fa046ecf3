//! The calls of the egress about neighbors: keeps a frame for one, receives ARP packets, and runs
//! the resolver's timers.

use core::net::Ipv4Addr;

use super::resolver::Resolver;
use crate::mem::Mbuf;
use crate::pipeline::egress::EgressCalls;
use crate::proto::{ArpOutcome, NeighborDrop, NeighborRequest, NotLearned};
use crate::wire::ArpPacket;

impl EgressCalls<'_> {
    /// Keeps a frame until its neighbor is known, and then writes its destination. Its headroom
    /// must be ours to write. The resolver counts whether the frame was sent or dropped. Returns
    /// the frame where this interface resolves no neighbors.
    pub(crate) fn queue(self, frame: Mbuf, request: NeighborRequest) -> Result<(), Mbuf> {
        let Self { egress, host, pool, tx, now } = self;
        let Some(Resolver { neighbors, output, waiting, .. }) = &mut egress.resolver else { return Err(frame) };
        let tags = host.vlan();
        neighbors.queue(request, frame, host, now, &mut |action| output.perform(action, &tags, pool, tx));
        waiting.set(neighbors.pending() as u64);
        Ok(())
    }

    /// Keeps a neighbor resolved from now on, and requests it where it is not known. False where
    /// the table is full, the request rate is used up, or there is no resolver.
    pub(crate) fn keep_neighbor(self, request: NeighborRequest) -> bool {
        let Self { egress, host, pool, tx, now } = self;
        let Some(Resolver { neighbors, output, .. }) = &mut egress.resolver else { return false };
        let tags = host.vlan();
        match neighbors.keep(request, host, now, &mut |action| output.perform(action, &tags, pool, tx)) {
            Ok(()) => true,
            Err(reason) => {
                output.limited.add(u64::from(reason == NeighborDrop::RateLimited));
                false
            }
        }
    }

    /// A neighbor seems not to reply: probe it now.
    pub(crate) fn negative_advice(self, next_hop: Ipv4Addr) {
        let Self { egress, host, pool, tx, now } = self;
        let Some(Resolver { neighbors, output, .. }) = &mut egress.resolver else { return };
        let tags = host.vlan();
        neighbors.negative_advice(next_hop, host, now, &mut |action| output.perform(action, &tags, pool, tx));
    }

    /// Receives an ARP packet; frames that waited for its sender are sent.
    pub(crate) fn receive_arp(self, packet: &ArpPacket) -> ArpOutcome {
        let Self { egress, host, pool, tx, now } = self;
        let Some(Resolver { neighbors, output, waiting, .. }) = &mut egress.resolver else {
            return ArpOutcome::Ignored(NotLearned::Unsolicited);
        };
        let tags = host.vlan();
        let outcome = neighbors.receive(packet, host, now, &mut |action| output.perform(action, &tags, pool, tx));
        waiting.set(neighbors.pending() as u64);
        outcome
    }

    /// Repeats requests, probes aging entries, gives up, and reads the host's changes. Two compares
    /// where nothing is due. True where TCP must be notified of segments whose neighbor did not
    /// reply.
    pub(crate) fn tick_neighbors(self) -> bool {
        let Self { egress, host, pool, tx, now } = self;
        let Some(resolver) = &mut egress.resolver else { return false };
        let has_changed = resolver.host_changes != host.changes();
        resolver.host_changes = host.changes();
        if resolver.neighbors.is_empty() {
            return false;
        }
        let tags = host.vlan();
        let before = resolver.pending();
        let Resolver { neighbors, output, .. } = resolver;
        let mut act = |action| output.perform(action, &tags, pool, tx);
        if has_changed {
            neighbors.follow(host, now, &mut act);
        }
        neighbors.tick(host, now, &mut act);
        if resolver.pending() != before {
            resolver.waiting.set(resolver.pending() as u64);
        }
        !resolver.output.unreached.is_empty()
    }
}
