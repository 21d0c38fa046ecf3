//! Control messages: those that a receive returns, and those that a send follows.

use core::ffi::c_int;
use core::net::Ipv4Addr;

use sockets::{ControlMessage, DatagramInfo, Errno, SendControl};

use super::receive::Received;
use super::{Target, target};
use crate::address::{self, Family};
use crate::calls::offload;
use crate::config;
use crate::engine::table::FileId;
use crate::engine::{self, Engine};

/// The control messages that the program has asked for, of a datagram or of the bytes that were
/// just read.
pub(crate) fn control(file: FileId, received: &Received) -> Vec<ControlMessage> {
    if received.has_control { control_messages(&mut engine::enter(file), file, received) } else { Vec::new() }
}

pub(super) fn control_messages(engine: &mut Engine, file: FileId, received: &Received) -> Vec<ControlMessage> {
    let info = received.info.as_ref();
    let Ok(target) = target(engine, file) else { return Vec::new() };
    let told = engine.look(|sockets| {
        let times = sockets.time_messages(target.id, info)?;
        Ok((sockets.option(target.id, |options| options.ancillary)?, sockets.dropped(target.id)?, times))
    });
    let Ok((wanted, dropped, mut messages)) = told else { return Vec::new() };
    let Some(info) = info else { return messages };
    let interface_idx = config::system().interface_idx;
    if wanted.dropped && dropped > 0 {
        messages.push((libc::SOL_SOCKET, libc::SO_RXQ_OVFL, (dropped as u32).to_ne_bytes().to_vec()));
    }
    if target.receives_info6 {
        let to = info.destination.ip().to_ipv6_mapped().octets();
        let value = [&to[..], &interface_idx.to_ne_bytes()].concat();
        messages.push((libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, value));
    }
    if wanted.packet_info {
        let (to, own) = (info.destination.ip().octets(), own_address(engine, info).octets());
        messages.push((libc::IPPROTO_IP, libc::IP_PKTINFO, [interface_idx.to_ne_bytes(), own, to].concat()));
    }
    if wanted.ttl {
        messages.push((libc::IPPROTO_IP, libc::IP_TTL, c_int::from(info.ttl).to_ne_bytes().to_vec()));
    }
    if wanted.tos {
        messages.push((libc::IPPROTO_IP, libc::IP_TOS, vec![info.tos]));
    }
    if wanted.original_destination {
        let (name, len) = address::format(info.destination, Family::Inet);
        messages.push((libc::IPPROTO_IP, libc::IP_RECVORIGDSTADDR, name[..len].to_vec()));
    }
    messages
}

/// The address of ours that an answer to a datagram would come from (Linux `fib_compute_spec_dst`):
/// that of the interface, for a datagram to a group or a broadcast address.
fn own_address(engine: &mut Engine, info: &DatagramInfo) -> Ipv4Addr {
    let (to, from) = (*info.destination.ip(), *info.source.ip());
    let own = engine.ask(|_, cx| {
        if cx.host.is_own(to) {
            return Ok(to);
        }
        let addresses = cx.host.addresses();
        let near = addresses.iter().find(|own| own.contains(from)).or(addresses.first());
        Ok(near.map_or(to, |own| own.address()))
    });
    own.unwrap_or(to)
}

/// The content of a send's control messages; `None` if they name a source or an interface that is
/// not ours: the kernel sends by it, or has the error.
pub(super) fn controls(engine: &mut Engine, target: &Target, control: &[u8]) -> Result<Option<SendControl>, Errno> {
    let control = SendControl::parse(target.kind, target.family == Family::Inet6, control)?;
    let is_on_ours = [0, config::system().interface_idx].contains(&control.interface_idx);
    let is_from_ours = control.source.is_none_or(|source| offload::is_own(engine, source));
    Ok((is_on_ours && is_from_ours).then_some(control))
}
