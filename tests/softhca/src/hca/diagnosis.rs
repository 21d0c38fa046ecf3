//! Diagnoses for the driver's author: one sentence for each mistake, besides the error CQE or
//! counter.

use super::Hca;
use std::collections::VecDeque;

/// Sentences that no one has taken yet.
#[derive(Default)]
pub(super) struct Diagnoses {
    sentences: VecDeque<String>,
}

/// The first mistakes are the most informative, so later ones are dropped if no one takes them.
/// Consequences such as flushed WQEs are not diagnosed.
const KEPT_MAX: usize = 32;

impl Diagnoses {
    /// Keeps a sentence. It is formatted only if there is room.
    pub(super) fn add(&mut self, sentence: impl FnOnce() -> String) {
        if self.sentences.len() < KEPT_MAX {
            self.sentences.push_back(sentence());
        }
    }
}

impl Hca {
    /// The oldest sentence about a driver's mistake that was not taken yet.
    pub fn take_diagnosis(&mut self) -> Option<String> {
        self.diagnoses.sentences.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hca::Config;

    #[test]
    fn the_first_mistakes_are_kept_in_order() {
        let mut hca = Hca::new(Config::default());
        for number in 0..100 {
            hca.diagnoses.add(|| number.to_string());
        }
        let taken = std::iter::from_fn(|| hca.take_diagnosis()).collect::<Vec<_>>();
        assert_eq!(taken, (0..KEPT_MAX).map(|number| number.to_string()).collect::<Vec<_>>());
    }
}
