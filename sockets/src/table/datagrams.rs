//! The calls of datagram sockets alone: bind, connect, send, receive, and the groups.

use core::net::{Ipv4Addr, SocketAddrV4};

use wirepath::pipeline::Cx;
use wirepath::proto::{ConsumerId, Group, InterfaceId, Sharing};
use wirepath::worker::live::FlowSpec;

use super::{SocketId, Sockets, check_own};
use crate::errno::Errno;
use crate::socket::datagram::{DatagramInfo, Membership};
use crate::socket::{Socket, State, UNBOUND};
use crate::steering::flows_to;

impl Sockets {
    /// `sendto` of a datagram socket; an unbound one gets a free port.
    ///
    /// # Errors
    /// As [`send`](Self::send); `EMSGSIZE`, `EACCES`, and why there is no way to `remote`.
    pub fn send_to(
        &mut self,
        id: SocketId,
        bytes: &[u8],
        remote: SocketAddrV4,
        cx: &mut Cx<'_>,
    ) -> Result<usize, Errno> {
        let socket = self.find(id)?;
        socket.report_error()?;
        let State::Datagram(datagrams) = &socket.state else { return Err(Errno::EISCONN) };
        if datagrams.is_write_shut {
            return Err(Errno::EPIPE);
        }
        if remote.port() == 0 {
            return Err(Errno::EINVAL);
        }
        if remote.ip().is_broadcast() && !socket.options.broadcast {
            return Err(Errno::EACCES);
        }
        if socket.local == UNBOUND {
            self.bind_datagrams(id, UNBOUND, cx)?;
        }
        let Socket { state, local, options, .. } = self.find(id)?;
        let State::Datagram(datagrams) = state else { return Err(Errno::EISCONN) };
        datagrams.send(*local, remote, bytes, options, cx)?;
        Ok(bytes.len())
    }

    /// `recvfrom` of a datagram socket: the bytes that were copied, and the rest of what it tells.
    ///
    /// # Errors
    /// `EAGAIN`: nothing has come; or the pending error.
    pub fn recv_from(&mut self, id: SocketId, into: &mut [u8]) -> Result<(usize, DatagramInfo), Errno> {
        let socket = self.find(id)?;
        socket.report_error()?;
        let State::Datagram(datagrams) = &mut socket.state else { return Err(Errno::EOPNOTSUPP) };
        match datagrams.read(into) {
            Some(read) => Ok(read),
            None if datagrams.is_read_shut => Ok((0, DatagramInfo::none(socket.local))),
            None => Err(Errno::EAGAIN),
        }
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
    /// `EADDRINUSE`: a member already; `EINVAL`: not a group.
    pub fn join(
        &mut self,
        id: SocketId,
        group: Ipv4Addr,
        interface: InterfaceId,
        source: Option<Ipv4Addr>,
        cx: &mut Cx<'_>,
    ) -> Result<(), Errno> {
        let consumer = id.consumer();
        let socket = self.find(id)?;
        let State::Datagram(datagrams) = &mut socket.state else { return Err(Errno::ENOPROTOOPT) };
        let membership = Membership { group, interface, source };
        if !group.is_multicast() {
            return Err(Errno::EINVAL);
        }
        if datagrams.memberships.contains(&membership) {
            return Err(Errno::EADDRINUSE);
        }
        datagrams.memberships.push(membership);
        if socket.local == UNBOUND {
            return Ok(());
        }
        let port = socket.local.port();
        let joined =
            join_port(consumer, membership, port, cx).and_then(|()| self.need(id, vec![flow_of(membership, port)]));
        if joined.is_err()
            && let Ok(Socket { state: State::Datagram(datagrams), .. }) = self.find(id)
        {
            datagrams.memberships.retain(|other| *other != membership);
        }
        joined
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
        let consumer = id.consumer();
        let socket = self.find(id)?;
        let State::Datagram(datagrams) = &mut socket.state else { return Err(Errno::ENOPROTOOPT) };
        let membership = Membership { group, interface, source };
        let place = datagrams.memberships.iter().position(|other| *other == membership).ok_or(Errno::EADDRNOTAVAIL)?;
        datagrams.memberships.remove(place);
        if socket.local == UNBOUND {
            return Ok(());
        }
        let port = socket.local.port();
        let flow = flow_of(membership, port);
        if let Some(place) = socket.flows.iter().position(|held| *held == flow) {
            socket.flows.remove(place);
            self.flows.release(&[flow]);
        }
        let group = Group { group, port, interface };
        match source {
            Some(source) => cx.sockets.leave_source(consumer, group, source)?,
            None => cx.sockets.leave(consumer, group)?,
        }
        Ok(())
    }

    /// Binds a unicast address for datagrams. A group is not bound: it is enough to join it with
    /// its port, and datagrams to other destinations then do not reach the socket. Where any of it
    /// fails the socket is unbound.
    pub(super) fn bind_datagrams(&mut self, id: SocketId, local: SocketAddrV4, cx: &mut Cx<'_>) -> Result<(), Errno> {
        self.try_bind_datagrams(id, local, cx).inspect_err(|_| {
            cx.sockets.close(id.consumer());
            if let Ok(socket) = self.find(id) {
                socket.local = UNBOUND;
            }
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
        let (local, mut flows) = if local.ip().is_multicast() {
            (local, Vec::new())
        } else {
            check_own(local, cx)?;
            let shared = socket.options.reuse_address || socket.options.reuse_port;
            let sharing = if shared { Sharing::Shared } else { Sharing::Exclusive };
            let local = cx.sockets.bind(consumer, local, sharing)?;
            (local, flows_to(local, cx.host, FlowSpec::udp))
        };
        for membership in &datagrams.memberships {
            join_port(consumer, *membership, local.port(), cx)?;
            flows.push(flow_of(*membership, local.port()));
        }
        socket.local = local;
        self.need(id, flows)
    }

    pub(super) fn connect_datagrams(
        &mut self,
        id: SocketId,
        remote: SocketAddrV4,
        cx: &mut Cx<'_>,
    ) -> Result<(), Errno> {
        if self.find(id)?.local == UNBOUND {
            self.bind_datagrams(id, UNBOUND, cx)?;
        }
        let socket = self.find(id)?;
        let State::Datagram(datagrams) = &mut socket.state else { return Err(Errno::EOPNOTSUPP) };
        // Made now, so that `getsockname` names the address of the route.
        datagrams.forget_flows();
        datagrams.prepare(socket.local, remote, &socket.options, cx)?;
        datagrams.remote = Some(remote);
        Ok(())
    }
}

/// Datagrams to a group, from its one source where there is one.
fn flow_of(membership: Membership, port: u16) -> FlowSpec {
    let flow = FlowSpec::udp(membership.group, port);
    match membership.source {
        Some(source) => flow.from(&[source]),
        None => flow,
    }
}

fn join_port(consumer: ConsumerId, membership: Membership, port: u16, cx: &mut Cx<'_>) -> Result<(), Errno> {
    let group = Group { group: membership.group, port, interface: membership.interface };
    match membership.source {
        Some(source) => cx.sockets.join_source(consumer, group, source)?,
        None => cx.sockets.join(consumer, group)?,
    }
    Ok(())
}
