//! Listeners: `listen`, `accept`, and what a process does with its listeners before a `fork`.
//!
//! A listener lives on the engine of the thread that made it. Where a process has several engines,
//! the others listen at the same port for it, so that a connection lives on the engine whose queue
//! its frames arrive on, and a call on the listener asks all of them:
//!
//! ```text
//!   accept ──▶ the thread's own engine first ──▶ the others by their numbers ──▶ the kernel's twin
//! ```
//!
//! A listener with `SO_REUSEPORT` is on its own engine alone: such a program has one for each
//! thread itself. So is each where the NIC steers, as a ConnectX does, because it brings the frames
//! of a port to one engine.

use core::ffi::c_int;
use core::net::SocketAddrV4;
use core::sync::atomic::{AtomicBool, Ordering};
use std::fs;
use std::time::{Duration, Instant};

use sockets::rules::Traffic;
use sockets::{Errno, Kind, Options, Ready, SocketId};

use super::back::has_kernels_connections;
use super::epoll_twins::{find_reported, hear_twin, watches_of};
use super::ports::bind_twin;
use super::{
    Direction, IPV6, Outcome, back, blocking, close, close_file, has_lost_interface, inherited, keep, left, offload,
    ours_of,
};
use crate::address::Family;
use crate::engine::file::{ANY, File, FileKind, Owner, Replica, Socket, Watch};
use crate::engine::group::{EngineMask, Engines};
use crate::engine::table::{self, FileId};
use crate::engine::wait::{self, Sides, Waits, readable};
use crate::engine::{self, Engine, Guest, WaitFor, thread};
use crate::{config, process, scarce, sys};
use Outcome::{Ours, Pass};

/// Lists a connection that the kernel has accepted for a listener.
pub(crate) fn record_accepted_by_kernel(listener: c_int, fd: c_int, flags: c_int) {
    let Some(listener) = table::find(listener) else { return };
    inherited::say();
    let mut engine = engine::enter(listener);
    let Ok(Socket { family, place, why, kind: Kind::Stream, .. }) = engine.files.socket(listener) else { return };
    let why = if matches!(place, Owner::Ours { .. }) { "accepted by loopback or another interface" } else { why };
    let socket = Socket { place: Owner::Kernel, why, ..Socket::new(Kind::Stream, *family) };
    engine.files.open(fd, flags & libc::SOCK_NONBLOCK != 0, FileKind::Socket(socket));
}

/// `listen`. The engines listen first, then the twin, for connections by other interfaces: a
/// connection by our interface that the kernel accepted earlier would be reset when an engine
/// begins.
pub(crate) fn listen(file: FileId, backlog: c_int) -> Result<(), Errno> {
    let done = listen_on_all(file, backlog);
    if done == Err(Errno::ENOBUFS) {
        scarce::Scarce::Listeners.say();
    }
    done
}

fn listen_on_all(file: FileId, backlog: c_int) -> Result<(), Errno> {
    let mut engine = engine::enter(file);
    let twin = engine.files.twin(file)?;
    let socket = engine.files.socket(file)?;
    if socket.kind != Kind::Stream {
        return Err(Errno::EOPNOTSUPP);
    }
    let ours = socket.ours();
    if ours.is_some() {
        offload::claim(&mut engine, file, Kind::Stream);
    }
    let watches = match ours {
        Some(id) => match engine.call(|sockets, cx| sockets.listen(id, backlog_of(backlog), cx)) {
            Err(error) if has_lost_interface(&mut engine, file, error) => Vec::new(),
            done => {
                done?;
                hear_twin(&mut engine, file, true);
                watches_of(&mut engine, id)
            }
        },
        None => {
            let watches = find_reported(engine.files.socket(file)?.watches.clone());
            begin_to_listen(&mut engine, file, twin, backlog)?;
            engine.files.socket(file)?.backlog = Some(backlog);
            engine.files.mark(file);
            MAY_BE_IDLE_IN_SETS.fetch_or(!watches.is_empty(), Ordering::Relaxed);
            watches
        }
    };
    drop(engine);
    replicate(file, backlog, &watches);
    if let Err(error) = sys::listen(twin, backlog) {
        end_replicas(file);
        offload::give_back(&mut engine::enter(file), file);
        return Err(error);
    }
    engine::enter(file).files.socket(file)?.is_listener = true;
    Ok(())
}

/// Whether a listener, or a datagram socket, is to be begun before a thread waits on it.
pub(crate) fn is_idle(engine: &mut Engine, file: FileId) -> bool {
    engine.files.socket(file).is_ok_and(|socket| socket.is_idle())
}

