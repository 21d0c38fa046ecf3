//! Marks, notifications, and what they slow.

use std::collections::VecDeque;

use super::pair::{End, Pair};
use crate::provider::Provider;
use crate::roce::*;
use crate::wire::opcode::Transport;
use crate::wire::packet::{Body, Packet};

/// Where a frame over IPv4 has its traffic class.
const CLASS_AT: usize = 15;
/// Nanoseconds of a frame of 1024 bytes at 10 Gbit/s.
const FRAME_NS: u64 = 900;

fn mark(frame: &mut [u8]) {
    assert_eq!(frame[CLASS_AT] & 3, 2, "ECN-capable");
    frame[CLASS_AT] |= 3;
}

fn is_notification(frame: &[u8]) -> bool {
    let roce = RoceFrame::parse(frame).unwrap().roce;
    Packet::parse(roce).unwrap().body == Body::CongestionNotification
}

/// A request of `a` that is marked on its way.
fn send_marked(pair: &mut Pair) {
    let (remote, sge) = (pair.b.remote(0), pair.a.sge(0, 64));
    pair.a.post(1, SendOperation::Write(remote), sge);
    let mut frame = pair.a.frame(pair.now).unwrap();
    mark(&mut frame);
    pair.b.receive(pair.now, &frame);
}

#[test]
fn marked_packet_is_answered_by_one_notification_in_fifty_microseconds() {
    let mut pair = Pair::new();
    let mut notifications = 0;
    for _ in 0..100 {
        send_marked(&mut pair);
        while let Some(frame) = pair.b.frame(pair.now) {
            if is_notification(&frame) {
                assert_eq!(frame[CLASS_AT], 48 << 2, "by the class of such packets, and not marked itself");
                notifications += 1;
            }
            pair.a.receive(pair.now, &frame);
        }
        pair.now += 1_000;
        pair.a.device.on_timer(pair.now);
    }
    let (sender, receiver) = (pair.a.counters(), pair.b.counters());
    assert_eq!((notifications, sender.cnps_rx, receiver.cnps_tx, receiver.marked_rx), (2, 2, 2, 100));
    assert_eq!(pair.a.completions().len(), 100);
}

#[test]
fn notification_of_a_stranger_slows_nobody() {
    let mut pair = Pair::new();
    send_marked(&mut pair);
    let mut frame = pair.b.frame(pair.now).unwrap();
    assert!(is_notification(&frame));
    // The address that it comes from.
    super::pair::seal(&mut frame, |frame| frame[29] ^= 1);
    pair.a.receive(pair.now, &frame);
    assert_eq!((pair.a.device.counters().wrong_address, pair.a.counters().cnps_rx), (1, 0));
}

#[test]
fn notified_sender_halves_its_rate_and_so_do_its_answers() {
    for reads in [false, true] {
        let mut pair = Pair::new();
        send_marked(&mut pair);
        pair.run();
        let (remote, sge) = (pair.b.remote(0), pair.a.sge(0, 60_000));
        match reads {
            false => pair.a.post(2, SendOperation::Write(remote), sge),
            true => {
                let remote = pair.a.remote(0);
                let sge = pair.b.sge(0, 60_000);
                pair.b.post(2, SendOperation::Read(remote), sge);
                let request = pair.b.frame(pair.now).unwrap();
                pair.a.receive(pair.now, &request);
            }
        }
        let mut sent = 0;
        // Before the first round ends in which the rate would rise.
        for _ in 0..50 {
            sent += core::iter::from_fn(|| pair.a.frame(pair.now)).map(|frame| frame.len() as u64).sum::<u64>();
            pair.now += 1_000;
            pair.a.device.on_timer(pair.now);
        }
        // 5 Gbit/s for 50 µs are 31,250 bytes; a burst may begin 20 µs early.
        assert!((30_000..46_000).contains(&sent), "{sent} bytes, {}", if reads { "answers" } else { "requests" });
    }
}

