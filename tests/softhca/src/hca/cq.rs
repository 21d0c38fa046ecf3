//! Completion queues, as far as the sending side needs them.

use super::Completion;
use super::control::Errno;
use super::outside::Outside;

/// All completion queues.
#[derive(Default)]
pub(super) struct Cqs {}

impl Cqs {
    /// A queue begins to complete to this CQ. EINVAL where there is none.
    pub(super) fn hold(&mut self, cq: u32) -> Result<(), Errno> {
        let _ = cq;
        Ok(())
    }

    /// A queue that completed to this CQ went.
    pub(super) fn release(&mut self, cq: u32) {
        let _ = cq;
    }

    /// Hands a completion to the CQ, which stamps it with the time and writes it now or, in hostile mode, later.
    pub(super) fn complete(&mut self, cq: u32, completion: &Completion, outside: &Outside<'_>) {
        let _ = (cq, completion, outside);
    }

    /// The queue of this number is reset or destroyed: what it completed and was not written yet is never written.
    pub(super) fn forget(&mut self, queue_number: u32) {
        let _ = queue_number;
    }
}
