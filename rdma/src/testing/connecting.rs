//! Two connection managers with their devices over a wire with every fault: connections are asked
//! for, granted, refused and ended, by both ends at once too, while an end dies and begins anew.
//! And a peer whose messages are an input's bytes.

use core::net::Ipv4Addr;

use zerocopy::IntoBytes;

use super::random::Random;
use super::wire::Wire;
use crate::cm::{
    Cm, CmConfig, CmEvent, CmId, ConnectOptions, Delivery, ListenOptions, LocalQp, MadHeader, Manager, PortSpace,
    RejectReason, Resolved,
};
use crate::roce::{
    Access, Addresses, Device, DeviceConfig, Link, MAD_LEN, Mtu, Path, PdHandle, QpAttributes, QpHandle, QpOptions,
    QpState, RoceFrame,
};
use crate::wire::opcode::Transport;
use crate::wire::psn::Psn;

const PORT: u16 = 7174;
/// Connections that each end asks for.
const ASKED: usize = 6;
/// An end has room for those of both, and for some that wait behind their end.
const ROOM: u32 = 64;
/// Longer than all retries of a message and the wait of a request for its program.
const QUIET_NS: u64 = 1_000_000_000_000;

/// What happened in a seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct CmSummary {
    /// Connections that were established, as each end says.
    pub established: u64,
    /// Connections that a peer refused.
    pub rejected: u64,
    /// Connections whose peer did not answer.
    pub unreachable: u64,
    /// Messages that were sent again.
    pub retries: u64,
    /// Messages that came twice.
    pub duplicates: u64,
    /// Ends that died, some with the wire.
    pub deaths: u64,
}

impl CmSummary {
    /// Adds what happened in another seed.
    pub fn add(&mut self, other: &Self) {
        self.established += other.established;
        self.rejected += other.rejected;
        self.unreachable += other.unreachable;
        self.retries += other.retries;
        self.duplicates += other.duplicates;
        self.deaths += other.deaths;
    }
}

struct CmEnd {
    device: Device,
    pd: PdHandle,
    manager: Manager,
    asked: usize,
    connections: Vec<CmFlow>,
}

/// What a program knows of a connection.
struct CmFlow {
    id: CmId,
    qp: QpHandle,
    is_active: bool,
    is_established: bool,
    has_ended: bool,
}

impl CmEnd {
    fn new(random: &mut Random, asked: usize) -> Self {
        let mut device = Device::new(&DeviceConfig { key_seed: 1, ..DeviceConfig::default() });
        let pd = device.create_pd().expect("room for a domain");
        // Short times, so that a seed is over soon: codes of 1 ms and of 0.5 ms.
        let config = CmConfig {
            connections: ROOM,
            response_timeout: 8,
            ack_timeout: 7,
            service_timeout: 9,
            accept_ns: 1_000_000_000,
            seed: random.draw(),
            ..CmConfig::default()
        };
        let mut manager = Manager::new(&config);
        let listen = ListenOptions { space: PortSpace::Tcp, port: PORT, backlog: 4 };
        manager.cm_mut().listen(&listen).expect("the first listener");
        Self { device, pd, manager, asked, connections: Vec::new() }
    }

    fn qp(&mut self) -> QpHandle {
        let cq = self.device.create_cq(8).expect("room for a queue");
        let options = QpOptions {
            transport: Transport::Rc,
            pd: self.pd,
            send_cq: cq,
            recv_cq: cq,
            send_depth: 1,
            recv_depth: 1,
            srq: None,
            signals_all: true,
        };
        let qp = self.device.create_qp(&options).expect("room for a queue pair");
        self.device.modify_qp(qp, &QpAttributes::init(Access::REMOTE_READ)).expect("a step of the manual page");
        qp
    }

    fn local(&self, random: &mut Random, qp: QpHandle) -> LocalQp {
        LocalQp {
            qpn: self.device.qpn(qp).expect("a queue pair"),
            psn: Psn::new(random.draw() as u32),
            responder_resources: random.below(17) as u8,
            initiator_depth: random.below(17) as u8,
            rnr_retry: random.below(8) as u8,
            srq: false,
        }
    }
}

