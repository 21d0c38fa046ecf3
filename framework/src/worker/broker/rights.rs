//! Which flows a user may have, before anybody else is asked.

use core::net::Ipv4Addr;

use super::error::Refusal;
use crate::device::af_xdp::broker::message::Flow;
use crate::wire::Protocol;

/// The user who may have everything that a broker gives.
const ROOT: u32 = 0;
/// The first port that any user may bind (`net.ipv4.ip_unprivileged_port_start`, by default).
const FIRST_COMMON_PORT: u16 = 1_024;

/// A user whose programs a broker serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerUser {
    /// The number of the user.
    pub uid: u32,
    /// Ports below 1024 that the user's programs may have, beside all others.
    pub low_ports: Vec<u16>,
}

/// The rights of user `uid` among `users`. Root needs no entry.
pub(super) fn of(uid: u32, users: &[BrokerUser]) -> Result<BrokerUser, Refusal> {
    let known = users.iter().find(|user| user.uid == uid).cloned();
    let root = || (uid == ROOT).then(|| BrokerUser { uid, low_ports: Vec::new() });
    known.or_else(root).ok_or_else(|| {
        let sentence = format!(
            "the broker does not serve user {uid}: start it with --uid {uid}, or run the program as a user that it serves"
        );
        Refusal::new(libc::EACCES, sentence)
    })
}

impl BrokerUser {
    /// Whether the user may have a flow on an interface with these addresses.
    pub(super) fn check(&self, flow: &Flow, addresses: &[Ipv4Addr]) -> Result<(), Refusal> {
        let (address, port) = (*flow.destination.ip(), flow.destination.port());
        let is_group = address.is_multicast();
        if is_group && flow.protocol != Protocol::UDP {
            return Err(Refusal::new(libc::EINVAL, format!("{address} is a group, and {} has none", flow.protocol)));
        }
        if !is_group && !addresses.contains(&address) {
            let sentence = format!("{address} is no address of the interface: `ip address` lists those it has");
            return Err(Refusal::new(libc::EADDRNOTAVAIL, sentence));
        }
        if flow.vlan.is_some() {
            return Err(Refusal::new(libc::EINVAL, "a broker gives no flows of a VLAN: take the VLAN's own interface"));
        }
        if port == 0 {
            return Err(Refusal::new(libc::EINVAL, "a broker gives no flow to all ports: name one"));
        }
        if port < FIRST_COMMON_PORT && self.uid != ROOT && !self.low_ports.contains(&port) {
            let sentence = format!(
                "port {port} is not for user {uid}: start the broker with --uid {uid}:{port}, or take a port from \
                 {FIRST_COMMON_PORT} on",
                uid = self.uid
            );
            return Err(Refusal::new(libc::EACCES, sentence));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use core::net::SocketAddrV4;

    use super::*;

    const OWN: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

    fn flow(address: Ipv4Addr, port: u16) -> Flow {
        let destination = SocketAddrV4::new(address, port);
        Flow { protocol: Protocol::UDP, destination, source: None, source_port: None, vlan: None }
    }

    fn user() -> BrokerUser {
        BrokerUser { uid: 1000, low_ports: vec![319] }
    }

    #[track_caller]
    fn refused(user: &BrokerUser, flow: &Flow, errno: i32, says: &str) {
        let refusal = user.check(flow, &[OWN]).unwrap_err();
        assert_eq!(refusal.errno, errno);
        assert!(refusal.sentence.contains(says), "{refusal:?}");
    }

    #[test]
    fn user_that_is_not_named_is_refused_and_root_is_served() {
        assert_eq!(of(1000, &[user()]), Ok(user()));
        assert_eq!(of(0, &[]).map(|root| root.uid), Ok(0));
        let refusal = of(1001, &[user()]).unwrap_err();
        assert_eq!(refusal.errno, libc::EACCES);
        assert!(refusal.sentence.contains("--uid 1001"), "{refusal:?}");
    }

    #[test]
    fn flows_to_own_addresses_and_groups_are_given() {
        for flow in [flow(OWN, 1024), flow(OWN, 65_535), flow(Ipv4Addr::new(239, 1, 1, 1), 9000), flow(OWN, 319)] {
            user().check(&flow, &[OWN]).unwrap();
        }
        BrokerUser { uid: 0, low_ports: vec![] }.check(&flow(OWN, 22), &[OWN]).unwrap();
    }

    #[test]
    fn flows_that_are_not_the_users_are_refused() {
        refused(&user(), &flow(OWN, 1023), libc::EACCES, "port 1023 is not for user 1000: start the broker with --uid");
        refused(&user(), &flow(OWN, 0), libc::EINVAL, "name one");
        let elsewhere = Ipv4Addr::new(192, 0, 2, 2);
        refused(&user(), &flow(elsewhere, 5000), libc::EADDRNOTAVAIL, "192.0.2.2 is no address of the interface");
        refused(&user(), &flow(Ipv4Addr::UNSPECIFIED, 5000), libc::EADDRNOTAVAIL, "no address of the interface");
        refused(&user(), &flow(Ipv4Addr::BROADCAST, 5000), libc::EADDRNOTAVAIL, "no address of the interface");
        refused(&user(), &Flow { vlan: Some(5), ..flow(OWN, 5000) }, libc::EINVAL, "no flows of a VLAN");
        let group = Flow { protocol: Protocol::TCP, ..flow(Ipv4Addr::new(239, 1, 1, 1), 9000) };
        refused(&user(), &group, libc::EINVAL, "is a group");
    }
}
