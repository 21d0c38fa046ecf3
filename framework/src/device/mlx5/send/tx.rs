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

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use super::shape::{self, ETHERNET_LEN, HEADER_LEN_MAX, TAG_LEN, Tag, WqeLimits, WqeShape};
use super::sq::{BLOCKS_MAX, BLOCKS_MIN, Completed, Failed, LenRange, Load, Sq, WarmUp};
use super::wqe::{self, BLOCK_LEN, BLOCK_UNITS, HEADER_DS, INLINE_LEN_FIRST, MemoryKey, Opcode, UNIT_LEN};
use crate::counters::{Counter, Drops, Scope, Unit as CounterUnit};
use crate::device::mlx5::completion::clock::{ClockInfo, TickConversion, TimestampSource, real_time};
use crate::device::mlx5::completion::cq::Cq;
use crate::device::mlx5::completion::cqe::{Format, Opcode as CqeOpcode, Syndrome};
use crate::device::mlx5::health::recover::Recovery;
use crate::device::mlx5::health::watch::RingError;
use crate::device::mlx5::setup::parts::{CqParts, SqParts, TxFeatures};
use crate::device::tx_timestamps::TxTimestamps;
use crate::device::{DeviceError, DeviceErrorKind, Offload, Preposted, TxQueue, TxTimestamp, post_one_by_one};
use crate::mem::{Burst, Mbuf, Pool, Region};
use crate::time::{Instant, UnixTime};

crate::drop_reasons! {
    /// Why a posted frame is dropped.
    pub(crate) enum Mlx5TxDrop {
        /// Longer than the port's frames.
        TooLong => "too_long",
        /// Shorter than an Ethernet header.
        TooShort => "too_short",
        /// A chain of more buffers than a WQE points to.
        TooManySegments => "too_many_segments",
        /// Asks for checksums or segmentation that the device does not support.
        OffloadUnsupported => "offload_unsupported",
        /// The frame is to be segmented, but its link, IP and TCP headers are not where the mbuf
        /// says.
        HeadersUnknown => "headers_unknown",
        /// To be segmented, with a header longer than the device can repeat.
        HeaderTooLong => "header_too_long",
        /// Bytes that are not in the pool that the queue was opened with.
        ForeignBuffer => "foreign_buffer",
        /// The NIC found inconsistent lengths in the WQE (syndrome 01).
        LocalLength => "error_local_length",
        /// The NIC could not execute the WQE (syndrome 02).
        LocalQpOperation => "error_local_qp_operation",
        /// The NIC may not read the buffer (syndrome 04).
        LocalProtection => "error_local_protection",
        /// The NIC has no right to the buffer (syndrome 11).
        LocalAccess => "error_local_access",
        /// An error of another kind.
        OtherError => "error_other",
        /// Posted behind a frame that failed, or in flight when the queue was reset.
        Flushed => "flushed",
    }
}

/// Bytes of the longest TCP headers: Ethernet with a tag, IPv4 and TCP with all options.
const TCP_HEADERS_LEN_MAX: usize = 14 + TAG_LEN + 60 + 60;
/// Completions that one `reap` reads at most: bounded work, and each stands for many frames.
const REAP_MAX: usize = 64;
/// Bytes of the longest WQE that is wholly inline: the usual half of a BlueFlame register. It
/// carries a frame of 226 bytes.
const INLINE_WQE_LEN_MAX: usize = 256;
/// Blocks of the longest preposted WQE. The NIC fetches the part that BlueFlame does not carry in
/// one read.
const PREPOST_BLOCKS_MAX: u32 = 15;
/// Polls of the CQ while a dropped half waits for its last frames: first without pauses, because a
/// NIC needs microseconds, then with pauses, tens of milliseconds in all, for a slow NIC.
const LAST_REAPS: usize = 1_000;
const LAST_PAUSES: usize = 200;
const LAST_PAUSE: std::time::Duration = std::time::Duration::from_micros(100);

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