/// A thread waits for connections of a listener. If the engines gave the listener up before a
/// `fork`, this process now opens it again. The caller holds no engine.
pub(crate) fn begin_to_accept(file: FileId) -> Result<(), Errno> {
    let mut engine = engine::enter(file);
    let socket = engine.files.socket(file)?;
    if socket.is_left {
        return left::take_up(&mut engine, file);
    }
    let Some(backlog) = socket.backlog.take() else { return Ok(()) };
    if socket.ours().is_none() {
        let watches = find_reported(socket.watches.clone());
        let twin = engine.files.twin(file)?;
        match begin_to_listen(&mut engine, file, twin, backlog) {
            Err(Errno::EADDRINUSE) => keep(&mut engine, file, ELSEWHERE)?,
            done => done?,
        }
        drop(engine);
        replicate(file, backlog, &watches);
        sys::listen(twin, backlog)?;
        engine = engine::enter(file);
    }
    engine.files.mark(file);
    Ok(())
}

/// Begins a listener before a thread waits on it, because the process could not afterwards. It is
/// idle all the same, and a `fork` leaves it to the children. One that cannot begin stays the
/// kernel's. The caller holds no engine.
pub(super) fn take_up_idle(file: FileId) {
    let backlog = engine::enter(file).files.socket(file).ok().and_then(|socket| socket.backlog);
    let _ = begin_to_accept(file);
    let mut engine = engine::enter(file);
    if let Ok(socket) = engine.files.socket(file)
        && let Some(id) = socket.ours()
        && backlog.is_some()
    {
        socket.backlog = backlog;
        MAY_BE_IDLE_IN_SETS.fetch_or(!watches_of(&mut engine, id).is_empty(), Ordering::Relaxed);
        engine.files.mark(file);
    }
}

/// The reason of a socket that this process shares with another one.
pub(super) const ELSEWHERE: &str = "another process has its port, and no broker passes frames on to both";

/// The reason of a listener whose port another thread of this process, or another process, has, by
/// `SO_REUSEPORT`, and of a receiver whose address another one has. A shared one at all addresses
/// has its groups alone.
pub(super) const ANOTHER_ENGINE: &str =
    "another engine of this program, or another process, has its port, and no broker passes frames on to both";

/// The reason of a listener of a thread that listens when others have served callers already.
const LATE_ENGINE: &str = "the kernel has connections at its port, which came to its engine's queue before it listened";

/// Whether a listener may be passed to another process (`SCM_RIGHTS`), which shares its connections
/// with this one then, or has them once this one closes it: where a broker passes frames on.
/// Elsewhere all of them would go on coming here, and the other process would never get one.
pub(crate) fn may_be_passed(file: FileId) -> bool {
    let mut engine = engine::enter(file);
    engine.files.socket(file).is_ok_and(|socket| socket.is_listener)
        && engine.look(|sockets| Ok(sockets.is_forwarded())) == Ok(true)
}

/// Another process has passed a descriptor to this one. If it is a listener, it may become ours
/// when a thread first waits for its connections, as one that was inherited.
pub(crate) fn adopt(fd: c_int) {
    process::given(fd);
    let option = |name| sys::getsockopt_int(fd, libc::SOL_SOCKET, name);
    let family = match option(libc::SO_DOMAIN) {
        Ok(libc::AF_INET) => Family::Inet,
        Ok(libc::AF_INET6) => Family::Inet6,
        _ => return,
    };
    if option(libc::SO_ACCEPTCONN) != Ok(1) || option(libc::SO_PROTOCOL) != Ok(libc::IPPROTO_TCP) {
        return;
    }
    // One that the process has passed to itself is another descriptor of its file.
    let identity = sys::identity(fd);
    for number in engine::all().iter() {
        let mut engine = engine::enter_at(number);
        let is_same = |file: &File| {
            matches!(&file.what, FileKind::Socket(socket) if socket.is_listener)
                && file.fds.first().is_some_and(|twin| sys::identity(*twin) == identity)
        };
        let same = engine.files.iter().find(|(_, file)| is_same(file)).map(|(idx, _)| idx);
        if let Some(idx) = same {
            return engine.files.dup(FileId::of(number, idx as u32), fd);
        }
    }
    let socket = Socket {
        backlog: Some(sys::backlog(fd).unwrap_or(c_int::MAX)),
        is_listener: true,
        has_named_port: true,
        ..Socket::new(Kind::Stream, family)
    };
    let is_nonblocking = sys::fcntl(fd, libc::F_GETFL, 0).is_ok_and(|flags| flags & libc::O_NONBLOCK != 0);
    engine::enter_own().files.open(fd, is_nonblocking, FileKind::Socket(socket));
}

