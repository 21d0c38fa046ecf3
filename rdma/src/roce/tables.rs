//! What the queue pairs of a device share.

use super::counters::DeviceCounters;
use super::cq::{Cq, Pushed};
use super::events::{Event, Events};
use super::handle::{CqHandle, PdHandle, Table, kind};
use super::keys::Regions;
use super::path::Template;
use super::srq::Srq;
use super::work::WorkCompletion;

/// An address handle.
pub(super) struct Ah {
    pub(super) pd: PdHandle,
    pub(super) template: Template,
}

pub(super) struct Tables {
    pub(super) regions: Regions,
    pub(super) cqs: Table<kind::Cq, Cq>,
    pub(super) srqs: Table<kind::Srq, Srq>,
    pub(super) ahs: Table<kind::Ah, Ah>,
    pub(super) events: Events,
    pub(super) counters: DeviceCounters,
    /// Queue pairs whose first expected request came.
    pub(super) established: u64,
    /// Packets that a queue pair sends ahead of the acknowledgments.
    pub(super) unacknowledged_packets: u32,
    /// The rate that a queue pair has which no congestion slows.
    pub(super) link_kbps: u32,
    /// Frames that had left when there was no room for another.
    pub(super) sent_when_blocked: Option<u64>,
}

impl Tables {
    /// Tables without room, but for one completion queue.
    #[cfg(test)]
    pub(super) fn for_tests() -> Self {
        Self {
            regions: Regions::new(0, 0, 0, 0),
            cqs: Table::new(1),
            srqs: Table::new(0),
            ahs: Table::new(0),
            events: Events::new(1, 1),
            counters: DeviceCounters::default(),
            established: 0,
            unacknowledged_packets: 128,
            link_kbps: 10_000_000,
            sent_when_blocked: None,
        }
    }

    /// True if no frame has left since there was no room for one.
    pub(super) fn is_blocked(&self) -> bool {
        self.sent_when_blocked == Some(self.counters.packets_tx)
    }

    /// Puts in a completion; false if its queue overran.
    #[inline]
    pub(super) fn complete(&mut self, handle: CqHandle, completion: WorkCompletion, is_solicited: bool) -> bool {
        // A queue pair's queues live longer than it.
        let Some(cq) = self.cqs.get_mut(handle) else { return true };
        match cq.push(completion, is_solicited) {
            Pushed::Quietly => return true,
            Pushed::Notify => {
                self.events.notify(handle);
                return true;
            }
            Pushed::Overrun => self.events.push(Event::CqError(handle)),
            Pushed::Lost => {}
        }
        self.counters.cq_overruns += 1;
        false
    }
}
