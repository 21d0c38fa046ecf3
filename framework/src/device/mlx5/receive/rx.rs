//! The receiving half: CQEs become mbufs, the ring is refilled, the NIC is told, once a burst.
//!
//! ```text
//!  CQEs that are ours, in order ──▶ barrier ──▶ each: length checked, mbuf made of the slot's buffer, a fresh one posted
//!  anything else: one at a time, by its name                                   └──▶ consumer index, then producer index
//! ```
//!
//! All that the NIC writes is checked: what it may not say has a counter, and a CQE that shows that
//! the NIC's ring is not ours any more stops the queue until it was reset (`recover.rs`): some
//! system calls, after an error only. While the pool is empty frames are handed on without a fresh
//! buffer, so that an acknowledgement still comes through; the ring then runs empty, and the NIC
//! counts what it cannot store.

use super::super::completion::clock::Relation;
use super::super::completion::compressed::Mini;
use super::super::completion::cqe_parser::CqeParser;
use super::super::completion::reader::{Mlx5RxDrop, Reader};
use super::super::health::recover::Recovery;
use super::super::health::watch::RingError;
use super::super::setup::parts::{CqParts, RqParts};
use super::cyclic;
use super::mprq_buffer::MprqBuffer;
use super::packet_types::RxFeatures;
use super::rq::Rq;
use super::striding::{self, FILLER, StridingRq};
use crate::counters::Scope;
use crate::device::{RxQueue, RxState};
use crate::mem::{Burst, MetaTemplate, Pool};
use crate::time::{Duration, Instant};

/// Time between two looks at how the NIC's clock relates to the wall. The kernel changes it some
/// times a second where the clock is disciplined, by some parts in a million.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Time between two looks for the first CQE where the place in the CQ was lost: each look is at the
/// whole of it.
const SEEK_EVERY: Duration = Duration::from_micros(100);

/// What the control path's objects report to a running queue.
pub(in crate::device::mlx5) trait QueueStatus {
    /// Whether the port is up, as last seen. No system call.
    fn state(&self) -> RxState;

    /// How the NIC's clock relates to the wall, where it is known anew. No system call; asked ten
    /// times a second.
    fn relation(&mut self) -> Option<Relation>;

    /// What only the kernel can tell, as far as it was found out by others. No system call.
    fn refresh(&mut self) -> Refreshed;

    /// The same at the end: what the kernel tells now. Some milliseconds.
    fn refresh_last(&mut self) -> Refreshed;
}

/// What the kernel told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::device::mlx5) struct Refreshed {
    /// Frames for this queue that found no buffer, since the last time.
    pub(in crate::device::mlx5) out_of_buffer: u64,
    /// What the queue could not say by a CQE.
    pub(in crate::device::mlx5) fault: Option<RingError>,
}

/// What the receiving half of a queue is made of.
pub(in crate::device::mlx5) struct RxParts {
    pub(in crate::device::mlx5) cq: CqParts,
    pub(in crate::device::mlx5) rq: RqParts,
    /// Where frames land before they are copied, of a striding ring.
    pub(in crate::device::mlx5) landing: Option<MprqBuffer>,
    pub(in crate::device::mlx5) recovery: Recovery,
    pub(in crate::device::mlx5) status: Box<dyn QueueStatus>,
    /// Bytes of the longest frame.
    pub(in crate::device::mlx5) frame_len_max: usize,
    /// What its CQEs tell.
    pub(in crate::device::mlx5) features: RxFeatures,
    /// The format of compressed CQEs, where they were asked for.
    pub(in crate::device::mlx5) mini: Option<Mini>,
}

/// The receiving half of a queue. `receive` makes a system call after an error only, to reset the
/// queue.
pub struct Mlx5Rx {
    reader: Reader,
    ring: RxRing,
    recovery: Recovery,
    status: Box<dyn QueueStatus>,
    next_look: Instant,
}

/// The ring, of either kind.
enum RxRing {
    Cyclic(Rq),
    Striding(StridingRq),
}

impl Mlx5Rx {
    /// Takes the rings over and posts a buffer in each WQE, as far as the pool has them. The queue
    /// is ready (of a QP: in RTR), so that frames come from here on. Panics where the CQ is too
    /// small for the ring, or the parts are at odds.
    pub(in crate::device::mlx5) fn new(parts: RxParts, pool: &Pool, scope: &Scope) -> Self {
        let ring = match parts.landing {
            None => RxRing::Cyclic(Rq::new(parts.rq, pool, parts.frame_len_max)),
            Some(landing) => RxRing::Striding(StridingRq::new(parts.rq, landing)),
        };
        assert!(parts.cq.entry_count >= ring.cqes_max(), "a CQ of {} entries overruns", parts.cq.entry_count);
        let parser = CqeParser::new(parts.features);
        let mut this = Self {
            reader: Reader::new(parts.cq, parser, parts.mini, MetaTemplate::any(pool), &scope.scope("rx")),
            ring,
            recovery: parts.recovery,
            status: parts.status,
            next_look: Instant::ZERO,
        };
        this.ring.refill(pool);
        this.ring.publish(&mut this.reader);
        this
    }

    /// What is not done for every burst: starts the queue anew after an error, and relates the
    /// NIC's clock to the wall.
    #[cold]
    fn attend(&mut self, pool: &Pool, now: Instant) {
        if self.reader.is_seeking() {
            self.seek(pool);
        } else if self.reader.is_broken() {
            self.recover(pool, now);
        }
        if self.reader.is_seeking() {
            self.next_look = now + SEEK_EVERY;
            return;
        }
        let is_related = self.reader.parser.is_related();
        if is_related && let Some(relation) = self.status.relation() {
            self.reader.parser.relate(&relation);
        }
        self.next_look = if is_related { now + LOOK_EVERY } else { Instant::MAX };
    }

