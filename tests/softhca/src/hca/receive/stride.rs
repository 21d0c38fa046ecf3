//! Several frames into one WQE: striding receiving rings (multi-packet RQ); mlx5.md 2.8 and 2.9.
//!
//! A WQE is one buffer cut into strides. A frame takes as many consecutive strides as it needs and
//! is never in two WQEs: where the rest of a WQE is too short for it, a filler completion consumes
//! that rest, and the frame begins the next WQE.

use super::rq::{Received, Rq, RqFault};
use super::scatter::Pointer;
use crate::hca::completion::{Cqs, FILLER};
use crate::hca::control::Striding;
use crate::hca::environment::{Dma, Environment};
use crate::hca::memory::Memory;
use crate::hca::{CompletionKind, RxHeaders};

/// The pointer lies behind a next segment that a cyclic ring does not use.
const POINTER_OFFSET: u64 = 16;

/// The longest frame that the byte count of a completion can say.
const FRAME_LEN_MAX: usize = 0xffff;

impl Rq {
    /// Stores a frame in the strides of the WQE in use, or of the next one, and completes it. At
    /// least one WQE is posted.
    pub(super) fn receive_into_strides(
        &mut self,
        frame: &[u8],
        headers: RxHeaders,
        memory: &Memory,
        cqs: &mut Cqs,
        environment: &Environment<'_>,
    ) -> Received {
        let Some(striding) = self.striding else { return Received::NotReady };
        let needed = strides_needed(frame.len(), striding);
        let strides = 1 << striding.strides_log;
        if needed > strides || frame.len() > FRAME_LEN_MAX {
            return self.complete_error(RqFault::TooLong { len: frame.len() }, cqs, environment);
        }
        if self.stride + needed > strides {
            // The rest is only given up for a WQE that is there to take the frame.
            match self.posted(2, environment.dma) {
                Err(fault) => return self.complete_error(fault, cqs, environment),
                Ok(0 | 1) => return Received::NoWqe,
                Ok(_) => self.fill(strides - self.stride, cqs, environment),
            }
        }
        if let Err(fault) = self.store(frame, striding, memory, environment.dma) {
            return self.complete_error(fault, cqs, environment);
        }
        let byte_count = needed << 16 | frame.len() as u32;
        self.complete_strides(RxHeaders { byte_count, ..headers }, cqs, environment);
        self.stride += needed;
        if self.stride == strides {
            self.consume_wqe();
        }
        Received::Stored
    }

    /// Consumes the rest of the WQE in use.
    fn fill(&mut self, rest: u32, cqs: &mut Cqs, environment: &Environment<'_>) {
        let filler = RxHeaders { byte_count: FILLER | rest << 16, ..RxHeaders::default() };
        self.complete_strides(filler, cqs, environment);
        self.consume_wqe();
    }

    fn complete_strides(&self, headers: RxHeaders, cqs: &mut Cqs, environment: &Environment<'_>) {
        let headers = RxHeaders { wqe_id: self.wqe_index(), ..headers };
        self.complete(CompletionKind::Received(headers), self.stride as u16, cqs, environment);
    }

    fn store(&self, frame: &[u8], striding: Striding, memory: &Memory, dma: &dyn Dma) -> Result<(), RqFault> {
        let pointer = Pointer::fetch(self.wqe_address() + POINTER_OFFSET, dma)?;
        let mut offset = u64::from(self.stride) << striding.stride_len_log;
        let end = offset + padding(striding) as u64 + frame.len() as u64;
        if pointer.is_terminator() || end > pointer.len() {
            return Err(RqFault::TooLong { len: frame.len() });
        }
        if striding.shift_two_bytes {
            pointer.write(self.pd, offset, &[0; 2], memory, dma)?;
            offset += 2;
        }
        pointer.write(self.pd, offset, frame, memory, dma)
    }
}

fn padding(striding: Striding) -> usize {
    if striding.shift_two_bytes { 2 } else { 0 }
}

fn strides_needed(len: usize, striding: Striding) -> u32 {
    (len + padding(striding)).div_ceil(1 << striding.stride_len_log).max(1) as u32
}
