//! A broker that is there again. With its end the frames of the program came no more: connections
//! have ended with `ENETDOWN`, and for datagram sockets and listeners the kernel has received
//! since, by their twins. The next broker has never heard of this program. So the program's calls
//! look for it now and then, and where it answers each engine is opened anew, and takes its
//! datagram sockets and listeners up again.
//!
//! ```text
//!   a call begins ──────────────────────▶ look ──▶ opened anew ──▶ its sockets are taken up
//!   a call that sleeps begins again, ──────┘            │
//!   twice a second in one thread                        └──▶ the calls of all other threads begin
//!                                                            again, with the time that they have left
//! ```
//!
//! An engine waits for that until the program has closed the connections that have ended, because
//! their descriptors name them, and has read what came by the old queue.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use sockets::{Errno, Kind, Ready, SocketId};
use wirepath::device::af_xdp::does_broker_answer;
use wirepath::worker::broker::ports_of_kernels_connections;

use super::listener::{self, MAY_BE_IDLE_IN_SETS};
use super::{Direction, Outcome, keep, left, offload};
use crate::engine::file::FileKind;
use crate::engine::group::Engines;
use crate::engine::table::FileId;
use crate::engine::wait::{Blocking, LOOK_FOR_BROKER_EVERY, readable};
use crate::engine::{self, BEGIN_AGAIN, Engine, State, thread};
use crate::{config, real, sys};

/// A broker that is not busy answers in less. The program's call waits so long for one that is
/// stopped.
const ANSWERS_WITHIN: Duration = Duration::from_millis(20);

/// The reason of a listener at whose port the kernel has connections, which it has accepted
/// meanwhile for this process or for another one that shares the listener: they would be reset if
/// the frames of the port came here again.
const HAS_CONNECTIONS: &str = "the kernel has connections at its port, of the time without a broker";

/// A call on a file that may wait. It begins again each time that its wait ends so that it looks
/// for the broker, and after another thread has found it.
#[inline]
pub(super) fn call_through<T>(
    file: FileId,
    (direction, flags): (Direction, c_int),
    mut call: impl FnMut() -> Outcome<T>,
) -> Outcome<T> {
    let done = call();
    if matches!(done, Outcome::Ours(Err(BEGIN_AGAIN))) { call_again(file, direction, flags, call) } else { done }
}

#[cold]
fn call_again<T>(file: FileId, direction: Direction, flags: c_int, mut call: impl FnMut() -> Outcome<T>) -> Outcome<T> {
    loop {
        left::take_up_if_left(file);
        match thread::begin_again(&mut call) {
            Outcome::Ours(Err(BEGIN_AGAIN)) => (),
            Outcome::Pass => {
                return await_twin(file, direction, flags)
                    .map_or_else(|error| Outcome::Ours(Err(error)), |()| Outcome::Pass);
            }
            done => return done,
        }
    }
}

/// The kernel goes on with a call that has waited, and would give it its whole timeout again. So
/// what is left of that is waited here.
///
/// # Errors
/// `EAGAIN` after that time, `EINTR`.
fn await_twin(file: FileId, direction: Direction, flags: c_int) -> Result<(), Errno> {
    let Some(left) = thread::time_left() else { return Ok(()) };
    let twin = {
        let mut engine = engine::enter(file);
        if flags & libc::MSG_DONTWAIT != 0 || engine.files.is_nonblocking(file) {
            return Ok(());
        }
        engine.files.twin(file)?
    };
    let events = if direction == Direction::Receive { libc::POLLIN } else { libc::POLLOUT };
    let mut fds = [libc::pollfd { events, ..readable(twin) }];
    real::ppoll_to_sleep(&mut fds, Some(u64::try_from(left.as_nanos()).unwrap_or(u64::MAX)));
    match fds[0].revents {
        0 if thread::is_interrupted(false) => Err(Errno(libc::EINTR)),
        0 => Err(Errno::EAGAIN),
        _ => Ok(()),
    }
}

/// The same of a wait that has no file of its own, or several.
#[inline]
pub(super) fn wait_through<T>(
    blocking: &mut Blocking,
    mut wait: impl FnMut(&mut Blocking) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let mut done = wait(blocking);
    while matches!(done, Err(BEGIN_AGAIN)) {
        look_for_broker();
        blocking.begin_again();
        done = wait(blocking);
    }
    done
}

