//! Queue pairs of the RDMA services between two software ConnectXs under rdma-core, whose wire
//! joins them. Nobody has tried them on a NIC.
//!
//! Invariants:
//! 1. The memory of an end is made of atomics, and lives longer than its region.
//! 2. Nobody drives a ring by its address.
#![allow(clippy::unwrap_used)] // a panic here is the report
#![allow(unsafe_code)] // what is tested is

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdma_core_sys::RdmaCore;
use rdma_core_sys::bindings::*;
use rdma_core_sys::verbs::{
    Address, AddressHandle, Completion, CompletionQueue, Context, CqRequest, Element, EventKind, MemoryRegion,
    ProtectionDomain, QpCaps, QpChange, QpState, QueuePair, ReceiveWork, RemoteAccess, SendKind, SendWork, Service,
    ServiceRequest, Sge, SharedReceiveQueue,
};
use softhca::testing::is_inside;

/// Bytes of the memory of each end.
const MEMORY: usize = 16 * 1024;
const QKEY: u32 = 0x1234;
const ALL: RemoteAccess = RemoteAccess { read: true, write: true, atomic: true, bind: false };

/// One end: a device, its memory, and a queue pair.
struct End {
    context: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    srq: Option<SharedReceiveQueue>,
    qp: QueuePair,
    memory: Arc<Vec<AtomicU8>>,
    mr: MemoryRegion,
}

impl End {
    fn new(core: &RdmaCore, device: &str, service: Service, srq_depth: u32) -> Self {
        let context = core.devices().unwrap().by_name(device).unwrap().open().unwrap();
        let pd = ProtectionDomain::allocate(&context).unwrap();
        let cq = CompletionQueue::create(&context, &CqRequest::new(64)).unwrap();
        let srq = (srq_depth > 0).then(|| SharedReceiveQueue::create(&pd, srq_depth, 1).unwrap());
        let caps = QpCaps {
            send_wr_max: 16,
            receive_wr_max: if srq_depth > 0 { 0 } else { 16 },
            send_sge_max: 1,
            receive_sge_max: 1,
            inline_len_max: 0,
        };
        let qp = QueuePair::create_service(&ServiceRequest {
            service,
            pd: &pd,
            send_cq: &cq,
            receive_cq: &cq,
            srq: srq.as_ref(),
            caps,
            signals_all: true,
        })
        .unwrap();
        let aligned = || AtomicU8::new(0);
        let memory: Arc<Vec<AtomicU8>> = Arc::new((0..MEMORY).map(|_| aligned()).collect());
        let start = NonNull::from(&memory[0]).cast();
        // SAFETY: 1.
        let mr = unsafe { MemoryRegion::register_for_peers(&pd, start, MEMORY, ALL, memory.clone()).unwrap() };
        Self { context, pd, cq, srq, qp, memory, mr }
    }

    fn gid(&self) -> [u8; 16] {
        self.context.gid(1, 0).unwrap()
    }

    fn address_of(&self, peer: &Self) -> Address {
        assert_ne!(self.gid(), peer.gid());
        Address { gid: peer.gid(), gid_index: 0, port: 1, traffic_class: 0, hop_limit: 64 }
    }

    /// Leads the queue pair to RTS.
    fn connect(&self, service: Service, peer: &Self) {
        let begin = QpChange { state: Some(QpState::Init), pkey_index: Some(0), port: Some(1), ..QpChange::default() };
        let address = self.address_of(peer);
        let receive = QpChange {
            state: Some(QpState::Rtr),
            address: Some(address),
            mtu: Some(1024),
            destination: Some(peer.qp.number()),
            rq_psn: Some(7),
            ..QpChange::default()
        };
        let send = QpChange { state: Some(QpState::Rts), sq_psn: Some(7), ..QpChange::default() };
        let steps = match service {
            Service::Rc => [
                QpChange { access: Some(ALL), ..begin },
                QpChange { max_dest_rd_atomic: Some(4), min_rnr_timer: Some(12), ..receive },
                QpChange { max_rd_atomic: Some(4), retry_cnt: Some(7), rnr_retry: Some(7), timeout: Some(14), ..send },
            ],
            Service::Uc => [QpChange { access: Some(ALL), ..begin }, receive, send],
            Service::Ud => {
                let rtr = QpChange { state: Some(QpState::Rtr), ..QpChange::default() };
                [QpChange { qkey: Some(QKEY), ..begin }, rtr, send]
            }
        };
        steps.iter().for_each(|step| self.qp.modify(step).unwrap());
        assert_eq!(self.qp.state(), Ok(QpState::Rts));
    }

