//! A driver for the tests of the sending side: the NIC, its memory, one QP and the other end of its
//! cable. It writes WQEs byte by byte as mlx5.md section 2 describes them, right or wrong, as the
//! test wants.
#![allow(clippy::unwrap_used)] // a panic here is the report

use crate::hca::testing::{CableEnd, ManualClock, PlainMemory};
use crate::hca::*;

/// The number by which the driver's CQEs name the queue.
pub(in crate::hca) const USER_INDEX: u32 = 0xabc;
/// Bytes that may be sent from.
pub(in crate::hca) const BUFFER_LEN: u64 = 0x8_0000;
const CQ_ENTRIES: u32 = 1024;

pub(in crate::hca) struct Rig {
    pub(in crate::hca) hca: Hca,
    pub(in crate::hca) memory: PlainMemory,
    pub(in crate::hca) clock: ManualClock,
    pub(in crate::hca) here: CableEnd,
    pub(in crate::hca) there: CableEnd,
    pub(in crate::hca) pd: u32,
    pub(in crate::hca) cq: u32,
    pub(in crate::hca) qp: u32,
    pub(in crate::hca) number: u32,
    pub(in crate::hca) lkey: u32,
    /// The registered buffer.
    pub(in crate::hca) buffer: u64,
    pub(in crate::hca) ring: u64,
    pub(in crate::hca) wqebb_count: u32,
    pub(in crate::hca) doorbell: u64,
    pub(in crate::hca) uar: u64,
    /// Position of the next WQE.
    pub(in crate::hca) pi: u16,
    /// The WQE that was posted last: its position and bytes.
    last: (u16, Vec<u8>),
    cq_ring: u64,
    ci: u32,
}

/// A CQE of a send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::hca) struct SendCqe {
    pub(in crate::hca) opcode: u8,
    pub(in crate::hca) wqe_counter: u16,
    /// The syndrome of an error CQE, else 0.
    pub(in crate::hca) syndrome: u8,
    pub(in crate::hca) vendor: u8,
    /// The WQE's opcode.
    pub(in crate::hca) wqe_opcode: u8,
    pub(in crate::hca) user_index: u32,
}

impl Rig {
    /// A QP with 64 WQEBBs that is ready to send.
    pub(in crate::hca) fn new(config: Config) -> Self {
        Self::with_ring(config, 64)
    }

    pub(in crate::hca) fn with_ring(config: Config, wqebb_count: u32) -> Self {
        let mut rig = Self::in_reset(config, wqebb_count);
        rig.make_ready();
        rig
    }

    pub(in crate::hca) fn in_reset(config: Config, wqebb_count: u32) -> Self {
        let memory = PlainMemory::new(0x10_0000, 0x20_0000 + wqebb_count as usize * 64);
        let mut hca = Hca::new(config);
        let pd = hca.alloc_pd();
        let cq_ring = memory.reserve(u64::from(CQ_ENTRIES) * 64, 4096);
        for entry in 0..u64::from(CQ_ENTRIES) {
            memory.put(cq_ring + entry * 64 + 63, &[0xf0]); // invalid, as libmlx5 leaves them
        }
        let uar = memory.reserve(4096, 4096);
        hca.map_uar(3, uar).unwrap();
        let buffer = memory.reserve(BUFFER_LEN, 4096);
        let access = AccessFlags(1);
        let mr = hca.register_memory(&MrRequest { pd, start: buffer, len: BUFFER_LEN, iova: buffer, access }).unwrap();
        let cq = hca.create_cq(
            &CqRequest {
                entries: CQ_ENTRIES,
                ring: cq_ring,
                doorbell: memory.reserve(8, 64),
                entry_len: 64,
                ignore_overrun: true,
                ..CqRequest::default()
            },
            &memory,
        );
        let (here, there) = CableEnd::pair();
        let mut rig = Self {
            hca,
            clock: ManualClock::default(),
            here,
            there,
            pd,
            cq: cq.unwrap().handle,
            qp: 0,
            number: 0,
            lkey: mr.lkey,
            buffer,
            ring: memory.reserve(u64::from(wqebb_count) * 64, 4096),
            wqebb_count,
            doorbell: memory.reserve(4, 64),
            uar,
            pi: 0,
            last: (0, Vec::new()),
            cq_ring,
            ci: 0,
            memory,
        };
        let created = rig.hca.create_qp(rig.request()).unwrap();
        (rig.qp, rig.number) = (created.handle, created.number);
        rig
    }

