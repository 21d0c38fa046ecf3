//! The kill switch: one number, which the hot core reads with each order.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A switch that any thread may throw, and that disarms each gate that shares it. Clones are the
/// same switch.
///
/// It counts how often it was thrown, and an armed gate remembers the count. So nobody has to reset
/// the switch, and a gate stays disarmed until it is armed by hand.
#[derive(Clone, Debug, Default)]
pub struct KillSwitch(Arc<AtomicU64>);

impl KillSwitch {
    /// A switch that was not thrown.
    pub fn new() -> Self {
        Self::default()
    }

    /// Disarms all gates that share the switch. One addition: safe in a signal handler.
    pub fn throw(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }

    /// How often it was thrown. One load.
    pub fn throws(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}