struct TxCounters {
    frames: Counter,
    bytes: Counter,
    ring_full: Counter,
    /// Frames refused because the queue was in error.
    refused_in_error: Counter,
    /// Frames refused because the kernel would have received their answers: not all queues that
    /// share were open.
    refused_before_ready: Counter,
    doorbells: Counter,
    /// Dry runs: see [`Mlx5Tx::warm`].
    dry_runs: Counter,
    /// Frames that were preposted, and those of them that were fired.
    preposts: Counter,
    preposts_fired: Counter,
    /// Completions that match no WQE in flight.
    completions_invalid: Counter,
    /// Completions that are missing although a later one has arrived.
    completions_missed: Counter,
    /// Frames whose transmit timestamp was lost: the list was full, or the frame failed.
    timestamps_lost: Counter,
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

impl TxCounters {
    fn new(scope: &Scope) -> Self {
        let events = |name| scope.counter(name, CounterUnit::Events);
        Self {
            frames: scope.counter("frames", CounterUnit::Frames),
            bytes: scope.counter("bytes", CounterUnit::Bytes),
            ring_full: events("ring_full"),
            refused_in_error: events("refused_in_error"),
            refused_before_ready: events("refused_before_ready"),
            doorbells: events("doorbells"),
            dry_runs: events("dry_runs"),
            preposts: events("preposts"),
            preposts_fired: events("preposts_fired"),
            completions_invalid: events("completions_invalid"),
            completions_missed: events("completions_missed"),
            timestamps_lost: events("timestamps_lost"),
        }
    }
}

/// Whether a ring works with this number of blocks, and of completion entries.
fn check_lengths(blocks: u32, entries: u32) -> Result<(), DeviceError> {
    if !blocks.is_power_of_two() || !(BLOCKS_MIN..=BLOCKS_MAX).contains(&blocks) {
        return Err(DeviceError::new(
            DeviceErrorKind::InvalidConfig,
            format!(
                "a sending ring of {blocks} blocks does not work: use a power of two between {BLOCKS_MIN} and {BLOCKS_MAX}"
            ),
        ));
    }
    if entries < blocks {
        return Err(DeviceError::new(
            DeviceErrorKind::InvalidConfig,
            format!(
                "a sending ring of {blocks} blocks needs as many completion entries, and has {entries}: use a shorter ring"
            ),
        ));
    }
    Ok(())
}

impl Mlx5Tx {
    /// Takes over rings that are ready to send. The CQ must have as many entries as the ring has
    /// blocks: that many WQEs may be flushed.
    pub(in crate::device::mlx5) fn new(parts: TxParts, pool: &Pool, scope: &Scope) -> Result<Self, DeviceError> {
        let blocks = parts.sq.wqebb_count;
        check_lengths(blocks, parts.cq.entry_count)?;
        let inline_blocks_max = inline_blocks_max(blocks, parts.sq.wqe_units_max);
        let prepost_units_max =
            parts.sq.wqe_units_max.min(PREPOST_BLOCKS_MAX * BLOCK_UNITS).min(blocks / 8 * BLOCK_UNITS);
        let sq = Sq::new(&parts.sq, pool, MemoryKey::new(parts.lkey));
        let limits = WqeLimits {
            capabilities: parts.capabilities,
            inline_len_min: parts.sq.inline_len_min.into(),
            inline_len_max: inline_blocks_max as usize * BLOCK_LEN - (HEADER_DS as usize * UNIT_LEN - INLINE_LEN_FIRST),
            wqe_units_max: sq.wqe_units_max(),
            segmentation_header_len_max: segmentation_header_len_max(sq.wqe_units_max()),
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
            drops: scope.drops(),
        })
    }

    /// Maximum number of buffers of a frame with any header.
    pub fn segments_max(&self) -> usize {
        segments_max(self.limits.wqe_units_max)
    }

