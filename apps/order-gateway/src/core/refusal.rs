//! Refusals: how many requests we refused for which reason; what the venue refused last, and why,
//! by the names of its protocol.

use core::fmt;

use order_entry::journal::JournalMemory;
use order_entry::orders::{OrderEvent, VenueEvent};
use order_entry::session::VenueSession;
use order_entry::{ReasonCodes, Refusal};

use super::Core;

/// Requests that were refused before the venue saw them, by reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusalCounts {
    /// The reasons that there were, in the order in which they came first; then those without a
    /// name.
    reasons: [(&'static str, u64); Self::REASONS],
}

impl Default for RefusalCounts {
    fn default() -> Self {
        Self { reasons: [("", 0); Self::REASONS] }
    }
}

impl RefusalCounts {
    /// More than there are.
    const REASONS: usize = 64;

    /// Counts one.
    pub(super) fn count(&mut self, refusal: &Refusal) {
        let name = refusal.name();
        let reason = self.reasons.iter_mut().find(|(known, _)| *known == name || known.is_empty());
        if let Some((known, count)) = reason {
            *known = name;
            *count += 1;
        }
    }

    /// Each reason that there was, by its name, and how many requests were refused for it.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.reasons.into_iter().filter(|(_, count)| *count > 0)
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.iter().map(|(_, count)| count).sum()
    }
}

/// The most frequent reason first.
impl fmt::Display for RefusalCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut reasons: Vec<_> = self.iter().collect();
        reasons.sort_by_key(|(_, count)| core::cmp::Reverse(*count));
        for (idx, (name, count)) in reasons.into_iter().enumerate() {
            let comma = if idx == 0 { "" } else { ", " };
            write!(f, "{comma}{name} {count}")?;
        }
        Ok(())
    }
}

/// A request that the venue refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VenueRefusal {
    /// A client id of the order.
    pub id: u64,
    /// What the venue said.
    pub event: VenueEvent,
    /// Whose codes its reasons are.
    pub codes: Option<ReasonCodes>,
}

impl fmt::Display for VenueRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, event, codes } = self;
        let request = match event {
            VenueEvent::CancelRefused { .. } => "the cancel of order",
            VenueEvent::ReplaceRefused { .. } => "the replace",
            _ => "order",
        };
        write!(f, "{request} {id}")?;
        match (codes.and_then(|codes| codes.name(event)), event.reason()) {
            (Some(name), _) => write!(f, ": {name}"),
            (None, Some(code)) if code > 0 => write!(f, ": code {code:#x}"),
            _ => Ok(()),
        }
    }
}

impl<S: VenueSession, M: JournalMemory> Core<S, M> {
    /// What the venue refused last.
    pub const fn last_refusal(&self) -> Option<VenueRefusal> {
        self.refused
    }

    /// Keeps a refusal for whoever asks.
    pub(super) fn record_refusal(&mut self, event: &OrderEvent) {
        if event.event.is_refusal() && event.outcome.slot.is_some() && !event.outcome.is_duplicate {
            self.counts.refused_by_venue += 1;
            let codes = self.session.reason_codes();
            self.refused = Some(VenueRefusal { id: event.id, event: event.event, codes });
        }
    }
}

#[cfg(test)]
mod tests {
    use order_entry::risk::{Limit, RiskReject};
    use order_entry::session::SendError;

    use super::*;

    #[test]
    fn each_limit_is_counted_by_its_own_name() {
        let mut counts = RefusalCounts::default();
        for limit in Limit::ALL {
            counts.count(&Refusal::Risk(RiskReject { limit, allowed: 0, value: 0, level: None }));
        }
        assert!(counts.iter().eq(Limit::ALL.map(|limit| (limit.name(), 1))));
    }

    #[test]
    fn most_frequent_reason_is_said_first() {
        let mut counts = RefusalCounts::default();
        counts.count(&Refusal::Session(SendError::Closed));
        let disarmed = RiskReject { limit: Limit::Disarmed, allowed: 0, value: 0, level: None };
        for refusal in [Refusal::Unsent, Refusal::Risk(disarmed), Refusal::Risk(disarmed)] {
            counts.count(&refusal);
        }
        assert_eq!(counts.to_string(), "disarmed 2, session closed 1, line did not take it 1");
        assert_eq!(counts.total(), 4);
    }
}
