//! Protection domains, and memory registered with the NIC.
//!
//! Registering is safe, because it accesses no bytes. The kernel pins the pages, so they stay valid
//! for the NIC even if the range is unmapped. Remote access is not granted, so bytes move only when
//! a WQE names them. Only writing WQEs needs `unsafe`, and registering for peers, who write when
//! they like.
//!
//! Invariants:
//! 1. A region's handle stands before its protection domain, a domain's before the domains that it
//!    was made of, and those before its context.
//! 2. The range is never read or written here.
//! 3. Requests are plain C data, and the data that they point to lives until the call returns.

use core::mem::zeroed;
use core::ptr::NonNull;
use std::sync::Arc;

use super::context::Context;
use super::error::VerbsError;
use super::handle::{Handle, MemoryOwner};
use crate::bindings::*;
use crate::inline;

/// A protection domain: a QP can access only memory of its own domain. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ProtectionDomain(Arc<PdInner>);

#[derive(Debug)]
struct PdInner {
    handle: Handle<ibv_pd>,
    _parents: Option<(ProtectionDomain, ThreadDomain)>,
    context: Context,
}

impl ProtectionDomain {
    /// A new domain.
    ///
    /// # Errors
    /// The device has no more, or is gone.
    pub fn allocate(context: &Context) -> Result<Self, VerbsError> {
        let verbs = context.core().verbs();
        // SAFETY: the context is open.
        let raw = unsafe { (verbs.ibv_alloc_pd)(context.as_ptr()) };
        let raw = VerbsError::check_object("ibv_alloc_pd", raw)?;
        // SAFETY: new, 1.
        let handle = unsafe { Handle::new(raw, verbs.ibv_dealloc_pd) }.of(context.own_objects(), None);
        Ok(Self(Arc::new(PdInner { handle, _parents: None, context: context.clone() })))
    }

    /// The same domain for the queues of one thread: they access the memory of `pd`, and use the
    /// doorbell register of `thread`.
    ///
    /// # Errors
    /// The library or the provider is too old (`is_unsupported`).
    pub fn for_thread(pd: &ProtectionDomain, thread: &ThreadDomain) -> Result<Self, VerbsError> {
        let context = pd.context();
        // SAFETY: the context is open, both domains live; 3.
        let raw = unsafe {
            let mut wanted: ibv_parent_domain_init_attr = zeroed();
            (wanted.pd, wanted.td) = (pd.as_ptr(), thread.as_ptr());
            inline::ibv_alloc_parent_domain(context.as_ptr(), &raw mut wanted)
        };
        let raw = VerbsError::check_object("ibv_alloc_parent_domain", raw)?;
        // SAFETY: new, 1.
        let handle = unsafe { Handle::new(raw, context.core().verbs().ibv_dealloc_pd) };
        let parents = Some((pd.clone(), thread.clone()));
        Ok(Self(Arc::new(PdInner { handle, _parents: parents, context: context.clone() })))
    }

    /// Its device.
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// The raw object, for calls of [`crate::inline`]. Valid as long as a clone of this handle is.
    pub fn as_ptr(&self) -> *mut ibv_pd {
        self.0.handle.as_ptr()
    }
}

/// A promise that only one thread at a time uses its objects; libmlx5 gives it a dedicated doorbell
/// register. Other queues share registers as soon as there are more than some, and only libmlx5
/// knows the locks. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ThreadDomain(Arc<TdInner>);

#[derive(Debug)]
struct TdInner {
    handle: Handle<ibv_td>,
    _context: Context,
}

impl ThreadDomain {
    /// A new domain, with a register of its own.
    ///
    /// # Errors
    /// All registers are taken, or the library or the provider is too old for it
    /// (`is_unsupported`).
    pub fn allocate(context: &Context) -> Result<Self, VerbsError> {
        // SAFETY: the context is open; 3.
        let raw = unsafe {
            let mut wanted: ibv_td_init_attr = zeroed();
            inline::ibv_alloc_td(context.as_ptr(), &raw mut wanted)
        };
        let raw = VerbsError::check_object("ibv_alloc_td", raw)?;
        // SAFETY: new, 1.
        let handle = unsafe { Handle::new(raw, inline::ibv_dealloc_td) };
        Ok(Self(Arc::new(TdInner { handle, _context: context.clone() })))
    }

    /// The raw object, for calls of [`crate::inline`]. Valid as long as a clone of this handle is.
    pub fn as_ptr(&self) -> *mut ibv_td {
        self.0.handle.as_ptr()
    }
}

/// The NIC's access to a region beyond reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Write access. Without it, the region is for sending only.
    pub local_write: bool,
    /// The NIC's writes may pass one another on PCIe, which some machines need for full speed. The
    /// CQE is still written last.
    pub relaxed_ordering: bool,
}

impl Default for Access {
    fn default() -> Self {
        Self { local_write: true, relaxed_ordering: false }
    }
}

/// What peers may do: to a region, or over a QP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteAccess {
    /// Read.
    pub read: bool,
    /// Write.
    pub write: bool,
    /// Add and swap.
    pub atomic: bool,
    /// Windows may be bound to a region, which give peers their own rights. Nothing of a QP.
    pub bind: bool,
}

