//! A broker that is there again. With its end the frames of the program came no more: connections
//! have ended with `ENETDOWN`, and for datagram sockets and listeners the kernel has received
//! since, by their twins. The next broker has never heard of this program. So the program's calls
//! look for it now and then, and where it answers each engine is opened anew, and takes its
//! datagram sockets and listeners up again.
//!
//! An engine waits for that until the program has closed the connections that have ended, because
//! their descriptors name them, has read what came by the old queue, and has no thread that sleeps
//! in a call. A thread that is between two looks of a call meanwhile gets `EINTR`.

use core::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use sockets::{Kind, Ready, SocketId};
use wirepath::device::af_xdp::does_broker_answer;

use super::listener::{self, MAY_BE_IDLE_IN_SETS};
use super::{begin_connect, keep, left, offload};
use crate::engine::file::{FileKind, Owner, Socket};
use crate::engine::group::Engines;
use crate::engine::table::FileId;
use crate::engine::wait::readable;
use crate::engine::{self, Engine, State, thread};
use crate::{config, sys};

/// Time between two looks for the broker: each is a connection to it.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// A broker that is not busy answers in less. The program's call waits so long for one that is
/// stopped.
const ANSWERS_WITHIN: Duration = Duration::from_millis(20);

/// The reason of a listener whose connections the kernel has accepted meanwhile: they would be
/// reset if its frames were ours again.
const HAS_CONNECTIONS: &str = "the kernel has accepted connections of it, while there was no broker";

/// A call begins, and an engine may have lost its broker.
#[cold]
pub(super) fn look_for_broker() {
    if !is_due() || !is_any(Engine::awaits_broker) || !thread::uninterrupted(answers) {
        return;
    }
    let mut engines = Engines::enter(engine::all());
    if !engines.iter_mut().all(may_begin_anew) {
        return;
    }
    let mut files = Vec::new();
    for engine in engines.iter_mut().filter(|engine| engine.is_open()) {
        files.append(&mut give_up(engine));
        engine.close();
        match offload::open_anew(engine) {
            Ok(()) => config::say(format_args!(
                "the broker of {} is there again",
                config::get().map_or("", |config| config.port.interface())
            )),
            Err(why) => config::say(format_args!("{why}; the program's sockets are the kernel's from now on")),
        }
    }
    drop(engines);
    files.into_iter().for_each(take_up);
}

fn is_due() -> bool {
    static LOOKED: Mutex<Option<Instant>> = Mutex::new(None);
    thread::uninterrupted(|| {
        let mut looked = LOOKED.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = looked.is_none_or(|at| at.elapsed() >= LOOK_EVERY);
        if is_due {
            *looked = Some(Instant::now());
        }
        is_due
    })
}

fn is_any(is: impl Fn(&Engine) -> bool) -> bool {
    engine::all().iter().any(|number| is(&engine::enter_at(number)))
}

fn answers() -> bool {
    config::broker().is_some_and(|(path, interface)| does_broker_answer(path, interface, ANSWERS_WITHIN))
}

/// Whether nothing names a socket of the engine that cannot be made again.
fn may_begin_anew(engine: &mut Engine) -> bool {
    match engine.state {
        State::Closed => true,
        State::Failed => false,
        State::Open(_) => {
            engine.awaits_broker()
                && !engine.has_waiters()
                && engine.files.streams().is_empty()
                && !ours(engine).into_iter().any(|(file, id)| has_more(engine, file, id))
        }
    }
}

/// The listeners of an engine that are offloaded, and the port of each.
fn listeners(engine: &mut Engine) -> Vec<(FileId, u16)> {
    let number = engine.number;
    let listeners = engine.files.iter().filter_map(|(idx, file)| match &file.what {
        FileKind::Socket(socket) if socket.is_listener && socket.ours().is_some() => {
            let port = offload::name_of(*file.fds.first()?)?.port();
            Some((FileId::of(number, idx as u32), port))
        }
        FileKind::Socket(_) | FileKind::Set(_) => None,
    });
    listeners.collect()
}

/// The sockets of an engine that are offloaded.
fn ours(engine: &Engine) -> Vec<(FileId, SocketId)> {
    let ours = engine.files.iter().filter_map(|(idx, file)| match &file.what {
        FileKind::Socket(socket) => Some((FileId::of(engine.number, idx as u32), socket.ours()?)),
        FileKind::Set(_) => None,
    });
    ours.collect()
}

/// Whether the program is to take something of a socket that would be lost: a datagram or a caller
/// of before, and a listener's caller that the kernel has.
fn has_more(engine: &mut Engine, file: FileId, id: SocketId) -> bool {
    let is_listener = engine.files.socket(file).is_ok_and(|socket| socket.is_listener);
    let has_caller = |twin| sys::ppoll(&mut [readable(twin)], Some(0)) != Ok(0);
    engine.look(|sockets| sockets.ready(id)).is_ok_and(|ready| ready.has(Ready::IN))
        || (is_listener && engine.files.twin(file).is_ok_and(has_caller))
}

/// Gives the sockets of an engine back to their twins; returns those that are to be taken up again.
fn give_up(engine: &mut Engine) -> Vec<FileId> {
    let listeners = listeners(engine);
    let of_kernel = ports_of_kernels_connections(engine);
    let mut again = Vec::new();
    for (file, _) in ours(engine) {
        offload::give_back(engine, file);
        let port = listeners.iter().find(|(listener, _)| *listener == file).map(|(_, port)| *port);
        if port.is_some_and(|port| of_kernel.contains(&port)) {
            let _ = keep(engine, file, HAS_CONNECTIONS);
            continue;
        }
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

fn ports_of_kernels_connections(engine: &mut Engine) -> Vec<u16> {
    let connections = engine.files.iter().filter_map(|(_, file)| match &file.what {
        FileKind::Socket(Socket { kind: Kind::Stream, place: Owner::Kernel, is_listener: false, .. }) => {
            Some(offload::name_of(*file.fds.first()?)?.port())
        }
        FileKind::Socket(_) | FileKind::Set(_) => None,
    });
    connections.collect()
}

/// Offloads a socket again, unless another thread has done that meanwhile. Where that fails it
/// stays with the kernel.
fn take_up(file: FileId) {
    let peer = {
        let mut engine = engine::enter(file);
        let Ok(twin) = engine.files.twin(file) else { return };
        match engine.files.socket(file) {
            Ok(socket) if socket.is_left => offload::peer_of(twin),
            _ => None,
        }
    };
    let Some(peer) = peer else {
        let _ = listener::begin_to_accept(file);
        return;
    };
    if let Ok(socket) = engine::enter(file).files.socket(file) {
        socket.set_left(false);
    }
    if begin_connect(file, peer).is_err() {
        let mut engine = engine::enter(file);
        offload::give_back(&mut engine, file);
        let _ = keep(&mut engine, file, left::NOT_AGAIN);
    }
}
