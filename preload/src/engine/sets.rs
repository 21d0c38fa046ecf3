//! The epoll sets of the program. A set is no engine's, because sockets of several may be in it: it
//! has a part in each engine that one of its members lives on, beside the kernel's set of the same
//! descriptor.
//!
//! ```text
//!   set ──┬─ part in engine 0    its sockets that are in the set
//!         ├─ part in engine 2
//!         └─ the kernel's set    descriptors of the kernel, twins
//! ```
//!
//! Their table has a lock of its own. A thread may take it while it holds engines, and takes no
//! engine while it holds the table.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sockets::{Errno, SocketId};

use crate::engine::file::{FileKind, OpenFiles};
use crate::engine::group::EngineMask;
use crate::engine::table::{self, ENGINES_MAX, FileId};
use crate::engine::thread;
use crate::{config, sys};

/// The number of a set in each engine; made with the first offloaded socket there.
#[derive(Clone, Copy)]
pub(crate) struct Parts([u32; ENGINES_MAX]);

impl Parts {
    const NONE: u32 = u32::MAX;

    /// That in an engine, if one of its members lives there.
    #[inline]
    pub(crate) fn of(&self, engine: usize) -> Option<usize> {
        Some(self.0[engine]).filter(|part| *part != Self::NONE).map(|part| part as usize)
    }

    fn set(&mut self, engine: usize, part: Option<usize>) {
        self.0[engine] = part.map_or(Self::NONE, |part| part as u32);
    }
}

/// What a wait needs to know of a set.
#[derive(Clone, Copy)]
pub(crate) struct View {
    pub(crate) parts: Parts,
    pub(crate) has_kernel: bool,
    pub(crate) has_failed: bool,
    pub(crate) has_one_shots: bool,
    pub(crate) has_edges: bool,
}

/// An epoll set.
pub(crate) struct Set {
    parts: Parts,
    /// The kernel's set has members too.
    pub(crate) has_kernel: bool,
    /// Sockets of an engine that has failed were in it.
    pub(crate) has_failed: bool,
    /// An `eventfd` in the kernel's set, readable while a part has events: others that look at the
    /// set see it. Made when the set enters another set.
    pub(crate) outside: Option<c_int>,
    /// The engines whose parts have made it readable.
    pub(crate) shown_by: EngineMask,
    /// One-shot items of sockets whose twin is in the kernel's set as well.
    pub(crate) one_shots: Vec<OneShot>,
    /// Edge-triggered items of the kernel's set, of sockets that may be offloaded later.
    edges: Vec<Edge>,
    /// Threads that sleep on the set, by their descriptors: a first member in another engine wakes
    /// them.
    sleepers: Vec<i32>,
}

/// A one-shot item that an engine and the kernel have both: the first to report it turns the other
/// one off.
#[derive(Clone, Copy)]
pub(crate) struct OneShot {
    pub(crate) engine: usize,
    pub(crate) id: SocketId,
    pub(crate) fd: c_int,
    pub(crate) data: u64,
    /// The events that the program waits for.
    pub(crate) events: u32,
}

/// An edge-triggered item of the kernel's set. The engine that takes it over must know whether the
/// program has had its event.
struct Edge {
    fd: c_int,
    data: u64,
    is_reported: bool,
}

impl Set {
    const fn new() -> Self {
        Self {
            parts: Parts([Parts::NONE; ENGINES_MAX]),
            has_kernel: false,
            has_failed: false,
            outside: None,
            shown_by: EngineMask::NONE,
            one_shots: Vec::new(),
            edges: Vec::new(),
            sleepers: Vec::new(),
        }
    }

    /// Its number in an engine.
    pub(crate) fn part(&self, engine: usize) -> Option<usize> {
        self.parts.of(engine)
    }

    /// What a wait needs to know of it.
    pub(crate) fn view(&self) -> View {
        let Self { parts, has_kernel, has_failed, ref one_shots, ref edges, .. } = *self;
        let (has_one_shots, has_edges) = (!one_shots.is_empty(), !edges.is_empty());
        View { parts, has_kernel, has_failed, has_one_shots, has_edges }
    }

    /// Notes an item that the kernel's set has from now on, with `event`, or has no more.
    pub(crate) fn note_edge(&mut self, fd: c_int, event: Option<libc::epoll_event>) {
        self.edges.retain(|edge| edge.fd != fd);
        if let Some(libc::epoll_event { events, u64: data }) = event
            && events & libc::EPOLLET as u32 != 0
        {
            self.edges.push(Edge { fd, data, is_reported: false });
        }
    }

    /// Notes what the kernel's set has reported. Of several items with one value, all were: the
    /// program cannot tell them apart either.
    pub(crate) fn note_reported(&mut self, events: &[libc::epoll_event]) {
        for edge in &mut self.edges {
            edge.is_reported |= events.iter().any(|event| event.u64 == edge.data);
        }
    }

    /// Whether an edge-triggered item was reported.
    pub(crate) fn has_reported(&self, fd: c_int) -> bool {
        self.edges.iter().any(|edge| edge.fd == fd && edge.is_reported)
    }

    /// The engines that members live on.
    pub(crate) fn engines(&self) -> EngineMask {
        (0..ENGINES_MAX).filter(|engine| self.part(*engine).is_some()).collect()
    }
}

static SETS: Mutex<OpenFiles> = Mutex::new(OpenFiles::new(table::SETS));

/// Another set has one of these as a member. It stays true.
static ARE_SHOWN: AtomicBool = AtomicBool::new(false);

/// The locked table.
pub(crate) fn lock() -> MutexGuard<'static, OpenFiles> {
    SETS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls `act` with the table. Signals are kept meanwhile, because a handler may make a call of
