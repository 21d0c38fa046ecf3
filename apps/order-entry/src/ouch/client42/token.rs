//! Tokens: a client id in 14 digits, and those of probes, which begin with a letter.

use crate::Text;

/// The greatest client id that a token has room for.
pub(super) const ID_MAX: u64 = 99_999_999_999_999;

const LEN: usize = 14;
/// The first letter of a probe's token.
const PROBE: u8 = b'P';

/// The token of a client id. Ids above [`ID_MAX`] are refused before.
pub(super) fn of_id(id: u64) -> Text<LEN> {
    Text(digits(id, 10))
}

/// The client id in a token; 0, which no order has, where it is not one of ours.
pub(crate) fn id_of(token: &Text<LEN>) -> u64 {
    let is_ours = token.0.iter().all(u8::is_ascii_digit);
    if is_ours { token.0.iter().fold(0, |id, digit| id * 10 + u64::from(digit - b'0')) } else { 0 }
}

/// The token of a probe. Thirteen digits to the base of 36 hold any number.
pub(super) fn of_probe(number: u64) -> Text<LEN> {
    let mut token = digits(number, 36);
    token[0] = PROBE;
    Text(token)
}

/// Whether the token is that of a probe, perhaps of another process.
pub(super) fn is_probe(token: &Text<LEN>) -> bool {
    token.0[0] == PROBE
}

fn digits(number: u64, base: u64) -> [u8; LEN] {
    let (mut text, mut rest) = ([b'0'; LEN], number);
    for place in text.iter_mut().rev() {
        *place = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[(rest % base) as usize];
        rest /= base;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_has_its_id_and_a_probe_has_none() {
        for id in [1, 57, ID_MAX] {
            assert_eq!((id_of(&of_id(id)), is_probe(&of_id(id))), (id, false));
        }
        assert_eq!(of_id(57).0, *b"00000000000057");
        let probe = of_probe(u64::MAX);
        assert_eq!((probe.0, id_of(&probe), is_probe(&probe)), (*b"P3W5E11264SGSF", 0, true));
    }

    #[test]
    fn token_of_another_program_is_no_order_of_ours() {
        assert_eq!(id_of(&Text::new("TOKEN").unwrap_or(Text::BLANK)), 0);
    }
}
