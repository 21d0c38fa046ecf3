//! The loops of one set: snapshots while its worker wants them, definitions until each instrument
//! was defined.

use std::io;

use arrayvec::ArrayVec;
use market::framing::Framing;
use market::loops::DefinitionLoop;

use super::link::PACKET_LEN_MAX;
use super::loop_lines::{JoinedLoop, LoopCounters};
use super::plan::LoopPlan;
use crate::feed::Loops;
use crate::format::Protocol;

/// Both loops of a set.
pub(super) struct LoopService {
    snapshots: JoinedLoop,
    are_snapshots_wanted: bool,
    definitions: JoinedLoop,
    defined: DefinitionLoop,
    are_definitions_wanted: bool,
}

impl LoopService {
    /// Neither loop is joined yet.
    pub(super) fn new(plan: &LoopPlan) -> Self {
        Self {
            snapshots: JoinedLoop::new(&plan.snapshots, plan.interface),
            are_snapshots_wanted: false,
            definitions: JoinedLoop::new(&plan.definitions, plan.interface),
            defined: DefinitionLoop::default(),
            are_definitions_wanted: false,
        }
    }

    /// Whether snapshots are of use from now on.
    pub(super) fn want_snapshots(&mut self, are_wanted: bool) {
        self.are_snapshots_wanted = are_wanted;
        if !are_wanted {
            self.snapshots.leave();
        }
    }

    /// Each instrument is to be defined again.
    pub(super) fn want_definitions(&mut self) {
        self.defined.restart();
        self.are_definitions_wanted = true;
    }

    /// Joins what is wanted.
    pub(super) fn join(&mut self, now_ns: u64, counters: &mut LoopCounters) -> io::Result<()> {
        if self.are_snapshots_wanted {
            self.snapshots.join(now_ns, counters)?;
        }
        if self.are_definitions_wanted {
            self.definitions.join(now_ns, counters)?;
        }
        Ok(())
    }

    /// The next packet of either loop. The loop of definitions is left with the last of them.
    pub(super) fn next<P: Protocol>(
        &mut self,
        now_ns: u64,
        counters: &LoopCounters,
    ) -> Option<ArrayVec<u8, PACKET_LEN_MAX>> {
        if let Some(packet) = self.definitions.next::<P::Framing>(now_ns, counters) {
            if let Ok(parsed) = P::Framing::parse(&packet) {
                parsed.messages().filter_map(P::Loops::definition).for_each(|definition| self.defined.take(definition));
            }
            if self.defined.is_whole() {
                self.definitions.leave();
                self.are_definitions_wanted = false;
            }
            return Some(packet);
        }
        self.snapshots.next::<P::Framing>(now_ns, counters)
    }
}
