//! Everything between a strategy and a line, without the line: the library's order manager (states,
//! risk, journal) and the venue's session.

mod answers;
mod hang_up;
mod left_behind;
mod mass_cancel;
mod notice;
mod refusal;
mod requests;
mod status;
mod stopped;

use core::fmt;

use market::{Side, Symbol};
use order_entry::journal::{Journal, JournalError, JournalMemory, Killed, Rebuild};
use order_entry::orders::{Alarm, Effect, OrderKey, OrderTable, TradeTotals, VenueEvent, VenueMessage};
use order_entry::risk::{InstrumentIdx, KillSwitch, Limits, Market, RiskGate, Route, StaleLimits};
use order_entry::session::VenueSession;
use order_entry::{ManagerConfig, OrderEvents, OrderManager};

use self::mass_cancel::MassCancel;
use self::notice::Notices;
use self::stopped::StoppedCancels;
use crate::drop_copy::{Difference, Reconciler, Trade};

pub(crate) use answers::StrategyEvent;
pub use hang_up::KillLine;
pub(crate) use hang_up::LineDuty;
pub use left_behind::LeftBehind;
pub use notice::{Notice, OrderAlarm};
pub use refusal::{RefusalCounts, VenueRefusal};

/// One instrument of the configuration; its position is its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instrument {
    /// The venue's name for it.
    pub symbol: Symbol,
    /// Where its orders go.
    pub route: Route,
}

/// What is made before the first order.
#[derive(Clone, Debug)]
pub struct CoreConfig {
    /// The instruments, by number.
    pub instruments: Box<[Instrument]>,
    /// The limits, the kill switch and the sizes. The venue's rules are the session's, the symbols
    /// those of the instruments.
    pub manager: ManagerConfig,
    /// The venue is asked about a request without an answer after this time. By default 2 s.
    pub answer_timeout_ns: u64,
    /// When a thrown kill switch ends the session. By default never.
    pub kill_line: KillLine,
}

impl CoreConfig {
    /// [`CoreConfig::answer_timeout_ns`] by default.
    pub const ANSWER_TIMEOUT_NS: u64 = 2_000_000_000;

    /// The manager's part, with the rules of the venue and the names of the instruments.
    fn of(&self, session: &impl VenueSession) -> ManagerConfig {
        let symbols = self.instruments.iter().map(|instrument| instrument.symbol).collect();
        ManagerConfig { rules: session.rules(), symbols, ..self.manager.clone() }
    }
}

/// Counts, for a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreCounts {
    /// Orders that were written.
    pub orders: u64,
    /// Replaces that were written.
    pub replaces: u64,
    /// Cancels that were written.
    pub cancels: u64,
    /// Orders and replaces that were refused before the venue saw them, by reason.
    pub refused: RefusalCounts,
    /// Questions about requests without an answer.
    pub queries: u64,
    /// Answers about orders.
    pub answers: u64,
    /// Fills that counted, of this run.
    pub trades: TradeTotals,
    /// Events that a person should see.
    pub alarms: u64,
    /// Answers that did not fit the journal.
    pub unjournaled: u64,
    /// Refused requests that the journal does not have, because it has the same one before or has
    /// room for answers alone.
    pub unwritten_refusals: u64,
    /// Messages of the venue that cannot be read and were passed over.
    pub unread: u64,
    /// Trades that the session has missed and the drop copy had: they were booked.
    pub missed: u64,
    /// Orders, replaces and cancels that the venue refused.
    pub refused_by_venue: u64,
}

impl fmt::Display for CoreCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { orders, replaces, cancels, refused, queries, answers, trades, alarms, unjournaled, .. } = self;
        let Self { unwritten_refusals, unread, missed, refused_by_venue, .. } = self;
        writeln!(
            f,
            "{orders} orders, {replaces} replaces and {cancels} cancels sent, {} requests refused, {unwritten_refusals} of \
             them not in the journal",
            refused.total()
        )?;
        if refused.total() > 0 {
            writeln!(f, "  refused: {refused}")?;
        }
        writeln!(
            f,
            "  {answers} answers, {queries} questions about missing ones, {alarms} alarms, {unjournaled} not in the journal, {unread} \
             unread"
        )?;
        if *refused_by_venue > 0 {
            writeln!(f, "  {refused_by_venue} requests refused by the venue")?;
        }
        if *missed > 0 {
            writeln!(f, "  {missed} trades missed by the session, and booked by the drop copy")?;
        }
        write!(f, "  account: {trades}")
    }
}

