use proptest::prelude::*;

use super::*;
use crate::framing::Session;
use crate::sequence::StartSequence;

/// A packet as tests write it: its line, its time, and its numbers.
fn data(seq: u64, count: u32) -> Header {
    Header { channel: 0, session: Session(1), seq, count, kind: PacketKind::Data, sent_ns: 0 }
}

fn heartbeat(seq: u64) -> Header {
    Header { kind: PacketKind::Heartbeat, ..data(seq, 0) }
}

const WINDOW: Window = Window { packets: 2, wait_ns: 100 };

/// Plays packets and records the outcome of each: `1-3` delivered numbers, `=` freed, `k` kept,
/// `G1-2` gap, `R` restart, `.` end. The handle of a packet is its range.
struct Play {
    arbiter: Arbiter<(u64, u64)>,
    story: Vec<String>,
    now_ns: u64,
    /// Packets that are expected are taken at once.
    takes_next: bool,
}

impl Play {
    fn new(window: Window) -> Self {
        Self { arbiter: Arbiter::new(2, Policy::default(), window), story: Vec::new(), now_ns: 0, takes_next: false }
    }

    fn offer(&mut self, line: Line, header: Header) -> &mut Self {
        if self.takes_next && self.arbiter.take_next(line, &header, self.now_ns) {
            self.tell_range(header.seq, header.end());
            return self;
        }
        match self.arbiter.offer(line, &header, self.now_ns) {
            Verdict::Deliver { skip } => self.tell_range(header.seq + u64::from(skip), header.end()),
            Verdict::Discard => self.story.push("=".to_owned()),
            Verdict::Keep => {
                self.story.push("k".to_owned());
                self.arbiter.keep((header.seq, header.end())).unwrap();
            }
        }
        self.wait(0)
    }

    fn wait(&mut self, ns: u64) -> &mut Self {
        self.now_ns += ns;
        while let Some(output) = self.arbiter.poll(self.now_ns) {
            match output {
                Output::Deliver { handle: (seq, end), skip } => self.tell_range(seq + u64::from(skip), end),
                Output::Discard { .. } => self.story.push("=".to_owned()),
                Output::Gap(Gap { from, to }) => self.story.push(format!("G{from}-{to}")),
                Output::LateJoin(Gap { from, to }) => self.story.push(format!("J{from}-{to}")),
                Output::Restart => self.story.push("R".to_owned()),
                Output::EndOfSession => self.story.push(".".to_owned()),
            }
        }
        self
    }

    /// No packet will come any more.
    fn close(&mut self) -> &mut Self {
        self.arbiter.close();
        self.wait(u64::MAX - self.now_ns)
    }

    fn tell_range(&mut self, seq: u64, end: u64) {
        self.story.push(format!("{seq}-{}", end - 1));
    }

    #[track_caller]
    fn check(&self, story: &str) {
        assert_eq!(self.story.join(" "), story);
    }

    fn line(&self, line: Line) -> LineCounts {
        self.arbiter.lines().nth(line.0).unwrap()
    }
}

#[test]
fn keep_without_a_packet_gives_the_handle_back() {
    assert_eq!(Arbiter::new(1, Policy::default(), WINDOW).keep("mine"), Err("mine"));
}

#[test]
fn slower_line_is_redundant_even_when_cut_differently() {
    let mut play = Play::new(WINDOW);
    play.offer(Line::A, data(1, 4)).offer(Line::B, data(1, 2)).offer(Line::B, data(3, 4)).offer(Line::A, data(5, 2));
    play.check("1-4 = 5-6 =");
    assert_eq!((play.line(Line::A).first, play.line(Line::B).first), (4, 2));
    assert_eq!((play.line(Line::A).redundant(), play.line(Line::B).redundant()), (2, 4));
}

#[test]
fn loss_on_one_line_is_healed_by_the_other() {
    let mut play = Play::new(WINDOW);
    play.offer(Line::A, data(1, 1)).offer(Line::A, data(3, 1)).offer(Line::B, data(1, 2)).offer(Line::B, data(3, 1));
    play.check("1-1 k 2-2 3-3 =");
    let holes = play.arbiter.holes();
    assert_eq!((holes.opened, holes.healed, holes.reordered), (1, 1, 0));
    assert_eq!((play.line(Line::B).healed, play.line(Line::A).lost, play.line(Line::B).lost), (1, 1, 0));
    assert_eq!(play.arbiter.counts().gaps, 0);
}

