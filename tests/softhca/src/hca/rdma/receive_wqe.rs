//! A receive WQE that a message is stored in: of the endpoint's own ring, or of a shared receive
//! queue. It is taken with a message's first packet, and completed with its last.

use super::srq::Srq;
use crate::hca::environment::Dma;
use crate::hca::memory::Memory;
use crate::hca::receive::{Pointer, Rq, RqFault};

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct ReceiveWqe {
    /// For its completion.
    pub(super) position: u16,
    pointers: Vec<Pointer>,
}

/// Bytes of a pointer.
const POINTER_LEN: u64 = 16;

/// Where an endpoint takes receive WQEs from.
pub(super) enum Source<'a> {
    /// It has neither.
    Nothing,
    Rq(&'a mut Rq),
    Srq(&'a mut Srq),
}

impl Source<'_> {
    /// The next WQE, where one is posted.
    pub(super) fn take(&mut self, dma: &dyn Dma) -> Result<Option<ReceiveWqe>, RqFault> {
        match self {
            Self::Nothing => Ok(None),
            Self::Srq(srq) => srq.take(dma),
            Self::Rq(rq) => {
                if rq.posted(1, dma)? == 0 {
                    return Ok(None);
                }
                let wqe = ReceiveWqe::fetch(rq.consumer, rq.wqe_address(), 1 << rq.wqe_shift, dma)?;
                rq.consume_wqe();
                Ok(Some(wqe))
            }
        }
    }
}

impl ReceiveWqe {
    /// Reads the pointers in `len` bytes at `address`.
    pub(super) fn fetch(position: u16, address: u64, len: u64, dma: &dyn Dma) -> Result<Self, RqFault> {
        let mut pointers = Vec::new();
        for entry in 0..len / POINTER_LEN {
            let pointer = Pointer::fetch(address + entry * POINTER_LEN, dma)?;
            if pointer.is_terminator() {
                break;
            }
            pointers.push(pointer);
        }
        Ok(Self { position, pointers })
    }

    /// Stores a part of the message, which begins with the byte at `offset`.
    pub(super) fn write(
        &self,
        pd: u32,
        mut offset: u64,
        bytes: &[u8],
        memory: &Memory,
        dma: &dyn Dma,
    ) -> Result<(), RqFault> {
        let mut rest = bytes;
        for pointer in &self.pointers {
            if offset >= pointer.len() {
                offset -= pointer.len();
                continue;
            }
            let (piece, behind) = rest.split_at(rest.len().min((pointer.len() - offset) as usize));
            pointer.write(pd, offset, piece, memory, dma)?;
            (rest, offset) = (behind, 0);
            if rest.is_empty() {
                return Ok(());
            }
        }
        if rest.is_empty() { Ok(()) } else { Err(RqFault::TooLong { len: bytes.len() }) }
    }
}
