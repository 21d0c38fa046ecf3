//! Resets to be sent. A reset is never retransmitted: where one is lost, the answer to the peer's
//! next segment is a reset again. A reset that finds no room in the ring is kept for the next tick,
//! after its connection is gone. Only a few are kept, so that a flood that fills the ring fills
//! nothing else.

use crate::proto::tcp::machine::{Shared, Tcp};
use crate::proto::tcp::output::interface::{Output, Unsent};
use crate::proto::tcp::payload::Payload;
use crate::proto::tcp::segment::Outgoing;
use crate::proto::tcp::state::connection::State;
use std::collections::VecDeque;

/// The most resets that wait. An app that ends all its connections at once has as many resets as
/// connections; further ones are counted as lost.
const OWED_MAX: usize = 64;

/// Resets that found no room, the oldest first.
pub(crate) struct OwedResets(VecDeque<Outgoing>);

impl OwedResets {
    /// Allocates the memory for all that may wait.
    pub(crate) fn new() -> Self {
        Self(VecDeque::with_capacity(OWED_MAX))
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the next reset without room would be lost.
    pub(crate) fn is_full(&self) -> bool {
        self.0.len() >= OWED_MAX
    }
}

impl<P: Payload> Shared<P> {
    /// Sends a reset, or has it wait for room.
    #[cold]
    pub(crate) fn post_reset<O: Output<P>>(&mut self, slot: Option<u32>, reset: &Outgoing, output: &mut O) {
        match output.send(slot, reset, None) {
            Ok(()) => {
                self.tally.resets_out += 1;
                self.tally.segments_out += 1;
            }
            Err(Unsent::Busy) if !self.owed_resets.is_full() => self.owed_resets.0.push_back(*reset),
            Err(Unsent::Busy | Unsent::NoRoute) => self.tally.resets_lost += 1,
        }
    }
}

impl<P: Payload> Tcp<P> {
    /// Sends waiting resets, as far as there is room. A reset whose ends have a new connection
    /// meanwhile is dropped.
    #[cold]
    pub(in crate::proto::tcp) fn send_owed_resets<O: Output<P>>(&mut self, output: &mut O) {
        for _ in 0..self.shared.owed_resets.0.len() {
            let Some(reset) = self.shared.owed_resets.0.pop_front() else { return };
            let is_taken = |slot: &u32| self.connections[*slot].state != State::Closed;
            if !self.flows.get(reset.flow.into()).is_some_and(is_taken) {
                let waiting = self.shared.owed_resets.0.len();
                self.shared.post_reset(None, &reset, output);
                if self.shared.owed_resets.0.len() > waiting {
                    // This reset is now the last in the list; the ring is full for all others too.
                    return self.shared.owed_resets.0.rotate_right(1);
                }
            }
        }
    }
}
