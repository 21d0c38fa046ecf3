//! Each refusal, each status and each timer of a reliable connection, provoked.

use super::pair::{Pair, seal};
use crate::provider::Provider;
use crate::roce::*;
use crate::wire::opcode::{Operation, Transport};
use crate::wire::packet::Body;

/// Posts one request of `a` with a request before it and one behind, and expects the first to
/// succeed, the second to end with `status`, and the third to be flushed. Returns the words of the
/// NAKs that `b` sent.
fn check(pair: &mut Pair, operation: SendOperation, sge: Sge, status: Status) -> Vec<String> {
    let (good, remote) = (pair.a.sge(0, 8), pair.b.remote(0));
    pair.a.post(1, SendOperation::Write(remote), good);
    pair.a.post(2, operation, sge);
    pair.a.post(3, SendOperation::Write(remote), good);
    let mut naks = Vec::new();
    pair.run_with(|from_a, packet| {
        let words = packet.to_string();
        if !from_a && words.contains("NAK") {
            naks.push(words);
        }
        true
    });
    pair.finish();
    assert_eq!(pair.a.completions(), [(1, Status::Success), (2, status), (3, Status::Flushed)]);
    assert_eq!(pair.a.state(), QpState::Err);
    naks
}

/// As [`check`]; `b` refuses with `nak`, fails itself, and says so by `event`.
fn check_refusal(
    pair: &mut Pair,
    operation: SendOperation,
    len: u32,
    (status, nak, event): (Status, &str, fn(QpHandle) -> Event),
) {
    let sge = pair.a.sge(64, len);
    let naks = check(pair, operation, sge, status);
    assert!(naks.len() == 1 && naks[0].contains(nak), "{naks:?}");
    let qp = pair.b.qp;
    assert_eq!((pair.b.state(), pair.b.device.next_event()), (QpState::Err, Some(event(qp))));
}

const ACCESS: (Status, &str, fn(QpHandle) -> Event) =
    (Status::RemoteAccess, "NAK: remote access error", Event::QpAccessError);
const INVALID: (Status, &str, fn(QpHandle) -> Event) =
    (Status::RemoteInvalidRequest, "NAK: invalid request", Event::QpRequestError);
const OPERATIONAL: (Status, &str, fn(QpHandle) -> Event) =
    (Status::RemoteOperation, "NAK: remote operational error", Event::QpFatal);

#[test]
fn wrong_key_range_or_domain_is_refused_and_changes_no_byte() {
    let len = super::pair::MEMORY as u64;
    let wrong: [fn(&mut Remote, u64); 4] = [
        |remote, _| remote.rkey ^= 1,
        |remote, _| remote.rkey ^= 0x100,
        |remote, len| remote.address += len - 2999,
        |remote, _| remote.address -= 1,
    ];
    for (idx, spoil) in wrong.iter().enumerate() {
        for kind in 0..3 {
            let mut pair = Pair::new();
            pair.a.memory.write(64, &[1; 3000]);
            let mut remote = pair.b.remote(0);
            spoil(&mut remote, len);
            let operation = match kind {
                0 => SendOperation::Write(remote),
                1 => SendOperation::Read(remote),
                _ if idx == 3 => continue,
                _ => {
                    remote.address = remote.address.next_multiple_of(8);
                    remote.rkey ^= if idx == 2 { 2 } else { 0 };
                    SendOperation::FetchAdd { remote, add: 1 }
                }
            };
            check_refusal(&mut pair, operation, if kind == 2 { 8 } else { 3000 }, ACCESS);
            assert!(pair.b.bytes(0, super::pair::MEMORY).iter().all(|byte| *byte == 0), "{idx} {kind}");
        }
    }
}

#[test]
fn region_of_another_domain_is_refused_and_changes_no_byte() {
    for operation in [SendOperation::Write, SendOperation::Read, |remote| SendOperation::FetchAdd { remote, add: 1 }] {
        let mut pair = Pair::new();
        let other = pair.b.device.create_pd().unwrap();
        let memory = Buffer::zeroed(8);
        let mr = pair.b.device.register(other, Region::from(&memory), super::pair::all_access()).unwrap();
        pair.a.memory.write(64, &[1; 8]);
        check_refusal(&mut pair, operation(Remote { address: mr.address, rkey: mr.key }), 8, ACCESS);
        assert_eq!((memory.load_u64(0), pair.a.bytes(64, 8)), (0, vec![1; 8]));
    }
}

