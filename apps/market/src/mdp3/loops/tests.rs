use super::super::emit;
use super::super::layout::{AdminHeartbeat, FutureDefinitionRoot, emit_head};
use super::*;
use crate::sbe::Block;

/// Brings packets, each of a line with a number of loop 1, 2 …, and returns which were new.
fn bring(lines: &mut LoopLines, packets: &[(Line, u64, u32)]) -> Vec<bool> {
    let header = |round: u64, seq: u32| Mdp3Header { seq, sent_ns: round * 1_000 + u64::from(seq) };
    packets.iter().map(|&(line, round, seq)| lines.is_new(line, &header(round, seq))).collect()
}

#[test]
fn packets_of_the_next_loop_are_new_although_their_numbers_came_before() {
    let mut lines = LoopLines::new();
    let packets =
        [(Line::A, 1, 1), (Line::A, 1, 2), (Line::B, 1, 1), (Line::A, 2, 1), (Line::B, 1, 2), (Line::B, 2, 1)];
    assert_eq!(bring(&mut lines, &packets), [true, true, false, true, false, false]);
    assert_eq!(*lines.counts(), LoopCounts { first: [3, 0, 0], duplicates: 3, begun: 2, skipped: 0 });
}

#[test]
fn packet_that_one_line_lost_passes_from_the_other_even_when_it_is_late() {
    let mut lines = LoopLines::new();
    let packets =
        [(Line::A, 1, 4), (Line::A, 1, 7), (Line::B, 1, 4), (Line::B, 1, 5), (Line::B, 1, 6), (Line::B, 1, 7)];
    assert_eq!(bring(&mut lines, &packets), [true, true, false, true, true, false]);
    assert_eq!((lines.counts().first, lines.counts().skipped), ([2, 2, 0], 2));
}

#[test]
fn forged_packet_displaces_none() {
    let mut lines = LoopLines::new();
    let forged = Mdp3Header { seq: 1, sent_ns: u64::MAX };
    assert!(lines.is_new(Line::A, &forged) && !lines.is_new(Line::A, &forged));
    assert_eq!(bring(&mut lines, &[(Line::A, 1, 1), (Line::B, 1, 2), (Line::A, 1, 3)]), [true; 3]);
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

#[test]
fn definitions_are_whole_when_each_instrument_came_in_one_loop_or_in_several() {
    let mut definitions = DefinitionLoop::default();
    // Instrument 2 is lost in the first loop.
    for id in [3, 1, 3, 1] {
        assert!(definitions.take(&definition(id, 3)) && !definitions.is_whole());
    }
    definitions.take(&definition(2, 3));
    assert!(definitions.is_whole());
    definitions.restart();
    assert!(!definitions.is_whole());
}

#[test]
fn definition_that_claims_to_be_the_only_one_ends_no_loop() {
    let mut definitions = DefinitionLoop::default();
    definitions.take(&definition(1, 3));
    definitions.take(&definition(2, 1));
    assert!(!definitions.is_whole());
    assert!(!definitions.take(&emit_head(AdminHeartbeat::ID, 0)), "a heartbeat defines nothing");
}
