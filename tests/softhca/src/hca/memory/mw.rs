//! Memory windows of type 2: keys by which the peer of one queue pair reaches a part of a region
//! (InfiniBand Architecture Specification, volume 1, 10.6.7). A WQE binds a window that is free,
//! and a WQE of ours or a SEND of the peer frees it again.

use super::mr::{INDEX_FIRST, Memory, Purpose, REGIONS_MAX, Region, Unreachable};
use crate::hca::Hca;
use crate::hca::control::{AccessFlags, Errno, MrCreated};

/// What makes a [`Region`] a window.
pub(super) struct Window {
    /// `None` while it is free.
    bound: Option<Bound>,
}

struct Bound {
    /// The number of the queue pair whose peer may use it.
    qp: u32,
    /// The handle of the region.
    region: u32,
}

/// What a WQE does to a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::hca) enum WindowChange {
    /// Binds it.
    Bind(Binding),
    /// Frees the one with this key.
    Invalidate(u32),
}

/// What a window is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::hca) struct Binding {
    /// The key that it has from now on.
    pub(in crate::hca) key: u32,
    /// The key of the region.
    pub(in crate::hca) region: u32,
    pub(in crate::hca) address: u64,
    pub(in crate::hca) len: u64,
    pub(in crate::hca) access: AccessFlags,
}

/// The window, or what it is to be bound to, is not such.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::hca) struct WindowError;

impl Memory {
    /// Where `len` bytes at `address` of a key that the peer of `qp` names lie: of a region, or of
    /// a window that is bound for it.
    pub(in crate::hca) fn reach_remote(
        &self,
        (pd, qp): (u32, u32),
        rkey: u32,
        (address, len): (u64, u64),
        purpose: Purpose,
    ) -> Result<u64, Unreachable> {
        let region = self.regions.get(index(rkey)).filter(|region| region.key == rkey).ok_or(Unreachable::Key)?;
        let is_open = region.window.as_ref().is_none_or(|window| window.is_of(qp));
        if is_open { region.reach(pd, address, len, purpose) } else { Err(Unreachable::Key) }
    }

    /// Executes a WQE of the queue pair `qp`.
    pub(in crate::hca) fn change_window(&mut self, pd: u32, qp: u32, change: WindowChange) -> Result<(), WindowError> {
        match change {
            WindowChange::Bind(binding) => self.bind(pd, qp, &binding),
            WindowChange::Invalidate(key) => self.invalidate(qp, key),
        }
    }

    fn bind(&mut self, pd: u32, qp: u32, with: &Binding) -> Result<(), WindowError> {
        let handle = index(with.region);
        let is_it = |region: &&Region| region.key == with.region && region.window.is_none();
        let region = self.regions.get(handle).filter(is_it).ok_or(WindowError)?;
        // The peer may write through a window where the region may be written at all.
        let purpose = if with.access.writes_remotely() { Purpose::Write } else { Purpose::Read };
        region.reach(pd, with.address, with.len, purpose).map_err(|_| WindowError)?;
        if !region.access.may_be_bound() || with.len == 0 {
            return Err(WindowError);
        }
        let start_offset = region.start_offset;
        let window = self.regions.get_mut(index(with.key)).ok_or(WindowError)?;
        let is_free = window.window.as_ref().is_some_and(|window| window.bound.is_none());
        if !is_free || window.pd != pd {
            return Err(WindowError);
        }
        (window.key, window.iova, window.len) = (with.key, with.address, with.len);
        (window.start_offset, window.access) = (start_offset, with.access);
        window.window = Some(Window { bound: Some(Bound { qp, region: handle }) });
        Ok(())
    }

    /// Whether the key is that of a window that is bound for the peer of `qp`.
    pub(in crate::hca) fn is_bound(&self, qp: u32, key: u32) -> bool {
        let region = self.regions.get(index(key)).filter(|region| region.key == key);
        region.and_then(|region| region.window.as_ref()).is_some_and(|window| window.is_of(qp))
    }

    /// Frees a window.
    pub(in crate::hca) fn invalidate(&mut self, qp: u32, key: u32) -> Result<(), WindowError> {
        if !self.is_bound(qp, key) {
            return Err(WindowError);
        }
        let region = self.regions.get_mut(index(key)).ok_or(WindowError)?;
        region.window = Some(Window { bound: None });
        Ok(())
    }

    /// Whether windows are bound to the region with this handle.
    pub(super) fn has_windows(&self, region: u32) -> bool {
        let is_of_it = |window: &Window| window.bound.as_ref().is_some_and(|bound| bound.region == region);
        self.regions.iter().any(|(_, other)| other.window.as_ref().is_some_and(is_of_it))
    }
}

impl Window {
    fn is_of(&self, qp: u32) -> bool {
        self.bound.as_ref().is_some_and(|bound| bound.qp == qp)
    }
}

impl Hca {
    /// A new window, which is free. EINVAL where the domain is not there.
    pub fn alloc_window(&mut self, pd: u32) -> Result<MrCreated, Errno> {
        if self.memory.regions.iter().count() as u32 >= REGIONS_MAX {
            return Err(Errno(libc::ENOMEM));
        }
        self.memory.hold_pd(pd)?;
        let (iova, len, start_offset, access) = (0, 0, 0, AccessFlags(0));
        let window = Some(Window { bound: None });
        let (handle, key) = self.memory.insert(Region { key: 0, pd, iova, len, start_offset, access, window });
        Ok(MrCreated { handle, lkey: key, rkey: key })
    }

