//! Rules that a broker has taken back from a port. A thread hears of them; the owner of the port
//! asks for them when it sees the flag.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::device::steering::RuleId;

/// The rules that were lost and not asked for yet, each with the error number of the reason.
#[derive(Debug, Default)]
pub(super) struct LostRules {
    is_any: Arc<AtomicBool>,
    rules: Mutex<Vec<(RuleId, i32)>>,
}

impl LostRules {
    /// A rule was lost.
    pub(super) fn push(&self, rule: (RuleId, i32)) {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner).push(rule);
        self.is_any.store(true, Ordering::Release);
    }

    /// All rules that were lost since the last call.
    pub(super) fn take(&self) -> Vec<(RuleId, i32)> {
        // Before the rules: one that comes meanwhile sets it again.
        self.is_any.store(false, Ordering::Release);
        core::mem::take(&mut self.rules.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Set while there are some.
    pub(super) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_any)
    }
}
