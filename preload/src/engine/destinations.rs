//! The destinations whose interface is known: it takes system calls to ask the kernel.

use core::net::Ipv4Addr;
use std::collections::BTreeMap;

/// Destinations, and whether they leave by our interface.
pub(crate) struct Destinations(BTreeMap<Ipv4Addr, bool>);

/// A server answers to some thousands; each takes about ten bytes.
const DESTINATIONS_MAX: usize = 8_192;

impl Destinations {
    pub(crate) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Whether a destination leaves by our interface, if that is known.
    #[inline]
    pub(crate) fn get(&self, destination: Ipv4Addr) -> Option<bool> {
        self.0.get(&destination).copied()
    }

    /// Keeps what the kernel has said of a destination. Where there is no room, another one is
    /// forgotten.
    pub(crate) fn keep(&mut self, destination: Ipv4Addr, is_ours: bool) {
        if self.0.len() >= DESTINATIONS_MAX {
            // Any will do: the one that comes next by its number.
            let next = self.0.range(destination..).next().or_else(|| self.0.iter().next());
            if let Some(next) = next.map(|(address, _)| *address) {
                self.0.remove(&next);
            }
        }
        self.0.insert(destination, is_ours);
    }

    pub(crate) fn forget(&mut self, destination: Ipv4Addr) {
        self.0.remove(&destination);
    }

    /// Routes have changed.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(number: usize) -> Ipv4Addr {
        Ipv4Addr::from_bits(0x0a00_0000 + number as u32)
    }

    #[test]
    fn some_thousands_are_known_and_one_more_takes_the_place_of_one() {
        let mut destinations = Destinations::new();
        let known = |destinations: &Destinations| {
            (0..=DESTINATIONS_MAX).filter(|idx| destinations.get(peer(*idx)) == Some(idx % 2 == 0)).count()
        };
        (0..DESTINATIONS_MAX).for_each(|idx| destinations.keep(peer(idx), idx % 2 == 0));
        assert_eq!(known(&destinations), DESTINATIONS_MAX);
        destinations.keep(peer(DESTINATIONS_MAX), DESTINATIONS_MAX.is_multiple_of(2));
        assert_eq!(known(&destinations), DESTINATIONS_MAX);
        assert!(destinations.get(peer(DESTINATIONS_MAX)).is_some());
        destinations.forget(peer(DESTINATIONS_MAX));
        assert_eq!(destinations.get(peer(DESTINATIONS_MAX)), None);
    }
}