    /// The same for a queue with a ring of `blocks` on a device that accepts WQEs of
    /// `device_units_max`, before there is one.
    pub(in crate::device::mlx5) fn segments_max_of(blocks: u32, device_units_max: u32) -> usize {
        segments_max(Sq::wqe_units_max_of(blocks, device_units_max))
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

    /// Keeps the path of an order warm. Frames that `send` posts and rings the doorbell for are
    /// built and processed as far as `depth` says, by the same instructions in the same memory, but
    /// do not leave. Their mbufs are freed. For frames posted earlier the doorbell is rung. Costs
    /// as much as sending; call it when idle, up to some thousand times a second. Does nothing, and
    /// does not call `send`, while the queue is in error; recovery from an error that `send` meets
    /// starts after the dry run. A nested dry run is part of the outer one.
    pub fn warm<R>(&mut self, depth: WarmUp, send: impl FnOnce(&mut Self) -> R) -> Option<R> {
        if self.refuses && self.still_refuses() {
            return None;
        }
        if self.sq.is_dry_run() {
            return Some(send(self));
        }
        self.ring();
        let guard = DryRunGuard::begin(self, depth);
        let result = send(guard.tx);
        drop(guard);
        self.counters.dry_runs.inc();
        Some(result)
    }
}

/// Ends a dry run, also when `send` panics: frames posted afterwards would otherwise never leave.
struct DryRunGuard<'tx> {
    tx: &'tx mut Mlx5Tx,
    /// The sequence number of the next frame that asks for a timestamp.
    sequence: u64,
}

impl<'tx> DryRunGuard<'tx> {
    fn begin(tx: &'tx mut Mlx5Tx, depth: WarmUp) -> Self {
        tx.sq.begin_dry_run(depth);
        let sequence = tx.timestamps.sequence();
        Self { tx, sequence }
    }
}

impl Drop for DryRunGuard<'_> {
    fn drop(&mut self) {
        self.tx.sq.end_dry_run();
        self.tx.timestamps.set_sequence(self.sequence);
    }
}

/// Blocks of the longest WQE that is wholly inline: bounded by BlueFlame, by an eighth of the ring
/// (because `room` is counted in frames), and by the device.
fn inline_blocks_max(blocks: u32, device_units_max: u32) -> u32 {
    (blocks / 8).min((INLINE_WQE_LEN_MAX / BLOCK_LEN) as u32).min(device_units_max / BLOCK_UNITS)
}

/// Buffers that a WQE of `units` can point to behind a usual header.
fn segments_max(units: u32) -> usize {
    units.saturating_sub(1 + wqe::ethernet_units(HEADER_LEN_MAX / 2 + TAG_LEN)).max(1) as usize
}

/// Bytes of the longest header that a WQE of `units` can repeat before each segment. No device
/// reports this: libmlx5 accepts any `max_tso_header` for which its longest WQE has room
/// (`mlx5_calc_send_wqe`).
fn segmentation_header_len_max(units: u32) -> usize {
    wqe::inline_len_max(units).min(HEADER_LEN_MAX)
}

/// Whether a device that accepts WQEs of `units` can segment TCP: with the longest header that TCP
/// over IPv4 has.
pub(crate) fn has_room_for_segmentation(units: u32) -> bool {
    segmentation_header_len_max(units) >= TCP_HEADERS_LEN_MAX
}

/// Posting.
impl Mlx5Tx {
    /// Posts a frame that does not go into the open multi-packet WQE.
    #[inline(never)]
    fn post_other(&mut self, mut mbuf: Mbuf, offload: Offload) -> Result<(), Mbuf> {
        if self.refuses && self.still_refuses() {
            return self.refuse(mbuf);
        }
        let alone = self.sq.is_rung() || offload.has(Offload::URGENT);
        if !alone && self.has_multi && self.is_plain(offload) && self.sq.open_multi(offload) {
            match self.sq.push_multi(mbuf, offload, self.plain_lens) {
                Ok(()) => return Ok(()),
                Err(back) => mbuf = back,
            }
        }
        self.sq.close_multi();
        let inline = alone && self.sq.free_blocks() >= 2 * self.inline_blocks_max;
        if mbuf.is_linear() && self.is_ordinary(offload) && self.plain_lens.contains(mbuf.bytes().len() as u32) {
            self.post_linear(mbuf, offload, inline)?;
        } else {
            self.post_any(mbuf, offload, inline)?;
        }
        if offload.has(Offload::URGENT) {
            self.ring();
        }
        Ok(())
    }

