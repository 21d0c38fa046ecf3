//! An object made by libibverbs, with the call that destroys it. All handles are based on this one.
//!
//! Invariants:
//! 1. `raw` came from the call that creates such objects, and `destroy` is the call that destroys
//!    them. It is called on drop, and not again once it has destroyed the object.
//! 2. A struct with a `Handle` declares it before the parents that the object needs: fields are
//!    dropped in order of declaration, so a parent is destroyed after its child.
//! 3. libibverbs and its providers lock the state that their set-up calls share; an object is bound
//!    to no thread.
//! 4. This crate never forms a reference to an object: the library may write to it at any time.

use core::any::Any;
use core::ffi::c_int;
use core::fmt;
use core::mem::{ManuallyDrop, forget};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use super::context::Element;
use super::own_objects::OwnObjects;

static FAILED: AtomicUsize = AtomicUsize::new(0);

/// The number of objects of this process that could not be destroyed: the device was removed, or
/// they are still in use. They stay in the kernel until their context is closed, at the latest when
/// the process ends. Memory that the NIC reaches by one of them is never freed.
pub fn failed_destructions() -> usize {
    FAILED.load(Ordering::Relaxed)
}

/// The owner of memory: it remains valid until the keeper is dropped.
pub type MemoryOwner = Arc<dyn Any + Send + Sync>;

/// An owned object.
pub(super) struct Handle<T> {
    raw: NonNull<T>,
    destroy: unsafe extern "C" fn(*mut T) -> c_int,
    /// Of the memory that the NIC reaches by the object. It is leaked if the object cannot be
    /// destroyed: a NIC would write into what is somebody else's by then.
    memory_owner: Option<MemoryOwner>,
    /// Of a context whose device file another process has: that one may destroy the object.
    own_objects: Option<Arc<OwnObjects>>,
}

impl<T> Handle<T> {
    /// Takes ownership of an object.
    ///
    /// # Safety
    /// Invariant 1; and the field must be declared in the order of invariant 2.
    pub(super) unsafe fn new(raw: NonNull<T>, destroy: unsafe extern "C" fn(*mut T) -> c_int) -> Self {
        Self { raw, destroy, memory_owner: None, own_objects: None }
    }

    /// Takes ownership of an object by which the NIC reaches memory.
    ///
    /// # Safety
    /// As of [`Handle::new`].
    pub(super) unsafe fn over(
        raw: NonNull<T>,
        destroy: unsafe extern "C" fn(*mut T) -> c_int,
        memory_owner: MemoryOwner,
    ) -> Self {
        Self { raw, destroy, memory_owner: Some(memory_owner), own_objects: None }
    }

    /// Of a new object in a context of these, which knows it from here on by the element that its
    /// events are about; a context that nobody else has, needs none of that.
    pub(super) fn of(mut self, own_objects: Option<&Arc<OwnObjects>>, element: Option<Element>) -> Self {
        if let (Some(own), Some(element)) = (own_objects, element) {
            own.add(self.raw.as_ptr().expose_provenance(), element);
        }
        self.own_objects = own_objects.cloned();
        self
    }

    /// Destroys the object. Returns what the call did, which is 0 for success.
    pub(super) fn destroy(self) -> c_int {
        let mut this = ManuallyDrop::new(self);
        let answer = this.end();
        drop(this.memory_owner.take());
        answer
    }

    /// Destroys the object, of a kind that has no events. Returns the handle where the call
    /// refuses, with what it said: the object is still there.
    pub(super) fn try_destroy(self) -> Result<(), (Self, c_int)> {
        let mut this = ManuallyDrop::new(self);
        match this.call() {
            0 => {
                drop((this.memory_owner.take(), this.own_objects.take()));
                Ok(())
            }
            errno => Err((ManuallyDrop::into_inner(this), errno)),
        }
    }

    /// The last call of a handle that goes.
    fn end(&mut self) -> c_int {
        let answer = self.call();
        if answer != 0 {
            FAILED.fetch_add(1, Ordering::Relaxed);
            forget(self.memory_owner.take());
        }
        answer
    }

    /// Not called again once it has returned 0 (1).
    fn call(&self) -> c_int {
        // SAFETY: 1, 2.
        let destroy = || unsafe { (self.destroy)(self.raw.as_ptr()) };
        match &self.own_objects {
            None => destroy(),
            // The other process has destroyed it already, so the NIC reaches nothing by it.
            Some(own) => match own.remove(self.raw.as_ptr().addr(), destroy) {
                libc::ENOENT | libc::EINVAL => 0,
                answer => answer,
            },
        }
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
        self.end();
    }
}

// SAFETY: 3.
unsafe impl<T> Send for Handle<T> {}
// SAFETY: 3, 4.
unsafe impl<T> Sync for Handle<T> {}
