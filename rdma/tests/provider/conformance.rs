//! What a program sees of a provider, in words, must be the same over both: results of calls,
//! completions and events, for each mistake that a program can make.

use core::fmt::Debug;
use core::net::Ipv6Addr;

use rdma::provider::Provider;
use rdma::roce::*;
use rdma::wire::opcode::Transport;
use rdma::wire::psn::Psn;
use rdma::wire::qpn::Qpn;

use super::{MEMORY, Own, connectxs, path, roce_devices, until, wire};

/// What was seen, by what was done.
#[derive(Default)]
struct Seen(Vec<(&'static str, String)>);

impl Seen {
    fn note(&mut self, what: &'static str, result: impl Debug) {
        self.0.push((what, format!("{result:?}")));
    }
}

/// Two ends, and who moves their frames.
struct Stage<P, T> {
    ends: [P; 2],
    gids: [Ipv6Addr; 2],
    turn: T,
}

impl<P: Provider, T: FnMut(&mut [P; 2])> Stage<P, T> {
    /// Two connected queue pairs; no receives.
    fn connected(&mut self, change: impl Fn(&mut QpAttributes)) -> [Own; 2] {
        let own = self.ends.each_mut().map(|end| Own::new(end));
        for end in [0, 1] {
            let peer = self.ends[1 - end].qpn(own[1 - end].qp).unwrap();
            let mut all = self.attributes(end, peer);
            change(&mut all);
            self.ends[end].connect_qp(own[end].qp, Transport::Rc, &all).unwrap();
        }
        own
    }

    fn attributes(&self, end: usize, peer: Qpn) -> QpAttributes {
        let addresses = Addresses::Ipv6 { source: self.gids[end], destination: self.gids[1 - end] };
        let all = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let (access, psn) = (Some(all), Some(Psn::new(9)));
        QpAttributes { access, rq_psn: psn, sq_psn: psn, ..QpAttributes::connection(path(addresses), peer) }
    }

    /// The next completion of an end: whose, and how it ended.
    fn completion(&mut self, end: usize, own: &Own) -> (u64, Status) {
        let done = until(&mut self.ends, &mut self.turn, |ends| ends[end].poll_cq(own.cq).unwrap());
        (done.wr_id, done.status)
    }

    fn post(&mut self, own: &Own, operation: SendOperation, sges: &[Sge]) -> Result<(), PostError> {
        self.ends[0].post_send(own.qp, &SendRequest::new(5, operation, Data::Sges(sges)))
    }

    /// A request of the first end, and its completion.
    fn request(&mut self, own: &Own, operation: SendOperation, sges: &[Sge]) -> (u64, Status) {
        self.request_of(0, own, operation, sges)
    }

    fn request_of(&mut self, end: usize, own: &Own, operation: SendOperation, sges: &[Sge]) -> (u64, Status) {
        let request = SendRequest::new(5, operation, Data::Sges(sges));
        self.ends[end].post_send(own.qp, &request).unwrap();
        self.completion(end, own)
    }

    /// The first event of an end that is none of a first packet, of which a NIC may tell or not.
    fn event(&mut self, end: usize, own: &Own) -> &'static str {
        let event = until(&mut self.ends, &mut self.turn, |ends| {
            ends[end].next_event().unwrap().filter(|event| !matches!(event, Event::CommunicationEstablished(_)))
        });
        match event {
            Event::QpAccessError(qp) if qp == own.qp => "access error of its queue pair",
            Event::QpRequestError(qp) if qp == own.qp => "request error of its queue pair",
            Event::QpFatal(qp) if qp == own.qp => "fatal error of its queue pair",
            Event::LastWqeReached(qp) if qp == own.qp => "last WQE reached of its queue pair",
            _ => "another event",
        }
    }
}

/// All that is seen.
fn observe<P: Provider>(
    ends: [P; 2],
    gids: [Ipv6Addr; 2],
    turn: impl FnMut(&mut [P; 2]),
) -> Vec<(&'static str, String)> {
    let (mut stage, mut seen) = (Stage { ends, gids, turn }, Seen::default());
    objects(&mut stage.ends[0], &mut seen);
    steps(&mut stage, &mut seen);
    values(&mut stage, &mut seen);
    posts(&mut stage, &mut seen);
    datagrams(&mut stage, &mut seen);
    groups(&mut stage, &mut seen);
    names(&mut stage, &mut seen);
    statuses(&mut stage, &mut seen);
    windows(&mut stage, &mut seen);
    seen.0
}

/// Objects that others use are not destroyed; those that are gone are unknown.
fn objects(end: &mut impl Provider, seen: &mut Seen) {
    let own = Own::of(end, Transport::Rc, true);
    let (unused, srq) = (end.create_cq(4).unwrap(), own.srq.unwrap());
    seen.note("memory window", end.create_mw(own.pd).and_then(|mw| end.destroy_mw(mw.handle)));
    seen.note("destroy a domain with all in it", end.destroy_pd(own.pd));
    seen.note("destroy a completion queue of a queue pair", end.destroy_cq(own.cq));
    seen.note("destroy a shared queue of a queue pair", end.destroy_srq(srq));
    seen.note("destroy a completion queue of nobody", end.destroy_cq(unused));
    seen.note("destroy it again", end.destroy_cq(unused));
    seen.note("poll it", end.poll_cq(unused).ok().flatten());
    seen.note("arm it", end.arm_cq(unused, Notify::Any));
    seen.note("receive beside a shared queue", end.post_recv(own.qp, 1, &[]));
    let other = end.create_pd().unwrap();
    let options = QpOptions {
        transport: Transport::Rc,
        pd: other,
        send_cq: own.cq,
        recv_cq: own.cq,
        send_depth: 1,
        recv_depth: 1,
        srq: own.srq,
        signals_all: true,
    };
    seen.note("queue pair over a shared queue of another domain", end.create_qp(&options).map(drop));
    seen.note("queue pair over a queue that is gone", {
        let gone = QpOptions { srq: None, recv_cq: unused, ..options };
        end.create_qp(&gone).map(drop)
    });
    seen.note("destroy the queue pair", end.destroy_qp(own.qp));
    seen.note("destroy it again", end.destroy_qp(own.qp));
    seen.note("its number", end.qpn(own.qp));
    seen.note("its state", end.qp_state(own.qp));
    seen.note("lead it to ERR", end.modify_qp(own.qp, &QpAttributes::to(QpState::Err)));
    seen.note("send over it", end.post_send(own.qp, &SendRequest::new(1, SendOperation::Send, Data::Inline(b"x"))));
    seen.note("destroy the shared queue", end.destroy_srq(srq));
    seen.note("receive over it", end.post_srq_recv(srq, 1, &[]));
    seen.note("destroy the completion queue", end.destroy_cq(own.cq));
    seen.note("destroy a domain with a region", end.destroy_pd(own.pd));
    seen.note("deregister", end.deregister(own.mr.handle));
    seen.note("deregister again", end.deregister(own.mr.handle));
    seen.note("destroy the domain", end.destroy_pd(own.pd));
    seen.note("destroy it again", end.destroy_pd(own.pd));
    seen.note("register in it", end.register(own.pd, Region::from(&own.memory), Access::LOCAL_READ).map(drop));
}

/// Steps with an attribute too few or too many, or that there are not.
fn steps<P: Provider, T: FnMut(&mut [P; 2])>(stage: &mut Stage<P, T>, seen: &mut Seen) {
    let own = Own::new(&mut stage.ends[0]);
    let all = stage.attributes(0, Qpn::new(9));
    let end = &mut stage.ends[0];
    let [init, rtr, rts] = all.steps(Transport::Rc);
    seen.note("the first state", end.qp_state(own.qp));
    seen.note("RTR from RESET", end.modify_qp(own.qp, &rtr));
    seen.note("INIT without a port", end.modify_qp(own.qp, &QpAttributes { port: None, ..init }));
    seen.note("INIT with a key of datagrams", end.modify_qp(own.qp, &QpAttributes { qkey: Some(1), ..init }));
    seen.note("INIT", end.modify_qp(own.qp, &init));
    seen.note("RTR without a path", end.modify_qp(own.qp, &QpAttributes { path: None, ..rtr }));
    seen.note("RTR with the timeout of RTS", end.modify_qp(own.qp, &QpAttributes { timeout: Some(1), ..rtr }));
    seen.note("RTS from INIT", end.modify_qp(own.qp, &rts));
    seen.note("RTR", end.modify_qp(own.qp, &rtr));
    seen.note("RTS without retries", end.modify_qp(own.qp, &QpAttributes { retry_cnt: None, ..rts }));
    seen.note("RTS", end.modify_qp(own.qp, &rts));
    seen.note("the state", end.qp_state(own.qp));
    seen.note("INIT from RTS", end.modify_qp(own.qp, &init));
    seen.note("ERR", end.modify_qp(own.qp, &QpAttributes::to(QpState::Err)));
    seen.note("RTS from ERR", end.modify_qp(own.qp, &rts));
    seen.note("RESET from ERR", end.modify_qp(own.qp, &QpAttributes::to(QpState::Reset)));
}

/// Steps with values that no device has.
fn values<P: Provider, T: FnMut(&mut [P; 2])>(stage: &mut Stage<P, T>, seen: &mut Seen) {
    let own = Own::new(&mut stage.ends[0]);
    let [init, rtr, rts] = stage.attributes(0, Qpn::new(9)).steps(Transport::Rc);
    let mut step = |what, attributes| seen.note(what, stage.ends[0].modify_qp(own.qp, &attributes));
    step("INIT with the second partition", QpAttributes { pkey_index: Some(1), ..init });
    step("INIT at the second port", QpAttributes { port: Some(2), ..init });
    step("INIT", init);
    step("RTR with packets longer than the link's", QpAttributes { mtu: Some(Mtu::B4096), ..rtr });
    step("RTR with too many READs", QpAttributes { max_dest_rd_atomic: Some(255), ..rtr });
    step("RTR with a time that there is not", QpAttributes { min_rnr_timer: Some(32), ..rtr });
    step("RTR", rtr);
    step("RTS with too many READs", QpAttributes { max_rd_atomic: Some(255), ..rts });
    step("RTS with too many retries", QpAttributes { retry_cnt: Some(8), ..rts });
    step("RTS with too many retries to a peer without a receive", QpAttributes { rnr_retry: Some(8), ..rts });
    step("RTS with a timeout that there is not", QpAttributes { timeout: Some(32), ..rts });
    step("RTS without READs", QpAttributes { max_rd_atomic: Some(0), ..rts });
    let (remote, sge) = (own.remote(0), own.sge(0, 8));
    seen.note("READ where none may be under way", stage.post(&own, SendOperation::Read(remote), &[sge]));
    let add = SendOperation::FetchAdd { remote, add: 1 };
    seen.note("addition where none may be under way", stage.post(&own, add, &[sge]));
}

/// Datagrams of a packet, and of more.
fn datagrams<P: Provider, T: FnMut(&mut [P; 2])>(stage: &mut Stage<P, T>, seen: &mut Seen) {
    let own = Own::of(&mut stage.ends[0], Transport::Ud, false);
    own.open(&mut stage.ends[0], 0x1111);
    let way = path(Addresses::Ipv6 { source: stage.gids[0], destination: stage.gids[1] });
    let ah = stage.ends[0].create_ah(own.pd, &way).unwrap();
    let to = Destination { ah, qpn: Qpn::new(0x900), qkey: 0x1111 };
    for (what, len) in [("datagram of a packet", 1024), ("datagram of more than a packet", 1025)] {
        let sges = [own.sge(0, 4), own.sge(4, len - 4)];
        let request = SendRequest { signaled: true, ..SendRequest::new(5, SendOperation::Send, Data::Sges(&sges)) };
        let posted = stage.ends[0].post_send(own.qp, &request.to(to));
        seen.note(what, posted);
        if posted.is_ok() {
            seen.note("its completion", stage.completion(0, &own));
        }
    }
}

/// Datagrams to a multicast group.
fn groups<P: Provider, T: FnMut(&mut [P; 2])>(stage: &mut Stage<P, T>, seen: &mut Seen) {
    let [a, b] = &stage.ends.each_mut().map(|end| Own::of(end, Transport::Ud, false));
    let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x77);
    let uc = Own::of(&mut stage.ends[1], Transport::Uc, false);
    let mut attach = |what, own: &Own, group| seen.note(what, stage.ends[1].attach_multicast(own.qp, group));
    attach("attach a connection", &uc, group);
    attach("attach to what is no group", b, stage.gids[1]);
    attach("attach to a group", b, group);
    attach("attach to it again", b, group);
    a.open(&mut stage.ends[0], 0x1111);
    b.open(&mut stage.ends[1], 0x1111);
    stage.ends[1].post_recv(b.qp, 6, &[b.sge(0, 64)]).unwrap();
    let way = path(Addresses::Ipv6 { source: stage.gids[0], destination: group });
    let ah = stage.ends[0].create_ah(a.pd, &way).unwrap();
    let to = Destination { ah, qpn: Qpn::new(0xff_ffff), qkey: 0x1111 };
    let request = SendRequest::new(5, SendOperation::Send, Data::Inline(b"to all")).to(to);
    stage.ends[0].post_send(a.qp, &request).unwrap();
    seen.note("a datagram to the group", stage.completion(1, b));
    seen.note("its bytes", b.bytes(GRH_LEN, 6));
    seen.note("detach", stage.ends[1].detach_multicast(b.qp, group));
    seen.note("detach again", stage.ends[1].detach_multicast(b.qp, group));
    stage.ends[1].destroy_qp(b.qp).unwrap();
    seen.note("attach what is gone", stage.ends[1].attach_multicast(b.qp, group));
}

