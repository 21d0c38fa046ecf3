//! One side of a market-by-price book: levels by their position, as the venue numbers them.

use crate::units::Price9;

/// Levels of a side: CME publishes ten of futures, three of options, two of implied books.
pub const DEPTH_MAX: usize = 10;

/// The total at one price.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DepthLevel {
    /// The price.
    pub price: Price9,
    /// The quantity there; 0 is a level that no message has set.
    pub qty: u64,
    /// Orders there, 0 where the feed does not say.
    pub orders: u32,
}

/// What is known of a side's levels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SideState {
    len: u8,
    /// The most levels that it had at once, since it was emptied.
    reach: u8,
    /// The deepest position that a message was about: the venue publishes that many at least.
    named: u8,
    /// A bit for each level that was set since the last loss.
    fresh: u16,
}

/// A position beyond the side's levels: messages are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OutOfPlace;

impl SideState {
    pub(super) const EMPTY: Self = Self { len: 0, reach: 0, named: 0, fresh: 0 };

    pub(super) const fn len(self) -> usize {
        self.len as usize
    }

    /// Its levels are gone. How many the venue publishes is still known.
    pub(super) fn empty(&mut self) {
        *self = Self { named: self.named, ..Self::EMPTY };
    }

    /// The venue publishes `depth` levels, and no more from here on. False where the side has had
    /// more at some time: then some of those that it has may be gone at the venue.
    pub(super) fn limit(&mut self, depth: u8) -> bool {
        let was_within = self.reach <= depth;
        self.truncate(depth);
        self.reach = self.len;
        was_within
    }

    /// The most levels that it had at once.
    pub(super) const fn reach(self) -> u8 {
        self.reach
    }

    /// The deepest position that a message was about.
    pub(super) const fn named(self) -> u8 {
        self.named
    }

    /// Nothing that was known is certain any more.
    pub(super) fn doubt(&mut self) {
        self.fresh = 0;
    }

    /// The first `depth` levels were all set since the last loss.
    pub(super) const fn is_whole(self, depth: u8) -> bool {
        let wanted = (1 << depth) - 1;
        self.fresh & wanted == wanted
    }

    /// A new level at `idx`, which is below `depth`, moves those from there on one down. The one
    /// beyond `depth` is dropped: the venue does not say so.
    pub(super) fn insert(
        &mut self,
        levels: &mut [DepthLevel; DEPTH_MAX],
        idx: usize,
        level: DepthLevel,
        depth: u8,
    ) -> Result<(), OutOfPlace> {
        let in_place = self.fill_to(levels, idx);
        levels.copy_within(idx..DEPTH_MAX - 1, idx + 1);
        levels[idx] = level;
        let below = self.fresh & mask(idx);
        self.fresh = below | 1 << idx | (self.fresh & !mask(idx)) << 1;
        self.len += 1;
        self.name(idx);
        self.truncate(depth);
        in_place
    }

    /// Drops the levels beyond `depth`.
    pub(super) fn truncate(&mut self, depth: u8) {
        self.len = self.len.min(depth);
        self.fresh &= mask(depth as usize);
        self.reach = self.reach.max(self.len);
    }

    /// The level at `idx` has other contents.
    pub(super) fn set(
        &mut self,
        levels: &mut [DepthLevel; DEPTH_MAX],
        idx: usize,
        level: DepthLevel,
    ) -> Result<(), OutOfPlace> {
        let in_place = self.fill_to(levels, idx + 1);
        levels[idx] = level;
        self.fresh |= 1 << idx;
        self.name(idx);
        in_place
    }

    /// The same where the position may be the first free one: an overlay does not ask what was
    /// there.
    pub(super) fn overlay(
        &mut self,
        levels: &mut [DepthLevel; DEPTH_MAX],
        idx: usize,
        level: DepthLevel,
    ) -> Result<(), OutOfPlace> {
        let in_place = self.fill_to(levels, idx);
        self.len = self.len.max(idx as u8 + 1);
        self.reach = self.reach.max(self.len);
        levels[idx] = level;
        self.fresh |= 1 << idx;
        self.name(idx);
        in_place
    }

    /// The level at `idx` is gone: those behind it move up. The venue sends the level that now
    /// ends a full book as a new one.
    pub(super) fn delete(&mut self, levels: &mut [DepthLevel; DEPTH_MAX], idx: usize) -> Result<(), OutOfPlace> {
        if idx >= self.len() {
            return Err(OutOfPlace);
        }
        levels.copy_within(idx + 1.., idx);
        self.len -= 1;
        self.fresh = (self.fresh & mask(idx)) | (self.fresh & !mask(idx + 1)) >> 1;
        Ok(())
    }

    /// The levels up to and with `idx` are gone.
    pub(super) fn delete_thru(&mut self, levels: &mut [DepthLevel; DEPTH_MAX], idx: usize) -> Result<(), OutOfPlace> {
        let gone = (idx + 1).min(self.len());
        levels.copy_within(gone.., 0);
        self.len -= gone as u8;
        self.fresh >>= gone;
        Ok(())
    }

