//! The machine's interface to stored bytes, which are the caller's: the machine never sees a
//! buffer.

/// Bytes of a segment: a buffer of the NIC's, a held slice of one, a `Vec` in a test. Dropping one
/// is its normal end.
pub trait Payload: Sized {
    /// Number of bytes.
    fn len(&self) -> usize;

    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops `count` bytes from the front. Panics on more than there are.
    fn advance(&mut self, count: usize);

    /// Keeps the first `len` bytes. Panics on more than there are.
    fn trim_to(&mut self, len: usize);

    /// Splits off the bytes after the first `at`. Returns `None` and changes nothing where that is
    /// not possible now (no buffer for the second handle). Panics where there are fewer than `at`
    /// bytes.
    fn split_off(&mut self, at: usize) -> Option<Self>;

    /// Appends a copy of as many of `bytes` as fit the same buffer, and returns their number. Only
    /// before the payload was sent for the first time.
    fn append(&mut self, bytes: &[u8]) -> usize;

    /// Appends a copy of all bytes of `next`, also after both were sent. Returns false and changes
    /// nothing where the buffer has no room or another handle still reads it.
    fn join(&mut self, next: &Self) -> bool;
}
