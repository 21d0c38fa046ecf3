//! The state that both halves of a tapped queue share: the presence of a listener, the wall clock
//! time, and the ring.
//!
//! The worker reads no clock. A listener's beat is the Unix time at which it was written, so the
//! worker learns from it the wall clock time of its own `now`, and uses that for frames without a
//! device timestamp.

use core::cell::{Cell, RefCell};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Relaxed, Release};

use super::layout::{HEARTBEAT, HEARTBEAT_SEEN, SNAP};
use super::ring::{Direction, FrameCounts, Head, SNAP_MAX, Words, Writer};
use crate::counters::{Counter, Publication, Scope, Unit, WordsHandle};
use crate::mem::Mbuf;
use crate::time::{Duration, Instant, UnixTime};

/// Time without a new beat after which no listener is assumed. Listeners beat every half second;
/// one that the scheduler delayed for longer counts the frames it missed and resumes.
const LEASE: Duration = Duration::from_secs(3);

/// The shared memory of a tap before a worker has it.
pub(super) struct Shared {
    pub(super) words: WordsHandle<[AtomicU64]>,
    pub(super) capacity: u64,
    /// None if the ring could not be shared, so that there will never be a listener.
    pub(super) publication: Option<Publication>,
}

pub(super) struct Recorder {
    /// The word in which listeners signal their presence.
    beat: WordsHandle<AtomicU64>,
    /// Its last value; zero without a listener.
    last_beat: Cell<u64>,
    last_beat_at: Cell<Instant>,
    /// The worker's time at its last check during which a listener was present.
    now: Cell<Instant>,
    /// Unix time in ns at the origin of the worker's clock, derived from the listeners' beats.
    epoch_ns: Cell<u64>,
    received: Cell<u64>,
    sent: Cell<u64>,
    snap: Cell<usize>,
    ring: RefCell<Writer<WordsHandle<[AtomicU64]>>>,
    frames: Counter,
    /// Removes the file from the directory when the tap is dropped.
    _publication: Option<Publication>,
}

impl Recorder {
    pub(super) fn new(shared: Shared, scope: &Scope) -> Self {
        Self {
            beat: shared.words.word(HEARTBEAT),
            last_beat: Cell::new(0),
            last_beat_at: Cell::new(Instant::ZERO),
            now: Cell::new(Instant::ZERO),
            epoch_ns: Cell::new(0),
            received: Cell::new(0),
            sent: Cell::new(0),
            snap: Cell::new(SNAP_MAX),
            ring: RefCell::new(Writer::new(shared.words, shared.capacity)),
            frames: scope.scope("tap").counter("frames", Unit::Frames),
            _publication: shared.publication,
        }
    }

    /// Whether a listener is present or just left, checked once per turn: [`Recorder::attend`]
    /// follows. Without a listener it loads a word that is never written.
    #[inline(always)]
    pub(super) fn wants_attention(&self) -> bool {
        self.beat.load(Relaxed) | self.last_beat.get() != 0
    }

    /// Whether a listener was present at the last check.
    #[inline(always)]
    pub(super) fn has_listener(&self) -> bool {
        self.last_beat.get() != 0
    }

    /// Counts received frames without a listener.
    #[inline(always)]
    pub(super) fn pass_received(&self, frames: usize) {
        self.received.set(self.received.get() + frames as u64);
    }

    /// Counts a sent frame that is not recorded.
    #[inline(always)]
    pub(super) fn pass_sent(&self, frames: usize) {
        self.sent.set(self.sent.get() + frames as u64);
    }

    /// Records received frames, each with its timestamp if there is one.
    #[inline(never)]
    pub(super) fn record_received(&self, burst: &[Mbuf]) {
        let mut ring = self.ring.borrow_mut();
        for mbuf in burst {
            ring.offer(mbuf.len(), self.snap.get(), mbuf.segments());
            let timestamp_ns = mbuf.timestamp().map_or_else(|| self.present_ns(), UnixTime::as_nanos);
            ring.seal(&self.head(Some(Direction::Rx), mbuf.vlan(), timestamp_ns));
            self.received.set(self.received.get() + 1);
        }
        self.frames.add(burst.len() as u64);
    }

