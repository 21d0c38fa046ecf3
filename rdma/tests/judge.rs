//! Each refusal and each retry of a reliable connection between a RoCE device of this package and
//! a software ConnectX, which shares no code with it: what a mistake is answered by on the wire,
//! and how it ends at both ends. Each in both roles, in one thread and in virtual time.
#![allow(clippy::unwrap_used)] // a panic here is the report

use rdma::provider::Provider;
use rdma::roce::*;
use rdma::wire::opcode::Transport;
use rdma::wire::psn::Psn;
use rdma::wire::qpn::Qpn;
use softhca::hca::testing::rdma::{ALL_RIGHTS, Cqe, Side};
use softhca::hca::testing::{CableEnd, ManualClock};
use softhca::hca::{AccessFlags, Clock, Config, EventKind, Gid, Service, Wire};

/// Bytes of our memory, and of theirs that is looked at.
const MEMORY: usize = 8192;
const OUR_MAC: [u8; 6] = [2, 0, 0, 0, 0x5c, 1];
const THEIR_MAC: [u8; 6] = [2, 0, 0, 0, 0x5c, 2];
/// The number of the first packet in each direction, as [`Side::connect`] has it.
const FIRST_PSN: u32 = 0xff_fff0;
/// Behind Ethernet, IPv6 and UDP.
const BTH_AT: usize = 62;
const ACKNOWLEDGE: u8 = 0x11;
const SEQUENCE_NAK: u8 = 0x60;
/// RNR NAK with the timer code 12, which is 0.64 ms.
const RNR_NAK: u8 = 0x2c;

/// Who asks; the other end answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    WeAsk,
    TheyAsk,
}
use Role::{TheyAsk, WeAsk};

const ROLES: [Role; 2] = [WeAsk, TheyAsk];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Send,
    Write,
    Read,
    FetchAdd,
}
use Request::{FetchAdd, Read, Send, Write};

/// What a request reaches for at the other end.
#[derive(Clone, Copy)]
struct Target {
    address: u64,
    key: u32,
}

/// How a request ended, in the words of our end: those of theirs are CQE syndromes.
fn status(syndrome: u8) -> Status {
    match syndrome {
        0 => Status::Success,
        0x01 => Status::LocalLength,
        0x04 => Status::LocalProtection,
        0x05 => Status::Flushed,
        0x12 => Status::RemoteInvalidRequest,
        0x13 => Status::RemoteAccess,
        0x14 => Status::RemoteOperation,
        0x15 => Status::RetryExceeded,
        0x16 => Status::RnrRetryExceeded,
        other => panic!("the syndrome {other:#x}"),
    }
}

/// Our end.
struct Ours {
    device: Device,
    pd: PdHandle,
    cq: CqHandle,
    qp: QpHandle,
    memory: Buffer,
    mr: Mr,
}

impl Ours {
    fn new() -> Self {
        let mut device = Device::new(&DeviceConfig::default());
        let pd = device.create_pd().unwrap();
        let cq = device.create_cq(64).unwrap();
        let memory = Buffer::zeroed(MEMORY);
        let mr = device.register(pd, Region::from(&memory), all_access()).unwrap();
        let options = QpOptions {
            transport: Transport::Rc,
            pd,
            send_cq: cq,
            recv_cq: cq,
            send_depth: 16,
            recv_depth: 16,
            srq: None,
            signals_all: true,
        };
        let qp = device.create_qp(&options).unwrap();
        Self { device, pd, cq, qp, memory, mr }
    }

    fn connect(&mut self, peer: u32, terms: &Terms) {
        let link = Link { destination: THEIR_MAC, source: OUR_MAC, vlan: None };
        let [source, destination] = [OUR_MAC, THEIR_MAC].map(|mac| Gid::link_local(mac).0.into());
        let path = Path::new(link, Addresses::Ipv6 { source, destination });
        let psn = Some(Psn::new(FIRST_PSN));
        let attributes = QpAttributes {
            access: Some(terms.our_access),
            mtu: Some(Mtu::B256),
            rq_psn: psn,
            max_dest_rd_atomic: Some(4),
            min_rnr_timer: Some(terms.rnr_timer),
            sq_psn: psn,
            max_rd_atomic: Some(4),
            rnr_retry: Some(terms.rnr_retry),
            ..QpAttributes::connection(path, Qpn::new(peer))
        };
        self.device.connect_qp(self.qp, Transport::Rc, &attributes).unwrap();
    }

