//! One program over two providers: over RoCE devices of this package, whose frames the test
//! carries, and over software ConnectXs under rdma-core, or two ports of NICs that a cable joins,
//! by their names in `RDMA_DEV` and `RDMA_PEER`. Nobody has tried it on NICs.
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

#[cfg(feature = "port")]
mod by_name;
mod conformance;
#[cfg(feature = "port")]
mod mbufs;

const MEMORY: usize = 16 * 1024;

/// What the program has of an end.
struct Own {
    pd: PdHandle,
    qp: QpHandle,
    cq: CqHandle,
    srq: Option<SrqHandle>,
    memory: Buffer,
    mr: Mr,
}

impl Own {
    fn new(provider: &mut (impl Provider + ?Sized)) -> Self {
        Self::of(provider, Transport::Rc, false)
    }

    /// With a queue pair of this service, whose receives may come from a shared queue.
    fn of(provider: &mut (impl Provider + ?Sized), transport: Transport, is_shared: bool) -> Self {
        let pd = provider.create_pd().unwrap();
        let cq = provider.create_cq(64).unwrap();
        let memory = Buffer::zeroed(MEMORY);
        let all = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let access = Access::LOCAL_WRITE | all;
        let mr = provider.register(pd, Region::from(&memory), access).unwrap();
        let srq = is_shared.then(|| provider.create_srq(pd, 16).unwrap());
        let options = QpOptions {
            transport,
            pd,
            send_cq: cq,
            recv_cq: cq,
            send_depth: 16,
            recv_depth: 16,
            srq,
            signals_all: false,
        };
        let qp = provider.create_qp(&options).unwrap();
        Self { pd, qp, cq, srq, memory, mr }
    }

    /// To RTS, for datagrams of this key.
    fn open(&self, provider: &mut impl Provider, qkey: u32) {
        let all = QpAttributes { sq_psn: Some(Psn::new(9)), ..QpAttributes::datagrams(qkey) };
        provider.connect_qp(self.qp, Transport::Ud, &all).unwrap();
    }