/// The state of one session and its orders.
#[derive(Debug)]
pub struct Core<S, M> {
    session: S,
    manager: OrderManager<M>,
    instruments: Box<[Instrument]>,
    pub(crate) markets: Box<[Market]>,
    pub(crate) timer_ns: Option<u64>,
    /// The next id of the session as far as the journal has it.
    marked_id: u64,
    kill: KillSwitch,
    /// Throws of the switch that were acted upon.
    throws: u64,
    mass_cancel: MassCancel,
    stopped: StoppedCancels,
    /// The switch that was thrown, until somebody arms.
    killed: Option<Killed>,
    /// What the venue refused last.
    refused: Option<VenueRefusal>,
    /// The last alarm about an order.
    alarm: Option<OrderAlarm>,
    notices: Notices,
    answer_timeout_ns: u64,
    kill_line: KillLine,
    counts: CoreCounts,
    reconciler: Option<Reconciler>,
}

impl<S: VenueSession, M: JournalMemory> Core<S, M> {
    /// A disarmed core that begins a journal.
    pub fn new(config: CoreConfig, session: S, journal: Journal<M>) -> Self {
        let manager = OrderManager::new(config.of(&session), journal);
        Self::of(config, session, manager)
    }

    /// A disarmed core that goes on where `memory`, an existing journal, ends: with its orders,
    /// positions and numbers. Instruments are found by their symbols. Live orders are in doubt
    /// until the venue has answered. A kill switch that was thrown and not lifted is in force: all
    /// orders are canceled as soon as the session takes it, until a person arms.
    ///
    /// # Errors
    ///
    /// As [`OrderManager::recover`]: the journal cannot be read, or has shares or live orders of an
    /// instrument that `config` lacks.
    pub fn recover(
        config: CoreConfig,
        mut session: S,
        memory: M,
        reserve: usize,
    ) -> Result<(Self, Rebuild), JournalError> {
        let (manager, rebuild) = OrderManager::recover(config.of(&session), memory, reserve)?;
        session.resume(&rebuild.session());
        rebuild.units().iter().for_each(|(unit, sequence)| session.resume_unit(unit, sequence));
        let mut core = Self::of(config, session, manager);
        if let Some(killed) = rebuild.killed() {
            core.stay_killed(killed);
            core.mass_cancel.is_of_journal = true;
        }
        if let Some(serial) = rebuild.canceled_before() {
            core.go_on_with_cancel(serial);
        }
        // Where one is stopped, its orders may live.
        core.stopped.begin();
        Ok((core, rebuild))
    }

    fn of(config: CoreConfig, session: S, manager: OrderManager<M>) -> Self {
        let CoreConfig { instruments, manager: ManagerConfig { kill, .. }, answer_timeout_ns, kill_line } = config;
        Self {
            marked_id: session.next_id(),
            session,
            manager,
            markets: vec![Market { is_stale: true, ..Market::default() }; instruments.len()].into_boxed_slice(),
            instruments,
            timer_ns: None,
            throws: kill.throws(),
            kill,
            mass_cancel: MassCancel::NONE,
            stopped: StoppedCancels::NONE,
            killed: None,
            refused: None,
            alarm: None,
            notices: Notices::default(),
            answer_timeout_ns,
            kill_line,
            counts: CoreCounts::default(),
            reconciler: None,
        }
    }

    /// The feed delivered something of its own, heartbeats included: the books are not silent.
    pub fn feed_heard(&mut self, now_ns: u64) {
        for market in &mut self.markets {
            market.heard_ns = now_ns;
        }
    }

    /// The same of one instrument, whose feed is one of several.
    pub fn instrument_heard(&mut self, instrument: InstrumentIdx, now_ns: u64) {
        if let Some(market) = self.markets.get_mut(instrument.0 as usize) {
            market.heard_ns = now_ns;
        }
    }

    /// Bytes to send, in order. Call [`Core::sent`] with as many as the line took.
    pub fn to_send(&self) -> &[u8] {
        self.session.to_send()
    }

    /// New orders and replaces that the session has written so far.
    pub(crate) const fn requests(&self) -> u64 {
        self.counts.orders + self.counts.replaces
    }

    /// The line took `len` bytes.
    pub fn sent(&mut self, len: usize) {
        self.session.sent(len);
    }

    /// The account held `position` shares of the instrument before the journal's first order, as
    /// [`OrderManager::set_opening_position`] takes it. Call it before orders pass.
    pub fn set_opening_position(&mut self, instrument: InstrumentIdx, position: i64, now_ns: u64) {
        self.manager.set_opening_position(instrument, position, now_ns);
    }

    pub(crate) fn held_before(&self, instrument: InstrumentIdx) -> Option<i64> {
        self.manager.opening_position(instrument)
    }

    /// Lets orders pass. A person does this, after each start and each kill.
    pub fn arm(&mut self, now_ns: u64) {
        self.arm_for(self.kill.throws(), now_ns);
    }

