//! The receiving half: CQEs become mbufs, the ring is refilled, the NIC is told, once a burst.
//!
//! ```text
//!  CQEs that are ours, in order ──▶ barrier ──▶ each: length checked, mbuf made of the slot's buffer, a fresh one posted
//!  anything else: one at a time, by its name                                   └──▶ consumer index, then producer index
//! ```
//!
//! All that the NIC writes is checked: what it may not say has a counter, and a CQE that shows that the NIC's ring is not ours any
//! more stops the queue until it was reset (`recover.rs`): some system calls, after an error only. While the pool is empty frames
//! are handed on without a fresh buffer, so that an acknowledgement still comes through; the ring then runs empty, and the NIC
//! counts what it cannot store.

use super::clock::{Line, Relation, Stamps, real_time};
use super::compressed::{Mini, Session};
use super::cq::{self, Cq, Next};
use super::cqe::{Cqe, Format, Opcode, Syndrome};
use super::kinds::Kinds;
use super::parts::{CqParts, RqParts};
use super::recover::Recovery;
use super::ring::ANY;
use super::rq::Rq;
use crate::counters::{Counter, Drops, Scope, Unit};
use crate::device::{RxQueue, RxState};
use crate::mem::{Brief, Burst, Mbuf, Pool, Told};
use crate::time::{Duration, Instant};

crate::drop_reasons! {
    /// Why a frame that a rule names does not reach the pipeline.
    pub enum Mlx5RxDrop {
        /// The NIC found no buffer in the ring: the pool was empty, or the worker too slow. The NIC's own count.
        OutOfBuffer => "out_of_buffer",
        /// The NIC tells of more bytes than the buffers have.
        LengthInvalid => "length_invalid",
        /// The CQE is not the one of the oldest buffer. The queue is reset.
        IndexUnexpected => "index_unexpected",
        /// The CQE tells of something that a receiving queue does not get.
        OpcodeUnexpected => "opcode_unexpected",
        /// The CQE carries data, or is compressed where that was not asked for.
        FormatUnexpected => "format_unexpected",
        /// A compressed session announces no frame, or more than there can be. The queue is reset.
        SessionInvalid => "session_invalid",
        /// The buffer was shorter than the frame (syndrome 01). The queue is reset.
        LocalLength => "error_local_length",
        /// The NIC could not read the WQE (syndrome 02). The queue is reset.
        LocalQpOperation => "error_local_qp_operation",
        /// The buffer is not registered (syndrome 04). The queue is reset.
        LocalProtection => "error_local_protection",
        /// The buffer may not be written (syndrome 11). The queue is reset.
        LocalAccess => "error_local_access",
        /// Any other syndrome. The queue is reset.
        OtherSyndrome => "error_other_syndrome",
        /// The frame was in the ring when the queue was reset after an error.
        QueueReset => "queue_reset",
        /// The frame was in the ring when the receiving half was dropped.
        QueueClosed => "queue_closed",
    }
}

/// Time between two looks at how the NIC's clock relates to the wall. The kernel changes it some times a second where the clock is
/// disciplined, by some parts in a million.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What set-up's objects tell a queue that runs.
pub(super) trait Tidings {
    /// Whether the port is up, as last seen. No system call.
    fn state(&self) -> RxState;

    /// How the NIC's clock relates to the wall, where it is known anew. No system call; asked ten times a second.
    fn relation(&mut self) -> Option<Relation>;

    /// Looks at what only the kernel can tell. Asked now and then, and may make system calls.
    fn refresh(&mut self) -> Refreshed;
}

/// What the kernel told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Refreshed {
    /// Frames for this queue that found no buffer, since the last time.
    pub(super) out_of_buffer: u64,
    /// The queue fell into error and could not say so by a CQE.
    pub(super) has_failed: bool,
}

/// Entries in one turn that are no frames: so a NIC that writes nothing else cannot hold the worker.
const OTHERS_MAX: u32 = 64;

/// What the receiving half of a queue is made of.
pub(super) struct RxParts {
    pub(super) cq: CqParts,
    pub(super) rq: RqParts,
    pub(super) recovery: Recovery,
    pub(super) tidings: Box<dyn Tidings>,
    /// Bytes of the longest frame.
    pub(super) frame_len_max: usize,
    pub(super) stamps: Stamps,
    /// The queue is one of several that share a port by hash.
    pub(super) has_hashes: bool,
    /// The format of compressed CQEs, where they were asked for.
    pub(super) mini: Option<Mini>,
}

