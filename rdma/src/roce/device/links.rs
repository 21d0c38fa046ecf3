//! What changes on the link below a device: its state, its addresses, and the MAC addresses on the
//! ways to peers.

use super::Device;
use crate::roce::events::Event;
use crate::roce::path::{Addresses, Link};

impl Device {
    /// Says by an event that the port has a link again, or has lost it. Queue pairs stay as they
    /// are, as with a NIC: what waits for an answer ends by its retries.
    pub fn note_link(&mut self, is_up: bool) {
        self.tables.events.push(if is_up { Event::PortActive } else { Event::PortError });
    }

    /// Says by an event that the port has other addresses. Queue pairs stay as they are.
    pub fn note_addresses(&mut self) {
        self.tables.events.push(Event::GidChange);
    }

    /// The places that [`refresh_link`](Self::refresh_link) takes: those of all queue pairs and
    /// address handles.
    pub const fn link_places(&self) -> u32 {
        self.config.qps + self.config.ahs
    }

    /// Has what is at a place send by the Ethernet header that `find` has now for the way between
    /// two addresses; it stays as it is where `find` has none. True if it has changed.
    pub fn refresh_link(&mut self, place: u32, find: impl FnOnce(Addresses) -> Option<Link>) -> bool {
        let template = match place.checked_sub(self.config.qps) {
            None => self.qps.at_mut(place).and_then(|qp| qp.template_mut()),
            Some(place) => self.tables.ahs.at_mut(place).map(|ah| &mut ah.template),
        };
        let Some(template) = template else { return false };
        find(template.addresses()).is_some_and(|link| template.set_link(&link))
    }
}
