//! A driver for the tests of the receiving side: the NIC, its memory, as many queues as a test
//! wants, and the other end of the cable. It reads CQEs byte by byte as mlx5.md 2.9 describes them.
#![allow(clippy::unwrap_used)] // a panic here is the report

use crate::hca::testing::{CableEnd, ManualClock, PlainMemory};
use crate::hca::*;

pub(in crate::hca) struct RxRig {
    pub(in crate::hca) hca: Hca,
    pub(in crate::hca) memory: PlainMemory,
    pub(in crate::hca) clock: ManualClock,
    pub(in crate::hca) here: CableEnd,
    pub(in crate::hca) there: CableEnd,
    pub(in crate::hca) pd: u32,
    lkey: u32,
    pub(in crate::hca) queues: Vec<Queue>,
}

/// A ring with its CQ.
pub(in crate::hca) struct Queue {
    /// The handle of its QP, or of its WQ.
    pub(in crate::hca) handle: u32,
    pub(in crate::hca) cq: u32,
    pub(in crate::hca) doorbell: u64,
    ring: u64,
    buffers: u64,
    cq_ring: u64,
    cq_doorbell: u64,
    pub(in crate::hca) posted: u16,
    consumed: u32,
}

/// A receive CQE, and the frame that it is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::hca) struct RxCqe {
    pub(in crate::hca) opcode: u8,
    pub(in crate::hca) syndrome: u8,
    pub(in crate::hca) wqe_counter: u16,
    pub(in crate::hca) flow_tag: u32,
    pub(in crate::hca) hash: u32,
    pub(in crate::hca) hash_type: u8,
    pub(in crate::hca) verdicts: u8,
    pub(in crate::hca) types: u8,
    pub(in crate::hca) vlan: u16,
    pub(in crate::hca) frame: Vec<u8>,
}

const WQE_COUNT: u32 = 64;
const CQ_ENTRIES: u32 = 128;
const BUFFER_LEN: u32 = 2048;
const MEMORY_LEN: usize = 1 << 20;

impl RxRig {
    pub(in crate::hca) fn new(config: Config) -> Self {
        let memory = PlainMemory::new(0x10_0000, MEMORY_LEN);
        let mut hca = Hca::new(config);
        let pd = hca.alloc_pd();
        let (start, len) = (0x10_0000, MEMORY_LEN as u64);
        let mr = hca.register_memory(&MrRequest { pd, start, len, iova: start, access: AccessFlags(1) }).unwrap();
        let (here, there) = CableEnd::pair();
        Self { hca, memory, clock: ManualClock::default(), here, there, pd, lkey: mr.lkey, queues: Vec::new() }
    }

    /// A raw packet QP that only receives, in reset, and nothing posted. Its place in `queues`.
    pub(in crate::hca) fn qp_in_reset(&mut self, create_flags: u32) -> usize {
        let (ring, mut queue) = self.ring();
        let request = QpRequest {
            pd: self.pd,
            kind: QpKind::RawPacket { send: None, receive: Some(ring) },
            user_handle: 0x99,
            user_index: self.queues.len() as u32,
            capabilities: QpCapabilities::default(),
            create_flags,
            signal_all: false,
        };
        queue.handle = self.hca.create_qp(request).unwrap().handle;
        self.queues.push(queue);
        self.queues.len() - 1
    }

    /// A raw packet QP that receives, with `posted` WQEs.
    pub(in crate::hca) fn qp(&mut self, posted: u16) -> usize {
        let qp = self.qp_in_reset(0);
        self.go(qp, &[QpState::Init, QpState::ReadyToReceive]);
        self.post(qp, posted);
        qp
    }

    /// A WQ that is ready, with all its WQEs posted.
    pub(in crate::hca) fn wq(&mut self) -> usize {
        let (ring, mut queue) = self.ring();
        let user_index = self.queues.len() as u32;
        let request =
            WqRequest { pd: self.pd, ring, user_index, user_handle: 0x88, wr_max: 0, sge_max: 1, create_flags: 0 };
        queue.handle = self.hca.create_wq(&request).unwrap().handle;
        self.hca.modify_wq(queue.handle, &WqChange { state: Some(WqState::Ready), ..WqChange::default() }).unwrap();
        self.queues.push(queue);
        self.post(user_index as usize, WQE_COUNT as u16);
        user_index as usize
    }

    fn ring(&mut self) -> (RqRing, Queue) {
        let memory = &self.memory;
        let cq_ring = memory.reserve(u64::from(CQ_ENTRIES) * 64, 64);
        for entry in 0..u64::from(CQ_ENTRIES) {
            memory.put(cq_ring + entry * 64 + 63, &[0xf0]); // invalid, as libmlx5 leaves them
        }
        let cq_doorbell = memory.reserve(8, 8);
        let request = CqRequest {
            entries: CQ_ENTRIES,
            ring: cq_ring,
            doorbell: cq_doorbell,
            entry_len: 64,
            ..CqRequest::default()
        };
        let cq = self.hca.create_cq(&request, memory).unwrap().handle;
        let ring = memory.reserve(u64::from(WQE_COUNT) * 16, 64);
        let doorbell = memory.reserve(4, 4);
        let buffers = memory.reserve(u64::from(WQE_COUNT * BUFFER_LEN), 64);
        for wqe in 0..u64::from(WQE_COUNT) {
            memory.put_be32(ring + wqe * 16, BUFFER_LEN);
            memory.put_be32(ring + wqe * 16 + 4, self.lkey);
            memory.put_be64(ring + wqe * 16 + 8, buffers + wqe * u64::from(BUFFER_LEN));
        }
        let queue = Queue { handle: 0, cq, doorbell, ring, buffers, cq_ring, cq_doorbell, posted: 0, consumed: 0 };
        (RqRing { ring, wqe_count: WQE_COUNT, wqe_shift: 4, doorbell, cq, striding: None }, queue)
    }

