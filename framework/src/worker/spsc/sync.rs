//! The atomics and cells of the rings. Under `--cfg loom` they are loom's models, so that loom can
//! try every interleaving and every value a relaxed load may return; the rings themselves are the
//! same code.

#[cfg(loom)]
pub(super) use loom::{
    cell::UnsafeCell,
    sync::Arc,
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence},
};
#[cfg(not(loom))]
pub(super) use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence},
};

/// The standard cell with access by closure, so that loom sees where an access ends.
#[cfg(not(loom))]
pub(super) struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub(super) const fn new(value: T) -> Self {
        Self(core::cell::UnsafeCell::new(value))
    }

    #[inline(always)]
    pub(super) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }

    #[inline(always)]
    pub(super) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.0.get())
    }
}

/// Keeps its content two cache lines away from everything else: x86 fetches lines in adjacent
/// pairs, so a neighbor 64 bytes away would still bounce between the cores.
#[repr(align(128))]
pub(super) struct CachePadded<T>(pub(super) T);
