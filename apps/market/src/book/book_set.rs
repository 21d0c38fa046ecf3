//! A set of books, which is empty on a good day.

use super::BookIdx;

/// The set: a bit for each book.
#[derive(Clone, Debug)]
pub(crate) struct BookSet {
    words: Vec<u64>,
    is_empty: bool,
}

impl BookSet {
    /// No book of at most `books_max`; allocates.
    pub(crate) fn new(books_max: usize) -> Self {
        Self { words: vec![0; books_max.div_ceil(64)], is_empty: true }
    }

    /// Bytes that [`BookSet::new`] allocates.
    pub(crate) const fn memory(books_max: u128) -> u128 {
        books_max.div_ceil(64) * size_of::<u64>() as u128
    }

    #[inline]
    pub(crate) fn contains(&self, book: BookIdx) -> bool {
        !self.is_empty && self.words.get(book.0 as usize / 64).is_some_and(|word| word >> (book.0 % 64) & 1 != 0)
    }

    pub(crate) fn has_room_for(&self, book: BookIdx) -> bool {
        self.words.len() > book.0 as usize / 64
    }

    pub(crate) fn insert(&mut self, book: BookIdx) {
        self.words[book.0 as usize / 64] |= 1 << (book.0 % 64);
        self.is_empty = false;
    }

    /// Whether the book was in the set, in which it is no more.
    pub(crate) fn remove(&mut self, book: BookIdx) -> bool {
        let was_in = self.contains(book);
        self.words[book.0 as usize / 64] &= !(1 << (book.0 % 64));
        was_in
    }

    pub(crate) fn clear(&mut self) {
        if !core::mem::replace(&mut self.is_empty, true) {
            self.words.fill(0);
        }
    }
}
