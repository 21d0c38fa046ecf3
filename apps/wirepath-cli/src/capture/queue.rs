//! A queue with a tap, and its next frame: frames of several queues are written in the order of
//! their times.

use wirepath::counters::printable;
use wirepath::device::tap::{Direction, FrameCounts, Listener, ListenerState, TapError, Tapped};

pub(super) struct Queue {
    name: String,
    listener: Listener,
    state: ListenerState,
    pending: Option<Pending>,
    bytes: Vec<u8>,
}

struct Pending {
    direction: Direction,
    timestamp_ns: u64,
    original_len: usize,
}

/// A frame with its VLAN tag in place.
pub(super) struct CapturedFrame<'a> {
    /// The queue's name.
    pub(super) queue: &'a str,
    pub(super) direction: Direction,
    pub(super) timestamp_ns: u64,
    pub(super) original_len: usize,
    pub(super) bytes: &'a [u8],
}

impl Queue {
    pub(super) fn listen(tap: Tapped, snap_len: usize) -> Result<Self, TapError> {
        let name = format!("{}.{}", printable(&tap.device), tap.queue);
        let listener = tap.listen(snap_len)?;
        Ok(Self { name, listener, state: ListenerState::Waiting, pending: None, bytes: Vec::new() })
    }

    /// The device and the queue's number: `eth1.0`.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Signals the worker that the reader is alive.
    pub(super) fn poll(&mut self) -> Result<(), TapError> {
        self.state = self.listener.heartbeat()?;
        Ok(())
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.state == ListenerState::Waiting
    }

    pub(super) fn has_ended(&self) -> bool {
        self.state == ListenerState::Ended
    }

    pub(super) fn missed(&self) -> FrameCounts {
        self.listener.missed()
    }

    /// Reads the next frame, where there is none yet.
    pub(super) fn fill(&mut self) -> Result<(), TapError> {
        if self.pending.is_some() {
            return Ok(());
        }
        if let Some(frame) = self.listener.read()? {
            let original_len = frame.copy_to(&mut self.bytes);
            let (direction, timestamp_ns) = (frame.direction, frame.timestamp.as_nanos());
            self.pending = Some(Pending { direction, timestamp_ns, original_len });
        }
        Ok(())
    }

    /// The time of the next frame, where there is one.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.pending.as_ref().map(|pending| pending.timestamp_ns)
    }

    /// Takes the next frame.
    pub(super) fn take(&mut self) -> Option<CapturedFrame<'_>> {
        let Pending { direction, timestamp_ns, original_len } = self.pending.take()?;
        Some(CapturedFrame { queue: &self.name, direction, timestamp_ns, original_len, bytes: &self.bytes })
    }
}
