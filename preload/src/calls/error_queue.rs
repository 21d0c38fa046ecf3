//! The error queues of offloaded sockets (`MSG_ERRQUEUE`), and of their twins: what a twin sends
//! (loopback, other interfaces) may fail as well, and the kernel also gives a twin the ICMP errors
//! about flows of ours.

use core::ffi::c_int;
use core::net::{Ipv4Addr, SocketAddrV4};
use std::io::IoSliceMut;

use sockets::{ControlMessage, Errno, ErrorOrigin, MessageTimestamps, QueuedError, SocketId, Timestamping};

use crate::address::{self, Address, Family};
use crate::calls::offload;
use crate::engine::file::Owner;
use crate::engine::table::FileId;
use crate::engine::{self, Engine};
use crate::{config, probe, sys};

/// Entries of a twin that one look takes.
const ABSORBED_MAX: usize = 64;
/// Options whose messages carry times, in both forms.
const TIMES: [c_int; 6] = [29, 35, 37, 63, 64, 65];
const TIMESTAMPING: [c_int; 2] = [37, 65];
const SO_ZEROCOPY: c_int = 60;

/// An entry of the error queue, as `recvmsg` returns it.
pub(crate) struct Received {
    /// Bytes in the caller's buffers.
    pub(crate) len: usize,
    pub(crate) family: Family,
    pub(crate) destination: Option<SocketAddrV4>,
    pub(crate) is_cut: bool,
    pub(crate) control: Vec<ControlMessage>,
}