    /// [`Core::arm`] by a person who saw the kill switch at [`KillSwitch::throws`] `throws`.
    /// Whether orders pass: a switch that was thrown behind the person's word stays thrown.
    pub fn arm_for(&mut self, throws: u64, now_ns: u64) -> bool {
        let is_armed = self.manager.arm_for(throws, now_ns);
        if is_armed {
            self.throws = throws;
            self.killed = None;
            self.mass_cancel.lift();
        }
        is_armed
    }

    /// Whether the journal's disk has failed: no order passes, whoever arms.
    pub const fn has_disk_failed(&self) -> bool {
        self.manager.has_disk_failed()
    }

    /// Whether a stop is written down and is to be on the disk, as [`OrderManager::is_sync_due`]
    /// says it.
    pub const fn is_sync_due(&self) -> bool {
        self.manager.is_sync_due()
    }

    /// Another thread has it on the disk.
    pub(crate) const fn take_sync_due(&mut self) -> bool {
        self.manager.take_sync_due()
    }

    /// Has it on the disk. It blocks.
    pub fn sync(&mut self, now_ns: u64) {
        self.manager.sync(now_ns);
    }

    /// Writes down which limits are in force, as [`OrderManager::note_limits`]. Call it before
    /// orders pass.
    pub fn note_limits(&mut self, now_ns: u64) {
        self.manager.note_limits(now_ns);
    }

    /// Refuses orders from now on. Live orders stay.
    pub fn disarm(&mut self, now_ns: u64) {
        self.manager.disarm(now_ns);
    }

    /// The wall clock has stepped: this is added from now on to the clock of the calls for the time
    /// since 1970.
    pub fn set_epoch_offset_ns(&mut self, epoch_offset_ns: u64) {
        self.session.set_epoch_offset_ns(epoch_offset_ns);
        self.manager.set_epoch_offset_ns(epoch_offset_ns);
    }

    /// Puts other limits in force, and returns those before for another thread to free. The block
    /// that is refused comes back with the reason.
    pub fn set_limits(&mut self, limits: Box<Limits>, now_ns: u64) -> Result<Box<Limits>, (StaleLimits, Box<Limits>)> {
        self.manager.set_limits(limits, now_ns)
    }

    /// Writes down that a standby follows, without whose grants nothing is sent; 0 for none. It is
    /// on the disk when this returns, whatever the policy: a primary that forgets its standby in a
    /// power cut would send beside it. Costs a sync, once for each standby.
    ///
    /// # Errors
    ///
    /// The disk failed: the standby must not be asked for grants.
    pub fn set_standby(&mut self, id: u64, now_ns: u64) -> std::io::Result<()> {
        self.manager.set_standby(id, now_ns)
    }

    /// Cancels all orders, past the rates of the gate, for a person. New ones pass as before. Where
    /// the line breaks, those that live then and lived now are canceled again when the session is
    /// open, also by a process that goes on from the journal.
    pub fn cancel_all(&mut self, now_ns: u64) {
        if self.manager.orders().live_count() > 0 {
            self.manager.canceled_all(now_ns);
        }
        self.send_cancel_all(now_ns);
    }

    /// Compares each trade with the drop copy's from now on.
    pub fn reconcile(&mut self, lag_ns: u64) {
        self.reconciler = Some(Reconciler::new(lag_ns));
    }

    /// The drop copy brought a trade, of an order of this instrument and side where it says them.
    /// It is not booked where the order of its id has others: ids begin at 1 with each journal and
    /// with each session of a firm.
    pub fn drop_copied(&mut self, trade: Trade, of: Option<(Symbol, Side)>, now_ns: u64) {
        let is_ours = of.is_none_or(|(symbol, side)| self.manager.has_order_of(trade.id, symbol, side));
        let key = OrderKey::Client(trade.id);
        let orders = self.manager.orders();
        // Several corrections may name one execution, each with a name of its own.
        let named = trade.correction.filter(|name| *name != trade.exec && orders.execution(key, *name).is_some());
        let exec = named.unwrap_or(trade.exec);
        let (known, is_corrected) = (orders.execution(key, exec), orders.is_corrected(key, exec));
        let Some(reconciler) = &mut self.reconciler else { return };
        let known = known.filter(|(.., is_busted)| trade.terms.is_some() || *is_busted);
        let known = match (trade.terms, known) {
            // One that nobody has told here waits for the session's.
            (Some(terms), Some((qty, price, _))) if trade.correction.is_some() && named.is_none() => {
                (terms == (qty, price)).then_some(trade)
            }
            // What it had before a later correction is not remembered: that one is compared.
            (Some(_), Some(_)) if is_corrected => Some(trade),
            (terms, known) => known.map(|(qty, price, _)| Trade { terms: terms.map(|_| (qty, price)), ..trade }),
        };
        reconciler.theirs(trade, known, is_ours && trade.correction.is_none(), now_ns);
    }