/// A call begins, and an engine may have lost its broker.
#[cold]
pub(super) fn look_for_broker() {
    if !is_due() || !is_any(Engine::awaits_broker) {
        return;
    }
    if thread::uninterrupted(is_another_interface) {
        return give_up_waiting();
    }
    // What this process knows comes first: the broker is not asked by one that cannot come back.
    if !may_all_begin_anew(&mut Engines::enter(engine::all())) || !thread::uninterrupted(answers) {
        return;
    }
    let mut engines = Engines::enter(engine::all());
    if !may_all_begin_anew(&mut engines) {
        return;
    }
    let (mut files, mut is_back) = (Vec::new(), false);
    for engine in engines.iter_mut().filter(|engine| engine.is_open()) {
        files.append(&mut give_up(engine));
        engine.close();
        match offload::open_anew(engine) {
            Ok(()) => is_back = true,
            Err(why) => config::say(format_args!("{why}; the program's sockets are the kernel's from now on")),
        }
    }
    leave_listeners_with_connections(&mut engines, &mut files);
    drop(engines);
    // One that cannot be offloaded again stays with the kernel. Another thread may have been
    // faster.
    files.into_iter().for_each(|file| _ = listener::begin_to_accept(file));
    if is_back {
        let interface = config::get().map_or("", |config| config.port.interface());
        config::say(format_args!("the broker of {interface} is there again"));
    }
}

