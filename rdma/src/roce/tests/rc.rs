//! What a reliable connection does where nothing is lost.

use super::pair::{MEMORY, Pair};
use crate::roce::*;

/// Bytes that differ from their neighbors.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|idx| (idx * 7 + idx / 256) as u8).collect()
}

const LENGTHS: [u32; 8] = [0, 1, 3, 64, 1024, 1025, 4096, 10_001];

#[test]
fn send_arrives_in_the_receive_and_completes_at_both_ends() {
    for len in LENGTHS {
        let mut pair = Pair::new();
        pair.a.memory.write(5, &pattern(len as usize));
        let sge = pair.a.sge(5, len);
        pair.b.post_recv(7, 3, len);
        pair.a.post(8, SendOperation::SendImm([1, 2, 3, 4]), sge);
        pair.run();
        assert_eq!(pair.b.bytes(3, len as usize), pattern(len as usize));
        let received = pair.b.device.poll_cq(pair.b.cq).unwrap();
        assert_eq!((received.wr_id, received.status, received.byte_len), (7, Status::Success, len));
        assert_eq!((received.imm, received.kind), (Some([1, 2, 3, 4]), CompletionKind::Receive));
        assert_eq!(pair.a.completions(), [(8, Status::Success)]);
        assert!(!pair.tick() || !pair.tick(), "a timer runs on");
    }
}

#[test]
fn write_changes_its_range_alone_and_needs_no_receive() {
    for len in LENGTHS {
        let mut pair = Pair::new();
        pair.a.memory.write(0, &pattern(len as usize));
        let (sge, remote) = (pair.a.sge(0, len), pair.b.remote(1003));
        pair.a.post(1, SendOperation::Write(remote), sge);
        pair.run();
        let mut expected = vec![0; MEMORY];
        expected[1003..1003 + len as usize].copy_from_slice(&pattern(len as usize));
        assert_eq!(pair.b.bytes(0, MEMORY), expected);
        assert_eq!((pair.a.completions(), pair.b.completions()), (vec![(1, Status::Success)], vec![]));
    }
}

#[test]
fn write_with_immediate_data_completes_a_receive() {
    let mut pair = Pair::new();
    pair.b.post_recv(9, 0, 0);
    let (sge, remote) = (pair.a.sge(0, 3000), pair.b.remote(0));
    pair.a.post(1, SendOperation::WriteImm(remote, [9; 4]), sge);
    pair.run();
    let received = pair.b.device.poll_cq(pair.b.cq).unwrap();
    assert_eq!((received.wr_id, received.byte_len, received.imm), (9, 3000, Some([9; 4])));
    assert_eq!(received.kind, CompletionKind::ReceiveWriteImm);
}

#[test]
fn read_brings_the_memory_of_the_peer() {
    for len in LENGTHS {
        let mut pair = Pair::new();
        pair.b.memory.write(77, &pattern(len as usize));
        let (sge, remote) = (pair.a.sge(2, len), pair.b.remote(77));
        pair.a.post(1, SendOperation::Read(remote), sge);
        pair.run();
        assert_eq!(pair.a.bytes(2, len as usize), pattern(len as usize));
        let done = pair.a.device.poll_cq(pair.a.cq).unwrap();
        assert_eq!((done.kind, done.byte_len, done.status), (CompletionKind::Read, len, Status::Success));
    }
}

#[test]
fn atomic_operations_return_the_value_before() {
    let mut pair = Pair::new();
    pair.b.memory.store_u64(64, 40);
    let remote = pair.b.remote(64);
    let (first, second, third) = (pair.a.sge(0, 8), pair.a.sge(8, 8), pair.a.sge(16, 8));
    pair.a.post(1, SendOperation::FetchAdd { remote, add: 2 }, first);
    pair.a.post(2, SendOperation::CompareSwap { remote, compare: 42, swap: 7 }, second);
    pair.a.post(3, SendOperation::CompareSwap { remote, compare: 42, swap: 8 }, third);
    pair.run();
    assert_eq!([0, 8, 16].map(|at| pair.a.memory.load_u64(at)), [40, 42, 7]);
    assert_eq!(pair.b.memory.load_u64(64), 7);
    assert_eq!(pair.a.completions(), [1, 2, 3].map(|wr_id| (wr_id, Status::Success)));
}

#[test]
fn packets_of_a_message_are_those_of_the_specification() {
    let mut pair = Pair::new();
    pair.b.post_recv(1, 0, 3000);
    let (sge, remote) = (pair.a.sge(0, 2100), pair.b.remote(0));
    pair.a.post(1, SendOperation::Send, sge);
    pair.a.post(2, SendOperation::Read(remote), sge);
    let psn = |count: u32| (0xff_fff1 + count) & 0xff_ffff;
    let words = pair.watch();
    let key = pair.b.mr.key;
    let memory = format!("address {:#x}, key {key:#x}, 2100 bytes", pair.b.mr.address);
    assert_eq!(
        words,
        [
            format!("a: RC Send First, QP 0x000002, PSN {}, length 1024", psn(0)),
            format!("a: RC Send Middle, QP 0x000002, PSN {}, length 1024", psn(1)),
            format!("a: RC Send Last, QP 0x000002, PSN {}, ack wanted, length 52", psn(2)),
            format!("a: RC RDMA Read Request, QP 0x000002, PSN {}, ack wanted, {memory}", psn(3)),
            format!("b: RC RDMA Read Response First, QP 0x000002, PSN {}, ACK, MSN 2, length 1024", psn(3)),
            format!("b: RC RDMA Read Response Middle, QP 0x000002, PSN {}, length 1024", psn(4)),
            format!("b: RC RDMA Read Response Last, QP 0x000002, PSN {}, ACK, MSN 2, length 52", psn(5)),
        ]
    );
    assert_eq!(pair.a.completions(), [(1, Status::Success), (2, Status::Success)]);
}