/// A region that requests name by other addresses than this process.
fn names<P: Provider, T: FnMut(&mut [P; 2])>(stage: &mut Stage<P, T>, seen: &mut Seen) {
    let [a, b] = &stage.connected(|_| ());
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let address = b.mr.address % 4096;
    let named = stage.ends[1].register_at(b.pd, Region::from(&b.memory), address, access).unwrap();
    seen.note("its address is that of the call", named.address == address);
    a.memory.store_u64(0, 7);
    let write = |at| SendOperation::Write(Remote { address: at, rkey: named.key });
    seen.note("WRITE by it", stage.request(a, write(address + 8), &[a.sge(0, 8)]));
    seen.note("its bytes", b.memory.load_u64(8));
    seen.note("WRITE by the address in the process", stage.request(a, write(b.mr.address), &[a.sge(0, 8)]));
    seen.note("the peer's state", stage.ends[1].qp_state(b.qp));
    let limits = stage.ends[0].limits();
    seen.note("a queue within the limits", stage.ends[0].create_cq(64.min(limits.cqes)).is_ok());
    seen.note("a queue beyond them", stage.ends[0].create_cq(limits.cqes + 1).is_err());
    seen.note("the MTU", limits.mtu);
}

/// Requests and receives in each state, and malformed ones.
fn posts<P: Provider, T: FnMut(&mut [P; 2])>(stage: &mut Stage<P, T>, seen: &mut Seen) {
    let own = Own::new(&mut stage.ends[0]);
    let (sge, remote) = (own.sge(0, 8), own.remote(0));
    let [init, rtr, rts] = stage.attributes(0, Qpn::new(9)).steps(Transport::Rc);
    seen.note("send in RESET", stage.post(&own, SendOperation::Send, &[sge]));
    seen.note("receive in RESET", stage.ends[0].post_recv(own.qp, 6, &[sge]));
    stage.ends[0].modify_qp(own.qp, &init).unwrap();
    seen.note("send in INIT", stage.post(&own, SendOperation::Send, &[sge]));
    seen.note("receive in INIT", stage.ends[0].post_recv(own.qp, 6, &[sge]));
    seen.note("receive of too many pieces", stage.ends[0].post_recv(own.qp, 6, &[sge; SGES_MAX + 1]));
    let long = [Sge { len: u32::MAX, ..sge }];
    seen.note("receive of too many bytes", stage.ends[0].post_recv(own.qp, 6, &long));
    stage.ends[0].modify_qp(own.qp, &rtr).unwrap();
    seen.note("send in RTR", stage.post(&own, SendOperation::Send, &[sge]));
    stage.ends[0].modify_qp(own.qp, &rts).unwrap();
    seen.note("send of too many pieces", stage.post(&own, SendOperation::Send, &[sge; SGES_MAX + 1]));
    seen.note("send of too many bytes", stage.post(&own, SendOperation::Write(remote), &long));
    seen.note("addition into four bytes", {
        stage.post(&own, SendOperation::FetchAdd { remote, add: 1 }, &[own.sge(0, 4)])
    });
    let inline = SendRequest::new(5, SendOperation::Read(remote), Data::Inline(b"12345678"));
    seen.note("READ into the request", stage.ends[0].post_send(own.qp, &inline));
    stage.ends[0].modify_qp(own.qp, &QpAttributes::to(QpState::Err)).unwrap();
    seen.note("the receive in ERR", stage.completion(0, &own));
    seen.note("send in ERR", stage.post(&own, SendOperation::Send, &[sge]));
    let done = until(&mut stage.ends, &mut stage.turn, |ends| ends[0].poll_cq(own.cq).unwrap());
    seen.note("its completion", (done.wr_id, done.status));
    seen.note("the kind of its completion", done.kind);
    seen.note("receive in ERR", stage.ends[0].post_recv(own.qp, 7, &[sge]));
    seen.note("its completion", stage.completion(0, &own));
    stage.ends[0].modify_qp(own.qp, &QpAttributes::to(QpState::Reset)).unwrap();
    seen.note("send in RESET again", stage.post(&own, SendOperation::Send, &[sge]));
    let uc = Own::of(&mut stage.ends[0], Transport::Uc, false);
    let all = stage.attributes(0, Qpn::new(9));
    stage.ends[0].connect_qp(uc.qp, Transport::Uc, &all).unwrap();
    seen.note("READ over UC", stage.post(&uc, SendOperation::Read(remote), &[sge]));
}