/// `recvmsg` with `MSG_ERRQUEUE`, which never waits. `None`: the file is not ours.
pub(crate) fn receive(file: FileId, parts: &mut [IoSliceMut<'_>]) -> Option<Result<Received, Errno>> {
    let mut engine = engine::enter(file);
    let twin = engine.files.twin(file).ok()?;
    let socket = engine.files.socket(file).ok()?;
    let family = socket.family;
    let Owner::Ours { id, hears_twin } = socket.place else { return None };
    let mut taken = take(&mut engine, id, family, parts);
    if matches!(taken, Err(Errno::EAGAIN)) {
        // The error or the stamp may have arrived, although no call has received it.
        engine.turn();
        // Without `IP_RECVERR` the twin keeps no errors.
        let keeps = engine.look(|sockets| Ok(sockets.options(id)?.receive_errors)).unwrap_or(false);
        if hears_twin && keeps {
            absorb(&mut engine, id, twin);
        }
        taken = take(&mut engine, id, family, parts);
    }
    Some(taken)
}

/// Takes the oldest entry.
fn take(engine: &mut Engine, id: SocketId, family: Family, parts: &mut [IoSliceMut<'_>]) -> Result<Received, Errno> {
    engine.call(|sockets, _| {
        let (_, entry) = sockets.recv_error(id, &mut [])?;
        // As on Linux, an entry whose bytes do not fit in memory of the program is lost.
        if !probe::are_writable(parts, entry.payload.len()) {
            return Err(Errno(libc::EFAULT));
        }
        let len = copy(&entry.payload, parts);
        let mut control = sockets.error_time_messages(id, &entry)?;
        let wanted = sockets.options(id)?.ancillary;
        if let Some(packet) = entry.packet {
            if wanted.packet_info {
                // The kernel leaves the local address of an ICMP error out.
                let source = if entry.origin == ErrorOrigin::Icmp { Ipv4Addr::UNSPECIFIED } else { packet.source };
                let words =
                    [config::system().interface_idx.to_ne_bytes(), source.octets(), packet.destination.octets()];
                control.push((libc::IPPROTO_IP, libc::IP_PKTINFO, words.concat()));
            }
            if wanted.ttl {
                control.push((libc::IPPROTO_IP, libc::IP_TTL, c_int::from(packet.ttl).to_ne_bytes().to_vec()));
            }
            if wanted.tos {
                control.push((libc::IPPROTO_IP, libc::IP_TOS, vec![packet.tos]));
            }
        }
        control.push(extended_error(&entry, family));
        let is_cut = len < entry.payload.len();
        Ok(Received { len, family, destination: entry.destination, is_cut, control })
    })
}

/// Copies as many bytes as fit, and returns their number.
fn copy(bytes: &[u8], parts: &mut [IoSliceMut<'_>]) -> usize {
    let mut left = bytes;
    for part in parts {
        let (now, rest) = left.split_at(left.len().min(part.len()));
        part[..now.len()].copy_from_slice(now);
        left = rest;
    }
    bytes.len() - left.len()
}

/// `struct sock_extended_err`, and the address of the offender behind it.
fn extended_error(entry: &QueuedError, family: Family) -> ControlMessage {
    let mut value = Vec::with_capacity(16 + address::ADDRESS_LEN);
    value.extend((entry.errno.0 as u32).to_ne_bytes());
    value.extend([entry.origin as u8, entry.kind, entry.code, 0]);
    value.extend(entry.info.to_ne_bytes());
    value.extend(entry.data.to_ne_bytes());
    let (offender, len) =
        address::format(SocketAddrV4::new(entry.offender.unwrap_or(Ipv4Addr::UNSPECIFIED), 0), family);
    // Without an offender the address has no family either.
    value.extend(if entry.offender.is_some() { &offender[..len] } else { &[0; address::ADDRESS_LEN][..len] });
    match family {
        Family::Inet => (libc::IPPROTO_IP, libc::IP_RECVERR, value),
        Family::Inet6 => (libc::IPPROTO_IPV6, libc::IPV6_RECVERR, value),
    }
}

/// Takes the errors of a twin: those about flows of ours are known to us by another way, the others
/// join those of the socket. Otherwise the twin would wake each `poll`.
pub(crate) fn absorb(engine: &mut Engine, id: SocketId, twin: c_int) {
    for _ in 0..ABSORBED_MAX {
        let (mut name, mut bytes, mut control) = ([0; 128], [0; 1_024], [0; 512]);
        let Ok(taken) = sys::receive_error(twin, &mut name, &mut bytes, &mut control) else { break };
        let destination = match address::parse(&name[..taken.name_len]) {
            Address::V4(destination) => Some(destination),
            Address::Unspecified | Address::Other => None,
        };
        let is_known = destination.is_none_or(|to| offload::goes_by_ours(engine, *to.ip()));
        if is_known {
            continue;
        }
        let entry = parse(&control[..taken.control_len], destination, &bytes[..taken.len.min(bytes.len())]);
        if let Some(entry) = entry {
            let errno = entry.errno;
            let _ = engine.call(|sockets, _| {
                sockets.push_error(id, entry.clone())?;
                sockets.restore_error(id, errno)
            });
        }
    }
    // Reading the error clears it.
    let _ = sys::getsockopt_int(twin, libc::SOL_SOCKET, libc::SO_ERROR);
}

/// The entry in the control messages of a twin.
fn parse(mut control: &[u8], destination: Option<SocketAddrV4>, payload: &[u8]) -> Option<QueuedError> {
    /// Bytes of a `struct cmsghdr`, and of a `struct sock_extended_err`.
    const HEADER: usize = 16;
    const ERROR: usize = 16;
    let word = |bytes: &[u8], at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    loop {
        let len = usize::from_ne_bytes(control.get(..8)?.try_into().ok()?);
        let (level, kind) = (word(control, 8)? as c_int, word(control, 12)? as c_int);
        let value = control.get(HEADER..len)?;
        let is_error =
            matches!((level, kind), (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR));
        if !is_error {
            control = control.get(len.next_multiple_of(8)..)?;
            continue;
        }
        let origin = match *value.get(4)? {
            1 => ErrorOrigin::Local,
            2 => ErrorOrigin::Icmp,
            _ => return None,
        };
        let offender = match address::parse(value.get(ERROR..)?) {
            Address::V4(offender) => Some(*offender.ip()),
            Address::Unspecified | Address::Other => None,
        };
        return Some(QueuedError {
            errno: Errno(word(value, 0)? as i32),
            origin,
            kind: *value.get(5)?,
            code: *value.get(6)?,
            info: word(value, 8)?,
            data: word(value, 12)?,
            offender,
            destination,
            payload: payload.into(),
            packet: None,
            times: MessageTimestamps::default(),
        });
    }
}

/// Gives a twin an option that an offloaded socket has just taken, if it concerns datagrams that
/// the twin receives, or its errors. The twin stamps nothing that it sends, and completes nothing:
/// copies of datagrams to groups leave by it.
pub(crate) fn mirror(twin: c_int, level: c_int, name: c_int, value: &[u8]) {
    let is_ours = match level {
        libc::SOL_SOCKET => TIMES.contains(&name),
        libc::IPPROTO_IP => name == libc::IP_RECVERR,
        _ => false,
    };
    if !is_ours {
        return;
    }
    let mut value = value.to_vec();
    if level == libc::SOL_SOCKET
        && TIMESTAMPING.contains(&name)
        && let Some(flags) = value.first_chunk_mut::<4>()
    {
        *flags = (u32::from_ne_bytes(*flags) & !Timestamping::TX_RECORD.0).to_ne_bytes();
    }
    // The engine has checked the value.
    let _ = sys::setsockopt(twin, level, name, &value);
}

/// Takes from the twin of a socket that becomes offloaded what only the engine does from now on.
pub(crate) fn withdraw(twin: c_int, level: c_int, name: c_int, value: &[u8]) {
    match (level, name) {
        (libc::SOL_SOCKET, SO_ZEROCOPY) => _ = sys::setsockopt(twin, level, name, &0_u32.to_ne_bytes()),
        (libc::SOL_SOCKET, name) if TIMESTAMPING.contains(&name) => mirror(twin, level, name, value),
        _ => (),
    }
}
