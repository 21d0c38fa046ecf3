//! The instruments of which a snapshot of use was seen since the last hole.

use crate::book::BookIdx;
use crate::book::book_set::BookSet;

/// The set of them, and how many the venue says that there are.
#[derive(Debug)]
pub(super) struct SeenBooks {
    books: BookSet,
    count: u32,
    /// The last claim.
    total: u32,
    /// Some instruments have no book, and each of their snapshots counts as one.
    has_others: bool,
}

impl SeenBooks {
    /// Of at most `books_max` instruments; allocates.
    pub(super) fn new(books_max: usize) -> Self {
        Self { books: BookSet::new(books_max), count: 0, total: 0, has_others: false }
    }

    /// Bytes that [`SeenBooks::new`] allocates.
    pub(super) const fn memory(books_max: usize) -> u128 {
        BookSet::memory(books_max as u128)
    }

    pub(super) fn clear(&mut self) {
        self.books.clear();
        (self.count, self.has_others) = (0, false);
    }

    /// Whether each instrument that was seen has a book. Otherwise nobody knows whether all were.
    pub(super) const fn are_exact(&self) -> bool {
        !self.has_others
    }

    pub(super) fn has(&self, book: BookIdx) -> bool {
        self.books.contains(book)
    }

    /// A snapshot of `book` is of use.
    pub(super) fn insert(&mut self, book: Option<BookIdx>) {
        match book {
            Some(book) if self.books.contains(book) => {}
            Some(book) if self.books.has_room_for(book) => {
                self.books.insert(book);
                self.count += 1;
            }
            _ => (self.count, self.has_others) = (self.count.saturating_add(1), true),
        }
    }

    /// Whether all of a loop are seen that claims to have `total` instruments. The claim counts
    /// where the one before said the same, because a forged one would end the loop.
    pub(super) const fn are_all_of(&mut self, total: u32) -> bool {
        core::mem::replace(&mut self.total, total) == total && self.count >= total
    }
}
