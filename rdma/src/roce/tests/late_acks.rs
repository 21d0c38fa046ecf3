//! Acknowledgments that come while the requester, behind its timer, sends again what they are of.

use super::pair::Pair;
use crate::roce::*;

/// Carries the first `count` frames of `a`, and returns the last answer, which is late: the timer
/// of `a` has fired.
fn answer_behind_the_timer(pair: &mut Pair, count: usize) -> Vec<u8> {
    let mut answer = None;
    for _ in 0..count {
        let frame = pair.a.frame(pair.now).expect("a request");
        pair.b.receive(pair.now, &frame);
        while let Some(frame) = pair.b.frame(pair.now) {
            answer = Some(frame);
        }
    }
    assert_eq!(pair.a.frame(pair.now), None);
    assert!(pair.tick(), "the timer of a request without an answer");
    answer.expect("an acknowledgment")
}

fn fetch_add(pair: &mut Pair, wr_id: u64) {
    let (remote, sge) = (pair.b.remote(0), pair.a.sge(1024, 8));
    pair.a.post(wr_id, SendOperation::FetchAdd { remote, add: 1 }, sge);
}

#[test]
fn memory_that_is_gone_when_a_request_is_sent_again_does_not_fail_a_later_request() {
    let mut pair = Pair::new();
    let (a, b) = (&mut pair.a, &pair.b);
    let gone = a.device.register(a.pd, Region::from(&a.memory), Access::LOCAL_WRITE).unwrap();
    a.post(1, SendOperation::Write(b.remote(8)), a.sge(0, 8));
    a.post(2, SendOperation::Write(b.remote(16)), Sge { address: gone.address, len: 8, lkey: gone.key });
    let late = answer_behind_the_timer(&mut pair, 2);
    pair.a.device.deregister(gone.handle).unwrap();
    // The first is sent again, and of the second the memory is gone.
    assert!(pair.a.frame(pair.now).is_some());
    assert_eq!(pair.a.frame(pair.now), None);
    pair.a.receive(pair.now, &late);
    assert_eq!(pair.a.completions(), [(1, Status::Success), (2, Status::Success)]);
    for wr_id in 3..8 {
        fetch_add(&mut pair, wr_id);
    }
    pair.finish();
    let done: Vec<_> = (3..8).map(|wr_id| (wr_id, Status::Success)).collect();
    assert_eq!((pair.a.completions(), pair.b.memory.load_u64(0)), (done, 5));
}

/// A pair of which `a` has a WRITE under way and behind it the binding of a window, done; the timer
/// has fired, the WRITE was sent again, and its acknowledgment is returned.
fn bound_behind_a_write(pair: &mut Pair) -> Vec<u8> {
    let (a, b) = (&mut pair.a, &pair.b);
    let region = a.device.register(a.pd, Region::from(&a.memory), Access::LOCAL_WRITE | Access::MW_BIND).unwrap();
    let window = a.device.create_mw(a.pd).unwrap();
    let (key, access) = (Mw::next_key(window.key), Access::REMOTE_READ);
    let binding = Binding { key, region: region.key, address: region.address, len: 8, access };
    a.post(1, SendOperation::Write(b.remote(8)), a.sge(0, 8));
    let bind = SendRequest::new(2, SendOperation::BindWindow(binding), Data::Sges(&[]));
    a.device.post_send(a.qp, &bind).unwrap();
    let late = answer_behind_the_timer(pair, 1);
    assert!(pair.a.frame(pair.now).is_some(), "the WRITE again, and not the binding behind it");
    late
}

#[test]
fn request_without_packets_behind_one_that_was_sent_again_is_passed_when_both_complete() {
    let mut pair = Pair::new();
    let late = bound_behind_a_write(&mut pair);
    pair.a.receive(pair.now, &late);
    assert_eq!(pair.a.completions(), [(1, Status::Success), (2, Status::Success)]);
    fetch_add(&mut pair, 3);
    pair.finish();
    assert_eq!((pair.a.completions(), pair.b.memory.load_u64(0)), (vec![(3, Status::Success)], 1));
}

/// The newest request of a full queue has the place of the one that was passed.
#[test]
fn no_request_of_a_full_queue_is_executed_twice_behind_a_late_acknowledgment() {
    let mut pair = Pair::new();
    let late = bound_behind_a_write(&mut pair);
    fetch_add(&mut pair, 3);
    pair.a.receive(pair.now, &late);
    let depth = u64::from(pair.a.options.send_depth);
    for wr_id in 4..3 + depth {
        fetch_add(&mut pair, wr_id);
    }
    pair.finish();
    let done: Vec<_> = (1..3 + depth).map(|wr_id| (wr_id, Status::Success)).collect();
    assert_eq!((pair.a.completions(), pair.b.memory.load_u64(0)), (done, depth));
}
