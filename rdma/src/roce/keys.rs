//! Memory regions, windows in them, and the keys of both: who may reach which bytes.
//!
//! Windows are of type 2B (InfiniBand 10.6.7.2): bound by a request of a queue pair, for the peer
//! of this queue pair alone, until a request of either of the two ends it. Then, and when it is
//! made, a window is free: its key reaches nothing. Their keys are behind those of the regions.

use core::hash::{Hash, Hasher};
use core::ops::BitOr;
use std::hash::DefaultHasher;

use super::handle::{MrHandle, MwHandle, PdHandle, QpHandle, Table, kind};
use super::memory::{Place, Region};
use super::work::Binding;

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
    /// Memory windows may be bound to the region.
    pub const MW_BIND: Self = Self(16);

    /// What a peer may be allowed to do.
    const REMOTE: Self = Self(Self::REMOTE_WRITE.0 | Self::REMOTE_READ.0 | Self::REMOTE_ATOMIC.0);

    /// True if all `rights` are there.
    #[inline]
    pub const fn has(self, rights: Self) -> bool {
        self.0 & rights.0 == rights.0
    }

    /// True if there is a right of a peer.
    #[cfg(feature = "rdma-core")]
    pub(crate) const fn has_remote(self) -> bool {
        self.0 & Self::REMOTE.0 != 0
    }

    /// The rights of a peer among these.
    pub(super) const fn of_peer(self) -> Self {
        Self(self.0 & Self::REMOTE.0)
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
    /// The key for own requests and for those of peers: the place in the table, and bits that
    /// change each time the place is used again; never 0.
    pub key: u32,
}

/// A memory window: its handle and its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mw {
    /// Destroys the window.
    pub handle: MwHandle,
    /// The key that it was made with, which reaches nothing: the place, bits that change each time
    /// it is used again, and in the last eight those of the caller.
    pub key: u32,
}

impl Mw {
    /// The key behind `key`, for the next time that the window is bound (`ibv_inc_rkey`).
    pub const fn next_key(key: u32) -> u32 {
        key & !0xff | (key + 1) & 0xff
    }
}

/// The rights of a region demand another one.
pub(super) struct Inconsistent;

/// All regions.
pub(super) struct Regions {
    table: Table<kind::Mr, Registered>,
    /// How many regions there may be: windows have the places behind them.
    capacity: u32,
    /// Bits of a key for the place.
    place_bits: u32,
    seed: u64,
    windows: Table<kind::Mw, Window>,
    /// The last eight bits of a window's last key, by its place.
    variants: Box<[u8]>,
}

struct Window {
    pd: PdHandle,
    key: u32,
    bound: Option<Bound>,
}

/// What a window reaches.
struct Bound {
    qp: QpHandle,
    region: MrHandle,
    address: u64,
    len: u64,
    access: Access,
}

/// A window is not bound, or not invalidated.
#[derive(Debug)]
pub(super) struct WindowError;

struct Registered {
    region: Region,
    address: u64,
    pd: PdHandle,
    access: Access,
    key: u32,
}

impl Regions {
    pub(super) fn new(device: u8, capacity: u32, windows: u32, seed: u64) -> Self {
        let variants = (0..windows).map(|place| draw(seed, place) as u8).collect();
        // From 1 on, so that no key is 0.
        let place_bits = (capacity + windows + 1).next_power_of_two().trailing_zeros();
        let mut table = Table::drawn(device, capacity, |place| draw(seed, place));
        let mut windows = Table::drawn(device, windows, |place| draw(seed, capacity + place) >> 8);
        if seed != 0 {
            // Who knows no key does not know a place in use either. No place has these numbers.
            table.shuffle(|idx| draw(seed, 1 << 31 | idx));
            windows.shuffle(|idx| draw(seed, 3 << 30 | idx));
        }
        Self { table, capacity, place_bits, seed, windows, variants }
    }

    /// ```text
    ///  uses of the place │ place │ variant: eight bits
    /// ```
    const fn key(&self, place: u32, uses: u32, variant: u8) -> u32 {
        (uses << self.place_bits | (place + 1)) << 8 | variant as u32
    }

