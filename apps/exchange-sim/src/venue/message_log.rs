//! Numbered messages of a day: the newest in memory, those before in a file.
//!
//! A client may ask for any message of the day again, and nearly always wants the newest ones. A
//! busy day has gigabytes, so what is older than two pages is written to a file that has no name
//! any more and is gone with the process. Where there is no room for it, memory has to do, and
//! [`MessageLog::error`] says why.

use std::borrow::Cow;
use std::env;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

/// Messages of a page, of some 60 bytes each: a quarter of a mebibyte, written with one call.
const PAGE: usize = 4_096;
/// In the file, the ends of a page's messages are before them.
const ENDS_LEN: u64 = (PAGE * size_of::<u32>()) as u64;

/// Messages by number: the first is at 0.
#[derive(Debug)]
pub struct MessageLog {
    folder: PathBuf,
    file: Option<File>,
    file_len: u64,
    older: Vec<OldPage>,
    /// The page before the newest, which a reader that is a little late still wants.
    last: Page,
    newest: Page,
    error: Option<String>,
}

#[derive(Debug, Default)]
struct Page {
    bytes: Vec<u8>,
    /// Where each message ends.
    ends: Vec<u32>,
}

/// A page that is full, by its place in the file, or in memory for want of one.
#[derive(Debug)]
enum OldPage {
    At(u64),
    Kept(Page),
}

impl Default for MessageLog {
    fn default() -> Self {
        Self::in_folder(&env::temp_dir())
    }
}

impl MessageLog {
    /// No messages; a file is made in `folder` when there are many.
    fn in_folder(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            file: None,
            file_len: 0,
            older: Vec::new(),
            last: Page::default(),
            newest: Page::default(),
            error: None,
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.older.len() * PAGE + self.last.ends.len() + self.newest.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Why messages of before are in memory, where they are.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// The message at `idx`; none behind the last one. Of the newest 4,096 without a system call.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn get(&self, idx: usize) -> io::Result<Option<Cow<'_, [u8]>>> {
        let (page, at) = (idx / PAGE, idx % PAGE);
        let in_memory = match self.older.get(page) {
            Some(OldPage::At(offset)) => return self.read(*offset, at).map(|message| Some(message.into())),
            Some(OldPage::Kept(page)) => page,
            None if page == self.older.len() && !self.last.ends.is_empty() => &self.last,
            None => &self.newest,
        };
        // Where the last page is empty, the newest one is the first.
        let is_there = idx < self.len();
        Ok(is_there.then(|| in_memory.get(at).into()))
    }

    /// Copies of the messages from `idx` on.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn since(&self, idx: usize) -> io::Result<Vec<Vec<u8>>> {
        (idx..self.len()).filter_map(|idx| self.get(idx).transpose()).map(|it| it.map(Cow::into_owned)).collect()
    }

    /// Adds a message.
    pub(super) fn push(&mut self, message: &[u8]) {
        if self.newest.ends.len() == PAGE {
            let full = std::mem::replace(&mut self.last, std::mem::take(&mut self.newest));
            if !full.ends.is_empty() {
                self.put_away(full);
            }
        }
        self.newest.bytes.extend_from_slice(message);
        // A page of messages as long as OUCH's has no 4 GiB.
        self.newest.ends.push(self.newest.bytes.len() as u32);
    }

    #[cold]
    fn put_away(&mut self, page: Page) {
        let old = match self.write(&page) {
            Ok(offset) => OldPage::At(offset),
            Err(error) => {
                self.error.get_or_insert_with(|| format!("no file in {}: {error}", self.folder.display()));
                OldPage::Kept(page)
            }
        };
        self.older.push(old);
    }

    /// Appends a page to the file; where it is.
    fn write(&mut self, page: &Page) -> io::Result<u64> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(nameless(&self.folder)?),
        };
        let offset = self.file_len;
        let bytes: Vec<u8> =
            page.ends.iter().flat_map(|end| end.to_ne_bytes()).chain(page.bytes.iter().copied()).collect();
        file.write_all_at(&bytes, offset)?;
        self.file_len += bytes.len() as u64;
        Ok(offset)
    }

    /// The message at `at` of the page at `offset`.
    fn read(&self, offset: u64, at: usize) -> io::Result<Vec<u8>> {
        let file = self.file.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let end_of = |at: usize| {
            let mut end = [0; size_of::<u32>()];
            file.read_exact_at(&mut end, offset + (at * size_of::<u32>()) as u64).map(|()| u32::from_ne_bytes(end))
        };
        let begin = if at == 0 { 0 } else { end_of(at - 1)? };
        let mut message = vec![0; end_of(at)?.saturating_sub(begin) as usize];
        file.read_exact_at(&mut message, offset + ENDS_LEN + u64::from(begin))?;
        Ok(message)
    }
}

impl Page {
    fn get(&self, at: usize) -> &[u8] {
        let begin = if at == 0 { 0 } else { self.ends[at - 1] as usize };
        &self.bytes[begin..self.ends[at] as usize]
    }
}

/// A file that no other process finds, and that is gone when it is closed.
fn nameless(folder: &Path) -> io::Result<File> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = folder.join(format!("exchange-sim-{}-{number}", process::id()));
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use tempfile::tempdir;

    use super::*;

    /// Of zero to 96 bytes.
    fn message(number: usize) -> Vec<u8> {
        vec![number as u8; number * 31 % 97]
    }

    fn log_of(folder: &Path, count: usize) -> MessageLog {
        let mut log = MessageLog::in_folder(folder);
        (0..count).for_each(|number| log.push(&message(number)));
        log
    }

    fn in_memory(log: &MessageLog) -> usize {
        let kept = log.older.iter().filter(|page| matches!(page, OldPage::Kept(_))).count();
        kept * PAGE + log.last.ends.len() + log.newest.ends.len()
    }

    #[test]
    fn messages_are_as_they_were_whether_a_file_has_them_or_memory() {
        let folder = tempdir().unwrap();
        for count in [0, 1, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE, 2 * PAGE + 1, 5 * PAGE + 7] {
            let log = log_of(folder.path(), count);
            assert_eq!(log.since(0).unwrap(), (0..count).map(message).collect::<Vec<_>>(), "{count}");
            assert_eq!((log.len(), log.get(count).unwrap()), (count, None));
        }
    }

    #[test]
    fn memory_has_two_pages_and_the_file_no_name() {
        let folder = tempdir().unwrap();
        let log = log_of(folder.path(), 9 * PAGE);
        assert_eq!((in_memory(&log), log.error()), (2 * PAGE, None));
        assert_eq!(folder.path().read_dir().unwrap().count(), 0);
    }

    #[test]
    fn messages_stay_in_memory_where_there_is_no_file() {
        let log = log_of(Path::new("/nowhere"), 3 * PAGE);
        assert_eq!((in_memory(&log), log.since(3 * PAGE - 1).unwrap()), (3 * PAGE, vec![message(3 * PAGE - 1)]));
        assert_eq!(log.get(1).unwrap().as_deref(), Some(&message(1)[..]));
        assert!(log.error().unwrap().starts_with("no file in /nowhere: "));
    }
}
