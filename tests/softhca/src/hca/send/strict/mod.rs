//! Strict mode: a WQE is fetched only after a UAR register was written for it, and how it was
//! written is checked (mlx5.md 2.7). A driver that forgets to ring, rings before the doorbell
//! record is written, names another WQE or copies the wrong bytes runs on hardware by luck at best;
//! here it gets an error CQE, a counter and a sentence.
//!
//! A write to a register releases the WQEs up to the one that it names, the last of a post. The
//! record may be ahead of that, because the driver has begun with the next post.
//!
//! The registers are memory that the driver may write while they are read, and one write may hide
//! the one before. So only writes that cannot be correct are punished:
//! - a register that names an executed WQE was read late (a later write was read first);
//! - BlueFlame bytes are compared only if no doorbell was missed since the last read; zeros, and
//!   bytes of the previous WQE of this half, count as not written;
//! - where several queues share a register, a write for one of them lets the others go on, because
//!   it may hide theirs;
//! - a doorbell that was written before a queue was reset, and not read, is ignored.

use super::fault::Fault;
use super::sq::{Sq, SqState};
use super::wqe::WQEBB_LEN;
use crate::hca::memory::{HALF_LEN, HALVES, Ring, Uars};
use crate::hca::qp::Qps;
use crate::hca::work::Work;

/// Looks at all registers. Returns how many were written.
pub(in crate::hca) fn look_at_doorbells(uars: &mut Uars, qps: &mut Qps, work: &mut Work<'_, '_>) -> usize {
    let mut seen = 0;
    for slot in uars.slots() {
        if let Some(register) = uars.take_arm(slot, work.environment.dma) {
            seen += 1;
            work.cqs.arm_register_written(register, work.environment.dma, work.counters);
        }
        if uars.users(slot) == 0 {
            continue;
        }
        for half in 0..HALVES {
            if let Some(mut ring) = uars.take(slot, half, work.environment.dma) {
                seen += 1;
                work.counters.doorbells += 1;
                let unseen = take_ring(&mut ring, Register { slot, number: half / 2 }, qps, work);
                uars.remember(slot, half, &ring);
                if unseen == Unseen::Perhaps {
                    uars.wipe(slot, work.environment.dma);
                }
            }
        }
    }
    for (_, sq) in qps.sqs.iter_mut() {
        sq.was_reset = false;
    }
    seen
}

/// Whether another write may be hidden by the one that was read: then the registers may hold bytes
/// of the hidden write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unseen {
    Nothing,
    Perhaps,
}

/// A register of a page: two halves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::hca) struct Register {
    slot: u32,
    number: usize,
}

/// Finds the queue that a register names, and lets it go on or punishes it.
fn take_ring(ring: &mut Ring, register: Register, qps: &mut Qps, work: &mut Work<'_, '_>) -> Unseen {
    let number = (ring.control >> 8) as u32 & 0xff_ffff;
    let others = release_others(register, number, qps, work);
    let Some(sq) = qps.slot_of(number).and_then(|at| qps.sqs.get_mut(at)) else {
        work.counters.strict_register_wrong += 1;
        work.diagnoses.add(|| format!("a UAR register names send queue {number:#x}, which there is not"));
        return Unseen::Perhaps;
    };
    if sq.uar != register.slot {
        work.counters.strict_register_wrong += 1;
        work.diagnoses.add(|| format!("send queue {number:#x} was rung on a UAR page that is not its own"));
        return Unseen::Perhaps;
    }
    sq.register = Some(register);
    let checked = match sq.state {
        SqState::Ready => check(sq, ring, others, work),
        SqState::Error => return Unseen::Perhaps, // what is posted is flushed, rung or not
        SqState::Reset if sq.was_reset => return Unseen::Perhaps,
        SqState::Reset => {
            work.counters.strict_register_wrong += 1;
            work.diagnoses.add(|| format!("send queue {number:#x} was rung before its QP was ready to send"));
            return Unseen::Perhaps;
        }
    };
    match checked {
        Ok(unseen) => unseen,
        Err(_) if sq.was_reset => Unseen::Perhaps,
        Err(fault) => {
            match fault {
                Fault::RecordLate { .. } => work.counters.strict_record_late += 1,
                Fault::BlueFlameDiffers { .. } => work.counters.strict_blueflame_differs += 1,
                _ => work.counters.strict_register_wrong += 1,
            }
            sq.doorbell_fault = sq.doorbell_fault.or(Some(fault));
            Unseen::Perhaps
        }
    }
}

