//! Datagram sockets that a process leaves to its children: a daemon that binds, forks and ends has
//! its child receive. Before a `fork` the engines give up each that the process has bound and not
//! used since, and the first process that uses it, parent or child, offloads it again. Until then
//! the kernel receives for it, and who uses it reads that first from the twin.

use std::sync::atomic::Ordering;

use sockets::{Errno, Kind};

use super::listener::{ELSEWHERE, MAY_BE_IDLE_IN_SETS};
use super::{keep, offload, ports};
use crate::engine::Engine;
use crate::engine::file::{self, FileKind};
use crate::engine::group::Engines;
use crate::engine::table::FileId;

/// Gives up the datagram sockets that nobody has used. Where a thread waits, it may wait on one.
pub(super) fn leave_datagrams(engines: &mut Engines) {
    if engines.iter_mut().any(|engine| engine.has_waiters()) {
        return;
    }
    for engine in engines.iter_mut() {
        for file in unused(engine) {
            offload::give_back(engine, file);
            let Ok(socket) = engine.files.socket(file) else { continue };
            socket.set_left(true);
            MAY_BE_IDLE_IN_SETS.fetch_or(!socket.watches.is_empty(), Ordering::Relaxed);
            engine.files.mark(file);
        }
    }
}

fn unused(engine: &mut Engine) -> Vec<FileId> {
    let datagrams = engine.files.iter().filter_map(|(idx, file)| match &file.what {
        FileKind::Socket(socket) if socket.kind == Kind::Datagram => Some((idx, socket.ours()?)),
        FileKind::Socket(_) | FileKind::Set(_) => None,
    });
    let datagrams: Vec<_> = datagrams.collect();
    let mut is_unused = |id| engine.look(|sockets| sockets.is_unused(id)) == Ok(true);
    let unused: Vec<_> = datagrams.into_iter().filter(|(_, id)| is_unused(*id)).map(|(idx, _)| idx as u32).collect();
    unused.into_iter().map(|idx| FileId::of(engine.number, idx)).collect()
}

/// The reason of a socket that was given up before a `fork`.
const NOT_AGAIN: &str = "given up before a fork, and refused when it was used";

/// Offloads a socket that was left, because this process uses it. Where that fails it stays with
/// the kernel.
pub(super) fn take_up(engine: &mut Engine, file: FileId) -> Result<(), Errno> {
    engine.files.socket(file)?.set_left(false);
    let twin = engine.files.twin(file)?;
    match ports::bind_datagrams(engine, file, twin) {
        Ok(()) => (),
        Err(Errno::EADDRINUSE) => keep(engine, file, ELSEWHERE)?,
        Err(_) => keep(engine, file, NOT_AGAIN)?,
    }
    engine.files.mark(file);
    Ok(())
}

/// A call uses a file: it is taken up if it was left. One load, while none is left.
#[inline]
pub(crate) fn take_up_if_left(file: FileId) {
    if file::are_any_left() && !file.is_set() {
        take_up_one(file);
    }
}

#[cold]
fn take_up_one(file: FileId) {
    let mut engine = crate::engine::enter(file);
    if engine.files.socket(file).is_ok_and(|socket| socket.is_left) {
        let _ = take_up(&mut engine, file);
    }
}