    /// Posts a frame in one buffer, without offloads except checksums.
    #[inline(always)]
    fn post_linear(&mut self, mbuf: Mbuf, offload: Offload, inline: bool) -> Result<(), Mbuf> {
        let len = mbuf.bytes().len();
        if inline && (self.limits.inline_len_min..=self.limits.inline_len_max).contains(&len) {
            let units = self.sq.write_inline(offload.checksums(), None, mbuf.bytes());
            mbuf.free();
            let stamp = self.stamp(offload);
            self.sq.post(Opcode::Send, units, Load { frames: 1, mbufs: 0 }, len as u32, stamp);
            return Ok(());
        }
        if self.limits.inline_len_min > 0 || !shape::is_inside(mbuf.bytes(), &self.region) {
            return self.post_any(mbuf, offload, inline);
        }
        if self.sq.free_blocks() == 0 {
            return self.full(mbuf);
        }
        let stamp = self.stamp(offload);
        self.sq.post_pointer(mbuf, offload.checksums(), stamp);
        Ok(())
    }

    /// Posts chains, tags, payloads to be segmented, headers that must be inline; drops frames that
    /// can never be sent.
    #[inline(never)]
    fn post_any(&mut self, mbuf: Mbuf, offload: Offload, inline: bool) -> Result<(), Mbuf> {
        let shape = match shape::of(&mbuf, offload, &self.limits, &self.region, inline) {
            Ok(shape) => shape,
            Err(reason) => {
                self.stamp(offload);
                if !self.sq.is_dry_run() {
                    self.drops.count(reason);
                }
                mbuf.free();
                return Ok(());
            }
        };
        if wqe::blocks(shape.units) > self.sq.free_blocks() {
            return self.full(mbuf);
        }
        let mut idx = self.write_header(&mbuf, &shape);
        let len = mbuf.len() + shape.tag.len();
        if shape.has_pointers {
            for bytes in shape::behind(&mbuf, shape.inline_len) {
                self.sq.write_pointer(idx, bytes);
                idx += 1;
            }
            self.sq.keep(mbuf);
        } else {
            mbuf.free();
        }
        let opcode = if shape.segment_len.is_some() { Opcode::Segment } else { Opcode::Send };
        let stamp = self.stamp(offload);
        let load = Load { frames: 1, mbufs: shape.has_pointers.into() };
        self.sq.post(opcode, shape.units, load, len as u32, stamp);
        Ok(())
    }

    /// Writes the Ethernet segment; returns the unit behind it.
    fn write_header(&mut self, mbuf: &Mbuf, shape: &WqeShape) -> u32 {
        match shape.tag {
            Tag::ByDevice(tci) => self.sq.write(1, wqe::ethernet_tagging(shape.checksums, tci)),
            Tag::None if shape.header_len == 0 => self.sq.write(1, wqe::ethernet(shape.checksums)),
            Tag::None | Tag::Inline(_) => {
                let mut header = [0; HEADER_LEN_MAX];
                shape.gather(mbuf, &mut header);
                return self.sq.write_inline(shape.checksums, shape.segment_len, &header[..shape.header_len]);
            }
        }
        HEADER_DS
    }

    /// The sequence number of a frame that asks for a timestamp.
    #[inline(always)]
    fn stamp(&mut self, offload: Offload) -> Option<u64> {
        offload.has(Offload::TIMESTAMP).then(|| self.timestamps.next_sequence())
    }

    #[cold]
    fn refuse(&self, mbuf: Mbuf) -> Result<(), Mbuf> {
        if self.failed { &self.counters.refused_in_error } else { &self.counters.refused_before_ready }.inc();
        Err(mbuf)
    }

