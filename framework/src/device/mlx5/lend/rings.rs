//! The rings that a broker describes, as the data path takes them: each place is checked against
//! the memory that was lent.
//!
//! Invariants:
//! 1. Places and lengths are inside the shared memory and the register's page, which their owner
//!    keeps mapped; counts are powers of two, and rings are aligned to 64 bytes.
//! 2. Each ring is given out once: a program asks once for a queue, and makes one pair of halves of
//!    it. The broker does not touch the rings while the program has them; libmlx5 clears doorbell
//!    records there when the program asks for a reset.

use core::ptr::NonNull;
use std::sync::Arc;

use super::shared::{RegisterPage, SharedRings};
use crate::device::broker::nic::{NicFeatures, NicQueue};
use crate::device::mlx5::completion::cqe::CQE_LEN;
use crate::device::mlx5::setup::parts::{CqParts, MemoryOwner, RqParts, SqParts};

/// Bytes of a basic block of the send ring, and the alignment of rings.
const BLOCK_LEN: usize = 64;
/// More entries than any ring has.
const ENTRIES_MAX: u32 = 1 << 16;

/// The rings of both halves.
pub(super) struct Parts {
    pub(super) sq: SqParts,
    pub(super) tx_cq: CqParts,
    pub(super) rq: RqParts,
    pub(super) rx_cq: CqParts,
}

impl Parts {
    /// Those of `queue`; `None` if it is none that could be.
    pub(super) fn of(
        queue: &NicQueue,
        features: &NicFeatures,
        rings: &Arc<SharedRings>,
        page: Arc<RegisterPage>,
    ) -> Option<Self> {
        let register = page.register(queue.uar_place, 2 * (queue.blueflame_len as usize).max(8))?;
        let is_blueflame = queue.blueflame_len == 0
            || (queue.blueflame_len.is_power_of_two() && queue.blueflame_len as usize >= BLOCK_LEN);
        if !is_blueflame || !register.addr().get().is_multiple_of(8) {
            return None;
        }
        // SAFETY: the places that stand beside this owner are checked below (1); 2.
        let memory_owner = unsafe { MemoryOwner::new(Arc::new((Arc::clone(rings), page))) };
        let ring = |place, count: u32, stride: u32| {
            let is_ring = count.is_power_of_two() && stride.is_power_of_two() && count <= ENTRIES_MAX && stride <= 1024;
            let start = rings.at(place, (count as usize).checked_mul(stride as usize)?)?;
            (is_ring && stride >= 16 && start.addr().get().is_multiple_of(BLOCK_LEN)).then_some(start)
        };
        let record = |place: u32| -> Option<NonNull<[u32; 2]>> {
            rings.at(place, 8).filter(|record| record.addr().get().is_multiple_of(8)).map(NonNull::cast)
        };
        let cq = |place, entry_count, doorbell, number| {
            Some(CqParts {
                ring: ring(place, entry_count, CQE_LEN as u32)?,
                entry_count,
                entry_len: CQE_LEN as u32,
                doorbell: record(doorbell)?,
                arm_register: None,
                number,
                memory_owner: memory_owner.clone(),
            })
        };
        let word = |place| rings.at(place, 4).filter(|word| word.addr().get().is_multiple_of(4)).map(NonNull::cast);
        let sq = SqParts {
            ring: ring(queue.sq, queue.sq_block_count, BLOCK_LEN as u32)?,
            wqebb_count: queue.sq_block_count,
            doorbell: word(queue.sq_doorbell)?,
            uar: register,
            blueflame_len: queue.blueflame_len,
            number: queue.sq_number,
            inline_len_min: features.inline_len_min.try_into().ok()?,
            wqe_units_max: features.wqe_units_max,
            memory_owner: memory_owner.clone(),
        };
        let rq = RqParts {
            ring: ring(queue.rq, queue.rq_wqe_count, queue.rq_stride)?,
            wqe_count: queue.rq_wqe_count,
            stride: queue.rq_stride,
            lkey: queue.lkey,
            doorbell: word(queue.rq_doorbell)?,
            striding: None,
            memory_owner: memory_owner.clone(),
        };
        let tx_cq = cq(queue.tx_cq, queue.tx_cq_entry_count, queue.tx_cq_doorbell, queue.tx_cq_number)?;
        let rx_cq = cq(queue.rx_cq, queue.rx_cq_entry_count, queue.rx_cq_doorbell, queue.rx_cq_number)?;
        // Each WQE may complete at once.
        let fits = tx_cq.entry_count >= sq.wqebb_count && rx_cq.entry_count >= rq.wqe_count;
        fits.then_some(Self { sq, tx_cq, rq, rx_cq })
    }
}
