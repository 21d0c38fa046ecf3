//! Two NICs on a cable, each with a driver and a queue pair that is connected to the other's. The
//! drivers write WQEs as libmlx5 does (mlx5.md 2.2); time passes only where a test turns the clock.

use crate::hca::testing::{CableEnd, ManualClock, PlainMemory};
use crate::hca::*;

use super::super::attributes::mask;

/// Bytes of the registered buffer.
pub(super) const BUFFER_LEN: u64 = 0x8_0000;
const CQ_ENTRIES: u32 = 256;
const WQEBBS: u32 = 64;
const RECEIVES: u32 = 64;
/// Bytes of a receive WQE: two pointers.
const RECEIVE_SHIFT: u32 = 5;

/// IBV_ACCESS_*: LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC.
pub(super) const ALL_RIGHTS: u32 = 0xf;

/// One end.
pub(super) struct Side {
    pub(super) hca: Hca,
    pub(super) memory: PlainMemory,
    pub(super) wire: CableEnd,
    pub(super) qp: u32,
    pub(super) number: u32,
    pub(super) buffer: u64,
    pub(super) key: u32,
    pub(super) pd: u32,
    send_ring: u64,
    receive_ring: u64,
    doorbell: u64,
    cq_ring: u64,
    ci: u32,
    posted: u16,
    received: u16,
}

/// A CQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cqe {
    /// The CQE's opcode: 0 sent, 1 to 4 received, 13 and 14 errors.
    pub(super) opcode: u8,
    /// The WQE's opcode, of what was sent.
    pub(super) wqe_opcode: u8,
    pub(super) syndrome: u8,
    pub(super) len: u32,
    pub(super) immediate: u32,
}

/// Both ends and the clock.
pub(super) struct Rig {
    pub(super) here: Side,
    pub(super) there: Side,
    pub(super) clock: ManualClock,
}

impl Rig {
    /// Two queue pairs of a service that are ready to send.
    pub(super) fn new(service: Service) -> Self {
        Self::with(service, [Config::default(), Config::default()], |_| {})
    }

    /// The same, where the ends differ from the usual ones.
    pub(super) fn with(service: Service, configs: [Config; 2], change: impl Fn(&mut QpAttributes)) -> Self {
        let (here, there) = CableEnd::pair();
        let [first, second] = configs;
        let mut rig = Self {
            here: Side::new(service, Config { mac: [2, 0, 0, 0, 0x5c, 1], ..first }, here),
            there: Side::new(service, Config { mac: [2, 0, 0, 0, 0x5c, 2], ..second }, there),
            clock: ManualClock::default(),
        };
        let (here, there) = (&mut rig.here, &mut rig.there);
        here.connect(service, there.number, there.hca.config().mac, &change);
        there.connect(service, here.number, here.hca.config().mac, &change);
        rig
    }

    /// Lets both NICs work until there is nothing left to do.
    pub(super) fn settle(&mut self) {
        for _ in 0..100_000 {
            if self.here.step(&self.clock) + self.there.step(&self.clock) == 0 {
                return;
            }
        }
        panic!("the NICs never come to rest");
    }

    /// Lets time pass, in steps of a tenth of a millisecond.
    pub(super) fn pass_ms(&mut self, ms: u64) {
        for _ in 0..ms * 10 {
            self.clock.advance(100_000);
            self.settle();
        }
    }
}

impl Side {
    fn new(service: Service, config: Config, wire: CableEnd) -> Self {
        let memory = PlainMemory::new(0x10_0000, 0x20_0000);
        let mut hca = Hca::new(config);
        let pd = hca.alloc_pd();
        let cq_ring = memory.reserve(u64::from(CQ_ENTRIES) * 64, 4096);
        for entry in 0..u64::from(CQ_ENTRIES) {
            memory.put(cq_ring + entry * 64 + 63, &[0xf0]); // invalid, as libmlx5 leaves them
        }
        let request = CqRequest {
            entries: CQ_ENTRIES,
            ring: cq_ring,
            doorbell: memory.reserve(8, 64),
            entry_len: 64,
            ignore_overrun: true,
            ..CqRequest::default()
        };
        let cq = hca.create_cq(&request, &memory).unwrap().handle;
        let receive_ring = memory.reserve(u64::from(RECEIVES) << RECEIVE_SHIFT, 4096);
        let send_ring = memory.reserve(u64::from(WQEBBS) * 64, 4096);
        let doorbell = memory.reserve(8, 64);
        let (wqebb_count, uar) = (WQEBBS, 0);
        let send = SqRing { ring: send_ring, wqebb_count, doorbell: doorbell + 4, cq, uar };
        let receive =
            RqRing { ring: receive_ring, wqe_count: RECEIVES, wqe_shift: RECEIVE_SHIFT, doorbell, cq, striding: None };
        let created = hca.create_qp(QpRequest {
            pd,
            kind: QpKind::Rdma { service, send, receive: Some(receive), srq: None, receive_cq: cq },
            user_handle: 0x77,
            user_index: 0xabc,
            capabilities: QpCapabilities::default(),
            create_flags: 0,
            signal_all: false,
        });
        let buffer = memory.reserve(BUFFER_LEN, 4096);
        let QpCreated { handle: qp, number, .. } = created.unwrap();
        let mut side = Self {
            hca,
            wire,
            qp,
            number,
            buffer,
            key: 0,
            pd,
            send_ring,
            receive_ring,
            doorbell,
            cq_ring,
            ci: 0,
            posted: 0,
            received: 0,
            memory,
        };
        side.key = side.register(ALL_RIGHTS).rkey;
        side
    }

