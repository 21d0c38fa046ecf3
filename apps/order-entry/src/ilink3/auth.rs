//! The signature of a negotiation and of an establishment: HMAC-SHA256 over the canonical request,
//! its fields as text, one a line. Needed when a session or a connection begins, never for an
//! order.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::{Establish, Negotiate};
use crate::Text;

/// The secret key of a session.
#[derive(Clone)]
pub struct Key(Vec<u8>);

impl Key {
    /// The key of its text as CME hands it out, base64 with `-` and `_`, padded or not; `None`
    /// where it is no such text.
    pub fn from_base64url(text: &str) -> Option<Self> {
        let text = text.trim_end_matches('=');
        let mut key = Vec::with_capacity(text.len() * 3 / 4);
        let (mut bits, mut count) = (0u32, 0u32);
        for byte in text.bytes() {
            let digit = match byte {
                b'A'..=b'Z' => byte - b'A',
                b'a'..=b'z' => byte - b'a' + 26,
                b'0'..=b'9' => byte - b'0' + 52,
                b'-' => 62,
                b'_' => 63,
                _ => return None,
            };
            bits = bits << 6 | u32::from(digit);
            count += 6;
            if count >= 8 {
                count -= 8;
                key.push((bits >> count).to_le_bytes()[0]);
                bits &= (1 << count) - 1;
            }
        }
        // Six bits that are left over are no byte.
        (count < 6).then_some(Self(key))
    }

    /// The key of its bytes.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }

    fn sign(&self, lines: &[Line<'_>]) -> Option<[u8; 32]> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).ok()?;
        for (idx, line) in lines.iter().enumerate() {
            if idx > 0 {
                mac.update(b"\n");
            }
            match line {
                Line::Text(text) => mac.update(text),
                Line::Number(number) => {
                    let mut digits = [0; 20];
                    mac.update(decimal(*number, &mut digits));
                }
            }
        }
        Some(mac.finalize().into_bytes().into())
    }
}

impl core::fmt::Debug for Key {
    /// Without the key.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Key")
    }
}

enum Line<'a> {
    Text(&'a [u8]),
    Number(u64),
}

impl<'a, const LEN: usize> From<&'a Text<LEN>> for Line<'a> {
    fn from(text: &'a Text<LEN>) -> Self {
        Self::Text(text.trimmed())
    }
}

/// The digits of a number, at the end of `digits`.
fn decimal(number: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut rest = number;
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            return &digits[start..];
        }
    }
}

/// The signature that a negotiation must have. `None` only where the key cannot be used.
pub fn negotiate_signature(key: &Key, message: &Negotiate) -> Option<[u8; 32]> {
    key.sign(&[
        Line::Number(message.at_ns.get()),
        Line::Number(message.uuid.get()),
        (&message.session).into(),
        (&message.firm).into(),
    ])
}

/// The signature that an establishment must have. `None` only where the key cannot be used.
pub fn establish_signature(key: &Key, message: &Establish) -> Option<[u8; 32]> {
    key.sign(&[
        Line::Number(message.at_ns.get()),
        Line::Number(message.uuid.get()),
        (&message.session).into(),
        (&message.firm).into(),
        (&message.system).into(),
        (&message.system_version).into(),
        (&message.system_vendor).into(),
        Line::Number(message.next_seq.get().into()),
        Line::Number(message.keep_alive_ms.get().into()),
    ])
}