    fn post(&mut self, request: Request, len: u32, target: Target) {
        let remote = Remote { address: target.address, rkey: target.key };
        let operation = match request {
            Send => SendOperation::Send,
            Write => SendOperation::Write(remote),
            Read => SendOperation::Read(remote),
            FetchAdd => SendOperation::FetchAdd { remote, add: 1 },
        };
        let sge = Sge { address: self.mr.address, len, lkey: self.mr.key };
        self.device.post_send(self.qp, &SendRequest::new(0, operation, Data::Sges(&[sge]))).unwrap();
    }

    /// Posts a receive, whose key is wrong by `spoil`.
    fn post_receive(&mut self, len: u32, spoil: u32) {
        let sge = Sge { address: self.mr.address, len, lkey: self.mr.key ^ spoil };
        self.device.post_recv(self.qp, 0, &[sge]).unwrap();
    }

    fn completions(&mut self) -> Vec<Status> {
        core::iter::from_fn(|| self.device.poll_cq(self.cq)).map(|done| done.status).collect()
    }

    fn frame(&mut self, now: u64) -> Option<Vec<u8>> {
        let mut frame = vec![0; self.device.frame_len_max()];
        let len = self.device.transmit(now, &mut frame)?;
        frame.truncate(len);
        Some(frame)
    }
}

fn all_access() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC
}

/// What both queue pairs allow, and for how long they ask.
struct Terms {
    our_access: Access,
    their_access: u32,
    rnr_timer: u8,
    rnr_retry: u8,
}

impl Default for Terms {
    fn default() -> Self {
        Self { our_access: all_access(), their_access: ALL_RIGHTS, rnr_timer: 12, rnr_retry: 7 }
    }
}

/// Both ends, and the cable between them.
struct Judge {
    ours: Ours,
    theirs: Side,
    /// Our end of the cable.
    cable: CableEnd,
    clock: ManualClock,
    /// The syndromes of negative acknowledgments, as they were on the wire.
    naks: Vec<u8>,
}

impl Judge {
    fn new(terms: &Terms) -> Self {
        let (cable, their_cable) = CableEnd::pair();
        let config = Config { mac: THEIR_MAC, ..Config::default() };
        let (mut ours, mut theirs) = (Ours::new(), Side::new(Service::Rc, config, their_cable));
        ours.connect(theirs.number, terms);
        theirs.connect(Service::Rc, ours.device.qpn(ours.qp).unwrap().get(), OUR_MAC, |attributes| {
            attributes.access = AccessFlags(terms.their_access);
            (attributes.rnr_timer, attributes.rnr_retry) = (terms.rnr_timer, terms.rnr_retry);
        });
        let clock = ManualClock::default();
        clock.advance(1_000_000);
        Self { ours, theirs, cable, clock, naks: Vec::new() }
    }

    /// Carries frames until no end has one. `arrives` says of each whether we sent it, what it is,
    /// and whether it comes through.
    fn run_with(&mut self, mut arrives: impl FnMut(bool, &[u8]) -> bool) {
        for _ in 0..10_000 {
            let now = self.clock.cycles();
            if let Some(frame) = self.ours.frame(now) {
                self.note(&frame);
                if arrives(true, &frame[BTH_AT..]) {
                    assert!(self.cable.send(&frame));
                }
                continue;
            }
            self.theirs.settle(&self.clock);
            let Some(frame) = self.cable.take() else { return };
            self.note(&frame);
            if arrives(false, &frame[BTH_AT..]) {
                let frame = RoceFrame::parse(&frame).unwrap();
                self.ours.device.receive(now, frame.network, frame.roce);
            }
        }
        panic!("the ends never fall silent");
    }

    fn note(&mut self, frame: &[u8]) {
        let (opcode, syndrome) = (frame[BTH_AT], frame[BTH_AT + 12]);
        // The upper three bits of an acknowledgment that is none are not zero.
        if opcode == ACKNOWLEDGE && syndrome >> 5 != 0 {
            self.naks.push(syndrome);
        }
    }

    fn run(&mut self) {
        self.run_with(|_, _| true);
    }

    fn advance(&mut self, ns: u64) {
        self.clock.advance(ns);
        self.ours.device.on_timer(self.clock.cycles());
    }

    /// Lets time pass, in steps of a tenth of a millisecond.
    fn pass_ms(&mut self, ms: u64, mut arrives: impl FnMut(bool, &[u8]) -> bool) {
        for _ in 0..ms * 10 {
            self.advance(100_000);
            self.run_with(&mut arrives);
        }
    }

