//! The send half: mbufs become WQEs, and completions free them.
//!
//! The WQE layout favors latency for a frame that is alone, and throughput for a burst:
//!
//! | frame | WQE | the mbuf is freed |
//! |---|---|---|
//! | the first since the doorbell, or urgent, up to 226 bytes | all bytes inline; BlueFlame, if it remains alone: the NIC reads nothing | at once |
//! | any longer one | a pointer | with its completion |
//! | those that follow, plain | pointers, many frames in one WQE if the device supports it | with their completion |
//! | chains, tags, segmentation | header inline as far as necessary, a pointer for each buffer | with their completion |
//!
//! Everything that the NIC writes is checked; an invalid CQE counts as `completions_invalid` and
//! frees no mbuf. After an error the queue refuses mbufs like a full ring, until [`Recovery`] has
//! restarted it, a turn or some milliseconds later. A queue that shares rules with others also
//! refuses mbufs until the last of them is open, because before that the kernel would receive the
//! answers.

mod complete;
mod counters;
mod drop_reason;
mod dry_run;
mod limits;
mod post;
mod restart;

use core::sync::atomic::AtomicBool;
use std::sync::Arc;

pub(crate) use drop_reason::Mlx5TxDrop;
pub(crate) use limits::has_room_for_segmentation;

use super::shape::{ETHERNET_LEN, WqeLimits};
use super::sq::{LenRange, Sq, WarmUp};
use super::wqe::{self, BLOCK_LEN, HEADER_DS, INLINE_LEN_FIRST, MemoryKey, UNIT_LEN};
use crate::counters::{Drops, Scope};
use crate::device::mlx5::completion::clock::{ClockInfo, TickConversion, TimestampSource, real_time};
use crate::device::mlx5::completion::cq::Cq;
use crate::device::mlx5::health::recover::Recovery;
use crate::device::mlx5::health::watch::RingError;
use crate::device::mlx5::setup::parts::{CqParts, SqParts, TxFeatures};
use crate::device::tx_timestamps::TxTimestamps;
use crate::device::{DeviceError, Offload, Preposted, TxQueue, TxTimestamp, post_one_by_one};
use crate::mem::{Burst, Mbuf, Pool, Region};
use crate::time::{Instant, UnixTime};
use counters::TxCounters;

/// Completions that one `reap` reads at most: bounded work, and each stands for many frames.
const REAP_MAX: usize = 64;

/// The send half of a queue. No system call, no allocation, no lock: `post` writes into the ring,
/// `ring_doorbell` into the NIC's register, `reap` reads the CQ. `ring_doorbell` makes system calls
/// only after an error, to restart the queue.
pub struct Mlx5Tx {
    cq: Cq,
    sq: Sq,
    limits: WqeLimits,
    /// Supported checksum offloads.
    checksum_flags: Offload,
    /// Blocks of the longest WQE that is wholly inline.
    inline_blocks_max: u32,
    /// Bytes of the longest frame that can be preposted.
    prepost_len_max: usize,
    region: Arc<Region>,
    has_multi: bool,
    /// Lengths of frames that need no padding or inline header.
    plain_lens: LenRange,
    /// Posts are refused: after an error, until the queue has restarted, and before the rules of
    /// queues that share are in place.
    refuses: bool,
    /// Set by an error, until the queue has restarted.
    failed: bool,
    /// For queues that share rules: set once answers would reach us; `None` from then on.
    may_send: Option<Arc<AtomicBool>>,
    recovery: Recovery,
    stamps: TimestampSource,
    relation: Box<dyn FnMut() -> Option<ClockInfo>>,
    fault: Box<dyn FnMut() -> Option<RingError>>,
    timestamps: TxTimestamps,
    counters: TxCounters,
    drops: Drops<Mlx5TxDrop>,
}

/// The parts of a send half.
pub(crate) struct TxParts {
    pub(crate) sq: SqParts,
    pub(crate) cq: CqParts,
    pub(crate) capabilities: TxFeatures,
    /// The key of the pool's region.
    pub(crate) lkey: u32,
    /// The kind of timestamp in completions, if frames may ask for one; otherwise `Off`.
    pub(crate) stamps: TimestampSource,
    /// The current relation of the clock to the wall clock, if `stamps` need it. Called at
    /// intervals, never per frame.
    pub(crate) relation: Box<dyn FnMut() -> Option<ClockInfo>>,
    /// Errors without a CQE since the last call. Called at intervals.
    pub(crate) fault: Box<dyn FnMut() -> Option<RingError>>,
    pub(crate) recovery: Recovery,
    /// Becomes true once the queue's rules are in place, if they are not yet.
    pub(crate) may_send: Option<Arc<AtomicBool>>,
}

