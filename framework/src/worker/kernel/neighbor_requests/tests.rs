//! Neighbor requests, without a kernel: the test supplies the clock and the answers.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use super::{Collected, NeighborRequests};
use crate::worker::kernel::tables::{NeighborKnowledge, NeighborOrigin};
use crate::worker::spsc::lossless::{self, Producer};

const NOBODY: [Ipv4Addr; 0] = [];
const PEER: Ipv4Addr = peer(9);
const HEARD: NeighborKnowledge = NeighborKnowledge::TablesState(NeighborOrigin::NetlinkEvents);

/// A worker that has room for two neighbors, the mirror's list, and the kernel's state of every
/// neighbor.
struct Scene {
    ring: Producer<Ipv4Addr>,
    list: NeighborRequests,
    now: Instant,
    kernel: NeighborKnowledge,
}

const fn peer(n: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, n)
}

impl Scene {
    fn new() -> Self {
        let (ring, requested_at) = lossless::ring(8).unwrap();
        Self {
            ring,
            list: NeighborRequests::new(2, requested_at),
            now: Instant::now(),
            kernel: NeighborKnowledge::Unknown,
        }
    }

    fn wanting(requests: impl IntoIterator<Item = Ipv4Addr>) -> Self {
        let mut scene = Self::new();
        scene.want(requests);
        scene
    }

    fn want(&mut self, requests: impl IntoIterator<Item = Ipv4Addr>) {
        requests.into_iter().for_each(|request| self.ring.push(request).unwrap());
    }

    /// One turn of the mirror `ms` later; returns the neighbors that it asks the kernel for.
    fn turn_after(&mut self, ms: u64) -> Vec<Ipv4Addr> {
        self.now += Duration::from_millis(ms);
        self.list.collect(self.now);
        let due = self.list.due(self.now, |_| self.kernel);
        due.iter().for_each(|address| self.list.asked(*address, self.now));
        due
    }
}

#[test]
fn neighbor_is_asked_for_once_a_second_however_often_it_is_wanted() {
    let mut scene = Scene::wanting([PEER; 8]);
    assert_eq!(scene.turn_after(10), [PEER]);
    scene.want([PEER; 8]);
    assert_eq!(scene.turn_after(999), NOBODY);
    assert_eq!(scene.turn_after(1), [PEER]);
    assert_eq!(scene.turn_after(10_000), NOBODY);
}

#[test]
fn known_neighbor_is_reported_as_used_when_it_is_wanted_again() {
    let mut scene = Scene::wanting([PEER]);
    scene.turn_after(0);
    scene.kernel = HEARD;
    assert_eq!(scene.turn_after(30_000), NOBODY);
    scene.want([PEER]);
    assert_eq!(scene.turn_after(0), [PEER]);
}

#[test]
fn configured_neighbor_is_left_alone() {
    let mut scene = Scene::wanting([PEER]);
    scene.kernel = NeighborKnowledge::TablesState(NeighborOrigin::Configured);
    assert_eq!(scene.turn_after(10_000), NOBODY);
}

#[test]
fn neighbor_that_does_not_answer_is_counted_once_for_each_question() {
    let mut scene = Scene::wanting([PEER]);
    scene.kernel = NeighborKnowledge::Silent;
    assert_eq!(scene.list.unanswered(|_| NeighborKnowledge::Silent), 0, "silence from before the request is no answer");
    assert_eq!(scene.turn_after(0), [PEER]);
    assert_eq!(scene.list.unanswered(|_| NeighborKnowledge::Unknown), 0);
    assert_eq!(scene.list.unanswered(|_| NeighborKnowledge::Silent), 1);
    assert_eq!(scene.list.unanswered(|_| NeighborKnowledge::Silent), 0);
    scene.want([PEER]);
    assert_eq!(scene.turn_after(3_000), [PEER]);
    assert_eq!(scene.list.unanswered(|_| NeighborKnowledge::Silent), 1);
}

#[test]
fn wish_is_over_after_two_minutes() {
    let mut scene = Scene::wanting([PEER]);
    scene.turn_after(0);
    scene.turn_after(119_999);
    assert!(scene.list.wants(PEER));
    scene.turn_after(1);
    assert!(!scene.list.wants(PEER));
}

#[test]
fn flood_of_wishes_asks_no_faster_than_the_host_has_room() {
    let mut scene = Scene::wanting((1..=8).map(peer));
    assert_eq!(scene.list.collect(scene.now), Collected { requests: 8, refused: 6 });
    assert_eq!(scene.turn_after(0), [peer(1), peer(2)]);
    scene.want((3..=8).map(peer));
    assert_eq!(scene.turn_after(999), NOBODY);
    scene.want((3..=8).map(peer));
    assert_eq!(scene.turn_after(1), [peer(3), peer(4)]);
}

#[test]
fn neighbor_wished_for_longest_ago_makes_way() {
    let mut scene = Scene::wanting([peer(1), peer(2)]);
    scene.turn_after(0);
    scene.want([peer(1)]);
    scene.turn_after(2_000);
    scene.want([peer(3)]);
    scene.turn_after(2_000);
    assert_eq!((1..=3).filter(|n| scene.list.wants(peer(*n))).collect::<Vec<_>>(), [1, 3]);
}
