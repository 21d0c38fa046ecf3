use proptest::prelude::*;

use super::*;
use crate::framing::PacketKind;

fn data(seq: u64, count: u32) -> Header {
    Header { channel: 0, session: Session(1), seq, count, kind: PacketKind::Data, sent_ns: 0 }
}

fn heartbeat(seq: u64) -> Header {
    Header { kind: PacketKind::Heartbeat, ..data(seq, 0) }
}

/// Plays packets and records the outcome of each: `R` restart, `G1-2` gap, `+k` deliver from
/// message k, `=` duplicate, `<` past, `?` doubt, `h` heartbeat, `.` end.
fn play(policy: Policy, packets: &[Header]) -> (String, SequenceCounts) {
    let mut sequence = Sequence::new(policy);
    let mut story = Vec::new();
    for packet in packets {
        let verdict = sequence.offer(packet);
        if verdict.restart {
            story.push("R".to_owned());
        }
        if let Some(Gap { from, to }) = verdict.gap {
            story.push(format!("G{from}-{to}"));
        }
        story.push(match verdict.action {
            Action::Deliver { skip } => format!("+{skip}"),
            Action::Duplicate => "=".to_owned(),
            Action::Past => "<".to_owned(),
            Action::Doubt => "?".to_owned(),
            Action::Heartbeat => "h".to_owned(),
            Action::EndOfSession => ".".to_owned(),
            Action::Unsequenced => "0".to_owned(),
        });
    }
    (story.join(" "), *sequence.counts())
}

fn check(packets: &[Header], story: &str) -> SequenceCounts {
    let (played, counts) = play(Policy::default(), packets);
    assert_eq!(played, story);
    counts
}

#[test]
fn first_packet_after_one_is_a_gap_from_one() {
    let counts = check(&[data(3, 2)], "G1-2 +0");
    assert_eq!((counts.gaps, counts.missing, counts.delivered), (1, 2, 2));
}

#[test]
fn first_packet_anywhere_is_no_gap_when_joining_late() {
    let policy = Policy { first: StartSequence::Anywhere, ..Policy::default() };
    assert_eq!(play(policy, &[data(500, 2), data(502, 1)]).0, "+0 +0");
}

#[test]
fn restart_whose_first_packets_are_lost_is_a_gap_also_where_numbers_begin_anywhere() {
    let policy = Policy { first: StartSequence::Anywhere, ..Policy::default() };
    let new_day = |seq, count| Header { session: Session(2), ..data(seq, count) };
    let packets = [data(500, 2), new_day(4, 2), new_day(6, 1)];
    assert_eq!(play(policy, &packets).0, "+0 ? R G1-5 +0");
}

#[test]
fn packet_outside_of_the_numbers_is_never_delivered() {
    let outside = Header { kind: PacketKind::Unsequenced, ..data(0, 3) };
    let counts = check(&[outside, data(1, 2), outside, data(3, 1)], "0 +0 0 +0");
    assert_eq!((counts.delivered, counts.unsequenced, counts.packets), (3, 6, 4));
}

#[test]
fn duplicate_twice_is_a_duplicate_twice() {
    let counts = check(&[data(1, 3), data(1, 3), data(2, 2)], "+0 = =");
    assert_eq!((counts.delivered, counts.duplicates), (3, 5));
}

#[test]
fn overlap_is_delivered_from_the_first_new_message() {
    let counts = check(&[data(1, 3), data(2, 4)], "+0 +2");
    assert_eq!((counts.delivered, counts.duplicates), (5, 2));
}

#[test]
fn heartbeat_ahead_reveals_a_lost_tail() {
    check(&[data(1, 2), heartbeat(5), data(5, 1)], "+0 G3-4 h +0");
}

#[test]
fn message_that_comes_after_its_gap_is_late_not_duplicate() {
    let counts = check(&[data(1, 1), data(3, 1), data(2, 1), data(2, 2)], "+0 G2-2 +0 = =");
    assert_eq!((counts.late, counts.duplicates), (2, 1));
}

#[test]
fn heartbeat_without_a_number_says_nothing() {
    check(&[data(1, 9), heartbeat(0), heartbeat(0), heartbeat(0), data(10, 1)], "+0 h h h +0");
}

#[test]
fn end_of_session_reveals_a_lost_tail() {
    check(&[data(1, 2), Header { kind: PacketKind::EndOfSession, ..data(4, 0) }], "+0 G3-3 .");
}

#[test]
fn new_session_restarts_and_its_stragglers_do_not() {
    let new = |seq| Header { session: Session(2), ..data(seq, 1) };
    let counts = check(&[data(1, 5), new(1), new(2), data(5, 2), new(3)], "+0 ? R G1-1 +0 < +0");
    assert_eq!((counts.doubted, counts.duplicates, counts.past), (1, 1, 1));
}

