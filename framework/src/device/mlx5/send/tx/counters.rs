//! What a send half counts beside the frames that it drops.

use crate::counters::{Counter, Scope, Unit};

pub(super) struct TxCounters {
    pub(super) frames: Counter,
    pub(super) bytes: Counter,
    pub(super) ring_full: Counter,
    /// Frames refused because the queue was in error.
    pub(super) refused_in_error: Counter,
    /// Frames refused because the kernel would have received their answers: not all queues that
    /// share were open.
    pub(super) refused_before_ready: Counter,
    pub(super) doorbells: Counter,
    /// Dry runs: see [`Mlx5Tx::warm`].
    pub(super) dry_runs: Counter,
    /// Frames that were preposted, and those of them that were fired.
    pub(super) preposts: Counter,
    pub(super) preposts_fired: Counter,
    /// Completions that match no WQE in flight.
    pub(super) completions_invalid: Counter,
    /// Completions that are missing although a later one has arrived.
    pub(super) completions_missed: Counter,
    /// Frames whose transmit timestamp was lost: the list was full, or the frame failed.
    pub(super) timestamps_lost: Counter,
}

impl TxCounters {
    pub(super) fn new(scope: &Scope) -> Self {
        let events = |name| scope.counter(name, Unit::Events);
        Self {
            frames: scope.counter("frames", Unit::Frames),
            bytes: scope.counter("bytes", Unit::Bytes),
            ring_full: events("ring_full"),
            refused_in_error: events("refused_in_error"),
            refused_before_ready: events("refused_before_ready"),
            doorbells: events("doorbells"),
            dry_runs: events("dry_runs"),
            preposts: events("preposts"),
            preposts_fired: events("preposts_fired"),
            completions_invalid: events("completions_invalid"),
            completions_missed: events("completions_missed"),
            timestamps_lost: events("timestamps_lost"),
        }
    }
}
