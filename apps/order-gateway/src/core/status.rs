//! How a core is, in a sentence for people.

use market::Symbol;
use order_entry::journal::{JournalMemory, Killed, NO_NAME};
use order_entry::risk::{InstrumentIdx, StrategyIdx};
use order_entry::session::VenueSession;

use super::Core;
use crate::text::utc;

impl<S: VenueSession, M: JournalMemory> Core<S, M> {
    /// What people call a strategy: by its position where it has no name.
    pub(crate) fn strategy_name(&self, strategy: StrategyIdx) -> String {
        match self.manager.strategy_name(strategy) {
            NO_NAME => strategy.0.to_string(),
            name => name.to_string(),
        }
    }

    /// The instruments of which no order passes until a person has compared.
    fn blocked(&self) -> impl Iterator<Item = Symbol> {
        let numbered = (0..).map(InstrumentIdx).zip(&self.instruments);
        let blocked = numbered.filter(|(instrument, _)| self.manager.orders().is_blocked(*instrument));
        blocked.map(|(_, instrument)| instrument.symbol)
    }

    /// Whether orders pass, what stops them, and what lives. Allocates: for a person who asks.
    pub fn status(&self) -> String {
        let orders = self.manager.orders();
        let gate = match self.killed() {
            Some(Killed { since_ns, cause }) => format!("killed {cause} since {}, until armed", utc(since_ns)),
            None if self.manager.risk().is_armed() => "armed".to_owned(),
            None => "disarmed".to_owned(),
        };
        let session = if self.session.is_open() { "open" } else { "closed" };
        let stopped: Vec<_> = self.manager.risk().stopped_strategies().map(|idx| self.strategy_name(idx)).collect();
        let stopped = match &stopped[..] {
            [] => String::new(),
            names => format!("; stopped strategies {}", names.join(", ")),
        };
        let in_doubt = orders.live().filter(|(_, order)| order.is_in_doubt()).count();
        let (live, counts) = (orders.live_count(), self.counts());
        let by_us = match counts.refused.total() {
            0 => String::new(),
            total => format!("; {total} requests refused: {}", counts.refused),
        };
        let refused = self.last_refusal().map_or_else(String::new, |refusal| {
            format!("; {} refused by the venue, the last one {refusal}", counts.refused_by_venue)
        });
        let alarm = self.alarm.map_or_else(String::new, |alarm| format!(" (the last of an order: {alarm})"));
        let blocked: Vec<_> = self.blocked().map(|symbol| symbol.to_string()).collect();
        let blocked = match &blocked[..] {
            [] => String::new(),
            symbols => format!("; blocked until compared {}", symbols.join(", ")),
        };
        let percent = self.journal().percent_used();
        format!(
            "{gate}{stopped}{blocked}; session {session}; {live} live orders, {in_doubt} in doubt; {} alarms{alarm}, {} \
             unread; requests have used {percent} % of the journal{by_us}{refused}",
            counts.alarms, counts.unread
        )
    }
}
