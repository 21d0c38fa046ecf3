//! Receive metadata: what a device says of a frame that has come, and how it gets into the metadata
//! of the frame's buffer: with as few stores as its kind allows. [`RxSlots`](super::RxSlots) makes
//! the mbufs.
//!
//! Invariants: those of [`metadata`](super::metadata), cited by their numbers.

use core::mem::{offset_of, transmute};
use core::ptr::NonNull;

use super::metadata::{KnownWord, Metadata};
use super::pool::Pool;

/// A frame that has come, as its device describes it.
pub(crate) trait Arrival: Copy {
    /// Bytes of the frame.
    fn len(&self) -> u32;

    /// The same of a part of it.
    fn with_len(self, len: u32) -> Self;

    /// Writes the rest of it down.
    fn write(&self, place: &mut Place);
}

/// The metadata of a buffer that has just left its slot: nobody else sees it.
pub(crate) struct Place(NonNull<Metadata>);

impl Place {
    /// # Safety
    /// The buffer's metadata is initialised (1), and no handle names it.
    #[inline(always)]
    pub(super) unsafe fn new(buffer: NonNull<Metadata>) -> Self {
        Self(buffer)
    }
}

/// All receive metadata that a device may have. Values that [`KnownWord`] does not name mean
/// nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RxMeta {
    pub(crate) len: u32,
    pub(crate) known: KnownWord,
    /// Nanoseconds of the Unix epoch, or ticks.
    pub(crate) timestamp: u64,
    pub(crate) flow_tag: u32,
    pub(crate) hash: u32,
    pub(crate) vlan: u16,
}

impl Arrival for RxMeta {
    #[inline(always)]
    fn len(&self) -> u32 {
        self.len
    }

    fn with_len(self, len: u32) -> Self {
        Self { len, ..self }
    }

    #[inline(always)]
    fn write(&self, place: &mut Place) {
        RxMetaMinimal(*self).write(place);
        // SAFETY: initialised (1) and seen by nobody else, as whoever made the place promised.
        let meta = unsafe { place.0.as_mut() };
        meta.timestamp = self.timestamp;
        meta.hash = self.hash;
    }
}

/// The same without timestamp and hash.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RxMetaMinimal(pub(crate) RxMeta);

impl Arrival for RxMetaMinimal {
    #[inline(always)]
    fn len(&self) -> u32 {
        self.0.len
    }

    fn with_len(self, len: u32) -> Self {
        Self(self.0.with_len(len))
    }

    #[inline(always)]
    fn write(&self, place: &mut Place) {
        // SAFETY: as in `RxMeta`. The word was made of a `Known`, of which it has the size, so it
        // is one.
        unsafe {
            let meta = place.0.as_mut();
            meta.vlan = self.0.vlan;
            meta.flow_tag = self.0.flow_tag;
            (&raw mut meta.known).cast::<u64>().write_unaligned(self.0.known.0);
        }
    }
}

/// What many frames have in common, as it stands in the metadata: the second half of the hot line.
/// In registers for a loop, where there are registers for that: as a struct it would be read anew
/// for each frame.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct MetaTemplate(Half, Half);

#[cfg(all(target_arch = "x86_64", not(miri)))]
type Half = core::arch::x86_64::__m128i;
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
type Half = [u64; 2];

/// What a template is made of.
#[derive(Clone, Copy)]
#[repr(C, packed(4))]
struct Common {
    refs: u32,
    room: u16,
    vlan: u16,
    timestamp: u64,
    flow_tag: u32,
    known: KnownWord,
    hash: u32,
}

/// Where it stands.
const TEMPLATE_AT: usize = offset_of!(Metadata, refs);

/// Its fields stand where those of the metadata do.
const _: () = assert!(
    size_of::<Common>() == size_of::<MetaTemplate>()
        && TEMPLATE_AT.is_multiple_of(align_of::<MetaTemplate>())
        && TEMPLATE_AT + offset_of!(Common, room) == offset_of!(Metadata, room)
        && TEMPLATE_AT + offset_of!(Common, vlan) == offset_of!(Metadata, vlan)
        && TEMPLATE_AT + offset_of!(Common, timestamp) == offset_of!(Metadata, timestamp)
        && TEMPLATE_AT + offset_of!(Common, flow_tag) == offset_of!(Metadata, flow_tag)
        && TEMPLATE_AT + offset_of!(Common, known) == offset_of!(Metadata, known)
        && TEMPLATE_AT + offset_of!(Common, hash) == offset_of!(Metadata, hash)
);

impl MetaTemplate {
    /// Of frames that nothing is known of, for buffers of `pool`.
    pub(crate) fn any(pool: &Pool) -> Self {
        Self::of(&RxMeta::default(), pool)
    }

    /// For frames with the metadata `meta`, in buffers of `pool`.
    pub(crate) fn of(meta: &RxMeta, pool: &Pool) -> Self {
        Self::new(meta, pool.layout().room() as u16)
    }

    /// For frames with the metadata `meta`, in buffers that have `room` bytes and one handle.
    #[inline(always)]
    pub(super) fn new(meta: &RxMeta, room: u16) -> Self {
        let RxMeta { known, timestamp, flow_tag, hash, vlan, .. } = *meta;
        let common = Common { refs: 1, room, vlan, timestamp, flow_tag, known, hash };
        // SAFETY: numbers without a gap, on both sides.
        unsafe { transmute::<Common, Self>(common) }
    }
}

/// One of many frames whose metadata is that of a template, but for length and hash.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Templated {
    pub(crate) len: u32,
    pub(crate) template: MetaTemplate,
    /// Its own hash, where each has one.
    pub(crate) hash: Option<u32>,
}

impl Arrival for Templated {
    #[inline(always)]
    fn len(&self) -> u32 {
        self.len
    }

    fn with_len(self, len: u32) -> Self {
        Self { len, ..self }
    }

    #[inline(always)]
    fn write(&self, place: &mut Place) {
        // SAFETY: as in `RxMeta`. What the template has of count and room is what stands there
        // already (7); its other fields are numbers and a word that was made of a `Known`. A line
        // and half a line are aligned as it is.
        unsafe {
            let halves = place.0.cast::<u8>().add(TEMPLATE_AT).cast::<Half>();
            halves.write(self.template.0);
            halves.add(1).write(self.template.1);
            if let Some(hash) = self.hash {
                place.0.as_mut().hash = hash;
            }
        }
    }
}
