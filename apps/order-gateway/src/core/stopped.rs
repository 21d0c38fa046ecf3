//! The stop of one strategy: its orders are canceled until none lives, and the others trade on.

use order_entry::Refusal;
use order_entry::journal::JournalMemory;
use order_entry::risk::StrategyIdx;
use order_entry::session::{SendError, VenueSession};

use super::Core;

/// Cancels are repeated so long after they were sent, because one may be refused, or cross a
/// replace.
const PAUSE_NS: u64 = 100_000_000;
/// Each repetition waits twice as long as the one before, and at most so long.
const PAUSE_MAX_NS: u64 = 64 * PAUSE_NS;

/// The cancels of strategies that are stopped.
#[derive(Debug)]
pub(super) struct StoppedCancels {
    /// When orders of theirs that live are canceled; `None` where none lives.
    due_ns: Option<u64>,
    pause_ns: u64,
    /// They were canceled before.
    is_again: bool,
    /// Slots below have had their turn: a line without room goes on here, so that none is passed
    /// over for ever.
    next: usize,
    /// An order of theirs lives in one of those slots.
    lives: bool,
}

impl StoppedCancels {
    pub(super) const NONE: Self = Self { due_ns: None, pause_ns: PAUSE_NS, is_again: false, next: 0, lives: false };

    /// Orders of theirs may live.
    pub(super) const fn begin(&mut self) {
        *self = Self { due_ns: Some(0), ..Self::NONE };
    }

    /// Whether orders wait for their cancels.
    pub(super) fn is_due(&self, now_ns: u64) -> bool {
        self.due_ns.is_some_and(|at_ns| at_ns <= now_ns)
    }

    const fn repeat(&mut self, now_ns: u64) {
        (self.due_ns, self.is_again) = (Some(now_ns.saturating_add(self.pause_ns)), true);
        (self.next, self.lives) = (0, false);
        self.pause_ns = if self.pause_ns < PAUSE_MAX_NS { 2 * self.pause_ns } else { PAUSE_MAX_NS };
    }
}

impl<S: VenueSession, M: JournalMemory> Core<S, M> {
    /// Stops a strategy: its orders are refused, and those that live are canceled as soon as the
    /// session takes it, past the rates of the gate, also after a restart, until
    /// [`Core::arm_strategy`]. Others trade on. False where the strategy has no limits.
    pub fn kill_strategy(&mut self, strategy: StrategyIdx, now_ns: u64) -> bool {
        let is_stopped = self.manager.stop_strategy(strategy, now_ns);
        if is_stopped {
            self.stopped.begin();
            self.poll_stopped(now_ns);
        }
        is_stopped
    }

    /// Lets a strategy that was stopped trade again, where the gate is armed. False where it has no
    /// limits.
    pub fn arm_strategy(&mut self, strategy: StrategyIdx, now_ns: u64) -> bool {
        self.manager.resume_strategy(strategy, now_ns)
    }

    /// Cancels what lives of the strategies that are stopped. What has no room now is canceled in a
    /// later turn.
    pub(super) fn poll_stopped(&mut self, now_ns: u64) {
        if !self.stopped.is_due(now_ns) || self.session.may_cancel().is_err() {
            return;
        }
        let is_again = self.stopped.is_again;
        for slot in self.stopped.next..self.manager.orders().used() {
            let order = self.manager.orders().get(slot).filter(|order| order.is_live());
            if !order.is_some_and(|order| self.manager.risk().is_stopped(order.strategy)) {
                continue;
            }
            match self.cancel_past_rates(slot, is_again, now_ns) {
                Err(Refusal::Session(SendError::Room | SendError::Closed)) => {
                    self.stopped.next = slot;
                    return;
                }
                // A protocol that has no cancel of this order: a person must see it.
                Err(Refusal::Session(_)) => self.counts.alarms += 1,
                // One that has no answer yet is canceled already.
                _ => (),
            }
            self.stopped.lives = true;
        }
        if self.stopped.lives {
            self.stopped.repeat(now_ns);
        } else {
            self.stopped = StoppedCancels::NONE;
        }
    }
}
