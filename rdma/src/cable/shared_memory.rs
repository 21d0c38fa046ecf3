//! A cable of shared memory: a file that both ends map, with a ring for each direction.
//!
//! ```text
//!  0     magic
//!  64    lane 0: frames written    128  lane 0: frames read      by the opener, by the maker
//!  192   lane 1: frames written    256  lane 1: frames read      by the maker, by the opener
//!  4096  slots of lane 0, slots of lane 1; each: length (8 bytes), frame
//! ```
//!
//! What the other end writes is input: numbers and lengths are checked, and a frame is copied
//! before it is looked at. The file has the mode 0600 and is another user's to nobody; a process of
//! the same user may shorten it, and ends both by that (SIGBUS), as it may by a signal.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::{Cable, CableError, FRAME_LEN_MAX};
use crate::roce::Buffer;

/// The first word, written last: "wprdma" and the version of the layout.
const MAGIC: u64 = 0x7770_7264_6d61_0001;
/// Frames under way in one direction: twice the packets that a queue pair sends ahead.
const SLOTS: u64 = 256;
/// The length, and the longest frame, in whole cache lines.
const SLOT_LEN: usize = (8 + FRAME_LEN_MAX).next_multiple_of(64);
const SLOTS_AT: usize = 4096;
const LANE_LEN: usize = SLOTS as usize * SLOT_LEN;
const FILE_LEN: usize = SLOTS_AT + 2 * LANE_LEN;

/// One end of a cable of shared memory.
pub struct SharedMemory {
    memory: Buffer,
    outgoing: Lane,
    incoming: Lane,
    /// The maker's file, which the opener removes.
    path: Option<PathBuf>,
}

/// One direction, as one end sees it.
struct Lane {
    written_at: usize,
    read_at: usize,
    slots_at: usize,
    /// Frames that this end has written, or read.
    count: u64,
    /// Those that the other end has read, or written, when we looked last.
    other: u64,
}

impl SharedMemory {
    /// Makes the file, which must not be there, for one other end to open.
    ///
    /// # Errors
    /// The kernel refuses: there is such a file, or no room.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
        let cable = file.set_len(FILE_LEN as u64).and_then(|()| Self::map(&file, [1, 0]));
        let mut cable = cable.inspect_err(|_| drop(fs::remove_file(path)))?;
        cable.path = Some(path.to_owned());
        cable.memory.store_u64(0, MAGIC);
        Ok(cable)
    }

    /// Opens the file of the other end, and removes its name: nobody else is to open it.
    ///
    /// # Errors
    /// There is none, or it is not of this user, or no such cable.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOFOLLOW).open(path)?;
        let (found, ours) = (file.metadata()?, fs::metadata("/proc/self")?.uid());
        if found.uid() != ours || found.len() != FILE_LEN as u64 {
            return Err(io::Error::new(ErrorKind::InvalidData, "no cable that a process of this user has made"));
        }
        let cable = Self::map(&file, [0, 1])?;
        if cable.memory.load_u64(0) != MAGIC {
            return Err(io::Error::new(ErrorKind::InvalidData, "a cable of another version"));
        }
        fs::remove_file(path)?;
        Ok(cable)
    }

    fn map(file: &File, [outgoing, incoming]: [usize; 2]) -> io::Result<Self> {
        let memory = Buffer::map(file, FILE_LEN)?;
        Ok(Self { memory, outgoing: Lane::new(outgoing), incoming: Lane::new(incoming), path: None })
    }
}

impl Lane {
    const fn new(number: usize) -> Self {
        let written_at = 64 + 128 * number;
        Self { written_at, read_at: written_at + 64, slots_at: SLOTS_AT + number * LANE_LEN, count: 0, other: 0 }
    }

    /// Where the next frame of this end is.
    const fn slot(&self) -> usize {
        self.slots_at + (self.count % SLOTS) as usize * SLOT_LEN
    }
}

impl Cable for SharedMemory {
    fn has_room(&mut self) -> Result<bool, CableError> {
        let lane = &mut self.outgoing;
        if lane.count.wrapping_sub(lane.other) >= SLOTS {
            lane.other = self.memory.load_u64(lane.read_at);
        }
        match lane.count.wrapping_sub(lane.other) {
            waiting if waiting > SLOTS => Err(CableError::Broken("the number of a frame that was never sent")),
            waiting => Ok(waiting < SLOTS),
        }
    }

    fn send(&mut self, frame: &[u8]) -> Result<(), CableError> {
        let lane = &mut self.outgoing;
        let (slot, frame) = (lane.slot(), &frame[..frame.len().min(FRAME_LEN_MAX)]);
        self.memory.write(slot + 8, frame);
        self.memory.store_u64(slot, frame.len() as u64);
        lane.count = lane.count.wrapping_add(1);
        self.memory.store_u64(lane.written_at, lane.count);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), CableError> {
        Ok(())
    }

    fn receive(&mut self, frame: &mut [u8]) -> Result<Option<usize>, CableError> {
        let lane = &mut self.incoming;
        if lane.other == lane.count {
            lane.other = self.memory.load_u64(lane.written_at);
        }
        match lane.other.wrapping_sub(lane.count) {
            0 => return Ok(None),
            1..=SLOTS => (),
            _ => return Err(CableError::Broken("more frames than the ring has slots")),
        }
        let slot = lane.slot();
        let len = usize::try_from(self.memory.load_u64(slot)).ok().filter(|len| *len <= FRAME_LEN_MAX);
        let bytes = len.and_then(|len| frame.get_mut(..len)).ok_or(CableError::Broken("a frame that is too long"))?;
        self.memory.read(slot + 8, bytes);
        lane.count = lane.count.wrapping_add(1);
        self.memory.store_u64(lane.read_at, lane.count);
        Ok(len)
    }
}

impl Drop for SharedMemory {
    /// Nobody has opened it, or it is gone.
    fn drop(&mut self) {
        let _ = self.path.as_ref().map(fs::remove_file);
    }
}
