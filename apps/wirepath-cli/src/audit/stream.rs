//! The bytes of one direction, cut into messages.

use order_entry::audit::Direction;

use super::protocol::{AuditProtocol, Next};

/// What was read of a message whose end is still to come.
pub(super) struct Stream {
    protocol: AuditProtocol,
    direction: Direction,
    bytes: Vec<u8>,
}

impl Stream {
    pub(super) const fn new(protocol: AuditProtocol, direction: Direction) -> Self {
        Self { protocol, direction, bytes: Vec::new() }
    }

    /// Whether a call that wrote `bytes` began a connection.
    pub(super) fn is_login(&self, bytes: &[u8]) -> bool {
        self.protocol.is_login(bytes)
    }

    /// Gives each whole message to `show`. What is none ends the reading of these bytes, where the
    /// protocol does not say where the next one begins: the next call begins anew.
    pub(super) fn take<E>(&mut self, bytes: &[u8], mut show: impl FnMut(&str) -> Result<(), E>) -> Result<(), E> {
        self.bytes.extend_from_slice(bytes);
        loop {
            match self.protocol.next(&self.bytes) {
                Next::Incomplete => return Ok(()),
                Next::Message { len, text } => {
                    show(&text)?;
                    self.bytes.drain(..len);
                }
                Next::Garbled { len } => {
                    show(&self.unread(&self.bytes[..len]))?;
                    self.bytes.drain(..len);
                }
                Next::Unknown => return self.rest(show),
            }
        }
    }

    /// Shows what has no end, and forgets it.
    pub(super) fn rest<E>(&mut self, mut show: impl FnMut(&str) -> Result<(), E>) -> Result<(), E> {
        let rest = std::mem::take(&mut self.bytes);
        if rest.is_empty() { Ok(()) } else { show(&self.unread(&rest)) }
    }

    /// What is said of bytes that are no message. Those of the client may be a part of its login,
    /// wherever that was cut.
    fn unread(&self, bytes: &[u8]) -> String {
        match self.direction {
            Direction::Out => format!("no whole message: {} bytes, which may have a password", bytes.len()),
            _ => format!("no whole message: {}", bytes.escape_ascii()),
        }
    }
}