#[test]
fn packets_that_changed_places_are_put_in_order() {
    let mut play = Play::new(WINDOW);
    play.offer(Line::A, data(3, 2)).offer(Line::A, data(2, 1)).offer(Line::A, data(1, 1));
    play.check("k k 1-1 2-2 3-4");
    assert_eq!((play.arbiter.holes().opened, play.arbiter.holes().reordered), (1, 1));
    assert_eq!(play.line(Line::A).lost, 0);
}

#[test]
fn hole_is_a_gap_when_its_time_is_over() {
    let mut play = Play::new(WINDOW);
    play.offer(Line::A, data(1, 1)).offer(Line::A, data(4, 1)).offer(Line::B, data(4, 1)).wait(99);
    assert_eq!(play.arbiter.deadline_ns(), Some(100));
    play.check("1-1 k k =");
    play.wait(1).check("1-1 k k = G2-3 4-4");
    assert_eq!(play.arbiter.deadline_ns(), None);
    assert_eq!(play.arbiter.holes().given_up_late, 1);
}

#[test]
fn hole_is_a_gap_when_too_many_packets_wait() {
    let mut play = Play::new(WINDOW);
    for seq in [2, 3, 4] {
        play.offer(Line::A, data(seq, 1));
    }
    play.check("k k k G1-1 2-2 3-3 4-4");
    assert_eq!((play.arbiter.holes().given_up_full, play.arbiter.holes().depth_max), (1, 3));
}

#[test]
fn second_hole_waits_from_its_own_beginning() {
    let mut play = Play::new(WINDOW);
    play.offer(Line::A, data(2, 1)).wait(60).offer(Line::A, data(4, 1)).offer(Line::A, heartbeat(5)).wait(40);
    play.check("k k = G1-1 2-2");
    play.wait(59).check("k k = G1-1 2-2");
    play.wait(1).check("k k = G1-1 2-2 G3-3 4-4");
}

#[test]
fn heartbeat_ahead_reveals_a_lost_tail_after_the_wait() {
    let mut play = Play::new(WINDOW);
    play.offer(Line::A, data(1, 1)).offer(Line::A, heartbeat(3)).offer(Line::B, heartbeat(3)).wait(100);
    play.check("1-1 = = G2-2");
}

#[test]
fn lost_tail_that_the_other_line_brings_is_healed() {
    let mut play = Play::new(WINDOW);
    play.offer(Line::A, data(1, 1)).offer(Line::A, heartbeat(3)).offer(Line::B, heartbeat(3));
    play.offer(Line::B, data(2, 1)).wait(1000).check("1-1 = = 2-2");
    assert_eq!((play.arbiter.holes().opened, play.arbiter.holes().healed), (1, 1));
}

#[test]
fn packet_that_waits_already_is_not_kept_twice() {
    let mut play = Play::new(WINDOW);
    play.offer(Line::A, data(2, 3)).offer(Line::B, data(3, 1)).offer(Line::B, data(1, 1));
    play.check("k k = 1-1 2-4");
}

#[test]
fn kept_packets_that_overlap_are_delivered_once() {
    let mut play = Play::new(WINDOW);
    play.offer(Line::A, data(3, 3)).offer(Line::B, data(2, 3)).offer(Line::B, data(1, 1));
    play.check("k k 1-1 2-4 5-5");
}

#[test]
fn packet_that_could_not_be_kept_becomes_a_gap() {
    let mut arbiter = Arbiter::<()>::new(1, Policy::default(), WINDOW);
    for seq in [2, 4] {
        assert_eq!(arbiter.offer(Line::A, &data(seq, 2), 0), Verdict::Keep);
        assert_eq!(arbiter.poll(0), None);
    }
    assert_eq!(arbiter.poll(100), Some(Output::Gap(Gap { from: 1, to: 5 })));
}

#[test]
fn restart_gives_out_what_waits_before_it_begins_anew() {
    let mut play = Play::new(WINDOW);
    let new = |seq, count| Header { session: Session(2), ..data(seq, count) };
    play.offer(Line::A, data(2, 1)).offer(Line::A, heartbeat(3)).offer(Line::A, new(1, 2)).offer(Line::A, new(3, 2));
    play.offer(Line::B, data(1, 1));
    play.check("k = k k G1-1 2-2 R 1-2 3-4 =");
    assert_eq!(play.arbiter.holes().given_up_restart, 1);
    assert_eq!((play.arbiter.counts().past, play.arbiter.counts().duplicates), (0, 1));
}

