//! A NIC with a driver and a queue pair of RDMA: one end of a connection whose other end may be
//! another such NIC, or somebody else's. The driver writes WQEs as libmlx5 does (mlx5.md 2.2).

use super::{CableEnd, ManualClock, PlainMemory};
use crate::hca::rdma::mask;
use crate::hca::send::opcode;
use crate::hca::*;

/// Bytes of the registered buffer.
const BUFFER_LEN: u64 = 0x8_0000;
const CQ_ENTRIES: u32 = 256;
const WQEBBS: u32 = 64;
const RECEIVES: u32 = 64;
/// Bytes of a receive WQE: two pointers.
const RECEIVE_SHIFT: u32 = 5;

/// IBV_ACCESS_*: LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC.
pub const ALL_RIGHTS: u32 = 0xf;

/// See the module.
pub struct Side {
    /// The NIC.
    pub hca: Hca,
    /// The driver's memory.
    pub memory: PlainMemory,
    /// The NIC's end of the cable.
    pub wire: CableEnd,
    /// The queue pair's handle.
    pub qp: u32,
    /// The queue pair's number on the wire.
    pub number: u32,
    /// Where the registered buffer begins.
    pub buffer: u64,
    /// The buffer's local and remote key.
    pub key: u32,
    pd: u32,
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
pub struct Cqe {
    /// The CQE's opcode: 0 sent, 1 to 4 received, 13 and 14 errors.
    pub opcode: u8,
    /// The WQE's opcode, of what was sent.
    pub wqe_opcode: u8,
    /// Of an error: why.
    pub syndrome: u8,
    /// Bytes of the message.
    pub len: u32,
    /// The immediate, or the key that was invalidated.
    pub immediate: u32,
}

impl Side {
    /// A NIC that is on, and a queue pair of this service in RESET.
    ///
    /// # Panics
    /// Where the NIC refuses what a driver asks of it.
    pub fn new(service: Service, config: Config, wire: CableEnd) -> Self {
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
        let cq = hca.create_cq(&request, &memory).expect("the request of a driver").handle;
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
        let QpCreated { handle: qp, number, .. } = created.expect("the request of a driver");
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

    /// Registers the whole buffer once more, with other rights.
    ///
    /// # Panics
    /// Where the NIC has no room for it.
    pub fn register(&mut self, access: u32) -> MrCreated {
        let (pd, start) = (self.pd, self.buffer);
        let request = MrRequest { pd, start, len: BUFFER_LEN, iova: start, access: AccessFlags(access) };
        self.hca.register_memory(&request).expect("the request of a driver")
    }

    /// Leads the queue pair to RTS, connected to that with the number `peer` behind a MAC address
    /// and its link-local GID. `change` changes the usual attributes: an MTU of 256, numbers from
    /// 0xfffff0 on in both directions, seven retries after 67 ms.
    ///
    /// # Panics
    /// Where the NIC refuses the attributes.
    pub fn connect(&mut self, service: Service, peer: u32, mac: [u8; 6], change: impl Fn(&mut QpAttributes)) {
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
            self.hca.modify_qp(self.qp, &change).expect("the request of a driver");
        }
    }

    /// Lets the NIC work until there is nothing left to do, and its peer wait.
    pub fn settle(&mut self, clock: &ManualClock) {
        while self.step(clock) > 0 {}
    }

    pub(in crate::hca) fn step(&mut self, clock: &ManualClock) -> usize {
        self.hca.step(64, &mut Environment { dma: &self.memory, wire: &mut self.wire, clock })
    }

    /// Posts a SEND of the buffer's first bytes.
    pub fn post_send(&mut self, len: u32) {
        self.post(opcode::SEND, 0, &self.pointer(0, len));
    }

    /// Posts a WRITE of the buffer's first bytes to an address of the peer, by its key.
    pub fn post_write(&mut self, len: u32, address: u64, key: u32) {
        let segments = [remote_segment(address, key), self.pointer(0, len)].concat();
        self.post(opcode::WRITE, 0, &segments);
    }

    /// Posts a READ of an address of the peer, by its key, into the buffer's first bytes.
    pub fn post_read(&mut self, len: u32, address: u64, key: u32) {
        let segments = [remote_segment(address, key), self.pointer(0, len)].concat();
        self.post(opcode::READ, 0, &segments);
    }

    /// Posts a fetch and add of 1 to a word of the peer, by its key.
    pub fn post_fetch_add(&mut self, address: u64, key: u32) {
        let segments = [remote_segment(address, key), operands(1, 0), self.pointer(0, 8)].concat();
        self.post(opcode::FETCH_ADD, 0, &segments);
    }

    /// Posts a WQE: segments behind the control segment, in units of 16 bytes.
    pub(in crate::hca) fn post(&mut self, opcode: u8, immediate: u32, segments: &[u8]) {
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
    pub(in crate::hca) fn pointer(&self, offset: u64, len: u32) -> Vec<u8> {
        [&len.to_be_bytes()[..], &self.key.to_be_bytes(), &(self.buffer + offset).to_be_bytes()].concat()
    }

    /// Posts a receive request of one pointer.
    pub fn post_receive(&mut self, offset: u64, len: u32) {
        let place = self.receive_ring + (u64::from(u32::from(self.received) % RECEIVES) << RECEIVE_SHIFT);
        let terminator = [0_u32.to_be_bytes(), 0x100_u32.to_be_bytes(), [0; 4], [0; 4]].concat();
        self.memory.put(place, &[self.pointer(offset, len), terminator].concat());
        self.received = self.received.wrapping_add(1);
        self.memory.put_be32(self.doorbell, self.received.into());
    }

    /// Takes the next CQE.
    pub fn poll(&mut self) -> Option<Cqe> {
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
    pub fn poll_all(&mut self) -> Vec<Cqe> {
        std::iter::from_fn(|| self.poll()).collect()
    }
}

/// The segment that names the peer's memory.
pub(in crate::hca) fn remote_segment(address: u64, key: u32) -> Vec<u8> {
    [&address.to_be_bytes()[..], &key.to_be_bytes(), &[0; 4]].concat()
}

/// The segment of an atomic's operands.
pub(in crate::hca) fn operands(operand: u64, compare: u64) -> Vec<u8> {
    [operand.to_be_bytes(), compare.to_be_bytes()].concat()
}
