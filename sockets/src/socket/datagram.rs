//! A UDP socket: the datagrams that wait, each in the packet buffer that it came in, and the flows
//! whose headers are prepared.

use core::net::{Ipv4Addr, SocketAddrV4};
use std::collections::VecDeque;
use std::io::IoSliceMut;

use wirepath::pipeline::{Cx, Datagram, UdpFlow, UdpOptions, UdpSendError, UdpSent};
use wirepath::proto::{FilterMode, InterfaceId};
use wirepath::time::{Duration, Instant, UnixTime};

use super::{BUFFER_CHARGE, Payload};
use crate::errno::Errno;
use crate::options::{MtuDiscover, Options};
use crate::ready::Ready;

/// The most destinations whose headers stay prepared. A sender to more destinations pays for the
/// preparation again, some 30 ns.
const FLOWS_MAX: usize = 64;

/// The headers of IPv4 and UDP.
const HEADERS_LEN: usize = 28;

/// How long a send waits for the next hop to answer ARP: three requests, a second apart.
const NEIGHBOR_TIMEOUT: Duration = Duration::from_secs(3);

/// The data that `recvmsg` reports about a datagram, besides its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramInfo {
    /// Its sender.
    pub source: SocketAddrV4,
    /// Its destination (`IP_PKTINFO`): the group, for multicast.
    pub destination: SocketAddrV4,
    /// The interface on which it arrived (`IP_PKTINFO`).
    pub interface: InterfaceId,
    /// Its full length, even if the caller's buffer was shorter (`MSG_TRUNC`).
    pub len: usize,
    /// The turn in which it arrived: [`Sockets::wall_at`](crate::Sockets::wall_at) converts it
    /// (`SO_TIMESTAMPNS`).
    pub arrived: Instant,
    /// When it arrived by the NIC's clock, where the NIC stamps frames (`SO_TIMESTAMPING`).
    pub timestamp: Option<UnixTime>,
    /// `IP_RECVTTL`.
    pub ttl: u8,
    /// `IP_RECVTOS`.
    pub tos: u8,
}

impl DatagramInfo {
    /// The value for a read after `SHUT_RD`, without a datagram.
    pub(crate) fn none(local: SocketAddrV4) -> Self {
        let (destination, source) = (local, super::UNBOUND);
        let (interface, arrived) = (InterfaceId::ANY, Instant::ZERO);
        Self { source, destination, interface, len: 0, arrived, timestamp: None, ttl: 0, tos: 0 }
    }
}

/// A group that a socket is a member of (the kernel's `ip_mc_socklist`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Membership {
    pub(crate) group: Ipv4Addr,
    pub(crate) interface: InterfaceId,
    /// The address of the interface that it was joined by; unspecified for none.
    pub(crate) address: Ipv4Addr,
    /// Whether `sources` are included or excluded.
    pub(crate) mode: FilterMode,
    pub(crate) sources: Vec<Ipv4Addr>,
    /// A source was named once: the mode is fixed.
    pub(crate) is_fixed: bool,
}

/// A group that other sockets of the port have joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shared {
    pub(crate) group: Ipv4Addr,
    pub(crate) mode: FilterMode,
    pub(crate) sources: Vec<Ipv4Addr>,
}

/// A datagram of several sends.
pub(crate) struct CorkedDatagram {
    pub(crate) remote: SocketAddrV4,
    pub(crate) bytes: Vec<u8>,
    /// Its cork is over, and it found no room: nothing more is appended.
    pub(crate) is_whole: bool,
}

struct Waiting {
    payload: Payload,
    info: DatagramInfo,
}

/// A datagram that was taken out of its socket, in memory of its own: for the socket that takes the
/// place of that one, which may be on another worker.
#[derive(Clone, Debug)]
pub struct UnreadDatagram {
    info: DatagramInfo,
    pub(crate) bytes: Vec<u8>,
    /// How long it had waited.
    age: Duration,
}

