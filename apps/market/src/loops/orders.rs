//! A snapshot of orders that comes in several messages, as its events.

use crate::event::{self, Event};
use crate::units::Symbol;

/// A snapshot that has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenSnapshot {
    symbol: Symbol,
    /// Orders that are still to come.
    left: u32,
}

impl OpenSnapshot {
    /// The book is made anew: whatever rested is gone. `None` where no order follows.
    pub(crate) fn begin(snapshot: event::Snapshot, orders: u32, each: &mut impl FnMut(&Event)) -> Option<Self> {
        let event::Snapshot { symbol, at_ns, .. } = snapshot;
        each(&Event::OrderSnapshot(snapshot));
        each(&Event::BookReset(event::BookReset { rpt_seq: 0, at_ns, symbol }));
        Self { symbol, left: orders }.behind(0, each)
    }

    /// The instrument.
    pub(crate) const fn symbol(&self) -> Symbol {
        self.symbol
    }

    /// Behind `count` orders of it; `None` where they were the last ones.
    pub(crate) fn behind(self, count: u32, each: &mut impl FnMut(&Event)) -> Option<Self> {
        let Self { symbol, left } = self;
        let left = left.saturating_sub(count);
        if left > 0 {
            return Some(Self { symbol, left });
        }
        each(&Event::SnapshotEnd(event::SnapshotEnd { at_ns: 0, symbol }));
        // A snapshot is consistent by itself.
        each(&Event::EndOfEvent(event::EndOfEvent { at_ns: 0 }));
        None
    }
}
