//! The descriptors that a call polls, by who serves each.

use sockets::{Errno, Ready, SocketId};

use crate::engine::Engine;
use crate::engine::file::{Owner, Replica, Socket};
use crate::engine::group::{EngineMask, Engines};
use crate::engine::table::FileId;

pub(super) enum State {
    Ours(Member),
    /// An epoll set: the kernel's part, and the engine's.
    Set(FileId),
    Kernel,
}

/// An offloaded socket among the polled descriptors.
pub(super) struct Member {
    pub(super) engine: usize,
    pub(super) id: SocketId,
    pub(super) hears_twin: bool,
    /// Of a listener: those of other engines for it.
    pub(super) others: Vec<Replica>,
}

impl Member {
    /// It and those of other engines for it.
    pub(super) fn all(&self) -> impl Iterator<Item = Replica> {
        [Replica { engine: self.engine, id: self.id }].into_iter().chain(self.others.iter().copied())
    }

    /// Their engines.
    pub(super) fn engines(&self) -> EngineMask {
        self.all().map(|replica| replica.engine).collect()
    }

    /// What it is ready for.
    pub(super) fn look(&self, engines: &mut Engines) -> Result<Ready, Errno> {
        let ready = engines.of(self.engine).ok_or(Errno::EBADF)?.look(|sockets| sockets.ready(self.id))?;
        Ok(self.others.iter().fold(ready, |ready, other| {
            let its = engines.of(other.engine).and_then(|engine| engine.look(|sockets| sockets.ready(other.id)).ok());
            ready | its.unwrap_or(Ready::NONE)
        }))
    }
}

pub(super) fn state_of(engine: &mut Engine, file: FileId) -> State {
    if file.is_set() {
        return State::Set(file);
    }
    match engine.files.socket(file) {
        Ok(Socket { place: Owner::Ours { id, hears_twin }, replicas, .. }) => {
            State::Ours(Member { engine: engine.number, id: *id, hears_twin: *hears_twin, others: replicas.clone() })
        }
        Ok(_) | Err(_) => State::Kernel,
    }
}