struct CmWorld {
    random: Random,
    now: u64,
    ends: [CmEnd; 2],
    wire: Wire,
    programs_at: u64,
    dies_at: Option<u64>,
    summary: CmSummary,
}

fn addresses(end: usize) -> Addresses {
    let address = |end: usize| Ipv4Addr::new(10, 0, 0, 1 + end as u8);
    Addresses::Ipv4 { source: address(end), destination: address(1 - end) }
}

fn resolve(addresses: Addresses) -> Resolved {
    Resolved::Known(Path::new(Link { destination: [2; 6], source: [4; 6], vlan: None }, addresses))
}

/// Runs a seed.
///
/// # Errors
/// What an end ought not to see: an event of no connection, two ends that differ in what they have
/// agreed on, a connection that never ends, or a place that is not free at the end.
pub fn run_cm_seed(seed: u64) -> Result<CmSummary, String> {
    let mut random = Random::new(seed);
    let ends = [CmEnd::new(&mut random, 0), CmEnd::new(&mut random, 0)];
    let wire = Wire::new(&mut random);
    let dies_at = (random.below(3) == 0).then(|| random.below(20_000_000));
    let summary = CmSummary::default();
    let mut world = CmWorld { random, now: 0, ends, wire, programs_at: 0, dies_at, summary };
    for _ in 0..100_000 {
        world.turn()?;
        if !world.step()? {
            return world.end();
        }
    }
    Err(format!("no end after {} ms", world.now / 1_000_000))
}

impl CmWorld {
    fn turn(&mut self) -> Result<(), String> {
        for (end, to) in [(0, 1), (1, 0)] {
            let own = &mut self.ends[end];
            own.manager.poll(self.now, &mut own.device, resolve);
            let mut frame = vec![0; own.device.frame_len_max()];
            while let Some(len) = self.ends[end].device.transmit(self.now, &mut frame) {
                self.wire.send(&mut self.random, self.now, to, &frame[..len]);
            }
            while let Some(event) = self.ends[end].manager.next_event() {
                self.take(end, event).map_err(|why| format!("{} µs, end {end}: {event:?}: {why}", self.now / 1000))?;
            }
        }
        self.compare()
    }

    /// Goes on to what happens next; false if nothing does.
    fn step(&mut self) -> Result<bool, String> {
        let timers = self.ends.iter().filter_map(|end| end.manager.next_timer()).min();
        let programs = self.has_work().then_some(self.programs_at);
        let Some(next) = [self.wire.next(), timers, programs, self.dies_at].into_iter().flatten().min() else {
            return Ok(false);
        };
        self.now = self.now.max(next);
        if self.now > QUIET_NS {
            return Err("something goes on for ever".into());
        }
        while let Some(flight) = self.wire.arrive(self.now) {
            if let Ok(frame) = RoceFrame::parse(&flight.frame) {
                self.ends[flight.to].device.receive(self.now, frame.network, frame.roce);
            }
        }
        if self.dies_at.is_some_and(|at| at <= self.now) {
            self.dies_at = None;
            self.summary.deaths += 1;
            let end = self.random.below(2) as usize;
            self.ends[end] = CmEnd::new(&mut self.random, self.ends[end].asked);
            if self.random.below(4) == 0 {
                self.wire.cut();
            }
        }
        if programs.is_some_and(|at| at <= self.now) {
            self.programs_at = self.now + 1 + self.random.below(2_000_000);
            (0..2).for_each(|end| self.run_program(end));
        }
        Ok(true)
    }

    fn has_work(&self) -> bool {
        self.ends.iter().any(|end| end.asked < ASKED || !end.connections.is_empty())
    }