#[test]
fn heartbeat_of_a_new_session_restarts_and_reveals_what_was_lost() {
    let mut play = Play::new(WINDOW);
    let new = Header { session: Session(2), ..heartbeat(3) };
    play.offer(Line::A, data(1, 5)).offer(Line::A, new).offer(Line::B, new).wait(100);
    play.check("1-5 = = R G1-2");
}

#[test]
fn end_of_session_is_told_once_and_after_its_last_message() {
    let mut play = Play::new(WINDOW);
    let end = Header { kind: PacketKind::EndOfSession, ..data(3, 0) };
    play.offer(Line::A, data(1, 1)).offer(Line::A, end).offer(Line::B, data(2, 1)).offer(Line::B, end);
    play.check("1-1 = 2-2 . =");
}

#[test]
fn far_jump_ahead_of_one_line_is_dropped() {
    let mut play = Play::new(WINDOW);
    play.offer(Line::A, data(1, 1)).offer(Line::A, data(1 << 40, 2)).offer(Line::A, data(1 << 40, 2));
    play.offer(Line::A, data(2, 1)).wait(1000).check("1-1 k = 2-2");
    play.close().check("1-1 k = 2-2 =");
    assert_eq!(play.arbiter.counts().doubted, 4);
}

#[test]
fn far_jump_ahead_is_believed_when_the_other_line_makes_it_too() {
    let mut play = Play::new(WINDOW);
    play.offer(Line::A, data(1, 1)).offer(Line::A, data(500_000, 2)).offer(Line::B, data(500_000, 2)).wait(100);
    play.offer(Line::A, data(500_002, 1));
    play.check("1-1 k k = G2-499999 500000-500001 500002-500002");
}

#[test]
fn packets_behind_a_wide_hole_are_believed_one_by_one() {
    let mut play = Play::new(Window { packets: 8, wait_ns: 100 });
    play.offer(Line::A, data(1, 1));
    for seq in 500_000..500_004 {
        play.offer(Line::A, data(seq, 1));
    }
    play.wait(100).check("1-1 k k k k G2-499999 500000-500000 500001-500001 500002-500002 500003-500003");
}

/// Offers an answer to a re-request.
fn answer(play: &mut Play, header: Header) -> Verdict {
    let verdict = play.arbiter.offer_answer(&header);
    if verdict == Verdict::Keep {
        play.arbiter.keep((header.seq, header.end())).unwrap();
    }
    verdict
}

fn missing(play: &Play) -> Vec<(u64, u64)> {
    play.arbiter.missing().map(|missing| (missing.gap.from, missing.gap.to)).collect()
}

#[test]
fn what_is_missing_is_told_in_order() {
    let mut play = Play::new(Window { packets: 8, ..WINDOW });
    assert_eq!(missing(&play), []);
    play.offer(Line::A, data(5, 2))
        .offer(Line::A, data(2, 1))
        .offer(Line::A, heartbeat(9))
        .offer(Line::B, heartbeat(9));
    assert_eq!(missing(&play), [(1, 1), (3, 4), (7, 8)]);
}

#[test]
fn answer_fills_its_hole_and_what_waited_follows() {
    let mut play = Play::new(Window { packets: 8, ..WINDOW });
    play.offer(Line::A, data(1, 1)).offer(Line::A, data(6, 1)).offer(Line::B, data(6, 1));
    assert_eq!(answer(&mut play, data(4, 2)), Verdict::Keep);
    assert_eq!(answer(&mut play, data(2, 2)), Verdict::Deliver { skip: 0 });
    play.wait(0).check("1-1 k k = 4-5 6-6");
    assert_eq!((play.arbiter.holes().recovered, play.arbiter.answers().delivered), (1, 4));
    assert_eq!(play.line(Line::A).lost, 4);
}