/// The receiving half of a queue. `receive` makes a system call after an error only, to reset the queue.
pub struct Mlx5Rx {
    cq: Cq,
    rq: Rq,
    /// Frames of a compressed session that have not been handed on yet.
    session: Session,
    compresses: bool,
    is_usual: bool,
    voice: u8,
    /// Ticks are told as time of day.
    is_related: bool,
    teller: Teller,
    recovery: Recovery,
    tidings: Box<dyn Tidings>,
    /// The NIC's ring is not ours any more, or in error.
    broken: bool,
    next_look: Instant,
    counters: Counters,
    drops: Drops<Mlx5RxDrop>,
}

struct Counters {
    frames: Counter,
    bytes: Counter,
    /// Turns that found the pool empty while WQEs were vacant.
    refill_starved: Counter,
    /// Buffers that came back from a queue in error.
    flushed: Counter,
}

/// How a CQE becomes what an mbuf knows.
struct Teller {
    kinds: Kinds,
    /// What the timestamps mean, where they are ticks.
    line: Line,
}

/// How much a CQE is asked for, beside what each is: the loop over a burst is made for each.
mod voice {
    pub(super) const QUIET: u8 = 0;
    /// Hashes.
    pub(super) const HASHES: u8 = 1;
    /// Ticks, and hashes if there are any.
    pub(super) const TICKS: u8 = 2;
    /// Time of day, and hashes if there are any.
    pub(super) const REAL_TIME: u8 = 3;
}

/// Log2 of the bytes of a CQE, and of a WQE that names one buffer: where both are so, the loop over a burst knows it.
const USUAL_CQE: u32 = cq::USUAL_SHIFT;
const USUAL_WQE: u32 = 4;

/// What became of an entry that is not one of a run of frames.
enum Step {
    /// There is none.
    Dry,
    /// A frame is in the burst.
    Frame,
    /// Something else: go on.
    Other,
}

impl Mlx5Rx {
    /// Takes the rings over and posts a buffer in each WQE. The queue is ready (of a QP: in RTR), so that frames come from here on.
    pub(super) fn new(parts: RxParts, pool: &Pool, scope: &Scope) -> Self {
        let scope = scope.scope("rx");
        let counters = Counters {
            frames: scope.counter("frames", Unit::Frames),
            bytes: scope.counter("bytes", Unit::Bytes),
            refill_starved: scope.counter("refill_starved", Unit::Events),
            flushed: scope.counter("flushed", Unit::Mbufs),
        };
        let cq = Cq::new(parts.cq);
        let rq = Rq::new(parts.rq, pool, parts.frame_len_max);
        assert!(cq.count() > rq.mask().into(), "a CQ of {} entries overruns", cq.count());
        let mut this = Self {
            is_usual: (cq.shift(), rq.shift()) == (USUAL_CQE, USUAL_WQE),
            session: Session::new(parts.mini.unwrap_or(Mini::Checksum), rq.mold(&Told::default())),
            cq,
            rq,
            compresses: parts.mini.is_some(),
            voice: match parts.stamps {
                Stamps::Off if !parts.has_hashes => voice::QUIET,
                Stamps::Off => voice::HASHES,
                Stamps::Ticks | Stamps::Wall(_) => voice::TICKS,
                Stamps::RealTime => voice::REAL_TIME,
            },
            is_related: matches!(parts.stamps, Stamps::Wall(_)),
            teller: Teller {
                kinds: Kinds::new(parts.stamps, parts.has_hashes),
                line: match parts.stamps {
                    Stamps::Wall(relation) => Line::through(&relation),
                    _ => Line::TICKS,
                },
            },
            recovery: parts.recovery,
            tidings: parts.tidings,
            broken: false,
            next_look: Instant::ZERO,
            counters,
            drops: scope.drops(),
        };
        this.rq.refill(pool);
        this.rq.publish(&mut this.cq);
        this
    }

    /// What is not done for every burst: starts the queue anew after an error, and relates the NIC's clock to the wall.
    #[cold]
    fn attend(&mut self, pool: &Pool, now: Instant) {
        if self.broken {
            self.recover(pool, now);
        }
        self.next_look = match (self.broken, self.is_related) {
            (true, _) => now,
            (false, true) => now + LOOK_EVERY,
            (false, false) => Instant::MAX,
        };
        if self.is_related
            && let Some(relation) = self.tidings.relation()
        {
            self.teller.line = Line::through(&relation);
        }
    }

