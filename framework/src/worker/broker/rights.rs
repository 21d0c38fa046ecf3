//! Which flows and queues a user may have, before the kernel's sockets and other clients are
//! considered: by the users that a broker is started with, or by the rules of a file.

use core::net::Ipv4Addr;
use core::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::error::Refusal;
use crate::device::broker::message::Flow;
use crate::device::broker::sys::Peer;
use crate::proto::Ipv4Prefix;
use crate::wire::Protocol;

/// Root, who may have everything that a broker lends.
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

/// One rule: which programs it applies to, and what they may have. The first rule that applies to a
/// program decides. A broker with rules serves no program to which none applies, except root's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerRule {
    /// The name of the rule in refusals and in the log: `rule 2 of broker.toml`.
    pub name: String,
    /// The users that it applies to; `None` for all.
    pub users: Option<Vec<u32>>,
    /// The groups that it applies to; `None` for all. A program needs one of them, as its own or as
    /// a supplementary group.
    pub groups: Option<Vec<u32>>,
    /// The programs that it applies to, by the paths of their files; `None` for all. This
    /// distinguishes the programs of one user, and is no protection against the user: whoever runs
    /// a program controls what it does.
    pub programs: Option<Vec<BrokerProgram>>,
    /// The ports that it allows.
    pub ports: Vec<BrokerPorts>,
    /// The addresses of the interface that it allows.
    pub addresses: Vec<Ipv4Prefix>,
    /// The multicast groups that it allows.
    pub multicast: Vec<Ipv4Prefix>,
    /// The most queues that all programs of this rule have at a time; `None` for no limit.
    pub queues: Option<usize>,
}

/// Programs, by the paths of their files.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BrokerProgram {
    /// The program in this file.
    File(PathBuf),
    /// All programs in this folder, and in those below it.
    Folder(PathBuf),
}

/// Ports of one protocol, or of both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerPorts {
    /// `None` for UDP and TCP.
    pub protocol: Option<Protocol>,
    /// The first and the last port.
    pub ports: RangeInclusive<u16>,
}

/// The users and rules of a broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Rights {
    Users(Vec<BrokerUser>),
    Rules(Vec<Arc<BrokerRule>>),
}

/// Replaces the rules of a running broker: its clients keep what the new rules allow, and lose the
/// rest. A clone refers to the same broker.
#[derive(Clone, Debug, Default)]
pub struct BrokerRules(Arc<Mutex<Option<Rights>>>);

impl BrokerRules {
    /// Passes new rules to the broker, which applies them within a tenth of a second.
    pub fn replace(&self, rules: Vec<BrokerRule>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Rights::of_rules(rules));
    }

    pub(super) fn take(&self) -> Option<Rights> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The rights of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ClientRights {
    /// Root, to whom no rule applies.
    Root,
    User(BrokerUser),
    Rule(Arc<BrokerRule>),
    /// Nothing now, but the user is served with other programs.
    OtherProgram(Refusal),
}

impl Rights {
    pub(super) fn of_rules(rules: Vec<BrokerRule>) -> Self {
        Self::Rules(rules.into_iter().map(Arc::new).collect())
    }

    /// Adds a user to those that are served, or finds that the user is. The rules of a
    /// file decide when the user's program asks, because they may name groups and programs.
    pub(super) fn serve(&mut self, uid: u32, may_add: bool) -> Result<(), Refusal> {
        let Self::Users(users) = self else { return Ok(()) };
        if uid == ROOT || users.iter().any(|user| user.uid == uid) {
            return Ok(());
        }
        if !may_add {
            return Err(not_served(&format!("user {uid}"), &self.way_on(uid)));
        }
        users.push(BrokerUser { uid, low_ports: Vec::new() });
        Ok(())
    }