    /// Eight-byte aligned places of the memory.
    fn start(&self) -> usize {
        self.memory[0].as_ptr().addr().wrapping_neg() % 8
    }

    fn at(&self, at: usize) -> u64 {
        self.memory[self.start() + at].as_ptr().addr() as u64
    }

    fn sge(&self, at: usize, len: u32) -> Sge {
        Sge { address: self.at(at), len, lkey: self.mr.lkey() }
    }

    fn fill(&self, at: usize, len: usize, byte: u8) {
        let bytes = &self.memory[self.start() + at..][..len];
        bytes.iter().for_each(|place| place.store(byte, Ordering::Relaxed));
    }

    fn is_full_of(&self, at: usize, len: usize, byte: u8) -> bool {
        let bytes = &self.memory[self.start() + at..][..len];
        bytes.iter().all(|place| place.load(Ordering::Relaxed) == byte)
    }

    fn post_receive(&self, at: usize, len: u32) {
        let receive = ReceiveWork { wr_id: 9, sges: &[self.sge(at, len)] };
        // SAFETY: 1, 2.
        let posted = unsafe {
            match &self.srq {
                Some(srq) => srq.post_receive(&receive),
                None => self.qp.post_receive(&receive),
            }
        };
        posted.unwrap();
    }

    fn post(&self, kind: SendKind<'_>, at: usize, len: u32, imm: Option<[u8; 4]>) {
        let sges = [self.sge(at, len)];
        let (signaled, solicited, fence) = (true, false, false);
        let send = SendWork { wr_id: 5, kind, sges: &sges, inline: None, imm, signaled, solicited, fence };
        // SAFETY: 1, 2.
        unsafe { self.qp.post_send(&send).unwrap() };
    }

    fn completion(&self) -> Completion {
        let end = Instant::now() + Duration::from_secs(60);
        while Instant::now() < end {
            // SAFETY: 2.
            if let Some(done) = unsafe { self.cq.poll().unwrap() } {
                return done;
            }
            std::thread::yield_now();
        }
        panic!("no completion within a minute");
    }

    fn expect(&self, wr_id: u64, status: ibv_wc_status, opcode: ibv_wc_opcode) -> Completion {
        let done = self.completion();
        assert_eq!((done.wr_id, done.status, done.opcode), (wr_id, status, opcode), "{done:?}");
        done
    }
}

/// Both ends of a service, connected; `None` where this process is not inside the devices.
fn pair(test: &str, service: Service, srq_depth: u32) -> Option<[End; 2]> {
    if !is_inside(test, &["--strict", "--devices", "2"]) {
        return None;
    }
    let core = RdmaCore::load().unwrap();
    let [a, b] =
        [("mlx5_0", 0), ("mlx5_1", srq_depth)].map(|(device, srq_depth)| End::new(&core, device, service, srq_depth));
    a.connect(service, &b);
    b.connect(service, &a);
    Some([a, b])
}

