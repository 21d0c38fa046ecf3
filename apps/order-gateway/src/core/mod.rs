//! Everything between a strategy and a line, without the line: risk gate, order states, journal,
//! session.

mod answers;
mod requests;

use core::fmt;

use market::Symbol;
use order_entry::journal::{Entry, Journal, Rebuild, Record, SessionMark, Stamp};
use order_entry::orders::{Alarm, OrderCapacity, OrderKey, OrderTable, TradeTotals};
use order_entry::risk::{InstrumentIdx, KillSwitch, Limits, Market, RiskCapacity, RiskGate, Route};
use order_entry::session::Output;

use crate::JournalMemory;
use crate::drop_copy::{Difference, Reconciler, Trade};
use crate::session::Session;

pub(crate) use answers::Told;

/// Bytes that wait for the line. A request that does not fit is refused.
const OUT_LEN: usize = 64 * 1_024;

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
    /// The limits with which the gateway starts.
    pub limits: Box<Limits>,
    /// Sizes of the order table.
    pub orders: OrderCapacity,
    /// Sizes of the risk gate; its slots are those of the order table.
    pub risk: RiskCapacity,
    /// Nanoseconds to add to the clock of the calls for the time since the epoch.
    pub epoch_offset_ns: u64,
    /// The venue is asked about a request without an answer after this time. By default 2 s.
    pub answer_timeout_ns: u64,
}

impl CoreConfig {
    /// [`CoreConfig::answer_timeout_ns`] by default.
    pub const ANSWER_TIMEOUT_NS: u64 = 2_000_000_000;
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
    /// Requests that were refused.
    pub refused: u64,
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
}

impl fmt::Display for CoreCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { orders, replaces, cancels, refused, queries, answers, trades, alarms, unjournaled } = self;
        writeln!(f, "{orders} orders, {replaces} replaces and {cancels} cancels sent, {refused} requests refused")?;
        writeln!(
            f,
            "  {answers} answers, {queries} questions about missing ones, {alarms} alarms, {unjournaled} not in the journal"
        )?;
        write!(f, "  account: {trades}")
    }
}

/// The state of one session and its orders.
#[derive(Debug)]
pub struct Core<S, M> {
    pub(crate) session: S,
    pub(crate) table: OrderTable,
    pub(crate) gate: RiskGate,
    pub(crate) journal: Journal<M>,
    instruments: Box<[Instrument]>,
    pub(crate) markets: Box<[Market]>,
    out: Box<[u8]>,
    out_len: usize,
    pub(crate) timer_ns: Option<u64>,
    kill: KillSwitch,
    /// Throws of the switch that were acted upon.
    throws: u64,
    /// All orders are to be canceled as soon as the session takes it.
    is_mass_cancel_due: bool,
    epoch_offset_ns: u64,
    answer_timeout_ns: u64,
    counts: CoreCounts,
    last_alarm: Option<Alarm>,
    reconciler: Option<Reconciler>,
}

impl<S: Session, M: JournalMemory> Core<S, M> {
    /// A disarmed core that begins a journal.
    pub fn new(config: CoreConfig, session: S, journal: Journal<M>, kill: KillSwitch) -> Self {
        let CoreConfig { instruments, limits, orders, risk, epoch_offset_ns, answer_timeout_ns } = config;
        Self {
            table: OrderTable::new(orders, session.rules()),
            gate: RiskGate::new(limits, kill.clone(), RiskCapacity { orders: orders.orders, ..risk }),
            journal,
            markets: vec![Market { is_stale: true, ..Market::default() }; instruments.len()].into_boxed_slice(),
            instruments,
            out: vec![0; OUT_LEN].into_boxed_slice(),
            out_len: 0,
            timer_ns: None,
            throws: kill.throws(),
            kill,
            is_mass_cancel_due: false,
            epoch_offset_ns,
            answer_timeout_ns,
            counts: CoreCounts::default(),
            last_alarm: None,
            reconciler: None,
            session,
        }
    }

    /// A disarmed core that goes on where `memory`, an existing journal, ends: with its orders,
    /// positions and numbers. Live orders are in doubt until the venue has answered.
    pub fn recover(
        config: CoreConfig,
        session: S,
        memory: M,
        kill: KillSwitch,
        reserve: usize,
    ) -> Result<(Self, Rebuild), order_entry::journal::JournalError> {
        let mut table = OrderTable::new(config.orders, session.rules());
        let risk = RiskCapacity { orders: config.orders.orders, ..config.risk };
        let mut gate = RiskGate::new(config.limits.clone(), kill.clone(), risk);
        let mut rebuild = Rebuild::new();
        let apply = |record: &Record<'_>| rebuild.apply(record, &mut table, &mut gate);
        let (journal, _) = Journal::recover(memory, reserve, apply)?;
        let mut core = Self::new(config, session, journal, kill);
        (core.table, core.gate) = (table, gate);
        core.take_over(&rebuild);
        Ok((core, rebuild))
    }

    /// Makes what a replay found the state of the session.
    fn take_over(&mut self, rebuild: &Rebuild) {
        self.table.restart();
        let SessionMark { session, next_inbound, next_id } = rebuild.session();
        if next_inbound > 0 {
            self.session.resume(session, next_inbound, next_id);
        }
    }

    /// The feed delivered something, heartbeats included: the books are not silent.
    pub fn feed_heard(&mut self, now_ns: u64) {
        for market in &mut self.markets {
            market.heard_ns = now_ns;
        }
    }

    /// Bytes to send, in order. Call [`Core::sent`] with as many as the line took.
    pub fn to_send(&self) -> &[u8] {
        &self.out[..self.out_len]
    }

