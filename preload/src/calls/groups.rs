//! Groups of datagram sockets. The twin takes each option of groups first, so that limits and
//! errors are the kernel's; what concerns our interface the offloaded socket takes as well. So a
//! group of another interface arrives by the twin, as the kernel's own senders to a group of ours
//! do.
//!
//! `IP_MULTICAST_LOOP`: a datagram that leaves by our interface goes to the twin too, with TTL 0,
//! while the kernel knows a member on this host: the kernel delivers it to all members, in this
//! program and in others, and lets it leave by no interface.

use core::ffi::c_int;
use core::net::{Ipv4Addr, SocketAddrV4};
use core::sync::atomic::{AtomicBool, Ordering};
use std::io::IoSlice;

use sockets::rules::{Decision, Role, Traffic};
use sockets::{Errno, Kind, SocketId};

use crate::address;
use crate::calls::offload;
use crate::engine::file::{Groups, Owner, Socket};
use crate::engine::group_members;
use crate::engine::options::{OptionCall, Options};
use crate::engine::table::FileId;
use crate::engine::{self, Engine};
use crate::{config, sys};

const IP_MSFILTER: c_int = 41;
const MCAST_JOIN_GROUP: c_int = 42;
const MCAST_LEAVE_GROUP: c_int = 45;
const MCAST_JOIN_SOURCE_GROUP: c_int = 46;
const MCAST_LEAVE_SOURCE_GROUP: c_int = 47;
const MCAST_MSFILTER: c_int = 48;
pub(crate) const IP_MULTICAST_ALL: c_int = 49;

/// Whether an option is one of groups: `IP_MULTICAST_IF` to `IP_MULTICAST_ALL`.
pub(crate) fn is_of_groups(level: c_int, name: c_int) -> bool {
    level == libc::IPPROTO_IP && (libc::IP_MULTICAST_IF..=IP_MULTICAST_ALL).contains(&name)
}

/// Whether the twin knows the value of an option of groups, and the engine does not.
pub(crate) fn is_the_twins(level: c_int, name: c_int) -> bool {
    level == libc::IPPROTO_IP
        && config::get().is_some_and(|config| config.own.is_none())
        && matches!(name, libc::IP_MULTICAST_IF | libc::IP_MULTICAST_LOOP | IP_MSFILTER | MCAST_MSFILTER)
}

/// Records an option that the twin has taken.
pub(crate) fn note(socket: &mut Socket, level: c_int, name: c_int, value: &[u8]) {
    if level != libc::IPPROTO_IP {
        return;
    }
    match name {
        libc::IP_MULTICAST_IF => {
            socket.groups.sends_by = interface_in(value);
        }
        libc::IP_MULTICAST_LOOP => {
            socket.groups.loops = word(value, 0).or(value.first().copied().map(u32::from)).is_some_and(|on| on != 0);
        }
        _ => (),
    }
}

/// The interface that `IP_MULTICAST_IF` names: its index, or its address.
fn interface_in(value: &[u8]) -> (u32, Ipv4Addr) {
    // `struct in_addr`, or `ip_mreq`, or `ip_mreqn`.
    let at = if value.len() >= 8 { 4 } else { 0 };
    (word(value, 8).unwrap_or(0), word(value, at).map_or(Ipv4Addr::UNSPECIFIED, address_of))
}

/// `setsockopt` of an option of groups on an offloaded socket.
pub(crate) fn set(engine: &mut Engine, file: FileId, name: c_int, value: &[u8]) -> Result<(), Errno> {
    let twin = engine.files.twin(file)?;
    let id = engine.files.socket(file)?.ours().ok_or(Errno::ENOTSOCK)?;
    if name == libc::IP_MULTICAST_TTL {
        // The twin's own value is 0 where its datagrams stay on this host.
        return engine.call(|sockets, cx| sockets.setsockopt(id, libc::IPPROTO_IP, name, value, cx));
    }
    if is_refused(engine, twin, name, value) {
        return Err(Errno::EACCES);
    }
    if !is_of_own_host(libc::IPPROTO_IP, name, value) {
        sys::setsockopt(twin, libc::IPPROTO_IP, name, value)?;
    }
    group_members::note_join();
    apply(engine, file, id, name, value).inspect_err(|_| leave_again(twin, name, value))
}

