//! Completion queues: results of the sending and the receiving side become entries in the driver's
//! memory, and events for drivers that have armed.
//!
//! A completion is stamped when it is passed to the CQ. It is written at once, with two exceptions
//! that wait until the end of the step: a session of compressed entries is being collected, or a
//! hostile NIC delays it.

use super::arm::{Arming, Moderation};
use super::compress::Session;
use super::cqe;
use super::ring::CqRing;
use crate::hca::control::{CqCreated, CqEvents, CqRequest, Errno, Event, EventKind};
use crate::hca::counters::Counters;
use crate::hca::environment::{Clock, Dma, Environment, Unmapped};
use crate::hca::hostile::Chance;
use crate::hca::table::Table;
use crate::hca::{Completion, CompletionKind, Config, Hca};
use std::collections::VecDeque;

/// In a queue of more entries, 24-bit indices would not be unique modulo twice its size.
const ENTRIES_MAX: u32 = 1 << 22;

/// CQ numbers begin here: an arm register is read as empty where it is 0, so no number may be.
const NUMBER_FIRST: u32 = 0x400;

/// All completion queues.
pub(in crate::hca) struct Cqs {
    cqs: Table<Cq>,
    /// Raised and not taken yet, each with the handle of its queue.
    events: VecDeque<(u32, Event)>,
    /// Completions wait as a hostile NIC pleases.
    hostile: bool,
    /// Arm words are only looked at after an arm register was written.
    strict: bool,
    arm_rung: bool,
}

struct Cq {
    number: u32,
    ring: CqRing,
    arming: Arming,
    session: Option<Session>,
    real_time: bool,
    ignore_overrun: bool,
    channel: Option<i32>,
    user_handle: u64,
    /// The CQ overran, or its memory is gone: no more entries are written.
    dead: bool,
    /// Queues that complete here.
    users: u32,
    /// Events that were taken.
    told: CqEvents,
    /// Completions that a hostile NIC has not written yet, the oldest first, each with the number
    /// of steps that it still waits.
    held: Vec<(Completion, u64)>,
    held_steps: u32,
}

impl Cqs {
    pub(in crate::hca) fn new(config: &Config) -> Self {
        let hostile = config.hostility.as_ref().is_some_and(|hostility| hostility.completion_delay_max > 0);
        Self { cqs: Table::default(), events: VecDeque::new(), hostile, strict: config.strict, arm_rung: false }
    }

    /// A queue begins to complete to this CQ. EINVAL where there is none.
    pub(in crate::hca) fn hold(&mut self, cq: u32) -> Result<(), Errno> {
        self.cqs.get_mut(cq).ok_or(Errno(libc::EINVAL))?.users += 1;
        Ok(())
    }

    /// A queue that completed to this CQ went.
    pub(in crate::hca) fn release(&mut self, cq: u32) {
        if let Some(cq) = self.cqs.get_mut(cq) {
            cq.users = cq.users.saturating_sub(1);
        }
    }

    /// Whether completions arrive there: not where it overran.
    #[inline]
    pub(in crate::hca) fn is_alive(&self, cq: u32) -> bool {
        self.cqs.get(cq).is_some_and(|cq| !cq.dead)
    }

    /// Hands a completion to the CQ, which stamps it with the time and writes it now or, in hostile
    /// mode, later. A CQ that is full goes into error, with an event, and no byte is written.
    #[inline]
    pub(in crate::hca) fn complete(&mut self, handle: u32, completion: &Completion, environment: &Environment<'_>) {
        let Some(cq) = self.cqs.get_mut(handle).filter(|cq| !cq.dead) else { return };
        let timestamp = cq.timestamp(environment.clock);
        if self.hostile {
            cq.held.push((*completion, timestamp));
        } else if cq.put(completion, timestamp, environment).is_err() {
            self.die(handle);
        }
    }

    /// The queue of this number is reset or destroyed: its completions that are not written yet
    /// never will be.
    pub(in crate::hca) fn forget(&mut self, queue_number: u32) {
        for (_, cq) in self.cqs.iter_mut() {
            cq.held.retain(|(completion, _)| completion.queue_number != queue_number);
        }
    }

    /// The arm register of a UAR page was written (strict mode): `value << 32 | cqn`. The value
    /// must already be in the record. One register serves many queues and keeps only the last
    /// write, so a write announces the arm words of all queues.
    pub(in crate::hca) fn arm_register_written(&mut self, register: u64, dma: &dyn Dma, counters: &mut Counters) {
        self.arm_rung = true;
        let number = register as u32 & 0xff_ffff;
        let Some((_, cq)) = self.cqs.iter().find(|(_, cq)| cq.number == number) else {
            counters.strict_register_wrong += 1;
            return;
        };
        match cq.arming.word(dma) {
            Ok(word) if u64::from(word) == register >> 32 => {}
            _ => counters.strict_record_late += 1,
        }
    }

