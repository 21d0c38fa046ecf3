//! The thread that samples clocks beside the workers, so that each worker can convert its time to
//! wall time and to the NIC's clock, with an error bound and without a system call.
//!
//! ```text
//!  thread, ten times a second                                        worker
//!  ours, wall, ours ─▶ ClockTracker ─┐
//!  ours, NIC,  ours ─▶ ClockTracker ─┴▶ Timeline ═══ lossy ring ═══▶ TimelineReader::latest
//!                                          └─▶ gauges for `wirepath stats`
//! ```
//!
//! The thread must read the same clock as the worker: pass it a copy, so that both have one origin.
//! Copies of a [`TscClock`](crate::time::TscClock) keep one origin, even if the processor's counter
//! steps back.

mod clock_read;
mod phc;

use core::time::Duration;
use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};

pub use phc::Phc;

use super::spsc::lossy::{self, Next};
use crate::counters::{Counter, Gauge, Scope, Unit};
use crate::sys::helper;
use crate::time::{Clock, ClockMapping, ClockTracker, CrossTimestamp, Timeline, UnixTime};

/// Reads a NIC's clock; `None` if the read fails.
pub type NicClock = Box<dyn FnMut() -> Option<UnixTime> + Send>;

/// The time scale of the wall clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wall {
    /// CLOCK_REALTIME.
    #[default]
    Utc,
    /// CLOCK_TAI: without leap seconds. It equals UTC until a daemon such as `ptp4l` or `chronyd`
    /// has set the kernel's offset.
    Tai,
}

/// The clocks to sample, and how often.
pub struct TimelineConfig {
    /// The wall clock's time scale. By default UTC.
    pub wall: Wall,
    /// The NIC's clock, if there is one: of a [`Phc`], or of
    /// [`LivePort::nic_clock`](super::live::LivePort::nic_clock). By default `None`.
    pub nic: Option<NicClock>,
    /// The sampling interval. With 100 ms the error grows by a tenth of a microsecond between
    /// samples. By default 100 ms.
    pub every: Duration,
}

impl Default for TimelineConfig {
    /// UTC ten times a second, and no NIC.
    fn default() -> Self {
        Self { wall: Wall::Utc, nic: None, every: Duration::from_millis(100) }
    }
}

/// Readings per sample, of which the best one counts: with four, one interrupt of the thread does
/// no harm.
const TRIES: usize = 4;
/// Timelines in a ring. A worker needs only the last one; a few more keep it away from the slot
/// being written.
const RING_LEN: usize = 4;

type Words = [u64; 12];

/// The sampling thread. Dropping this ends it.
#[derive(Debug)]
pub struct TimelineThread {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A worker's view of the timeline.
///
/// ```
/// use wirepath::counters::Block;
/// use wirepath::time::{Clock, MonotonicClock};
/// use wirepath::worker::timeline::{TimelineConfig, TimelineThread};
///
/// let (mut clock, block) = (MonotonicClock::start(), Block::heap());
/// let (_samples, mut readers) = TimelineThread::start(clock, TimelineConfig::default(), 1, &block.scope("port"))?;
/// // In a worker: its time on the wall clock, and the error bound.
/// let wall = readers[0].latest().wall_at(clock.now()).expect("the wall was sampled at the start");
/// println!("{:?} +- {:?}", wall.at, wall.error);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct TimelineReader {
    ring: lossy::Reader<Words>,
    latest: Timeline,
}

