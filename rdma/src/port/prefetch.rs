//! Looks ahead over a burst, for a device with so many queue pairs that no cache holds them: the
//! first header of each packet names its queue pair, whose lines come while the packets before it
//! are processed.
//!
//! Nothing is decided by it: a frame that only looks like RoCE costs a few loads, and the nodes
//! check it as they check every frame.

use wirepath::mem::{BURST_MAX, Mbuf};

use crate::roce::{Device, RoceFrame};

/// The smallest device whose queue pairs are asked for, each of thirteen lines. Over 10,000 of them
/// an exchange in bursts took 13 % less; over 4,096, of which caches hold the most, 10 ns more.
pub(super) const QPS_MIN: u32 = 8192;

/// Packets between the one that is processed and the one whose queue pair is asked for. A core has
/// some twenty lines under way, and a queue pair needs six.
const DISTANCE: usize = 2;

/// Bytes of a BTH, which is all that a prefetch reads.
const BTH_LEN: usize = 12;

/// The packets of a burst that are still to be asked for.
pub(super) struct Lookahead {
    headers: [[u8; BTH_LEN]; BURST_MAX],
    count: usize,
    /// Where an earlier node drops a packet the index stays behind, and the rest of the burst is
    /// asked for later than it could be.
    next: usize,
}

impl Lookahead {
    pub(super) const NONE: Self = Self { headers: [[0; BTH_LEN]; BURST_MAX], count: 0, next: 0 };

    /// Takes the packets of a burst, and asks for the queue pairs of the first.
    #[inline(never)]
    pub(super) fn begin(&mut self, frames: &[Mbuf], device: &Device) {
        (self.count, self.next) = (0, 0);
        for frame in frames {
            self.note(frame.bytes());
        }
        (0..DISTANCE).for_each(|_| self.step(device));
    }

    fn note(&mut self, frame: &[u8]) {
        let header = RoceFrame::parse(frame).ok().and_then(|frame| frame.roce.first_chunk());
        if let (Some(header), Some(place)) = (header, self.headers.get_mut(self.count)) {
            *place = *header;
            self.count += 1;
        }
    }

    /// A packet is processed: asks for the queue pair of a later one.
    #[inline]
    pub(super) fn step(&mut self, device: &Device) {
        if self.next < self.count {
            device.prefetch(&self.headers[self.next]);
            self.next += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roce::DeviceConfig;

    /// A frame to UDP port 4791 over IPv4, with `len` bytes of RoCE.
    fn frame(len: usize) -> Vec<u8> {
        let mut frame = vec![0; 14 + 20 + 8 + len];
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[14] = 0x45;
        frame[16..18].copy_from_slice(&(28 + len as u16).to_be_bytes());
        frame[23] = 17;
        frame[36..38].copy_from_slice(&4791_u16.to_be_bytes());
        frame[38..40].copy_from_slice(&(8 + len as u16).to_be_bytes());
        frame
    }

    #[test]
    fn packets_of_a_burst_are_asked_for_once_and_other_frames_are_left_out() {
        let (mut ahead, device) = (Lookahead::NONE, Device::new(&DeviceConfig::default()));
        for bytes in [&frame(16)[..], &frame(BTH_LEN - 1), &[], &frame(16)[..30], &frame(64)] {
            ahead.note(bytes);
        }
        assert_eq!(ahead.count, 2);
        (0..5).for_each(|_| ahead.step(&device));
        assert_eq!(ahead.next, 2);
    }

    #[test]
    fn burst_without_packets_forgets_the_one_before() {
        let (mut ahead, device) = (Lookahead::NONE, Device::new(&DeviceConfig::default()));
        (0..=BURST_MAX).for_each(|_| ahead.note(&frame(16)));
        assert_eq!(ahead.count, BURST_MAX, "one more than a burst has");
        ahead.begin(&[], &device);
        assert_eq!((ahead.count, ahead.next), (0, 0));
    }
}