/// The call that has joined a group fails: the twin leaves it.
pub(crate) fn leave_again(twin: c_int, name: c_int, value: &[u8]) {
    if let Some(leaves) = leaving(name) {
        let _ = sys::setsockopt(twin, libc::IPPROTO_IP, leaves, value);
        group_members::note_join();
    }
}

/// The option that takes back one that joins a group.
fn leaving(name: c_int) -> Option<c_int> {
    match name {
        libc::IP_ADD_MEMBERSHIP => Some(libc::IP_DROP_MEMBERSHIP),
        libc::IP_ADD_SOURCE_MEMBERSHIP => Some(libc::IP_DROP_SOURCE_MEMBERSHIP),
        MCAST_JOIN_GROUP => Some(MCAST_LEAVE_GROUP),
        MCAST_JOIN_SOURCE_GROUP => Some(MCAST_LEAVE_SOURCE_GROUP),
        _ => None,
    }
}

/// Whether a flow was refused for a group that another engine has at the same port, where nothing
/// copies frames: they come to the queue of one engine, so neither this one nor the kernel's socket
/// would receive any. The call fails then, and a sentence says why.
pub(crate) fn is_another_engines(engine: &mut Engine, error: Errno, port: u16) -> bool {
    static HAS_SAID: AtomicBool = AtomicBool::new(false);
    let is_anothers = error == Errno::EADDRINUSE && offload::is_engines_port(engine);
    if is_anothers && !HAS_SAID.swap(true, Ordering::Relaxed) {
        config::say(format_args!(
            "a group at port {port} has come to another engine, or to another process, and nothing copies its frames: \
             join it in one thread, or start a broker with --forward"
        ));
    }
    is_anothers
}

/// Whether a datagram socket that is about to have this address receives groups there.
pub(crate) fn has_some(engine: &mut Engine, file: FileId, local: SocketAddrV4) -> bool {
    let has_joined = |socket: &mut Socket| !members(&socket.options).is_empty();
    local.ip().is_multicast() || (local.ip().is_unspecified() && engine.files.socket(file).is_ok_and(has_joined))
}

/// Applies an option that the twin has taken to the offloaded socket, as far as it concerns our
/// interface.
pub(crate) fn apply(engine: &mut Engine, file: FileId, id: SocketId, name: c_int, value: &[u8]) -> Result<(), Errno> {
    let twin = engine.files.twin(file)?;
    note(engine.files.socket(file)?, libc::IPPROTO_IP, name, value);
    let is_ours = match name {
        libc::IP_MULTICAST_LOOP => config::get().is_some_and(|config| config.own.is_some()),
        libc::IP_MULTICAST_IF => {
            let (idx, address) = engine.files.socket(file)?.groups.sends_by;
            (idx == 0 && address.is_unspecified()) || is_on_ours(engine, Ipv4Addr::UNSPECIFIED, idx, address)
        }
        libc::IP_MULTICAST_TTL | IP_MULTICAST_ALL => true,
        _ => match named(name, value) {
            Some((group, idx, address)) => {
                let role = joined(name, value).map_or(Role::Offload, |group| role_of(twin, group).role);
                !matches!(role, Role::Os | Role::Refuse) && is_on_ours(engine, group, idx, address)
            }
            None => false,
        },
    };
    if !is_ours {
        return Ok(());
    }
    let set = engine.call(|sockets, cx| sockets.setsockopt(id, libc::IPPROTO_IP, name, value, cx));
    match (set, joined(name, value)) {
        (Err(error), Some(_)) if is_another_engines(engine, error, port_of(twin)) => Err(error),
        // The twin has joined the group: its datagrams arrive by the kernel.
        (Err(error), Some(group)) if error != Errno::EADDRINUSE => {
            config::say(format_args!(
                "the group {group} arrives by the kernel: there is no rule for it (error {})",
                error.0
            ));
            Ok(())
        }
        // The twin has judged the value.
        (_, _) if is_membership(name) => Ok(()),
        (done, _) => done,
    }
}

