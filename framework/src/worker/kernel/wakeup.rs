//! Ends the sleep of one end of a ring: of a worker, or of the mirror.
//!
//! An end that polls costs the other end a fence and a load after each push. One that is about to
//! sleep arms the wake-up, looks at its rings once more, and sleeps on the descriptor; the other
//! end then makes one system call, however much it pushes before the sleeper has woken.

use core::sync::atomic::{AtomicU8, Ordering, fence};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};

use crate::sys::socket::eventfd;

/// The end polls: nobody sleeps on the descriptor.
const POLLED: u8 = 0;
/// A push makes the descriptor readable.
const ARMED: u8 = 1;
/// It is readable, or is about to be.
const RUNG: u8 = 2;

#[derive(Debug)]
pub(crate) struct Wakeup {
    event: File,
    state: AtomicU8,
}

impl Wakeup {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { event: eventfd()?, state: AtomicU8::new(POLLED) })
    }

    /// Readable once something was pushed since it was armed.
    pub(super) fn fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    /// Whether it was ever armed: its end is one that sleeps.
    pub(super) fn is_slept_on(&self) -> bool {
        self.state.load(Ordering::Relaxed) != POLLED
    }

    /// Before a sleep. The caller looks at its rings after it: what is pushed later ends the sleep.
    pub(super) fn arm(&self) {
        // The other end may be about to write: then this sleep ends early, and the next one reads.
        if self.state.load(Ordering::Acquire) == RUNG && (&self.event).read(&mut [0; 8]).is_err() {
            return;
        }
        self.state.store(ARMED, Ordering::Relaxed);
        // With that of `wake`: either the caller sees the push, or the other end sees the state.
        fence(Ordering::SeqCst);
    }

    /// After a push.
    pub(super) fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.state.load(Ordering::Relaxed) == ARMED
            && self.state.compare_exchange(ARMED, RUNG, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        {
            // A count of one has room: each is read before the next is written.
            let _ = (&self.event).write(&1_u64.to_ne_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::socket::wait_readable;

    fn is_readable(wakeup: &Wakeup) -> bool {
        wait_readable([Some(wakeup.fd())], Some(core::time::Duration::ZERO)).unwrap()
    }

    #[test]
    fn armed_descriptor_is_readable_after_a_push_until_it_is_armed_again() {
        let wakeup = Wakeup::new().unwrap();
        wakeup.wake();
        assert!(!wakeup.is_slept_on() && !is_readable(&wakeup), "its end polls");
        wakeup.arm();
        assert!(wakeup.is_slept_on() && !is_readable(&wakeup));
        wakeup.wake();
        wakeup.wake();
        assert!(is_readable(&wakeup));
        wakeup.arm();
        assert!(!is_readable(&wakeup));
    }

    #[test]
    fn push_that_is_not_written_yet_ends_the_next_sleep() {
        let wakeup = Wakeup::new().unwrap();
        wakeup.arm();
        // The other end has changed the state, and is interrupted before it writes.
        wakeup.state.store(RUNG, Ordering::Relaxed);
        wakeup.arm();
        (&wakeup.event).write_all(&1_u64.to_ne_bytes()).unwrap();
        assert!(is_readable(&wakeup));
        wakeup.arm();
        assert!(!is_readable(&wakeup));
    }

    #[test]
    fn no_push_is_missed_by_a_thread_that_sleeps() {
        const PUSHES: u32 = 2_000;
        let (wakeup, pushed) = (Wakeup::new().unwrap(), core::sync::atomic::AtomicU32::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..PUSHES {
                    pushed.fetch_add(1, Ordering::Release);
                    wakeup.wake();
                }
            });
            let mut seen = 0;
            while seen < PUSHES {
                wakeup.arm();
                let now = pushed.load(Ordering::Acquire);
                if now == seen {
                    let minute = core::time::Duration::from_secs(60);
                    assert!(wait_readable([Some(wakeup.fd())], Some(minute)).unwrap(), "a push was missed");
                }
                seen = now;
            }
        });
    }
}
