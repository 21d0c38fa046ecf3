//! The thread that writes the journal's pages to the disk: again and again, or when it is asked to.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use wirepath::worker::affinity::spawn_helper;

use crate::memory::SyncPolicy;

/// A disk that has not answered for so long is told, and then stops orders.
const SLOW_NS: u64 = 1_000_000_000;
const HANGS_NS: u64 = 5 * SLOW_NS;
/// One that was slow answers when each sync has ended before [`SLOW_NS`] for so long.
const CALM_NS: u64 = 10 * SLOW_NS;

/// The time between two syncs: what a power cut takes at most.
const PAUSE: Duration = Duration::from_millis(100);
/// How often who waits for a sync looks for its end.
const WAIT_PAUSE: Duration = Duration::from_millis(1);

/// The hot core's end. The thread lives as long as the process, or until the disk fails: what the
/// kernel could not write it takes for written from then on, so a later sync says nothing.
#[derive(Clone, Debug)]
pub struct JournalSync {
    shared: Arc<Shared>,
    thread: Thread,
}

#[derive(Debug, Default)]
struct Shared {
    has_failed: AtomicBool,
    /// Syncs that were begun, and those of them that have ended.
    begun: AtomicU64,
    done: AtomicU64,
    /// Somebody has asked since the last sync began.
    is_due: AtomicBool,
}

/// Without its thread nothing is written, whatever it ended by.
struct Failed(Arc<Shared>);

impl Drop for Failed {
    fn drop(&mut self) {
        self.0.has_failed.store(true, Ordering::Release);
    }
}

impl JournalSync {
    /// Starts the thread for `file`: with [`SyncPolicy::Timed`] it syncs ten times a second, with
    /// others when it is asked to.
    ///
    /// # Errors
    ///
    /// There is no thread.
    pub fn start(file: File, policy: SyncPolicy) -> io::Result<Self> {
        Self::start_with(move || file.sync_data(), policy)
    }

    /// The same with another disk: `sync` returns when all that is in the journal is there.
    ///
    /// # Errors
    ///
    /// There is no thread.
    pub fn start_with(
        mut sync: impl FnMut() -> io::Result<()> + Send + 'static,
        policy: SyncPolicy,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let is_timed = policy == SyncPolicy::Timed;
        let again_and_again = move || {
            let _failed = Failed(Arc::clone(&theirs));
            loop {
                if theirs.is_due.swap(false, Ordering::AcqRel) || is_timed {
                    theirs.begun.fetch_add(1, Ordering::AcqRel);
                    if sync().is_err() {
                        break;
                    }
                    theirs.done.fetch_add(1, Ordering::AcqRel);
                }
                if is_timed { thread::park_timeout(PAUSE) } else { thread::park() }
            }
        };
        let thread = spawn_helper(thread::Builder::new().name("sync".into()), again_and_again)?.thread().clone();
        Ok(Self { shared, thread })
    }

    /// Has all that is in the journal on the disk soon. It does not wait for that: a system call at
    /// most, for what is rare.
    pub fn request(&self) {
        self.shared.is_due.store(true, Ordering::Release);
        self.thread.unpark();
    }

    /// Has all that is in the journal on the disk, and waits so long for it. Whether it is there.
    pub fn wait(&self, within: Duration) -> bool {
        let end = Instant::now() + within;
        // One that is under way may have begun before the last record.
        let sync = self.shared.begun.load(Ordering::Acquire) + 1;
        self.request();
        loop {
            match self.shared.done.load(Ordering::Acquire) >= sync {
                true => return true,
                false if self.has_failed() || Instant::now() >= end => return false,
                false => thread::sleep(WAIT_PAUSE),
            }
        }
    }

    /// The sync that is under way, by its number. Two loads.
    fn under_way(&self) -> Option<u64> {
        let done = self.shared.done.load(Ordering::Acquire);
        let begun = self.shared.begun.load(Ordering::Acquire);
        (begun > done).then_some(begun)
    }

    /// Whether the disk failed: nothing is written since. One load.
    pub fn has_failed(&self) -> bool {
        self.shared.has_failed.load(Ordering::Acquire)
    }
}