/// No lock, which a child would find taken where another thread of its parent was here at the
/// `fork`.
fn is_due() -> bool {
    /// By the system's clock; 0: never.
    static LOOKED_NS: AtomicU64 = AtomicU64::new(0);
    let now = engine::system_ns().max(1);
    let looked = LOOKED_NS.load(Ordering::Relaxed);
    let is_due = looked == 0 || u128::from(now.saturating_sub(looked)) >= LOOK_FOR_BROKER_EVERY.as_nanos();
    is_due && LOOKED_NS.compare_exchange(looked, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

/// Whether the interface has been made anew, with another index. The kernel has dropped the groups
/// of the sockets with the old one, and the program may have noted its index.
fn is_another_interface() -> bool {
    let before = config::system().interface_idx;
    let now = sys::interface_idx(config::get().map_or("", |config| config.port.interface()));
    before != 0 && now != 0 && now != before
}

fn give_up_waiting() {
    engine::all().iter().for_each(|number| engine::enter_at(number).await_no_broker());
    config::say(format_args!(
        "{} has been made anew: start the program again; until then its sockets end with ENETDOWN, and new ones are \
         the kernel's",
        config::get().map_or("", |config| config.port.interface())
    ));
}

fn is_any(is: impl Fn(&Engine) -> bool) -> bool {
    engine::all().iter().any(|number| is(&engine::enter_at(number)))
}

fn answers() -> bool {
    config::broker().is_some_and(|(path, interface)| does_broker_answer(path, interface, ANSWERS_WITHIN))
}

fn may_all_begin_anew(engines: &mut Engines) -> bool {
    engines.iter_mut().all(may_begin_anew)
}

/// Whether nothing names a socket of the engine that cannot be made again. One that could not be
/// opened has none.
fn may_begin_anew(engine: &mut Engine) -> bool {
    match engine.state {
        State::Closed | State::Failed => true,
        State::Open(_) => {
            engine.awaits_broker()
                && engine.files.streams().is_empty()
                && !ours(engine).into_iter().any(|(file, id)| has_more(engine, file, id))
        }
    }
}

/// The sockets of an engine that are offloaded.
fn ours(engine: &Engine) -> Vec<(FileId, SocketId)> {
    let ours = engine.files.iter().filter_map(|(idx, file)| match &file.what {
        FileKind::Socket(socket) => Some((FileId::of(engine.number, idx as u32), socket.ours()?)),
        FileKind::Set(_) => None,
    });
    ours.collect()
}

/// Whether the program is to take something of a socket that would be lost, a datagram or a caller
/// of before, and a listener's caller that the kernel has; or to end a datagram of several sends.
fn has_more(engine: &mut Engine, file: FileId, id: SocketId) -> bool {
    let is_listener = engine.files.socket(file).is_ok_and(|socket| socket.is_listener);
    let has_caller = |twin| sys::ppoll(&mut [readable(twin)], Some(0)) != Ok(0);
    engine.look(|sockets| sockets.ready(id)).is_ok_and(|ready| ready.has(Ready::IN))
        || engine.look(|sockets| sockets.has_begun_datagram(id)) == Ok(true)
        || (is_listener && engine.files.twin(file).is_ok_and(has_caller))
}

/// Gives the sockets of an engine back to their twins; returns those that are to be taken up again.
fn give_up(engine: &mut Engine) -> Vec<FileId> {
    let mut again = Vec::new();
    for (file, _) in ours(engine) {
        offload::give_back(engine, file);
        let backlog = engine.files.twin(file).ok().and_then(sys::backlog);
        let Ok(socket) = engine.files.socket(file) else { continue };
        socket.replicas.clear();
        match socket.kind {
            Kind::Datagram => socket.set_left(true),
            Kind::Stream => socket.backlog = Some(backlog.unwrap_or(libc::SOMAXCONN)),
        }
        MAY_BE_IDLE_IN_SETS.fetch_or(!socket.watches.is_empty(), Ordering::Relaxed);
        engine.files.mark(file);
        again.push(file);
    }
    again
}

/// Whether the port of a listener's twin is among those at which the kernel has connections; also
/// where the kernel does not say.
fn is_among(twin: c_int, of_kernel: &io::Result<BTreeSet<u16>>) -> bool {
    match (of_kernel, offload::name_of(twin)) {
        (Ok(ports), Some(local)) => ports.contains(&local.port()),
        _ => true,
    }
}

/// Whether the kernel has connections at the port of a listener's twin.
pub(super) fn has_kernels_connections(twin: c_int) -> bool {
    is_among(twin, &ports_of_kernels_connections(config::system().interface_idx))
}

/// Leaves the listeners to the kernel for good at whose ports it has connections, of whichever
/// process; all of them where it does not say. Late, because it accepts until the port is taken.
fn leave_listeners_with_connections(engines: &mut Engines, files: &mut Vec<FileId>) {
    let of_kernel = ports_of_kernels_connections(config::system().interface_idx);
    files.retain(|&file| {
        let Some(engine) = engines.of(file.room()) else { return true };
        let Ok(twin) = engine.files.twin(file) else { return false };
        let Ok(socket) = engine.files.socket(file) else { return false };
        if socket.kind != Kind::Stream || !is_among(twin, &of_kernel) {
            return true;
        }
        socket.backlog = None;
        let _ = keep(engine, file, HAS_CONNECTIONS);
        false
    });
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsRawFd;

    use super::*;
    use crate::address::Family;
    use crate::engine::file::Socket;

    #[test]
    fn call_that_goes_on_in_the_kernel_has_the_time_that_it_has_left() {
        let Ok(twin) = UdpSocket::bind("127.0.0.1:0") else { panic!("no socket") };
        let what = FileKind::Socket(Socket::new(Kind::Datagram, Family::Inet));
        let file = engine::enter_at(0).files.open(twin.as_raw_fd(), false, what);
        let receive = |flags, left| {
            let mut waited = false;
            call_through::<()>(file, (Direction::Receive, flags), || {
                if core::mem::replace(&mut waited, true) {
                    return Outcome::Pass;
                }
                thread::set_time_left(left);
                Outcome::Ours(Err(BEGIN_AGAIN))
            })
        };
        let short = Some(Duration::from_millis(1));
        assert!(matches!(receive(0, short), Outcome::Ours(Err(Errno::EAGAIN))));
        assert!(matches!(receive(libc::MSG_DONTWAIT, short), Outcome::Pass));
        assert!(matches!(receive(0, None), Outcome::Pass));
        assert!(twin.local_addr().and_then(|local| twin.send_to(b"x", local)).is_ok());
        assert!(matches!(receive(0, Some(Duration::from_secs(60))), Outcome::Pass));
        assert!(engine::enter_at(0).files.close(file, twin.as_raw_fd()).is_some());
    }
}