/// Listeners that no thread has waited on may be in epoll sets, and datagram sockets that are left.
pub(super) static MAY_BE_IDLE_IN_SETS: AtomicBool = AtomicBool::new(false);

/// A thread waits on an epoll set, and so on the listeners that were in it before they listened.
/// One load, unless there may be such listeners. The caller holds no engine.
pub(crate) fn begin_to_accept_in(set: FileId) {
    if !MAY_BE_IDLE_IN_SETS.load(Ordering::Relaxed) || !MAY_BE_IDLE_IN_SETS.swap(false, Ordering::Relaxed) {
        return;
    }
    for number in engine::all().iter() {
        let mut engine = engine::enter_at(number);
        let mut waited_on = Vec::new();
        for file in engine.files.idle() {
            let Ok(socket) = engine.files.socket(file) else { continue };
            let watches = match socket.ours() {
                Some(id) => watches_of(&mut engine, id),
                None => socket.watches.clone(),
            };
            if watches.iter().any(|watch| watch.set == set) {
                waited_on.push(file);
            } else {
                MAY_BE_IDLE_IN_SETS.fetch_or(!watches.is_empty(), Ordering::Relaxed);
            }
        }
        drop(engine);
        // One that cannot begin stays the kernel's.
        waited_on.into_iter().for_each(|file| _ = begin_to_accept(file));
    }
}

fn begin_to_listen(engine: &mut Engine, file: FileId, twin: c_int, backlog: c_int) -> Result<(), Errno> {
    let &mut Socket { family, is_inherited, .. } = engine.files.socket(file)?;
    if is_inherited && has_kernels_connections(twin) {
        return keep(engine, file, inherited::HAS_CONNECTIONS);
    }
    let Ok(local) = bind_twin(twin, family, ANY) else { return keep(engine, file, IPV6) };
    if !offload::is_ours(engine, file, Traffic::TcpServer, local, None)? {
        return Ok(());
    }
    if is_late_engines_listener(engine, twin) {
        return keep(engine, file, LATE_ENGINE);
    }
    let id = offload::take(engine, file, Some(local), true);
    match id.and_then(|id| engine.call(|sockets, cx| sockets.listen(id, backlog_of(backlog), cx))) {
        Err(error) if has_lost_interface(engine, file, error) => Ok(()),
        Err(Errno::EADDRINUSE) if offload::is_engines_port(engine) => {
            offload::give_back(engine, file);
            keep(engine, file, ANOTHER_ENGINE)
        }
        // The kernel accepted, for the listeners of other threads, until the queue had the port.
        Ok(()) if is_late_engines_listener(engine, twin) => {
            offload::give_back(engine, file);
            keep(engine, file, LATE_ENGINE)
        }
        listens => listens.inspect_err(|_| offload::give_back(engine, file)),
    }
}

/// Whether the kernel has accepted, for the listeners of other threads at this port, what came to
/// the queue of this engine: it would be reset.
fn is_late_engines_listener(engine: &mut Engine, twin: c_int) -> bool {
    offload::is_engines_port(engine)
        && sys::getsockopt_int(twin, libc::SOL_SOCKET, libc::SO_REUSEPORT) == Ok(1)
        && has_kernels_connections(twin)
}

/// A listener for which the other engines listen too.
struct Original<'a> {
    /// Others may listen at its port.
    is_shared: bool,
    options: Options,
    local: SocketAddrV4,
    backlog: c_int,
    watches: &'a [Watch],
    /// What is noted of it in each of those engines, where it has another number.
    guest: Guest,
}

/// Has the other engines listen for a listener, each as far as it can: connections go to those that
/// do. The engines are entered one after the other.
fn replicate(file: FileId, backlog: c_int, watches: &[Watch]) {
    if config::engines() == 1 {
        return;
    }
    let Some(original) = Original::of(file, backlog, watches) else { return };
    if original.options.reuse_port || !original.is_shared {
        return;
    }
    let has = replicas_of(file);
    for number in engine::all().without(file.room()).iter() {
        if let Some(replica) = has.iter().find(|replica| replica.engine == number) {
            let mut engine = engine::enter_at(number);
            let _ = engine.call(|sockets, cx| sockets.listen(replica.id, backlog_of(backlog), cx));
            continue;
        }
        let Some(id) = original.listen_on(&mut engine::enter_at(number)) else { continue };
        let replica = Replica { engine: number, id };
        let noted = engine::enter(file).files.socket(file).map(|socket| socket.replicas.push(replica));
        if noted.is_err() {
            // Another thread has closed the listener meanwhile.
            close_replicas(&[replica]);
        }
    }
}