#[test]
fn zero_bytes_need_no_key() {
    let mut pair = Pair::new();
    let nowhere = Remote { address: 1, rkey: 0xdead_beef };
    let sge = pair.a.sge(0, 0);
    pair.a.post(1, SendOperation::Write(nowhere), sge);
    pair.a.post(2, SendOperation::Read(nowhere), sge);
    pair.run();
    assert_eq!(pair.a.completions(), [(1, Status::Success), (2, Status::Success)]);
}

#[test]
fn operation_that_the_queue_pair_does_not_allow_is_invalid() {
    // WRITE stays allowed, for the request before.
    let may_write = |attributes: &mut QpAttributes| {
        attributes.access = Some(Access::LOCAL_WRITE | Access::REMOTE_WRITE);
    };
    let mut pair = Pair::with(may_write);
    let remote = pair.b.remote(0);
    check_refusal(&mut pair, SendOperation::Read(remote), 8, INVALID);
    let mut pair = Pair::with(may_write);
    let remote = pair.b.remote(0);
    check_refusal(&mut pair, SendOperation::FetchAdd { remote, add: 1 }, 8, INVALID);
}

#[test]
fn atomic_operation_that_is_not_aligned_is_invalid() {
    let mut pair = Pair::new();
    let remote = pair.b.remote(4);
    check_refusal(&mut pair, SendOperation::FetchAdd { remote, add: 1 }, 8, INVALID);
}

#[test]
fn more_reads_or_atomic_operations_than_the_peer_has_resources_are_invalid() {
    for operation in [SendOperation::Read, |remote| SendOperation::FetchAdd { remote, add: 1 }] {
        let mut pair = Pair::with(|attributes| attributes.max_dest_rd_atomic = Some(1));
        let (sge, remote) = (pair.a.sge(0, 8), pair.b.remote(0));
        for wr_id in 0..2 {
            pair.a.post(wr_id, operation(remote), sge);
        }
        // The first is answered only when both have come.
        pair.run();
        assert_eq!((pair.b.counters().naks_tx, pair.a.counters().naks_rx), ([0, 1, 0, 0], [0, 1, 0, 0]));
        assert_eq!(pair.a.completions(), [(0, Status::Success), (1, Status::RemoteInvalidRequest)]);
        assert!(pair.b.memory.load_u64(0) < 2, "the second is not executed");
    }
}

#[test]
fn message_longer_than_its_receive_fails_at_both_ends() {
    for len in [101, 1024, 3000] {
        let mut pair = Pair::new();
        pair.b.post_recv(9, 1000, 100);
        check_refusal(&mut pair, SendOperation::Send, len, INVALID);
        assert_eq!(pair.b.completions(), [(9, Status::LocalLength)]);
    }
}

#[test]
fn receive_with_a_wrong_key_fails_at_both_ends() {
    let mut pair = Pair::new();
    let sge = Sge { lkey: pair.b.mr.key ^ 1, ..pair.b.sge(0, 100) };
    pair.b.device.post_recv(pair.b.qp, 9, &[sge]).unwrap();
    check_refusal(&mut pair, SendOperation::Send, 100, OPERATIONAL);
    assert_eq!(pair.b.completions(), [(9, Status::LocalProtection)]);
}

#[test]
fn request_with_a_wrong_key_of_its_own_fails_behind_those_before_it() {
    for len in [8, 3000] {
        let mut pair = Pair::new();
        let (remote, sge) = (pair.b.remote(0), Sge { lkey: 0x7700, ..pair.a.sge(0, len) });
        assert_eq!(check(&mut pair, SendOperation::Write(remote), sge, Status::LocalProtection), [""; 0]);
        let mut pair = Pair::new();
        let remote = pair.b.remote(0);
        assert_eq!(check(&mut pair, SendOperation::Read(remote), sge, Status::LocalProtection), [""; 0]);
    }
}

#[test]
fn silent_peer_ends_in_retry_exceeded_after_all_retries() {
    for (retry_cnt, timeout) in [(0, 14), (7, 14), (3, 1)] {
        let mut pair = Pair::with(|attributes| {
            (attributes.retry_cnt, attributes.timeout) = (Some(retry_cnt), Some(timeout));
        });
        let (sge, remote) = (pair.a.sge(0, 8), pair.b.remote(0));
        pair.a.post(1, SendOperation::Write(remote), sge);
        let begin = pair.now;
        pair.run_with(|from_a, _| !from_a);
        while pair.tick() {
            pair.run_with(|from_a, _| !from_a);
        }
        assert_eq!(pair.a.completions(), [(1, Status::RetryExceeded)]);
        assert_eq!(pair.now - begin, (u64::from(retry_cnt) + 1) * (4096 << timeout));
        assert_eq!(pair.a.counters().retransmits, u64::from(retry_cnt));
    }
}

