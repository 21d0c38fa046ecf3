//! Groups beyond a socket's own memberships: datagrams to a group that another socket of the port
//! joined (`IP_MULTICAST_ALL`, and sockets that bind a group without joining it), and this host's
//! own datagrams to a group (`IP_MULTICAST_LOOP`).

use core::net::{Ipv4Addr, SocketAddrV4};
use std::collections::HashMap;

use wirepath::pipeline::Cx;
use wirepath::proto::{FilterMode, Group, InterfaceId};

use super::{SocketId, Sockets};
use crate::errno::Errno;
use crate::ready::Ready;
use crate::socket::datagram::{DatagramInfo, DatagramSocket, Shared};
use crate::socket::{Socket, State};

/// The most sockets of one port that receive each other's groups: beyond it, each receives only its
/// own. Sharing needs a binding for each socket and group, and a worker has a few thousand
/// bindings.
const SHARED_MAX: usize = 64;

impl Sockets {
    /// Gives each socket of a port the groups of the port's other sockets, as the kernel does.
    /// Called after each change of a membership or a binding; not for the data path.
    pub(super) fn share_memberships(&mut self, port: u16, cx: &mut Cx<'_>) {
        if port == 0 {
            return;
        }
        let slots = self.by_port.slots(port).to_vec();
        if slots.is_empty() || slots.len() > SHARED_MAX {
            return;
        }
        let mut groups: Vec<Shared> = Vec::new();
        for slot in &slots {
            let Some((_, datagrams)) = self.datagrams_at(*slot) else { continue };
            for membership in datagrams.memberships.iter().filter(|membership| !membership.has_no_sources()) {
                match groups.iter_mut().find(|shared| shared.group == membership.group) {
                    Some(shared) => shared.merge(membership.mode, &membership.sources),
                    None => {
                        let (group, mode) = (membership.group, membership.mode);
                        let sources = if mode == FilterMode::Include { membership.sources.clone() } else { Vec::new() };
                        groups.push(Shared { group, mode, sources });
                    }
                }
            }
        }
        for slot in slots {
            self.settle_shared_of(slot, port, &groups, cx);
        }
    }

    fn settle_shared_of(&mut self, slot: u32, port: u16, groups: &[Shared], cx: &mut Cx<'_>) {
        let Some((socket, datagrams)) = self.datagrams_at(slot) else { return };
        let (local, takes_all) = (socket.local, socket.options.multicast_all);
        let has_own = |group: Ipv4Addr| datagrams.memberships.iter().any(|own| own.group == group);
        let wanted: Vec<Shared> = groups
            .iter()
            .filter(|shared| takes_all && !has_own(shared.group))
            .filter(|shared| local.ip().is_unspecified() || *local.ip() == shared.group)
            .cloned()
            .collect();
        if wanted == datagrams.shared {
            return;
        }
        let consumer = SocketId { slot, generation: 0 }.consumer();
        let group_of = |group| Group { group, port, interface: InterfaceId::ANY };
        for before in &datagrams.shared {
            if !has_own(before.group) && !wanted.iter().any(|shared| shared.group == before.group) {
                // An error means that it is gone already.
                let _ = cx.sockets.leave(consumer, group_of(before.group));
            }
        }
        for shared in wanted.iter().filter(|shared| !datagrams.shared.contains(shared)) {
            // If no binding is free, the socket receives its own groups only.
            let _ = cx.sockets.set_filter(consumer, group_of(shared.group), shared.mode, &shared.sources);
        }
        if let Some(Socket { state: State::Datagram(datagrams), .. }) = &mut self.slots[slot as usize].socket {
            datagrams.shared = wanted;
        }
    }

