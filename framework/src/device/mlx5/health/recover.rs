//! Recovery from an error. A WQE that the NIC cannot execute puts its ring into the error state: an
//! error CQE gives the reason, and all other posted WQEs are flushed (mlx5.md 2.9). The half that
//! owns the ring counts the frame by its reason, and recovers:
//!
//! ```text
//!  error CQE ──▶ reset: the NIC releases it ──▶ CQ drained, mbufs freed, indices 0 ──▶ ready: the NIC owns it again, empty
//! ```
//!
//! Send and receive have separate objects, so one continues while the other recovers. Repeated
//! failures are retried less and less often: each attempt is some system calls, in the worker's
//! loop.

use std::io;

use crate::counters::{Counter, Scope, Unit};
use crate::time::{Duration, Instant};

/// The verbs objects behind a ring, for the half that drives it. The methods call the kernel, after
/// an error and at the end, never per frame.
pub(crate) trait Objects {
    /// Moves the ring to the reset state. After `Ok` the NIC touches neither the ring nor the
    /// buffers in it, the CQEs that it wrote are in the CQ and no more will follow, and indices and
    /// doorbell records are 0.
    fn reset(&mut self) -> io::Result<()>;

    /// Gives the ring back to the NIC, empty, at index 0.
    fn ready(&mut self) -> io::Result<()>;

    /// The end: as [`reset`](Self::reset), and no call follows. After an error the NIC may still
    /// touch the buffers.
    fn close(&mut self) -> io::Result<()> {
        self.reset()
    }

    /// Whether the device was removed, by a source other than the call that failed.
    fn are_gone(&mut self) -> bool {
        false
    }
}

/// The objects behind a ring, with the schedule of their resets.
pub(crate) struct Recovery {
    objects: Box<dyn Objects>,
    /// The earliest time of the next reset.
    due: Instant,
    pause: Duration,
    /// The completion queue is lost: no reset helps.
    has_ended: bool,
    resets: Counter,
    failed_resets: Counter,
    cq_errors: Counter,
    /// Buffers leaked because the NIC did not release them.
    leaked: Counter,
}

/// The source of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorSource {
    /// Unknown, or ourselves: the first retry is immediate.
    Ours,
    /// The sender of a frame longer than the ring's buffers. A longer pause would not stop the next
    /// such frame, and only cost the good frames between.
    Wire,
}

/// The pause between two resets, doubled with each until it reaches the maximum, and set back after
/// a quiet time. A frame that the NIC cannot send is a bug of ours, which may recur with each
/// order: the port must still send the good frames in between. A reset is four firmware commands,
/// each of which may take 100 µs: with the longest pause that is half a percent of the worker's
/// time.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(100);
const QUIET: Duration = Duration::from_secs(1);

impl Recovery {
    /// For objects that are ready. Counts `resets`, `failed_resets`, `cq_errors` and `leaked`
    /// buffers in `scope`.
    pub(crate) fn new(objects: Box<dyn Objects>, scope: &Scope) -> Self {
        Self {
            objects,
            due: Instant::ZERO,
            pause: PAUSE_MIN,
            has_ended: false,
            resets: scope.counter("resets", Unit::Events),
            failed_resets: scope.counter("failed_resets", Unit::Events),
            cq_errors: scope.counter("cq_errors", Unit::Events),
            leaked: scope.counter("leaked", Unit::Mbufs),
        }
    }

    /// Resets the ring, once that is due. After `true` the owner drains the CQ, frees its mbufs,
    /// starts at index 0 and calls [`ready`](Self::ready); after `false` it tries again on a later
    /// turn.
    #[cold]
    pub(crate) fn reset(&mut self, now: Instant) -> bool {
        self.reset_for(ErrorSource::Ours, now)
    }

    /// The same, with the source of the error.
    #[cold]
    pub(crate) fn reset_for(&mut self, error: ErrorSource, now: Instant) -> bool {
        if now < self.due || self.has_ended {
            return false;
        }
        let quiet = now.since(self.due) > QUIET;
        self.pause = match error {
            _ if quiet => PAUSE_MIN,
            ErrorSource::Ours => (self.pause + self.pause).min(PAUSE_MAX),
            ErrorSource::Wire => self.pause,
        };
        self.due = now + self.pause;
        self.resets.inc();
        self.counted(|objects| objects.reset())
    }

    /// Gives the ring back to the NIC. After `false` the owner returns to [`reset`](Self::reset),
    /// on a later turn.
    #[cold]
    pub(crate) fn ready(&mut self) -> bool {
        self.counted(|objects| objects.ready())
    }

    /// The completion queue is lost, and the ring cannot recover: only a new queue would. Buffers
    /// stay until this one is closed.
    #[cold]
    pub(crate) fn end(&mut self) {
        self.has_ended = true;
        self.cq_errors.inc();
    }

    /// Ends the queue; returns whether the NIC has released ring and buffers, so that mbufs may be
    /// freed. A removed device has released them too. After `false` the NIC may still write into
    /// buffers, or send them, at any time. Then their owner leaks them and counts them by
    /// [`leak`](Self::leak), so that the pool's memory stays mapped until the process ends.
    #[cold]
    #[must_use]
    pub(crate) fn close(&mut self) -> bool {
        let Err(error) = self.objects.close() else { return true };
        self.failed_resets.inc();
        match error.raw_os_error() {
            Some(libc::ENODEV) => true,
            // The kernel returns this for a device that it has removed (linux
            // drivers/infiniband/core/uverbs_main.c), but also for one that is present and whose
            // firmware rejected the command (`cmd_status_to_err` of mlx5/core/cmd.c).
            Some(libc::EIO) => self.objects.are_gone(),
            _ => false,
        }
    }

