use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::arbitration::{Arbiter, Line, Output, Verdict, Window};
use crate::framing::{Header, PacketKind, Session};
use crate::sequence::Policy;

const POLICY: RetryPolicy =
    RetryPolicy { delay_ns: 10, timeout_ns: 100, attempts: 2, outstanding: 2, messages: 4, interval_ns: 0, burst: 1 };

/// A machine, the missing ranges it gets, and the result of each poll: `5+4` requests four from 5
/// on, `G5-9` gives up.
struct Play {
    rerequester: Rerequester,
    missing: Vec<Missing>,
}

impl Play {
    fn new(missing: &[(u64, u64, u64)]) -> Self {
        let mut play = Self { rerequester: Rerequester::new(POLICY), missing: Vec::new() };
        play.missing(missing);
        play
    }

    /// First and last number, and since when.
    fn missing(&mut self, missing: &[(u64, u64, u64)]) -> &mut Self {
        self.missing =
            missing.iter().map(|&(from, to, since_ns)| Missing { gap: Gap { from, to }, since_ns }).collect();
        self
    }

    #[track_caller]
    fn check(&mut self, now_ns: u64, story: &str) -> &mut Self {
        let mut steps = Vec::new();
        while let Some(step) = self.rerequester.poll(self.missing.iter().copied(), now_ns) {
            steps.push(match step {
                RerequestStep::Request(RerequestRange { seq, count }) => format!("{seq}+{count}"),
                RerequestStep::GiveUp(Gap { from, to }) => format!("G{from}-{to}"),
            });
        }
        assert_eq!(steps.join(" "), story, "at {now_ns}");
        self
    }

    fn answer_received(&mut self) -> &mut Self {
        self.rerequester.answer_received();
        self
    }
}

#[test]
fn young_hole_is_left_to_the_other_line() {
    Play::new(&[(5, 6, 0)]).check(0, "").check(9, "").missing(&[]).check(100, "");
}

#[test]
fn requests_keep_to_their_rate() {
    let mut play = Play::new(&[(1, 1, 0), (3, 3, 0), (5, 5, 0), (7, 7, 0)]);
    let policy = RetryPolicy { timeout_ns: 1_000, outstanding: 8, interval_ns: 50, burst: 2, ..POLICY };
    play.rerequester = Rerequester::new(policy);
    play.check(10, "1+1 3+1").check(59, "").check(66, "5+1").check(105, "").check(112, "7+1");
    assert_eq!(play.rerequester.counts().requested, 4);
}

#[test]
fn refused_hole_is_given_up_at_once() {
    let mut play = Play::new(&[(5, 6, 0), (9, 9, 0)]);
    play.check(10, "5+2 9+1");
    play.rerequester.refused(9);
    play.rerequester.refused(7);
    play.check(20, "");
    play.rerequester.refused(5);
    play.check(30, "G5-6");
}

#[test]
fn hole_is_asked_for_once_when_it_is_old_enough() {
    Play::new(&[(5, 6, 0)]).check(10, "5+2").check(11, "").check(60, "").missing(&[]).check(200, "");
}

#[test]
fn hole_that_ends_with_the_last_number_of_all_is_asked_for() {
    let last = u64::MAX;
    Play::new(&[(last - 1, last, 0)]).check(10, &format!("{}+2", last - 1)).check(11, "");
}

#[test]
fn wide_hole_is_asked_for_in_a_bounded_number_of_pieces() {
    let mut play = Play::new(&[(5, 30, 0)]);
    play.check(10, "5+4 9+4").check(50, "");
    assert_eq!(play.rerequester.outstanding_count(), 2);
    play.answer_received().missing(&[(9, 30, 0)]).check(51, "13+4");
}

#[test]
fn rest_of_a_short_answer_is_asked_for_at_once() {
    Play::new(&[(5, 8, 0)]).check(10, "5+4").answer_received().missing(&[(7, 8, 0)]).check(11, "7+2");
}

#[test]
fn answer_to_the_second_piece_leaves_the_first_one_waiting() {
    Play::new(&[(5, 12, 0)])
        .check(10, "5+4 9+4")
        .answer_received()
        .missing(&[(5, 8, 0)])
        .check(20, "")
        .check(110, "5+4");
}

#[test]
fn several_holes_are_asked_for_together() {
    Play::new(&[(5, 5, 0), (8, 8, 0), (20, 20, 9)])
        .check(10, "5+1 8+1")
        .answer_received()
        .missing(&[(20, 20, 9)])
        .check(19, "20+1");
}

#[test]
fn hole_of_a_dead_server_is_given_up_after_the_last_attempt() {
    let mut play = Play::new(&[(5, 30, 0)]);
    play.check(10, "5+4 9+4").check(109, "").check(115, "5+4 9+4").check(214, "").check(220, "G5-30").check(220, "");
    play.missing(&[]).check(230, "");
    assert_eq!(*play.rerequester.counts(), RerequestCounts { requested: 4, repeated: 2, given_up: 1 });
    assert!(220 <= POLICY.unanswered_ns());
}

