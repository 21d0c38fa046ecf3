//! Protection domains and memory regions: the accesses that a key in a WQE allows, and the
//! addresses that it refers to.
//!
//! A key is `index << 8 | key byte`; the byte changes with each registration, so that a removed
//! region and its successor have different keys. The sending and the receiving side both use
//! [`Memory::reach`].

use super::mw::Window;
use crate::hca::control::{AccessFlags, Errno, MrCreated, MrRequest};
use crate::hca::table::Table;
use crate::hca::{Hca, Syndrome};

/// Key indices begin here, because drivers write lower ones by mistake, and 1 is the index of the
/// list terminator 0x100 (mlx5.md 2.4).
pub(super) const INDEX_FIRST: u32 = 0x10;

/// As many as a 24-bit index could name would only hide a leak.
pub(super) const REGIONS_MAX: u32 = 1 << 16;

/// The NIC's purpose in accessing memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::hca) enum Purpose {
    /// Fetch a frame.
    Read,
    /// Store a frame: needs LOCAL_WRITE.
    Write,
    /// A peer's READ: needs REMOTE_READ.
    RemoteRead,
    /// A peer's WRITE: needs REMOTE_WRITE.
    RemoteWrite,
    /// A peer's atomic: needs REMOTE_ATOMIC.
    RemoteAtomic,
}

impl Purpose {
    /// The bits of `IBV_ACCESS_*` that it needs.
    fn needs(self) -> u32 {
        match self {
            Self::Read => 0,
            Self::Write => 1 << 0,
            Self::RemoteWrite => 1 << 1,
            Self::RemoteRead => 1 << 2,
            Self::RemoteAtomic => 1 << 3,
        }
    }
}

/// Why memory cannot be reached by a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::hca) enum Unreachable {
    /// No region has this key.
    Key,
    /// The region belongs to another protection domain.
    Domain,
    /// The bytes are not all inside the region.
    Range,
    /// The region was registered without the right to this.
    Right,
}

impl Unreachable {
    /// The syndrome for the error CQE.
    pub(in crate::hca) fn syndrome(self) -> Syndrome {
        match self {
            Self::Right => Syndrome::LocalAccess,
            Self::Key | Self::Domain | Self::Range => Syndrome::LocalProtection,
        }
    }

    /// For people.
    pub(in crate::hca) fn words(self) -> &'static str {
        match self {
            Self::Key => "no region is registered under this lkey",
            Self::Domain => "the region of this lkey belongs to another protection domain",
            Self::Range => "the bytes are not all inside the region of this lkey",
            Self::Right => "the region of this lkey was registered without LOCAL_WRITE",
        }
    }
}

/// All protection domains and regions.
#[derive(Default)]
pub(in crate::hca) struct Memory {
    /// The domains, with the number of their users: a domain in use cannot be destroyed.
    domains: Table<u32>,
    /// By key index less [`INDEX_FIRST`]: regions, and windows.
    pub(super) regions: Table<Region>,
    pub(super) registrations: u32,
}

/// A region, or a window, which has the rest of these while it is bound.
pub(super) struct Region {
    pub(super) key: u32,
    pub(super) pd: u32,
    /// The address by which WQEs name the first byte, and by how much the process's address is
    /// higher.
    pub(super) iova: u64,
    pub(super) len: u64,
    pub(super) start_offset: u64,
    pub(super) access: AccessFlags,
    pub(super) window: Option<Window>,
}

impl Memory {
    /// Where in the process `len` bytes at `address` of the region `lkey` lie, if the domain may
    /// use them so.
    #[inline]
    pub(in crate::hca) fn reach(
        &self,
        pd: u32,
        lkey: u32,
        address: u64,
        len: u64,
        purpose: Purpose,
    ) -> Result<u64, Unreachable> {
        let index = (lkey >> 8).wrapping_sub(INDEX_FIRST);
        // A window is for peers alone.
        let is_it = |region: &&Region| region.key == lkey && region.window.is_none();
        let region = self.regions.get(index).filter(is_it).ok_or(Unreachable::Key)?;
        region.reach(pd, address, len, purpose)
    }

    /// A queue or region begins to use the domain. EINVAL where there is none.
    pub(in crate::hca) fn hold_pd(&mut self, pd: u32) -> Result<(), Errno> {
        *self.domains.get_mut(pd).ok_or(Errno(libc::EINVAL))? += 1;
        Ok(())
    }

