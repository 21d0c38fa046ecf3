//! The socket calls on files of ours, after the program's pointers have become slices. `Pass` means
//! that the call is the kernel's, on the twin: the socket is not ours, or the rest of it is not.

use core::ffi::c_int;
use core::net::SocketAddrV4;
use core::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use sockets::rules::{Role, Traffic};
use sockets::{Closing, Errno, Kind, Ready, Shutdown, SocketId};

use crate::address::{self, Address, Family};
use crate::engine::file::{ANY, FileKind, Owner, Replica, ShutdownMask, Socket};
use crate::engine::group_members;
use crate::engine::options::HandledBy;
use crate::engine::table::{self, FileId};
use crate::engine::wait::{self, Blocking};
use crate::engine::{self, Engine, WaitFor, options, thread};
use crate::{config, process, scarce, sys};

mod back;
pub(crate) mod data;
pub(crate) mod epoll;
pub(crate) mod epoll_twins;
pub(crate) mod error_queue;
mod fresh_twin;
pub(crate) mod groups;
pub(crate) mod inherited;
pub(crate) mod left;
pub(crate) mod listener;
mod member;
pub(crate) mod offload;
pub(crate) mod poll;
pub(crate) mod ports;
pub(crate) mod rights;
pub(crate) mod stamp;

/// How a call ends that may not be ours.
#[derive(Debug)]
pub(crate) enum Outcome<T> {
    Ours(Result<T, Errno>),
    Pass,
}

use Outcome::{Ours, Pass};

