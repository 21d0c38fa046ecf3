//! A frame into the buffers of one WQE: cyclic receiving rings; mlx5.md 2.8.
//!
//! The WQE is an array of pointers that ends with its room or with a terminator. Each entry is
//! fetched only when the frame reaches it, because the driver may leave the other entries
//! unwritten.

use super::rq::{Received, Rq, RqFault};
use crate::hca::completion::Cqs;
use crate::hca::environment::{Dma, Environment};
use crate::hca::memory::{Memory, Purpose};
use crate::hca::{CompletionKind, RxHeaders};

/// One pointer segment; mlx5.md 2.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::hca) struct Pointer {
    pub(in crate::hca) byte_count: u32,
    pub(in crate::hca) lkey: u32,
    pub(in crate::hca) address: u64,
}

/// Bytes of a segment.
const POINTER_LEN: u32 = 16;

/// The bit of a byte count that announces inline data, which a receive WQE cannot have.
const INLINE: u32 = 1 << 31;

/// The lkey of the entry after the last pointer.
const LKEY_TERMINATOR: u32 = 0x100;

/// The length that a byte count of 0 means to hardware.
const LEN_OF_ZERO: u64 = 1 << 31;

impl Pointer {
    #[inline]
    pub(in crate::hca) fn fetch(address: u64, dma: &dyn Dma) -> Result<Self, RqFault> {
        let mut bytes = [0; POINTER_LEN as usize];
        dma.read(address, &mut bytes)?;
        let [c0, c1, c2, c3, k0, k1, k2, k3, a0, a1, a2, a3, a4, a5, a6, a7] = bytes;
        let pointer = Self {
            byte_count: u32::from_be_bytes([c0, c1, c2, c3]),
            lkey: u32::from_be_bytes([k0, k1, k2, k3]),
            address: u64::from_be_bytes([a0, a1, a2, a3, a4, a5, a6, a7]),
        };
        if pointer.byte_count & INLINE != 0 { Err(RqFault::Inline) } else { Ok(pointer) }
    }

    pub(in crate::hca) fn is_terminator(self) -> bool {
        self.byte_count == 0 && self.lkey == LKEY_TERMINATOR
    }

    #[inline]
    pub(in crate::hca) fn len(self) -> u64 {
        if self.byte_count == 0 { LEN_OF_ZERO } else { u64::from(self.byte_count) }
    }

    /// Writes to the memory that the segment points to, `offset` bytes after its start. The whole
    /// segment must be in the driver's region, not only the part that this frame needs, so that a
    /// wrong length shows with the first frame and not with the first long one.
    #[inline]
    pub(in crate::hca) fn write(
        self,
        pd: u32,
        offset: u64,
        bytes: &[u8],
        memory: &Memory,
        dma: &dyn Dma,
    ) -> Result<(), RqFault> {
        let Self { lkey, address, .. } = self;
        let len = self.len();
        let start = memory.reach(pd, lkey, address, len, Purpose::Write).map_err(|why| RqFault::Pointer {
            why,
            lkey,
            address,
            len,
        })?;
        dma.write(start + offset, bytes).map_err(|_| RqFault::PointerUnmapped { address })
    }
}

impl Rq {
    /// Stores a frame in the next WQE, which is posted, and completes it.
    #[inline]
    pub(in crate::hca) fn receive_into_wqe(
        &mut self,
        frame: &[u8],
        headers: RxHeaders,
        memory: &Memory,
        cqs: &mut Cqs,
        environment: &Environment<'_>,
    ) -> Received {
        if let Err(fault) = self.scatter(frame, memory, environment.dma) {
            return self.complete_error(fault, cqs, environment);
        }
        let kind = CompletionKind::Received(RxHeaders { byte_count: frame.len() as u32, ..headers });
        self.complete(kind, self.consumer, cqs, environment);
        self.consume_wqe();
        Received::Stored
    }

    #[inline]
    fn scatter(&self, frame: &[u8], memory: &Memory, dma: &dyn Dma) -> Result<(), RqFault> {
        let mut rest = frame;
        let first = self.wqe_address();
        for entry in 0..(1 << self.wqe_shift) / POINTER_LEN {
            let pointer = Pointer::fetch(first + u64::from(entry * POINTER_LEN), dma)?;
            if pointer.is_terminator() {
                break;
            }
            let (piece, behind) = rest.split_at(rest.len().min(pointer.len() as usize));
            pointer.write(self.pd, 0, piece, memory, dma)?;
            rest = behind;
            if rest.is_empty() {
                return Ok(());
            }
        }
        Err(RqFault::TooLong { len: frame.len() })
    }
}