#[test]
fn new_session_that_begins_after_one_is_a_gap() {
    let new = |seq| Header { session: Session(2), ..data(seq, 1) };
    check(&[data(1, 5), new(3), new(4)], "+0 ? R G1-3 +0");
}

#[test]
fn one_packet_of_another_session_changes_nothing() {
    let foreign = Header { session: Session(9), ..data(6, 1) };
    let counts = check(&[data(1, 5), foreign, data(6, 1), foreign, data(7, 1)], "+0 ? +0 ? +0");
    assert_eq!((counts.doubted, counts.delivered, counts.missing, counts.restarts), (2, 7, 0, 0));
}

#[test]
fn session_that_goes_on_after_two_foreign_packets_is_found_again_where_it_stood() {
    let mut sequence = Sequence::new(Policy::default());
    sequence.offer(&data(1, 1000));
    sequence.offer(&Header { session: Session(9), ..data(1, 1) });
    assert!(sequence.offer(&Header { session: Session(9), ..data(2, 1) }).restart);
    let (mut seq, mut verdict) = (1001, sequence.offer(&data(1001, 1)));
    while !verdict.restart {
        seq += 1;
        assert!(seq < 1100, "the true session stays locked out");
        verdict = sequence.offer(&data(seq, 1));
    }
    // The skipped messages are missing, and none of those before.
    assert_eq!(verdict.gap, Some(Gap { from: 1001, to: seq - 1 }));
}

#[test]
fn late_heartbeat_with_number_one_is_no_restart() {
    check(&[data(1, 50), heartbeat(1), data(51, 1), heartbeat(1), heartbeat(52)], "+0 h +0 h h");
}

#[test]
fn heartbeat_that_keeps_saying_one_is_a_restart() {
    let mut packets = vec![data(1, 50)];
    packets.extend([heartbeat(1); 16]);
    packets.push(data(1, 2));
    check(&packets, &format!("+0 {}R h +0", "h ".repeat(15)));
}

#[test]
fn late_heartbeats_of_a_quiet_start_are_no_restart() {
    // Data that overtook some seconds of heartbeats, as a replay with injected reordering has it.
    let mut packets = vec![data(1, 2)];
    packets.extend([heartbeat(1); 8]);
    packets.push(data(3, 1));
    check(&packets, &format!("+0 {}+0", "h ".repeat(8)));
}

#[test]
fn heartbeats_sent_before_the_newest_packet_are_late_however_many() {
    let sent = |sent_ns, header| Header { sent_ns, ..header };
    let mut packets = vec![sent(100, data(1, 2))];
    packets.extend([sent(99, heartbeat(1)); 100]);
    assert_eq!(check(&packets, &format!("+0{}", " h".repeat(100))).restarts, 0);
}

#[test]
fn far_jump_back_is_a_restart() {
    let packets = [data(1, 200_000), data(99_999, 2), data(1, 2), data(3, 2)];
    check(&packets, "+0 = ? R G1-2 +0");
}

#[test]
fn send_time_tells_a_restart_from_a_late_packet() {
    let at = |ms: u64, header| Header { sent_ns: 1_000_000_000_000 + ms * 1_000_000, ..header };
    check(
        &[
            at(0, data(1, 5)),
            at(1, data(6, 1)),
            at(0, heartbeat(1)),    // late
            at(2000, heartbeat(1)), // the feed stood still and began anew, says one
            at(2100, data(1, 1)),   // and another
            at(2, data(7, 2)),      // from before
            at(2101, heartbeat(2)),
        ],
        "+0 +0 h h R +0 < h",
    );
}

#[test]
fn reset_that_the_publisher_announces_needs_no_pause_but_a_witness() {
    let at = |ms: u64, header| Header { sent_ns: 1_000_000_000_000 + ms * 1_000_000, ..header };
    let reset = |header| Header { kind: PacketKind::SequenceReset, ..header };
    let day = [at(0, data(1, 5)), at(1, data(6, 1))];
    let new_day = [at(10, reset(data(1, 1))), at(11, data(2, 1)), at(12, data(3, 1))];
    check(&[&day[..], &new_day].concat(), "+0 +0 ? R G1-1 +0 +0");
    let forged = [at(10, reset(data(1, 1))), at(11, data(7, 1)), at(12, data(8, 1))];
    check(&[&day[..], &forged].concat(), "+0 +0 ? +0 +0");
}

