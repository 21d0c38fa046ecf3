//! Bytes that wait for the line.

use super::Output;

/// What a session has written and the line has not taken yet.
#[derive(Debug)]
pub(crate) struct Outbox {
    bytes: Box<[u8]>,
    len: usize,
}

impl Outbox {
    /// Room for so many bytes, allocated here.
    pub(crate) fn new(room: usize) -> Self {
        Self { bytes: vec![0; room].into_boxed_slice(), len: 0 }
    }

    /// Lets `write` write behind what waits.
    pub(crate) fn write<T>(&mut self, write: impl FnOnce(&mut Output<'_>) -> T) -> T {
        let mut output = Output::new(&mut self.bytes[self.len..]);
        let written = write(&mut output);
        self.len += output.len();
        written
    }

    /// The bytes, in order.
    #[inline]
    pub(crate) fn to_send(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The line took `len` bytes.
    pub(crate) fn sent(&mut self, len: usize) {
        let len = len.min(self.len);
        self.bytes.copy_within(len..self.len, 0);
        self.len -= len;
    }

    /// Bytes that may still be written.
    pub(crate) const fn room(&self) -> usize {
        self.bytes.len() - self.len
    }

    /// The connection is gone, and what waited with it.
    pub(crate) const fn clear(&mut self) {
        self.len = 0;
    }
}
