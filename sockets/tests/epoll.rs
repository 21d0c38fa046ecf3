//! Epoll sets over sockets.
#![allow(clippy::unwrap_used)] // a panic here is the report

mod common;

use std::io::{Read, Write};

use common::{Wire, at, wire};
use sockets::net::{TcpListener, TcpStream, UdpSocket};
use sockets::{EpollEvent, Errno, Interest, Ready, SocketId, Trigger};
use wirepath::mem::Mbuf;
use wirepath::time::Duration;

const LEVEL: Interest =
    Interest { ready: Ready::IN, trigger: Trigger::Level, one_shot: false, exclusive: false, data: 7 };
const EDGE: Interest = Interest { trigger: Trigger::Edge, ..LEVEL };
const ONE_SHOT: Interest = Interest { one_shot: true, ..LEVEL };
const DATA: EpollEvent = EpollEvent { ready: Ready::IN, data: 7 };

/// A connection, the right end of which is in a set.
struct Scene {
    wire: Wire,
    ours: TcpStream,
    theirs: TcpStream,
    set: usize,
}

fn scene(interest: Interest) -> Scene {
    let wire = wire();
    let listener = TcpListener::bind(&wire.right, at(2, 80)).unwrap();
    let ours = TcpStream::connect(&wire.left, at(2, 80)).unwrap();
    let (theirs, _) = listener.accept().unwrap();
    let set = wire.right.call(|sockets, _| sockets.epoll_create());
    wire.right.call(|sockets, _| sockets.epoll_add(set, theirs.id(), 5, interest)).unwrap();
    Scene { wire, ours, theirs, set }
}

impl Scene {
    fn say(&mut self, words: &[u8]) {
        self.ours.write_all(words).unwrap();
        self.wire.settle();
    }

    /// The events that a wait of a millisecond reports.
    fn wait(&self) -> Vec<EpollEvent> {
        let mut events = [DATA; 8];
        let count = self.wire.right.epoll_wait(self.set, &mut events, Some(Duration::from_millis(1))).unwrap();
        events[..count].to_vec()
    }

    fn modify(&self, interest: Interest) -> Result<(), Errno> {
        self.wire.right.call(|sockets, _| sockets.epoll_modify(self.set, self.theirs.id(), 5, interest))
    }
}

#[test]
fn level_is_reported_as_long_as_bytes_wait() {
    let mut scene = scene(LEVEL);
    assert_eq!(scene.wait(), []);
    scene.say(b"ab");
    assert_eq!([scene.wait(), scene.wait()], [[DATA], [DATA]]);
    scene.theirs.read_exact(&mut [0; 2]).unwrap();
    assert_eq!(scene.wait(), []);
    scene.say(b"c");
    assert_eq!(scene.wait(), [DATA]);
}

#[test]
fn edge_is_reported_once_for_each_arrival() {
    let mut scene = scene(EDGE);
    scene.say(b"ab");
    assert_eq!([scene.wait(), scene.wait()], [vec![DATA], vec![]]);
    scene.say(b"c");
    assert_eq!(scene.wait(), [DATA], "though the first bytes were not read");
}

#[test]
fn edge_follows_a_datagram_for_which_there_was_no_room() {
    let wire = wire();
    let ours = UdpSocket::bind(&wire.right, at(2, 9)).unwrap();
    let set = wire.right.call(|sockets, _| sockets.epoll_create());
    let interest = Interest { ready: Ready::OUT, ..EDGE };
    wire.right.call(|sockets, _| sockets.epoll_add(set, ours.id(), 5, interest)).unwrap();
    let mut events = [DATA; 8];
    let mut wait = || wire.right.epoll_wait(set, &mut events, Some(Duration::from_millis(5))).unwrap();
    // The first is for the room that there is; the datagram finds the way to its neighbor.
    assert_eq!(wait(), 1);
    ours.send_to(b"one", at(1, 9)).unwrap();
    wire.settle();
    assert_eq!(wait(), 1);
    let all: Vec<Mbuf> = wire.right.call(|_, cx| core::iter::from_fn(|| cx.pool.alloc()).collect());
    let refused = wire.right.call(|sockets, cx| sockets.send_to(ours.id(), b"two", at(1, 9), cx));
    assert_eq!(refused, Err(Errno::EAGAIN));
    assert_eq!(wait(), 0);
    all.into_iter().for_each(Mbuf::free);
    assert_eq!(wait(), 1);
}

#[test]
fn edge_that_was_reported_by_another_way_is_reported_with_the_next_arrival() {
    let mut scene = scene(EDGE);
    scene.say(b"ab");
    scene.wire.right.call(|sockets, _| sockets.epoll_unlist(scene.set, scene.theirs.id(), 5)).unwrap();
    assert_eq!(scene.wait(), []);
    scene.say(b"c");
    assert_eq!([scene.wait(), scene.wait()], [vec![DATA], vec![]]);
}

#[test]
fn modified_edge_is_reported_again_while_it_is_ready() {
    let mut scene = scene(EDGE);
    scene.say(b"ab");
    scene.wait();
    scene.modify(EDGE).unwrap();
    assert_eq!(scene.wait(), [DATA]);
}