/// ours.
pub(crate) fn with<T>(act: impl FnOnce(&mut OpenFiles) -> T) -> T {
    thread::enter();
    let done = {
        let mut sets = lock();
        thread::refuse_cancel();
        act(&mut sets)
    };
    thread::leave();
    done
}

/// A new set, which the kernel has just made.
pub(crate) fn open(fd: c_int) {
    with(|sets| sets.open(fd, false, FileKind::Set(Set::new())));
}

/// Calls `act` with a set.
///
/// # Errors
/// `EBADF`: it is closed. `EINVAL`: the file is no set.
pub(crate) fn of<T>(file: FileId, act: impl FnOnce(&mut Set) -> T) -> Result<T, Errno> {
    if !file.is_set() {
        return Err(Errno::EINVAL);
    }
    with(|sets| sets.set(file).map(act))
}

/// The number of a set in an engine, if one of its members lives there.
pub(crate) fn part(file: FileId, engine: usize) -> Result<Option<usize>, Errno> {
    of(file, |set| set.part(engine))
}

/// The engines that members of a set live on; none of a set that is closed.
pub(crate) fn engines(file: FileId) -> EngineMask {
    of(file, |set| set.engines()).unwrap_or(EngineMask::NONE)
}

/// Notes the number of a set in an engine. Threads that sleep on the set sleep on this engine too,
/// from now on.
pub(crate) fn set_part(file: FileId, engine: usize, part: usize) -> Result<(), Errno> {
    of(file, |set| {
        set.parts.set(engine, Some(part));
        set.sleepers.iter().for_each(|sleeper| _ = sys::write(*sleeper, &1_u64.to_ne_bytes()));
    })
}

/// This thread is about to sleep on a set, whose members it has seen in `seen`. `false`: there is
/// another engine now.
pub(crate) fn begin_sleep(file: FileId, eventfd: i32, seen: EngineMask) -> bool {
    of(file, |set| {
        let is_same = set.engines().is_within(seen);
        if is_same {
            set.sleepers.push(eventfd);
        }
        is_same
    })
    .unwrap_or(false)
}

/// It sleeps no longer.
pub(crate) fn end_sleep(file: FileId, eventfd: i32) {
    let _ = of(file, |set| set.sleepers.retain(|sleeper| *sleeper != eventfd));
}

/// The thread of this descriptor sleeps on no set any more, wherever its handler goes on.
pub(crate) fn forget_sleeper(eventfd: i32) {
    if config::engines() > 1 {
        with(|sets| sets.sets_mut().for_each(|set| set.sleepers.retain(|sleeper| *sleeper != eventfd)));
    }
}

/// The descriptor for calls to the kernel.
pub(crate) fn twin(file: FileId) -> Result<c_int, Errno> {
    with(|sets| sets.twin(file))
}

/// Whether sets may be members of others.
#[inline]
pub(crate) fn are_shown() -> bool {
    ARE_SHOWN.load(Ordering::Relaxed)
}

/// A set shows others what its parts have.
pub(crate) fn show(file: FileId, outside: c_int) {
    if of(file, |set| set.outside = Some(outside)).is_ok() {
        ARE_SHOWN.store(true, Ordering::Relaxed);
    }
}

/// The sets that others look at, which have a part in an engine: the file, and the number there.
pub(crate) fn shown_in(engine: usize) -> Vec<(FileId, usize)> {
    with(|sets| {
        let shown = sets.sets().filter(|(_, set)| set.outside.is_some());
        shown.filter_map(|(file, set)| Some((file, set.part(engine)?))).collect()
    })
}

/// The sets that have a part in an engine: the file, and the number there.
pub(crate) fn parts_in(engine: usize) -> Vec<(FileId, usize)> {
    with(|sets| sets.sets().filter_map(|(file, set)| Some((file, set.part(engine)?))).collect())
}

/// Makes the descriptor that others see readable while a part has events, and again for new ones.
pub(crate) fn show_events(file: FileId, engine: usize, is_ready: bool, is_new: bool) {
    let _ = of(file, |set| {
        let Some(outside) = set.outside else { return };
        let was_shown = set.shown_by.has(engine);
        if is_ready && (!was_shown || is_new) {
            set.shown_by = set.shown_by.with(engine);
            let _ = sys::write(outside, &1_u64.to_ne_bytes());
        } else if !is_ready && was_shown {
            set.shown_by = set.shown_by.without(engine);
            if set.shown_by == EngineMask::NONE {
                let _ = sys::read(outside, &mut [0; 8]);
            }
        }
    });
}

/// What others see of the parts of a set is no event of the set itself.
pub(crate) fn hide_events(file: FileId) -> Result<(), Errno> {
    of(file, |set| {
        if let Some(outside) = set.outside.filter(|_| set.shown_by != EngineMask::NONE) {
            let _ = sys::read(outside, &mut [0; 8]);
            set.shown_by = EngineMask::NONE;
        }
    })
}

/// Forgets the parts of all sets in an engine, after the engine was closed, or has failed: who
/// waits on them gets an error then.
pub(crate) fn forget_parts(engine: usize, has_failed: bool) {
    with(|sets| {
        sets.sets_mut().for_each(|set| {
            set.has_failed |= has_failed && set.part(engine).is_some();
            set.parts.set(engine, None);
            set.shown_by = set.shown_by.without(engine);
        });
    });
}

/// Forgets descriptors and sleepers of the parent in a child of `fork`, which holds the table.
pub(crate) fn forget_parent(sets: &mut OpenFiles) {
    sets.sets_mut().for_each(|set| {
        (set.outside, set.shown_by) = (None, EngineMask::NONE);
        set.parts = Parts([Parts::NONE; ENGINES_MAX]);
        set.one_shots.clear();
        set.sleepers.clear();
    });
}