/// Requests that fail, each on a connection of its own: what both ends are told.
fn statuses<P: Provider, T: FnMut(&mut [P; 2])>(stage: &mut Stage<P, T>, seen: &mut Seen) {
    let whole = |_: &mut QpAttributes| ();
    let [a, b] = &stage.connected(whole);
    let wrong = Remote { rkey: b.mr.key ^ 0xff00, ..b.remote(0) };
    seen.note("WRITE by a wrong key", stage.request(a, SendOperation::Write(wrong), &[a.sge(0, 8)]));
    seen.note("the peer's event", stage.event(1, b));
    seen.note("the next WRITE", stage.request(a, SendOperation::Write(b.remote(0)), &[a.sge(0, 8)]));
    // Both have failed, and no step led there.
    for (end, own) in [(0, a), (1, b)] {
        let [_, _, rts] = stage.attributes(end, Qpn::new(9)).steps(Transport::Rc);
        let end = &mut stage.ends[end];
        seen.note("SQD from an ERR that nobody asked for", end.modify_qp(own.qp, &QpAttributes::to(QpState::Sqd)));
        seen.note("RTS from it", end.modify_qp(own.qp, &rts));
        seen.note("rights in it", {
            end.modify_qp(own.qp, &QpAttributes { access: Some(Access::LOCAL_READ), ..QpAttributes::default() })
        });
        seen.note("RESET from it", end.modify_qp(own.qp, &QpAttributes::to(QpState::Reset)));
        seen.note("RTS from RESET", end.modify_qp(own.qp, &rts));
    }
    let [a, b] = &stage.connected(whole);
    let beyond = Remote { address: b.mr.address + b.mr.len - 4, ..b.remote(0) };
    seen.note("READ beyond the end", stage.request(a, SendOperation::Read(beyond), &[a.sge(0, 8)]));
    seen.note("the peer's event", stage.event(1, b));
    let [a, b] = &stage.connected(|all| all.access = Some(Access::REMOTE_READ));
    seen.note("WRITE without the right", stage.request(a, SendOperation::Write(b.remote(0)), &[a.sge(0, 8)]));
    seen.note("the peer's event", stage.event(1, b));
    let [a, b] = &stage.connected(whole);
    let add = SendOperation::FetchAdd { remote: b.remote(4), add: 1 };
    seen.note("addition between two words", stage.request(a, add, &[a.sge(0, 8)]));
    seen.note("the peer's event", stage.event(1, b));
    let [a, b] = &stage.connected(whole);
    let foreign = Sge { lkey: a.mr.key ^ 0xff00, ..a.sge(0, 8) };
    seen.note("WRITE of a wrong local key", stage.request(a, SendOperation::Write(b.remote(0)), &[foreign]));
    let [a, b] = &stage.connected(whole);
    stage.ends[1].post_recv(b.qp, 6, &[b.sge(0, 4)]).unwrap();
    seen.note("SEND into a short receive", stage.request(a, SendOperation::Send, &[a.sge(0, 8)]));
    seen.note("the receive", stage.completion(1, b));
    let [a, b] = &stage.connected(|all| all.rnr_retry = Some(0));
    seen.note("SEND to no receive", stage.request(a, SendOperation::Send, &[a.sge(0, 8)]));
    let qp = b.qp;
    stage.ends[1].post_recv(qp, 6, &[b.sge(0, 8)]).unwrap();
    stage.ends[1].modify_qp(qp, &QpAttributes::to(QpState::Err)).unwrap();
    seen.note("a receive that ERR flushes", stage.completion(1, b));
    let [a, b] = &stage.connected(|all| (all.retry_cnt, all.timeout) = (Some(1), Some(8)));
    let remote = b.remote(0);
    stage.ends[1].destroy_qp(b.qp).unwrap();
    seen.note("WRITE to nobody", stage.request(a, SendOperation::Write(remote), &[a.sge(0, 8)]));
}

