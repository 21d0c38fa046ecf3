//! The striding receive ring (mlx5.md 2.8): a WQE is a large buffer of equal strides, and a frame
//! takes as many of them as it needs. The NIC saves a WQE and its PCIe reads per frame; the worker
//! pays a copy per frame.
//!
//! ```text
//!  WQE   | frame 1 ... | frame 2 | frame 3 ........... | filler |        the next WQE
//!        0             3         4                     8       10 strides
//! ```
//!
//! Each frame, of any length, is copied into a new mbuf, and the WQE is posted again unchanged once
//! all its strides were reported. A view would save the copy, but one held frame would pin 128 KiB;
//! nor is it faster: `docs/decisions` has the figures.

use super::mprq_buffer::MprqBuffer;
use crate::device::mlx5::completion::cqe::{Cqe, Format};
use crate::device::mlx5::completion::reader::{CqReader, Mlx5RxDrop, NextEntry, OTHERS_MAX, Step};
use crate::device::mlx5::ring::{DescriptorRing, DoorbellRecord};
use crate::device::mlx5::setup::parts::RqParts;
use crate::mem::{Burst, Mbuf, MetaTemplate, Pool, RxFrame, RxMeta};

/// Bytes of a segment, and the offset of a WQE's pointer segment: behind the segment that links
/// WQEs, which a ring does not use.
const SEGMENT_LEN: usize = 16;
const AT_LEN: usize = 0;
const AT_KEY: usize = 4;
const AT_ADDRESS: usize = 8;

/// Fields of a CQE's byte count: filler, number of strides, bytes of the frame (mlx5.md 2.9).
pub(crate) const FILLER: u32 = 1 << 31;
const STRIDES_SHIFT: u32 = 16;
const STRIDES_MASK: u32 = 0x7fff;
const LEN_MASK: u32 = 0xffff;

/// A striding receive ring.
pub(crate) struct StridingRq {
    record: DoorbellRecord,
    mprq_buffer: MprqBuffer,
    wqe_count: u32,
    /// Log2 of a stride's bytes and of a WQE's strides.
    stride_log: u32,
    strides_log: u32,
    /// The oldest WQE that the NIC owns; a free-running index.
    consumed: u32,
    /// The first of its strides that the NIC has not reported.
    stride: u32,
    /// Posted WQEs without a doorbell yet.
    unpublished: u32,
}

/// The place of a frame by its CQE, validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MprqFrame {
    /// Its first stride, and the number of strides.
    first: u32,
    strides: u32,
    /// Its bytes; `None` for a filler.
    len: Option<u32>,
}

impl StridingRq {
    /// Bytes of memory that a ring needs, with log2 of a stride's bytes and of a WQE's strides.
    pub(crate) fn mprq_buffer_len(wqe_count: u32, (stride_log, strides_log): (u32, u32)) -> usize {
        (wqe_count as usize) << (stride_log + strides_log)
    }

    /// Takes over the ring and writes its WQEs, which never change. Panics if `mprq_buffer` is not
    /// as long as [`mprq_buffer_len`](Self::mprq_buffer_len), or the ring is not striding.
    pub(crate) fn new(parts: RqParts, mprq_buffer: MprqBuffer) -> Self {
        let shape = parts.striding.expect("a ring whose frames land elsewhere is striding");
        let (stride_log, strides_log) = shape;
        let wqe_len = 1_u32 << (stride_log + strides_log);
        assert!(stride_log < 16 && strides_log <= 16 && parts.wqe_count <= 1 << 15, "no such ring: {shape:?}");
        assert!(
            mprq_buffer.len() >= Self::mprq_buffer_len(parts.wqe_count, shape),
            "{} bytes do not do",
            mprq_buffer.len()
        );
        let memory_owner = parts.memory_owner.clone();
        let mut ring =
            DescriptorRing::<SEGMENT_LEN>::behind(parts.ring, SEGMENT_LEN, parts.wqe_count, parts.stride, memory_owner);
        for idx in 0..parts.wqe_count {
            let mut segment = ring.entry_mut(idx);
            segment.set_be32::<AT_LEN>(wqe_len);
            segment.set_be32::<AT_KEY>(mprq_buffer.lkey());
            segment.set_be64::<AT_ADDRESS>(mprq_buffer.address(idx as usize * wqe_len as usize));
        }
        Self {
            record: DoorbellRecord::new(parts.doorbell, parts.memory_owner),
            mprq_buffer,
            wqe_count: parts.wqe_count,
            stride_log,
            strides_log,
            consumed: 0,
            stride: 0,
            unpublished: 0,
        }
    }