    /// Writes waiting completions, and raises the events that are due. Returns the number of both.
    pub(in crate::hca) fn end_step(
        &mut self,
        chance: &mut Chance,
        counters: &mut Counters,
        environment: &Environment<'_>,
    ) -> usize {
        let looks_at_arms = !self.strict || std::mem::take(&mut self.arm_rung);
        let now = environment.clock.cycles();
        let mut work = 0;
        for handle in 0..self.cqs.end() {
            let Some(cq) = self.cqs.get_mut(handle).filter(|cq| !cq.dead) else { continue };
            let written = cq.write_waiting(chance, environment);
            counters.cqes_compressed += cq.session.as_mut().map_or(0, Session::take_written);
            let due = written.and_then(|count| {
                work += count;
                cq.event_is_due(looks_at_arms, now, environment.dma)
            });
            match due {
                Ok(false) => {}
                Ok(true) => {
                    work += 1;
                    let event = Event { channel: cq.channel, element: cq.user_handle, kind: EventKind::Completion };
                    self.events.push_back((handle, event));
                }
                Err(Dead) => self.die(handle),
            }
        }
        work
    }

    /// The oldest event that was raised.
    pub(in crate::hca) fn take_event(&mut self) -> Option<Event> {
        let (handle, event) = self.events.pop_front()?;
        if let Some(cq) = self.cqs.get_mut(handle) {
            match event.kind {
                EventKind::Completion => cq.told.completion += 1,
                _ => cq.told.asynchronous += 1,
            }
        }
        Some(event)
    }

    #[cold]
    fn die(&mut self, handle: u32) {
        if let Some(cq) = self.cqs.get_mut(handle) {
            cq.dead = true;
            cq.held.clear();
            let event = Event { channel: None, element: cq.user_handle, kind: EventKind::CqError };
            self.events.push_back((handle, event));
        }
    }
}

/// The queue can take nothing more: it is full, or not in memory.
struct Dead;

impl From<Unmapped> for Dead {
    fn from(_: Unmapped) -> Self {
        Self
    }
}

impl Cq {
    /// Takes a slot and writes there, now or with its session.
    #[inline]
    fn put(&mut self, completion: &Completion, timestamp: u64, environment: &Environment<'_>) -> Result<(), Dead> {
        let index = match self.ring.advance(environment.dma)? {
            Some(index) => index,
            None if self.ignore_overrun => self.ring.take_next(),
            None => {
                // Entries that found room before belong to the driver.
                self.finish_session(environment.dma)?;
                return Err(Dead);
            }
        };
        self.note_entry(index, completion, timestamp, environment);
        if let Some(session) = &mut self.session {
            if session.join(index, completion, &self.ring) {
                return Ok(());
            }
            session.finish(&self.ring, environment.dma)?;
            if session.begin(index, completion, timestamp) {
                return Ok(());
            }
        }
        let entry = cqe::encode(completion, timestamp, self.ring.owner(index));
        Ok(self.ring.publish(index, &entry, environment.dma)?)
    }

    #[inline]
    fn note_entry(&mut self, index: u32, completion: &Completion, timestamp: u64, environment: &Environment<'_>) {
        if self.channel.is_none() {
            return;
        }
        let solicited = match completion.kind {
            CompletionKind::Sent { solicited, .. } => solicited,
            CompletionKind::Received(_) => false,
            CompletionKind::ReceivedMessage(message) => message.solicited,
            CompletionKind::SendError { .. } | CompletionKind::ReceiveError { .. } => true,
        };
        let now = if self.real_time { environment.clock.cycles() } else { timestamp };
        self.arming.note_entry(index.wrapping_add(1), solicited, now);
    }

    /// Writes completions that a hostile NIC has delayed, if their time has come, and the session
    /// of this step. Returns how many completions waited: while one does, there is work.
    fn write_waiting(&mut self, chance: &mut Chance, environment: &Environment<'_>) -> Result<usize, Dead> {
        let waiting = self.held.len();
        if waiting > 0 {
            if self.held_steps == 0 {
                self.held_steps = chance.completion_delay() + 1;
            }
            self.held_steps -= 1;
            if self.held_steps == 0 {
                self.write_held(environment)?;
            }
        }
        self.finish_session(environment.dma)?;
        Ok(waiting)
    }

    #[inline]
    fn finish_session(&mut self, dma: &dyn Dma) -> Result<(), Unmapped> {
        match &mut self.session {
            Some(session) => session.finish(&self.ring, dma),
            None => Ok(()),
        }
    }

