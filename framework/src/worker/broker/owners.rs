//! The kernel's owner of a port. A program under the preload library has a kernel socket for each
//! of its own sockets, so no other program can bind the port. The broker gives a flow to a user who
//! has such a socket, and not if another user has one.
//!
//! The kernel is asked by sock_diag(7), because /proc/net/tcp is the whole table as text, and does
//! not tell a socket of IPv6 alone from one of both families.

use core::net::{Ipv4Addr, SocketAddrV4};
use std::collections::{BTreeSet, HashMap};
use std::io;

use super::claims::Claims;
use super::error::Refusal;
use super::flows::ROOT;
use crate::device::broker::message::Flow;
use crate::device::broker::sys;
use crate::sys::netlink::{Answer, Netlink, Request};
use crate::wire::Protocol;

/// A kernel socket with a port, of IPv4 or of both families.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KernelSocket {
    local: SocketAddrV4,
    remote: SocketAddrV4,
    uid: u32,
    inode: u32,
    /// Its number, which no other socket has had since the machine started.
    cookie: u64,
    /// A TCP socket that is bound, and neither listens nor is connected: it receives nothing.
    is_bound_only: bool,
}

/// A user, with the sockets that are his although another user has made them.
#[derive(Clone, Copy)]
pub(super) struct User<'a> {
    pub(super) uid: u32,
    pub(super) claims: &'a Claims,
}

impl User<'_> {
    fn has(self, socket: &KernelSocket) -> bool {
        socket.uid == self.uid || self.claims.has(self.uid, socket.cookie)
    }
}

/// linux/sock_diag.h, linux/inet_diag.h: the request, and the attribute that a socket is of IPv6
/// alone. The kernel has it for sockets without a peer.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const SKV6ONLY: u16 = 11;
/// Bytes of `struct inet_diag_msg`.
const ANSWER_LEN: usize = 72;
/// No cookie: whichever socket it is (`INET_DIAG_NOCOOKIE`).
const NO_COOKIE: [u8; 8] = [0xff; 8];
/// linux/tcp_states.h: closed, and the kernel reports no owner; of UDP without a peer, of TCP only
/// bound; bound, in the mask of a request alone (since Linux 6.8).
const TIME_WAIT: u8 = 6;
const CLOSE: u8 = 7;
const NEW_SYN_RECV: u8 = 12;
const BOUND_INACTIVE: u8 = 13;
/// All states of sockets that have an owner.
const OWNED: u32 = (1 << (BOUND_INACTIVE + 1)) - 1 - (1 << TIME_WAIT) - (1 << NEW_SYN_RECV);

/// All sockets of a protocol in this network namespace that may receive frames of `devices`. The
/// kernel goes through its tables.
pub(super) fn sockets(protocol: Protocol, devices: &[u32]) -> io::Result<Vec<KernelSocket>> {
    dump(protocol, 0, devices)
}

/// The ports at which the kernel has TCP connections with other hosts by the interface of index
/// `device`, whichever process of this network namespace has them. A program that took the frames
/// of such a port would reset them. The kernel goes through its tables: for set-up.
///
/// # Errors
/// The kernel does not list its sockets.
pub fn ports_of_kernels_connections(device: u32) -> io::Result<BTreeSet<u16>> {
    let connections = sockets(Protocol::TCP, &[device])?.into_iter().filter(KernelSocket::is_with_another_host);
    Ok(connections.map(|socket| socket.local.port()).collect())
}

/// The sockets that may receive frames of a flow from `devices`. Of a connection that is one on
/// each, which the kernel finds by both ends; otherwise those of the port.
pub(super) fn sockets_of(flow: &Flow, devices: &[u32]) -> io::Result<Vec<KernelSocket>> {
    match (flow.protocol, flow.source, flow.source_port) {
        (Protocol::TCP, Some(source), Some(port)) => {
            let remote = SocketAddrV4::new(source, port);
            devices.iter().filter_map(|&device| receiver(flow.destination, remote, device).transpose()).collect()
        }
        (protocol, ..) => dump(protocol, flow.destination.port(), devices),
    }
}