    /// As [`of`](Self::of), but refuses at once only a user who is served with no program:
    /// `wirepath run` connects before it starts the program, and asks whether its user is served.
    pub(super) fn admit(&self, peer: &Peer, program: Option<&Path>) -> Result<ClientRights, Refusal> {
        self.of(peer, program).or_else(|refusal| match self {
            Self::Rules(rules) if rules.iter().any(|rule| rule.is_for_user(peer)) => {
                Ok(ClientRights::OtherProgram(refusal))
            }
            Self::Rules(_) | Self::Users(_) => Err(refusal),
        })
    }

    /// The rights of the process at the other end of a connection; `program` is the path of its
    /// file.
    pub(super) fn of(&self, peer: &Peer, program: Option<&Path>) -> Result<ClientRights, Refusal> {
        let uid = peer.uid;
        let found = match self {
            Self::Users(users) => users.iter().find(|user| user.uid == uid).cloned().map(ClientRights::User),
            Self::Rules(rules) => rules.iter().find(|rule| rule.fits(peer, program)).cloned().map(ClientRights::Rule),
        };
        let root = (uid == ROOT).then_some(ClientRights::Root);
        found.or(root).ok_or_else(|| {
            let which = match (self, program) {
                (Self::Rules(_), Some(program)) => format!("user {uid} in {}", program.display()),
                (Self::Rules(_), None) => format!("user {uid} in a program whose path it cannot read"),
                (Self::Users(_), _) => format!("user {uid}"),
            };
            not_served(&which, &self.way_on(uid))
        })
    }

    /// What makes a broker serve this user.
    fn way_on(&self, uid: u32) -> String {
        match self {
            Self::Users(_) => format!("start it with --uid {uid}, or run the program as a user that it serves"),
            Self::Rules(_) => "add a rule to its file, and have it read that again with `kill -HUP`".to_owned(),
        }
    }
}

fn not_served(which: &str, way_on: &str) -> Refusal {
    Refusal::new(libc::EACCES, format!("the broker does not serve {which}: {way_on}"))
}

impl BrokerRule {
    fn is_for_user(&self, peer: &Peer) -> bool {
        let is_of_user = self.users.as_ref().is_none_or(|users| users.contains(&peer.uid));
        let is_of_group =
            self.groups.as_ref().is_none_or(|groups| groups.iter().any(|group| peer.groups.contains(group)));
        is_of_user && is_of_group
    }

    fn fits(&self, peer: &Peer, program: Option<&Path>) -> bool {
        let is_of =
            |programs: &Vec<BrokerProgram>| program.is_some_and(|program| programs.iter().any(|one| one.is(program)));
        self.is_for_user(peer) && self.programs.as_ref().is_none_or(is_of)
    }

    fn check(&self, flow: &Flow) -> Result<(), Refusal> {
        let (address, port) = (*flow.destination.ip(), flow.destination.port());
        let (given, key) =
            if address.is_multicast() { (&self.multicast, "multicast") } else { (&self.addresses, "addresses") };
        let refused = |what: String, key: &str| {
            let sentence = format!("{} gives no {what}: add it there to `{key}`, and reload", self.name);
            Err(Refusal::new(libc::EACCES, sentence))
        };
        if !given.iter().any(|prefix| prefix.contains(address)) {
            return refused(address.to_string(), key);
        }
        let is_given = |ports: &BrokerPorts| {
            ports.protocol.is_none_or(|protocol| protocol == flow.protocol) && ports.ports.contains(&port)
        };
        match self.ports.iter().any(is_given) {
            true => Ok(()),
            false => refused(format!("{} port {port}", flow.protocol), "ports"),
        }
    }
}

impl BrokerProgram {
    fn is(&self, program: &Path) -> bool {
        match self {
            Self::File(path) => program == path,
            Self::Folder(path) => program != path && program.starts_with(path),
        }
    }
}

impl ClientRights {
    /// Whether the client may have anything at all.
    pub(super) fn are_any(&self) -> Result<(), Refusal> {
        match self {
            Self::OtherProgram(refusal) => Err(refusal.clone()),
            Self::Root | Self::User(_) | Self::Rule(_) => Ok(()),
        }
    }

