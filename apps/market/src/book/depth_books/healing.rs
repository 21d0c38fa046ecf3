//! How a book becomes stale, and whole again: by an update of each level, a snapshot, a reset.

use super::side::{DEPTH_MAX, OutOfPlace, SideState};
use super::{BookIdx, DepthBooks};
use crate::book::Books;
use crate::book::numbering::Trust;
use crate::event::Liquidity;

impl DepthBooks {
    /// Updates before this one are missing: the numbering is stale already.
    #[cold]
    pub(super) fn lose(&mut self, book: BookIdx, missing: u32) {
        self.depth_counts.lost_updates += u64::from(missing);
        self.hurt(book);
    }

    /// A book is stale from here on. Its levels stay, because they may be of use, but none counts
    /// as known.
    #[cold]
    fn hurt(&mut self, book: BookIdx) {
        let [depth, implied_depth] = self.depths[book.0 as usize];
        let has_implied = depth == 0 || implied_depth > 0;
        let entry = self.books.get_mut(book.0 as usize);
        entry.numbering.set_stale(true);
        entry.is_implied_stale = has_implied;
        entry.sides.as_flattened_mut().iter_mut().for_each(SideState::doubt);
        if !core::mem::replace(&mut entry.is_hurt, true) {
            self.stale += 1;
            self.depth_counts.hurt += 1;
        }
    }

    /// After an update of a book with stale levels, or one that does not fit: whole again, or
    /// stale. The direct levels and the implied ones are whole again each on their own.
    #[cold]
    pub(super) fn settle(&mut self, book: BookIdx, liquidity: Liquidity, done: Result<(), OutOfPlace>) {
        let entry = self.books.get_mut(book.0 as usize);
        let was_known = match liquidity {
            Liquidity::Direct => !entry.numbering.is_stale(),
            Liquidity::Implied => !entry.is_implied_stale,
        };
        if was_known {
            if done.is_err() {
                self.depth_counts.out_of_place += 1;
                self.hurt(book);
            }
            return;
        }
        let depth = entry.depth[liquidity as usize];
        if !entry.sides[liquidity as usize].iter().all(|side| side.is_whole(depth)) {
            return;
        }
        match liquidity {
            Liquidity::Direct => {
                self.depth_counts.healed_by_refresh += 1;
                entry.numbering.set_stale(false);
            }
            Liquidity::Implied => entry.is_implied_stale = false,
        }
        self.count_healed(book);
    }

    /// A book without a stale level is not counted as hurt any more.
    fn count_healed(&mut self, book: BookIdx) {
        let entry = self.books.get_mut(book.0 as usize);
        let is_whole = !entry.numbering.is_stale() && !entry.is_implied_stale;
        if is_whole && core::mem::take(&mut entry.is_hurt) {
            self.stale -= 1;
        }
    }

    /// All of the book's levels are gone at the venue: it is whole.
    pub(super) fn reset(&mut self, book: BookIdx) {
        let entry = self.books.get_mut(book.0 as usize);
        entry.sides.as_flattened_mut().iter_mut().for_each(SideState::empty);
        entry.numbering.set_stale(false);
        entry.is_implied_stale = false;
        self.count_healed(book);
        self.touch(book);
    }

    /// A whole loop did not have the book.
    pub(super) fn confirm_absent(&mut self, book: BookIdx) {
        let channel = self.channel;
        let entry = self.books.get_mut(book.0 as usize);
        let last = Some(entry.numbering.last());
        let is_sure = entry.numbering.trust(channel) == Trust::Sure && !entry.is_implied_stale;
        if !entry.numbering.is_new() {
            let is_gone = core::mem::replace(&mut entry.absent_at, last) == last;
            if is_sure || !is_gone {
                return;
            }
            self.reset(book);
        }
        self.books.get_mut(book.0 as usize).numbering.confirm(channel);
        self.touch(book);
    }

    pub(super) fn begin_snapshot(&mut self, book: BookIdx, number: u32) {
        let (before, channel) = (self.trust(book), self.channel);
        let is_guess = self.is_guess(book, Liquidity::Direct) || self.is_guess(book, Liquidity::Implied);
        let entry = self.books.get_mut(book.0 as usize);
        let is_plausible = entry.numbering.is_plausible(number);
        let is_taken = is_plausible && entry.numbering.weigh(number, channel, is_guess || entry.is_implied_stale);
        (self.snapshot, self.adopted) = (Some((book, is_taken)), None);
        if is_taken {
            self.depth_counts.healed_by_snapshot += u64::from(before == Trust::Stale);
            self.reset(book);
            self.books.get_mut(book.0 as usize).numbering.adopt(number, channel);
            return;
        }
        self.depth_counts.snapshots_unneeded += u64::from(is_plausible);
        self.depth_counts.snapshots_doubtful += u64::from(!is_plausible);
        if self.trust(book) != before {
            // It confirms the book, which is to be published so.
            self.touch(book);
        }
    }

    /// How many levels the venue publishes; 0 where the definition does not say. A book that has
    /// had more may have some that are gone.
    pub(super) fn define(&mut self, book: BookIdx, depths: [u8; 2]) {
        let mut is_within = true;
        for (liquidity, depth) in depths.into_iter().enumerate() {
            if !(1..=DEPTH_MAX as u8).contains(&depth) {
                continue;
            }
            self.depths[book.0 as usize][liquidity] = depth;
            let entry = self.books.get_mut(book.0 as usize);
            entry.depth[liquidity] = depth;
            for side in &mut entry.sides[liquidity] {
                is_within &= side.limit(depth);
            }
        }
        if !is_within && !self.is_stale(book) {
            self.hurt(book);
            self.touch(book);
        }
    }
}
