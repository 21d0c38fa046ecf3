//! The reader's side: finds and reads the rosters of this machine's processes.
//!
//! Another process wrote the file, and it may hold anything. It is read, not mapped (a mapped file
//! that shrinks would kill the reader), and every field is checked. The kernel reports the user who
//! can have written it: [`Rostered::user`].

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::layout::{self, ENTRY_WORDS, HEADER_WORDS, OpenConnection};
use crate::counters::{
    Access, Content, Shared, is_stale, is_trusted, open_foreign, printable, read_text, remove_foreign, shared_files,
    shared_files_of,
};

/// Entries that are read at once.
const BATCH: usize = 1024;

/// A roster that some process writes or wrote.
#[derive(Debug)]
pub struct Rostered {
    /// The application.
    pub app: String,
    /// The owner of the file. Everything else in it is the owner's claim.
    pub user: u32,
    /// Its process, by the PID in its own PID namespace.
    pub pid: u32,
    /// The start time of that process, in the form of [`process_started`](layout::process_started).
    pub process_started: u64,
    /// The index of the interface.
    pub interface: u32,
    /// The inode of the interface's network namespace, as in `/proc/PID/ns/net`.
    pub namespace: u64,
    capacity: usize,
    file: File,
    path: PathBuf,
}

impl Rostered {
    /// The rosters in `directory` that can be read, sorted by name, of all users.
    ///
    /// # Errors
    /// The directory cannot be listed, or it has rosters of root or of our user and we may read
    /// none of them. A directory that does not exist holds none.
    pub fn list(directory: &Path) -> io::Result<Vec<Self>> {
        open_all(shared_files(directory, Content::Connections, Access::Read)?, is_trusted)
    }

    /// The rosters in `directory` of process `pid` whose owner `trusts` accepts: other users
    /// can give their files any name, and are skipped.
    ///
    /// # Errors
    /// The directory cannot be listed, or it has such rosters and we may read none of them.
    pub fn list_of(directory: &Path, pid: u32, trusts: impl Fn(u32) -> bool) -> io::Result<Vec<Self>> {
        let rosters = open_all(shared_files_of(directory, Content::Connections, Access::Read, pid)?, &trusts)?;
        Ok(rosters.into_iter().filter(|roster| roster.pid == pid && trusts(roster.user)).collect())
    }

    /// Opens one; `None` where the file is not a roster that this version understands.
    ///
    /// # Errors
    /// The file cannot be opened or read.
    pub fn open(path: &Path) -> io::Result<Option<Self>> {
        let file = open_foreign(path)?;
        Self::read(file, path.to_owned())
    }

    fn read(file: File, path: PathBuf) -> io::Result<Option<Self>> {
        let facts = file.metadata()?;
        if facts.len() < (HEADER_WORDS * 8) as u64 {
            return Ok(None);
        }
        let words = read_words(&file, 0, HEADER_WORDS)?;
        let capacity = words[layout::CAPACITY];
        if words[0] != layout::MAGIC || words[1] != layout::VERSION || capacity > layout::CAPACITY_MAX {
            return Ok(None);
        }
        let app = read_text(&words[layout::APP..], words[layout::APP_LEN], layout::APP_LEN_MAX);
        let (Some(app), Ok(pid), Ok(interface)) =
            (app, u32::try_from(words[layout::PID]), u32::try_from(words[layout::INTERFACE]))
        else {
            return Ok(None);
        };
        if app.contains(char::is_control) {
            return Ok(None);
        }
        Ok(Some(Self {
            app,
            user: facts.uid(),
            pid,
            process_started: words[layout::PROCESS_STARTED],
            interface,
            namespace: words[layout::NAMESPACE],
            capacity: capacity as usize,
            file,
            path,
        }))
    }

    /// Whether a process still writes the file: the worker has neither dropped its roster nor died.
    pub fn has_writer(&self) -> bool {
        !is_stale(&self.file)
    }

    /// The open connections. Call it when the writer is gone: before, they change during the read.
    ///
    /// # Errors
    /// The file is shorter than its header claims, or cannot be read.
    pub fn connections(&self) -> io::Result<Vec<OpenConnection>> {
        let numbers_at = HEADER_WORDS + self.capacity * ENTRY_WORDS;
        let mut open = Vec::new();
        for first in (0..self.capacity).step_by(BATCH) {
            let count = BATCH.min(self.capacity - first);
            let entries = read_words(&self.file, HEADER_WORDS + first * ENTRY_WORDS, count * ENTRY_WORDS)?;
            let numbers = read_words(&self.file, numbers_at + first, count)?;
            let (entries, _) = entries.as_chunks();
            open.extend(
                entries.iter().zip(numbers).filter_map(|(entry, numbers)| layout::connection_of(entry, numbers)),
            );
        }
        Ok(open)
    }

    /// The file's device and inode, for any name.
    ///
    /// # Errors
    /// `fstat` fails.
    pub fn id(&self) -> io::Result<(u64, u64)> {
        self.file.metadata().map(|data| (data.dev(), data.ino()))
    }

    /// Removes the file.
    pub fn remove(&self) {
        remove_foreign(&self.path, &self.file);
    }
}

/// The files that can be opened. Where none can, the error of one whose user counts.
fn open_all(files: impl Iterator<Item = Shared>, counts: impl Fn(u32) -> bool) -> io::Result<Vec<Rostered>> {
    let (mut rosters, mut refused) = (Vec::new(), Ok(()));
    for Shared { path, user, file } in files {
        let shown = printable(path.display()).to_string();
        match file.and_then(|file| Rostered::read(file, path)) {
            Ok(roster) => rosters.extend(roster),
            Err(error) if counts(user) => refused = Err(io::Error::new(error.kind(), format!("{shown}: {error}"))),
            Err(_) => {}
        }
    }
    if rosters.is_empty() { refused.map(|()| rosters) } else { Ok(rosters) }
}

