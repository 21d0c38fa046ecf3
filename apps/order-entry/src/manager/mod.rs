//! A session's orders: states, risk checks and journal, kept in step.
//!
//! ```text
//!  strategy ── new_order, replace, cancel ──> OrderTable ▸ RiskGate ▸ Journal ──> Ok: send it
//!                                                 ▲           ▲          ▲
//!  session ─── take(VenueMessage) ────────────────┴───────────┴──────────┘
//! ```
//!
//! A request that is refused has changed nothing but counters, and the journal has its reason, once
//! for those in a row, while it has room beside that for answers. One that passed stands in the
//! journal before its caller can send a byte of it.

mod answers;
mod rehearsal;
mod requests;

pub use answers::OrderEvents;

use core::fmt;
use std::io;

use market::{Side, Symbol};

use self::rehearsal::Rehearsal;
use crate::journal::{
    Entry, Full, Journal, JournalError, JournalMemory, NO_NAME, Rebuild, Record, Stamp, StrategyName,
};
use crate::orders::{
    Alarm, OrderCapacity, OrderField, OrderKey, OrderRules, OrderTable, Query, RequestError, TradeTotals,
};
use crate::risk::{
    InstrumentIdx, KillCause, KillSwitch, Limits, RiskCapacity, RiskGate, RiskReject, StaleLimits, StrategyIdx,
};
use crate::session::SendError;

/// What an [`OrderManager`] is made of.
#[derive(Clone, Debug)]
pub struct ManagerConfig {
    /// The limits with which it starts. By default none: every limit is zero until it is set.
    pub limits: Box<Limits>,
    /// The venue's names of the instruments, by the position of their limits. By default none: then
    /// a journal that is recovered must be of the same instruments at the same positions.
    pub symbols: Box<[Symbol]>,
    /// The names of the strategies, by the position of their limits. By default none, as for
    /// symbols.
    pub strategies: Box<[StrategyName]>,
    /// The switch that disarms it. By default a new one.
    pub kill: KillSwitch,
    /// How the venue answers where venues differ. By default as [`OrderRules`].
    pub rules: OrderRules,
    /// Sizes of the order table. By default 65,536 orders.
    pub orders: OrderCapacity,
    /// Orders inside the duplicates' window. By default 65,536.
    pub recent: usize,
    /// Orders and replaces that the venue has not answered, at once: one more is refused
    /// ([`Limit::InFlight`](crate::risk::Limit::InFlight)), before the venue stops reading. Cancels
    /// pass. By default no limit.
    pub in_flight_max: usize,
    /// Nanoseconds to add to the clock of the calls for the time since the epoch, which the journal
    /// has. By default 0.
    pub epoch_offset_ns: u64,
    /// A journal whose limits are newer is gone on with all the same: for a standby, because orders
    /// live at the venue and somebody must be able to cancel them. Whoever sets it arms nothing
    /// ([`Rebuild::limits_version`]). By default false: it is refused.
    pub takes_older_limits: bool,
}

impl ManagerConfig {
    /// All defaults, with `limits`.
    pub fn new(limits: impl Into<Limits>) -> Self {
        Self {
            limits: Box::new(limits.into()),
            symbols: Box::default(),
            strategies: Box::default(),
            kill: KillSwitch::new(),
            rules: OrderRules::default(),
            orders: OrderCapacity::default(),
            recent: RiskCapacity::default().recent,
            in_flight_max: usize::MAX,
            epoch_offset_ns: 0,
            takes_older_limits: false,
        }
    }
}

/// A request that must not be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// A risk limit: its name, its value and the order's.
    Risk(RiskReject),
    /// The order's state.
    State(RequestError),
    /// The session.
    Session(SendError),
    /// The journal has no room: no orders before it has.
    Journal(Full),
    /// The journal's disk failed.
    Disk,
    /// There is no instrument or order of this number.
    Unknown,
    /// The order contradicts itself in this field.
    Contradiction(OrderField),
    /// The line did not take it.
    Unsent,
}

