//! A line of the feed: its group, who may send to it, and its kernel socket.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};

use crate::latency::Latency;
use crate::stamps;

/// What to join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedLine {
    /// The multicast group and its port.
    pub group: SocketAddrV4,
    /// The address of the interface that joins it. A port of wirepath joins by its own.
    pub interface: Ipv4Addr,
    /// The only senders; empty for any.
    pub sources: Vec<Ipv4Addr>,
}

/// A socket whose packets are the feed's where one of its sources has sent them.
#[derive(Debug)]
pub struct FeedSocket {
    socket: UdpSocket,
    sources: Vec<Ipv4Addr>,
    refused: u64,
}

/// What waited on a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// A packet of so many bytes.
    Packet(usize),
    /// One of another sender.
    Refused,
}

impl From<UdpSocket> for FeedSocket {
    /// One that takes packets of any sender.
    fn from(socket: UdpSocket) -> Self {
        Self::new(socket, Vec::new())
    }
}

impl FeedSocket {
    /// A socket that takes packets of `sources` alone; of any sender where they are none.
    pub const fn new(socket: UdpSocket, sources: Vec<Ipv4Addr>) -> Self {
        Self { socket, sources, refused: 0 }
    }

    /// Packets of other senders that came to it. Those that come by the interface of the line do
    /// not: the kernel drops them. It does not drop what another interface brings.
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// Has the kernel stamp each packet when it comes.
    pub(crate) fn stamp_received(&self) -> io::Result<()> {
        stamps::stamp_received(&self.socket)
    }

    /// The next packet; `None` where none waits. It is marked where it is measured.
    #[inline]
    pub(crate) fn receive(&mut self, bytes: &mut [u8], latency: Option<&mut Latency>) -> Option<Received> {
        let (len, sender, arrived_ns) = match &latency {
            Some(_) => stamps::receive(&self.socket, bytes).ok()?,
            None => {
                let (len, sender) = self.socket.recv_from(bytes).ok()?;
                (len, ipv4(sender), None)
            }
        };
        if !self.takes(sender) {
            self.refused += 1;
            return Some(Received::Refused);
        }
        latency.into_iter().for_each(|latency| latency.packet_read(arrived_ns));
        Some(Received::Packet(len))
    }

    fn takes(&self, sender: Option<Ipv4Addr>) -> bool {
        self.sources.is_empty() || sender.is_some_and(|sender| self.sources.contains(&sender))
    }
}

fn ipv4(sender: SocketAddr) -> Option<Ipv4Addr> {
    match sender.ip() {
        IpAddr::V4(sender) => Some(sender),
        IpAddr::V6(_) => None,
    }
}