    /// The request that made the rig's QP.
    pub(in crate::hca) fn request(&self) -> QpRequest {
        let send =
            SqRing { ring: self.ring, wqebb_count: self.wqebb_count, doorbell: self.doorbell, cq: self.cq, uar: 3 };
        QpRequest {
            pd: self.pd,
            kind: QpKind::RawPacket { send: Some(send), receive: None },
            user_handle: 0x77,
            user_index: USER_INDEX,
            capabilities: QpCapabilities { send_wr_max: 64, ..QpCapabilities::default() },
            create_flags: 0,
            signal_all: false,
        }
    }

    /// RESET, INIT, RTR, RTS, with a driver's own housekeeping.
    pub(in crate::hca) fn make_ready(&mut self) {
        self.to(QpState::Reset);
        self.memory.put_be32(self.doorbell, 0);
        self.pi = 0;
        for state in [QpState::Init, QpState::ReadyToReceive, QpState::ReadyToSend] {
            self.to(state);
        }
    }

    fn to(&mut self, state: QpState) {
        let port = (state == QpState::Init).then_some(1);
        let change = QpChange { state: Some(state), port, ..QpChange::default() };
        self.hca.modify_qp(self.qp, &change).unwrap();
    }

    /// A WQE with the control segment that belongs here, and CQE always.
    pub(in crate::hca) fn wqe(&self, opcode: u8, segments: &[&[u8]]) -> Vec<u8> {
        let tail = segments.concat();
        let units = (16 + tail.len()).div_ceil(16);
        let mut wqe = (u32::from(self.pi) << 8 | u32::from(opcode)).to_be_bytes().to_vec();
        wqe.extend((self.number << 8 | (units as u32 & 63)).to_be_bytes());
        wqe.extend([0, 0, 0, 0x08, 0, 0, 0, 0]);
        wqe.extend(tail);
        wqe.resize(units * 16, 0);
        wqe
    }

    /// A WQE that sends `frame` from the buffer.
    pub(in crate::hca) fn send_wqe(&self, frame: &[u8]) -> Vec<u8> {
        self.memory.put(self.buffer, frame);
        self.wqe(0x0a, &[&ethernet(0), &self.pointer(0, frame.len() as u32)])
    }

    /// A pointer segment into the buffer.
    pub(in crate::hca) fn pointer(&self, offset: u64, len: u32) -> [u8; 16] {
        pointer(len, self.lkey, self.buffer + offset)
    }

    /// Writes a WQE into the ring, around its end where it must be.
    pub(in crate::hca) fn post(&mut self, wqe: &[u8]) {
        let ring_len = self.wqebb_count as usize * 64;
        for (at, unit) in wqe.chunks(16).enumerate() {
            let offset = (self.pi as usize * 64 + at * 16) % ring_len;
            self.memory.put(self.ring + offset as u64, unit);
        }
        self.last = (self.pi, wqe.to_vec());
        self.pi = self.pi.wrapping_add(wqe.len().div_ceil(64) as u16);
    }

    /// Writes the doorbell record.
    pub(in crate::hca) fn record(&self) {
        self.memory.put_be32(self.doorbell, u32::from(self.pi));
    }

    /// Writes the first 8 bytes of the last WQE to half of a register.
    pub(in crate::hca) fn ring(&self, half: u64) {
        self.memory.put(self.uar + 0x800 + half * 256, &self.last.1[..8]);
    }

