//! The levels behind a ladder's window: a treap. Its shape follows from priorities that are drawn
//! at random, not from the prices that a feed sends, so no order of arrival makes it deep. The left
//! side has the better prices.

use super::{Ladder, Levels, NONE};

/// A field in the tree that holds an index.
#[derive(Clone, Copy)]
enum ChildLink {
    Root,
    Left(u32),
    Right(u32),
}

impl<T: Copy + Default> Levels<T> {
    /// The level with this key, or [`NONE`].
    pub(super) fn find_in_tree(&self, ladder: &Ladder, key: i64) -> u32 {
        let mut at = ladder.root;
        while at != NONE {
            let level = self.get(at);
            if level.key == key {
                break;
            }
            at = if key < level.key { level.left } else { level.right };
        }
        at
    }

    /// Puts a level with its key into the tree, and gives the next better and the next worse level
    /// of the tree.
    pub(super) fn put_into_tree(&mut self, ladder: &mut Ladder, new: u32) -> (u32, u32) {
        let (key, priority) = (self.get(new).key, self.draw_priority());
        // Walks the whole path to `key`; the last turn each way gives the neighbors.
        let (mut better, mut worse) = (NONE, NONE);
        let (mut link, mut at) = (ChildLink::Root, ladder.root);
        while at != NONE && self.get(at).priority >= priority {
            if key < self.get(at).key {
                (worse, link, at) = (at, ChildLink::Left(at), self.get(at).left);
            } else {
                (better, link, at) = (at, ChildLink::Right(at), self.get(at).right);
            }
        }
        self.set(ladder, link, new);
        // The subtree below has lower priority: it is split at `key` and attached below the new
        // level.
        let (mut left, mut right) = (ChildLink::Left(new), ChildLink::Right(new));
        while at != NONE {
            if key < self.get(at).key {
                self.set(ladder, right, at);
                (worse, right, at) = (at, ChildLink::Left(at), self.get(at).left);
            } else {
                self.set(ladder, left, at);
                (better, left, at) = (at, ChildLink::Right(at), self.get(at).right);
            }
        }
        self.set(ladder, left, NONE);
        self.set(ladder, right, NONE);
        self.get_mut(new).priority = priority;
        (better, worse)
    }

    /// Takes a level out of the tree.
    pub(super) fn take_from_tree(&mut self, ladder: &mut Ladder, idx: u32) {
        let (key, mut left, mut right) = (self.get(idx).key, self.get(idx).left, self.get(idx).right);
        let (mut link, mut at) = (ChildLink::Root, ladder.root);
        while at != idx {
            assert!(at != NONE, "a level is removed from the ladder it is in");
            (link, at) = if key < self.get(at).key {
                (ChildLink::Left(at), self.get(at).left)
            } else {
                (ChildLink::Right(at), self.get(at).right)
            };
        }
        // Its two subtrees replace it, merged by priority.
        while left != NONE && right != NONE {
            if self.get(left).priority >= self.get(right).priority {
                self.set(ladder, link, left);
                (link, left) = (ChildLink::Right(left), self.get(left).right);
            } else {
                self.set(ladder, link, right);
                (link, right) = (ChildLink::Left(right), self.get(right).left);
            }
        }
        self.set(ladder, link, if left == NONE { right } else { left });
    }

    fn set(&mut self, ladder: &mut Ladder, link: ChildLink, to: u32) {
        match link {
            ChildLink::Root => ladder.root = to,
            ChildLink::Left(at) => self.get_mut(at).left = to,
            ChildLink::Right(at) => self.get_mut(at).right = to,
        }
    }

    /// Marsaglia's xorshift with 32 bits: never 0, period 2^32 - 1.
    fn draw_priority(&mut self) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        self.random
    }
}
