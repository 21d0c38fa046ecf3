//! The calls of datagram sockets alone: bind, connect, send, receive, and the groups.

use core::net::{Ipv4Addr, SocketAddrV4};
use std::io::IoSlice;

use wirepath::pipeline::Cx;
use wirepath::proto::{ConsumerId, FilterMode, Flow, Group, InterfaceId, Sharing};
use wirepath::worker::live::FlowSpec;

use super::message::SendFlags;
use super::{SocketId, Sockets, check_own};
use crate::errno::Errno;
use crate::options::Options;
use crate::ready::Ready;
use crate::socket::datagram::{DatagramInfo, DatagramSocket, Membership, check_broadcast};
use crate::socket::{Socket, State};
use crate::steering::flows_to;

impl Sockets {
    /// `sendto` of a datagram socket; an unbound one gets a free port.
    ///
    /// # Errors
    /// As [`send`](Self::send); `EMSGSIZE`, `EACCES`, and the reason why there is no path to
    /// `remote`.
    pub fn send_to(
        &mut self,
        id: SocketId,
        bytes: &[u8],
        remote: SocketAddrV4,
        cx: &mut Cx<'_>,
    ) -> Result<usize, Errno> {
        self.bind_if_unbound(id, cx)?;
        match self.find(id)? {
            Socket { state: State::Datagram(datagrams), options, .. }
                if options.cork || datagrams.pending.is_some() =>
            {
                self.send_parts(id, &[IoSlice::new(bytes)], Some(remote), SendFlags::default(), cx)
            }
            _ => self.send_whole(id, bytes, remote, cx),
        }
    }

    /// Every send binds an unbound datagram socket first, even a send that then fails (Linux
    /// `inet_autobind`).
    pub(super) fn bind_if_unbound(&mut self, id: SocketId, cx: &mut Cx<'_>) -> Result<(), Errno> {
        match self.find(id)? {
            Socket { state: State::Datagram(_), local, .. } if local.port() == 0 => {
                let local = *local;
                self.bind_datagrams(id, local, cx)
            }
            _ => Ok(()),
        }
    }

    /// Sends a whole datagram.
    pub(super) fn send_whole(
        &mut self,
        id: SocketId,
        bytes: &[u8],
        remote: SocketAddrV4,
        cx: &mut Cx<'_>,
    ) -> Result<usize, Errno> {
        // The destination is checked before the socket, as on Linux.
        let socket = self.find(id)?;
        if !matches!(socket.state, State::Datagram(_)) {
            return Err(Errno::EISCONN);
        }
        if remote.port() == 0 {
            return Err(Errno::EINVAL);
        }
        if socket.refuses_datagrams() {
            // Linux finds the route first, and leaves the socket's error where that is a broadcast.
            check_broadcast(remote, &socket.options, cx)?;
            socket.refuse_datagrams()?;
        }
        self.transmit(id, bytes, remote, cx)
    }

    /// A send whose bytes cannot be read: the error that is reported before that, a pending one,
    /// once, and `EPIPE` after `SHUT_WR`. Without one there is room again, as of the buffer that
    /// Linux has made for the bytes (`sock_wfree`).
    ///
    /// # Errors
    /// That error; `EBADF`.
    pub fn refuse_datagrams(&mut self, id: SocketId) -> Result<(), Errno> {
        self.find(id)?.refuse_datagrams()?;
        self.wake_for(id, Ready::OUT);
        Ok(())
    }

    /// Sends a datagram that has passed all checks.
    pub(super) fn transmit(
        &mut self,
        id: SocketId,
        bytes: &[u8],
        remote: SocketAddrV4,
        cx: &mut Cx<'_>,
    ) -> Result<usize, Errno> {
        let sent = self.try_transmit(id, bytes, remote, cx);
        if sent == Err(Errno::EAGAIN) {
            self.await_room(id);
        }
        sent
    }