    /// Asks, ends and destroys.
    fn run_program(&mut self, end: usize) {
        let Self { random, ends, now, .. } = self;
        let own = &mut ends[end];
        if own.asked < ASKED && random.happens(500) {
            own.asked += 1;
            let qp = own.qp();
            let options = ConnectOptions {
                addresses: addresses(end),
                port: PORT + u16::from(random.happens(50)),
                qp: own.local(random, qp),
                transport: Transport::Rc,
                mtu: Mtu::B1024,
                retry_cnt: 7,
                private_data: b"who",
            };
            let id = own.manager.connect(*now, qp, &options).expect("room for a connection");
            own.connections.push(CmFlow { id, qp, is_active: true, is_established: false, has_ended: false });
        }
        for idx in (0..own.connections.len()).rev() {
            let flow = &own.connections[idx];
            let (id, qp) = (flow.id, flow.qp);
            if flow.is_established && !flow.has_ended && random.happens(200) {
                // The peer may have ended it, of which the event comes.
                let _ = own.manager.disconnect(*now, &mut own.device, id);
            }
            if flow.has_ended && random.happens(500) || random.happens(5) {
                own.manager.destroy(*now, &mut own.device, id).expect("it was not destroyed before");
                own.device.destroy_qp(qp).expect("a queue pair");
                own.connections.swap_remove(idx);
            }
        }
    }

    fn take(&mut self, end: usize, event: CmEvent) -> Result<(), String> {
        let Self { random, ends, now, summary, .. } = self;
        let own = &mut ends[end];
        if let CmEvent::ConnectRequest(request) = event {
            let data = own.manager.cm().private_data(request.id).ok_or("a request without a name")?;
            if !data.starts_with(b"who") || request.addresses != addresses(end) {
                return Err("another request than was sent".into());
            }
            if random.happens(150) {
                let manager = own.manager.cm_mut();
                // The peer may have given up meanwhile.
                let _ = manager.reject(*now, request.id, RejectReason::ConsumerDefined, b"no");
                return own.manager.destroy(*now, &mut own.device, request.id).map_err(|why| why.to_string());
            }
            let qp = own.qp();
            let local = own.local(random, qp);
            let has_ended = own.manager.accept(request.id, qp, &local, b"yes").is_err();
            let id = request.id;
            own.connections.push(CmFlow { id, qp, is_active: false, is_established: false, has_ended });
            return Ok(());
        }
        let found = own.connections.iter_mut().find(|flow| flow.id == event.id());
        let flow = found.ok_or("of no connection")?;
        let was_established = core::mem::replace(&mut flow.is_established, false);
        match event {
            CmEvent::Established(_) => {
                if was_established || flow.has_ended {
                    return Err("established twice, or behind its end".into());
                }
                if own.device.qp_state(flow.qp) != Some(QpState::Rts) {
                    return Err("established before its queue pair is in RTS".into());
                }
                flow.is_established = true;
                summary.established += 1;
                return Ok(());
            }
            CmEvent::Rejected(..) => summary.rejected += 1,
            CmEvent::Unreachable(_) => summary.unreachable += 1,
            CmEvent::Disconnected(_) | CmEvent::TimewaitExit(_) => {}
            _ => return Err("nobody expects it".into()),
        }
        // One that was not accepted any more has no queue pair.
        if !flow.has_ended && own.device.qp_state(flow.qp) != Some(QpState::Err) {
            return Err("its queue pair is not in ERR behind its end".into());
        }
        flow.has_ended = true;
        Ok(())
    }

    /// Two established ends of one connection agree.
    fn compare(&self) -> Result<(), String> {
        let agreed = |end: &CmEnd, flow: &CmFlow| {
            let is_open = flow.is_established && end.device.qp_state(flow.qp) == Some(QpState::Rts);
            let agreed = end.manager.cm().agreed(flow.id).filter(|_| is_open)?;
            Some((end.device.qpn(flow.qp)?, flow.is_active, agreed))
        };
        let [a, b] = &self.ends;
        for (qpn, is_active, near) in a.connections.iter().filter_map(|flow| agreed(a, flow)) {
            let mut others = b.connections.iter().filter_map(|flow| agreed(b, flow));
            let Some((_, other_is_active, far)) = others.find(|(other, _, far)| *other == near.qpn && far.qpn == qpn)
            else {
                continue;
            };
            let is_same = is_active != other_is_active
                && (near.sq_psn, near.rq_psn, near.mtu) == (far.rq_psn, far.sq_psn, far.mtu)
                && near.max_rd_atomic <= far.max_dest_rd_atomic
                && far.max_rd_atomic <= near.max_dest_rd_atomic;
            if !is_same {
                return Err(format!("{} µs: the ends differ: {near:?} and {far:?}", self.now / 1000));
            }
        }
        Ok(())
    }

