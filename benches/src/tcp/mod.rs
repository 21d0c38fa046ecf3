//! TCP in memory: two ends on one core, joined by a memory device. [`pair`] is the product,
//! [`peer`] smoltcp on the same wire; [`crowd`] asks what a segment costs where there are many
//! connections, [`flood`] what SYNs of strangers take from one that stands.

pub mod callers;
pub mod crowd;
pub mod flood;
pub mod lines;
pub mod orders;
pub mod pair;
pub mod peer;

use wirepath::device::memory::MemoryConfig;

/// Bytes that an app hands over at a time where it sends in bulk: full segments, as many as a NIC
/// cuts from one frame.
pub const CHUNK_LEN: usize = 44 * SEGMENT_LEN;
/// The same for smoltcp: half of the L1 cache, which it likes better by a seventh.
pub const PEER_CHUNK_LEN: usize = 16 << 10;
/// Bytes of a full segment: what an MTU of 1500 leaves beside the headers and the timestamps.
pub const SEGMENT_LEN: usize = 1500 - 20 - 20 - 12;
/// Bytes of a request, and of its response.
pub const MESSAGE_LEN: usize = 64;
/// Bytes that may be on their way, on both sides of the comparison: four chunks, some 256 KiB. With
/// 128 KiB both are slower.
pub const BUFFER_LEN: usize = 4 * CHUNK_LEN;

/// Who looks after damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// Both ends compute and verify them.
    On,
    /// Nobody: the wire is memory.
    Off,
}

/// The wire of an MTU of 1500.
fn wire(checksums: Checksums) -> MemoryConfig {
    MemoryConfig { slots: 512, skips_checksums: checksums == Checksums::Off, ..MemoryConfig::default() }
}
