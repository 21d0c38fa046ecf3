use std::cell::Cell;
use std::rc::Rc;

use super::*;

/// Measurements whose clock is the test's.
fn latency() -> (Latency, Rc<Cell<u64>>) {
    let now_ns = Rc::new(Cell::new(1_000_000));
    (Latency { clock: StampClock::Manual(now_ns.clone()), ..Latency::start(1_000) }, now_ns)
}

/// The values of a stage by arrival: how many, and the greatest.
fn values(latency: &Latency, stage: Stage) -> [(u64, u64); 3] {
    Arrival::ALL.map(|arrival| {
        let values = latency.histogram(stage, arrival);
        (values.len(), values.max())
    })
}

/// A request, wanted `wanted` behind the packet's books.
fn request(latency: &mut Latency, now_ns: &Cell<u64>, wanted: u64) {
    latency.decoded();
    now_ns.set(now_ns.get() + wanted);
    let decided_ns = latency.decide();
    latency.written(decided_ns);
}

#[test]
fn each_stage_has_its_part_of_the_way() {
    let (mut latency, now_ns) = latency();
    latency.begin_poll();
    latency.packet_read(None);
    now_ns.set(now_ns.get() + 10);
    request(&mut latency, &now_ns, 20);
    latency.packet_over();
    now_ns.set(now_ns.get() + 40);
    latency.line_took(50, false);
    let of_first = |stage| values(&latency, stage)[Arrival::AfterIdle as usize];
    let stages = [Stage::PollToDecoded, Stage::DecodedToDecided, Stage::DecidedToPosted, Stage::PollToPosted];
    assert_eq!(stages.map(of_first), [(1, 10), (1, 20), (1, 40), (1, 70)]);
    assert_eq!((of_first(Stage::WireToPoll).0, latency.measured()), (0, 1));
}

#[test]
fn first_of_a_poll_those_behind_it_and_one_after_idle_are_apart() {
    let (mut latency, now_ns) = latency();
    for silence in [5_000, 10, 1_000] {
        now_ns.set(now_ns.get() + silence);
        latency.begin_poll();
        for _ in 0..3 {
            latency.packet_of_burst();
            request(&mut latency, &now_ns, 1);
            latency.packet_over();
            latency.line_took(50, false);
        }
    }
    // The second poll is 10 ns behind the first one, and the third 1,000 behind its last packet.
    assert_eq!(values(&latency, Stage::PollToPosted), [(2, 1), (1, 1), (6, 3)]);
}

#[test]
fn packet_of_a_burst_waits_from_the_poll_on_and_one_of_a_socket_from_its_read() {
    let (mut latency, now_ns) = latency();
    for is_burst in [true, false] {
        latency.begin_poll();
        for _ in 0..2 {
            if is_burst {
                latency.packet_of_burst()
            } else {
                latency.packet_read(None)
            }
            now_ns.set(now_ns.get() + 50);
            request(&mut latency, &now_ns, 0);
            latency.packet_over();
        }
        latency.line_took(50, false);
        let later = latency.histogram(Stage::PollToDecoded, Arrival::Later);
        assert_eq!(later.max(), 100);
        assert_eq!(later.min(), if is_burst { 100 } else { 50 });
    }
}

#[test]
fn request_without_a_packet_is_not_measured() {
    let (mut latency, _) = latency();
    let decided_ns = latency.decide();
    latency.written(decided_ns);
    latency.line_took(50, false);
    assert_eq!(latency.measured(), 0);
}

#[test]
fn request_that_its_line_never_took_is_forgotten_with_the_line() {
    let (mut latency, now_ns) = latency();
    latency.packet_read(None);
    request(&mut latency, &now_ns, 1);
    latency.line_opened(false);
    latency.line_took(50, false);
    assert_eq!(latency.measured(), 0);
}

#[test]
fn request_is_posted_with_the_last_of_its_bytes() {
    let (mut latency, now_ns) = latency();
    latency.packet_read(None);
    request(&mut latency, &now_ns, 0);
    latency.line_took(20, true);
    assert_eq!(latency.measured(), 0);
    now_ns.set(now_ns.get() + 7);
    latency.line_took(30, false);
    assert_eq!(values(&latency, Stage::DecidedToPosted)[0], (1, 7));
}

#[test]
fn request_leaves_with_the_stamp_of_its_last_byte_and_not_with_that_of_others() {
    let (mut latency, now_ns) = latency();
    latency.line_opened(true);
    latency.line_took(100, false);
    for _ in 0..3 {
        latency.begin_poll();
        latency.packet_read(None);
        request(&mut latency, &now_ns, 0);
        latency.line_is_given();
        now_ns.set(now_ns.get() + 30);
        latency.line_took(50, false);
    }
    assert_eq!(values(&latency, Stage::DecidedToPosted).map(|(_, max)| max), [0; 3], "the write is the line's");
    let stamped = |latency: &Latency| values(latency, Stage::PostedToWire).iter().map(|(count, _)| count).sum::<u64>();
    // That of the login, then that of the first request; the second one's was lost.
    for (last_byte, count) in [(99, 0), (149, 1), (249, 2)] {
        latency.left(last_byte, u64::MAX);
        assert_eq!(stamped(&latency), count, "{last_byte}");
    }
    assert!(!latency.awaits_stamp());
}

#[test]
fn table_has_a_line_for_each_stage_with_values_and_says_why_one_has_none() {
    let (mut latency, now_ns) = latency();
    latency.set_missing(Stage::PostedToWire, "the device stamps nothing");
    latency.packet_read(None);
    request(&mut latency, &now_ns, 2_500);
    latency.line_took(50, false);
    let table = latency.to_string();
    let rows: Vec<_> = table.lines().filter(|line| line.contains("after idle ")).collect();
    assert_eq!(rows.len(), 4, "{table}");
    assert!(rows[1].starts_with("  decoded → decided  after idle             1   2.51 µs"), "{}", rows[1]);
    assert!(table.contains("posted → wire      not available: the device stamps nothing"), "{table}");
}

#[test]
fn picture_is_sound_with_values_and_without() {
    let (mut latency, now_ns) = latency();
    latency.set_missing(Stage::PostedToWire, "<none> & nothing");
    for wanted in [0, 1, 900, 80_000, LATENCY_NS_MAX * 2] {
        let picture = latency.picture();
        assert!(!picture.contains("NaN") && !picture.contains("inf") && !picture.contains("<none>"), "{picture}");
        assert_eq!(picture.matches("<g ").count(), Stage::ALL.len());
        latency.begin_poll();
        latency.packet_read(None);
        request(&mut latency, &now_ns, wanted);
        latency.packet_over();
        latency.line_took(50, false);
    }
    assert!(latency.picture().contains("after idle: 5 requests") || latency.picture().contains("first in burst"));
}
