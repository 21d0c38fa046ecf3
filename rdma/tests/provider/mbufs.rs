//! Requests that own mbufs, over both providers: each mbuf comes back with its completion, or is
//! freed with its queue pair, and none that is not registered, or that others reach, is taken.

use core::net::Ipv6Addr;

use rdma::port::Mbufs;
use rdma::roce::*;
use rdma::wire::opcode::Transport;
use wirepath::mem::{Mbuf, Pool};

use super::{Own, connectxs, path, roce_devices, until, wire};

const DEPTH: u32 = 4;

/// An end with a pool, and a queue pair whose requests may own its mbufs.
struct Pooled {
    own: Own,
    pool: Pool,
    qp: QpHandle,
    mr: Mr,
}

impl Pooled {
    fn new(provider: &mut impl Mbufs, transport: Transport) -> Self {
        let (own, pool) = (Own::of(provider, transport, false), Pool::heap(8).unwrap());
        let mr = provider.register(own.pd, Region::from(&pool), Access::LOCAL_WRITE).unwrap();
        let qp = provider.create_qp(&options(&own, transport)).unwrap();
        provider.allow_mbufs(qp).unwrap();
        Self { own, pool, qp, mr }
    }

    fn mbuf(&self, bytes: &[u8]) -> Mbuf {
        self.pool.alloc_copy(bytes).unwrap()
    }
}

fn options(own: &Own, transport: Transport) -> QpOptions {
    QpOptions {
        transport,
        pd: own.pd,
        send_cq: own.cq,
        recv_cq: own.cq,
        send_depth: DEPTH,
        recv_depth: DEPTH,
        srq: None,
        signals_all: true,
    }
}

/// Two ends, connected.
fn connect<P: Mbufs>(ends: &mut [P; 2], gids: [Ipv6Addr; 2]) -> [Pooled; 2] {
    let pooled = ends.each_mut().map(|end| Pooled::new(end, Transport::Rc));
    lead_to_rts(ends, gids, &pooled);
    pooled
}

fn lead_to_rts<P: Mbufs>(ends: &mut [P; 2], gids: [Ipv6Addr; 2], pooled: &[Pooled; 2]) {
    let numbers = [0, 1].map(|end| ends[end].qpn(pooled[end].qp).unwrap());
    for end in [0, 1] {
        let addresses = Addresses::Ipv6 { source: gids[end], destination: gids[1 - end] };
        let all = QpAttributes::connection(path(addresses), numbers[1 - end]);
        ends[end].connect_qp(pooled[end].qp, Transport::Rc, &all).unwrap();
    }
}

const fn send(wr_id: u64) -> SendRequest<'static> {
    SendRequest::new(wr_id, SendOperation::Send, Data::Sges(&[]))
}

fn post<P: Mbufs>(end: &mut P, qp: QpHandle, request: &SendRequest<'_>, mbuf: Mbuf) {
    let posted = end.post_send_mbuf(qp, request, mbuf);
    assert_eq!(posted.map_err(|(error, mbuf)| (error, mbuf.free())), Ok(()));
}

/// Posts a receive into a fresh mbuf that has these bytes already.
fn receive<P: Mbufs>(end: &mut P, pooled: &Pooled, wr_id: u64, before: &[u8]) {
    let posted = end.post_recv_mbuf(pooled.qp, wr_id, pooled.mbuf(before));
    assert_eq!(posted.map_err(|(error, mbuf)| (error, mbuf.free())), Ok(()));
}

