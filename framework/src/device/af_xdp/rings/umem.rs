//! The memory that kernel and worker share: the region of the worker's pool, divided into the
//! pool's own buffers.
//!
//! ```text
//!  chunk   | metadata 128 | kernel's headroom 256 | frame ...             |
//!          ^ address in the fill ring             ^ address in a descriptor
//! ```
//!
//! The umem is registered with a headroom of the metadata's length, so the kernel writes behind it.
//!
//! `unsafe`, because registering memory lets the kernel write into it.
//!
//! Invariants:
//! 1. The socket is closed before the region can be dropped: both are here, and `drop` closes
//!    first. A doorbell that outlives this has its number only as long as it is open.
//! 2. A chunk that the kernel owns is an mbuf that nothing else can reach: it is in [`FillChunks`]
//!    or in the sender's [`InFlight`](super::in_flight::InFlight), which return it only once the
//!    kernel has released it, or, when the halves of a queue are dropped, in `leftovers` here until
//!    the socket is closed.

use core::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use super::ring::Desc;
use super::sys;
use crate::device::af_xdp::doorbell::Doorbell;
use crate::mem::{Layout, METADATA_LEN, Mbuf, Pool, Region, prefetch_line};

const LINE_LEN: usize = 64;
/// Headers and a short message: the bytes of a frame that are read at once. In a longer frame the
/// hardware prefetcher detects the sequential reads.
const PREFETCHED_LEN: usize = 4 * LINE_LEN;

/// An AF_XDP socket with its memory.
pub(crate) struct Umem {
    /// `None` once closed.
    socket: Option<OwnedFd>,
    /// Rings for frames of this socket, on any thread.
    doorbell: Arc<Doorbell>,
    region: Arc<Region>,
    geometry: Geometry,
    zero_copy: Cell<bool>,
    /// A broker plays the kernel's part, and the socket only wakes.
    forwarded: Cell<bool>,
    /// The interface is gone: the kernel will neither receive nor send on it again.
    gone: Cell<bool>,
    leftovers: RefCell<Vec<Mbuf>>,
}

/// The mapping of addresses to chunks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    base: usize,
    chunks: usize,
    /// Log2 of the distance between chunks.
    shift: u32,
    /// From the start of a chunk to the frame that the kernel writes.
    data_offset: usize,
}

impl Umem {
    /// Registers the region of `pool` with `socket`.
    pub(crate) fn register(socket: OwnedFd, pool: &Pool) -> io::Result<Self> {
        let region = Arc::clone(pool.region());
        let geometry = Geometry::of(pool);
        let len = geometry.chunks << geometry.shift;
        // SAFETY: the region is kept until the socket is closed (1), and nothing else can reach a
        // chunk that the kernel owns (2).
        unsafe { sys::register_umem(&socket, &region, len, 1 << geometry.shift, METADATA_LEN) }?;
        Ok(Self::of(socket, region, geometry))
    }

    /// A socket whose umem is the region of `pool` already: a broker has registered it.
    pub(crate) fn registered(socket: OwnedFd, pool: &Pool) -> Self {
        Self::of(socket, Arc::clone(pool.region()), Geometry::of(pool))
    }

    fn of(socket: OwnedFd, region: Arc<Region>, geometry: Geometry) -> Self {
        Self {
            doorbell: Arc::new(Doorbell::new(socket.as_raw_fd())),
            socket: Some(socket),
            region,
            geometry,
            zero_copy: Cell::new(false),
            forwarded: Cell::new(false),
            gone: Cell::new(false),
            leftovers: RefCell::default(),
        }
    }

    pub(crate) fn socket(&self) -> &OwnedFd {
        self.socket.as_ref().expect("the socket is closed by drop only")
    }