    /// Writes a frame that is about to be posted. [`Recorder::keep`] or [`Recorder::retract`]
    /// follows.
    pub(super) fn offer(&self, mbuf: &Mbuf) {
        self.ring.borrow_mut().offer(mbuf.len(), self.snap.get(), mbuf.segments());
    }

    /// The device accepted the frame: counts it.
    pub(super) fn keep(&self, vlan: Option<u16>) {
        self.ring.borrow_mut().seal(&self.head(Some(Direction::Tx), vlan, self.present_ns()));
        self.sent.set(self.sent.get() + 1);
        self.frames.inc();
    }

    /// The device refused the frame: removes it.
    pub(super) fn retract(&self) {
        self.ring.borrow_mut().seal(&self.head(None, None, 0));
    }

    /// Starts a turn in which a listener is present or leaves; returns whether its received frames
    /// are to be recorded.
    pub(super) fn housekeep(&self, now: Instant) -> bool {
        let beat = self.beat.load(Relaxed);
        if beat == 0 {
            return self.go_quiet();
        }
        if beat != self.last_beat.get() {
            self.note_beat(beat, now);
        } else if now.since(self.last_beat_at.get()) > LEASE {
            // A beat that arrives at this moment remains, and the next turn reads it.
            let _ = self.beat.compare_exchange(beat, 0, Relaxed, Relaxed);
            return self.go_quiet();
        }
        self.now.set(now);
        true
    }

    /// Takes over the time of a new beat. With the first one the ring restarts, with current frame
    /// counts.
    fn note_beat(&self, beat: u64, now: Instant) {
        let is_first = self.last_beat.replace(beat) == 0;
        let span = if is_first { Duration::ZERO } else { now.since(self.now.get()) };
        self.last_beat_at.set(now);
        // The beat was written after the worker's last check, so the present is between the beat
        // and one check interval later. An offset within these bounds remains as it is, so that
        // time does not jump.
        let present = self.epoch_ns.get().wrapping_add(now.as_nanos());
        let present = present.clamp(beat, beat.saturating_add(span.as_nanos()));
        self.epoch_ns.set(present.wrapping_sub(now.as_nanos()));
        let mut ring = self.ring.borrow_mut();
        self.snap.set((ring.words().load(SNAP, Relaxed) as usize).clamp(1, SNAP_MAX));
        if is_first {
            ring.offer(0, 0, core::iter::empty());
            ring.seal(&self.head(None, None, 0));
        }
        ring.words().store(HEARTBEAT_SEEN, beat, Release);
    }

    #[cold]
    fn go_quiet(&self) -> bool {
        self.last_beat.set(0);
        self.ring.borrow().words().store(HEARTBEAT_SEEN, 0, Release);
        false
    }

    fn head(&self, direction: Option<Direction>, vlan: Option<u16>, timestamp_ns: u64) -> Head {
        let before = FrameCounts { rx: self.received.get(), tx: self.sent.get() };
        Head { direction, vlan, timestamp_ns, before }
    }

    fn present_ns(&self) -> u64 {
        self.epoch_ns.get().wrapping_add(self.now.get().as_nanos())
    }
}

impl Words for WordsHandle<[AtomicU64]> {
    #[inline(always)]
    fn load(&self, idx: usize, order: core::sync::atomic::Ordering) -> u64 {
        self[idx].load(order)
    }

    #[inline(always)]
    fn store(&self, idx: usize, value: u64, order: core::sync::atomic::Ordering) {
        self[idx].store(value, order);
    }

    #[inline]
    fn store_bytes(&self, first: usize, chunks: &[[u8; 8]]) {
        for (word, chunk) in self[first..first + chunks.len()].iter().zip(chunks) {
            word.store(u64::from_ne_bytes(*chunk), Relaxed);
        }
    }
}
