//! Sockets that the program is started with: by systemd (`LISTEN_FDS`), by `inetd`, by a program
//! that has become this one.
//!
//! ```text
//!   a listener that systemd or     ┬─▶ ours from the first wait for its connections on, unless the
//!   inetd has given; each listener │   kernel has some by then: they would be reset
//!   where there is a broker ───────┤
//!   a bound datagram socket that   │
//!   systemd or inetd has given ────┴─▶ ours from its first use on; the kernel says its options
//!   all others ──────────────────────▶ the kernel's
//! ```
//!
//! Connections of the others may be open, and their groups are not known. They are listed, and a
//! sentence says so; under the policy `refuse` the program ends.
//!
//! A program that a server starts may have descriptors of the server's that it never uses. So the
//! sentence waits until the program makes or accepts a socket, unless systemd has given it this
//! one.

use core::ffi::c_int;
use core::net::SocketAddrV4;
use core::sync::atomic::{AtomicBool, Ordering};
use std::fs;
use std::sync::{Mutex, PoisonError};

use sockets::Kind;
use sockets::rules::{Role, Traffic};

use super::{back, groups, offload};
use crate::address::Family;
use crate::config::{self, Policy};
use crate::engine::file::{ANY, FileKind, Owner, Socket, UNDECIDED};
use crate::engine::options::{OptionCall, Options};
use crate::engine::table::{self, FileId};
use crate::engine::{self, thread};
use crate::{process, sys};

const INHERITED: &str = "it was there when the program began (systemd, inetd or exec)";
/// The reason of a listener that systemd, for one, has started the program with because somebody
/// has called.
pub(super) const HAS_CONNECTIONS: &str = "it was there when the program began, and the kernel has connections at its port: \
                                          start the program before its first caller";

/// The address of the first one that the rules leave to us, until it is said.
static UNSAID: Mutex<Option<SocketAddrV4>> = Mutex::new(None);
static HAS_UNSAID: AtomicBool = AtomicBool::new(false);

/// Records the sockets that are open. Called once, when the program begins.
pub(crate) fn record() {
    let Some(config) = config::get() else { return };
    let numbers = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut fds: Vec<c_int> = numbers.filter(|fd| !table::is_known(*fd)).collect();
    fds.sort_unstable();
    let mut known: Vec<(Option<[u64; 3]>, FileId)> = Vec::new();
    let mut first = None;
    let mut engine = engine::enter_at(0);
    for fd in fds {
        let Some((kind, family)) = kind_of(fd) else { continue };
        let identity = sys::identity(fd);
        if let Some((_, file)) = known.iter().find(|(other, _)| *other == identity) {
            engine.files.dup(*file, fd);
            continue;
        }
        let listens = sys::getsockopt_int(fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN) == Ok(1);
        let mut socket = Socket {
            place: Owner::Kernel,
            why: INHERITED,
            is_listener: listens,
            is_inherited: true,
            has_named_port: true,
            ..Socket::new(kind, family)
        };
        match address_of_ours(fd, kind, listens, config) {
            Some(local) if may_become_ours(fd, &socket, local, config) => leave(&mut socket, fd),
            local => first = first.or(local),
        }
        let is_nonblocking = sys::fcntl(fd, libc::F_GETFL, 0).is_ok_and(|flags| flags & libc::O_NONBLOCK != 0);
        known.push((identity, engine.files.open(fd, is_nonblocking, FileKind::Socket(socket))));
    }
    drop(engine);
    let Some(address) = first else { return };
    if config.policy == Policy::Refuse && !config::has_opened() {
        config::refuse(format_args!("a socket of the program's, {address}, is the kernel's: {INHERITED}"));
    }
    *UNSAID.lock().unwrap_or_else(PoisonError::into_inner) = Some(address);
    HAS_UNSAID.store(true, Ordering::Release);
    if config::is_activated() {
        say();
    }
}

/// Says that there are some, once: the program has made a socket, or accepted a connection. One
/// load.
pub(crate) fn say() {
    if HAS_UNSAID.load(Ordering::Acquire) && HAS_UNSAID.swap(false, Ordering::AcqRel) {
        let address = thread::uninterrupted(|| UNSAID.lock().unwrap_or_else(PoisonError::into_inner).take());
        offload::say_kept(INHERITED, address.unwrap_or(ANY));
    }
}

