//! A program that gives up rights: a server that root starts, and that becomes another user, or
//! goes into a `chroot`, before it waits for connections.
//!
//! ```text
//!   without a broker: each flow takes the rights  │ before they go, a child takes up the sockets that
//!                                                 │ its parent has left to it; later ones are the
//!                                                 │ kernel's
//!   with a broker: none is needed                 │ before a chroot, from which it is not reached, a
//!                                                 │ program connects to it; otherwise when it is the
//!                                                 │ other user, whose rights it has there
//! ```
//!
//! A child that has its parent's listeners when it gives up rights is a worker: others close them,
//! or become another program. One that never waits for the connections would keep them from its
//! parent.

use core::sync::atomic::{AtomicBool, Ordering};

use wirepath::worker::live::PortConfig;

use super::{listener, offload};
use crate::engine::table::FileId;
use crate::engine::{self, Engine};
use crate::{config, process, sys};

/// The rights that a program is about to give up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// Those of root.
    User,
    /// The file system.
    Root,
}

/// The reason of a socket that is made afterwards.
pub(super) const GIVEN_UP: &str = "made after the program has given up root's rights, and no broker steers for it";

/// The process has given up rights of root, or has tried to.
static MAY_HAVE_LOST: AtomicBool = AtomicBool::new(false);

/// The calling process, which may have sockets of ours, is about to give up rights.
pub(crate) fn about_to_lose(loss: Loss) {
    let Some(config) = config::get() else { return };
    if config.leaves_all() {
        return;
    }
    let idle: Vec<FileId> = engine::all().iter().flat_map(|number| engine::enter_at(number).files.idle()).collect();
    match (config::broker(), loss) {
        (Some(_), Loss::User) => (),
        (Some(_), Loss::Root) => {
            if process::is_no_child() || !idle.is_empty() {
                engine::all().iter().for_each(|number| offload::open_while_allowed(&mut engine::enter_at(number)));
            }
        }
        (None, _) => {
            MAY_HAVE_LOST.fetch_or(loss == Loss::User, Ordering::Relaxed);
            // One that cannot begin stays the kernel's.
            idle.into_iter().for_each(|file| _ = listener::begin_to_accept(file));
        }
    }
}

/// Whether no further flow can be steered to an engine that is open. One load, until the process
/// has given up rights; then a system call.
pub(super) fn are_lost(engine: &Engine) -> bool {
    const NET_ADMIN: u64 = 1 << 12;
    const NET_RAW: u64 = 1 << 13;
    if !MAY_HAVE_LOST.load(Ordering::Relaxed) || !engine.is_open() || config::broker().is_some() {
        return false;
    }
    let needed = match config::get().map(|config| &config.port) {
        Some(PortConfig::Mlx5(_)) => NET_RAW,
        _ => NET_ADMIN,
    };
    sys::effective_capabilities() & needed == 0
}
