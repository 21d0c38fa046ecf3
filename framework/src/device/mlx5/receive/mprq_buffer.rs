//! The buffer of a striding ring: one range of memory, a part of it for each WQE, each part divided
//! into strides. No handle keeps it: a frame is copied out as soon as its CQE has arrived.
//!
//! `unsafe`, because the NIC writes into this memory.
//!
//! Invariants:
//! 1. The range is a claimed region, so no pool is or will be cut from it. It lives as long as this
//!    value, and its bytes are initialized.
//! 2. Nothing in the process writes there, except the fake NIC of a test. The NIC writes only into
//!    strides that it has not reported yet. A caller borrows only reported bytes, and releases them
//!    before it returns the WQE to the NIC.

use core::{mem, slice};
use std::sync::Arc;

use crate::mem::Region;

/// Memory for the frames of one ring, registered with the device.
pub(crate) struct MprqBuffer {
    region: Arc<Region>,
    lkey: u32,
}

impl MprqBuffer {
    /// All of `region`, which was registered as `lkey`. `None` if the region is already claimed.
    pub(crate) fn new(region: Arc<Region>, lkey: u32) -> Option<Self> {
        region.claim().then_some(Self { region, lkey })
    }

    /// Its bytes.
    pub(crate) fn len(&self) -> usize {
        self.region.len()
    }

    /// Its memory key.
    pub(crate) fn lkey(&self) -> u32 {
        self.lkey
    }

    /// Leaks the memory, because the NIC may still write there.
    #[cold]
    pub(crate) fn leak(&self) {
        mem::forget(Arc::clone(&self.region));
    }

    /// The address of the byte at `at`, for a WQE.
    pub(crate) fn address(&self, at: usize) -> u64 {
        assert!(at < self.len(), "outside the memory where frames land");
        self.region.base().as_ptr().wrapping_add(at).expose_provenance() as u64
    }

    /// The `len` bytes at `at`, which the NIC has reported. Panics outside the range.
    #[inline]
    pub(crate) fn bytes(&self, at: usize, len: usize) -> &[u8] {
        assert!(at <= self.len() && len <= self.len() - at, "outside the memory where frames land");
        // SAFETY: inside the region, and initialized (1); nothing writes there meanwhile (2).
        unsafe { slice::from_raw_parts(self.region.base().add(at).as_ptr(), len) }
    }
}

/// Writes `bytes` at `at` as a NIC would, for a fake NIC. Panics outside the range.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn land(region: &Region, at: usize, bytes: &[u8]) {
    assert!(at <= region.len() && bytes.len() <= region.len() - at, "outside the memory where frames land");
    // SAFETY: inside the region (1), and not reported yet (2).
    unsafe { region.base().add(at).copy_from_nonoverlapping(core::ptr::NonNull::from(bytes).cast(), bytes.len()) }
}