#[test]
fn one_shot_is_reported_once_until_it_is_modified() {
    let mut scene = scene(ONE_SHOT);
    scene.say(b"ab");
    assert_eq!([scene.wait(), scene.wait()], [vec![DATA], vec![]]);
    scene.say(b"c");
    assert_eq!(scene.wait(), []);
    scene.modify(ONE_SHOT).unwrap();
    assert_eq!(scene.wait(), [DATA]);
}

#[test]
fn end_of_the_peer_is_reported_as_readable_and_half_closed() {
    let Scene { wire, ours, theirs: _theirs, set } =
        scene(Interest { ready: Ready(Ready::IN.0 | Ready::RDHUP.0), ..LEVEL });
    drop(ours);
    wire.settle();
    let mut events = [DATA; 2];
    let count = wire.right.epoll_wait(set, &mut events, None).unwrap();
    assert_eq!((count, events[0].ready), (1, Ready::IN | Ready::RDHUP));
}

#[test]
fn error_is_reported_without_being_asked_for() {
    let scene = scene(Interest { ready: Ready::NONE, ..LEVEL });
    scene.ours.set_options(|options| options.linger = Some(Duration::ZERO)).unwrap();
    let Scene { wire, ours, theirs: _theirs, set } = scene;
    drop(ours);
    wire.settle();
    let mut events = [DATA; 2];
    wire.right.epoll_wait(set, &mut events, None).unwrap();
    assert_eq!(events[0].ready, Ready::ERR | Ready::HUP);
}

#[test]
fn socket_is_in_a_set_once_for_each_descriptor() {
    let mut scene = scene(LEVEL);
    let right = scene.wire.right.clone();
    let (set, id) = (scene.set, scene.theirs.id());
    let add = |fd| right.call(|sockets, _| sockets.epoll_add(set, id, fd, LEVEL));
    assert_eq!([add(5), add(6)], [Err(Errno::EEXIST), Ok(())]);
    scene.say(b"a");
    assert_eq!(scene.wait(), [DATA, DATA]);
    right.call(|sockets, _| sockets.epoll_delete(set, id, 5)).unwrap();
    assert_eq!(scene.wait(), [DATA]);
    assert_eq!(right.call(|sockets, _| sockets.epoll_delete(set, id, 5)), Err(Errno::ENOENT));
}

#[test]
fn closed_socket_leaves_its_sets() {
    let mut scene = scene(LEVEL);
    scene.say(b"a");
    let Scene { wire, ours: _ours, theirs, set } = scene;
    drop(theirs);
    let mut events = [DATA; 2];
    assert_eq!(wire.right.epoll_wait(set, &mut events, Some(Duration::from_millis(1))), Ok(0));
}

#[test]
fn socket_in_two_sets_is_reported_by_both() {
    let mut scene = scene(LEVEL);
    let right = scene.wire.right.clone();
    let other = right.call(|sockets, _| sockets.epoll_create());
    right.call(|sockets, _| sockets.epoll_add(other, scene.theirs.id(), 5, EDGE)).unwrap();
    scene.say(b"a");
    let mut events = [DATA; 2];
    assert_eq!((scene.wait(), right.epoll_wait(other, &mut events, None)), (vec![DATA], Ok(1)));
    right.call(|sockets, _| sockets.epoll_close(other)).unwrap();
    assert_eq!(right.epoll_wait(other, &mut events, None), Err(Errno::EBADF));
}

#[test]
fn more_that_are_ready_than_fit_take_turns() {
    let wire = wire();
    let listener = TcpListener::bind(&wire.right, at(2, 80)).unwrap();
    let set = wire.right.call(|sockets, _| sockets.epoll_create());
    let pairs: Vec<_> = (0..6_u64)
        .map(|number| {
            let mut ours = TcpStream::connect(&wire.left, at(2, 80)).unwrap();
            let (theirs, _) = listener.accept().unwrap();
            let interest = Interest { data: number, ..LEVEL };
            let add = |id: SocketId| wire.right.call(|sockets, _| sockets.epoll_add(set, id, 5, interest));
            add(theirs.id()).unwrap();
            ours.write_all(b"x").unwrap();
            (ours, theirs)
        })
        .collect();
    wire.settle();
    let mut seen: Vec<u64> = Vec::new();
    for _ in 0..3 {
        let mut events = [DATA; 2];
        assert_eq!(wire.right.epoll_wait(set, &mut events, None), Ok(2));
        seen.extend(events.map(|event| event.data));
    }
    seen.sort_unstable();
    assert_eq!((seen, pairs.len()), ((0..6).collect(), 6));
}

#[test]
fn datagram_whose_bytes_cannot_be_read_makes_room_again() {
    let wire = wire();
    let socket = UdpSocket::bind(&wire.right, at(2, 9)).unwrap();
    let set = wire.right.call(|sockets, _| sockets.epoll_create());
    let room = Interest { ready: Ready::OUT, ..EDGE };
    wire.right.call(|sockets, _| sockets.epoll_add(set, socket.id(), 5, room)).unwrap();
    let mut events = [DATA; 8];
    let mut wait = || wire.right.epoll_wait(set, &mut events, Some(Duration::ZERO)).unwrap();
    assert_eq!([wait(), wait()], [1, 0]);
    wire.right.call(|sockets, _| sockets.refuse_datagrams(socket.id())).unwrap();
    assert_eq!([wait(), wait()], [1, 0]);
}
