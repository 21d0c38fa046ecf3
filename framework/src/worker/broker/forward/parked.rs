//! Connections that a client has handed over while no other client listened at their port. A server
//! that replaces its processes starts to listen in the new ones a moment later.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::dispatch::ClientIdx;
use super::packet::Ends;

/// How long a connection waits: new processes of nginx take more than five seconds to start where
/// thirty others want each core. A peer usually waits longer for an answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// The most connections that wait, the most frames of each, and the most bytes of all: a listener's
/// queue is rarely longer, and a request of a peer that waits seldom is.
const CONNECTIONS_MAX: usize = 1_024;
const FRAMES_MAX: usize = 64;
const BYTES_MAX: usize = 100 << 20;

/// A connection that waits.
pub(super) struct Parked {
    pub(super) from: ClientIdx,
    pub(super) user: u32,
    pub(super) ends: Ends,
    pub(super) since: Instant,
    pub(super) frames: Vec<Vec<u8>>,
}

/// All connections that wait, the oldest first. Each user has a share: where there are too many, or
/// they have too many bytes, those of the user who has most give way, the oldest first.
#[derive(Default)]
pub(super) struct ParkedFrames {
    connections: Vec<Parked>,
    /// Of all their frames: counted anew for each frame that comes, they would take longer than it.
    bytes: usize,
}

impl ParkedFrames {
    /// Makes a connection wait; returns those that give way.
    #[must_use]
    pub(super) fn begin(&mut self, parked: Parked) -> Vec<Parked> {
        _ = self.take_if(|other| other.ends == parked.ends);
        self.bytes += parked.bytes();
        self.connections.push(parked);
        self.make_room(BYTES_MAX)
    }

    /// Adds a frame of a connection; returns those that give way. `None` if the connection does not
    /// wait, or has too many frames.
    #[must_use]
    pub(super) fn add(&mut self, from: ClientIdx, ends: &Ends, frame: &[u8]) -> Option<Vec<Parked>> {
        let found = self.connections.iter_mut().find(|parked| parked.from == from && parked.ends == *ends);
        found.filter(|parked| parked.frames.len() < FRAMES_MAX)?.frames.push(frame.to_vec());
        self.bytes += frame.len();
        Some(self.make_room(BYTES_MAX))
    }

    /// Removes connections until the others have this many bytes at most.
    fn make_room(&mut self, bytes_max: usize) -> Vec<Parked> {
        let mut removed = Vec::new();
        while self.connections.len() > CONNECTIONS_MAX || self.bytes > bytes_max {
            let Some(oldest) = self.oldest_of_who_has_most() else { break };
            let parked = self.connections.remove(oldest);
            self.bytes -= parked.bytes();
            removed.push(parked);
        }
        removed
    }

    fn oldest_of_who_has_most(&self) -> Option<usize> {
        let mut bytes = BTreeMap::<u32, usize>::new();
        self.connections.iter().for_each(|parked| *bytes.entry(parked.user).or_default() += parked.bytes());
        let most = bytes.into_iter().max_by_key(|(_, bytes)| *bytes).map(|(user, _)| user);
        self.connections.iter().position(|parked| Some(parked.user) == most)
    }

    /// Removes a client, whose index may become another client's.
    pub(super) fn forget(&mut self, place: ClientIdx) {
        self.connections
            .iter_mut()
            .filter(|parked| parked.from == place)
            .for_each(|parked| parked.from = ClientIdx::MAX);
    }

    /// Removes the connections that `wanted` selects.
    pub(super) fn take_if(&mut self, mut wanted: impl FnMut(&Parked) -> bool) -> Vec<Parked> {
        let taken: Vec<_> = self.connections.extract_if(.., |parked| wanted(parked)).collect();
        self.bytes -= taken.iter().map(Parked::bytes).sum::<usize>();
        taken
    }
}

impl Parked {
    fn bytes(&self) -> usize {
        self.frames.iter().map(Vec::len).sum()
    }

    /// Whether it has waited for too long.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        now.duration_since(self.since) >= PATIENCE
    }
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, SocketAddrV4};

    use super::*;
    use crate::wire::Protocol;

    fn ends(user: u32, port: u16) -> Ends {
        let [local, remote] =
            [(1, 80), (user as u8, port)].map(|(host, port)| SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, host), port));
        Ends { protocol: Protocol::TCP.0, local, remote }
    }

    /// A connection of a user, by its port.
    fn parked(user: u32, port: u16) -> Parked {
        Parked { from: 0, user, ends: ends(user, port), since: Instant::now(), frames: vec![vec![0; 100]] }
    }

    fn names(gone: &[Parked]) -> Vec<(u32, u16)> {
        gone.iter().map(|parked| (parked.user, parked.ends.remote.port())).collect()
    }

    #[test]
    fn connections_of_the_user_who_has_most_give_way_to_those_of_others() {
        let mut all = ParkedFrames::default();
        for port in 1..=CONNECTIONS_MAX as u16 {
            assert!(all.begin(parked(7, port)).is_empty(), "there is room");
        }
        assert_eq!(names(&all.begin(parked(8, 1))), [(7, 1)]);
        assert_eq!(names(&all.begin(parked(8, 2))), [(7, 2)]);
        assert_eq!(names(&all.begin(parked(7, 5_000))), [(7, 3)], "his own");
        assert_eq!(all.take_if(|parked| parked.user == 8).len(), 2);
    }

    #[test]
    fn bytes_of_all_are_bounded_and_so_are_the_frames_of_a_connection() {
        let mut all = ParkedFrames::default();
        for (user, port) in [(7, 1), (8, 1), (7, 2)] {
            assert!(all.begin(parked(user, port)).is_empty());
        }
        let added = (0..FRAMES_MAX).map_while(|_| all.add(0, &ends(8, 1), &[0; 100])).count();
        assert_eq!(added, FRAMES_MAX - 1);
        assert!(all.add(1, &ends(8, 1), &[0; 100]).is_none(), "another client's");
        assert_eq!(names(&all.make_room(1_000)), [(8, 1)]);
        assert_eq!(names(&all.make_room(100)), [(7, 1)]);
    }
}
