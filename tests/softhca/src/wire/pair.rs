//! Two ports of one process, connected to each other, or one port connected to itself. Frames
//! arrive in the order in which they were sent, and none is lost: a full cable takes no more until
//! the other end has received.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::port::Cable;
use crate::hca::LinkState;

/// Frames under way in one direction. Fewer would make the ends take turns more often; each costs
/// its bytes.
const FRAMES_MAX: usize = 1024;

/// One direction.
#[derive(Debug, Default)]
struct Lane {
    frames: VecDeque<Vec<u8>>,
    /// Buffers of frames that were received, for the next ones.
    spare: Vec<Vec<u8>>,
}

type Shared = Arc<Mutex<Lane>>;

/// One end of a cable within the process.
#[derive(Debug)]
pub struct PairEnd {
    outgoing: Shared,
    incoming: Shared,
}

impl PairEnd {
    /// Both ends of a cable.
    pub fn pair() -> (Self, Self) {
        let (there, back) = (Shared::default(), Shared::default());
        let here = Self { outgoing: Arc::clone(&there), incoming: Arc::clone(&back) };
        (here, Self { outgoing: back, incoming: there })
    }

    /// A cable from a port to itself.
    pub fn looped() -> Self {
        let lane = Shared::default();
        Self { outgoing: Arc::clone(&lane), incoming: lane }
    }
}

impl Cable for PairEnd {
    fn send(&mut self, frame: &[u8]) -> bool {
        let mut lane = lock(&self.outgoing);
        if lane.frames.len() >= FRAMES_MAX {
            return false;
        }
        let mut buffer = lane.spare.pop().unwrap_or_default();
        buffer.extend_from_slice(frame);
        lane.frames.push_back(buffer);
        true
    }

    fn receive(&mut self, frame: &mut Vec<u8>) -> bool {
        frame.clear();
        let mut lane = lock(&self.incoming);
        let Some(mut next) = lane.frames.pop_front() else { return false };
        std::mem::swap(frame, &mut next);
        next.clear();
        lane.spare.push(next);
        true
    }

    fn link(&self) -> LinkState {
        LinkState::Up
    }
}

/// A lane is whole after every statement: a panic elsewhere leaves it usable.
fn lock(lane: &Shared) -> MutexGuard<'_, Lane> {
    lane.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(end: &mut PairEnd) -> Option<Vec<u8>> {
        let mut frame = vec![9; 3];
        end.receive(&mut frame).then_some(frame)
    }

    #[test]
    fn full_cable_takes_no_more_until_the_other_end_receives() {
        let (mut here, mut there) = PairEnd::pair();
        let sent = (0..=FRAMES_MAX).take_while(|number| here.send(&number.to_be_bytes())).count();
        assert_eq!(sent, FRAMES_MAX);
        assert_eq!(take(&mut there), Some(0usize.to_be_bytes().to_vec()));
        assert!(here.send(&[1]));
        assert!(!here.send(&[2]));
    }

    #[test]
    fn what_one_end_sends_the_other_receives_in_order() {
        let (mut here, mut there) = PairEnd::pair();
        assert_eq!(take(&mut there), None);
        for round in 0..3 {
            assert!(here.send(&[round]) && here.send(&[round, round]) && there.send(&[7]));
            assert_eq!(take(&mut there), Some(vec![round]));
            assert_eq!(take(&mut there), Some(vec![round; 2]));
            assert_eq!((take(&mut there), take(&mut here), take(&mut here)), (None, Some(vec![7]), None));
        }
    }

    #[test]
    fn looped_cable_gives_back_what_was_sent() {
        let mut end = PairEnd::looped();
        assert!(end.send(&[1, 2]));
        assert_eq!((take(&mut end), take(&mut end)), (Some(vec![1, 2]), None));
    }
}