    /// The end that asks posts a request.
    fn ask(&mut self, role: Role, request: Request, len: u32, target: Target) {
        let Target { address, key } = target;
        match (role, request) {
            (WeAsk, _) => self.ours.post(request, len, target),
            (TheyAsk, Send) => self.theirs.post_send(len),
            (TheyAsk, Write) => self.theirs.post_write(len, address, key),
            (TheyAsk, Read) => self.theirs.post_read(len, address, key),
            (TheyAsk, FetchAdd) => self.theirs.post_fetch_add(address, key),
        }
    }

    /// The memory of the end that answers, which may be used for all.
    fn target(&self, role: Role) -> Target {
        match role {
            WeAsk => Target { address: self.theirs.buffer, key: self.theirs.key },
            TheyAsk => Target { address: self.ours.mr.address, key: self.ours.mr.key },
        }
    }

    /// The same memory without the right that a request needs.
    fn target_without_right(&mut self, role: Role, request: Request) -> Target {
        let (ours, theirs) = without(request);
        match role {
            WeAsk => {
                let created = self.theirs.register(theirs);
                Target { address: self.theirs.buffer, key: created.rkey }
            }
            TheyAsk => {
                let region = Region::from(&self.ours.memory);
                let mr = self.ours.device.register(self.ours.pd, region, ours).unwrap();
                Target { address: mr.address, key: mr.key }
            }
        }
    }

    /// The end that answers posts a receive of 100 bytes, whose key is wrong by `spoil`.
    fn post_receive(&mut self, role: Role, spoil: u32) {
        match role {
            WeAsk => {
                self.theirs.key ^= spoil;
                self.theirs.post_receive(0, 100);
                self.theirs.key ^= spoil;
            }
            TheyAsk => self.ours.post_receive(100, spoil),
        }
    }

    /// Fills the first bytes of the end that asks, or of the one that answers.
    fn fill(&mut self, is_ours: bool, bytes: &[u8]) {
        if is_ours {
            self.ours.memory.write(0, bytes);
        } else {
            self.theirs.memory.put(self.theirs.buffer, bytes);
        }
    }

    fn bytes(&self, is_ours: bool, len: usize) -> Vec<u8> {
        if is_ours {
            let mut bytes = vec![0; len];
            self.ours.memory.read(0, &mut bytes);
            bytes
        } else {
            self.theirs.memory.get(self.theirs.buffer, len)
        }
    }

    /// What completed at the end that asked, and at the one that answered.
    fn completions(&mut self, role: Role) -> [Vec<Status>; 2] {
        let ours = self.ours.completions();
        let theirs = self.theirs.poll_all().iter().map(|cqe: &Cqe| status(cqe.syndrome)).collect();
        if role == WeAsk { [ours, theirs] } else { [theirs, ours] }
    }

    /// The end that answered has failed, for this reason alone.
    fn check_event(&mut self, role: Role, nak: u8) {
        let qp = self.ours.qp;
        let (ours, theirs) = match nak {
            0x61 => (Event::QpRequestError(qp), EventKind::QpRequestError),
            0x62 => (Event::QpAccessError(qp), EventKind::QpAccessError),
            _ => (Event::QpFatal(qp), EventKind::QpFatal),
        };
        match role {
            WeAsk => assert_eq!(self.theirs.hca.take_event().map(|event| event.kind), Some(theirs)),
            TheyAsk => assert_eq!(self.ours.device.next_event(), Some(ours)),
        }
    }
}

/// All rights but the one that a request needs, in our words and in theirs.
fn without(request: Request) -> (Access, u32) {
    let local = Access::LOCAL_WRITE;
    match request {
        Send => (local, 1),
        Write => (local | Access::REMOTE_READ | Access::REMOTE_ATOMIC, ALL_RIGHTS & !2),
        Read => (local | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC, ALL_RIGHTS & !4),
        FetchAdd => (local | Access::REMOTE_WRITE | Access::REMOTE_READ, ALL_RIGHTS & !8),
    }
}

/// What is wrong at the end that answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    /// The key names no region.
    Key,
    /// The memory ends before the last byte that is reached.
    Range,
    /// The region lacks the right.
    RegionRight,
    /// The queue pair lacks the right.
    QueuePairRight,
    /// A word that is not aligned.
    Unaligned,
    /// A receive that is too short.
    ShortReceive,
    /// A receive whose own key is wrong.
    ReceiveKey,
}

/// The bytes of a request that must not get anywhere.
const LEN: u32 = 600;