/// The TCP socket that receives the segments of a connection from a device: its own, or one that
/// listens. Without the device, the kernel would find none that is bound to it (SO_BINDTODEVICE).
fn receiver(local: SocketAddrV4, remote: SocketAddrV4, device: u32) -> io::Result<Option<KernelSocket>> {
    let request = request(libc::AF_INET, Protocol::TCP, local, remote, device);
    match Netlink::open(libc::NETLINK_SOCK_DIAG)?.ask(request, ANSWER_LEN) {
        Ok(answer) => Ok(KernelSocket::of(&answer, Protocol::TCP, &[device])),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The sockets of a protocol at a port; 0: at all.
fn dump(protocol: Protocol, port: u16, devices: &[u32]) -> io::Result<Vec<KernelSocket>> {
    let mut found = Vec::new();
    let (local, remote) = (SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port), NOBODY);
    for family in [libc::AF_INET, libc::AF_INET6] {
        let mut kernel = Netlink::open(libc::NETLINK_SOCK_DIAG)?;
        let dumped = kernel.dump(request(family, protocol, local, remote, 0), ANSWER_LEN, |answer| {
            found.extend(KernelSocket::of(answer, protocol, devices));
        });
        match dumped {
            // A kernel without IPv6 has no such sockets.
            Err(error) if family == libc::AF_INET6 && error.raw_os_error() == Some(libc::ENOENT) => (),
            done => done?,
        }
    }
    Ok(found)
}

const NOBODY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);

/// `struct inet_diag_req_v2`. A list is of the port of `local` alone, unless that is 0.
fn request(family: i32, protocol: Protocol, local: SocketAddrV4, remote: SocketAddrV4, device: u32) -> Request {
    let mut fixed = [0; 56];
    (fixed[0], fixed[1]) = (family as u8, protocol.0);
    fixed[4..8].copy_from_slice(&OWNED.to_ne_bytes());
    fixed[8..10].copy_from_slice(&local.port().to_be_bytes());
    fixed[10..12].copy_from_slice(&remote.port().to_be_bytes());
    fixed[12..16].copy_from_slice(&local.ip().octets());
    fixed[28..32].copy_from_slice(&remote.ip().octets());
    fixed[44..48].copy_from_slice(&device.to_ne_bytes());
    fixed[48..56].copy_from_slice(&NO_COOKIE);
    Request::new(SOCK_DIAG_BY_FAMILY, &fixed)
}

/// Sockets by their ports: there may be ten thousands of them.
pub(super) fn by_port(sockets: Vec<KernelSocket>) -> HashMap<u16, Vec<KernelSocket>> {
    let mut ports = HashMap::<_, Vec<_>>::new();
    sockets.into_iter().for_each(|socket| ports.entry(socket.local.port()).or_default().push(socket));
    ports
}