    fn connect(&self, provider: &mut impl Provider, peer: Qpn, addresses: Addresses) {
        let all = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let psn = Some(Psn::new(9));
        let all = QpAttributes {
            access: Some(all),
            rq_psn: psn,
            sq_psn: psn,
            ..QpAttributes::connection(path(addresses), peer)
        };
        let [_, _, rts] = all.steps(Transport::Rc);
        let early = provider.modify_qp(self.qp, &rts);
        assert!(early.is_err(), "RTS before INIT");
        provider.connect_qp(self.qp, Transport::Rc, &all).unwrap();
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

/// A way whose Ethernet addresses nobody reads here.
fn path(addresses: Addresses) -> Path {
    Path::new(Link { destination: [2; 6], source: [4; 6], vlan: None }, addresses)
}

/// Turns until there is what is looked for.
fn until<P, T>(
    ends: &mut [P; 2],
    turn: &mut impl FnMut(&mut [P; 2]),
    mut find: impl FnMut(&mut [P; 2]) -> Option<T>,
) -> T {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        turn(ends);
        if let Some(found) = find(ends) {
            return found;
        }
        assert!(Instant::now() < until, "nothing within a minute");
    }
}

/// The program of datagrams: one with inline data, one with pieces, each with a header in front of
/// its receive and its sender beside it; and one of a stranger's key, which is dropped.
fn run_datagrams<P: Provider>(mut ends: [P; 2], gids: [Ipv6Addr; 2], mut turn: impl FnMut(&mut [P; 2])) {
    const QKEY: u32 = 0x1111;
    let [a, b] = &ends.each_mut().map(|end| Own::of(end, Transport::Ud, false));
    a.open(&mut ends[0], QKEY);
    b.open(&mut ends[1], QKEY);
    let way = path(Addresses::Ipv6 { source: gids[0], destination: gids[1] });
    let ah = ends[0].create_ah(a.pd, &way).unwrap();
    let (from, qpn) = (ends[0].qpn(a.qp), ends[1].qpn(b.qp).unwrap());
    for number in 0..2 {
        ends[1].post_recv(b.qp, 6 + number, &[b.sge(64 * number as usize, 64)]).unwrap();
    }
    a.memory.write(0, b"in pieces");
    let sges = [a.sge(0, 3), a.sge(3, 6)];
    let sent = [(Data::Inline(b"in the request"), QKEY), (Data::Inline(b"stranger"), 5), (Data::Sges(&sges), QKEY)];
    for (data, qkey) in sent {
        let request = SendRequest::new(5, SendOperation::Send, data).to(Destination { ah, qpn, qkey });
        ends[0].post_send(a.qp, &request).unwrap();
        let done = until(&mut ends, &mut turn, |ends| ends[0].poll_cq(a.cq).unwrap());
        assert_eq!((done.wr_id, done.status, done.kind), (5, Status::Success, CompletionKind::Send));
    }
    for (number, text) in [(0, &b"in the request"[..]), (1, b"in pieces")] {
        let done = until(&mut ends, &mut turn, |ends| ends[1].poll_cq(b.cq).unwrap());
        let found = (done.wr_id, done.status, done.byte_len as usize, done.source);
        assert_eq!(found, (6 + number, Status::Success, GRH_LEN + text.len(), from));
        assert_eq!(b.bytes(64 * number as usize + GRH_LEN, text.len()), text);
    }
    let far = Own::of(&mut ends[0], Transport::Ud, false);
    far.open(&mut ends[0], QKEY);
    let request = SendRequest::new(5, SendOperation::Send, Data::Inline(b"x")).to(Destination { ah, qpn, qkey: QKEY });
    assert_eq!(ends[0].post_send(far.qp, &request), Err(PostError::Destination), "a handle of another domain");
    ends[0].destroy_ah(ah).unwrap();
    assert_eq!(ends[0].post_send(a.qp, &request), Err(PostError::Destination), "a handle that is no more");
}

/// The program of requests that their service has not: datagrams to nobody, with an address of the
/// peer where the library looks for an address handle; what no datagram does; and destinations over
/// connections.
fn run_misfits<P: Provider>(mut ends: [P; 2], gids: [Ipv6Addr; 2]) {
    let end = &mut ends[0];
    let way = path(Addresses::Ipv6 { source: gids[0], destination: gids[1] });
    let [ud, rc, uc] = [Transport::Ud, Transport::Rc, Transport::Uc].map(|transport| Own::of(end, transport, false));
    ud.open(end, 0x1111);
    rc.connect(end, Qpn::new(9), Addresses::Ipv6 { source: gids[0], destination: gids[1] });
    for own in [&ud, &rc, &uc] {
        let (remote, sges) = (own.remote(0), [own.sge(0, 8)]);
        let ah = end.create_ah(own.pd, &way).unwrap();
        let to = Destination { ah, qpn: Qpn::new(9), qkey: 0x1111 };
        let operations = [
            SendOperation::Send,
            SendOperation::SendImm(*b"tick"),
            SendOperation::Write(remote),
            SendOperation::WriteImm(remote, *b"tick"),
            SendOperation::Read(remote),
            SendOperation::CompareSwap { remote, compare: 1, swap: 2 },
            SendOperation::FetchAdd { remote, add: 1 },
            SendOperation::SendInvalidate(5),
        ];
        let is_datagram = own.qp == ud.qp;
        for operation in operations {
            let request = SendRequest::new(5, operation, Data::Sges(&sges));
            let wrong = if is_datagram { request } else { request.to(to) };
            assert_eq!(end.post_send(own.qp, &wrong), Err(PostError::Destination), "{wrong:?}");
        }
        for operation in operations.into_iter().skip(2).filter(|_| is_datagram) {
            let request = SendRequest::new(5, operation, Data::Sges(&sges)).to(to);
            assert_eq!(end.post_send(own.qp, &request), Err(PostError::Operation), "{request:?}");
        }
        assert_eq!(end.poll_cq(own.cq).unwrap().map(|done| done.wr_id), None, "nothing was posted");
    }
}

/// The program of what comes unasked: receives of a shared queue, its limit, a notification, and
/// the event of a peer that is refused.
fn run_unasked<P: Provider>(mut ends: [P; 2], gids: [Ipv6Addr; 2], mut turn: impl FnMut(&mut [P; 2])) {
    let [a, b] = &ends.each_mut().map(|end| Own::of(end, Transport::Rc, true));
    let numbers = [ends[0].qpn(a.qp).unwrap(), ends[1].qpn(b.qp).unwrap()];
    for (end, own) in [(0, a), (1, b)] {
        let addresses = Addresses::Ipv6 { source: gids[end], destination: gids[1 - end] };
        own.connect(&mut ends[end], numbers[1 - end], addresses);
    }
    let srq = b.srq.unwrap();
    for number in 0..2 {
        ends[1].post_srq_recv(srq, 6 + number, &[b.sge(0, 64)]).unwrap();
    }
    assert!(ends[1].destroy_srq(srq).is_err(), "in use");
    ends[1].arm_srq(srq, 2).unwrap();
    ends[1].arm_cq(b.cq, Notify::Any).unwrap();
    let mut post = |ends: &mut [P; 2], operation| {
        let request = SendRequest::new(5, operation, Data::Inline(b"in the request"));
        ends[0].post_send(a.qp, &request).unwrap();
        until(ends, &mut turn, |ends| ends[0].poll_cq(a.cq).unwrap()).status
    };
    assert_eq!(post(&mut ends, SendOperation::Send), Status::Success);
    let wrong = Remote { rkey: b.mr.key ^ 0xff00, ..b.remote(0) };
    assert_eq!(post(&mut ends, SendOperation::Write(wrong)), Status::RemoteAccess);
    let cq = until(&mut ends, &mut turn, |ends| ends[1].next_notification().unwrap());
    assert_eq!(cq, b.cq);
    let done = ends[1].poll_cq(b.cq).unwrap().unwrap();
    assert_eq!((done.wr_id, done.status, done.byte_len), (6, Status::Success, 14));
    assert_eq!(b.bytes(0, 14), b"in the request");
    for wanted in [Event::SrqLimitReached(srq), Event::QpAccessError(b.qp)] {
        // A NIC may say too that the first packet came.
        until(&mut ends, &mut turn, |ends| ends[1].next_event().unwrap().filter(|event| *event == wanted));
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

/// The program of queries: each step adds the attributes that it was given, of each service. What
/// the path says of Ethernet is `link`.
fn run_queries<P: Provider>(mut ends: [P; 2], gids: [Ipv6Addr; 2], link: Link) {
    let addresses = Addresses::Ipv6 { source: gids[0], destination: gids[1] };
    let way = Path { traffic_class: 0x62, hop_limit: 9, ..path(addresses) };
    let all = QpAttributes {
        qkey: Some(0x1111),
        access: Some(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC),
        mtu: Some(Mtu::B512),
        rq_psn: Some(Psn::new(0x99)),
        sq_psn: Some(Psn::new(0x98)),
        max_dest_rd_atomic: Some(2),
        max_rd_atomic: Some(4),
        min_rnr_timer: Some(5),
        retry_cnt: Some(6),
        rnr_retry: Some(3),
        timeout: Some(17),
        ..QpAttributes::connection(way, Qpn::new(0x55))
    };
    let end = &mut ends[0];
    for transport in [Transport::Rc, Transport::Uc, Transport::Ud] {
        let own = Own::of(end, transport, false);
        let mut given = vec![QpAttributes::to(QpState::Reset)];
        given.extend(all.steps(transport));
        for (idx, step) in given.iter().enumerate() {
            if idx > 0 {
                end.modify_qp(own.qp, step).unwrap();
            }
            let seen = end.qp_attributes(own.qp).unwrap();
            let so_far = &given[..=idx];
            let expected = QpAttributes {
                state: step.state,
                pkey_index: so_far.iter().find_map(|step| step.pkey_index),
                port: so_far.iter().find_map(|step| step.port),
                qkey: so_far.iter().find_map(|step| step.qkey),
                access: so_far.iter().find_map(|step| step.access),
                path: so_far.iter().find_map(|step| step.path).map(|path| Path { link, ..path }),
                mtu: so_far.iter().find_map(|step| step.mtu),
                destination: so_far.iter().find_map(|step| step.destination),
                rq_psn: so_far.iter().find_map(|step| step.rq_psn),
                max_dest_rd_atomic: so_far.iter().find_map(|step| step.max_dest_rd_atomic),
                min_rnr_timer: so_far.iter().find_map(|step| step.min_rnr_timer),
                sq_psn: so_far.iter().find_map(|step| step.sq_psn),
                max_rd_atomic: so_far.iter().find_map(|step| step.max_rd_atomic),
                retry_cnt: so_far.iter().find_map(|step| step.retry_cnt),
                rnr_retry: so_far.iter().find_map(|step| step.rnr_retry),
                timeout: so_far.iter().find_map(|step| step.timeout),
            };
            assert_eq!(seen, expected, "{transport:?}, step {idx}");
        }
        end.modify_qp(own.qp, &QpAttributes::to(QpState::Err)).unwrap();
        assert_eq!(end.qp_attributes(own.qp).unwrap().state, Some(QpState::Err));
        end.destroy_qp(own.qp).unwrap();
        assert_eq!(end.qp_attributes(own.qp), Err(DeviceError::Unknown("queue pair")));
    }
}

/// Two RoCE devices and their addresses.
fn roce_devices() -> ([Device; 2], [Ipv6Addr; 2]) {
    let gid = |end| Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, end);
    let config = DeviceConfig { pds: 64, ..DeviceConfig::default() };
    ([(), ()].map(|()| Device::new(&config)), [gid(1), gid(2)])
}

/// A wire between RoCE devices.
fn wire() -> impl FnMut(&mut [Device; 2]) {
    let mut now = 0;
    move |ends| {
        now += 1000;
        ends.iter_mut().for_each(|end| end.on_timer(now));
        for (from, to) in [(0, 1), (1, 0)] {
            let mut frame = vec![0; ends[from].frame_len_max()];
            while let Some(len) = ends[from].transmit(now, &mut frame) {
                let frame = RoceFrame::parse(&frame[..len]).unwrap();
                ends[to].receive(now, frame.network, frame.roce);
            }
        }
    }
}

/// Two NICs and their addresses: those that `RDMA_DEV` and `RDMA_PEER` name, whose ports a cable
/// joins, or else two software ConnectXs; `None` outside of them.
fn connectxs(test: &str) -> Option<([RdmaCore; 2], [Ipv6Addr; 2])> {
    let names = match lab() {
        Some(names) => names,
        None if is_inside(test, &["--strict", "--devices", "2"]) => ["mlx5_0", "mlx5_1"].map(str::to_owned),
        None => return None,
    };
    let ends = names.map(|name| RdmaCore::open(&name).unwrap());
    // Between ports of one machine the kernel takes all other addresses for its own.
    let gids = ends.each_ref().map(|end| {
        let gid = end.gids().find(|gid| gid.segments()[0] == 0xfe80);
        gid.expect("a port without a link-local GID: is its interface up?")
    });
    Some((ends, gids))
}

/// The devices of a lab, whose links have the MTU of the tests.
fn lab() -> Option<[String; 2]> {
    let [device, peer] = ["RDMA_DEV", "RDMA_PEER"].map(|name| std::env::var(name).ok());
    let names = [device?, peer?];
    for name in &names {
        let mtu = RdmaCore::open(name).unwrap().mtu().unwrap();
        assert_eq!(mtu, Mtu::B1024, "{name}: give its interface the MTU of 1500 for these tests");
    }
    println!("over {} and {}, as RDMA_DEV and RDMA_PEER say", names[0], names[1]);
    Some(names)
}

#[test]
fn devices_that_the_environment_names_are_taken() {
    let test = "devices_that_the_environment_names_are_taken";
    let mut command = match softhca::testing::command(&["--strict", "--devices", "2"]) {
        Ok(command) => command,
        Err(why) => return println!("SKIPPED {test}: {why}"),
    };
    let inner = "same_program_runs_over_software_connectxs";
    // The other way around, so that they are not those that are taken without.
    command.env("RDMA_DEV", "mlx5_1").env("RDMA_PEER", "mlx5_0");
    command.arg(std::env::current_exe().unwrap()).args(["--exact", inner, "--nocapture"]);
    let output = command.output().unwrap();
    softhca::testing::show(inner, &output);
    assert!(String::from_utf8_lossy(&output.stdout).contains("over mlx5_1 and mlx5_0, as RDMA_DEV"));
}

#[test]
fn program_runs_over_roce_devices() {
    let (ends, gids) = roce_devices();
    run(ends, gids, wire());
}

#[test]
fn datagrams_go_over_roce_devices() {
    let (ends, gids) = roce_devices();
    run_datagrams(ends, gids, wire());
}

#[test]
fn datagrams_go_over_software_connectxs() {
    let Some((ends, gids)) = connectxs("datagrams_go_over_software_connectxs") else { return };
    run_datagrams(ends, gids, |_| std::thread::yield_now());
}

#[test]
fn requests_that_their_service_has_not_are_refused_by_roce_devices() {
    let (ends, gids) = roce_devices();
    run_misfits(ends, gids);
}

#[test]
fn requests_that_their_service_has_not_are_refused_by_software_connectxs() {
    let test = "requests_that_their_service_has_not_are_refused_by_software_connectxs";
    let Some((ends, gids)) = connectxs(test) else { return };
    run_misfits(ends, gids);
}

#[test]
fn shared_receives_notifications_and_events_come_over_roce_devices() {
    let (ends, gids) = roce_devices();
    run_unasked(ends, gids, wire());
}

#[test]
fn shared_receives_notifications_and_events_come_over_software_connectxs() {
    let test = "shared_receives_notifications_and_events_come_over_software_connectxs";
    let Some((ends, gids)) = connectxs(test) else { return };
    run_unasked(ends, gids, |_| std::thread::yield_now());
}

#[test]
fn same_program_runs_over_software_connectxs() {
    let Some((ends, gids)) = connectxs("same_program_runs_over_software_connectxs") else { return };
    run(ends, gids, |_| std::thread::yield_now());
}

#[test]
fn rights_that_need_local_write_are_refused_over_a_nic_without_it() {
    let test = "rights_that_need_local_write_are_refused_over_a_nic_without_it";
    if !is_inside(test, &["--strict"]) {
        return;
    }
    let unknown = RdmaCore::open("mlx5_7").map(drop);
    assert_eq!(unknown, Err(OpenError::Unknown("mlx5_7".to_owned())));
    let mut nic = RdmaCore::open("mlx5_0").unwrap();
    let own = Own::new(&mut nic);
    for access in [Access::REMOTE_READ, Access::MW_BIND] {
        let registered = nic.register(own.pd, Region::from(&own.memory), access).map(drop);
        let why = "remote rights or windows without LOCAL_WRITE through rdma-core";
        assert_eq!(registered, Err(DeviceError::Value(why)));
    }
}

#[test]
fn attributes_are_those_that_the_steps_have_given() {
    let (ends, gids) = roce_devices();
    run_queries(ends, gids, path(Addresses::Ipv6 { source: gids[0], destination: gids[1] }).link);
}

#[test]
fn attributes_are_those_that_the_steps_have_given_to_a_nic() {
    let Some((ends, gids)) = connectxs("attributes_are_those_that_the_steps_have_given_to_a_nic") else { return };
    run_queries(ends, gids, Link { destination: [0; 6], source: [0; 6], vlan: None });
}

#[test]
fn object_of_another_nic_is_unknown() {
    let test = "object_of_another_nic_is_unknown";
    if !is_inside(test, &["--strict", "--devices", "2"]) {
        return;
    }
    let [mut a, mut b] = ["mlx5_0", "mlx5_1"].map(|name| RdmaCore::open(name).unwrap());
    let (_, theirs) = (Own::new(&mut a), Own::new(&mut b));
    let request = SendRequest::new(1, SendOperation::Send, Data::Sges(&[]));
    assert_eq!(a.post_send(theirs.qp, &request), Err(PostError::UnknownQp));
    assert!(matches!(a.deregister(theirs.mr.handle), Err(DeviceError::Unknown(_))));
    assert!(matches!(a.destroy_qp(theirs.qp), Err(DeviceError::Unknown(_))));
}

#[test]
fn addresses_that_a_port_gets_and_loses_after_the_start_are_seen() {
    let test = "addresses_that_a_port_gets_and_loses_after_the_start_are_seen";
    if !is_inside(test, &["--strict", "--address", "192.0.2.1"]) {
        return;
    }
    // Tables of our own, of which the first address is link-local.
    let tables = ["gids", "gid_attrs/types"].map(|table| {
        let folder = std::path::Path::new("/sys/class/infiniband/mlx5_0/ports/1").join(table);
        let texts = ["0", "1"].map(|place| std::fs::read_to_string(folder.join(place)).unwrap());
        let mounted = std::process::Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(&folder).status();
        assert!(mounted.unwrap().success());
        std::fs::write(folder.join("0"), &texts[0]).unwrap();
        (folder.join("1"), texts[1].clone())
    });
    let add = || tables.iter().for_each(|(place, text)| std::fs::write(place, text).unwrap());
    let remove = || tables.iter().for_each(|(place, _)| std::fs::remove_file(place).unwrap());
    let mut nic = RdmaCore::open("mlx5_0").unwrap();
    let own = Own::of(&mut nic, Transport::Ud, false);
    let source = core::net::Ipv4Addr::new(192, 0, 2, 1);
    let way = path(Addresses::Ipv4 { source, destination: source });
    let missing = Err(DeviceError::Value("address that is no GID of the port"));
    assert_eq!(nic.create_ah(own.pd, &way), missing);
    add();
    nic.create_ah(own.pd, &way).unwrap();
    assert_eq!(nic.gids().nth(1), Some(source.to_ipv6_mapped()));
    remove();
    assert_eq!(nic.create_ah(own.pd, &way), missing, "it was there");
    assert_eq!(nic.gids().count(), 1);
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
