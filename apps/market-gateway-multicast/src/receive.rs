//! [`Receiver`]: a listener's kernel sockets.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::listener::{Listener, ListenerConfig, ListenerHandler};
use crate::publisher::PACKET_LEN_MAX;

/// Bytes that wait in the kernel while the listener has other work: some 50 ms of a million records
/// a second. The kernel allows less where `net.core.rmem_max` is lower.
const SOCKET_LEN: usize = 8 << 20;
/// Packets that a turn takes of each socket.
const PACKETS_PER_TURN: usize = 256;

/// Where a receiver listens.
#[derive(Clone, Copy, Debug)]
pub struct ReceiverConfig {
    /// The group and port of the feed.
    pub group: SocketAddrV4,
    /// The address of the interface that joins it; 0.0.0.0: the kernel's routes decide.
    pub interface: Ipv4Addr,
    /// The re-request server. Packets of the group from any other address are not received where
    /// it is known, because the publisher sends from there.
    pub server: Option<SocketAddrV4>,
    /// How to listen. Where no server is known nobody is asked.
    pub listener: ListenerConfig,
}

/// A listener with its sockets.
#[derive(Debug)]
pub struct Receiver {
    listener: Listener,
    group: UdpSocket,
    /// Connected to the server: the kernel drops what others send to it.
    server: Option<UdpSocket>,
}

impl Receiver {
    /// Joins the group.
    pub fn open(config: &ReceiverConfig) -> io::Result<Self> {
        let group = member(config)?;
        let server = config.server.map(|server| {
            let socket = UdpSocket::bind((config.interface, 0))?;
            socket.connect(server)?;
            socket.set_nonblocking(true)?;
            Ok::<_, io::Error>(socket)
        });
        let retry = config.listener.retry.filter(|_| config.server.is_some());
        let listener = Listener::new(&ListenerConfig { retry, ..config.listener });
        Ok(Self { listener, group, server: server.transpose()? })
    }

    /// The listener, and what it has counted.
    pub fn listener(&self) -> &Listener {
        &self.listener
    }

    /// Takes what has come, and asks for what is missing: bounded work, that waits for nobody.
    /// Returns whether anything came.
    pub fn turn(&mut self, now_ns: u64, handler: &mut impl ListenerHandler) -> bool {
        self.turn_without(now_ns, handler, |_| false)
    }

    /// As [`Receiver::turn`], over a network that loses those packets of the group for which
    /// `is_lost` says so: for tests.
    #[doc(hidden)]
    pub fn turn_without(
        &mut self,
        now_ns: u64,
        handler: &mut impl ListenerHandler,
        mut is_lost: impl FnMut(&[u8]) -> bool,
    ) -> bool {
        // One byte more than a packet shows that one is too long.
        let mut bytes = [0; PACKET_LEN_MAX + 1];
        let mut count = 0;
        while count < PACKETS_PER_TURN
            && let Ok(len) = self.group.recv(&mut bytes)
        {
            count += 1;
            if !is_lost(&bytes[..len]) {
                self.listener.on_packet(&bytes[..len], now_ns, handler);
            }
        }
        let Some(server) = &self.server else {
            self.listener.turn(now_ns, handler, |_| ());
            return count > 0;
        };
        let mut answers = 0;
        // A server that is not there makes the kernel report its ICMP error here, once.
        while answers < PACKETS_PER_TURN
            && let Ok(len) = server.recv(&mut bytes)
        {
            answers += 1;
            self.listener.on_answer(&bytes[..len], now_ns, handler);
        }
        // A request that is not sent is made again after its timeout.
        self.listener.turn(now_ns, handler, |request| _ = server.send(&request));
        count + answers > 0
    }
}

/// A socket that is a member of the group. Other processes of this host may be too, which the
/// standard library does not allow (`SO_REUSEADDR`).
fn member(config: &ReceiverConfig) -> io::Result<UdpSocket> {
    let flags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_recv_buffer_size(&socket, SOCKET_LEN)?;
    rustix::net::bind(&socket, &config.group)?;
    let (group, interface) = (config.group.ip(), &config.interface);
    match config.server {
        Some(server) => sockopt::set_ip_add_source_membership(&socket, group, interface, server.ip())?,
        None => sockopt::set_ip_add_membership(&socket, group, interface)?,
    }
    Ok(socket.into())
}
