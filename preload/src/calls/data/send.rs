//! Sends bytes of streams, and datagrams.

use core::ffi::c_int;
use core::net::SocketAddrV4;
use std::io::IoSlice;

use sockets::rules::{Role, Traffic};
use sockets::{Errno, Kind, Ready, SendControl, SendFlags};

use super::control::controls;
use super::{Target, report_later, target};
use crate::address::{self, Address};
use crate::calls::Outcome::{self, Ours, Pass};
use crate::calls::offload::PeerCall;
use crate::calls::{self, Direction, back, epoll_twins, groups, offload};
use crate::engine::file::{ANY, Owner};
use crate::engine::table::FileId;
use crate::engine::wait::{self, Sides};
use crate::engine::{self, Engine, EngineGuard, WaitFor, thread};
use crate::{config, sys};

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
    back::call_through(file, (Direction::Send, flags), || send_parts(file, parts, to, flags, control))
}

fn send_parts(file: FileId, parts: &[IoSlice<'_>], to: Option<&[u8]>, flags: c_int, control: &[u8]) -> Outcome<usize> {
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
        let may_send = match PeerCall::of_send(flags) {
            PeerCall::FastOpen => leave_or_refuse_fast_open(&mut engine, file, to),
            PeerCall::Send | PeerCall::Connect => Ok(()),
        };
        if let Err(error) = may_send {
            return Ours(Err(error));
        }
        if let Err(error) = bind_to_send(&mut engine, file, to) {
            return Ours(Err(error));
        }
        found = target(&mut engine, file);
    }
    let Ok(target) = found else {
        if let Ok(socket) = engine.files.socket(file) {
            socket.note_send_of_twin(flags);
        }
        return Pass;
    };
    if flags & libc::MSG_OOB != 0 {
        return Ours(Err(Errno::EOPNOTSUPP));
    }
    if target.kind == Kind::Datagram {
        match sender_of(&mut engine, file, &target, to, flags) {
            Ok(Sender::Ours) => (),
            Ok(Sender::Twin) => return pass_to_twin(engine, file, &target, parts, (to, control), flags),
            Err(error) => return Ours(Err(error)),
        }
    }
    let control = match control {
        [] => None,
        control => match controls(&mut engine, &target, control) {
            Ok(Some(control)) => Some(control),
            Ok(None) => return pass_to_twin(engine, file, &target, parts, (to, control), flags),
            Err(error) => {
                drop(engine);
                return send_what_is_not_there(file, name, flags, error);
            }
        },
    };
    if flags & libc::MSG_MORE != 0
        && let Ok(socket) = engine.files.socket(file)
    {
        socket.may_append = true;
    }
    let control = control.as_ref().filter(|control| !control.is_none());
    engine.count_answer();
    let has_begun = target.may_append && engine.look(|sockets| sockets.has_begun_datagram(target.id)).unwrap_or(false);
    let first = send_once(&mut engine, &target, parts, (to, control), flags);
    if first == Err(Errno::ENETUNREACH) && !has_begun && is_kernels_now(&mut engine, &target, to) {
        return Pass;
    }
    drop(engine);
    match target.kind {
        Kind::Stream => send_all(file, &target, parts, flags, first),
        Kind::Datagram => Ours(end_datagram(file, &target, parts, (to, control), flags, first)),
    }
}

/// Who sends a datagram of an offloaded socket.
enum Sender {
    Ours,
    /// The kernel, by the twin.
    Twin,
}

/// Flags of a datagram that only the kernel has: it is for hosts of the link alone
/// (`MSG_DONTROUTE`), or nothing leaves, and the call says whether it would (`MSG_PROBE`). Those of
/// a stream say nothing there either.
const ONLY_THE_KERNELS: c_int = libc::MSG_DONTROUTE | MSG_PROBE;

/// A number that the crate `libc` does not have.
const MSG_PROBE: c_int = 0x10;

/// Who sends a datagram.
///
/// # Errors
/// `EACCES`: a rule refuses its destination. `EOPNOTSUPP`: the kernel alone could, and has another
/// address.
fn sender_of(
    engine: &mut Engine,
    file: FileId,
    target: &Target,
    to: Option<SocketAddrV4>,
    flags: c_int,
) -> Result<Sender, Errno> {
    // What is appended goes where the begin of the datagram is, whatever it names (Linux
    // `udp_sendmsg`).
    if target.may_append {
        if engine.files.socket(file)?.twin_has_begun {
            return Ok(Sender::Twin);
        }
        if engine.look(|sockets| sockets.has_begun_datagram(target.id))? {
            return Ok(Sender::Ours);
        }
    }
    if let Some(to) = to {
        let role = rule_of(engine, target, to);
        if role == Some(Role::Os) || !calls::leaves_by_ours(engine, file, target.id, to).unwrap_or(true) {
            return Ok(Sender::Twin);
        }
        if role == Some(Role::Refuse) {
            return Err(Errno::EACCES);
        }
    }
    match flags & ONLY_THE_KERNELS {
        0 => Ok(Sender::Ours),
        // The kernel has another address.
        _ if config::get().is_some_and(|config| config.own.is_some()) => Err(Errno::EOPNOTSUPP),
        _ => Ok(Sender::Twin),
    }
}