    #[cold]
    fn full(&self, mbuf: Mbuf) -> Result<(), Mbuf> {
        self.counters.ring_full.inc();
        Err(mbuf)
    }

    /// Whether a multi-packet WQE supports these offloads.
    #[inline(always)]
    fn is_plain(&self, offload: Offload) -> bool {
        offload.is_within(self.checksum_flags)
    }

    /// Whether the frame is sent unchanged, by a separate WQE.
    #[inline(always)]
    fn is_ordinary(&self, offload: Offload) -> bool {
        offload.is_within(self.checksum_flags | Offload::TIMESTAMP | Offload::URGENT)
    }

    /// Posts frames in multi-packet WQEs as long as they are plain and there is room.
    #[inline(never)]
    fn post_multi_burst(&mut self, burst: &mut Burst, offload: Offload) {
        while self.sq.open_multi(offload) {
            let taken = self.sq.push_multi_front_of(burst, self.plain_lens);
            if burst.is_empty() || taken == 0 {
                return;
            }
        }
    }

    /// Posts frames in separate WQEs as long as they are plain and there is room.
    #[inline(never)]
    fn post_plain_burst(&mut self, burst: &mut Burst, checksums: u8) {
        while self.sq.post_front_of(burst, checksums, self.plain_lens) > 0 && !burst.is_empty() {}
    }

    #[inline]
    fn ring(&mut self) {
        if self.sq.ring_doorbell() {
            self.note_rung();
        }
    }

    #[inline(always)]
    fn note_rung(&mut self) {
        self.counters.doorbells.inc();
        let sent = self.sq.take_sent();
        self.counters.frames.add(sent.frames);
        self.counters.bytes.add(sent.bytes);
    }
}

impl Mlx5Tx {
    /// As [`take_timestamp`](TxQueue::take_timestamp) with
    /// [`Mlx5Config::raw_timestamps`](crate::device::mlx5::Mlx5Config::raw_timestamps): the sequence
    /// number of the frame, and its timestamp in ticks of the NIC's clock.
    pub fn take_ticks(&mut self) -> Option<(u64, u64)> {
        match self.stamps {
            TimestampSource::Ticks => self.timestamps.pop(),
            TimestampSource::Off | TimestampSource::Wall(_) | TimestampSource::RealTime => None,
        }
    }
}

/// Completions.
impl Mlx5Tx {
    /// Reads one completion; `false` if there is none.
    #[inline]
    fn take_completion(&mut self) -> bool {
        let Some(cqe) = self.cq.next() else { return false };
        let (counter, opcode, format) = (cqe.wqe_counter(), cqe.opcode(), cqe.format());
        match (opcode, format) {
            (CqeOpcode::Sent, Format::Plain) => {
                let timestamp = cqe.timestamp();
                match self.sq.complete(counter) {
                    Completed::Done(None) => {}
                    other => self.take_unusual(other, timestamp),
                }
            }
            (CqeOpcode::SendFailed, _) => {
                let syndrome = cqe.syndrome();
                self.fail(counter, syndrome);
            }
            _ => self.counters.completions_invalid.inc(),
        }
        self.cq.consume();
        true
    }

    /// Handles timestamps, missing completions, and completions that match no WQE.
    #[inline(never)]
    fn take_unusual(&mut self, completed: Completed, timestamp: u64) {
        let stamp = match completed {
            Completed::Done(stamp) => stamp,
            Completed::DoneLate { stamp, missed, stamps_lost } => {
                self.counters.completions_missed.add(missed.into());
                self.counters.timestamps_lost.add(stamps_lost.into());
                stamp
            }
            Completed::Unknown => return self.counters.completions_invalid.inc(),
        };
        if let Some(sequence) = stamp
            && self.stamps != TimestampSource::Off
            && !self.timestamps.push((sequence, timestamp))
        {
            self.counters.timestamps_lost.inc();
        }
    }