    /// Frames into `burst`, `limit` at most, whatever they need.
    #[inline]
    fn take(&mut self, burst: &mut Burst, limit: u32, pool: &Pool) {
        let (mut left, mut others) = (limit, OTHERS_MAX);
        while left > 0 && !self.broken {
            let next = self.cq.look();
            if next == Next::Nothing && self.session.left() == 0 {
                return;
            }
            if !self.rq.is_full() {
                self.refill(pool);
            }
            let taken = match self.session.left() == 0 && next != Next::Title {
                true => self.take_run(burst, left, pool),
                false => self.take_session(burst, left, pool),
            };
            left -= taken;
            if taken > 0 || self.broken {
                continue;
            }
            match self.take_one(burst) {
                Step::Frame => left -= 1,
                Step::Other if others > 0 => others -= 1,
                Step::Other | Step::Dry => return,
            }
        }
    }

    #[cold]
    fn refill(&mut self, pool: &Pool) {
        if pool.available() > 0 {
            self.rq.refill(pool);
        }
        if !self.rq.is_full() {
            self.counters.refill_starved.inc();
        }
    }

    /// The frames that follow each other in the plainest way, `limit` at most, each in one buffer. How many.
    #[inline]
    fn take_run(&mut self, burst: &mut Burst, limit: u32, pool: &Pool) -> u32 {
        match (self.is_usual, self.voice) {
            (true, voice::QUIET) => self.take_run_of::<USUAL_CQE, USUAL_WQE, { voice::QUIET }>(burst, limit, pool),
            (true, voice::HASHES) => self.take_run_of::<USUAL_CQE, USUAL_WQE, { voice::HASHES }>(burst, limit, pool),
            (true, voice::TICKS) => self.take_run_of::<USUAL_CQE, USUAL_WQE, { voice::TICKS }>(burst, limit, pool),
            (true, _) => self.take_run_of::<USUAL_CQE, USUAL_WQE, { voice::REAL_TIME }>(burst, limit, pool),
            (false, voice::REAL_TIME) => self.take_run_of::<ANY, ANY, { voice::REAL_TIME }>(burst, limit, pool),
            (false, _) => self.take_run_of::<ANY, ANY, { voice::TICKS }>(burst, limit, pool),
        }
    }

    #[inline(never)]
    fn take_run_of<const CQE: u32, const WQE: u32, const VOICE: u8>(
        &mut self,
        burst: &mut Burst,
        limit: u32,
        pool: &Pool,
    ) -> u32 {
        let limit = self.rq.exchangeable(limit, pool);
        let cqes = self.cq.frames::<CQE>(limit, self.rq.idx(), self.rq.mask());
        if cqes.count() == 0 {
            return 0;
        }
        let count = cqes.count() as u32;
        let told = || {
            let tell = self.teller.tell::<VOICE>();
            move |idx| {
                let cqe = Cqe(cqes.entry_of::<CQE>(idx));
                let mut told = tell(cqe);
                if cqe.is_tunneled() {
                    // Not for this loop: a frame that is too long ends it.
                    rare();
                    told.len = u32::MAX;
                }
                told
            }
        };
        let (frames, bytes) = if VOICE == voice::QUIET {
            let brief = || {
                let told = told();
                move |idx| Brief(told(idx))
            };
            self.rq.exchange::<WQE, _, _>(pool, count, burst, brief)
        } else {
            self.rq.exchange::<WQE, _, _>(pool, count, burst, told)
        };
        self.cq.consume_many(frames);
        self.counters.bytes.add(bytes);
        frames
    }

    /// The frames of a compressed session, `limit` at most, each in one buffer. How many.
    #[inline]
    fn take_session(&mut self, burst: &mut Burst, limit: u32, pool: &Pool) -> u32 {
        match (self.is_usual, self.session.has_hashes()) {
            (true, true) => self.take_session_of::<USUAL_WQE, true>(burst, limit, pool),
            (true, false) => self.take_session_of::<USUAL_WQE, false>(burst, limit, pool),
            (false, true) => self.take_session_of::<ANY, true>(burst, limit, pool),
            (false, false) => self.take_session_of::<ANY, false>(burst, limit, pool),
        }
    }