#[test]
fn answer_never_restarts_jumps_or_overflows() {
    let mut play = Play::new(WINDOW);
    play.offer(Line::A, data(200_000, 1)).offer(Line::A, data(200_001, 1));
    assert_eq!(play.wait(100).story, ["k", "k", "G1-199999", "200000-200000", "200001-200001"]);
    // Later than any packet of a line may be.
    assert_eq!(answer(&mut play, data(1, 2)), Verdict::Discard);
    assert_eq!(answer(&mut play, data(200_002, 2)), Verdict::Discard);
    assert_eq!(answer(&mut play, Header { session: Session(9), ..data(1, 2) }), Verdict::Discard);
    assert_eq!(answer(&mut play, heartbeat(1)), Verdict::Discard);
    for seq in [200_005, 200_006] {
        play.offer(Line::A, data(seq, 1));
    }
    assert_eq!(answer(&mut play, data(200_004, 1)), Verdict::Discard);
    play.wait(0);
    assert_eq!(play.story[5..], ["k", "k"]);
    let (counts, answers) = (play.arbiter.counts(), play.arbiter.answers());
    assert_eq!((counts.late, answers.unasked, answers.full), (2, 3, 1));
}

#[test]
fn hole_that_is_given_up_is_a_gap_at_once() {
    let mut play = Play::new(WINDOW);
    play.arbiter.give_up();
    play.offer(Line::A, data(1, 1)).offer(Line::A, data(3, 1)).offer(Line::A, heartbeat(4));
    play.arbiter.give_up();
    play.wait(0).check("1-1 k = G2-2 3-3");
    assert_eq!(play.arbiter.holes().given_up_unanswered, 1);
}

/// Splits `total` messages into random packets, loses and moves some.
fn any_line(total: u64) -> impl Strategy<Value = Vec<(u64, Header)>> {
    proptest::collection::vec((1_u32..8, 0_u64..12, 0_u8..10), total as usize).prop_map(move |cuts| {
        let mut packets = Vec::new();
        let mut seq = 1;
        for (tick, (count, late, fortune)) in (0_u64..).zip(cuts) {
            let count = count.min((total + 1 - seq) as u32);
            if count == 0 {
                break;
            }
            if fortune > 1 {
                packets.push((tick + late, data(seq, count)));
            }
            seq += u64::from(count);
        }
        packets.push((total + 20, heartbeat(total + 1)));
        packets
    })
}

proptest! {
    #[test]
    fn each_number_is_delivered_once_in_order_or_is_in_a_gap(
        a in any_line(120), b in any_line(120), packets in 0_usize..8, wait_ns in 0_u64..20,
    ) {
        let mut arrivals: Vec<_> = a.into_iter().map(|(at, header)| (at, Line::A, header)).collect();
        arrivals.extend(b.into_iter().map(|(at, header)| (at, Line::B, header)));
        arrivals.sort_by_key(|(at, line, _)| (*at, *line));
        let offered: u64 = arrivals.iter().map(|(_, _, header)| u64::from(header.count)).sum();

        let mut play = Play::new(Window { packets, wait_ns });
        for (at, line, header) in arrivals {
            let ns = at - play.now_ns;
            play.wait(ns).offer(line, header);
        }
        play.close();

        let mut next = 1;
        for range in play.story.iter().map(|entry| entry.trim_start_matches('G')).filter(|e| e.contains('-')) {
            let (from, to) = range.split_once('-').unwrap();
            prop_assert_eq!(from.parse::<u64>().unwrap(), next);
            next = to.parse::<u64>().unwrap() + 1;
        }
        prop_assert_eq!(next, 121);
        prop_assert_eq!(play.arbiter.kept_count(), 0);
        let counts = play.arbiter.counts();
        prop_assert_eq!(counts.delivered + counts.missing, 120);
        // A packet that overtakes others by more than the wait is contradicted by its own line.
        prop_assert_eq!(counts.delivered + counts.duplicates + counts.late + counts.doubted, offered);
        let holes = play.arbiter.holes();
        let closed = holes.healed + holes.reordered + holes.given_up_full + holes.given_up_late;
        prop_assert_eq!(holes.opened, closed);
        prop_assert_eq!(counts.delivered, play.line(Line::A).first + play.line(Line::B).first);
    }
}

