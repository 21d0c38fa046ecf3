//! The cancel of all orders: a person's or a strategy's once, and again behind a line that broke; a
//! thrown kill switch's until no order lives.

use order_entry::journal::{JournalMemory, Killed};
use order_entry::orders::{Order, OrderEvent, VenueEvent, VenueMessage};
use order_entry::session::{SendError, VenueSession};
use order_entry::{OrderEvents, Refusal};

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
    /// When that was first seen since somebody has armed.
    pub(super) killed_ns: Option<u64>,
    /// It was thrown before this process began.
    pub(super) is_of_journal: bool,
    /// Since when the session is open for its cancels.
    pub(super) open_ns: Option<u64>,
    /// The connection was broken, for the venue to cancel the orders that live.
    pub(super) is_line_broken: bool,
    /// A person knows that the connection stays for the orders that live.
    pub(super) is_line_kept: bool,
    /// Orders in the slots from `next` on are to be canceled as soon as the line has room.
    is_due: bool,
    next: usize,
    /// The venue's own mass cancel did not end all orders: each is canceled by itself.
    is_each: bool,
    /// The client id of the venue's mass cancel whose effect is awaited.
    id: Option<u64>,
    /// Orders that it has canceled, as the venue has told it; `None` until then, or for good where
    /// the protocol has no such message.
    count: Option<u32>,
    /// Orders that were canceled since it was sent.
    canceled: u32,
    /// The orders that a person or a strategy wants canceled are those that were opened before this
    /// one; `None` once all of them have ended.
    before: Option<u32>,
    began_ns: u64,
    pause_ns: u64,
}

impl MassCancel {
    pub(super) const NONE: Self = Self {
        is_killed: false,
        killed_ns: None,
        is_of_journal: false,
        open_ns: None,
        is_line_broken: false,
        is_line_kept: false,
        is_due: false,
        next: 0,
        is_each: false,
        id: None,
        count: None,
        canceled: 0,
        before: None,
        began_ns: 0,
        pause_ns: PAUSE_NS,
    };

    /// The switch was thrown.
    const KILL: Self = Self { is_killed: true, is_due: true, ..Self::NONE };

    /// All orders are to be canceled, from the first on, by the venue's mass cancel where it has
    /// one.
    pub(super) const fn begin(&mut self) {
        (self.is_due, self.next, self.is_each) = (true, 0, false);
        self.id = None;
    }

    /// The same, each order by itself.
    const fn begin_each(&mut self) {
        (self.is_due, self.next, self.is_each) = (true, 0, true);
    }

    /// Somebody arms: the switch is lifted. A cancel of a person goes on.
    pub(super) const fn lift(&mut self) {
        if self.is_killed {
            *self = Self { before: self.before, is_due: self.before.is_some(), is_each: true, ..Self::NONE };
        }
    }

    /// Whether the order is among those that are to be canceled.
    const fn is_of(&self, order: &Order) -> bool {
        match self.before {
            Some(serial) if !self.is_killed => order.is_before(serial),
            _ => true,
        }
    }

    /// Orders live, although they were canceled. By a thrown switch: whatever became of the
    /// cancels, they are sent again after the pause. By the venue's mass cancel, whoever sent it:
    /// each is canceled by itself after the time for an answer. A clock that steps back shortens
    /// it.
    const fn repeat(&mut self, now_ns: u64, answer_timeout_ns: u64) {
        // The venue's mass cancel is answered by each order's end, and refused at once.
        let is_mass = self.id.is_some() && !self.is_each;
        if self.is_due || !(self.is_killed || is_mass) {
            return;
        }
        let pause_ns = if is_mass { answer_timeout_ns } else { self.pause_ns };
        if now_ns.abs_diff(self.began_ns) < pause_ns {
            return;
        }
        if !is_mass {
            self.pause_ns = if self.pause_ns < PAUSE_MAX_NS { 2 * self.pause_ns } else { PAUSE_MAX_NS };
        }
        self.begin_each();
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
        self.track_kill(now_ns);
        if self.manager.orders().live_count() > 0 {
            self.mass_cancel.repeat(now_ns, self.answer_timeout_ns);
        }
        if self.mass_cancel.is_due {
            self.go_on_canceling(now_ns);
        }
    }

    /// The strategy throws the switch. It is obeyed at once, and not in the next turn. Where it was
    /// thrown already, nothing is canceled or written down anew: a strategy may say it with each
    /// book. An `arm` that a person said before does not count all the same.
    pub(crate) fn throw_kill(&mut self, now_ns: u64) {
        let is_obeyed = self.killed.is_some() && self.kill.throws() == self.throws;
        self.kill.throw();
        if is_obeyed {
            self.throws = self.kill.throws();
        }
        self.poll_kill(now_ns);
    }