    /// Takes in a region or a window, and gives it a key. Returns its handle and the key.
    pub(super) fn insert(&mut self, region: Region) -> (u32, u32) {
        self.registrations = self.registrations.wrapping_add(1);
        let byte = self.registrations & 0xff;
        let handle = self.regions.insert(region);
        let key = (handle + INDEX_FIRST) << 8 | byte;
        if let Some(region) = self.regions.get_mut(handle) {
            region.key = key;
        }
        (handle, key)
    }

    /// A queue or region that held the domain went.
    pub(in crate::hca) fn release_pd(&mut self, pd: u32) {
        if let Some(users) = self.domains.get_mut(pd) {
            *users = users.saturating_sub(1);
        }
    }
}

impl Region {
    /// Where in the process the bytes lie, if the domain may use them so.
    #[inline]
    pub(super) fn reach(&self, pd: u32, address: u64, len: u64, purpose: Purpose) -> Result<u64, Unreachable> {
        if self.pd != pd {
            return Err(Unreachable::Domain);
        }
        let offset = address.wrapping_sub(self.iova);
        if offset > self.len || len > self.len - offset {
            return Err(Unreachable::Range);
        }
        if purpose.needs() & !self.access.0 != 0 {
            return Err(Unreachable::Right);
        }
        Ok(address.wrapping_add(self.start_offset))
    }
}

impl Hca {
    /// A new protection domain: its handle, which is also its number.
    pub fn alloc_pd(&mut self) -> u32 {
        self.memory.domains.insert(0)
    }

    /// Gives a protection domain back. EBUSY while something belongs to it.
    pub fn dealloc_pd(&mut self, pd: u32) -> Result<(), Errno> {
        match self.memory.domains.get(pd) {
            None => Err(Errno(libc::EINVAL)),
            Some(0) => {
                self.memory.domains.remove(pd);
                Ok(())
            }
            Some(_) => Err(Errno(libc::EBUSY)),
        }
    }

    /// Registers memory. EINVAL where the domain is not there or the range is empty or runs around
    /// the end of all addresses.
    pub fn register_memory(&mut self, request: &MrRequest) -> Result<MrCreated, Errno> {
        let MrRequest { pd, start, len, iova, access } = *request;
        if len == 0 || start.checked_add(len).is_none() || iova.checked_add(len).is_none() {
            return Err(Errno(libc::EINVAL));
        }
        if self.memory.regions.iter().count() as u32 >= REGIONS_MAX {
            return Err(Errno(libc::ENOMEM));
        }
        self.memory.hold_pd(pd)?;
        let region = Region { key: 0, pd, iova, len, start_offset: start.wrapping_sub(iova), access, window: None };
        self.counters.regions_relaxed += u64::from(access.relaxed_ordering());
        let (handle, key) = self.memory.insert(region);
        Ok(MrCreated { handle, lkey: key, rkey: key })
    }

    /// Deregisters memory: WQEs that still name its key fail from now on. EBUSY while a window is
    /// bound to it.
    pub fn deregister_memory(&mut self, handle: u32) -> Result<(), Errno> {
        if self.memory.has_windows(handle) {
            return Err(Errno(libc::EBUSY));
        }
        let region = self.memory.regions.remove(handle).ok_or(Errno(libc::EINVAL))?;
        self.memory.release_pd(region.pd);
        Ok(())
    }
}

