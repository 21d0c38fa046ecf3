//! Receiving rings: a ring of WQEs, a doorbell record, a state. A QP's ring and a WQ are the same
//! thing: both come as a [`WqRequest`].
//!
//! The input is a frame with the NIC's findings about it; the output is its bytes in the driver's
//! buffers ([`scatter`](super::scatter) for one frame per WQE, [`stride`](super::stride) for
//! several) and a completion. A ring in error completes all posted WQEs with syndrome 05, a few in
//! each step. Other files decide which frame goes to which ring.

use crate::hca::completion::Cqs;
use crate::hca::control::{Errno, RqRing, Striding, WqRequest, WqState};
use crate::hca::environment::{Dma, Environment, Unmapped};
use crate::hca::memory::{Memory, Unreachable};
use crate::hca::table::Table;
use crate::hca::{Completion, CompletionKind, Hca, RxHeaders, Syndrome};
use std::fmt;

/// All receiving rings by number.
#[derive(Default)]
pub(in crate::hca) struct Rqs {
    table: Table<Rq>,
    /// How many there were: goes into their numbers.
    made: u32,
}

/// One receiving ring.
pub(in crate::hca) struct Rq {
    pub(in crate::hca) number: u32,
    /// The number in its completions: RDMA's name the QP.
    pub(in crate::hca) reported: u32,
    pub(in crate::hca) pd: u32,
    pub(in crate::hca) user_index: u32,
    pub(in crate::hca) cq: u32,
    ring: u64,
    wqe_count: u16,
    pub(in crate::hca) wqe_shift: u32,
    doorbell: u64,
    pub(in crate::hca) striding: Option<Striding>,
    /// A C-VLAN tag is stripped, and reported in the CQE.
    pub(in crate::hca) strips_vlan: bool,
    /// The frame check sequence is delivered behind the frame.
    pub(in crate::hca) delivers_fcs: bool,
    pub(in crate::hca) state: WqState,
    /// WQEs that were consumed.
    pub(in crate::hca) consumer: u16,
    /// WQEs that were posted, as the doorbell record was read last.
    producer: u16,
    /// Striding: the next stride of the WQE in use.
    pub(in crate::hca) stride: u32,
    /// Frames have waited for a WQE for long, and since then none was posted.
    pub(in crate::hca) has_stalled: bool,
}

/// The outcome of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::hca) enum Received {
    /// It is in the driver's memory, and completed.
    Stored,
    /// The frame's WQE could not hold it: the WQE completed with an error, and the ring is in
    /// error.
    Failed(RqFault),
    /// No WQE is posted: nothing happened.
    NoWqe,
    /// The ring does not receive: nothing happened.
    NotReady,
    /// The ring or its CQ are gone, so nothing could be completed, and the ring is in error.
    Fatal(RqFault),
}

/// The reason why a ring fails: the syndrome for the error CQE, and a sentence for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::hca) enum RqFault {
    /// The ring or the doorbell record are not mapped.
    RingUnmapped,
    /// The CQ overran or is gone.
    CqDead,
    /// The doorbell record names more WQEs than there are.
    BeyondRing { posted: u16, wqe_count: u16 },
    /// A frame longer than the buffers of its WQE.
    TooLong { len: usize },
    /// Bit 31 of a byte count: inline data, in a receive WQE.
    Inline,
    /// A pointer that leads nowhere.
    Pointer { why: Unreachable, lkey: u32, address: u64, len: u64 },
    /// The region is registered, but its memory is no longer mapped.
    PointerUnmapped { address: u64 },
    /// Nothing but bad luck, in hostile mode.
    BadLuck,
}

/// The numbers of receiving rings have this bit, those of sending rings do not, so a number names
/// one queue.
const NUMBER_BASE: u32 = 1 << 20;

/// Rings at the same time: their slot has this many bits in their number.
const SLOT_BITS: u32 = 12;

/// `max_recv_wr` of mlx5.md 3.5. Positions have 16 bits, so in a ring of 65536 full and empty would
/// look the same.
const WQE_COUNT_MAX: u32 = 32768;

