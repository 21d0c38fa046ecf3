//! Completions: frames that left, their timestamps, and those that failed.

use super::{Mlx5Tx, Mlx5TxDrop};
use crate::device::mlx5::completion::clock::TimestampSource;
use crate::device::mlx5::completion::cqe::{Format, Opcode, Syndrome};
use crate::device::mlx5::send::sq::{Completed, Failed};

impl Mlx5Tx {
    /// Reads one completion; `false` if there is none.
    #[inline]
    pub(super) fn take_completion(&mut self) -> bool {
        let Some(cqe) = self.cq.next() else { return false };
        let (counter, opcode, format) = (cqe.wqe_counter(), cqe.opcode(), cqe.format());
        match (opcode, format) {
            (Opcode::Sent, Format::Plain) => {
                let timestamp = cqe.timestamp();
                match self.sq.complete(counter) {
                    Completed::Done(None) => {}
                    other => self.take_unusual(other, timestamp),
                }
            }
            (Opcode::SendFailed, _) => {
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
        self.drops.count_many(Mlx5TxDrop::of(syndrome), itself.frames);
        self.counters.timestamps_lost.add((before.stamps_lost + itself.stamps_lost).into());
        self.stop();
    }
}