#[test]
fn peer_that_misses_the_same_packet_of_each_try_ends_in_retry_exceeded() {
    let mut pair = Pair::new();
    let [_, second, _] = three_frames(&mut pair);
    pair.b.receive(pair.now, &second);
    let nak = pair.b.frame(pair.now).expect("a NAK");
    for _try in 0..8 {
        assert_eq!(pair.a.completions(), []);
        pair.a.receive(pair.now, &nak);
        while pair.a.frame(pair.now).is_some() {}
    }
    assert_eq!((pair.a.completions(), pair.a.state()), (vec![(1, Status::RetryExceeded)], QpState::Err));
    assert_eq!((pair.a.counters().naks_rx, pair.a.counters().timeouts), ([8, 0, 0, 0], 0));
}

/// The wire loses all of each try but the first packet: more tries than there are retries.
#[test]
fn message_completes_where_of_each_try_the_first_packet_alone_comes_through() {
    let mut pair = Pair::new();
    let (sge, remote) = (pair.a.sge(0, 12 * 1024), pair.b.remote(0));
    pair.a.post(1, SendOperation::Write(remote), sge);
    for _try in 0..16 {
        if let Some(frame) = pair.a.frame(pair.now) {
            pair.b.receive(pair.now, &frame);
        }
        while pair.a.frame(pair.now).is_some() {}
        while let Some(frame) = pair.b.frame(pair.now) {
            pair.a.receive(pair.now, &frame);
        }
        pair.tick();
    }
    assert_eq!(pair.a.completions(), [(1, Status::Success)]);
}

/// Linux rxe takes an acknowledgment of a READ's number for the READ's answer, and completes the
/// READ without a byte.
#[test]
fn acknowledgment_of_a_duplicate_does_not_name_a_read_whose_answer_was_lost() {
    let mut pair = Pair::new();
    let (sge, remote) = (pair.a.sge(0, 8), pair.b.remote(0));
    pair.a.post(1, SendOperation::Write(remote), sge);
    pair.a.post(2, SendOperation::Read(remote), sge);
    // The acknowledgment and the answer are lost, and then the READ alone.
    pair.run_with(|from_a, _| from_a);
    pair.tick();
    let mut named = Vec::new();
    pair.run_with(|from_a, packet| {
        let Body::Message(message) = &packet.body else { return true };
        if !from_a && message.operation == Operation::Acknowledge {
            named.push(packet.bth.psn());
        }
        message.operation != Operation::ReadRequest
    });
    let write = super::pair::attributes(1, 2, &pair.b).sq_psn.unwrap();
    assert_eq!(named, [write], "the number of the WRITE, and not that of the READ behind it");
    pair.finish();
    assert_eq!(pair.a.completions(), [(1, Status::Success), (2, Status::Success)]);
}

/// As with an RNIC.
#[test]
fn idle_connection_sends_nothing_and_learns_by_its_next_request_that_the_peer_is_gone() {
    let mut pair = Pair::new();
    let (sge, remote) = (pair.a.sge(0, 8), pair.b.remote(0));
    pair.a.post(1, SendOperation::Write(remote), sge);
    pair.finish();
    assert_eq!(pair.a.completions(), [(1, Status::Success)]);
    // An hour.
    pair.now += 3_600_000_000_000;
    for end in [&mut pair.a, &mut pair.b] {
        assert_eq!((end.device.next_timer(), end.frame(pair.now)), (None, None));
    }
    pair.a.post(2, SendOperation::Write(remote), sge);
    pair.run_with(|_, _| false);
    while pair.tick() {
        pair.run_with(|_, _| false);
    }
    assert_eq!(pair.a.completions(), [(2, Status::RetryExceeded)]);
}

#[test]
fn peer_without_a_receive_is_asked_again_after_its_time() {
    let mut pair = Pair::new();
    let sge = pair.a.sge(0, 8);
    pair.a.post(1, SendOperation::Send, sge);
    let begin = pair.now;
    pair.run();
    assert!(pair.tick());
    assert_eq!(pair.now - begin, 640_000, "the code 12");
    pair.b.post_recv(2, 0, 8);
    pair.finish();
    assert_eq!((pair.a.completions(), pair.b.completions()), (vec![(1, Status::Success)], vec![(2, Status::Success)]));
    assert_eq!((pair.a.counters().rnr_naks_rx, pair.b.counters().rnr_naks_tx), (1, 1));
}