    /// Frames that may arrive before the next post.
    pub(crate) fn frames_max(&self) -> u32 {
        self.wqe_count.saturating_mul(1 << self.strides_log)
    }

    /// Posts all WQEs of a ring that has just been made, or reset.
    pub(crate) fn refill(&mut self) {
        self.unpublished = self.wqe_count;
    }

    /// Publishes the posted WQEs to the NIC.
    #[inline(always)]
    pub(crate) fn publish(&mut self) {
        if self.unpublished > 0 {
            self.unpublished = 0;
            self.record.write(self.consumed.wrapping_add(self.wqe_count) & 0xffff);
        }
    }

    /// WQEs that the NIC owns: posted with a doorbell, and not consumed.
    pub(crate) fn outstanding(&self) -> u32 {
        self.wqe_count - self.unpublished
    }

    /// Publishes only the first of the posted WQEs.
    #[cold]
    pub(crate) fn publish_first(&mut self) {
        if self.unpublished > 0 {
            self.unpublished -= 1;
            self.record.write(self.consumed.wrapping_add(self.wqe_count - self.unpublished) & 0xffff);
        }
    }

    /// Leaks the ring's buffer. It has no pool buffers.
    pub(crate) fn leak(&self) {
        self.mprq_buffer.leak();
    }

    /// Starts again at index 0. The caller knows that the NIC has released the ring.
    pub(crate) fn reset(&mut self) {
        (self.consumed, self.stride, self.unpublished) = (0, 0, 0);
        self.record.write(0);
    }

    /// Whether a CQE is for the oldest WQE that the NIC owns.
    #[inline]
    fn is_of_oldest(&self, cqe: Cqe<'_>) -> bool {
        let is_outstanding = self.unpublished < self.wqe_count;
        is_outstanding && (cqe.wqe_id() ^ self.consumed as u16) & (self.wqe_count - 1) as u16 == 0
    }

    /// Decodes a byte count, for a frame that starts at stride `first`, or at the next one.
    #[inline]
    fn landed(&self, first: Option<u16>, byte_count: u32) -> Result<MprqFrame, Mlx5RxDrop> {
        let first = first.map_or(self.stride, u32::from);
        let strides = byte_count >> STRIDES_SHIFT & STRIDES_MASK;
        // Skipped strides hold no frames, because their frames were lost; and no stride is reported
        // twice.
        let is_ahead = first >= self.stride;
        if strides == 0 || !is_ahead || first + strides > 1 << self.strides_log {
            return Err(Mlx5RxDrop::StridesInvalid);
        }
        let len = (byte_count & FILLER == 0).then_some(byte_count & LEN_MASK);
        Ok(MprqFrame { first, strides, len })
    }

    /// Copies a received frame into an mbuf, or into a chain if it is longer than one buffer.
    /// `None` while the pool has too few.
    #[inline]
    fn copy(
        &self,
        landed: &MprqFrame,
        len: u32,
        arrival: impl RxFrame,
        pool: &Pool,
    ) -> Option<Result<Mbuf, Mlx5RxDrop>> {
        if len > landed.strides << self.stride_log {
            return Some(Err(Mlx5RxDrop::LengthInvalid));
        }
        let wqe = (self.consumed & (self.wqe_count - 1)) << self.strides_log;
        let bytes = self.mprq_buffer.bytes(((wqe + landed.first) as usize) << self.stride_log, len as usize);
        let room = pool.layout().data_room();
        if bytes.len() <= room {
            return pool.alloc_rx_frame(bytes, &arrival).map(Ok);
        }
        copy_long(bytes, arrival, pool).map(Ok)
    }

    /// Releases the strides of a frame. The WQE is posted again after its last stride.
    #[inline]
    fn advance(&mut self, landed: &MprqFrame) {
        self.stride = landed.first + landed.strides;
        if self.stride == 1 << self.strides_log {
            self.stride = 0;
            self.consumed = self.consumed.wrapping_add(1);
            self.unpublished += 1;
        }
    }
}

