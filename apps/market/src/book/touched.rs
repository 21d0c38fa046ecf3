//! The books that the venue's event has changed, which are published at its end.

use super::BookIdx;

/// The list of them: while the event is open those so far, and behind its end all.
#[derive(Clone, Debug)]
pub(super) struct Touched {
    books: Vec<BookIdx>,
    is_event_over: bool,
}

impl Touched {
    /// Of at most so many books; allocates.
    pub(super) fn new(books_max: usize) -> Self {
        Self { books: Vec::with_capacity(books_max), is_event_over: false }
    }

    /// Bytes that [`Touched::new`] allocates.
    pub(super) const fn memory(books_max: usize) -> u128 {
        (size_of::<BookIdx>() * books_max) as u128
    }

    /// The open event changes a book, which remembers by `is_touched` that it is in the list.
    #[inline]
    pub(super) fn insert(&mut self, book: BookIdx, is_touched: &mut bool) {
        if core::mem::take(&mut self.is_event_over) {
            self.books.clear();
        }
        if !core::mem::replace(is_touched, true) && self.books.len() < self.books.capacity() {
            self.books.push(book);
        }
    }

    /// The event is over: the books that it changed, which are not touched any more.
    #[inline]
    pub(super) fn end_event(&mut self) -> &[BookIdx] {
        if self.is_event_over {
            self.books.clear();
        }
        self.is_event_over = true;
        &self.books
    }

    /// What the last event has changed, unless another one is open.
    pub(super) fn of_last_event(&self) -> &[BookIdx] {
        if self.is_event_over { &self.books } else { &[] }
    }

    pub(super) fn clear(&mut self) {
        self.books.clear();
    }
}