    /// What the drop copy and the session do not agree on, and what a strategy is told of it. New
    /// orders stop until a person has compared, and arms; a trade that the session has missed is
    /// booked. Of a trade that a closed session may still bring a person hears, and nothing else
    /// happens.
    pub(crate) fn poll_reconciler(&mut self, now_ns: u64) -> Option<(Difference, OrderEvents)> {
        let is_open = self.session.is_open();
        let difference = self.reconciler.as_mut()?.poll(is_open, now_ns)?;
        self.counts.alarms += 1;
        let (difference, events) = match difference {
            Difference::Awaited(_) => return Some((difference, OrderEvents::new())),
            Difference::OnlyTheirs(trade) => match self.book_missed(&trade, now_ns) {
                Some(events) => (difference, events),
                None => (Difference::Unbooked(trade), OrderEvents::new()),
            },
            _ => (difference, OrderEvents::new()),
        };
        self.disarm(now_ns);
        Some((difference, events))
    }

    /// Books a trade that the session has missed, or takes one back. Where the session brings it
    /// after all, the order knows the execution. `None` where nothing is booked: its order is not
    /// known, or it may have been counted and forgotten.
    fn book_missed(&mut self, trade: &Trade, now_ns: u64) -> Option<OrderEvents> {
        let Trade { id, exec, terms, .. } = *trade;
        let orders = self.manager.orders();
        if orders.has_forgotten_executions() || orders.find(OrderKey::Client(id)).is_none() {
            return None;
        }
        let event = match terms {
            Some((qty, price)) => VenueEvent::Filled { exec, qty, price },
            None => VenueEvent::Busted { exec },
        };
        let events = self.manager.take(0, &VenueMessage::answer(OrderKey::Client(id), event), now_ns);
        events.iter().for_each(|event| self.notice_alarm(event));
        let is_booked = events.iter().any(|event| event.outcome.effect != Effect::None);
        self.counts.missed += u64::from(is_booked);
        is_booked.then_some(events)
    }

    /// Trades that the session and the drop copy both had.
    pub fn reconciled(&self) -> u64 {
        self.reconciler.as_ref().map_or(0, Reconciler::matched)
    }

    /// A person has compared the instrument with the venue.
    pub fn unblock(&mut self, instrument: InstrumentIdx, now_ns: u64) {
        self.manager.unblock(instrument, now_ns);
    }

    /// Acts upon the kill switch, asks about requests without an answer, and sends what is due.
    /// Call it in each turn; costs two loads and a look at 8 orders.
    pub fn poll(&mut self, now_ns: u64) {
        self.poll_unanswered(now_ns);
        self.poll_kill(now_ns);
        self.poll_stopped(now_ns);
    }

    /// Has memory and code of the next order in the cache, and changes nothing. Call it when
    /// nothing is urgent, behind what was done: some 800 instructions.
    pub fn warm(&mut self) {
        self.manager.warm(self.session.next_id());
        self.manager.rehearse();
    }

    /// Asks the venue to end the connection.
    pub fn log_out(&mut self, now_ns: u64) {
        self.session.log_out(now_ns);
        self.mark_numbers(now_ns);
    }

    /// What stopped orders or was an alarm, and was not told yet. Take all of them in each turn: of
    /// alarms there are 8 in a second, and once the number of the others. The clock is read where
    /// there is an alarm.
    pub fn take_notice(&mut self, clock: impl FnOnce() -> u64) -> Option<Notice> {
        self.notices.pop(clock)
    }

    /// The kill switch, where it was thrown and nobody has armed since.
    pub const fn killed(&self) -> Option<Killed> {
        self.killed
    }

    pub(crate) fn notice(&mut self, notice: Notice) {
        self.notices.push(notice);
    }

    /// The order states.
    pub const fn orders(&self) -> &OrderTable {
        self.manager.orders()
    }

    /// The risk gate.
    pub const fn risk(&self) -> &RiskGate {
        self.manager.risk()
    }

    /// The journal.
    pub const fn journal(&self) -> &Journal<M> {
        self.manager.journal()
    }

    /// The session.
    pub const fn session(&self) -> &S {
        &self.session
    }

    /// The session, for what its line tells it.
    pub const fn session_mut(&mut self) -> &mut S {
        &mut self.session
    }

    /// The counts so far.
    pub const fn counts(&self) -> CoreCounts {
        let manager = &self.manager;
        CoreCounts {
            answers: manager.answers(),
            trades: manager.trades(),
            alarms: self.counts.alarms + manager.alarms(),
            unjournaled: manager.unjournaled(),
            unwritten_refusals: manager.unwritten_refusals(),
            ..self.counts
        }
    }

    /// The last event that a person should see.
    pub const fn last_alarm(&self) -> Option<Alarm> {
        self.manager.last_alarm()
    }
}
