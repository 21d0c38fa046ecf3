//! The broker's log: a line on standard error for each event. Any user can cause lines, so they are
//! short, a place that takes none costs the line and not the broker, and a log of our own making
//! does not fill its disk.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use wirepath::counters::printable;

/// The start of each line.
pub(super) const LINE_START: &str = "wirepath: ";
/// The most characters of a line.
const LINE_LEN_MAX: usize = 400;
/// The length at which a bounded log begins anew.
const LOG_LEN_MAX: u64 = 1 << 20;
/// Lines that wait to be written, and how long they are waited for at the end.
const LINES_MAX: usize = 64;
const PATIENCE: Duration = Duration::from_secs(1);

/// Where the lines go. A thread of its own writes them, because a pipe whose reader has stopped
/// would stop the broker.
pub(super) struct Log {
    lines: Option<SyncSender<String>>,
    is_done: Receiver<()>,
}

impl Log {
    /// Standard error. `is_bounded`: a file of our own, which begins anew once it is long.
    pub(super) fn new(is_bounded: bool) -> io::Result<Self> {
        Self::to(File::from(io::stderr().as_fd().try_clone_to_owned()?), is_bounded)
    }

    fn to(file: File, is_bounded: bool) -> io::Result<Self> {
        let (lines, to_write) = sync_channel::<String>(LINES_MAX);
        let (done, is_done) = sync_channel(1);
        thread::Builder::new().name("log".into()).spawn(move || {
            to_write.iter().for_each(|line| write(&file, &line, is_bounded));
            let _ = done.send(());
        })?;
        Ok(Self { lines: Some(lines), is_done })
    }

    /// Writes a line, unless many wait to be written.
    pub(super) fn say(&self, line: &str) {
        let all = printable(line).to_string();
        let mut words: String = all.chars().take(LINE_LEN_MAX).collect();
        if words.len() < all.len() {
            words.push_str(" ...");
        }
        let _ = self.lines.as_ref().map(|lines| lines.try_send(words));
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.lines = None;
        let _ = self.is_done.recv_timeout(PATIENCE);
    }
}

fn write(mut file: &File, line: &str, is_bounded: bool) {
    if is_bounded && file.metadata().is_ok_and(|file| file.len() > LOG_LEN_MAX) {
        let _ = file.set_len(0);
    }
    // Nobody is left to tell that there is no room.
    let _ = file.write_all(format!("{LINE_START}{line}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};

    use super::*;

    #[test]
    fn place_that_takes_no_line_costs_the_line_alone() {
        let full = Log::to(OpenOptions::new().write(true).open("/dev/full").unwrap(), false).unwrap();
        full.say("lost");
        let (reader, writer) = io::pipe().unwrap();
        let stalled = Log::to(File::from(std::os::fd::OwnedFd::from(writer)), false).unwrap();
        // More than a pipe of 64 KiB has room for.
        (0..1_000).for_each(|_| stalled.say(&"x".repeat(LINE_LEN_MAX)));
        drop(reader);
        stalled.say("lost");
    }

    #[test]
    fn line_is_cut_and_a_bounded_log_begins_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let file = || OpenOptions::new().append(true).create(true).open(&path).unwrap();
        Log::to(file(), true).unwrap().say(&"é".repeat(5_000));
        let said = fs::read_to_string(&path).unwrap();
        assert_eq!(said, format!("wirepath: {} ...\n", "é".repeat(LINE_LEN_MAX)));
        file().set_len(LOG_LEN_MAX + 1).unwrap();
        Log::to(file(), true).unwrap().say("anew");
        assert_eq!(fs::read_to_string(&path).unwrap(), "wirepath: anew\n");
        file().set_len(LOG_LEN_MAX + 1).unwrap();
        Log::to(file(), false).unwrap().say("more");
        assert!(fs::metadata(&path).unwrap().len() > LOG_LEN_MAX);
    }
}