#[test]
fn write_whose_immediate_finds_no_receive_writes_nothing_until_there_is_one() {
    let mut pair = Pair::new();
    pair.a.memory.write(0, &[3; 8]);
    let (sge, remote) = (pair.a.sge(0, 8), pair.b.remote(0));
    pair.a.post(1, SendOperation::WriteImm(remote, [0; 4]), sge);
    pair.run();
    assert_eq!((pair.b.counters().rnr_naks_tx, pair.b.bytes(0, 8)), (1, vec![0; 8]));
    pair.b.post_recv(2, 100, 0);
    pair.finish();
    assert_eq!((pair.a.completions(), pair.b.completions()), (vec![(1, Status::Success)], vec![(2, Status::Success)]));
    assert_eq!(pair.b.bytes(0, 8), [3; 8]);
}

#[test]
fn peer_that_never_has_a_receive_ends_in_rnr_retry_exceeded() {
    for rnr_retry in [0, 6] {
        let mut pair = Pair::with(|attributes| attributes.rnr_retry = Some(rnr_retry));
        let sge = pair.a.sge(0, 8);
        pair.a.post(1, SendOperation::Send, sge);
        pair.finish();
        assert_eq!(pair.a.completions(), [(1, Status::RnrRetryExceeded)]);
        assert_eq!(pair.b.counters().rnr_naks_tx, u64::from(rnr_retry) + 1);
    }
}

#[test]
fn rnr_retries_of_seven_never_end() {
    let mut pair = Pair::new();
    let sge = pair.a.sge(0, 8);
    pair.a.post(1, SendOperation::Send, sge);
    for _ in 0..100 {
        pair.run();
        assert!(pair.tick());
    }
    assert_eq!(pair.a.completions(), []);
    assert_eq!(pair.a.state(), QpState::Rts);
}

#[test]
fn missing_packet_is_named_once() {
    let mut pair = Pair::new();
    let (sge, remote) = (pair.a.sge(0, 10_000), pair.b.remote(0));
    pair.a.post(1, SendOperation::Write(remote), sge);
    let mut count = 0;
    pair.run_with(|from_a, _| {
        count += u32::from(from_a);
        count != 2
    });
    assert_eq!((pair.b.counters().naks_tx, pair.b.counters().out_of_sequence), ([1, 0, 0, 0], 8));
    assert_eq!(pair.a.completions(), [(1, Status::Success)]);
}

/// Three frames of a WRITE without an acknowledgment that is asked for before the last.
fn three_frames(pair: &mut Pair) -> [Vec<u8>; 3] {
    let (sge, remote) = (pair.a.sge(0, 3000), pair.b.remote(0));
    pair.a.post(1, SendOperation::Write(remote), sge);
    core::array::from_fn(|_| pair.a.frame(pair.now).unwrap())
}

#[test]
fn packet_that_was_dropped_is_named_also_where_the_missing_one_comes_before_the_nak_leaves() {
    let mut pair = Pair::new();
    let frames = three_frames(&mut pair);
    for idx in [0, 2, 1] {
        pair.b.receive(pair.now, &frames[idx]);
    }
    let nak = pair.b.frame(pair.now).expect("a NAK");
    pair.a.receive(pair.now, &nak);
    pair.finish();
    assert_eq!(pair.a.completions(), [(1, Status::Success)]);
    let counters = pair.a.counters();
    assert_eq!((counters.timeouts, counters.naks_rx, counters.retransmits), (0, [1, 0, 0, 0], 1));
}

#[test]
fn nak_goes_behind_the_answer_of_a_read_that_was_missing() {
    let mut pair = Pair::new();
    let (sge, remote) = (pair.a.sge(0, 8), pair.b.remote(0));
    pair.a.post(1, SendOperation::Read(remote), sge);
    pair.a.post(2, SendOperation::Write(remote), sge);
    let frames = [pair.a.frame(pair.now).unwrap(), pair.a.frame(pair.now).unwrap()];
    pair.b.receive(pair.now, &frames[1]);
    pair.b.receive(pair.now, &frames[0]);
    pair.finish();
    assert_eq!(pair.a.completions(), [(1, Status::Success), (2, Status::Success)]);
    assert_eq!(pair.a.counters().timeouts, 0);
}

#[test]
fn dropped_packet_that_comes_again_before_the_nak_leaves_is_acknowledged_instead() {
    let mut pair = Pair::new();
    let frames = three_frames(&mut pair);
    for idx in [0, 2, 1, 2] {
        pair.b.receive(pair.now, &frames[idx]);
    }
    pair.finish();
    assert_eq!(pair.a.completions(), [(1, Status::Success)]);
    assert_eq!((pair.a.counters().naks_rx, pair.a.counters().retransmits), ([0; 4], 0));
}

