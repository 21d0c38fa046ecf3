//! The worker's part of recovery from loops of multicast packets: snapshots and definitions.
//! [Another thread](crate::recovery) joins them.

use market::event::Event;
use market::framing::Session;
use market::loops::{Definition, LoopFeed, Recovery, RecoveryConfig, RecoveryCounts, SnapshotPart};
use market::{Books, EventSink, Gap, HealingBooks, MessageCounts};

use crate::recovery::LoopPlan;

/// The recovery of one channel from its loops. Formats without loops have [`NoLoops`].
pub trait Loops<B: Books>: Sized + Send {
    /// The memory of it. `None` where the format has no loops.
    fn new(plan: &LoopPlan, books_max: usize) -> Option<Self>;

    /// Whether live messages need not be passed on: two compares.
    fn is_idle(&self, books: &B) -> bool;

    /// The session of the live messages that follow.
    fn session(&mut self, session: Session);

    /// A live message of packet `seq` that the books have.
    fn live(&mut self, seq: u64, message: &[u8], books: &B);

    /// Packets are missing on all lines.
    fn gap(&mut self, gap: Gap);

    /// The feed restarts.
    fn restart(&mut self);

    /// A message of a loop, of its packet `packet`.
    fn take(&mut self, packet: u64, message: &[u8], books: &mut B, sink: &mut impl EventSink);

    /// What a message of a loop defines.
    fn definition(message: &[u8]) -> Option<Definition>;

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

    fn session(&mut self, _: Session) {}

    fn live(&mut self, _: u64, _: &[u8], _: &B) {}

    fn gap(&mut self, _: Gap) {}

    fn restart(&mut self) {}

    fn take(&mut self, _: u64, _: &[u8], _: &mut B, _: &mut impl EventSink) {}

    fn definition(_: &[u8]) -> Option<Definition> {
        None
    }

    fn wants_snapshots(&self) -> bool {
        match *self {}
    }

    fn tally(&self) -> LoopTally {
        match *self {}
    }
}

/// The loops of the feed that `C` decodes.
#[derive(Debug)]
pub struct FeedLoops<C> {
    recovery: Recovery<C>,
    counts: MessageCounts,
    definitions: u64,
}

impl<C: LoopFeed + Send, B: HealingBooks> Loops<B> for FeedLoops<C> {
    fn new(plan: &LoopPlan, books_max: usize) -> Option<Self> {
        let recovery = Recovery::new(RecoveryConfig { books_max, ..plan.limits });
        Some(Self { recovery, counts: MessageCounts::new(), definitions: 0 })
    }

    #[inline]
    fn is_idle(&self, books: &B) -> bool {
        self.recovery.is_idle(books)
    }

    fn session(&mut self, session: Session) {
        self.recovery.session(session);
    }

    fn live(&mut self, seq: u64, message: &[u8], books: &B) {
        self.recovery.live(seq, message, books);
    }

    fn gap(&mut self, gap: Gap) {
        self.recovery.gap(gap);
    }

    fn restart(&mut self) {
        self.recovery.restart();
    }

    fn take(&mut self, packet: u64, message: &[u8], books: &mut B, sink: &mut impl EventSink) {
        let part = self.recovery.part::<B>(packet, message);
        if part != SnapshotPart::Other {
            let of_packet = (packet, message);
            return self.recovery.take(part, of_packet, books, &mut self.counts, |seq, event, change, books| {
                sink.recovered(seq, event, change, books);
            });
        }
        let definitions = &mut self.definitions;
        C::default().decode_all(message, &mut self.counts, &mut |event| {
            if let Event::Instrument(_) = event {
                *definitions += 1;
                let change = books.apply(event);
                sink.recovered(0, event, change, books);
            }
        });
    }

    fn definition(message: &[u8]) -> Option<Definition> {
        C::definition(message)
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
