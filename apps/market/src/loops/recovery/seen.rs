//! The instruments of which a snapshot of use was seen since the last hole.

use crate::book::BookIdx;
use crate::book::book_set::BookSet;

/// The set of them, and how many the venue says that there are.
#[derive(Debug)]
pub(super) struct SeenBooks {
    books: BookSet,
    count: u32,
    /// Of the last snapshot.
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

    /// A snapshot of `book`, from a loop that claims to have `total` instruments. Returns whether
    /// all are seen. The claim counts where the snapshot before said the same, because a forged one
    /// would end the loop.
    pub(super) fn take(&mut self, book: Option<BookIdx>, total: u32) -> bool {
        match book {
            Some(book) if self.books.contains(book) => {}
            Some(book) if self.books.has_room_for(book) => {
                self.books.insert(book);
                self.count += 1;
            }
            _ => (self.count, self.has_others) = (self.count.saturating_add(1), true),
        }
        core::mem::replace(&mut self.total, total) == total && self.count >= total
    }
}
