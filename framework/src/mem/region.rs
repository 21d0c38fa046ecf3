//! A region: one contiguous, long-lived range of memory that pools cut into buffers and that a
//! device can register (an AF_XDP umem, an mlx5 memory region with its lkey).
//!
//! A region is shared by `Arc`. The pool, not the region, decides who may write to which bytes. A
//! region stays mapped until the last pool, mbuf and device that use it are gone.
//!
//! Invariants:
//! 1. `base .. base + len` is one allocation, valid for reads and writes until the `Region` is
//!    dropped, and zeroed at the start, so every byte is initialised.
//! 2. `base` is aligned to at least [`Region::ALIGN`] bytes.
//! 3. At most one pool is cut from a region (`claim`), so two pools never hand out the same byte.

use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};
use std::alloc::{Layout, alloc_zeroed, dealloc};

use hugepages::{MapRequest, Mapping};

/// A range of pages for packet buffers.
pub struct Region {
    base: NonNull<u8>,
    len: usize,
    claimed: AtomicBool,
    backing: Backing,
}

/// The owner of the memory, which frees it.
enum Backing {
    Pages(Mapping),
    Heap(Layout),
}

// SAFETY: the region is an address range and a way to free it; it never reads or writes the bytes
// (1), and the claim is atomic.
unsafe impl Send for Region {}
// SAFETY: as above; shared access does not touch the bytes.
unsafe impl Sync for Region {}

impl Region {
    /// Alignment of the first byte: a 4 KiB page, the minimum that AF_XDP accepts for a umem.
    pub const ALIGN: usize = 4096;

    /// Maps pages as `request` says (hugepages, NUMA node, locked). The caller checks
    /// [`Region::mapping`] for a fallback to smaller pages, and reports it to the operator.
    pub fn map(request: &MapRequest) -> Result<Self, RegionError> {
        let mapping = Mapping::map(request).map_err(RegionError::Map)?;
        Ok(Self {
            base: mapping.as_ptr(),
            len: mapping.len(),
            claimed: AtomicBool::new(false),
            backing: Backing::Pages(mapping),
        })
    }

    /// Allocates `len` bytes on the heap: for tests, Miri, and tools for which page walks do not
    /// matter.
    pub fn heap(len: usize) -> Result<Self, RegionError> {
        let layout = Layout::from_size_align(len.max(1), Self::ALIGN).map_err(|_| RegionError::TooLarge(len))?;
        // SAFETY: the layout is not of size zero.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(RegionError::TooLarge(len))?;
        Ok(Self { base, len, claimed: AtomicBool::new(false), backing: Backing::Heap(layout) })
    }

    /// First byte of the range; device set-up registers from here.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Bytes in the range.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the range is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The mapping behind the region, with its page size and any fallback; `None` for heap memory.
    pub fn mapping(&self) -> Option<&Mapping> {
        match &self.backing {
            Backing::Pages(mapping) => Some(mapping),
            Backing::Heap(_) => None,
        }
    }

    /// Claims the region for one pool; `false` if another pool has it.
    pub(crate) fn claim(&self) -> bool {
        !self.claimed.swap(true, Ordering::AcqRel)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if let Backing::Heap(layout) = self.backing {
            // SAFETY: `base` came from `alloc_zeroed` with this layout and is freed once (1).
            unsafe { dealloc(self.base.as_ptr(), layout) }
        }
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region").field("base", &self.base).field("len", &self.len).finish_non_exhaustive()
    }
}

/// Why a region could not be created.
#[derive(Debug)]
#[non_exhaustive]
pub enum RegionError {
    /// The kernel refused the mapping.
    Map(hugepages::MapError),
    /// The heap cannot allocate this number of bytes.
    TooLarge(usize),
}

impl fmt::Display for RegionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Map(error) => error.fmt(f),
            Self::TooLarge(len) => write!(f, "no {len} bytes of memory for packet buffers; use a smaller pool"),
        }
    }
}

impl std::error::Error for RegionError {}