#[test]
fn packets_behind_one_without_a_receive_are_not_named_missing() {
    let mut pair = Pair::new();
    let sge = pair.a.sge(0, 3000);
    pair.a.post(1, SendOperation::Send, sge);
    pair.run();
    let counters = pair.b.counters();
    assert_eq!((counters.rnr_naks_tx, counters.naks_tx, counters.out_of_sequence), (1, [0; 4], 2));
}

#[test]
fn peer_that_says_how_many_receives_it_has_is_not_asked_for_more() {
    let mut pair = Pair::new();
    let sge = pair.a.sge(0, 8);
    pair.b.post_recv(0, 0, 8);
    pair.b.post_recv(1, 0, 8);
    pair.a.post(0, SendOperation::Send, sge);
    pair.run();
    for wr_id in 1..5 {
        pair.a.post(wr_id, SendOperation::Send, sge);
    }
    let words = pair.watch();
    // One more receive, and then one message that asks.
    assert_eq!(words.iter().filter(|words| words.contains("Send Only")).count(), 2, "{words:?}");
}

#[test]
fn receives_that_the_peer_tells_of_unasked_are_used_at_once() {
    let mut pair = Pair::new();
    let sge = pair.a.sge(0, 8);
    pair.b.post_recv(0, 0, 8);
    pair.a.post(0, SendOperation::Send, sge);
    let request = pair.a.frame(pair.now).unwrap();
    pair.b.receive(pair.now, &request);
    let mut answer = pair.b.frame(pair.now).unwrap();
    pair.a.receive(pair.now, &answer);
    // Eight of them have the code 6.
    seal(&mut answer, |frame| frame[54] = 6);
    pair.a.receive(pair.now, &answer);
    for wr_id in 1..5 {
        pair.a.post(wr_id, SendOperation::Send, sge);
    }
    let sent = core::iter::from_fn(|| pair.a.frame(pair.now)).count();
    assert_eq!((sent, pair.a.counters().stale_responses), (4, 0));
    // An older one comes late, and takes nothing back.
    seal(&mut answer, |frame| frame[54] = 0);
    pair.a.receive(pair.now, &answer);
    pair.a.post(5, SendOperation::Send, sge);
    assert!(pair.a.frame(pair.now).is_some());
}

#[test]
fn memory_that_goes_away_while_it_is_read_is_refused() {
    let mut pair = Pair::new();
    let (sge, remote, mr) = (pair.a.sge(0, 5000), pair.b.remote(0), pair.b.mr.handle);
    pair.a.post(1, SendOperation::Read(remote), sge);
    let request = pair.a.frame(pair.now).unwrap();
    pair.b.receive(pair.now, &request);
    let first = pair.b.frame(pair.now).unwrap();
    pair.b.device.deregister(mr).unwrap();
    pair.a.receive(pair.now, &first);
    pair.finish();
    assert_eq!(pair.a.completions(), [(1, Status::RemoteAccess)]);
    assert_eq!(pair.b.device.next_event(), Some(Event::QpAccessError(pair.b.qp)));
}

#[test]
fn own_memory_that_goes_away_before_its_answer_comes_fails_the_request_here_alone() {
    for operation in [SendOperation::Read, |remote| SendOperation::FetchAdd { remote, add: 1 }] {
        let mut pair = Pair::new();
        pair.b.memory.write(0, &[7; 8]);
        let (sge, remote, mr) = (pair.a.sge(0, 8), pair.b.remote(0), pair.a.mr.handle);
        pair.a.post(1, operation(remote), sge);
        let request = pair.a.frame(pair.now).unwrap();
        pair.a.device.deregister(mr).unwrap();
        pair.b.receive(pair.now, &request);
        pair.run();
        assert_eq!((pair.a.completions(), pair.a.state()), (vec![(1, Status::LocalProtection)], QpState::Err));
        assert_eq!((pair.a.bytes(0, 8), pair.b.state()), (vec![0; 8], QpState::Rts));
    }
}