#[test]
fn message_is_gathered_from_pieces_and_scattered_into_others() {
    let mut pair = Pair::new();
    pair.a.memory.write(0, &pattern(3000));
    let from = [pair.a.sge(0, 1000), pair.a.sge(1000, 0), pair.a.sge(1000, 1999), pair.a.sge(2999, 1)];
    let to = [pair.b.sge(0, 1), pair.b.sge(1, 2500), pair.b.sge(2501, 499)];
    pair.b.device.post_recv(pair.b.qp, 1, &to).unwrap();
    pair.a.device.post_send(pair.a.qp, &SendRequest::new(1, SendOperation::Send, Data::Sges(&from))).unwrap();
    pair.run();
    assert_eq!(pair.b.bytes(0, 3000), pattern(3000));
}

#[test]
fn inline_bytes_may_change_after_the_post() {
    let mut pair = Pair::new();
    let remote = pair.b.remote(0);
    let mut bytes = [5; INLINE_MAX];
    pair.a
        .device
        .post_send(pair.a.qp, &SendRequest::new(1, SendOperation::Write(remote), Data::Inline(&bytes)))
        .unwrap();
    bytes.fill(6);
    pair.run();
    assert_eq!(pair.b.bytes(0, INLINE_MAX + 1), [&[5; INLINE_MAX][..], &[0]].concat());
}

#[test]
fn unsignaled_requests_complete_in_silence() {
    let mut pair = Pair::new();
    let (data, remote) = ([pair.a.sge(0, 64)], pair.b.remote(0));
    for wr_id in 0..100 {
        let request = SendRequest {
            signaled: wr_id % 10 == 9,
            ..SendRequest::new(wr_id, SendOperation::Write(remote), Data::Sges(&data))
        };
        pair.a.device.post_send(pair.a.qp, &request).unwrap();
        pair.run();
    }
    assert_eq!(pair.a.completions().len(), 10);
}

#[test]
fn many_reads_wait_for_their_turn() {
    let mut pair = Pair::new();
    pair.b.memory.write(0, &pattern(20_000));
    for idx in 0..20 {
        let (sge, remote) = (pair.a.sge(idx * 1000, 1000), pair.b.remote(idx * 1000));
        pair.a.post(idx as u64, SendOperation::Read(remote), sge);
    }
    pair.run();
    assert_eq!(pair.a.bytes(0, 20_000), pattern(20_000));
    assert_eq!(pair.a.completions().len(), 20);
    assert_eq!(pair.b.counters().naks_tx, [0; 4]);
}

#[test]
fn armed_queue_notifies_once() {
    let mut pair = Pair::new();
    let (sge, remote, cq) = (pair.a.sge(0, 8), pair.b.remote(0), pair.a.cq);
    pair.a.post(1, SendOperation::Write(remote), sge);
    pair.run();
    assert_eq!(pair.a.device.next_notification(), None, "not armed");
    pair.a.device.arm_cq(cq, Notify::Any).unwrap();
    for wr_id in 2..4 {
        pair.a.post(wr_id, SendOperation::Write(remote), sge);
        pair.run();
    }
    assert_eq!((pair.a.device.next_notification(), pair.a.device.next_notification()), (Some(cq), None));
}

#[test]
fn solicited_completion_alone_wakes_who_waits_for_it() {
    let mut pair = Pair::new();
    let (sge, cq) = (pair.a.sge(0, 8), pair.b.cq);
    pair.b.device.arm_cq(cq, Notify::Solicited).unwrap();
    for is_solicited in [false, true] {
        pair.b.post_recv(0, 0, 8);
        let data = [sge];
        let request =
            SendRequest { solicited: is_solicited, ..SendRequest::new(1, SendOperation::Send, Data::Sges(&data)) };
        pair.a.device.post_send(pair.a.qp, &request).unwrap();
        pair.run();
        assert_eq!(pair.b.device.next_notification(), is_solicited.then_some(cq));
    }
}

#[test]
fn each_lost_packet_is_sent_again_and_changes_memory_once() {
    // Two messages of three packets with an atomic operation between them, and a READ: each of the
    // first 20 packets is lost in turn.
    for lost in 0..20 {
        let mut pair = Pair::new();
        pair.a.memory.write(0, &pattern(3000));
        pair.b.post_recv(1, 8000, 3000);
        let (data, word) = (pair.a.sge(0, 3000), pair.a.sge(4000, 8));
        let (target, counter) = (pair.b.remote(16), pair.b.remote(8));
        pair.a.post(1, SendOperation::Write(target), data);
        pair.a.post(2, SendOperation::FetchAdd { remote: counter, add: 1 }, word);
        pair.a.post(3, SendOperation::Send, data);
        let back = pair.a.sge(5000, 3000);
        pair.a.post(4, SendOperation::Read(target), back);
        let mut count = 0;
        pair.run_with(|_, _| {
            count += 1;
            count != lost + 1
        });
        pair.finish();
        assert_eq!(pair.b.memory.load_u64(8), 1, "packet {lost}");
        assert_eq!([pair.b.bytes(16, 3000), pair.b.bytes(8000, 3000)], [pattern(3000), pattern(3000)]);
        assert_eq!((pair.a.bytes(5000, 3000), pair.a.memory.load_u64(4000)), (pattern(3000), 0));
        assert_eq!(pair.a.completions(), [1, 2, 3, 4].map(|wr_id| (wr_id, Status::Success)), "packet {lost}");
        assert_eq!(pair.b.completions(), [(1, Status::Success)], "packet {lost}");
        assert_eq!((pair.a.state(), pair.b.state()), (QpState::Rts, QpState::Rts));
    }
}