    /// The levels from `idx` on are gone.
    pub(super) fn delete_from(&mut self, idx: usize) -> Result<(), OutOfPlace> {
        self.len = self.len.min(idx as u8);
        self.fresh &= mask(idx);
        Ok(())
    }

    /// Makes the side `len` levels long at least; levels that no message has set are empty.
    fn fill_to(&mut self, levels: &mut [DepthLevel; DEPTH_MAX], len: usize) -> Result<(), OutOfPlace> {
        if len <= self.len() {
            return Ok(());
        }
        levels[self.len()..len].fill(DepthLevel::default());
        self.len = len as u8;
        self.reach = self.reach.max(self.len);
        Err(OutOfPlace)
    }

    /// A message was about the position `idx`.
    #[inline]
    fn name(&mut self, idx: usize) {
        self.named = self.named.max(idx as u8 + 1);
    }
}

/// A bit for each of the first `count` levels.
const fn mask(count: usize) -> u16 {
    (1 << count) - 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn level(price: i64) -> DepthLevel {
        DepthLevel { price: Price9(price), qty: 1, orders: 1 }
    }

    proptest! {
        /// The reference is a list, as the venue describes the actions.
        #[test]
        fn side_agrees_with_a_list(
            depth in 1..=DEPTH_MAX,
            steps in prop::collection::vec((0_u8..6, 0_usize..DEPTH_MAX), 0..200),
        ) {
            let (mut state, mut levels) = (SideState::EMPTY, [DepthLevel::default(); DEPTH_MAX]);
            let mut list: Vec<DepthLevel> = Vec::new();
            for (price, (action, idx)) in (1..).zip(steps) {
                let (new, idx) = (level(price), idx % depth);
                let is_in_place = match action {
                    0 | 5 => idx <= list.len(),
                    1 | 2 => idx < list.len(),
                    _ => true,
                };
                if !is_in_place {
                    continue;
                }
                let done = match action {
                    0 => {
                        list.insert(idx, new);
                        list.truncate(depth);
                        state.insert(&mut levels, idx, new, depth as u8)
                    }
                    1 => {
                        list[idx] = new;
                        state.set(&mut levels, idx, new)
                    }
                    2 => {
                        list.remove(idx);
                        state.delete(&mut levels, idx)
                    }
                    3 => {
                        list.drain(..(idx + 1).min(list.len()));
                        state.delete_thru(&mut levels, idx)
                    }
                    4 => {
                        list.truncate(idx);
                        state.delete_from(idx)
                    }
                    _ => {
                        if idx == list.len() { list.push(new) } else { list[idx] = new }
                        state.overlay(&mut levels, idx, new)
                    }
                };
                prop_assert_eq!(done, Ok(()));
                prop_assert_eq!(&levels[..state.len()], &list[..]);
                prop_assert_eq!(state.fresh, mask(list.len()), "all levels were set, none was lost");
                prop_assert!(state.len <= state.reach && usize::from(state.reach) <= depth);
            }
        }

        /// Nothing that a feed sends reaches beyond the array.
        #[test]
        fn positions_out_of_place_are_told_and_harmless(
            steps in prop::collection::vec((0_u8..7, 0_usize..DEPTH_MAX), 0..200),
        ) {
            let (mut state, mut levels) = (SideState::EMPTY, [DepthLevel::default(); DEPTH_MAX]);
            for (action, idx) in steps {
                let before = state.len();
                let done = match action {
                    0 => state.insert(&mut levels, idx, level(1), DEPTH_MAX as u8),
                    1 => state.set(&mut levels, idx, level(1)),
                    2 => state.delete(&mut levels, idx),
                    3 => state.delete_thru(&mut levels, idx),
                    4 => state.delete_from(idx),
                    5 => state.overlay(&mut levels, idx, level(1)),
                    _ => {
                        state.doubt();
                        Ok(())
                    }
                };
                let is_out = match action {
                    0 | 5 => idx > before,
                    1 | 2 => idx >= before,
                    _ => false,
                };
                prop_assert_eq!(done.is_err(), is_out);
                prop_assert!(state.len() <= DEPTH_MAX && state.fresh & !mask(state.len()) == 0);
            }
        }
    }

    #[test]
    fn side_is_whole_again_when_each_level_was_set() {
        let (mut state, mut levels) = (SideState::EMPTY, [DepthLevel::default(); DEPTH_MAX]);
        for idx in 0..3 {
            state.insert(&mut levels, idx, level(1), 3).unwrap();
        }
        state.doubt();
        state.insert(&mut levels, 0, level(2), 3).unwrap();
        state.set(&mut levels, 2, level(3)).unwrap();
        assert!(!state.is_whole(3));
        state.delete(&mut levels, 1).unwrap();
        assert!(state.is_whole(2) && !state.is_whole(3), "the third has moved up");
    }
}