impl<'a> Original<'a> {
    fn of(file: FileId, backlog: c_int, watches: &'a [Watch]) -> Option<Self> {
        let mut engine = engine::enter(file);
        let fd = engine.files.twin(file).ok()?;
        let Ok(Socket { place: Owner::Ours { id, .. }, why, opened, .. }) = engine.files.socket(file) else {
            return None;
        };
        let guest = Guest { id: *id, fd, why, opened: *opened };
        let known = engine.look(|sockets| {
            Ok((sockets.shares_listeners(), sockets.options(guest.id)?, sockets.local_addr(guest.id)?))
        });
        let (is_shared, options, local) = known.ok()?;
        Some(Self { is_shared, options, local, backlog, watches, guest })
    }

    /// Has an engine listen for it; `None` if the engine cannot.
    fn listen_on(&self, engine: &mut Engine) -> Option<SocketId> {
        if !offload::open(engine) {
            return None;
        }
        let id = engine.call(|sockets, _| sockets.socket(Kind::Stream)).ok()?;
        offload::claim_twin(engine, self.guest.fd, Kind::Stream);
        let listens = engine.call(|sockets, cx| {
            sockets.set_options(id, &self.options, cx)?;
            sockets.bind(id, self.local, cx)?;
            sockets.listen(id, backlog_of(self.backlog), cx)
        });
        if listens.is_err() {
            let _ = engine.call(|sockets, cx| sockets.close(id, cx));
            return None;
        }
        engine.guests.push(Guest { id, ..self.guest });
        for watch in self.watches {
            offload::add_watch(engine, id, watch);
        }
        Some(id)
    }
}

/// The listeners of other engines for a listener.
pub(crate) fn replicas_of(file: FileId) -> Vec<Replica> {
    if config::engines() == 1 {
        return Vec::new();
    }
    engine::enter(file).files.socket(file).map(|socket| socket.replicas.clone()).unwrap_or_default()
}

/// Closes the listeners of other engines for a listener. The caller holds no engine.
pub(crate) fn end_replicas(file: FileId) {
    if config::engines() > 1 {
        let replicas = engine::enter(file).files.socket(file).map(|socket| core::mem::take(&mut socket.replicas));
        close_replicas(&replicas.unwrap_or_default());
    }
}

/// The same of a listener that is closed itself.
pub(crate) fn close_replicas(replicas: &[Replica]) {
    for replica in replicas {
        close_replica(&mut engine::enter_at(replica.engine), replica.id);
    }
}

fn close_replica(engine: &mut Engine, id: SocketId) {
    engine.guests.retain(|guest| guest.id != id);
    let _ = engine.call(|sockets, cx| sockets.close(id, cx));
}

/// Gives listeners up before a `fork` that the process never waited on, and datagram sockets that
/// it never used, and the queues back if it has no other sockets: the first process that waits on a
/// listener, parent or child, opens it again. Until then the kernel does not listen either, because
/// connections that it accepts would be reset.
pub(crate) fn leave_idle(engines: &mut Engines) {
    left::leave_datagrams(engines);
    let is_in_use = engines.iter_mut().any(|engine| engine.files.has_sockets_in_use());
    let gives_queues_back = !is_in_use && have_sent_all(engines);
    let mut replicas = Vec::new();
    for engine in engines.iter_mut() {
        for file in engine.files.idle() {
            let Ok(socket) = engine.files.socket(file) else { continue };
            let Some(id) = socket.ours() else { continue };
            replicas.append(&mut socket.replicas);
            let _ = engine.call(|sockets, cx| sockets.silence_syns(id, cx));
            offload::give_back(engine, file);
            if let Ok(socket) = engine.files.socket(file) {
                MAY_BE_IDLE_IN_SETS.fetch_or(!socket.watches.is_empty(), Ordering::Relaxed);
            }
            if let Ok(twin) = engine.files.twin(file) {
                let _ = sys::shutdown(twin, libc::SHUT_RD);
            }
        }
    }
    for replica in replicas {
        if let Some(engine) = engines.of(replica.engine) {
            let _ = engine.call(|sockets, cx| sockets.silence_syns(replica.id, cx));
            close_replica(engine, replica.id);
        }
    }
    if gives_queues_back {
        // A peer whose handshake ends with a frame that is in the ring is reset by this turn, and
        // does not wait for an answer.
        engines.iter_mut().for_each(|engine| _ = engine.turn());
        engines.iter_mut().for_each(Engine::close);
    }
}