impl RemoteAccess {
    pub(super) fn flags(self) -> u32 {
        let flag = |is_there, flag| if is_there { flag } else { 0 };
        flag(self.read, IBV_ACCESS_REMOTE_READ)
            | flag(self.write, IBV_ACCESS_REMOTE_WRITE)
            | flag(self.atomic, IBV_ACCESS_REMOTE_ATOMIC)
            | flag(self.bind, IBV_ACCESS_MW_BIND)
    }

    pub(super) fn of(flags: u32) -> Self {
        let has = |flag| flags & flag != 0;
        Self {
            read: has(IBV_ACCESS_REMOTE_READ),
            write: has(IBV_ACCESS_REMOTE_WRITE),
            atomic: has(IBV_ACCESS_REMOTE_ATOMIC),
            bind: has(IBV_ACCESS_MW_BIND),
        }
    }
}

/// Memory registered with the NIC. Cheap to clone.
#[derive(Clone)]
pub struct MemoryRegion(Arc<MrInner>);

struct MrInner {
    handle: Handle<ibv_mr>,
    pd: ProtectionDomain,
}

impl MemoryRegion {
    /// Registers `len` bytes from `start`, which `keeper` owns. Takes as long as the kernel needs
    /// to pin the pages: hugepages are fast.
    ///
    /// # Errors
    /// The limit of locked memory is too small (`ENOMEM`: `ulimit -l`), or the range is not mapped
    /// (`EFAULT`).
    pub fn register(
        pd: &ProtectionDomain,
        start: NonNull<u8>,
        len: usize,
        access: Access,
        keeper: MemoryOwner,
    ) -> Result<Self, VerbsError> {
        let verbs = pd.context().core().verbs();
        let write = if access.local_write { IBV_ACCESS_LOCAL_WRITE } else { 0 };
        // SAFETY: the domain is valid, the range is not accessed (2). Optional access flags need
        // the newer call, as in the header.
        let raw = unsafe {
            let address = start.as_ptr();
            if access.relaxed_ordering {
                let flags = write | IBV_ACCESS_RELAXED_ORDERING;
                (verbs.ibv_reg_mr_iova2)(pd.as_ptr(), address.cast(), len, address.addr() as u64, flags)
            } else {
                (verbs.ibv_reg_mr)(pd.as_ptr(), address.cast(), len, write.cast_signed())
            }
        };
        let raw = VerbsError::check_object("ibv_reg_mr", raw)?;
        // SAFETY: new, 1.
        let handle = unsafe { Handle::over(raw, verbs.ibv_dereg_mr, keeper) }.of(pd.context().own_objects(), None);
        Ok(Self(Arc::new(MrInner { handle, pd: pd.clone() })))
    }

    /// As [`MemoryRegion::register`], for requests that name the first byte by `address`: the one
    /// at which another process has the memory. Both addresses have the same place in a page.
    ///
    /// # Errors
    /// As of [`MemoryRegion::register`].
    pub fn register_as(
        pd: &ProtectionDomain,
        start: NonNull<u8>,
        len: usize,
        address: u64,
        access: Access,
        keeper: MemoryOwner,
    ) -> Result<Self, VerbsError> {
        let verbs = pd.context().core().verbs();
        let write = if access.local_write { IBV_ACCESS_LOCAL_WRITE } else { 0 };
        let relaxed = if access.relaxed_ordering { IBV_ACCESS_RELAXED_ORDERING } else { 0 };
        // SAFETY: the domain is valid, the range is not accessed (2).
        let raw =
            unsafe { (verbs.ibv_reg_mr_iova2)(pd.as_ptr(), start.as_ptr().cast(), len, address, write | relaxed) };
        let raw = VerbsError::check_object("ibv_reg_mr", raw)?;
        // SAFETY: new, 1.
        let handle = unsafe { Handle::over(raw, verbs.ibv_dereg_mr, keeper) }.of(pd.context().own_objects(), None);
        Ok(Self(Arc::new(MrInner { handle, pd: pd.clone() })))
    }

    /// Registers memory that the NIC may write, and peers may reach by the region's
    /// [`rkey`](Self::rkey).
    ///
    /// # Errors
    /// As of [`MemoryRegion::register`]; a right that the device lacks.
    ///
    /// # Safety
    /// `keeper` keeps the bytes valid. While the region lives nobody has a reference to bytes that
    /// a peer may write, other than to atomics.
    pub unsafe fn register_for_peers(
        pd: &ProtectionDomain,
        start: NonNull<u8>,
        len: usize,
        access: RemoteAccess,
        keeper: MemoryOwner,
    ) -> Result<Self, VerbsError> {
        let verbs = pd.context().core().verbs();
        let flags = (IBV_ACCESS_LOCAL_WRITE | access.flags()).cast_signed();
        // SAFETY: the domain is valid; the caller's promise.
        let raw = unsafe { (verbs.ibv_reg_mr)(pd.as_ptr(), start.as_ptr().cast(), len, flags) };
        let raw = VerbsError::check_object("ibv_reg_mr", raw)?;
        // SAFETY: new, 1.
        let handle = unsafe { Handle::over(raw, verbs.ibv_dereg_mr, keeper) }.of(pd.context().own_objects(), None);
        Ok(Self(Arc::new(MrInner { handle, pd: pd.clone() })))
    }

