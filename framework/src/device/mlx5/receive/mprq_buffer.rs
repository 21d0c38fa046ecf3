//! Where the frames of a striding ring land: one range of memory, a part of it for each WQE, each
//! part cut into strides. Nobody holds on to it: a frame is copied out as soon as the NIC has told
//! of it.
//!
//! `unsafe`, because the NIC writes into this memory.
//!
//! Invariants:
//! 1. The range is a region that no pool was cut from, and none will be: it was claimed. It lives
//!    as long as this does, and its bytes are initialised.
//! 2. Nothing in the process writes there, but who plays the NIC. The NIC writes into strides that
//!    it has not told of; whoever lends bytes of others has seen that it did, and gives them back
//!    before the NIC hears that it may write there again.

use core::{mem, slice};
use std::sync::Arc;

use crate::mem::Region;

/// Memory for the frames of one ring, registered with the device.
pub(in crate::device::mlx5) struct MprqBuffer {
    region: Arc<Region>,
    lkey: u32,
}

impl MprqBuffer {
    /// All of `region`, which was registered as `lkey`. `None` where it is somebody's already.
    pub(in crate::device::mlx5) fn new(region: Arc<Region>, lkey: u32) -> Option<Self> {
        region.claim().then_some(Self { region, lkey })
    }

    /// Its bytes.
    pub(in crate::device::mlx5) fn len(&self) -> usize {
        self.region.len()
    }

    /// The key that it was registered as.
    pub(in crate::device::mlx5) fn lkey(&self) -> u32 {
        self.lkey
    }

    /// Leaves the memory for ever, as the NIC may still write there.
    #[cold]
    pub(in crate::device::mlx5) fn strand(&self) {
        mem::forget(Arc::clone(&self.region));
    }

    /// The address of the byte at `at`, for a WQE.
    pub(in crate::device::mlx5) fn address(&self, at: usize) -> u64 {
        assert!(at < self.len(), "outside the memory where frames land");
        self.region.base().as_ptr().wrapping_add(at).expose_provenance() as u64
    }

    /// The `len` bytes at `at`, which the NIC has told of. Panics outside.
    #[inline]
    pub(in crate::device::mlx5) fn bytes(&self, at: usize, len: usize) -> &[u8] {
        assert!(at <= self.len() && len <= self.len() - at, "outside the memory where frames land");
        // SAFETY: inside the region, and initialised (1); nobody writes there meanwhile (2).
        unsafe { slice::from_raw_parts(self.region.base().add(at).as_ptr(), len) }
    }
}

/// Writes `bytes` at `at` as a NIC would, for who plays one. Panics outside.
#[cfg(any(test, feature = "testing"))]
pub(in crate::device::mlx5) fn land(region: &Region, at: usize, bytes: &[u8]) {
    assert!(at <= region.len() && bytes.len() <= region.len() - at, "outside the memory where frames land");
    // SAFETY: inside the region (1), and nobody was told yet that something is there (2).
    unsafe { region.base().add(at).copy_from_nonoverlapping(core::ptr::NonNull::from(bytes).cast(), bytes.len()) }
}
