//! Sequence and arbitration machines under arbitrary packets: each message counted once, each
//! number delivered at most once and in order, each kept packet given back once, and no hole that
//! stays open for ever.

use market::framing::mold_udp64::{MoldHeader, MoldUdp64};
use market::framing::{Framing, Header, PacketKind};
use market::{Action, Arbiter, Gap, Line, Output, RerequestStep, Rerequester, RetryPolicy, Verdict, Window};
use market::{DOUBTS_MAX, Policy, Sequence, SequenceCounts, StartSequence};

use crate::fuzz::Input;

const HALF_A_SECOND_NS: u64 = 500_000_000;

/// The machine of one channel.
pub(in crate::fuzz) fn sequence(data: &[u8]) {
    let mut input = Input::new(data);
    let (policy, mut seen) = (policy(&mut input), SeenPackets::new());
    let mut sequence = Sequence::new(policy);
    let mut expected = Expected::new(policy);
    while !input.is_empty() {
        let header = header(&mut input, &mut seen);
        let verdict = sequence.offer(&header);
        if verdict.restart {
            expected.restart();
        }
        expected.gap(verdict.gap);
        if let Action::Deliver { skip } = verdict.action {
            expected.deliver(&header, skip);
        }
        check_counts(sequence.counts(), seen.messages);
    }
    assert_eq!((sequence.counts().gaps, sequence.counts().missing), (expected.gaps, expected.missing));
    assert_eq!(sequence.counts().restarts, expected.restarts);
}

/// Two lines of one channel.
pub(in crate::fuzz) fn arbitration(data: &[u8]) {
    let mut input = Input::new(data);
    let (policy, mut seen) = (policy(&mut input), SeenPackets::new());
    let window = Window { packets: input.below(6).into(), wait_ns: input.pick(&[0, 100, 1_000_000]) };
    let mut expected = Expected::new(policy);
    let mut arbiter = Arbiter::new(2, policy, window);
    let mut kept: Vec<Header> = Vec::new();
    let mut now_ns = 0;
    while !input.is_empty() {
        now_ns += u64::from(input.u8());
        let line = Line(usize::from(input.u8() & 1));
        let header = header(&mut input, &mut seen);
        match arbiter.offer(line, &header, now_ns) {
            Verdict::Deliver { skip } => expected.deliver(&header, skip),
            Verdict::Discard => {}
            // Sometimes there is no buffer to keep it in.
            Verdict::Keep if input.below(16) == 15 => seen.messages -= u64::from(header.count),
            Verdict::Keep => {
                kept.push(header);
                assert_eq!(arbiter.keep(header), Ok(()));
                assert_eq!(arbiter.keep(header), Err(header), "kept twice");
            }
        }
        drain(&mut arbiter, now_ns, &mut kept, &mut expected);
        assert!(arbiter.kept_count() <= window.packets && arbiter.doubted_count() <= DOUBTS_MAX);
        assert!((arbiter.kept_count()..=arbiter.kept_count() + arbiter.doubted_count()).contains(&kept.len()));
        assert!(arbiter.deadline_ns().is_none_or(|deadline_ns| deadline_ns > now_ns));
        assert!(arbiter.kept_count() == 0 || arbiter.deadline_ns().is_some(), "packets wait for nothing");
    }
    arbiter.close();
    drain(&mut arbiter, u64::MAX, &mut kept, &mut expected);
    assert!(kept.is_empty() && arbiter.kept_count() == 0 && arbiter.deadline_ns().is_none());
    let counts = arbiter.counts();
    check_counts(counts, seen.messages);
    assert_eq!((counts.gaps, counts.missing, counts.restarts), (expected.gaps, expected.missing, expected.restarts));
}

