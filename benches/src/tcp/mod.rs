//! TCP in memory: two ends on one core, joined by a memory device. [`pair`] is the product,
//! [`peer`] smoltcp on the same wire; [`crowd`] measures the cost of a segment with many
//! connections, [`flood`] the cost of a SYN flood for an established one.

pub mod callers;
pub mod crowd;
pub mod flood;
pub mod lines;
pub mod orders;
pub mod pair;
pub mod peer;

use wirepath::device::memory::MemoryConfig;

/// Bytes that an app sends at a time in bulk: full segments, as many as a NIC cuts from one frame.
pub const CHUNK_LEN: usize = 44 * SEGMENT_LEN;
/// The same for smoltcp: half of the L1 cache, with which it is faster by a seventh.
pub const PEER_CHUNK_LEN: usize = 16 << 10;
/// Bytes of a full segment: an MTU of 1500 less the headers and the timestamps.
pub const SEGMENT_LEN: usize = 1500 - 20 - 20 - 12;
/// Bytes of a request, and of its response.
pub const MESSAGE_LEN: usize = 64;
/// Bytes that may be in flight, on both sides of the comparison: four chunks, some 256 KiB. With
/// 128 KiB both are slower.
pub const BUFFER_LEN: usize = 4 * CHUNK_LEN;

/// The handling of checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// Both ends compute and verify them.
    On,
    /// Not used: the wire is memory.
    Off,
}

/// The wire of an MTU of 1500.
fn wire(checksums: Checksums) -> MemoryConfig {
    MemoryConfig { slots: 512, skips_checksums: checksums == Checksums::Off, ..MemoryConfig::default() }
}