impl TimelineThread {
    /// Starts sampling `clock` against the others, for `readers` workers. The first sample is made
    /// here, so that each reader has a timeline at once. Gauges and counters are registered in the
    /// scope `timeline` below `scope`.
    ///
    /// # Errors
    /// The NIC's clock or the wall clock cannot be read, or the thread cannot be started: one
    /// sentence.
    pub fn start(
        clock: impl Clock + Send + 'static,
        config: TimelineConfig,
        readers: usize,
        scope: &Scope,
    ) -> io::Result<(Self, Vec<TimelineReader>)> {
        let TimelineConfig { wall, nic, every } = config;
        let mut sampler = Sampler::new(clock, wall, nic, scope);
        let first = sampler.sample();
        if first.wall.is_none() {
            return Err(io::Error::other("the system's clock cannot be read"));
        }
        if sampler.nic.is_some() && first.nic.is_none() {
            return Err(io::Error::other("the NIC's clock cannot be read: omit it, or use its PTP hardware clock"));
        }
        let mut ring = lossy::ring::<Words>(RING_LEN).expect("a power of two");
        let readers = (0..readers).map(|_| TimelineReader { ring: ring.reader(), latest: first }).collect();
        let (stop, stopped) = mpsc::channel::<()>();
        let thread = helper::spawn(thread::Builder::new().name("wirepath-clocks".into()), move || {
            while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                ring.push(&sampler.sample().to_words());
            }
        })?;
        Ok((Self { stop: Some(stop), thread: Some(thread) }, readers))
    }
}

impl Drop for TimelineThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The thread does not panic, and if it did the workers would run on.
            let _ = thread.join();
        }
    }
}

impl TimelineReader {
    /// The latest timeline: one load if there is no new one, otherwise a copy of 96 bytes. No lock,
    /// no system call, and no wait for the thread.
    #[inline]
    pub fn latest(&mut self) -> &Timeline {
        // Each iteration takes a new timeline, or skips overwritten ones.
        for _ in 0..=RING_LEN {
            match self.ring.read() {
                Next::Event(words) => self.latest = Timeline::from_words(&words),
                Next::Lost(_) => {}
                Next::Empty => break,
            }
        }
        &self.latest
    }
}

/// The clocks, and their trackers.
struct Sampler<C> {
    clock: C,
    wall: libc::clockid_t,
    nic: Option<NicClock>,
    wall_tracker: ClockTracker,
    nic_tracker: ClockTracker,
    published: Published,
}

impl<C: Clock> Sampler<C> {
    fn new(clock: C, wall: Wall, nic: Option<NicClock>, scope: &Scope) -> Self {
        let wall = match wall {
            Wall::Utc => libc::CLOCK_REALTIME,
            Wall::Tai => libc::CLOCK_TAI,
        };
        let published = Published::new(&scope.scope("timeline"));
        Self { clock, wall, nic, wall_tracker: ClockTracker::new(), nic_tracker: ClockTracker::new(), published }
    }

    fn sample(&mut self) -> Timeline {
        let Self { clock, wall, nic, wall_tracker, nic_tracker, published } = self;
        if let Some(sample) = CrossTimestamp::read(clock, || clock_read::read(*wall).ok(), TRIES) {
            wall_tracker.add(&sample);
        }
        if let Some(nic) = nic {
            match CrossTimestamp::read(clock, nic, TRIES) {
                Some(sample) => {
                    nic_tracker.add(&sample);
                }
                None => published.nic_clock_unreadable.inc(),
            }
        }
        let timeline = Timeline { wall: wall_tracker.line(), nic: nic_tracker.line() };
        published.publish(&timeline, wall_tracker.steps() + nic_tracker.steps());
        timeline
    }
}

/// The timeline for tools: the worker's clock and the others at one moment, so that a reader can
/// convert a worker's instants, such as `last_poll`.
struct Published {
    instant: Gauge,
    wall: Gauge,
    wall_error: Gauge,
    nic: Gauge,
    nic_error: Gauge,
    samples: Counter,
    /// The wall or the NIC's clock was set.
    steps: Counter,
    nic_clock_unreadable: Counter,
}

