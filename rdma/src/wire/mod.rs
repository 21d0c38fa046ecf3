//! The bytes of a packet: headers as zero-copy views, opcodes, the ICRC.
//!
//! ```text
//!  Ethernet · IPv4 · UDP 4791 · BTH · DETH? · RETH? · AtomicETH? · AETH? · ImmDt? · IETH? · payload · pad · ICRC
//! ```
//!
//! Names and layouts are those of the InfiniBand specification, chapter 9, with Annexes A16 (RoCE)
//! and A17 (RoCEv2). Nothing allocates, panics on input or keeps state.

pub mod aeth;
pub mod bth;
mod crc32;
pub mod extended;
pub mod icrc;
pub mod opcode;
pub mod packet;
pub mod psn;
pub mod qpn;

/// The UDP port that RoCEv2 goes to.
pub const ROCE_PORT: u16 = 4791;
/// The Ethernet type of RoCEv1: a global route header of 40 bytes, then the BTH.
pub const GRH_ETHERTYPE: u16 = 0x8915;

#[cfg(test)]
mod tests;
