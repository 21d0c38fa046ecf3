//! Which of our messages the peer processed, as far as it has said.

use super::machine::Session;
use super::store::MessageStore;
use crate::session::{Fate, Recovery, Resend};

/// Numbers that the peer was told to pass over, and those that it has.
#[derive(Debug)]
pub(super) struct Skipped {
    /// First and last number of each run, in rising order.
    runs: Vec<(u64, u64)>,
    processed_below: u64,
}

/// Runs that are kept; of older ones nothing is known.
const RUNS_MAX: usize = 256;

impl Skipped {
    pub(super) fn new() -> Self {
        Self { runs: Vec::with_capacity(RUNS_MAX), processed_below: 0 }
    }

    pub(super) fn clear(&mut self) {
        self.runs.clear();
        self.processed_below = 0;
    }

    /// The peer expects `seq` next, so it has taken all before it, or was told to pass over them.
    pub(super) fn processed_below(&mut self, seq: u64) {
        self.processed_below = self.processed_below.max(seq);
    }

    pub(super) fn add(&mut self, seq: u64) {
        if self.holds(seq) {
            return;
        }
        match self.runs.last_mut() {
            Some((_, last)) if *last + 1 == seq => *last = seq,
            _ => {
                if self.runs.len() == RUNS_MAX {
                    self.runs.remove(0);
                }
                self.runs.push((seq, seq));
            }
        }
    }

    fn holds(&self, seq: u64) -> bool {
        self.runs.iter().any(|(first, last)| (*first..=*last).contains(&seq))
    }
}

impl<S: MessageStore> Recovery for Session<S> {
    /// The peer asks for what it misses, so a number below the one that it asked for is processed;
    /// an order that was too old to be sent again is not, and never will be under this number. Of
    /// others the session itself takes care.
    fn fate(&self, number: u64) -> Fate {
        if self.skipped.holds(number) {
            return Fate::NotProcessed { resend: Resend::NewNumber };
        }
        if number < self.skipped.processed_below {
            return Fate::Processed;
        }
        Fate::Unknown { resend: None }
    }
}
