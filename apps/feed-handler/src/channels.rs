//! How the channels of a worker are numbered for others: those of the whole configuration in its
//! order, one after the other, so that a number means the same after a restart, and no two workers
//! have a channel of the same number. Channels that a replay learns are numbered as they come.

use core::cell::Cell;

use crate::feed::SetConfig;

/// The channels of one worker.
#[derive(Debug, Default)]
pub struct Channels {
    sets: Vec<Set>,
    learned: Cell<u16>,
    count: usize,
}

/// A configured set.
#[derive(Debug)]
struct Set {
    /// Of its first channel, over all workers.
    number: usize,
    /// And among those of this worker.
    place: usize,
    numbers: Vec<u32>,
}

/// A channel that opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its number in records.
    pub number: u16,
    /// Its place among those of this worker.
    pub place: usize,
}

impl Channels {
    /// Of sets whose first channels have these numbers.
    pub fn new(sets: &[SetConfig], first_channels: &[usize]) -> Self {
        let mut count = 0;
        let numbered = sets.iter().zip(first_channels).map(|(set, &number)| {
            let place = count;
            count += set.channels_max();
            Set { number, place, numbers: set.numbers.clone() }
        });
        Self { sets: numbered.collect(), learned: Cell::new(0), count }
    }

    /// The number behind the last that is configured.
    pub fn numbers_end(&self) -> usize {
        self.sets.iter().map(|set| set.number + set.numbers.len().max(1)).max().unwrap_or(0)
    }

    /// Channels that are configured, one where none is.
    pub fn count(&self) -> usize {
        self.count.max(1)
    }

    /// The place of a channel that opens.
    pub fn place(&self, set: u16, number: u32) -> Place {
        match self.sets.get(usize::from(set)) {
            Some(set) => {
                let idx = set.numbers.iter().position(|&one| one == number).unwrap_or(0);
                Place { number: (set.number + idx) as u16, place: set.place + idx }
            }
            None => {
                let number = self.learned.replace(self.learned.get().saturating_add(1));
                Place { number, place: number.into() }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(numbers: &[u32]) -> SetConfig {
        SetConfig {
            name: String::new(),
            format: crate::Format::IexDeep,
            queue: None,
            numbers: numbers.to_vec(),
            lines: Vec::new(),
            recovery: Default::default(),
        }
    }

    fn numbers<const N: usize>(channels: &Channels, opened: [(u16, u32); N]) -> [(u16, usize); N] {
        opened.map(|(set, number)| channels.place(set, number)).map(|Place { number, place }| (number, place))
    }

    #[test]
    fn channels_are_numbered_as_they_are_configured_and_learned_ones_as_they_come() {
        let channels = Channels::new(&[set(&[]), set(&[7, 9]), set(&[3])], &[0, 1, 3]);
        assert_eq!(channels.count(), 4);
        assert_eq!(numbers(&channels, [(0, 5), (1, 9), (1, 7), (2, 3)]), [(0, 0), (2, 2), (1, 1), (3, 3)]);
        assert_eq!(numbers(&Channels::new(&[], &[]), [(0, 4), (1, 4)]), [(0, 0), (1, 1)]);
    }

    #[test]
    fn channels_of_another_worker_have_other_numbers_and_the_first_places() {
        let channels = Channels::new(&[set(&[7, 9]), set(&[3])], &[1, 6]);
        assert_eq!(numbers(&channels, [(0, 7), (0, 9), (1, 3)]), [(1, 0), (2, 1), (6, 2)]);
    }
}