/// The kind of a socket that could be ours if the program had made it.
fn kind_of(fd: c_int) -> Option<(Kind, Family)> {
    let option = |name| sys::getsockopt_int(fd, libc::SOL_SOCKET, name).ok();
    let family = match option(libc::SO_DOMAIN)? {
        libc::AF_INET => Family::Inet,
        libc::AF_INET6 => Family::Inet6,
        _ => return None,
    };
    match (option(libc::SO_TYPE)?, option(libc::SO_PROTOCOL)?) {
        (libc::SOCK_STREAM, libc::IPPROTO_TCP) => Some((Kind::Stream, family)),
        (libc::SOCK_DGRAM, libc::IPPROTO_UDP) => Some((Kind::Datagram, family)),
        _ => None,
    }
}

/// The address of a socket, unless it has none, or is of loopback, or the rules leave it to the
/// kernel.
fn address_of_ours(fd: c_int, kind: Kind, listens: bool, config: &config::Config) -> Option<SocketAddrV4> {
    let local = offload::name_of(fd).filter(|local| local.port() != 0)?;
    let remote = offload::peer_of(fd);
    let traffic = match (kind, remote) {
        (Kind::Stream, Some(_)) => Traffic::TcpClient,
        (Kind::Stream, None) if listens => Traffic::TcpServer,
        // A twin of a program that has become this one, or one that is not used yet.
        (Kind::Stream, None) => return None,
        (Kind::Datagram, Some(_)) => Traffic::UdpConnect,
        (Kind::Datagram, None) => Traffic::UdpReceiver,
    };
    let is_the_kernels = local.ip().is_loopback() || config.role(traffic, local, remote).role == Role::Os;
    (!is_the_kernels).then_some(local)
}

/// Whether one whose address the rules give to us can be ours when it is first used. A program may
/// have datagram sockets of its server's that it never uses, so one is to be given to it. So is a
/// listener where no broker passes frames on: its server may have started several programs with
/// it, and the first would have all callers.
fn may_become_ours(fd: c_int, socket: &Socket, local: SocketAddrV4, config: &config::Config) -> bool {
    let is_given = || config::is_given(fd);
    match socket.kind {
        Kind::Stream => {
            socket.is_listener
                && (config::broker().is_some() || is_given())
                && !(config.policy == Policy::Refuse && back::has_kernels_connections(fd))
        }
        Kind::Datagram => is_given() && !local.ip().is_multicast() && offload::peer_of(fd).is_none(),
    }
}

/// Has the first use of a socket offload it, with the options that its maker has set.
fn leave(socket: &mut Socket, fd: c_int) {
    (socket.place, socket.why) = (Owner::Undecided, UNDECIDED);
    let kind = if socket.kind == Kind::Stream { libc::SOCK_STREAM } else { libc::SOCK_DGRAM };
    if let Ok(new) = sys::socket(socket.family.number(), kind | libc::SOCK_CLOEXEC, 0) {
        socket.options = Options::of_another_program(fd, new);
        sys::close(new);
    }
    for OptionCall { level, name, value } in socket.options.clone().iter() {
        socket.note(*level, *name, value);
        groups::note(socket, *level, *name, value);
    }
    match socket.kind {
        Kind::Stream => socket.backlog = Some(sys::backlog(fd).unwrap_or(c_int::MAX)),
        Kind::Datagram => socket.set_left(true),
    }
}

/// Lists a socket that has just been made of a protocol that only the kernel has.
pub(super) fn record_odd(fd: c_int, is_nonblocking: bool, (kind, family): (Kind, Family), why: &'static str) {
    let socket = Socket { place: Owner::Kernel, why, ..Socket::new(kind, family) };
    engine::enter_own().files.open(fd, is_nonblocking, FileKind::Socket(socket));
    offload::say_kept(why, ANY);
}

/// Whether a socket of this protocol is refused, because only the kernel has it: under the policy
/// `refuse`, as by a kernel that does not have the protocol. Programs use TCP or UDP then.
pub(crate) fn is_refused(domain: c_int, kind: c_int, protocol: c_int) -> bool {
    matches!(domain, libc::AF_INET | libc::AF_INET6)
        && only_the_kernels(kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC), protocol).is_some()
        && config::get().is_some_and(|config| config.policy == Policy::Refuse)
        && !config::leaves_all()
        && process::is_owner()
}

/// The reason of a socket whose protocol only the kernel has, and what it is otherwise.
pub(super) const fn only_the_kernels(what: c_int, protocol: c_int) -> Option<(Kind, &'static str)> {
    match (what, protocol) {
        (libc::SOCK_STREAM, libc::IPPROTO_MPTCP) => {
            Some((Kind::Stream, "multipath TCP (IPPROTO_MPTCP), which only the kernel has"))
        }
        (libc::SOCK_DGRAM, libc::IPPROTO_UDPLITE) => {
            Some((Kind::Datagram, "UDP-Lite (IPPROTO_UDPLITE), which only the kernel has"))
        }
        _ => None,
    }
}
