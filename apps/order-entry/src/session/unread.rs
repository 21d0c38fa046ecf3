//! A message of the venue that cannot be read, each time that it comes.

/// Connections on which a message is tried before it is passed over. A message that broke on its
/// way is whole the second time, and a venue that is slow to mend its own has some seconds; a
/// message that stays as it is must not keep the session, and with it all cancels, closed for ever.
pub const READ_ATTEMPTS: u32 = 3;

/// The message that could not be read last.
#[derive(Debug, Default)]
pub(crate) struct Unread {
    number: u64,
    attempts: u32,
    bytes: Vec<u8>,
}

impl Unread {
    /// The message `number` cannot be read. Whether it is to be passed over now; before, the
    /// connection ends, and the venue sends it again.
    pub(crate) fn is_to_be_passed_over(&mut self, number: u64, bytes: &[u8]) -> bool {
        self.attempts = if self.number == number { self.attempts + 1 } else { 1 };
        self.number = number;
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
        self.attempts >= READ_ATTEMPTS
    }

    /// Its bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}
