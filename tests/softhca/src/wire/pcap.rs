//! A capture as a cable: arriving frames are read from one file, sent frames are written to
//! another. Classic pcap, both byte orders, microseconds or nanoseconds; times are not replayed,
//! the frames come as fast as the NIC takes them.
//!
//! <https://datatracker.ietf.org/doc/html/draft-ietf-opsawg-pcap>

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use super::FRAME_LEN_MAX;
use super::port::Cable;
use crate::hca::LinkState;

/// First word of a file with microseconds, as its writer stores it; and with nanoseconds.
const MAGIC_MICROSECONDS: u32 = 0xa1b2_c3d4;
const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const FILE_HEADER_LEN: usize = 24;
const RECORD_HEADER_LEN: usize = 16;
const LINKTYPE_ETHERNET: u32 = 1;
/// Bytes that are written at once: one system call for some hundred small frames.
const BUFFERED_LEN: usize = 64 * 1024;

/// Two files as a cable.
#[derive(Debug, Default)]
pub struct Pcap {
    replay: Option<Replay>,
    record: Option<Record>,
    started: bool,
}

#[derive(Debug)]
struct Replay {
    bytes: Vec<u8>,
    at: usize,
    big_endian: bool,
    broken: u64,
}

#[derive(Debug)]
struct Record {
    file: File,
    buffered: Vec<u8>,
    failed: u64,
}

impl Pcap {
    /// Reads `replay` whole, begins `record`. Either may be missing.
    ///
    /// # Errors
    /// One sentence: a file cannot be read or written, or is not a capture of Ethernet frames.
    pub fn open(replay: Option<&Path>, record: Option<&Path>) -> Result<Self, String> {
        let replay = replay.map(|path| {
            let bytes = fs::read(path).map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
            Replay::new(bytes).map_err(|why| format!("{} {why}", path.display()))
        });
        let record = record.map(|path| {
            let file = File::create(path);
            file.map(Record::new).map_err(|error| format!("{} cannot be written: {error}", path.display()))
        });
        Ok(Self { replay: replay.transpose()?, record: record.transpose()?, started: false })
    }
}

impl Cable for Pcap {
    fn send(&mut self, frame: &[u8]) -> bool {
        if let Some(record) = &mut self.record {
            record.add(frame);
        }
        true
    }

    fn receive(&mut self, frame: &mut Vec<u8>) -> bool {
        frame.clear();
        let replay = self.replay.as_mut().filter(|_| self.started);
        let next = replay.and_then(Replay::next);
        next.inspect(|next| frame.extend_from_slice(next)).is_some()
    }

    fn link(&self) -> LinkState {
        LinkState::Up
    }

    fn tend(&mut self, _now_ns: u64) {
        if let Some(record) = &mut self.record {
            record.flush();
        }
    }

    fn awaits_start(&self) -> bool {
        self.replay.is_some() && !self.started
    }

    fn start(&mut self) {
        self.started = true;
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let broken = self.replay.as_ref().map_or(0, |replay| replay.broken);
        let failed = self.record.as_ref().map_or(0, |record| record.failed);
        vec![("wire_capture_broken", broken), ("wire_record_failed", failed)]
    }
}

impl Replay {
    fn new(bytes: Vec<u8>) -> Result<Self, &'static str> {
        let replay = Self { bytes, at: FILE_HEADER_LEN, big_endian: false, broken: 0 };
        let magic = replay.word(0).ok_or("is empty")?;
        let is_known = |magic| magic == MAGIC_MICROSECONDS || magic == MAGIC_NANOSECONDS;
        let replay = match magic {
            magic if is_known(magic) => replay,
            magic if is_known(magic.swap_bytes()) => Self { big_endian: true, ..replay },
            _ => return Err("is not a classic pcap file; pcapng is converted by editcap -F pcap"),
        };
        match replay.word(20) {
            Some(kind) if kind & 0xffff == LINKTYPE_ETHERNET => Ok(replay),
            Some(_) => Err("does not hold Ethernet frames"),
            None => Err("ends within its header"),
        }
    }

    fn next(&mut self) -> Option<&[u8]> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let start = self.at + RECORD_HEADER_LEN;
        let len = self.word(self.at + 8).map_or(usize::MAX, |len| len as usize);
        if len > FRAME_LEN_MAX || self.bytes.len() < start + len {
            // The start of the next record is unknown.
            (self.at, self.broken) = (self.bytes.len(), self.broken + 1);
            return None;
        }
        self.at = start + len;
        self.bytes.get(start..start + len)
    }

    fn word(&self, at: usize) -> Option<u32> {
        let bytes = *self.bytes.get(at..)?.first_chunk()?;
        Some(if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }
}

