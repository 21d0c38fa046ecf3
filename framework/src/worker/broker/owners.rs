//! The kernel's owner of a port. A program under the preload library has a kernel socket for each
//! of its own sockets, so no other program can bind the port. The broker gives a flow to a user who
//! has such a socket, and not if another user has one.

use core::net::{Ipv4Addr, SocketAddrV4};
use std::collections::HashMap;
use std::{fs, io};

use super::error::Refusal;
use crate::device::af_xdp::broker::message::Flow;
use crate::device::af_xdp::broker::sys;
use crate::wire::Protocol;

/// A kernel socket with a port, of IPv4 or of both families.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KernelSocket {
    local: SocketAddrV4,
    remote: SocketAddrV4,
    uid: u32,
    inode: u64,
}

/// linux/tcp_states.h: the socket is closed, and the kernel reports no owner.
const TIME_WAIT: u8 = 6;

/// The sockets of a protocol in this network namespace. Reads two files of /proc.
pub(super) fn sockets(protocol: Protocol) -> io::Result<Vec<KernelSocket>> {
    let name = if protocol == Protocol::TCP { "tcp" } else { "udp" };
    let mut sockets = parse(&fs::read_to_string(format!("/proc/thread-self/net/{name}"))?);
    // A kernel without IPv6 has no such file.
    if let Ok(text) = fs::read_to_string(format!("/proc/thread-self/net/{name}6")) {
        sockets.extend(parse(&text));
    }
    Ok(sockets)
}

/// Sockets by their ports: there may be ten thousands of them.
pub(super) fn by_port(sockets: Vec<KernelSocket>) -> HashMap<u16, Vec<KernelSocket>> {
    let mut ports = HashMap::<_, Vec<_>>::new();
    sockets.into_iter().for_each(|socket| ports.entry(socket.local.port()).or_default().push(socket));
    ports
}

/// Whether a socket may have the flow's port although no table lists it: a TCP socket that is
/// bound, but neither listens nor is connected yet.
pub(super) fn is_bound(flow: &Flow) -> io::Result<bool> {
    Ok(flow.protocol == Protocol::TCP && !sys::is_free(flow.destination)?)
}

/// Whether a kernel socket has the flow's port, and none of `sockets` listens there.
pub(super) fn waits_for_listener(flow: &Flow, sockets: &[KernelSocket]) -> bool {
    !sockets.iter().any(|socket| socket.gets(flow)) && is_bound(flow).unwrap_or(false)
}

/// The kernel sockets that listen at the flow's port, by their inodes.
pub(super) fn listeners(flow: &Flow, sockets: &[KernelSocket]) -> impl Iterator<Item = u64> {
    sockets.iter().filter(|socket| socket.remote.port() == 0 && socket.gets(flow)).map(|socket| socket.inode)
}

/// Whether user `uid` may have `flow`: a socket of the user has the port, and no socket of another
/// user receives frames of the flow. Root needs no socket. For a socket that is bound but in no
/// table (`is_bound`), the owner is known only once it listens.
pub(super) fn check(flow: &Flow, uid: u32, sockets: &[KernelSocket], is_bound: bool) -> Result<(), Refusal> {
    let port = flow.destination;
    if let Some(other) = other_owner(flow, uid, sockets) {
        let sentence = format!("port {port} is user {other}'s in the kernel: take another");
        return Err(Refusal::new(libc::EADDRINUSE, sentence));
    }
    if uid != 0 && !is_bound && !sockets.iter().any(|socket| socket.gets(flow)) {
        let sentence =
            format!("no socket of user {uid} has {port} in the kernel: bind one first, so that nobody else can");
        return Err(Refusal::new(libc::EACCES, sentence));
    }
    Ok(())
}

/// Another user with a socket that receives frames of `flow`.
pub(super) fn other_owner(flow: &Flow, uid: u32, sockets: &[KernelSocket]) -> Option<u32> {
    sockets.iter().find(|socket| socket.uid != uid && socket.gets(flow)).map(|socket| socket.uid)
}

impl KernelSocket {
    #[cfg(test)]
    pub(super) fn listening(local: SocketAddrV4, inode: u64) -> Self {
        Self { local, remote: SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0), uid: 0, inode }
    }

    /// Whether this socket would receive frames of the flow.
    fn gets(&self, flow: &Flow) -> bool {
        let (local, remote) = (self.local, self.remote);
        let is_here = local.ip().is_unspecified() || local.ip() == flow.destination.ip();
        let is_from = remote.ip().is_unspecified() || flow.source.is_none_or(|source| source == *remote.ip());
        let is_from_port = remote.port() == 0 || flow.source_port.is_none_or(|port| port == remote.port());
        local.port() == flow.destination.port() && is_here && is_from && is_from_port
    }
}

/// The sockets of a table as in proc_pid_net(5), without those of IPv6 only.
fn parse(text: &str) -> Vec<KernelSocket> {
    text.lines().skip(1).filter_map(socket).collect()
}