fn any_header() -> impl Strategy<Value = Header> {
    let kind = prop_oneof![
        8 => Just(PacketKind::Data),
        2 => Just(PacketKind::Heartbeat),
        1 => Just(PacketKind::EndOfSession),
        1 => Just(PacketKind::Unsequenced)
    ];
    let seq = prop_oneof![12 => 0_u64..40, 1 => any::<u64>()];
    (0_u128..2, seq, 1_u32..6, kind, 0_u64..4).prop_map(|(session, seq, count, kind, seconds)| Header {
        session: Session(session / 2 + u128::from(seconds == 3)),
        count: if matches!(kind, PacketKind::Data | PacketKind::Unsequenced) { count } else { 0 },
        kind,
        sent_ns: seconds * 1_000_000_000,
        ..data(seq, 0)
    })
}

proptest! {
    #[test]
    fn hostile_headers_lose_no_handle(
        // The third line is the re-request server's answers.
        arrivals in proptest::collection::vec((any_header(), 0_usize..3, any::<bool>(), 0_u64..60), 1..120),
    ) {
        let mut arbiter = Arbiter::new(2, Policy::default(), WINDOW);
        let (mut kept, mut returned) = (0, Vec::new());
        let (mut now_ns, mut offered) = (0, 0);
        for (header, line, can_keep, ns) in arrivals {
            now_ns += ns;
            let unasked = arbiter.answers().unasked + arbiter.answers().full;
            let verdict = match line {
                2 => arbiter.offer_answer(&header),
                _ => arbiter.offer(Line(line), &header, now_ns),
            };
            match verdict {
                // Such answers are counted nowhere else.
                Verdict::Discard if arbiter.answers().unasked + arbiter.answers().full > unasked => {}
                Verdict::Keep if can_keep => {
                    arbiter.keep(kept).unwrap();
                    kept += 1;
                    offered += u64::from(header.count);
                }
                Verdict::Keep => {}
                Verdict::Deliver { .. } | Verdict::Discard => offered += u64::from(header.count),
            }
            while let Some(output) = arbiter.poll(now_ns) {
                if let Output::Deliver { handle, .. } | Output::Discard { handle } = output {
                    returned.push(handle);
                }
            }
            prop_assert!(arbiter.kept_count() <= WINDOW.packets);
        }
        arbiter.close();
        while let Some(output) = arbiter.poll(u64::MAX) {
            if let Output::Deliver { handle, .. } | Output::Discard { handle } = output {
                returned.push(handle);
            }
        }
        returned.sort_unstable();
        prop_assert_eq!(returned, (0..kept).collect::<Vec<_>>());
        let counts = arbiter.counts();
        let refused = counts.duplicates + counts.late + counts.past + counts.doubted + counts.unsequenced;
        prop_assert_eq!(counts.delivered + refused, offered);
    }
}

proptest! {
    #[test]
    fn packet_that_is_taken_at_once_is_counted_as_one_that_is_offered(
        steps in proptest::collection::vec((0_u8..4, any_header(), 0_usize..2, 0_u64..60), 1..120),
    ) {
        let (mut plays, mut next) = ([(); 2].map(|()| Play::new(WINDOW)), 1);
        plays[1].takes_next = true;
        for (kind, header, line, ns) in steps {
            // Three of four go on where the channel is.
            let header = if kind > 0 { Header { session: Session(0), ..data(next, header.count.max(1)) } } else { header };
            plays.iter_mut().for_each(|play| _ = play.wait(ns).offer(Line(line), header));
            next = plays[0].arbiter.next_seq();
        }
        let [offered, at_once] = plays.map(|mut play| {
            play.close();
            let Play { arbiter, story, .. } = play;
            (story, format!("{arbiter:?}"))
        });
        prop_assert_eq!(offered, at_once);
    }
}

#[test]
fn one_forged_packet_costs_no_message_whatever_it_claims() {
    let forged = [
        Header { session: Session(9), ..data(1, 3) },
        Header { session: Session(9), ..data(6, 1) },
        Header { session: Session(9), ..heartbeat(1) },
        data(49_097, 1),
        data(1 << 40, 3),
        heartbeat(7),
        heartbeat(1 << 40),
        Header { sent_ns: u64::MAX, ..data(1, 1) },
        Header { kind: PacketKind::EndOfSession, session: Session(9), ..data(1, 0) },
    ];
    for header in forged {
        let mut play = Play::new(Window { packets: 64, ..WINDOW });
        play.offer(Line::A, data(1, 5)).offer(Line::A, header);
        for seq in 6..100 {
            play.wait(10).offer(Line::A, data(seq, 1));
        }
        let counts = *play.close().arbiter.counts();
        assert_eq!(
            (counts.delivered, counts.missing, counts.restarts),
            (99, 0, 0),
            "{header:?}: {}",
            play.story.join(" ")
        );
        assert_eq!(counts.doubted + counts.duplicates, u64::from(header.count), "{header:?}");
    }
}