/// The program: messages of a piece before an mbuf, of a chain and of a view go into mbufs, and all
/// come back.
fn run<P: Mbufs>(mut ends: [P; 2], gids: [Ipv6Addr; 2], mut turn: impl FnMut(&mut [P; 2])) {
    let [a, b] = &connect(&mut ends, gids);
    a.own.memory.write(0, b"piece, ");
    let (piece, mut chain) = ([a.own.sge(0, 7)], a.mbuf(b"first, "));
    chain.attach(a.mbuf(b"second"));
    let view = a.mbuf(b"behind the view");
    let held = view.hold_part(7, 8);
    view.free();
    let messages = [
        (SendRequest { data: Data::Sges(&piece), ..send(1) }, a.mbuf(b"mbuf"), &b"piece, mbuf"[..]),
        (send(2), chain, b"first, second"),
        (send(3), a.pool.view(held).unwrap(), b"the view"),
    ];
    for (request, mbuf, text) in messages {
        receive(&mut ends[1], b, request.wr_id, b"HEAD");
        let len = mbuf.len();
        post(&mut ends[0], a.qp, &request, mbuf);
        let (done, mbuf) = until(&mut ends, &mut turn, |ends| ends[0].poll_mbuf(a.own.cq).unwrap());
        assert_eq!((done.wr_id, done.status, done.kind), (request.wr_id, Status::Success, CompletionKind::Send));
        let mbuf = mbuf.expect("the mbuf that was sent");
        assert_eq!(mbuf.len(), len);
        mbuf.free();
        let (done, mbuf) = until(&mut ends, &mut turn, |ends| ends[1].poll_mbuf(b.own.cq).unwrap());
        assert_eq!((done.wr_id, done.status, done.byte_len as usize), (request.wr_id, Status::Success, text.len()));
        let mbuf = mbuf.expect("the mbuf that was received into");
        assert_eq!(mbuf.bytes(), [b"HEAD", text].concat());
        mbuf.free();
    }
    for pooled in [a, b] {
        assert_eq!((pooled.pool.in_use(), pooled.pool.drops_without_reason()), (0, 0));
    }
}

/// The program of refusals: each has a name, and gives the mbuf back.
fn run_refusals<P: Mbufs>(mut ends: [P; 2], gids: [Ipv6Addr; 2]) {
    let [a, _b] = &connect(&mut ends, gids);
    let end = &mut ends[0];
    let foreign = Pool::heap(2).unwrap();
    let mut refused = |request: &SendRequest<'_>, qp, mbuf: Mbuf| {
        let (error, mbuf) = end.post_send_mbuf(qp, request, mbuf).expect_err("a refusal");
        mbuf.free();
        error
    };
    assert_eq!(refused(&send(1), a.qp, foreign.alloc_copy(b"foreign").unwrap()), PostError::ForeignMbuf);
    assert_eq!(refused(&send(1), a.own.qp, a.mbuf(b"tick")), PostError::MbufsNotAllowed);
    let named = [Sge { address: a.mr.address + 128, len: 8, lkey: a.mr.key }];
    let around = SendRequest { data: Data::Sges(&named), ..send(1) };
    assert_eq!(refused(&around, a.qp, a.mbuf(b"tick")), PostError::PoolMemory);
    let read = SendRequest { operation: SendOperation::Read(Remote::default()), ..send(1) };
    assert_eq!(refused(&read, a.qp, a.mbuf(b"tick")), PostError::Operation);
    let inline = SendRequest { data: Data::Inline(b"tick"), ..send(1) };
    assert_eq!(refused(&inline, a.qp, a.mbuf(b"tick")), PostError::Operation);
    let mut long = a.mbuf(b"1");
    (0..SGES_MAX).for_each(|_| long.attach(a.mbuf(b"2")));
    assert_eq!(refused(&send(1), a.qp, long), PostError::TooManySges);
    assert_eq!(end.post_send(a.qp, &around), Err(PostError::PoolMemory));
    assert_eq!(end.post_send(a.own.qp, &around), Err(PostError::PoolMemory));
    assert_eq!(end.post_recv(a.own.qp, 1, &named), Err(PostError::PoolMemory));
    let srq = end.create_srq(a.own.pd, 4).unwrap();
    assert_eq!(end.post_srq_recv(srq, 1, &named), Err(PostError::PoolMemory));
    let mut refused = |mbuf: Mbuf| {
        let (error, mbuf) = end.post_recv_mbuf(a.qp, 1, mbuf).expect_err("a refusal");
        mbuf.free();
        error
    };
    assert_eq!(refused(foreign.alloc().unwrap()), PostError::ForeignMbuf);
    let shared = a.mbuf(b"tick");
    let held = shared.hold();
    assert_eq!(refused(shared), PostError::SharedMbuf);
    assert_eq!(refused(a.pool.view(held).unwrap()), PostError::SharedMbuf);
    let mut chain = a.mbuf(b"1");
    chain.attach(a.mbuf(b"2"));
    assert_eq!(refused(chain), PostError::SharedMbuf);
    // Of another domain the pool is a foreign one, also to this device.
    let other = Own::of(end, Transport::Rc, false);
    let qp = end.create_qp(&options(&other, Transport::Rc)).unwrap();
    end.allow_mbufs(qp).unwrap();
    let (error, mbuf) = end.post_send_mbuf(qp, &send(1), a.mbuf(b"tick")).expect_err("another domain");
    mbuf.free();
    assert_eq!(error, PostError::ForeignMbuf);
    assert_eq!((a.pool.in_use(), foreign.in_use()), (0, 0));
}

