//! The two rtnetlink sockets: one receives events, the other requests dumps and neighbors. Each
//! message becomes a [`Change`].
//!
//! These calls may block, so workers never make them. [`NetlinkEvents::Gap`] stands for events that
//! the kernel could not deliver (its event buffer overran) and for changes without an event.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkBuffer, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::address::AddressMessage;
use netlink_packet_route::link::LinkMessage;
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage};
use netlink_packet_route::route::RouteMessage;
use netlink_packet_route::rule::RuleMessage;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

use super::decode;
use super::tables::{Change, LinkIdx, Rule, RuleAction, Tables};
use crate::sys::socket::wait_readable;

/// The groups of linux/rtnetlink.h whose events change the content of a [`Tables`].
const GROUPS: [u32; 5] = [
    libc::RTNLGRP_LINK,
    libc::RTNLGRP_NEIGH,
    libc::RTNLGRP_IPV4_IFADDR,
    libc::RTNLGRP_IPV4_ROUTE,
    libc::RTNLGRP_IPV4_RULE,
];
/// Nexthop objects, since Linux 5.3: a route that uses one changes with it, and no event reports
/// the route's change.
const GROUP_NEXTHOP: u32 = 32;
const RTM_NEWNEXTHOP: u16 = 104;
const RTM_DELNEXTHOP: u16 = 105;

/// The kernel packs a dump into messages of at most 32 KiB (netlink_dump in
/// net/netlink/af_netlink.c).
const MESSAGE_LEN_MAX: usize = 64 * 1024;

/// Buffer for some thousands of events, so that a burst of them needs no dump. The kernel limits it
/// to rmem_max.
const EVENTS_LEN: i32 = 4 * 1024 * 1024;

/// More datagrams than the event buffer can hold: after this number of reads only new ones are
/// read.
const DATAGRAMS_WAITING_MAX: usize = 100_000;

/// An answer arrives at once; a kernel that has not answered after this time will not answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of repetitions of a dump during which something changed.
const DUMP_ATTEMPTS: usize = 8;

/// The result of reading the event socket.
pub(super) enum NetlinkEvents {
    Changes(Vec<Change>),
    /// Events were lost, or there were changes without an event.
    Gap,
    Nothing,
}

pub(super) struct Events {
    socket: Socket,
    buffer: Vec<u8>,
    undecoded: u64,
}

impl Events {
    pub(super) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.set_rx_buf_sz(EVENTS_LEN)?;
        socket.bind_auto()?;
        for group in GROUPS {
            socket.add_membership(group)?;
        }
        // An older kernel has neither this group nor such objects.
        let _ = socket.add_membership(GROUP_NEXTHOP);
        Ok(Self { socket, buffer: Vec::with_capacity(MESSAGE_LEN_MAX), undecoded: 0 })
    }

    /// Waits for events, at most `patience`, or until `wakeup` is readable.
    pub(super) fn wait(&mut self, patience: Duration, wakeup: Option<RawFd>) -> io::Result<NetlinkEvents> {
        match wait_readable([Some(self.socket.as_raw_fd()), wakeup], Some(patience)) {
            Ok(true) => self.next(),
            Ok(false) => Ok(NetlinkEvents::Nothing),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(NetlinkEvents::Nothing),
            Err(error) => Err(error),
        }
    }

    /// The next events, if there are any now.
    pub(super) fn next(&mut self) -> io::Result<NetlinkEvents> {
        self.receive()
    }

    /// Discards queued events: a later dump includes them. After an overrun the kernel drops all
    /// further events until the socket is empty (netlink_rcv_wake in net/netlink/af_netlink.c).
    pub(super) fn discard(&mut self) -> io::Result<()> {
        for _ in 0..DATAGRAMS_WAITING_MAX {
            if matches!(self.receive()?, NetlinkEvents::Nothing) {
                return Ok(());
            }
        }
        Err(io::Error::other("events come faster than they can be read"))
    }

    /// Messages since the last call that could not be decoded.
    pub(super) fn take_undecoded(&mut self) -> u64 {
        std::mem::take(&mut self.undecoded)
    }

    fn receive(&mut self) -> io::Result<NetlinkEvents> {
        self.buffer.clear();
        match self.socket.recv_from(&mut self.buffer, libc::MSG_DONTWAIT | libc::MSG_TRUNC) {
            // A truncated message counts as lost.
            Ok((len, _)) if len > self.buffer.len() => Ok(NetlinkEvents::Gap),
            // Only the kernel has port 0; another process may send here as well.
            Ok((_, sender)) if sender.port_number() != 0 => Ok(NetlinkEvents::Changes(Vec::new())),
            Ok(_) => Ok(read(&self.buffer, &mut self.undecoded)),
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => Ok(NetlinkEvents::Gap),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => Ok(NetlinkEvents::Nothing),
                _ => Err(error),
            },
        }
    }
}