impl Refusal {
    /// The reason's name in counts: a limit's, or what else refused it, without its values.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Risk(reject) => reject.limit.name(),
            Self::State(RequestError::Full) => "no free slot for an order",
            Self::State(RequestError::IdUsed) => "id used before",
            Self::State(RequestError::Blocked) => "blocked instrument",
            Self::State(RequestError::Ended) => "order has ended",
            Self::State(RequestError::CancelPending) => "cancel not answered",
            Self::State(RequestError::ReplacesPending) => "replaces not answered",
            Self::Session(SendError::Closed) => "session closed",
            Self::Session(SendError::Range) => "price or quantity not in the protocol",
            Self::Session(SendError::Field(_)) => "field not in the protocol",
            Self::Session(SendError::Ids) => "ids of the day used up",
            Self::Session(SendError::Room) => "line takes less than is sent",
            Self::Journal(_) => "journal without room",
            Self::Disk => "journal's disk failed",
            Self::Unknown => "unknown instrument or order",
            Self::Contradiction(_) => "field contradicts another",
            Self::Unsent => "line did not take it",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Risk(reject) => reject.fmt(f),
            Self::State(error) => error.fmt(f),
            Self::Journal(full) => full.fmt(f),
            Self::Session(error) => error.fmt(f),
            Self::Disk => f.write_str("the journal's disk failed"),
            Self::Unknown => f.write_str("there is no instrument or order of this number"),
            Self::Contradiction(field) => write!(f, "the order's {field} contradicts what else it says"),
            Self::Unsent => f.write_str("the line did not take the order"),
        }
    }
}

impl core::error::Error for Refusal {}

/// The orders of one session. One thread owns it; after construction no call allocates. A new order
/// costs some 100 ns: its checks and its record in the journal.
#[derive(Debug)]
pub struct OrderManager<M> {
    table: OrderTable,
    gate: RiskGate,
    journal: Journal<M>,
    symbols: Box<[Symbol]>,
    strategies: Box<[StrategyName]>,
    /// Likewise, as the journal has them.
    declared: Box<[StrategyName]>,
    /// By instrument, what the account held before the journal's first order.
    openings: Box<[i64]>,
    epoch_offset_ns: u64,
    in_flight_max: usize,
    trades: TradeTotals,
    answers: u64,
    alarms: u64,
    last_alarm: Option<Alarm>,
    unjournaled: u64,
    /// The journal's end behind the refusal that was written last, and what it was.
    last_refused: Option<(usize, Entry)>,
    unwritten_refusals: u64,
    /// A stop is written down, and not on the disk.
    is_sync_due: bool,
    /// The disk has failed once: what it could not write the kernel takes for written.
    has_disk_failed: bool,
    /// A process before this one may have used the rates a moment ago.
    are_rates_unknown: bool,
    /// The version of limits that the journal has last; 0 for none.
    limits_noted: u64,
    rehearsal: Box<Rehearsal>,
}

impl<M: JournalMemory> OrderManager<M> {
    /// A disarmed manager without orders.
    pub fn new(config: ManagerConfig, journal: Journal<M>) -> Self {
        let ManagerConfig {
            limits,
            symbols,
            strategies,
            kill,
            rules,
            orders,
            recent,
            in_flight_max,
            epoch_offset_ns,
            ..
        } = config;
        Self {
            openings: vec![0; limits.instruments.len()].into(),
            table: OrderTable::new(orders, rules),
            gate: RiskGate::new(limits, kill, RiskCapacity { orders: orders.orders, recent }),
            journal,
            symbols,
            declared: vec![NO_NAME; strategies.len()].into(),
            strategies,
            epoch_offset_ns,
            in_flight_max,
            trades: TradeTotals::default(),
            answers: 0,
            alarms: 0,
            last_alarm: None,
            unjournaled: 0,
            last_refused: None,
            unwritten_refusals: 0,
            is_sync_due: false,
            has_disk_failed: false,
            are_rates_unknown: false,
            limits_noted: 0,
            rehearsal: Box::new(Rehearsal::new()),
        }
    }

