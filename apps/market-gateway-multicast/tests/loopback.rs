//! Service and listener over the kernel's UDP on the loopback interface.
#![allow(clippy::unwrap_used, reason = "a panic is the report of a test")]

mod common;

use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use common::{PATIENCE, Published, Story};
use market::framing::Framing;
use market::framing::mold_udp64::{MoldUdp64, Request};
use market_gateway_multicast::{End, Turn};
use market_ring::RingReader;

/// Asks the server, from an address of this host, and returns its answer's first number and count;
/// `None` where none comes and the request is counted under `drop`.
fn ask(published: &mut Published, from: [u8; 4], seq: u64, count: u16, drop: &str) -> Option<(u64, u32)> {
    let member = UdpSocket::bind(published.group).unwrap();
    member.join_multicast_v4(published.group.ip(), &Ipv4Addr::LOCALHOST).unwrap();
    member.set_read_timeout(Some(PATIENCE)).unwrap();
    published.write(1).send();
    let mut bytes = [0; 1_472];
    let len = member.recv(&mut bytes).unwrap();
    let session = MoldUdp64::parse(&bytes[..len]).unwrap().raw.session;
    let socket = UdpSocket::bind((Ipv4Addr::from(from), 0)).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket.send_to(&Request { session, seq, count }.emit(), published.server).unwrap();
    let until = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < until, "no answer and no count");
        published.send();
        if let Ok(len) = socket.recv(&mut bytes) {
            let header = MoldUdp64::parse(&bytes[..len]).unwrap().header;
            return Some((header.seq, header.count));
        }
        if published.block.snapshot().count(&format!("requests/drop/{drop}")) == Some(1) {
            return None;
        }
    }
}

#[test]
fn request_beyond_the_kept_messages_is_answered_with_the_oldest_number() {
    let mut published = Published::new(1 << 10, 22);
    published.write(110).send();
    // Packets of eleven: of 111 messages those from 89 on, and the packets that have them.
    assert_eq!(ask(&mut published, [127, 0, 0, 1], 2, 5, "-"), Some((89, 0)));
    assert_eq!(published.block.snapshot().count("requests/drop/too_old"), Some(1));
}

#[test]
fn request_of_another_network_gets_no_answer() {
    let mut published = Published::new(64, 1_000);
    published.write(5).send();
    assert_eq!(ask(&mut published, [127, 0, 0, 2], 1, 5, "other_network"), None);
    assert_eq!(published.service.requests().answered, 0);
}

#[test]
fn listener_that_comes_late_gets_what_is_kept() {
    let mut published = Published::new(1 << 10, 1_000);
    published.write(300).send();
    let (mut receiver, mut story) = (published.listener(true), Story::default());
    published.write(1).send().write(1).send();
    published.hear(&mut receiver, &mut story, 302);
    assert!(story.0.iter().enumerate().all(|(idx, told)| *told == format!("R{idx}")), "{:?}", story.0);
    assert!(published.service.requests().messages >= 300);
}

#[test]
fn late_listener_that_asks_for_nothing_is_told_so() {
    let mut published = Published::new(1 << 10, 1_000);
    published.write(300).send();
    let (mut receiver, mut story) = (published.listener(false), Story::default());
    published.write(1).send().write(1).send();
    published.hear(&mut receiver, &mut story, 3);
    assert_eq!(story.0, ["J300", "R300", "R301"]);
}

#[test]
fn overrun_of_the_publisher_is_told_to_the_listener() {
    let mut published = Published::new(32, 1_000);
    let (mut receiver, mut story) = (published.listener(false), Story::default());
    published.send().write(1).send().write(40).send();
    published.hear(&mut receiver, &mut story, 18);
    assert_eq!(story.0[..3], ["R0", "O1-24", "R25"]);
    assert_eq!(receiver.listener().sequence().gaps, 0, "no message was lost");
}

#[test]
fn killed_writer_is_told_and_the_next_ring_is_another_session() {
    let mut published = Published::new(64, 1_000);
    published.write(2);
    // What a killed writer leaves: a file that is not closed, and that nobody has locked.
    let killed = published.folder.path().join("killed");
    std::fs::copy(published.folder.path().join("ring"), &killed).unwrap();
    let (mut receiver, mut story) = (published.listener(false), Story::default());
    published.send();
    let now_ns = published.now_ns();
    published.service.follow(RingReader::open(&killed).unwrap(), now_ns);
    published.hear(&mut receiver, &mut story, 7);
    assert_eq!(story.0, ["R0", "R1", "restart", "R0", "R1", "gone", "."]);
    let until = Instant::now() + PATIENCE;
    loop {
        let now_ns = published.now_ns();
        match published.service.turn(now_ns) {
            Turn::Ended(end) => break assert_eq!(end, End::WriterGone),
            _ => std::thread::sleep(Duration::from_millis(1)),
        }
        assert!(Instant::now() < until);
    }
}
