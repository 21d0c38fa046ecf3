//! Messages: what one block of MoldUDP64 carries. A letter, and words of eight bytes, little-endian
//! as in the ring.
//!
//! - `R`, a record: its number in the ring (8 bytes), and its 120 bytes
//! - `M`, records that the ring had overwritten, or that are older than the publisher: the numbers
//!   of the first and the last (16 bytes)
//! - `W`: the ring's writer was killed, and nothing follows

use market_ring::Record;

/// Bytes of the longest message.
pub const MESSAGE_LEN_MAX: usize = 1 + 8 + Record::LEN;

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// An event.
    Record {
        /// Its number in the ring.
        seq: u64,
        /// The record.
        record: Record,
    },
    /// Records that are not to be had.
    Missed {
        /// The number of the first in the ring.
        first: u64,
        /// And of the last.
        last: u64,
    },
    /// The ring's writer was killed.
    WriterGone,
}

/// Bytes that are no message that is known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageError {
    /// A letter that no message has: the publisher is newer.
    Kind,
    /// The letter's messages have another length.
    Length,
    /// A record of a kind of event that this version does not know: of this number in the ring.
    Event(u64),
}

impl Message {
    /// Parses a message, all of whose bytes are given.
    pub fn parse(bytes: &[u8]) -> Result<Self, MessageError> {
        let Some((&kind, body)) = bytes.split_first() else { return Err(MessageError::Length) };
        match kind {
            b'R' => {
                let (seq, record) = body.split_first_chunk().ok_or(MessageError::Length)?;
                let (seq, record) = (u64::from_le_bytes(*seq), exactly(record)?);
                Ok(Self::Record { seq, record: Record::from_bytes(record).ok_or(MessageError::Event(seq))? })
            }
            b'M' => {
                let &[first, last] = exactly::<16>(body)?.as_chunks().0 else { return Err(MessageError::Length) };
                Ok(Self::Missed { first: u64::from_le_bytes(first), last: u64::from_le_bytes(last) })
            }
            b'W' => exactly::<0>(body).map(|_| Self::WriterGone),
            _ => Err(MessageError::Kind),
        }
    }

    /// Writes the message to the front of `out`, and returns its bytes.
    pub fn emit<'a>(&self, out: &'a mut [u8; MESSAGE_LEN_MAX]) -> &'a [u8] {
        let [kind, body @ ..] = out;
        let mut len = 0;
        let mut put = |bytes: &[u8]| {
            body[len..len + bytes.len()].copy_from_slice(bytes);
            len += bytes.len();
        };
        *kind = match self {
            Self::Record { seq, record } => {
                put(&seq.to_le_bytes());
                put(&record.to_bytes());
                b'R'
            }
            Self::Missed { first, last } => {
                put(&first.to_le_bytes());
                put(&last.to_le_bytes());
                b'M'
            }
            Self::WriterGone => b'W',
        };
        &out[..1 + len]
    }
}

fn exactly<const N: usize>(bytes: &[u8]) -> Result<&[u8; N], MessageError> {
    bytes.try_into().map_err(|_| MessageError::Length)
}

#[cfg(test)]
mod tests {
    use market::event::{Event, System};
    use proptest::prelude::*;

    use super::*;

    fn messages() -> [Message; 3] {
        let record = Record::new(7, Event::System(System { code: b'O', at_ns: 9 }));
        [Message::Record { seq: 1 << 33, record }, Message::Missed { first: 3, last: 1 << 40 }, Message::WriterGone]
    }

    #[test]
    fn message_is_the_same_after_its_way_as_bytes() {
        for message in messages() {
            let mut out = [0xff; MESSAGE_LEN_MAX];
            assert_eq!(Message::parse(message.emit(&mut out)), Ok(message));
        }
    }

    #[test]
    fn message_of_another_length_is_none() {
        for message in messages() {
            let mut out = [0; MESSAGE_LEN_MAX];
            let bytes = message.emit(&mut out).to_vec();
            for len in 0..bytes.len() {
                assert_eq!(Message::parse(&bytes[..len]), Err(MessageError::Length), "{message:?} cut to {len}");
            }
            assert_eq!(Message::parse(&[&bytes[..], b"x"].concat()), Err(MessageError::Length));
        }
    }

    #[test]
    fn what_a_newer_publisher_sends_is_told_from_damage() {
        assert_eq!(Message::parse(b"Z"), Err(MessageError::Kind));
        let mut out = [0xee; MESSAGE_LEN_MAX];
        out[0] = b'R';
        assert_eq!(Message::parse(&out), Err(MessageError::Event(u64::from_le_bytes([0xee; 8]))));
    }

    proptest! {
        #[test]
        fn bytes_that_parse_are_emitted_alike(kind in prop::sample::select(&b"RMWZ"[..]), body: [u8; 128]) {
            let bytes = [&[kind], &body[..]].concat();
            for len in 0..=bytes.len() {
                let Ok(message) = Message::parse(&bytes[..len]) else { continue };
                let mut out = [0; MESSAGE_LEN_MAX];
                prop_assert_eq!(Message::parse(message.emit(&mut out)), Ok(message));
            }
        }
    }
}
