//! The model: control objects (protection domains, memory regions, queues, flows), and
//! [`step`](Hca::step), which does the work that the NIC would have done meanwhile: it reads
//! doorbells, fetches and executes send WQEs, receives frames into receive WQEs, and writes CQEs.
//!
//! It has no thread and no I/O. Its owner (an engine thread, a test, a simulation) calls control
//! functions and `step`, never two at the same time.

mod completion;
mod config;
mod control;
mod counters;
mod diagnosis;
mod environment;
mod hostile;
mod memory;
mod qp;
mod rdma;
mod receive;
mod send;
mod steering;
mod table;
pub mod testing;
mod work;

pub use completion::{Completion, CompletionKind, RxHeaders, RxMessage, RxMessageKind, Syndrome};
pub use config::{Config, Hostility};
pub use control::{
    AccessFlags, AddressVector, Compression, CqCreated, CqEvents, CqRequest, Errno, Event, EventKind, FlowAction,
    FlowKind, FlowRequest, FlowSpec, Gid, MrCreated, MrRequest, QpAttributes, QpCapabilities, QpChange, QpCreated,
    QpKind, QpRequest, QpState, RqRing, RssRequest, Service, SqRing, SrqCreated, SrqRequest, Striding, WqChange,
    WqCreated, WqRequest, WqState,
};
pub use counters::Counters;
pub use environment::{Clock, Dma, Environment, LinkState, Unmapped, Wire};

use std::collections::VecDeque;

/// One NIC with one port.
pub struct Hca {
    config: Config,
    counters: Counters,
    events: VecDeque<Event>,
    diagnoses: diagnosis::Diagnoses,
    memory: memory::Memory,
    uars: memory::Uars,
    cqs: completion::Cqs,
    rqs: receive::Rqs,
    qps: qp::Qps,
    srqs: rdma::Srqs,
    endpoints: rdma::Endpoints,
    transmitter: send::Transmitter,
    /// The sending queue that is looked at first in the next step: each has its turn.
    sq_first: u32,
    wqs: receive::Wqs,
    tirs: steering::Tirs,
    steering: steering::Steering,
    receive: receive::Receive,
    chance: hostile::Chance,
    link: LinkState,
}

impl Hca {
    /// A NIC that has just been switched on.
    pub fn new(config: Config) -> Self {
        Self {
            counters: Counters::default(),
            events: VecDeque::new(),
            diagnoses: diagnosis::Diagnoses::default(),
            memory: memory::Memory::default(),
            uars: memory::Uars::default(),
            cqs: completion::Cqs::new(&config),
            rqs: receive::Rqs::default(),
            qps: qp::Qps::default(),
            srqs: rdma::Srqs::default(),
            endpoints: rdma::Endpoints::default(),
            transmitter: send::Transmitter::new(),
            sq_first: 0,
            wqs: receive::Wqs::default(),
            tirs: steering::Tirs::default(),
            steering: steering::Steering::default(),
            receive: receive::Receive::default(),
            chance: hostile::Chance::new(config.hostility.as_ref()),
            link: LinkState::Up,
            config,
        }
    }

    /// Its features and tolerance.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Its counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Whether the port is up, as the last step saw it.
    pub fn link(&self) -> LinkState {
        self.link
    }

    /// Does the due work, for at most `budget` frames in each direction. Returns the number of
    /// frames moved, WQEs taken and CQEs written: 0 means that there was no work.
    ///
    /// Frames are received first, so that what they ask for is answered in the same step, as far as
    /// the budget and the wire have room: a client that sees a message complete may destroy its QP
    /// before the next step, and its peer is still to hear that the message arrived.
    pub fn step(&mut self, budget: usize, environment: &mut Environment<'_>) -> usize {
        self.watch_link(environment)
            + self.receive_some(budget, environment)
            + self.send(budget, environment)
            + self.cqs.end_step(&mut self.chance, &mut self.counters, environment)
    }

    /// The oldest event that the owner has not taken: completion events for channels, asynchronous
    /// ones.
    pub fn take_event(&mut self) -> Option<Event> {
        let of_queues = self.cqs.take_event().or_else(|| self.qps.take_event()).or_else(|| self.srqs.take_event());
        of_queues.or_else(|| self.events.pop_front())
    }

    /// Executes the posted WQEs of sending queues; afterwards the frames are on the wire or in the
    /// outbox.
    fn send(&mut self, budget: usize, environment: &mut Environment<'_>) -> usize {
        let mut qp_events = Vec::new();
        let mut work = work::Work {
            config: &self.config,
            memory: &mut self.memory,
            cqs: &mut self.cqs,
            counters: &mut self.counters,
            diagnoses: &mut self.diagnoses,
            chance: &mut self.chance,
            link: self.link,
            environment,
            qp_events: &mut qp_events,
        };
        let mut done = self.transmitter.resume(&mut work);
        if self.config.strict {
            done += send::strict::look_at_doorbells(&mut self.uars, &mut self.qps, &mut work);
        }
        let mut left = budget;
        let count = self.qps.sqs.end();
        for turn in 0..count {
            let slot = (self.sq_first + turn) % count;
            let Some(sq) = self.qps.sqs.get_mut(slot) else { continue };
            let moved = match sq.endpoint.and_then(|at| self.endpoints.get_mut(at)) {
                None => sq.run(left, None, &mut self.transmitter, &mut work),
                Some(endpoint) => {
                    let mut receivers = rdma::Receivers { rqs: &mut self.rqs, srqs: &mut self.srqs };
                    endpoint.run(left, sq, &mut receivers, &mut self.transmitter, &mut work)
                }
            };
            left = left.saturating_sub(moved);
            done += moved;
        }
        self.sq_first = (self.sq_first + 1) % count.max(1);
        for (qp, event) in qp_events {
            self.qps.raise(qp, event);
        }
        done
    }

    /// Tells the client when the port went down or came up. The port is down where the wire says
    /// so, or bad luck.
    fn watch_link(&mut self, environment: &Environment<'_>) -> usize {
        let link = if self.chance.link_is_down() { LinkState::Down } else { environment.wire.link() };
        if link == self.link {
            return 0;
        }
        self.link = link;
        let kind = if link == LinkState::Up { EventKind::PortActive } else { EventKind::PortError };
        self.events.push_back(Event { channel: None, element: PORT, kind });
        1
    }
}

/// The number of the only port.
const PORT: u64 = 1;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a panic here is the report
    use super::testing::{CableEnd, ManualClock, PlainMemory};
    use super::*;

    #[test]
    fn a_cable_that_is_pulled_and_plugged_in_is_told_once_each() {
        let memory = PlainMemory::new(0, 0);
        let clock = ManualClock::default();
        let (mut wire, there) = CableEnd::pair();
        let mut hca = Hca::new(Config::default());
        for (link, kind) in [(LinkState::Down, EventKind::PortError), (LinkState::Up, EventKind::PortActive)] {
            there.set_link(link);
            for _ in 0..3 {
                hca.step(1, &mut Environment { dma: &memory, wire: &mut wire, clock: &clock });
            }
            assert_eq!(hca.take_event(), Some(Event { channel: None, element: 1, kind }));
            assert_eq!(hca.take_event(), None);
            assert_eq!(hca.link(), link);
        }
    }
}
