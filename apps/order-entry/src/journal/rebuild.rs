//! Order states and risk sums from a journal, after a crash or in a standby.

use market::Symbol;

use super::entry::{Entry, Intent, SessionMark, StrategyName};
use super::instruments::{Instruments, MissingInstrument};
use super::reader::Record;
use super::strategies::{MissingStrategy, Strategies};
use super::units::UnitNumbers;
use crate::orders::{OrderKey, OrderTable, RequestError, VenueEvent};
use crate::risk::{InstrumentIdx, KillCause, RiskGate};

/// What a replay met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RebuildCounts {
    /// Entries that were applied.
    pub applied: u64,
    /// Records of kinds that this version does not know.
    pub unknown: u64,
    /// Requests that the table or the gate did not take: they are smaller than those before, or the
    /// instruments are others. None is refused for what the replay itself does not know.
    pub refused: u64,
}

/// When a replayed request was sent, by the clock of the process that replays it: before all that
/// it does itself. The records' times are of another clock.
const SENT_NS: u64 = 0;

/// Applies records in order. The table and the gate are empty at first; the gate stays disarmed.
#[derive(Clone, Debug, Default)]
pub struct Rebuild {
    counts: RebuildCounts,
    instruments: Instruments,
    strategies: Strategies,
    /// What this run adds to its clock for the journal's times; `None` where that is not known.
    epoch_offset_ns: Option<u64>,
    session: SessionMark,
    units: UnitNumbers,
    limits_version: u64,
    standby: u64,
    is_armed: bool,
    killed: Option<Killed>,
    canceled_before: Option<u32>,
}

/// A kill switch that nobody has lifted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Killed {
    /// When it was thrown, in nanoseconds since 1970.
    pub since_ns: u64,
    /// By what.
    pub cause: KillCause,
}

impl Rebuild {
    /// Before the first record of a journal whose process had the same instruments at the same
    /// positions.
    pub fn new() -> Self {
        Self::default()
    }

    /// Before the first record, with the symbols of this run's instruments by position, and the
    /// names of its strategies: those of the journal may have had others.
    pub fn of(symbols: &[Symbol], strategies: &[StrategyName]) -> Self {
        Self { instruments: Instruments::new(symbols), strategies: Strategies::new(strategies), ..Self::default() }
    }

    /// The same in a process that adds this to its clock for the time since 1970. An order that was
    /// sent a moment ago is then known to the window of the duplicates.
    pub const fn by_clock(mut self, epoch_offset_ns: u64) -> Self {
        self.epoch_offset_ns = Some(epoch_offset_ns);
        self
    }

    /// Applies one record. A request becomes an order that was sent, because the journal cannot
    /// know that it was not.
    pub fn apply(&mut self, record: &Record<'_>, table: &mut OrderTable, gate: &mut RiskGate) {
        let Some(entry) = Entry::decode(record.kind, record.payload) else {
            self.counts.unknown += 1;
            return;
        };
        let is_taken = match entry {
            Entry::Intent(intent) => {
                self.remember(&intent, record.stamp.at_ns, gate);
                self.request(&intent, table, gate)
            }
            Entry::Unsent { id } => unsent(id, table, gate),
            Entry::Answer { number, key, event } => {
                self.received(number);
                self.answer(key, &event, table, gate);
                true
            }
            Entry::Session(mark) => {
                self.begin_session(mark);
                true
            }
            Entry::Received { number } => {
                self.received(number);
                true
            }
            Entry::Limits { version } => {
                self.limits_version = version;
                true
            }
            Entry::Standby { id } => {
                self.standby = id;
                true
            }
            Entry::Unblocked { symbol, instrument } => {
                table.unblock(self.instruments.find(symbol, instrument));
                true
            }
            Entry::Opening { symbol, instrument, position } => {
                let instrument = self.instruments.find(symbol, instrument);
                gate.move_position(instrument, self.instruments.open(instrument, position));
                true
            }
            Entry::Armed(is_armed) => {
                self.is_armed = is_armed;
                // A person lifts a thrown switch.
                self.killed = self.killed.filter(|_| !is_armed);
                true
            }
            Entry::Killed(cause) => {
                self.killed = Some(Killed { since_ns: record.stamp.at_ns, cause });
                self.is_armed = false;
                true
            }
            Entry::Strategy { name, strategy, is_stopped } => {
                self.strategies.stop((name, strategy), is_stopped, gate);
                true
            }
            Entry::Declared { name, strategy } => {
                self.strategies.declare(name, strategy);
                true
            }
            Entry::Gap => {
                self.gap(table);
                true
            }
            Entry::CanceledAll => {
                self.canceled_before = Some(table.opened());
                true
            }
            // A crash may have come before the gap that it is.
            Entry::Unread { number } => {
                self.received(number);
                self.gap(table);
                true
            }
            Entry::Refused { .. } => true,
        };
        if is_taken {
            self.counts.applied += 1;
        } else {
            self.counts.refused += 1;
        }
    }

    fn answer(&mut self, key: OrderKey, event: &VenueEvent, table: &mut OrderTable, gate: &mut RiskGate) {
        let outcome = table.apply(key, event);
        if !gate.follow(&outcome, table) {
            table.block(outcome.instrument);
        }
        self.instruments.follow(&outcome);
    }

    fn begin_session(&mut self, mark: SessionMark) {
        let next_id = self.session.next_id.max(mark.next_id);
        if mark.session == SessionMark::default().session {
            self.units.clear();
        }
        self.session = SessionMark { next_id, ..mark };
    }

