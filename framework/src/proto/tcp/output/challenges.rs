//! Limits of challenge ACKs (RFC 5961 7): a few a second for each connection, so that an attack on
//! one connection does not use up those of another; and a total for all connections, so that we do
//! not answer a flood with a flood.
//!
//! The total limit is drawn at random for each second. An attacker who knew it could open a
//! connection, count its remaining challenges, infer the challenges of other connections, and so
//! find their sequence numbers (CVE-2016-5696).

use crate::proto::tcp::listening::secret::Secret;
use crate::proto::tcp::state::connection::{Connection, coarse_seconds};
use crate::time::Instant;

/// For one connection in a second, including answers to a repeated SYN. A restarted peer needs one.
const OF_A_CONNECTION: u16 = 10;
/// Bits of `RareTally::challenges` for the count; the others are the second, modulo 2^12: more than
/// an hour.
const COUNT: u16 = 0xf;

/// The rate limit of challenge ACKs, for all connections together (RFC 5961 7).
#[derive(Debug)]
pub(crate) struct ChallengeAckLimit {
    per_second: u32,
    second: u32,
    left: u32,
}

impl ChallengeAckLimit {
    pub(crate) fn new(per_second: u32) -> Self {
        Self { per_second, second: u32::MAX, left: 0 }
    }

    /// Takes one; false where there is none left in this second.
    #[cold]
    pub(crate) fn take(&mut self, secret: &Secret, now: Instant) -> bool {
        let second = coarse_seconds(now);
        if second != self.second {
            let fewer = secret.noise(second) % (self.per_second / 2 + 1);
            (self.second, self.left) = (second, self.per_second - fewer);
        }
        let is_there = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_there
    }
}

impl Connection {
    /// Takes one of the connection's own; false where it has none left in this second.
    #[cold]
    pub(crate) fn take_challenge(&mut self, now: Instant) -> bool {
        let second = (coarse_seconds(now) << COUNT.count_ones()) as u16;
        if self.rare_tally.challenges & !COUNT != second {
            self.rare_tally.challenges = second;
        }
        let is_there = self.rare_tally.challenges & COUNT < OF_A_CONNECTION;
        self.rare_tally.challenges += u16::from(is_there);
        is_there
    }
}