    /// As [`MemoryRegion::register_for_peers`], for requests that name the first byte by `address`.
    /// Both addresses have the same place in a page.
    ///
    /// # Errors
    /// As of [`MemoryRegion::register_for_peers`].
    ///
    /// # Safety
    /// As of [`MemoryRegion::register_for_peers`].
    pub unsafe fn register_for_peers_as(
        pd: &ProtectionDomain,
        start: NonNull<u8>,
        len: usize,
        address: u64,
        access: RemoteAccess,
        keeper: MemoryOwner,
    ) -> Result<Self, VerbsError> {
        let verbs = pd.context().core().verbs();
        let flags = IBV_ACCESS_LOCAL_WRITE | access.flags();
        // SAFETY: the domain is valid; the caller's promise.
        let raw = unsafe { (verbs.ibv_reg_mr_iova2)(pd.as_ptr(), start.as_ptr().cast(), len, address, flags) };
        let raw = VerbsError::check_object("ibv_reg_mr", raw)?;
        // SAFETY: new, 1.
        let handle = unsafe { Handle::over(raw, verbs.ibv_dereg_mr, keeper) }.of(pd.context().own_objects(), None);
        Ok(Self(Arc::new(MrInner { handle, pd: pd.clone() })))
    }

    /// Ends the registration, unless a clone of the handle lives on.
    ///
    /// # Errors
    /// The device refuses, and may use the memory still: the region comes back. `EBUSY` where
    /// windows are bound to it.
    pub fn deregister(self) -> Result<(), (Self, VerbsError)> {
        let Some(MrInner { handle, pd }) = Arc::into_inner(self.0) else { return Ok(()) };
        let refused =
            |(handle, errno)| (Self(Arc::new(MrInner { handle, pd })), VerbsError::new("ibv_dereg_mr", errno));
        handle.try_destroy().map_err(refused)
    }

    /// The region's key in requests of peers.
    pub fn rkey(&self) -> u32 {
        // SAFETY: a living region.
        unsafe { (*self.as_ptr()).rkey }
    }

    /// The region's key in WQEs.
    pub fn lkey(&self) -> u32 {
        // SAFETY: a living region.
        unsafe { (*self.as_ptr()).lkey }
    }

    /// Its domain.
    pub fn pd(&self) -> &ProtectionDomain {
        &self.0.pd
    }

    /// The raw object. Valid as long as a clone of this handle is.
    pub fn as_ptr(&self) -> *mut ibv_mr {
        self.0.handle.as_ptr()
    }
}

/// A memory window of type 2: a request of a QP binds it to a part of a region, for the QP's peer.
/// Cheap to clone.
#[derive(Clone)]
pub struct MemoryWindow(Arc<MwInner>);

struct MwInner {
    handle: Handle<ibv_mw>,
    pd: ProtectionDomain,
}

impl MemoryWindow {
    /// A new window, which is bound to nothing.
    ///
    /// # Errors
    /// The device has no more, or none (`is_unsupported`).
    pub fn allocate(pd: &ProtectionDomain) -> Result<Self, VerbsError> {
        // SAFETY: the domain is valid.
        let raw = unsafe { inline::ibv_alloc_mw(pd.as_ptr(), IBV_MW_TYPE_2) };
        let raw = VerbsError::check_object("ibv_alloc_mw", raw)?;
        // SAFETY: new, 1.
        let handle = unsafe { Handle::new(raw, inline::ibv_dealloc_mw) };
        Ok(Self(Arc::new(MwInner { handle, pd: pd.clone() })))
    }

    /// Destroys the window, bound or not, unless a clone of the handle lives on.
    ///
    /// # Errors
    /// The device refuses: the window comes back.
    pub fn deallocate(self) -> Result<(), (Self, VerbsError)> {
        let Some(MwInner { handle, pd }) = Arc::into_inner(self.0) else { return Ok(()) };
        let refused =
            |(handle, errno)| (Self(Arc::new(MwInner { handle, pd })), VerbsError::new("ibv_dealloc_mw", errno));
        handle.try_destroy().map_err(refused)
    }

    /// The key that it was made with. A request that binds it changes the last eight bits.
    pub fn rkey(&self) -> u32 {
        // SAFETY: a living window.
        unsafe { (*self.as_ptr()).rkey }
    }

    /// The raw object. Valid as long as a clone of this handle is.
    pub fn as_ptr(&self) -> *mut ibv_mw {
        self.0.handle.as_ptr()
    }
}

impl core::fmt::Debug for MemoryWindow {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("MemoryWindow").field("rkey", &self.rkey()).finish_non_exhaustive()
    }
}

impl core::fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("MemoryRegion").field("lkey", &self.lkey()).finish_non_exhaustive()
    }
}
