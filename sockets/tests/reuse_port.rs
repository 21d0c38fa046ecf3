//! Several listeners of one port (`SO_REUSEPORT`), compared with the kernel's.
#![allow(clippy::unwrap_used)] // a panic here is the report

mod common;

use std::collections::HashSet;
use std::io::Write;

use common::{at, errno, wire};
use rustix::net::{self as kernel, AddressFamily, SocketType, sockopt};
use sockets::net::{TcpListener, TcpStream};
use sockets::{Errno, Kind, Stack};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;

/// A listener of ours at port 80 of any address.
fn listen(stack: &Stack, reuse_port: bool) -> Result<sockets::SocketId, Errno> {
    let id = stack.call(|sockets, _| sockets.socket(Kind::Stream))?;
    let listening = stack.call(|sockets, cx| {
        let options = sockets::Options { reuse_port, ..sockets.options(id)? };
        sockets.set_options(id, &options, cx)?;
        sockets.bind(id, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 80), cx)?;
        sockets.listen(id, 32, cx)
    });
    listening.map(|()| id)
}

/// One of the kernel's at a port that was free.
fn kernel_listen(port: u16, reuse_port: bool) -> Result<OwnedFd, Errno> {
    let socket = kernel::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    sockopt::set_socket_reuseport(&socket, reuse_port).unwrap();
    let local = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
    let listening = kernel::bind(&socket, &local).and_then(|()| kernel::listen(&socket, 8));
    listening.map(|()| socket).map_err(|error| Errno(error.raw_os_error()))
}

#[test]
fn port_is_shared_where_the_kernel_lets_it_be() {
    for first in [false, true] {
        for second in [false, true] {
            let wire = wire();
            let _ours = listen(&wire.right, first).unwrap();
            let theirs = kernel_listen(0, first).unwrap();
            let name = SocketAddrV4::try_from(kernel::getsockname(&theirs).unwrap()).unwrap();
            let shared = [listen(&wire.right, second).err(), kernel_listen(name.port(), second).err()];
            assert_eq!(shared[0], shared[1], "{first} {second}");
            assert_eq!(shared[0].is_none(), first && second);
        }
    }
}

#[test]
fn each_connection_is_one_sharers_and_each_sharer_has_some() {
    let wire = wire();
    let sharers = [(); 3].map(|()| listen(&wire.right, true).unwrap());
    let callers: Vec<TcpStream> = (0..24).map(|_| TcpStream::connect(&wire.left, at(2, 80)).unwrap()).collect();
    wire.settle();
    let accepted = sharers.map(|id| {
        let accept = |_| wire.right.call(|sockets, _| sockets.accept(id)).ok();
        (0..24).map_while(accept).map(|(_, peer)| peer).collect::<Vec<_>>()
    });
    assert!(accepted.iter().all(|peers| !peers.is_empty()), "{accepted:?}");
    let peers: HashSet<_> = accepted.iter().flatten().copied().collect();
    assert_eq!(peers, callers.iter().map(|caller| caller.local_addr().unwrap()).collect());
}

#[test]
fn connections_of_who_stops_listening_are_the_others_and_so_are_the_next_ones() {
    let wire = wire();
    let sharers = [(); 2].map(|()| listen(&wire.right, true).unwrap());
    let mut callers: Vec<TcpStream> = (0..8).map(|_| TcpStream::connect(&wire.left, at(2, 80)).unwrap()).collect();
    callers.iter_mut().for_each(|caller| caller.write_all(b"early").unwrap());
    wire.settle();
    wire.right.call(|sockets, cx| sockets.close(sharers[0], cx)).unwrap();
    wire.settle();
    // As on Linux with `net.ipv4.tcp_migrate_req`.
    for _ in 0..8 {
        let (id, _) = wire.right.call(|sockets, _| sockets.accept(sharers[1])).unwrap();
        let mut bytes = [0; 8];
        assert_eq!(wire.right.call(|sockets, cx| sockets.recv(id, &mut bytes, cx)), Ok(5));
    }
    for _ in 0..8 {
        let _caller = TcpStream::connect(&wire.left, at(2, 80)).unwrap();
        wire.settle();
        wire.right.call(|sockets, _| sockets.accept(sharers[1])).unwrap();
    }
    wire.right.call(|sockets, cx| sockets.close(sharers[1], cx)).unwrap();
    assert_eq!(errno(TcpStream::connect(&wire.left, at(2, 80))), Some(Errno::ECONNREFUSED));
    TcpListener::bind(&wire.right, at(2, 80)).unwrap();
}