/// Posts a request with a flaw and one behind it, and lets both ends come to rest.
fn refuse(role: Role, request: Request, flaw: Flaw) -> Judge {
    let (our_access, their_access) =
        if flaw == Flaw::QueuePairRight { without(request) } else { (all_access(), ALL_RIGHTS) };
    let mut judge = Judge::new(&Terms { our_access, their_access, ..Terms::default() });
    judge.fill(role == WeAsk, &[0x55; LEN as usize]);
    let whole = judge.target(role);
    let end = whole.address + if role == WeAsk { 0x8_0000 } else { MEMORY as u64 };
    let target = match flaw {
        Flaw::Key => Target { key: whole.key ^ 1, ..whole },
        Flaw::Range => Target { address: end - if request == FetchAdd { 0 } else { 8 }, ..whole },
        Flaw::RegionRight => judge.target_without_right(role, request),
        Flaw::Unaligned => Target { address: whole.address + 4, ..whole },
        Flaw::QueuePairRight | Flaw::ShortReceive | Flaw::ReceiveKey => whole,
    };
    match flaw {
        Flaw::ShortReceive => judge.post_receive(role, 0),
        Flaw::ReceiveKey => judge.post_receive(role, 1),
        _ => {}
    }
    let len = match (request, flaw) {
        (FetchAdd, _) => 8,
        (_, Flaw::ReceiveKey) => 100,
        _ => LEN,
    };
    judge.ask(role, request, len, target);
    judge.ask(role, Write, 8, whole);
    judge.run();
    judge
}

#[test]
fn each_refusal_is_the_same_between_implementations_that_share_no_code() {
    const INVALID: (u8, Status) = (0x61, Status::RemoteInvalidRequest);
    const ACCESS: (u8, Status) = (0x62, Status::RemoteAccess);
    const OPERATIONAL: (u8, Status) = (0x63, Status::RemoteOperation);
    /// A flaw, the requests that it is tried with, the NAK and the status of who asks, and what
    /// receives of the other end complete.
    type Row = (Flaw, &'static [Request], (u8, Status), &'static [Status]);
    let table: [Row; 7] = [
        (Flaw::Key, &[Write, Read, FetchAdd], ACCESS, &[]),
        (Flaw::Range, &[Write, Read, FetchAdd], ACCESS, &[]),
        (Flaw::RegionRight, &[Write, Read, FetchAdd], ACCESS, &[]),
        (Flaw::QueuePairRight, &[Write, Read, FetchAdd], INVALID, &[]),
        (Flaw::Unaligned, &[FetchAdd], INVALID, &[]),
        (Flaw::ShortReceive, &[Send], INVALID, &[Status::LocalLength]),
        (Flaw::ReceiveKey, &[Send], OPERATIONAL, &[Status::LocalProtection]),
    ];
    for (flaw, requests, (nak, expected), received) in table {
        for (request, role) in requests.iter().flat_map(|request| ROLES.map(|role| (*request, role))) {
            let name = format!("{role:?}: {request:?}, {flaw:?}");
            let mut judge = refuse(role, request, flaw);
            assert_eq!(judge.naks, [nak], "{name}");
            assert_eq!(judge.completions(role), [vec![expected, Status::Flushed], received.to_vec()], "{name}");
            judge.check_event(role, nak);
            if request != Send {
                assert_eq!(judge.bytes(role == TheyAsk, MEMORY), [0; MEMORY], "{name}: what is refused is not done");
            }
            let own = judge.bytes(role == WeAsk, LEN as usize);
            assert_eq!(own, [0x55; LEN as usize], "{name}: nor is anything read");
        }
    }
}

fn psn(bth: &[u8]) -> u32 {
    u32::from_be_bytes([0, bth[9], bth[10], bth[11]])
}

#[test]
fn missing_packet_is_named_by_a_sequence_nak_and_sent_again() {
    for role in ROLES {
        let mut judge = Judge::new(&Terms::default());
        judge.fill(role == WeAsk, &[7; LEN as usize]);
        judge.ask(role, Write, LEN, judge.target(role));
        let mut is_lost = false;
        judge.run_with(|is_ours, bth| {
            let is_first = is_ours == (role == WeAsk) && psn(bth) == FIRST_PSN;
            !is_first || core::mem::replace(&mut is_lost, true)
        });
        assert_eq!(judge.naks, [SEQUENCE_NAK], "{role:?}");
        assert_eq!(judge.completions(role), [vec![Status::Success], vec![]], "{role:?}");
        assert_eq!(judge.bytes(role == TheyAsk, LEN as usize), [7; LEN as usize], "{role:?}");
        let counters = judge.ours.device.qp_counters(judge.ours.qp).unwrap();
        assert_eq!((counters.timeouts, judge.theirs.hca.counters().rdma_timeouts), (0, 0), "{role:?}");
    }
}