#[test]
fn reliable_connection_sends_writes_reads_and_adds() {
    let test = "reliable_connection_sends_writes_reads_and_adds";
    let Some([a, b]) = pair(test, Service::Rc, 0) else { return };
    a.fill(0, 3000, 1);
    b.post_receive(4096, 3000);
    a.post(SendKind::Send, 0, 3000, Some([1, 2, 3, 4]));
    let done = b.expect(9, IBV_WC_SUCCESS, IBV_WC_RECV);
    assert_eq!((done.byte_len, done.imm, done.qp), (3000, Some([1, 2, 3, 4]), b.qp.number()));
    assert!(b.is_full_of(4096, 3000, 1));
    a.expect(5, IBV_WC_SUCCESS, IBV_WC_SEND);
    a.post(SendKind::Write(b.at(0), b.mr.rkey()), 0, 3000, None);
    a.expect(5, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
    assert!(b.is_full_of(0, 3000, 1));
    b.fill(0, 8, 2);
    a.post(SendKind::Read(b.at(0), b.mr.rkey()), 8000, 8, None);
    assert_eq!(a.expect(5, IBV_WC_SUCCESS, IBV_WC_RDMA_READ).byte_len, 8);
    assert!(a.is_full_of(8000, 8, 2));
    a.post(SendKind::FetchAdd(b.at(0), b.mr.rkey(), 0x0101_0101_0101_0101), 8000, 8, None);
    a.expect(5, IBV_WC_SUCCESS, IBV_WC_FETCH_ADD);
    assert!(b.is_full_of(0, 8, 3) && a.is_full_of(8000, 8, 2));
    let [threes, fours] = [3, 4].map(|byte| u64::from_ne_bytes([byte; 8]));
    a.post(SendKind::CompareSwap(b.at(0), b.mr.rkey(), threes, fours), 8000, 8, None);
    a.expect(5, IBV_WC_SUCCESS, IBV_WC_COMP_SWAP);
    assert!(b.is_full_of(0, 8, 4));
}

#[test]
fn wrong_key_is_refused_at_both_ends() {
    let Some([a, b]) = pair("wrong_key_is_refused_at_both_ends", Service::Rc, 0) else { return };
    a.fill(0, 8, 1);
    a.post(SendKind::Write(b.at(0), b.mr.rkey() ^ 0xff00), 0, 8, None);
    let done = a.completion();
    assert_eq!((done.wr_id, done.status), (5, IBV_WC_REM_ACCESS_ERR));
    assert!(b.is_full_of(0, 8, 0));
    assert_eq!(a.qp.state(), Ok(QpState::Err));
}

#[test]
fn unreliable_connection_sends_and_writes() {
    let test = "unreliable_connection_sends_and_writes";
    let Some([a, b]) = pair(test, Service::Uc, 0) else { return };
    a.fill(0, 2000, 1);
    b.post_receive(4096, 2000);
    b.post_receive(4096, 2000);
    a.post(SendKind::Write(b.at(0), b.mr.rkey()), 0, 2000, Some([9; 4]));
    a.post(SendKind::Send, 0, 2000, None);
    let done = b.expect(9, IBV_WC_SUCCESS, IBV_WC_RECV_RDMA_WITH_IMM);
    assert_eq!((done.byte_len, done.imm), (2000, Some([9; 4])));
    b.expect(9, IBV_WC_SUCCESS, IBV_WC_RECV);
    assert!(b.is_full_of(0, 2000, 1) && b.is_full_of(4096, 2000, 1));
}

#[test]
fn datagram_arrives_by_its_address_handle() {
    let test = "datagram_arrives_by_its_address_handle";
    let Some([a, b]) = pair(test, Service::Ud, 0) else { return };
    let ah = AddressHandle::create(&a.pd, &a.address_of(&b)).unwrap();
    a.fill(0, 100, 1);
    b.post_receive(0, 140);
    a.post(SendKind::Datagram(&ah, b.qp.number(), QKEY), 0, 100, None);
    let done = b.expect(9, IBV_WC_SUCCESS, IBV_WC_RECV);
    assert_eq!((done.byte_len, done.source), (140, a.qp.number()));
    assert!(b.is_full_of(40, 100, 1));
}

#[test]
fn shared_receive_queue_gives_its_receives_and_says_when_few_are_left() {
    let test = "shared_receive_queue_gives_its_receives_and_says_when_few_are_left";
    let Some([a, b]) = pair(test, Service::Rc, 16) else { return };
    let srq = b.srq.as_ref().unwrap();
    (0..4).for_each(|_| b.post_receive(0, 64));
    srq.set_limit(3).unwrap();
    for _ in 0..2 {
        a.post(SendKind::Send, 0, 64, None);
        b.expect(9, IBV_WC_SUCCESS, IBV_WC_RECV);
        a.expect(5, IBV_WC_SUCCESS, IBV_WC_SEND);
    }
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        assert!(Instant::now() < end, "no event within a minute");
        let Some(event) = b.context.next_event().unwrap() else { continue };
        if event.kind == EventKind::SrqLimitReached {
            assert_eq!(event.element, Element::SharedReceiveQueue(srq.handle()));
            return;
        }
    }
}