    /// Counts leaked buffers.
    #[cold]
    pub(crate) fn leak(&mut self, count: u64) {
        self.leaked.add(count);
    }

    fn counted(&mut self, call: impl FnOnce(&mut dyn Objects) -> io::Result<()>) -> bool {
        let done = call(&mut *self.objects).is_ok();
        if !done {
            self.failed_resets.inc();
        }
        done
    }
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)] // a panic here is the report

    use core::cell::Cell;
    use std::rc::Rc;

    use super::*;
    use crate::counters::Block;

    /// Fake objects that count their calls; the given number of calls fail.
    #[derive(Default)]
    pub(crate) struct Counted {
        pub(crate) resets: Cell<u32>,
        pub(crate) readies: Cell<u32>,
        pub(crate) failing: Cell<u32>,
        pub(crate) errno: Cell<i32>,
        are_gone: Cell<bool>,
    }

    impl Counted {
        fn call(&self, count: &Cell<u32>) -> io::Result<()> {
            count.set(count.get() + 1);
            match self.failing.get() {
                0 => Ok(()),
                failing => {
                    self.failing.set(failing - 1);
                    Err(io::Error::from_raw_os_error(self.errno.get()))
                }
            }
        }
    }

    impl Objects for Rc<Counted> {
        fn reset(&mut self) -> io::Result<()> {
            self.call(&self.resets)
        }

        fn ready(&mut self) -> io::Result<()> {
            self.call(&self.readies)
        }

        fn are_gone(&mut self) -> bool {
            self.are_gone.get()
        }
    }

    fn recovery() -> (Recovery, Rc<Counted>, Block) {
        let (block, counted) = (Block::heap(), Rc::new(Counted::default()));
        (Recovery::new(Box::new(Rc::clone(&counted)), &block.scope("q")), counted, block)
    }

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(100) + Duration::from_millis(ms)
    }

    #[test]
    fn errors_in_a_row_are_recovered_from_less_and_less_often() {
        let (mut recovery, counted, block) = recovery();
        let resets: Vec<u64> = (0..10_000).filter(|&ms| recovery.reset(at(ms)) && recovery.ready()).collect();
        assert_eq!(resets[..5], [0, 1, 3, 7, 15]);
        assert!(resets.len() < 110, "{resets:?}");
        assert_eq!(counted.resets.get() as usize, resets.len());
        assert_eq!(block.snapshot().count("q/resets"), Some(resets.len() as u64));
        assert_eq!(block.snapshot().count("q/failed_resets"), Some(0));
    }

    #[test]
    fn frames_that_are_too_long_make_no_pause_longer() {
        let (mut recovery, counted, _block) = recovery();
        let resets = (0..1_000).filter(|&ms| recovery.reset_for(ErrorSource::Wire, at(ms)) && recovery.ready()).count();
        assert_eq!((resets, counted.resets.get()), (1_000, 1_000), "one each ms");
        // An error of our own in between does.
        assert!(recovery.reset(at(1_000)) && !recovery.reset(at(1_001)) && recovery.reset(at(1_002)));
    }

    #[test]
    fn error_after_a_quiet_time_is_recovered_from_at_once() {
        let (mut recovery, ..) = recovery();
        (0..10_000).for_each(|ms| _ = recovery.reset(at(ms)));
        assert!(recovery.reset(at(12_000)));
        assert!(!recovery.reset(at(12_000)) && recovery.reset(at(12_001)));
    }

    #[test]
    fn reset_that_fails_is_tried_again_later() {
        let (mut recovery, counted, block) = recovery();
        counted.failing.set(1);
        assert!(!recovery.reset(at(0)));
        assert!(!recovery.reset(at(0)), "not at once");
        assert!(recovery.reset(at(5)));
        counted.failing.set(1);
        assert!(!recovery.ready());
        assert_eq!(block.snapshot().count("q/failed_resets"), Some(2));
    }

    #[test]
    fn ring_whose_completions_are_lost_is_not_reset_but_closed() {
        let (mut recovery, counted, block) = recovery();
        recovery.end();
        assert!(!recovery.reset(at(0)) && !recovery.reset(at(10_000)));
        assert_eq!((counted.resets.get(), block.snapshot().count("q/cq_errors")), (0, Some(1)));
        assert!(recovery.close());
    }

    #[test]
    fn close_resets_whenever_it_is() {
        let (mut recovery, counted, _block) = recovery();
        recovery.reset(at(0));
        assert!(recovery.close());
        assert_eq!(counted.resets.get(), 2);
    }

    #[test]
    fn close_that_fails_is_as_good_only_where_the_device_was_removed() {
        use libc::{EINVAL, EIO, ENODEV, ENOMEM};
        // A device that is present and rejected a command also returns EIO: it may still write into
        // the buffers.
        for (errno, are_gone, is_safe) in [
            (EIO, false, false),
            (EIO, true, true),
            (ENODEV, false, true),
            (EINVAL, true, false),
            (ENOMEM, false, false),
        ] {
            let (mut recovery, counted, block) = recovery();
            counted.failing.set(1);
            counted.errno.set(errno);
            counted.are_gone.set(are_gone);
            assert_eq!(recovery.close(), is_safe, "errno {errno}, gone {are_gone}");
            assert_eq!(block.snapshot().count("q/failed_resets"), Some(1));
        }
    }
}
