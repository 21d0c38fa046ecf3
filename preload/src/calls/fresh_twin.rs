//! A fresh twin for a datagram socket whose `bind` has failed here, or in the broker, after the
//! kernel has bound the twin. A failed `bind` leaves a socket unbound, and the kernel lets nobody
//! unbind a socket that has named its port (`SOCK_BINDPORT_LOCK`): so another socket of the kernel
//! takes the twin's place under its descriptors, with its options and in its epoll sets. Without it
//! the port stays taken, and the program's next `bind` is `EINVAL`.

use core::ffi::c_int;

use sockets::{Errno, Kind};

use crate::calls::epoll_twins::{find_reported, give_item_back};
use crate::calls::groups;
use crate::engine::Engine;
use crate::engine::file::{File, FileKind, Socket};
use crate::engine::options::OptionCall;
use crate::engine::sets;
use crate::engine::table::FileId;
use crate::sys;

/// Replaces the bound twin of a datagram socket that is not ours. Where the kernel gives no socket
/// with the same options (`EMFILE`, `EPERM`), the twin stays as it is: bound, and whole.
pub(super) fn replace_twin(engine: &mut Engine, file: FileId) {
    let Some(File { fds, is_nonblocking, what: FileKind::Socket(socket) }) = engine.files.get(file) else { return };
    let Some(&twin) = fds.first() else { return };
    if socket.kind != Kind::Datagram || socket.ours().is_some() {
        return;
    }
    let Ok(fresh) = make_like(socket, *is_nonblocking) else { return };
    let watches = find_reported(core::mem::take(&mut socket.watches));
    let identity = sys::identity(twin);
    for fd in fds.iter().chain(&socket.stand_ins) {
        // A number that the program has closed without libc may be that of any file now.
        if sys::identity(*fd) == identity {
            let is_kept_by_exec = sys::fcntl(*fd, libc::F_GETFD, 0).is_ok_and(|flags| flags & libc::FD_CLOEXEC == 0);
            let _ = sys::dup3(fresh, *fd, if is_kept_by_exec { 0 } else { libc::O_CLOEXEC });
        }
    }
    sys::close(fresh);
    for watch in &watches {
        // An edge that was reported may be reported again.
        let _ = sets::of(watch.set, |set| set.note_edge(watch.fd, Some(watch.event)));
        give_item_back(watch);
    }
    socket.watches = watches;
    socket.has_named_port = false;
}

/// An unbound socket of the kernel with the options that a socket has so far.
fn make_like(socket: &Socket, is_nonblocking: bool) -> Result<c_int, Errno> {
    let nonblocking = if is_nonblocking { libc::SOCK_NONBLOCK } else { 0 };
    let fresh = sys::socket(socket.family.number(), libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | nonblocking, 0)?;
    for OptionCall { level, name, value } in socket.options.iter() {
        let taken = sys::setsockopt(fresh, *level, *name, value);
        // A group may have been left already, or be that of a host of our own.
        if taken.is_err() && !groups::is_of_groups(*level, *name) {
            sys::close(fresh);
            return taken.map(|()| fresh);
        }
    }
    // The direction is closed although the call fails, because there is no peer.
    for (is_shut, how) in [(socket.shut.reads, libc::SHUT_RD), (socket.shut.writes, libc::SHUT_WR)] {
        if is_shut {
            let _ = sys::shutdown(fresh, how);
        }
    }
    Ok(fresh)
}