impl UnreadDatagram {
    /// The data about it by another worker's clock, so long after it was taken out. That clock may
    /// be younger than the datagram, which has arrived at the clock's beginning then.
    pub(crate) fn info_after(&self, ago: Duration, now: Instant) -> DatagramInfo {
        DatagramInfo { arrived: now - (self.age + ago), ..self.info }
    }
}

/// A UDP socket.
pub(crate) struct DatagramSocket {
    received: VecDeque<Waiting>,
    /// Bytes of the packet buffers that the waiting datagrams hold.
    charge: usize,
    /// The highest that was.
    pub(crate) charge_max: usize,
    /// Datagrams that found the receive buffer full (`SO_RXQ_OVFL`).
    pub(crate) dropped: u64,
    /// Datagrams with a TTL below `IP_MINTTL`.
    pub(crate) below_ttl_min: u64,
    /// Datagrams of others than the peer of `connect`.
    pub(crate) of_others: u64,
    /// The peer of `connect`.
    pub(crate) remote: Option<SocketAddrV4>,
    /// The address that it sends to the peer from.
    pub(crate) source: Option<SocketAddrV4>,
    pub(crate) memberships: Vec<Membership>,
    /// Groups of other sockets whose datagrams this one receives as well.
    pub(crate) shared: Vec<Shared>,
    /// It is bound to all addresses, and another program, or another queue of this one, has the
    /// interface's at its port.
    pub(crate) lacks_port: bool,
    /// It has no group and no peer either, and no receive has said so yet.
    pub(crate) is_deaf: bool,
    pub(crate) is_read_shut: bool,
    pub(crate) is_write_shut: bool,
    flows: Vec<UdpFlow>,
    /// The place of the prepared flows while a send with control messages has others.
    aside: Vec<UdpFlow>,
    /// The flow that the next one replaces.
    oldest: usize,
    /// A datagram that has not left yet (`MSG_MORE`, `UDP_CORK`).
    pub(crate) pending: Option<CorkedDatagram>,
    /// The time since which sends wait for a next hop that has not answered.
    asked_since: Option<Instant>,
}

impl DatagramSocket {
    /// Datagrams that the program has not read.
    pub(crate) fn waiting(&self) -> usize {
        self.received.len()
    }

    pub(crate) fn new() -> Self {
        Self {
            received: VecDeque::new(),
            charge: 0,
            charge_max: 0,
            dropped: 0,
            below_ttl_min: 0,
            of_others: 0,
            remote: None,
            source: None,
            memberships: Vec::new(),
            shared: Vec::new(),
            lacks_port: false,
            is_deaf: false,
            is_read_shut: false,
            is_write_shut: false,
            flows: Vec::new(),
            aside: Vec::new(),
            oldest: 0,
            pending: None,
            asked_since: None,
        }
    }

    /// The error of a receive for which nothing waits: `EADDRINUSE` once where nothing can come.
    #[cold]
    pub(crate) fn nothing(&mut self) -> Errno {
        if core::mem::take(&mut self.is_deaf) { Errno::EADDRINUSE } else { Errno::EAGAIN }
    }

    /// Keeps a datagram, or drops it if the receive buffer is full or `connect` named another peer.
    /// Returns whether it was kept.
    #[inline]
    pub(crate) fn push(
        &mut self,
        datagram: &Datagram<'_>,
        now: Instant,
        receive_buffer: usize,
        is_copied: bool,
    ) -> bool {
        if self.remote.is_some_and(|remote| remote != datagram.source) {
            self.of_others += 1;
            return false;
        }
        // As in the kernel, a datagram of any length is kept while any room is free.
        if self.charge >= receive_buffer.max(BUFFER_CHARGE) {
            self.dropped += 1;
            return false;
        }
        let len = datagram.payload.len();
        self.charge(len);
        let info = DatagramInfo {
            source: datagram.source,
            destination: datagram.destination,
            interface: datagram.interface,
            len,
            arrived: now,
            timestamp: datagram.timestamp,
            ttl: datagram.ttl,
            tos: datagram.tos,
        };
        self.received.push_back(Waiting { payload: Payload::of(datagram.hold(), is_copied), info });
        true
    }