/// Whether an option of groups is for a host of our own alone: the twin does not speak for it.
pub(crate) fn is_of_own_host(level: c_int, name: c_int, value: &[u8]) -> bool {
    let Some(host) = config::get().and_then(|config| config.own.as_ref()) else { return false };
    let is_ours = |idx: u32, address: Ipv4Addr| match idx {
        0 => address.is_unspecified() || host.addresses.iter().any(|own| own.address() == address),
        idx => idx == config::system().interface_idx,
    };
    match name {
        _ if !is_of_groups(level, name) => false,
        libc::IP_MULTICAST_IF => {
            let (idx, address) = interface_in(value);
            is_ours(idx, address)
        }
        libc::IP_MULTICAST_LOOP => true,
        _ => named(name, value).is_some_and(|(_, idx, address)| is_ours(idx, address)) && is_membership(name),
    }
}

/// The engine itself does not loop datagrams back: the twin does, for all members on this host,
/// unless the host is our own.
pub(crate) fn leave_loop_to_twin(engine: &mut Engine, id: SocketId) -> Result<(), Errno> {
    if config::get().is_some_and(|config| config.own.is_some()) {
        return Ok(());
    }
    engine.call(|sockets, cx| {
        let options = sockets::Options { multicast_loop: false, ..sockets.options(id)? };
        sockets.set_options(id, &options, cx)
    })
}

/// Whether datagrams of a socket to a group leave by our interface (Linux `udp_sendmsg`,
/// `ip_route_output_key_hash_rcu`): `IP_MULTICAST_IF` decides, then the bound address, then the
/// route.
pub(crate) fn leave_by_ours(engine: &mut Engine, groups: &Groups, local: Ipv4Addr, group: Ipv4Addr) -> bool {
    let (idx, address) = groups.sends_by;
    let address = if address.is_unspecified() && !local.is_multicast() { local } else { address };
    is_on_ours(engine, group, idx, address)
}

