//! A sending queue: reads its doorbell record, fetches one WQE after the other, has it executed and
//! completes it.
//!
//! ```text
//!   ci: next to fetch                          record: what the driver posted
//!   |                                          |
//!   v  wqe   wqe       wqe wqe                 v
//!   [..][..][........][..][..]                        positions count WQEBBs without end, 16 bits
//! ```
//!
//! After a failure the queue is in error: the WQE completes with its syndrome, all later ones with
//! "flushed" (mlx5.md 2.9), until the QP goes to RESET.

use super::fault::Fault;
use super::pace::Pace;
use super::strict::Register;
use super::transmit::Transmitter;
use super::wqe::{CompletionMode, Control, WQEBB_LEN, WqePosition, fetch_wrapped, opcode};
use crate::hca::control::{EventKind, QpRequest, QpState, SqRing};
use crate::hca::environment::Dma;
use crate::hca::rdma::Requester;
use crate::hca::work::Work;
use crate::hca::{Completion, CompletionKind, Syndrome};

/// A ring of send WQEs.
pub(in crate::hca) struct Sq {
    /// Its number, 24 bits: control segments and registers name it by this.
    pub(in crate::hca) number: u32,
    /// Handle of its QP.
    pub(in crate::hca) qp: u32,
    /// RDMA: the slot of the endpoint that sends its messages.
    pub(in crate::hca) endpoint: Option<u32>,
    pub(in crate::hca) cq: u32,
    /// The slot of the UAR page that it rings on.
    pub(in crate::hca) uar: u32,
    pub(in crate::hca) state: SqState,
    pub(in crate::hca) pace: Pace,
    pub(in crate::hca) wqebb_count: u32,
    pub(in crate::hca) ring: u64,
    /// Position of the next WQE.
    pub(in crate::hca) ci: u16,
    /// Strict mode: how far UAR registers were written for.
    pub(in crate::hca) rung: u16,
    /// Strict mode: the register that it rang on last.
    pub(in crate::hca) register: Option<Register>,
    /// Strict mode: the queue was reset since the registers were last read, so they may hold
    /// earlier doorbells.
    pub(in crate::hca) was_reset: bool,
    /// Strict mode: a mistake at the doorbell, which the next step punishes.
    pub(super) doorbell_fault: Option<Fault>,
    /// The first error was reported: WQEs that request only that report are flushed without a
    /// completion.
    error_reported: bool,
    doorbell: u64,
    pd: u32,
    user_index: u32,
    signal_all: bool,
}

/// The states of a sending queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::hca) enum SqState {
    /// Nothing.
    Reset,
    /// Sends.
    Ready,
    /// Completes everything as flushed.
    Error,
}

impl Sq {
    /// A queue in reset; number and QP are still to be filled in.
    pub(in crate::hca) fn new(request: &QpRequest, ring: &SqRing, uar: u32) -> Self {
        Self {
            number: 0,
            qp: 0,
            endpoint: None,
            cq: ring.cq,
            uar,
            state: SqState::Reset,
            pace: Pace::default(),
            wqebb_count: ring.wqebb_count,
            ring: ring.ring,
            ci: 0,
            rung: 0,
            register: None,
            was_reset: false,
            doorbell_fault: None,
            error_reported: false,
            doorbell: ring.doorbell,
            pd: request.pd,
            user_index: request.user_index,
            signal_all: request.signal_all,
        }
    }

    /// Back to the beginning of the ring. The doorbell record is the driver's to clear.
    pub(in crate::hca) fn reset(&mut self) {
        self.was_reset |= self.state != SqState::Reset;
        self.state = SqState::Reset;
        self.pace = Pace::default();
        (self.ci, self.rung) = (0, 0);
        self.doorbell_fault = None;
        self.error_reported = false;
    }

    /// A QP whose sending side failed, and only that, sends again.
    pub(in crate::hca) fn recover(&mut self, state: QpState) {
        if state == QpState::ReadyToSend && self.state == SqState::Error {
            self.state = SqState::Ready;
            self.error_reported = false;
        }
    }

    /// The doorbell record: the position after the last WQE that the driver posted. `None` where it
    /// is not mapped.
    pub(in crate::hca) fn record(&self, dma: &dyn Dma) -> Option<u16> {
        // Drivers may leave upper bits set (mlx5.md 2.1).
        dma.load_be32(self.doorbell).ok().map(|record| record as u16)
    }