#[test]
fn read_that_is_answered_again_ends_quietly_when_its_memory_went_away() {
    for is_replay_first in [false, true] {
        let mut pair = Pair::new();
        let (sge, remote, mr) = (pair.a.sge(0, 3000), pair.b.remote(0), pair.b.mr.handle);
        pair.a.post(1, SendOperation::Read(remote), sge);
        let request = pair.a.frame(pair.now).unwrap();
        pair.b.receive(pair.now, &request);
        pair.run();
        assert_eq!(pair.a.completions(), [(1, Status::Success)]);
        if is_replay_first {
            pair.b.receive(pair.now, &request);
        }
        pair.b.device.deregister(mr).unwrap();
        if !is_replay_first {
            pair.b.receive(pair.now, &request);
        }
        assert_eq!((pair.b.frame(pair.now), pair.b.state()), (None, QpState::Rts));
        assert_eq!((pair.b.device.next_event(), pair.b.device.is_due()), (None, false));
    }
}

#[test]
fn answers_behind_one_that_cannot_be_given_again_still_go() {
    let mut pair = Pair::new();
    let (sge, remote, mr) = (pair.a.sge(0, 8), pair.b.remote(0), pair.b.mr.handle);
    pair.a.post(1, SendOperation::Read(remote), sge);
    pair.a.post(2, SendOperation::FetchAdd { remote, add: 1 }, sge);
    let requests = [pair.a.frame(pair.now).unwrap(), pair.a.frame(pair.now).unwrap()];
    pair.b.receive(pair.now, &requests[0]);
    pair.run();
    pair.b.receive(pair.now, &requests[0]);
    pair.b.receive(pair.now, &requests[1]);
    pair.b.device.deregister(mr).unwrap();
    pair.finish();
    assert_eq!(pair.a.completions(), [(1, Status::Success), (2, Status::Success)]);
}

#[test]
fn failed_queue_pair_flushes_both_queues_and_all_that_is_posted_later() {
    let mut pair = Pair::new();
    let (sge, remote) = (pair.a.sge(0, 8), pair.b.remote(0));
    pair.a.post_recv(5, 0, 8);
    pair.a.post(1, SendOperation::Write(remote), sge);
    pair.a.device.modify_qp(pair.a.qp, &QpAttributes::to(QpState::Err)).unwrap();
    pair.a.post(2, SendOperation::Write(remote), sge);
    pair.a.post_recv(6, 0, 8);
    assert_eq!(pair.a.completions(), [1, 5, 2, 6].map(|wr_id| (wr_id, Status::Flushed)));
    assert_eq!(pair.a.frame(pair.now), None);
}

#[test]
fn failed_queue_pair_takes_no_more_than_its_queues_hold_until_they_are_polled() {
    let mut pair = Pair::new();
    let (sge, qp) = (pair.a.sge(0, 8), pair.a.qp);
    let other = pair.a.device.create_qp(&pair.a.options).unwrap();
    let attributes = super::pair::attributes(1, 2, &pair.b);
    pair.a.device.connect_qp(other, Transport::Rc, &attributes).unwrap();
    let write = SendOperation::Write(pair.b.remote(0));
    let request = SendRequest::new(1, write, Data::Sges(core::slice::from_ref(&sge)));
    pair.a.post(0, write, sge);
    pair.a.post_recv(0, 0, 8);
    pair.a.device.modify_qp(qp, &QpAttributes::to(QpState::Err)).unwrap();
    for _ in 0..2 {
        let sends = (0..300).take_while(|_| pair.a.device.post_send(qp, &request).is_ok()).count();
        let receives = (0..300).take_while(|_| pair.a.device.post_recv(qp, 1, &[sge]).is_ok()).count();
        assert!(sends <= 32 && receives <= 32, "{sends} sends and {receives} receives");
        assert_eq!(pair.a.device.post_send(qp, &request), Err(PostError::QueueFull));
        assert_eq!(pair.a.device.post_recv(qp, 1, &[sge]), Err(PostError::QueueFull));
        assert_eq!(pair.a.completions().len(), 64, "all that the queues hold");
    }
    assert_eq!((pair.a.device.next_event(), pair.a.device.counters().cq_overruns), (None, 0));
    assert_eq!(pair.a.device.qp_state(other), Some(QpState::Rts));
}

#[test]
fn queue_that_failed_takes_no_end_of_requests_for_a_completion_queue_that_overran() {
    let mut pair = Pair::of(&DeviceConfig { cqes: 2, ..DeviceConfig::default() }, |_| ());
    let (sge, remote) = (pair.a.sge(0, 8), pair.b.remote(0));
    pair.a.device.modify_qp(pair.a.qp, &QpAttributes::to(QpState::Err)).unwrap();
    let request = SendRequest::new(1, SendOperation::Write(remote), Data::Sges(core::slice::from_ref(&sge)));
    let taken = (0..300).take_while(|_| pair.a.device.post_send(pair.a.qp, &request).is_ok()).count();
    assert_eq!(taken, 32);
}