impl Mlx5Tx {
    /// Takes over rings that are ready to send. The CQ must have as many entries as the ring has
    /// blocks: that many WQEs may be flushed.
    pub(in crate::device::mlx5) fn new(parts: TxParts, pool: &Pool, scope: &Scope) -> Result<Self, DeviceError> {
        let blocks = parts.sq.wqebb_count;
        limits::check_lengths(blocks, parts.cq.entry_count)?;
        let inline_blocks_max = limits::inline_blocks_max(blocks, parts.sq.wqe_units_max);
        let prepost_units_max = limits::prepost_units_max(blocks, parts.sq.wqe_units_max);
        let sq = Sq::new(&parts.sq, pool, MemoryKey::new(parts.lkey));
        let limits = WqeLimits {
            capabilities: parts.capabilities,
            inline_len_min: parts.sq.inline_len_min.into(),
            inline_len_max: inline_blocks_max as usize * BLOCK_LEN - (HEADER_DS as usize * UNIT_LEN - INLINE_LEN_FIRST),
            wqe_units_max: sq.wqe_units_max(),
            segmentation_header_len_max: limits::segmentation_header_len_max(sq.wqe_units_max()),
        };
        let scope = scope.scope("tx");
        let counters = TxCounters::new(&scope);
        Ok(Self {
            cq: Cq::new(parts.cq),
            sq,
            limits,
            checksum_flags: (Offload::IP_CHECKSUM | Offload::L4_CHECKSUM).when(parts.capabilities.checksums),
            inline_blocks_max,
            prepost_len_max: wqe::inline_len_max(prepost_units_max + 1).min(parts.capabilities.frame_len_max as usize),
            region: Arc::clone(pool.region()),
            // A multi-packet WQE has no room for headers that must be inline (mlx5.md 2.6).
            has_multi: parts.capabilities.multi_packet && parts.sq.inline_len_min == 0,
            plain_lens: LenRange::up_to(parts.capabilities.frame_len_max),
            refuses: parts.may_send.is_some(),
            failed: false,
            may_send: parts.may_send,
            recovery: parts.recovery,
            stamps: parts.stamps,
            relation: parts.relation,
            fault: parts.fault,
            timestamps: TxTimestamps::new(),
            counters,
            drops: scope.tx_drops(),
        })
    }

    /// Maximum number of buffers of a frame with any header.
    pub fn segments_max(&self) -> usize {
        limits::segments_max(self.limits.wqe_units_max)
    }

    /// The same for a queue with a ring of `blocks` on a device that accepts WQEs of
    /// `device_units_max`, before there is one.
    pub(in crate::device::mlx5) fn segments_max_of(blocks: u32, device_units_max: u32) -> usize {
        limits::segments_max(Sq::wqe_units_max_of(blocks, device_units_max))
    }

    /// Whether an error stopped the queue and it has not restarted.
    pub fn is_failed(&self) -> bool {
        self.failed
    }

    /// Rings for all posted frames so that each is reported done, even inline ones, whose buffers
    /// are already free.
    pub(in crate::device::mlx5) fn ask_for_rest(&mut self) {
        self.sq.ask_for_rest();
        self.ring();
    }
}

impl Mlx5Tx {
    /// As [`take_timestamp`](TxQueue::take_timestamp) with
    /// [`Mlx5Config::raw_timestamps`](crate::device::mlx5::Mlx5Config::raw_timestamps): the
    /// sequence number of the frame, and its timestamp in ticks of the NIC's clock.
    pub fn take_ticks(&mut self) -> Option<(u64, u64)> {
        match self.stamps {
            TimestampSource::Ticks => self.timestamps.pop(),
            TimestampSource::Off | TimestampSource::Wall(_) | TimestampSource::RealTime => None,
        }
    }
}

impl TxQueue for Mlx5Tx {
    /// Frames after the first since a doorbell go into a multi-packet WQE, or into a run of WQEs,
    /// and cost some 60 instructions; urgent ones leave at once.
    #[inline]
    fn post(&mut self, mbuf: Mbuf, offload: Offload) -> Result<(), Mbuf> {
        match self.sq.push_multi(mbuf, offload, self.plain_lens) {
            Ok(()) => Ok(()),
            Err(mbuf) => self.post_other(mbuf, offload),
        }
    }

    /// A dry run of the ring ([`Mlx5Tx::warm`]): the WQE is built in the next free blocks.
    fn dry_run(&mut self, mbuf: Mbuf, offload: Offload) {
        let mut frame = Some(mbuf);
        self.warm(WarmUp::Ring, |tx| frame = frame.take().and_then(|mbuf| tx.post(mbuf, offload).err()));
        if let Some(mbuf) = frame {
            mbuf.free();
        }
    }

