//! One program over two providers: over RoCE devices of this package, whose frames the test
//! carries, and over software ConnectXs under rdma-core. Nobody has tried the latter on a NIC.
#![allow(clippy::unwrap_used)] // a panic here is the report

use core::net::Ipv6Addr;
use std::time::{Duration, Instant};

use rdma::mirror::{LogMirror, MirrorOptions};
use rdma::provider::{OpenError, Provider, RdmaCore};
use rdma::roce::*;
use rdma::wire::opcode::Transport;
use rdma::wire::psn::Psn;
use rdma::wire::qpn::Qpn;
use softhca::testing::is_inside;

const MEMORY: usize = 16 * 1024;

/// What the program has of an end.
struct Own {
    qp: QpHandle,
    cq: CqHandle,
    memory: Buffer,
    mr: Mr,
}

impl Own {
    fn new(provider: &mut impl Provider) -> Self {
        let pd = provider.create_pd().unwrap();
        let cq = provider.create_cq(64).unwrap();
        let memory = Buffer::zeroed(MEMORY);
        let all = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let access = Access::LOCAL_WRITE | all;
        let mr = provider.register(pd, Region::from(&memory), access).unwrap();
        let options = QpOptions {
            transport: Transport::Rc,
            pd,
            send_cq: cq,
            recv_cq: cq,
            send_depth: 16,
            recv_depth: 16,
            srq: None,
            signals_all: false,
        };
        let qp = provider.create_qp(&options).unwrap();
        Self { qp, cq, memory, mr }
    }

    fn connect(&self, provider: &mut impl Provider, peer: Qpn, addresses: Addresses) {
        let link = Link { destination: [2; 6], source: [4; 6], vlan: None };
        let all = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let init =
            QpAttributes { pkey_index: Some(0), port: Some(1), access: Some(all), ..QpAttributes::to(QpState::Init) };
        let rtr = QpAttributes {
            path: Some(Path::new(link, addresses)),
            mtu: Some(Mtu::B1024),
            destination: Some(peer),
            rq_psn: Some(Psn::new(9)),
            max_dest_rd_atomic: Some(1),
            min_rnr_timer: Some(12),
            ..QpAttributes::to(QpState::Rtr)
        };
        let rts = QpAttributes {
            sq_psn: Some(Psn::new(9)),
            max_rd_atomic: Some(1),
            retry_cnt: Some(7),
            rnr_retry: Some(7),
            timeout: Some(14),
            ..QpAttributes::to(QpState::Rts)
        };
        let early = provider.modify_qp(self.qp, &rts);
        assert!(early.is_err(), "RTS before INIT");
        for step in [init, rtr, rts] {
            provider.modify_qp(self.qp, &step).unwrap();
        }
    }

    fn sge(&self, at: usize, len: u32) -> Sge {
        Sge { address: self.mr.address + at as u64, len, lkey: self.mr.key }
    }

    fn remote(&self, at: usize) -> Remote {
        Remote { address: self.mr.address + at as u64, rkey: self.mr.key }
    }

    fn bytes(&self, at: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read(at, &mut bytes);
        bytes
    }
}

/// The program: a SEND, a WRITE, a READ, an addition, and a WRITE without the right. `turn` moves
/// frames where the providers do not.
fn run<P: Provider>(mut ends: [P; 2], gids: [Ipv6Addr; 2], mut turn: impl FnMut(&mut [P; 2])) {
    let own = ends.each_mut().map(|end| Own::new(end));
    let numbers = [0, 1].map(|end| ends[end].qpn(own[end].qp).unwrap());
    for end in [0, 1] {
        let addresses = Addresses::Ipv6 { source: gids[end], destination: gids[1 - end] };
        own[end].connect(&mut ends[end], numbers[1 - end], addresses);
    }
    let [a, b] = &own;
    let mut wait = |ends: &mut [P; 2], end: usize| {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            turn(ends);
            if let Some(done) = ends[end].poll_cq(own[end].cq).unwrap() {
                return done;
            }
            assert!(Instant::now() < until, "no completion within a minute");
        }
    };
    let mut post = |ends: &mut [P; 2], operation, at, len| {
        let sges = [a.sge(at, len)];
        let request = SendRequest::new(5, operation, Data::Sges(&sges));
        ends[0].post_send(a.qp, &request).unwrap();
        wait(ends, 0)
    };
    let check = |done: WorkCompletion, kind| {
        assert_eq!((done.wr_id, done.status, done.kind), (5, Status::Success, kind), "{done:?}");
    };
    a.memory.write(0, &[1; 3000]);
    ends[1].post_recv(b.qp, 6, &[b.sge(8192, 3000)]).unwrap();
    check(post(&mut ends, SendOperation::SendImm(*b"tick"), 0, 3000), CompletionKind::Send);
    let done = ends[1].poll_cq(b.cq).unwrap().unwrap();
    let found = (done.wr_id, done.status, done.kind, done.byte_len, done.imm, done.qpn);
    let receive = CompletionKind::Receive;
    assert_eq!(found, (6, Status::Success, receive, 3000, Some(*b"tick"), numbers[1]));
    assert_eq!(b.bytes(8192, 3000), [1; 3000]);
    check(post(&mut ends, SendOperation::Write(b.remote(0)), 0, 3000), CompletionKind::Write);
    assert_eq!(b.bytes(0, 3000), [1; 3000]);
    b.memory.store_u64(0, 41);
    check(post(&mut ends, SendOperation::Read(b.remote(0)), 4096, 8), CompletionKind::Read);
    assert_eq!(a.memory.load_u64(4096), 41);
    let add = SendOperation::FetchAdd { remote: b.remote(0), add: 1 };
    check(post(&mut ends, add, 4096, 8), CompletionKind::FetchAdd);
    assert_eq!((a.memory.load_u64(4096), b.memory.load_u64(0)), (41, 42));
    let wrong = Remote { rkey: b.mr.key ^ 0xff00, ..b.remote(0) };
    let done = post(&mut ends, SendOperation::Write(wrong), 8, 8);
    assert_eq!((done.wr_id, done.status), (5, Status::RemoteAccess));
    assert_eq!(b.memory.load_u64(0), 42);
    for end in [0, 1] {
        ends[end].destroy_qp(own[end].qp).unwrap();
        ends[end].deregister(own[end].mr.handle).unwrap();
        assert!(ends[end].deregister(own[end].mr.handle).is_err());
    }
}