    /// Sends a datagram to a group, and to the sockets of this host that are its members.
    pub(super) fn send_to_group(
        &mut self,
        id: SocketId,
        bytes: &[u8],
        group: SocketAddrV4,
        cx: &mut Cx<'_>,
    ) -> Result<usize, Errno> {
        let Socket { options, .. } = self.find(id)?;
        let (loops, ttl, tos) = (options.multicast_loop, options.multicast_ttl, options.tos);
        let is_stamped = options.timestamping.stamps_sent() && ttl > 0;
        if is_stamped {
            self.send_stamped(id, bytes, group, cx)?;
        }
        let Socket { state, local, options, traffic, .. } = self.find(id)?;
        let State::Datagram(datagrams) = state else { return Err(Errno::EISCONN) };
        if is_stamped {
            // It is sent.
        } else if ttl > 0 {
            datagrams.send(*local, group, bytes, options, cx)?;
        } else if datagrams.source_to(group).is_none() {
            datagrams.prepare(*local, group, options, cx)?;
        }
        traffic.sent(bytes.len(), cx.now);
        let source = datagrams.source_to(group).unwrap_or(*local);
        if loops && self.members > 0 {
            let interface = cx.host.interface();
            let len = bytes.len();
            let (destination, arrived) = (group, cx.now);
            let info = DatagramInfo { source, destination, interface, len, arrived, timestamp: None, ttl, tos };
            self.loop_back(&info, bytes, cx);
        }
        Ok(bytes.len())
    }

    /// Delivers a datagram of this host to each socket of the port that wants it. Scans the sockets
    /// of the port, and all sockets where none of the port's has joined the group.
    fn loop_back(&mut self, info: &DatagramInfo, bytes: &[u8], cx: &Cx<'_>) {
        let (group, source) = (*info.destination.ip(), *info.source.ip());
        let of_port = self.by_port.slots(info.destination.port());
        let is_joined = |socket: &Socket| match &socket.state {
            State::Datagram(datagrams) => datagrams.memberships.iter().any(|own| own.group == group),
            State::Stream(_) | State::Listener(_) => false,
        };
        let at = |slot: &u32| self.slots[*slot as usize].socket.as_ref();
        let is_anyones = of_port.iter().filter_map(at).any(is_joined)
            || self.slots.iter().filter_map(|slot| slot.socket.as_ref()).any(is_joined);
        if !is_anyones {
            return;
        }
        for idx in 0..of_port.len() {
            // Read again each time, because the list belongs to this table.
            let slot = self.by_port.slots(info.destination.port())[idx];
            let place = &mut self.slots[slot as usize];
            let id = SocketId { slot, generation: place.generation };
            let Some(Socket { state: State::Datagram(datagrams), local, options, traffic, .. }) = &mut place.socket
            else {
                continue;
            };
            let is_bound = local.ip().is_unspecified() || *local.ip() == group;
            let is_wanted = match datagrams.memberships.iter().find(|own| own.group == group) {
                Some(own) => (own.mode == FilterMode::Include) == own.sources.contains(&source),
                None => options.multicast_all,
            };
            if is_bound && is_wanted && datagrams.push_copy(info, bytes, options.receive_buffer as usize) {
                traffic.received(bytes.len(), cx.now);
                self.wake_for(id, Ready::IN);
            }
        }
    }

    fn datagrams_at(&self, slot: u32) -> Option<(&Socket, &DatagramSocket)> {
        let socket = self.slots[slot as usize].socket.as_ref()?;
        match &socket.state {
            State::Datagram(datagrams) => Some((socket, datagrams)),
            State::Stream(_) | State::Listener(_) => None,
        }
    }
}

/// The slots of the datagram sockets of each port, so that a datagram to a group need not scan all
/// sockets.
#[derive(Default)]
pub(super) struct ByPort(HashMap<u16, Vec<u32>>);

impl ByPort {
    /// A socket that had port `from` has port `to` now; 0 is none.
    pub(super) fn change(&mut self, slot: u32, from: u16, to: u16) {
        if from == to {
            return;
        }
        if let Some(slots) = self.0.get_mut(&from) {
            slots.retain(|other| *other != slot);
            if slots.is_empty() {
                self.0.remove(&from);
            }
        }
        if to != 0 {
            self.0.entry(to).or_default().push(slot);
        }
    }

    fn slots(&self, port: u16) -> &[u32] {
        self.0.get(&port).map_or(&[], Vec::as_slice)
    }
}

impl Shared {
    /// One filter for all sockets that joined the group.
    fn merge(&mut self, mode: FilterMode, sources: &[Ipv4Addr]) {
        if mode == FilterMode::Exclude || self.mode == FilterMode::Exclude {
            (self.mode, self.sources) = (FilterMode::Exclude, Vec::new());
            return;
        }
        for source in sources {
            if !self.sources.contains(source) {
                self.sources.push(*source);
            }
        }
    }
}