    fn write_held(&mut self, environment: &Environment<'_>) -> Result<(), Dead> {
        let mut held = std::mem::take(&mut self.held);
        let written =
            held.drain(..).try_for_each(|(completion, timestamp)| self.put(&completion, timestamp, environment));
        self.held = held;
        written
    }

    #[inline]
    fn event_is_due(&mut self, looks_at_arm: bool, now: u64, dma: &dyn Dma) -> Result<bool, Dead> {
        if self.channel.is_none() {
            return Ok(false);
        }
        if looks_at_arm {
            self.arming.take_word(dma)?;
        }
        Ok(self.arming.take_event(self.ring.producer(), now))
    }

    #[inline]
    fn timestamp(&self, clock: &dyn Clock) -> u64 {
        if !self.real_time {
            return clock.cycles();
        }
        let ns = clock.unix_ns();
        ((ns / 1_000_000_000) << 32) | (ns % 1_000_000_000)
    }
}

impl Hca {
    /// Makes a completion queue. EINVAL for an impossible geometry, EOPNOTSUPP for a feature that
    /// this NIC lacks, EFAULT where the ring or the doorbell record is not in memory.
    pub fn create_cq(&mut self, request: &CqRequest, dma: &dyn Dma) -> Result<CqCreated, Errno> {
        check_geometry(request)?;
        let compresses = request.compression.is_some();
        if compresses && (!self.config.cqe_compression || request.entry_len != 64) {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        let arming = check_mapped(request, dma).map_err(|Unmapped| Errno(libc::EFAULT))?;
        let handle = self.cqs.cqs.insert(Cq {
            number: 0,
            ring: CqRing::new(request),
            arming,
            session: request.compression.map(Session::new),
            real_time: request.real_time,
            ignore_overrun: request.ignore_overrun,
            channel: request.channel,
            user_handle: request.user_handle,
            dead: false,
            users: 0,
            told: CqEvents::default(),
            held: Vec::new(),
            held_steps: 0,
        });
        let number = NUMBER_FIRST + handle;
        if let Some(cq) = self.cqs.cqs.get_mut(handle) {
            cq.number = number;
        }
        Ok(CqCreated { handle, number })
    }

    /// Destroys a completion queue; from now on its memory is not written. EBUSY while a queue
    /// completes there. Returns the numbers of events that were taken; events that were only raised
    /// are dropped.
    pub fn destroy_cq(&mut self, handle: u32) -> Result<CqEvents, Errno> {
        match self.cqs.cqs.get(handle) {
            None => return Err(Errno(libc::EINVAL)),
            Some(cq) if cq.users > 0 => return Err(Errno(libc::EBUSY)),
            Some(_) => {}
        }
        self.cqs.events.retain(|(of, _)| *of != handle);
        Ok(self.cqs.cqs.remove(handle).map_or_else(CqEvents::default, |cq| cq.told))
    }

    /// Moderates events: raises one per `count` completions, or when a completion is `period`
    /// microseconds old. A 0 in either disables moderation.
    pub fn modify_cq(&mut self, handle: u32, count: u16, period_us: u16) -> Result<(), Errno> {
        let cq = self.cqs.cqs.get_mut(handle).ok_or(Errno(libc::EINVAL))?;
        cq.arming.moderate(Moderation { count, period_us });
        Ok(())
    }
}

fn check_geometry(request: &CqRequest) -> Result<(), Errno> {
    let CqRequest { entries, ring, doorbell, entry_len, .. } = *request;
    let ring_len = u64::from(entries) * u64::from(entry_len);
    let is_possible = entries.is_power_of_two()
        && entries <= ENTRIES_MAX
        && matches!(entry_len, 64 | 128)
        && (entry_len == 128 || !request.pad_128)
        && ring.is_multiple_of(64)
        && doorbell.is_multiple_of(8)
        && ring.checked_add(ring_len).is_some()
        && doorbell.checked_add(8).is_some();
    if is_possible { Ok(()) } else { Err(Errno(libc::EINVAL)) }
}

/// Touches both ends of the ring, and arms nothing.
fn check_mapped(request: &CqRequest, dma: &dyn Dma) -> Result<Arming, Unmapped> {
    let ring_len = u64::from(request.entries) * u64::from(request.entry_len);
    dma.read(request.ring, &mut [0; 1])?;
    dma.read(request.ring + ring_len - 1, &mut [0; 1])?;
    dma.load_be32(request.doorbell)?;
    Arming::new(request.doorbell + 4, dma)
}

#[cfg(test)]
mod tests;