    /// The whole frame inline. Up to 226 bytes leave by BlueFlame if nothing else waits for the
    /// doorbell; the NIC reads longer ones, up to 930, with their WQE. Costs as much as a post of
    /// such a frame.
    fn prepost(&mut self, frame: &[u8]) -> Option<Preposted> {
        let lens = self.limits.inline_len_min.max(ETHERNET_LEN)..=self.prepost_len_max;
        if (self.refuses && self.still_refuses()) || self.sq.is_dry_run() || !lens.contains(&frame.len()) {
            return None;
        }
        let preposted = self.sq.prepost(frame)?;
        self.counters.preposts.inc();
        Some(preposted)
    }

    #[inline]
    fn preposted(&mut self, which: Preposted) -> Option<&mut [u8]> {
        if self.refuses || !self.sq.has_preposted(which) {
            return None;
        }
        Some(self.sq.preposted_frame())
    }

    #[inline]
    fn fire_preposted(&mut self, which: Preposted) -> bool {
        if self.refuses || !self.sq.has_preposted(which) {
            return false;
        }
        self.sq.fire_preposted_wqe();
        self.note_rung();
        self.counters.preposts_fired.inc();
        true
    }

    /// Nearly all frames of a burst are plain, and cost some 20 instructions each.
    #[inline]
    fn post_burst(&mut self, burst: &mut Burst, offload: Offload) -> usize {
        let before = burst.len();
        if before > 1 && self.is_plain(offload) && !self.refuses {
            if self.has_multi {
                self.post_multi_burst(burst, offload);
            } else if self.limits.inline_len_min == 0 {
                self.post_plain_burst(burst, offload.checksums());
            }
        }
        if !burst.is_empty() {
            post_one_by_one(self, burst, offload);
        }
        before - burst.len()
    }

    #[inline]
    fn ring_doorbell(&mut self, now: Instant) {
        if self.refuses {
            // A dry run has advanced the ring: it rewinds first.
            if !self.sq.is_dry_run() {
                self.recover(now);
            }
            return;
        }
        self.ring();
    }

    #[inline]
    fn reap(&mut self) -> usize {
        if self.sq.is_empty() {
            return 0;
        }
        let mut read = 0;
        while read < REAP_MAX && self.take_completion() {
            read += 1;
        }
        if read == 0 {
            return 0;
        }
        self.cq.publish();
        self.sq.free_completed() as usize
    }

    /// Counts frames of one buffer without offloads; in multi-packet WQEs four times as many may
    /// fit.
    fn room(&mut self) -> usize {
        self.reap();
        if self.refuses && self.still_refuses() {
            return 0;
        }
        let free = self.sq.free_blocks() - self.sq.open_blocks();
        let goes_inline = self.sq.is_rung() && free >= 2 * self.inline_blocks_max;
        let room = if goes_inline { free - (self.inline_blocks_max - 1) } else { free };
        room as usize
    }

    /// Frames whose mbufs are in flight: inline ones are not counted.
    fn in_flight(&self) -> usize {
        self.sq.in_flight() as usize
    }

    fn has_timestamps(&self) -> bool {
        matches!(self.stamps, TimestampSource::Wall(_) | TimestampSource::RealTime)
    }

    /// None with [`Mlx5Config::raw_timestamps`](crate::device::mlx5::Mlx5Config::raw_timestamps):
    /// see [`take_ticks`](Self::take_ticks).
    fn take_timestamp(&mut self) -> Option<TxTimestamp> {
        let time: &dyn Fn(u64) -> u64 = match &self.stamps {
            TimestampSource::Off | TimestampSource::Ticks => return None,
            TimestampSource::Wall(relation) => &|timestamp| TickConversion::through(relation).at(timestamp),
            TimestampSource::RealTime => &real_time,
        };
        let (sequence, timestamp) = self.timestamps.pop()?;
        let ns = time(timestamp);
        Some(TxTimestamp { sequence, at: UnixTime::from_nanos(ns) })
    }

    /// The NIC has no counters of a send queue that verbs could read; but this updates the clock
    /// relation, and checks for errors without a CQE. The port monitor has read both: no system
    /// call.
    fn refresh_counters(&mut self) {
        let fault = (self.fault)();
        if fault == Some(RingError::Completions) {
            self.recovery.end();
        }
        if fault.is_some() {
            self.stop();
        }
        if let TimestampSource::Wall(relation) = &mut self.stamps
            && let Some(now) = (self.relation)()
        {
            *relation = now;
        }
    }
}