/// Memory windows: bound, used, invalidated by both ends, and each mistake, which ends its queue
/// pair.
fn windows<P: Provider, T: FnMut(&mut [P; 2])>(stage: &mut Stage<P, T>, seen: &mut Seen) {
    let whole = |_: &mut QpAttributes| ();
    let [a, b] = &stage.connected(whole);
    let bindable = Access::LOCAL_WRITE | Access::MW_BIND;
    let region = stage.ends[0].register(a.pd, Region::from(&a.memory), bindable).unwrap();
    let window = stage.ends[0].create_mw(a.pd).unwrap();
    let key = Mw::next_key(window.key);
    let binding =
        Binding { key, region: region.key, address: region.address + 64, len: 64, access: Access::REMOTE_READ };
    seen.note("the domain of a window", stage.ends[0].destroy_pd(a.pd));
    seen.note("bind with data", stage.post(a, SendOperation::BindWindow(binding), &[a.sge(0, 8)]));
    let bind = SendOperation::BindWindow(binding);
    stage.post(a, bind, &[]).unwrap();
    let done = until(&mut stage.ends, &mut stage.turn, |ends| ends[0].poll_cq(a.cq).unwrap());
    seen.note("bind", (done.status, done.kind));
    seen.note("deregister what it is bound to", stage.ends[0].deregister(region.handle));
    a.memory.store_u64(64, 7);
    let read = |key, at| SendOperation::Read(Remote { address: region.address + at, rkey: key });
    seen.note("READ of the window", stage.request_of(1, b, read(key, 64), &[b.sge(0, 8)]));
    seen.note("its bytes", b.memory.load_u64(0));
    stage.post(a, SendOperation::Invalidate(key), &[]).unwrap();
    let done = until(&mut stage.ends, &mut stage.turn, |ends| ends[0].poll_cq(a.cq).unwrap());
    seen.note("invalidate", (done.status, done.kind));
    let again = Binding { key: Mw::next_key(key), ..binding };
    seen.note("bind again", stage.request(a, SendOperation::BindWindow(again), &[]));
    stage.ends[0].post_recv(a.qp, 6, &[a.sge(0, 8)]).unwrap();
    seen.note("SEND that invalidates", {
        stage.request_of(1, b, SendOperation::SendInvalidate(again.key), &[b.sge(0, 8)])
    });
    let done = until(&mut stage.ends, &mut stage.turn, |ends| ends[0].poll_cq(a.cq).unwrap());
    seen.note("its receive", (done.status, done.invalidated == Some(again.key)));
    seen.note("READ of what is free", stage.request_of(1, b, read(again.key, 64), &[b.sge(0, 8)]));
    seen.note("the event", stage.event(0, a));
    seen.note("deregister what nothing is bound to", stage.ends[0].deregister(region.handle));
    seen.note("destroy the window", stage.ends[0].destroy_mw(window.handle));
    seen.note("destroy it again", stage.ends[0].destroy_mw(window.handle));
    kept_windows(stage, seen);
    wrong_windows(stage, seen);
}