    /// Executes or flushes WQEs until `budget` frames went, the wire is busy, or all is done. WQEs
    /// of RDMA are given to their `requester` instead. Returns how many frames and WQEs it were.
    pub(in crate::hca) fn run(
        &mut self,
        budget: usize,
        mut requester: Option<&mut Requester>,
        transmitter: &mut Transmitter,
        work: &mut Work<'_, '_>,
    ) -> usize {
        if self.state == SqState::Reset || self.wqebb_count == 0 {
            return 0;
        }
        let Some(record) = self.record(work.environment.dma) else {
            return self.give_up(Fault::RingUnmapped, work);
        };
        let ahead = record.wrapping_sub(self.ci);
        if ahead == 0 && self.doorbell_fault.is_none() {
            return 0;
        }
        if !work.cqs.is_alive(self.cq) {
            return self.give_up(Fault::CqDead, work);
        }
        let mut done = 0;
        let beyond = Fault::RecordBeyondRing { ahead, wqebb_count: self.wqebb_count };
        let is_beyond = u32::from(ahead) > self.wqebb_count;
        if let Some(doorbell_fault) =
            self.doorbell_fault.take().or(is_beyond.then_some(beyond)).filter(|_| self.state == SqState::Ready)
        {
            done += self.fail(doorbell_fault, opcode::NOP, record, requester.as_deref_mut(), work);
        }
        while done < budget {
            let moved = match self.state {
                SqState::Reset => 0,
                SqState::Ready => self.execute_next(record, requester.as_deref_mut(), transmitter, work),
                SqState::Error => self.flush_next(record, transmitter, work),
            };
            if moved == 0 {
                break;
            }
            done += moved;
        }
        done
    }

    /// One WQE, if it may go now.
    fn execute_next(
        &mut self,
        record: u16,
        requester: Option<&mut Requester>,
        transmitter: &mut Transmitter,
        work: &mut Work<'_, '_>,
    ) -> usize {
        let limit = if work.config.strict { self.rung } else { record };
        if self.ci == limit || transmitter.is_busy() || requester.as_ref().is_some_and(|requester| requester.is_full())
        {
            return 0;
        }
        if self.pace.is_limited() && !self.pace.is_due(work.environment.clock.cycles()) {
            return 0;
        }
        let control = match transmitter.scratch.fetch(&self.place(record), work.environment.dma) {
            Ok(control) => control,
            // The WQE's length is not known, so all posted blocks count as one WQE.
            Err(fault) => return self.fail(fault, transmitter.scratch.bytes[3], record, requester, work),
        };
        let next = self.ci.wrapping_add(control.wqebbs);
        if work.chance.send_fails() {
            return self.fail(Fault::BadLuck, control.opcode, next, requester, work);
        }
        if let Some(requester) = requester {
            requester.post(self, &control, &transmitter.scratch, work);
            self.ci = next;
            return 1;
        }
        match transmitter.execute(&control, self.pd, work) {
            Ok(sent) => {
                self.complete(&control, sent.bytes, work);
                if self.pace.is_limited() {
                    self.pace.sent(u64::from(sent.bytes), work.environment.clock.cycles());
                }
                self.ci = next;
                sent.frames.max(1)
            }
            Err(fault) => self.fail(fault, control.opcode, next, None, work),
        }
    }

    fn complete(&self, control: &Control, byte_count: u32, work: &mut Work<'_, '_>) {
        self.complete_at(self.ci, control, byte_count, work);
    }

    /// Completes the WQE at `position`.
    pub(in crate::hca) fn complete_at(
        &self,
        position: u16,
        control: &Control,
        byte_count: u32,
        work: &mut Work<'_, '_>,
    ) {
        work.counters.tx_wqes += 1;
        if control.mode == CompletionMode::Always || self.signal_all {
            let kind = CompletionKind::Sent { opcode: control.opcode, byte_count, solicited: control.solicited };
            self.hand_over(position, kind, work);
        }
    }

