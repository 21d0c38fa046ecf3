//! Marks, sums and the cost of SACK.

use proptest::prelude::*;

use crate::proto::slab::NIL;
use crate::proto::tcp::loss::scoreboard::STEPS_MAX;
use crate::proto::tcp::state::connection::LossFlags;
use crate::proto::tcp::tests::sender::{FIRST, MSS, Sender};
use crate::proto::tcp::tests::*;

fn bytes(from: u32, to: u32) -> Range {
    Range { left: FIRST + from, right: FIRST + to }
}

#[test]
fn block_that_was_never_sent_is_ignored() {
    let mut sender = Sender::with_sack();
    sender.send(4);
    let hostile = [
        bytes(MSS, 5 * MSS),
        bytes(3 * MSS, MSS),
        bytes(MSS, MSS),
        Range { left: FIRST + 2 * MSS, right: FIRST + 0x8000_0000 },
    ];
    for block in hostile {
        let segment = sender.segment(FIRST, &[block]);
        sender.note_received(&segment);
        assert_eq!(sender.marks(), "....", "{block:?}");
    }
}

#[test]
fn block_at_the_acknowledged_number_is_ignored() {
    let mut sender = Sender::with_sack();
    sender.send(3);
    sender.ack(0, &[(0, 1)]);
    assert_eq!(sender.marks(), "...", "it would be acknowledged by number");
}

#[test]
fn part_of_a_segment_is_not_marked() {
    let mut sender = Sender::with_sack();
    sender.send(4);
    let segment = sender.segment(FIRST, &[bytes(MSS + 1, 3 * MSS - 1)]);
    sender.note_received(&segment);
    assert_eq!(sender.marks(), "....");
    let segment = sender.segment(FIRST, &[bytes(MSS + 1, 4 * MSS)]);
    sender.note_received(&segment);
    assert_eq!(sender.marks(), "..SS");
}

#[test]
fn chunk_of_several_segments_is_cut_where_the_block_ends() {
    let mut sender = Sender::with_sack();
    sender.send_len(6 * MSS);
    sender.send(1);
    let segment = sender.segment(FIRST, &[bytes(2 * MSS - 1, 4 * MSS + 1)]);
    sender.note_received(&segment);
    assert_eq!(sender.marks(), ".S..", "whole segments only");
    assert_eq!(sender.connection().sack.sacked_len, 2 * MSS);
}

#[test]
fn runs_join_from_both_sides() {
    let mut sender = Sender::with_sack();
    sender.connection_mut().set(LossFlags::REORDERING_SEEN);
    sender.send(9);
    sender.ack(0, &[(1, 2), (3, 4), (7, 8)]);
    sender.ack(0, &[(2, 3), (8, 9)]);
    assert_eq!(sender.marks(), ".SSS...SS");
    sender.ack(0, &[(4, 7)]);
    assert_eq!(sender.marks(), ".SSSSSSSS");
    sender.ack(9, &[]);
    assert!(sender.is_empty());
}

/// RFC 6298 5.4: the earliest is retransmitted first, also where a later one was in flight again
/// while the earliest waited for the second time.
#[test]
fn all_that_is_lost_by_a_timeout_stands_in_the_order_of_the_numbers() {
    let mut sender = Sender::with_sack();
    sender.send(4);
    let head = sender.connection().send.queue.head;
    let order: Vec<_> =
        core::iter::successors(Some(head), |idx| Some(sender.tcp.shared.chunks[*idx].next)).take(4).collect();
    sender.context(|cx| {
        order.iter().for_each(|idx| cx.mark_lost(*idx));
        cx.mark_sent(order[1], true);
        cx.mark_all_lost();
    });
    let mut lost = Vec::new();
    while sender.connection().loss.lost.head != NIL {
        let first = sender.connection().loss.lost.head;
        lost.push(first);
        let (connection, shared) = (&mut sender.tcp.connections[sender.slot], &mut sender.tcp.shared);
        connection.loss.lost.remove(&mut shared.chunks, first);
    }
    assert_eq!(lost, order);
}

#[test]
fn acknowledgment_within_a_run_keeps_the_rest_of_it() {
    let mut sender = Sender::with_sack();
    sender.send(6);
    sender.ack(0, &[(1, 5)]);
    sender.ack(3, &[]);
    assert_eq!(&sender.marks()[..2], "SS");
    sender.ack(4, &[]);
    sender.ack(6, &[]);
    assert!(sender.is_empty());
}

