//! The strategies of a journal by their names: positions in the limits change between runs.

use core::fmt;

use super::entry::{NO_NAME, StrategyName};
use crate::orders::OrderTable;
use crate::risk::{RiskGate, StrategyIdx};

/// A strategy of which a journal has live orders, and that is not among those of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingStrategy {
    /// Its name.
    pub name: StrategyName,
    /// Orders that live.
    pub orders: usize,
}

impl fmt::Display for MissingStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, orders } = self;
        write!(f, "there are no limits for the strategy {name}, of which the journal has {orders} live orders")
    }
}

/// The run's strategies, and those of the journal that are not among them: these are numbered
/// behind, where they have no limits.
#[derive(Clone, Debug, Default)]
pub(super) struct Strategies {
    /// The names of this run's, by position.
    own: Box<[StrategyName]>,
    /// The names that the journal's process had, by position, as far as it said them.
    declared: Vec<StrategyName>,
    /// Those that have orders or are stopped, and that this run does not have.
    others: Vec<StrategyName>,
    stopped_others: Vec<StrategyName>,
    /// Where the others begin.
    first_other: usize,
}

impl Strategies {
    pub(super) fn new(own: &[StrategyName]) -> Self {
        Self { own: own.into(), ..Self::default() }
    }

    /// From here on the journal means the strategy `name` by this position.
    pub(super) fn declare(&mut self, name: StrategyName, at: StrategyIdx) {
        let place = usize::from(at.0);
        if self.declared.len() <= place {
            self.declared.resize(place + 1, NO_NAME);
        }
        self.declared[place] = name;
    }

    pub(super) fn declared(&self) -> &[StrategyName] {
        &self.declared
    }

    /// The strategy of this run that the journal means by a position.
    pub(super) fn find(&mut self, at: StrategyIdx, gate: &RiskGate) -> StrategyIdx {
        let name = self.declared.get(usize::from(at.0)).copied().unwrap_or(NO_NAME);
        if let Some(own) = self.own_place(name, at, gate) {
            return own;
        }
        let other = self.others.iter().position(|other| *other == name).unwrap_or_else(|| {
            self.others.push(name);
            self.others.len() - 1
        });
        self.first_other = self.own.len().max(gate.limits().strategies.len());
        StrategyIdx(u16::try_from(self.first_other + other).unwrap_or(u16::MAX))
    }

    /// The run's place of a strategy. Where the journal has no name of it, or the run has limits
    /// and no names, positions hold.
    fn own_place(&self, name: StrategyName, at: StrategyIdx, gate: &RiskGate) -> Option<StrategyIdx> {
        let has_limits = usize::from(at.0) < gate.limits().strategies.len();
        if name == NO_NAME || self.own.is_empty() && has_limits {
            return Some(at);
        }
        let place = self.own.iter().position(|own| *own == name)?;
        Some(StrategyIdx(place as u16))
    }

    /// A strategy was stopped, or goes on.
    pub(super) fn stop(&mut self, (name, at): (StrategyName, StrategyIdx), is_stopped: bool, gate: &mut RiskGate) {
        match self.own_place(name, at, gate) {
            // One that has no limits needs no stop.
            Some(own) if is_stopped => _ = gate.stop_strategy(own),
            Some(own) => _ = gate.resume_strategy(own),
            None => {
                self.stopped_others.retain(|other| *other != name);
                self.stopped_others.extend(is_stopped.then_some(name));
            }
        }
    }

    pub(super) fn stopped_other(&self) -> Option<StrategyName> {
        self.stopped_others.first().copied()
    }

    /// The first strategy that the run lacks although orders of it live.
    pub(super) fn missing(&self, table: &OrderTable) -> Option<MissingStrategy> {
        let others = (self.first_other..).zip(&self.others);
        let mut found = others.map(|(place, &name)| {
            let is_of = |strategy: StrategyIdx| usize::from(strategy.0) == place;
            MissingStrategy { name, orders: table.live().filter(|(_, order)| is_of(order.strategy)).count() }
        });
        found.find(|missing| missing.orders > 0)
    }
}
