//! The bytes of a send WQE: control segment, Ethernet segment, data segments, each made of units of
//! 16 bytes (mlx5.md 2.2 to 2.6). This file encodes values into units; [`sq`](super::sq) places
//! them in the ring, and [`tx`](super::tx) decides the values for a frame.
//!
//! ```text
//!  one frame     | control | ethernet, header bytes inline .. | pointer | pointer ..
//!  wholly inline | control | ethernet, the frame ............ |
//!  segmentation  | control | ethernet, header template ...... | pointer to payload | pointer ..
//!  many frames   | control | ethernet | pointer to a frame | pointer to a frame ..
//!  nothing       | control |
//! ```

use core::num::NonZeroU16;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::device::Offload;

/// Bytes of a unit. The ring's length is a multiple of it, so a unit never wraps; a WQE does.
pub(crate) const UNIT_LEN: usize = 16;
/// Units of a basic block (WQEBB), in which ring positions count.
pub(crate) const BLOCK_UNITS: u32 = 4;
/// Bytes of a basic block.
pub(crate) const BLOCK_LEN: usize = UNIT_LEN * BLOCK_UNITS as usize;
/// Units of the longest WQE: the limit of the six bits of `ds`. A device may support less.
pub(crate) const WQE_UNITS_MAX: u32 = 63;
/// Frames of a multi-packet WQE: 62 units, so that it ends inside its sixteenth block. A device may
/// support less.
pub(crate) const MULTI_FRAMES_MAX: u32 = 60;
/// Units before the data segments of a WQE without inline bytes: control and Ethernet segment.
pub(crate) const HEADER_DS: u32 = 2;
/// Inline bytes in the Ethernet segment's first unit; further ones start a new unit.
pub(crate) const INLINE_LEN_FIRST: usize = 2;

/// Checksum flag of the Ethernet segment: fill in the IPv4 header checksum.
pub(crate) const CHECKSUM_L3: u8 = 0x40;
/// The UDP or TCP checksum. The device sums the pseudo-header itself and ignores the field's
/// content.
pub(crate) const CHECKSUM_L4: u8 = 0x80;

// Offload flags go into the Ethernet segment unchanged.
const _: () =
    assert!(Offload::IP_CHECKSUM.checksums() == CHECKSUM_L3 && Offload::L4_CHECKSUM.checksums() == CHECKSUM_L4);

/// The opcode of a WQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opcode {
    /// NOP: it completes, and no frame leaves.
    Nop = 0x00,
    /// One frame.
    Send = 0x0a,
    /// One header and a payload to be segmented.
    Segment = 0x0e,
    /// A frame in each data segment.
    MultiPacket = 0x29,
}

/// Completion mode, bits 3:2 of byte 11: always a CQE. Zero means only on error.
const COMPLETE_ALWAYS: u64 = 0x08;

/// Sixteen bytes as they lie in the ring: two words of eight, big endian.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(16))]
pub(crate) struct Unit(pub(crate) [u64; 2]);

const _: () = assert!(size_of::<Unit>() == UNIT_LEN);

impl Unit {
    #[inline(always)]
    const fn new(first: u64, second: u64) -> Self {
        Self([first.to_be(), second.to_be()])
    }

    /// A unit of bytes in memory order, with the first byte uppermost.
    #[inline(always)]
    pub(in crate::device::mlx5) const fn from_bytes(bytes: u128) -> Self {
        Self::new((bytes >> 64) as u64, bytes as u64)
    }
}

/// The number of a send queue, as all its control segments carry it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Number(u64);

impl Number {
    /// `number` has 24 bits; higher bits are cut off.
    pub(crate) const fn new(number: u32) -> Self {
        Self(((number & 0xff_ffff) as u64) << 8)
    }
}