/// Windows that stay bound: behind another bind of the same number, which failed, and behind a
/// request to invalidate them, which was flushed.
fn kept_windows<P: Provider, T: FnMut(&mut [P; 2])>(stage: &mut Stage<P, T>, seen: &mut Seen) {
    let [a, _] = &stage.connected(|_| ());
    let bindable = Access::LOCAL_WRITE | Access::MW_BIND;
    let region = stage.ends[0].register(a.pd, Region::from(&a.memory), bindable).unwrap();
    let windows = [(), ()].map(|()| stage.ends[0].create_mw(a.pd).unwrap());
    let [good, bad] = windows.map(|window| Binding {
        key: Mw::next_key(window.key),
        region: region.key,
        address: region.address,
        len: 64,
        access: Access::REMOTE_READ,
    });
    let bind = SendRequest::new(5, SendOperation::BindWindow(good), Data::Sges(&[]));
    stage.ends[0].post_send(a.qp, &SendRequest { signaled: false, ..bind }).unwrap();
    let beyond = Binding { len: MEMORY as u64 + 1, ..bad };
    seen.note("another bind of the same number", stage.request(a, SendOperation::BindWindow(beyond), &[]));
    seen.note("deregister behind it", stage.ends[0].deregister(region.handle));
    seen.note("invalidate over what has failed", stage.request(a, SendOperation::Invalidate(good.key), &[]));
    seen.note("deregister behind that", stage.ends[0].deregister(region.handle));
    let [first, second] = windows.map(|window| stage.ends[0].destroy_mw(window.handle));
    seen.note("destroy the windows", (first, second));
    seen.note("deregister what they were bound to", stage.ends[0].deregister(region.handle));
    seen.note("deregister it again", stage.ends[0].deregister(region.handle));
}

