//! The cyclic receive ring (mlx5.md 2.8): each WQE names the buffers of one frame, one or several,
//! and the NIC fills them in order. Lengths and keys are written once; afterwards only the address
//! in a WQE changes.
//!
//! ```text
//!   consumed                                        produced
//!   ──▶ [the NIC may fill] [posted: `unpublished`] ──▶ [`vacant`] ──▶ consumed + wqe_count
//! ```
//!
//! Owns the buffers that the NIC has. While no slot is vacant, a buffer that is taken is replaced
//! at once.

use crate::device::mlx5::ring::{DescriptorRing, DoorbellRecord};
use crate::device::mlx5::setup::parts::RqParts;
use crate::mem::{Burst, Mbuf, MetaTemplate, Pool, RxFrame, RxMeta, RxSlots};

/// Bytes of a segment: length, key, address (mlx5.md 2.4).
const SEGMENT_LEN: usize = 16;
const AT_LEN: usize = 0;
const AT_KEY: usize = 4;
const AT_ADDRESS: usize = 8;
/// The key of the segment after the last one, if the WQE has room for more.
const INVALID_LKEY: u32 = 0x100;

/// Log2 of the bytes of a WQE with one buffer.
pub(crate) const USUAL_SHIFT: u32 = SEGMENT_LEN.trailing_zeros();

/// A cyclic receive ring.
pub(crate) struct Rq {
    /// Segments, `stride / 16` for each WQE.
    ring: DescriptorRing<SEGMENT_LEN>,
    record: DoorbellRecord,
    /// The buffers: first those of the first segment of each WQE, in order, then those of the
    /// second segments, and so on. So frames in one buffer, which nearly all are, use consecutive
    /// slots.
    posted: RxSlots,
    wqe_count: u32,
    /// Log2 of the segments that a WQE has room for, and the number that it uses.
    step_log: u32,
    segments: u32,
    /// The oldest WQE that the NIC owns; a free-running index.
    consumed: u32,
    /// Vacant WQEs behind the posted ones: nearly always none.
    vacant: u32,
    /// Posted WQEs without a doorbell yet.
    unpublished: u32,
}

impl Rq {
    /// Frames that may arrive before the next post.
    pub(crate) fn frames_max(&self) -> u32 {
        self.wqe_count
    }

    /// Buffers per WQE so that frames of `frame_len_max` fit.
    pub(crate) fn segments(frame_len_max: usize, pool: &Pool) -> u32 {
        frame_len_max.div_ceil(pool.layout().data_room()).max(1) as u32
    }

    /// Takes over the ring, for frames of up to `frame_len_max` bytes in buffers of `pool`. No
    /// buffer is posted yet. Panics if a WQE is too short for [`segments`](Self::segments) or the
    /// WQEs exceed the index of the NIC.
    pub(crate) fn new(parts: RqParts, pool: &Pool, frame_len_max: usize) -> Self {
        let (segments, step) = (Self::segments(frame_len_max, pool), parts.stride / SEGMENT_LEN as u32);
        let names_all = step.is_power_of_two() && segments <= step;
        assert!(names_all, "WQEs of {} bytes name no {segments} buffers", parts.stride);
        assert!(parts.wqe_count <= 1 << 15, "{} WQEs are more than an index of 16 bits tells apart", parts.wqe_count);
        let memory_owner = parts.memory_owner.clone();
        let mut ring = DescriptorRing::new(parts.ring, parts.wqe_count * step, SEGMENT_LEN as u32, memory_owner);
        let posted = RxSlots::new(pool, (parts.wqe_count * segments) as usize);
        for idx in 0..parts.wqe_count * step {
            let mut segment = ring.entry_mut(idx);
            let used = idx % step < segments;
            segment.set_be32::<AT_LEN>(if used { posted.room() } else { 0 });
            segment.set_be32::<AT_KEY>(if used { parts.lkey } else { INVALID_LKEY });
            segment.set_be64::<AT_ADDRESS>(0);
        }
        Self {
            ring,
            record: DoorbellRecord::new(parts.doorbell, parts.memory_owner),
            posted,
            wqe_count: parts.wqe_count,
            step_log: step.trailing_zeros(),
            segments,
            consumed: 0,
            vacant: parts.wqe_count,
            unpublished: 0,
        }
    }

    /// The bytes from one WQE to the next, as log2.
    pub(crate) fn shift(&self) -> u32 {
        self.ring.shift() + self.step_log
    }

    /// The oldest WQE that the NIC owns.
    #[inline(always)]
    pub(crate) fn idx(&self) -> u32 {
        self.consumed
    }

    /// The mask of a WQE index.
    #[inline(always)]
    pub(crate) fn mask(&self) -> u16 {
        (self.wqe_count - 1) as u16
    }

    /// WQEs that the NIC owns: posted with a doorbell, and not consumed.
    #[inline(always)]
    pub(crate) fn outstanding(&self) -> u32 {
        self.wqe_count - self.vacant - self.unpublished
    }

    /// Bytes that fit the buffers of a WQE.
    pub(crate) fn frame_len_max(&self) -> u32 {
        self.segments * self.posted.room()
    }

