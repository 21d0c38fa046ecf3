//! The index of channels: from the set that a packet came by and the number in it. A packet may
//! claim any number, so the table is a sorted array: each lookup is ten steps among a thousand
//! channels, known or not.

/// The key of a channel: its set, and its number in the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) set: u16,
    pub(super) channel: u32,
}

/// The table. Its memory is allocated at construction.
pub(super) struct Index {
    /// Sorted by key.
    entries: Vec<(Key, u32)>,
}

impl Index {
    /// With room for `channels_max` channels.
    pub(super) fn new(channels_max: usize) -> Self {
        Self { entries: Vec::with_capacity(channels_max) }
    }

    /// The channel's index.
    pub(super) fn find(&self, key: Key) -> Option<usize> {
        let at = self.entries.binary_search_by_key(&key, |&(key, _)| key).ok()?;
        Some(self.entries[at].1 as usize)
    }

    /// Adds a channel that [`Index::find`] does not know.
    pub(super) fn insert(&mut self, key: Key, idx: usize) {
        assert!(self.entries.len() < self.entries.capacity(), "the table has room for every channel that is opened");
        let at = self.entries.partition_point(|&(known, _)| known < key);
        self.entries.insert(at, (key, idx as u32));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_of_equal_numbers_in_several_sets_are_told_apart_whatever_their_order() {
        let keys = (0..20_u16).flat_map(|set| [u32::MAX, 0, 7, 1 << 31].map(|channel| Key { set: 19 - set, channel }));
        let keys: Vec<_> = keys.collect();
        let mut index = Index::new(keys.len());
        for (idx, &key) in keys.iter().enumerate() {
            assert_eq!(index.find(key), None);
            index.insert(key, idx);
        }
        assert!(keys.iter().enumerate().all(|(idx, &key)| index.find(key) == Some(idx)));
        assert_eq!(index.find(Key { set: 3, channel: 8 }), None);
    }
}
