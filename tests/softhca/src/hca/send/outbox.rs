//! Frames on their way to the wire. Most go at once; while the wire is busy they wait here, in
//! order.

use crate::hca::environment::LinkState;
use crate::hca::work::Work;
use std::collections::VecDeque;

/// Frames that wait, and buffers of frames that went.
#[derive(Default)]
pub(in crate::hca) struct Outbox {
    waiting: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
}

/// Ethernet's shortest frame without its check sequence: NICs fill shorter ones up with zeros.
const FRAME_LEN_MIN: usize = 60;

impl Outbox {
    #[inline]
    pub(in crate::hca) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Sends a frame, or keeps a copy. While the port is down frames are lost, as with hardware.
    #[inline]
    pub(in crate::hca) fn send(&mut self, frame: &mut Vec<u8>, work: &mut Work<'_, '_>) {
        if frame.len() < FRAME_LEN_MIN {
            frame.resize(FRAME_LEN_MIN, 0);
        }
        if work.link == LinkState::Down {
            work.counters.tx_link_down += 1;
        } else if self.waiting.is_empty() && work.environment.wire.send(frame) {
            count(frame, work);
        } else {
            work.counters.tx_wire_busy += 1;
            let mut kept = self.spare.pop().unwrap_or_default();
            kept.clear();
            kept.extend_from_slice(frame);
            self.waiting.push_back(kept);
        }
    }

    /// Offers the waiting frames to the wire. Returns how many left, or were lost because the port
    /// is down.
    pub(in crate::hca) fn resume(&mut self, work: &mut Work<'_, '_>) -> usize {
        let mut moved = 0;
        while let Some(frame) = self.waiting.front() {
            if work.link == LinkState::Down {
                work.counters.tx_link_down += 1;
            } else if work.environment.wire.send(frame) {
                count(frame, work);
            } else {
                break;
            }
            moved += 1;
            self.spare.extend(self.waiting.pop_front());
        }
        moved
    }
}

#[inline]
fn count(frame: &[u8], work: &mut Work<'_, '_>) {
    work.counters.tx_frames += 1;
    work.counters.tx_bytes += frame.len() as u64;
}
