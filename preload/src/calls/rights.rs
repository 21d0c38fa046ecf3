//! A program that gives up rights: a server that root starts, and that becomes another user, drops
//! its capabilities, or goes into a `chroot`, before it waits for connections.
//!
//! ```text
//!   without a broker: each flow takes the rights  │ before they go, a worker takes up the sockets
//!                                                 │ that were left to it; later ones are the
//!                                                 │ kernel's
//!   with a broker: none is needed                 │ before a chroot, from which it is not reached, a
//!                                                 │ program connects to it; otherwise when it is the
//!                                                 │ other user, whose rights it has there
//! ```
//!
//! A child of `fork` that gives up rights while it has its parent's listeners is taken for a
//! worker, unless it has forked itself, so that they are its children's, or they close at `exec`:
//! a helper of another user is made so, and would keep them from its parent. What a worker has
//! taken up it leaves to its own children like any listener that no thread has waited on.

use core::sync::atomic::{AtomicBool, Ordering};

use wirepath::worker::live::PortConfig;

use super::{listener, offload};
use crate::engine::table::FileId;
use crate::engine::{self, Engine};
use crate::{config, process, sys};

/// The rights that a program is about to give up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RightsLoss {
    /// Those of the user root, or the capabilities that steering takes.
    RootsRights,
    /// What is outside of the new root directory.
    RootDirectory,
}

const NET_ADMIN: u64 = 1 << 12;
const NET_RAW: u64 = 1 << 13;
/// The capabilities of which each flow takes one without a broker.
pub(crate) const STEERING: u64 = NET_ADMIN | NET_RAW;

/// The reason of a socket that is made afterwards.
pub(super) const GIVEN_UP: &str = "made after the program has given up root's rights, and no broker steers for it";

/// The process has given up rights of root, or has tried to.
static MAY_HAVE_LOST: AtomicBool = AtomicBool::new(false);

/// The calling process, which may have sockets of ours, is about to give up rights.
pub(crate) fn about_to_lose(loss: RightsLoss) {
    let Some(config) = config::get() else { return };
    if config.leaves_all() {
        return;
    }
    let idle: Vec<FileId> = engine::all().iter().flat_map(|number| engine::enter_at(number).files.idle()).collect();
    match (config::broker(), loss) {
        (Some(_), RightsLoss::RootsRights) => (),
        (Some(_), RightsLoss::RootDirectory) => {
            if process::is_no_child() || !idle.is_empty() {
                engine::all().iter().for_each(|number| offload::open_while_allowed(&mut engine::enter_at(number)));
            }
        }
        (None, _) => {
            MAY_HAVE_LOST.fetch_or(loss == RightsLoss::RootsRights, Ordering::Relaxed);
            if process::is_childless_child() {
                idle.into_iter().filter(is_a_workers).for_each(listener::take_up_idle);
            }
        }
    }
}

/// Whether a socket was left to this process, and stays open at `exec`.
fn is_a_workers(file: &FileId) -> bool {
    let mut engine = engine::enter(*file);
    let is_left = engine.files.socket(*file).is_ok_and(|socket| socket.ours().is_none());
    is_left && listener::stays_at_exec(&mut engine, *file).is_some()
}

/// Whether no further flow can be steered to an engine that is open. One load, until the process
/// has given up rights; then a system call.
pub(super) fn are_lost(engine: &Engine) -> bool {
    if !MAY_HAVE_LOST.load(Ordering::Relaxed) || !engine.is_open() || config::broker().is_some() {
        return false;
    }
    let needed = match config::get().map(|config| &config.port) {
        Some(PortConfig::Mlx5(_)) => NET_RAW,
        _ => NET_ADMIN,
    };
    sys::effective_capabilities() & needed == 0
}
