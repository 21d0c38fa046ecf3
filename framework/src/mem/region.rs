//! A region: one contiguous, long-lived range of memory that pools cut into buffers and that a
//! device can register (an AF_XDP umem, an mlx5 memory region with its lkey).
//!
//! A region is shared by `Arc`. The pool, not the region, decides who may write to which bytes. A
//! region stays mapped until the last pool, mbuf and device that use it are gone.
//!
//! Invariants:
//! 1. `base .. base + len` is one allocation, valid for reads and writes until the `Region` is
//!    dropped, and zeroed at the start, so every byte is initialized.
//! 2. `base` is aligned to at least [`Region::ALIGN`] bytes.
//! 3. At most one pool is cut from a region (`claim`), so two pools never hand out the same byte.
//! 4. The file behind a shared region cannot become shorter (it is sealed), and whoever else has it
//!    open neither reads nor writes it: the process that lends it promises so.

use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

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
    /// Pages of a file, which another process registers with the device.
    Shared,
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

    /// Maps `len` bytes of memory that another process lends: a file that is sealed against
    /// becoming shorter (`F_SEAL_SHRINK`), and not used yet.
    #[cfg_attr(not(feature = "af-xdp"), allow(dead_code))] // a queue is lent by the broker, which comes with AF_XDP
    pub(crate) fn shared(file: &File, len: usize) -> Result<Self, RegionError> {
        Self::shared_in(file, Reservation::new(len).map_err(RegionError::Shared)?)
    }

    /// The same, in the place of a reservation and as long as it.
    pub(crate) fn shared_in(file: &File, place: Reservation) -> Result<Self, RegionError> {
        let len = place.len;
        let fd = file.as_raw_fd();
        // SAFETY: a borrowed descriptor and no address.
        let seals = unsafe { libc::fcntl(fd, libc::F_GET_SEALS) };
        let holds = file.metadata().is_ok_and(|file| file.len() >= len as u64);
        if seals < 0 || seals & libc::F_SEAL_SHRINK == 0 || !holds {
            return Err(RegionError::Shared(io::ErrorKind::InvalidInput.into()));
        }
        let (access, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE | libc::MAP_FIXED);
        // SAFETY: a mapping in the place of a reservation, of which nothing else is left; the file
        // holds that many bytes and keeps them (4).
        let base = unsafe { libc::mmap(place.base.as_ptr().cast(), len, access, flags, fd, 0) };
        match NonNull::new(base.cast::<u8>()) {
            Some(base) if base.as_ptr().cast() != libc::MAP_FAILED => {
                core::mem::forget(place);
                // A child of `fork` would keep the memory from the process that lends it.
                // SAFETY: the mapping of above, whole.
                unsafe { libc::madvise(base.as_ptr().cast(), len, libc::MADV_DONTFORK) };
                Ok(Self { base, len, claimed: AtomicBool::new(false), backing: Backing::Shared })
            }
            _ => Err(RegionError::Shared(io::Error::last_os_error())),
        }
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
            Backing::Heap(_) | Backing::Shared => None,
        }
    }

    /// Whether another process lends the memory.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.backing, Backing::Shared)
    }

    /// Claims the region for one pool; `false` if another pool has it.
    pub(crate) fn claim(&self) -> bool {
        !self.claimed.swap(true, Ordering::AcqRel)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        match self.backing {
            Backing::Pages(_) => {}
            // SAFETY: `base` came from `alloc_zeroed` with this layout and is freed once (1).
            Backing::Heap(layout) => unsafe { dealloc(self.base.as_ptr(), layout) },
            // SAFETY: the range came from mmap and is unmapped once (1).
            Backing::Shared => unsafe {
                libc::munmap(self.base.as_ptr().cast(), self.len);
            },
        }
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region").field("base", &self.base).field("len", &self.len).finish_non_exhaustive()
    }
}

/// Addresses without memory, for a region that another process must know the place of before there
/// is one.
pub(crate) struct Reservation {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a range of addresses, which nobody accesses.
unsafe impl Send for Reservation {}

impl Reservation {
    pub(crate) fn new(len: usize) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping without access, at an address that the kernel chooses.
        let base = unsafe { libc::mmap(core::ptr::null_mut(), len, libc::PROT_NONE, flags, -1, 0) };
        match NonNull::new(base.cast::<u8>()) {
            Some(base) if base.as_ptr().cast() != libc::MAP_FAILED => Ok(Self { base, len }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    #[cfg_attr(not(feature = "mlx5"), allow(dead_code))] // AF_XDP needs no address
    pub(crate) fn address(&self) -> u64 {
        self.base.as_ptr().expose_provenance() as u64
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: the range came from mmap and is unmapped once.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
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
    /// Memory that another process lends cannot be mapped.
    Shared(io::Error),
}

impl fmt::Display for RegionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Map(error) => error.fmt(f),
            Self::TooLarge(len) => write!(f, "no {len} bytes of memory for packet buffers; use a smaller pool"),
            Self::Shared(error) => {
                write!(f, "the memory that a broker lends cannot be mapped ({error}): free some (`free -m`)")
            }
        }
    }
}

impl std::error::Error for RegionError {}