fn read_words(file: &File, first: usize, count: usize) -> io::Result<Vec<u64>> {
    let mut bytes = vec![0; count * 8];
    file.read_exact_at(&mut bytes, first as u64 * 8)?;
    let (words, _) = bytes.as_chunks();
    Ok(words.iter().map(|word| u64::from_ne_bytes(*word)).collect())
}

#[cfg(test)]
mod tests {
    use core::slice;
    use std::fs;

    use arrayvec::ArrayVec;

    use super::*;
    use crate::pipeline::tcp::roster::Roster;
    use crate::proto::tcp::Seq;
    use crate::proto::{Flow, InterfaceId};

    fn connection(port: u16) -> OpenConnection {
        let remote = core::net::SocketAddrV4::new([10, 9, 0, 2].into(), port);
        let link = [7; 18].into_iter().collect();
        OpenConnection { flow: Flow { local: "10.9.0.1:80".parse().unwrap(), remote }, link, snd_nxt: 5, rcv_nxt: 6 }
    }

    fn only(directory: &Path) -> Rostered {
        let mut rosters = Rostered::list(directory).unwrap();
        assert_eq!(rosters.len(), 1);
        rosters.remove(0)
    }

    fn check(act: impl FnOnce(&mut Roster), expected: &[OpenConnection]) {
        let directory = tempfile::tempdir().unwrap();
        let mut roster = Roster::create_in(directory.path(), "test", InterfaceId(3), 2000).unwrap();
        let read = only(directory.path());
        assert_eq!((&*read.app, read.pid, read.interface), ("test", std::process::id(), 3));
        assert!(read.has_writer());
        act(&mut roster);
        drop(roster);
        assert!(!read.has_writer());
        assert_eq!(read.connections().unwrap(), expected);
        // A clean end leaves no file; an end with open connections does.
        assert_eq!(Rostered::list(directory.path()).unwrap().len(), usize::from(!expected.is_empty()));
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps a file")]
    fn open_connections_are_read_when_the_writer_is_gone() {
        let act = |roster: &mut Roster| {
            roster.open(1999, &connection(1));
            roster.open(3, &connection(2));
            roster.open(4, &connection(3));
            roster.close(3);
            roster.close(3);
        };
        check(act, &[connection(3), connection(1)]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps a file")]
    fn closed_connections_leave_nothing() {
        let act = |roster: &mut Roster| {
            roster.open(0, &connection(1));
            roster.close(0);
            roster.set_link(0, &[1; 14]);
            roster.note(0, Seq(9), Seq(9));
        };
        check(act, &[]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps a file")]
    fn numbers_follow_what_leaves_and_never_go_back() {
        let act = |roster: &mut Roster| {
            roster.open(0, &OpenConnection { snd_nxt: u32::MAX, ..connection(1) });
            roster.note(0, Seq(10), Seq(20));
            roster.note(0, Seq(u32::MAX - 100), Seq(21));
            roster.note(5000, Seq(1), Seq(1));
        };
        check(act, &[OpenConnection { snd_nxt: 10, rcv_nxt: 21, ..connection(1) }]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps a file")]
    fn place_that_is_used_again_starts_with_the_new_numbers() {
        let act = |roster: &mut Roster| {
            roster.open(0, &connection(1));
            roster.note(0, Seq(1000), Seq(1000));
            roster.close(0);
            roster.open(0, &connection(2));
            roster.set_link(0, &[1; 22]);
        };
        check(act, &[OpenConnection { link: [1; 22].into(), ..connection(2) }]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps a file")]
    fn way_that_is_lost_leaves_the_link_header_that_was_known_last() {
        let act = |roster: &mut Roster| {
            roster.open(0, &connection(1));
            roster.set_link(0, &[]);
            roster.open(1, &connection(2));
            roster.set_link(1, &[1; 14]);
            roster.set_link(1, &[]);
        };
        check(act, &[connection(1), OpenConnection { link: [1; 14].into_iter().collect(), ..connection(2) }]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps a file")]
    fn way_that_was_never_known_is_none() {
        let without = OpenConnection { link: ArrayVec::new(), ..connection(1) };
        let act = |roster: &mut Roster| {
            roster.open(0, &connection(2));
            roster.close(0);
            roster.open(0, &without);
            roster.set_link(0, &[]);
        };
        check(act, slice::from_ref(&without));
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps a file")]
    fn foreign_files_are_passed_over() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("test.1.connections");
        for bytes in [vec![], vec![0; 512], vec![0xff; 4096]] {
            fs::write(&path, &bytes).unwrap();
            assert!(Rostered::list(directory.path()).unwrap().is_empty(), "{} bytes", bytes.len());
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps a file")]
    fn file_that_is_shorter_than_it_says_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let mut roster = Roster::create_in(directory.path(), "test", InterfaceId(3), 16).unwrap();
        roster.open(1, &connection(1));
        drop(roster);
        let read = only(directory.path());
        let file = fs::OpenOptions::new().write(true).open(&read.path).unwrap();
        file.set_len(600).unwrap();
        assert!(read.connections().is_err());
    }

    #[test]
    fn roster_that_no_guardian_would_read_is_not_written() {
        let directory = tempfile::tempdir().unwrap();
        let capacity = layout::CAPACITY_MAX as usize + 1;
        let refused = Roster::create_in(directory.path(), "test", InterfaceId(3), capacity).map(drop).unwrap_err();
        assert!(refused.to_string().contains("no guardian reads a roster of 1048577 connections"), "{refused}");
    }
}
