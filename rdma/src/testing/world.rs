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
    /// Of these, connections that failed because a peer had no receive at any of the tries.
    pub rnr_exhausted: u64,
    /// Connections that were made anew between the same queue pairs, while packets of before were
    /// under way.
    pub restarts: u64,
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
        self.rnr_exhausted += other.rnr_exhausted;
        self.restarts += other.restarts;
    }
}

/// `rnr_retry` of retries without end.
const FOR_EVER: u8 = 7;

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
    /// What both ends of each connection agree on.
    with: Agreement,
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
    /// By the end whose memory or queue pair goes away.
    end: usize,
    connection: usize,
    how: How,
    is_done: bool,
}

/// What goes away.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// The memory that the peer reaches.
    RemoteMemory,
    /// The memory of requests and receives.
    LocalMemory,
    /// The queue pair.
    QueuePair,
    /// The queue pair's state: it is in ERR.
    State,
    /// The wire, which is everybody's.
    Wire,
    /// What both queue pairs know: they are connected anew.
    Connection,
}

impl How {
    const ALL: [Self; 6] =
        [Self::RemoteMemory, Self::LocalMemory, Self::QueuePair, Self::State, Self::Wire, Self::Connection];

    /// How the first request that fails may fail, at the end where it happened and at the other.
    const fn statuses(self, is_there: bool) -> &'static [Status] {
        match (self, is_there) {
            // A refusal may be lost, and is not said again.
            (Self::RemoteMemory, false) => &[Status::RemoteAccess, Status::RetryExceeded],
            (Self::LocalMemory, false) => &[Status::RemoteOperation, Status::RetryExceeded],
            (Self::LocalMemory, true) => &[Status::LocalProtection, Status::Flushed],
            (Self::RemoteMemory | Self::State, true) => &[Status::Flushed],
            (Self::QueuePair | Self::State, false) | (Self::Wire, _) => &[Status::RetryExceeded],
            (Self::QueuePair, true) | (Self::Connection, _) => &[],
        }
    }
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
            rnr_retry: if random.below(4) == 0 { random.below(7) as u8 } else { FOR_EVER },
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
        // A window is bound to a queue pair in a state, and a new connection would need a new one.
        let ways = How::ALL.len() as u64 - u64::from(with.windows);
        let broken = (random.below(3) == 0).then(|| Break {
            at: random.below(1_000_000),
            end: random.below(2) as usize,
            connection: random.below(count as u64) as usize,
            how: How::ALL[random.below(ways) as usize],
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
            with,
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
            self.break_connection()?;
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
                // What is under way of one that failed may not have come for the first time.
                let has_succeeded = flow.failure.is_none() && flow.is_complete();
                if is_reliable && has_succeeded && flow.posted() == self.requests {
                    self.ends[end].freeze(idx);
                }
            }
        }
    }

    /// Memory, a queue pair or the wire goes away.
    fn break_connection(&mut self) -> Result<(), String> {
        let Some(Break { connection, end, how, is_done, .. }) = &mut self.broken else { return Ok(()) };
        *is_done = true;
        let (connection, end) = (*connection, &mut self.ends[*end]);
        match how {
            How::RemoteMemory => end.freeze(connection),
            How::LocalMemory => drop(end.device.deregister(end.connections[connection].local_mr.handle)),
            How::QueuePair => {
                end.destroy(connection);
                end.soil_shared();
            }
            How::State => {
                let qp = end.connections[connection].qp;
                end.device.modify_qp(qp, &QpAttributes::to(QpState::Err)).expect("a step from any state");
            }
            How::Wire => self.wire.cut(),
            How::Connection => return self.restart(connection),
        }
        Ok(())
    }

    /// Connects the two queue pairs anew, as programs do after a fault.
    fn restart(&mut self, idx: usize) -> Result<(), String> {
        for end in &mut self.ends {
            end.reset(&mut self.random, idx);
            end.soil_shared();
        }
        let peers = [1, 0].map(|end: usize| (self.ends[end].connections[idx].qpn, self.ends[end].connections[idx].psn));
        for (end, to) in peers.into_iter().enumerate() {
            let (own, peer) = (&self.ends[end].connections[idx], &self.ends[1 - end].connections[idx]);
            let flow = &mut self.flows[end][idx];
            flow.restart(own, peer).map_err(|why| format!("behind RESET, end {end}, connection {idx}: {why}"))?;
            self.losses[end][idx] = 0;
            self.ends[end].connect(idx, end as u8, to, &self.with);
        }
        self.exhausted[idx] = false;
        Ok(())
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
                        let had_failed = self.flows[end][idx].failure.is_some();
                        let result = self.flows[end][idx].complete(&done, own, peer);
                        if !had_failed
                            && self.flows[end][idx].failure.is_some_and(|status| !self.may_end_with(end, idx, status))
                        {
                            Err(format!("{done:?} has no reason"))
                        } else {
                            result
                        }
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
                flow.check_end(own, peer).map_err(|why| name(&why))?;
                let peer_state = self.ends[other].device.qp_state(peer.qp);
                if peer_state == Some(QpState::Err) && self.ends[other].shared.is_none() && !flow.has_all_receives() {
                    return Err(name("receives of a queue pair in ERR were not flushed"));
                }
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
        for (idx, is_exhausted) in self.exhausted.iter().enumerate() {
            summary.exhausted += u64::from(*is_exhausted);
            let has_no_receive = |flows: &Vec<Flow>| flows[idx].failure == Some(Status::RnrRetryExceeded);
            summary.rnr_exhausted += u64::from(self.flows.iter().any(has_no_receive));
        }
        let is_restart = |broken: &Break| broken.how == How::Connection && broken.is_done;
        summary.restarts = u64::from(self.broken.as_ref().is_some_and(is_restart));
        self.check_shared()?;
        Ok(summary)
    }

    /// No receive of a shared queue is lost: those that are not there are in use by queue pairs
    /// whose message has not come to its end.
    fn check_shared(&self) -> Result<(), String> {
        for (end, other) in [(0, 1), (1, 0)] {
            let Some(shared) = &self.ends[end].shared else { continue };
            let device = &self.ends[end].device;
            let may_wait = |idx: &usize| {
                let connection = &self.ends[end].connections[*idx];
                let has_ended =
                    self.flows[other][*idx].failure.is_some() || self.ends[other].connections[*idx].is_destroyed;
                matches!(device.qp_state(connection.qp), Some(QpState::Rts | QpState::Sqe))
                    && (has_ended || connection.transport == Transport::Uc)
            };
            let (in_use, most) = (shared.in_use(device), (0..self.exhausted.len()).filter(may_wait).count());
            if in_use > most {
                return Err(format!(
                    "at the end, end {end}: {in_use} shared receives are nowhere, and {most} may be in use"
                ));
            }
        }
        Ok(())
    }

    fn may_fail(&self, idx: usize) -> bool {
        let is_broken = |broken: &Break| broken.how != How::Connection && broken.concerns(idx);
        let has_no_receive = (0..2).any(|end| self.flows[end][idx].failure == Some(Status::RnrRetryExceeded));
        self.exhausted[idx] || has_no_receive || self.broken.as_ref().is_some_and(is_broken)
    }

    /// True if the first request of a flow that fails may fail like this.
    fn may_end_with(&self, end: usize, idx: usize, status: Status) -> bool {
        let is_by_break = |broken: &Break| {
            broken.is_done && broken.concerns(idx) && broken.how.statuses(end == broken.end).contains(&status)
        };
        let is_other_silent = self.flows[1 - end][idx].failure.is_some();
        let is_by_itself = match status {
            Status::RetryExceeded => self.exhausted[idx] || is_other_silent,
            Status::RnrRetryExceeded => self.with.rnr_retry != FOR_EVER,
            _ => false,
        };
        let is_reliable = self.ends[end].connections[idx].transport == Transport::Rc;
        is_reliable && is_by_itself || self.broken.as_ref().is_some_and(is_by_break)
    }
}

impl Break {
    fn concerns(&self, idx: usize) -> bool {
        self.connection == idx || self.how == How::Wire
    }
}