#[test]
fn queue_that_overruns_fails_with_its_queue_pair() {
    let mut pair = Pair::new();
    let (sge, remote) = (pair.a.sge(0, 8), pair.b.remote(0));
    for wr_id in 0..300 {
        let _ = pair
            .a
            .device
            .post_send(pair.a.qp, &SendRequest::new(wr_id, SendOperation::Write(remote), Data::Sges(&[sge])));
        pair.run();
    }
    let events = [pair.a.device.next_event(), pair.a.device.next_event(), pair.a.device.next_event()];
    assert_eq!(events, [Some(Event::CqError(pair.a.cq)), Some(Event::QpFatal(pair.a.qp)), None]);
    assert_eq!((pair.a.state(), pair.a.completions().len()), (QpState::Err, 256));
}

#[test]
fn first_packet_before_rts_is_an_event() {
    let mut pair = Pair::new();
    let attributes = super::pair::attributes(2, 1, &pair.a);
    pair.b.device.modify_qp(pair.b.qp, &QpAttributes::to(QpState::Reset)).unwrap();
    for step in &attributes.steps(Transport::Rc)[..2] {
        pair.b.device.modify_qp(pair.b.qp, step).unwrap();
    }
    let (sge, remote) = (pair.a.sge(0, 8), pair.b.remote(0));
    for wr_id in 0..2 {
        pair.a.post(wr_id, SendOperation::Write(remote), sge);
    }
    pair.run();
    let events = [pair.b.device.next_event(), pair.b.device.next_event()];
    assert_eq!(events, [Some(Event::CommunicationEstablished(pair.b.qp)), None]);
}

#[test]
fn drained_queue_says_so_and_begins_no_message() {
    let mut pair = Pair::new();
    let (sge, remote) = (pair.a.sge(0, 3000), pair.b.remote(0));
    pair.a.post(1, SendOperation::Write(remote), sge);
    pair.a.post(2, SendOperation::Write(remote), sge);
    let first = pair.a.frame(pair.now).unwrap();
    pair.a.device.modify_qp(pair.a.qp, &QpAttributes::to(QpState::Sqd)).unwrap();
    assert_eq!(pair.a.device.next_event(), None);
    pair.b.receive(pair.now, &first);
    pair.run();
    assert_eq!(pair.a.device.next_event(), Some(Event::SendQueueDrained(pair.a.qp)));
    assert_eq!(pair.a.completions(), [(1, Status::Success)]);
    pair.a.device.modify_qp(pair.a.qp, &QpAttributes::to(QpState::Rts)).unwrap();
    pair.run();
    assert_eq!(pair.a.completions(), [(2, Status::Success)]);
}

#[test]
fn duplicates_change_nothing_and_are_answered_alike() {
    let mut pair = Pair::new();
    pair.b.memory.write(0, &[3; 16]);
    pair.b.post_recv(1, 100, 8);
    let (sge, remote) = (pair.a.sge(0, 8), pair.b.remote(8));
    pair.a.post(1, SendOperation::Send, sge);
    pair.a.post(2, SendOperation::Write(remote), sge);
    pair.a.post(3, SendOperation::FetchAdd { remote, add: 5 }, sge);
    pair.a.post(4, SendOperation::Read(remote), sge);
    let requests: Vec<_> = core::iter::from_fn(|| pair.a.frame(pair.now)).collect();
    let answers = |pair: &mut Pair, frame: &[u8]| {
        pair.b.receive(pair.now, frame);
        let frames: Vec<_> = core::iter::from_fn(|| pair.b.frame(pair.now)).collect();
        frames.iter().map(|frame| frame[42..].to_vec()).collect::<Vec<_>>()
    };
    let first: Vec<_> = requests.iter().map(|frame| answers(&mut pair, frame)).collect();
    for idx in [2, 3, 2] {
        assert_eq!(answers(&mut pair, &requests[idx]), first[idx], "the same answer");
    }
    for idx in [0, 1] {
        let again = answers(&mut pair, &requests[idx]);
        assert_eq!(again.len(), 1, "acknowledges all that is done");
    }
    assert_eq!((pair.b.memory.load_u64(8), pair.b.completions().len()), (5, 1));
    assert_eq!(pair.b.counters().duplicates, 5);
}

