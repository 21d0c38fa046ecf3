//! What the venue refused last, and why, by the names of its protocol.

use core::fmt;

use order_entry::ReasonCodes;
use order_entry::journal::JournalMemory;
use order_entry::orders::{OrderEvent, VenueEvent};
use order_entry::session::VenueSession;

use super::Core;

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