/// Sends a datagram to a group by another interface, from the twin, with its control messages.
pub(crate) fn send_by_twin(
    engine: &mut Engine,
    file: FileId,
    parts: &[IoSlice<'_>],
    (group, control): (SocketAddrV4, &[u8]),
    flags: c_int,
) -> Option<Result<usize, Errno>> {
    let socket = engine.files.socket(file).ok()?;
    let (groups, family, id) = (socket.groups, socket.family, socket.ours()?);
    if !groups.stays_on_host {
        // The caller passes the call on as it is.
        return None;
    }
    let ttl = engine.look(|sockets| sockets.options(id)).map_or(1, |options| options.multicast_ttl);
    let twin = engine.files.twin(file).ok()?;
    let (address, len) = address::format(group, family);
    Some(sys::send_with_ttl(twin, parts, &address[..len], flags, (ttl, control)))
}

/// Delivers a datagram that was sent to a group to the members on this host (`IP_MULTICAST_LOOP`).
pub(crate) fn loop_back(engine: &mut Engine, file: FileId, parts: &[IoSlice<'_>], group: SocketAddrV4, flags: c_int) {
    let Ok(socket) = engine.files.socket(file) else { return };
    let (groups, family, id) = (socket.groups, socket.family, socket.ours());
    if !groups.loops || config::get().is_some_and(|config| config.own.is_some()) {
        return;
    }
    // The parts of one datagram are all for the members here, or none is.
    let is_copied = groups.is_part_copied.unwrap_or_else(|| engine.has_members(*group.ip()));
    let is_corked = id.is_some_and(|id| engine.look(|sockets| sockets.option(id, |options| options.cork)) == Ok(true));
    if let Ok(socket) = engine.files.socket(file) {
        socket.groups.is_part_copied = (is_corked || flags & libc::MSG_MORE != 0).then_some(is_copied);
    }
    if !is_copied {
        return;
    }
    let Ok(twin) = engine.files.twin(file) else { return };
    if !groups.stays_on_host {
        if sys::setsockopt(twin, libc::IPPROTO_IP, libc::IP_MULTICAST_TTL, &0_i32.to_ne_bytes()).is_err() {
            return;
        }
        if let Ok(socket) = engine.files.socket(file) {
            socket.groups.stays_on_host = true;
        }
    }
    let (address, len) = address::format(group, family);
    let flags = flags & libc::MSG_MORE | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // The kernel drops it where a receiver has no room, too.
    let _ = sys::send_with_ttl(twin, parts, &address[..len], flags, (0, &[]));
}

/// The engine has taken `UDP_CORK`: the twin's part of the datagram, or one that the twin has
/// begun, waits and leaves as ours does.
pub(crate) fn mirror_cork(engine: &mut Engine, file: FileId, value: &[u8]) {
    if let (Ok(twin), Ok(socket)) = (engine.files.twin(file), engine.files.socket(file)) {
        socket.groups.is_part_copied = None;
        socket.note(libc::IPPROTO_UDP, libc::UDP_CORK, value);
        // Of its copies nobody but their members hears.
        let _ = sys::setsockopt(twin, libc::IPPROTO_UDP, libc::UDP_CORK, value);
    }
}

/// Restores the twin of a socket that is the kernel's from now on.
pub(crate) fn restore_twin(engine: &mut Engine, file: FileId, id: SocketId) {
    let (Ok(twin), Ok(socket)) = (engine.files.twin(file), engine.files.socket(file)) else { return };
    if core::mem::take(&mut socket.groups.stays_on_host) {
        let ttl = engine.look(|sockets| sockets.options(id)).map_or(1, |options| options.multicast_ttl);
        let _ = sys::setsockopt(twin, libc::IPPROTO_IP, libc::IP_MULTICAST_TTL, &i32::from(ttl).to_ne_bytes());
    }
}

/// The role of a group that a socket joins; the port is that of its twin.
fn role_of(twin: c_int, group: Ipv4Addr) -> Decision<'static> {
    let Some(config) = config::get() else { return Decision { role: Role::Os, why: "no interface is named" } };
    config.role(Traffic::UdpReceiver, SocketAddrV4::new(group, port_of(twin)), None)
}

fn port_of(twin: c_int) -> u16 {
    offload::name_of(twin).map_or(0, |local| local.port())
}

/// Whether the rules refuse the group that an option joins, where it joins by our interface.
fn is_refused(engine: &mut Engine, twin: c_int, name: c_int, value: &[u8]) -> bool {
    let Some((group, idx, address)) = named(name, value).filter(|_| joined(name, value).is_some()) else {
        return false;
    };
    // Of an interface that could not be opened it is not known which groups are routed by it.
    role_of(twin, group).role == Role::Refuse && (!offload::open(engine) || is_on_ours(engine, group, idx, address))
}

/// The same of a datagram socket that is not ours.
pub(crate) fn is_refused_of_twin(file: FileId, name: c_int, value: &[u8]) -> bool {
    let mut engine = engine::enter(file);
    let is_datagrams = engine.files.socket(file).is_ok_and(|socket| socket.kind == Kind::Datagram);
    let Ok(twin) = engine.files.twin(file) else { return false };
    is_datagrams && is_refused(&mut engine, twin, name, value)
}

/// Whether the rules give us a group that a datagram socket has joined by our interface, although
/// they leave its address, the wildcard, to the kernel. A feed's receiver mostly binds no group.
pub(crate) fn one_is_ours(engine: &mut Engine, file: FileId) -> Result<bool, Errno> {
    let twin = engine.files.twin(file)?;
    let socket = engine.files.socket(file)?;
    let is_open = socket.kind == Kind::Datagram && socket.place == Owner::Undecided && !socket.is_refused;
    let gives = config::get().is_some_and(|config| config.gives_groups);
    let is_bound = || offload::name_of(twin).is_some_and(|local| local.ip().is_unspecified() && local.port() != 0);
    if !gives || !is_open || !is_bound() || socket.stays_the_kernels(twin).is_some() {
        return Ok(false);
    }
    let given = |(group, _, _): &(Ipv4Addr, u32, Ipv4Addr)| match role_of(twin, *group) {
        decision if matches!(decision.role, Role::Offload | Role::Both) => Some(decision),
        _ => None,
    };
    let of_us: Vec<_> =
        members(&socket.options).into_iter().filter_map(|named| Some((given(&named)?, named))).collect();
    if of_us.is_empty() || !offload::open(engine) || engine.lose_if_gone() {
        return Ok(false);
    }
    let by_ours = of_us.into_iter().find(|(_, (group, idx, address))| is_on_ours(engine, *group, *idx, *address));
    let Some((decision, _)) = by_ours else { return Ok(false) };
    let socket = engine.files.socket(file)?;
    (socket.why, socket.is_both) = (decision.why, decision.role == Role::Both);
    Ok(true)
}

/// The groups that a socket has joined and not left, each with the interface's index and address.
fn members(options: &Options) -> Vec<(Ipv4Addr, u32, Ipv4Addr)> {
    let mut members = Vec::new();
    for OptionCall { name, value, .. } in options.iter().filter(|call| is_of_groups(call.level, call.name)) {
        let Some(membership) = named(*name, value) else { continue };
        if joined(*name, value).is_some() {
            members.push(membership);
        } else if matches!(*name, libc::IP_DROP_MEMBERSHIP | MCAST_LEAVE_GROUP) {
            members.retain(|(group, ..)| *group != membership.0);
        }
    }
    members
}

/// Whether an option names our interface (Linux `ip_mc_find_dev`): by its index, by an address, or
/// by the route to the group.
fn is_on_ours(engine: &mut Engine, group: Ipv4Addr, idx: u32, address: Ipv4Addr) -> bool {
    match idx {
        0 if address.is_unspecified() => offload::is_routed_by_ours(engine, group),
        0 => offload::is_own(engine, address),
        idx => idx == config::system().interface_idx,
    }
}

/// The group, the interface's index and its address, in an option of a membership.
fn named(name: c_int, value: &[u8]) -> Option<(Ipv4Addr, u32, Ipv4Addr)> {
    if name >= MCAST_JOIN_GROUP {
        // An index, then the group in a `struct sockaddr_storage`.
        let family = u16::from_ne_bytes(value.get(8..10)?.try_into().ok()?);
        return (c_int::from(family) == libc::AF_INET)
            .then(|| Some((word(value, 12).map(address_of)?, word(value, 0)?, Ipv4Addr::UNSPECIFIED)))?;
    }
    let [group, address] = [word(value, 0)?, word(value, 4)?].map(address_of);
    let is_of_group = matches!(name, libc::IP_ADD_MEMBERSHIP | libc::IP_DROP_MEMBERSHIP);
    Some((group, if is_of_group { word(value, 8).unwrap_or(0) } else { 0 }, address))
}

/// The group that an option joins.
fn joined(name: c_int, value: &[u8]) -> Option<Ipv4Addr> {
    let joins = matches!(
        name,
        libc::IP_ADD_MEMBERSHIP | libc::IP_ADD_SOURCE_MEMBERSHIP | MCAST_JOIN_GROUP | MCAST_JOIN_SOURCE_GROUP
    );
    named(name, value).filter(|_| joins).map(|(group, ..)| group)
}

fn is_membership(name: c_int) -> bool {
    (libc::IP_ADD_MEMBERSHIP..IP_MULTICAST_ALL).contains(&name)
}

fn word(value: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(value.get(at..at + 4)?.try_into().ok()?))
}

