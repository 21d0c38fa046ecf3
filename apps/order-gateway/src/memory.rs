//! The journal's memory: a file of its whole size from the start, mapped.
//!
//! Invariants:
//!
//! 1. The mapping is of a file that this process has locked for itself, so that no other process of
//!    ours writes it. If another one writes or truncates it nevertheless, the records' sums tell,
//!    or an access gets SIGBUS, as with any mapped file.
//! 2. The mapping is reached through its owner alone, by the borrow rules of a slice.
//! 3. While a mapping is a [`SharedFile`], nobody makes a reference to its bytes, and it is never
//!    unmapped: it is a mapping again when its region is dropped, or stays until the process ends.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::path::Path;
use std::ptr::NonNull;

use memmap2::{MmapMut, MmapOptions};
use order_entry::journal::JournalMemory;
use rdma::roce::Region;

/// When the journal's pages are written to the disk. A process that dies loses nothing with any of
/// these; only a power cut does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SyncPolicy {
    /// The kernel does it, within half a minute.
    Off,
    /// Another thread does it, again and again.
    #[default]
    Timed,
    /// Each request is on the disk before it is sent. Costs 10 to 30 µs on a disk with power-loss
    /// protection, and milliseconds on others.
    BeforeSend,
}

/// A mapped file.
#[derive(Debug)]
pub struct MappedFile {
    map: MmapMut,
    file: File,
    policy: SyncPolicy,
    /// Bytes before are on the disk.
    synced: Cell<usize>,
}

impl MappedFile {
    /// Opens the journal at `path`, or makes one of `len` bytes whose blocks the disk has already
    /// given. Whether it was there before is the second value. A file that another process has open
    /// is refused.
    pub fn open(path: &Path, len: usize, policy: SyncPolicy) -> io::Result<(Self, bool)> {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        file.try_lock().map_err(|error| match error {
            std::fs::TryLockError::WouldBlock => {
                io::Error::new(io::ErrorKind::ResourceBusy, "another process has the journal open")
            }
            std::fs::TryLockError::Error(error) => error,
        })?;
        let existed = file.metadata()?.len() > 0;
        if !existed {
            // Blocks now, so that a full disk is an error of the start, and not SIGBUS in the day.
            let made = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, len as u64);
            if let Err(error) = made {
                // What the disk gave goes back, and the next start makes the file anew.
                file.set_len(0)?;
                return Err(error.into());
            }
            // Else a power cut may take the name, and the day's journal with it.
            file.sync_all()?;
            sync_directory(path)?;
        }
        // SAFETY: invariants 1 and 2: the file is locked, and the mapping has one owner. Safe code
        // would have to write with a system call for each record.
        let map = unsafe { MmapOptions::new().populate().map_mut(&file)? };
        Ok((Self { map, file, policy, synced: Cell::new(0) }, existed))
    }

    /// The file, for the thread that syncs it.
    pub fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }
}

/// Has the name of the file at `path` on the disk.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()
}

/// A mapped file whose bytes are a region, which a peer may write.
#[derive(Debug)]
pub(crate) struct SharedFile {
    // Dropped only by `reclaim`.
    file: ManuallyDrop<MappedFile>,
    address: u64,
}

impl SharedFile {
    /// Makes a region of the whole file.
    pub(crate) fn share(mut file: MappedFile) -> (Self, Region) {
        let len = file.map.len();
        let start = NonNull::from(&mut file.map[..]).cast();
        // SAFETY: invariants 1 and 3: the mapping stays until the region is dropped. Its reference
        // ends in the line above.
        let region = unsafe { Region::from_raw(start, len) };
        let address = region.address();
        (Self { file: ManuallyDrop::new(file), address }, region)
    }

    /// The file again, for its region.
    ///
    /// # Panics
    ///
    /// The region is another one's.
    pub(crate) fn reclaim(self, region: Region) -> MappedFile {
        assert_eq!(region.address(), self.address, "a region comes back to the file that it is of");
        drop(region);
        ManuallyDrop::into_inner(self.file)
    }
}

impl AsRef<[u8]> for MappedFile {
    fn as_ref(&self) -> &[u8] {
        &self.map
    }
}

impl AsMut<[u8]> for MappedFile {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.map
    }
}

impl JournalMemory for MappedFile {
    fn before_send(&self, from: usize, len: usize) -> io::Result<()> {
        if self.policy == SyncPolicy::BeforeSend { self.sync(from + len) } else { Ok(()) }
    }

    /// Also what was appended before and is no request: a hole would be the journal's end.
    fn sync(&self, end: usize) -> io::Result<()> {
        let from = self.synced.get().min(end);
        self.map.flush_range(from, end - from)?;
        self.synced.set(end);
        Ok(())
    }
}