    /// Copies the last WQE to half of a register, in chunks of 64 bytes.
    pub(in crate::hca) fn blueflame(&self, half: u64) {
        let mut bytes = self.last.1.clone();
        bytes.resize(bytes.len().next_multiple_of(64), 0);
        self.memory.put(self.uar + 0x800 + half * 256, &bytes);
    }

    /// Writes one WQE and its doorbell as a driver does, and steps the model once.
    pub(in crate::hca) fn submit(&mut self, wqe: &[u8]) {
        self.post(wqe);
        self.record();
        self.ring(0);
        self.step();
    }

    pub(in crate::hca) fn step(&mut self) -> usize {
        self.step_with(1000)
    }

    pub(in crate::hca) fn step_with(&mut self, budget: usize) -> usize {
        let mut environment = Environment { dma: &self.memory, wire: &mut self.here, clock: &self.clock };
        self.hca.step(budget, &mut environment)
    }

    /// The next CQE, where one was written.
    pub(in crate::hca) fn cqe(&mut self) -> Option<SendCqe> {
        let cqe = self.memory.get(self.cq_ring + u64::from(self.ci % CQ_ENTRIES) * 64, 64);
        let owner = u8::from(self.ci & CQ_ENTRIES != 0);
        let opcode = cqe[63] >> 4;
        if opcode == 0xf || cqe[63] & 1 != owner {
            return None;
        }
        self.ci += 1;
        let is_error = opcode == 13;
        Some(SendCqe {
            opcode,
            wqe_counter: u16::from_be_bytes([cqe[60], cqe[61]]),
            syndrome: if is_error { cqe[55] } else { 0 },
            vendor: if is_error { cqe[54] } else { 0 },
            wqe_opcode: cqe[56],
            user_index: u32::from_be_bytes([0, cqe[33], cqe[34], cqe[35]]),
        })
    }

    pub(in crate::hca) fn cqes(&mut self) -> Vec<SendCqe> {
        std::iter::from_fn(|| self.cqe()).collect()
    }

    /// The frames that arrived at the other end.
    pub(in crate::hca) fn frames(&self) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.there.take()).collect()
    }

    pub(in crate::hca) fn state(&self) -> QpState {
        self.hca.query_qp(self.qp).unwrap().0
    }
}

/// An Ethernet segment with nothing but checksum flags.
pub(in crate::hca) fn ethernet(checksums: u8) -> [u8; 16] {
    let mut segment = [0; 16];
    segment[4] = checksums;
    segment
}

/// An Ethernet segment that carries headers, long enough for them.
pub(in crate::hca) fn ethernet_inline(checksums: u8, mss: u16, headers: &[u8]) -> Vec<u8> {
    let mut segment = ethernet(checksums).to_vec();
    segment[6..8].copy_from_slice(&mss.to_be_bytes());
    segment[12..14].copy_from_slice(&(headers.len() as u16).to_be_bytes());
    segment.truncate(14);
    segment.extend(headers);
    segment.resize(segment.len().max(16).next_multiple_of(16), 0);
    segment
}

pub(in crate::hca) fn pointer(len: u32, lkey: u32, address: u64) -> [u8; 16] {
    let mut segment = [0; 16];
    segment[..4].copy_from_slice(&len.to_be_bytes());
    segment[4..8].copy_from_slice(&lkey.to_be_bytes());
    segment[8..].copy_from_slice(&address.to_be_bytes());
    segment
}

/// An inline segment, padded.
pub(in crate::hca) fn inline(bytes: &[u8]) -> Vec<u8> {
    let mut segment = (bytes.len() as u32 | 1 << 31).to_be_bytes().to_vec();
    segment.extend(bytes);
    segment.resize(segment.len().next_multiple_of(16), 0);
    segment
}

/// A frame of which each byte shows its position.
pub(in crate::hca) fn frame(len: usize) -> Vec<u8> {
    (0..len).map(|at| at as u8).collect()
}
