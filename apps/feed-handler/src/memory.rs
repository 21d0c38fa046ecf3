//! The memory of books, and whether the machine has enough left for this process. Linux overcommits
//! memory, and kills a process when it is used; so it is checked before.

use std::fmt;

use wirepath::worker::topology::{Machine, MemoryLeft};

use crate::error::Error;

/// A number of bytes in words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes(pub(crate) u128);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes @ 0..1_000_000 => write!(f, "{} kB", bytes.div_ceil(1_000)),
            bytes @ 1_000_000..10_000_000_000 => write!(f, "{} MB", bytes / 1_000_000),
            bytes => write!(f, "{}.{} GB", bytes / 1_000_000_000, bytes / 100_000_000 % 10),
        }
    }
}

/// The memory of books, in words, by the channels of each format and the bytes of one of them; an
/// error where the machine has less.
pub(crate) fn check(books: &[(usize, u128)]) -> Result<String, Error> {
    check_on(&Machine::here(), books)
}

/// The number of channels with `each` bytes that fit the free memory.
pub(crate) fn room_for(each: u128) -> usize {
    room_on(&Machine::here(), each)
}

fn room_on(machine: &Machine, each: u128) -> usize {
    let room = machine.memory_left().map(|left| left.bytes / each.max(1));
    room.and_then(|room| usize::try_from(room).ok()).unwrap_or(usize::MAX)
}

fn check_on(machine: &Machine, books: &[(usize, u128)]) -> Result<String, Error> {
    let channels: usize = books.iter().map(|(channels, _)| channels).sum();
    let sum =
        books.iter().fold(0_u128, |sum, &(channels, each)| sum.saturating_add(each.saturating_mul(channels as u128)));
    let plural = if channels == 1 { "" } else { "s" };
    let each = match books {
        [(_, each)] => format!(", {} each", Bytes(*each)),
        _ => String::new(),
    };
    let what = format!("the books of {channels} channel{plural} take {}{each}", Bytes(sum));
    match machine.memory_left() {
        Some(MemoryLeft { bytes, bound }) if sum > bytes => Err(Error::Failed(format!(
            "{what}, and {} are left ({bound}): lower instruments, orders and levels in [books] of the configuration, or give \
             some of the channels to another machine",
            Bytes(bytes)
        ))),
        _ => Ok(what),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const GB: u128 = 1_000_000_000;

    #[test]
    fn sum_is_said_and_refused_where_the_machine_has_not_so_much() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("proc")).unwrap();
        fs::write(root.path().join("proc/meminfo"), "MemAvailable:    7812500 kB\n").unwrap();
        let machine = Machine::at(root.path());
        assert_eq!(check_on(&machine, &[(1, 4 * GB)]).unwrap(), "the books of 1 channel take 4000 MB, 4000 MB each");
        assert_eq!(check_on(&machine, &[(1, GB), (2, GB / 2)]).unwrap(), "the books of 3 channels take 2000 MB");
        let refused = check_on(&machine, &[(200, GB)]).unwrap_err().to_string();
        assert!(refused.contains("the books of 200 channels take 200.0 GB, 1000 MB each"), "{refused}");
        assert!(refused.contains("8000 MB are left (MemAvailable of /proc/meminfo)"), "{refused}");
        assert!(refused.contains("lower instruments, orders and levels in [books]"), "{refused}");
    }

    #[test]
    fn channels_that_there_is_memory_for_are_counted() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(room_on(&Machine::at(root.path()), GB), usize::MAX, "a system that tells nothing refuses nothing");
        fs::create_dir(root.path().join("proc")).unwrap();
        fs::write(root.path().join("proc/meminfo"), "MemAvailable:    7812500 kB\n").unwrap();
        assert_eq!([GB, 3 * GB, 9 * GB].map(|each| room_on(&Machine::at(root.path()), each)), [8, 2, 0]);
    }

    #[test]
    fn system_that_tells_nothing_refuses_nothing() {
        let root = tempfile::tempdir().unwrap();
        assert!(check_on(&Machine::at(root.path()), &[(1, u128::MAX), (1, 1)]).is_ok());
    }
}
