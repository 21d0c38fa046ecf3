//! What a journal is written to.

use std::io;

/// Memory for a journal: plain, or a mapped file.
pub trait JournalMemory: AsRef<[u8]> + AsMut<[u8]> + core::fmt::Debug {
    /// The bytes from `from` on were appended for a request that is about to be sent. On an error
    /// it is not. By default nothing is done: the kernel writes a mapped file when it wants.
    #[inline]
    fn before_send(&self, from: usize, len: usize) -> io::Result<()> {
        let _ = (from, len);
        Ok(())
    }

    /// The bytes before `end` must be on the disk when this returns. By default nothing is done.
    fn sync(&self, end: usize) -> io::Result<()> {
        let _ = end;
        Ok(())
    }
}

impl JournalMemory for Vec<u8> {}