/// Whatever is asked again because its answer was lost is answered again, and executed once.
#[test]
fn lost_answer_is_given_again_and_nothing_is_executed_twice() {
    for (role, request) in ROLES.into_iter().flat_map(|role| [Write, Read, FetchAdd].map(|request| (role, request))) {
        let mut judge = Judge::new(&Terms::default());
        judge.fill(role == TheyAsk, &5_u64.to_ne_bytes());
        judge.ask(role, request, 8, judge.target(role));
        judge.run_with(|is_ours, _| is_ours == (role == WeAsk));
        judge.pass_ms(400, |_, _| true);
        assert_eq!(judge.completions(role), [vec![Status::Success], vec![]], "{role:?}: {request:?}");
        let value = |is_ours| u64::from_ne_bytes(judge.bytes(is_ours, 8).try_into().unwrap());
        let expected = match request {
            Write => (0, 0),
            Read => (5, 5),
            _ => (5, 6),
        };
        assert_eq!((value(role == WeAsk), value(role == TheyAsk)), expected, "{role:?}: {request:?}");
        assert_eq!(judge.naks, [], "{role:?}: {request:?}");
    }
}

#[test]
fn peer_without_a_receive_is_asked_again_when_it_has_one() {
    for role in ROLES {
        let mut judge = Judge::new(&Terms::default());
        judge.ask(role, Send, 8, judge.target(role));
        judge.run();
        assert_eq!(judge.naks, [RNR_NAK], "{role:?}");
        judge.post_receive(role, 0);
        judge.pass_ms(1, |_, _| true);
        assert_eq!(judge.completions(role), [vec![Status::Success], vec![Status::Success]], "{role:?}");
    }
}

/// Both ends read each code as the same time: they ask again when we do.
#[test]
fn codes_of_the_time_without_a_receive_mean_the_same_to_both() {
    for rnr_timer in 0..32 {
        let terms = Terms { rnr_timer, ..Terms::default() };
        let [mut ours, mut theirs] = ROLES.map(|role| {
            let mut judge = Judge::new(&terms);
            judge.ask(role, Send, 8, judge.target(role));
            judge.run();
            assert_eq!(judge.naks, [0x20 | rnr_timer], "{role:?}");
            judge
        });
        let begin = ours.clock.cycles();
        while ours.naks.len() == 1 {
            let next = ours.ours.device.next_timer().unwrap();
            ours.advance(next - ours.clock.cycles());
            ours.run();
        }
        let wait = ours.clock.cycles() - begin;
        theirs.advance(wait - 1);
        theirs.run();
        assert_eq!(theirs.naks.len(), 1, "code {rnr_timer}: asked again before {wait} ns");
        theirs.advance(1);
        theirs.run();
        assert_eq!(theirs.naks.len(), 2, "code {rnr_timer}: not asked again after {wait} ns");
    }
}

#[test]
fn peer_that_never_has_a_receive_ends_in_the_status_of_that() {
    for role in ROLES {
        let mut judge = Judge::new(&Terms { rnr_retry: 3, ..Terms::default() });
        judge.ask(role, Send, 8, judge.target(role));
        judge.pass_ms(10, |_, _| true);
        assert_eq!(judge.naks, [RNR_NAK; 4], "{role:?}");
        assert_eq!(judge.completions(role), [vec![Status::RnrRetryExceeded], vec![]], "{role:?}");
    }
}

#[test]
fn silent_peer_ends_in_the_status_of_that_within_its_time() {
    for role in ROLES {
        let mut judge = Judge::new(&Terms::default());
        judge.ask(role, Write, 8, judge.target(role));
        let mut tries = 0;
        let mut to_nobody = |_: bool, _: &[u8]| {
            tries += 1;
            false
        };
        // Eight tries, each of which takes between 67 ms and four times that.
        judge.run_with(&mut to_nobody);
        judge.pass_ms(8 * 67, &mut to_nobody);
        assert_eq!(judge.completions(role), [vec![], vec![]], "{role:?}");
        judge.pass_ms(3 * 8 * 68, &mut to_nobody);
        assert_eq!(judge.completions(role), [vec![Status::RetryExceeded], vec![]], "{role:?}");
        assert_eq!(tries, 8, "{role:?}");
    }
}