#[test]
fn program_runs_over_roce_devices() {
    let gid = |end| Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, end);
    let mut now = 0;
    let device = || Device::new(&DeviceConfig::default());
    run([device(), device()], [gid(1), gid(2)], |ends| {
        now += 1000;
        for (from, to) in [(0, 1), (1, 0)] {
            let mut frame = vec![0; ends[from].frame_len_max()];
            while let Some(len) = ends[from].transmit(now, &mut frame) {
                let frame = RoceFrame::parse(&frame[..len]).unwrap();
                ends[to].receive(now, frame.network, frame.roce);
            }
        }
    });
}

#[test]
fn same_program_runs_over_software_connectxs() {
    let test = "same_program_runs_over_software_connectxs";
    if !is_inside(test, &["--strict", "--devices", "2"]) {
        return;
    }
    let ends = ["mlx5_0", "mlx5_1"].map(|name| RdmaCore::open(name).unwrap());
    let gids = ends.each_ref().map(|end| end.gids().next().unwrap());
    run(ends, gids, |_| std::thread::yield_now());
}

#[test]
fn what_the_nic_does_not_do_yet_is_refused() {
    let test = "what_the_nic_does_not_do_yet_is_refused";
    if !is_inside(test, &["--strict"]) {
        return;
    }
    let unknown = RdmaCore::open("mlx5_7").map(drop);
    assert_eq!(unknown, Err(OpenError::Unknown("mlx5_7".to_owned())));
    let mut nic = RdmaCore::open("mlx5_0").unwrap();
    let own = Own::new(&mut nic);
    let ud = QpOptions {
        transport: Transport::Ud,
        pd: nic.create_pd().unwrap(),
        send_cq: own.cq,
        recv_cq: own.cq,
        send_depth: 1,
        recv_depth: 1,
        srq: None,
        signals_all: true,
    };
    assert_eq!(nic.create_qp(&ud), Err(DeviceError::Value("datagrams through rdma-core")));
    let inline = SendRequest::new(1, SendOperation::Send, Data::Inline(b"tick"));
    assert_eq!(nic.post_send(own.qp, &inline), Err(PostError::Operation));
    let invalidate = SendRequest::new(1, SendOperation::Invalidate(5), Data::Sges(&[]));
    assert_eq!(nic.post_send(own.qp, &invalidate), Err(PostError::Operation));
}

#[test]
fn failed_receive_of_a_nic_is_not_reported_as_a_send() {
    let test = "failed_receive_of_a_nic_is_not_reported_as_a_send";
    if !is_inside(test, &["--strict", "--devices", "2"]) {
        return;
    }
    let mut nic = RdmaCore::open("mlx5_0").unwrap();
    let own = Own::new(&mut nic);
    let gid = nic.gids().next().unwrap();
    own.connect(&mut nic, Qpn::new(9), Addresses::Ipv6 { source: gid, destination: gid });
    nic.post_recv(own.qp, 6, &[own.sge(0, 8)]).unwrap();
    nic.modify_qp(own.qp, &QpAttributes::to(QpState::Err)).unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    let done = loop {
        if let Some(done) = nic.poll_cq(own.cq).unwrap() {
            break done;
        }
        assert!(Instant::now() < until, "no completion within a minute");
    };
    assert_eq!((done.wr_id, done.status, done.kind), (6, Status::Flushed, CompletionKind::Unknown));
}

#[test]
fn mirror_ends_when_its_completion_queue_has_failed() {
    let test = "mirror_ends_when_its_completion_queue_has_failed";
    if !is_inside(test, &["--strict", "--devices", "2"]) {
        return;
    }
    let [mut nic, mut other] = ["mlx5_0", "mlx5_1"].map(|name| RdmaCore::open(name).unwrap());
    let pd = nic.create_pd().unwrap();
    let mut mirror = LogMirror::new(&mut nic, pd, &MirrorOptions::default()).unwrap();
    mirror.poll(&mut nic);
    assert_eq!(mirror.failure(), None);
    // Of this one the queue is not, as if it had failed.
    mirror.poll(&mut other);
    assert_eq!(mirror.failure(), Some(Status::General));
}