/// The program of set-up that is refused.
fn run_set_up(mut end: impl Mbufs) {
    let (own, pool) = (Own::new(&mut end), Pool::heap(2).unwrap());
    for access in [Access::REMOTE_WRITE, Access::REMOTE_READ, Access::REMOTE_ATOMIC, Access::MW_BIND] {
        let error = end.register(own.pd, Region::from(&pool), Access::LOCAL_WRITE | access).unwrap_err();
        assert_eq!(error, DeviceError::Value("rights of peers, or windows, to the memory of a packet pool"));
    }
    let error = end.register_at(own.pd, Region::from(&pool), 0, Access::LOCAL_WRITE).unwrap_err();
    assert_eq!(error, DeviceError::Value("another address than its own for the memory of a packet pool"));
    let mr = end.register(own.pd, Region::from(&pool), Access::LOCAL_READ).unwrap();
    let error = end.register(own.pd, Region::from(&pool), Access::LOCAL_WRITE).unwrap_err();
    assert_eq!(error, DeviceError::Value("a second registration of a packet pool in one domain"));
    end.deregister(mr.handle).unwrap();
    let why = "mbufs for a queue pair without signals_all";
    assert_eq!(end.allow_mbufs(own.qp), Err(DeviceError::Value(why)), "it does not signal all");
    let shared = Own::of(&mut end, Transport::Rc, true);
    let with_srq = QpOptions { srq: shared.srq, ..options(&shared, Transport::Rc) };
    let qp = end.create_qp(&with_srq).unwrap();
    let why = "mbufs for a queue pair with a shared receive queue";
    assert_eq!(end.allow_mbufs(qp), Err(DeviceError::Value(why)));
    let qp = end.create_qp(&options(&own, Transport::Ud)).unwrap();
    end.connect_qp(qp, Transport::Ud, &QpAttributes::datagrams(1)).unwrap();
    assert_eq!(end.allow_mbufs(qp), Err(DeviceError::Value("mbufs for a queue pair that is not new")));
    end.destroy_qp(qp).unwrap();
    assert_eq!(end.allow_mbufs(qp), Err(DeviceError::Unknown("queue pair")));
}

