//! Memberships that the kernel keeps for us, by sockets that join groups and receive nothing. The
//! kernel reports them, answers queries, and leaves the groups when the process ends.
//!
//! Each group and source has a socket of its own: the kernel's limits are per socket
//! (`igmp_max_memberships` is 20, `igmp_max_msf` is 10), and a descriptor is cheaper than a sysctl.

use core::net::Ipv4Addr;
use std::net::UdpSocket;

use super::config::FlowSpec;
use super::error::LiveError;
use super::kernel_socket;

/// A group, and its only source, or `None` for any.
type Pair = (Ipv4Addr, Option<Ipv4Addr>);

/// Memberships that last as long as this value.
#[derive(Debug, Default)]
pub(super) struct Memberships {
    held: Vec<Membership>,
}

/// A membership on an interface; dropped, it is left.
#[derive(Debug)]
struct Membership {
    socket: UdpSocket,
    idx: u32,
    pair: Pair,
}

impl Drop for Membership {
    fn drop(&mut self) {
        let (group, source) = self.pair;
        // This fails if the interface is gone, and the membership with it.
        let _ = kernel_socket::leave(&self.socket, self.idx, group, source);
    }
}

impl Memberships {
    /// Joins every group of `flows` that is not joined yet, on interface number `idx` in the
    /// calling thread's network namespace. On an error it leaves the groups that it had joined.
    pub(super) fn join(&mut self, flows: &[FlowSpec], interface: &str, idx: u32) -> Result<(), LiveError> {
        let before = self.held.len();
        for pair in pairs(flows) {
            if self.held.iter().any(|joined| joined.pair == pair) {
                continue;
            }
            let (group, source) = pair;
            let joined = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|socket| {
                kernel_socket::join(&socket, idx, group, source).map(|()| Membership { socket, idx, pair })
            });
            match joined {
                Ok(membership) => self.held.push(membership),
                Err(error) => {
                    self.held.truncate(before);
                    return Err(LiveError::Membership { interface: interface.into(), group, error });
                }
            }
        }
        Ok(())
    }

    /// Leaves every group that no flow needs.
    pub(super) fn leave_all_but(&mut self, flows: &[FlowSpec]) {
        let wanted = pairs(flows);
        self.held.retain(|joined| wanted.contains(&joined.pair));
    }
}

/// Groups with their sources, each pair once.
fn pairs(flows: &[FlowSpec]) -> Vec<Pair> {
    let groups = flows.iter().filter(|flow| flow.is_group());
    let mut pairs: Vec<_> = groups
        .flat_map(|flow| {
            let group = *flow.destination.ip();
            let any = flow.sources.is_empty().then_some((group, None));
            any.into_iter().chain(flow.sources.iter().map(move |source| (group, Some(*source))))
        })
        .collect();
    pairs.sort_unstable();
    pairs.dedup();
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: Ipv4Addr = Ipv4Addr::new(239, 77, 1, 1);
    const SENDER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

    #[test]
    fn group_of_several_ports_is_one_membership() {
        let flows = [FlowSpec::udp(GROUP, 1), FlowSpec::udp(GROUP, 2), FlowSpec::udp(SENDER, 3)];
        assert_eq!(pairs(&flows), [(GROUP, None)]);
        let flows = [FlowSpec::udp(GROUP, 1).from(&[SENDER]), FlowSpec::udp(GROUP, 2).from(&[SENDER])];
        assert_eq!(pairs(&flows), [(GROUP, Some(SENDER))]);
    }

    /// Whether the kernel is a member of `group`.
    fn is_in(group: Ipv4Addr) -> bool {
        let text = std::fs::read_to_string("/proc/net/igmp").unwrap();
        text.to_uppercase().contains(&format!("{:08X}", group.to_bits().swap_bytes()))
    }

    #[test]
    fn membership_is_left_though_a_child_still_has_the_socket() {
        let group = Ipv4Addr::new(239, 77, 1, 2);
        let mut memberships = Memberships::default();
        memberships.join(&[FlowSpec::udp(group, 1)], "lo", 1).unwrap();
        let _of_a_child = memberships.held[0].socket.try_clone().unwrap();
        assert!(is_in(group));
        memberships.leave_all_but(&[]);
        assert!(!is_in(group));
    }

    #[test]
    fn kernel_shows_the_membership_and_forgets_it() {
        let is_member = || is_in(GROUP);
        // Loopback is interface 1 in every namespace, and accepts multicast memberships.
        let flows = [FlowSpec::udp(GROUP, 1), FlowSpec::udp(GROUP, 1).from(&[SENDER])];
        let mut memberships = Memberships::default();
        memberships.join(&flows, "lo", 1).unwrap();
        assert!(is_member());
        memberships.leave_all_but(&flows[1..]);
        assert!(is_member());
        memberships.leave_all_but(&[]);
        assert!(!is_member());
    }

    #[test]
    fn interface_that_is_not_there_is_a_sentence() {
        let mut memberships = Memberships::default();
        let refused = memberships.join(&[FlowSpec::udp(GROUP, 1)], "eth9", 99_999).unwrap_err().to_string();
        assert!(refused.contains("does not join 239.77.1.1 on eth9"), "{refused}");
        assert!(memberships.held.is_empty());
    }
}