/// How long a disk takes, by the clock of who looks at it in each turn.
#[derive(Debug, Default)]
pub(crate) struct DiskWatch {
    /// The sync that is under way, and when a turn saw it first.
    waits_for: Option<(u64, u64)>,
    state: DiskState,
    /// What people know. One that was slow is told to answer when it has been quick for a while: it
    /// may be slow each time.
    told: DiskState,
    /// When it was slow last.
    slow_at_ns: u64,
}

/// How a disk is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DiskState {
    /// It answers.
    #[default]
    Answers,
    /// It has not answered for a second.
    Slow,
    /// It has not answered for five seconds.
    Hangs,
}

impl DiskWatch {
    /// How the disk is, where people are to hear it.
    pub(crate) fn look(&mut self, sync: &JournalSync, clock: impl Fn() -> u64) -> Option<DiskState> {
        let under_way = sync.under_way();
        if under_way.is_none() && self.told == DiskState::Answers {
            self.waits_for = None;
            return None;
        }
        let now_ns = clock();
        let began = self.waits_for;
        self.waits_for = under_way.map(|number| {
            (number, began.filter(|(before, _)| *before == number).map_or(now_ns, |(_, since_ns)| since_ns))
        });
        self.state = match self.waits_for.map_or(0, |(_, since_ns)| now_ns.saturating_sub(since_ns)) {
            HANGS_NS.. => DiskState::Hangs,
            SLOW_NS.. => DiskState::Slow,
            _ => DiskState::Answers,
        };
        if self.state != DiskState::Answers {
            self.slow_at_ns = now_ns;
        }
        let is_calm = now_ns.saturating_sub(self.slow_at_ns) >= CALM_NS;
        if self.state > self.told || is_calm { self.tell(self.state) } else { None }
    }

    fn tell(&mut self, state: DiskState) -> Option<DiskState> {
        (core::mem::replace(&mut self.told, state) != state).then_some(state)
    }

    /// Whether it has not answered for so long that orders stop.
    pub(crate) fn hangs(&self) -> bool {
        self.state == DiskState::Hangs
    }

    /// What people hear who ask.
    pub(crate) fn words(&self, now_ns: u64) -> Option<String> {
        let ms = |since_ns: u64| now_ns.saturating_sub(since_ns) / 1_000_000;
        match (self.state, self.waits_for) {
            (DiskState::Slow | DiskState::Hangs, Some((_, since_ns))) => {
                Some(format!("the journal's disk has not answered for {} ms", ms(since_ns)))
            }
            _ if self.told != DiskState::Answers => {
                Some(format!("the journal's disk was slow, at last {} ms ago", ms(self.slow_at_ns)))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Begins a sync every 100 ms, each of which takes `ms`, and looks every 50 ms until `until`.
    fn syncs(watch: &mut DiskWatch, sync: &JournalSync, ms: u64, (from, until): (u64, u64)) -> Vec<(u64, DiskState)> {
        let (mut told, mut ends, mut begins) = (Vec::new(), None, from);
        for now in (from..until).step_by(50) {
            if ends.is_some_and(|at| at <= now) {
                sync.shared.done.fetch_add(1, Ordering::AcqRel);
                (ends, begins) = (None, now + 100);
            } else if ends.is_none() && begins <= now {
                sync.shared.begun.fetch_add(1, Ordering::AcqRel);
                ends = Some(now + ms);
            }
            told.extend(watch.look(sync, || now * MS).map(|state| (now, state)));
        }
        sync.shared.done.store(sync.shared.begun.load(Ordering::Acquire), Ordering::Release);
        told
    }

    #[test]
    fn disk_that_is_slow_each_time_is_told_once_and_to_answer_when_it_was_quick_for_ten_seconds() {
        let sync = JournalSync { shared: Arc::default(), thread: thread::current() };
        let mut watch = DiskWatch::default();
        assert_eq!(syncs(&mut watch, &sync, 900, (20_000, 40_000)), []);
        assert_eq!(syncs(&mut watch, &sync, 1_500, (40_000, 60_000)), [(41_000, DiskState::Slow)]);
        assert!(!watch.hangs());
        let told = syncs(&mut watch, &sync, 6_000, (60_000, 100_000));
        assert_eq!(told, [(65_000, DiskState::Hangs)]);
        let slow_ms = watch.slow_at_ns / MS;
        let told = syncs(&mut watch, &sync, 900, (100_000, 130_000));
        assert_eq!(told, [(slow_ms + 10_000, DiskState::Answers)]);
        assert_eq!(watch.words(130_000 * MS), None);
    }
}
