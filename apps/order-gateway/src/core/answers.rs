//! Answers: the session reads them, the manager applies them, the drop copy is compared.

use order_entry::OrderEvents;
use order_entry::journal::{JournalMemory, SessionMark};
use order_entry::orders::{Alarm, Effect, OrderEvent, VenueEvent, VenueMessage};
use order_entry::session::{SessionError, SessionEvent, VenueSession};

use super::{Core, Notice, OrderAlarm};
use crate::drop_copy::Trade;

/// What a strategy is told of one message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "a box would allocate with each answer")]
pub(crate) enum StrategyEvent {
    /// Events of one order, in order.
    Order(OrderEvents),
    /// The session takes orders from now on.
    SessionOpen,
    /// Nothing.
    None,
}

impl<S: VenueSession, M: JournalMemory> Core<S, M> {
    /// A connection was made.
    pub fn connected(&mut self, now_ns: u64) -> Result<(), SessionError> {
        let connected = self.session.connected(now_ns);
        self.handle_gap(&connected, now_ns);
        self.mark_numbers(now_ns);
        connected
    }

    /// The connection is gone. Orders live on at the venue, unless it cancels them.
    pub fn disconnected(&mut self) {
        self.session.disconnected();
        self.manager.disconnected();
        self.rewind_cancels();
    }

    /// Heartbeats and timeouts of the session.
    pub fn tick_session(&mut self, now_ns: u64) -> Result<(), SessionError> {
        let ticked = self.session.tick(now_ns);
        self.handle_gap(&ticked, now_ns);
        self.mark_numbers(now_ns);
        ticked
    }

    /// An error by which one side does not know what the other has stops orders at once: the next
    /// login, which tells it too, may be one of another process.
    fn handle_gap<T>(&mut self, result: &Result<T, SessionError>, now_ns: u64) {
        if result.as_ref().is_err_and(SessionError::is_gap) {
            self.manager.gap(now_ns);
            self.notice(Notice::Gap);
        }
    }

    /// Takes one message from the front of `input`; `None` where it is used up.
    pub(crate) fn receive(&mut self, now_ns: u64, input: &mut &[u8]) -> Result<Option<StrategyEvent>, SessionError> {
        let received = self.session.receive(now_ns, input);
        self.handle_gap(&received, now_ns);
        let told = received.map(|event| event.map(|event| self.take(&event, now_ns)));
        // Behind the event, so that a restart does not pass it over.
        self.mark_numbers(now_ns);
        told
    }

    fn take(&mut self, event: &SessionEvent, now_ns: u64) -> StrategyEvent {
        match event {
            SessionEvent::LoggedIn { mark, is_gap } => {
                self.manager.logged_in(mark, *is_gap, now_ns);
                if *is_gap {
                    self.notice(Notice::Gap);
                }
                self.marked_id = mark.next_id;
                StrategyEvent::None
            }
            SessionEvent::Message { number, message } => {
                let (was_armed, alarms) = (self.manager.risk().is_armed(), self.manager.alarms());
                let events = self.manager.take(*number, message, now_ns);
                if was_armed && !self.manager.risk().is_armed() {
                    match self.last_alarm() {
                        Some(Alarm::UnknownOrder) => self.notice(Notice::UnknownOrder),
                        Some(Alarm::UnknownExecution) => self.notice(Notice::UnknownExecution),
                        Some(Alarm::Revived) => self.notice(Notice::Unreserved),
                        _ => (),
                    }
                }
                self.notice_unanswered(message, self.manager.alarms() - alarms);
                for event in &events {
                    self.notice_alarm(event);
                    self.record_refusal(event);
                    self.book(event, now_ns);
                }
                self.watch_mass_cancel(message, &events);
                match message {
                    VenueMessage::Settled { .. } => {
                        // The line may have broken before cancels arrived.
                        self.cancel_all_again();
                        self.stopped.begin();
                        StrategyEvent::SessionOpen
                    }
                    _ if events.is_empty() => StrategyEvent::None,
                    _ => StrategyEvent::Order(events),
                }
            }
            SessionEvent::Unread { number } => {
                let (was_armed, notice) = (self.manager.risk().is_armed(), Notice::Unread { number: *number });
                self.manager.unread(*number, self.session.unread(), now_ns);
                self.counts.unread += 1;
                // The first one stops orders, and a day of such messages may follow.
                if was_armed {
                    self.notices.push_stop(notice)
                } else {
                    self.notice(notice)
                }
                StrategyEvent::None
            }
            SessionEvent::Ended => {
                let next_id = self.session.next_id();
                self.manager.mark(&SessionMark { next_id, ..SessionMark::default() }, now_ns);
                StrategyEvent::None
            }
            _ => StrategyEvent::None,
        }
    }