#[test]
fn slowest_pace_uses_up_no_retry() {
    // 17 ms.
    let mut pair = Pair::with(|attributes| attributes.timeout = Some(12));
    send_marked(&mut pair);
    let notification = pair.b.frame(pair.now).unwrap();
    for _ in 0..2_000 {
        pair.now += 50_000;
        pair.a.receive(pair.now, &notification);
    }
    pair.finish();
    pair.a.completions();
    // At 10 Mbit/s each of 60 packets waits for 0.9 ms.
    let (remote, sge) = (pair.b.remote(0), pair.a.sge(0, 60_000));
    pair.a.post(2, SendOperation::Write(remote), sge);
    let begun = pair.now;
    pair.finish();
    assert_eq!((pair.a.completions(), pair.a.counters().retransmits), (vec![(2, Status::Success)], 0));
    assert!(pair.now > begun + 1_000_000, "{} ns", pair.now - begun);
}

/// A pair of which `a` sends at the slowest pace, 10 Mbit/s, and has sent the first packet of a
/// WRITE, behind which all others wait for 0.9 ms.
fn pair_at_the_slowest_pace() -> Pair {
    let mut pair = Pair::new();
    send_marked(&mut pair);
    let notification = pair.b.frame(pair.now).unwrap();
    for _ in 0..2_000 {
        pair.now += 50_000;
        pair.a.receive(pair.now, &notification);
    }
    pair.finish();
    let (remote, sge) = (pair.b.remote(0), pair.a.sge(0, 4_000));
    pair.a.post(2, SendOperation::Write(remote), sge);
    let first = pair.a.frame(pair.now).unwrap();
    pair.b.receive(pair.now, &first);
    assert_eq!(pair.a.frame(pair.now), None, "paced");
    pair
}

#[test]
fn answers_of_atomic_operations_leave_at_once_at_the_slowest_pace() {
    let mut pair = pair_at_the_slowest_pace();
    let (remote, sge) = (pair.a.remote(0), pair.b.sge(0, 8));
    for wr_id in 1..=3 {
        pair.b.post(wr_id, SendOperation::FetchAdd { remote, add: 1 }, sge);
        let request = pair.b.frame(pair.now).unwrap();
        pair.a.receive(pair.now, &request);
        let answer = pair.a.frame(pair.now).expect("the answer does not wait");
        pair.b.receive(pair.now, &answer);
    }
    assert_eq!(pair.b.completions(), [1, 2, 3].map(|wr_id| (wr_id, Status::Success)));
    assert_eq!(pair.a.frame(pair.now), None, "they do not let requests go earlier");
}

#[test]
fn read_that_comes_again_has_one_packet_at_once_at_the_slowest_pace() {
    let mut pair = pair_at_the_slowest_pace();
    let (remote, sge) = (pair.a.remote(0), pair.b.sge(0, 3_000));
    pair.b.post(1, SendOperation::Read(remote), sge);
    let request = pair.b.frame(pair.now).unwrap();
    pair.a.receive(pair.now, &request);
    assert_eq!(pair.a.frame(pair.now), None, "paced");
    pair.a.receive(pair.now, &request);
    let answer = pair.a.frame(pair.now).expect("a packet, before the peer's tries end");
    pair.b.receive(pair.now, &answer);
    assert_eq!(pair.a.frame(pair.now), None, "the others are paced");
    pair.finish();
    assert_eq!((pair.b.completions(), pair.a.state()), (vec![(1, Status::Success)], QpState::Rts));
}

#[test]
fn acknowledgments_take_no_time_from_requests() {
    let mut pair = Pair::new();
    send_marked(&mut pair);
    let notification = pair.b.frame(pair.now).unwrap();
    pair.finish();
    let (remote, sge) = (pair.a.remote(0), pair.b.sge(0, 8));
    // Down to the least rate, and 10,000 acknowledgments at it.
    for step in 0..20_000 {
        pair.now += if step < 10_000 { 49_000 } else { 1_000 };
        if step < 10_000 || step % 49 == 0 {
            pair.a.receive(pair.now, &notification);
        }
        if step >= 10_000 {
            pair.b.post(1, SendOperation::Write(remote), sge);
            pair.run();
            pair.b.completions();
        }
    }
    pair.a.completions();
    let (remote, sge) = (pair.b.remote(0), pair.a.sge(0, 8));
    pair.a.post(2, SendOperation::Write(remote), sge);
    let begun = pair.now;
    while pair.a.frame(pair.now).is_none() {
        assert!(pair.tick(), "a request waits without a timer");
    }
    assert!(pair.now - begun <= 3_400_000, "{} ns", pair.now - begun);
}

