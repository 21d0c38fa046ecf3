//! An echo, and its path: kernel sockets, or a queue of our own.

use std::net::Ipv4Addr;

use wirepath::time::Instant;

/// Bytes of the sequence number at the start of every echo.
pub(super) const SEQUENCE_LEN: usize = 8;
/// The longest echo that one IPv4 packet takes: 65,535 less 20 and 8.
pub(super) const DATA_LEN_MAX: usize = 65_507;

/// A path for echoes.
pub(super) trait Path {
    /// Its name: `veth0` or `kernel`.
    fn name(&self) -> &str;

    /// Its description, for the first line.
    fn describe(&self) -> String;

    /// Facts that are no errors but may surprise.
    fn notices(&self) -> Vec<String> {
        Vec::new()
    }

    /// Sends echo `sequence` with these bytes.
    ///
    /// # Errors
    /// Why it could not be sent, in words.
    fn send_request(&mut self, sequence: u64, data: &[u8], now: Instant) -> Result<(), String>;

    /// Receives replies. Where there are none, it may wait until `until`; the accuracy depends on
    /// the path.
    fn listen(&mut self, now: Instant, until: Instant, received: &mut Vec<Received>);
}

/// The target of echoes, and their form.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) address: Ipv4Addr,
    /// The port of a UDP echo server; `None` for ICMP.
    pub(super) udp: Option<u16>,
    pub(super) payload: EchoPayload,
    /// Whether to keep the core while nothing arrives.
    pub(super) spins: bool,
}

/// A received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// The reply to an echo.
    Answer {
        sequence: u64,
        /// Its remaining TTL, where that is known.
        ttl: Option<u8>,
    },
    /// A reply with other bytes than were sent.
    Damaged,
    /// An error: there will be no reply.
    Refused(Refusal),
}

/// The sender of an error, and its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) reporter: Ipv4Addr,
    pub(super) why: &'static str,
}

/// The payload of echoes: a sequence number, then a pattern that is the same in all of them.
#[derive(Clone)]
pub(super) struct EchoPayload {
    bytes: Vec<u8>,
}

impl EchoPayload {
    /// `len` bytes, with at least a sequence number.
    pub(super) fn new(len: usize) -> Self {
        assert!((SEQUENCE_LEN..=DATA_LEN_MAX).contains(&len), "the options allow no other length");
        // As ping has it: each byte is its own index.
        Self { bytes: (0..len).map(|place| place as u8).collect() }
    }

    /// Bytes of an echo.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes of echo `sequence`.
    pub(super) fn write(&mut self, sequence: u64) -> &[u8] {
        self.bytes[..SEQUENCE_LEN].copy_from_slice(&sequence.to_be_bytes());
        &self.bytes
    }

    /// The class of a reply with these bytes.
    pub(super) fn read(&self, data: &[u8], ttl: Option<u8>) -> Received {
        let Some((sequence, pattern)) = data.split_first_chunk() else { return Received::Damaged };
        if pattern != &self.bytes[SEQUENCE_LEN..] {
            return Received::Damaged;
        }
        Received::Answer { sequence: u64::from_be_bytes(*sequence), ttl }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_with_other_bytes_is_damaged() {
        let mut payload = EchoPayload::new(12);
        let good = payload.write(77).to_vec();
        assert_eq!(payload.read(&good, Some(64)), Received::Answer { sequence: 77, ttl: Some(64) });
        let mut wrong = good.clone();
        wrong[11] ^= 1;
        for bytes in [&wrong[..], &good[..11], &good[..3], &[]] {
            assert_eq!(payload.read(bytes, None), Received::Damaged);
        }
    }
}
