//! The file of each descriptor that may be offloaded, 0 for none, with a bit for those that are. It
//! is read without a lock, because each `read` and `write` of the program reads it. It is written
//! only under the lock of the file's room.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::OnceLock;

use crate::engine::thread;

/// Names a file: its room, which is the number of its socket's engine or [`SETS`], and its place
/// there. It is never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId(pub(crate) u32);

impl FileId {
    /// The file at `place` of a room.
    pub(crate) const fn of(room: usize, place: u32) -> Self {
        Self((room as u32) << ROOM_SHIFT | place)
    }

    /// The number of its engine, or [`SETS`].
    #[inline]
    pub(crate) const fn room(self) -> usize {
        (self.0 >> ROOM_SHIFT) as usize
    }

    /// Its place in its room.
    #[inline]
    pub(crate) const fn place(self) -> usize {
        (self.0 & (FILES_MAX - 1)) as usize
    }

    /// Whether it is an epoll set.
    #[inline]
    pub(crate) const fn is_set(self) -> bool {
        self.room() == SETS
    }
}

pub(crate) use sockets::rules::ENGINES_MAX;

/// The room of epoll sets, which belong to no engine, because sockets of several may be in one.
pub(crate) const SETS: usize = ENGINES_MAX;
/// The room is in the bits below [`KEPT`].
const ROOM_SHIFT: u32 = 26;
/// Files of a room: more than a process has descriptors.
const FILES_MAX: u32 = 1 << ROOM_SHIFT;

/// Descriptors in a chunk, and chunks: a million descriptors (`fs.nr_open` by default).
const CHUNK_LEN: usize = 1_024;
const CHUNKS: usize = 1_024;

/// One of the engine's own descriptors, which the program cannot close: of its device, or of those
/// that wake threads.
const DEVICE: u32 = u32::MAX;
const WAKES: u32 = u32::MAX - 1;
/// The file is offloaded; without this bit it may become so.
const OURS: u32 = 1 << 31;
/// The file stays with the kernel.
const KEPT: u32 = 1 << 30;
/// The file is offloaded in the parent of this process.
const THE_PARENTS: u32 = OURS | KEPT;

static TABLE: [OnceLock<Box<[AtomicU32; CHUNK_LEN]>>; CHUNKS] = [const { OnceLock::new() }; CHUNKS];

/// The file of a descriptor, whoever serves it. Two loads.
#[inline]
pub(crate) fn find(fd: c_int) -> Option<FileId> {
    match word(fd)?.load(Ordering::Acquire) {
        0 | DEVICE | WAKES => None,
        file => Some(FileId(file & !(OURS | KEPT))),
    }
}

/// The file of a descriptor that is offloaded, or may become so. Two loads.
#[inline]
pub(crate) fn find_possible(fd: c_int) -> Option<FileId> {
    match word(fd)?.load(Ordering::Acquire) {
        0 | DEVICE | WAKES => None,
        file if file & KEPT != 0 => None,
        file => Some(FileId(file & !OURS)),
    }
}

/// The file of an offloaded descriptor. Two loads.
#[inline]
pub(crate) fn find_ours(fd: c_int) -> Option<FileId> {
    match word(fd)?.load(Ordering::Acquire) {
        file if file & THE_PARENTS == OURS => Some(FileId(file & !OURS)),
        _ => None,
    }
}

/// The same, and whether it is the parent of this process that has offloaded it. Two loads.
#[inline]
pub(crate) fn find_offloaded(fd: c_int) -> Option<(FileId, bool)> {
    match word(fd)?.load(Ordering::Acquire) {
        DEVICE | WAKES => None,
        file if file & OURS != 0 => Some((FileId(file & !THE_PARENTS), file & KEPT != 0)),
        _ => None,
    }
}

/// Whether the table has anything for a descriptor.
#[inline]
pub(crate) fn is_known(fd: c_int) -> bool {
    word(fd).is_some_and(|word| word.load(Ordering::Acquire) != 0)
}

/// Whether the engine itself uses this descriptor.
pub(crate) fn is_reserved(fd: c_int) -> bool {
    word(fd).is_some_and(|word| matches!(word.load(Ordering::Acquire), DEVICE | WAKES))
}

/// Whether the engine's device uses this descriptor.
pub(crate) fn is_of_device(fd: c_int) -> bool {
    word(fd).is_some_and(|word| word.load(Ordering::Acquire) == DEVICE)
}

/// Who serves a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Served {
    /// The kernel, until a call decides otherwise.
    Undecided,
    Ours,
    /// The kernel, for good.
    Kernel,
    /// The parent of this process.
    Parent,
}

/// Enters the file of a descriptor.
pub(crate) fn set(fd: c_int, file: FileId, served: Served) {
    let bits = match served {
        Served::Undecided => 0,
        Served::Ours => OURS,
        Served::Kernel => KEPT,
        Served::Parent => THE_PARENTS,
    };
    store(fd, file.0 | bits);
}

/// Removes a descriptor: it is the kernel's alone.
pub(crate) fn clear(fd: c_int) {
    store(fd, 0);
}

/// Reserves a descriptor for the engine's device.
pub(crate) fn reserve(fd: c_int) {
    store(fd, DEVICE);
}

/// Reserves a descriptor that outlives the device: that of the log, or one that wakes threads.
pub(crate) fn reserve_for_good(fd: c_int) {
    store(fd, WAKES);
}

/// Descriptors of a range that have a file, or that the engine uses.
pub(crate) fn in_range(first: u32, last: u32) -> impl Iterator<Item = c_int> {
    let chunks = (first as usize / CHUNK_LEN)..=(last as usize / CHUNK_LEN).min(CHUNKS - 1);
    let numbers = chunks.filter_map(|idx| TABLE[idx].get().map(|chunk| (idx, chunk))).flat_map(|(idx, chunk)| {
        chunk
            .iter()
            .enumerate()
            .filter(|(_, word)| word.load(Ordering::Acquire) != 0)
            .map(move |(at, _)| idx * CHUNK_LEN + at)
    });
    numbers.filter(move |fd| (first as usize..=last as usize).contains(fd)).map(|fd| fd as c_int)
}

fn word(fd: c_int) -> Option<&'static AtomicU32> {
    let fd = usize::try_from(fd).ok()?;
    Some(&TABLE.get(fd / CHUNK_LEN)?.get()?[fd % CHUNK_LEN])
}

fn store(fd: c_int, value: u32) {
    let Ok(number) = usize::try_from(fd) else { return };
    let Some(chunk) = TABLE.get(number / CHUNK_LEN) else { return };
    if value == 0 && chunk.get().is_none() {
        return;
    }
    let chunk = thread::once(chunk, || Box::new([const { AtomicU32::new(0) }; CHUNK_LEN]));
    chunk[number % CHUNK_LEN].store(value, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_of_a_file_has_its_room_and_its_place() {
        for (room, place) in [(0, 1), (14, 0), (SETS, 3), (7, FILES_MAX - 1)] {
            let file = FileId::of(room, place);
            assert_eq!((file.room(), file.place(), file.is_set()), (room, place as usize, room == SETS));
            assert_eq!(file.0 & (OURS | KEPT), 0, "the bits of who serves it are free");
        }
    }
}