    /// A disarmed manager that goes on where `memory`, an existing journal, ends: with its orders
    /// and positions, by their symbols. Live orders are in doubt until the venue has answered. The
    /// session goes on from [`Rebuild::session`]. `reserve` is that of [`Journal::create`].
    ///
    /// # Errors
    ///
    /// The memory is no journal, has records that this program does not know or limits of a newer
    /// version than `config`, or `config` lacks an instrument of which the journal has shares or
    /// live orders, or a strategy that is stopped or has live orders.
    pub fn recover(config: ManagerConfig, memory: M, reserve: usize) -> Result<(Self, Rebuild), JournalError> {
        let mut table = OrderTable::new(config.orders, config.rules);
        let capacity = RiskCapacity { orders: config.orders.orders, recent: config.recent };
        let mut gate = RiskGate::new(config.limits.clone(), config.kill.clone(), capacity);
        let mut rebuild = Rebuild::of(&config.symbols, &config.strategies).by_clock(config.epoch_offset_ns);
        let apply = |record: &Record<'_>| rebuild.apply(record, &mut table, &mut gate);
        let (mut journal, _) = Journal::recover(memory, reserve, apply)?;
        if rebuild.counts().unknown > 0 {
            return Err(JournalError::Unknown(rebuild.counts().unknown));
        }
        let (journals, offered) = (rebuild.limits_version(), config.limits.version);
        if offered < journals && !config.takes_older_limits {
            return Err(JournalError::StaleLimits { journal: journals, offered });
        }
        if let Some(missing) = rebuild.missing(&table) {
            return Err(JournalError::Missing(missing));
        }
        if let Some(missing) = rebuild.missing_strategy(&table) {
            return Err(JournalError::MissingStrategy(missing));
        }
        if let Some(name) = rebuild.stopped_other() {
            return Err(JournalError::StoppedStrategy(name));
        }
        journal.upgrade();
        table.restart();
        let instruments = (0..config.limits.instruments.len() as u32).map(InstrumentIdx);
        let openings = instruments.map(|instrument| rebuild.opening_position(instrument)).collect();
        let limits_noted = rebuild.limits_version();
        let mut declared = rebuild.declared_strategies().to_vec();
        declared.resize(declared.len().max(config.strategies.len()), NO_NAME);
        let declared = declared.into();
        let fresh = Self::new(config, journal);
        Ok((Self { openings, declared, limits_noted, are_rates_unknown: true, table, gate, ..fresh }, rebuild))
    }

    /// Lets orders pass. A person does this, after each start and each throw of the switch. Nobody
    /// can where the disk has failed: [`OrderManager::has_disk_failed`].
    ///
    /// Behind [`OrderManager::recover`] the rates of orders are full at first, because the venue
    /// counts what the process before has sent: they drain from here on.
    pub fn arm(&mut self, now_ns: u64) {
        self.arm_for(self.gate.kill_throws(), now_ns);
    }

    /// [`OrderManager::arm`] by a person who saw the switch at
    /// [`throws`](crate::risk::KillSwitch::throws) and whose word comes later. Whether it counts: a
    /// throw since then stands.
    pub fn arm_for(&mut self, throws: u64, now_ns: u64) -> bool {
        if self.has_disk_failed {
            return false;
        }
        if core::mem::take(&mut self.are_rates_unknown) {
            self.gate.fill_rates(now_ns);
        }
        self.gate.arm_for(throws);
        if self.gate.is_armed() {
            self.declare_strategies(now_ns);
            self.note(&Entry::Armed(true), now_ns);
        }
        // A journal without room for that disarms.
        self.gate.is_armed()
    }

    /// Writes down which strategy has which position, where the journal has it otherwise: orders
    /// that follow have the position alone, and those before keep their strategies.
    fn declare_strategies(&mut self, now_ns: u64) {
        for place in 0..self.declared.len() {
            let strategy = StrategyIdx(place as u16);
            let (name, unjournaled) = (self.strategy_name(strategy), self.unjournaled);
            if self.declared[place] == name {
                continue;
            }
            self.note(&Entry::Declared { name, strategy }, now_ns);
            if self.unjournaled == unjournaled {
                self.declared[place] = name;
            }
        }
    }

    /// Refuses orders from now on. Live orders stay.
    pub fn disarm(&mut self, now_ns: u64) {
        self.gate.disarm();
        self.note(&Entry::Armed(false), now_ns);
    }

    /// The account held `position` shares of the instrument before the journal's first order, below
    /// zero where it was short: limits and marks of sales count from there. Call it before orders
    /// pass. What the journal has already is not written again, and another position takes the
    /// place of that. An instrument without limits is ignored.
    pub fn set_opening_position(&mut self, instrument: InstrumentIdx, position: i64, now_ns: u64) {
        let Some(opening) = self.openings.get_mut(instrument.0 as usize) else { return };
        let shares = position.saturating_sub(*opening);
        if shares != 0 {
            *opening = position;
            self.gate.move_position(instrument, shares);
            self.note(&Entry::Opening { symbol: self.symbol(instrument), instrument, position }, now_ns);
        }
    }

    /// What the account held of the instrument before the journal's first order; `None` of one
    /// without limits.
    pub fn opening_position(&self, instrument: InstrumentIdx) -> Option<i64> {
        self.openings.get(instrument.0 as usize).copied()
    }

