//! Datagram sockets that share a port (`SO_REUSEADDR`, `SO_REUSEPORT`), and are connected or not.
#![allow(clippy::unwrap_used)] // a panic here is the report

mod common;

use std::net::{Ipv4Addr, SocketAddrV4};

use common::{Wire, at, wire};
use sockets::{Errno, Kind, SocketId, Stack};

const SO_REUSEADDR: i32 = 2;
const SO_REUSEPORT: i32 = 15;

/// A socket at `local` that shares its port.
fn bound(stack: &Stack, local: SocketAddrV4, option: i32) -> SocketId {
    let id = stack.call(|sockets, _| sockets.socket(Kind::Datagram)).unwrap();
    stack.call(|sockets, cx| sockets.setsockopt(id, 1, option, &1i32.to_ne_bytes(), cx)).unwrap();
    stack.call(|sockets, cx| sockets.bind(id, local, cx)).unwrap();
    id
}

/// One of the right host at the shared port.
fn sharer(wire: &Wire, option: i32) -> SocketId {
    bound(&wire.right, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 5_000), option)
}

fn connect(wire: &Wire, id: SocketId, peer: SocketAddrV4) {
    wire.right.call(|sockets, cx| sockets.connect(id, peer, cx)).unwrap();
}

/// The source ports of the datagrams that wait.
fn sources<const COUNT: usize>(wire: &Wire, ids: [SocketId; COUNT]) -> [Vec<u16>; COUNT] {
    ids.map(|id| {
        let next = || wire.right.call(|sockets, _| sockets.recv_from(id, &mut [0; 8]));
        let mut ports: Vec<u16> = std::iter::from_fn(|| next().ok()).map(|(_, info)| info.source.port()).collect();
        ports.sort_unstable();
        ports
    })
}

#[test]
fn connected_socket_leaves_other_peers_to_the_sockets_that_share_its_port() {
    for option in [SO_REUSEADDR, SO_REUSEPORT] {
        let wire = wire();
        let peers: [SocketId; 4] = [1, 2, 3, 4].map(|port| bound(&wire.left, at(1, port), option));
        let send = || {
            for peer in peers {
                wire.left.call(|sockets, cx| sockets.send_to(peer, b"x", at(2, 5_000), cx)).unwrap();
            }
            wire.settle();
        };
        let (one, two) = (sharer(&wire, option), sharer(&wire, option));
        connect(&wire, two, at(1, 1));
        send();
        assert_eq!(sources(&wire, [one, two]), [vec![2, 3, 4], vec![1]], "{option}");
        connect(&wire, two, at(1, 2));
        let three = sharer(&wire, option);
        connect(&wire, three, at(1, 2));
        send();
        assert_eq!(sources(&wire, [one, two, three]), [vec![1, 3, 4], vec![], vec![2]]);
        wire.right.call(|sockets, cx| sockets.close(three, cx)).unwrap();
        send();
        assert_eq!(sources(&wire, [one, two]), [vec![1, 3, 4], vec![2]]);
        wire.right.call(|sockets, cx| sockets.close(one, cx)).unwrap();
        wire.right.call(|sockets, cx| sockets.disconnect(two, cx)).unwrap();
        send();
        assert_eq!(sources(&wire, [two]), [vec![1, 2, 3, 4]]);
    }
}

#[test]
fn connected_socket_is_refused_where_its_own_peer_has_nobody() {
    let wire = wire();
    let (one, two) = (sharer(&wire, SO_REUSEADDR), sharer(&wire, SO_REUSEADDR));
    connect(&wire, one, at(1, 9));
    connect(&wire, two, at(1, 8));
    wire.right.call(|sockets, cx| sockets.send(one, b"anybody?", cx)).unwrap();
    wire.settle();
    let errors = [one, two].map(|id| wire.right.call(|sockets, _| sockets.take_error(id)).unwrap());
    assert_eq!(errors, [Some(Errno::ECONNREFUSED), None]);
}

#[test]
fn datagram_of_another_than_the_peer_is_counted() {
    let wire = wire();
    let id = sharer(&wire, SO_REUSEADDR);
    connect(&wire, id, at(1, 1));
    let other = bound(&wire.left, at(1, 2), SO_REUSEADDR);
    wire.left.call(|sockets, cx| sockets.send_to(other, b"x", at(2, 5_000), cx)).unwrap();
    wire.settle();
    let drops = wire.right.call(|sockets, cx| sockets.entry(id, std::time::SystemTime::UNIX_EPOCH, cx).unwrap().drops);
    assert_eq!((drops, sources(&wire, [id])), (1, [vec![]]));
}
