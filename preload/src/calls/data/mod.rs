//! Receives from and sends on offloaded sockets, for all forms of the calls.
//!
//! ```text
//!   receive   what is there
//!   waiting   receives that wait: for anything, or for the rest of what they ask for
//!   send      bytes of a stream, and datagrams
//!   file      bytes of a file
//!   control   control messages, both ways
//! ```

use core::ffi::c_int;
use core::net::SocketAddrV4;

use sockets::{Errno, Kind, SocketId};

use crate::address::Family;
use crate::calls::error_queue;
use crate::engine::file::{FileKind, Groups, Owner, Socket, Stamp};
use crate::engine::table::FileId;
use crate::engine::wait::readable;
use crate::engine::{self, Engine};
use crate::sys;

mod control;
mod file;
mod receive;
mod send;
mod waiting;

pub(crate) use control::control;
pub(crate) use file::send_file;
pub(crate) use receive::{Batch, Received, receive};
pub(crate) use send::{note_refusal_of_twin, send, send_controlled, send_what_is_not_there};
pub(super) use waiting::SETS_LOW_WATER;
pub(crate) use waiting::await_owner;

/// An offloaded socket, with the values that the calls of this folder need.
#[derive(Clone, Copy)]
struct Target {
    id: SocketId,
    twin: c_int,
    family: Family,
    kind: Kind,
    hears_twin: bool,
    /// The twin has its turn even while the engine has more.
    is_both: bool,
    /// Several calls may make one datagram.
    may_append: bool,
    /// The time of the last datagram is asked for.
    keeps_stamp: bool,
    /// The group that it is connected to.
    peer_group: Option<SocketAddrV4>,
    is_nonblocking: bool,
    /// Its control messages have those of IPv6 among them.
    receives_info6: bool,
}

fn target(engine: &mut Engine, file: FileId) -> Result<Target, Errno> {
    let file = engine.files.get(file).ok_or(Errno::EBADF)?;
    let (Some(&twin), FileKind::Socket(socket)) = (file.fds.first(), &file.what) else { return Err(Errno::ENOTSOCK) };
    let Owner::Ours { id, hears_twin } = socket.place else { return Err(Errno::ENOTSOCK) };
    let Socket { kind, family, is_both, may_append, stamp, groups: Groups { peer: peer_group, .. }, .. } = *socket;
    Ok(Target {
        id,
        twin,
        family,
        kind,
        hears_twin,
        is_both,
        may_append,
        keeps_stamp: stamp != Stamp::Off,
        peer_group,
        is_nonblocking: file.is_nonblocking,
        receives_info6: family == Family::Inet6 && socket.receives_info6,
    })
}

/// Whether the twin has received something.
fn has_input(engine: &mut Engine, target: &Target) -> bool {
    let mut fds = [libc::pollfd { events: libc::POLLIN | libc::POLLRDHUP, ..readable(target.twin) }];
    if sys::ppoll(&mut fds, Some(0)) != Ok(1) {
        return false;
    }
    let events = fds[0].revents;
    if target.kind == Kind::Datagram {
        if events & libc::POLLERR != 0 {
            error_queue::absorb(engine, target.id, target.twin);
        }
        if events & libc::POLLRDHUP != 0 {
            // After `SHUT_RD` the kernel calls it readable, whatever waits.
            return sys::peek(target.twin).is_ok();
        }
    }
    events & !libc::POLLERR != 0
}

/// Keeps an error for the next call, because this call has moved bytes and reports their number.
fn report_later(file: FileId, target: &Target, error: Errno) {
    if matches!(error, Errno::ECONNRESET | Errno::ETIMEDOUT | Errno::EHOSTUNREACH | Errno::ENETUNREACH) {
        let _ = engine::enter(file).call(|sockets, _| sockets.restore_error(target.id, error));
    }
}

/// The pending error of a socket of ours, once.
pub(crate) fn take_error(file: FileId) -> Option<Errno> {
    let mut engine = engine::enter(file);
    let id = engine.files.socket(file).ok()?.ours()?;
    engine.look(|sockets| sockets.take_error(id)).ok().flatten()
}

/// `recvmmsg` has received messages before this error, which the next call reports (Linux
/// `do_recvmmsg`).
pub(crate) fn report_after_others(file: FileId, error: Errno) {
    if error == Errno::EAGAIN || error == Errno(libc::EINTR) {
        return;
    }
    let mut engine = engine::enter(file);
    if let Ok(target) = target(&mut engine, file) {
        let _ = engine.call(|sockets, _| sockets.restore_error(target.id, error));
    }
}