    /// The key of a region: all bits but those of the place are the number of its use, scrambled.
    fn region_key(&self, handle: MrHandle) -> u32 {
        let number = scramble(self.seed, handle.idx(), handle.generation(), 32 - self.place_bits);
        self.key(handle.idx(), number >> 8, number as u8)
    }

    /// The key of a new window, whose last eight bits its owner counts on.
    fn window_key(&self, handle: MwHandle, variant: u8) -> u32 {
        let place = self.capacity + handle.idx();
        self.key(place, scramble(self.seed, place, handle.generation(), 24 - self.place_bits), variant)
    }

    /// The place that a key names: of a region, or behind them of a window.
    #[inline]
    const fn place(&self, key: u32) -> u32 {
        (key >> 8 & ((1 << self.place_bits) - 1)).wrapping_sub(1)
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
        let len = region.len() as u64;
        let handle = self.table.insert_with(|_| Registered { region, address, pd, access, key: 0 });
        Ok(handle.map(|handle| {
            let key = self.region_key(handle);
            if let Some(registered) = self.table.get_mut(handle) {
                registered.key = key;
            }
            Mr { handle, address, len, key }
        }))
    }

    /// Ends a registration; from now on the key reaches nothing.
    pub(super) fn deregister(&mut self, handle: MrHandle) -> Option<Region> {
        Some(self.table.remove(handle)?.region)
    }

    /// True if windows are bound to the region.
    pub(super) fn has_windows(&self, handle: MrHandle) -> bool {
        let is_of = |window: &Window| window.bound.as_ref().is_some_and(|b| b.region == handle);
        self.windows.iter().any(is_of)
    }

    pub(super) fn uses(&self, pd: PdHandle) -> bool {
        self.table.iter().any(|registered| registered.pd == pd) || self.windows.iter().any(|window| window.pd == pd)
    }

    /// Makes a window that is free.
    pub(super) fn create_window(&mut self, pd: PdHandle) -> Option<Mw> {
        let handle = self.windows.insert_with(|_| Window { pd, key: 0, bound: None })?;
        let variant = &mut self.variants[handle.idx() as usize];
        // Where places leave no bits for their uses: no key of the earlier window, unless that used
        // all of them.
        *variant = variant.wrapping_add(1);
        let variant = *variant;
        let key = self.window_key(handle, variant);
        self.windows.get_mut(handle)?.key = key;
        Some(Mw { handle, key })
    }

    /// Destroys a window, bound or free; false if there is none.
    pub(super) fn destroy_window(&mut self, handle: MwHandle) -> bool {
        self.windows.remove(handle).is_some()
    }

    /// The place of the window with a key like this, whatever its last eight bits.
    fn window_place(&self, key: u32) -> Option<u32> {
        self.place(key).checked_sub(self.capacity)
    }

    /// Binds a window that is free, by a request of a queue pair.
    pub(super) fn bind(&mut self, qp: QpHandle, pd: PdHandle, with: &Binding) -> Result<(), WindowError> {
        let region = self.bindable(pd, with).ok_or(WindowError)?;
        let place = self.window_place(with.key).ok_or(WindowError)?;
        let window = self.windows.at_mut(place).ok_or(WindowError)?;
        if window.pd != pd || window.bound.is_some() || window.key >> 8 != with.key >> 8 {
            return Err(WindowError);
        }
        let Binding { key, address, len, access, .. } = *with;
        window.key = key;
        window.bound = Some(Bound { qp, region, address, len, access });
        self.variants[place as usize] = key as u8;
        Ok(())
    }

    /// The region that a window may be bound to so (InfiniBand C10-73 to C10-75, o10-37.2.40).
    fn bindable(&self, pd: PdHandle, with: &Binding) -> Option<MrHandle> {
        let place = self.place(with.region);
        let region = self.table.at(place)?;
        let is_ours = region.key == with.region && region.pd == pd;
        let writes = with.access.0 & (Access::REMOTE_WRITE.0 | Access::REMOTE_ATOMIC.0) != 0;
        let has_rights = region.access.has(Access::MW_BIND)
            && Access::REMOTE.has(with.access)
            && (!writes || region.access.has(Access::LOCAL_WRITE));
        let from = with.address.checked_sub(region.address)?;
        let is_within = from.checked_add(with.len)? <= region.region.len() as u64;
        let may_be = is_ours && has_rights && is_within && with.len > 0;
        self.table.handle_at(place).filter(|_| may_be)
    }

