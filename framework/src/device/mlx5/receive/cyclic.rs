//! From the CQEs of a cyclic ring to mbufs, without a copy: each mbuf is made of the buffer that
//! holds the frame.
//!
//! Nearly all frames come in runs: consecutive plain CQEs, or a compressed session, with each frame
//! in one buffer. A loop specialized for the fields of these CQEs handles them. All other CQEs are
//! handled one at a time.

use super::rq;
use super::rq::Rq;
use crate::device::mlx5::completion::cq;
use crate::device::mlx5::completion::cqe::{Cqe, Format};
use crate::device::mlx5::completion::cqe_parser::fields;
use crate::device::mlx5::completion::reader::{CqReader, Mlx5RxDrop, NextEntry, OTHERS_MAX, Step};
use crate::device::mlx5::ring::ANY;
use crate::mem::{Burst, Pool, RxMeta, RxMetaMinimal};

/// Maximum number of vacant WQEs refilled per turn, at some 20 ns each: after an exhausted pool has
/// recovered, a long ring must not keep the worker from its other work. More than a burst, so that
/// the ring fills however fast frames arrive.
const REFILL_MAX: u32 = 64;

/// Receives up to `limit` frames of any kind into `burst`.
#[inline]
pub(crate) fn take(reader: &mut CqReader, rq: &mut Rq, burst: &mut Burst, limit: u32, pool: &Pool) {
    let (mut left, mut others, mut refills) = (limit, OTHERS_MAX, REFILL_MAX);
    while left > 0 && !reader.is_broken() {
        // Refills even if no frame has arrived: a ring that has run dry would never receive one.
        if !rq.is_full() && refills > 0 {
            refills = refill(reader, rq, pool, refills);
        }
        let Some(coming) = reader.look() else { return };
        let taken = match coming {
            NextEntry::Entry => take_run(reader, rq, burst, left, pool),
            NextEntry::Session => take_session(reader, rq, burst, left, pool),
        };
        left -= taken;
        if taken > 0 || reader.is_broken() {
            continue;
        }
        match take_one(reader, rq, burst) {
            Step::Frame => left -= 1,
            Step::Other if others > 0 => others -= 1,
            Step::Other | Step::Dry => return,
        }
    }
}

/// Posts buffers in at most `limit` vacant WQEs. Returns how many more may be tried in this turn:
/// none once the pool was found empty.
#[cold]
fn refill(reader: &mut CqReader, rq: &mut Rq, pool: &Pool, limit: u32) -> u32 {
    let posted = if pool.available() > 0 { rq.refill(pool, limit) } else { 0 };
    if rq.is_full() || posted == limit {
        return limit - posted;
    }
    reader.count_nombuf();
    0
}

/// Receives a run of at most `limit` plain frames, each in one buffer. Returns how many.
#[inline]
fn take_run(reader: &mut CqReader, rq: &mut Rq, burst: &mut Burst, limit: u32, pool: &Pool) -> u32 {
    use fields::{HASHES, NONE, REAL_TIME, TICKS};
    const CQE: u32 = cq::USUAL_SHIFT;
    const WQE: u32 = rq::USUAL_SHIFT;
    match (is_usual(reader, rq), reader.parser.fields()) {
        (true, NONE) => take_run_of::<CQE, WQE, NONE>(reader, rq, burst, limit, pool),
        (true, HASHES) => take_run_of::<CQE, WQE, HASHES>(reader, rq, burst, limit, pool),
        (true, TICKS) => take_run_of::<CQE, WQE, TICKS>(reader, rq, burst, limit, pool),
        (true, _) => take_run_of::<CQE, WQE, REAL_TIME>(reader, rq, burst, limit, pool),
        (false, REAL_TIME) => take_run_of::<ANY, ANY, REAL_TIME>(reader, rq, burst, limit, pool),
        (false, _) => take_run_of::<ANY, ANY, TICKS>(reader, rq, burst, limit, pool),
    }
}

/// Whether CQEs and WQEs have the usual strides, so that the loop has them as constants.
#[inline(always)]
fn is_usual(reader: &CqReader, rq: &Rq) -> bool {
    reader.cq.shift() == cq::USUAL_SHIFT && rq.shift() == rq::USUAL_SHIFT
}