/// The process becomes another program. Listeners that stay open are the kernel's there, and listen
/// again if they were given up before a `fork`.
pub(crate) fn leave_to_next_program() {
    for number in engine::all().iter() {
        let mut engine = engine::enter_at(number);
        for file in engine.files.idle() {
            let Ok(&mut Socket { place: Owner::Undecided, backlog: Some(backlog), .. }) = engine.files.socket(file)
            else {
                continue;
            };
            if let Some(fd) = stays_at_exec(&mut engine, file) {
                let _ = sys::listen(fd, backlog);
            }
        }
    }
}

/// A descriptor of a file that the next program has.
pub(super) fn stays_at_exec(engine: &mut Engine, file: FileId) -> Option<c_int> {
    let stays = |fd: &c_int| sys::fcntl(*fd, libc::F_GETFD, 0).is_ok_and(|flags| flags & libc::FD_CLOEXEC == 0);
    engine.files.get(file)?.fds.iter().copied().find(stays)
}

/// Turns the engines until the peers have acknowledged what closed connections have sent, which
/// would be lost with the engines; `false` where they do not do so soon.
fn have_sent_all(engines: &mut Engines) -> bool {
    let began = Instant::now();
    while engines.iter_mut().any(|engine| engine.longest_end().is_some()) {
        if began.elapsed() >= SENT_WITHIN {
            return false;
        }
        engines.iter_mut().for_each(|engine| _ = engine.turn());
    }
    true
}

/// The longest delay of a `fork`.
const SENT_WITHIN: Duration = Duration::from_millis(50);

/// Linux `__sys_listen`: a negative one is a large one.
fn backlog_of(backlog: c_int) -> usize {
    let most = fs::read_to_string("/proc/sys/net/core/somaxconn").ok().and_then(|text| text.trim().parse().ok());
    (backlog as u32 as usize).min(most.unwrap_or(SOMAXCONN))
}

/// `net.core.somaxconn` by default.
const SOMAXCONN: usize = 4_096;

/// The result of `accept`: a descriptor, and the peer.
pub(crate) struct Accepted {
    pub(crate) fd: c_int,
    pub(crate) peer: Peer,
}

/// The peer of an accepted connection.
pub(crate) enum Peer {
    /// Of one of ours, in the program's family.
    Ours(SocketAddrV4, Family),
    /// Of one of the kernel's: its address, and the bytes of that.
    Kernel([u8; 128], usize),
}

/// `accept4`.
pub(crate) fn accept(file: FileId, flags: c_int) -> Outcome<Accepted> {
    if flags & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != 0 {
        return Ours(Err(Errno::EINVAL));
    }
    back::call_through(file, (Direction::Receive, 0), || accept_by_any(file, flags))
}

/// By whichever of its listeners has a connection first.
fn accept_by_any(file: FileId, flags: c_int) -> Outcome<Accepted> {
    if let Err(error) = begin_to_accept(file) {
        return Ours(Err(error));
    }
    let Ok((id, twin, family)) = ours_of(file) else { return Pass };
    let (is_datagrams, is_both, mut listeners) = match engine::enter(file).files.socket(file) {
        Ok(socket) => (socket.kind == Kind::Datagram, socket.is_both, socket.replicas.clone()),
        Err(_) => return Pass,
    };
    if is_datagrams {
        return Ours(Err(Errno::EOPNOTSUPP));
    }
    let mut blocking = match blocking(file, id, 0, Direction::Receive) {
        Ok(blocking) => blocking,
        Err(error) => return Ours(Err(error)),
    };
    listeners.push(Replica { engine: file.room(), id });
    listeners.sort_by_key(|listener| (listener.engine != thread::own_engine(), listener.engine));
    let engines: EngineMask = listeners.iter().map(|listener| listener.engine).collect();
    let kernel = [readable(twin)];
    let interest = WaitFor::Socket(id, Ready::IN);
    let waits = Waits { engines, sets: &[], interest, listeners: &listeners, kernel: &kernel };
    let is_nonblocking = blocking.is_nonblocking;
    loop {
        let mut stale = None;
        let accepted = wait::until_any(&mut blocking, &waits, |engines, sides| {
            if is_both
                && engine::is_twins_turn()
                && let Ok(accepted) = accept_twin(twin, flags, is_nonblocking)
            {
                return Ok(accepted);
            }
            for listener in &listeners {
                let Some(engine) = engines.of(listener.engine) else { continue };
                match accept_ours(engine, listener.id, family, flags, &mut stale) {
                    Err(Errno::EAGAIN) => (),
                    done => return done,
                }
            }
            if sides == Sides::Both {
                return accept_twin(twin, flags, is_nonblocking);
            }
            Err(Errno::EAGAIN)
        });
        let Some((stale, fd)) = stale else { return Ours(accepted) };
        close(stale, fd);
        sys::close(fd);
    }
}

