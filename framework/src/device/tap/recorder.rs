//! What both halves of a tapped queue share: whether somebody listens, what time it is for him, and
//! the ring.
//!
//! The worker reads no clock. A listener's beat is the Unix time at which it was written, so the
//! worker learns what its own `now` is called on the wall, and stamps with that what the device did
//! not stamp.

use core::cell::{Cell, RefCell};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Relaxed, Release};

use super::layout::{ANSWERED, BEAT, SNAP};
use super::ring::{Direction, Head, Numbers, SNAP_MAX, Words, Writer};
use crate::counters::{Counter, Held, Publication, Scope, Unit};
use crate::mem::Mbuf;
use crate::time::{Duration, Instant, UnixTime};

/// After this time without a new beat nobody is there any more. Listeners beat every half second;
/// one that the scheduler kept waiting for longer counts what it missed and is heard again.
const LEASE: Duration = Duration::from_secs(3);

/// The shared memory of a tap that no worker has yet.
pub(super) struct Shared {
    pub(super) words: Held<[AtomicU64]>,
    pub(super) capacity: u64,
    /// None where it could not be shared, so that nobody will ever listen.
    pub(super) publication: Option<Publication>,
}

pub(super) struct Recorder {
    /// The word in which listeners say that they are there.
    beat: Held<AtomicU64>,
    /// What was in it last; zero while nobody listens.
    heard: Cell<u64>,
    heard_at: Cell<Instant>,
    /// When the worker last asked whether somebody is there, while somebody was.
    now: Cell<Instant>,
    /// Unix time in ns at the origin of the worker's clock, as the listeners' beats tell it.
    epoch_ns: Cell<u64>,
    received: Cell<u64>,
    sent: Cell<u64>,
    snap: Cell<usize>,
    ring: RefCell<Writer<Held<[AtomicU64]>>>,
    frames: Counter,
    /// Taken off the directory as the tap goes.
    _publication: Option<Publication>,
}

impl Recorder {
    pub(super) fn new(shared: Shared, scope: &Scope) -> Self {
        Self {
            beat: shared.words.word(BEAT),
            heard: Cell::new(0),
            heard_at: Cell::new(Instant::ZERO),
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

    /// Whether somebody listens or did a moment ago, asked once a turn: [`Recorder::attend`]
    /// follows. While nobody does it is the load of a word that nobody writes.
    #[inline(always)]
    pub(super) fn is_asked(&self) -> bool {
        self.beat.load(Relaxed) | self.heard.get() != 0
    }

    /// Whether somebody listened when that was asked last.
    #[inline(always)]
    pub(super) fn is_heard(&self) -> bool {
        self.heard.get() != 0
    }

    /// Counts received frames that nobody listens to.
    #[inline(always)]
    pub(super) fn pass_received(&self, frames: usize) {
        self.received.set(self.received.get() + frames as u64);
    }

    /// Counts a sent frame that is not recorded.
    #[inline(always)]
    pub(super) fn pass_sent(&self, frames: usize) {
        self.sent.set(self.sent.get() + frames as u64);
    }

    /// Records received frames, each with its arrival time where the device knows it.
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

    /// The frame was taken: it counts.
    pub(super) fn keep(&self, vlan: Option<u16>) {
        self.ring.borrow_mut().seal(&self.head(Some(Direction::Tx), vlan, self.present_ns()));
        self.sent.set(self.sent.get() + 1);
        self.frames.inc();
    }

    /// The frame was not taken: it was never there.
    pub(super) fn retract(&self) {
        self.ring.borrow_mut().seal(&self.head(None, None, 0));
    }

    /// Begins a turn in which somebody listens or leaves; whether what is received in it is to be
    /// recorded.
    pub(super) fn attend(&self, now: Instant) -> bool {
        let beat = self.beat.load(Relaxed);
        if beat == 0 {
            return self.go_quiet();
        }
        if beat != self.heard.get() {
            self.hear(beat, now);
        } else if now.since(self.heard_at.get()) > LEASE {
            // A beat that comes at this moment stays, and is heard with the next turn.
            let _ = self.beat.compare_exchange(beat, 0, Relaxed, Relaxed);
            return self.go_quiet();
        }
        self.now.set(now);
        true
    }

    /// Takes over the time of a new beat. With the first one the ring begins anew, with the numbers
    /// up to date.
    fn hear(&self, beat: u64, now: Instant) {
        let is_first = self.heard.replace(beat) == 0;
        let span = if is_first { Duration::ZERO } else { now.since(self.now.get()) };
        self.heard_at.set(now);
        // The beat was written since the worker asked last: the present is between it and so much
        // later. An offset that says so already stays as it is, so that time does not jump.
        let present = self.epoch_ns.get().wrapping_add(now.as_nanos());
        let present = present.clamp(beat, beat.saturating_add(span.as_nanos()));
        self.epoch_ns.set(present.wrapping_sub(now.as_nanos()));
        let mut ring = self.ring.borrow_mut();
        self.snap.set((ring.words().load(SNAP, Relaxed) as usize).clamp(1, SNAP_MAX));
        if is_first {
            ring.offer(0, 0, core::iter::empty());
            ring.seal(&self.head(None, None, 0));
        }
        ring.words().store(ANSWERED, beat, Release);
    }

    #[cold]
    fn go_quiet(&self) -> bool {
        self.heard.set(0);
        self.ring.borrow().words().store(ANSWERED, 0, Release);
        false
    }

    fn head(&self, direction: Option<Direction>, vlan: Option<u16>, timestamp_ns: u64) -> Head {
        let before = Numbers { rx: self.received.get(), tx: self.sent.get() };
        Head { direction, vlan, timestamp_ns, before }
    }

    fn present_ns(&self) -> u64 {
        self.epoch_ns.get().wrapping_add(self.now.get().as_nanos())
    }
}

impl Words for Held<[AtomicU64]> {
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
