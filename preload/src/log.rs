//! The log: a file that the user names, which has each sentence of the library behind the time and
//! the number of the process. A daemon has no standard error that anybody reads.
//!
//! It is opened when the program begins, because a server gives up the rights and the root folder
//! by which it could open it later, and it stays open in children of `fork`. Sentences are few:
//! each is written by itself, at the end of the file, whoever else writes there.

use core::ffi::c_int;
use core::fmt::Display;
use core::sync::atomic::{AtomicBool, Ordering};
use std::fs::OpenOptions;
use std::io;
use std::os::fd::IntoRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use wirepath::counters::printable;

use crate::engine::{table, thread};
use crate::sys;

struct Log {
    fd: c_int,
    /// Device and inode. A program that closes descriptors by calls that the library does not see
    /// may get the number for a file of its own.
    identity: [u64; 3],
}

/// The open file, or the reason why there is none. Unset where the user names none.
static LOG: OnceLock<Result<Log, String>> = OnceLock::new();

/// Opens the file, and makes it if there is none. Called once, when the program begins.
pub(crate) fn open(path: &Path) {
    let _ = LOG.set(open_file(path).map_err(|error| format!("{} cannot be the log ({error})", path.display())));
}

fn open_file(path: &Path) -> io::Result<Log> {
    // A link may be another user's, and a pipe without a reader would hold the program for ever.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new().append(true).create(true).mode(0o640).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let fd = thread::move_high(file.into_raw_fd());
    table::reserve_for_good(fd);
    let identity = sys::identity(fd).ok_or_else(|| io::Error::other("it is closed"))?;
    Ok(Log { fd, identity })
}

/// Adds a sentence, if there is a log.
pub(crate) fn write(sentence: impl Display) {
    let Some(log) = opened().filter(|log| sys::identity(log.fd) == Some(log.identity)) else { return };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let line = format!("{} {} wirepath: {}\n", utc(now), sys::getpid(), printable(sentence.to_string()));
    let _ = sys::write(log.fd, line.as_bytes());
}

/// Why there is no log, although the user names one. Once.
pub(crate) fn take_failure() -> Option<&'static str> {
    static IS_TAKEN: AtomicBool = AtomicBool::new(false);
    match LOG.get() {
        Some(Err(why)) if !IS_TAKEN.swap(true, Ordering::Relaxed) => Some(why),
        _ => None,
    }
}

/// Whether the log is this file.
pub(crate) fn is_file(identity: Option<[u64; 3]>) -> bool {
    opened().is_some_and(|log| Some(log.identity) == identity)
}

/// Whether the log has this descriptor, which children of `fork` keep.
pub(crate) fn has(fd: c_int) -> bool {
    opened().is_some_and(|log| log.fd == fd)
}

fn opened() -> Option<&'static Log> {
    LOG.get()?.as_ref().ok()
}

/// Seconds since 1970 as RFC 3339 writes them.
fn utc(seconds: u64) -> String {
    let (day, second) = (seconds / 86_400 + 719_468, seconds % 86_400);
    // Days since 1 March of the year 0, in eras of 400 years.
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let year = era * 400 + year_of_era + u64::from(month >= 10);
    let month = if month < 10 { month + 3 } else { month - 9 };
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_that_of_the_calendar() {
        let check = |seconds, expected| assert_eq!(utc(seconds), expected);
        check(0, "1970-01-01T00:00:00Z");
        check(951_782_399, "2000-02-28T23:59:59Z");
        check(951_782_400, "2000-02-29T00:00:00Z");
        check(1_795_942_089, "2026-11-29T08:48:09Z");
        check(4_107_542_400, "2100-03-01T00:00:00Z");
    }
}