    /// Keeps a copy of a datagram of this host. Returns whether there was room.
    pub(crate) fn push_copy(&mut self, info: &DatagramInfo, bytes: &[u8], receive_buffer: usize) -> bool {
        if self.remote.is_some_and(|remote| remote != info.source) {
            self.of_others += 1;
            return false;
        }
        if self.charge >= receive_buffer.max(BUFFER_CHARGE) {
            self.dropped += 1;
            return false;
        }
        self.charge(info.len);
        self.received.push_back(Waiting { payload: Payload::Copied(bytes.into()), info: *info });
        true
    }

    /// Takes the next datagram; bytes that do not fit in `into` are lost, as with a kernel's
    /// socket.
    #[inline]
    pub(crate) fn read(&mut self, into: &mut [u8]) -> Option<(usize, DatagramInfo)> {
        let Waiting { payload, info } = self.received.front()?;
        let read = (payload.copy(0, into), *info);
        self.forget_first(info.len);
        Some(read)
    }

    /// Takes out all datagrams that wait, the oldest first.
    pub(crate) fn take_unread(&mut self, now: Instant) -> Vec<UnreadDatagram> {
        self.charge = 0;
        let take = |Waiting { payload, info }: Waiting| {
            let mut bytes = vec![0; info.len];
            payload.copy(0, &mut bytes);
            UnreadDatagram { info, bytes, age: now.since(info.arrived) }
        };
        self.received.drain(..).map(take).collect()
    }

    #[inline]
    fn charge(&mut self, len: usize) {
        self.charge += charge(len);
        self.charge_max = self.charge_max.max(self.charge);
    }

    /// The first datagram, of `len` bytes, was read.
    #[inline]
    fn forget_first(&mut self, len: usize) {
        self.charge -= charge(len);
        self.received.pop_front();
    }