/// Mistakes with windows, each on a connection of its own.
fn wrong_windows<P: Provider, T: FnMut(&mut [P; 2])>(stage: &mut Stage<P, T>, seen: &mut Seen) {
    type Change = fn(Binding, &Own) -> Binding;
    let changes: [(&'static str, Change); 6] = [
        ("bind beyond the region", |with, _| Binding { address: with.address + MEMORY as u64, ..with }),
        ("bind no bytes", |with, _| Binding { len: 0, ..with }),
        ("bind to a region without the right", |with, own| Binding { region: own.mr.key, ..with }),
        ("READ beside the window", |with, _| Binding { address: with.address + 64, ..with }),
        ("READ without the right", |with, _| Binding { access: Access::REMOTE_WRITE, ..with }),
        ("READ by another queue pair's peer", |with, _| with),
    ];
    for (what, change) in changes {
        let [a, b] = &stage.connected(|_| ());
        let bindable = Access::LOCAL_WRITE | Access::MW_BIND;
        let region = stage.ends[0].register(a.pd, Region::from(&a.memory), bindable).unwrap();
        let window = stage.ends[0].create_mw(a.pd).unwrap();
        let with = Binding {
            key: Mw::next_key(window.key),
            region: region.key,
            address: region.address + 64,
            len: 64,
            access: Access::REMOTE_READ,
        };
        let with = change(with, a);
        let bound = stage.request(a, SendOperation::BindWindow(with), &[]);
        if what.starts_with("bind") {
            seen.note(what, bound);
            seen.note("deregister behind a bind that failed", stage.ends[0].deregister(region.handle));
            continue;
        }
        let remote = Remote { address: region.address + 64, rkey: with.key };
        let reader = if what.contains("another") { &stage.connected(|_| ())[1] } else { b };
        seen.note(what, stage.request_of(1, reader, SendOperation::Read(remote), &[reader.sge(0, 8)]));
    }
    let [a, _] = &stage.connected(|_| ());
    let region = stage.ends[0].register(a.pd, Region::from(&a.memory), Access::LOCAL_WRITE | Access::MW_BIND).unwrap();
    let window = stage.ends[0].create_mw(a.pd).unwrap();
    let key = Mw::next_key(window.key);
    let with = Binding { key, region: region.key, address: region.address, len: 64, access: Access::REMOTE_READ };
    stage.request(a, SendOperation::BindWindow(with), &[]);
    seen.note("invalidate another key", stage.request(a, SendOperation::Invalidate(Mw::next_key(key)), &[]));
    seen.note("deregister what a window is bound to still", stage.ends[0].deregister(region.handle));
    let [a, _] = &stage.connected(|_| ());
    let window = stage.ends[0].create_mw(a.pd).unwrap();
    seen.note("invalidate what is free", stage.request(a, SendOperation::Invalidate(window.key), &[]));
    let [a, b] = &stage.connected(|_| ());
    stage.ends[0].post_recv(a.qp, 6, &[a.sge(0, 8)]).unwrap();
    seen.note("SEND that invalidates what is free", {
        stage.request_of(1, b, SendOperation::SendInvalidate(window.key), &[b.sge(0, 8)])
    });
    let uc = Own::of(&mut stage.ends[0], Transport::Uc, false);
    let all = stage.attributes(0, Qpn::new(9));
    stage.ends[0].connect_qp(uc.qp, Transport::Uc, &all).unwrap();
    seen.note("SEND over UC that invalidates", stage.post(&uc, SendOperation::SendInvalidate(5), &[uc.sge(0, 8)]));
    let nowhere = Binding { key: 0x700, region: 0x700, address: 0, len: 1, access: Access::REMOTE_READ };
    seen.note("bind what is not there", stage.post(a, SendOperation::BindWindow(nowhere), &[]));
}

/// What differs, by what was done: over the RoCE device, and over a NIC.
const DIFFERENCES: [(&str, &str, &str); 2] = [
    // libibverbs leaves it undefined.
    ("the kind of its completion", "Send", "Unknown"),
    // A request of libibverbs names objects.
    ("bind what is not there", "Ok(())", "Err(Operation)"),
];

#[test]
fn both_providers_show_a_program_the_same() {
    let Some((nics, gids)) = connectxs("conformance::both_providers_show_a_program_the_same") else { return };
    let over_nics = observe(nics, gids, |_| std::thread::yield_now());
    let (devices, gids) = roce_devices();
    let over_devices = observe(devices, gids, wire());
    let differences: Vec<_> = over_devices
        .iter()
        .zip(&over_nics)
        .filter(|(device, nic)| device != nic)
        .map(|((what, device), (_, nic))| (*what, device.as_str(), nic.as_str()))
        .collect();
    assert_eq!(differences, DIFFERENCES);
    assert_eq!(over_devices.len(), over_nics.len());
}