    /// Moves a QP through these states.
    pub(in crate::hca) fn go(&mut self, qp: usize, states: &[QpState]) {
        for &state in states {
            let port = (state == QpState::Init).then_some(1);
            let change = QpChange { state: Some(state), port, ..QpChange::default() };
            self.hca.modify_qp(self.queues[qp].handle, &change).unwrap();
        }
    }

    /// Posts so many more WQEs.
    pub(in crate::hca) fn post(&mut self, queue: usize, count: u16) {
        let queue = &mut self.queues[queue];
        queue.posted = queue.posted.wrapping_add(count);
        self.memory.put_be32(queue.doorbell, u32::from(queue.posted));
    }

    /// A rule that leads to a QP of ours.
    pub(in crate::hca) fn flow(&mut self, qp: usize, specs: &[FlowSpec]) -> u32 {
        self.flow_with(qp, specs, |_| ())
    }

    pub(in crate::hca) fn flow_with(
        &mut self,
        qp: usize,
        specs: &[FlowSpec],
        change: impl FnOnce(&mut FlowRequest),
    ) -> u32 {
        let mut request = flow_request(self.queues[qp].handle, specs);
        change(&mut request);
        self.hca.create_flow(&request).unwrap()
    }

    /// A frame arrives, and is received.
    pub(in crate::hca) fn arrive(&mut self, frame: &[u8]) {
        self.there.send(frame);
        self.step();
    }

    pub(in crate::hca) fn step(&mut self) -> usize {
        self.step_with(1000)
    }

    pub(in crate::hca) fn step_with(&mut self, budget: usize) -> usize {
        let mut environment = Environment { dma: &self.memory, wire: &mut self.here, clock: &self.clock };
        self.hca.step(budget, &mut environment)
    }

    /// All completions that a queue has now.
    pub(in crate::hca) fn poll(&mut self, queue: usize) -> Vec<RxCqe> {
        std::iter::from_fn(|| self.poll_one(queue)).collect()
    }

    fn poll_one(&mut self, at: usize) -> Option<RxCqe> {
        let queue = &mut self.queues[at];
        let cqe = self.memory.get(queue.cq_ring + u64::from(queue.consumed % CQ_ENTRIES) * 64, 64);
        let owner = u8::from(queue.consumed & CQ_ENTRIES != 0);
        let opcode = cqe[63] >> 4;
        if opcode == 0xf || cqe[63] & 1 != owner {
            return None;
        }
        queue.consumed += 1;
        self.memory.put_be32(queue.cq_doorbell, queue.consumed & 0xff_ffff);
        let be16 = |at: usize| u16::from_be_bytes([cqe[at], cqe[at + 1]]);
        let be32 = |at: usize| u32::from(be16(at)) << 16 | u32::from(be16(at + 2));
        assert_eq!(be32(32), at as u32, "the user index of another queue");
        let wqe_counter = be16(60);
        if opcode == 14 {
            return Some(RxCqe { opcode, syndrome: cqe[55], wqe_counter, ..RxCqe::default() });
        }
        let buffer = queue.buffers + u64::from(u32::from(wqe_counter) % WQE_COUNT * BUFFER_LEN);
        Some(RxCqe {
            opcode,
            syndrome: 0,
            wqe_counter,
            flow_tag: be32(56),
            hash: be32(12),
            hash_type: cqe[16],
            verdicts: cqe[28],
            types: cqe[29],
            vlan: be16(30),
            frame: self.memory.get(buffer, be32(44) as usize),
        })
    }

    /// The flow tags of the frames that each queue received since the last call, for tests of
    /// steering.
    pub(in crate::hca) fn tags(&mut self) -> Vec<Vec<u32>> {
        (0..self.queues.len()).map(|queue| self.poll(queue).into_iter().map(|cqe| cqe.flow_tag).collect()).collect()
    }

    /// Overwrites a WQE with bytes.
    pub(in crate::hca) fn spoil(&self, queue: usize, wqe: u64, bytes: &[u8]) {
        self.memory.put(self.queues[queue].ring + wqe * 16, bytes);
    }
}

pub(in crate::hca) fn flow_request(qp: u32, specs: &[FlowSpec]) -> FlowRequest {
    FlowRequest { qp, kind: FlowKind::Normal, priority: 1, flags: 0, specs: specs.to_vec(), actions: Vec::new() }
}

/// An Ethernet spec for a destination.
pub(in crate::hca) fn to_mac(mac: [u8; 6]) -> FlowSpec {
    let (mut value, mut mask) = ([0; 16], [0; 16]);
    value[..6].copy_from_slice(&mac);
    mask[..6].fill(0xff);
    FlowSpec::Ethernet { value, mask }
}

/// An IPv4 spec for a destination.
pub(in crate::hca) fn to_ip(ip: [u8; 4]) -> FlowSpec {
    let (mut value, mut mask) = ([0; 12], [0; 12]);
    value[4..8].copy_from_slice(&ip);
    mask[4..8].fill(0xff);
    FlowSpec::Ipv4 { value, mask }
}

/// A UDP spec for a destination port.
pub(in crate::hca) fn to_udp(port: u16) -> FlowSpec {
    let [high, low] = port.to_be_bytes();
    FlowSpec::Udp { value: [high, low, 0, 0], mask: [0xff, 0xff, 0, 0] }
}