/// The control segment of a WQE of `units` units whose first block is `idx`. `signaled`: it
/// completes with a CQE also on success.
#[inline(always)]
pub(crate) const fn control(opcode: Opcode, idx: u16, number: Number, units: u32, signaled: bool) -> Unit {
    let first = (idx as u64) << 40 | (opcode as u64) << 32 | number.0 | units as u64;
    Unit::new(first, if signaled { COMPLETE_ALWAYS << 32 } else { 0 })
}

/// The same control segment, with the signaled bit.
#[inline(always)]
pub(crate) const fn signaled(control: Unit) -> Unit {
    Unit([control.0[0], control.0[1] | (COMPLETE_ALWAYS << 32).to_be()])
}

/// The Ethernet segment without inline bytes.
#[inline(always)]
pub(crate) const fn ethernet(checksums: u8) -> Unit {
    Unit::new((checksums as u64) << 24, 0)
}

/// The same; the device inserts a tag with this tag control information.
#[inline(always)]
pub(crate) const fn ethernet_tagging(checksums: u8, tci: u16) -> Unit {
    const INSERT_VLAN: u64 = 0x8000 << 16;
    Unit::new((checksums as u64) << 24, INSERT_VLAN | tci as u64)
}

/// The first unit of an Ethernet segment with `len` inline bytes, of which `first` are the first
/// two. The others follow, padded to whole units. With `segment_len` they are the header of every
/// segment.
#[inline(always)]
pub(crate) const fn ethernet_inline(checksums: u8, segment_len: Option<NonZeroU16>, len: u16, first: [u8; 2]) -> Unit {
    let mss = match segment_len {
        Some(len) => len.get() as u64,
        None => 0,
    };
    Unit::new((checksums as u64) << 24 | mss, (len as u64) << 16 | u16::from_be_bytes(first) as u64)
}

/// Writes an Ethernet segment with `bytes` inline, at least two of them, and pads its last unit
/// with zeros.
#[inline(always)]
pub(crate) fn write_inline(segment: &mut [Unit], checksums: u8, segment_len: Option<NonZeroU16>, bytes: &[u8]) {
    let Some((&first, rest)) = bytes.split_first_chunk::<INLINE_LEN_FIRST>() else { return };
    let Some((head, units)) = segment.split_first_mut() else { return };
    *head = ethernet_inline(checksums, segment_len, bytes.len() as u16, first);
    let (whole, tail) = rest.as_chunks::<UNIT_LEN>();
    for (unit, bytes) in units.iter_mut().zip(whole) {
        *unit = Unit::from_bytes(u128::from_be_bytes(*bytes));
    }
    if let Some(unit) = units.get_mut(whole.len()) {
        *unit = Unit::from_bytes(last_unit(bytes, tail));
    }
}

/// The bytes of `tail`, the end of `bytes`, padded to a unit. If the bytes are longer than a unit
/// they are read in one load.
#[inline(always)]
fn last_unit(bytes: &[u8], tail: &[u8]) -> u128 {
    let pad = UNIT_LEN - tail.len();
    match bytes.last_chunk::<UNIT_LEN>() {
        Some(last) => u128::from_be_bytes(*last) << (8 * pad),
        None => tail.iter().fold(0, |unit, &byte| unit << 8 | u128::from(byte)) << (8 * pad),
    }
}

/// Units of an Ethernet segment with `len` inline bytes.
#[inline(always)]
pub(crate) const fn ethernet_units(len: usize) -> u32 {
    1 + len.saturating_sub(INLINE_LEN_FIRST).div_ceil(UNIT_LEN) as u32
}

/// Offset of a WQE's inline bytes, after the control segment and the fields of the Ethernet
/// segment. They are contiguous.
pub(crate) const INLINE_OFFSET: usize = HEADER_DS as usize * UNIT_LEN - INLINE_LEN_FIRST;

/// Maximum inline bytes in the Ethernet segment of a WQE of `units` units that ends with one
/// pointer.
pub(crate) const fn inline_len_max(units: u32) -> usize {
    // The control segment, the first unit of the Ethernet segment, the pointer.
    INLINE_LEN_FIRST + units.saturating_sub(3) as usize * UNIT_LEN
}

