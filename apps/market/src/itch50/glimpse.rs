//! The end of a GLIMPSE snapshot. The snapshot itself is ordinary ITCH over SoupBinTCP: the
//! directory, trading states, an add for each resting order. Then this message, which no other feed
//! has, says where the live feed continues.

/// The message's type.
pub const KIND: u8 = b'G';
/// Its bytes: the type, and a number in twenty digits.
pub const LEN: usize = 21;

/// The number of the first live message that is not in the snapshot: the border is inclusive, so
/// that a receiver applies the live message of this very number. `None` where the message is no
/// end, or its number no number above 0.
pub fn parse_end(message: &[u8]) -> Option<u64> {
    let (&kind, digits) = message.split_first()?;
    if kind != KIND || message.len() != LEN {
        return None;
    }
    let digits = digits.trim_ascii();
    let number = digits.iter().try_fold(0_u64, |number, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })?;
    (number > 0).then_some(number)
}

/// Writes the end of a snapshot behind which the live feed continues with `first_live`.
pub fn emit_end(first_live: u64) -> [u8; LEN] {
    let mut message = [b' '; LEN];
    message[0] = KIND;
    let mut rest = first_live;
    for digit in message[1..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_comes_back() {
        for number in [1, 42, u64::MAX] {
            assert_eq!(parse_end(&emit_end(number)), Some(number));
        }
        assert_eq!(&emit_end(42), b"G                  42");
        assert_eq!(parse_end(b"G42                  "), Some(42), "padded on the right, as text is");
        assert_eq!(parse_end(b"G00000000000000000042"), Some(42));
    }

    #[test]
    fn what_is_no_end_is_refused() {
        for message in [&b""[..], b"G", b"G                   0", b"G                    ", b"G                  -1"] {
            assert_eq!(parse_end(message), None, "{message:?}");
        }
        assert_eq!(parse_end(b"G99999999999999999999"), None, "more than 64 bits");
        assert_eq!(parse_end(b"S                  42"), None);
        assert_eq!(parse_end(b"G                   42"), None, "a byte more");
    }
}
