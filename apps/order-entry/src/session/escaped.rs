//! Bytes of the peer as text for a terminal or a log.

use core::fmt;

/// Displays bytes with everything but printable ASCII escaped, so that text of the peer cannot
/// command a terminal or forge a line of a log.
#[derive(Clone, Copy)]
pub struct Escaped<'a>(pub &'a [u8]);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.escape_ascii().fmt(f)
    }
}

impl fmt::Debug for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_and_line_ends_are_shown() {
        assert_eq!(Escaped(b"\x1b[2J a\n\xff").to_string(), "\\x1b[2J a\\n\\xff");
    }
}
