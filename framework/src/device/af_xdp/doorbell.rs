//! The doorbell of a queue without the queue: the system call by which the kernel takes frames from
//! the tx ring, made by a thread that has left the queue to others. In copy mode the kernel runs
//! the frames' whole way within that call, so a lock around the queue is better not held for it.
//!
//! ```text
//!   A: lock, post, publish, unlock ── ring: sendto ──────────── is anything due? sendto ──▶
//!   B:                  lock, post, publish, unlock ── ring: due, and A is about it ──▶
//! ```

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::io;
use std::os::fd::RawFd;
use std::sync::{Mutex, PoisonError, TryLockError};

use super::rings::sys;
use crate::device;

/// Frames that sendto(2) takes from the tx ring in copy mode on kernels without a configurable
/// number (TX_BATCH_SIZE).
pub(super) const KICK_BATCH: u32 = 32;
/// System calls that a thread makes for others' frames before it has them wait for theirs.
const FOR_OTHERS_MAX: u32 = 8;

/// The doorbell of one queue.
#[derive(Debug)]
pub(super) struct Doorbell {
    /// `None` once the socket is closed: the number may be another file's. The thread that rings
    /// has the lock, so the socket is closed after its call.
    socket: Mutex<Option<RawFd>>,
    /// Frames were published for which no system call has begun.
    is_due: AtomicBool,
    /// The thread that rings has done so for others often enough: they wait for it, and ring.
    is_long: AtomicBool,
    /// Frames that the ring held when they were last published.
    frames: AtomicU32,
    /// The number of the error with which the kernel has refused, until the queue takes it; 0 for
    /// none.
    refused: AtomicI32,
}

impl Doorbell {
    pub(super) fn new(socket: RawFd) -> Self {
        Self {
            socket: Mutex::new(Some(socket)),
            is_due: AtomicBool::new(false),
            is_long: AtomicBool::new(false),
            frames: AtomicU32::new(0),
            refused: AtomicI32::new(0),
        }
    }

    /// The next call is for a ring with so many frames.
    pub(super) fn expect(&self, frames: u32) {
        self.frames.store(frames, Ordering::Relaxed);
    }

    /// The error with which the kernel has refused since this was last asked.
    #[inline]
    pub(super) fn take_refusal(&self) -> Option<io::Error> {
        if self.refused.load(Ordering::Relaxed) == 0 {
            return None;
        }
        Some(io::Error::from_raw_os_error(self.refused.swap(0, Ordering::Relaxed)))
    }

    /// Waits for the thread that rings; nobody uses the socket here after that.
    pub(super) fn close(&self) {
        *self.socket.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Makes the call by `kick` until nothing is due, unless another thread is about it.
    fn ring_by(&self, kick: impl Fn(RawFd) -> io::Result<()>) {
        self.is_due.store(true, Ordering::SeqCst);
        // What becomes due while this thread lets the lock go is its own to do.
        while self.is_due.load(Ordering::SeqCst) {
            let socket = if self.is_long.load(Ordering::SeqCst) {
                self.socket.lock().unwrap_or_else(PoisonError::into_inner)
            } else {
                match self.socket.try_lock() {
                    Ok(socket) => socket,
                    Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                    Err(TryLockError::WouldBlock) => return,
                }
            };
            let Some(number) = *socket else { return };
            let mut calls = 0;
            while self.is_due.swap(false, Ordering::SeqCst) {
                self.call(number, &kick);
                calls += 1;
                self.is_long.store(calls >= FOR_OTHERS_MAX, Ordering::SeqCst);
            }
            self.is_long.store(false, Ordering::SeqCst);
        }
    }

    fn call(&self, socket: RawFd, kick: impl Fn(RawFd) -> io::Result<()>) {
        let batches = self.frames.load(Ordering::Relaxed) / KICK_BATCH + 1;
        let mut done = Ok(());
        for _ in 0..batches {
            done = kick(socket);
            // It has stopped after its batch.
            if !matches!(&done, Err(error) if error.raw_os_error() == Some(libc::EAGAIN)) {
                break;
            }
        }
        if let Err(error) = done {
            self.refused.store(error.raw_os_error().unwrap_or(libc::EIO), Ordering::Relaxed);
        }
    }
}

impl device::Doorbell for Doorbell {
    fn ring(&self) {
        self.ring_by(sys::kick_tx);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a panic here is the report

    use std::cell::Cell;
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use super::*;

    const SOCKET: RawFd = 7;

    #[test]
    fn kernel_is_called_once() {
        let (doorbell, calls) = (Doorbell::new(SOCKET), Cell::new(0));
        doorbell.ring_by(|socket| {
            assert_eq!(socket, SOCKET);
            calls.set(calls.get() + 1);
            Ok(())
        });
        assert_eq!((calls.get(), doorbell.take_refusal().is_some()), (1, false));
    }

    #[test]
    fn frames_published_during_a_call_leave_by_another_of_the_same_thread() {
        let (doorbell, calls) = (Doorbell::new(SOCKET), Cell::new(0));
        doorbell.ring_by(|_| {
            calls.set(calls.get() + 1);
            if calls.get() == 1 {
                doorbell.ring_by(|_| unreachable!("another thread is about it"));
            }
            Ok(())
        });
        assert_eq!(calls.get(), 2);
    }

    #[test]
    fn batch_of_the_kernel_is_repeated_for_a_full_ring() {
        let (doorbell, calls) = (Doorbell::new(SOCKET), Cell::new(0));
        doorbell.expect(100);
        doorbell.ring_by(|_| {
            calls.set(calls.get() + 1);
            if calls.get() < 4 { Err(io::Error::from_raw_os_error(libc::EAGAIN)) } else { Ok(()) }
        });
        assert_eq!((calls.get(), doorbell.take_refusal().is_some()), (4, false));
    }

    #[test]
    fn refusal_is_reported_once() {
        let doorbell = Doorbell::new(SOCKET);
        doorbell.ring_by(|_| Err(io::Error::from_raw_os_error(libc::ENXIO)));
        assert_eq!(doorbell.take_refusal().and_then(|error| error.raw_os_error()), Some(libc::ENXIO));
        assert!(doorbell.take_refusal().is_none());
    }

    #[test]
    fn closed_socket_is_called_no_more() {
        let doorbell = Doorbell::new(SOCKET);
        doorbell.close();
        doorbell.ring_by(|_| unreachable!("its number may be another file's"));
    }

    #[test]
    fn no_frame_stays_behind_of_several_threads() {
        const THREADS: usize = 3;
        const ROUNDS: usize = 2_000;
        let (doorbell, published, sent) = (Doorbell::new(SOCKET), AtomicUsize::new(0), AtomicUsize::new(0));
        let kick = |_| {
            sent.store(published.load(Ordering::SeqCst), Ordering::SeqCst);
            Ok(())
        };
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        published.fetch_add(1, Ordering::SeqCst);
                        doorbell.ring_by(kick);
                    }
                });
            }
        });
        assert_eq!(sent.load(Ordering::SeqCst), THREADS * ROUNDS);
    }
}
