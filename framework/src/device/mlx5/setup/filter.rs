//! The NIC's filter of destination addresses, which a virtual function applies before its rules. A
//! packet socket adds the entries that rules need, as the kernel adds its own. If an entry is
//! refused, the rule stays installed, because the kernel may have joined the group itself. The
//! start reports this to the operator, because otherwise frames of the feed could be missing for no
//! visible reason.

use core::fmt;
use std::io;
use std::sync::{Mutex, PoisonError};

use crate::device::nic_filter::{NicFilter, Wanted};
use crate::device::steering::Rule;
use crate::wire::MacAddr;

/// A filter of destination addresses.
pub(crate) trait AddressFilter {
    /// Adds an entry for one more rule.
    fn add(&self, wanted: Wanted) -> io::Result<()>;
    /// Removes the entry for one rule.
    fn remove(&self, wanted: Wanted);
}

impl AddressFilter for NicFilter {
    fn add(&self, wanted: Wanted) -> io::Result<()> {
        self.add(wanted)
    }

    fn remove(&self, wanted: Wanted) {
        self.remove(wanted);
    }
}

/// The address filter of a port's interface.
pub(crate) struct Filter<S = NicFilter> {
    nic_filter: io::Result<S>,
    /// The interface's own address, which always passes.
    mac: MacAddr,
    /// Number of rules whose entries were refused, and the reason for the first.
    refused: Mutex<Option<RefusedEntries>>,
}

struct RefusedEntries {
    rules: usize,
    first: Rule,
    reason: String,
}

impl<S: AddressFilter> Filter<S> {
    /// For an interface with address `mac`, if its filter could be opened.
    pub(crate) fn new(nic_filter: io::Result<S>, mac: MacAddr) -> Self {
        Self { nic_filter, mac, refused: Mutex::default() }
    }

    /// Lets the frames of a rule pass.
    pub(crate) fn add(&self, rule: &Rule) {
        let Some(wanted) = Wanted::by(rule, self.mac) else { return };
        let reason = match &self.nic_filter {
            Ok(nic_filter) => match nic_filter.add(wanted) {
                Ok(()) => return,
                Err(error) => error.to_string(),
            },
            Err(error) => error.to_string(),
        };
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.get_or_insert(RefusedEntries { rules: 0, first: *rule, reason }).rules += 1;
    }

    /// Removes the entry of a removed rule.
    pub(crate) fn remove(&self, rule: &Rule) {
        if let (Ok(nic_filter), Some(wanted)) = (&self.nic_filter, Wanted::by(rule, self.mac)) {
            nic_filter.remove(wanted);
        }
    }
}

/// The notice for the operator, appended to the port's description; empty if no entry was refused.
impl<S> fmt::Display for Filter<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(RefusedEntries { rules, first, reason }) = &*refused else { return Ok(()) };
        let others = if *rules > 1 { format!(" and {} more", rules - 1) } else { String::new() };
        write!(
            f,
            "; the interface does not let through what `{first}`{others} names unless the kernel asks for it ({reason}): open the port in \
             the interface's network namespace, or join the group there, or `ip link set INTERFACE allmulticast on`"
        )
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a panic here is the report

    use core::cell::{Cell, RefCell};
    use core::net::Ipv4Addr;

    use super::*;

    const OWN: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

    #[derive(Default)]
    struct Fake {
        wanted: RefCell<Vec<Wanted>>,
        is_deaf: Cell<bool>,
    }

    impl AddressFilter for &Fake {
        fn add(&self, wanted: Wanted) -> io::Result<()> {
            if self.is_deaf.get() {
                return Err(io::Error::from_raw_os_error(libc::ENODEV));
            }
            self.wanted.borrow_mut().push(wanted);
            Ok(())
        }

        fn remove(&self, wanted: Wanted) {
            let place = self.wanted.borrow().iter().position(|one| *one == wanted).unwrap();
            self.wanted.borrow_mut().remove(place);
        }
    }

    fn group(last: u8) -> Rule {
        Rule::udp(Ipv4Addr::new(239, 1, 2, last), 9000)
    }

    #[test]
    fn groups_pass_while_their_rules_stand() {
        let nic_filter = Fake::default();
        let filter = Filter::new(Ok(&nic_filter), OWN);
        filter.add(&group(3));
        filter.add(&Rule::udp(Ipv4Addr::new(10, 0, 0, 1), 9000));
        let mac = MacAddr::multicast_ipv4(Ipv4Addr::new(239, 1, 2, 3));
        assert_eq!(*nic_filter.wanted.borrow(), [Wanted::Group(mac)]);
        filter.remove(&group(3));
        assert_eq!((nic_filter.wanted.borrow().len(), filter.to_string()), (0, String::new()));
    }

    #[test]
    fn wish_that_is_not_taken_is_told_with_its_rule_and_a_way_out() {
        let nic_filter = Fake::default();
        nic_filter.is_deaf.set(true);
        let filter = Filter::new(Ok(&nic_filter), OWN);
        filter.add(&group(3));
        filter.add(&group(4));
        let said = filter.to_string();
        for part in ["UDP to 239.1.2.3:9000` and 1 more", "No such device", "network namespace", "allmulticast"] {
            assert!(said.contains(part), "{said}");
        }
    }

    #[test]
    fn filter_that_could_not_be_opened_is_told_once_a_rule_needs_it() {
        let filter = Filter::<&Fake>::new(Err(io::Error::from_raw_os_error(libc::EPERM)), OWN);
        assert_eq!(filter.to_string(), "");
        filter.add(&Rule::arp());
        assert_eq!(filter.to_string(), "");
        filter.add(&group(3));
        assert!(filter.to_string().contains("not permitted"), "{filter}");
        filter.remove(&group(3));
    }
}
