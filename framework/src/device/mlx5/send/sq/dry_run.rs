//! Dry runs: a posted frame is built and processed up to the doorbell, then discarded.

use super::Sq;
use super::ledger::Load;
use super::multi::Multi;
use crate::device::mlx5::send::wqe::Opcode;

/// The depth of a dry run of sending ([`Mlx5Tx::warm`](crate::device::mlx5::Mlx5Tx::warm)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WarmUp {
    /// WQEs are built in the next free blocks, and discarded: the NIC is not notified. The only
    /// cost is the instructions.
    Ring,
    /// The doorbell is rung too, for a NOP WQE: it warms the register and the NIC's context of the
    /// queue. It takes a block of the ring, a posted write of up to 64 bytes over PCIe, and a
    /// moment of the NIC's time.
    Doorbell,
}

/// The doorbell mode of a dry run, and the ring's state when it began.
#[derive(Clone, Copy)]
pub(super) struct DryRun {
    depth: WarmUp,
    posted: u32,
    last: u32,
    signaled: u32,
    signaled_mbufs: u32,
    requested: u32,
}

impl Sq {
    /// From here on posted frames do not leave. The caller has rung for those posted before, and
    /// has counted them.
    pub(crate) fn begin_dry_run(&mut self, depth: WarmUp) {
        self.end_dry_run();
        self.overwrite();
        self.dry_run = Some(DryRun {
            depth,
            posted: self.posted,
            last: self.last,
            signaled: self.signaled,
            signaled_mbufs: self.signaled_mbufs,
            requested: self.ledger.requested(),
        });
    }

    /// Whether a dry run is active.
    #[inline(always)]
    pub(crate) fn is_dry_run(&self) -> bool {
        self.dry_run.is_some()
    }

    /// Discards the frames posted since the dry run began, or since its last doorbell, and ends it.
    pub(crate) fn end_dry_run(&mut self) {
        self.rewind();
        self.dry_run = None;
    }

    /// Replaces all posted WQEs by one NOP. Returns whether to ring for it.
    #[cold]
    pub(super) fn dry_run_doorbell(&mut self) -> bool {
        let Some(dry_run) = self.dry_run else { return true };
        self.rewind();
        if dry_run.depth == WarmUp::Ring || self.free_blocks() == 0 {
            return false;
        }
        self.post(Opcode::Nop, 1, Load::default(), 0, None);
        // Further posts of this dry run begin behind it.
        let (posted, last, signaled) = (self.posted, self.last, self.signaled);
        self.dry_run = Some(DryRun { posted, last, signaled, requested: self.ledger.requested(), ..dry_run });
        true
    }

    /// Restores the state at the start of the dry run and frees its mbufs. Completions processed
    /// meanwhile remain: they were for earlier posts.
    fn rewind(&mut self) {
        let Some(mark) = self.dry_run else { return };
        self.multi = Multi::CLOSED;
        self.ledger.cancel_requests(mark.posted, self.posted, mark.requested);
        while self.in_flight.head() != mark.signaled_mbufs
            && let Some(mbuf) = self.in_flight.pop_back()
        {
            mbuf.free();
        }
        (self.posted, self.last) = (mark.posted, mark.last);
        (self.signaled, self.signaled_mbufs) = (mark.signaled, mark.signaled_mbufs);
        self.take_sent();
    }
}
