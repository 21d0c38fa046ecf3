//! A Logout that says that a number of ours was used before.

use crate::fix::codec::parse_number;

/// Whether the text (58) of a Logout says that our number is lower than the next: then the number
/// that it names as the next, where it names one. FIX has no field for either, and prescribes the
/// words "MsgSeqNum too low, expecting X but received Y"; venues vary them, so any words count that
/// call a number low, or an expected one.
pub(in crate::fix) fn too_low(text: &[u8]) -> Option<Option<u64>> {
    let text = text.to_ascii_lowercase();
    let is_of_numbers = [&b"seq"[..], b"sequence"].iter().any(|word| find(&text, word).is_some());
    let expected = find(&text, b"expect").and_then(|at| first_number(&text[at..]));
    let received = find(&text, b"received").and_then(|at| first_number(&text[at..]));
    let is_low =
        [&b"too low"[..], b"toolow", b"lower than", b"less than"].iter().any(|word| find(&text, word).is_some());
    let is_lower = expected.zip(received).is_some_and(|(expected, received)| received < expected);
    (is_of_numbers && (is_low || is_lower)).then_some(expected)
}

fn find(text: &[u8], word: &[u8]) -> Option<usize> {
    text.windows(word.len()).position(|window| window == word)
}

/// The first digits of `text` as a number.
fn first_number(text: &[u8]) -> Option<u64> {
    let text = &text[text.iter().position(u8::is_ascii_digit)?..];
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    parse_number(&text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_engines_and_venues_name_the_next_number() {
        for text in [
            "MsgSeqNum too low, expecting 57 but received 12",
            "MsgSeqNum(34) too low: expected 57, received 12",
            "Sequence number received 12 lower than expected 57",
            "Incorrect sequence number; expected 57 received 12",
        ] {
            assert_eq!(too_low(text.as_bytes()), Some(Some(57)), "{text}");
        }
        assert_eq!(too_low(b"SeqNum too low"), Some(None));
    }

    #[test]
    fn other_words_say_nothing_of_used_numbers() {
        for text in ["wrong password", "price too low", "MsgSeqNum too high, expecting 12 but received 57", ""] {
            assert_eq!(too_low(text.as_bytes()), None, "{text}");
        }
    }
}
