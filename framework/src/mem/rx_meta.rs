//! Receive metadata: a device's description of a received frame, written into the metadata of the
//! frame's buffer with as few stores as its kind allows. [`RxSlots`](super::RxSlots) makes the
//! mbufs.
//!
//! Invariants: those of [`metadata`](super::metadata), cited by their numbers.

use core::mem::{offset_of, transmute};
use core::ptr::NonNull;

use super::metadata::{Metadata, PacketInfoWord};
use super::pool::Pool;

/// A received frame, as its device describes it.
pub(crate) trait RxFrame: Copy {
    /// Bytes of the frame.
    fn len(&self) -> u32;

    /// The same metadata with another length.
    fn with_len(self, len: u32) -> Self;

    /// Writes all but the length.
    fn write(&self, place: &mut UnwrittenMetadata);
}

/// The metadata of a buffer that has just left its slot: no handle names it.
pub(crate) struct UnwrittenMetadata(NonNull<Metadata>);

impl UnwrittenMetadata {
    /// # Safety
    /// The buffer's metadata is initialized (1), and no handle names it.
    #[inline(always)]
    pub(super) unsafe fn new(buffer: NonNull<Metadata>) -> Self {
        Self(buffer)
    }
}

/// All receive metadata that a device may have. A value is valid only if [`PacketInfoWord`] has its
/// flag.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RxMeta {
    pub(crate) len: u32,
    pub(crate) known: PacketInfoWord,
    /// Nanoseconds of the Unix epoch, or ticks.
    pub(crate) timestamp: u64,
    pub(crate) flow_tag: u32,
    pub(crate) hash: u32,
    pub(crate) vlan: u16,
}

impl RxFrame for RxMeta {
    #[inline(always)]
    fn len(&self) -> u32 {
        self.len
    }

    fn with_len(self, len: u32) -> Self {
        Self { len, ..self }
    }

    #[inline(always)]
    fn write(&self, place: &mut UnwrittenMetadata) {
        RxMetaMinimal(*self).write(place);
        // SAFETY: initialized (1) and, as the caller of `UnwrittenMetadata::new` promised, named by
        // no handle.
        let meta = unsafe { place.0.as_mut() };
        meta.timestamp = self.timestamp;
        meta.hash = self.hash;
    }
}

/// [`RxMeta`] without timestamp and hash.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RxMetaMinimal(pub(crate) RxMeta);

impl RxFrame for RxMetaMinimal {
    #[inline(always)]
    fn len(&self) -> u32 {
        self.0.len
    }

    fn with_len(self, len: u32) -> Self {
        Self(self.0.with_len(len))
    }

    #[inline(always)]
    fn write(&self, place: &mut UnwrittenMetadata) {
        // SAFETY: as in `RxMeta`. The word was made of a `PacketInfo`, of which it has the size, so
        // it is a valid one.
        unsafe {
            let meta = place.0.as_mut();
            meta.vlan = self.0.vlan;
            meta.flow_tag = self.0.flow_tag;
            (&raw mut meta.known).cast::<u64>().write_unaligned(self.0.known.0);
        }
    }
}

/// The metadata that many frames share, laid out as the second half of the hot line. A loop keeps
/// it in registers if enough are free; a struct would be reloaded for each frame.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct MetaTemplate(Half, Half);

#[cfg(all(target_arch = "x86_64", not(miri)))]
type Half = core::arch::x86_64::__m128i;
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
type Half = [u64; 2];

/// The fields of a template.
#[derive(Clone, Copy)]
#[repr(C, packed(4))]
struct Common {
    refs: u32,
    room: u16,
    vlan: u16,
    timestamp: u64,
    flow_tag: u32,
    known: PacketInfoWord,
    hash: u32,
}

/// Offset of the template in the metadata.
const TEMPLATE_AT: usize = offset_of!(Metadata, refs);

/// Its fields have the same offsets as the metadata's fields.
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
    /// A template without receive metadata, for buffers of `pool`.
    pub(crate) fn any(pool: &Pool) -> Self {
        Self::of(&RxMeta::default(), pool)
    }

    /// For frames with the metadata `meta`, in buffers of `pool`.
    pub(crate) fn of(meta: &RxMeta, pool: &Pool) -> Self {
        Self::new(meta, pool.layout().room() as u16)
    }

    /// For frames with the metadata `meta`, in buffers of `room` bytes with one handle.
    #[inline(always)]
    pub(super) fn new(meta: &RxMeta, room: u16) -> Self {
        let RxMeta { known, timestamp, flow_tag, hash, vlan, .. } = *meta;
        let common = Common { refs: 1, room, vlan, timestamp, flow_tag, known, hash };
        // SAFETY: integers without padding, on both sides.
        unsafe { transmute::<Common, Self>(common) }
    }
}

/// A frame whose metadata is that of a template, except length and hash.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Templated {
    pub(crate) len: u32,
    pub(crate) template: MetaTemplate,
    /// The frame's own hash, if each frame has one.
    pub(crate) hash: Option<u32>,
}

impl RxFrame for Templated {
    #[inline(always)]
    fn len(&self) -> u32 {
        self.len
    }

    fn with_len(self, len: u32) -> Self {
        Self { len, ..self }
    }

    #[inline(always)]
    fn write(&self, place: &mut UnwrittenMetadata) {
        // SAFETY: as in `RxMeta`. The template's reference count and room are those already there
        // (7); its other fields are integers and a word that was made of a `PacketInfo`. A line and
        // half a line have the alignment.
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