#[test]
fn damaged_send_time_hides_no_restart() {
    let at = |ms: u64, header| Header { sent_ns: 1_000_000_000_000 + ms * 1_000_000, ..header };
    check(
        &[
            at(0, data(1, 5)),
            at(1, data(6, 1)),
            at(1 << 40, data(7, 1)),
            at(2, data(8, 1)),
            at(2000, heartbeat(1)),
            at(2100, data(1, 1)),
        ],
        "+0 +0 +0 +0 h R +0",
    );
}

#[test]
fn clock_that_stays_behind_the_restart_is_believed_in_the_end() {
    let sent = |sent_ns, header| Header { sent_ns, ..header };
    let mut sequence = Sequence::new(Policy::default());
    sequence.offer(&sent(10_000_000_000, data(1, 5)));
    sequence.offer(&sent(20_000_000_000, data(1, 1)));
    assert!(sequence.offer(&sent(20_000_000_000, data(2, 1))).restart);
    let mut offered = 0;
    while !sequence.offer(&sent(5_000_000_000, data(1 + offered, 1))).restart {
        offered += 1;
        assert!(offered < 100, "a clock that was set back locks the feed out");
    }
}

#[test]
fn far_jump_ahead_that_nothing_confirms_changes_nothing() {
    let counts = check(&[data(1, 2), data(3 + (1 << 40), 4), data(3, 1)], "+0 ? +0");
    assert_eq!((counts.doubted, counts.delivered, counts.gaps), (4, 3, 0));
}

#[test]
fn far_jump_ahead_is_believed_when_the_next_packet_confirms_it() {
    let counts = check(&[data(1, 2), data(500_000, 4), data(500_004, 1), data(500_005, 1)], "+0 ? G3-500003 +0 +0");
    assert_eq!((counts.doubted, counts.missing), (4, 500_001));
}

#[test]
fn copy_of_a_packet_that_jumps_confirms_nothing() {
    check(&[data(1, 2), data(1 << 40, 4), data(1 << 40, 4), data(3, 1)], "+0 ? ? +0");
}

#[test]
fn jumps_to_different_places_do_not_confirm_each_other() {
    check(&[data(1, 2), data(1 << 40, 4), data(1 << 50, 4), data(1 << 45, 2), data(3, 1)], "+0 ? ? ? +0");
}

#[test]
fn number_that_goes_on_ends_the_doubt() {
    // A stuck bit: each damaged packet would confirm the one before it.
    let wrong = |seq: u64| data(seq | 1 << 40, 1);
    check(&[data(1, 1), wrong(2), data(2, 1), wrong(3), data(3, 1)], "+0 ? +0 ? +0");
}

#[test]
fn heartbeat_far_ahead_is_believed_when_it_comes_a_third_time() {
    let again = heartbeat(500_000);
    check(&[data(1, 2), again, again, again], "+0 h h G3-499999 h");
    check(&[data(1, 2), again, again, data(3, 1), data(4, 1)], "+0 h h +0 +0");
}

#[test]
fn largest_number_does_not_overflow() {
    let (first, last) = (data(u64::MAX - 2, 1), data(u64::MAX - 1, 5));
    check(&[first, last, data(u64::MAX, u32::MAX)], &format!("? G1-{} +0 =", u64::MAX - 2));
}

fn any_header() -> impl Strategy<Value = Header> {
    let kind = prop_oneof![
        8 => Just(PacketKind::Data),
        1 => Just(PacketKind::Heartbeat),
        1 => Just(PacketKind::EndOfSession),
        1 => Just(PacketKind::Unsequenced)
    ];
    let seq = prop_oneof![9 => 0_u64..60, 1 => any::<u64>()];
    (0_u128..2, seq, 1_u32..20, kind, 0_u64..4).prop_map(|(session, seq, count, kind, seconds)| Header {
        channel: 0,
        session: Session(session),
        seq,
        count: if matches!(kind, PacketKind::Data | PacketKind::Unsequenced) { count } else { 0 },
        kind,
        sent_ns: seconds * 1_000_000_000,
    })
}

proptest! {
    #[test]
    fn every_message_is_delivered_or_seen_or_late(packets in proptest::collection::vec(any_header(), 1..80)) {
        let (_, counts) = play(Policy::default(), &packets);
        let offered: u64 = packets.iter().map(|header| u64::from(header.count)).sum();
        let refused = counts.duplicates + counts.late + counts.past + counts.doubted + counts.unsequenced;
        prop_assert_eq!(counts.delivered + refused, offered);
        let empty = packets.iter().filter(|header| header.count == 0).count() as u64;
        prop_assert_eq!(counts.heartbeats + counts.ends, empty);
        prop_assert_eq!(counts.packets + empty, packets.len() as u64);
    }
}