    /// Destroys a window, bound or not.
    pub fn dealloc_window(&mut self, handle: u32) -> Result<(), Errno> {
        let window = self.memory.regions.remove(handle).ok_or(Errno(libc::EINVAL))?;
        self.memory.release_pd(window.pd);
        Ok(())
    }
}

impl AccessFlags {
    /// `IBV_ACCESS_MW_BIND`.
    fn may_be_bound(self) -> bool {
        self.0 & 1 << 4 != 0
    }

    /// REMOTE_WRITE or REMOTE_ATOMIC.
    fn writes_remotely(self) -> bool {
        self.0 & (1 << 1 | 1 << 3) != 0
    }
}

fn index(key: u32) -> u32 {
    (key >> 8).wrapping_sub(INDEX_FIRST)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a panic here is the report
    use super::*;
    use crate::hca::control::MrRequest;
    use crate::hca::{Config, Syndrome};

    const QP: u32 = 0x40;

    /// A region of 256 bytes at 0x1000 with these rights, and a window.
    fn hca(rights: u32) -> (Hca, u32, MrCreated, MrCreated) {
        let mut hca = Hca::new(Config::default());
        let pd = hca.alloc_pd();
        let request = MrRequest { pd, start: 0x1000, len: 0x100, iova: 0x1000, access: AccessFlags(rights) };
        let region = hca.register_memory(&request).unwrap();
        let window = hca.alloc_window(pd).unwrap();
        (hca, pd, region, window)
    }

    /// LOCAL_WRITE and MW_BIND.
    const BINDABLE: u32 = 1 << 0 | 1 << 4;
    const REMOTE_READ: u32 = 1 << 2;

    fn binding(region: &MrCreated, window: &MrCreated) -> Binding {
        let (address, len, access) = (0x1040, 0x40, AccessFlags(REMOTE_READ));
        Binding { key: window.rkey & !0xff | 7, region: region.lkey, address, len, access }
    }

    #[test]
    fn bound_window_is_reached_by_the_peer_of_its_queue_pair_alone() {
        let (mut hca, pd, region, window) = hca(BINDABLE);
        let with = binding(&region, &window);
        hca.memory.change_window(pd, QP, WindowChange::Bind(with)).unwrap();
        let reach = |hca: &Hca, qp, key, at, purpose| hca.memory.reach_remote((pd, qp), key, (at, 8), purpose);
        let read = Purpose::RemoteRead;
        assert_eq!(reach(&hca, QP, with.key, 0x1040, read), Ok(0x1040));
        assert_eq!(reach(&hca, QP, with.key, 0x1079, read), Err(Unreachable::Range));
        assert_eq!(reach(&hca, QP, with.key, 0x1040, Purpose::RemoteWrite), Err(Unreachable::Right));
        assert_eq!(reach(&hca, QP + 1, with.key, 0x1040, read), Err(Unreachable::Key));
        assert_eq!(reach(&hca, QP, window.rkey, 0x1040, read), Err(Unreachable::Key));
        let local = hca.memory.reach(pd, with.key, 0x1040, 8, Purpose::Read);
        assert_eq!(local.map_err(Unreachable::syndrome), Err(Syndrome::LocalProtection), "not by a WQE of ours");
        assert_eq!(hca.deregister_memory(region.handle), Err(Errno(libc::EBUSY)));
        hca.memory.change_window(pd, QP, WindowChange::Invalidate(with.key)).unwrap();
        assert_eq!(reach(&hca, QP, with.key, 0x1040, read), Err(Unreachable::Key));
        assert_eq!((hca.deregister_memory(region.handle), hca.dealloc_window(window.handle)), (Ok(()), Ok(())));
        assert_eq!(hca.dealloc_pd(pd), Ok(()));
    }

    #[test]
    fn window_is_bound_to_what_may_be_bound_and_while_it_is_free() {
        let refused = |rights, change: fn(&mut Binding)| {
            let (mut hca, pd, region, window) = hca(rights);
            let mut with = binding(&region, &window);
            change(&mut with);
            hca.memory.change_window(pd, QP, WindowChange::Bind(with)) == Err(WindowError)
        };
        assert!(!refused(BINDABLE, |_| ()));
        assert!(refused(1, |_| ()), "without MW_BIND");
        assert!(refused(1 << 4, |with| with.access = AccessFlags(1 << 1)), "to write what may not be written");
        assert!(refused(BINDABLE, |with| with.len = 0));
        assert!(refused(BINDABLE, |with| with.address = 0x10c1));
        assert!(refused(BINDABLE, |with| with.region ^= 1));
        assert!(refused(BINDABLE, |with| with.key = with.region));
        let (mut hca, pd, region, window) = hca(BINDABLE);
        let with = binding(&region, &window);
        hca.memory.change_window(pd, QP, WindowChange::Bind(with)).unwrap();
        let again = Binding { key: with.key + 1, ..with };
        assert_eq!(hca.memory.change_window(pd, QP, WindowChange::Bind(again)), Err(WindowError));
        let invalidate = WindowChange::Invalidate(with.key);
        assert_eq!(hca.memory.change_window(pd, QP + 1, invalidate), Err(WindowError));
        assert_eq!(hca.memory.change_window(pd, QP, invalidate), Ok(()));
        assert_eq!(hca.memory.change_window(pd, QP, invalidate), Err(WindowError));
    }
}
