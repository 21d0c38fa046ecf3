//! The capture file of one queue, shared by its two halves, which live on the same thread.

use crate::counters::{Counter, Scope, Unit};
use crate::device::pcap::{Outcome, Recorded, Writer};
use crate::mem::Mbuf;
use crate::time::{Instant, UnixTime};

pub(super) struct Tap {
    writer: Writer,
    epoch_ns: u64,
    /// The latest time passed to either half: a post carries no time.
    now: Instant,
    outcome: Outcome<Recorded>,
    frames: Counter,
    lost: Counter,
}

impl Tap {
    pub(super) fn new(writer: Writer, epoch_ns: u64, outcome: Outcome<Recorded>, scope: &Scope) -> Self {
        let scope = scope.scope("capture");
        let (frames, lost) = (scope.counter("frames", Unit::Frames), scope.counter("lost", Unit::Frames));
        Self { writer, epoch_ns, now: Instant::ZERO, outcome, frames, lost }
    }

    /// Records the time at the start of a turn.
    #[inline]
    pub(super) fn set_now(&mut self, now: Instant) {
        self.now = now;
    }

    /// Records a received frame, with its timestamp if there is one and with the tag that the
    /// device stripped.
    pub(super) fn record_received(&mut self, mbuf: &Mbuf) {
        let timestamp_ns = mbuf.timestamp().map_or_else(|| self.present_ns(), UnixTime::as_nanos);
        self.writer.write_segments(timestamp_ns, mbuf.vlan(), mbuf.segments());
        self.keep();
    }

    /// Writes a frame that is about to be posted. [`Tap::keep`] or [`Tap::retract`] follows.
    pub(super) fn offer(&mut self, mbuf: &Mbuf, vlan: Option<u16>) {
        self.writer.write_segments(self.present_ns(), vlan, mbuf.segments());
    }

    /// The device accepted the frame: counts it.
    pub(super) fn keep(&self) {
        if self.writer.is_broken() { self.lost.inc() } else { self.frames.inc() }
    }

    /// The device refused the frame: removes it.
    pub(super) fn retract(&mut self) {
        self.writer.retract();
    }

    fn present_ns(&self) -> u64 {
        self.now.as_nanos().saturating_add(self.epoch_ns)
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        let finished = self.writer.finish();
        self.outcome.set(finished.map(|()| Recorded { frames: self.writer.records() }));
    }
}