#[test]
fn first_packet_of_all_that_is_damaged_costs_nothing_but_itself() {
    for first in [data(1 << 40, 1), data(60_000, 1), Header { session: Session(9), ..data(7, 1) }] {
        let mut play = Play::new(WINDOW);
        play.offer(Line::A, first);
        for seq in 1..8 {
            play.wait(10).offer(Line::A, data(seq, 1));
        }
        let counts = *play.close().arbiter.counts();
        assert_eq!((counts.delivered, counts.missing, counts.doubted), (7, 0, 1), "{first:?}");
    }
}

#[test]
fn claim_that_its_line_contradicts_three_times_has_no_witness_on_the_other() {
    let mut play = Play::new(WINDOW);
    play.offer(Line::A, data(1, 1)).offer(Line::A, data(1 << 20, 1)).wait(200);
    (2..5).for_each(|seq| _ = play.offer(Line::A, data(seq, 1)));
    play.check("1-1 k 2-2 3-3 4-4 =");
    play.offer(Line::B, data((1 << 20) + 1, 1)).check("1-1 k 2-2 3-3 4-4 = k");
}

/// A stuck bit: each damaged packet would confirm the one before it.
#[test]
fn line_that_went_on_meanwhile_is_no_witness_of_its_own_claim() {
    let mut play = Play::new(WINDOW);
    let wrong = |seq: u64| data(seq | 1 << 40, 1);
    play.offer(Line::A, data(1, 1)).offer(Line::A, wrong(2)).offer(Line::A, data(2, 1)).offer(Line::A, wrong(3));
    play.wait(200).offer(Line::A, data(3, 1)).check("1-1 k 2-2 k 3-3");
}

#[test]
fn new_session_that_one_line_brings_late_loses_nothing() {
    let mut play = Play::new(WINDOW);
    let new = |seq| Header { session: Session(2), ..data(seq, 1) };
    // Line B still has the old session when A has the new one; A's first packet of it counts as B's
    // loss.
    play.offer(Line::A, data(1, 2)).offer(Line::A, new(1)).offer(Line::B, data(1, 2)).offer(Line::A, new(2));
    play.offer(Line::B, data(3, 1)).offer(Line::B, new(2));
    play.check("1-2 k = k R 1-1 2-2 = =");
    let counts = play.arbiter.counts();
    assert_eq!((counts.missing, counts.past, counts.doubted), (0, 1, 0));
}

#[test]
fn packet_that_one_line_alone_brings_behind_a_loss_waits_for_its_heartbeat_only() {
    let mut play = Play::new(WINDOW);
    play.offer(Line::A, data(1, 1)).offer(Line::A, data(3, 1)).wait(5_000).check("1-1 k");
    play.offer(Line::A, heartbeat(4)).check("1-1 k = G2-2 3-3");
}

#[test]
fn what_nothing_speaks_against_is_believed_at_the_end() {
    let mut play = Play::new(WINDOW);
    play.offer(Line::A, data(1, 1)).offer(Line::A, data(3, 1)).close().check("1-1 k G2-2 3-3");
    let mut play = Play::new(WINDOW);
    play.offer(Line::A, data(1, 1)).offer(Line::A, data(200_000, 1)).close().check("1-1 k =");
}

#[test]
fn doubts_beyond_their_places_push_out_the_oldest() {
    let mut play = Play::new(WINDOW);
    play.offer(Line::A, data(1, 1));
    for place in 1..=9_u64 {
        play.offer(Line::A, data(place << 20, 1));
    }
    play.check("1-1 k k k k k k k k k =");
    assert_eq!((play.arbiter.doubted_count(), play.arbiter.counts().doubted), (8, 1));
    play.offer(Line::A, data(2, 1)).close();
    assert_eq!((play.arbiter.counts().doubted, play.arbiter.counts().delivered), (9, 2));
}

