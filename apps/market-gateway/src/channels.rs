//! How the channels of a worker are numbered in its ring: those of the configuration in its order,
//! one after the other, so that a number means the same after a restart. Channels that a replay
//! learns are numbered as they come.

use core::cell::Cell;

use feed_handler::feed::SetConfig;

/// The channels of one worker.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    /// The channel numbers of each configured set, and the number in the ring of its first.
    sets: Vec<(u16, Vec<u32>)>,
    learned: Cell<u16>,
    count: usize,
}

impl Channels {
    pub(crate) fn new(sets: &[SetConfig]) -> Self {
        let mut count = 0;
        let numbered = sets.iter().map(|set| {
            let first = count;
            count += set.channels_max();
            (first as u16, set.numbers.clone())
        });
        Self { sets: numbered.collect(), learned: Cell::new(0), count }
    }

    /// Channels that are configured, one where none is.
    pub(crate) fn count(&self) -> usize {
        self.count.max(1)
    }

    /// The number of a channel that opens.
    pub(crate) fn number(&self, set: u16, number: u32) -> u16 {
        match self.sets.get(usize::from(set)) {
            Some((first, numbers)) => {
                let place = numbers.iter().position(|&one| one == number).unwrap_or(0);
                first + place as u16
            }
            None => self.learned.replace(self.learned.get().saturating_add(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_are_numbered_as_they_are_configured_and_learned_ones_as_they_come() {
        let set = |numbers: &[u32]| SetConfig {
            name: String::new(),
            queue: None,
            numbers: numbers.to_vec(),
            lines: Vec::new(),
            recovery: Default::default(),
        };
        let channels = Channels::new(&[set(&[]), set(&[7, 9]), set(&[3])]);
        assert_eq!(channels.count(), 4);
        assert_eq!([(0, 5), (1, 9), (1, 7), (2, 3)].map(|(set, number)| channels.number(set, number)), [0, 2, 1, 3]);
        let learned = Channels::new(&[]);
        assert_eq!([(0, 4), (1, 4)].map(|(set, number)| learned.number(set, number)), [0, 1]);
    }
}
