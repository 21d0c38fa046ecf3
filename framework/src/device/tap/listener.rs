//! A listener at a queue: signals its presence twice a second, and reads the worker's records.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::layout::{HEARTBEAT, HEARTBEAT_SEEN, RING, SNAP};
use super::ring::{Copies, Direction, FrameCounts, Reader, Record, RingEnd, SNAP_MAX};
use super::tapped::TapError;
use crate::counters::{is_stale, since_epoch_ns};
use crate::sys::files::allocate;
use crate::time::UnixTime;

/// Six heartbeats per lease of the worker: some may be late.
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(500);
/// The first heartbeats, which are written as fast as `heartbeat` is called. The worker reads some
/// of them sooner after they were written than others, and the soonest gives it the most accurate
/// time.
const FAST_HEARTBEATS: u32 = 16;
/// Interval between two checks that the process still exists. Noticing its end is not urgent,
/// because its records remain.
const LIVENESS_INTERVAL: Duration = Duration::from_millis(50);

/// A listener at one queue. Dropping it lets the tap become idle.
pub struct Listener {
    ring: Reader<File>,
    path: PathBuf,
    state: ListenerState,
    /// The worker has answered, and the ring is read from there on.
    has_joined: bool,
    /// The last heartbeat that we wrote.
    beat: u64,
    beat_at: Instant,
    beats: u32,
    looked_at: Instant,
    /// Another listener sends heartbeats too: we must not turn off the tap.
    has_other_listener: bool,
}

/// The state of a listener towards its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ListenerState {
    /// The worker has not answered yet: it will at its next poll.
    Waiting,
    /// From now on each frame is read or counted as missed.
    Listening,
    /// The queue was closed or its process has ended. Its records can still be read.
    Ended,
}

/// A frame that the queue received or sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Its direction.
    pub direction: Direction,
    /// The record's time: for received frames the device's timestamp, if there is one; otherwise
    /// the time of the worker's turn.
    pub timestamp: UnixTime,
    /// The 802.1Q tag that the NIC stripped or inserts. It is not among the bytes.
    pub vlan: Option<u16>,
    /// Length of the frame without that tag.
    pub original_len: usize,
    /// The first bytes, as many as listeners requested.
    pub bytes: &'a [u8],
}

impl Frame<'_> {
    /// Replaces `into` by the bytes as on the wire, with the tag at its place. Returns the length
    /// of the whole frame there.
    pub fn copy_to(&self, into: &mut Vec<u8>) -> usize {
        const ADDRESSES_LEN: usize = 12;
        into.clear();
        let (Some(tci), Some((addresses, rest))) = (self.vlan, self.bytes.split_at_checked(ADDRESSES_LEN)) else {
            into.extend_from_slice(self.bytes);
            return self.original_len;
        };
        let tag = [[0x81, 0x00], tci.to_be_bytes()].concat();
        into.extend_from_slice(addresses);
        into.extend_from_slice(&tag);
        into.extend_from_slice(rest);
        self.original_len + tag.len()
    }
}

impl Listener {
    pub(super) fn begin(file: File, capacity: u64, path: PathBuf, snap_len: usize) -> Result<Self, TapError> {
        // Before the first beat, because from then on the worker stores there.
        if let Err(error) = allocate(&file, (RING as u64 + capacity) * 8) {
            return Err(TapError::new(&path, RingEnd::Io(error)));
        }
        let ring = Reader::new(file, capacity);
        let now = Instant::now();
        let mut listener = Self {
            ring,
            path,
            state: ListenerState::Waiting,
            has_joined: false,
            beat: 0,
            beat_at: now,
            beats: 0,
            looked_at: now,
            has_other_listener: false,
        };
        let begun = listener.ask_for(snap_len).and_then(|()| listener.beat(now));
        match begun {
            Ok(()) => Ok(listener),
            Err(error) => Err(TapError::new(&listener.path, RingEnd::Io(error))),
        }
    }

    /// Signals our presence, if that is due, and returns the state. Call it before each round of
    /// [`Listener::read`], several times a second; after three seconds without it the worker
    /// assumes that we are gone.
    pub fn heartbeat(&mut self) -> Result<ListenerState, TapError> {
        self.try_heartbeat().map_err(|trouble| TapError::new(&self.path, trouble))
    }

    /// The next frame, or none. Never waits.
    pub fn read(&mut self) -> Result<Option<Frame<'_>>, TapError> {
        if !self.has_joined {
            return Ok(None);
        }
        match self.ring.next() {
            Ok(record) => Ok(record.map(frame)),
            Err(trouble) => Err(TapError::new(&self.path, trouble)),
        }
    }

    /// Frames that were overwritten before we read them, as far as the records read so far show.
    pub fn missed(&self) -> FrameCounts {
        self.ring.missed()
    }

    /// The shared file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn try_heartbeat(&mut self) -> Result<ListenerState, RingEnd> {
        let now = Instant::now();
        let beat = self.load(HEARTBEAT)?;
        self.has_other_listener |= beat != self.beat && beat != 0;
        // Zero: the worker assumed that we were gone, or another listener left without knowing of
        // us.
        let is_due = self.beats < FAST_HEARTBEATS || now.duration_since(self.beat_at) >= HEARTBEAT_INTERVAL;
        if beat == 0 || is_due {
            self.beat(now)?;
        }
        if !self.has_joined && self.load(HEARTBEAT_SEEN)? != 0 && self.ring.join()? {
            self.has_joined = true;
            self.state = ListenerState::Listening;
        }
        if now.duration_since(self.looked_at) >= LIVENESS_INTERVAL {
            self.looked_at = now;
            if is_stale(self.ring.words()) {
                self.state = ListenerState::Ended;
            }
        }
        Ok(self.state)
    }

    /// Requests this many bytes of each frame, and no fewer than other listeners already request.
    fn ask_for(&mut self, snap_len: usize) -> io::Result<()> {
        let wanted = snap_len.clamp(1, SNAP_MAX) as u64;
        self.has_other_listener = self.load(HEARTBEAT)? != 0;
        if self.has_other_listener && self.load(SNAP)? >= wanted {
            return Ok(());
        }
        self.store(SNAP, wanted)
    }

    fn beat(&mut self, now: Instant) -> io::Result<()> {
        // Never the same value twice, and never zero.
        self.beat = since_epoch_ns().max(self.beat + 1);
        self.beat_at = now;
        self.beats = self.beats.saturating_add(1);
        self.store(HEARTBEAT, self.beat)
    }

    fn load(&self, idx: usize) -> io::Result<u64> {
        let mut word = [0];
        self.ring.words().copy(idx, &mut word)?;
        Ok(word[0])
    }

    fn store(&self, idx: usize, value: u64) -> io::Result<()> {
        self.ring.words().write_all_at(&value.to_ne_bytes(), idx as u64 * 8)
    }
}

fn frame(record: Record<'_>) -> Frame<'_> {
    let Record { direction, vlan, timestamp_ns, original_len, bytes } = record;
    Frame { direction, timestamp: UnixTime::from_nanos(timestamp_ns), vlan, original_len, bytes }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Another listener keeps the tap active until it stops beating too. A listener that began
        // within this half second finds the zero and beats at once.
        if !self.has_other_listener && self.load(HEARTBEAT).is_ok_and(|beat| beat == self.beat) {
            // If it cannot be written the lease expires.
            let _ = self.store(HEARTBEAT, 0);
        }
    }
}