    /// Whether all WQEs are posted.
    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.vacant == 0
    }

    /// How many of the oldest `limit` WQEs can be [exchanged](Self::exchange) at once.
    #[inline(always)]
    pub(crate) fn exchangeable(&self, limit: u32, pool: &Pool) -> u32 {
        if !self.is_full() {
            return 0;
        }
        let at_home = pool.available().min(limit as usize) as u32;
        at_home.min(self.wqe_count - self.unpublished).min(self.wqe_count - self.slot(self.consumed))
    }

    /// Takes the frames of the `count` oldest WQEs, as described by the closure that `arrivals`
    /// makes, and posts fresh buffers in their places. Ends early at a frame that does not fit one
    /// buffer. Returns frames and bytes. The caller has checked
    /// [`exchangeable`](Self::exchangeable).
    #[inline(always)]
    pub(crate) fn exchange<const SHIFT: u32, A: RxFrame, T: FnMut(usize) -> A>(
        &mut self,
        pool: &Pool,
        count: u32,
        burst: &mut Burst,
        arrivals: impl FnOnce() -> T,
    ) -> (u32, u64) {
        let first = self.slot(self.consumed);
        let mut segments = self.ring.run_mut(first << self.step_log, self.step_log, count);
        let post = |idx, address| segments.entry_of::<SHIFT>(idx).set_be64::<AT_ADDRESS>(address);
        let (done, bytes) = self.posted.exchange(pool, (first as usize, count as usize), burst, arrivals, post);
        self.consumed = self.consumed.wrapping_add(done as u32);
        self.unpublished += done as u32;
        (done as u32, bytes)
    }

    /// The metadata shared by frames that start as `meta`.
    #[inline]
    pub(crate) fn template(&self, meta: &RxMeta) -> MetaTemplate {
        self.posted.template(meta)
    }

    /// Takes the frame of the oldest WQE, in as many buffers as it needs, and posts nothing. `None`
    /// if the frame is longer than the buffers; the WQE is consumed nevertheless, and its buffers
    /// are used for the next frame.
    pub(crate) fn take(&mut self, arrival: impl RxFrame) -> Option<Mbuf> {
        let (slot, len) = (self.slot(self.consumed), arrival.len());
        self.skip();
        if len > self.frame_len_max() {
            return None;
        }
        let room = self.posted.room();
        let mut chain: Option<Mbuf> = None;
        for segment in (0..len.div_ceil(room).max(1)).rev() {
            let part = arrival.with_len((len - segment * room).min(room));
            let slot = (segment * self.wqe_count + slot) as usize;
            let Some(mut mbuf) = self.posted.take(slot, &part) else { continue };
            if let Some(rest) = chain.take() {
                mbuf.attach(rest);
            }
            chain = Some(mbuf);
        }
        chain
    }

    /// The oldest WQE completed without a frame; its buffers remain for the next one.
    pub(crate) fn skip(&mut self) {
        self.consumed = self.consumed.wrapping_add(1);
        self.vacant += 1;
    }

    /// Posts buffers in at most `limit` vacant WQEs, oldest first, as far as the pool has them.
    /// Returns the number of these WQEs.
    #[cold]
    pub(crate) fn refill(&mut self, pool: &Pool, limit: u32) -> u32 {
        let wanted = limit.min(self.vacant);
        for done in 0..wanted {
            let slot = self.slot(self.produced());
            for segment in 0..self.segments {
                let Some(address) = self.posted.fill(pool, (segment * self.wqe_count + slot) as usize) else {
                    return done;
                };
                self.ring.entry_mut((slot << self.step_log) + segment).set_be64::<AT_ADDRESS>(address);
            }
            (self.vacant, self.unpublished) = (self.vacant - 1, self.unpublished + 1);
        }
        wanted
    }

    /// Publishes the posted WQEs to the NIC.
    #[inline(always)]
    pub(crate) fn publish(&mut self) {
        if self.unpublished > 0 {
            self.unpublished = 0;
            self.record.write(self.produced() & 0xffff);
        }
    }

    /// Buffers in the ring. They are leaked when it is dropped.
    pub(crate) fn buffers(&self) -> usize {
        self.posted.count()
    }

    /// Publishes only the first of the posted WQEs.
    #[cold]
    pub(crate) fn publish_first(&mut self) {
        if self.unpublished > 0 {
            self.unpublished -= 1;
            self.record.write(self.produced().wrapping_sub(self.unpublished) & 0xffff);
        }
    }

    /// Starts again at index 0 without a buffer. The caller knows that the NIC has released the
    /// ring.
    #[cold]
    pub(crate) fn reset(&mut self) {
        (0..self.wqe_count * self.segments).for_each(|slot| self.posted.free(slot as usize));
        (self.consumed, self.vacant, self.unpublished) = (0, self.wqe_count, 0);
        self.record.write(0);
    }

    /// The index behind the last posted WQE.
    #[inline(always)]
    fn produced(&self) -> u32 {
        self.consumed.wrapping_add(self.wqe_count - self.vacant)
    }

    #[inline(always)]
    fn slot(&self, idx: u32) -> u32 {
        idx & (self.wqe_count - 1)
    }
}
