//! Finds where a message ends in a stream of bytes.
//!
//! BodyLength (9) says where the trailer stands. Where it does not stand there the message is
//! garbled, and the stream is taken up again behind the first trailer that is found, so that a
//! wrong length costs one message and not the next ones.

use super::SOH;
use super::digits;
use super::index::Garbled;
use super::scan::{BLOCK_LEN, soh_bits};

/// The longest message that is read: a field's place is kept in 16 bits.
pub const MESSAGE_LEN_MAX: usize = 65_535;

/// Bytes of `10=123` and its SOH.
pub(super) const TRAILER_LEN: usize = 7;

/// Bytes of a BeginString's value: FIXT.1.1 has 8.
const BEGIN_STRING_LEN_MAX: usize = 8;

/// What the front of a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// The beginning of a message: more bytes are needed.
    Incomplete,
    /// The first `len` bytes are one message, as its length and the place of its trailer say.
    Message {
        /// Bytes from `8=` to the last SOH.
        len: usize,
    },
    /// The first `len` bytes are no message. The next is looked for behind them.
    Garbled {
        /// Bytes to leave out, 1 at least.
        len: usize,
        /// What is wrong with them.
        reason: Garbled,
    },
}

/// Looks at the front of `bytes`. A message is at most `len_max` bytes long, and never longer than
/// [`MESSAGE_LEN_MAX`]. Some 10 ns for a message; garbled bytes are searched once for each call, so
/// a caller reads until it gets [`Frame::Incomplete`].
pub fn frame(bytes: &[u8], len_max: usize) -> Frame {
    let len_max = len_max.min(MESSAGE_LEN_MAX);
    let head = match Head::of_block(bytes).map_or_else(|| Head::parse(bytes), |head| Ok(Some(head))) {
        Ok(Some(head)) => head,
        Ok(None) => return Frame::Incomplete,
        Err(reason) => return resume(bytes, len_max, reason),
    };
    let len = head.body_at + head.body_len + TRAILER_LEN;
    if len > len_max {
        return resume(bytes, len_max, Garbled::TooLong);
    }
    let Some(message) = bytes.get(..len) else { return Frame::Incomplete };
    if is_trailer(&message[len - TRAILER_LEN - 1..]) {
        Frame::Message { len }
    } else {
        resume(bytes, len_max, Garbled::BodyLength)
    }
}

/// BeginString and BodyLength, which each message begins with.
#[derive(Clone, Copy, Debug)]
struct Head {
    /// Where MsgType begins.
    body_at: usize,
    /// BodyLength.
    body_len: usize,
}

impl Head {
    /// The head of a message of 64 bytes or more, as nearly all are. `None` says nothing.
    #[inline(always)]
    fn of_block(bytes: &[u8]) -> Option<Self> {
        let block: &[u8; BLOCK_LEN] = bytes.first_chunk()?;
        let soh = soh_bits(block, 0);
        let begin_end = soh.trailing_zeros() as usize;
        let length_end = (soh & soh.wrapping_sub(1)).trailing_zeros() as usize;
        let digit_count = length_end.wrapping_sub(begin_end + 3);
        let is_head = block[..2] == *b"8=" && begin_end <= 2 + BEGIN_STRING_LEN_MAX && (1..=8).contains(&digit_count);
        let rest: &[u8; 11] = block.get(begin_end..)?.first_chunk()?;
        if !is_head || rest[..3] != *b"\x019=" {
            return None;
        }
        let digits: [u8; 8] = *rest.last_chunk()?;
        let body_len = digits::parse8(u64::from_le_bytes(digits), digit_count)? as usize;
        Some(Self { body_at: length_end + 1, body_len })
    }

    /// `None` where `bytes` end too soon.
    fn parse(bytes: &[u8]) -> Result<Option<Self>, Garbled> {
        if !begins(bytes, b"8=") {
            return Err(Garbled::BeginString);
        }
        let Some(begin_len) = find_soh(bytes, 2, BEGIN_STRING_LEN_MAX) else {
            return incomplete_below(bytes, 2 + BEGIN_STRING_LEN_MAX + 1, Garbled::BeginString);
        };
        let begin_end = 2 + begin_len;
        let rest = bytes.get(begin_end + 1..).unwrap_or(&[]);
        if !begins(rest, b"9=") {
            return Err(Garbled::BodyLength);
        }
        // Five digits have all lengths, and three more are leading zeros.
        let Some(digit_count) = find_soh(rest, 2, 8) else {
            return incomplete_below(rest, 2 + 8 + 1, Garbled::BodyLength);
        };
        let body_len = rest.get(2..2 + digit_count).and_then(digits::parse).ok_or(Garbled::BodyLength)?;
        Ok(Some(Self { body_at: begin_end + 1 + 2 + digit_count + 1, body_len: body_len as usize }))
    }
}