#[test]
fn datagrams_are_not_ecn_capable_and_their_marks_are_counted() {
    let ends = || End::with(&DeviceConfig::default(), Transport::Ud, 0);
    let (mut a, mut b) = (ends(), ends());
    let link = Link { destination: [2; 6], source: [1; 6], vlan: None };
    let [source, destination] = [1, 2].map(|end| core::net::Ipv4Addr::new(10, 0, 0, end));
    let path = Path::new(link, Addresses::Ipv4 { source, destination });
    let ah = a.device.create_ah(a.pd, &path).unwrap();
    for end in [&mut a, &mut b] {
        end.device.connect_qp(end.qp, Transport::Ud, &QpAttributes::datagrams(7)).unwrap();
    }
    let to = Destination { ah, qpn: b.device.qpn(b.qp).unwrap(), qkey: 7 };
    let request = SendRequest::new(1, SendOperation::Send, Data::Inline(b"tick")).to(to);
    a.device.post_send(a.qp, &request).unwrap();
    let mut frame = a.frame(0).unwrap();
    assert_eq!(frame[CLASS_AT] & 3, 0, "not ECT");
    frame[CLASS_AT] |= 3;
    b.receive(0, &frame);
    assert_eq!((b.counters().marked_rx, b.frame(0)), (1, None));
}

/// Two senders whose links are as fast as the one that they share behind a switch. The switch marks
/// what arrives behind more than `MARKED_BEHIND` frames.
struct Switch {
    pairs: [Pair; 2],
    queue: VecDeque<(usize, Vec<u8>)>,
    delivered: [u64; 2],
    queued: u64,
    idle: u64,
}

const MARKED_BEHIND: usize = 20;

impl Switch {
    /// The time of one frame.
    fn step(&mut self, now: u64) {
        for (idx, Pair { a, b, .. }) in self.pairs.iter_mut().enumerate() {
            a.device.on_timer(now);
            b.device.on_timer(now);
            Self::keep_busy(a, b);
            if let Some(mut frame) = a.frame(now) {
                if self.queue.len() > MARKED_BEHIND {
                    mark(&mut frame);
                }
                self.queue.push_back((idx, frame));
            }
        }
        self.queued += self.queue.len() as u64;
        match self.queue.pop_front() {
            Some((idx, frame)) => {
                self.delivered[idx] += 1;
                let Pair { a, b, .. } = &mut self.pairs[idx];
                b.receive(now, &frame);
                while let Some(answer) = b.frame(now) {
                    a.receive(now, &answer);
                }
            }
            None => self.idle += 1,
        }
    }

    fn keep_busy(a: &mut End, b: &End) {
        a.completions();
        let (remote, sge) = (b.remote(0), a.sge(0, 60_000));
        let request = SendRequest::new(1, SendOperation::Write(remote), Data::Sges(core::slice::from_ref(&sge)));
        while a.device.post_send(a.qp, &request).is_ok() {}
    }
}

#[test]
fn two_senders_share_a_link_without_filling_the_queue_before_it() {
    const STEPS: u64 = 40_000;
    let pairs = [Pair::new(), Pair::new()];
    let mut switch = Switch { pairs, queue: VecDeque::new(), delivered: [0; 2], queued: 0, idle: 0 };
    for step in 1..=2 * STEPS {
        switch.step(1_000_000 + step * FRAME_NS);
        if step == STEPS {
            (switch.delivered, switch.queued, switch.idle) = ([0; 2], 0, 0);
        }
    }
    let ([one, other], mean) = (switch.delivered, switch.queued / STEPS);
    println!("{one} and {other} frames, {mean} queued in the mean, {} idle", switch.idle);
    assert!(switch.idle < STEPS / 10, "idle for {} of {STEPS} frames", switch.idle);
    // Without control 128 of each wait, as many as may be under way.
    assert!(mean < 64, "{mean} frames wait in the mean");
    assert!(one.min(other) * 3 > one.max(other), "{one} and {other} frames");
    assert_eq!(switch.pairs.each_ref().map(|pair| pair.a.counters().retransmits), [0, 0]);
}