#[test]
fn acknowledgment_within_a_chunk_lets_the_bytes_before_go() {
    let mut sender = Sender::with_sack();
    sender.send(2);
    let segment = sender.segment(FIRST + 300, &[]);
    sender.note_received(&segment);
    let connection = sender.connection();
    assert_eq!((connection.snd.flight(), connection.send.len, connection.send.queue.count), (1_700, 1_700, 2));
    assert_eq!(sender.tcp.shared.chunks[connection.send.queue.head].payload.as_ref().map(Vec::len), Some(700));
}

#[test]
fn far_block_is_found_with_the_acknowledgments_that_follow() {
    let mut sender = Sender::with_sack();
    sender.send(8 * STEPS_MAX);
    let middle = 4 * STEPS_MAX;
    let mut acks = 0;
    while sender.connection().sack.sacked_len == 0 {
        sender.ack(0, &[(middle, middle + 1)]);
        acks += 1;
        assert!(acks <= 6, "each look goes on where the last one stopped");
    }
    assert!(acks > 1, "and none is longer than {STEPS_MAX} steps");
}

#[test]
fn next_block_is_found_in_a_few_steps_however_much_is_marked() {
    let mut sender = Sender::with_sack();
    sender.send(4_000);
    for segment in 1..4_000 {
        sender.ack(0, &[(1, segment + 1)]);
        assert_eq!(sender.connection().sack.sacked_len, segment * MSS);
    }
}

#[test]
fn peer_that_forgets_what_it_had_is_sent_it_again() {
    let mut sender = Sender::with_sack();
    sender.send(4);
    sender.ack(0, &[(1, 3)]);
    sender.ack(1, &[]);
    sender.wait_ms(300);
    sender.context(|cx| cx.on_timeout());
    assert_eq!(sender.marks(), "LLL");
}

#[derive(Clone, Debug)]
enum Step {
    Send(u32),
    SendLong(u32),
    Ack { to: u32, blocks: Vec<(u32, u32)> },
    Resend(usize),
    Wait(u64),
    Timeout,
    Reordering,
}

fn step() -> impl Strategy<Value = Step> {
    let blocks = prop::collection::vec((0u32..40_000, 0u32..6_000), 0..4);
    prop_oneof![
        4 => (1u32..8).prop_map(Step::Send),
        1 => (1u32..5_000).prop_map(Step::SendLong),
        8 => (0u32..6_000, blocks).prop_map(|(to, blocks)| Step::Ack { to: to.saturating_sub(4_000), blocks }),
        3 => (1usize..6).prop_map(Step::Resend),
        3 => (0u64..30).prop_map(Step::Wait),
        1 => Just(Step::Timeout),
        1 => Just(Step::Reordering),
    ]
}

proptest! {
    /// The sender's own checks run after each step: sums, rings and runs against the queue.
    #[test]
    fn sums_follow_from_the_marks(steps in prop::collection::vec(step(), 1..120), sack in any::<bool>()) {
        let mut sender = if sack { Sender::with_sack() } else { Sender::without_sack() };
        for step in steps {
            match step {
                Step::Send(count) => sender.send(count),
                Step::SendLong(len) => sender.send_len(len),
                Step::Ack { to, blocks } => {
                    let (una, flight) = (sender.connection().snd.una, sender.connection().snd.flight());
                    let ack = una + to.min(flight);
                    let ranges: Vec<Range> = blocks
                        .into_iter()
                        .map(|(at, len)| Range { left: una + at / 2 / MSS * MSS, right: una + at / 2 / MSS * MSS + len })
                        .collect();
                    let segment = sender.segment(ack, &ranges);
                    sender.note_received(&segment);
                }
                Step::Resend(count) => {
                    for _ in 0..count {
                        let Some(idx) = sender.context(|cx| cx.next_lost()) else { break };
                        sender.context(|cx| cx.on_sent(idx, true));
                    }
                }
                Step::Wait(ms) => sender.wait_ms(ms),
                Step::Timeout if sender.connection().clock.backoff < 10 => sender.context(|cx| cx.on_timeout()),
                Step::Timeout => (),
                Step::Reordering => sender.context(|cx| cx.on_reordering()),
            }
        }
        let end = sender.connection().snd.nxt;
        let segment = sender.segment(end, &[]);
        sender.note_received(&segment);
        prop_assert!(sender.is_empty());
        prop_assert_eq!(sender.connection().pipe(), 0);
    }
}