/// The largest WQE: `max_rq_desc_sz` of mlx5.md 3.5, 512 bytes.
const WQE_SHIFT_MAX: u32 = 9;

impl Rqs {
    #[inline]
    pub(in crate::hca) fn get_mut(&mut self, number: u32) -> Option<&mut Rq> {
        self.table.get_mut(slot_of(number)).filter(|rq| rq.number == number)
    }

    pub(in crate::hca) fn get(&self, number: u32) -> Option<&Rq> {
        self.table.get(slot_of(number)).filter(|rq| rq.number == number)
    }

    pub(in crate::hca) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Rq> {
        self.table.iter_mut().map(|(_, rq)| rq)
    }

    /// Keeps a ring under a number that was not used for long: the slot in the low bits, above it a
    /// part that counts.
    fn insert(&mut self, rq: Rq) -> u32 {
        self.made = self.made.wrapping_add(1);
        let slot = self.table.insert(rq);
        let number = NUMBER_BASE | (self.made & 0xff) << SLOT_BITS | slot;
        if let Some(rq) = self.table.get_mut(slot) {
            (rq.number, rq.reported) = (number, number);
        }
        number
    }
}

fn slot_of(number: u32) -> u32 {
    number & ((1 << SLOT_BITS) - 1)
}

impl Rq {
    fn new(request: &WqRequest) -> Self {
        let RqRing { ring, wqe_count, wqe_shift, doorbell, cq, striding } = request.ring;
        Self {
            number: 0,
            reported: 0,
            pd: request.pd,
            user_index: request.user_index,
            cq,
            ring,
            wqe_count: wqe_count as u16,
            wqe_shift,
            doorbell,
            striding,
            strips_vlan: request.create_flags & WqRequest::VLAN_STRIPPING != 0,
            delivers_fcs: request.create_flags & WqRequest::SCATTER_FCS != 0,
            state: WqState::Reset,
            consumer: 0,
            producer: 0,
            stride: 0,
            has_stalled: false,
        }
    }

    /// Only a reset ends a ring's error, even where its QP goes on to RTS meanwhile.
    fn change_state(&mut self, state: WqState) {
        match (self.state, state) {
            (WqState::Error, WqState::Ready) => return,
            (_, WqState::Reset) => (self.consumer, self.producer, self.stride) = (0, 0, 0),
            _ => {}
        }
        self.state = state;
    }

    /// Stores a frame and completes it.
    #[inline]
    pub(in crate::hca) fn receive(
        &mut self,
        frame: &[u8],
        headers: RxHeaders,
        memory: &Memory,
        cqs: &mut Cqs,
        environment: &Environment<'_>,
    ) -> Received {
        if self.state != WqState::Ready {
            return Received::NotReady;
        }
        if !cqs.is_alive(self.cq) {
            return self.fatal(RqFault::CqDead);
        }
        match self.posted(1, environment.dma) {
            Err(fault) => self.fatal(fault),
            Ok(0) => Received::NoWqe,
            Ok(_) if self.striding.is_some() => self.receive_into_strides(frame, headers, memory, cqs, environment),
            Ok(_) => self.receive_into_wqe(frame, headers, memory, cqs, environment),
        }
    }

    /// Fails the next WQE though nothing is wrong with it, where one is posted.
    pub(in crate::hca) fn fail(&mut self, fault: RqFault, cqs: &mut Cqs, environment: &Environment<'_>) -> Received {
        if self.state != WqState::Ready {
            return Received::NotReady;
        }
        match self.posted(1, environment.dma) {
            Err(fault) => self.fatal(fault),
            Ok(0) => Received::NoWqe,
            Ok(_) => self.complete_error(fault, cqs, environment),
        }
    }

    /// Gives up to `budget` posted WQEs back flushed, where the ring is in error. Returns how many.
    #[inline]
    pub(in crate::hca) fn flush(&mut self, budget: usize, cqs: &mut Cqs, environment: &Environment<'_>) -> usize {
        if self.state != WqState::Error {
            return 0;
        }
        // A ring that is not in memory or has an invalid record returns no more WQEs.
        let posted = self.posted(u16::MAX, environment.dma).unwrap_or(0);
        let count = usize::from(posted).min(budget);
        for _ in 0..count {
            let kind = CompletionKind::ReceiveError { syndrome: Syndrome::Flushed, vendor: 0 };
            self.complete(kind, self.consumer, cqs, environment);
            self.consume_wqe();
        }
        count
    }