    /// Starts the queue anew after an error, where it is time for that.
    fn recover(&mut self, pool: &Pool, now: Instant) {
        if !self.recovery.reset_for(self.reader.blame(), now) {
            return;
        }
        self.clear(Mlx5RxDrop::QueueReset);
        // Buffers before frames: the other way round the first ones would find none.
        self.ring.refill(pool);
        let is_ready = self.recovery.ready();
        if is_ready && self.reader.is_lost() {
            self.reader.begin_to_seek();
            return self.ring.publish_first();
        }
        self.reader.set_broken(!is_ready);
        if is_ready {
            self.ring.publish(&mut self.reader);
        }
    }

    /// Looks for the first CQE after the place in the CQ was lost. Until it is found the NIC has
    /// one WQE: nobody knows for how many more there is room in the CQ.
    fn seek(&mut self, pool: &Pool) {
        if self.reader.seek() {
            self.ring.publish(&mut self.reader);
        } else if !self.ring.has_outstanding() {
            self.ring.refill(pool);
            self.ring.publish_first();
        }
    }

    /// A queue that is broken is looked at on each turn, one that seeks its place as was said.
    #[cold]
    fn look_again(&mut self) {
        if !self.reader.is_seeking() {
            self.next_look = Instant::ZERO;
        }
    }

    /// Reads the CQ dry and sends all buffers home. The NIC has let go of both.
    fn clear(&mut self, reason: Mlx5RxDrop) {
        let no_frame = if matches!(self.ring, RxRing::Striding(_)) { FILLER } else { 0 };
        self.reader.drain(reason, no_frame);
        match &mut self.ring {
            RxRing::Cyclic(rq) => rq.reset(),
            RxRing::Striding(rq) => rq.reset(),
        }
    }
}

impl RxRing {
    /// CQEs that the NIC may write before it has to hear of the worker.
    fn cqes_max(&self) -> u32 {
        match self {
            Self::Cyclic(rq) => rq.frames_max(),
            Self::Striding(rq) => rq.frames_max(),
        }
    }

    /// Posts all that there is room for: at the start, and after a reset, which is no turn like
    /// others.
    fn refill(&mut self, pool: &Pool) {
        match self {
            Self::Cyclic(rq) => _ = rq.refill(pool, u32::MAX),
            Self::Striding(rq) => rq.refill(),
        }
    }

    /// Whether the NIC has a WQE to fill.
    fn has_outstanding(&self) -> bool {
        match self {
            Self::Cyclic(rq) => rq.outstanding() > 0,
            Self::Striding(rq) => rq.outstanding() > 0,
        }
    }

    /// Tells the NIC of the first WQE that was posted, and of no more.
    fn publish_first(&mut self) {
        match self {
            Self::Cyclic(rq) => rq.publish_first(),
            Self::Striding(rq) => rq.publish_first(),
        }
    }

    /// Tells the NIC what was read, and then what was posted: it needs room for a CQE for each WQE
    /// that it has.
    #[inline(always)]
    fn publish(&mut self, reader: &mut Reader) {
        reader.cq.publish();
        match self {
            Self::Cyclic(rq) => rq.publish(),
            Self::Striding(rq) => rq.publish(),
        }
    }
}

impl RxQueue for Mlx5Rx {
    #[inline]
    fn receive(&mut self, burst: &mut Burst, limit: usize, pool: &Pool, now: Instant) -> usize {
        if now >= self.next_look {
            self.attend(pool, now);
        }
        let before = burst.len();
        let limit = limit.min(burst.remaining_capacity()) as u32;
        match &mut self.ring {
            RxRing::Cyclic(rq) => cyclic::take(&mut self.reader, rq, burst, limit, pool),
            RxRing::Striding(rq) => striding::take(&mut self.reader, rq, burst, limit, pool),
        }
        if self.reader.is_broken() {
            self.look_again();
        } else {
            self.ring.publish(&mut self.reader);
        }
        let received = burst.len() - before;
        self.reader.count_frames(received);
        received
    }

    fn state(&self) -> RxState {
        self.status.state()
    }

    /// The NIC's count of frames that found no buffer, and errors that no CQE tells of, as the
    /// port's thread has found them. No system call, and no lock that it would wait for.
    fn refresh_counters(&mut self) {
        let refreshed = self.status.refresh();
        self.apply(refreshed);
    }
}

impl Mlx5Rx {
    fn apply(&mut self, Refreshed { out_of_buffer, fault }: Refreshed) {
        self.reader.drop_frames(Mlx5RxDrop::OutOfBuffer, out_of_buffer);
        if fault == Some(RingError::Completions) {
            self.recovery.end();
        }
        if fault.is_some() {
            self.reader.set_broken(true);
            self.next_look = Instant::ZERO;
        }
    }
}

impl Drop for Mlx5Rx {
    /// What waits is counted, and all buffers come home; where the NIC does not let go of them they
    /// stay with it for ever.
    fn drop(&mut self) {
        let is_closed = self.recovery.close();
        let refreshed = self.status.refresh_last();
        self.apply(refreshed);
        if is_closed {
            return self.clear(Mlx5RxDrop::QueueClosed);
        }
        match &self.ring {
            RxRing::Cyclic(rq) => self.recovery.strand(rq.buffers() as u64),
            RxRing::Striding(rq) => rq.strand(),
        }
    }
}