/// `socket`: records the twin, which the kernel has just made.
pub(crate) fn socket(fd: c_int, domain: c_int, kind: c_int, protocol: c_int) {
    let family = match domain {
        libc::AF_INET => Family::Inet,
        libc::AF_INET6 => Family::Inet6,
        _ => return,
    };
    inherited::say();
    let what = kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
    let is_nonblocking = kind & libc::SOCK_NONBLOCK != 0;
    let kind_of = match (what, protocol) {
        (libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => Kind::Stream,
        (libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) => Kind::Datagram,
        _ => {
            if let Some((kind, why)) = inherited::only_the_kernels(what, protocol) {
                inherited::record_odd(fd, is_nonblocking, (kind, family), why);
            }
            return;
        }
    };
    engine::enter_own().files.open(fd, is_nonblocking, FileKind::Socket(Socket::new(kind_of, family)));
}

/// The reason of a socket that names an address of IPv6.
const IPV6: &str = "an IPv6 address";

/// The reason of a socket that two processes have.
const PASSED: &str = "passed to another process (SCM_RIGHTS) before its first use";

/// Leaves a socket to the kernel for good.
fn keep(engine: &mut Engine, file: FileId, why: &'static str) -> Result<(), Errno> {
    let twin = engine.files.twin(file)?;
    engine.files.socket(file)?.why = why;
    epoll_twins::leave_to_kernel(engine, file);
    offload::say_kept(why, offload::name_of(twin).unwrap_or(ANY));
    Ok(())
}

/// Another process has a socket now (`SCM_RIGHTS`): where its owner is not decided, it is the
/// kernel's for good, because what this process does with it is to be seen there too.
pub(crate) fn keep_passed(file: FileId) {
    let mut engine = engine::enter(file);
    if engine.files.socket(file).is_ok_and(|socket| socket.place == Owner::Undecided && !socket.is_idle()) {
        let _ = keep(&mut engine, file, PASSED);
    }
}

/// `connect`.
pub(crate) fn connect(file: FileId, remote: &[u8]) -> Outcome<()> {
    let remote = match address::parse(remote) {
        Address::V4(remote) => remote,
        Address::Unspecified => return disconnect(file),
        Address::Other => {
            let mut engine = engine::enter(file);
            if let Ok(socket) = engine.files.socket(file)
                && may_become_the_kernels(socket)
            {
                offload::give_back(&mut engine, file);
                let _ = keep(&mut engine, file, IPV6);
            }
            return Pass;
        }
    };
    let begun = begin_connect(&mut engine::enter(file), file, remote);
    match begun {
        Ok(Some((id, Kind::Stream))) => match finish_connect(file, id, remote) {
            Err(error) if may_try_kernel(file, error) => Pass,
            done => Ours(done.inspect_err(|error| scarce::say_of(*error))),
        },
        Ok(Some((_, Kind::Datagram))) => Ours(Ok(())),
        Ok(None) => Pass,
        Err(error) if may_try_kernel(file, error) => Pass,
        Err(error) => {
            scarce::say_of(error);
            Ours(Err(error))
        }
    }
}

/// Whether a socket that names a peer of IPv6 can be the kernel's: one whose owner is not decided,
/// and one of both families whose datagrams were ours so far.
fn may_become_the_kernels(socket: &Socket) -> bool {
    match socket.place {
        Owner::Undecided => true,
        Owner::Kernel | Owner::Parent => false,
        Owner::Ours { .. } => socket.kind == Kind::Datagram && socket.family == Family::Inet6,
    }
}

/// Whether a socket is now the kernel's, because ours has no way to its peer: a stream that a rule
/// gives to both sides, and any socket once our interface is gone.
fn may_try_kernel(file: FileId, error: Errno) -> bool {
    const NO_WAY: [Errno; 9] = [
        Errno::EACCES,
        Errno::EADDRNOTAVAIL,
        Errno::EHOSTUNREACH,
        Errno::EMFILE,
        Errno::ENETDOWN,
        Errno::ENETUNREACH,
        Errno::ENOBUFS,
        Errno::ENOMEM,
        Errno::ETIMEDOUT,
    ];
    let mut engine = engine::enter(file);
    let is_both = engine.files.socket(file).is_ok_and(|socket| socket.is_both && socket.kind == Kind::Stream);
    if is_both && NO_WAY.contains(&error) {
        offload::give_back(&mut engine, file);
        return keep(&mut engine, file, "ours did not reach its peer").is_ok();
    }
    has_lost_interface(&mut engine, file, error)
}

/// Whether a socket is now the kernel's, because a call of ours has failed with `error` on an
/// interface that is gone, or whose broker steers nothing here any more.
fn has_lost_interface(engine: &mut Engine, file: FileId, error: Errno) -> bool {
    if error != Errno::EPIPE || !engine.lose_if_gone() {
        return false;
    }
    offload::give_back(engine, file);
    keep(engine, file, offload::GONE).is_ok()
}

/// Offloads the socket if the rules say so, and connects it unless that takes a handshake.
fn begin_connect(engine: &mut Engine, file: FileId, remote: SocketAddrV4) -> Result<Option<(SocketId, Kind)>, Errno> {
    let twin = engine.files.twin(file)?;
    let (kind, family, ours) = {
        let socket = engine.files.socket(file)?;
        (socket.kind, socket.family, socket.ours())
    };
    if let Some(id) = ours
        && is_left_by_rule(engine, file, id, remote)?
    {
        offload::give_back(engine, file);
        keep(engine, file, BY_RULE)?;
        return Ok(None);
    }
    let id = match ours {
        Some(id) if kind == Kind::Stream => return Ok(Some((id, kind))),
        Some(id) if !leaves_by_ours(engine, file, id, remote)? => {
            // The new peer is reached by another interface.
            offload::give_back(engine, file);
            keep(engine, file, offload::BY_ANOTHER)?;
            return Ok(None);
        }
        Some(id) => id,
        None => {
            let traffic = if kind == Kind::Stream { Traffic::TcpClient } else { Traffic::UdpConnect };
            let local = offload::name_of(twin).unwrap_or(ANY);
            if !offload::is_ours(engine, file, traffic, local, Some(remote))? {
                // The socket stays with the kernel for good.
                epoll_twins::leave_to_kernel(engine, file);
                return Ok(None);
            }
            let local = match kind {
                Kind::Stream => ports::bind_stream(engine, twin, family, remote)?,
                Kind::Datagram => ports::bind_twin(twin, family, offload::name_of(twin).unwrap_or(ANY))?,
            };
            // The kernel reassembles datagrams that come in fragments, also those of one peer.
            offload::take(engine, file, Some(local), kind == Kind::Datagram)?
        }
    };
    if kind == Kind::Datagram {
        engine.call(|sockets, cx| sockets.connect(id, remote, cx))?;
        // Connects the twin too, so that it receives from this peer alone. The kernel may have no
        // route to a peer of a host of our own.
        let (address, len) = address::format(remote, family);
        match sys::connect(twin, &address[..len]) {
            Err(_) if config::get().is_some_and(|config| config.own.is_some()) => (),
            connected => connected?,
        }
        engine.files.socket(file)?.groups.peer = Some(remote).filter(|remote| remote.ip().is_multicast());
    }
    Ok(Some((id, kind)))
}

/// The reason of a datagram socket that was ours until it connected.
const BY_RULE: &str = "a rule leaves its peer to the kernel";

/// Whether the rules leave the peer of a datagram socket of ours to the kernel. A stream has its
/// handshake here, though the kernel may have it elsewhere.
///
/// # Errors
/// `EACCES`: the rules refuse the peer.
fn is_left_by_rule(engine: &mut Engine, file: FileId, id: SocketId, remote: SocketAddrV4) -> Result<bool, Errno> {
    let Some(config) = config::get() else { return Ok(false) };
    let twin = engine.files.twin(file)?;
    let socket = engine.files.socket(file)?;
    let (kind, has_named_port) = (socket.kind, socket.has_named_port);
    let traffic = if kind == Kind::Stream { Traffic::TcpClient } else { Traffic::UdpConnect };
    // As before the library or the kernel had chosen a port.
    let local = if has_named_port { offload::name_of(twin).unwrap_or(ANY) } else { ANY };
    match config.role(traffic, local, Some(remote)).role {
        Role::Refuse if leaves_by_ours(engine, file, id, remote)? => Err(Errno::EACCES),
        Role::Os => Ok(kind == Kind::Datagram),
        Role::Refuse | Role::Offload | Role::Both => Ok(false),
    }
}

/// Whether datagrams of an offloaded socket to `remote` leave by our interface.
pub(crate) fn leaves_by_ours(
    engine: &mut Engine,
    file: FileId,
    id: SocketId,
    remote: SocketAddrV4,
) -> Result<bool, Errno> {
    if !remote.ip().is_multicast() {
        return Ok(offload::goes_by_ours(engine, *remote.ip()));
    }
    let groups = engine.files.socket(file)?.groups;
    let local = engine.look(|sockets| sockets.local_addr(id))?;
    Ok(groups::leave_by_ours(engine, &groups, *local.ip(), *remote.ip()))
}

/// Waits for the handshake of a stream.
fn finish_connect(file: FileId, id: SocketId, remote: SocketAddrV4) -> Result<(), Errno> {
    let mut blocking = blocking(file, id, 0, Direction::Send)?;
    match call_out(file, id, remote) {
        Err(Errno::EINPROGRESS | Errno::EALREADY) if !blocking.is_nonblocking => (),
        done => return done,
    }
    let connected = wait::until(&mut blocking, file.room(), WaitFor::Socket(id, Ready::OUT), &[], |engine, _| {
        engine.call(|sockets, cx| match sockets.connected(id, remote, cx) {
            Err(Errno::EALREADY) => Err(Errno::EAGAIN),
            done => done,
        })
    });
    match connected {
        // The handshake continues without this call.
        Err(Errno::EAGAIN) => Err(Errno::EINPROGRESS),
        done => done,
    }
}

/// Begins the handshake of a stream. Where another process still has the flow of an ended
/// connection from the port that the kernel chose, the kernel chooses another port.
fn call_out(file: FileId, id: SocketId, remote: SocketAddrV4) -> Result<(), Errno> {
    let mut engine = engine::enter(file);
    let mut taken = ports::TakenPorts::default();
    loop {
        let begun = engine.call(|sockets, cx| sockets.connect(id, remote, cx));
        if begun != Err(Errno::EADDRINUSE) || !taken.replace_port_of(&mut engine, file) {
            return begun;
        }
    }
}

/// `connect` to `AF_UNSPEC`.
fn disconnect(file: FileId) -> Outcome<()> {
    let mut engine = engine::enter(file);
    let (Ok(twin), Ok(socket)) = (engine.files.twin(file), engine.files.socket(file)) else { return Pass };
    let Some(id) = socket.ours() else {
        if socket.kind == Kind::Stream {
            // Linux `tcp_disconnect` opens both directions again.
            socket.shut = ShutdownMask::default();
        }
        return Pass;
    };
    (socket.is_listener, socket.backlog) = (false, None);
    let replicas = core::mem::take(&mut socket.replicas);
    let unspecified = (libc::AF_UNSPEC as u16).to_ne_bytes();
    let is_stream = socket.kind == Kind::Stream;
    let has_named_port = socket.has_named_port;
    let done = engine.call(|sockets, cx| sockets.disconnect(id, cx)).and_then(|()| sys::connect(twin, &unspecified));
    if is_stream {
        epoll_twins::hear_twin(&mut engine, file, false);
        ports::keep_a_port(&mut engine, file, twin);
    } else if done.is_ok() && !has_named_port {
        // The twin has given its port up (Linux `__udp_disconnect`): the next call that names an
        // address, or sends, decides again.
        offload::give_back(&mut engine, file);
    }
    drop(engine);
    listener::close_replicas(&replicas);
    Ours(done)
}

/// `shutdown`.
pub(crate) fn shutdown(file: FileId, number: c_int) -> Outcome<()> {
    let how = match number {
        libc::SHUT_RD => Shutdown::Read,
        libc::SHUT_WR => Shutdown::Write,
        libc::SHUT_RDWR => Shutdown::Both,
        _ => return Pass,
    };
    let Ok((id, twin, _)) = ours_of(file) else {
        if let Ok(socket) = engine::enter(file).files.socket(file) {
            socket.shut.reads |= how != Shutdown::Write;
            socket.shut.writes |= how != Shutdown::Read;
        }
        return Pass;
    };
    let mut engine = engine::enter(file);
    let is_listener = sys::getsockopt_int(twin, libc::SOL_SOCKET, libc::SO_ACCEPTCONN) == Ok(1);
    if is_listener {
        // It goes on to listen if only its sends end.
        let _ = sys::shutdown(twin, number);
    }
    if matches!(engine.files.socket(file), Ok(socket) if socket.kind == Kind::Datagram) {
        // It has a peer where ours has one, and fails likewise where ours has none.
        let _ = sys::shutdown(twin, number);
    }
    let done = engine.call(|sockets, cx| sockets.shutdown(id, how, cx));
    let ends = is_listener && how != Shutdown::Write;
    if ends {
        // It listens no more, and may connect.
        epoll_twins::hear_twin(&mut engine, file, false);
        ports::keep_a_port(&mut engine, file, twin);
    }
    drop(engine);
    if ends {
        listener::end_replicas(file);
    } else {
        for replica in listener::replicas_of(file) {
            let _ = engine::enter_at(replica.engine).call(|sockets, cx| sockets.shutdown(replica.id, how, cx));
        }
    }
    Ours(done)
}

/// `close` of a descriptor, before the twin is closed.
pub(crate) fn close(file: FileId, fd: c_int) {
    if file.is_set() {
        return epoll::close_set(file, fd);
    }
    let closed = close_file(&mut engine::enter(file), file, fd);
    if let Some(Closed { closing, replicas }) = closed {
        listener::close_replicas(&replicas);
        if let Some((closing, time)) = closing {
            linger(file, closing, Duration::from_nanos(time.as_nanos()));
        }
    }
}

/// What remains of an offloaded file whose last descriptor was closed.
struct Closed {
    /// The connection that has not ended yet, and how long `close` waits for it.
    closing: Option<(Closing, wirepath::time::Duration)>,
    /// The listeners of other engines, which the caller closes.
    replicas: Vec<Replica>,
}

/// Closes a descriptor of a socket under its engine's lock.
fn close_file(engine: &mut Engine, file: FileId, fd: c_int) -> Option<Closed> {
    let FileKind::Socket(socket) = engine.files.close(file, fd)?.what else { return None };
    for stand_in in socket.stand_ins.iter().copied() {
        table::clear(stand_in);
        sys::close(stand_in);
    }
    let id = socket.ours()?;
    let closing = engine.call(|sockets, cx| {
        let time = sockets.options(id)?.linger;
        Ok(sockets.close_lingering(id, cx)?.zip(time))
    });
    Some(Closed { closing: closing.ok().flatten(), replicas: socket.replicas })
}

/// Waits at most `time` for the end of a connection (`SO_LINGER`).
fn linger(file: FileId, closing: Closing, time: Duration) {
    // Handlers that ran before end no wait of this call.
    thread::forget_handlers();
    let mut blocking = Blocking::of_poll(Some(time));
    let _ = wait::until(&mut blocking, file.room(), WaitFor::Any, &[], |engine, _| {
        engine.call(|sockets, cx| if sockets.is_closing(closing, cx) { Err(Errno::EAGAIN) } else { Ok(()) })
    });
}

/// `getsockname` and `getpeername`.
pub(crate) fn name(file: FileId, of_peer: bool) -> Outcome<(SocketAddrV4, Family)> {
    let Ok((id, _, family)) = ours_of(file) else { return Pass };
    let name = engine::enter(file).look(|sockets| if of_peer { sockets.peer_addr(id) } else { sockets.local_addr(id) });
    Ours(name.map(|name| (name, family)))
}

/// `setsockopt`. If the socket is not offloaded yet, the twin has taken the option.
pub(crate) fn setsockopt(file: FileId, level: c_int, name: c_int, value: &[u8]) -> Outcome<()> {
    let number = value.first_chunk().map_or(0, |bytes| c_int::from_ne_bytes(*bytes));
    if (level, name) == (libc::SOL_SOCKET, libc::SO_RCVLOWAT) && number > 1 {
        data::SETS_LOW_WATER.store(true, Ordering::Relaxed);
    }
    let mut engine = engine::enter(file);
    let Ok(socket) = engine.files.socket(file) else { return Pass };
    let Some(id) = socket.ours() else {
        socket.options.push(level, name, value);
        socket.note(level, name, value);
        groups::note(socket, level, name, value);
        if groups::is_of_groups(level, name) {
            group_members::note_join();
            if let Err(error) = join_by_group(&mut engine, file) {
                if let Ok(twin) = engine.files.twin(file) {
                    groups::leave_again(twin, name, value);
                }
                if let Ok(socket) = engine.files.socket(file) {
                    socket.options.pop();
                }
                return Ours(Err(error));
            }
        }
        return Pass;
    };
    if socket.kind == Kind::Datagram && groups::is_of_groups(level, name) {
        let set = groups::set(&mut engine, file, name, value);
        if set.is_ok() {
            note_for_later(&mut engine, file, id, (level, name), value);
        }
        return Ours(set);
    }
    if socket.kind == Kind::Stream && groups::is_the_twins(level, name) {
        // A stream keeps what concerns groups, and does nothing with it.
        return Pass;
    }
    match options::handled_by(socket.kind, level, name, value) {
        // The kernel knows whether the program may.
        HandledBy::Engine if options::needs_a_right(level, name) => {
            let twin = engine.files.twin(file);
            if let Err(error) = twin.and_then(|twin| sys::setsockopt(twin, level, name, value)) {
                return Ours(Err(error));
            }
        }
        HandledBy::Engine => (),
        HandledBy::Device if !config::interface().is_named_by(name, value) => return Ours(Err(Errno::ENOPROTOOPT)),
        HandledBy::Twin | HandledBy::Device => {
            socket.note(level, name, value);
            return Pass;
        }
        HandledBy::Kernel => return Ours(Err(options::refusal(socket.kind, level, name, value.len()))),
    }
    let done = engine.call(|sockets, cx| sockets.setsockopt(id, level, name, value, cx));
    if done.is_ok() {
        note_for_later(&mut engine, file, id, (level, name), value);
    }
    if done.is_ok()
        && let (Ok(twin), Ok(socket)) = (engine.files.twin(file), engine.files.socket(file))
    {
        if matches!(socket.place, Owner::Ours { hears_twin: true, .. }) {
            error_queue::mirror(twin, level, name, value);
        }
        ports::mirror(twin, level, name, value);
    }
    if done.is_ok() && (level, name) == (libc::IPPROTO_UDP, libc::UDP_CORK) {
        groups::mirror_cork(&mut engine, file, value);
    }
    drop(engine);
    if done.is_ok() {
        for replica in listener::replicas_of(file) {
            let mut engine = engine::enter_at(replica.engine);
            let _ = engine.call(|sockets, cx| sockets.setsockopt(replica.id, level, name, value, cx));
        }
    }
    Ours(done)
}

/// Notes an option of a socket of ours that may be offloaded again: a datagram socket that nobody
/// has used may be left to a child, and where there is a broker it may be another one's one day, as
/// a listener may.
fn note_for_later(engine: &mut Engine, file: FileId, id: SocketId, (level, name): (c_int, c_int), value: &[u8]) {
    let is_unused = engine.look(|sockets| sockets.is_unused(id)) == Ok(true);
    if let Ok(socket) = engine.files.socket(file)
        && (is_unused || (config::broker().is_some() && (socket.kind == Kind::Datagram || socket.is_listener)))
    {
        socket.options.push(level, name, value);
    }
}

/// The twin has joined a group: the rules may give the socket to us by that. Fails where another
/// engine has the group.
fn join_by_group(engine: &mut Engine, file: FileId) -> Result<(), Errno> {
    if groups::one_is_ours(engine, file) == Ok(true)
        && let Ok(twin) = engine.files.twin(file)
        && let local = offload::name_of(twin)
        && let Err(error) = offload::take(engine, file, local, true)
        && !has_lost_interface(engine, file, error)
    {
        if groups::is_another_engines(engine, error, local.map_or(0, |local| local.port())) {
            return Err(error);
        }
        config::say(format_args!("a socket stays with the kernel with its groups: error {}", error.0));
    }
    Ok(())
}

/// `getsockopt`: returns the length of the value.
pub(crate) fn getsockopt(file: FileId, level: c_int, name: c_int, into: &mut [u8]) -> Outcome<usize> {
    let Ok((id, twin, family)) = ours_of(file) else { return Pass };
    // The twin has the family that the program asked for, and the memberships of all interfaces.
    if groups::is_the_twins(level, name) {
        return Pass;
    }
    if level == libc::IPPROTO_IPV6 || (level, name) == (libc::SOL_SOCKET, libc::SO_DOMAIN) {
        return Pass;
    }
    let mut engine = engine::enter(file);
    if (level, name) == (libc::SOL_SOCKET, libc::SO_ERROR)
        && let Ok(Socket { place: Owner::Ours { hears_twin: true, .. }, .. }) = engine.files.socket(file)
    {
        error_queue::absorb(&mut engine, id, twin);
    }
    match engine.call(|sockets, cx| sockets.getsockopt(id, level, name, into, cx)) {
        // The twin's connection is none, so it cannot answer what is asked about ours.
        Err(Errno::ENOPROTOOPT) if options::is_about_connection(level, name) => Ours(Err(Errno::ENOPROTOOPT)),
        Err(Errno::ENOPROTOOPT | Errno::EOPNOTSUPP) => match (level, name) {
            (libc::SOL_SOCKET, libc::SO_PEERNAME) => Ours(peer_name(&mut engine, id, family, into)),
            (libc::SOL_SOCKET, SO_MEMINFO) => Ours(memory_in_use(&mut engine, id, into)),
            (libc::SOL_SOCKET, libc::SO_INCOMING_CPU) => Ours(incoming_cpu(&mut engine, id, into)),
            // No packet of ours has come by the kernel's NAPI, which Linux says by 0 too.
            (libc::SOL_SOCKET, SO_INCOMING_NAPI_ID) => Ours(Ok(store_begin(&0_i32.to_ne_bytes(), into))),
            (libc::IPPROTO_IP, libc::IP_MTU) => path_mtu(&mut engine, file, id, into),
            _ => Pass,
        },
        done => Ours(done),
    }
}

/// Numbers that the crate `libc` does not have.
const SO_MEMINFO: c_int = 55;
const SO_INCOMING_NAPI_ID: c_int = 56;

/// `SO_INCOMING_CPU`: the core that handles the socket's packets, which is that of the thread that
/// calls; -1 where none has come.
fn incoming_cpu(engine: &mut Engine, id: SocketId, into: &mut [u8]) -> Result<usize, Errno> {
    let now = SystemTime::now();
    let entry = engine.ask(|sockets, cx| sockets.entry(id, now, cx))?;
    let cpu = if entry.rx_packets > 0 { sys::cpu()? } else { -1 };
    Ok(store_begin(&cpu.to_ne_bytes(), into))
}

/// Stores as much of a value as there is room for, and returns its length.
fn store_begin(value: &[u8], into: &mut [u8]) -> usize {
    let len = into.len().min(value.len());
    into[..len].copy_from_slice(&value[..len]);
    len
}

/// `SO_PEERNAME`: the answer of `getpeername`, of which no more bytes may be asked for than there
/// are.
fn peer_name(engine: &mut Engine, id: SocketId, family: Family, into: &mut [u8]) -> Result<usize, Errno> {
    let peer = engine.look(|sockets| sockets.peer_addr(id))?;
    let (bytes, len) = address::format(peer, family);
    let bytes = bytes[..len].get(..into.len()).ok_or(Errno::EINVAL)?;
    into.copy_from_slice(bytes);
    Ok(bytes.len())
}

/// `SO_MEMINFO`: what waits in the queues, as far as the kernel has a word for it.
fn memory_in_use(engine: &mut Engine, id: SocketId, into: &mut [u8]) -> Result<usize, Errno> {
    let now = SystemTime::now();
    let entry = engine.ask(|sockets, cx| sockets.entry(id, now, cx))?;
    let send_limit = engine.look(|sockets| sockets.option(id, |options| options.send_buffer))?;
    // `SK_MEMINFO_RMEM_ALLOC` to `SK_MEMINFO_DROPS`.
    let words =
        [entry.receive_queue, entry.receive_limit, 0, send_limit.into(), 0, entry.send_queue, 0, 0, entry.drops];
    let bytes = words.map(|word| u32::try_from(word).unwrap_or(u32::MAX).to_ne_bytes());
    Ok(store_begin(bytes.as_flattened(), into))
}

/// `IP_MTU` of a stream: what its segments may have, with the headers. The twin of a datagram
/// socket is connected where ours is.
fn path_mtu(engine: &mut Engine, file: FileId, id: SocketId, into: &mut [u8]) -> Outcome<usize> {
    if engine.files.socket(file).is_ok_and(|socket| socket.kind == Kind::Datagram) {
        return Pass;
    }
    if let Err(error) = engine.look(|sockets| sockets.peer_addr(id)) {
        return Ours(Err(error));
    }
    let mut info = [0; 248];
    let told = engine.call(|sockets, cx| sockets.getsockopt(id, libc::IPPROTO_TCP, libc::TCP_INFO, &mut info, cx));
    // `tcpi_pmtu`.
    Ours(told.map(|_| store_begin(&info[60..64], into)))
}

/// Whether signals of readiness (`O_ASYNC`) can be asked for: not of a socket of ours, and one of
/// which they were asked for stays with the kernel.
pub(crate) fn ask_for_signals(file: FileId, on: bool) -> bool {
    let mut engine = engine::enter(file);
    let Ok(socket) = engine.files.socket(file) else { return true };
    if socket.ours().is_some() {
        return !on;
    }
    socket.wants_sigio = on;
    true
}

/// Records `O_NONBLOCK`; the twin has it as well.
pub(crate) fn set_nonblocking(file: FileId, is_nonblocking: bool) {
    engine::with_files(file, |files| {
        if let Some(file) = files.get(file) {
            file.is_nonblocking = is_nonblocking;
        }
    });
}

/// Whether nothing waits for `recv` in the engine; what was shut is ready for its end.
fn has_nothing(engine: &mut Engine, id: SocketId) -> bool {
    let looked = engine.look(|sockets| Ok((sockets.ready(id)?, sockets.readable_len(id)?)));
    looked.is_ok_and(|(ready, len)| !ready.has(Ready::IN) || (len == 0 && ready.has(Ready::RDHUP)))
}

/// `FIONREAD` and `SIOCOUTQ`.
pub(crate) fn queued(file: FileId, direction: Direction) -> Outcome<c_int> {
    let mut engine = engine::enter(file);
    let Some((id, hears_twin)) = engine.files.socket(file).ok().and_then(|socket| match socket.place {
        Owner::Ours { id, hears_twin } => Some((id, hears_twin)),
        Owner::Undecided | Owner::Kernel | Owner::Parent => None,
    }) else {
        return Pass;
    };
    // A turn, so that bytes that have arrived count although no call has received them.
    engine.turn();
    if direction == Direction::Receive && hears_twin && has_nothing(&mut engine, id) {
        // The twin has received a datagram by loopback, and that is the next one.
        return Pass;
    }
    let len = engine.call(|sockets, cx| match direction {
        Direction::Receive => sockets.readable_len(id),
        Direction::Send => sockets.unsent_len(id, cx),
    });
    Ours(len.map(|len| c_int::try_from(len).unwrap_or(c_int::MAX)))
}

/// `SIOCOUTQNSD`, which datagrams do not have.
pub(crate) fn queued_unsent(file: FileId) -> Outcome<c_int> {
    let mut engine = engine::enter(file);
    let Some((id, kind)) = engine.files.socket(file).ok().and_then(|socket| Some((socket.ours()?, socket.kind))) else {
        return Pass;
    };
    if kind == Kind::Datagram {
        return Pass;
    }
    engine.turn();
    let len = engine.call(|sockets, cx| sockets.never_sent_len(id, cx));
    Ours(len.map(|len| c_int::try_from(len).unwrap_or(c_int::MAX)))
}

/// The direction of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Receive,
    Send,
}

