//! Datagram sockets that a process leaves to its children: a daemon that binds, forks and ends has
//! its child receive. Before a `fork` the engines give up each that the process has bound and not
//! used since, and the first process that uses it, parent or child, offloads it again, and has the
//! datagrams that waited. Until then the kernel receives for it.
//!
//! ```text
//!   no more frames ──▶ turns, for those that came ──▶ its datagrams, in memory of their own ──▶ closed
//! ```

use std::sync::atomic::Ordering;

use sockets::{Errno, Kind, SocketId};
use wirepath::time::Duration;

use super::listener::{ELSEWHERE, MAY_BE_IDLE_IN_SETS};
use super::{back, begin_connect, keep, offload, ports};
use crate::engine::Engine;
use crate::engine::file::{self, FileKind, Unread};
use crate::engine::group::Engines;
use crate::engine::table::FileId;
use crate::sys::SharedFlag;
use crate::{config, sys};

/// Gives up the datagram sockets that nobody has used. Where a thread waits, it may wait on one.
pub(super) fn leave_datagrams(engines: &mut Engines) {
    if engines.iter_mut().any(|engine| engine.has_waiters()) {
        return;
    }
    for engine in engines.iter_mut() {
        let unused = unused(engine);
        if unused.is_empty() {
            continue;
        }
        for (_, id) in &unused {
            let _ = engine.call(|sockets, _| sockets.stop_receiving(*id));
        }
        let _ = (0..TURNS_MAX).find(|_| engine.turn() == 0);
        for (file, id) in unused {
            leave(engine, file, id);
        }
    }
}

/// The most turns for the frames that the interface has received: each takes 64, and its ring has
/// some thousands.
const TURNS_MAX: usize = 128;

fn leave(engine: &mut Engine, file: FileId, id: SocketId) {
    let unread = engine.call(|sockets, cx| sockets.take_unread(id, cx)).unwrap_or_default();
    offload::give_back(engine, file);
    let Ok(socket) = engine.files.socket(file) else { return };
    socket.set_left(true);
    // Without the page, which needs memory, two processes would have each datagram.
    let flag = if unread.is_empty() { None } else { SharedFlag::new() };
    socket.unread = flag.map(|flag| Unread::new(unread, flag));
    MAY_BE_IDLE_IN_SETS.fetch_or(!socket.watches.is_empty(), Ordering::Relaxed);
    engine.files.mark(file);
}

/// What the program has read from the twin, it has used as well.
fn unused(engine: &mut Engine) -> Vec<(FileId, SocketId)> {
    let datagrams = engine.files.iter().filter_map(|(idx, file)| match &file.what {
        FileKind::Socket(socket) if socket.kind == Kind::Datagram && socket.twin_reads == 0 => {
            Some((idx, socket.ours()?))
        }
        FileKind::Socket(_) | FileKind::Set(_) => None,
    });
    let datagrams: Vec<_> = datagrams.collect();
    let mut is_unused = |id| engine.look(|sockets| sockets.is_unused(id)) == Ok(true);
    let unused: Vec<_> = datagrams.into_iter().filter(|(_, id)| is_unused(*id)).collect();
    unused.into_iter().map(|(idx, id)| (FileId::of(engine.number, idx as u32), id)).collect()
}

/// The reason of a socket that was given up: before a `fork`, or for another broker.
pub(super) const NOT_AGAIN: &str = "left before a fork, by exec or for a new broker, and refused when it was used";

/// Offloads a socket that was left, because this process uses it. Where that fails it stays with
/// the kernel.
pub(super) fn take_up(engine: &mut Engine, file: FileId) -> Result<(), Errno> {
    engine.files.socket(file)?.set_left(false);
    let twin = engine.files.twin(file)?;
    let taken = match offload::peer_of(twin) {
        Some(peer) => begin_connect(engine, file, peer).map(|_| ()),
        None => ports::bind_datagrams(engine, file, twin),
    };
    if let Err(error) = taken {
        offload::give_back(engine, file);
        keep(engine, file, if error == Errno::EADDRINUSE { ELSEWHERE } else { NOT_AGAIN })?;
    }
    put_unread(engine, file);
    engine.files.mark(file);
    Ok(())
}

/// Gives a socket the datagrams that waited at the `fork`, unless another process has them. Where
/// the socket is the kernel's here, only another process can have them, and a sentence says so.
fn put_unread(engine: &mut Engine, file: FileId) {
    let Ok(socket) = engine.files.socket(file) else { return };
    let (id, why) = (socket.ours(), socket.why);
    let Some(unread) = socket.unread.take() else { return };
    let Some(id) = id else { return say_that_they_are_not_read(&unread, why) };
    if let Some((datagrams, ago)) = unread.take() {
        let ago = Duration::from_nanos(ago.as_nanos() as u64);
        let _ = engine.call(|sockets, cx| sockets.put_unread(id, &datagrams, ago, cx));
    }
}

fn say_that_they_are_not_read(unread: &Unread, why: &str) {
    let count = unread.count();
    if count > 0 {
        config::say(format_args!(
            "process {} does not get the {count} datagrams that came for a socket before a fork, because the socket is \
             the kernel's here ({why}); they are lost unless another process of the fork reads them",
            sys::getpid()
        ));
    }
}

/// A call uses a file: it is taken up if it was left. One load, while none is left and no engine
/// has lost its broker.
#[inline]
pub(crate) fn take_up_if_left(file: FileId) {
    if file::is_any_left() && !file.is_set() {
        take_up_one(file);
    }
}

#[cold]
fn take_up_one(file: FileId) {
    back::look_for_broker();
    let mut engine = crate::engine::enter(file);
    if engine.files.socket(file).is_ok_and(|socket| socket.is_left) {
        let _ = take_up(&mut engine, file);
    }
}
