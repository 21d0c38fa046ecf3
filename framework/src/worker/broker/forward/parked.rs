//! Connections that a client has handed over while no other client listened at their port. A server
//! that replaces its processes starts to listen in the new ones a moment later.

use std::time::{Duration, Instant};

use super::dispatch::ClientIdx;
use super::packet::Ends;

/// How long a connection waits: new processes of nginx take more than five seconds to start where
/// thirty others want each core. A peer usually waits longer for an answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// The most connections that wait, and the most frames of each: at most 100 MB in frames of 1,518
/// bytes. A listener's queue is rarely longer, and a request of a peer that waits seldom is.
const CONNECTIONS_MAX: usize = 1_024;
const FRAMES_MAX: usize = 64;

/// A connection that waits.
pub(super) struct Parked {
    pub(super) from: ClientIdx,
    pub(super) user: u32,
    pub(super) ends: Ends,
    pub(super) since: Instant,
    pub(super) frames: Vec<Vec<u8>>,
}

/// All connections that wait.
#[derive(Default)]
pub(super) struct ParkedFrames(Vec<Parked>);

impl ParkedFrames {
    /// Makes a connection wait; `false` if too many do.
    #[must_use]
    pub(super) fn begin(&mut self, parked: Parked) -> bool {
        self.0.retain(|other| other.ends != parked.ends);
        let has_room = self.0.len() < CONNECTIONS_MAX;
        if has_room {
            self.0.push(parked);
        }
        has_room
    }

    /// Adds a frame of a connection; `false` if the connection does not wait, or has too many
    /// frames.
    #[must_use]
    pub(super) fn add(&mut self, from: ClientIdx, ends: &Ends, frame: &[u8]) -> bool {
        let found = self.0.iter_mut().find(|parked| parked.from == from && parked.ends == *ends);
        let Some(parked) = found.filter(|parked| parked.frames.len() < FRAMES_MAX) else { return false };
        parked.frames.push(frame.to_vec());
        true
    }

    /// Removes a client, whose index may become another client's.
    pub(super) fn forget(&mut self, place: ClientIdx) {
        self.0.iter_mut().filter(|parked| parked.from == place).for_each(|parked| parked.from = ClientIdx::MAX);
    }

    /// Removes the connections that `wanted` selects.
    pub(super) fn take_if(&mut self, mut wanted: impl FnMut(&Parked) -> bool) -> Vec<Parked> {
        self.0.extract_if(.., |parked| wanted(parked)).collect()
    }
}

impl Parked {
    /// Whether it has waited for too long.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        now.duration_since(self.since) >= PATIENCE
    }
}