    fn try_transmit(
        &mut self,
        id: SocketId,
        bytes: &[u8],
        remote: SocketAddrV4,
        cx: &mut Cx<'_>,
    ) -> Result<usize, Errno> {
        if let Some(error) = self.lost {
            return Err(error);
        }
        if remote.ip().is_multicast() {
            return self.send_to_group(id, bytes, remote, cx);
        }
        let Socket { state, local, options, traffic, taken_back, .. } = self.find(id)?;
        if let Some(error) = *taken_back {
            return Err(error);
        }
        if options.reports_sends() {
            self.transmit_reported(id, bytes, remote, cx)?;
        } else {
            let State::Datagram(datagrams) = state else { return Err(Errno::EISCONN) };
            datagrams.send(*local, remote, bytes, options, cx)?;
            traffic.sent(bytes.len(), cx.now);
        }
        // The device owns the buffer now, so there is room for the next datagram (Linux
        // `sock_wfree`).
        self.wake_for(id, Ready::OUT);
        Ok(bytes.len())
    }

    /// `recvfrom` of a datagram socket: the number of copied bytes, and the other data about the
    /// datagram.
    ///
    /// # Errors
    /// `EAGAIN`: nothing has come; or the pending error.
    pub fn recv_from(&mut self, id: SocketId, into: &mut [u8]) -> Result<(usize, DatagramInfo), Errno> {
        let socket = self.find(id)?;
        socket.report_error()?;
        let State::Datagram(datagrams) = &mut socket.state else { return Err(Errno::EOPNOTSUPP) };
        match datagrams.read(into) {
            Some(read) => Ok(read),
            None => Err(datagrams.nothing()),
        }
    }

    /// The result of a blocking read of an empty socket: 0 bytes after `SHUT_RD`, else `EAGAIN`. A
    /// non-blocking read returns `EAGAIN` in both cases (Linux `__skb_wait_for_more_packets`).
    ///
    /// # Errors
    /// `EAGAIN`.
    pub fn end_of_datagrams(&self, id: SocketId) -> Result<(usize, DatagramInfo), Errno> {
        let socket = self.get(id)?;
        match &socket.state {
            State::Datagram(datagrams) if datagrams.is_read_shut => Ok((0, DatagramInfo::none(socket.local))),
            _ => Err(Errno::EAGAIN),
        }
    }