impl AccessFlags {
    /// `IBV_ACCESS_RELAXED_ORDERING`. The model's own writes are in order all the same.
    fn relaxed_ordering(self) -> bool {
        self.0 & 1 << 20 != 0
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a panic here is the report
    use super::*;
    use crate::hca::Config;

    fn hca() -> (Hca, u32, MrCreated) {
        let mut hca = Hca::new(Config::default());
        let pd = hca.alloc_pd();
        let request = MrRequest { pd, start: 0x7000, len: 0x100, iova: 0x1000, access: AccessFlags(1) };
        let mr = hca.register_memory(&request).unwrap();
        (hca, pd, mr)
    }

    #[track_caller]
    fn check(lkey: impl Fn(u32) -> u32, address: u64, len: u64, expected: Result<u64, Unreachable>) {
        let (hca, pd, mr) = hca();
        assert_eq!(hca.memory.reach(pd, lkey(mr.lkey), address, len, Purpose::Read), expected);
    }

    #[test]
    fn another_key_byte_is_another_key() {
        check(|lkey| lkey ^ 1, 0x1000, 1, Err(Unreachable::Key));
    }

    #[test]
    fn the_list_terminator_is_never_a_key() {
        check(|_| 0x100, 0x1000, 1, Err(Unreachable::Key));
        check(|_| 0, 0x1000, 1, Err(Unreachable::Key));
        check(|_| u32::MAX, 0x1000, 1, Err(Unreachable::Key));
    }

    #[test]
    fn each_byte_must_be_inside() {
        check(|lkey| lkey, 0xfff, 1, Err(Unreachable::Range));
        check(|lkey| lkey, 0x10ff, 2, Err(Unreachable::Range));
        check(|lkey| lkey, 0x1000, 0x101, Err(Unreachable::Range));
        check(|lkey| lkey, u64::MAX, 2, Err(Unreachable::Range));
        check(|lkey| lkey, 0x10ff, 1, Ok(0x70ff));
        check(|lkey| lkey, 0x1000, 0x100, Ok(0x7000));
    }

    #[test]
    fn a_region_of_another_domain_is_out_of_reach() {
        let (mut hca, _, mr) = hca();
        let other = hca.alloc_pd();
        assert_eq!(hca.memory.reach(other, mr.lkey, 0x1000, 1, Purpose::Read), Err(Unreachable::Domain));
    }

    #[test]
    fn without_local_write_a_region_may_only_be_read() {
        let (mut hca, pd, _) = hca();
        let request = MrRequest { pd, start: 0x7000, len: 0x100, iova: 0x1000, access: AccessFlags(0) };
        let mr = hca.register_memory(&request).unwrap();
        let denied = hca.memory.reach(pd, mr.lkey, 0x1000, 1, Purpose::Write);
        assert_eq!(denied, Err(Unreachable::Right));
        assert_eq!(denied.map_err(Unreachable::syndrome), Err(Syndrome::LocalAccess));
        assert_eq!(hca.memory.reach(pd, mr.lkey, 0x1000, 1, Purpose::Read), Ok(0x7000));
    }

    #[test]
    fn the_key_of_a_region_that_went_leads_nowhere() {
        let (mut hca, pd, mr) = hca();
        hca.deregister_memory(mr.handle).unwrap();
        let request = MrRequest { pd, start: 0x7000, len: 0x100, iova: 0x1000, access: AccessFlags(1) };
        let next = hca.register_memory(&request).unwrap();
        assert_eq!(next.handle, mr.handle, "the same place in the table");
        assert_eq!(hca.memory.reach(pd, mr.lkey, 0x1000, 1, Purpose::Read), Err(Unreachable::Key));
    }

    #[test]
    fn regions_with_relaxed_ordering_are_counted() {
        let (mut hca, pd, _) = hca();
        for access in [AccessFlags(1), AccessFlags(1 | 1 << 20)] {
            hca.register_memory(&MrRequest { pd, start: 0x7000, len: 0x100, iova: 0x1000, access }).unwrap();
        }
        assert_eq!(hca.counters().regions_relaxed, 1);
    }

    #[test]
    fn a_domain_in_use_stays() {
        let (mut hca, pd, mr) = hca();
        assert_eq!(hca.dealloc_pd(pd), Err(Errno(libc::EBUSY)));
        hca.deregister_memory(mr.handle).unwrap();
        assert_eq!(hca.dealloc_pd(pd), Ok(()));
        assert_eq!(hca.dealloc_pd(pd), Err(Errno(libc::EINVAL)), "twice");
    }

    #[test]
    fn an_impossible_range_is_refused() {
        let (mut hca, pd, _) = hca();
        for (start, len, iova) in [(0, 0, 0), (u64::MAX, 2, 0), (0, 2, u64::MAX)] {
            let request = MrRequest { pd, start, len, iova, access: AccessFlags(1) };
            assert_eq!(hca.register_memory(&request), Err(Errno(libc::EINVAL)), "{request:?}");
        }
        let request = MrRequest { pd: 99, start: 0, len: 1, iova: 0, access: AccessFlags(1) };
        assert_eq!(hca.register_memory(&request), Err(Errno(libc::EINVAL)), "no such domain");
    }
}
