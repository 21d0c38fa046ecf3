//! Memory regions and their keys: who may reach which bytes.

use core::ops::BitOr;

use super::handle::{MrHandle, PdHandle, Table};
use super::memory::{Place, Region};

/// Rights on memory, and of a queue pair's peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access(u8);

impl Access {
    /// Our own queue pairs may read it, and nobody else.
    pub const LOCAL_READ: Self = Self(0);
    /// Receives, and answers to READs and atomic operations, may be written to it.
    pub const LOCAL_WRITE: Self = Self(1);
    /// Peers may write. A region needs [`Access::LOCAL_WRITE`] too.
    pub const REMOTE_WRITE: Self = Self(2);
    /// Peers may read.
    pub const REMOTE_READ: Self = Self(4);
    /// Peers may add and swap. A region needs [`Access::LOCAL_WRITE`] too.
    pub const REMOTE_ATOMIC: Self = Self(8);

    /// True if all `rights` are there.
    #[inline]
    pub const fn has(self, rights: Self) -> bool {
        self.0 & rights.0 == rights.0
    }

    /// True for rights that a region may have: who writes from afar writes.
    const fn is_consistent(self) -> bool {
        self.0 & (Self::REMOTE_WRITE.0 | Self::REMOTE_ATOMIC.0) == 0 || self.has(Self::LOCAL_WRITE)
    }
}

impl BitOr for Access {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// A registered region: its handle, its addresses and its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mr {
    /// Ends the registration.
    pub handle: MrHandle,
    /// The first byte, as requests count.
    pub address: u64,
    /// Bytes.
    pub len: u64,
    /// The key for own requests and for those of peers: the place in the table, and eight bits
    /// that change each time the place is used again.
    pub key: u32,
}

/// The rights of a region demand another one.
pub(super) struct Inconsistent;

/// All regions.
pub(super) struct Regions {
    table: Table<super::handle::kind::Mr, Registered>,
}

struct Registered {
    region: Region,
    address: u64,
    pd: PdHandle,
    access: Access,
    key: u32,
}

impl Regions {
    pub(super) fn new(capacity: u32) -> Self {
        Self { table: Table::new(capacity) }
    }

    /// Registers a region, of which requests name the first byte by `address`.
    pub(super) fn register(
        &mut self,
        pd: PdHandle,
        region: Region,
        address: u64,
        access: Access,
    ) -> Result<Option<Mr>, Inconsistent> {
        if !access.is_consistent() {
            return Err(Inconsistent);
        }
        let (len, mut key) = (region.len() as u64, 0);
        let handle = self.table.insert_with(|handle| {
            key = handle.idx() << 8 | handle.generation() & 0xff;
            Registered { region, address, pd, access, key }
        });
        Ok(handle.map(|handle| Mr { handle, address, len, key }))
    }

    /// Ends a registration; from now on the key reaches nothing.
    pub(super) fn deregister(&mut self, handle: MrHandle) -> Option<Region> {
        Some(self.table.remove(handle)?.region)
    }

    pub(super) fn uses(&self, pd: PdHandle) -> bool {
        self.table.iter().any(|registered| registered.pd == pd)
    }

    /// The bytes that a key names; `None` if the key, the domain, the range or a right is wrong.
    #[inline]
    pub(super) fn resolve(&self, key: u32, pd: PdHandle, range: Range, rights: Access) -> Option<Place<'_>> {
        let registered = self.table.at(key >> 8)?;
        if registered.key != key || registered.pd != pd || !registered.access.has(rights) {
            return None;
        }
        let at = usize::try_from(range.address.checked_sub(registered.address)?).ok()?;
        registered.region.place(at, range.len as usize)
    }
}

/// Bytes as requests name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) address: u64,
    pub(super) len: u32,
}

#[cfg(test)]
mod tests {
    use super::super::memory::Buffer;
    use super::*;

    #[test]
    fn key_reaches_its_range_by_its_rights_in_its_domain_only() {
        let mut pds = Table::new(2);
        let (pd, other) = (pds.insert_with(|_| ()).unwrap(), pds.insert_with(|_| ()).unwrap());
        let mut regions = Regions::new(1);
        let buffer = Buffer::zeroed(64);
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let mr = regions.register(pd, Region::from(&buffer), 0x1000, access).ok().flatten().unwrap();
        let reaches = |regions: &Regions, key, pd, address, len, rights| {
            regions.resolve(key, pd, Range { address, len }, rights).is_some()
        };
        assert!(reaches(&regions, mr.key, pd, 0x1000, 64, access));
        assert!(reaches(&regions, mr.key, pd, 0x1040, 0, access));
        assert!(!reaches(&regions, mr.key, pd, 0x1001, 64, access), "beyond the end");
        assert!(!reaches(&regions, mr.key, pd, 0xfff, 1, access), "before the start");
        assert!(!reaches(&regions, mr.key, pd, u64::MAX, u32::MAX, access), "wraps");
        assert!(!reaches(&regions, mr.key, other, 0x1000, 1, access), "another domain");
        assert!(!reaches(&regions, mr.key, pd, 0x1000, 1, Access::REMOTE_READ), "no right to read");
        assert!(!reaches(&regions, mr.key + 1, pd, 0x1000, 1, access), "another variant");
        assert!(!reaches(&regions, 0xffff_ff00, pd, 0x1000, 1, access), "no such place");
        regions.deregister(mr.handle).unwrap();
        assert!(!reaches(&regions, mr.key, pd, 0x1000, 1, access), "deregistered");
        let again = regions.register(pd, Region::from(&buffer), 0x1000, access).ok().flatten().unwrap();
        assert_ne!(again.key, mr.key);
        assert!(!reaches(&regions, mr.key, pd, 0x1000, 1, access), "the key of the place's earlier region");
    }

    #[test]
    fn right_to_write_from_afar_demands_the_one_to_write() {
        let mut regions = Regions::new(1);
        let pd = Table::new(1).insert_with(|_| ()).unwrap();
        for access in [Access::REMOTE_WRITE, Access::REMOTE_ATOMIC | Access::REMOTE_READ] {
            assert!(regions.register(pd, Region::from(&Buffer::zeroed(8)), 0, access).is_err());
        }
    }
}
