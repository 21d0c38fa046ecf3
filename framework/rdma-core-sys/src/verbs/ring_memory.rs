//! Memory that libmlx5 takes for rings and doorbell records in place of its own, so that another
//! process can have it as well.
//!
//! Invariants:
//! 1. The data that libmlx5 passes to a callback is the boxed owner of the context's
//!    [`RingSource`], which lives until the context is closed.
//! 2. libmlx5 frees what it has allocated, each once.

use core::ffi::c_void;
use core::fmt;
use core::ptr::{NonNull, null_mut};
use std::sync::Arc;

use crate::bindings::mlx5dv_ctx_allocators;

/// Hands out memory for rings.
///
/// # Safety
/// Allocated memory is aligned to a page, has the length, is valid for reads and writes until it is
/// freed, and is given to one caller at a time. No call unwinds.
pub unsafe trait RingMemory: Send + Sync {
    /// Memory of `len` bytes, zeroed; `None` if there is not as much.
    fn allocate(&self, len: usize) -> Option<NonNull<u8>>;

    /// Takes back what starts at `start`.
    fn free(&self, start: NonNull<u8>);
}

/// The source of a context's rings.
pub(super) struct RingSource(Box<Arc<dyn RingMemory>>);

impl RingSource {
    pub(super) fn new(memory: Arc<dyn RingMemory>) -> Self {
        Self(Box::new(memory))
    }

    /// The callbacks for libmlx5.
    pub(super) fn allocators(&self) -> mlx5dv_ctx_allocators {
        let data: *const Arc<dyn RingMemory> = &raw const *self.0;
        mlx5dv_ctx_allocators { alloc: Some(allocate), free: Some(free), data: data.cast_mut().cast() }
    }
}

impl fmt::Debug for RingSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RingSource")
    }
}

unsafe extern "C" fn allocate(len: usize, data: *mut c_void) -> *mut c_void {
    // SAFETY: 1.
    let memory = unsafe { &*data.cast_const().cast::<Arc<dyn RingMemory>>() };
    memory.allocate(len).map_or(null_mut(), |start| start.as_ptr().cast())
}

unsafe extern "C" fn free(start: *mut c_void, data: *mut c_void) {
    // SAFETY: 1.
    let memory = unsafe { &*data.cast_const().cast::<Arc<dyn RingMemory>>() };
    if let Some(start) = NonNull::new(start.cast()) {
        memory.free(start);
    }
}