    /// Whether the client may have a flow, on an interface with these addresses.
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
        match self {
            Self::Root => Ok(()),
            Self::Rule(rule) => rule.check(flow),
            Self::OtherProgram(_) => self.are_any(),
            Self::User(BrokerUser { uid, low_ports }) => {
                if port >= FIRST_COMMON_PORT || *uid == ROOT || low_ports.contains(&port) {
                    return Ok(());
                }
                let sentence = format!(
                    "port {port} is not for user {uid}: start the broker with --uid {uid}:{port}, or take a port from \
                     {FIRST_COMMON_PORT} on"
                );
                Err(Refusal::new(libc::EACCES, sentence))
            }
        }
    }

    /// The rule that limits the queues of the client, and the limit.
    pub(super) fn queues(&self) -> Option<(&BrokerRule, usize)> {
        match self {
            Self::Rule(rule) => rule.queues.map(|queues| (&**rule, queues)),
            Self::Root | Self::User(_) | Self::OtherProgram(_) => None,
        }
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

    fn peer(uid: u32) -> Peer {
        Peer { pid: 1, uid, groups: vec![uid] }
    }

    fn refused(rights: &ClientRights, flow: &Flow, errno: i32, says: &str) {
        let refusal = rights.check(flow, &[OWN]).unwrap_err();
        assert!(refusal.errno == errno && refusal.sentence.contains(says), "{refusal:?}");
    }

    #[test]
    fn user_that_is_not_named_is_refused_and_root_is_served() {
        let rights = Rights::Users(vec![user()]);
        assert_eq!(rights.of(&peer(1000), None), Ok(ClientRights::User(user())));
        let refusal = rights.of(&peer(1001), None).unwrap_err();
        assert!(refusal.sentence.contains("does not serve user 1001: start it with --uid 1001"), "{refusal:?}");
        assert_eq!(rights.of(&peer(0), None), Ok(ClientRights::Root));
    }

    #[test]
    fn user_is_added_where_the_broker_was_started_for_programs() {
        let mut rights = Rights::Users(vec![user()]);
        let refusal = rights.serve(1001, false).unwrap_err();
        assert!(refusal.sentence.contains("does not serve user 1001: start it with --uid 1001"), "{refusal:?}");
        for served in [0, 1000] {
            rights.serve(served, false).unwrap();
        }
        for _ in 0..2 {
            rights.serve(1001, true).unwrap();
        }
        assert_eq!(rights, Rights::Users(vec![user(), BrokerUser { uid: 1001, low_ports: vec![] }]));
        // A rule may be for a group that this user is in.
        let mut rights = Rights::of_rules(vec![rule()]);
        rights.serve(1001, true).unwrap();
        assert_eq!(rights, Rights::of_rules(vec![rule()]));
    }

    #[test]
    fn flows_to_own_addresses_and_groups_are_given() {
        let rights = ClientRights::User(user());
        for given in [flow(OWN, 5000), flow(OWN, 319), flow(Ipv4Addr::new(239, 1, 1, 1), 9000)] {
            rights.check(&given, &[OWN]).unwrap();
        }
        ClientRights::Root.check(&flow(OWN, 53), &[OWN]).unwrap();
    }

    #[test]
    fn flows_that_are_not_the_users_are_refused() {
        let rights = ClientRights::User(user());
        refused(&rights, &flow(Ipv4Addr::new(192, 0, 2, 2), 5000), libc::EADDRNOTAVAIL, "is no address of");
        refused(&rights, &flow(OWN, 53), libc::EACCES, "port 53 is not for user 1000");
        refused(&rights, &flow(OWN, 0), libc::EINVAL, "all ports");
        refused(&rights, &Flow { vlan: Some(7), ..flow(OWN, 5000) }, libc::EINVAL, "VLAN");
        let group = Flow { protocol: Protocol::TCP, ..flow(Ipv4Addr::new(239, 1, 1, 1), 9000) };
        refused(&rights, &group, libc::EINVAL, "is a group");
    }

    fn rule() -> BrokerRule {
        BrokerRule {
            name: "rule 1 of broker.toml".into(),
            users: Some(vec![1000]),
            groups: None,
            programs: None,
            ports: vec![BrokerPorts { protocol: Some(Protocol::UDP), ports: 5000..=5010 }],
            addresses: vec!["192.0.2.1/32".parse().unwrap()],
            multicast: vec!["239.1.0.0/16".parse().unwrap()],
            queues: Some(2),
        }
    }

    #[test]
    fn rule_is_for_its_users_groups_and_programs() {
        let programs =
            Some(vec![BrokerProgram::File("/opt/engine".into()), BrokerProgram::Folder("/opt/tools/".into())]);
        let by_program = BrokerRule { programs, ..rule() };
        let by_group = BrokerRule { users: None, groups: Some(vec![7, 8]), queues: Some(1), ..rule() };
        let rights = Rights::of_rules(vec![by_program.clone(), by_group.clone()]);
        let of = |peer: &Peer, program: &str| rights.of(peer, Some(Path::new(program))).ok();
        for program in ["/opt/engine", "/opt/tools/a", "/opt/tools/b/c"] {
            assert_eq!(of(&peer(1000), program), Some(ClientRights::Rule(by_program.clone().into())), "{program}");
            assert_eq!(of(&peer(1001), program), None);
        }
        for program in ["/opt/engine2", "/opt/engine (deleted)", "/opt/tools", "/opt/toolsmith", "opt/engine"] {
            assert_eq!(of(&peer(1000), program), None, "{program}");
        }
        let member = Peer { groups: vec![1001, 8], ..peer(1001) };
        assert_eq!(of(&member, "/any"), Some(ClientRights::Rule(by_group.into())));
        let refusal = rights.of(&peer(1000), None).unwrap_err();
        assert!(refusal.sentence.contains("user 1000 in a program whose path it cannot read"), "{refusal:?}");
        assert_eq!(of(&peer(0), "/any"), Some(ClientRights::Root));
        // The tool that starts a program is accepted, and gets no flow.
        let tool = rights.admit(&peer(1000), Some(Path::new("/bin/wirepath"))).unwrap();
        refused(&tool, &flow(OWN, 5000), libc::EACCES, "does not serve user 1000 in /bin/wirepath: add a rule");
        assert!(tool.are_any().is_err());
        rights.admit(&peer(1001), Some(Path::new("/bin/wirepath"))).unwrap_err();
    }

    #[test]
    fn rule_gives_what_it_names_and_no_more() {
        let rights = ClientRights::Rule(rule().into());
        let other = Ipv4Addr::new(192, 0, 2, 2);
        for given in [flow(OWN, 5000), flow(OWN, 5010), flow(Ipv4Addr::new(239, 1, 1, 1), 5005)] {
            rights.check(&given, &[OWN]).unwrap();
        }
        refused(&rights, &flow(OWN, 5011), libc::EACCES, "rule 1 of broker.toml gives no UDP port 5011: add it");
        let tcp = Flow { protocol: Protocol::TCP, ..flow(OWN, 5000) };
        refused(&rights, &tcp, libc::EACCES, "gives no TCP port 5000");
        refused(
            &rights,
            &flow(Ipv4Addr::new(239, 2, 1, 1), 5000),
            libc::EACCES,
            "239.2.1.1: add it there to `multicast`",
        );
        let refusal = rights.check(&flow(other, 5000), &[OWN, other]).unwrap_err();
        assert!(refusal.sentence.contains("192.0.2.2: add it there to `addresses`"), "{refusal:?}");
        assert_eq!(rights.queues().map(|(_, queues)| queues), Some(2));
    }
}
