//! The caller's buffer, into which a session writes the bytes to send.

use core::fmt;

/// A buffer of the caller with the bytes written so far. A message is written whole or not at all.
///
/// ```
/// use order_entry::session::Output;
///
/// let mut buffer = [0; 8];
/// let mut output = Output::new(&mut buffer);
/// output.push(b"hello").unwrap();
/// assert!(output.push(b"world").is_err());
/// assert_eq!(output.written(), b"hello");
/// ```
#[derive(Debug)]
pub struct Output<'a> {
    buffer: &'a mut [u8],
    len: usize,
}

impl<'a> Output<'a> {
    /// An empty output over `buffer`.
    pub fn new(buffer: &'a mut [u8]) -> Self {
        Self { buffer, len: 0 }
    }

    /// The bytes to send.
    pub fn written(&self) -> &[u8] {
        &self.buffer[..self.len]
    }

    /// Bytes written.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that still fit.
    pub fn room(&self) -> usize {
        self.buffer.len() - self.len
    }

    /// Forgets the written bytes, after they were sent.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Appends what `write` does, or nothing where it fails: messages of several parts.
    ///
    /// # Errors
    ///
    /// Those of `write`.
    pub fn write_whole(
        &mut self,
        write: impl FnOnce(&mut Output<'a>) -> Result<(), OutputFull>,
    ) -> Result<&mut [u8], OutputFull> {
        let start = self.len;
        if let Err(full) = write(self) {
            self.len = start;
            return Err(full);
        }
        Ok(&mut self.buffer[start..self.len])
    }

    /// Appends `bytes`.
    ///
    /// # Errors
    ///
    /// Not all of them fit; none is written.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), OutputFull> {
        self.take(bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    /// Appends the parts of one message, one after the other.
    ///
    /// # Errors
    ///
    /// Not all of them fit; none is written.
    pub fn push_all(&mut self, parts: &[&[u8]]) -> Result<(), OutputFull> {
        let mut room = self.take(parts.iter().map(|part| part.len()).sum())?;
        for part in parts {
            let (front, rest) = room.split_at_mut(part.len());
            front.copy_from_slice(part);
            room = rest;
        }
        Ok(())
    }

    /// The next `len` bytes, counted as written; the caller fills them.
    ///
    /// # Errors
    ///
    /// They do not fit; nothing is written.
    pub fn take(&mut self, len: usize) -> Result<&mut [u8], OutputFull> {
        let room = self.room();
        if len > room {
            return Err(OutputFull { needed: len, room });
        }
        let start = self.len;
        self.len += len;
        Ok(&mut self.buffer[start..start + len])
    }
}

/// The caller's buffer has less room than the message needs. The session is unchanged: send what is
/// in the buffer, and call again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputFull {
    /// Bytes of the message.
    pub needed: usize,
    /// Bytes that the buffer had left.
    pub room: usize,
}

impl fmt::Display for OutputFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the message has {} bytes, the output buffer {} left", self.needed, self.room)
    }
}

impl core::error::Error for OutputFull {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_do_not_fit_together_write_nothing() {
        let mut buffer = [0; 4];
        let mut output = Output::new(&mut buffer);
        assert_eq!(output.push_all(&[b"abc", b"de"]), Err(OutputFull { needed: 5, room: 4 }));
        assert!(output.is_empty());
    }

    #[test]
    fn parts_are_written_in_order() {
        let mut buffer = [0; 6];
        let mut output = Output::new(&mut buffer);
        output.push_all(&[b"abc", b"", b"de"]).unwrap();
        assert_eq!(output.written(), b"abcde");
        assert_eq!(output.room(), 1);
    }
}
