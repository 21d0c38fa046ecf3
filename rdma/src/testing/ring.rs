//! A peer at the other end of a cable of shared memory, which writes what it likes: frames of any
//! bytes, lengths that they have not, and numbers of frames that nobody has written or read.

use super::hostile::{HostileTarget, Input};
use crate::cable::{CabledDevice, HostileEnd};

/// Frames of one turn, each way.
const FRAMES_PER_TURN: usize = 64;

/// Plays an input.
///
/// # Panics
/// If memory that the peer may not reach is written, or a turn takes more frames than it may.
pub fn run_ring_hostile(bytes: &[u8]) {
    let (mut target, mut input) = (HostileTarget::new(), Input(bytes));
    // Where there are no more descriptors, nothing is tested.
    let Ok((mut peer, cable)) = HostileEnd::new() else { return };
    let mut end = CabledDevice::new(target.take_device(), cable);
    let mut now = 0;
    while !input.0.is_empty() {
        match input.byte() {
            0..100 => {
                let frame = target.frame(&mut input);
                peer.put(&frame, frame.len() as u64);
            }
            100..120 => {
                let len = usize::from(input.byte());
                let frame: Vec<u8> = (0..len).map(|_| input.byte()).collect();
                let claimed = if input.byte() < 200 { frame.len() as u64 } else { input.long() };
                peer.put(&frame, claimed);
            }
            120..130 => peer.claim_written(input.long()),
            130..140 => peer.claim_read(input.long()),
            140..180 => peer.read_all(),
            _ => {
                now += u64::from(input.byte()) << 16;
                // A cable that the peer has broken is turned all the same, as programs do.
                let moved = end.turn(now).unwrap_or(0);
                assert!(moved <= 2 * FRAMES_PER_TURN, "{moved} frames in one turn");
            }
        }
    }
    target.check();
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn frames_of_the_peer_reach_the_device_through_the_ring() {
        let mut target = HostileTarget::new();
        let (mut peer, cable) = HostileEnd::new().unwrap();
        let mut end = CabledDevice::new(target.take_device(), cable);
        // SEND Only of 64 bytes, which wants an acknowledgment.
        let frame = target.frame(&mut Input(&[4, 0, 0x40, 2]));
        peer.put(&frame, frame.len() as u64);
        assert_eq!(end.turn(0).unwrap(), 2, "the SEND, and its acknowledgment");
        assert_eq!((end.foreign(), end.device().counters().icrc_errors), (0, 0));
    }

    proptest! {
        #[test]
        fn peer_breaks_nothing_but_its_cable_whatever_it_writes_into_the_ring(bytes in vec(any::<u8>(), 0..500)) {
            run_ring_hostile(&bytes);
        }
    }
}
