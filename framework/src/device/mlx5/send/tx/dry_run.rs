//! Dry runs: frames that keep the path of an order warm and do not leave.

use super::Mlx5Tx;
use crate::device::mlx5::send::sq::WarmUp;

impl Mlx5Tx {
    /// Keeps the path of an order warm. Frames that `send` posts and rings the doorbell for are
    /// built and processed as far as `depth` says, by the same instructions in the same memory, but
    /// do not leave. Their mbufs are freed. For frames posted earlier the doorbell is rung. Costs
    /// as much as sending; call it when idle, up to some thousand times a second. Does nothing, and
    /// does not call `send`, while the queue is in error; recovery from an error that `send` meets
    /// starts after the dry run. A nested dry run is part of the outer one.
    pub fn warm<R>(&mut self, depth: WarmUp, send: impl FnOnce(&mut Self) -> R) -> Option<R> {
        if self.refuses && self.still_refuses() {
            return None;
        }
        if self.sq.is_dry_run() {
            return Some(send(self));
        }
        self.ring();
        let guard = DryRunGuard::begin(self, depth);
        let result = send(guard.tx);
        drop(guard);
        self.counters.dry_runs.inc();
        Some(result)
    }
}

/// Ends a dry run, also when `send` panics: frames posted afterwards would otherwise never leave.
struct DryRunGuard<'tx> {
    tx: &'tx mut Mlx5Tx,
    /// The sequence number of the next frame that asks for a timestamp.
    sequence: u64,
}

impl<'tx> DryRunGuard<'tx> {
    fn begin(tx: &'tx mut Mlx5Tx, depth: WarmUp) -> Self {
        tx.sq.begin_dry_run(depth);
        let sequence = tx.timestamps.sequence();
        Self { tx, sequence }
    }
}

impl Drop for DryRunGuard<'_> {
    fn drop(&mut self) {
        self.tx.sq.end_dry_run();
        self.tx.timestamps.set_sequence(self.sequence);
    }
}
