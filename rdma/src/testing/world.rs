//! The world of a seed, from its first frame to the silence behind its last.

use super::end::{Agreement, End, TRIES};
use super::flow::Flow;
use super::random::Random;
use super::wire::Wire;
use crate::roce::{Mtu, QpAttributes, QpState, RoceFrame, Status};
use crate::wire::opcode::Transport;

/// What happened, over any number of seeds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    /// Requests that were posted.
    pub requests: u64,
    /// Messages that were received over services without acknowledgments.
    pub unreliable: u64,
    /// Messages that were received into receives that connections share.
    pub shared: u64,
    /// Windows that the last message of a peer has invalidated.
    pub invalidated: u64,
    /// Packets that were sent.
    pub packets: u64,
    /// Packets that were sent again.
    pub retransmits: u64,
    /// Requests that came twice.
    pub duplicates: u64,
    /// Times that a peer had no receive.
    pub rnr_naks: u64,
    /// Packets with a wrong ICRC.
    pub icrc_errors: u64,
    /// Connections that failed, because they were broken or the wire lost all tries of a packet.
    pub failures: u64,
    /// Of these, connections that failed because the wire lost all tries of a packet.
    pub exhausted: u64,
}

impl Summary {
    /// Adds what happened in another seed.
    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.unreliable += other.unreliable;
        self.shared += other.shared;
        self.invalidated += other.invalidated;
        self.packets += other.packets;
        self.retransmits += other.retransmits;
        self.duplicates += other.duplicates;
        self.rnr_naks += other.rnr_naks;
        self.icrc_errors += other.icrc_errors;
        self.failures += other.failures;
        self.exhausted += other.exhausted;
    }
}

struct World {
    random: Random,
    now: u64,
    ends: [End; 2],
    /// By the end that requests, and the connection.
    flows: [Vec<Flow>; 2],
    wire: Wire,
    /// Frames of a connection that did not arrive whole since the last completion, by the end that
    /// requests.
    losses: [Vec<u32>; 2],
    /// Connections of which the wire lost all tries of a packet.
    exhausted: Vec<bool>,
    /// When programs post next, and how many requests each flow has.
    programs_at: u64,
    requests: usize,
    /// Programs post receives this seldom: 1000 is always.
    receives: u64,
    /// Memory goes away when all requests of its peer are complete, which breaks nothing: what
    /// comes late is a duplicate.
    frees: bool,
    broken: Option<Break>,
}

/// A connection that breaks.
struct Break {
    at: u64,
    connection: usize,
    how: u64,
    is_done: bool,
}

