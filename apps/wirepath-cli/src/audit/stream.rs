//! The bytes of one direction, cut into messages.

use super::protocol::{AuditProtocol, Next};

/// What was read of a message whose end is still to come.
pub(super) struct Stream {
    protocol: AuditProtocol,
    bytes: Vec<u8>,
}

impl Stream {
    pub(super) const fn new(protocol: AuditProtocol) -> Self {
        Self { protocol, bytes: Vec::new() }
    }

    /// Whether a call that wrote `bytes` began a connection.
    pub(super) fn is_login(&self, bytes: &[u8]) -> bool {
        self.protocol.is_login(bytes)
    }

    /// Gives each whole message to `show`. What is none ends the reading of these bytes: it is
    /// shown as it is, and the next call begins anew.
    pub(super) fn take<E>(&mut self, bytes: &[u8], mut show: impl FnMut(&str) -> Result<(), E>) -> Result<(), E> {
        self.bytes.extend_from_slice(bytes);
        loop {
            match self.protocol.next(&self.bytes) {
                Next::Incomplete => return Ok(()),
                Next::Message { len, text } => {
                    show(&text)?;
                    self.bytes.drain(..len);
                }
                Next::Unknown => return self.rest(show),
            }
        }
    }

    /// Shows what has no end, and forgets it.
    pub(super) fn rest<E>(&mut self, mut show: impl FnMut(&str) -> Result<(), E>) -> Result<(), E> {
        let rest = std::mem::take(&mut self.bytes);
        if rest.is_empty() { Ok(()) } else { show(&format!("no whole message: {}", rest.escape_ascii())) }
    }
}
