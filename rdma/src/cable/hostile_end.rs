//! The other end of a cable of shared memory, which writes into it what it likes.

use std::io;
use std::os::unix::net::UnixStream;

use super::SharedMemory;
use super::shared_memory::{FILE_LEN, Lane};
use crate::roce::Buffer;

pub(crate) struct HostileEnd {
    memory: Buffer,
    /// Frames to the other end.
    outgoing: Lane,
    /// Those from it.
    incoming: Lane,
    _open: UnixStream,
}

impl HostileEnd {
    /// It, and the end of a device.
    pub(crate) fn new() -> io::Result<(Self, SharedMemory)> {
        let (theirs, ours) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let memory = Buffer::zeroed(FILE_LEN);
        let cable = SharedMemory::over(memory.clone(), ours, [0, 1]);
        Ok((Self { memory, outgoing: Lane::new(1), incoming: Lane::new(0), _open: theirs }, cable))
    }

    /// Puts a frame into the next slot, with a length that it need not have.
    pub(crate) fn put(&mut self, frame: &[u8], len: u64) {
        let slot = self.outgoing.slot();
        self.memory.write(slot + 8, frame);
        self.memory.store_u64(slot, len);
        self.outgoing.count = self.outgoing.count.wrapping_add(1);
        self.claim_written(self.outgoing.count);
    }

    /// Says how many frames it has written.
    pub(crate) fn claim_written(&self, count: u64) {
        self.memory.store_u64(self.outgoing.written_at, count);
    }

    /// Says how many frames it has read.
    pub(crate) fn claim_read(&self, count: u64) {
        self.memory.store_u64(self.incoming.read_at, count);
    }

    /// Reads all that was sent to it, as an honest end does.
    pub(crate) fn read_all(&self) {
        self.claim_read(self.memory.load_u64(self.incoming.written_at));
    }
}