/// Decodes a datagram of events.
pub(super) fn read(datagram: &[u8], undecoded: &mut u64) -> NetlinkEvents {
    let mut changes = Vec::new();
    for message in messages(datagram) {
        if matches!(message.message_type(), RTM_NEWNEXTHOP | RTM_DELNEXTHOP) {
            return NetlinkEvents::Gap;
        }
        match NetlinkMessage::<RouteNetlinkMessage>::deserialize(message.into_inner()) {
            Ok(NetlinkMessage { payload: NetlinkPayload::InnerMessage(inner), header, .. }) => {
                changes.extend(decode::change(&inner, header.flags));
            }
            Ok(NetlinkMessage { payload: NetlinkPayload::Overrun(_), .. }) => return NetlinkEvents::Gap,
            Ok(_) => {}
            Err(_) => *undecoded += 1,
        }
    }
    NetlinkEvents::Changes(changes)
}

pub(super) struct Requests {
    socket: Socket,
    sequence_number: u32,
    undecoded: u64,
}

impl Requests {
    pub(super) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        timeout_of(&socket)?.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        Ok(Self { socket, sequence_number: 0, undecoded: 0 })
    }

    /// Dumps the kernel's whole state into tables.
    pub(super) fn tables(&mut self) -> io::Result<Tables> {
        let mut tables = Tables::default();
        for request in requests() {
            let changes = match self.dump(&request) {
                // A kernel without policy routing has the three classic tables, and no list of
                // rules.
                Err(error) if is_rules(&request) && is_unsupported(&error) => default_rules(),
                dumped => dumped?,
            };
            for change in changes {
                tables.apply(change);
            }
        }
        Ok(tables)
    }

    /// Makes the kernel resolve an unknown neighbor, or check one that has long sent nothing, as if
    /// the kernel had sent a packet there (NTF_USE, neigh_event_send in net/core/neighbor.c). The
    /// answer is an event. Needs CAP_NET_ADMIN.
    pub(super) fn use_neighbor(&mut self, link: LinkIdx, address: Ipv4Addr) -> io::Result<()> {
        let mut message = NeighbourMessage::default();
        message.header.family = AddressFamily::Inet;
        message.header.ifindex = link;
        message.header.flags = NeighbourFlags::Use;
        message.attributes.push(NeighbourAttribute::Destination(NeighbourAddress::Inet(address)));
        self.send(&RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE | NLM_F_ACK)?;
        self.acknowledged()
    }

    pub(super) fn take_undecoded(&mut self) -> u64 {
        std::mem::take(&mut self.undecoded)
    }

    fn dump(&mut self, request: &RouteNetlinkMessage) -> io::Result<Vec<Change>> {
        for _ in 0..DUMP_ATTEMPTS {
            if let Some(changes) = self.attempt(request)? {
                return Ok(changes);
            }
        }
        Err(io::Error::other("the kernel's tables change faster than they can be read"))
    }

    /// One dump; None if the tables changed meanwhile, so that the dump is not consistent.
    fn attempt(&mut self, request: &RouteNetlinkMessage) -> io::Result<Option<Vec<Change>>> {
        self.send(request, NLM_F_DUMP)?;
        let (mut changes, mut whole) = (Vec::new(), true);
        let mut buffer = Vec::with_capacity(MESSAGE_LEN_MAX);
        loop {
            self.receive(&mut buffer)?;
            for message in messages(&buffer) {
                // The end of an earlier dump, which was abandoned.
                if message.sequence_number() != self.sequence_number {
                    continue;
                }
                whole &= message.flags() & NLM_F_DUMP_INTR == 0;
                match NetlinkMessage::<RouteNetlinkMessage>::deserialize(message.into_inner()) {
                    Ok(NetlinkMessage { payload: NetlinkPayload::Done(done), .. }) if done.code < 0 => {
                        return Err(io::Error::from_raw_os_error(-done.code));
                    }
                    Ok(NetlinkMessage { payload: NetlinkPayload::Done(_), .. }) => return Ok(whole.then_some(changes)),
                    Ok(NetlinkMessage { payload: NetlinkPayload::Error(error), .. }) => return Err(error.to_io()),
                    Ok(NetlinkMessage { payload: NetlinkPayload::InnerMessage(inner), header, .. }) => {
                        changes.extend(decode::change(&inner, header.flags));
                    }
                    Ok(_) => {}
                    Err(_) => self.undecoded += 1,
                }
            }
        }
    }

    /// Waits for the kernel's acknowledgment of a request.
    fn acknowledged(&mut self) -> io::Result<()> {
        let mut buffer = Vec::with_capacity(MESSAGE_LEN_MAX);
        loop {
            self.receive(&mut buffer)?;
            for message in messages(&buffer).filter(|message| message.sequence_number() == self.sequence_number) {
                match NetlinkMessage::<RouteNetlinkMessage>::deserialize(message.into_inner()) {
                    Ok(NetlinkMessage { payload: NetlinkPayload::Error(error), .. }) => {
                        return if error.code.is_some() { Err(error.to_io()) } else { Ok(()) };
                    }
                    Ok(_) => {}
                    Err(_) => self.undecoded += 1,
                }
            }
        }
    }

    /// The next datagram from the kernel.
    fn receive(&self, buffer: &mut Vec<u8>) -> io::Result<()> {
        loop {
            buffer.clear();
            let (len, sender) = self.socket.recv_from(buffer, libc::MSG_TRUNC)?;
            if len > buffer.len() {
                return Err(io::Error::other(format!("a message of {len} bytes, more than the kernel's limit")));
            }
            if sender.port_number() == 0 {
                return Ok(());
            }
        }
    }

    fn send(&mut self, request: &RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.sequence_number += 1;
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence_number;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(request.clone()));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send_to(&bytes, &SocketAddr::new(0, 0), 0).map(drop)
    }
}