#[inline(never)]
fn take_run_of<const CQE: u32, const WQE: u32, const FIELDS: u8>(
    reader: &mut CqReader,
    rq: &mut Rq,
    burst: &mut Burst,
    limit: u32,
    pool: &Pool,
) -> u32 {
    let limit = rq.exchangeable(limit, pool);
    let cqes = reader.cq.frames::<CQE>(limit, rq.idx(), rq.mask());
    if cqes.count() == 0 {
        return 0;
    }
    let arrivals = || {
        let parse = reader.parser.parse_with::<FIELDS>();
        move |idx| {
            let cqe = Cqe(cqes.entry_of::<CQE>(idx));
            let mut meta = parse(cqe);
            if cqe.is_tunneled() {
                // A frame that is too long ends this loop.
                rare();
                meta.len = u32::MAX;
            }
            meta
        }
    };
    let minimal = || {
        let meta_at = arrivals();
        move |idx| RxMetaMinimal(meta_at(idx))
    };
    let count = cqes.count() as u32;
    let (frames, bytes) = match FIELDS {
        fields::NONE => rq.exchange::<WQE, _, _>(pool, count, burst, minimal),
        _ => rq.exchange::<WQE, _, _>(pool, count, burst, arrivals),
    };
    reader.cq.consume_many(frames);
    reader.count_bytes(bytes);
    frames
}

/// Marks a branch as cold.
#[cold]
#[inline(always)]
fn rare() {}

/// Receives at most `limit` frames of a compressed session, each in one buffer. Returns how many.
#[inline]
fn take_session(reader: &mut CqReader, rq: &mut Rq, burst: &mut Burst, limit: u32, pool: &Pool) -> u32 {
    const WQE: u32 = rq::USUAL_SHIFT;
    match (is_usual(reader, rq), reader.session.has_hashes()) {
        (true, true) => take_session_of::<WQE, true>(reader, rq, burst, limit, pool),
        (true, false) => take_session_of::<WQE, false>(reader, rq, burst, limit, pool),
        (false, true) => take_session_of::<ANY, true>(reader, rq, burst, limit, pool),
        (false, false) => take_session_of::<ANY, false>(reader, rq, burst, limit, pool),
    }
}

#[inline(never)]
fn take_session_of<const WQE: u32, const HASHES: bool>(
    reader: &mut CqReader,
    rq: &mut Rq,
    burst: &mut Burst,
    limit: u32,
    pool: &Pool,
) -> u32 {
    if reader.session.left() == 0 && !open_session(reader, rq) {
        return 0;
    }
    let limit = rq.exchangeable(limit.min(reader.session.left() as u32), pool);
    if limit == 0 {
        return 0;
    }
    let arrivals = || reader.session.metas::<HASHES>(limit as usize);
    let (frames, bytes) = rq.exchange::<WQE, _, _>(pool, limit, burst, arrivals);
    reader.session.advance(frames as usize);
    reader.count_bytes(bytes);
    frames
}

/// Opens the session whose title is the oldest CQE. If that is impossible the queue is broken.
#[inline(always)]
fn open_session(reader: &mut CqReader, rq: &Rq) -> bool {
    let cqe = reader.cq.oldest();
    if !is_of_oldest(cqe, rq) {
        reader.stop(Mlx5RxDrop::IndexUnexpected);
        return false;
    }
    let title = RxMeta { hash: 0, ..reader.parser.parse(cqe) };
    let opened = reader.session.open(&mut reader.cq, title.len, rq.outstanding());
    if opened.is_err() {
        reader.stop(Mlx5RxDrop::SessionInvalid);
        return false;
    }
    reader.session.set_title(rq.template(&title));
    true
}

/// Whether a CQE is for the oldest WQE that the NIC owns.
#[inline]
fn is_of_oldest(cqe: Cqe<'_>, rq: &Rq) -> bool {
    (cqe.wqe_counter() ^ rq.idx() as u16) & rq.mask() == 0 && rq.outstanding() > 0
}

/// Processes the oldest CQE, of any kind.
#[inline(never)]
fn take_one(reader: &mut CqReader, rq: &mut Rq, burst: &mut Burst) -> Step {
    if let Some(alike) = reader.session.next() {
        let frame = rq.take(alike).ok_or(Mlx5RxDrop::LengthInvalid);
        return reader.deliver(frame, burst);
    }
    if let Some(step) = reader.take_other() {
        return step;
    }
    let cqe = reader.cq.oldest();
    if !is_of_oldest(cqe, rq) {
        return reader.stop(Mlx5RxDrop::IndexUnexpected);
    }
    let frame = match cqe.format() {
        Format::Plain => rq.take(reader.parser.parse(cqe)).ok_or(Mlx5RxDrop::LengthInvalid),
        Format::Compressed | Format::Inline => {
            rq.skip();
            Err(Mlx5RxDrop::FormatUnexpected)
        }
    };
    reader.cq.consume();
    reader.deliver(frame, burst)
}
