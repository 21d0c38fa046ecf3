//! A cable of shared memory: a file that both ends map, with a ring for each direction.
//!
//! ```text
//!  0     magic                      8    number of the cable
//!  64    lane 0: frames written    128  lane 0: frames read      by the opener, by the maker
//!  192   lane 1: frames written    256  lane 1: frames read      by the maker, by the opener
//!  4096  slots of lane 0, slots of lane 1; each: length (8 bytes), frame
//! ```
//!
//! What the other end writes is input: numbers and lengths are checked, and a frame is copied
//! before it is looked at. The file has no name (`memfd_create(2)`), so that nothing is left behind
//! however the ends end; its length is sealed, so that nobody ends the other by shortening it. The
//! opener reaches it by a [`Ticket`] through /proc, which the kernel lets only a process of the
//! same user do, with no fewer capabilities.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, memfd_create};

use super::{Cable, CableError, FRAME_LEN_MAX};
use crate::roce::{Buffer, random};

/// The first word, written last: "wprdma" and the version of the layout.
const MAGIC: u64 = 0x7770_7264_6d61_0001;
/// Frames under way in one direction: twice the packets that a queue pair sends ahead.
const SLOTS: u64 = 256;
/// The length, and the longest frame, in whole cache lines.
const SLOT_LEN: usize = (8 + FRAME_LEN_MAX).next_multiple_of(64);
const SLOTS_AT: usize = 4096;
const LANE_LEN: usize = SLOTS as usize * SLOT_LEN;
const FILE_LEN: usize = SLOTS_AT + 2 * LANE_LEN;

const NUMBER_AT: usize = 8;
/// Nobody makes the file shorter or longer, or takes these seals off.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// One end of a cable of shared memory.
pub struct SharedMemory {
    memory: Buffer,
    outgoing: Lane,
    incoming: Lane,
    /// The maker's, by which the opener finds it.
    file: File,
}

/// Where the opener finds a cable: which descriptor of which process it is, and a number that is
/// the cable's alone. Whoever lies in it gets no other file of ours written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    pid: u32,
    fd: u32,
    number: u64,
}

impl Ticket {
    /// Bytes of a ticket that is told.
    pub const LEN: usize = 16;

    /// The bytes to tell.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&self.pid.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.fd.to_be_bytes());
        bytes[8..].copy_from_slice(&self.number.to_be_bytes());
        bytes
    }

    /// Reads what was told.
    pub fn parse(bytes: &[u8; Self::LEN]) -> Self {
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Self { pid: word(0), fd: word(4), number: u64::from(word(8)) << 32 | u64::from(word(12)) }
    }
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
    /// Makes a cable, for one other end to open. All of its memory, some 2 MiB, is taken now.
    ///
    /// # Errors
    /// The kernel refuses: there is no memory, for example.
    pub fn create() -> io::Result<Self> {
        let file = File::from(memfd_create("wirepath-rdma", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
        // Not only its length: a machine without memory says so now, and not by a signal later.
        fallocate(&file, FallocateFlags::empty(), 0, FILE_LEN as u64)?;
        fcntl_add_seals(&file, SEALS)?;
        let cable = Self::map(file, [1, 0])?;
        cable.memory.store_u64(NUMBER_AT, random());
        cable.memory.store_u64(0, MAGIC);
        Ok(cable)
    }

    /// What the other end needs to open it, while this one lives.
    pub fn ticket(&self) -> Ticket {
        let fd = self.file.as_raw_fd().unsigned_abs();
        Ticket { pid: std::process::id(), fd, number: self.memory.load_u64(NUMBER_AT) }
    }

    /// Opens the cable of the other end.
    ///
    /// # Errors
    /// There is none, or it is not of this user, or no such cable.
    pub fn open(ticket: &Ticket) -> io::Result<Self> {
        let Ticket { pid, fd, number } = *ticket;
        let path = format!("/proc/{pid}/fd/{fd}");
        let refused = || io::Error::new(ErrorKind::InvalidData, "no cable that a process of this user has made");
        // Looked at first, because to open a device may do something.
        let (found, ours) = (fs::metadata(&path)?, fs::metadata("/proc/self")?.uid());
        if !found.is_file() || found.uid() != ours || found.len() != FILE_LEN as u64 {
            return Err(refused());
        }
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        if !fcntl_get_seals(file.as_fd()).is_ok_and(|seals| seals.contains(SEALS)) {
            return Err(refused());
        }
        let cable = Self::map(file, [0, 1])?;
        if [cable.memory.load_u64(0), cable.memory.load_u64(NUMBER_AT)] != [MAGIC, number] {
            return Err(io::Error::new(ErrorKind::InvalidData, "another cable, or one of another version"));
        }
        Ok(cable)
    }

    fn map(file: File, [outgoing, incoming]: [usize; 2]) -> io::Result<Self> {
        let memory = Buffer::map(&file, FILE_LEN)?;
        Ok(Self { memory, outgoing: Lane::new(outgoing), incoming: Lane::new(incoming), file })
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