impl Published {
    fn new(scope: &Scope) -> Self {
        Self {
            instant: scope.gauge("instant", Unit::ClockNanoseconds),
            wall: scope.gauge("wall", Unit::Nanoseconds),
            wall_error: scope.gauge("wall_error", Unit::Nanoseconds),
            nic: scope.gauge("nic", Unit::Nanoseconds),
            nic_error: scope.gauge("nic_error", Unit::Nanoseconds),
            samples: scope.counter("samples", Unit::Events),
            steps: scope.counter("steps", Unit::Events),
            nic_clock_unreadable: scope.counter("nic_clock_unreadable", Unit::Events),
        }
    }

    fn publish(&self, timeline: &Timeline, steps: u64) {
        self.samples.inc();
        self.steps.add(steps - self.steps.get());
        let Some(now) = timeline.wall.map(|line| line.base()) else { return };
        self.instant.set(now.as_nanos());
        let show = |line: Option<ClockMapping>, clock: &Gauge, error: &Gauge| {
            let Some(there) = line.map(|line| line.to_other(now)) else { return };
            clock.set(there.at.as_nanos());
            error.set(there.error.as_nanos());
        };
        show(timeline.wall, &self.wall, &self.wall_error);
        show(timeline.nic, &self.nic, &self.nic_error);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;
    use std::time::SystemTime;

    use super::*;
    use crate::counters::Block;
    use crate::time::MonotonicClock;

    #[test]
    fn worker_knows_the_wall_without_asking() {
        let block = Block::heap();
        let mut clock = MonotonicClock::start();
        let config = TimelineConfig { every: Duration::from_millis(1), ..TimelineConfig::default() };
        let (thread, mut readers) = TimelineThread::start(clock, config, 2, &block.scope("app")).unwrap();
        let since_epoch = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64;
        for reader in &mut readers {
            let (before, now, after) = (since_epoch(), clock.now(), since_epoch());
            let wall = reader.latest().wall_at(now).unwrap();
            let error = wall.error.as_nanos();
            assert!(
                (before.saturating_sub(error)..=after + error).contains(&wall.at.as_nanos()),
                "{wall} is not in {before}..={after}"
            );
        }
        drop(thread);
        let snapshot = block.snapshot();
        assert!(snapshot.count("app/timeline/samples").unwrap() >= 1);
        assert!(snapshot.sample("app/timeline/wall_error").is_some());
    }

    #[test]
    fn timelines_that_were_made_meanwhile_arrive() {
        let block = Block::heap();
        let clock = MonotonicClock::start();
        // The NIC's clock reports each read, and blocks until the test has seen it.
        let (reported, reads) = sync_channel(0);
        let mut shown = 0;
        let nic: NicClock = Box::new(move || {
            shown += 1;
            // The test reads neither the first nor the last reports.
            let _ = if shown > TRIES as u64 { reported.send(()) } else { Ok(()) };
            Some(UnixTime::from_nanos(shown))
        });
        let config = TimelineConfig { nic: Some(nic), every: Duration::from_millis(1), ..TimelineConfig::default() };
        let (thread, mut readers) = TimelineThread::start(clock, config, 1, &block.scope("app")).unwrap();
        let first = *readers[0].latest();
        (0..=10 * TRIES).for_each(|_| reads.recv().unwrap());
        let later = *readers[0].latest();
        assert!(later.nic.unwrap().base() > first.nic.unwrap().base());
        drop(reads);
        drop(thread);
    }

    #[test]
    fn clock_of_a_nic_that_cannot_be_read_is_refused_at_set_up() {
        let config = TimelineConfig { nic: Some(Box::new(|| None)), ..TimelineConfig::default() };
        let refused = TimelineThread::start(MonotonicClock::start(), config, 1, &Block::heap().scope("app"));
        assert!(refused.is_err_and(|error| error.to_string().contains("NIC's clock cannot be read")));
    }

    #[test]
    fn tai_is_never_behind_utc() {
        let (utc, tai) = (clock_read::read(libc::CLOCK_REALTIME).unwrap(), clock_read::read(libc::CLOCK_TAI).unwrap());
        assert!(tai >= utc);
    }
}
