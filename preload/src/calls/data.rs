//! Receives from and sends on offloaded sockets, for all forms of the calls.

use core::ffi::c_int;
use core::net::{Ipv4Addr, SocketAddrV4};
use core::sync::atomic::{AtomicBool, Ordering};
use std::io::{IoSlice, IoSliceMut};

use sockets::rules::{Role, Traffic};
use sockets::{ControlMessage, DatagramInfo, Errno, Kind, Options, Ready, RecvFlags, SendControl, SendFlags, SocketId};

use crate::address::{self, Address, Family};
use crate::calls::{self, Direction, Outcome, epoll_twins, error_queue, groups, offload};
use crate::engine::file::{ANY, FileKind, Groups, Owner, Socket};
use crate::engine::table::FileId;
use crate::engine::wait::{self, Blocking, Sides, readable};
use crate::engine::{self, Engine, EngineGuard, WaitFor, thread};
use crate::{config, probe, sys};
use Outcome::{Ours, Pass};

/// The result of a receive call, beside the bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received {
    /// Bytes in the caller's buffers; with `MSG_TRUNC` the length of the whole datagram.
    pub(crate) len: usize,
    /// For a datagram: its sender and other metadata.
    pub(crate) info: Option<DatagramInfo>,
    /// The address to return: the datagram's sender, or the destination of one that failed.
    pub(crate) name: Option<SocketAddrV4>,
    pub(crate) family: Family,
    /// `msg_flags`.
    pub(crate) flags: c_int,
    /// The program has asked for control messages.
    pub(crate) has_control: bool,
}

impl Received {
    fn nothing(target: &Target) -> Self {
        Self { len: 0, info: None, name: None, family: target.family, flags: 0, has_control: false }
    }
}

/// The control messages that the program has asked for, of a datagram or of the bytes that were
/// just read.
pub(crate) fn control(file: FileId, received: &Received) -> Vec<ControlMessage> {
    if received.has_control { control_messages(&mut engine::enter(file), file, received) } else { Vec::new() }
}