    /// Nothing moves any more: no place is taken.
    fn end(mut self) -> Result<CmSummary, String> {
        for (number, end) in self.ends.iter().enumerate() {
            match end.manager.cm().connections() {
                0 => {}
                count => return Err(format!("end {number}: {count} places are taken at the end")),
            }
            let counters = end.manager.cm().counters();
            self.summary.retries += counters.retries;
            self.summary.duplicates += counters.duplicates;
            if counters.malformed > 0 || counters.overflows > 0 {
                return Err(format!("end {number}: {counters:?}"));
            }
        }
        Ok(self.summary)
    }
}

/// Plays the bytes of an input as messages of a peer, and as calls of a program between them.
///
/// # Panics
/// If a place is not free when all is over, or a message is handed out without end.
pub fn run_cm_hostile(bytes: &[u8]) {
    const CAPACITY: u32 = 4;
    let mut cm = Cm::new(&CmConfig { connections: CAPACITY, listeners: 2, ..CmConfig::default() });
    for space in [PortSpace::Tcp, PortSpace::Udp] {
        cm.listen(&ListenOptions { space, port: PORT, backlog: 2 }).expect("room for two");
    }
    let (mut now, mut ids) = (0_u64, Vec::new());
    for step in bytes.chunks(40) {
        let (kind, rest) = (step[0], &step[1..]);
        match kind {
            0..160 => {
                let mut mad = [0; MAD_LEN];
                mad[..24].copy_from_slice(MadHeader::new(0x0f + u16::from(kind % 11), 1).as_bytes());
                mad[24..][..rest.len()].copy_from_slice(rest);
                if let (0x10 | 0x17, true) = (0x0f + kind % 11, kind & 1 == 1) {
                    let space = if kind % 11 == 1 { PortSpace::Tcp } else { PortSpace::Udp };
                    mad[32..40].copy_from_slice(&space.service_id(PORT).to_be_bytes());
                }
                cm.receive(now, addresses(0), &mad);
            }
            160..180 => {
                let qp = LocalQp {
                    qpn: crate::wire::qpn::Qpn::new(2),
                    psn: Psn::new(1),
                    responder_resources: 1,
                    initiator_depth: 1,
                    rnr_retry: 7,
                    srq: false,
                };
                if let Some(id) = ids.last() {
                    let _ = cm.accept(*id, &qp, b"").and_then(|()| cm.ready(now, *id));
                }
            }
            180..200 => {
                if let Some(id) = ids.last() {
                    let _ = cm.disconnect(now, *id);
                }
            }
            200..220 => {
                if let Some(id) = ids.pop() {
                    cm.destroy(now, id).expect("it was not destroyed before");
                }
            }
            _ => now += u64::from(kind) * 50_000_000,
        }
        cm.on_timer(now);
        cm.transmit(now, |_, _| Delivery::Sent);
        while let Some(event) = cm.next_event() {
            if !ids.contains(&event.id()) {
                ids.push(event.id());
            }
        }
        assert!(cm.connections() <= CAPACITY as usize, "more connections than places");
    }
    ids.into_iter().for_each(|id| cm.destroy(now, id).expect("it was not destroyed before"));
    for _ in 0..200 {
        let Some(at) = cm.next_timer() else { break };
        now = now.max(at);
        cm.on_timer(now);
        cm.transmit(now, |_, _| Delivery::Sent);
    }
    assert_eq!(cm.connections(), 0, "a place is not free");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_any_bytes_leave_no_place_taken() {
        let mut random = Random::new(7);
        for _ in 0..2000 {
            let bytes: Vec<u8> = (0..random.below(1200)).map(|_| random.draw() as u8).collect();
            run_cm_hostile(&bytes);
        }
    }
}