/// One line, and answers to re-requests from a server that may send anything: no answer restarts
/// the feed, reaches beyond the numbers that the line has shown, or makes us request for ever.
pub(in crate::fuzz) fn recovery(data: &[u8]) {
    let mut input = Input::new(data);
    let (policy, mut seen) = (policy(&mut input), SeenPackets::new());
    let window = Window { packets: input.below(6).into(), wait_ns: input.pick(&[0, 1_000, 1_000_000]) };
    let retry = RetryPolicy {
        delay_ns: input.pick(&[0, 10]),
        timeout_ns: 100,
        attempts: 2,
        outstanding: 3,
        messages: input.pick(&[1, 4, u16::MAX]),
        interval_ns: input.pick(&[0, 50]),
        burst: 2,
    };
    let mut expected = Expected::new(policy);
    let (mut arbiter, mut rerequester) = (Arbiter::new(1, policy, window), Rerequester::new(retry));
    let mut kept: Vec<Header> = Vec::new();
    let (mut now_ns, mut asked) = (0, None);
    while !input.is_empty() {
        now_ns += u64::from(input.u8());
        let is_answer = input.below(2) == 1;
        let mut header = header(&mut input, &mut seen);
        let before = (arbiter.counts().restarts, arbiter.missing().count());
        let fate = match is_answer {
            false => arbiter.offer(Line(0), &header, now_ns),
            true => {
                // The answer is as requested, except for the input's changes.
                if let Some((seq, count)) = asked.filter(|_| input.below(4) > 0) {
                    (header.seq, header.count) = (seq, u32::from(count).min(1 + u32::from(input.below(8))));
                    header.session = arbiter.session().unwrap_or(header.session);
                }
                rerequester.answer_received();
                arbiter.offer_answer(&header)
            }
        };
        match fate {
            Verdict::Deliver { skip } => expected.deliver(&header, skip),
            Verdict::Discard => {}
            Verdict::Keep => {
                kept.push(header);
                assert_eq!(arbiter.keep(header), Ok(()));
            }
        }
        if is_answer {
            let after = (arbiter.counts().restarts, arbiter.missing().count());
            // An answer inside a hole splits it in two.
            assert!(after.0 == before.0 && after.1 <= before.1 + 1, "{before:?} {after:?} by the answer {header:?}");
        }
        drain(&mut arbiter, now_ns, &mut kept, &mut expected);
        for turn in 0.. {
            assert!(turn < 16, "asking does not end");
            match rerequester.poll(arbiter.missing(), now_ns) {
                None => break,
                Some(RerequestStep::Request(ask)) => {
                    assert!((1..u16::MAX).contains(&ask.count));
                    asked = Some((ask.seq, ask.count));
                }
                Some(RerequestStep::GiveUp(gap)) => {
                    assert!(gap.from <= gap.to);
                    arbiter.give_up();
                }
            }
        }
        assert!(rerequester.outstanding_count() <= retry.outstanding);
        drain(&mut arbiter, now_ns, &mut kept, &mut expected);
    }
    arbiter.close();
    drain(&mut arbiter, u64::MAX, &mut kept, &mut expected);
    assert!(kept.is_empty() && arbiter.kept_count() == 0 && arbiter.missing().next().is_none());
}

fn drain(arbiter: &mut Arbiter<Header>, now_ns: u64, kept: &mut Vec<Header>, expected: &mut Expected) {
    // Each poll returns a kept packet, a gap before a packet that waited, or an announcement; also
    // without a handle.
    for _ in 0..2 * kept.len() + 8 + 4 * DOUBTS_MAX {
        match arbiter.poll(now_ns) {
            None => return,
            Some(Output::Deliver { handle, skip }) => {
                give_back(kept, &handle);
                expected.deliver(&handle, skip);
            }
            Some(Output::Discard { handle }) => give_back(kept, &handle),
            Some(Output::Gap(gap)) => expected.gap(Some(gap)),
            Some(Output::LateJoin(gap)) => expected.join(gap),
            Some(Output::Restart) => expected.restart(),
            Some(Output::EndOfSession) => {}
        }
    }
    panic!("poll does not end");
}

fn give_back(kept: &mut Vec<Header>, handle: &Header) {
    let place = kept.iter().position(|header| header == handle).expect("a packet came back that was not kept");
    kept.remove(place);
}

fn check_counts(counts: &SequenceCounts, messages: u64) {
    let SequenceCounts { delivered, duplicates, late, past, doubted, unsequenced, .. } = *counts;
    let sum = delivered + duplicates + late + past + doubted + unsequenced;
    assert_eq!(sum, messages, "every message is one of the six: {counts:?}");
}