    #[inline(never)]
    fn take_session_of<const WQE: u32, const HASHES: bool>(
        &mut self,
        burst: &mut Burst,
        limit: u32,
        pool: &Pool,
    ) -> u32 {
        if self.session.left() == 0 && !(self.compresses && self.open_session()) {
            return 0;
        }
        let limit = self.rq.exchangeable(limit.min(self.session.left() as u32), pool);
        if limit == 0 {
            return 0;
        }
        let told = || self.session.told::<HASHES>(limit as usize);
        let (frames, bytes) = self.rq.exchange::<WQE, _, _>(pool, limit, burst, told);
        self.session.advance(frames as usize);
        self.counters.bytes.add(bytes);
        frames
    }

    /// The oldest entry, whatever it is.
    #[inline(never)]
    fn take_one(&mut self, burst: &mut Burst) -> Step {
        if let Some(alike) = self.session.next() {
            let taken = self.rq.take(alike);
            return self.deliver(taken, burst);
        }
        let Some(cqe) = self.cq.next() else { return Step::Dry };
        match cqe.opcode() {
            Opcode::Received => self.take_frame(burst),
            Opcode::ReceiveFailed => {
                let syndrome = cqe.syndrome();
                self.cq.consume();
                self.fail(syndrome)
            }
            Opcode::Sent | Opcode::SendFailed | Opcode::Other(_) => {
                self.cq.consume();
                self.drops.count(Mlx5RxDrop::OpcodeUnexpected);
                Step::Other
            }
        }
    }

    /// What a CQE tells that is looked at alone.
    #[inline]
    fn tell(&self, cqe: Cqe<'_>) -> Told {
        let told = match self.voice {
            voice::REAL_TIME => self.teller.tell::<{ voice::REAL_TIME }>()(cqe),
            _ => self.teller.tell::<{ voice::TICKS }>()(cqe),
        };
        if cqe.is_tunneled() { Told { known: self.teller.kinds.of_tunnel(cqe.headers()), ..told } } else { told }
    }

    /// Whether a CQE tells of the oldest WQE that the NIC has.
    #[inline]
    fn is_of_oldest(&self, cqe: Cqe<'_>) -> bool {
        (cqe.wqe_counter() ^ self.rq.idx() as u16) & self.rq.mask() == 0 && self.rq.outstanding() > 0
    }

    /// Reads the session whose title is the oldest entry. Otherwise it is not there, or the queue is broken.
    #[inline(always)]
    fn open_session(&mut self) -> bool {
        let cqe = self.cq.oldest();
        if !self.is_of_oldest(cqe) {
            self.stop(Mlx5RxDrop::IndexUnexpected);
            return false;
        }
        let title = Told { hash: 0, ..self.tell(cqe) };
        let (mold, possible) = (self.rq.mold(&title), self.rq.outstanding());
        let opened = self.session.open(&mut self.cq, title.len, possible, mold);
        if opened.is_err() {
            self.stop(Mlx5RxDrop::SessionInvalid);
        }
        opened.is_ok()
    }

    /// The oldest entry tells of a frame.
    fn take_frame(&mut self, burst: &mut Burst) -> Step {
        let Some(cqe) = self.cq.next() else { return Step::Dry };
        if !self.is_of_oldest(cqe) {
            return self.stop(Mlx5RxDrop::IndexUnexpected);
        }
        if cqe.format() == Format::Plain {
            let taken = self.rq.take(self.tell(cqe));
            self.cq.consume();
            return self.deliver(taken, burst);
        }
        self.cq.consume();
        self.rq.skip();
        self.drops.count(Mlx5RxDrop::FormatUnexpected);
        Step::Other
    }

    /// What was taken of the oldest WQE.
    fn deliver(&mut self, taken: Option<Mbuf>, burst: &mut Burst) -> Step {
        match taken {
            Some(mbuf) => {
                self.counters.bytes.add(mbuf.len() as u64);
                burst.push(mbuf);
                Step::Frame
            }
            None => {
                self.drops.count(Mlx5RxDrop::LengthInvalid);
                Step::Other
            }
        }
    }

