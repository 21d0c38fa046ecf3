//! Whether each instrument of a channel was defined.

use std::collections::HashSet;

/// Instruments that are told apart: more than any channel has, and a bound on what forged
/// definitions cost.
const INSTRUMENTS_MAX: usize = 1 << 20;

/// What a message of the loop defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Definition {
    /// The instrument's number.
    pub instrument: u64,
    /// Instruments of the whole loop, where the feed says so.
    pub total: Option<u32>,
}

/// The loop of a channel's definitions, from the first packet that is received to the one with
/// which each instrument was defined. Allocates as instruments come: it is not for the hot core.
#[derive(Clone, Debug, Default)]
pub struct DefinitionLoop {
    seen: HashSet<u64>,
    /// Of the last definition.
    total: u32,
    is_whole: bool,
}

impl DefinitionLoop {
    /// A definition of the loop. How many there are is believed when two in a row say the same.
    pub fn take(&mut self, Definition { instrument, total }: Definition) {
        if self.seen.len() < INSTRUMENTS_MAX {
            self.seen.insert(instrument);
        }
        let total = total.unwrap_or(u32::MAX);
        let agrees = core::mem::replace(&mut self.total, total) == total;
        self.is_whole |= agrees && self.seen.len() >= total as usize;
    }

    /// Whether each instrument of the loop was defined: then leave its group.
    pub const fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// The loop is listened to again, from anywhere in it.
    pub fn restart(&mut self) {
        self.seen.clear();
        (self.total, self.is_whole) = (0, false);
    }
}