#[test]
fn packets_that_are_not_for_the_queue_pair_are_dropped_and_counted() {
    let mut pair = Pair::new();
    let (sge, remote) = (pair.a.sge(0, 8), pair.b.remote(0));
    pair.a.post(1, SendOperation::Write(remote), sge);
    let frame = pair.a.frame(pair.now).unwrap();
    let mut check = |spoil: fn(&mut Vec<u8>), count: fn(&DeviceCounters) -> u64| {
        let mut frame = frame.clone();
        spoil(&mut frame);
        let before = count(&pair.b.device.counters());
        pair.b.receive(pair.now, &frame);
        assert_eq!(count(&pair.b.device.counters()), before + 1);
        assert_eq!((pair.b.frame(pair.now), pair.b.counters().packets_rx), (None, 0));
    };
    check(|frame| frame[70] ^= 1, |counters| counters.icrc_errors);
    check(|frame| frame[42] = 0x55, |counters| counters.malformed);
    check(|frame| seal(frame, |frame| frame[49] ^= 0x40), |counters| counters.unknown_qp);
    check(|frame| seal(frame, |frame| frame[44] = 0x12), |counters| counters.pkey_violations);
    check(|frame| seal(frame, |frame| frame[42] = 0x2a), |counters| counters.wrong_transport);
    check(|frame| seal(frame, |frame| frame[29] = 9), |counters| counters.wrong_address);
    pair.b.device.modify_qp(pair.b.qp, &QpAttributes::to(QpState::Err)).unwrap();
    pair.b.receive(pair.now, &frame);
    assert_eq!(pair.b.device.counters().qp_state, 1);
}

#[test]
fn answer_that_does_not_fit_its_request_is_a_bad_response() {
    // Another length, and the first of many where one would do.
    let spoils: [fn(&mut Vec<u8>); 2] = [
        |frame| {
            frame.truncate(frame.len() - 4);
            frame[17] -= 4;
            frame[39] -= 4;
        },
        |frame| frame[42] = 0x0d,
    ];
    for spoil in spoils {
        let mut pair = Pair::new();
        let (sge, remote) = (pair.a.sge(0, 16), pair.b.remote(0));
        pair.a.post(1, SendOperation::Read(remote), sge);
        let request = pair.a.frame(pair.now).unwrap();
        pair.b.receive(pair.now, &request);
        let mut answer = pair.b.frame(pair.now).unwrap();
        spoil(&mut answer);
        seal(&mut answer, |_| ());
        pair.a.receive(pair.now, &answer);
        assert_eq!(pair.a.completions(), [(1, Status::BadResponse)]);
    }
}

#[test]
fn answer_of_another_kind_of_request_is_a_bad_response() {
    const READ_ONLY: u8 = 0x10;
    const ATOMIC: u8 = 0x12;
    for (operation, answered_as) in [
        (SendOperation::Read as fn(Remote) -> SendOperation, ATOMIC),
        (|remote| SendOperation::FetchAdd { remote, add: 1 }, READ_ONLY),
    ] {
        let mut pair = Pair::new();
        let (sge, remote) = (pair.a.sge(0, 8), pair.b.remote(0));
        pair.a.post(1, operation(remote), sge);
        let request = pair.a.frame(pair.now).unwrap();
        pair.b.receive(pair.now, &request);
        let mut answer = pair.b.frame(pair.now).unwrap();
        // Both have an AETH and eight bytes.
        seal(&mut answer, |frame| frame[42] = answered_as);
        pair.a.receive(pair.now, &answer);
        assert_eq!(pair.a.completions(), [(1, Status::BadResponse)]);
    }
}

/// A NAK of reliable datagrams, and syndromes that are kept for later.
#[test]
fn syndrome_that_means_nothing_here_completes_and_fails_nothing() {
    for syndrome in [0x64, 0x65, 0x7f, 0x40, 0x5f, 0x80, 0xff] {
        let mut pair = Pair::new();
        let (sge, remote) = (pair.a.sge(0, 8), pair.b.remote(0));
        pair.a.post(1, SendOperation::Write(remote), sge);
        let request = pair.a.frame(pair.now).unwrap();
        pair.b.receive(pair.now, &request);
        let mut answer = pair.b.frame(pair.now).unwrap();
        seal(&mut answer, |frame| frame[54] = syndrome);
        pair.a.receive(pair.now, &answer);
        assert_eq!((pair.a.completions(), pair.a.state()), (vec![], QpState::Rts), "{syndrome:#x}");
        assert_eq!((pair.a.counters().stale_responses, pair.a.counters().naks_rx), (1, [0; 4]), "{syndrome:#x}");
        pair.finish();
        assert_eq!(pair.a.completions(), [(1, Status::Success)], "{syndrome:#x}: by the next try");
    }
}