    /// The next WQE completes in error, and the queue stops before `next`. A WQE of RDMA waits for
    /// its turn: those before it may still succeed.
    fn fail(
        &mut self,
        fault: Fault,
        opcode: u8,
        next: u16,
        requester: Option<&mut Requester>,
        work: &mut Work<'_, '_>,
    ) -> usize {
        match requester {
            Some(requester) => requester.post_fault(self.ci, opcode, fault),
            None => self.fail_at(self.ci, fault, opcode, work),
        }
        self.ci = next;
        1
    }

    /// The WQE at `position` completes in error, and the queue is in error.
    pub(in crate::hca) fn fail_at(&mut self, position: u16, fault: Fault, opcode: u8, work: &mut Work<'_, '_>) {
        match fault {
            Fault::BadLuck => work.counters.tx_hostile_errors += 1,
            _ => {
                let number = self.number;
                work.diagnoses.add(|| format!("send queue {number:#x}, WQE at {position}: {fault}"));
            }
        }
        work.counters.tx_errors += 1;
        let kind = CompletionKind::SendError { syndrome: fault.syndrome(), vendor: fault.vendor(), opcode };
        self.hand_over(position, kind, work);
        self.error_reported = true;
        self.state = SqState::Error;
    }

    /// Completes the next WQE as flushed, if it is one that requests a completion.
    fn flush_next(&mut self, record: u16, transmitter: &mut Transmitter, work: &mut Work<'_, '_>) -> usize {
        if self.ci == record {
            return 0;
        }
        let fetched = transmitter.scratch.fetch(&self.place(record), work.environment.dma);
        let mode = fetched.as_ref().map_or(CompletionMode::OnError, |control| control.mode);
        let opcode = fetched.as_ref().map_or(opcode::NOP, |control| control.opcode);
        self.flush_at(self.ci, mode, opcode, work);
        self.ci = fetched.map_or(record, |control| self.ci.wrapping_add(control.wqebbs));
        1
    }

    /// Completes the WQE at `position` as flushed, if it is one that requests a completion.
    pub(in crate::hca) fn flush_at(
        &mut self,
        position: u16,
        mode: CompletionMode,
        opcode: u8,
        work: &mut Work<'_, '_>,
    ) {
        if mode != CompletionMode::OnFirstError || self.signal_all || !self.error_reported {
            self.error_reported = true;
            let kind = CompletionKind::SendError { syndrome: Syndrome::Flushed, vendor: 0, opcode };
            self.hand_over(position, kind, work);
        }
        work.counters.tx_flushed += 1;
    }

    /// Not even a CQE can report the error, so the client gets an event.
    fn give_up(&mut self, fault: Fault, work: &mut Work<'_, '_>) -> usize {
        if self.state == SqState::Error {
            return 0;
        }
        let number = self.number;
        work.diagnoses.add(|| format!("send queue {number:#x}: {fault}"));
        work.counters.tx_errors += 1;
        work.qp_events.push((self.qp, EventKind::QpFatal));
        self.state = SqState::Error;
        1
    }

    fn hand_over(&self, wqe_counter: u16, kind: CompletionKind, work: &mut Work<'_, '_>) {
        let completion = Completion { user_index: self.user_index, queue_number: self.number, wqe_counter, kind };
        work.cqs.complete(self.cq, &completion, work.environment);
    }

    /// Where the next WQE lies.
    fn place(&self, record: u16) -> WqePosition {
        WqePosition {
            ring: self.ring,
            wqebb_count: self.wqebb_count,
            position: self.ci,
            released: record.wrapping_sub(self.ci),
            number: self.number,
        }
    }

    /// The first 8 bytes of the WQE at a position in the ring.
    pub(in crate::hca) fn first_word(&self, position: u16, dma: &dyn Dma) -> Option<u64> {
        let mut word = [0; 8];
        self.read_ring(position, &mut word, dma).then(|| u64::from_be_bytes(word))
    }

    /// Bytes of the ring from a position on; `false` where it is not mapped.
    pub(in crate::hca) fn read_ring(&self, position: u16, into: &mut [u8], dma: &dyn Dma) -> bool {
        let start = position as usize % self.wqebb_count as usize * WQEBB_LEN;
        fetch_wrapped(self.ring, self.wqebb_count as usize * WQEBB_LEN, start, into, dma).is_ok()
    }
}

#[cfg(test)]
mod tests;