    /// A WQE failed: its frames are counted by reason, and the queue waits for its reset.
    #[cold]
    #[inline(never)]
    fn fail(&mut self, counter: u16, syndrome: Syndrome) {
        let Some(Failed { before, itself }) = self.sq.fail(counter) else {
            // Whichever WQE it was, the NIC's queue is now in error, and executes no WQE until it
            // is reset.
            self.counters.completions_invalid.inc();
            return self.stop();
        };
        if self.failed {
            // The queue was already in error: nothing before this WQE was sent either.
            self.drops.count_many(Mlx5TxDrop::Flushed, before.frames);
        }
        self.drops.count_many(reason(syndrome), itself.frames);
        self.counters.timestamps_lost.add((before.stamps_lost + itself.stamps_lost).into());
        self.stop();
    }

    /// The NIC's queue is in error: posts are refused until it is reset.
    #[cold]
    fn stop(&mut self) {
        self.sq.close_multi();
        (self.refuses, self.failed) = (true, true);
    }

    /// Restarts the queue, once that is due.
    #[cold]
    #[inline(never)]
    fn recover(&mut self, now: Instant) {
        if self.failed && self.recovery.reset(now) {
            self.reset();
            self.failed = !self.recovery.ready();
        }
        self.still_refuses();
    }

    /// Checks again whether frames may leave: whether the queue is up, and whether answers would
    /// reach us.
    #[cold]
    fn still_refuses(&mut self) -> bool {
        self.may_send.take_if(|may_send| may_send.load(Ordering::Acquire));
        self.refuses = self.failed || self.may_send.is_some();
        self.refuses
    }

    /// The NIC has released the queue: completions already written count, everything else was
    /// flushed, and all mbufs are freed.
    #[cold]
    fn reset(&mut self) {
        for _ in 0..self.cq.count() {
            if !self.take_completion() {
                break;
            }
        }
        self.cq.publish_again();
        let flushed = self.sq.reset();
        self.drops.count_many(Mlx5TxDrop::Flushed, flushed.frames);
        self.counters.timestamps_lost.add(flushed.stamps_lost.into());
    }
}

impl TxQueue for Mlx5Tx {
    /// Frames after the first since a doorbell go into a multi-packet WQE, and cost some 30
    /// instructions; urgent ones leave at once.
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

    /// None with [`Mlx5Config::raw_timestamps`](crate::device::mlx5::Mlx5Config::raw_timestamps): see
    /// [`take_ticks`](Self::take_ticks).
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

impl Drop for Mlx5Tx {
    /// Waits a bounded time for the posted frames to leave. Then the NIC releases the queue, and
    /// all mbufs are freed. If the NIC does not release it, the mbufs in flight are leaked.
    fn drop(&mut self) {
        if !self.failed {
            self.ask_for_rest();
        }
        for look in 0..LAST_REAPS + LAST_PAUSES {
            if self.sq.is_empty() || self.failed {
                break;
            }
            self.reap();
            if look < LAST_REAPS {
                core::hint::spin_loop();
            } else {
                std::thread::sleep(LAST_PAUSE);
            }
        }
        if self.recovery.close() {
            return self.reset();
        }
        // The NIC may still read, and send, incomplete frames.
        while self.reap() > 0 {}
        let (flushed, mbufs) = self.sq.leak();
        self.drops.count_many(Mlx5TxDrop::Flushed, flushed.frames);
        self.recovery.leak(mbufs.into());
    }
}

/// The drop reason for the frames of a WQE with this syndrome.
fn reason(syndrome: Syndrome) -> Mlx5TxDrop {
    match syndrome {
        Syndrome::LocalLength => Mlx5TxDrop::LocalLength,
        Syndrome::LocalQpOperation => Mlx5TxDrop::LocalQpOperation,
        Syndrome::LocalProtection => Mlx5TxDrop::LocalProtection,
        Syndrome::LocalAccess => Mlx5TxDrop::LocalAccess,
        Syndrome::Flushed => Mlx5TxDrop::Flushed,
        Syndrome::Other(_) => Mlx5TxDrop::OtherError,
    }
}
