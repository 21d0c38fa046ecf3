//! The receive half: turns CQEs into mbufs, refills the ring, and updates the NIC's indices once
//! per burst.
//!
//! ```text
//!  CQEs owned by us, in order   ──▶ barrier ──▶ each: length checked, mbuf made of the slot's buffer, a fresh one posted
//!  anything else: one at a time, by its name                                   └──▶ consumer index, then producer index
//! ```
//!
//! All data that the NIC writes is checked. Each invalid value has a counter, and a CQE that shows
//! a corrupt ring stops the queue until it is reset (`recover.rs`), which takes some system calls.
//! While the pool is empty, frames are delivered without posting fresh buffers, so that
//! acknowledgments still arrive. The ring then runs empty, and the NIC counts the frames that it
//! cannot store.

use std::os::fd::RawFd;

use super::cyclic;
use super::mprq_buffer::MprqBuffer;
use super::packet_types::RxFeatures;
use super::rq::Rq;
use super::striding::{self, FILLER, StridingRq};
use crate::counters::Scope;
use crate::device::mlx5::completion::arm::{Arming, CompletionEvents};
use crate::device::mlx5::completion::clock::ClockInfo;
use crate::device::mlx5::completion::compressed::Mini;
use crate::device::mlx5::completion::cqe_parser::CqeParser;
use crate::device::mlx5::completion::reader::{CqReader, Mlx5RxDrop};
use crate::device::mlx5::health::recover::Recovery;
use crate::device::mlx5::health::watch::RingError;
use crate::device::mlx5::setup::parts::{CqParts, RqParts};
use crate::device::{RxQueue, RxState};
use crate::mem::{Burst, MetaTemplate, Pool};
use crate::time::{Duration, Instant};

/// Interval between two updates of the relation between the NIC's clock and the wall clock. If the
/// clock is disciplined, the kernel changes it some times per second, by some parts in a million.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Interval between two searches for the first CQE after the position in the CQ was lost: each
/// scans the whole CQ.
const SEEK_EVERY: Duration = Duration::from_micros(100);

/// Reports from the control path's objects to a running queue.
pub(crate) trait QueueStatus {
    /// The last known state of the port. No system call.
    fn state(&self) -> RxState;

    /// The relation of the NIC's clock to the wall clock, if it is updated. No system call; called
    /// ten times a second.
    fn relation(&mut self) -> Option<ClockInfo>;

    /// State that only the kernel has, as last read by the port monitor. No system call.
    fn refresh(&mut self) -> Refreshed;

    /// The same at the end, read from the kernel now. Some milliseconds.
    fn refresh_last(&mut self) -> Refreshed;
}

/// State read from the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refreshed {
    /// Frames for this queue that found no buffer since the last call.
    pub(crate) out_of_buffer: u64,
    /// An error of the queue that no CQE reported.
    pub(crate) fault: Option<RingError>,
}

/// The parts of a receive half.
pub(crate) struct RxParts {
    pub(crate) cq: CqParts,
    pub(crate) rq: RqParts,
    /// The buffer of a striding ring.
    pub(crate) mprq_buffer: Option<MprqBuffer>,
    pub(crate) recovery: Recovery,
    pub(crate) status: Box<dyn QueueStatus>,
    /// Bytes of the longest frame.
    pub(crate) frame_len_max: usize,
    /// The features of its CQEs.
    pub(crate) features: RxFeatures,
    /// The format of compressed CQEs, if compression is on.
    pub(crate) mini: Option<Mini>,
    /// The events of the completion queue.
    pub(crate) events: Option<Box<dyn CompletionEvents>>,
}

/// The receive half of a queue. `receive` makes a system call only after an error, to reset the
/// queue.
pub struct Mlx5Rx {
    reader: CqReader,
    ring: RxRing,
    recovery: Recovery,
    status: Box<dyn QueueStatus>,
    next_housekeeping: Instant,
    /// The completion channel that a loop sleeps on, if libmlx5 shows its register.
    arming: Option<Arming>,
}

/// The ring, cyclic or striding.
enum RxRing {
    Cyclic(Rq),
    Striding(StridingRq),
}

impl Mlx5Rx {
    /// Takes over the rings and posts a buffer in each WQE, as far as the pool has them. The queue
    /// is ready (a QP: in RTR), so that frames arrive from here on. Panics if the CQ is too small
    /// for the ring, or the parts contradict each other.
    pub(in crate::device::mlx5) fn new(parts: RxParts, pool: &Pool, scope: &Scope) -> Self {
        let ring = match parts.mprq_buffer {
            None => RxRing::Cyclic(Rq::new(parts.rq, pool, parts.frame_len_max)),
            Some(mprq_buffer) => RxRing::Striding(StridingRq::new(parts.rq, mprq_buffer)),
        };
        assert!(parts.cq.entry_count >= ring.cqes_max(), "a CQ of {} entries overruns", parts.cq.entry_count);
        let parser = CqeParser::new(parts.features);
        let arming = parts.events.and_then(|events| Arming::new(&parts.cq, events));
        let mut this = Self {
            reader: CqReader::new(parts.cq, parser, parts.mini, MetaTemplate::any(pool), &scope.scope("rx")),
            ring,
            recovery: parts.recovery,
            status: parts.status,
            next_housekeeping: Instant::ZERO,
            arming,
        };
        this.ring.refill(pool);
        this.ring.publish(&mut this.reader);
        this
    }