/// Links first: the later dumps refer to them.
fn requests() -> [RouteNetlinkMessage; 5] {
    let mut address = AddressMessage::default();
    address.header.family = AddressFamily::Inet;
    let mut route = RouteMessage::default();
    route.header.address_family = AddressFamily::Inet;
    let mut rule = RuleMessage::default();
    rule.header.family = AddressFamily::Inet;
    let mut neighbor = NeighbourMessage::default();
    neighbor.header.family = AddressFamily::Inet;
    [
        RouteNetlinkMessage::GetLink(LinkMessage::default()),
        RouteNetlinkMessage::GetAddress(address),
        RouteNetlinkMessage::GetRoute(route),
        RouteNetlinkMessage::GetRule(rule),
        RouteNetlinkMessage::GetNeighbour(neighbor),
    ]
}

fn is_rules(request: &RouteNetlinkMessage) -> bool {
    matches!(request, RouteNetlinkMessage::GetRule(_))
}

fn is_unsupported(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EAFNOSUPPORT))
}

/// The output of `ip rule` on a fresh host: local, main, default.
pub(super) fn default_rules() -> Vec<Change> {
    let rule = |(priority, table)| {
        let action = RuleAction::Table(table);
        let (from, to, bound_to, suppressed_len) = (None, None, None, None);
        Change::Rule(Rule { priority, action, from, to, bound_to, special: false, inverted: false, suppressed_len })
    };
    [(0, 255), (32_766, 254), (32_767, 253)].map(rule).into()
}

/// The messages of one datagram. An invalid length ends the iteration.
fn messages(datagram: &[u8]) -> impl Iterator<Item = NetlinkBuffer<&[u8]>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let len = NetlinkBuffer::new_checked(rest).ok()?.length() as usize;
        let message = rest.get(..len)?;
        // Each begins at a multiple of four bytes (NLMSG_ALIGN).
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        NetlinkBuffer::new_checked(message).ok()
    })
}

/// The same socket as one of the standard library, only for its safe call of SO_RCVTIMEO.
fn timeout_of(socket: &Socket) -> io::Result<UdpSocket> {
    let duplicate: OwnedFd = socket.as_fd().try_clone_to_owned()?;
    Ok(UdpSocket::from(duplicate))
}
