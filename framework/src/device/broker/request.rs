//! What a client asks a broker for, with which a broker of each device makes a queue.

/// Memory and rings, as a client asks for them: checked by the port that lends them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueRequest {
    pub(crate) umem_len: u64,
    pub(crate) chunk_len: u32,
    pub(crate) rx_ring_len: u32,
    pub(crate) tx_ring_len: u32,
    /// Where a client of a NIC that steers has the memory; 0 for AF_XDP, which needs no address.
    pub(crate) address: u64,
}

/// The sentence about packet buffers of more than `memory_max` bytes.
pub(crate) fn too_large(len: u64, memory_max: u64) -> String {
    let (wanted, lent) = (len >> 20, memory_max >> 20);
    format!(
        "{wanted} MiB of packet buffers are wanted, and the broker lends {lent} MiB at most: ask for fewer, or start \
         it with --memory {}",
        wanted + 1
    )
}