/// Has the kernel send a datagram.
fn pass_to_twin(
    mut engine: EngineGuard,
    file: FileId,
    target: &Target,
    parts: &[IoSlice<'_>],
    (to, control): (Option<SocketAddrV4>, &[u8]),
    flags: c_int,
) -> Outcome<usize> {
    if let Ok(socket) = engine.files.socket(file) {
        socket.note_send_of_twin(flags);
    }
    // To a group the twin's own TTL may be 0.
    let sent = match to.or(target.peer_group).filter(|to| to.ip().is_multicast()) {
        Some(group) => send_by_twin(engine, file, parts, (group, control), flags),
        None => Pass,
    };
    if let Ours(Err(_)) = sent {
        note_refusal_of_twin(file);
    }
    sent
}

/// The kernel has refused a send that was passed on to it.
#[cold]
pub(crate) fn note_refusal_of_twin(file: FileId) {
    if let Ok(socket) = engine::enter(file).files.socket(file) {
        socket.note_refusal_of_twin();
    }
}

/// Sends a datagram to a group by the twin. Where that has no room, the call waits as one of ours
/// does, and not in the kernel: other threads need the engine meanwhile.
fn send_by_twin(
    mut engine: EngineGuard,
    file: FileId,
    parts: &[IoSlice<'_>],
    towards: (SocketAddrV4, &[u8]),
    flags: c_int,
) -> Outcome<usize> {
    let at_once = flags | libc::MSG_DONTWAIT;
    match groups::send_by_twin(&mut engine, file, parts, towards, at_once) {
        Some(Err(Errno::EAGAIN)) => (),
        sent => return sent.map_or(Pass, Ours),
    }
    let found = target(&mut engine, file);
    drop(engine);
    Ours(found.and_then(|target| {
        let mut blocking = calls::blocking(file, target.id, flags, Direction::Send)?;
        let room = libc::pollfd { events: libc::POLLOUT, ..wait::readable(target.twin) };
        let nothing_of_ours = WaitFor::Socket(target.id, Ready::NONE);
        wait::until(&mut blocking, file.room(), nothing_of_ours, &[room], |engine, sides| match sides {
            Sides::Ours => Err(Errno::EAGAIN),
            Sides::Both => {
                let sent = groups::send_by_twin(engine, file, parts, towards, at_once);
                sent.unwrap_or(Err(Errno::ENOTSOCK))
            }
        })
    }))
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

/// What the rules say of a datagram to this destination; `None` where they keep none to its port.
fn rule_of(engine: &mut Engine, target: &Target, to: SocketAddrV4) -> Option<Role> {
    let local = || engine.look(|sockets| sockets.local_addr(target.id)).unwrap_or(ANY);
    config::get()?.role_of_sender(local, to)
}

/// Whether the kernel sends a whole datagram for which the worker has no route, because routes have
/// just changed. Of one that began with other calls it does not have their bytes.
#[cold]
fn is_kernels_now(engine: &mut Engine, target: &Target, to: Option<SocketAddrV4>) -> bool {
    let remote = to.or_else(|| engine.look(|sockets| sockets.peer_addr(target.id)).ok());
    target.kind == Kind::Datagram
        && remote.is_some_and(|to| !to.ip().is_multicast() && !offload::still_goes_by_ours(engine, *to.ip()))
}

/// Binds a datagram socket that sends before it is bound, and offloads it if the destination is
/// reached by our interface.
fn bind_to_send(engine: &mut Engine, file: FileId, to: SocketAddrV4) -> Result<(), Errno> {
    let twin = engine.files.twin(file)?;
    let socket = engine.files.socket(file)?;
    let (family, place) = (socket.family, socket.place);
    if socket.kind != Kind::Datagram || matches!(place, Owner::Ours { .. }) {
        return Ok(());
    }
    let local = offload::name_of(twin).unwrap_or(ANY);
    let is_kept = local.port() != 0 || place != Owner::Undecided;
    if is_kept
        && config::get().is_some_and(|config| config.role_of_sender(|| local, to) == Some(Role::Refuse))
        && offload::is_refused(engine, file, Traffic::UdpSender, local, Some(to))
    {
        return Err(Errno::EACCES);
    }
    if place != Owner::Undecided {
        return Ok(());
    }
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

/// A stream is to connect by a send, which only the kernel has. Where its connections to this peer
/// are ours the call fails as where the kernel has it switched off, and programs connect.
fn leave_or_refuse_fast_open(engine: &mut Engine, file: FileId, to: SocketAddrV4) -> Result<(), Errno> {
    let twin = engine.files.twin(file)?;
    let socket = engine.files.socket(file)?;
    if socket.kind != Kind::Stream || socket.place != Owner::Undecided || socket.backlog.is_some() {
        return Ok(());
    }
    let local = offload::name_of(twin).unwrap_or(ANY);
    if offload::is_ours(engine, file, Traffic::TcpClient, local, Some(to))? {
        return Err(Errno::EOPNOTSUPP);
    }
    epoll_twins::leave_to_kernel(engine, file);
    Ok(())
}

/// The destination of a send, and its control messages.
type SendTo<'a> = (Option<SocketAddrV4>, Option<&'a SendControl>);

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
    // What was too long ends the twin's part of the datagram as well.
    if let (Ok(_) | Err(Errno::EMSGSIZE), Some(group)) = (&sent, group) {
        groups::loop_back(&mut engine::enter(file), file, parts, group, flags);
    }
    sent
}

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