/// Copies a frame into several buffers.
#[cold]
fn copy_long(bytes: &[u8], arrival: impl RxFrame, pool: &Pool) -> Option<Mbuf> {
    let room = pool.layout().data_room();
    if pool.available() < bytes.len().div_ceil(room) {
        return None;
    }
    let (first, rest) = bytes.split_at(room);
    let mut mbuf = pool.alloc_rx_frame(first, &arrival)?;
    let mut chain: Option<Mbuf> = None;
    for part in rest.chunks(room).rev() {
        let mut segment = pool.alloc_copy(part)?;
        if let Some(behind) = chain.take() {
            segment.attach(behind);
        }
        chain = Some(segment);
    }
    if let Some(chain) = chain {
        mbuf.attach(chain);
    }
    Some(mbuf)
}

/// Receives up to `limit` frames into `burst`.
#[inline]
pub(crate) fn take(reader: &mut CqReader, rq: &mut StridingRq, burst: &mut Burst, limit: u32, pool: &Pool) {
    let (mut left, mut others) = (limit, OTHERS_MAX);
    while left > 0 && !reader.is_broken() {
        let step = match reader.look() {
            None => return,
            Some(NextEntry::Entry) => take_entry(reader, rq, burst, pool),
            Some(NextEntry::Session) => take_of_session(reader, rq, burst, pool),
        };
        match step {
            Step::Frame => left -= 1,
            Step::Other if others > 0 => others -= 1,
            Step::Other => return,
            Step::Dry => return reader.count_nombuf(),
        }
    }
}

/// Processes the oldest CQE, of any kind.
#[inline]
fn take_entry(reader: &mut CqReader, rq: &mut StridingRq, burst: &mut Burst, pool: &Pool) -> Step {
    if let Some(step) = reader.take_other() {
        return step;
    }
    let cqe = reader.cq.oldest();
    if !rq.is_of_oldest(cqe) {
        return reader.stop(Mlx5RxDrop::IndexUnexpected);
    }
    let (meta, is_plain) = (reader.parser.parse(cqe), cqe.format() == Format::Plain);
    match rq.landed(Some(cqe.wqe_counter()), meta.len) {
        Err(reason) => reader.stop(reason),
        Ok(landed) if is_plain => {
            let step = land(reader, rq, &landed, meta, burst, pool);
            if step != Step::Dry {
                reader.cq.consume();
            }
            step
        }
        Ok(landed) => {
            rq.advance(&landed);
            reader.cq.consume();
            reader.deliver(Err(Mlx5RxDrop::FormatUnexpected), burst)
        }
    }
}

/// The next frame of a compressed session; opens the session if there is none.
#[inline]
fn take_of_session(reader: &mut CqReader, rq: &mut StridingRq, burst: &mut Burst, pool: &Pool) -> Step {
    if reader.session.left() == 0 && !open_session(reader, rq, pool) {
        return Step::Other;
    }
    let Some((alike, first)) = reader.session.peek() else { return Step::Dry };
    match rq.landed(first, alike.len) {
        Err(reason) => reader.stop(reason),
        Ok(landed) => {
            let step = land(reader, rq, &landed, alike, burst, pool);
            if step != Step::Dry {
                reader.session.advance(1);
            }
            step
        }
    }
}

/// Opens the session whose title is the oldest CQE. If that is impossible the queue is broken.
fn open_session(reader: &mut CqReader, rq: &mut StridingRq, pool: &Pool) -> bool {
    let cqe = reader.cq.oldest();
    let first = u32::from(cqe.wqe_counter());
    if !rq.is_of_oldest(cqe) || first < rq.stride {
        reader.stop(Mlx5RxDrop::IndexUnexpected);
        return false;
    }
    let title = RxMeta { hash: 0, ..reader.parser.parse(cqe) };
    let (possible, template) = (reader.cq.count(), MetaTemplate::of(&title, pool));
    if reader.session.open(&mut reader.cq, title.len, possible).is_err() {
        reader.stop(Mlx5RxDrop::SessionInvalid);
        return false;
    }
    reader.session.set_title(template);
    rq.stride = first;
    true
}

/// Copies a received frame into the burst, and releases its strides; nothing happens while the pool
/// is empty.
#[inline]
fn land<A: RxFrame>(
    reader: &mut CqReader,
    rq: &mut StridingRq,
    landed: &MprqFrame,
    arrival: A,
    burst: &mut Burst,
    pool: &Pool,
) -> Step {
    let step = match landed.len {
        None => Step::Other,
        Some(len) => match rq.copy(landed, len, arrival.with_len(len), pool) {
            None => return Step::Dry,
            Some(frame) => reader.deliver(frame, burst),
        },
    };
    rq.advance(landed);
    step
}