    /// Has a person told what the venue said of an order that should not be.
    pub(super) fn notice_alarm(&mut self, event: &OrderEvent) {
        let Some(alarm) = event.outcome.alarm else { return };
        let order = event.outcome.slot.and_then(|slot| self.manager.orders().get(slot));
        let symbol = order.and_then(|order| self.instruments.get(order.instrument.0 as usize));
        let traded = match event.outcome.effect {
            Effect::Traded { qty, .. } => qty,
            _ => 0,
        };
        let shares = match (alarm, order) {
            // What earlier fills had too many was told with them.
            (Alarm::Overfill, Some(order)) => order.cum().saturating_sub(order.qty()).min(traded),
            _ => traded,
        };
        let alarm = OrderAlarm { symbol: symbol.map(|of| of.symbol), shares, ..OrderAlarm::new(alarm, event.id) };
        self.alarm = Some(alarm);
        self.notice(Notice::Alarm(alarm));
    }

    /// Has a person told of orders whose answers are lost, of which there is no event.
    fn notice_unanswered(&mut self, message: &VenueMessage, alarms: u64) {
        match message {
            VenueMessage::AnsweredBelow { .. } if alarms > 0 => self.notice(Notice::Unanswered { orders: alarms }),
            // The venue has lost its record of the session.
            VenueMessage::NotProcessed { .. } if alarms > 0 => self.notice(Notice::Gap),
            _ => (),
        }
    }

    /// Has a trade or its bust compared with the drop copy's.
    fn book(&mut self, event: &OrderEvent, now_ns: u64) {
        let (Some(reconciler), id) = (&mut self.reconciler, event.id) else { return };
        let trade = match (event.event, event.outcome.effect) {
            (VenueEvent::Filled { exec, qty, price }, Effect::Traded { .. }) => {
                Trade { id, exec, terms: Some((qty, price)), correction: None }
            }
            (VenueEvent::Corrected { exec, new_exec, qty, price }, Effect::Corrected { .. }) => {
                Trade { id, exec, terms: Some((qty, price)), correction: Some(new_exec) }
            }
            (VenueEvent::Busted { exec }, Effect::Reversed { .. }) => Trade { id, exec, terms: None, correction: None },
            _ => return,
        };
        reconciler.ours(trade, now_ns);
    }

    /// Writes down that the session has used numbers which no request in the journal has.
    pub(super) fn mark_numbers(&mut self, now_ns: u64) {
        if let Some(mark) = self.new_mark() {
            self.manager.mark(&mark, now_ns);
        }
    }

    /// The same behind cancels of all orders, which wait for no disk.
    pub(super) fn mark_cancels(&mut self, now_ns: u64) {
        if let Some(mark) = self.new_mark() {
            self.manager.mark_cancels(&mark, now_ns);
        }
    }

    fn new_mark(&mut self) -> Option<SessionMark> {
        let mark = self.session.mark();
        let is_new = mark.next_id > self.marked_id;
        self.marked_id = self.marked_id.max(mark.next_id);
        is_new.then_some(mark)
    }

    /// Asks about one request whose answer is overdue. Call it in each turn: a look at 8 orders.
    pub(super) fn poll_unanswered(&mut self, now_ns: u64) {
        if !self.session.is_open() {
            return;
        }
        let Some(query) = self.manager.poll_unanswered(now_ns, self.answer_timeout_ns) else { return };
        let asked = self.target(query.slot).map(|target| self.session.ask_status(now_ns, &target));
        match asked {
            Some(Ok(true)) => self.counts.queries += 1,
            // No question, or no room for it: a person sees the order in doubt.
            _ => self.counts.alarms += 1,
        }
        self.mark_numbers(now_ns);
    }
}
