//! The worker's part of recovery from loops of multicast packets: MDP 3.0's snapshots and
//! definitions. [Another thread](crate::recovery) joins them.

use market::event::Event;
use market::mdp3::layout::{OrderSnapshot, Snapshot};
use market::mdp3::{Mdp3, Recovery, RecoveryConfig, RecoveryCounts};
use market::{Books, Decoder, DepthBooks, EventSink, Gap, MessageCounts};

use crate::recovery::LoopPlan;

/// The recovery of one channel from its loops. Formats without loops have [`NoLoops`].
pub trait Loops<B: Books>: Sized + Send {
    /// The memory of it. `None` where the format has no loops.
    fn new(plan: &LoopPlan, books_max: usize) -> Option<Self>;

    /// Whether live messages need not be passed on: two compares.
    fn is_idle(&self, books: &B) -> bool;

    /// A live message of packet `seq` that the books have.
    fn live(&mut self, seq: u64, message: &[u8], books: &B);

    /// Packets are missing on all lines.
    fn gap(&mut self, gap: Gap);

    /// The feed restarts.
    fn restart(&mut self);

    /// A message of a loop.
    fn take(&mut self, message: &[u8], books: &mut B, sink: &mut impl EventSink);

    /// Whether snapshots are of use.
    fn wants_snapshots(&self) -> bool;

    /// The counts so far.
    fn tally(&self) -> LoopTally;
}

/// What the loops of a channel brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoopTally {
    /// Snapshots, and the live messages that were queued for them.
    pub snapshots: RecoveryCounts,
    /// Definitions of instruments, repeated ones included.
    pub definitions: u64,
    /// Messages that could not be decoded.
    pub undecoded: u64,
}

/// The format has no loops.
#[derive(Debug)]
pub enum NoLoops {}

impl<B: Books> Loops<B> for NoLoops {
    fn new(_: &LoopPlan, _: usize) -> Option<Self> {
        None
    }

    fn is_idle(&self, _: &B) -> bool {
        match *self {}
    }

    fn live(&mut self, _: u64, _: &[u8], _: &B) {}

    fn gap(&mut self, _: Gap) {}

    fn restart(&mut self) {}

    fn take(&mut self, _: &[u8], _: &mut B, _: &mut impl EventSink) {}

    fn wants_snapshots(&self) -> bool {
        match *self {}
    }

    fn tally(&self) -> LoopTally {
        match *self {}
    }
}

/// MDP 3.0's.
#[derive(Debug)]
pub struct Mdp3Loops {
    recovery: Recovery,
    counts: MessageCounts,
    definitions: u64,
}

impl Loops<DepthBooks> for Mdp3Loops {
    fn new(plan: &LoopPlan, books_max: usize) -> Option<Self> {
        let recovery = Recovery::new(RecoveryConfig { books_max, ..plan.limits });
        Some(Self { recovery, counts: MessageCounts::new(), definitions: 0 })
    }

    #[inline]
    fn is_idle(&self, books: &DepthBooks) -> bool {
        self.recovery.is_idle(books)
    }

    fn live(&mut self, seq: u64, message: &[u8], books: &DepthBooks) {
        self.recovery.live(seq, message, books);
    }

    fn gap(&mut self, gap: Gap) {
        self.recovery.gap(gap);
    }

    fn restart(&mut self) {
        self.recovery.restart();
    }

    fn take(&mut self, message: &[u8], books: &mut DepthBooks, sink: &mut impl EventSink) {
        if matches!(Mdp3::kind(message).map(u16::from), Some(Snapshot::ID | OrderSnapshot::ID)) {
            return self.recovery.snapshot(message, books, &mut self.counts, |seq, event, change, books| {
                sink.recovered(seq, event, change, books);
            });
        }
        let definitions = &mut self.definitions;
        Mdp3.decode_all(message, &mut self.counts, &mut |event| {
            if let Event::Instrument(_) = event {
                *definitions += 1;
                let change = books.apply(event);
                sink.recovered(0, event, change, books);
            }
        });
    }

    fn wants_snapshots(&self) -> bool {
        self.recovery.wants_snapshots()
    }

    fn tally(&self) -> LoopTally {
        let undecoded = self.counts.total() - self.counts.decoded();
        LoopTally { snapshots: *self.recovery.counts(), definitions: self.definitions, undecoded }
    }
}

#[cfg(test)]
mod tests;