    /// Whether a datagram socket that is bound to all addresses receives its groups alone, because
    /// another program, or another queue of this one, has the interface's address at its port.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn has_groups_alone(&self, id: SocketId) -> Result<bool, Errno> {
        Ok(matches!(&self.get(id)?.state, State::Datagram(datagrams) if datagrams.lacks_port))
    }

    /// Whether a datagram socket is bound and has no peer, and the program has neither sent on it
    /// nor received: all datagrams that came still wait.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn is_unused(&self, id: SocketId) -> Result<bool, Errno> {
        let socket = self.get(id)?;
        let State::Datagram(datagrams) = &socket.state else { return Ok(false) };
        let waits = datagrams.waiting() as u64;
        let is_fresh = socket.traffic.tx_packets == 0 && socket.traffic.rx_packets == waits && socket.error.is_none();
        Ok(is_fresh && socket.local.port() != 0 && datagrams.remote.is_none() && datagrams.pending.is_none())
    }

    /// Datagrams that were dropped because their TTL was below `IP_MINTTL`; 0 of a stream.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn below_ttl_min(&self, id: SocketId) -> Result<u64, Errno> {
        Ok(match &self.get(id)?.state {
            State::Datagram(datagrams) => datagrams.below_ttl_min,
            State::Stream(_) | State::Listener(_) => 0,
        })
    }

    /// Datagrams that found the receive buffer full (`SO_RXQ_OVFL`); 0 of a stream.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn dropped(&self, id: SocketId) -> Result<u64, Errno> {
        Ok(match &self.get(id)?.state {
            State::Datagram(datagrams) => datagrams.dropped,
            State::Stream(_) | State::Listener(_) => 0,
        })
    }

    /// `IP_ADD_MEMBERSHIP`, and with a source `IP_ADD_SOURCE_MEMBERSHIP`.
    ///
    /// # Errors
    /// `EADDRINUSE`: a member already; `EADDRNOTAVAIL`: for that source; `EINVAL`: not a group.
    pub fn join(
        &mut self,
        id: SocketId,
        group: Ipv4Addr,
        interface: InterfaceId,
        source: Option<Ipv4Addr>,
        cx: &mut Cx<'_>,
    ) -> Result<(), Errno> {
        let of = GroupRequest { group, interface, address: Ipv4Addr::UNSPECIFIED };
        match source {
            Some(source) => self.change_source(id, of, source, SourceChange::Join, cx),
            None => self.join_group(id, of, FilterMode::Exclude, cx),
        }
    }

    /// `IP_DROP_MEMBERSHIP`, and with a source `IP_DROP_SOURCE_MEMBERSHIP`.
    ///
    /// # Errors
    /// `EADDRNOTAVAIL`: not a member.
    pub fn leave(
        &mut self,
        id: SocketId,
        group: Ipv4Addr,
        interface: InterfaceId,
        source: Option<Ipv4Addr>,
        cx: &mut Cx<'_>,
    ) -> Result<(), Errno> {
        let of = GroupRequest { group, interface, address: Ipv4Addr::UNSPECIFIED };
        match source {
            Some(source) => self.change_source(id, of, source, SourceChange::Leave, cx),
            None => self.leave_group(id, of, cx),
        }
    }

    /// Linux `__ip_mc_join_group`.
    pub(crate) fn join_group(
        &mut self,
        id: SocketId,
        of: GroupRequest,
        mode: FilterMode,
        cx: &mut Cx<'_>,
    ) -> Result<(), Errno> {
        let GroupRequest { group, interface, address } = of;
        let datagrams = self.datagrams_of(id)?;
        if !group.is_multicast() {
            return Err(Errno::EINVAL);
        }
        if datagrams.memberships.iter().any(|other| other.is_of(&of)) {
            return Err(Errno::EADDRINUSE);
        }
        let sources = Vec::new();
        datagrams.memberships.push(Membership { group, interface, address, mode, sources, is_fixed: false });
        let place = datagrams.memberships.len() - 1;
        self.members += 1;
        self.settle_group(id, place, None, cx).inspect_err(|_| {
            if let Ok(datagrams) = self.datagrams_of(id) {
                datagrams.memberships.remove(place);
                self.members -= 1;
            }
        })
    }

    /// Linux `ip_mc_leave_group`.
    pub(crate) fn leave_group(&mut self, id: SocketId, of: GroupRequest, cx: &mut Cx<'_>) -> Result<(), Errno> {
        let datagrams = self.datagrams_of(id)?;
        let named = |other: &&Membership| of.address.is_unspecified() || other.address == of.address;
        let found = datagrams.memberships.iter().position(|other| other.is_of(&of) && named(&other));
        let place = found.ok_or(Errno::EADDRNOTAVAIL)?;
        let left = datagrams.memberships.remove(place);
        self.leave_port(id, &left, cx)
    }

    /// Linux `ip_mc_source`.
    pub(crate) fn change_source(
        &mut self,
        id: SocketId,
        of: GroupRequest,
        source: Ipv4Addr,
        change: SourceChange,
        cx: &mut Cx<'_>,
    ) -> Result<(), Errno> {
        if !of.group.is_multicast() {
            return Err(Errno::EINVAL);
        }
        if change == SourceChange::Join {
            match self.join_group(id, of, FilterMode::Include, cx) {
                Ok(()) | Err(Errno::EADDRINUSE) => (),
                error => return error,
            }
        }
        let datagrams = self.datagrams_of(id)?;
        let place = datagrams.memberships.iter().position(|other| other.is_of(&of)).ok_or(Errno::EINVAL)?;
        let before = datagrams.memberships[place].clone();
        let membership = &mut datagrams.memberships[place];
        if membership.is_fixed && membership.mode != change.mode() {
            return Err(Errno::EINVAL);
        }
        membership.mode = change.mode();
        let found = membership.sources.iter().position(|other| *other == source);
        let changed = match (change.adds(), found) {
            (true, _) if membership.sources.len() >= SOURCES_MAX => Err(Errno::ENOBUFS),
            (true, Some(_)) | (false, None) => Err(Errno::EADDRNOTAVAIL),
            (false, Some(_)) if membership.mode == FilterMode::Include && membership.sources.len() == 1 => {
                let left = datagrams.memberships.remove(place);
                return self.leave_port(id, &left, cx);
            }
            (false, Some(found)) => {
                membership.sources.remove(found);
                Ok(())
            }
            (true, None) => {
                membership.sources.push(source);
                Ok(())
            }
        };
        membership.is_fixed |= changed.is_ok();
        if changed.is_err() && before.mode == change.mode() {
            return changed;
        }
        // The mode is another one, as on Linux, also where the source is refused.
        self.settle_group(id, place, Some(&before), cx).inspect_err(|_| {
            if let Ok(datagrams) = self.datagrams_of(id) {
                datagrams.memberships[place] = before.clone();
            }
        })?;
        changed
    }

    /// Replaces the filter of a membership (Linux `ip_mc_msfilter`): including nothing leaves it.
    pub(crate) fn replace_sources(
        &mut self,
        id: SocketId,
        of: GroupRequest,
        mode: FilterMode,
        sources: Vec<Ipv4Addr>,
        cx: &mut Cx<'_>,
    ) -> Result<(), Errno> {
        if mode == FilterMode::Include && sources.is_empty() {
            return self.leave_group(id, GroupRequest { address: Ipv4Addr::UNSPECIFIED, ..of }, cx);
        }
        let datagrams = self.datagrams_of(id)?;
        let place = datagrams.memberships.iter().position(|other| other.is_of(&of)).ok_or(Errno::EINVAL)?;
        let before = datagrams.memberships[place].clone();
        let is_fixed = !sources.is_empty();
        datagrams.memberships[place] = Membership { mode, sources, is_fixed, ..before.clone() };
        self.settle_group(id, place, Some(&before), cx).inspect_err(|_| {
            if let Ok(datagrams) = self.datagrams_of(id) {
                datagrams.memberships[place] = before.clone();
            }
        })
    }

    /// Updates the port's rules and the worker's demultiplexer for a membership, if its socket is
    /// bound.
    fn settle_group(
        &mut self,
        id: SocketId,
        place: usize,
        before: Option<&Membership>,
        cx: &mut Cx<'_>,
    ) -> Result<(), Errno> {
        let socket = self.find(id)?;
        let State::Datagram(datagrams) = &socket.state else { return Err(Errno::ENOPROTOOPT) };
        let (local, membership) = (socket.local, datagrams.memberships[place].clone());
        if local.port() == 0 || !membership.reaches(local) {
            return Ok(());
        }
        let before = before.filter(|before| !before.has_no_sources());
        if membership.has_no_sources() {
            if let Some(before) = before {
                self.leave_bound(id, before, local.port(), cx);
            }
            return Ok(());
        }
        join_port(id.consumer(), &membership, local.port(), cx)?;
        let flow = flow_of(&membership, local.port());
        let old = before.map(|before| flow_of(before, local.port()));
        if old.as_ref() != Some(&flow) {
            self.need(id, vec![flow], cx).inspect_err(|_| match before {
                // It was so before, so there is room for it.
                Some(before) => _ = join_port(id.consumer(), before, local.port(), cx),
                None => _ = cx.sockets.leave(id.consumer(), membership.at(local.port())),
            })?;
            self.excuse_lack_of_port(id)?;
            if let Some(old) = old {
                self.need_no_more(id, old);
            }
        }
        self.share_memberships(local.port(), cx);
        Ok(())
    }

    /// Removes the rules and bindings of a membership.
    fn leave_port(&mut self, id: SocketId, left: &Membership, cx: &mut Cx<'_>) -> Result<(), Errno> {
        self.members -= 1;
        let local = self.find(id)?.local;
        if local.port() != 0 && left.reaches(local) && !left.has_no_sources() {
            self.leave_bound(id, left, local.port(), cx);
        }
        Ok(())
    }

    fn leave_bound(&mut self, id: SocketId, left: &Membership, port: u16, cx: &mut Cx<'_>) {
        self.need_no_more(id, flow_of(left, port));
        // An error means that it is gone already.
        let _ = cx.sockets.leave(id.consumer(), left.at(port));
        self.share_memberships(port, cx);
    }

    fn need_no_more(&mut self, id: SocketId, flow: FlowSpec) {
        let Ok(socket) = self.find(id) else { return };
        if let Some(place) = socket.flows.iter().position(|held| *held == flow) {
            socket.flows.remove(place);
            self.flows.release(&[flow]);
        }
    }

    fn datagrams_of(&mut self, id: SocketId) -> Result<&mut DatagramSocket, Errno> {
        match &mut self.find(id)?.state {
            State::Datagram(datagrams) => Ok(datagrams),
            State::Stream(_) | State::Listener(_) => Err(Errno::EPROTO),
        }
    }

    /// Binds a unicast address for datagrams. A group is not bound: joining it with its port is
    /// enough, and keeps datagrams to other destinations from the socket. Where any step fails, the
    /// socket is unbound.
    pub(super) fn bind_datagrams(&mut self, id: SocketId, local: SocketAddrV4, cx: &mut Cx<'_>) -> Result<(), Errno> {
        let was = self.find(id)?.local;
        self.try_bind_datagrams(id, local, cx).inspect_err(|_| {
            cx.sockets.close(id.consumer());
            self.set_local(id, was);
            let flows = self.find(id).map(|socket| core::mem::take(&mut socket.flows));
            self.flows.release(&flows.unwrap_or_default());
        })
    }

    pub(super) fn try_bind_datagrams(
        &mut self,
        id: SocketId,
        local: SocketAddrV4,
        cx: &mut Cx<'_>,
    ) -> Result<(), Errno> {
        let consumer = id.consumer();
        let socket = self.find(id)?;
        let State::Datagram(datagrams) = &socket.state else { return Err(Errno::EINVAL) };
        let (local, of_port) = if local.ip().is_multicast() {
            (local, Vec::new())
        } else {
            check_own(local, cx)?;
            let sharing = match socket.options {
                Options { reuse_port: true, .. } => Sharing::Balanced,
                Options { reuse_address: true, .. } => Sharing::Latest,
                _ => Sharing::Exclusive,
            };
            let local = cx.sockets.bind(consumer, local, sharing)?;
            (local, flows_to(local, cx.host, FlowSpec::udp))
        };
        let mut of_groups = Vec::new();
        for membership in datagrams.memberships.iter().filter(|group| group.reaches(local) && !group.has_no_sources()) {
            join_port(consumer, membership, local.port(), cx)?;
            of_groups.push(flow_of(membership, local.port()));
        }
        let shares = local.ip().is_unspecified() && (socket.options.reuse_address || socket.options.reuse_port);
        self.set_local(id, local);
        let lacks_port = match self.need(id, of_port, cx) {
            // The interface's address at this port is another's. Both receive their groups, as the
            // receivers of a feed do on the kernel.
            Err(Errno::EADDRINUSE) if shares => true,
            done => done.map(|()| false)?,
        };
        let has_groups = !of_groups.is_empty();
        self.need(id, of_groups, cx)?;
        self.note_port(id, lacks_port, has_groups)?;
        if self.members > 0 {
            self.share_memberships(local.port(), cx);
        }
        Ok(())
    }

    /// Notes whether a socket lacks the interface's address at its port. One without groups either
    /// would wait for ever: its next receive for which nothing waits reports it, unless it joins a
    /// group before, or connects.
    fn note_port(&mut self, id: SocketId, lacks_port: bool, has_groups: bool) -> Result<(), Errno> {
        if let State::Datagram(datagrams) = &mut self.find(id)?.state {
            datagrams.lacks_port = lacks_port;
            datagrams.is_deaf = lacks_port && !has_groups;
        }
        Ok(())
    }

    /// A socket that lacks its port receives otherwise, and no receive reports the lack: it has got
    /// a group, or the caller receives by another way as well.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn excuse_lack_of_port(&mut self, id: SocketId) -> Result<(), Errno> {
        if let State::Datagram(datagrams) = &mut self.find(id)?.state {
            datagrams.is_deaf = false;
        }
        Ok(())
    }

    /// The local end of a datagram socket is another one now.
    fn set_local(&mut self, id: SocketId, local: SocketAddrV4) {
        if let Ok(socket) = self.find(id) {
            let was = core::mem::replace(&mut socket.local, local);
            self.by_port.change(id.slot, was.port(), local.port());
        }
    }

    /// `connect` to `AF_UNSPEC`: a datagram socket then has no peer, and the address that `connect`
    /// or a send bound for it is free again (Linux `__udp_disconnect`). A connection is reset, and
    /// a listener ends: the stream may connect or listen again.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn disconnect(&mut self, id: SocketId, cx: &mut Cx<'_>) -> Result<(), Errno> {
        let socket = self.find(id)?;
        let bound = socket.bound;
        let State::Datagram(datagrams) = &mut socket.state else { return self.disconnect_stream(id, cx) };
        (datagrams.remote, datagrams.source) = (None, None);
        datagrams.forget_flows();
        cx.sockets.widen(id.consumer(), socket.local)?;
        if bound.port() == 0 && socket.local.port() != 0 {
            let (flows, port) = (core::mem::take(&mut socket.flows), socket.local.port());
            datagrams.shared.clear();
            self.set_local(id, bound);
            cx.sockets.close(id.consumer());
            self.flows.release(&flows);
            self.share_memberships(port, cx);
        }
        Ok(())
    }

    pub(super) fn connect_datagrams(
        &mut self,
        id: SocketId,
        remote: SocketAddrV4,
        cx: &mut Cx<'_>,
    ) -> Result<(), Errno> {
        self.bind_if_unbound(id, cx)?;
        let socket = self.find(id)?;
        let State::Datagram(datagrams) = &mut socket.state else { return Err(Errno::EOPNOTSUPP) };
        // The headers are prepared now, so that `getsockname` returns the route's source address.
        datagrams.forget_flows();
        let source = datagrams.prepare(socket.local, remote, &socket.options, cx)?.local();
        // Datagrams of others go to the other sockets of a shared port.
        (datagrams.remote, datagrams.source) = (None, None);
        cx.sockets.narrow(id.consumer(), socket.local, Flow { local: source, remote })?;
        (datagrams.remote, datagrams.source) = (Some(remote), Some(source));
        datagrams.is_deaf = false;
        Ok(())
    }
}