    pub(crate) fn doorbell(&self) -> &Arc<Doorbell> {
        &self.doorbell
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    pub(crate) fn is_of(&self, pool: &Pool) -> bool {
        Arc::ptr_eq(&self.region, pool.region())
    }

    pub(crate) fn set_zero_copy(&self, zero_copy: bool) {
        self.zero_copy.set(zero_copy);
    }

    pub(crate) fn set_forwarded(&self, forwarded: bool) {
        self.forwarded.set(forwarded);
    }

    /// Whether a broker plays the kernel's part.
    #[inline]
    pub(crate) fn is_forwarded(&self) -> bool {
        self.forwarded.get()
    }

    pub(crate) fn set_gone(&self) {
        self.gone.set(true);
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.get()
    }

    /// Keeps mbufs that the kernel may still own until the socket is closed.
    pub(crate) fn keep(&self, mbufs: impl Iterator<Item = Mbuf>) {
        self.leftovers.borrow_mut().extend(mbufs);
    }
}

/// Makes a region the umem of `socket`, in chunks of `chunk_len`, for a process that the socket is
/// lent to. The kernel keeps the pages; this process may unmap them, and never uses them.
pub(crate) fn register_for_another(socket: &OwnedFd, region: &Region, chunk_len: usize) -> io::Result<()> {
    // SAFETY: the kernel holds the pages themselves until the socket is closed everywhere
    // (`xdp_umem_pin_pages`), so the region need not outlive it (1), and no pool is cut from it
    // here (2).
    unsafe { sys::register_umem(socket, region, region.len(), chunk_len, METADATA_LEN) }
}

impl Drop for Umem {
    fn drop(&mut self) {
        // In copy mode the kernel touches no chunk after close(2) has returned: net/xdp/xsk.c
        // unbinds and waits for a grace period. A driver in zero-copy mode is stopped later, by a
        // work queue, and may write until then. So its chunks are never freed, and the pool leaks
        // its region.
        self.doorbell.close();
        drop(self.socket.take());
        for mbuf in self.leftovers.get_mut().drain(..) {
            if self.zero_copy.get() { core::mem::forget(mbuf) } else { mbuf.free() }
        }
    }
}

impl Geometry {
    pub(crate) fn of(pool: &Pool) -> Self {
        let layout = pool.layout();
        Self {
            base: pool.region().base().as_ptr().addr(),
            chunks: pool.capacity(),
            shift: layout.stride().trailing_zeros(),
            data_offset: layout.stride() - layout.data_room(),
        }
    }

    pub(crate) fn chunks(&self) -> usize {
        self.chunks
    }

    /// The chunk that contains an address of the umem; `None` outside.
    #[inline]
    pub(crate) fn chunk(&self, addr: u64) -> Option<usize> {
        let chunk = usize::try_from(addr >> self.shift).ok()?;
        (chunk < self.chunks).then_some(chunk)
    }

    /// The descriptor address of `bytes`; `None` if they are not inside one chunk.
    #[inline]
    pub(crate) fn addr_of(&self, bytes: &[u8]) -> Option<u64> {
        let addr = bytes.as_ptr().addr().checked_sub(self.base)? as u64;
        self.chunk(addr)?;
        (self.offset(addr) + bytes.len() <= 1 << self.shift).then_some(addr)
    }

    /// Prefetches the first lines of the frame in a descriptor, all at once: the kernel has written
    /// them on its core. A wrong descriptor prefetches unrelated lines, which does no harm.
    #[inline]
    pub(crate) fn prefetch(&self, desc: &Desc) {
        let (start, len) = (self.base.wrapping_add(desc.addr as usize), (desc.len as usize).min(PREFETCHED_LEN));
        for at in (0..len).step_by(LINE_LEN) {
            prefetch_line(core::ptr::without_provenance(start.wrapping_add(at)));
        }
    }

    #[inline]
    fn offset(&self, addr: u64) -> usize {
        addr as usize & ((1 << self.shift) - 1)
    }
}

/// Whether the kernel accepts buffers of this layout as chunks.
pub(crate) fn is_umem_layout(layout: Layout) -> bool {
    matches!(layout.stride(), 2048 | 4096) && layout == Layout::umem(layout.stride())
}

/// The chunks for frames of up to `frame_len_max` bytes, which come in two sizes. A longer frame
/// takes several, or is refused if kernel or driver lack multi-buffer support.
pub(crate) fn chunks_for(frame_len_max: usize) -> Layout {
    let smaller = Layout::umem(2_048);
    if frame_len_max <= smaller.data_room() { smaller } else { Layout::umem(4_096) }
}

/// The error in a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DescriptorError {
    /// The address lies outside the umem, or in a chunk that the kernel does not own.
    Address,
    /// The bytes reach into the metadata or out of the chunk. The buffer has been freed.
    Length,
}

/// The chunks that the kernel receives into.
pub(crate) struct FillChunks {
    geometry: Geometry,
    /// For each chunk its empty mbuf, while the kernel owns it.
    mbufs: Box<[Option<Mbuf>]>,
    count: u32,
}

impl FillChunks {
    pub(crate) fn new(geometry: Geometry) -> Self {
        Self { geometry, mbufs: (0..geometry.chunks).map(|_| None).collect(), count: 0 }
    }

    /// Chunks that the kernel owns.
    #[inline]
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Gives the chunk of a fresh mbuf to the kernel; returns its address for the fill ring. Panics
    /// if the mbuf is from another region: the caller has compared the pools.
    #[inline]
    pub(crate) fn give_to_kernel(&mut self, mbuf: Mbuf) -> u64 {
        let addr = self.geometry.addr_of(mbuf.bytes()).expect("an mbuf of the umem's own pool");
        let chunk = addr as usize >> self.geometry.shift;
        debug_assert!(self.mbufs[chunk].is_none(), "a chunk that comes from the pool is not with the kernel");
        self.mbufs[chunk] = Some(mbuf);
        self.count += 1;
        (chunk << self.geometry.shift) as u64
    }