    /// Reads the next datagram into several parts.
    pub(crate) fn read_parts(&mut self, into: &mut [IoSliceMut<'_>]) -> Option<(usize, DatagramInfo)> {
        let Waiting { payload, info } = self.received.front()?;
        let read = (payload.copy_parts(into), *info);
        self.forget_first(info.len);
        Some(read)
    }

    /// Copies the next datagram and leaves it (`MSG_PEEK`).
    pub(crate) fn peek(&self, into: &mut [u8]) -> Option<(usize, DatagramInfo)> {
        let Waiting { payload, info } = self.received.front()?;
        Some((payload.copy(0, into), *info))
    }

    /// Copies the next datagram into several parts and leaves it.
    pub(crate) fn peek_parts(&self, into: &mut [IoSliceMut<'_>]) -> Option<(usize, DatagramInfo)> {
        let Waiting { payload, info } = self.received.front()?;
        Some((payload.copy_parts(into), *info))
    }

    /// Bytes of the next datagram; 0 if none waits.
    #[inline]
    pub(crate) fn next_len(&self) -> usize {
        self.received.front().map_or(0, |waiting| waiting.info.len)
    }

    /// Bytes of the datagrams that wait.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.received.iter().map(|waiting| waiting.info.len).sum()
    }

    /// The longest packet that may go to `remote`, as known at the last send.
    pub(crate) fn path_mtu(&self, remote: SocketAddrV4) -> Option<usize> {
        let flow = self.flows.iter().find(|flow| flow.remote() == remote);
        flow.map(|flow| flow.payload_len_max() + HEADERS_LEN)
    }

    /// Sends a datagram from `local`, by the prepared flow to `remote` if there is one.
    pub(crate) fn send(
        &mut self,
        local: SocketAddrV4,
        remote: SocketAddrV4,
        payload: &[u8],
        options: &Options,
        cx: &mut Cx<'_>,
    ) -> Result<UdpSent, Errno> {
        let flow = match self.flows.iter().position(|flow| flow.remote() == remote) {
            Some(idx) => &mut self.flows[idx],
            None => self.prepare(local, remote, options, cx)?,
        };
        if options.mtu_discover == MtuDiscover::Interface {
            flow.refresh(cx);
            if payload.len() > flow.payload_len_max() {
                return Err(Errno::EMSGSIZE);
            }
        }
        match flow.send(payload, cx) {
            // The neighbor is being resolved, and the datagram has more fragments than may wait.
            Err(UdpSendError::NeighborMissing(_)) => Err(self.await_neighbor(cx.now)),
            sent => {
                self.asked_since = None;
                Ok(sent?)
            }
        }
    }

    /// The error of a send while the next hop has not replied yet.
    fn await_neighbor(&mut self, now: Instant) -> Errno {
        if now.since(*self.asked_since.get_or_insert(now)) < NEIGHBOR_TIMEOUT {
            return Errno::EAGAIN;
        }
        self.asked_since = None;
        Errno::EHOSTUNREACH
    }

    /// Prepares the headers to `remote`, and replaces the oldest ones if all places are taken.
    pub(crate) fn prepare(
        &mut self,
        local: SocketAddrV4,
        remote: SocketAddrV4,
        options: &Options,
        cx: &mut Cx<'_>,
    ) -> Result<&mut UdpFlow, Errno> {
        check_broadcast(remote, options, cx)?;
        let ttl = if remote.ip().is_multicast() { options.multicast_ttl } else { options.ttl };
        let is_named = remote.ip().is_multicast() && local.ip().is_unspecified();
        let local = if is_named { SocketAddrV4::new(options.multicast_source, local.port()) } else { local };
        let options = UdpOptions {
            ttl: Some(ttl),
            tos: options.tos,
            dont_fragment: options.mtu_discover.forbids_fragments(),
            ignore_path_mtu: options.mtu_discover.ignores_path_mtu(),
            ..UdpOptions::default()
        };
        let flow = UdpFlow::connect(local, remote, &options, cx)?;
        if self.flows.len() < FLOWS_MAX {
            self.flows.push(flow);
            return Ok(self.flows.last_mut().expect("one was pushed"));
        }
        let idx = self.oldest;
        self.oldest = (idx + 1) % FLOWS_MAX;
        self.flows[idx] = flow;
        Ok(&mut self.flows[idx])
    }

    /// The source address of datagrams to `remote`; `None` before the first was sent there.
    pub(crate) fn source_to(&self, remote: SocketAddrV4) -> Option<SocketAddrV4> {
        self.flows.iter().find(|flow| flow.remote() == remote).map(UdpFlow::local)
    }

    /// Puts the prepared headers aside, for a send whose headers differ.
    pub(crate) fn save_flows(&mut self) {
        core::mem::swap(&mut self.flows, &mut self.aside);
    }

    /// Forgets the headers of that send, and takes the prepared ones back.
    pub(crate) fn restore_flows(&mut self) {
        self.flows.clear();
        core::mem::swap(&mut self.flows, &mut self.aside);
    }

    /// Forgets all prepared headers, because the local end or an option has changed.
    pub(crate) fn forget_flows(&mut self) {
        self.flows.clear();
        self.oldest = 0;
    }

    /// Linux `datagram_poll`.
    pub(crate) fn ready(&self) -> Ready {
        Ready::when(!self.received.is_empty() || self.is_read_shut || self.is_deaf, Ready::IN)
            | Ready::OUT
            | Ready::when(self.is_read_shut, Ready::RDHUP)
            | Ready::when(self.is_read_shut && self.is_write_shut, Ready::HUP)
    }
}

/// A broadcast, also one to all hosts of a network, needs `SO_BROADCAST`.
pub(crate) fn check_broadcast(remote: SocketAddrV4, options: &Options, cx: &Cx<'_>) -> Result<(), Errno> {
    let is_refused = !options.broadcast && cx.host.is_broadcast(*remote.ip());
    if is_refused { Err(Errno::EACCES) } else { Ok(()) }
}

/// Bytes of packet buffers that a datagram holds: a long one came in fragments.
#[inline]
fn charge(len: usize) -> usize {
    if len <= BUFFER_CHARGE {
        return BUFFER_CHARGE;
    }
    len.div_ceil(BUFFER_CHARGE) * BUFFER_CHARGE
}