    /// The line took `len` bytes.
    pub fn sent(&mut self, len: usize) {
        self.out.copy_within(len..self.out_len, 0);
        self.out_len -= len;
    }

    /// Lets orders pass. A person does this, after each start and each kill.
    pub fn arm(&mut self, now_ns: u64) {
        self.throws = self.kill.throws();
        self.is_mass_cancel_due = false;
        self.gate.arm();
        self.note(&Entry::Armed(true), now_ns);
    }

    /// Refuses orders from now on. Live orders stay.
    pub fn disarm(&mut self, now_ns: u64) {
        self.gate.disarm();
        self.note(&Entry::Armed(false), now_ns);
    }

    /// Puts other limits in force, and returns those before for another thread to free. The block
    /// that is refused comes back with the reason.
    pub fn set_limits(
        &mut self,
        limits: Box<Limits>,
        now_ns: u64,
    ) -> Result<Box<Limits>, (order_entry::risk::StaleLimits, Box<Limits>)> {
        let version = limits.version;
        let old = self.gate.swap_limits(limits)?;
        self.note(&Entry::Limits { version }, now_ns);
        Ok(old)
    }

    /// Writes down that a standby follows, without whose grants nothing is sent; 0 for none.
    pub fn set_standby(&mut self, id: u64, now_ns: u64) {
        self.note(&Entry::Standby { id }, now_ns);
    }

    /// Cancels all orders, past the rates of the gate. New ones pass as before.
    pub fn cancel_all(&mut self, now_ns: u64) {
        self.send_cancel_all(now_ns);
    }

    /// Compares each trade with the drop copy's from now on.
    pub fn reconcile(&mut self, lag_ns: u64) {
        self.reconciler = Some(Reconciler::new(lag_ns));
    }

    /// The drop copy brought a trade.
    pub fn drop_copied(&mut self, trade: Trade, now_ns: u64) {
        let key = OrderKey::Client(trade.id);
        let known = self.table.execution(key, trade.exec);
        let Some(reconciler) = &mut self.reconciler else { return };
        let known = known.filter(|(.., is_busted)| trade.terms.is_some() || *is_busted);
        let known = known.map(|(qty, price, _)| Trade { terms: trade.terms.map(|_| (qty, price)), ..trade });
        reconciler.theirs(trade, known, now_ns);
    }

    /// What the drop copy and the session do not agree on. New orders stop until a person has
    /// compared, and arms.
    pub fn poll_reconciler(&mut self, now_ns: u64) -> Option<Difference> {
        let difference = self.reconciler.as_mut()?.poll(now_ns)?;
        self.counts.alarms += 1;
        self.disarm(now_ns);
        Some(difference)
    }

    /// Trades that the session and the drop copy both had.
    pub fn reconciled(&self) -> u64 {
        self.reconciler.as_ref().map_or(0, Reconciler::matched)
    }

    /// A person has compared the instrument with the venue.
    pub fn unblock(&mut self, instrument: InstrumentIdx, now_ns: u64) {
        self.table.unblock(instrument);
        self.note(&Entry::Unblocked(instrument), now_ns);
    }

    /// Acts upon the kill switch, asks about requests without an answer, and sends what is due.
    /// Call it in each turn; costs two loads and a look at 8 orders.
    pub fn poll(&mut self, now_ns: u64) {
        self.poll_unanswered(now_ns);
        self.poll_kill(now_ns);
    }

    fn poll_kill(&mut self, now_ns: u64) {
        let throws = self.kill.throws();
        if throws != self.throws {
            self.throws = throws;
            self.is_mass_cancel_due = true;
            self.disarm(now_ns);
        }
        if self.is_mass_cancel_due && self.session.is_open() {
            self.is_mass_cancel_due = false;
            self.send_cancel_all(now_ns);
        }
    }

    /// Asks the venue to end the connection.
    pub fn log_out(&mut self, now_ns: u64) {
        self.write(|session, output| session.logout(now_ns, output));
    }

    /// The order states.
    pub const fn orders(&self) -> &OrderTable {
        &self.table
    }

    /// The risk gate.
    pub const fn risk(&self) -> &RiskGate {
        &self.gate
    }

    /// The journal.
    pub const fn journal(&self) -> &Journal<M> {
        &self.journal
    }

    /// The session.
    pub const fn session(&self) -> &S {
        &self.session
    }

    /// The counts so far.
    pub const fn counts(&self) -> CoreCounts {
        self.counts
    }

    /// The last event that a person should see.
    pub const fn last_alarm(&self) -> Option<Alarm> {
        self.last_alarm
    }

    fn stamp(&self, now_ns: u64) -> Stamp {
        let at_ns = now_ns.saturating_add(self.epoch_offset_ns);
        Stamp { at_ns, event_ns: at_ns }
    }

    /// Appends what must not be lost. A full journal disarms the gate: what cannot be written down
    /// must not happen.
    fn note(&mut self, entry: &Entry, now_ns: u64) {
        let stamp = self.stamp(now_ns);
        if self.journal.append(entry.kind(), stamp, &entry.encode()).is_err() {
            self.counts.unjournaled += 1;
            self.gate.disarm();
        }
    }

    /// Lets the session write behind what waits for the line.
    fn write<R>(&mut self, write: impl FnOnce(&mut S, &mut Output<'_>) -> R) -> R {
        let mut output = Output::new(&mut self.out[self.out_len..]);
        let result = write(&mut self.session, &mut output);
        self.out_len += output.len();
        result
    }
}
