//! The options of `IPPROTO_IP` for multicast: groups, their sources, and how datagrams are sent to
//! them.

use core::net::Ipv4Addr;

use wirepath::pipeline::Cx;
use wirepath::proto::{FilterMode, InterfaceId};

use super::number::*;
use super::value::{address_in, address_of, int_or_byte, word, words};
use crate::errno::Errno;
use crate::table::datagrams::{GroupRequest, SOURCES_MAX, SourceChange};
use crate::table::{SocketId, Sockets};

/// `struct group_req` and `struct group_source_req`: the interface, aligned to 8, then one or two
/// `struct sockaddr_storage`.
const GROUP_REQ_LEN: usize = 136;
const GROUP_SOURCE_REQ_LEN: usize = 264;

impl Sockets {
    pub(super) fn set_of_groups(
        &mut self,
        id: SocketId,
        name: i32,
        value: &[u8],
        is_stream: bool,
        cx: &mut Cx<'_>,
    ) -> Result<(), Errno> {
        let number = int_or_byte(value);
        let on = number != 0;
        match name {
            IP_MULTICAST_LOOP if value.is_empty() => Err(Errno::EINVAL),
            IP_MULTICAST_LOOP => self.change(id, cx, |options| options.multicast_loop = on),
            IP_MULTICAST_ALL if value.is_empty() || !(0..=1).contains(&number) => Err(Errno::EINVAL),
            IP_MULTICAST_ALL => self.change(id, cx, |options| options.multicast_all = on),
            IP_MULTICAST_TTL if is_stream || value.is_empty() || !(-1..=255).contains(&number) => Err(Errno::EINVAL),
            IP_MULTICAST_TTL => {
                let ttl = if number == -1 { 1 } else { number as u8 };
                self.change(id, cx, |options| options.multicast_ttl = ttl)
            }
            IP_MULTICAST_IF if is_stream => Err(Errno::EINVAL),
            IP_MULTICAST_IF => self.set_multicast_source(id, value, cx),
            IP_ADD_MEMBERSHIP | IP_DROP_MEMBERSHIP if is_stream => Err(Errno::EPROTO),
            IP_ADD_MEMBERSHIP | IP_DROP_MEMBERSHIP => {
                let [group, address] = words(value).ok_or(Errno::EINVAL)?.map(address_of);
                let idx = word(value, 8).unwrap_or(0);
                self.set_member(id, group, idx, address, name == IP_ADD_MEMBERSHIP, cx)
            }
            MCAST_JOIN_GROUP | MCAST_LEAVE_GROUP => {
                let idx = word(value, 0).filter(|_| value.len() >= GROUP_REQ_LEN).ok_or(Errno::EINVAL)?;
                let group = address_in(value, 8).ok_or(Errno::EINVAL)?;
                self.set_member(id, group, idx, Ipv4Addr::UNSPECIFIED, name == MCAST_JOIN_GROUP, cx)
            }
            IP_ADD_SOURCE_MEMBERSHIP | IP_DROP_SOURCE_MEMBERSHIP | IP_BLOCK_SOURCE | IP_UNBLOCK_SOURCE => {
                let [group, address, source] =
                    words(value).filter(|_| value.len() == 12).ok_or(Errno::EINVAL)?.map(address_of);
                let of = self.group_of(group, 0, address, cx)?;
                self.change_source(id, of, source, change_of(name), cx)
            }
            MCAST_JOIN_SOURCE_GROUP | MCAST_LEAVE_SOURCE_GROUP | MCAST_BLOCK_SOURCE | MCAST_UNBLOCK_SOURCE => {
                let idx = word(value, 0).filter(|_| value.len() == GROUP_SOURCE_REQ_LEN).ok_or(Errno::EINVAL)?;
                let (group, source) = address_in(value, 8).zip(address_in(value, 136)).ok_or(Errno::EADDRNOTAVAIL)?;
                let of = self.group_of(group, idx, Ipv4Addr::UNSPECIFIED, cx)?;
                self.change_source(id, of, source, change_of(name), cx)
            }
            IP_MSFILTER | MCAST_MSFILTER => self.set_filter_of_group(id, name, value, cx),
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    /// `struct ip_msfilter` and `struct group_filter` (Linux `ip_mc_msfilter`).
    fn set_filter_of_group(&mut self, id: SocketId, name: i32, value: &[u8], cx: &mut Cx<'_>) -> Result<(), Errno> {
        let head = if name == IP_MSFILTER { 8 } else { 136 };
        let (mode, count) = word(value, head).zip(word(value, head + 4)).ok_or(Errno::EINVAL)?;
        if count as usize > SOURCES_MAX {
            return Err(Errno::ENOBUFS);
        }
        let size = if name == IP_MSFILTER { 4 } else { 128 };
        let from = head + 8;
        if value.len() < from + size * count as usize {
            return Err(Errno::EINVAL);
        }
        let (group, idx, address) = if name == IP_MSFILTER {
            let [group, address] = words(value).ok_or(Errno::EINVAL)?.map(address_of);
            (group, 0, address)
        } else {
            let group = address_in(value, 8).ok_or(Errno::EADDRNOTAVAIL)?;
            (group, word(value, 0).ok_or(Errno::EINVAL)?, Ipv4Addr::UNSPECIFIED)
        };
        let sources = (0..count as usize).map(|place| match name {
            IP_MSFILTER => word(value, from + size * place).map(address_of),
            _ => address_in(value, from + size * place),
        });
        let sources = sources.collect::<Option<Vec<Ipv4Addr>>>().ok_or(Errno::EADDRNOTAVAIL)?;
        let mode = match mode {
            0 => FilterMode::Exclude,
            1 => FilterMode::Include,
            _ => return Err(Errno::EINVAL),
        };
        let of = self.group_of(group, idx, address, cx)?;
        self.replace_sources(id, of, mode, sources, cx)
    }

    fn set_member(
        &mut self,
        id: SocketId,
        group: Ipv4Addr,
        interface_idx: u32,
        address: Ipv4Addr,
        joins: bool,
        cx: &mut Cx<'_>,
    ) -> Result<(), Errno> {
        if joins {
            let of = self.group_of(group, interface_idx, address, cx)?;
            return self.join_group(id, of, FilterMode::Exclude, cx);
        }
        match self.group_of(group, interface_idx, address, cx) {
            // The interface alone identifies the membership.
            Ok(of) => self.leave_group(id, GroupRequest { address: Ipv4Addr::UNSPECIFIED, ..of }, cx),
            // The group may have been joined by an interface index, with a foreign address beside
            // it.
            Err(Errno::ENODEV) if interface_idx == 0 => {
                self.leave_group(id, GroupRequest { group, interface: InterfaceId::ANY, address }, cx)
            }
            Err(_) => Err(Errno::EADDRNOTAVAIL),
        }
    }

    /// Finds the interface (Linux `ip_mc_find_dev`): there is only ours.
    fn group_of(
        &self,
        group: Ipv4Addr,
        interface_idx: u32,
        address: Ipv4Addr,
        cx: &Cx<'_>,
    ) -> Result<GroupRequest, Errno> {
        if !group.is_multicast() {
            return Err(Errno::EINVAL);
        }
        let is_ours = match interface_idx {
            0 => address.is_unspecified() || cx.host.is_own(address),
            idx => idx == self.system.interface_idx,
        };
        if !is_ours {
            return Err(Errno::ENODEV);
        }
        Ok(GroupRequest { group, interface: InterfaceId::ANY, address })
    }

    fn set_multicast_source(&mut self, id: SocketId, value: &[u8], cx: &mut Cx<'_>) -> Result<(), Errno> {
        // `struct in_addr`, or `ip_mreq`, or `ip_mreqn`.
        let at = if value.len() >= 8 { 4 } else { 0 };
        let address = word(value, at).map(address_of).ok_or(Errno::EINVAL)?;
        let is_ours = match word(value, 8).unwrap_or(0) {
            0 => address.is_unspecified() || cx.host.is_own(address),
            idx => idx == self.system.interface_idx,
        };
        if !is_ours {
            return Err(Errno::EADDRNOTAVAIL);
        }
        self.change(id, cx, |options| options.multicast_source = address)
    }
}

fn change_of(name: i32) -> SourceChange {
    match name {
        IP_ADD_SOURCE_MEMBERSHIP | MCAST_JOIN_SOURCE_GROUP => SourceChange::Join,
        IP_DROP_SOURCE_MEMBERSHIP | MCAST_LEAVE_SOURCE_GROUP => SourceChange::Leave,
        IP_BLOCK_SOURCE | MCAST_BLOCK_SOURCE => SourceChange::Block,
        _ => SourceChange::Unblock,
    }
}