    /// The switch is thrown, until somebody arms.
    pub(super) fn stay_killed(&mut self, killed: Killed) {
        // Who throws it again does not put the end of the session off, nor open the session.
        let MassCancel { killed_ns, is_of_journal, open_ns, is_line_broken, before, .. } = self.mass_cancel;
        self.mass_cancel = MassCancel { killed_ns, is_of_journal, open_ns, is_line_broken, before, ..MassCancel::KILL };
        self.killed = Some(killed);
        self.notice(Notice::Killed(killed));
    }

    /// Whether cancels wait that the session would take.
    pub(crate) fn has_cancels_due(&self, now_ns: u64) -> bool {
        (self.mass_cancel.is_due || self.stopped.is_due(now_ns)) && self.session.is_open()
    }

    /// Cancels everything, past the rates of the gate: by the venue's mass cancel, or order by
    /// order. What cannot be written now is done when the line has room.
    pub(crate) fn send_cancel_all(&mut self, now_ns: u64) {
        self.mass_cancel.begin();
        self.mass_cancel.before = Some(self.manager.orders().opened());
        self.go_on_canceling(now_ns);
    }

    /// The line broke: what it had of the cancels may be lost, so that those which stopped half-way
    /// begin anew, each by itself. A person knows which orders live on.
    pub(super) fn rewind_cancels(&mut self) {
        let live = self.wanted_canceled();
        if live > 0 && !self.mass_cancel.is_killed {
            self.mass_cancel.begin_each();
            self.notice(Notice::CancelAgain { live });
        }
    }

    /// A person had the orders canceled before this process began: those that live are canceled
    /// again when the session is open.
    pub(super) fn go_on_with_cancel(&mut self, serial: u32) {
        self.mass_cancel.before = Some(serial);
        let live = self.wanted_canceled();
        if live > 0 && !self.mass_cancel.is_killed {
            self.notice(Notice::CancelAgain { live });
        }
    }

    /// The session is open again: cancels that the line may have lost are sent again.
    pub(super) fn cancel_all_again(&mut self) {
        if self.mass_cancel.is_killed && self.manager.orders().live_count() > 0 {
            self.mass_cancel.begin();
        } else if self.wanted_canceled() > 0 {
            self.mass_cancel.begin_each();
        } else {
            self.mass_cancel.before = None;
        }
    }

    /// How many orders live that a person or a strategy wanted canceled.
    fn wanted_canceled(&self) -> usize {
        let Some(serial) = self.mass_cancel.before else { return 0 };
        self.manager.orders().live().filter(|(_, order)| order.is_before(serial)).count()
    }

    /// Without room nothing is written, to the line or to the journal.
    fn go_on_canceling(&mut self, now_ns: u64) {
        if self.session.may_cancel().is_err() {
            return;
        }
        self.mass_cancel.began_ns = now_ns;
        match if self.mass_cancel.is_each { Ok(false) } else { self.send_mass_cancel(now_ns) } {
            Ok(true) => self.counts.cancels += 1,
            Ok(false) if self.cancel_each(now_ns) => (),
            Ok(false) | Err(_) => return,
        }
        self.mass_cancel.is_due = false;
    }

    /// The venue's mass cancel; `false` where it has none.
    fn send_mass_cancel(&mut self, now_ns: u64) -> Result<bool, SendError> {
        let id = self.session.next_id();
        let sent = self.session.cancel_all(now_ns);
        self.mark_cancels(now_ns);
        if sent == Ok(true) {
            let mass_cancel = &mut self.mass_cancel;
            (mass_cancel.id, mass_cancel.count, mass_cancel.canceled) = (Some(id), None, 0);
        }
        sent
    }

    /// Whether the line took the cancels of all orders that are left.
    fn cancel_each(&mut self, now_ns: u64) -> bool {
        for slot in self.mass_cancel.next..self.manager.orders().used() {
            let of = self.manager.orders().get(slot).filter(|order| order.is_live());
            if !of.is_some_and(|order| self.mass_cancel.is_of(order)) {
                continue;
            }
            match self.cancel_past_rates(slot, self.mass_cancel.is_each, now_ns) {
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

    /// A venue that refuses its mass cancel, that of a firm which it does not know for one, has
    /// canceled nothing. One that tells how many orders it has canceled has left the others, when
    /// the messages about so many have come.
    pub(super) fn watch_mass_cancel(&mut self, message: &VenueMessage, events: &OrderEvents) {
        let mass_cancel = &mut self.mass_cancel;
        let Some(awaited) = mass_cancel.id else { return };
        let is_new_end =
            |event: &&OrderEvent| matches!(event.event, VenueEvent::Canceled { .. }) && !event.outcome.is_duplicate;
        mass_cancel.canceled = mass_cancel.canceled.saturating_add(events.iter().filter(is_new_end).count() as u32);
        match *message {
            VenueMessage::Refused { id, .. } if id == awaited => mass_cancel.count = Some(0),
            VenueMessage::MassCanceled { id, count } if id == awaited => mass_cancel.count = Some(count),
            _ => (),
        }
        if mass_cancel.count.is_some_and(|count| mass_cancel.canceled >= count) {
            mass_cancel.id = None;
            mass_cancel.begin_each();
        }
    }
}