fn control_messages(engine: &mut Engine, file: FileId, received: &Received) -> Vec<ControlMessage> {
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

/// An offloaded socket, with the values that the calls of this file need.
#[derive(Clone, Copy)]
struct Target {
    id: SocketId,
    twin: c_int,
    family: Family,
    kind: Kind,
    hears_twin: bool,
    /// The twin has its turn even while the engine has more.
    is_both: bool,
    /// The group that it is connected to.
    peer_group: Option<SocketAddrV4>,
    is_nonblocking: bool,
    /// Its control messages have those of IPv6 among them.
    receives_info6: bool,
}

/// `recv` and its family. [`Pass`] if the twin has the next bytes or datagram.
pub(crate) fn receive(file: FileId, parts: &mut [IoSliceMut<'_>], flags: c_int) -> Outcome<Received> {
    thread::test_cancel();
    match flags {
        _ if flags & libc::MSG_OOB != 0 => return Ours(Err(Errno::EINVAL)),
        _ if flags & libc::MSG_ERRQUEUE != 0 => {
            let Some(received) = error_queue::receive(file, parts) else { return Pass };
            return Ours(received.map(|received| Received {
                len: received.len,
                info: None,
                name: received.destination,
                family: received.family,
                flags: libc::MSG_ERRQUEUE,
                has_control: false,
            }));
        }
        _ => (),
    }
    let (target, least, first) = {
        let mut engine = engine::enter(file);
        let Ok(target) = target(&mut engine, file) else { return Pass };
        let least = least_of(&mut engine, &target, parts, flags);
        let first = receive_at_once(&mut engine, &target, parts, flags);
        if matches!(first, Err(Errno::EAGAIN))
            && (target.is_nonblocking || flags & libc::MSG_DONTWAIT != 0)
            && let Ok(socket) = engine.files.socket(file)
        {
            socket.would_block += 1;
        }
        (target, least, first)
    };
    let received = match first {
        Err(Errno::EAGAIN) if !target.is_nonblocking && flags & libc::MSG_DONTWAIT == 0 => {
            receive_in_time(file, &target, parts, flags, least, None)
        }
        Ok(Some(received)) if (1..least).contains(&received.len) => {
            receive_in_time(file, &target, parts, flags, least, Some(received))
        }
        done => {
            thread::set_time_left(None);
            done
        }
    };
    match received {
        Ok(Some(received)) => Ours(Ok(received)),
        Ok(None) => {
            if let Ok(socket) = engine::enter(file).files.socket(file) {
                socket.twin_reads += 1;
            }
            Pass
        }
        Err(error) => Ours(Err(error)),
    }
}

/// Receives by one timeout what a first attempt has not: anything where it had nothing, and the
/// rest of the bytes that it returns at least.
fn receive_in_time(
    file: FileId,
    target: &Target,
    parts: &mut [IoSliceMut<'_>],
    flags: c_int,
    least: usize,
    first: Option<Received>,
) -> Result<Option<Received>, Errno> {
    let mut blocking = match (calls::blocking(file, target.id, flags, Direction::Receive), first) {
        (Ok(blocking), _) => blocking,
        (Err(error), None) => return Err(error),
        (Err(_), first) => return Ok(first),
    };
    let first = match first {
        None => wait_to_receive(&mut blocking, file, target, parts, flags)?,
        first => first,
    };
    Ok(match first {
        Some(first) if (1..least).contains(&first.len) => {
            Some(receive_all(&mut blocking, file, target, parts, flags, least, first))
        }
        first => first,
    })
}

/// Waits before a receive that would wait in the kernel for a datagram socket without an address:
/// another thread's first send may offload it meanwhile, and then its datagrams never reach the
/// twin. Returns once the socket is offloaded, or the twin has something.
///
/// # Errors
/// Those of the receive: `EAGAIN` after `SO_RCVTIMEO`, `EINTR`.
pub(crate) fn await_owner(file: FileId, flags: c_int) -> Result<(), Errno> {
    thread::set_time_left(None);
    let is_undecided = |engine: &mut Engine| {
        let socket = engine.files.socket(file);
        socket.is_ok_and(|socket| socket.kind == Kind::Datagram && socket.place == Owner::Undecided)
    };
    let twin = {
        let mut engine = engine::enter(file);
        if flags & (libc::MSG_DONTWAIT | libc::MSG_ERRQUEUE) != 0
            || !is_undecided(&mut engine)
            || engine.files.is_nonblocking(file)
        {
            return Ok(());
        }
        engine.files.twin(file)?
    };
    // `bind` has decided about one that has a port, unless a group may give it to us.
    let gives_groups = config::get().is_some_and(|config| config.gives_groups);
    if offload::name_of(twin).is_none_or(|local| local.port() != 0 && !gives_groups) {
        return Ok(());
    }
    thread::test_cancel();
    thread::begin_call();
    let mut blocking = Blocking::of_socket(false, sys::receive_timeout(twin));
    wait::until(&mut blocking, file.room(), WaitFor::Any, &[readable(twin)], |engine, _| {
        if is_undecided(engine) && sys::ppoll(&mut [readable(twin)], Some(0)) == Ok(0) {
            return Err(Errno::EAGAIN);
        }
        Ok(())
    })
}

/// Receives what is there. The kernel's side is checked only by a call that does not wait: one that
/// does begins with the engine's, and checks the kernel's while it polls.
fn receive_at_once(
    engine: &mut Engine,
    target: &Target,
    parts: &mut [IoSliceMut<'_>],
    flags: c_int,
) -> Result<Option<Received>, Errno> {
    let first = wait::attempt_and_turn(engine, Sides::Ours, &mut |engine, sides| {
        receive_once(engine, target, parts, flags, sides)
    });
    let is_last = target.is_nonblocking || flags & libc::MSG_DONTWAIT != 0;
    match first {
        Err(Errno::EAGAIN) if is_last && target.hears_twin => receive_once(engine, target, parts, flags, Sides::Both),
        done => done,
    }
}

/// Receives several datagrams without waiting, as `recvmmsg` does after the first one: under one
/// lock, and with one turn of the worker for all of them.
pub(crate) struct Batch {
    engine: EngineGuard,
    file: FileId,
    target: Target,
    has_turned: bool,
}

impl Batch {
    /// `None` if the socket is no longer ours.
    pub(crate) fn begin(file: FileId) -> Option<Self> {
        let mut engine = engine::enter(file);
        let target = target(&mut engine, file).ok()?;
        Some(Self { engine, file, target, has_turned: false })
    }

    /// The next datagram of the engine's; `EAGAIN` if there is none.
    pub(crate) fn receive(&mut self, parts: &mut [IoSliceMut<'_>], flags: c_int) -> Result<Received, Errno> {
        let Self { engine, target, has_turned, .. } = self;
        let mut received = receive_once(engine, target, parts, flags, Sides::Ours);
        if received.as_ref().is_err_and(|error| *error == Errno::EAGAIN) && !core::mem::replace(has_turned, true) {
            engine.turn();
            received = receive_once(engine, target, parts, flags, Sides::Ours);
        }
        received.and_then(|received| received.ok_or(Errno::EAGAIN))
    }

    /// The control messages of a datagram.
    pub(crate) fn control(&mut self, received: &Received) -> Vec<ControlMessage> {
        control_messages(&mut self.engine, self.file, received)
    }
}

/// Receives the rest of the bytes that a stream returns at least, as they come, until the end of
/// the stream, an error or a signal: bytes that were left until all are there would fill the
/// receive buffer, and then no more would come.
fn receive_all(
    blocking: &mut Blocking,
    file: FileId,
    target: &Target,
    parts: &mut [IoSliceMut<'_>],
    flags: c_int,
    least: usize,
    first: Received,
) -> Received {
    let mut filled = first.len;
    blocking.note_moved();
    if flags & libc::MSG_PEEK != 0 {
        return peek_all(blocking, file, target, parts, flags, least, first);
    }
    let mut rest: Vec<IoSliceMut<'_>> = parts.iter_mut().map(|part| IoSliceMut::new(part)).collect();
    let mut rest = &mut rest[..];
    IoSliceMut::advance_slices(&mut rest, filled);
    while filled < least {
        match wait_to_receive(blocking, file, target, rest, flags) {
            Ok(Some(Received { len: count @ 1.., .. })) => {
                filled += count;
                IoSliceMut::advance_slices(&mut rest, count);
            }
            Err(error) => {
                report_later(file, target, error);
                break;
            }
            Ok(_) => break,
        }
    }
    Received { len: filled, ..first }
}

/// Waits until that many bytes are there, or no more come, and looks at them (`MSG_PEEK` with
/// `MSG_WAITALL`, or with a low water). A full receive buffer ends the wait: Linux would merge
/// short segments, and so have room for more, and waits for ever where that is not enough.
fn peek_all(
    blocking: &mut Blocking,
    file: FileId,
    target: &Target,
    parts: &mut [IoSliceMut<'_>],
    flags: c_int,
    least: usize,
    first: Received,
) -> Received {
    if !blocking.is_nonblocking {
        // Whatever ends the wait, there are bytes to report.
        let _ = await_bytes(blocking, file, target, least);
    }
    let seen = receive_once(&mut engine::enter(file), target, parts, flags, Sides::Ours);
    seen.ok().flatten().unwrap_or(first)
}

/// Waits until a stream has that many bytes, or no more come.
fn await_bytes(blocking: &mut Blocking, file: FileId, target: &Target, wanted: usize) -> Result<(), Errno> {
    wait::until(blocking, file.room(), WaitFor::Any, &[], |engine, _| {
        let (len, is_full, ready) = engine.look(|sockets| {
            Ok((sockets.readable_len(target.id)?, sockets.is_full(target.id)?, sockets.ready(target.id)?))
        })?;
        let has_ended = !ready.among(Ready::RDHUP | Ready::HUP | Ready::ERR).is_none();
        if len >= wanted || is_full || has_ended { Ok(()) } else { Err(Errno::EAGAIN) }
    })
}

/// A socket of the process was given a low water above 1 once (`SO_RCVLOWAT`): from then on the
/// receives on streams look for that of their own.
pub(super) static SETS_LOW_WATER: AtomicBool = AtomicBool::new(false);

/// The bytes that a receive returns at least, where it may wait and more come: on a stream all that
/// it asks for with `MSG_WAITALL`, and otherwise those of the low water (Linux `sock_rcvlowat`).
fn least_of(engine: &mut Engine, target: &Target, parts: &[IoSliceMut<'_>], flags: c_int) -> usize {
    let asked = || parts.iter().map(|part| part.len()).sum::<usize>();
    let has_low_water = || SETS_LOW_WATER.load(Ordering::Relaxed);
    let may_wait = !target.is_nonblocking && flags & libc::MSG_DONTWAIT == 0;
    match target.kind {
        Kind::Stream if flags & libc::MSG_WAITALL != 0 => asked(),
        Kind::Stream if may_wait && has_low_water() => {
            let low_water =
                engine.look(|sockets| sockets.option(target.id, |options| options.receive_low_water as usize));
            asked().min(low_water.unwrap_or(1))
        }
        _ => 1,
    }
}

fn wait_to_receive(
    blocking: &mut Blocking,
    file: FileId,
    target: &Target,
    parts: &mut [IoSliceMut<'_>],
    flags: c_int,
) -> Result<Option<Received>, Errno> {
    if blocking.is_nonblocking {
        return Err(Errno::EAGAIN);
    }
    let twin = [readable(target.twin)];
    let twin = if target.hears_twin { &twin[..] } else { &[] };
    // With a low water, bytes that are fewer do not make the stream readable, and are taken.
    let has_low_water = target.kind == Kind::Stream
        && SETS_LOW_WATER.load(Ordering::Relaxed)
        && engine::enter(file).look(|sockets| sockets.option(target.id, |options| options.receive_low_water > 1))?;
    let interest = match has_low_water {
        true => WaitFor::Any,
        false => WaitFor::Socket(target.id, Ready::IN),
    };
    wait::until(blocking, file.room(), interest, twin, |engine, sides| {
        match receive_once(engine, target, parts, flags, sides) {
            // After `SHUT_RD` a call that would wait returns 0.
            Err(Errno::EAGAIN) if target.kind == Kind::Datagram => {
                engine.look(|sockets| sockets.end_of_datagrams(target.id))?;
                // What the twin received before is read first.
                let has_more = target.hears_twin && has_input(engine, target);
                Ok(if has_more { None } else { Some(Received::nothing(target)) })
            }
            done => done,
        }
    })
}

/// Receives once; `None` if the twin has the next bytes or datagram.
fn receive_once(
    engine: &mut Engine,
    target: &Target,
    parts: &mut [IoSliceMut<'_>],
    flags: c_int,
    sides: Sides,
) -> Result<Option<Received>, Errno> {
    if target.is_both && target.hears_twin && engine::is_twins_turn() && has_input(engine, target) {
        return Ok(None);
    }
    let asked = RecvFlags { peek: flags & libc::MSG_PEEK != 0, truncate: flags & libc::MSG_TRUNC != 0 };
    refuse_bad_buffers(engine, target, parts, asked)?;
    let received = engine.receive(|sockets, cx| {
        let (len, info) = sockets.recv_parts(target.id, parts, asked, cx)?;
        Ok((len, info, sockets.option(target.id, Options::asks_for_control)?))
    });
    match received {
        Ok((len, info, asks)) => {
            let is_cut = info.is_some_and(|info| info.len > parts.iter().map(|part| part.len()).sum());
            let flags = if is_cut { libc::MSG_TRUNC } else { 0 };
            let (name, has_control) = (info.map(|info| info.source), asks | target.receives_info6);
            Ok(Some(Received { len, info, name, family: target.family, flags, has_control }))
        }
        Err(Errno::EAGAIN) if sides == Sides::Both && target.hears_twin && has_input(engine, target) => Ok(None),
        Err(error) => Err(error),
    }
}

/// `EFAULT` if the bytes that wait do not fit in memory of the program. As on Linux, it is reported
/// when there are bytes to store, a datagram is lost, and the bytes of a stream are not.
fn refuse_bad_buffers(
    engine: &mut Engine,
    target: &Target,
    parts: &mut [IoSliceMut<'_>],
    asked: RecvFlags,
) -> Result<(), Errno> {
    const PAGE: usize = 4_096;
    let wanted: usize = parts.iter().map(|part| part.len()).sum();
    if wanted <= PAGE && probe::are_writable(parts, wanted) {
        return Ok(());
    }
    let Ok(len) = engine.look(|sockets| sockets.readable_len(target.id)) else {
        // A listener has no bytes: to receive is the error.
        return Ok(());
    };
    let is_discarded = target.kind == Kind::Stream && asked.truncate;
    if is_discarded || probe::are_writable(parts, len) {
        return Ok(());
    }
    if target.kind == Kind::Datagram {
        engine.call(|sockets, cx| sockets.recv_parts(target.id, &mut [], asked, cx))?;
    }
    Err(Errno(libc::EFAULT))
}

/// A send of memory that is not there: the state of the socket is reported first.
pub(crate) fn send_what_is_not_there(file: FileId, to: Option<&[u8]>, flags: c_int, error: Errno) -> Outcome<usize> {
    let kind = target(&mut engine::enter(file), file).map(|target| target.kind);
    let state = match (kind, to) {
        (Err(_), _) => return Pass,
        (Ok(Kind::Stream), _) => send(file, &[], None, flags),
        (Ok(Kind::Datagram), None) => match calls::name(file, true) {
            Ours(name) => Ours(name.map(|_| 0).map_err(|_| Errno(libc::EDESTADDRREQ))),
            Pass => Pass,
        },
        (Ok(Kind::Datagram), Some(_)) => Ours(Ok(0)),
    };
    match state {
        Ours(Ok(_)) if kind == Ok(Kind::Datagram) => {
            let mut engine = engine::enter(file);
            let refused = target(&mut engine, file)
                .and_then(|target| engine.call(|sockets, _| sockets.refuse_datagrams(target.id)));
            Ours(Err(refused.err().unwrap_or(error)))
        }
        Ours(Ok(_)) => Ours(Err(error)),
        state => state,
    }
}

/// `send` and its family; the parts make one datagram, or follow each other in a stream.
pub(crate) fn send(file: FileId, parts: &[IoSlice<'_>], to: Option<&[u8]>, flags: c_int) -> Outcome<usize> {
    send_controlled(file, parts, to, flags, &[])
}

/// `sendmsg` with control messages.
pub(crate) fn send_controlled(
    file: FileId,
    parts: &[IoSlice<'_>],
    to: Option<&[u8]>,
    flags: c_int,
    control: &[u8],
) -> Outcome<usize> {
    thread::test_cancel();
    let mut engine = engine::enter(file);
    let mut found = target(&mut engine, file);
    let name = to;
    let to = match to.map(address::parse) {
        // A stream ignores the destination: it is connected.
        _ if matches!(found, Ok(Target { kind: Kind::Stream, .. })) => None,
        None | Some(Address::Unspecified) => None,
        Some(Address::V4(to)) => Some(to),
        Some(Address::Other) => return Pass,
    };
    if let (Err(_), Some(to)) = (&found, to) {
        if let Err(error) = bind_to_send(&mut engine, file, to) {
            return Ours(Err(error));
        }
        found = target(&mut engine, file);
    }
    let Ok(target) = found else { return Pass };
    if flags & libc::MSG_OOB != 0 {
        return Ours(Err(Errno::EOPNOTSUPP));
    }
    if let (Kind::Datagram, Some(to)) = (target.kind, to) {
        let role = rule_of(&mut engine, &target, to);
        if role == Some(Role::Refuse) {
            return Ours(Err(Errno::EACCES));
        }
        let is_ours = role != Some(Role::Os) && calls::leaves_by_ours(&mut engine, file, target.id, to).unwrap_or(true);
        if !is_ours {
            return groups::send_by_twin(&mut engine, file, parts, to, flags).map_or(Pass, Ours);
        }
    }
    let control = match control {
        [] => None,
        control => match controls(&mut engine, &target, control) {
            Ok(Some(control)) => Some(control),
            Ok(None) => return Pass,
            Err(error) => {
                drop(engine);
                return send_what_is_not_there(file, name, flags, error);
            }
        },
    };
    if flags & libc::MSG_MORE != 0
        && let Ok(socket) = engine.files.socket(file)
    {
        socket.has_appended = true;
    }
    let control = control.as_ref().filter(|control| !control.is_none());
    engine.count_answer();
    let first = send_once(&mut engine, &target, parts, (to, control), flags);
    if first == Err(Errno::ENETUNREACH) && is_kernels_now(&mut engine, file, &target, to) {
        return Pass;
    }
    drop(engine);
    match target.kind {
        Kind::Stream => send_all(file, &target, parts, flags, first),
        Kind::Datagram => Ours(end_datagram(file, &target, parts, (to, control), flags, first)),
    }
}

/// What the rules say of a datagram to this destination; `None` where they keep none to its port.
fn rule_of(engine: &mut Engine, target: &Target, to: SocketAddrV4) -> Option<Role> {
    let local = || engine.look(|sockets| sockets.local_addr(target.id)).unwrap_or(ANY);
    config::get()?.role_of_sender(local, to)
}

/// Whether the kernel sends a datagram for which the worker has no route, because routes have just
/// changed. The error stands where the datagram began with other calls, whose bytes the kernel does
/// not have.
#[cold]
fn is_kernels_now(engine: &mut Engine, file: FileId, target: &Target, to: Option<SocketAddrV4>) -> bool {
    let has_appended = engine.files.socket(file).is_ok_and(|socket| socket.has_appended);
    let remote = to.or_else(|| engine.look(|sockets| sockets.peer_addr(target.id)).ok());
    target.kind == Kind::Datagram
        && !has_appended
        && remote.is_some_and(|to| !to.ip().is_multicast() && !offload::still_goes_by_ours(engine, *to.ip()))
}

/// Sends a datagram that found no room, once there is some; groups have their copy on this host. A
/// call that gives up leaves nothing of a datagram of several calls, as on Linux.
fn end_datagram(
    file: FileId,
    target: &Target,
    parts: &[IoSlice<'_>],
    towards: SendTo<'_>,
    flags: c_int,
    first: Result<usize, Errno>,
) -> Result<usize, Errno> {
    let sent = match first {
        Err(Errno::EAGAIN) => send_datagram(file, target, parts, towards, flags),
        done => done,
    };
    if let Err(Errno::EAGAIN | Errno(libc::EINTR)) = sent {
        let _ = engine::enter(file).call(|sockets, _| sockets.give_up_datagram(target.id));
    }
    let group = towards.0.or(target.peer_group).filter(|to| to.ip().is_multicast());
    if let (Ok(_), Some(group)) = (&sent, group) {
        groups::loop_back(&mut engine::enter(file), file, parts, group, flags);
    }
    sent
}

/// The content of a send's control messages; `None` if they name a source or an interface that is
/// not ours: the kernel sends by it, or has the error.
fn controls(engine: &mut Engine, target: &Target, control: &[u8]) -> Result<Option<SendControl>, Errno> {
    let control = SendControl::parse(target.kind, target.family == Family::Inet6, control)?;
    let is_on_ours = [0, config::system().interface_idx].contains(&control.interface_idx);
    let is_from_ours = control.source.is_none_or(|source| offload::is_own(engine, source));
    Ok((is_on_ours && is_from_ours).then_some(control))
}

/// The destination of a send, and its control messages.
type SendTo<'a> = (Option<SocketAddrV4>, Option<&'a SendControl>);

/// Sends what a first attempt has left of the bytes of a stream, if the call waits for that.
fn send_all(
    file: FileId,
    target: &Target,
    parts: &[IoSlice<'_>],
    flags: c_int,
    first: Result<usize, Errno>,
) -> Outcome<usize> {
    let sent = match first {
        Ok(taken) if taken < parts.iter().map(|part| part.len()).sum() => send_rest(file, target, parts, flags, taken),
        Err(Errno::EAGAIN) => send_rest(file, target, parts, flags, 0),
        done => done,
    };
    if sent == Err(Errno::EPIPE) && flags & libc::MSG_NOSIGNAL == 0 {
        sys::raise_sigpipe();
    }
    Ours(sent)
}

/// Sends bytes of a file, from its position or from an offset (`sendfile`).
pub(crate) fn send_file(file: FileId, from: c_int, offset: Option<i64>, count: usize) -> Outcome<usize> {
    if target(&mut engine::enter(file), file).is_err() {
        return Pass;
    }
    let mut block = vec![0; count.min(FILE_BLOCK)];
    let mut sent = 0;
    let at = match offset {
        Some(offset) => Ok(offset),
        None => sys::lseek(from, 0, libc::SEEK_CUR),
    };
    let start = match at {
        Ok(start) => start,
        Err(error) => return Ours(Err(error)),
    };
    let result = loop {
        let want = (count - sent).min(block.len());
        let read = match sys::pread(from, &mut block[..want], start + sent as i64) {
            Ok(0) => break Ok(sent),
            Ok(read) => read,
            Err(error) => break Err(error),
        };
        match send(file, &[IoSlice::new(&block[..read])], None, 0) {
            Ours(Ok(taken)) => {
                sent += taken;
                if taken < read || sent == count {
                    break Ok(sent);
                }
            }
            Ours(Err(error)) => break Err(error),
            Pass => return Pass,
        }
    };
    if offset.is_none() && sent > 0 {
        let _ = sys::lseek(from, start + sent as i64, libc::SEEK_SET);
    }
    Ours(if sent > 0 { Ok(sent) } else { result })
}

/// Bytes of each read of the file.
const FILE_BLOCK: usize = 64 << 10;

fn send_datagram(
    file: FileId,
    target: &Target,
    parts: &[IoSlice<'_>],
    towards: SendTo<'_>,
    flags: c_int,
) -> Result<usize, Errno> {
    let mut blocking = calls::blocking(file, target.id, flags, Direction::Send)?;
    wait::until(&mut blocking, file.room(), WaitFor::Socket(target.id, Ready::OUT), &[], |engine, _| {
        send_once(engine, target, parts, towards, flags)
    })
}

fn send_once(
    engine: &mut Engine,
    target: &Target,
    parts: &[IoSlice<'_>],
    (to, control): SendTo<'_>,
    flags: c_int,
) -> Result<usize, Errno> {
    let flags = send_flags(flags);
    engine.call(|sockets, cx| match control {
        None => sockets.send_parts(target.id, parts, to, flags, cx),
        Some(control) => sockets.send_controlled(target.id, parts, to, flags, control, cx),
    })
}

fn send_flags(flags: c_int) -> SendFlags {
    SendFlags { more: flags & libc::MSG_MORE != 0, zerocopy: flags & libc::MSG_ZEROCOPY != 0, resumes: true }
}

/// Sends the rest: a blocking call on a stream returns when all bytes are taken.
fn send_rest(
    file: FileId,
    target: &Target,
    parts: &[IoSlice<'_>],
    flags: c_int,
    mut sent: usize,
) -> Result<usize, Errno> {
    let mut blocking = calls::blocking(file, target.id, flags, Direction::Send)?;
    let mut rest = parts.to_vec();
    let mut rest = &mut rest[..];
    IoSlice::advance_slices(&mut rest, sent);
    while !rest.is_empty() {
        if sent > 0 {
            blocking.note_moved();
        }
        let step = wait::until(&mut blocking, file.room(), WaitFor::Socket(target.id, Ready::OUT), &[], |engine, _| {
            send_once(engine, target, rest, (None, None), flags)
        });
        match step {
            Ok(taken) => {
                sent += taken;
                IoSlice::advance_slices(&mut rest, taken);
            }
            Err(error) if sent > 0 => {
                report_later(file, target, error);
                let _ = engine::enter(file).call(|sockets, cx| sockets.end_send(target.id, send_flags(flags), cx));
                return Ok(sent);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(sent)
}

/// Keeps an error for the next call, because this call has moved bytes and reports their number.
fn report_later(file: FileId, target: &Target, error: Errno) {
    if matches!(error, Errno::ECONNRESET | Errno::ETIMEDOUT | Errno::EHOSTUNREACH | Errno::ENETUNREACH) {
        let _ = engine::enter(file).call(|sockets, _| sockets.restore_error(target.id, error));
    }
}

/// `recvmmsg` has received messages before this error, which the next call reports (Linux
/// `do_recvmmsg`).
pub(crate) fn report_after_others(file: FileId, error: Errno) {
    if error == Errno::EAGAIN || error == Errno(libc::EINTR) {
        return;
    }
    let mut engine = engine::enter(file);
    if let Ok(target) = target(&mut engine, file) {
        let _ = engine.call(|sockets, _| sockets.restore_error(target.id, error));
    }
}

/// Binds a datagram socket that sends before it is bound, and offloads it if the destination is
/// reached by our interface.
fn bind_to_send(engine: &mut Engine, file: FileId, to: SocketAddrV4) -> Result<(), Errno> {
    let twin = engine.files.twin(file)?;
    let socket = engine.files.socket(file)?;
    let family = socket.family;
    if socket.kind != Kind::Datagram || socket.place != Owner::Undecided {
        return Ok(());
    }
    let local = offload::name_of(twin).unwrap_or(ANY);
    // The owner of a bound socket was decided by `bind`, or is by a group that it may yet join.
    if local.port() != 0 && config::get().is_some_and(|config| config.gives_groups) {
        return Ok(());
    }
    if local.port() != 0 || !offload::is_ours(engine, file, Traffic::UdpSender, local, Some(to))? {
        epoll_twins::leave_to_kernel(engine, file);
        return Ok(());
    }
    let (bytes, len) = address::format(ANY, family);
    sys::bind(twin, &bytes[..len])?;
    let local = offload::name_of(twin).ok_or(Errno::EADDRNOTAVAIL)?;
    match offload::take(engine, file, Some(local), true) {
        Err(error) if calls::has_lost_interface(engine, file, error) => Ok(()),
        done => done.map(drop),
    }
}

fn target(engine: &mut Engine, file: FileId) -> Result<Target, Errno> {
    let file = engine.files.get(file).ok_or(Errno::EBADF)?;
    let (Some(&twin), FileKind::Socket(socket)) = (file.fds.first(), &file.what) else { return Err(Errno::ENOTSOCK) };
    let Owner::Ours { id, hears_twin } = socket.place else { return Err(Errno::ENOTSOCK) };
    let Socket { kind, family, is_both, groups: Groups { peer: peer_group, .. }, .. } = *socket;
    Ok(Target {
        id,
        twin,
        family,
        kind,
        hears_twin,
        is_both,
        peer_group,
        is_nonblocking: file.is_nonblocking,
        receives_info6: family == Family::Inet6 && socket.receives_info6,
    })
}

/// Whether the twin has received something.
fn has_input(engine: &mut Engine, target: &Target) -> bool {
    let mut fds = [libc::pollfd { events: libc::POLLIN | libc::POLLRDHUP, ..readable(target.twin) }];
    if sys::ppoll(&mut fds, Some(0)) != Ok(1) {
        return false;
    }
    let events = fds[0].revents;
    if target.kind == Kind::Datagram {
        if events & libc::POLLERR != 0 {
            error_queue::absorb(engine, target.id, target.twin);
        }
        if events & libc::POLLRDHUP != 0 {
            // After `SHUT_RD` the kernel calls it readable, whatever waits.
            return sys::peek(target.twin).is_ok();
        }
    }
    events & !libc::POLLERR != 0
}
