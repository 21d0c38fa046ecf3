//! The relation of the NIC's clock to the wall clock, which the broker reads from the kernel's page
//! and its clients from the memory that they share with it: the page itself cannot be passed on.
//!
//! The broker writes ten times a second at least, and alone; a client that reads meanwhile gets
//! nothing, and keeps the relation that it has.

use core::sync::atomic::{Ordering, fence};

use super::shared::{SharedRings, Status};
use crate::device::mlx5::completion::clock::ClockInfo;

/// Shows a client the relation. One thread does.
pub(super) fn show(rings: &SharedRings, relation: &ClockInfo) {
    let sequence = rings.status(Status::ClockSequence);
    let begun = sequence.load(Ordering::Relaxed).wrapping_add(1) | 1;
    sequence.store(begun, Ordering::Relaxed);
    fence(Ordering::Release);
    let ClockInfo { ns, ticks, fraction, mult, shift, mask } = *relation;
    let rate = u64::from(mult) << 32 | u64::from(shift);
    for (word, value) in WORDS.into_iter().zip([ns, ticks, fraction, rate, mask]) {
        rings.status(word).store(value, Ordering::Relaxed);
    }
    sequence.store(begun.wrapping_add(1), Ordering::Release);
}

/// The relation; `None` before there is one, and while it is written.
pub(super) fn read(rings: &SharedRings) -> Option<ClockInfo> {
    let sequence = rings.status(Status::ClockSequence);
    let before = sequence.load(Ordering::Acquire);
    let [ns, ticks, fraction, rate, mask] = WORDS.map(|word| rings.status(word).load(Ordering::Relaxed));
    fence(Ordering::Acquire);
    let is_whole = before != 0 && before.is_multiple_of(2) && before == sequence.load(Ordering::Relaxed);
    is_whole.then_some(ClockInfo { ns, ticks, fraction, mult: (rate >> 32) as u32, shift: rate as u32, mask })
}

const WORDS: [Status; 5] =
    [Status::ClockNs, Status::ClockTicks, Status::ClockFraction, Status::ClockRate, Status::ClockMask];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::broker::sys::memory;

    const RELATION: ClockInfo = ClockInfo { ns: 1, ticks: 2, fraction: 3, mult: u32::MAX, shift: 21, mask: u64::MAX };

    #[test]
    fn client_reads_what_the_broker_shows_and_nothing_before_or_meanwhile() {
        let file = memory(8192).unwrap();
        let [broker, client] = [(); 2].map(|()| SharedRings::map(&file, 0, 8192).unwrap());
        assert_eq!(read(&client), None);
        show(&broker, &RELATION);
        assert_eq!(read(&client), Some(RELATION));
        // A broker that was killed while it wrote.
        broker.status(Status::ClockSequence).fetch_add(1, Ordering::Relaxed);
        assert_eq!(read(&client), None);
        let later = ClockInfo { ns: 7, ..RELATION };
        show(&broker, &later);
        assert_eq!(read(&client), Some(later));
    }
}
