//! What an echo is, and what carries it: sockets of the kernel, or a queue of our own.

use std::net::Ipv4Addr;

use wirepath::time::Instant;

/// Bytes of the sequence number at the beginning of every echo.
pub(super) const SEQUENCE_LEN: usize = 8;
/// The longest echo that one IPv4 packet takes: 65,535 less 20 and 8.
pub(super) const DATA_LEN_MAX: usize = 65_507;

/// Carries echoes, one way or another.
pub(super) trait Path {
    /// The way in words: `veth0` or `kernel`.
    fn name(&self) -> &str;

    /// The way in more words, for the first line.
    fn describe(&self) -> String;

    /// What is not wrong and will surprise.
    fn notices(&self) -> Vec<String> {
        Vec::new()
    }

    /// Sends echo `sequence` with these bytes.
    ///
    /// # Errors
    /// Why it did not leave, in words.
    fn ask(&mut self, sequence: u64, data: &[u8], now: Instant) -> Result<(), String>;

    /// Takes what came. Where nothing has, it may wait until `until`; how exactly is the path's
    /// choice.
    fn listen(&mut self, now: Instant, until: Instant, heard: &mut Vec<Heard>);
}

/// Who is asked, and how.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) address: Ipv4Addr,
    /// The port of a UDP echo server; None for ICMP.
    pub(super) udp: Option<u16>,
    pub(super) letter: EchoPayload,
    /// Whether to keep the core while nothing comes.
    pub(super) spins: bool,
}

/// Something came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// The answer to an echo.
    Answer {
        sequence: u64,
        /// Hops that it had left, where that is known.
        ttl: Option<u8>,
    },
    /// An answer with other bytes than were sent.
    Damaged,
    /// Somebody says why there will be no answer.
    Refused(Refusal),
}

/// Who says that there will be no answer, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) reporter: Ipv4Addr,
    pub(super) why: &'static str,
}

/// The bytes of echoes: a sequence number, then a pattern that is the same in all of them.
#[derive(Clone)]
pub(super) struct EchoPayload {
    bytes: Vec<u8>,
}

impl EchoPayload {
    /// `len` bytes, with at least a sequence number.
    pub(super) fn new(len: usize) -> Self {
        assert!((SEQUENCE_LEN..=DATA_LEN_MAX).contains(&len), "the options allow no other length");
        // As ping has it: each byte is its own place.
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

    /// What an answer with these bytes is.
    pub(super) fn read(&self, data: &[u8], ttl: Option<u8>) -> Heard {
        let Some((sequence, pattern)) = data.split_first_chunk() else { return Heard::Damaged };
        if pattern != &self.bytes[SEQUENCE_LEN..] {
            return Heard::Damaged;
        }
        Heard::Answer { sequence: u64::from_be_bytes(*sequence), ttl }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_with_other_bytes_is_damaged() {
        let mut letter = EchoPayload::new(12);
        let good = letter.write(77).to_vec();
        assert_eq!(letter.read(&good, Some(64)), Heard::Answer { sequence: 77, ttl: Some(64) });
        let mut wrong = good.clone();
        wrong[11] ^= 1;
        for bytes in [&wrong[..], &good[..11], &good[..3], &[]] {
            assert_eq!(letter.read(bytes, None), Heard::Damaged);
        }
    }
}
