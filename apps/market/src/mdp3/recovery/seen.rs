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
}

impl SeenBooks {
    /// Of at most `books_max` instruments; allocates.
    pub(super) fn new(books_max: usize) -> Self {
        Self { books: BookSet::new(books_max), count: 0, total: 0 }
    }

    /// Bytes that [`SeenBooks::new`] allocates.
    pub(super) const fn memory(books_max: usize) -> u128 {
        BookSet::memory(books_max as u128)
    }

    pub(super) fn clear(&mut self) {
        self.books.clear();
        self.count = 0;
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
            _ => self.count = self.count.saturating_add(1),
        }
        core::mem::replace(&mut self.total, total) == total && self.count >= total
    }
}