    /// The kill switch was thrown. A process that goes on from this journal is as disarmed. The
    /// disk may hang, and no cancel may wait for it: have the record on the disk
    /// ([`OrderManager::is_sync_due`]) when the cancels have left.
    pub fn killed(&mut self, cause: KillCause, now_ns: u64) {
        self.note(&Entry::Killed(cause), now_ns);
        self.disarm(now_ns);
        self.is_sync_due = true;
    }

    /// A person has all orders canceled. A process that goes on from this journal goes on with it.
    /// The sync is due as behind [`OrderManager::killed`].
    pub fn canceled_all(&mut self, now_ns: u64) {
        self.note(&Entry::CanceledAll, now_ns);
        self.is_sync_due = true;
    }

    /// Whether a stop is written down and was not synced: one sync for each throw of the switch,
    /// and for each strategy that is stopped, has it outlive a power cut. Where another thread
    /// syncs, it is asked to and [`OrderManager::take_sync_due`] says so; else
    /// [`OrderManager::sync`] does it here.
    pub const fn is_sync_due(&self) -> bool {
        self.is_sync_due
    }

    /// Whether a sync is due, which another thread does from now on.
    pub const fn take_sync_due(&mut self) -> bool {
        core::mem::replace(&mut self.is_sync_due, false)
    }

    /// Has all that is written down on the disk. It blocks. A disk that fails is an alarm, and no
    /// order passes any more.
    pub fn sync(&mut self, now_ns: u64) {
        self.is_sync_due = false;
        if self.journal.memory().sync(self.journal.end()).is_err() {
            self.alarms += 1;
            self.disk_failed(now_ns);
        }
    }

    /// Whether the disk has failed: what it could not write the kernel takes for written, so that a
    /// later sync says nothing. No order passes, whoever arms, until the process is started on
    /// another disk.
    pub const fn has_disk_failed(&self) -> bool {
        self.has_disk_failed
    }

    fn disk_failed(&mut self, now_ns: u64) {
        self.has_disk_failed = true;
        self.disarm(now_ns);
    }

    /// Stops a strategy: see [`RiskGate::stop_strategy`]. The stop is to be on the disk behind its
    /// cancels, as a throw of the kill switch. False, and nothing happens, where the strategy has
    /// no limits.
    pub fn stop_strategy(&mut self, strategy: StrategyIdx, now_ns: u64) -> bool {
        if !self.gate.stop_strategy(strategy) {
            return false;
        }
        self.note(&Entry::Strategy { name: self.strategy_name(strategy), strategy, is_stopped: true }, now_ns);
        self.is_sync_due = true;
        true
    }

    /// Lets a strategy that was stopped go on. False, and nothing happens, where it has no limits.
    pub fn resume_strategy(&mut self, strategy: StrategyIdx, now_ns: u64) -> bool {
        let is_known = self.gate.resume_strategy(strategy);
        if is_known {
            self.note(&Entry::Strategy { name: self.strategy_name(strategy), strategy, is_stopped: false }, now_ns);
        }
        is_known
    }

    /// The name of a strategy; [`NO_NAME`] where it has none.
    pub fn strategy_name(&self, strategy: StrategyIdx) -> StrategyName {
        self.strategies.get(usize::from(strategy.0)).copied().unwrap_or(NO_NAME)
    }

    /// The wall clock has stepped: this is added from now on to the clock of the calls for the time
    /// since the epoch. Records before keep their times.
    pub const fn set_epoch_offset_ns(&mut self, epoch_offset_ns: u64) {
        self.epoch_offset_ns = epoch_offset_ns;
    }