/// Accepts a connection of ours. The kernel may give its twin the number of a file that was closed
/// by a call that we did not see: one of another engine is returned in `stale`, with a descriptor
/// that the caller closes, because no further lock can be taken here.
fn accept_ours(
    engine: &mut Engine,
    id: SocketId,
    family: Family,
    flags: c_int,
    stale: &mut Option<(FileId, c_int)>,
) -> Result<Accepted, Errno> {
    let ready = engine.look(|sockets| sockets.ready(id))?;
    if !ready.has(Ready::IN) {
        // One whose flow the broker has taken back reports that once.
        let reported = if ready.has(Ready::ERR) { engine.look(|sockets| sockets.take_error(id))? } else { None };
        return Err(reported.unwrap_or(Errno::EAGAIN));
    }
    // The descriptor is made first, because a connection stays in the queue if there is none for
    // it.
    let fd = sys::socket(family.number(), libc::SOCK_STREAM | flags, 0).inspect_err(|error| scarce::say_of(*error))?;
    if let Some(file) = table::find(fd) {
        let is_whole = engine.files.socket(file).is_ok_and(|socket| socket.replicas.is_empty());
        if !is_whole {
            *stale = Some((file, fd));
            return Err(Errno::EBADF);
        }
        let _ = close_file(engine, file, fd);
    }
    match engine.call(|sockets, _| sockets.accept(id)) {
        Ok((accepted, peer)) => {
            engine.gathering.has_accepted = true;
            let place = Owner::Ours { id: accepted, hears_twin: false };
            let why = "accepted by a listener of ours";
            let socket = Socket { place, why, ..Socket::new(Kind::Stream, family) };
            engine.files.open(fd, flags & libc::SOCK_NONBLOCK != 0, FileKind::Socket(socket));
            Ok(Accepted { fd, peer: Peer::Ours(peer, family) })
        }
        Err(error) => {
            sys::close(fd);
            Err(error)
        }
    }
}

/// Accepts a connection of the kernel: by loopback, or by another interface.
///
/// The call must not block, because it holds the engine's lock and another process that shares the
/// twin may be faster.
fn accept_twin(twin: c_int, flags: c_int, is_nonblocking: bool) -> Result<Accepted, Errno> {
    if sys::ppoll(&mut [readable(twin)], Some(0))? == 0 {
        return Err(Errno::EAGAIN);
    }
    let mut name = [0; 128];
    let accepted = if is_nonblocking {
        sys::accept(twin, flags, &mut name)
    } else {
        // The processes share its status too: who changes it keeps the others out, because a call
        // of theirs would wait in the kernel once the status is as it was.
        if !sys::try_lock(twin) {
            return Err(Errno::EAGAIN);
        }
        let accepted = accept_of_blocking(twin, flags, &mut name);
        sys::unlock(twin);
        accepted
    };
    accepted.map(|(fd, len)| Accepted { fd, peer: Peer::Kernel(name, len) })
}

fn accept_of_blocking(twin: c_int, flags: c_int, name: &mut [u8; 128]) -> Result<(c_int, usize), Errno> {
    let status = sys::fcntl(twin, libc::F_GETFL, 0)?;
    sys::fcntl(twin, libc::F_SETFL, status | libc::O_NONBLOCK)?;
    let accepted = sys::accept(twin, flags, name);
    sys::fcntl(twin, libc::F_SETFL, status)?;
    accepted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_backlog_is_the_largest() {
        assert_eq!([backlog_of(0), backlog_of(3)], [0, 3]);
        assert!(backlog_of(-1) >= 128 && backlog_of(-1) == backlog_of(c_int::MAX));
    }
}