    /// The session goes on behind message `number`; 0 is none.
    fn received(&mut self, number: u64) {
        if let Some((unit, sequence)) = UnitNumbers::split(number) {
            self.units.received(unit, sequence);
            return;
        }
        self.session.next_inbound = self.session.next_inbound.max(number.saturating_add(u64::from(number > 0)));
    }

    fn gap(&mut self, table: &mut OrderTable) {
        table.gap();
        self.is_armed = false;
    }

    /// Has the gate know an order that is not older than this run's clock.
    fn remember(&mut self, intent: &Intent, at_ns: u64, gate: &mut RiskGate) {
        let since_ns = self.epoch_offset_ns.map_or(0, |offset_ns| at_ns.saturating_sub(offset_ns));
        if let Intent::New { symbol, instrument, side, qty, price, .. } = *intent
            && since_ns > 0
        {
            gate.remember(self.instruments.find(symbol, instrument), side, (qty, price), since_ns);
        }
    }

    fn request(&mut self, intent: &Intent, table: &mut OrderTable, gate: &mut RiskGate) -> bool {
        match *intent {
            Intent::New { id, symbol, instrument, side, is_short, qty, price, strategy, instructions } => {
                let instrument = self.instruments.find(symbol, instrument);
                self.session.next_id = self.session.next_id.max(id.saturating_add(1));
                let slot = table.restore_order(id, (instrument, side), (qty, price), SENT_NS);
                let Ok(slot) = slot else {
                    // It may live at the venue, and nothing here counts it.
                    table.block(instrument);
                    return false;
                };
                let strategy = self.strategies.find(strategy, gate);
                table.assign(slot, strategy);
                table.instruct(slot, &instructions);
                if is_short {
                    table.mark_short(slot);
                }
                let order_type = instructions.order_type;
                let is_reserved = gate.restore_order_of(strategy, order_type, slot, (instrument, side), (qty, price));
                if !is_reserved {
                    table.block(instrument);
                }
                is_reserved
            }
            Intent::Replace { target, id, qty, price } => {
                self.session.next_id = self.session.next_id.max(id.saturating_add(1));
                let Some(slot) = table.find(OrderKey::Client(target)) else { return false };
                let cum = table.get(slot).map_or(0, |order| order.cum());
                if table.restore_replace(slot, id, (qty, price), SENT_NS).is_err() {
                    return false;
                }
                let is_reserved = gate.restore_replace(slot, id, (qty.saturating_sub(cum), price));
                if let Some(order) = table.get(slot).filter(|_| !is_reserved) {
                    table.block(order.instrument);
                }
                is_reserved
            }
            Intent::Cancel { target } => {
                let asked = table.find(OrderKey::Client(target)).map(|slot| table.request_cancel(slot, SENT_NS));
                // An order in doubt may be canceled again; doubts are not in the journal.
                matches!(asked, Some(Ok(_) | Err(RequestError::CancelPending)))
            }
        }
    }

    /// An instrument of the journal that this run does not have, although the journal has shares or
    /// live orders of it: nobody would check or cancel them. `table` is the one that was rebuilt.
    pub fn missing(&self, table: &OrderTable) -> Option<MissingInstrument> {
        self.instruments.missing(table)
    }

    /// A strategy that is stopped and that this run does not have, as by this name: under another
    /// one it would trade.
    pub fn stopped_other(&self) -> Option<StrategyName> {
        self.strategies.stopped_other()
    }

    /// A strategy that this run does not have, as by this name, although the journal has live
    /// orders of it: they would be another one's, or nobody's. `table` is the one that was rebuilt.
    pub fn missing_strategy(&self, table: &OrderTable) -> Option<MissingStrategy> {
        self.strategies.missing(table)
    }

    /// The names that the journal has for the positions of strategies, as it said them last.
    pub fn declared_strategies(&self) -> &[StrategyName] {
        self.strategies.declared()
    }

    /// What the account held of an instrument before the journal's first order.
    pub fn opening_position(&self, instrument: InstrumentIdx) -> i64 {
        self.instruments.opening(instrument)
    }

    /// What was met so far.
    pub const fn counts(&self) -> RebuildCounts {
        self.counts
    }

    /// The session's last mark, with the next client id that no request used.
    pub const fn session(&self) -> SessionMark {
        self.session
    }

    /// Of a session whose venue numbers by matching unit: the last number of each.
    pub const fn units(&self) -> &UnitNumbers {
        &self.units
    }

    /// The standby without whose grants nothing may be sent; 0 for none.
    pub const fn standby(&self) -> u64 {
        self.standby
    }

    /// Whether the gate was armed at the end. One that replaces a process goes on so, or disarmed.
    pub const fn is_armed(&self) -> bool {
        self.is_armed
    }

    /// The kill switch, where it was thrown and nobody has armed since: nothing but a person may
    /// arm.
    pub const fn killed(&self) -> Option<Killed> {
        self.killed
    }

    /// The orders that a person had canceled are those that were opened before the one of this
    /// [`Order::serial`](crate::orders::Order::serial). Some of them may live.
    pub const fn canceled_before(&self) -> Option<u32> {
        self.canceled_before
    }

    /// The version of the limits that were in force.
    pub const fn limits_version(&self) -> u64 {
        self.limits_version
    }
}

/// A request was never sent: its order has not been. False where there is none.
fn unsent(id: u64, table: &mut OrderTable, gate: &mut RiskGate) -> bool {
    let Some(slot) = table.find(OrderKey::Client(id)) else { return false };
    table.abandon(slot);
    gate.ended(slot);
    true
}