    /// True if the key is that of a window that is bound for the peer of the queue pair.
    pub(super) fn is_bound(&self, key: u32, qp: QpHandle) -> bool {
        self.bound(key, qp).is_some()
    }

    fn bound(&self, key: u32, qp: QpHandle) -> Option<&Bound> {
        let window = self.windows.at(self.window_place(key)?)?;
        window.bound.as_ref().filter(|bound| window.key == key && bound.qp == qp)
    }

    /// Ends the binding of a window, by a request of its queue pair or of the peer.
    pub(super) fn invalidate(&mut self, key: u32, qp: QpHandle) -> Result<(), WindowError> {
        self.bound(key, qp).ok_or(WindowError)?;
        let place = self.window_place(key).ok_or(WindowError)?;
        self.windows.at_mut(place).ok_or(WindowError)?.bound = None;
        Ok(())
    }

    /// The bytes that a key of the peer names, of a region or of a window that is bound for this
    /// queue pair; `None` if the key, the domain, the range or a right is wrong.
    #[inline]
    pub(super) fn resolve_remote(
        &self,
        key: u32,
        (qp, pd): (QpHandle, PdHandle),
        range: Range,
        rights: Access,
    ) -> Option<Place<'_>> {
        if self.place(key) < self.capacity {
            return self.resolve(key, pd, range, rights);
        }
        self.resolve_window(key, qp, range, rights)
    }

    fn resolve_window(&self, key: u32, qp: QpHandle, range: Range, rights: Access) -> Option<Place<'_>> {
        let bound = self.bound(key, qp).filter(|bound| bound.access.has(rights))?;
        let from = range.address.checked_sub(bound.address)?;
        if from.checked_add(range.len.into())? > bound.len {
            return None;
        }
        let registered = self.table.get(bound.region)?;
        let at = usize::try_from(range.address.checked_sub(registered.address)?).ok()?;
        registered.region.place(at, range.len as usize)
    }

    /// The bytes that a key names; `None` if the key, the domain, the range or a right is wrong.
    #[inline]
    pub(super) fn resolve(&self, key: u32, pd: PdHandle, range: Range, rights: Access) -> Option<Place<'_>> {
        let registered = self.table.at(self.place(key))?;
        if registered.key != key || registered.pd != pd || !registered.access.has(rights) {
            return None;
        }
        let at = usize::try_from(range.address.checked_sub(registered.address)?).ok()?;
        registered.region.place(at, range.len as usize)
    }
}

/// A number for a place, which shows nothing of those of other places; 0 without a seed.
fn draw(seed: u64, place: u32) -> u32 {
    if seed == 0 {
        return 0;
    }
    let mut hasher = DefaultHasher::new();
    (seed, place).hash(&mut hasher);
    hasher.finish() as u32
}