#[test]
fn hole_that_appears_before_those_of_a_dead_server_is_given_up_before_them() {
    let mut play = Play::new(&[(5, 30, 0)]);
    play.check(10, "5+4 9+4").missing(&[(3, 3, 20), (5, 30, 0)]);
    play.check(110, "5+4 9+4").check(209, "").check(215, "3+1").check(321, "3+1").check(427, "G3-3");
    play.missing(&[(5, 30, 0)]).check(433, "G5-30");
}

#[test]
fn later_hole_that_nobody_answers_waits_for_its_turn() {
    let mut play = Play::new(&[(5, 5, 0), (8, 8, 0)]);
    play.check(10, "5+1 8+1")
        .check(110, "5+1 8+1")
        .answer_received()
        .missing(&[(8, 8, 0)])
        .check(120, "")
        .check(210, "G8-8");
}

#[test]
fn restart_forgets_what_was_asked() {
    let mut play = Play::new(&[(5, 5, 0)]);
    play.check(10, "5+1");
    play.rerequester.forget();
    play.missing(&[(5, 6, 0)]).check(11, "5+2");
}

/// The fate of a request and its answer on the network, drawn for each request.
#[derive(Clone, Copy, Debug)]
struct Trip {
    lost: bool,
    ns: u64,
    copy_ns: Option<u64>,
    /// The server's packets hold so many messages.
    count_max: u16,
}

/// A line, a server, and a receiver between them in virtual time. Each packet's handle is its
/// range.
struct World {
    arbiter: Arbiter<(u64, u64)>,
    rerequester: Rerequester,
    /// Packets under way by time: over a line, or as an answer.
    arrivals: BTreeMap<(u64, u64), (Option<Line>, Header)>,
    trips: Vec<Trip>,
    /// One past the newest number that the server has.
    sent: BTreeMap<u64, u64>,
    story: Vec<(bool, u64, u64)>,
    number: u64,
}

fn data(seq: u64, count: u32) -> Header {
    Header { channel: 0, session: Session(1), seq, count, kind: PacketKind::Data, sent_ns: 0 }
}

impl World {
    fn arrive(&mut self, ns: u64, line: Option<Line>, header: Header) {
        self.number += 1;
        self.arrivals.insert((ns, self.number), (line, header));
    }

    /// Runs until nothing is under way and nothing is pending.
    fn run(&mut self) {
        let mut now_ns = 0;
        while !self.arrivals.is_empty() || self.arbiter.deadline_ns().is_some() {
            while let Some(entry) = self.arrivals.first_entry()
                && entry.key().0 <= now_ns
            {
                let (line, header) = entry.remove();
                self.offer(line, &header, now_ns);
                self.drain(now_ns);
            }
            self.range(now_ns);
            self.drain(now_ns);
            now_ns += 1;
            assert!(now_ns < 1_000_000, "a hole stays open for ever");
        }
    }

    fn offer(&mut self, line: Option<Line>, header: &Header, now_ns: u64) {
        let fate = match line {
            Some(line) => self.arbiter.offer(line, header, now_ns),
            None => {
                self.rerequester.answer_received();
                self.arbiter.offer_answer(header)
            }
        };
        match fate {
            Verdict::Deliver { skip } => self.story.push((true, header.seq + u64::from(skip), header.end())),
            Verdict::Keep => self.arbiter.keep((header.seq, header.end())).unwrap(),
            Verdict::Discard => {}
        }
    }

    fn drain(&mut self, now_ns: u64) {
        while let Some(output) = self.arbiter.poll(now_ns) {
            match output {
                Output::Deliver { handle: (seq, end), skip } => self.story.push((true, seq + u64::from(skip), end)),
                Output::Gap(Gap { from, to }) => self.story.push((false, from, to + 1)),
                Output::Discard { .. } => {}
                Output::LateJoin(_) | Output::Restart | Output::EndOfSession => panic!("{output:?} from nowhere"),
            }
        }
    }

    fn range(&mut self, now_ns: u64) {
        while let Some(step) = self.rerequester.poll(self.arbiter.missing(), now_ns) {
            let RerequestStep::Request(RerequestRange { seq, count }) = step else {
                self.arbiter.give_up();
                continue;
            };
            let trip = self.trips[self.rerequester.counts().requested as usize % self.trips.len()];
            let newest = *self.sent.range(..=now_ns).next_back().unwrap().1;
            assert!(seq + u64::from(count) <= newest, "asked for what was not sent yet");
            if trip.lost {
                continue;
            }
            let answer = data(seq, count.min(trip.count_max).into());
            self.arrive(now_ns + trip.ns, None, answer);
            if let Some(ns) = trip.copy_ns {
                self.arrive(now_ns + trip.ns + ns, None, answer);
            }
        }
        assert!(self.rerequester.outstanding_count() <= POLICY.outstanding);
    }
}