/// An address in the order of the network.
fn address_of(word: u32) -> Ipv4Addr {
    Ipv4Addr::from(word.to_ne_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_of_a_membership_names_its_interface() {
        let group = [239, 1, 1, 1];
        let mreq = [group, [192, 0, 2, 1]].concat();
        let named_by = |name, value: &[u8]| named(name, value).map(|(_, idx, address)| (idx, address));
        assert_eq!(named_by(libc::IP_ADD_MEMBERSHIP, &mreq), Some((0, Ipv4Addr::new(192, 0, 2, 1))));
        let mreqn = [&mreq[..], &7_u32.to_ne_bytes()].concat();
        assert_eq!(named_by(libc::IP_ADD_MEMBERSHIP, &mreqn), Some((7, Ipv4Addr::new(192, 0, 2, 1))));
        // The third word is the source.
        assert_eq!(named_by(libc::IP_ADD_SOURCE_MEMBERSHIP, &mreqn), Some((0, Ipv4Addr::new(192, 0, 2, 1))));
        let mut request = vec![0; 136];
        request[..4].copy_from_slice(&7_u32.to_ne_bytes());
        request[8..10].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
        request[12..16].copy_from_slice(&group);
        assert_eq!(named(MCAST_JOIN_GROUP, &request), Some((group.into(), 7, Ipv4Addr::UNSPECIFIED)));
        assert_eq!(named(MCAST_JOIN_GROUP, &request[..9]), None);
    }
}