/// The number of a use of a place as its key shows it: of each number below 2^`bits` another one,
/// so that no key comes again before all have, and who knows one does not know the next. It is the
/// number itself without a seed. Two halves hash each other, four times (a Feistel network).
fn scramble(seed: u64, place: u32, number: u32, bits: u32) -> u32 {
    let mask = |bits: u32| u32::MAX.checked_shr(u32::BITS - bits).unwrap_or(0);
    let low_bits = bits / 2;
    let (mut low, mut high) = (number & mask(low_bits), (number & mask(bits)) >> low_bits);
    let hash = |round: u32, half: u32| {
        let mut hasher = DefaultHasher::new();
        (seed, place, round, half).hash(&mut hasher);
        hasher.finish() as u32
    };
    for round in if seed == 0 { 0..0 } else { 0..4 } {
        if round % 2 == 0 {
            high ^= hash(round, low) & mask(bits - low_bits);
        } else {
            low ^= hash(round, high) & mask(low_bits);
        }
    }
    high << low_bits | low
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
        let mut regions = Regions::new(0, 1, 0, 0);
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
    fn key_of_an_earlier_region_or_window_stays_invalid_however_often_its_place_is_used_again() {
        let pd = Table::new(1).insert_with(|_| ()).unwrap();
        let mut regions = Regions::new(0, 1, 1, 0);
        let buffer = Buffer::zeroed(8);
        let register =
            |regions: &mut Regions| regions.register(pd, Region::from(&buffer), 0, Access::REMOTE_READ).ok().flatten();
        let (first, window) = (register(&mut regions).unwrap(), regions.create_window(pd).unwrap());
        let (mut last, mut last_window) = (first, window);
        assert!(![0, window.key].contains(&first.key) && window.key != 0);
        for _ in 0..10_000 {
            regions.deregister(last.handle).unwrap();
            last = register(&mut regions).unwrap();
            assert!(regions.destroy_window(last_window.handle));
            last_window = regions.create_window(pd).unwrap();
            assert!(last.key != first.key && last_window.key != window.key);
            let range = Range { address: 0, len: 8 };
            assert!(regions.resolve(first.key, pd, range, Access::REMOTE_READ).is_none());
            assert!(regions.resolve(last.key, pd, range, Access::REMOTE_READ).is_some());
        }
    }

    #[test]
    fn keys_of_one_seed_are_the_same_and_those_of_others_are_not() {
        let pd = Table::new(1).insert_with(|_| ()).unwrap();
        let keys = |seed| {
            let mut regions = Regions::new(0, 4, 4, seed);
            let mut keys: Vec<_> = (0..4).map(|_| regions.create_window(pd).unwrap().key).collect();
            let region = || Region::from(&Buffer::zeroed(8));
            keys.extend(
                (0..4).map(|_| regions.register(pd, region(), 0, Access::LOCAL_READ).ok().flatten().unwrap().key),
            );
            keys
        };
        assert_eq!(keys(7), keys(7));
        let all: std::collections::HashSet<_> = (1..=100).flat_map(keys).collect();
        assert!(all.len() > 790 && !all.contains(&0), "{} keys of 800 differ", all.len());
        // Of two places of one seed the numbers of uses have nothing in common.
        let uses = |key: u32| (key >> 12, key as u8);
        assert!((1..=100).all(|seed| keys(seed).windows(2).any(|two| uses(two[0]) != uses(two[1]))));
    }

    #[test]
    fn number_of_a_use_is_shown_as_another_one_each() {
        for bits in [0, 1, 2, 9, 16] {
            let shown: std::collections::HashSet<_> =
                (0..1 << bits).map(|number| scramble(7, 3, number, bits)).collect();
            assert_eq!(shown.len(), 1 << bits, "{bits} bits");
            assert!(shown.iter().all(|shown| shown >> bits == 0), "{bits} bits");
        }
        assert_eq!([scramble(0, 3, 77, 23), scramble(0, 3, u32::MAX, 32)], [77, u32::MAX], "without a seed");
    }

    /// The next key of a place, and the place of the next region, by what who knows one would try.
    #[test]
    fn key_says_nothing_of_the_next_one() {
        let pd = Table::new(1).insert_with(|_| ()).unwrap();
        let [mut successors, mut neighbors] = [0, 0];
        for seed in 1..=200 {
            let mut regions = Regions::new(0, 256, 64, seed);
            let register = |regions: &mut Regions| {
                let region = Region::from(&Buffer::zeroed(8));
                regions.register(pd, region, 0, Access::LOCAL_READ).ok().flatten().unwrap()
            };
            let (first, second) = (register(&mut regions), register(&mut regions));
            neighbors += u32::from(regions.place(first.key) + 1 == regions.place(second.key));
            regions.deregister(first.handle).unwrap();
            let again = (0..256).find_map(|_| {
                let mr = register(&mut regions);
                regions.deregister(mr.handle).unwrap();
                (regions.place(mr.key) == regions.place(first.key)).then_some(mr.key)
            });
            let again = again.unwrap();
            successors += u32::from((first.key as u8).wrapping_add(1) == again as u8);
        }
        assert!(successors < 20 && neighbors < 20, "{successors} successors, {neighbors} neighbors of 200");
    }

    #[test]
    fn right_to_write_from_afar_demands_the_one_to_write() {
        let mut regions = Regions::new(0, 1, 0, 0);
        let pd = Table::new(1).insert_with(|_| ()).unwrap();
        for access in [Access::REMOTE_WRITE, Access::REMOTE_ATOMIC | Access::REMOTE_READ] {
            assert!(regions.register(pd, Region::from(&Buffer::zeroed(8)), 0, access).is_err());
        }
    }
}