/// Whether `bytes`, or as many of them as there are, begin with `wanted`.
fn begins(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.iter().zip(wanted).all(|(found, wanted)| found == wanted)
}

fn find_soh(bytes: &[u8], at: usize, len_max: usize) -> Option<usize> {
    bytes.get(at..)?.iter().take(len_max + 1).position(|byte| *byte == SOH)
}

fn incomplete_below(bytes: &[u8], len: usize, reason: Garbled) -> Result<Option<Head>, Garbled> {
    if bytes.len() < len { Ok(None) } else { Err(reason) }
}

/// Whether `bytes` begin with the SOH before a trailer and the trailer.
fn is_trailer(bytes: &[u8]) -> bool {
    matches!(bytes, [SOH, b'1', b'0', b'=', a, b, c, SOH, ..] if [a, b, c].iter().all(|digit| digit.is_ascii_digit()))
}

/// Leaves out what is garbled: up to a trailer, else up to the next beginning, else all once it is
/// too long for a message.
#[cold]
fn resume(bytes: &[u8], len_max: usize, reason: Garbled) -> Frame {
    let places = bytes.windows(TRAILER_LEN + 1).enumerate();
    for (at, window) in places {
        if is_trailer(window) {
            return Frame::Garbled { len: at + window.len(), reason };
        }
        if at > 0 && window.starts_with(b"8=FIX") {
            return Frame::Garbled { len: at, reason };
        }
    }
    if bytes.len() >= len_max {
        return Frame::Garbled { len: bytes.len(), reason };
    }
    Frame::Incomplete
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &[u8] = b"8=FIX.4.4\x019=5\x0135=0\x0110=163\x01";

    fn garbled(text: &[u8]) -> (usize, Garbled) {
        match frame(text, 4096) {
            Frame::Garbled { len, reason } => (len, reason),
            other => panic!("{other:?} of {}", text.escape_ascii()),
        }
    }

    #[test]
    fn message_ends_where_its_length_says() {
        let two = [WHOLE, WHOLE].concat();
        assert_eq!(frame(&two, 4096), Frame::Message { len: WHOLE.len() });
    }

    #[test]
    fn each_part_of_a_message_is_incomplete() {
        for len in 0..WHOLE.len() {
            assert_eq!(frame(&WHOLE[..len], 4096), Frame::Incomplete, "{len}");
        }
    }

    #[test]
    fn wrong_length_costs_one_message() {
        let short = b"8=FIX.4.4\x019=3\x0135=0\x0110=163\x01";
        let two = [short, WHOLE].concat();
        assert_eq!(garbled(&two), (short.len(), Garbled::BodyLength));
        let long = b"8=FIX.4.4\x019=30\x0135=0\x0110=163\x01";
        let two = [long, WHOLE].concat();
        assert_eq!(garbled(&two), (long.len(), Garbled::BodyLength));
    }

    #[test]
    fn length_beyond_the_longest_message_is_not_waited_for() {
        let long = b"8=FIX.4.4\x019=99999\x0135=0\x0110=163\x01";
        assert_eq!(garbled(long), (long.len(), Garbled::TooLong));
        assert_eq!(garbled(b"8=FIX.4.4\x019=4x\x0135=0\x0110=163\x01"), (long.len() - 3, Garbled::BodyLength));
    }

    #[test]
    fn bytes_before_a_beginning_are_left_out() {
        assert_eq!(garbled(&[b"noise", WHOLE].concat()), (5, Garbled::BeginString));
        assert_eq!(frame(b"noise", 4096), Frame::Incomplete);
        assert_eq!(frame(&[b'x'; 64], 64), Frame::Garbled { len: 64, reason: Garbled::BeginString });
    }
}
