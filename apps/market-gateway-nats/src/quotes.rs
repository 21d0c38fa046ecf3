//! The latest quotes, each on a subject of its own. Between two rounds only the last one of each
//! counts.

use market_ring::{Conflated, RingReader};

use crate::connection::Connection;

/// Quotes as they were sent last, so that all can be sent again after an outage.
#[derive(Debug, Default)]
pub(crate) struct Quotes {
    sent: Vec<Option<Latest>>,
}

#[derive(Debug)]
struct Latest {
    subject: String,
    payload: Vec<u8>,
    merged: u64,
    is_sent: bool,
}

impl Quotes {
    /// Takes over what has changed.
    pub(crate) fn read(&mut self, ring: &mut RingReader, venue: &str) {
        self.sent.resize_with(ring.quotes(), || None);
        ring.read_quotes(|idx, Conflated { quote, merged }| {
            let payload = quote.to_bytes().to_vec();
            match &mut self.sent[idx] {
                Some(latest) => {
                    let unsent = if latest.is_sent { 0 } else { latest.merged + 1 };
                    (latest.payload, latest.merged, latest.is_sent) = (payload, merged + unsent, false);
                }
                empty => {
                    let subject = format!("md.{venue}.{}.quote.{}", quote.channel, token(&quote.symbol.0));
                    *empty = Some(Latest { subject, payload, merged, is_sent: false });
                }
            }
        });
    }

    /// All are to be sent again.
    pub(crate) fn forget(&mut self) {
        self.sent.iter_mut().flatten().for_each(|latest| latest.is_sent = false);
    }

    /// Queues what has changed; the broker acknowledges each on `reply`. Returns how many.
    pub(crate) fn send(&mut self, connection: &mut Connection, reply: &str) -> u64 {
        let mut count = 0;
        for latest in self.sent.iter_mut().flatten().filter(|latest| !latest.is_sent) {
            let merged = latest.merged.to_string();
            connection.publish(&latest.subject, reply, &[("Wp-Merged", &merged)], &latest.payload);
            (latest.is_sent, count) = (true, count + 1);
        }
        count
    }
}

/// A symbol as a token of a subject: letters and digits stay, others are `_` and two hexadecimal
/// digits, because dots, stars and spaces have a meaning there.
fn token(symbol: &[u8]) -> String {
    let mut token = String::new();
    for &byte in symbol.trim_ascii_end() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' => token.push(char::from(byte)),
            other => token.push_str(&format!("_{other:02x}")),
        }
    }
    if token.is_empty() { "_".to_owned() } else { token }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_have_no_byte_that_a_subject_gives_a_meaning_to() {
        assert_eq!(
            [&b"AAPL    "[..], b"BRK.B   ", b"A>*     ", b"        "].map(token),
            ["AAPL", "BRK_2eB", "A_3e_2a", "_"]
        );
    }
}