impl Record {
    fn new(file: File) -> Self {
        let mut buffered = Vec::with_capacity(BUFFERED_LEN + FRAME_LEN_MAX);
        // Version 2.4, times in UTC, as long as any frame.
        for word in [MAGIC_NANOSECONDS, 2 | 4 << 16, 0, 0, 0x4_0000, LINKTYPE_ETHERNET] {
            buffered.extend_from_slice(&word.to_le_bytes());
        }
        Self { file, buffered, failed: 0 }
    }

    fn add(&mut self, frame: &[u8]) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        for word in [now.as_secs() as u32, now.subsec_nanos(), frame.len() as u32, frame.len() as u32] {
            self.buffered.extend_from_slice(&word.to_le_bytes());
        }
        self.buffered.extend_from_slice(frame);
        if self.buffered.len() >= BUFFERED_LEN {
            self.flush();
        }
    }

    /// Not done on drop, because a forked child would write its parent's frames.
    fn flush(&mut self) {
        if !self.buffered.is_empty() {
            self.failed += u64::from(self.file.write_all(&self.buffered).is_err());
            self.buffered.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capture(words: impl Fn(u32) -> [u8; 4], magic: u32, kind: u32, frames: &[&[u8]]) -> Vec<u8> {
        let header = [magic, 0, 0, 0, 0xffff, kind];
        let mut bytes: Vec<u8> = header.into_iter().flat_map(&words).collect();
        for frame in frames {
            bytes.extend([1, 2, frame.len() as u32, frame.len() as u32].into_iter().flat_map(&words));
            bytes.extend_from_slice(frame);
        }
        bytes
    }

    fn frames(bytes: Vec<u8>) -> (Vec<Vec<u8>>, u64) {
        let mut replay = Replay::new(bytes).unwrap();
        let frames = std::iter::from_fn(|| replay.next().map(<[u8]>::to_vec)).collect();
        (frames, replay.broken)
    }

    #[test]
    fn what_is_no_capture_of_ethernet_is_refused() {
        let check = |bytes: &[u8], expected: &str| {
            let why = Replay::new(bytes.to_vec()).unwrap_err();
            assert!(why.contains(expected), "{why}");
        };
        check(b"", "empty");
        check(&0x0a0d_0d0au32.to_le_bytes(), "pcapng");
        check(&MAGIC_MICROSECONDS.to_le_bytes(), "ends within");
        check(&capture(u32::to_le_bytes, MAGIC_MICROSECONDS, 113, &[]), "Ethernet");
    }

    #[test]
    fn capture_that_breaks_off_gives_what_is_whole() {
        let whole = capture(u32::to_le_bytes, MAGIC_MICROSECONDS, 1, &[&[1; 60], &[2; 60]]);
        for len in FILE_HEADER_LEN + 76 + 1..whole.len() {
            assert_eq!(frames(whole[..len].to_vec()), (vec![vec![1; 60]], 1), "{len}");
        }
        assert_eq!(frames(whole), (vec![vec![1; 60], vec![2; 60]], 0));
    }

    #[test]
    fn both_byte_orders_and_both_resolutions_are_read() {
        for magic in [MAGIC_MICROSECONDS, MAGIC_NANOSECONDS] {
            assert_eq!(frames(capture(u32::to_le_bytes, magic, 1, &[&[3; 61]])).0, [vec![3; 61]]);
            assert_eq!(frames(capture(u32::to_be_bytes, magic, 1, &[&[3; 61]])).0, [vec![3; 61]]);
        }
    }

    #[test]
    fn what_was_recorded_is_replayed_once_started() {
        let path = std::env::temp_dir().join(format!("softhca-pcap-{}", std::process::id()));
        let mut recorded = Pcap::open(None, Some(&path)).unwrap();
        assert!(recorded.send(&[5; 64]) && recorded.send(&[6; 1514]));
        recorded.tend(0);
        let mut replayed = Pcap::open(Some(&path), None).unwrap();
        fs::remove_file(&path).unwrap();
        let mut frame = Vec::new();
        assert!(!replayed.receive(&mut frame));
        replayed.start();
        assert!(replayed.receive(&mut frame) && frame == [5; 64]);
        assert!(replayed.receive(&mut frame) && frame == [6; 1514]);
        assert!(!replayed.receive(&mut frame));
    }

    #[test]
    fn file_that_is_not_there_is_named() {
        let error = Pcap::open(Some(Path::new("/nowhere/day.pcap")), None).unwrap_err();
        assert!(error.starts_with("/nowhere/day.pcap cannot be read"), "{error}");
    }
}