    /// A WQE came back in error, and with it the queue.
    fn fail(&mut self, syndrome: Syndrome) -> Step {
        let reason = match syndrome {
            Syndrome::LocalLength => Mlx5RxDrop::LocalLength,
            Syndrome::LocalQpOperation => Mlx5RxDrop::LocalQpOperation,
            Syndrome::LocalProtection => Mlx5RxDrop::LocalProtection,
            Syndrome::LocalAccess => Mlx5RxDrop::LocalAccess,
            Syndrome::Other(_) => Mlx5RxDrop::OtherSyndrome,
            Syndrome::Flushed => {
                self.counters.flushed.inc();
                self.set_broken();
                return Step::Other;
            }
        };
        self.stop(reason)
    }

    /// The NIC's ring is not ours any more.
    fn stop(&mut self, reason: Mlx5RxDrop) -> Step {
        self.drops.count(reason);
        self.set_broken();
        Step::Other
    }

    #[cold]
    fn set_broken(&mut self) {
        self.broken = true;
        self.next_look = Instant::ZERO;
    }

    /// Starts the queue anew after an error, where it is time for that.
    #[cold]
    fn recover(&mut self, pool: &Pool, now: Instant) {
        if !self.recovery.reset(now) {
            return;
        }
        self.clear(Mlx5RxDrop::QueueReset);
        // Buffers before frames: the other way round the first ones would find none.
        self.rq.refill(pool);
        self.broken = !self.recovery.ready();
        if !self.broken {
            self.rq.publish(&mut self.cq);
        }
    }

    /// Reads the CQ dry and sends all buffers home. The NIC has let go of both.
    fn clear(&mut self, reason: Mlx5RxDrop) {
        self.drops.count_many(reason, self.session.close() as u64);
        for _ in 0..self.cq.count() {
            let Some(cqe) = self.cq.next() else { break };
            match (cqe.opcode(), cqe.format()) {
                (Opcode::Received, Format::Compressed) if self.compresses => {
                    let (count, possible) = (cqe.byte_count(), self.cq.count());
                    if self.session.open(&mut self.cq, count, possible, self.rq.mold(&Told::default())).is_err() {
                        self.cq.consume();
                    }
                    self.drops.count_many(reason, self.session.close() as u64);
                    continue;
                }
                (Opcode::Received, _) => self.drops.count(reason),
                (Opcode::ReceiveFailed, _) => self.counters.flushed.inc(),
                _ => self.drops.count(Mlx5RxDrop::OpcodeUnexpected),
            }
            self.cq.consume();
        }
        self.rq.reset();
        // libmlx5 has cleaned the CQ behind our back, and left its own idea of the index there.
        self.cq.publish_again();
    }
}

/// Says that a branch is hardly ever taken.
#[cold]
#[inline(always)]
fn rare() {}

impl Teller {
    /// What a CQE tells of a frame; of a title the length is the count of its frames.
    #[inline(always)]
    fn tell<const VOICE: u8>(&self) -> impl Fn(Cqe<'_>) -> Told + '_ {
        let (kinds, line) = (self.kinds.view(), self.line);
        move |cqe| {
            let headers = cqe.headers();
            let timestamp = match VOICE {
                voice::TICKS => line.at(cqe.timestamp()),
                voice::REAL_TIME => real_time(cqe.timestamp()),
                _ => 0,
            };
            Told {
                len: cqe.byte_count(),
                known: kinds.of(headers),
                timestamp,
                flow_tag: cqe.flow_tag(),
                hash: if VOICE == voice::QUIET { 0 } else { cqe.rx_hash() },
                vlan: headers as u16,
            }
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
        self.take(burst, limit, pool);
        if !self.broken {
            self.rq.publish(&mut self.cq);
        }
        let received = burst.len() - before;
        self.counters.frames.add(received as u64);
        received
    }

    fn state(&self) -> RxState {
        self.tidings.state()
    }

    /// Some system calls: for the link, for errors that no CQE tells of, and for the NIC's count of frames that found no buffer.
    fn refresh_counters(&mut self) {
        let Refreshed { out_of_buffer, has_failed } = self.tidings.refresh();
        self.drops.count_many(Mlx5RxDrop::OutOfBuffer, out_of_buffer);
        if has_failed {
            self.set_broken();
        }
    }
}

impl Drop for Mlx5Rx {
    fn drop(&mut self) {
        self.recovery.close();
        self.refresh_counters();
        self.clear(Mlx5RxDrop::QueueClosed);
    }
}