    /// The work that is not done per burst: restarts the queue after an error, and updates the
    /// clock relation.
    #[cold]
    fn housekeep(&mut self, pool: &Pool, now: Instant) {
        if self.reader.is_seeking() {
            self.seek(pool);
        } else if self.reader.is_broken() {
            self.recover(pool, now);
        }
        if self.reader.is_seeking() {
            self.next_housekeeping = now + SEEK_EVERY;
            return;
        }
        let is_related = self.reader.parser.is_related();
        if is_related && let Some(relation) = self.status.relation() {
            self.reader.parser.relate(&relation);
        }
        self.next_housekeeping = if is_related { now + LOOK_EVERY } else { Instant::MAX };
    }

    /// Restarts the queue after an error, once that is due.
    fn recover(&mut self, pool: &Pool, now: Instant) {
        if !self.recovery.reset_for(self.reader.error_source(), now) {
            return;
        }
        self.clear(Mlx5RxDrop::QueueReset);
        // Buffers before frames: in the other order the first frames would find no buffer.
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

    /// Searches for the first CQE after the position in the CQ was lost. Until it is found the NIC
    /// gets only one WQE: the free room of the CQ is unknown.
    fn seek(&mut self, pool: &Pool) {
        if self.reader.seek() {
            self.ring.publish(&mut self.reader);
        } else if !self.ring.has_outstanding() {
            self.ring.refill(pool);
            self.ring.publish_first();
        }
    }

    /// A broken queue is checked on each turn, a queue that searches its position at the interval
    /// above.
    #[cold]
    fn housekeep_soon(&mut self) {
        if !self.reader.is_seeking() {
            self.next_housekeeping = Instant::ZERO;
        }
    }

    /// Drains the CQ and frees all buffers. The NIC has released both.
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
    /// CQEs that the NIC may write before the worker updates the consumer index.
    fn cqes_max(&self) -> u32 {
        match self {
            Self::Cyclic(rq) => rq.frames_max(),
            Self::Striding(rq) => rq.frames_max(),
        }
    }

    /// Posts buffers in all vacant WQEs: at start, and after a reset, where the turn may take
    /// longer.
    fn refill(&mut self, pool: &Pool) {
        match self {
            Self::Cyclic(rq) => _ = rq.refill(pool, u32::MAX),
            Self::Striding(rq) => rq.refill(),
        }
    }

    /// Whether the NIC owns a WQE to fill.
    fn has_outstanding(&self) -> bool {
        match self {
            Self::Cyclic(rq) => rq.outstanding() > 0,
            Self::Striding(rq) => rq.outstanding() > 0,
        }
    }

    /// Publishes only the first posted WQE to the NIC.
    fn publish_first(&mut self) {
        match self {
            Self::Cyclic(rq) => rq.publish_first(),
            Self::Striding(rq) => rq.publish_first(),
        }
    }

    /// Updates the consumer index of the CQ before the producer index of the RQ: the NIC needs room
    /// for a CQE for each WQE that it owns.
    #[inline(always)]
    fn publish(&mut self, reader: &mut CqReader) {
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
        if now >= self.next_housekeeping {
            self.housekeep(pool, now);
        }
        let before = burst.len();
        let limit = limit.min(burst.remaining_capacity()) as u32;
        match &mut self.ring {
            RxRing::Cyclic(rq) => cyclic::take(&mut self.reader, rq, burst, limit, pool),
            RxRing::Striding(rq) => striding::take(&mut self.reader, rq, burst, limit, pool),
        }
        if self.reader.is_broken() {
            self.housekeep_soon();
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

    /// The descriptor of the completion channel.
    fn wait_fd(&self) -> Option<RawFd> {
        self.arming.as_ref().map(Arming::fd)
    }

    /// Two stores, and a system call if the channel has signaled a completion since the last call.
    fn arm(&mut self) {
        if let Some(arming) = &mut self.arming {
            arming.arm(self.reader.cq.idx());
        }
    }

    /// The NIC's count of frames that found no buffer, and errors without a CQE, as the port's
    /// thread has read them. Makes no system call and waits for no lock.
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
            self.next_housekeeping = Instant::ZERO;
        }
    }
}

impl Drop for Mlx5Rx {
    /// Counts the pending frames and frees all buffers; if the NIC does not release them they are
    /// leaked.
    fn drop(&mut self) {
        let is_closed = self.recovery.close();
        if let Some(arming) = &mut self.arming {
            arming.drain();
        }
        let refreshed = self.status.refresh_last();
        self.apply(refreshed);
        if is_closed {
            return self.clear(Mlx5RxDrop::QueueClosed);
        }
        match &self.ring {
            RxRing::Cyclic(rq) => self.recovery.leak(rq.buffers() as u64),
            RxRing::Striding(rq) => rq.leak(),
        }
    }
}