fn policy(input: &mut Input<'_>) -> Policy {
    Policy {
        first: input.pick(&[StartSequence::FromOne, StartSequence::Anywhere]),
        restart_distance: input.pick(&[10, 100_000]),
    }
}

/// The packets sent so far, so that new packets can be near them.
struct SeenPackets {
    seq: u64,
    sent_ns: u64,
    messages: u64,
}

impl SeenPackets {
    fn new() -> Self {
        Self { seq: 1, sent_ns: 0, messages: 0 }
    }
}

/// A packet near the last one, or anywhere.
fn header(input: &mut Input<'_>, seen: &mut SeenPackets) -> Header {
    let seq = match input.below(16) {
        0 => 1,
        1 => seen.seq.saturating_sub(input.u8().into()),
        2 => seen.seq + u64::from(input.u8()),
        3 => input.u64() >> input.below(64),
        4..8 => seen.seq.saturating_sub(input.below(4).into()),
        8..10 => seen.seq + u64::from(input.below(4)),
        _ => seen.seq,
    };
    let kinds = [PacketKind::Data, PacketKind::Data, PacketKind::Heartbeat, PacketKind::EndOfSession];
    let mut kind = input.pick(&kinds);
    if input.below(32) == 31 {
        kind = PacketKind::Unsequenced;
    }
    let count = match kind {
        PacketKind::Data | PacketKind::SequenceReset | PacketKind::Unsequenced => 1 + u32::from(input.below(4)),
        PacketKind::Heartbeat | PacketKind::EndOfSession => 0,
    };
    let sent_ns = match input.below(8) {
        0 => 0,
        1 => seen.sent_ns + 2 * HALF_A_SECOND_NS,
        2 => seen.sent_ns.saturating_sub(HALF_A_SECOND_NS),
        _ => seen.sent_ns + 1_000,
    };
    // Sessions as a framing makes them, most of them the first one.
    let session = MoldHeader::new([input.u8().saturating_sub(250); 10], 0);
    let header = Header { seq, count, kind, sent_ns, ..MoldUdp64::header(&session) };
    (seen.seq, seen.sent_ns) = (header.end().min(1 << 62), sent_ns.min(1 << 62));
    seen.messages += u64::from(count);
    header
}

/// The next number that may be delivered: everything before it was, or is in a gap, since the last
/// restart.
struct Expected {
    next: Option<u64>,
    gaps: u64,
    missing: u64,
    restarts: u64,
}

impl Expected {
    fn new(policy: Policy) -> Self {
        let next = (policy.first == StartSequence::FromOne).then_some(1);
        Self { next, gaps: 0, missing: 0, restarts: 0 }
    }

    /// The numbers begin at 1, or anywhere, or after two packets that lied where they stood before.
    fn restart(&mut self) {
        self.next = None;
        self.restarts += 1;
    }

    fn join(&mut self, gap: Gap) {
        assert_eq!((gap.from, self.next), (1, None), "a late join is the first of all");
        self.next = Some(gap.to + 1);
    }

    fn gap(&mut self, gap: Option<Gap>) {
        let Some(gap) = gap else { return };
        assert!(gap.from <= gap.to);
        // A late joiner learns the first number from the first packet, which may be a heartbeat.
        assert_eq!(gap.from, self.next.unwrap_or(gap.from), "a gap begins where the numbers stopped");
        self.next = Some(gap.to + 1);
        self.gaps += 1;
        self.missing = self.missing.saturating_add(gap.len());
    }

    fn deliver(&mut self, header: &Header, skip: u32) {
        assert!(skip < header.count, "a delivery without a new message");
        assert_eq!(header.kind, PacketKind::Data, "only messages with numbers are delivered");
        let from = header.seq + u64::from(skip);
        let next = self.next.unwrap_or(from);
        // At the end of the numbers, where no exchange ever comes, they stand still.
        assert!(from == next || header.end() == u64::MAX, "{header:?} is delivered from {from}, expected is {next}");
        self.next = Some(header.end());
    }
}
