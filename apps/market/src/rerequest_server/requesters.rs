//! Rate limits of requesters: one for each address, so that the server does not amplify a forged
//! source.
//!
//! An address may request at an even pace and save up a burst (the generic cell rate algorithm of
//! ATM, which stores one time for each address: the time at which its requests will have been used
//! up). The table is bounded; an address that has its whole burst again is removed when another
//! address needs its entry.

use core::net::Ipv4Addr;

/// Addresses that may request at once. More than a network of gateways and strategies has, and few
/// enough for a linear walk.
pub const ADDRESSES_MAX: usize = 64;

/// The rate limit of one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Interval of requests, in the long run.
    pub interval_ns: u64,
    /// Requests at once, after a silence.
    pub burst: u64,
}

/// The addresses with recent requests.
#[derive(Debug)]
pub(super) struct Requesters {
    pace: Pace,
    known: Vec<Requester>,
}

#[derive(Debug)]
struct Requester {
    address: Ipv4Addr,
    /// When all its requests are used up at its pace.
    busy_until_ns: u64,
}

/// Whether a request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    Granted,
    /// The address exceeds its rate.
    TooOften,
    /// Too many addresses at once.
    TooMany,
}

impl Requesters {
    /// Without requesters.
    pub(super) fn new(pace: Pace) -> Self {
        Self { pace, known: Vec::with_capacity(ADDRESSES_MAX) }
    }

    /// Counts a request of an address against its pace. A walk over the table.
    pub(super) fn admit(&mut self, address: Ipv4Addr, now_ns: u64) -> Admission {
        let Pace { interval_ns, burst } = self.pace;
        let Some(requester) = self.place(address, now_ns) else { return Admission::TooMany };
        let busy_until_ns = requester.busy_until_ns.max(now_ns);
        if busy_until_ns - now_ns > interval_ns.saturating_mul(burst.saturating_sub(1)) {
            return Admission::TooOften;
        }
        requester.busy_until_ns = busy_until_ns.saturating_add(interval_ns);
        Admission::Granted
    }

    /// The address's own entry, a new one, or that of an idle one.
    fn place(&mut self, address: Ipv4Addr, now_ns: u64) -> Option<&mut Requester> {
        let is_idle = |known: &Requester| known.busy_until_ns <= now_ns;
        let idx = match self.known.iter().position(|known| known.address == address) {
            Some(idx) => idx,
            None if self.known.len() < ADDRESSES_MAX => {
                self.known.push(Requester { address, busy_until_ns: 0 });
                self.known.len() - 1
            }
            None => {
                let idx = self.known.iter().position(is_idle)?;
                self.known[idx] = Requester { address, busy_until_ns: 0 };
                idx
            }
        };
        Some(&mut self.known[idx])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Pace = Pace { interval_ns: 100, burst: 3 };
    const ASKER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

    fn granted(requesters: &mut Requesters, now_ns: u64, tries: u32) -> usize {
        (0..tries).filter(|_| requesters.admit(ASKER, now_ns) == Admission::Granted).count()
    }

    #[test]
    fn burst_is_granted_and_then_one_an_interval() {
        let mut requesters = Requesters::new(PACE);
        assert_eq!(granted(&mut requesters, 1000, 9), 3);
        assert_eq!(granted(&mut requesters, 1099, 9), 0);
        assert_eq!(granted(&mut requesters, 1100, 9), 1);
        assert_eq!(granted(&mut requesters, 5000, 9), 3);
    }

    #[test]
    fn one_address_does_not_slow_another() {
        let mut requesters = Requesters::new(PACE);
        granted(&mut requesters, 0, 9);
        assert_eq!(requesters.admit(Ipv4Addr::LOCALHOST, 0), Admission::Granted);
    }

    #[test]
    fn full_table_refuses_until_somebody_is_idle() {
        let mut requesters = Requesters::new(PACE);
        for idx in 0..ADDRESSES_MAX as u8 {
            assert_eq!(requesters.admit(Ipv4Addr::new(10, 0, 0, idx), 0), Admission::Granted);
        }
        assert_eq!(requesters.admit(ASKER, 99), Admission::TooMany);
        assert_eq!(requesters.admit(ASKER, 100), Admission::Granted);
        assert_eq!(requesters.known.len(), ADDRESSES_MAX);
    }
}