/// The program of ends: mbufs that are posted come back flushed, or are freed with what held them,
/// also where a completion was not polled.
fn run_ends<P: Mbufs>(mut ends: [P; 2], gids: [Ipv6Addr; 2], mut turn: impl FnMut(&mut [P; 2])) {
    let pooled = connect(&mut ends, gids);
    let [a, b] = &pooled;
    // Both queues have requests of the same number, and some own nothing.
    for _ in 0..2 {
        receive(&mut ends[0], a, 7, b"");
    }
    ends[0].post_recv(a.qp, 8, &[]).unwrap();
    assert_eq!(a.pool.in_use(), 2);
    ends[0].modify_qp(a.qp, &QpAttributes::to(QpState::Err)).unwrap();
    post(&mut ends[0], a.qp, &send(7), a.mbuf(b"tick"));
    let mut came = [0, 1, 2, 3].map(|_| {
        let (done, mbuf) = until(&mut ends, &mut turn, |ends| ends[0].poll_mbuf(a.own.cq).unwrap());
        assert_eq!(done.status, Status::Flushed);
        let len = mbuf.as_ref().map(Mbuf::len);
        mbuf.into_iter().for_each(Mbuf::free);
        (done.wr_id, len)
    });
    came.sort_unstable();
    assert_eq!(came, [(7, Some(0)), (7, Some(0)), (7, Some(4)), (8, None)]);
    assert_eq!(a.pool.in_use(), 0);
    // From here on again, as far as the queue pair is concerned.
    for (end, pooled) in ends.iter_mut().zip(&pooled) {
        end.modify_qp(pooled.qp, &QpAttributes::to(QpState::Reset)).unwrap();
    }
    lead_to_rts(&mut ends, gids, &pooled);
    receive(&mut ends[1], b, 1, b"");
    receive(&mut ends[1], b, 2, b"");
    post(&mut ends[0], a.qp, &send(3), a.mbuf(b"tick"));
    let (done, mbuf) = until(&mut ends, &mut turn, |ends| ends[1].poll_mbuf(b.own.cq).unwrap());
    assert_eq!((done.wr_id, mbuf.map(|mbuf| (mbuf.bytes() == b"tick", mbuf.free()))), (1, Some((true, ()))));
    // Its completion, which nobody has polled, may own the mbuf until then; a reset frees the rest.
    ends[1].modify_qp(b.qp, &QpAttributes::to(QpState::Reset)).unwrap();
    assert_eq!(b.pool.in_use(), 0, "the second receive");
    let done = until(&mut ends, &mut turn, |ends| ends[0].poll_cq(a.own.cq).unwrap());
    assert_eq!((done.wr_id, a.pool.in_use()), (3, 0), "freed by a poll that does not take it");
    // A destroyed queue pair has none.
    receive(&mut ends[0], a, 1, b"");
    post(&mut ends[0], a.qp, &send(2), a.mbuf(b"to nobody"));
    assert_eq!(a.pool.in_use(), 2);
    ends[0].destroy_qp(a.qp).unwrap();
    assert_eq!((a.pool.in_use(), a.pool.drops_without_reason()), (0, 0));
    // Nor has a provider that is dropped.
    let qp = ends[0].create_qp(&options(&a.own, Transport::Rc)).unwrap();
    ends[0].allow_mbufs(qp).unwrap();
    let init = QpAttributes::init(Access::LOCAL_READ);
    ends[0].modify_qp(qp, &init).unwrap();
    for number in 0..DEPTH {
        let posted = ends[0].post_recv_mbuf(qp, number.into(), a.mbuf(b""));
        assert!(posted.is_ok());
    }
    let (error, mbuf) = ends[0].post_recv_mbuf(qp, 9, a.mbuf(b"")).expect_err("more than the queue is long");
    assert_eq!(error, PostError::QueueFull);
    mbuf.free();
    assert_eq!(a.pool.in_use(), DEPTH as usize);
    drop(ends);
    assert_eq!(a.pool.in_use(), 0);
}

#[test]
fn mbufs_are_sent_and_received_into_over_roce_devices() {
    let (ends, gids) = roce_devices();
    run(ends, gids, wire());
}

#[test]
fn mbufs_are_sent_and_received_into_over_software_connectxs() {
    let test = "mbufs::mbufs_are_sent_and_received_into_over_software_connectxs";
    let Some((ends, gids)) = connectxs(test) else { return };
    run(ends, gids, |_| std::thread::yield_now());
}

#[test]
fn mbufs_that_nobody_may_post_are_refused_by_name() {
    let (ends, gids) = roce_devices();
    run_refusals(ends, gids);
    let ([end, _], _) = roce_devices();
    run_set_up(end);
}

#[test]
fn mbufs_that_nobody_may_post_are_refused_by_name_over_a_nic() {
    let test = "mbufs::mbufs_that_nobody_may_post_are_refused_by_name_over_a_nic";
    let Some((ends, gids)) = connectxs(test) else { return };
    run_refusals(ends, gids);
    let Some(([end, _], _)) = connectxs(test) else { return };
    run_set_up(end);
}

#[test]
fn posted_mbufs_return_to_their_pool_at_each_end() {
    let (ends, gids) = roce_devices();
    run_ends(ends, gids, wire());
}

#[test]
fn posted_mbufs_return_to_their_pool_at_each_end_over_a_nic() {
    let test = "mbufs::posted_mbufs_return_to_their_pool_at_each_end_over_a_nic";
    let Some((ends, gids)) = connectxs(test) else { return };
    run_ends(ends, gids, |_| std::thread::yield_now());
}

#[test]
fn device_that_ends_on_another_thread_frees_no_mbuf_there() {
    let ([mut device, _], _) = roce_devices();
    let pooled = Pooled::new(&mut device, Transport::Rc);
    device.modify_qp(pooled.qp, &QpAttributes::init(Access::LOCAL_READ)).unwrap();
    receive(&mut device, &pooled, 1, b"");
    std::thread::spawn(move || drop(device)).join().unwrap();
    assert_eq!(pooled.pool.in_use(), 1);
}
