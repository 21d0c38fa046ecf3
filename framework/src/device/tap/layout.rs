//! The shared file of a tapped queue, version 2, in words of 64 bits in host byte order.
//!
//! ```text
//! word 0     the writer: magic, version, process, queue, length of the ring, names
//! word 32    written by listeners: the beat of one, and the bytes requested of a frame
//! word 48    written by the worker: positions of the ring
//! word 64    marks: where a record begins in each 64th of the ring
//! word 128   the ring, a power of two of words: one record after the other, see `ring.rs`;
//!            without blocks until a listener allocates them, before its first beat
//! ```
//!
//! Words of different writers are two cache lines apart: x86 fetches lines in pairs.

use crate::counters::{Content, read_text, store_text};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// The first eight bytes of the file.
const MAGIC: u64 = Content::Frames.magic();
/// Raised with any change that an old listener would misread.
const VERSION: u64 = 2;

/// Longest name of an application or a device in bytes; a longer one is truncated.
const NAME_MAX: usize = 64;
/// Most words of a ring that a listener accepts: 1 GiB.
const RING_WORDS_MAX: u64 = 1 << 27;

const PID: usize = 2;
const STARTED: usize = 3;
const QUEUE: usize = 4;
const RING_WORDS: usize = 5;
const APP_LEN: usize = 6;
const DEVICE_LEN: usize = 7;
const APP: usize = 8;
const DEVICE: usize = 16;

/// Time of the last beat, in nanoseconds since the Unix epoch, written by a listener; zero without
/// one.
pub(super) const HEARTBEAT: usize = 32;
/// Maximum bytes of a frame that listeners request.
pub(super) const SNAP: usize = 33;

/// The last beat that the worker has read; zero while it records nothing.
pub(super) const HEARTBEAT_SEEN: usize = 48;
/// The ring position up to which words may be changing.
pub(super) const CLAIMED: usize = 49;
/// The ring position up to which records are whole.
pub(super) const WRITTEN: usize = 50;
/// Frames received and sent before the position `WRITTEN`.
pub(super) const RX_FRAMES: usize = 51;
pub(super) const TX_FRAMES: usize = 52;

pub(super) const MARKS: usize = 64;
pub(super) const MARKS_LEN: usize = 64;
/// The first word of the ring.
pub(super) const RING: usize = 128;

/// The queue that the tap belongs to, and its ring length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) app: String,
    pub(super) pid: u32,
    pub(super) started_ns: u64,
    pub(super) device: String,
    pub(super) queue: u16,
    pub(super) ring_words: u64,
}

impl Identity {
    /// Writes it into the first words of a new file.
    pub(super) fn store(&self, words: &[AtomicU64]) {
        let (app, device) = (cut(&self.app), cut(&self.device));
        let fields = [
            (0, MAGIC),
            (1, VERSION),
            (PID, self.pid.into()),
            (STARTED, self.started_ns),
            (QUEUE, self.queue.into()),
            (RING_WORDS, self.ring_words),
            (APP_LEN, app.len() as u64),
            (DEVICE_LEN, device.len() as u64),
        ];
        for (word, value) in fields {
            words[word].store(value, Relaxed);
        }
        store_text(&words[APP..], app);
        store_text(&words[DEVICE..], device);
    }

    /// Reads it from the first words of a file of `file_words` that may hold anything; or returns
    /// the error in it.
    pub(super) fn read(words: &[u64; RING], file_words: u64) -> Result<Self, &'static str> {
        if words[0] != MAGIC {
            return Err("it is not the tap of a wirepath queue");
        }
        if words[1] != VERSION {
            return Err("it is of another version of wirepath: use the tool that came with the process");
        }
        let ring_words = words[RING_WORDS];
        if !ring_words.is_power_of_two() || ring_words > RING_WORDS_MAX || file_words != RING as u64 + ring_words {
            return Err("its length is not what it says");
        }
        let name = |at: usize, len: usize| {
            let text = read_text(&words[at..], words[len], NAME_MAX)?;
            // It will be printed on an operator's terminal.
            (!text.is_empty() && !text.contains(char::is_control)).then_some(text)
        };
        let (Some(app), Some(device)) = (name(APP, APP_LEN), name(DEVICE, DEVICE_LEN)) else {
            return Err("its names are damaged");
        };
        let (Ok(pid), Ok(queue)) = (u32::try_from(words[PID]), u16::try_from(words[QUEUE])) else {
            return Err("its numbers are damaged");
        };
        Ok(Self { app, pid, started_ns: words[STARTED], device, queue, ring_words })
    }
}

fn cut(name: &str) -> &str {
    &name[..name.floor_char_boundary(NAME_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity {
            app: "feed-handler".into(),
            pid: 4_711,
            started_ns: 5,
            device: "eth1".into(),
            queue: 3,
            ring_words: 64,
        }
    }

    fn stored(identity: &Identity) -> [u64; RING] {
        let words: Vec<_> = (0..RING).map(|_| AtomicU64::new(0)).collect();
        identity.store(&words);
        core::array::from_fn(|idx| words[idx].load(Relaxed))
    }

    #[test]
    fn damage_is_told_and_never_believed() {
        let check = |at: usize, value: u64, expected: &str| {
            let mut words = stored(&identity());
            words[at] = value;
            let reported = Identity::read(&words, RING as u64 + 64).unwrap_err();
            assert!(reported.contains(expected), "word {at} = {value}: {reported}");
        };
        check(0, 0, "not the tap");
        check(1, 1, "version");
        check(RING_WORDS, 63, "length");
        check(RING_WORDS, 128, "length");
        check(RING_WORDS, 1 << 62, "length");
        check(APP_LEN, 0, "names");
        check(APP_LEN, u64::MAX, "names");
        check(DEVICE, u64::from_ne_bytes([0x1b; 8]), "names");
        check(PID, 1 << 32, "numbers");
        check(QUEUE, 1 << 16, "numbers");
    }

    #[test]
    fn identity_comes_back_with_long_names_cut() {
        assert_eq!(Identity::read(&stored(&identity()), RING as u64 + 64), Ok(identity()));
        let long = Identity { device: "ä".repeat(100), ..identity() };
        let read = Identity::read(&stored(&long), RING as u64 + 64).unwrap();
        assert_eq!(read.device, "ä".repeat(32));
    }
}