fn socket(line: &str) -> Option<KernelSocket> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (local, remote) = (address(fields.next()?)?, address(fields.next()?)?);
    let state = u8::from_str_radix(fields.next()?, 16).ok()?;
    let uid = fields.nth(3)?.parse().ok()?;
    let inode = fields.nth(1)?.parse().ok()?;
    (state != TIME_WAIT).then_some(KernelSocket { local, remote, uid, inode })
}

/// An address and a port in hexadecimal digits; each word of the address is in the machine's byte
/// order.
fn address(text: &str) -> Option<SocketAddrV4> {
    let (words, port) = text.split_once(':')?;
    let word = |idx: usize| u32::from_str_radix(words.get(8 * idx..8 * idx + 8)?, 16).ok().map(u32::to_ne_bytes);
    let address = match words.len() {
        8 => word(0)?,
        // The unspecified address, which receives IPv4 as well, or ::ffff:a.b.c.d.
        32 => match (word(0)?, word(1)?, word(2)?) {
            ([0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]) if word(3)? == [0; 4] => [0; 4],
            ([0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0xff, 0xff]) => word(3)?,
            _ => return None,
        },
        _ => return None,
    };
    Some(SocketAddrV4::new(Ipv4Addr::from(address), u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;

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
        KernelSocket { local, remote, uid, inode: 1 }
    }

    const NOBODY: (Ipv4Addr, u16) = (Ipv4Addr::UNSPECIFIED, 0);

    #[test]
    fn flow_is_for_who_has_the_port_in_the_kernel() {
        let refusal = check(&flow(None), 1000, &[], false).unwrap_err();
        assert!(refusal.errno == libc::EACCES && refusal.sentence.contains("bind one first"), "{refusal:?}");
        check(&flow(None), 0, &[], false).unwrap();
        check(&flow(None), 1000, &[], true).unwrap();
        for local in [(OWN, 5000), (Ipv4Addr::UNSPECIFIED, 5000)] {
            check(&flow(None), 1000, &[of(1000, local, NOBODY)], false).unwrap();
            let both = [of(1000, local, NOBODY), of(7, local, NOBODY)];
            let refusal = check(&flow(None), 1000, &both, false).unwrap_err();
            assert!(refusal.errno == libc::EADDRINUSE && refusal.sentence.contains("user 7's"), "{refusal:?}");
            check(&flow(None), 0, &both, false).unwrap_err();
        }
        for elsewhere in [(OWN, 5001), (PEER, 5000)] {
            check(&flow(None), 1000, &[of(1000, elsewhere, NOBODY)], false).unwrap_err();
        }
    }

    #[test]
    fn connection_of_another_user_counts_where_it_is_the_same() {
        let ours = of(1000, (OWN, 5000), NOBODY);
        let theirs = of(7, (OWN, 5000), (PEER, 443));
        check(&flow(Some((PEER, 443))), 1000, &[ours, theirs], false).unwrap_err();
        check(&flow(Some((PEER, 444))), 1000, &[ours, theirs], false).unwrap();
        check(&flow(Some((OWN, 443))), 1000, &[ours, theirs], false).unwrap();
        check(&flow(None), 1000, &[ours, theirs], false).unwrap_err();
    }

    #[test]
    fn tables_of_the_kernel_are_read() {
        let text = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
             \x20  0: 010200C0:1388 090200C0:01BB 01 00000000:00000000 00:00000000 00000000  1000        0 1 1\n\
             \x20  1: 010200C0:1388 090200C0:01BB 06 00000000:00000000 00:00000000 00000000     0        0 0 1\n\
             \x20  2: nonsense\n";
        if cfg!(target_endian = "little") {
            assert_eq!(parse(text), [of(1000, (OWN, 5000), (PEER, 443))]);
        }
        let six = |local: &str| format!("header\n 0: {local}:1388 {:032X}:0000 0A 0:0 0:0 0 7 0 1\n", 0);
        assert_eq!(parse(&six(&"0".repeat(32))), [of(7, (Ipv4Addr::UNSPECIFIED, 5000), NOBODY)]);
        assert_eq!(parse(&six("000080FE00000000000000000100007F")), []);
    }

    #[test]
    fn own_sockets_are_found() {
        let own = fs::metadata("/proc/self").map(|own| std::os::unix::fs::MetadataExt::uid(&own)).unwrap();
        let (tcp, udp) =
            (TcpListener::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("[::]:0").or(UdpSocket::bind("0.0.0.0:0")));
        let port = tcp.local_addr().unwrap().port();
        let has = |found: Vec<KernelSocket>, wanted: KernelSocket| {
            found.into_iter().any(|socket| KernelSocket { inode: wanted.inode, ..socket } == wanted)
        };
        let listener = of(own, (Ipv4Addr::LOCALHOST, port), NOBODY);
        assert!(has(sockets(Protocol::TCP).unwrap(), listener));
        let udp = udp.unwrap();
        let any = of(own, (Ipv4Addr::UNSPECIFIED, udp.local_addr().unwrap().port()), NOBODY);
        assert!(has(sockets(Protocol::UDP).unwrap(), any));
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in "[0-9A-F: \n\\PC]{0,200}") {
            parse(&text);
        }
    }
}
