//! The cancel of all orders: a person's or a strategy's once, a thrown kill switch's until no order
//! lives.

use order_entry::Refusal;
use order_entry::journal::{JournalMemory, Killed};
use order_entry::orders::{Effect, OrderEvent, VenueEvent, VenueMessage};
use order_entry::session::{SendError, VenueSession};

use super::{Core, Notice};

/// The cancels of a thrown switch are repeated so long after they were sent.
const PAUSE_NS: u64 = 100_000_000;
/// Each repetition waits twice as long as the one before, and at most so long: a venue that refuses
/// all cancels for an hour must not fill the journal.
const PAUSE_MAX_NS: u64 = 64 * PAUSE_NS;

#[derive(Debug)]
pub(super) struct MassCancel {
    /// The switch was thrown, and nobody has armed since.
    pub(super) is_killed: bool,
    /// Orders in the slots from `next` on are to be canceled as soon as the line has room.
    is_due: bool,
    next: usize,
    /// An order that was canceled lives: all are to be canceled again after the pause.
    is_repeat_due: bool,
    began_ns: u64,
    pause_ns: u64,
}

impl MassCancel {
    pub(super) const NONE: Self =
        Self { is_killed: false, is_due: false, next: 0, is_repeat_due: false, began_ns: 0, pause_ns: PAUSE_NS };

    /// The switch was thrown.
    const KILL: Self = Self { is_killed: true, is_due: true, ..Self::NONE };

    /// All orders are to be canceled, from the first on.
    pub(super) const fn begin(&mut self) {
        (self.is_due, self.next) = (true, 0);
    }

    /// A clock that steps back shortens the pause.
    const fn repeat(&mut self, now_ns: u64) {
        if self.is_repeat_due && !self.is_due && now_ns.abs_diff(self.began_ns) >= self.pause_ns {
            self.is_repeat_due = false;
            self.pause_ns = if self.pause_ns < PAUSE_MAX_NS { 2 * self.pause_ns } else { PAUSE_MAX_NS };
            self.begin();
        }
    }
}

impl<S: VenueSession, M: JournalMemory> Core<S, M> {
    /// Acts upon a thrown switch, and goes on with cancels that had no room.
    pub(super) fn poll_kill(&mut self, now_ns: u64) {
        let throws = self.kill.throws();
        if throws != self.throws {
            self.throws = throws;
            let (since_ns, cause) = (self.manager.utc_ns(now_ns), self.kill.cause());
            self.stay_killed(Killed { since_ns, cause });
            self.manager.killed(cause, now_ns);
        }
        self.mass_cancel.repeat(now_ns);
        if self.mass_cancel.is_due {
            self.go_on_canceling(now_ns);
        }
    }

    /// The switch is thrown, until somebody arms.
    pub(super) fn stay_killed(&mut self, killed: Killed) {
        self.mass_cancel = MassCancel::KILL;
        self.killed = Some(killed);
        self.notice(Notice::Killed(killed));
    }

    /// Cancels everything, past the rates of the gate: by the venue's mass cancel, or order by
    /// order. What cannot be written now is done when the line has room.
    pub(crate) fn send_cancel_all(&mut self, now_ns: u64) {
        self.mass_cancel.begin();
        self.go_on_canceling(now_ns);
    }

    /// Without room nothing is written, to the line or to the journal.
    fn go_on_canceling(&mut self, now_ns: u64) {
        if self.session.may_cancel().is_err() {
            return;
        }
        self.mass_cancel.began_ns = now_ns;
        let sent = self.session.cancel_all(now_ns);
        self.mark_numbers(now_ns);
        match sent {
            Ok(true) => self.counts.cancels += 1,
            Ok(false) if self.cancel_each(now_ns) => (),
            Ok(false) | Err(_) => return,
        }
        self.mass_cancel.is_due = false;
    }

    /// Whether the line took the cancels of all orders that are left.
    fn cancel_each(&mut self, now_ns: u64) -> bool {
        for slot in self.mass_cancel.next..self.manager.orders().used() {
            if self.manager.orders().get(slot).is_none_or(|order| !order.is_live()) {
                continue;
            }
            match self.cancel_past_rates(slot, now_ns) {
                Err(Refusal::Session(SendError::Room | SendError::Closed)) => {
                    self.mass_cancel.next = slot;
                    return false;
                }
                // A protocol that has no cancel of this order: a person must see it.
                Err(Refusal::Session(_)) => self.counts.alarms += 1,
                // One that has no answer yet is canceled already.
                _ => (),
            }
        }
        true
    }

    /// Has an order that a thrown switch's cancel did not end canceled again.
    pub(super) fn watch_cancels(&mut self, message: &VenueMessage, events: &[OrderEvent]) {
        if !self.mass_cancel.is_killed {
            return;
        }
        let orders = self.manager.orders();
        let lives = |event: &OrderEvent| {
            event.outcome.slot.and_then(|slot| orders.get(slot)).is_some_and(|order| order.is_live())
        };
        let is_left = |event: &OrderEvent| {
            matches!(event.event, VenueEvent::CancelRefused { .. } | VenueEvent::Replaced { .. })
                || matches!(event.outcome.effect, Effect::Revived { .. })
        };
        let is_any_left = match message {
            // The venue has ignored a cancel.
            VenueMessage::AnsweredBelow { .. } => orders.live_count() > 0,
            _ => events.iter().any(|event| is_left(event) && lives(event)),
        };
        self.mass_cancel.is_repeat_due |= is_any_left;
    }
}
