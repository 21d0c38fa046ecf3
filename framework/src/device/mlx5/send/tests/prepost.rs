//! Preposted frames.

use super::*;
use crate::device::Preposted;

/// Preposts a frame of `len` bytes.
fn stand(rig: &mut Rig, len: usize, seed: usize) -> Preposted {
    rig.tx().prepost(&frame(len, seed)).expect("it stands")
}

/// Overwrites some of its bytes, and fires it; returns the frame as it left.
fn fire(rig: &mut Rig, which: Preposted) -> Vec<u8> {
    let bytes = rig.tx().preposted(which).expect("it stands");
    let at = bytes.len() / 2;
    bytes[at..at + 4].copy_from_slice(b"FIRE");
    let whole = bytes.to_vec();
    assert!(rig.tx().fire_preposted(which));
    whole
}

/// Whether it is valid: by `preposted`, and by `fire_preposted`.
fn stands(rig: &mut Rig, which: Preposted) -> (bool, bool) {
    let is_seen = rig.tx().preposted(which).is_some();
    (is_seen, rig.tx().fire_preposted(which))
}

#[test]
fn frame_that_stands_leaves_as_it_was_overwritten_without_a_doorbell_of_the_turn() {
    for len in [14, 18, 34, 60, 130, 226, 227, 500, 930] {
        let mut rig = rig(ring_of(128));
        let which = stand(&mut rig, len, 1);
        rig.ring();
        assert_eq!(rig.fetch(), [], "it was not told of");
        let bytes = fire(&mut rig, which);
        let wqes = rig.fetch();
        assert_eq!((wqes.len(), bytes_of(&wqes[0].sends)), (1, vec![bytes]), "{len} bytes");
        assert!(!wqes[0].sends[0].is_fetched, "all bytes are in the WQE");
        assert_eq!(stands(&mut rig, which), (false, false), "it leaves once");
        assert_eq!((rig.count("preposts"), rig.count("preposts_fired"), rig.count("frames")), (1, 1, 1));
        assert_eq!((rig.count("bytes"), rig.count("doorbells")), (len as u64, 1));
        rig.close();
    }
}

#[test]
fn short_one_leaves_by_blueflame_and_a_long_one_by_the_plain_doorbell() {
    for (len, is_carried) in [(130, true), (226, true), (227, false)] {
        let mut rig = rig(ring_of(128));
        rig.nic.sq.clear_register();
        let which = stand(&mut rig, len, 1);
        let bytes = fire(&mut rig, which);
        let register = rig.nic.sq.register();
        assert_eq!(register[7], (1 + 1 + (len - 2).div_ceil(16)) as u8, "the control segment's units");
        assert_eq!(register[30..46] == bytes[..16], is_carried, "{len} bytes");
        rig.fetch();
        rig.close();
    }
}

#[test]
fn what_no_ring_holds_does_not_stand() {
    let mut rig = rig(ring_of(128));
    for len in [0, 13, 931, 1500] {
        assert_eq!(rig.tx().prepost(&frame(len, 1)), None, "{len} bytes");
    }
    rig.close();
    // The preposted frame takes an eighth of the ring, or as much as the device takes.
    for (config, len) in [(ring_of(8), 34), (PlainTxConfig { wqe_units_max: 8, ..ring_of(128) }, 98)] {
        let mut rig = super::rig(config);
        assert_eq!(rig.tx().prepost(&frame(len + 1, 1)), None);
        let which = stand(&mut rig, len, 1);
        let bytes = fire(&mut rig, which);
        assert_eq!(bytes_of(&rig.flush()), [bytes]);
        rig.close();
    }
}

#[test]
fn any_frame_that_is_posted_takes_its_place() {
    type Other = fn(&mut Rig);
    let others: [Other; 7] = [
        |rig| assert!(rig.post(&frame(64, 9), Offload::NONE)),
        |rig| assert!(rig.post(&frame(64, 9), Offload::URGENT)),
        |rig| assert!(rig.post(&frame(1000, 9), Offload::NONE)),
        |rig| {
            // Into a multi-packet WQE.
            rig.post_plain(2);
        },
        |rig| {
            let mut burst: Burst = (0..3).map(|seed| rig.mbuf(&frame(64, seed))).collect();
            burst.iter().for_each(|mbuf| {
                rig.registered.push_back((mbuf.bytes().as_ptr().addr() as u64, mbuf.bytes().to_vec()))
            });
            assert_eq!(rig.tx().post_burst(&mut burst, Offload::NONE), 3);
        },
        |rig| {
            let mbuf = rig.mbuf(&frame(64, 9));
            rig.tx().dry_run(mbuf, Offload::NONE);
        },
        |rig| _ = stand(rig, 100, 9),
    ];
    for (idx, other) in others.into_iter().enumerate() {
        for multi_packet in [false, true] {
            let mut rig = rig(PlainTxConfig { multi_packet, ..ring_of(64) });
            let which = stand(&mut rig, 130, 1);
            other(&mut rig);
            assert_eq!(stands(&mut rig, which), (false, false), "other {idx}");
            let sent = bytes_of(&rig.flush());
            assert!(!sent.contains(&frame(130, 1)), "other {idx}");
            // Another preposted frame follows.
            let which = stand(&mut rig, 130, 2);
            let bytes = fire(&mut rig, which);
            assert_eq!(bytes_of(&rig.flush()), [bytes]);
            rig.close();
        }
    }
}