fn any_trip(lost: u32) -> impl Strategy<Value = Trip> {
    let fate = prop_oneof![lost => Just(true), 10 - lost => Just(false)];
    // Some answers come after the request is repeated, or after its hole is given up.
    let ns = prop_oneof![6 => 1_u64..40, 2 => 90_u64..130, 1 => 200_u64..400];
    (fate, ns, proptest::option::of(0_u64..300), 1_u16..6).prop_map(|(lost, ns, copy_ns, count_max)| Trip {
        lost,
        ns,
        copy_ns,
        count_max,
    })
}

/// Packets of one publisher: their lengths, the time between them, and on which of two lines they
/// are lost.
fn any_packets() -> impl Strategy<Value = Vec<(u32, u64, bool, bool)>> {
    proptest::collection::vec((1_u32..9, 0_u64..20, prop::bool::weighted(0.4), prop::bool::weighted(0.4)), 1..60)
}

fn world(packets: &[(u32, u64, bool, bool)], trips: Vec<Trip>, window: Window) -> (World, u64) {
    let mut world = World {
        arbiter: Arbiter::new(2, Policy::default(), window),
        rerequester: Rerequester::new(POLICY),
        arrivals: BTreeMap::new(),
        trips,
        sent: BTreeMap::new(),
        story: Vec::new(),
        number: 0,
    };
    let (mut seq, mut now_ns) = (1, 0);
    world.sent.insert(0, 1);
    for &(count, ns, lost_a, lost_b) in packets {
        now_ns += ns;
        for (line, lost, lag_ns) in [(Line::A, lost_a, 0), (Line::B, lost_b, 3)] {
            if !lost {
                world.arrive(now_ns + lag_ns, Some(line), data(seq, count));
            }
        }
        seq += u64::from(count);
        world.sent.insert(now_ns, seq);
    }
    for (line, lag_ns) in [(Line::A, 0), (Line::B, 3)] {
        world.arrive(now_ns + 50 + lag_ns, Some(line), Header { kind: PacketKind::Heartbeat, ..data(seq, 0) });
    }
    (world, seq)
}

/// Every number once and in order, delivered or in a gap; the counts agree with the log.
fn check(world: &World, end: u64) -> Result<(), TestCaseError> {
    let mut next = 1;
    for &(_, from, to) in &world.story {
        prop_assert_eq!(from, next);
        prop_assert!(to > from);
        next = to;
    }
    prop_assert_eq!(next, end);
    prop_assert_eq!(world.arbiter.kept_count(), 0);
    let lost: u64 = world.story.iter().filter(|(delivered, _, _)| !delivered).map(|(_, from, to)| to - from).sum();
    let counts = world.arbiter.counts();
    prop_assert_eq!((counts.missing, counts.delivered), (lost, end - 1 - lost));
    let first: u64 = world.arbiter.lines().map(|line| line.first).sum();
    prop_assert_eq!(first + world.arbiter.answers().delivered, counts.delivered);
    let holes = world.arbiter.holes();
    let given_up = holes.given_up_unanswered + holes.given_up_full + holes.given_up_late;
    prop_assert_eq!(holes.opened, holes.healed + holes.reordered + holes.recovered + given_up);
    Ok(())
}

const WIDE: Window = Window { packets: 1000, wait_ns: 100_000 };

proptest! {
    #[test]
    fn what_a_server_has_is_recovered_whole(packets in any_packets(), ns in 1_u64..90, count_max in 1_u16..6) {
        let trip = Trip { lost: false, ns, copy_ns: Some(7), count_max };
        let (mut world, end) = world(&packets, vec![trip], WIDE);
        world.run();
        check(&world, end)?;
        prop_assert_eq!(world.arbiter.counts().missing, 0);
    }

    #[test]
    fn answers_lost_late_and_twice_leave_each_number_once_or_in_a_gap(
        packets in any_packets(),
        trips in proptest::collection::vec(any_trip(4), 1..20),
        window in prop_oneof![Just(WIDE), Just(Window { packets: 3, wait_ns: 150 })],
    ) {
        let (mut world, end) = world(&packets, trips, window);
        world.run();
        check(&world, end)?;
    }

    #[test]
    fn dead_server_costs_a_bounded_time_and_all_that_both_lines_lost(packets in any_packets()) {
        let trip = Trip { lost: true, ns: 1, copy_ns: None, count_max: 1 };
        let (mut world, end) = world(&packets, vec![trip], WIDE);
        world.run();
        check(&world, end)?;
        let lost_on_both = packets.iter().filter(|(_, _, a, b)| *a && *b).map(|(count, ..)| u64::from(*count));
        prop_assert_eq!(world.arbiter.counts().missing, lost_on_both.sum::<u64>());
        let holes = world.arbiter.holes();
        prop_assert_eq!(holes.given_up_late, 0);
    }
}