    /// WQEs that are posted and not consumed. The doorbell record is only read where fewer than
    /// `wanted` are known of.
    #[inline]
    pub(in crate::hca) fn posted(&mut self, wanted: u16, dma: &dyn Dma) -> Result<u16, RqFault> {
        let known = self.producer.wrapping_sub(self.consumer);
        if known >= wanted {
            return Ok(known);
        }
        self.producer = dma.load_be32(self.doorbell)? as u16;
        let posted = self.producer.wrapping_sub(self.consumer);
        self.has_stalled &= posted == 0;
        if posted > self.wqe_count {
            self.producer = self.consumer;
            return Err(RqFault::BeyondRing { posted, wqe_count: self.wqe_count });
        }
        Ok(posted)
    }

    /// Where the next WQE lies.
    #[inline]
    pub(in crate::hca) fn wqe_address(&self) -> u64 {
        self.ring + (u64::from(self.wqe_index()) << self.wqe_shift)
    }

    /// Its place in the ring.
    #[inline]
    pub(in crate::hca) fn wqe_index(&self) -> u16 {
        self.consumer & (self.wqe_count - 1)
    }

    #[inline]
    pub(in crate::hca) fn consume_wqe(&mut self) {
        self.consumer = self.consumer.wrapping_add(1);
        self.stride = 0;
    }

    #[inline]
    pub(in crate::hca) fn complete(
        &self,
        kind: CompletionKind,
        wqe_counter: u16,
        cqs: &mut Cqs,
        environment: &Environment<'_>,
    ) {
        let Self { user_index, reported: queue_number, .. } = *self;
        cqs.complete(self.cq, &Completion { user_index, queue_number, wqe_counter, kind }, environment);
    }

    /// Completes the next WQE in error, which takes the ring with it.
    #[cold]
    pub(in crate::hca) fn complete_error(
        &mut self,
        fault: RqFault,
        cqs: &mut Cqs,
        environment: &Environment<'_>,
    ) -> Received {
        let kind = CompletionKind::ReceiveError { syndrome: fault.syndrome(), vendor: fault.vendor() };
        self.complete(kind, self.consumer, cqs, environment);
        self.consume_wqe();
        self.state = WqState::Error;
        Received::Failed(fault)
    }

    #[cold]
    fn fatal(&mut self, fault: RqFault) -> Received {
        self.state = WqState::Error;
        Received::Fatal(fault)
    }
}

impl From<Unmapped> for RqFault {
    fn from(_: Unmapped) -> Self {
        Self::RingUnmapped
    }
}

impl RqFault {
    /// Byte 55 of the error CQE; mlx5.md 2.9.
    pub(in crate::hca) fn syndrome(self) -> Syndrome {
        match self {
            Self::TooLong { .. } => Syndrome::LocalLength,
            Self::Pointer { why, .. } => why.syndrome(),
            Self::PointerUnmapped { .. } | Self::BadLuck => Syndrome::LocalProtection,
            Self::Inline | Self::RingUnmapped | Self::CqDead | Self::BeyondRing { .. } => Syndrome::LocalQpOperation,
        }
    }

    /// Byte 54 of the error CQE. Real vendors do not publish their values; these are our own, and
    /// must not change.
    pub(in crate::hca) fn vendor(self) -> u8 {
        match self {
            Self::RingUnmapped => 0x81,
            Self::BeyondRing { .. } => 0x82,
            Self::CqDead => 0x83,
            Self::TooLong { .. } => 0x90,
            Self::Inline => 0x91,
            Self::Pointer { .. } => 0x92,
            Self::PointerUnmapped { .. } => 0x93,
            Self::BadLuck => 0xff,
        }
    }
}