/// Checks a register against doorbell record and ring, and advances the position up to which the
/// queue may fetch.
fn check(sq: &mut Sq, ring: &mut Ring, others: Unseen, work: &mut Work<'_, '_>) -> Result<Unseen, Fault> {
    let dma = work.environment.dma;
    let index = (ring.control >> 40) as u16;
    let units = ring.control as u8;
    let wqebbs = if units == 0 { 16 } else { u16::from(units).div_ceil(4) };
    let end = index.wrapping_add(wqebbs);
    let posted = sq.first_word(index, dma).ok_or(Fault::RingUnmapped)?;
    let wrong = Err(Fault::RegisterWrong { register: ring.control, ring: posted });

    let (ahead, behind) = (end.wrapping_sub(sq.ci), sq.ci.wrapping_sub(end));
    if u32::from(ahead) > sq.wqebb_count || ahead == 0 {
        if u32::from(behind) > sq.wqebb_count {
            return wrong;
        }
        work.counters.doorbells_late += 1;
        return Ok(Unseen::Perhaps);
    }
    let record = sq.record(dma).ok_or(Fault::RingUnmapped)?;
    if record.wrapping_sub(sq.ci) < ahead {
        return Err(Fault::RecordLate { record, rung: end });
    }
    // The WQE was not executed yet, so the driver may not have changed it since.
    if index.wrapping_sub(sq.ci) >= ahead || posted != ring.control {
        return wrong;
    }
    let len = (usize::from(wqebbs) * WQEBB_LEN).min(HALF_LEN);
    sq.read_ring(index, &mut ring.posted[..len], dma);
    let is_next = index == sq.rung;
    if ahead > sq.rung.wrapping_sub(sq.ci) {
        sq.rung = end;
    }
    if !is_next || others == Unseen::Perhaps || ring.moved {
        return Ok(Unseen::Perhaps);
    }
    if ring.is_blueflame() {
        work.counters.doorbells_blueflame += 1;
        if let Some(offset) = first_difference(ring) {
            return Err(Fault::BlueFlameDiffers { offset });
        }
    }
    Ok(Unseen::Nothing)
}

/// The first position at which BlueFlame carried bytes that are neither the WQE nor left over;
/// zeros may be bytes that were not written yet.
fn first_difference(ring: &Ring) -> Option<usize> {
    (8..HALF_LEN).step_by(8).find(|at| {
        let carried = &ring.bytes[*at..at + 8];
        carried != [0; 8] && carried != &ring.posted[*at..at + 8] && carried != &ring.before[*at..at + 8]
    })
}

/// Lets other queues go on whose doorbell this write may have hidden: they have posted WQEs, and
/// ring on this register or an unknown one.
fn release_others(register: Register, number: u32, qps: &mut Qps, work: &Work<'_, '_>) -> Unseen {
    let mut unseen = Unseen::Nothing;
    for (_, sq) in qps.sqs.iter_mut() {
        let rings_here = sq.uar == register.slot && sq.register.is_none_or(|known| known == register);
        if sq.number == number || !rings_here || sq.state != SqState::Ready {
            continue;
        }
        if let Some(record) = sq.record(work.environment.dma).filter(|record| *record != sq.rung) {
            sq.rung = record;
            unseen = Unseen::Perhaps;
        }
    }
    unseen
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod threads;
