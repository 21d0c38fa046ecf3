//! Client ids as the identifiers of orders (ClOrdID) of Cboe and CME: their decimal digits, padded
//! with zeros.

use crate::Text;

/// The identifier of a client id: its decimal digits.
pub(crate) fn text_of(id: u64) -> Text<20> {
    let (mut digits, mut rest, mut first) = ([0; 20], id, 20);
    loop {
        first -= 1;
        // A digit is below 10.
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    digits.copy_within(first.., 0);
    digits[20 - first..].fill(0);
    Text(digits)
}

/// The client id of an identifier; 0, which is none, where no process of ours has written it.
pub(crate) fn id_of(text: &Text<20>) -> u64 {
    let digits = text.trimmed();
    let number = digits.iter().try_fold(0u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    });
    number.filter(|id| text_of(*id) == padded(digits)).unwrap_or(0)
}

fn padded(digits: &[u8]) -> Text<20> {
    let mut padded = [0; 20];
    padded[..digits.len()].copy_from_slice(digits);
    Text(padded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifier_of_each_id_leads_back_to_it() {
        for id in [1, 9, 10, 12_345, u64::MAX] {
            assert_eq!(id_of(&text_of(id)), id);
        }
        assert_eq!(text_of(120).trimmed(), b"120");
    }

    #[test]
    fn identifier_that_no_process_of_ours_has_written_is_no_id() {
        for text in ["", "007", "A1", "1 2", "99999999999999999999"] {
            assert_eq!(id_of(&Text::zero_padded(text).unwrap()), 0, "{text}");
        }
    }
}
