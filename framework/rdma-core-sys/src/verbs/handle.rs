//! An object that libibverbs made, and how it is given back. All handles are made of this one.
//!
//! Invariants:
//! 1. `raw` came from the call that makes such objects, and `destroy` is the call that gives them
//!    back. It is made once, on drop.
//! 2. Whoever holds a `Handle` declares it before the parents that the object needs: fields are
//!    dropped in the order in which they stand, so a parent goes after its child.
//! 3. libibverbs and its providers lock what their set-up calls share; an object is bound to no
//!    thread.
//! 4. Nobody in this crate forms a reference to an object: the library may write to it at any time.

use core::ffi::c_int;
use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};

static FAILED: AtomicUsize = AtomicUsize::new(0);

/// How many objects of this process could not be destroyed: the device went, or somebody else still
/// uses them. They stay in the kernel until their context is closed, at the latest when the process
/// ends.
pub fn failed_destructions() -> usize {
    FAILED.load(Ordering::Relaxed)
}

/// An owned object.
pub(super) struct Handle<T> {
    raw: NonNull<T>,
    destroy: unsafe extern "C" fn(*mut T) -> c_int,
}

impl<T> Handle<T> {
    /// Takes an object over.
    ///
    /// # Safety
    /// As invariant 1 says; and the field must stand as invariant 2 says.
    pub(super) unsafe fn new(raw: NonNull<T>, destroy: unsafe extern "C" fn(*mut T) -> c_int) -> Self {
        Self { raw, destroy }
    }

    /// For calls; valid as long as the handle lives.
    pub(super) fn as_ptr(&self) -> *mut T {
        self.raw.as_ptr()
    }
}

impl<T> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Pointer::fmt(&self.raw, f)
    }
}

impl<T> Drop for Handle<T> {
    fn drop(&mut self) {
        // SAFETY: 1, 2.
        if unsafe { (self.destroy)(self.raw.as_ptr()) } != 0 {
            FAILED.fetch_add(1, Ordering::Relaxed);
        }
    }
}

// SAFETY: 3.
unsafe impl<T> Send for Handle<T> {}
// SAFETY: 3, 4.
unsafe impl<T> Sync for Handle<T> {}
