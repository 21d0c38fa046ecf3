use super::MirrorOptions;
use crate::roce::Status;
use crate::testing::Mirrored;

const SMALL: MirrorOptions = MirrorOptions { window: 8, staging: 512, signal_every: 4 };

/// Bytes of which none is zero.
fn log(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 + 1).collect()
}

/// How much of the log the copy has; behind it there must be nothing.
fn copied(mirrored: &Mirrored, log: &[u8]) -> usize {
    let copy = mirrored.bytes();
    let len = copy.iter().zip(log).take_while(|(copy, log)| copy == log).count();
    assert!(copy[len..].iter().all(|byte| *byte == 0), "bytes behind the end of the copy");
    len
}

#[test]
fn copy_equals_the_log_and_the_last_bytes_are_acknowledged_without_a_completion_of_their_own() {
    let mut mirrored = Mirrored::new(&SMALL, 4096);
    let log = log(4096);
    for end in (80..=4096).step_by(80) {
        mirrored.post(&log[..end]);
        mirrored.carry(|_| true);
        // The second time for the answer to what `poll` asks.
        mirrored.carry(|_| true);
        assert_eq!((mirrored.mirror.posted(), mirrored.mirror.acknowledged()), (end, end));
        assert_eq!(copied(&mirrored, &log), end);
    }
}

#[test]
fn full_window_makes_bytes_wait_and_nothing_is_lost() {
    let mut mirrored = Mirrored::new(&SMALL, 4096);
    let log = log(4096);
    for end in (8..=2048).step_by(8) {
        mirrored.post(&log[..end]);
    }
    assert!(mirrored.mirror.posted() <= SMALL.staging as usize, "more is under way than staging memory holds");
    assert!(mirrored.mirror.counters().waits > 0);
    while mirrored.mirror.acknowledged() < 4096 {
        mirrored.post(&log);
        mirrored.carry(|_| true);
    }
    assert_eq!(copied(&mirrored, &log), 4096);
}

#[test]
fn device_says_that_writes_wait_for_acknowledgments_and_that_they_must_be_sent_again() {
    const LIMIT: u32 = 4;
    let mut mirrored = Mirrored::with_unacknowledged_packets(&SMALL, 512, LIMIT);
    let (log, qp) = (log(512), mirrored.mirror.qp());
    let has_unsent = |mirrored: &Mirrored| mirrored.devices[0].has_unsent_requests(qp);
    assert!(!has_unsent(&mirrored));
    for packets in 1..=LIMIT as usize + 1 {
        mirrored.post(&log[..8 * packets]);
        assert!(has_unsent(&mirrored), "posted, and with nobody who carries it");
        mirrored.carry(|_| false);
        assert_eq!(has_unsent(&mirrored), packets > LIMIT as usize, "{packets} packets");
    }
    // No acknowledgment has come: all go again.
    assert!(mirrored.tick());
    assert!(has_unsent(&mirrored));
    while mirrored.mirror.acknowledged() < 8 * (LIMIT as usize + 1) {
        mirrored.carry(|_| true);
    }
    assert!(!has_unsent(&mirrored));
}

#[test]
fn copy_is_a_beginning_with_all_that_was_acknowledged_wherever_the_wire_is_cut() {
    let log = log(2048);
    let mut ends = std::collections::BTreeSet::new();
    for cut in 0..80 {
        let (mut mirrored, mut carried) = (Mirrored::new(&SMALL, 4096), 0);
        for end in (64..=2048).step_by(64) {
            mirrored.post(&log[..end]);
            mirrored.carry(|_| {
                carried += 1;
                carried <= cut
            });
        }
        let acknowledged = mirrored.mirror.acknowledged();
        let len = copied(&mirrored, &log);
        assert!(len >= acknowledged, "cut behind {cut} frames: {len} bytes copied, {acknowledged} acknowledged");
        ends.insert(len);
    }
    assert!(ends.len() > 20, "the cuts were at few places: {ends:?}");
}

#[test]
fn lossy_wire_changes_nothing_of_the_copy() {
    let log = log(4096);
    for seed in 0..50_u64 {
        let (mut mirrored, mut random) = (Mirrored::new(&SMALL, 4096), seed * 2 + 1);
        let mut keep = move |_| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            !random.is_multiple_of(7)
        };
        for turn in 1..10_000 {
            mirrored.post(&log[..(turn * 40).min(4096)]);
            mirrored.carry(&mut keep);
            assert!(copied(&mirrored, &log) >= mirrored.mirror.acknowledged());
            if mirrored.mirror.acknowledged() == 4096 {
                break;
            }
            mirrored.tick();
        }
        assert_eq!(mirrored.mirror.acknowledged(), 4096, "seed {seed}: {:?}", mirrored.mirror.failure());
        assert_eq!(copied(&mirrored, &log), 4096);
    }
}

#[test]
fn peer_that_is_gone_is_a_failure_behind_which_nothing_is_posted() {
    let (mut mirrored, log) = (Mirrored::new(&SMALL, 4096), log(4096));
    mirrored.post(&log[..80]);
    mirrored.carry(|_| false);
    while mirrored.tick() {
        mirrored.carry(|_| false);
    }
    assert_eq!(mirrored.mirror.failure(), Some(Status::RetryExceeded));
    let writes = mirrored.mirror.counters().writes;
    mirrored.post(&log);
    assert_eq!(mirrored.mirror.counters().writes, writes);
}

#[test]
fn memory_that_its_holder_has_revoked_is_not_written_and_fails_the_mirror() {
    let (mut mirrored, log) = (Mirrored::new(&SMALL, 4096), log(4096));
    mirrored.post(&log[..80]);
    mirrored.carry(|_| true);
    mirrored.revoke();
    mirrored.post(&log[..160]);
    mirrored.carry(|_| true);
    assert_eq!(copied(&mirrored, &log), 80);
    assert_eq!(mirrored.mirror.failure(), Some(Status::RemoteAccess));
}

#[test]
fn log_beyond_the_memory_of_the_peer_fails_the_mirror_and_writes_nothing_there() {
    let (mut mirrored, log) = (Mirrored::new(&SMALL, 128), log(256));
    mirrored.post(&log[..80]);
    mirrored.carry(|_| true);
    mirrored.post(&log[..160]);
    mirrored.carry(|_| true);
    assert_eq!(copied(&mirrored, &log), 80);
    assert_eq!(mirrored.mirror.failure(), Some(Status::RemoteAccess));
}