/// The memory key of a region, as the first word of a pointer segment carries it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryKey(u64);

impl MemoryKey {
    pub(crate) const fn new(lkey: u32) -> Self {
        Self((lkey as u64).to_be())
    }
}

/// A pointer segment: `len` bytes at `addr`. Zero would mean 2 GiB, so an empty one is never
/// written.
#[inline(always)]
pub(crate) const fn pointer(len: u32, key: MemoryKey, addr: u64) -> Unit {
    // The key is stored byte-swapped, so that only the length is swapped here.
    Unit([((len as u64) << 32).to_be() | key.0, addr.to_be()])
}

/// Blocks that `units` units fill.
#[inline(always)]
pub(crate) const fn blocks(units: u32) -> u32 {
    units.div_ceil(BLOCK_UNITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(unit: Unit) -> [u8; 16] {
        unit.0.map(u64::to_ne_bytes).concat().try_into().unwrap()
    }

    #[test]
    fn control_segment_is_as_the_fact_sheet_draws_it() {
        let control = control(Opcode::Send, 0xabcd, Number::new(0x12_3456), 5, true);
        assert_eq!(bytes(control), [0, 0xab, 0xcd, 0x0a, 0x12, 0x34, 0x56, 5, 0, 0, 0, 8, 0, 0, 0, 0]);
    }

    #[test]
    fn signal_that_is_added_later_is_the_same_as_one_from_the_start() {
        let control = |is_signaled| control(Opcode::MultiPacket, 7, Number::new(9), 34, is_signaled);
        assert_eq!(signaled(control(false)), control(true));
        assert_eq!(bytes(control(false))[8..], [0; 8]);
    }

    #[test]
    fn number_keeps_to_its_24_bits() {
        assert_eq!(bytes(control(Opcode::Nop, 0, Number::new(0xff00_0001), 1, false))[..8], [0, 0, 0, 0, 0, 0, 1, 1]);
    }

    #[test]
    fn ethernet_segment_has_either_a_tag_or_inline_bytes() {
        assert_eq!(bytes(ethernet(CHECKSUM_L3)), [0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let tagging = ethernet_tagging(CHECKSUM_L3 | CHECKSUM_L4, 0x6123);
        assert_eq!(bytes(tagging), [0, 0, 0, 0, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0, 0x61, 0x23]);
        let inline = ethernet_inline(0, None, 18, [0xaa, 0xbb]);
        assert_eq!(bytes(inline), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 18, 0xaa, 0xbb]);
    }

    #[test]
    fn segment_length_stands_behind_the_checksum_flags() {
        let inline = ethernet_inline(CHECKSUM_L4, NonZeroU16::new(1460), 54, [1, 2]);
        assert_eq!(bytes(inline), [0, 0, 0, 0, 0x80, 0, 0x05, 0xb4, 0, 0, 0, 0, 0, 54, 1, 2]);
    }

    #[test]
    fn inline_bytes_fill_whole_units() {
        for (len, units) in [(0, 1), (2, 1), (3, 2), (14, 2), (18, 2), (19, 3), (64, 5), (226, 15)] {
            assert_eq!(ethernet_units(len), units, "{len} bytes");
        }
    }

    #[test]
    fn longest_header_leaves_room_for_a_pointer() {
        for units in 3..=WQE_UNITS_MAX {
            let len = inline_len_max(units);
            assert_eq!((1 + ethernet_units(len) + 1, 1 + ethernet_units(len + 1) + 1), (units, units + 1));
        }
    }

    #[test]
    fn pointer_segment_is_as_the_fact_sheet_draws_it() {
        let pointer = pointer(1514, MemoryKey::new(0x1122_3344), 0x0102_0304_0506_0708);
        assert_eq!(bytes(pointer), [0, 0, 0x05, 0xea, 0x11, 0x22, 0x33, 0x44, 1, 2, 3, 4, 5, 6, 7, 8]);
    }
}