/// Whether a socket may have the flow's port on one of `devices` although no table lists it: a TCP
/// socket that is bound, but neither listens nor is connected yet.
pub(super) fn is_bound(flow: &Flow, devices: &[u32]) -> io::Result<bool> {
    if flow.protocol != Protocol::TCP {
        return Ok(false);
    }
    for &device in devices {
        if !sys::is_free(flow.destination, device)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a kernel socket has the flow's port, and none of `sockets` listens there.
pub(super) fn waits_for_listener(flow: &Flow, sockets: &[KernelSocket], devices: &[u32]) -> bool {
    !sockets.iter().any(|socket| socket.gets(flow)) && is_bound(flow, devices).unwrap_or(false)
}

/// The kernel sockets of a user that listen at the flow's port, by their inodes.
pub(super) fn listeners(flow: &Flow, user: User<'_>, sockets: &[KernelSocket]) -> impl Iterator<Item = u32> {
    let is_listener = move |socket: &&KernelSocket| user.has(socket) && socket.remote.port() == 0 && socket.gets(flow);
    sockets.iter().filter(is_listener).map(|socket| socket.inode)
}

/// Whether a user may have `flow`: a socket of the user has the port, and no socket of another
/// user receives frames of the flow. Root needs no socket. For a socket that is bound but in no
/// table (`is_bound`), the owner is known only once it listens. Users who share the flow with this
/// one are no others.
pub(super) fn check(
    flow: &Flow,
    user: User<'_>,
    sharers: &BTreeSet<u32>,
    sockets: &[KernelSocket],
    is_bound: bool,
) -> Result<(), Refusal> {
    let port = flow.destination;
    let mut others = sockets.iter().filter(|socket| !user.has(socket) && socket.gets(flow)).map(|socket| socket.uid);
    if let Some(other) = others.find(|other| !sharers.contains(other)) {
        let sentence = format!("port {port} is user {other}'s in the kernel: take another");
        return Err(Refusal::new(libc::EADDRINUSE, sentence));
    }
    let has_one = || sockets.iter().any(|socket| user.has(socket) && socket.gets(flow));
    let uid = user.uid;
    if uid != ROOT && !is_bound && !has_one() {
        let sentence =
            format!("no socket of user {uid} has {port} in the kernel: bind one first, so that nobody else can");
        return Err(Refusal::new(libc::EACCES, sentence));
    }
    Ok(())
}

/// Whether a flow that a user has is another user's by now: one whose socket receives its
/// frames, while none of the user's own does. While one does, the kernel let the other bind the
/// port beside it, and the flow was there first.
pub(super) fn is_lost(flow: &Flow, user: User<'_>, sockets: &[KernelSocket]) -> bool {
    let is_anothers = |socket: &KernelSocket| !user.has(socket) && socket.gets(flow);
    sockets.iter().any(is_anothers) && !sockets.iter().any(|socket| user.has(socket) && socket.holds(flow))
}

/// Whether a flow that a user has needs a socket of the user, and there is none: the kernel may
/// give the port to a socket that lives shorter than the time between two reviews. Root needs none.
/// Nor does TCP, whose flow remains as long as connections that a closed listener has accepted.
pub(super) fn has_no_socket(flow: &Flow, user: User<'_>, sockets: &[KernelSocket]) -> bool {
    let keeps = |socket: &KernelSocket| user.has(socket) && socket.keeps_port_of(flow);
    user.uid != ROOT && flow.protocol == Protocol::UDP && !sockets.iter().any(keeps)
}

impl KernelSocket {
    #[cfg(test)]
    pub(super) fn listening(local: SocketAddrV4, uid: u32, inode: u32) -> Self {
        Self { local, remote: NOBODY, uid, inode, cookie: inode.into(), is_bound_only: false }
    }

    pub(super) fn cookie(&self) -> u64 {
        self.cookie
    }

    /// The socket that an answer of the kernel (`struct inet_diag_msg`) is about, unless it is of
    /// IPv6 alone, or bound to another device than `devices`.
    fn of(answer: &Answer<'_>, protocol: Protocol, devices: &[u32]) -> Option<Self> {
        let fixed = answer.fixed;
        let (family, state) = (i32::from(*fixed.first()?), *fixed.get(1)?);
        if state == TIME_WAIT || answer.get(SKV6ONLY).is_some_and(|value| value.first() != Some(&0)) {
            return None;
        }
        let ip = |at: usize| address(family, fixed.get(at..)?.first_chunk()?);
        let port = |at: usize| Some(u16::from_be_bytes(*fixed.get(at..)?.first_chunk()?));
        let word = |at: usize| Some(u32::from_ne_bytes(*fixed.get(at..)?.first_chunk()?));
        let device = word(40)?;
        if device != 0 && !devices.contains(&device) {
            return None;
        }
        Some(Self {
            local: SocketAddrV4::new(ip(8)?, port(4)?),
            remote: SocketAddrV4::new(ip(24)?, port(6)?),
            uid: word(64)?,
            inode: word(68)?,
            cookie: u64::from(word(44)?) | u64::from(word(48)?) << 32,
            is_bound_only: protocol == Protocol::TCP && matches!(state, CLOSE | BOUND_INACTIVE),
        })
    }

    /// Whether it has a peer, which is not of this host.
    fn is_with_another_host(&self) -> bool {
        let (local, remote) = (self.local, self.remote);
        remote.port() != 0 && remote.ip() != local.ip() && !local.ip().is_loopback()
    }

    /// Whether this socket would receive frames of the flow.
    fn gets(&self, flow: &Flow) -> bool {
        !self.is_bound_only && self.names(flow)
    }

    /// Whether the flow can be this socket's. That of a connection belongs to a socket that is only
    /// bound: the twin of an offloaded one is never connected.
    fn holds(&self, flow: &Flow) -> bool {
        let is_connection = flow.source.is_some() && flow.source_port.is_some();
        (!self.is_bound_only || is_connection) && self.names(flow)
    }

    /// Whether it has the flow's port for as long as it lives. `connect` gives it one address and
    /// one peer; the flows to the host's other addresses and to groups stay.
    fn keeps_port_of(&self, flow: &Flow) -> bool {
        let (local, destination) = (self.local, flow.destination);
        let is_connected = self.remote.port() != 0;
        let is_here = local.ip().is_unspecified() || local.ip() == destination.ip();
        local.port() == destination.port() && (is_here || is_connected || destination.ip().is_multicast())
    }

    fn names(&self, flow: &Flow) -> bool {
        let (local, remote) = (self.local, self.remote);
        let is_here = local.ip().is_unspecified() || local.ip() == flow.destination.ip();
        let is_from = remote.ip().is_unspecified() || flow.source.is_none_or(|source| source == *remote.ip());
        let is_from_port = remote.port() == 0 || flow.source_port.is_none_or(|port| port == remote.port());
        local.port() == flow.destination.port() && is_here && is_from && is_from_port
    }
}

/// An address of IPv4, by itself or as IPv6 maps it. The unspecified one of IPv6 receives IPv4 as
/// well.
fn address(family: i32, bytes: &[u8; 16]) -> Option<Ipv4Addr> {
    let [first @ .., a, b, c, d] = *bytes;
    match (family, first) {
        (libc::AF_INET, _) => Some(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3])),
        (_, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]) => Some(Ipv4Addr::new(a, b, c, d)),
        _ if *bytes == [0; 16] => Some(Ipv4Addr::UNSPECIFIED),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use std::sync::LazyLock;

    use super::*;
    use crate::sys::socket::set_bytes;
    use crate::worker::broker::claims::Claim;
    use crate::worker::broker::flows::ClientId;

    /// The index of `lo` in every namespace.
    const LOOPBACK: u32 = 1;
    const OWN: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
    const PEER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);

    fn flow(source: Option<(Ipv4Addr, u16)>) -> Flow {
        Flow {
            protocol: Protocol::TCP,
            destination: SocketAddrV4::new(OWN, 5000),
            source: source.map(|(address, _)| address),
            source_port: source.map(|(_, port)| port),
            vlan: None,
        }
    }

    fn of(uid: u32, local: (Ipv4Addr, u16), remote: (Ipv4Addr, u16)) -> KernelSocket {
        let [local, remote] = [local, remote].map(|(address, port)| SocketAddrV4::new(address, port));
        KernelSocket { local, remote, uid, inode: 1, cookie: COOKIE, is_bound_only: false }
    }

    static NO_CLAIMS: LazyLock<Claims> = LazyLock::new(Claims::default);

    fn user(uid: u32) -> User<'static> {
        User { uid, claims: &NO_CLAIMS }
    }

    fn check(
        flow: &Flow,
        uid: u32,
        sharers: &BTreeSet<u32>,
        sockets: &[KernelSocket],
        is_bound: bool,
    ) -> Result<(), Refusal> {
        super::check(flow, user(uid), sharers, sockets, is_bound)
    }

    fn is_lost(flow: &Flow, uid: u32, sockets: &[KernelSocket]) -> bool {
        super::is_lost(flow, user(uid), sockets)
    }

    fn has_no_socket(flow: &Flow, uid: u32, sockets: &[KernelSocket]) -> bool {
        super::has_no_socket(flow, user(uid), sockets)
    }

    const COOKIE: u64 = 7 << 32 | 9;
    const NOBODY: (Ipv4Addr, u16) = (Ipv4Addr::UNSPECIFIED, 0);
    const ALONE: BTreeSet<u32> = BTreeSet::new();

    #[test]
    fn flow_is_for_who_has_the_port_in_the_kernel() {
        let refusal = check(&flow(None), 1000, &ALONE, &[], false).unwrap_err();
        assert!(refusal.errno == libc::EACCES && refusal.sentence.contains("bind one first"), "{refusal:?}");
        check(&flow(None), 0, &ALONE, &[], false).unwrap();
        check(&flow(None), 1000, &ALONE, &[], true).unwrap();
        for local in [(OWN, 5000), (Ipv4Addr::UNSPECIFIED, 5000)] {
            check(&flow(None), 1000, &ALONE, &[of(1000, local, NOBODY)], false).unwrap();
            let both = [of(1000, local, NOBODY), of(7, local, NOBODY)];
            let refusal = check(&flow(None), 1000, &ALONE, &both, false).unwrap_err();
            assert!(refusal.errno == libc::EADDRINUSE && refusal.sentence.contains("user 7's"), "{refusal:?}");
            check(&flow(None), 0, &ALONE, &both, false).unwrap_err();
        }
        for elsewhere in [(OWN, 5001), (PEER, 5000)] {
            check(&flow(None), 1000, &ALONE, &[of(1000, elsewhere, NOBODY)], false).unwrap_err();
        }
    }

    #[test]
    fn connection_with_another_host_is_neither_a_listener_nor_one_of_this_host() {
        assert!(of(1000, (OWN, 5000), (PEER, 6000)).is_with_another_host());
        for (local, remote) in
            [((OWN, 5000), NOBODY), ((OWN, 5000), (OWN, 6000)), ((Ipv4Addr::LOCALHOST, 5000), (OWN, 6000))]
        {
            assert!(!of(1000, local, remote).is_with_another_host(), "{local:?} {remote:?}");
        }
    }

    #[test]
    fn socket_of_a_user_who_shares_the_flow_is_no_owners_and_the_user_needs_one_of_his_own() {
        let group = Flow {
            protocol: Protocol::UDP,
            destination: SocketAddrV4::new(Ipv4Addr::new(239, 1, 1, 1), 5000),
            ..flow(None)
        };
        let [own, sharers, others] = [1000, 7, 8].map(|uid| of(uid, (Ipv4Addr::UNSPECIFIED, 5000), NOBODY));
        let check = |sockets: &[KernelSocket]| {
            check(&group, 1000, &BTreeSet::from([7]), sockets, false).map_err(|refusal| refusal.errno)
        };
        assert_eq!(check(&[own, sharers]), Ok(()));
        assert_eq!(check(&[sharers]), Err(libc::EACCES));
        assert_eq!(check(&[own, sharers, others]), Err(libc::EADDRINUSE));
    }

    #[test]
    fn connection_of_another_user_counts_where_it_is_the_same() {
        let ours = of(1000, (OWN, 5000), NOBODY);
        let theirs = of(7, (OWN, 5000), (PEER, 443));
        check(&flow(Some((PEER, 443))), 1000, &ALONE, &[ours, theirs], false).unwrap_err();
        check(&flow(Some((PEER, 444))), 1000, &ALONE, &[ours, theirs], false).unwrap();
        check(&flow(Some((OWN, 443))), 1000, &ALONE, &[ours, theirs], false).unwrap();
        check(&flow(None), 1000, &ALONE, &[ours, theirs], false).unwrap_err();
    }

    #[test]
    fn flow_stays_with_its_user_while_his_socket_receives_it_too() {
        let (own, other) = (of(1000, (OWN, 5000), NOBODY), of(7, (OWN, 5000), NOBODY));
        assert!(!is_lost(&flow(None), 1000, &[own, other]));
        assert!(is_lost(&flow(None), 1000, &[other]));
        assert!(!is_lost(&flow(None), 1000, &[]));
        // One that only has the port receives no caller; a connection has no other socket.
        let bound = KernelSocket { is_bound_only: true, ..own };
        assert!(is_lost(&flow(None), 1000, &[bound, other]));
        assert!(!is_lost(&flow(Some((PEER, 443))), 1000, &[bound, other]));
        assert!(!is_lost(&flow(None), 1000, &[KernelSocket { is_bound_only: true, ..other }]));
    }

    #[test]
    fn socket_that_a_user_has_shown_is_his_whoever_has_made_it() {
        let (roots, others) = (of(0, (OWN, 5000), NOBODY), KernelSocket { cookie: 1, ..of(0, (OWN, 5000), NOBODY) });
        let mut claims = Claims::default();
        claims.add(ClientId(1), 1000, Claim { cookie: COOKIE, protocol: Protocol::UDP, port: 5000 }).unwrap();
        let [user, stranger] = [1000, 7].map(|uid| User { uid, claims: &claims });
        super::check(&flow(None), user, &ALONE, &[roots], false).unwrap();
        super::check(&flow(None), user, &ALONE, &[roots, others], false).unwrap_err();
        super::check(&flow(None), stranger, &ALONE, &[roots], false).unwrap_err();
        let is_lost = |user, sockets: &[KernelSocket]| super::is_lost(&flow(None), user, sockets);
        assert!(!is_lost(user, &[roots]) && is_lost(user, &[others]) && is_lost(stranger, &[roots]));
        let udp = Flow { protocol: Protocol::UDP, ..flow(None) };
        let has_none = |user, sockets: &[KernelSocket]| super::has_no_socket(&udp, user, sockets);
        assert!(!has_none(user, &[roots]) && has_none(user, &[others]) && has_none(stranger, &[roots]));
        assert_eq!(listeners(&flow(None), user, &[roots]).count(), 1);
        assert_eq!(listeners(&flow(None), stranger, &[roots]).count(), 0);
    }

    #[test]
    fn flow_of_udp_needs_a_socket_of_its_user_for_as_long_as_it_lasts() {
        let own = of(1000, (OWN, 5000), NOBODY);
        for source in [None, Some((PEER, 53))] {
            let udp = Flow { protocol: Protocol::UDP, ..flow(source) };
            assert!(!has_no_socket(&udp, 1000, &[own]));
            for kept in [((Ipv4Addr::UNSPECIFIED, 5000), NOBODY), ((PEER, 5000), (OWN, 7))] {
                assert!(!has_no_socket(&udp, 1000, &[of(1000, kept.0, kept.1)]), "{kept:?}");
            }
            let group = Flow { destination: SocketAddrV4::new(Ipv4Addr::new(239, 1, 1, 1), 5000), ..udp };
            assert!(!has_no_socket(&group, 1000, &[own]) && has_no_socket(&group, 1000, &[]));
            let (elsewhere, anothers) = (of(1000, (PEER, 5000), NOBODY), of(7, (OWN, 5000), NOBODY));
            for sockets in [&[][..], &[of(1000, (OWN, 5001), NOBODY)], &[elsewhere], &[anothers]] {
                assert!(has_no_socket(&udp, 1000, sockets), "{source:?} {sockets:?}");
                assert!(!has_no_socket(&udp, 0, sockets), "root needs none");
            }
            // Connections that a closed listener has accepted have no socket with the port.
            assert!(!has_no_socket(&flow(source), 1000, &[]));
        }
    }

    /// The answer of the kernel about a socket, with the attribute that says whether it is of IPv6
    /// alone.
    fn answer(family: i32, state: u8, local: &[u8], only6: Option<u8>) -> Option<KernelSocket> {
        let mut fixed = [0; ANSWER_LEN];
        (fixed[0], fixed[1]) = (family as u8, state);
        fixed[4..6].copy_from_slice(&5000_u16.to_be_bytes());
        fixed[8..8 + local.len()].copy_from_slice(local);
        [9_u32, 7]
            .into_iter()
            .zip([44, 48])
            .for_each(|(word, at)| fixed[at..at + 4].copy_from_slice(&word.to_ne_bytes()));
        fixed[64..68].copy_from_slice(&7_u32.to_ne_bytes());
        fixed[68..].copy_from_slice(&1_u32.to_ne_bytes());
        let attributes = only6.map(|value| [&5_u16.to_ne_bytes()[..], &SKV6ONLY.to_ne_bytes(), &[value]].concat());
        KernelSocket::of(&Answer::new(&fixed, attributes.as_deref().unwrap_or(&[])), Protocol::TCP, &[])
    }

    #[test]
    fn socket_of_ipv6_alone_is_nobodys() {
        let any = of(7, (Ipv4Addr::UNSPECIFIED, 5000), NOBODY);
        assert_eq!(answer(libc::AF_INET6, 10, &[0; 16], Some(0)), Some(any));
        assert_eq!(answer(libc::AF_INET6, 10, &[0; 16], Some(1)), None);
        let mapped = [&[0; 10][..], &[0xff; 2], &OWN.octets()].concat();
        assert_eq!(answer(libc::AF_INET6, 1, &mapped, None), Some(of(7, (OWN, 5000), NOBODY)));
        assert_eq!(answer(libc::AF_INET6, 1, &[0xfe, 0x80], None), None);
        assert_eq!(answer(libc::AF_INET, 1, &OWN.octets(), None), Some(of(7, (OWN, 5000), NOBODY)));
        assert_eq!(answer(libc::AF_INET, TIME_WAIT, &OWN.octets(), None), None);
        assert!(answer(libc::AF_INET, CLOSE, &OWN.octets(), None).unwrap().is_bound_only);
    }

    #[test]
    fn own_sockets_are_found() {
        let own = std::fs::metadata("/proc/self").map(|own| std::os::unix::fs::MetadataExt::uid(&own)).unwrap();
        let (tcp, udp) =
            (TcpListener::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("[::]:0").or(UdpSocket::bind("0.0.0.0:0")));
        let port = tcp.local_addr().unwrap().port();
        let has = |found: Vec<KernelSocket>, wanted: KernelSocket| {
            found
                .into_iter()
                .any(|socket| KernelSocket { inode: wanted.inode, cookie: wanted.cookie, ..socket } == wanted)
        };
        let listener = of(own, (Ipv4Addr::LOCALHOST, port), NOBODY);
        assert!(has(sockets(Protocol::TCP, &[LOOPBACK]).unwrap(), listener));
        let udp = udp.unwrap();
        let any = of(own, (Ipv4Addr::UNSPECIFIED, udp.local_addr().unwrap().port()), NOBODY);
        assert!(has(sockets(Protocol::UDP, &[LOOPBACK]).unwrap(), any));
        let to = |source| Flow { destination: SocketAddrV4::new(Ipv4Addr::LOCALHOST, port), ..flow(source) };
        assert!(has(sockets_of(&to(None), &[LOOPBACK]).unwrap(), listener));
        // A connection of its own, and one that would be the listener's.
        let caller = TcpStream::connect(("127.0.0.1", port)).unwrap().local_addr().unwrap().port();
        let connected = of(own, (Ipv4Addr::LOCALHOST, port), (Ipv4Addr::LOCALHOST, caller));
        let accepted = tcp.accept().unwrap();
        assert!(has(sockets_of(&to(Some((Ipv4Addr::LOCALHOST, caller))), &[LOOPBACK]).unwrap(), connected));
        assert!(has(sockets_of(&to(Some((PEER, 443))), &[LOOPBACK]).unwrap(), listener));
        drop((tcp, accepted));
        assert_eq!(sockets_of(&to(Some((PEER, 443))), &[LOOPBACK]).unwrap(), []);
    }

    #[test]
    fn socket_that_is_bound_to_a_device_counts_for_that_device_alone() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        set_bytes(&listener, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, b"lo").unwrap();
        let destination = listener.local_addr().unwrap().port();
        for source in [None, Some((PEER, 443))] {
            let flow = Flow { destination: SocketAddrV4::new(Ipv4Addr::LOCALHOST, destination), ..flow(source) };
            let counts = |devices: &[u32]| sockets_of(&flow, devices).unwrap().iter().any(|socket| socket.gets(&flow));
            assert!(counts(&[LOOPBACK]) && counts(&[7_777_777, LOOPBACK]), "{source:?}");
            assert!(!counts(&[7_777_777]), "{source:?}");
        }
        let port = listener.local_addr().unwrap();
        let is_there = |devices: &[u32]| {
            sockets(Protocol::TCP, devices).unwrap().iter().any(|socket| std::net::SocketAddr::V4(socket.local) == port)
        };
        assert!(is_there(&[LOOPBACK]) && !is_there(&[7_777_777]));
    }

    proptest::proptest! {
        #[test]
        fn any_answer_is_read_without_a_panic(fixed in proptest::collection::vec(0..=u8::MAX, 0..80)) {
            KernelSocket::of(&Answer::new(&fixed, &fixed), Protocol::TCP, &[]);
        }
    }
}
