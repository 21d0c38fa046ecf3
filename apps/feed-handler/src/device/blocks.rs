//! A plain file of ITCH messages, read in chunks and split into runs: as many whole messages as fit
//! one packet, borrowed from the buffer. It knows nothing else about packets.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use flate2::read::MultiGzDecoder;
use market::framing::Framing;
use market::framing::itch_file::ItchFile;

/// Bytes of message blocks in a frame, unless a single message is longer: an MTU of 1500 less the
/// headers of IPv4, UDP and MoldUDP64.
const BLOCKS_LEN: usize = 1500 - 20 - 8 - 20;
/// A feed does not delay a message to fill its packet: one packet spans this time at most.
const SPAN_NS: u64 = 1_000_000;
/// Bytes of a read. Holds the longest possible message with its length.
const BUFFER_LEN: usize = 1 << 18;

/// How the file ended: `Ok(None)` after its last message, `Ok(Some)` where it was truncated, `Err`
/// where it cannot be read further. The words are for the operator.
pub type FileEnding = Arc<OnceLock<Result<Option<String>, String>>>;

/// Messages for one packet, at the front of the buffer.
#[derive(Clone, Copy)]
pub(super) struct Run {
    /// Bytes, lengths included.
    pub(super) len: usize,
    /// Messages.
    pub(super) count: u16,
    /// Time of the first, ns since midnight.
    pub(super) at_ns: u64,
}

/// The file in a buffer that is filled again and again.
pub(super) struct Blocks {
    reader: Box<dyn Read + Send>,
    name: String,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// Bytes of the file before `start`.
    offset: u64,
    is_dry: bool,
    /// Time of the last message taken.
    pub(super) last_ns: u64,
    ending: FileEnding,
}

impl Blocks {
    pub(super) fn open(path: &Path, ending: FileEnding) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let mut magic = [0; 2];
        let read = read_full(&mut file, &mut magic)?;
        let begun = io::Cursor::new(magic[..read].to_vec()).chain(file);
        let reader: Box<dyn Read + Send> = match magic {
            [0x1f, 0x8b] => Box::new(MultiGzDecoder::new(BufReader::with_capacity(BUFFER_LEN, begun))),
            _ => Box::new(begun),
        };
        let buffer = vec![0; BUFFER_LEN].into_boxed_slice();
        let name = path.display().to_string();
        Ok(Self { reader, name, buffer, start: 0, end: 0, offset: 0, is_dry: false, last_ns: 0, ending })
    }

    /// As many whole messages as fit a packet; `None` at the end of the file.
    pub(super) fn run(&mut self) -> Option<Run> {
        // The longest message and its length; with fewer bytes the file may have ended.
        if self.end - self.start < 2 + usize::from(u16::MAX) {
            self.fill();
        }
        let unread = &self.buffer[self.start..self.end];
        let mut rest = unread;
        let mut run = Run { len: 0, count: 0, at_ns: self.last_ns };
        while let Some((message, behind)) = ItchFile::split(rest).filter(|(message, _)| !message.is_empty()) {
            let len = unread.len() - behind.len();
            let at_ns = time_ns(message).unwrap_or(self.last_ns);
            if run.count > 0 && (len > BLOCKS_LEN || at_ns > run.at_ns.saturating_add(SPAN_NS)) {
                break;
            }
            if run.count == 0 {
                run.at_ns = at_ns;
            }
            self.last_ns = at_ns;
            run.len = len;
            run.count += 1;
            rest = behind;
        }
        if run.count == 0 {
            self.report_end();
            return None;
        }
        Some(run)
    }

    pub(super) fn bytes(&self, run: &Run) -> &[u8] {
        &self.buffer[self.start..self.start + run.len]
    }

    pub(super) fn consume(&mut self, len: usize) {
        self.start += len;
        self.offset += len as u64;
    }

    #[cold]
    fn fill(&mut self) {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        while self.end < self.buffer.len() && !self.is_dry {
            match self.reader.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.is_dry = true,
                Ok(read) => self.end += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.is_dry = true;
                    let at = self.offset + self.end as u64;
                    // A truncated gzip file is reported as a truncated plain one.
                    let ending = match error.kind() {
                        io::ErrorKind::UnexpectedEof => {
                            Ok(Some(format!("cut in the middle of the gzip stream at byte {at}")))
                        }
                        _ => Err(format!(
                            "{} cannot be read beyond byte {at}: {error}; check that it is a whole file and not a folder",
                            self.name
                        )),
                    };
                    // The first report stands.
                    let _ = self.ending.set(ending);
                }
            }
        }
    }

    /// Reports how the file ended: after its last byte or the zero length that marks an end, or in
    /// mid-message.
    #[cold]
    fn report_end(&mut self) {
        let truncated = match self.buffer[self.start..self.end] {
            [] | [0, 0, ..] => None,
            [_, ..] => Some(format!("cut in the middle of the message at byte {}", self.offset)),
        };
        // A failed read was reported already.
        let _ = self.ending.set(Ok(truncated));
    }
}

/// ITCH 5.0: six bytes of ns since midnight behind type, locate and tracking number.
fn time_ns(message: &[u8]) -> Option<u64> {
    let time: &[u8; 6] = message.get(5..11)?.try_into().ok()?;
    let mut ns = [0; 8];
    ns[2..].copy_from_slice(time);
    Some(u64::from_be_bytes(ns))
}

fn read_full(file: &mut File, into: &mut [u8]) -> io::Result<usize> {
    let mut read = 0;
    while read < into.len() {
        match file.read(&mut into[read..]) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}