/// The damage of a packet: the flipped bits of its session and of its number.
#[derive(Clone, Copy, Debug)]
struct Damage {
    session: u128,
    seq: u64,
}

fn any_damage() -> impl Strategy<Value = Option<Damage>> {
    let none = Just(None);
    let session = (0_u32..80).prop_map(|bit| Some(Damage { session: 1 << bit, seq: 0 }));
    let seq = (0_u32..64).prop_map(|bit| Some(Damage { session: 0, seq: 1 << bit }));
    let bits = any::<(u64, u64)>().prop_map(|(session, seq)| Some(Damage { session: session.into(), seq }));
    prop_oneof![24 => none, 1 => session, 2 => seq, 1 => bits]
}

/// A line's packets: the silence before each, whether it arrives, and its damage.
fn any_damaged_line() -> impl Strategy<Value = Vec<(u64, bool, Option<Damage>)>> {
    let silence = prop_oneof![8 => 0_u64..20, 1 => 200_u64..5_000];
    proptest::collection::vec((silence, prop::bool::weighted(0.9), any_damage()), 150)
}

/// Whether two damaged packets make nearly the same false claim.
fn agree(one: &Header, other: &Header) -> bool {
    one.session == other.session && one.seq.abs_diff(other.seq) <= 256
}

proptest! {
    #[test]
    fn what_is_reported_missing_never_exceeds_what_is_missing(
        lines in proptest::collection::vec(any_damaged_line(), 1..3),
        per_packet in 1_u32..4,
        start in prop_oneof![Just(1_u64), 1_u64..1_000_000],
        first in prop_oneof![Just(StartSequence::FromOne), Just(StartSequence::Anywhere)],
    ) {
        let total = 150 * u64::from(per_packet);
        let start = if first == StartSequence::FromOne { 1 } else { start };
        let (mut arrivals, mut lies) = (Vec::new(), Vec::<(u64, Header)>::new());
        let mut came = vec![false; total as usize];
        for (line, packets) in (0..).zip(lines) {
            let mut at = line;
            for (idx, (silence, arrives, damage)) in (0..).zip(packets) {
                at += silence;
                let true_header = data(start + idx * u64::from(per_packet), per_packet);
                let Damage { session, seq } = damage.unwrap_or(Damage { session: 0, seq: 0 });
                let header = Header {
                    session: Session(true_header.session.0 ^ session),
                    seq: true_header.seq ^ seq,
                    ..true_header
                };
                // Two that agree in a false claim are accepted.
                let is_lie = header != true_header;
                if !arrives || is_lie && lies.iter().any(|(_, lie)| agree(lie, &header)) {
                    continue;
                }
                if is_lie {
                    lies.push((line, header));
                } else if !lies.contains(&(line, header)) {
                    // A packet that looks like a copy of a false one is treated as a copy.
                    let from = (idx * u64::from(per_packet)) as usize;
                    came[from..from + per_packet as usize].fill(true);
                }
                arrivals.push((at, Line(line as usize), header));
            }
        }
        arrivals.sort_by_key(|(at, line, _)| (*at, *line));
        // Lines that are further apart than the window lose the messages that only the slower line
        // has; that is not a false claim.
        let window = Window { packets: 1_000, wait_ns: 1_000_000 };
        let mut play = Play::new(window);
        play.arbiter = Arbiter::new(2, Policy { first, ..Policy::default() }, window);
        let (mut now, mut offered) = (0, 0);
        for (at, line, header) in arrivals {
            // More false claims than may wait, with no true packet between them that contradicts
            // one, displace the true ones.
            prop_assume!(!play.arbiter.doubts.displaces_uncontradicted());
            offered += u64::from(header.count);
            play.wait(at - now).offer(line, header);
            now = at;
        }
        for line in [Line::A, Line::B] {
            play.wait(1_000).offer(line, heartbeat(start + total));
        }
        play.wait(2_000_000).offer(Line::A, heartbeat(start + total)).close();
        let truth = came.iter().filter(|came| !**came).count() as u64;
        let counts = play.arbiter.counts();
        prop_assert!(counts.missing <= truth, "{} > {truth}: {}", counts.missing, play.story.join(" "));
        prop_assert_eq!(counts.delivered + counts.duplicates + counts.late + counts.past + counts.doubted, offered);
    }
}