/// A discarded multi-packet WQE overwrites the preposted frame, and the ring does not advance.
#[test]
fn wqe_of_many_that_was_begun_and_given_up_takes_its_place() {
    let mut rig = rig(ring_of(16));
    for seed in 0..15 {
        assert!(rig.post(&frame(1000, seed), Offload::TIMESTAMP), "a WQE of its own");
    }
    let which = stand(&mut rig, 30, 1);
    let parts: Vec<_> = (0..8).map(|seed| frame(100, seed)).collect();
    let chain = rig.chain(&parts.iter().map(Vec::as_slice).collect::<Vec<_>>());
    rig.post_mbuf(chain, Offload::NONE).expect_err("there is no room for so many pointers").free();
    assert_eq!(stands(&mut rig, which), (false, false));
    assert_eq!(rig.flush().len(), 15);
    rig.close();
}

#[test]
fn frames_that_wait_for_the_doorbell_leave_before_it_and_come_home() {
    for multi_packet in [false, true] {
        let mut rig = rig(PlainTxConfig { multi_packet, ..ring_of(64) });
        rig.post_plain(5);
        assert!(rig.post(&frame(1000, 7), Offload::NONE));
        let which = stand(&mut rig, 130, 1);
        let bytes = fire(&mut rig, which);
        let sent = bytes_of(&rig.flush());
        let mut expected: Vec<_> = (0..5).map(|seed| frame(64, seed)).collect();
        expected.extend([frame(1000, 7), bytes]);
        assert_eq!(sent, expected);
        rig.check_home();
        rig.close();
    }
}

#[test]
fn it_never_goes_over_the_end_of_the_ring_and_what_is_left_there_does_nothing() {
    let mut rig = rig(ring_of(64));
    let mut fillers = 0;
    for round in 0..200 {
        let which = stand(&mut rig, [130, 226, 60][round % 3], round);
        let bytes = fire(&mut rig, which);
        rig.ring();
        let wqes = rig.fetch();
        fillers += wqes.iter().filter(|wqe| wqe.sends.is_empty()).count();
        rig.complete(usize::MAX);
        while rig.tx().reap() > 0 {}
        let sent: Vec<_> = wqes.into_iter().flat_map(|wqe| wqe.sends).collect();
        assert_eq!(bytes_of(&sent), [bytes], "round {round}");
    }
    assert!(fillers > 0 && !rig.seen.contains(&Form::OverTheEndOfTheRing));
    assert_eq!(rig.count("completions_invalid") + rig.count("completions_missed"), 0);
    rig.close();
}

#[test]
fn full_ring_has_no_place_for_it_until_the_nic_has_done_something() {
    let mut rig = rig(PlainTxConfig { multi_packet: false, ..ring_of(16) });
    let mut posted = 0;
    while rig.post(&frame(1000, posted), Offload::NONE) {
        posted += 1;
    }
    assert_eq!(rig.tx().prepost(&frame(60, 1)), None);
    assert_eq!(rig.flush().len(), posted);
    let which = stand(&mut rig, 60, 1);
    // A preposted frame takes no room in the ring, except a filler.
    assert!(rig.tx().room() >= 15, "{}", rig.tx().room());
    let bytes = fire(&mut rig, which);
    assert_eq!(bytes_of(&rig.flush()), [bytes]);
    rig.close();
}

#[test]
fn completion_is_asked_for_among_frames_that_stood_too() {
    let mut rig = rig(ring_of(64));
    for round in 0..500 {
        let which = stand(&mut rig, 130, round);
        fire(&mut rig, which);
        // Only signaled WQEs make room.
        rig.fetch();
        rig.complete(usize::MAX);
        rig.tx().reap();
    }
    assert_eq!(rig.count("completions_invalid") + rig.count("completions_missed"), 0);
    rig.close();
}

#[test]
fn nothing_stands_while_the_queue_is_in_error_nor_behind_its_reset() {
    let mut rig = rig(ring_of(64));
    rig.post_plain(1);
    rig.ring();
    let idx = rig.nic.sq.done();
    let which = stand(&mut rig, 130, 1);
    rig.fail(idx, 0x04);
    rig.tx().reap();
    assert!(rig.tx().is_failed());
    assert_eq!(stands(&mut rig, which), (false, false));
    assert_eq!(rig.tx().prepost(&frame(130, 1)), None);
    rig.now += Duration::from_secs(1);
    rig.ring();
    rig.nic.sq.set_done(0);
    assert!(!rig.tx().is_failed());
    assert_eq!(stands(&mut rig, which), (false, false), "from before the reset");
    // The ring is again at the index that it had for that prepost.
    rig.post_plain(1);
    assert_eq!(stands(&mut rig, which), (false, false), "from before the reset, at the same index");
    assert_eq!(bytes_of(&rig.flush()), [frame(64, 0)]);
    let which = stand(&mut rig, 130, 2);
    let bytes = fire(&mut rig, which);
    assert_eq!(bytes_of(&rig.flush()), [bytes]);
    rig.close();
}

#[test]
fn nothing_stands_before_its_answers_would_be_ours() {
    let mut rig = rig(PlainTxConfig { shares_rules: true, ..ring_of(64) });
    assert_eq!(rig.tx().prepost(&frame(130, 1)), None);
    rig.nic.objects.may_send.store(true, std::sync::atomic::Ordering::Release);
    let which = stand(&mut rig, 130, 1);
    let bytes = fire(&mut rig, which);
    assert_eq!(bytes_of(&rig.flush()), [bytes]);
    rig.close();
}

#[test]
fn frame_that_stands_never_leaves_with_the_end_of_its_queue() {
    let mut rig = rig(ring_of(64));
    let _stays = stand(&mut rig, 130, 1);
    let mut rig = rig.close();
    assert_eq!(rig.fetch(), []);
}
