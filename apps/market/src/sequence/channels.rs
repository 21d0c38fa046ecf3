//! One [`Sequence`] for each channel of a feed, in a table of fixed size.

use super::{Policy, Sequence};
use crate::framing::Header;

/// The key of a sequence: the packet's group, and the channel it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelKey {
    /// The group that carried the packet, numbered by the caller. Two groups of one feed may have
    /// the same channel number but different sequences, as the gap-response group of a Cboe unit
    /// does.
    pub group: u32,
    /// The channel in the packet's header.
    pub channel: u32,
}

impl ChannelKey {
    /// The key of a packet on `group`.
    pub const fn of(group: u32, header: &Header) -> Self {
        Self { group, channel: header.channel }
    }
}

/// The table. Channels appear with their first packet and stay; memory is allocated at
/// construction.
#[derive(Clone, Debug)]
pub struct Channels {
    policy: Policy,
    entries: Vec<(ChannelKey, Sequence)>,
    /// The index of each entry, sorted by key: packets may claim any number, and each lookup takes
    /// a few steps.
    places: Vec<(ChannelKey, u32)>,
    channels_max: usize,
    idx_last: usize,
    refused: u64,
}

impl Channels {
    /// A table for at most `channels_max` channels, each under `policy`.
    pub fn new(policy: Policy, channels_max: usize) -> Self {
        Self {
            policy,
            entries: Vec::with_capacity(channels_max),
            places: Vec::with_capacity(channels_max),
            channels_max,
            idx_last: 0,
            refused: 0,
        }
    }

    /// The channel's machine; `None` where the table is full, which is counted. Costs one compare
    /// for a run of packets of the same channel, and a binary search otherwise.
    pub fn get(&mut self, key: ChannelKey) -> Option<&mut Sequence> {
        let is_last = self.entries.get(self.idx_last).is_some_and(|(last, _)| *last == key);
        if !is_last {
            self.idx_last = self.find_or_insert(key)?;
        }
        self.entries.get_mut(self.idx_last).map(|(_, sequence)| sequence)
    }

    /// All channels in the order of their first packets.
    pub fn iter(&self) -> impl Iterator<Item = (ChannelKey, &Sequence)> {
        self.entries.iter().map(|(key, sequence)| (*key, sequence))
    }

    /// Packets that found the table full.
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    fn find_or_insert(&mut self, key: ChannelKey) -> Option<usize> {
        let at = match self.places.binary_search_by_key(&key, |&(known, _)| known) {
            Ok(at) => return Some(self.places[at].1 as usize),
            Err(at) => at,
        };
        if self.entries.len() == self.channels_max {
            self.refused += 1;
            return None;
        }
        let idx = self.entries.len();
        self.places.insert(at, (key, idx as u32));
        self.entries.push((key, Sequence::new(self.policy)));
        Some(idx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_stay_in_the_order_of_their_first_packets_and_are_found_again() {
        let mut channels = Channels::new(Policy::default(), 9);
        let keys = [(2, 7), (1, u32::MAX), (2, 0)].map(|(group, channel)| ChannelKey { group, channel });
        for _ in 0..2 {
            assert!(keys.iter().all(|&key| channels.get(key).is_some()));
        }
        assert!(channels.iter().map(|(key, _)| key).eq(keys));
    }

    #[test]
    fn full_table_refuses_a_new_channel_and_keeps_the_old() {
        let mut channels = Channels::new(Policy::default(), 1);
        let known = ChannelKey { group: 0, channel: 1 };
        assert!(channels.get(known).is_some());
        assert!(channels.get(ChannelKey { group: 1, channel: 1 }).is_none());
        assert!(channels.get(known).is_some());
        assert_eq!((channels.refused(), channels.iter().count()), (1, 1));
    }
}