/// Runs a seed.
///
/// # Errors
/// What differs from the model.
pub fn run_seed(seed: u64) -> Result<Summary, String> {
    let mut world = World::new(seed);
    for _ in 0..200_000 {
        world.transmit();
        world.poll()?;
        if !world.step()? {
            return world.end();
        }
    }
    Err(format!("no end after {} ms", world.now / 1_000_000))
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let count = 1 + random.below(3) as usize;
        let services = [Transport::Rc, Transport::Rc, Transport::Uc, Transport::Ud];
        let transports: Vec<_> = (0..count).map(|_| services[random.below(4) as usize]).collect();
        let mut ends = [(); 2].map(|()| End::new(&mut random, &transports));
        let with = Agreement {
            mtu: if random.below(2) == 0 { Mtu::B256 } else { Mtu::B1024 },
            reads: 1 + random.below(4) as u8,
            timeout: 5 + random.below(4) as u8,
            rnr_timer: 1 + random.below(10) as u8,
            windows: seed % 7 == 5,
        };
        for idx in 0..count {
            let [a, b] = [0, 1].map(|end: usize| {
                let connection = &ends[end].connections[idx];
                (connection.qpn, connection.psn)
            });
            ends[0].connect(idx, 0, b, &with);
            ends[1].connect(idx, 1, a, &with);
        }
        let broken = (random.below(3) == 0).then(|| Break {
            at: random.below(1_000_000),
            connection: random.below(count as u64) as usize,
            how: random.below(5),
            is_done: false,
        });
        let flows = [(); 2].map(|()| (0..count).map(|_| Flow::default()).collect());
        let mut wire = Wire::new(&mut random);
        if seed.is_multiple_of(5) {
            wire.congest();
        }
        let (requests, receives) = (10 + random.below(60) as usize, 50 + random.below(950));
        Self {
            random,
            now: 0,
            ends,
            flows,
            wire,
            losses: [vec![0; count], vec![0; count]],
            exhausted: vec![false; count],
            programs_at: 0,
            requests,
            receives,
            frees: seed.is_multiple_of(2),
            broken,
        }
    }

    /// Goes on to what happens next; false if nothing does.
    fn step(&mut self) -> Result<bool, String> {
        let timers = self.ends.iter().filter_map(|end| end.device.next_timer()).min();
        let programs = self.has_posts().then_some(self.programs_at);
        let broken = self.broken.as_ref().filter(|broken| !broken.is_done).map(|broken| broken.at);
        let Some(next) = [self.wire.next(), timers, programs, broken].into_iter().flatten().min() else {
            return Ok(false);
        };
        self.now = self.now.max(next);
        if broken.is_some_and(|at| at <= self.now) {
            self.break_connection();
        }
        while let Some(flight) = self.wire.arrive(self.now) {
            if let Ok(frame) = RoceFrame::parse(&flight.frame) {
                self.ends[flight.to].device.receive(self.now, frame.network, frame.roce);
                self.poll()?;
            }
        }
        self.ends.iter_mut().for_each(|end| end.device.on_timer(self.now));
        if programs.is_some_and(|at| at <= self.now) {
            self.run_programs()?;
        }
        if self.frees {
            self.free_what_is_done();
        }
        Ok(true)
    }

    /// True while a program has something to post: a request, or a receive for one under way.
    fn has_posts(&self) -> bool {
        self.ends.iter().zip(&self.flows).any(|(end, flows)| {
            end.connections.iter().zip(flows).any(|(connection, flow)| {
                let has_failed = flow.failure.is_some() || connection.is_destroyed;
                !has_failed && (flow.posted() < self.requests || !flow.is_complete())
            })
        })
    }

    fn run_programs(&mut self) -> Result<(), String> {
        self.programs_at = self.now + 1 + self.random.below(20_000);
        for end in 0..2 {
            for idx in 0..self.flows[end].len() {
                let [a, b] = &mut self.ends;
                let (own, peer) = if end == 0 { (a, b) } else { (b, a) };
                let flow = &mut self.flows[end][idx];
                let (connection, other) = (&own.connections[idx], &peer.connections[idx]);
                if self.random.happens(self.receives) {
                    match &mut peer.shared {
                        Some(shared) => shared.post(&mut peer.device),
                        None => flow.post_receive(&mut peer.device, other),
                    }
                }
                if flow.failure.is_some() && !connection.is_destroyed {
                    flow.fill(&mut own.device, connection)?;
                }
                while flow.failure.is_none() && flow.posted() < self.requests && self.random.happens(600) {
                    let before = flow.posted();
                    flow.post(&mut self.random, &mut own.device, (connection, other), self.requests);
                    if flow.posted() == before {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// Ends the registration of what the peers do not reach for any more.
    fn free_what_is_done(&mut self) {
        for (end, other) in [(0, 1), (1, 0)] {
            for (idx, flow) in self.flows[other].iter().enumerate() {
                let is_reliable = self.ends[end].connections[idx].transport == Transport::Rc;
                if is_reliable && flow.posted() == self.requests && flow.is_complete() {
                    self.ends[end].freeze(idx);
                }
            }
        }
    }

    /// Memory, a queue pair or the wire goes away.
    fn break_connection(&mut self) {
        let Some(Break { connection, how, is_done, .. }) = &mut self.broken else { return };
        *is_done = true;
        let end = &mut self.ends[0];
        match how {
            0 => end.freeze(*connection),
            1 => end.destroy(*connection),
            2 => {
                let qp = end.connections[*connection].qp;
                end.device.modify_qp(qp, &QpAttributes::to(QpState::Err)).expect("a step from any state");
            }
            3 => drop(end.device.deregister(end.connections[*connection].local_mr.handle)),
            _ => self.wire.cut(),
        }
    }

    fn transmit(&mut self) {
        for (end, to) in [(0, 1), (1, 0)] {
            let mut frame = vec![0; self.ends[end].device.frame_len_max()];
            while let Some(len) = self.ends[end].device.transmit(self.now, &mut frame) {
                let frame = &frame[..len];
                if !self.wire.send(&mut self.random, self.now, to, frame) {
                    let connection = self.ends[to].connection_of(frame);
                    self.losses.iter_mut().for_each(|losses| losses[connection] += 1);
                }
            }
        }
    }

    /// Compares all completions with the model.
    fn poll(&mut self) -> Result<(), String> {
        for (end, other) in [(0, 1), (1, 0)] {
            for idx in 0..self.flows[0].len() {
                let cq = self.ends[end].connections[idx].cq;
                while let Some(done) = self.ends[end].device.poll_cq(cq) {
                    let [a, b] = &mut self.ends;
                    let (own, peer) = if end == 0 { (a, b) } else { (b, a) };
                    let (shared, own) = (own.shared.as_mut(), &own.connections[idx]);
                    let peer = &peer.connections[idx];
                    let result = if done.wr_id >> 32 == 0 {
                        // The first try may have been lost before.
                        let losses = 1 + core::mem::take(&mut self.losses[end][idx]);
                        let is_at_end = done.status == Status::RetryExceeded;
                        self.exhausted[idx] |= is_at_end && losses >= TRIES;
                        self.flows[end][idx].complete(&done, own, peer)
                    } else {
                        self.flows[other][idx].receive(&done, own, shared)
                    };
                    result.map_err(|why| format!("{} µs, end {end}, connection {idx}: {why}", self.now / 1000))?;
                }
            }
        }
        Ok(())
    }

    /// Nothing moves any more: all must be done, except on what was broken.
    fn end(self) -> Result<Summary, String> {
        let mut summary = Summary::default();
        for (end, other) in [(0, 1), (1, 0)] {
            for (idx, flow) in self.flows[end].iter().enumerate() {
                let (own, peer) = (&self.ends[end].connections[idx], &self.ends[other].connections[idx]);
                let name = |why: &str| format!("at the end, end {end}, connection {idx}: {why}");
                if !self.may_fail(idx) && (flow.failure.is_some() || flow.posted() != self.requests) {
                    return Err(name(&format!("{:?} of {} requests", flow.failure, flow.posted())));
                }
                if !self.may_fail(idx) && self.ends[end].device.qp_state(own.qp) != Some(QpState::Rts) {
                    return Err(name("a queue pair failed that nobody broke"));
                }
                if !own.is_destroyed && !flow.is_complete() {
                    return Err(name("requests have no completion"));
                }
                if peer.has_thawed() {
                    return Err(name("memory changed that nobody may write"));
                }
                flow.check_end(peer).map_err(|why| name(&why))?;
                summary.requests += flow.posted() as u64;
                let is_unreliable = own.transport != Transport::Rc;
                summary.unreliable += u64::from(is_unreliable) * flow.received();
                let is_shared = self.ends[other].shared.is_some();
                summary.shared += u64::from(is_shared) * flow.received();
                summary.invalidated += flow.invalidated;
                summary.failures += u64::from(flow.failure.is_some());
                if let Some(counters) = self.ends[end].device.qp_counters(own.qp) {
                    summary.retransmits += counters.retransmits;
                    summary.duplicates += counters.duplicates;
                    summary.rnr_naks += counters.rnr_naks_rx;
                }
            }
            let counters = self.ends[end].device.counters();
            summary.packets += counters.packets_tx;
            summary.icrc_errors += counters.icrc_errors;
        }
        summary.exhausted = self.exhausted.iter().map(|is_it| u64::from(*is_it)).sum();
        Ok(summary)
    }

    fn may_fail(&self, idx: usize) -> bool {
        // The wire is everybody's.
        let is_broken = |broken: &Break| broken.connection == idx || broken.how == 4;
        self.exhausted[idx] || self.broken.as_ref().is_some_and(is_broken)
    }
}