impl fmt::Display for RqFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RingUnmapped => write!(f, "the ring or the doorbell record is not mapped"),
            Self::CqDead => write!(f, "its CQ overran or is gone"),
            Self::BeyondRing { posted, wqe_count } => {
                write!(f, "the doorbell record names {posted} WQEs that were not consumed; the ring has {wqe_count}")
            }
            Self::TooLong { len } => write!(f, "a frame of {len} bytes is longer than the buffers of its WQE"),
            Self::Inline => write!(f, "bit 31 of a byte count is set: inline data, in a receive WQE"),
            Self::Pointer { why, lkey, address, len } => {
                write!(f, "{len} bytes at {address:#x}, lkey {lkey:#x}: {}", why.words())
            }
            Self::PointerUnmapped { address } => write!(f, "the region is registered, but {address:#x} is not mapped"),
            Self::BadLuck => write!(f, "bad luck, in hostile mode"),
        }
    }
}

impl WqRequest {
    /// `IBV_WQ_FLAGS_CVLAN_STRIPPING`.
    pub const VLAN_STRIPPING: u32 = 1 << 0;
    /// `IBV_WQ_FLAGS_SCATTER_FCS`.
    pub const SCATTER_FCS: u32 = 1 << 1;
}

impl Hca {
    /// Makes a receiving ring in state reset, and returns its number. EINVAL where CQ or geometry
    /// is invalid, EOPNOTSUPP for strides that this NIC does not support. Its QP or WQ holds its
    /// protection domain.
    pub(in crate::hca) fn add_rq(&mut self, request: &WqRequest) -> Result<u32, Errno> {
        check_geometry(&request.ring)?;
        if request.ring.striding.is_some() && !self.config.striding_rq {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        if self.rqs.table.iter().count() >= 1 << SLOT_BITS {
            return Err(Errno(libc::ENOMEM));
        }
        self.cqs.hold(request.ring.cq)?;
        self.counters.striding_rings += u64::from(request.ring.striding.is_some());
        Ok(self.rqs.insert(Rq::new(request)))
    }

    /// Whether a driver waits for frames: it has made a flow rule, and posted to a ring that is
    /// ready.
    pub fn listens(&mut self, dma: &dyn Dma) -> bool {
        let is_waiting = |rq: &mut Rq| rq.state == WqState::Ready && matches!(rq.posted(1, dma), Ok(1..));
        self.steering.has_rules() && self.rqs.iter_mut().any(is_waiting)
    }

    /// Changes the state of a receiving ring. Reset sets its indices to zero, and drops its
    /// completions that are not written yet.
    pub(in crate::hca) fn set_rq_state(&mut self, number: u32, state: WqState) {
        let Some(rq) = self.rqs.get_mut(number) else { return };
        rq.change_state(state);
        if state == WqState::Reset {
            self.cqs.forget(number);
        }
    }

    /// Takes a receiving ring away: its memory is not touched any more.
    pub(in crate::hca) fn remove_rq(&mut self, number: u32) {
        if self.rqs.get(number).is_none() {
            return;
        }
        if let Some(rq) = self.rqs.table.remove(slot_of(number)) {
            self.cqs.forget(number);
            self.cqs.release(rq.cq);
        }
    }
}

fn check_geometry(ring: &RqRing) -> Result<(), Errno> {
    let strides_are_possible = ring.striding.is_none_or(|striding| {
        (6..=13).contains(&striding.stride_len_log) && (3..=16).contains(&striding.strides_log) && ring.wqe_shift >= 5
    });
    let is_possible = ring.wqe_count.is_power_of_two()
        && ring.wqe_count <= WQE_COUNT_MAX
        && (4..=WQE_SHIFT_MAX).contains(&ring.wqe_shift)
        && ring.ring.is_multiple_of(16)
        && ring.doorbell.is_multiple_of(4)
        && ring.ring.checked_add(u64::from(ring.wqe_count) << ring.wqe_shift).is_some()
        && ring.doorbell.checked_add(4).is_some();
    if is_possible && strides_are_possible { Ok(()) } else { Err(Errno(libc::EINVAL)) }
}

#[cfg(test)]
mod tests;