/// How long a call of a socket blocks, by `O_NONBLOCK`, its flags and the socket's timeout.
pub(crate) fn blocking(file: FileId, id: SocketId, flags: c_int, direction: Direction) -> Result<Blocking, Errno> {
    thread::begin_call();
    let mut engine = engine::enter(file);
    let is_last = direction == Direction::Send && process::has_sent_all();
    let is_nonblocking = flags & libc::MSG_DONTWAIT != 0 || engine.files.is_nonblocking(file) || is_last;
    let timeout = engine.look(|sockets| {
        sockets.option(id, |options| match direction {
            Direction::Receive => options.receive_timeout,
            Direction::Send => options.send_timeout,
        })
    });
    // Another thread may have opened the engine anew since the caller looked the number up.
    let timeout = engine::of_today(timeout)?;
    let timeout = thread::timeout_of_call(timeout.map(|timeout| Duration::from_nanos(timeout.as_nanos())));
    Ok(Blocking::of_socket(is_nonblocking, timeout))
}

/// An offloaded file's socket, twin and family.
pub(crate) fn ours_of(file: FileId) -> Result<(SocketId, c_int, Family), Errno> {
    let mut engine = engine::enter(file);
    let twin = engine.files.twin(file)?;
    let socket = engine.files.socket(file)?;
    socket.ours().map(|id| (id, twin, socket.family)).ok_or(Errno::ENOTSOCK)
}