    /// The journal's time of `now_ns`: nanoseconds since 1970.
    pub const fn utc_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_add(self.epoch_offset_ns)
    }

    /// Puts other limits in force, and returns those before for another thread to free. The block
    /// that is refused comes back with the reason.
    pub fn set_limits(&mut self, limits: Box<Limits>, now_ns: u64) -> Result<Box<Limits>, (StaleLimits, Box<Limits>)> {
        let old = self.gate.swap_limits(limits)?;
        self.note_limits(now_ns);
        Ok(old)
    }

    /// Writes down that a standby follows, without whose grants nothing is sent; 0 for none. It is
    /// on the disk when this returns: a primary that forgets its standby in a power cut would send
    /// beside it. Costs a sync, once for each standby.
    ///
    /// # Errors
    ///
    /// The disk failed: the standby must not be asked for grants.
    pub fn set_standby(&mut self, id: u64, now_ns: u64) -> io::Result<()> {
        self.note(&Entry::Standby { id }, now_ns);
        self.journal.memory().sync(self.journal.end()).inspect_err(|_| self.disk_failed(now_ns))
    }

    /// Writes down the version of the limits in force, where the journal has another one: a process
    /// that goes on from it takes none that are older. Call it before orders pass.
    pub fn note_limits(&mut self, now_ns: u64) {
        let version = self.gate.limits().version;
        if self.limits_noted < version {
            self.limits_noted = version;
            self.note(&Entry::Limits { version }, now_ns);
        }
    }

    /// A person has compared the instrument with the venue: its orders may be sent again.
    pub fn unblock(&mut self, instrument: InstrumentIdx, now_ns: u64) {
        self.table.unblock(instrument);
        self.note(&Entry::Unblocked { symbol: self.symbol(instrument), instrument }, now_ns);
    }

    /// An order whose answer is overdue by `timeout_ns`, about which the venue should be asked.
    /// Call it in each turn: a look at 8 orders.
    #[inline]
    pub fn poll_unanswered(&mut self, now_ns: u64, timeout_ns: u64) -> Option<Query> {
        self.table.poll_unanswered(now_ns, timeout_ns)
    }

    /// Has the memory of the next order, whose client id will be `id`, in the cache: its slot, the
    /// places of its id, its record in the journal. Changes nothing. Call it after an order, when
    /// nothing is urgent; without it the order waits for memory that was not used for the longest
    /// time, some 500 ns.
    pub fn warm(&mut self, id: u64) {
        self.journal.warm();
        if let Some(slot) = self.table.warm(id) {
            self.gate.warm(slot);
        }
    }

    /// Has the code of a new order in the cache: another order, of a table, gate and journal of its
    /// own, passes the same checks, is written down and ends. Changes nothing else. Call it after
    /// answers, when nothing is urgent; some 600 instructions.
    pub fn rehearse(&mut self) {
        let is_passed = self.rehearsal.run();
        debug_assert!(is_passed, "a rehearsal was refused");
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

    /// What was traded, with busts and corrections, since the manager was made.
    pub const fn trades(&self) -> TradeTotals {
        self.trades
    }

    /// Answers about orders that were applied.
    pub const fn answers(&self) -> u64 {
        self.answers
    }

    /// The last event that a person should see.
    pub const fn last_alarm(&self) -> Option<Alarm> {
        self.last_alarm
    }

    /// Events that a person should see.
    pub const fn alarms(&self) -> u64 {
        self.alarms
    }

    /// Answers that did not fit the journal. The first one disarmed the gate.
    pub const fn unjournaled(&self) -> u64 {
        self.unjournaled
    }

    /// Refused requests that the journal does not have: the one before was refused for the same
    /// reason, or there was no room but that for answers.
    pub const fn unwritten_refusals(&self) -> u64 {
        self.unwritten_refusals
    }

    /// Whether the order `id` is there, and of this instrument and side.
    pub fn has_order_of(&self, id: u64, symbol: Symbol, side: Side) -> bool {
        let order = self.table.find(OrderKey::Client(id)).and_then(|slot| self.table.get(slot));
        order.is_some_and(|order| order.side == side && self.symbol(order.instrument) == symbol)
    }

    /// The venue's name for the instrument; blank where none was given.
    fn symbol(&self, instrument: InstrumentIdx) -> Symbol {
        self.symbols.get(instrument.0 as usize).copied().unwrap_or_default()
    }

    #[inline]
    fn stamp(&self, now_ns: u64) -> Stamp {
        let at_ns = now_ns.saturating_add(self.epoch_offset_ns);
        Stamp { at_ns, event_ns: at_ns }
    }

    /// Appends what must not be lost. A full journal disarms the gate: what cannot be written down
    /// must not happen.
    fn note(&mut self, entry: &Entry, now_ns: u64) {
        self.note_bytes(entry.kind(), &entry.encode(), now_ns);
    }

    fn note_bytes(&mut self, kind: u16, payload: &[u8], now_ns: u64) {
        let stamp = self.stamp(now_ns);
        if self.journal.append(kind, stamp, payload).is_err() {
            self.unjournaled += 1;
            self.gate.disarm();
        }
    }
}

#[cfg(test)]
mod tests;
