//! The limits of WQEs, from the length of the ring and from what the device accepts.

use crate::device::mlx5::send::shape::{HEADER_LEN_MAX, TAG_LEN};
use crate::device::mlx5::send::sq::{BLOCKS_MAX, BLOCKS_MIN};
use crate::device::mlx5::send::wqe::{self, BLOCK_LEN, BLOCK_UNITS};
use crate::device::{DeviceError, DeviceErrorKind};

/// Bytes of the longest TCP headers: Ethernet with a tag, IPv4 and TCP with all options.
const TCP_HEADERS_LEN_MAX: usize = 14 + TAG_LEN + 60 + 60;
/// Bytes of the longest WQE that is wholly inline: the usual half of a BlueFlame register. It
/// carries a frame of 226 bytes.
const INLINE_WQE_LEN_MAX: usize = 256;
/// Blocks of the longest preposted WQE. The NIC fetches the part that BlueFlame does not carry in
/// one read.
const PREPOST_BLOCKS_MAX: u32 = 15;

/// Whether a ring works with this number of blocks, and of completion entries.
pub(super) fn check_lengths(blocks: u32, entries: u32) -> Result<(), DeviceError> {
    if !blocks.is_power_of_two() || !(BLOCKS_MIN..=BLOCKS_MAX).contains(&blocks) {
        return Err(DeviceError::new(
            DeviceErrorKind::InvalidConfig,
            format!(
                "a sending ring of {blocks} blocks does not work: use a power of two between {BLOCKS_MIN} and {BLOCKS_MAX}"
            ),
        ));
    }
    if entries < blocks {
        return Err(DeviceError::new(
            DeviceErrorKind::InvalidConfig,
            format!(
                "a sending ring of {blocks} blocks needs as many completion entries, and has {entries}: use a shorter ring"
            ),
        ));
    }
    Ok(())
}

/// Blocks of the longest WQE that is wholly inline: bounded by BlueFlame, by an eighth of the ring
/// (because `room` is counted in frames), and by the device.
pub(super) fn inline_blocks_max(blocks: u32, device_units_max: u32) -> u32 {
    (blocks / 8).min((INLINE_WQE_LEN_MAX / BLOCK_LEN) as u32).min(device_units_max / BLOCK_UNITS)
}

/// Buffers that a WQE of `units` can point to behind a usual header.
pub(super) fn segments_max(units: u32) -> usize {
    units.saturating_sub(1 + wqe::ethernet_units(HEADER_LEN_MAX / 2 + TAG_LEN)).max(1) as usize
}

/// Bytes of the longest header that a WQE of `units` can repeat before each segment. No device
/// reports this: libmlx5 accepts any `max_tso_header` for which its longest WQE has room
/// (`mlx5_calc_send_wqe`).
pub(super) fn segmentation_header_len_max(units: u32) -> usize {
    wqe::inline_len_max(units).min(HEADER_LEN_MAX)
}

/// Whether a device that accepts WQEs of `units` can segment TCP: with the longest header that TCP
/// over IPv4 has.
pub(crate) fn has_room_for_segmentation(units: u32) -> bool {
    segmentation_header_len_max(units) >= TCP_HEADERS_LEN_MAX
}

/// Units of the longest preposted WQE: at most an eighth of the ring, because `room` is counted in
/// frames.
pub(super) fn prepost_units_max(blocks: u32, device_units_max: u32) -> u32 {
    device_units_max.min(PREPOST_BLOCKS_MAX * BLOCK_UNITS).min(blocks / 8 * BLOCK_UNITS)
}
