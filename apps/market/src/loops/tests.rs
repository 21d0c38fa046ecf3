use super::lines::SILENT_NS;
use super::*;
use crate::arbitration::Line;
use crate::framing::{Header, PacketKind, Session};
use crate::mdp3::layout::{AdminHeartbeat, FutureDefinitionRoot, emit_head};
use crate::mdp3::{Mdp3, emit};
use crate::sbe::Block;

const LATER_NS: u64 = 2 * SILENT_NS;

fn header(seq: u64, sent_ns: u64) -> Header {
    Header { channel: 0, session: Session::default(), seq, count: 1, kind: PacketKind::Data, sent_ns }
}

/// Two lines that are joined.
fn lines() -> LoopLines {
    let mut lines = LoopLines::new(2);
    lines.join(LATER_NS);
    lines
}

/// Brings packets, each of a line with a number of loop 1, 2 …, and returns which passed.
fn bring(lines: &mut LoopLines, packets: &[(Line, u64, u64)]) -> Vec<bool> {
    let header = |round: u64, seq: u64| header(seq, round * 1_000 + seq);
    packets.iter().map(|&(line, round, seq)| lines.offer(line, &header(round, seq), b"true", LATER_NS)).collect()
}

#[test]
fn packet_passes_with_its_second_line_in_each_loop() {
    let mut lines = lines();
    let packets =
        [(Line::A, 1, 1), (Line::A, 1, 2), (Line::B, 1, 1), (Line::A, 2, 1), (Line::B, 1, 2), (Line::B, 2, 1)];
    assert_eq!(bring(&mut lines, &packets), [false, false, true, false, true, true]);
    assert_eq!(lines.counts().passed, [0, 3, 0]);
    assert_eq!((lines.counts().begun, lines.counts().skipped, lines.counts().duplicates), (2, 0, 0));
    assert_eq!(bring(&mut lines, &packets), [false; 6]);
    assert_eq!(lines.counts().duplicates, 6);
}

#[test]
fn packet_that_one_line_lost_comes_with_the_next_loop() {
    let mut lines = lines();
    let packets = [(Line::A, 1, 4), (Line::B, 1, 4), (Line::B, 1, 5), (Line::B, 2, 5), (Line::A, 2, 5)];
    assert_eq!(bring(&mut lines, &packets), [false, true, false, false, true]);
}

#[test]
fn forged_packet_passes_nothing_and_displaces_none() {
    let mut lines = lines();
    let true_header = header(1, 1_001);
    assert_eq!(bring(&mut lines, &[(Line::A, 1, 1)]), [false]);
    // With the true number and time too, on either line, and again and again.
    for line in [Line::A, Line::B, Line::A] {
        assert!(!lines.offer(line, &true_header, if line == Line::A { b"forged" } else { b"other" }, LATER_NS));
    }
    assert!(!lines.offer(Line::B, &header(1, u64::MAX), b"forged", LATER_NS));
    assert_eq!(bring(&mut lines, &[(Line::B, 1, 1)]), [true]);
}

#[test]
fn line_is_believed_alone_when_the_others_are_silent_and_no_sooner() {
    let header = header(1, 1);
    let mut lines = lines();
    assert!(!lines.offer(Line::A, &header, b"true", LATER_NS + SILENT_NS - 1));
    assert!(lines.offer(Line::A, &header, b"true", LATER_NS + SILENT_NS));
    let mut one = LoopLines::new(1);
    one.join(0);
    assert!(one.offer(Line::A, &header, b"true", 0) && !one.offer(Line::A, &header, b"true", 0));
}

fn definition(security_id: i32, total: u32) -> Vec<u8> {
    let root = FutureDefinitionRoot {
        security_id: security_id.into(),
        reports_total: total.into(),
        ..FutureDefinitionRoot::NULL
    };
    let mut message = Vec::new();
    emit::future_definition(&root, &[], &mut message);
    message
}

/// Whether a message defines an instrument.
fn take(definitions: &mut DefinitionLoop, message: &[u8]) -> bool {
    let definition = Mdp3::definition(message);
    definition.into_iter().for_each(|definition| definitions.take(definition));
    definition.is_some()
}

#[test]
fn definitions_are_whole_when_each_instrument_came_in_one_loop_or_in_several() {
    let mut definitions = DefinitionLoop::default();
    // Instrument 2 is lost in the first loop.
    for id in [3, 1, 3, 1] {
        assert!(take(&mut definitions, &definition(id, 3)) && !definitions.is_whole());
    }
    take(&mut definitions, &definition(2, 3));
    assert!(definitions.is_whole());
    definitions.restart();
    assert!(!definitions.is_whole());
}

#[test]
fn definition_that_claims_to_be_the_only_one_ends_no_loop() {
    let mut definitions = DefinitionLoop::default();
    take(&mut definitions, &definition(1, 3));
    take(&mut definitions, &definition(2, 1));
    assert!(!definitions.is_whole());
    assert!(!take(&mut definitions, &emit_head(AdminHeartbeat::ID, 0)), "a heartbeat defines nothing");
}