    /// The mbuf of a received frame, or of a part of one. The whole descriptor is validated: the
    /// kernel owns the chunk, and the bytes are behind the metadata and inside the chunk.
    #[inline]
    pub(crate) fn take_back(&mut self, desc: &Desc) -> Result<Mbuf, DescriptorError> {
        let mbuf = self.geometry.chunk(desc.addr).and_then(|chunk| self.mbufs[chunk].take());
        let Some(mut mbuf) = mbuf else { return Err(DescriptorError::Address) };
        self.count -= 1;
        let (offset, len) = (self.geometry.offset(desc.addr), desc.len as usize);
        if offset == self.geometry.data_offset && mbuf.append(len).is_some() {
            return Ok(mbuf);
        }
        if offset < METADATA_LEN || offset + len > 1 << self.geometry.shift {
            mbuf.free();
            return Err(DescriptorError::Length);
        }
        place(&mut mbuf, self.geometry.data_offset, offset, len);
        Ok(mbuf)
    }

    /// All mbufs, because the kernel's side is gone or closing.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = Mbuf> + '_ {
        self.count = 0;
        self.mbufs.iter_mut().filter_map(Option::take)
    }
}

/// Sets an empty mbuf, whose data begins at `data_offset` of its chunk, to `len` bytes from
/// `offset`, where a driver with its own headroom has put them. The caller has checked that the
/// bytes are inside the chunk.
#[cold]
fn place(mbuf: &mut Mbuf, data_offset: usize, offset: usize, len: usize) {
    let fits = "the bytes are inside the chunk";
    if offset < data_offset {
        let before = data_offset - offset;
        mbuf.prepend(before).expect(fits);
        mbuf.append(len.saturating_sub(before)).expect(fits);
        mbuf.trim_to(len);
    } else {
        mbuf.append(offset - data_offset + len).expect(fits);
        mbuf.advance(offset - data_offset);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNKS: usize = 4;

    fn pool() -> Pool {
        let layout = Layout::umem(2048);
        Pool::new(Arc::new(Region::heap(layout.region_len(CHUNKS)).unwrap()), layout).unwrap()
    }

    /// Checks the result for a descriptor while the kernel owns chunk 0: offset in the chunk and
    /// bytes, or the error. No buffer is lost.
    fn check(addr: u64, len: u32, expected: Result<(usize, usize), DescriptorError>) {
        let pool = pool();
        let mut lent = FillChunks::new(Geometry::of(&pool));
        assert_eq!(lent.give_to_kernel(pool.alloc().unwrap()), 0);
        let taken = lent.take_back(&Desc { addr, len, options: 0 }).map(|mbuf| {
            let seen = (mbuf.data_ptr() as usize - pool.region().base().as_ptr() as usize, mbuf.len());
            mbuf.free();
            seen
        });
        assert_eq!(taken, expected, "address {addr}, length {len}");
        lent.take_all().for_each(Mbuf::free);
        assert_eq!((pool.in_use(), pool.drops_without_reason(), lent.count()), (0, 0, 0));
    }

    #[test]
    fn address_outside_the_umem_or_of_a_chunk_not_lent_is_refused() {
        for addr in [2048 + 384, 4 * 2048, 4 * 2048 + 384, u64::MAX, 1 << 40] {
            check(addr, 60, Err(DescriptorError::Address));
        }
    }

    #[test]
    fn bytes_outside_the_data_of_a_chunk_are_refused() {
        check(384, 1665, Err(DescriptorError::Length));
        check(384, u32::MAX, Err(DescriptorError::Length));
        check(0, 60, Err(DescriptorError::Length));
        check(127, 60, Err(DescriptorError::Length));
        check(2047, 2, Err(DescriptorError::Length));
    }

    #[test]
    fn frame_is_found_wherever_the_driver_put_it() {
        check(384, 1664, Ok((384, 1664)));
        check(384, 0, Ok((384, 0)));
        check(128, 60, Ok((128, 60)));
        check(128, 1920, Ok((128, 1920)));
        check(1024, 1024, Ok((1024, 1024)));
    }

    #[test]
    fn chunk_that_comes_back_twice_is_refused() {
        let pool = pool();
        let mut lent = FillChunks::new(Geometry::of(&pool));
        lent.give_to_kernel(pool.alloc().unwrap());
        let desc = Desc { addr: 384, len: 60, options: 0 };
        lent.take_back(&desc).unwrap().free();
        assert_eq!(lent.take_back(&desc).map(Mbuf::free), Err(DescriptorError::Address));
    }

    #[test]
    fn foreign_bytes_have_no_address() {
        let (pool, other) = (pool(), pool());
        let geometry = Geometry::of(&pool);
        let (own, foreign) = (pool.alloc_copy(&[1; 60]).unwrap(), other.alloc_copy(&[1; 60]).unwrap());
        assert_eq!(geometry.addr_of(own.bytes()), Some(384));
        assert_eq!(geometry.addr_of(foreign.bytes()), None);
        own.free();
        foreign.free();
    }
}