    /// Registers the whole buffer.
    pub(super) fn register(&mut self, access: u32) -> MrCreated {
        let (pd, start) = (self.pd, self.buffer);
        let request = MrRequest { pd, start, len: BUFFER_LEN, iova: start, access: AccessFlags(access) };
        self.hca.register_memory(&request).unwrap()
    }

    fn connect(&mut self, service: Service, peer: u32, mac: [u8; 6], change: &impl Fn(&mut QpAttributes)) {
        let mut attributes = QpAttributes {
            access: AccessFlags(ALL_RIGHTS),
            qkey: 0x1111,
            address: AddressVector { gid: Gid::link_local(mac), mac, ..AddressVector::default() },
            path_mtu: 1, // 256 bytes, so that short messages have several packets
            destination_qp: peer,
            receive_psn: 0xff_fff0,
            send_psn: 0xff_fff0,
            read_max: 4,
            peer_read_max: 4,
            rnr_timer: 12,
            timeout: 14,
            retry_count: 7,
            rnr_retry: 7,
            ..QpAttributes::default()
        };
        change(&mut attributes);
        let is_ud = service == Service::Ud;
        let connected = |bits: u32| if is_ud { 0 } else { bits };
        let rc = |bits: u32| if service == Service::Rc { bits } else { 0 };
        let steps = [
            (QpState::Init, mask::PKEY_INDEX | mask::PORT | if is_ud { mask::QKEY } else { mask::ACCESS }),
            (
                QpState::ReadyToReceive,
                connected(mask::ADDRESS | mask::PATH_MTU | mask::DESTINATION_QP | mask::RECEIVE_PSN)
                    | rc(mask::PEER_READ_MAX | mask::RNR_TIMER),
            ),
            (
                QpState::ReadyToSend,
                mask::SEND_PSN | rc(mask::TIMEOUT | mask::RETRY_COUNT | mask::RNR_RETRY | mask::READ_MAX),
            ),
        ];
        for (state, named) in steps {
            let mask = named | mask::STATE;
            let change = QpChange { state: Some(state), port: Some(1), mask, attributes, ..QpChange::default() };
            self.hca.modify_qp(self.qp, &change).unwrap();
        }
    }

    /// Lets the NIC work until there is nothing left to do, and its peer wait.
    pub(super) fn settle(&mut self, clock: &ManualClock) {
        while self.step(clock) > 0 {}
    }

    fn step(&mut self, clock: &ManualClock) -> usize {
        self.hca.step(64, &mut Environment { dma: &self.memory, wire: &mut self.wire, clock })
    }

    /// Posts a WQE: segments behind the control segment, in units of 16 bytes.
    pub(super) fn post(&mut self, opcode: u8, immediate: u32, segments: &[u8]) {
        let units = 1 + segments.len() / 16;
        let control = [
            (u32::from(self.posted) << 8 | u32::from(opcode)).to_be_bytes(),
            (self.number << 8 | units as u32).to_be_bytes(),
            [0, 0, 0, 8], // a completion always
            immediate.to_be_bytes(),
        ];
        let wqe = [&control.concat()[..], segments].concat();
        for (nth, block) in wqe.chunks(64).enumerate() {
            let place = (u32::from(self.posted) + nth as u32) % WQEBBS;
            self.memory.put(self.send_ring + u64::from(place) * 64, block);
        }
        self.posted = self.posted.wrapping_add(units.div_ceil(4) as u16);
        self.memory.put_be32(self.doorbell + 4, self.posted.into());
    }

    /// A pointer to `len` bytes of the buffer.
    pub(super) fn pointer(&self, offset: u64, len: u32) -> Vec<u8> {
        [&len.to_be_bytes()[..], &self.key.to_be_bytes(), &(self.buffer + offset).to_be_bytes()].concat()
    }

    /// Posts a receive request of one pointer.
    pub(super) fn post_receive(&mut self, offset: u64, len: u32) {
        let place = self.receive_ring + (u64::from(u32::from(self.received) % RECEIVES) << RECEIVE_SHIFT);
        let terminator = [0_u32.to_be_bytes(), 0x100_u32.to_be_bytes(), [0; 4], [0; 4]].concat();
        self.memory.put(place, &[self.pointer(offset, len), terminator].concat());
        self.received = self.received.wrapping_add(1);
        self.memory.put_be32(self.doorbell, self.received.into());
    }

    /// Takes the next CQE.
    pub(super) fn poll(&mut self) -> Option<Cqe> {
        let bytes = self.memory.get(self.cq_ring + u64::from(self.ci % CQ_ENTRIES) * 64, 64);
        let owner = self.ci & CQ_ENTRIES != 0;
        let opcode = bytes[63] >> 4;
        if opcode == 0xf || (bytes[63] & 1 != 0) != owner {
            return None;
        }
        self.ci += 1;
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let is_error = opcode >= 13;
        Some(Cqe {
            opcode,
            wqe_opcode: bytes[56],
            syndrome: if is_error { bytes[55] } else { 0 },
            len: if is_error { 0 } else { word(44) },
            immediate: if is_error { 0 } else { word(36) },
        })
    }

    /// Takes all CQEs.
    pub(super) fn poll_all(&mut self) -> Vec<Cqe> {
        std::iter::from_fn(|| self.poll()).collect()
    }
}

/// The segment that names the peer's memory.
pub(super) fn remote(side: &Side, offset: u64) -> Vec<u8> {
    [&(side.buffer + offset).to_be_bytes()[..], &side.key.to_be_bytes(), &[0; 4]].concat()
}

/// The segment of an atomic's operands.
pub(super) fn operands(operand: u64, compare: u64) -> Vec<u8> {
    [operand.to_be_bytes(), compare.to_be_bytes()].concat()
}

/// Bytes that differ from those elsewhere.
pub(super) fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251 + seed * 31) as u8).collect()
}