/// Sources of a membership, as many as Linux's `igmp_max_msf` allows.
pub(crate) const SOURCES_MAX: usize = 10;

/// The group and the interface that an option names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupRequest {
    pub(crate) group: Ipv4Addr,
    pub(crate) interface: InterfaceId,
    /// The interface's address, if the option named it so.
    pub(crate) address: Ipv4Addr,
}

/// The change of a group's source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SourceChange {
    /// `IP_ADD_SOURCE_MEMBERSHIP`
    Join,
    /// `IP_DROP_SOURCE_MEMBERSHIP`
    Leave,
    /// `IP_BLOCK_SOURCE`
    Block,
    /// `IP_UNBLOCK_SOURCE`
    Unblock,
}

impl SourceChange {
    fn mode(self) -> FilterMode {
        match self {
            Self::Join | Self::Leave => FilterMode::Include,
            Self::Block | Self::Unblock => FilterMode::Exclude,
        }
    }

    fn adds(self) -> bool {
        matches!(self, Self::Join | Self::Block)
    }
}

impl Membership {
    fn is_of(&self, of: &GroupRequest) -> bool {
        (self.group, self.interface) == (of.group, of.interface)
    }

    /// Whether datagrams to the group reach a socket that is bound to `local`.
    fn reaches(&self, local: SocketAddrV4) -> bool {
        local.ip().is_unspecified() || *local.ip() == self.group
    }

    /// Whether the group was joined for sources, and has none yet.
    pub(super) fn has_no_sources(&self) -> bool {
        self.mode == FilterMode::Include && self.sources.is_empty()
    }

    /// The group, as the demultiplexer names it.
    fn at(&self, port: u16) -> Group {
        Group { group: self.group, port, interface: self.interface }
    }
}

/// Datagrams to a group, from its only sources where it has some.
fn flow_of(membership: &Membership, port: u16) -> FlowSpec {
    let flow = FlowSpec::udp(membership.group, port);
    match membership.mode {
        FilterMode::Include => flow.from(&membership.sources),
        FilterMode::Exclude => flow,
    }
}

fn join_port(consumer: ConsumerId, membership: &Membership, port: u16, cx: &mut Cx<'_>) -> Result<(), Errno> {
    cx.sockets.set_filter(consumer, membership.at(port), membership.mode, &membership.sources)?;
    Ok(())
}
