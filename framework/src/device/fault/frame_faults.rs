//! Decides the faults of each frame: a pure function of the seed and the frame's number.

use super::config::Faults;
use crate::time::Duration;

/// The faults of one direction of one queue.
pub(super) struct FaultDraws {
    seed: u64,
    faults: Faults,
}

/// The faults of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameFaults {
    pub(super) loss: bool,
    pub(super) duplication: bool,
    /// A random number that selects the bit.
    pub(super) corruption: Option<u64>,
    pub(super) hold: Hold,
    /// Frames or turns for which the ring is full.
    pub(super) ring_full: Option<u32>,
}

/// Whether a frame is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    No,
    For(Duration),
    Behind(u32),
}

/// The index of each decision among a frame's random numbers.
#[derive(Clone, Copy)]
enum Draw {
    Loss,
    Duplication,
    Corruption,
    Bit,
    Reordering,
    ReorderFrames,
    Delay,
    DelayLength,
    RingFull,
    RingFullLength,
}

impl FaultDraws {
    /// `stream` distinguishes queues and directions with the same seed.
    pub(super) fn new(seed: u64, stream: u64, faults: Faults) -> Self {
        Self { seed: mix(seed ^ mix(stream)), faults }
    }

    /// The configuration that the faults are drawn from.
    pub(super) fn faults(&self) -> &Faults {
        &self.faults
    }

    /// The faults of frame `idx`.
    pub(super) fn of(&self, idx: u64) -> FrameFaults {
        let frame = Frame(mix(self.seed ^ idx));
        let faults = &self.faults;
        let hold = if frame.happens(Draw::Delay, faults.delay) {
            let span = faults.delay_max.as_nanos().saturating_add(1);
            Hold::For(Duration::from_nanos(frame.below(Draw::DelayLength, span)))
        } else if frame.happens(Draw::Reordering, faults.reordering) {
            Hold::Behind(frame.one_to(Draw::ReorderFrames, faults.reorder_frames_max))
        } else {
            Hold::No
        };
        let ring_full = frame.happens(Draw::RingFull, faults.ring_full);
        FrameFaults {
            loss: frame.happens(Draw::Loss, faults.loss),
            duplication: frame.happens(Draw::Duplication, faults.duplication),
            corruption: frame.happens(Draw::Corruption, faults.corruption).then(|| frame.number(Draw::Bit)),
            hold,
            ring_full: ring_full.then(|| frame.one_to(Draw::RingFullLength, faults.ring_full_max)),
        }
    }
}

/// The random numbers of one frame.
struct Frame(u64);

impl Frame {
    fn number(&self, draw: Draw) -> u64 {
        mix(self.0.wrapping_add((draw as u64 + 1).wrapping_mul(GOLDEN)))
    }

    /// True with `probability`; uses 53 bits of the number, as many as a double has.
    fn happens(&self, draw: Draw, probability: f64) -> bool {
        probability > 0.0 && ((self.number(draw) >> 11) as f64) < probability * (1_u64 << 53) as f64
    }

    /// Uniform from 0 to `end`, exclusive.
    fn below(&self, draw: Draw, end: u64) -> u64 {
        ((u128::from(self.number(draw)) * u128::from(end)) >> 64) as u64
    }

    fn one_to(&self, draw: Draw, max: u32) -> u32 {
        1 + self.below(draw, u64::from(max)) as u32
    }
}

/// 2^64 over the golden ratio: the step of SplitMix64.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The output function of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number
/// generators, 2014).
fn mix(state: u64) -> u64 {
    let z = state.wrapping_add(GOLDEN);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(faults: Faults, happened: fn(&FrameFaults) -> bool) -> usize {
        let draws = FaultDraws::new(7, 0, faults);
        (0..10_000).filter(|&idx| happened(&draws.of(idx))).count()
    }

    #[test]
    fn nothing_happens_on_a_perfect_network() {
        let quiet = FrameFaults { loss: false, duplication: false, corruption: None, hold: Hold::No, ring_full: None };
        let draws = FaultDraws::new(7, 0, Faults::NONE);
        assert!((0..1_000).all(|idx| draws.of(idx) == quiet));
    }

    #[test]
    fn certain_faults_happen_to_every_frame() {
        assert_eq!(count(Faults { loss: 1.0, ..Faults::NONE }, |frame_faults| frame_faults.loss), 10_000);
    }

    #[test]
    fn faults_are_as_frequent_as_asked() {
        // Three standard deviations of 10,000 draws at 1 in 10 are 90.
        let near = |count: usize| (910..=1_090).contains(&count);
        assert!(near(count(Faults { loss: 0.1, ..Faults::NONE }, |frame_faults| frame_faults.loss)));
        assert!(near(count(Faults { duplication: 0.1, ..Faults::NONE }, |frame_faults| frame_faults.duplication)));
        assert!(near(count(Faults { corruption: 0.1, ..Faults::NONE }, |frame_faults| frame_faults
            .corruption
            .is_some())));
        assert!(near(count(Faults { delay: 0.1, ..Faults::NONE }, |frame_faults| frame_faults.hold != Hold::No)));
        assert!(near(count(Faults { reordering: 0.1, ..Faults::NONE }, |frame_faults| frame_faults.hold != Hold::No)));
        assert!(near(count(Faults { ring_full: 0.1, ..Faults::NONE }, |frame_faults| frame_faults
            .ring_full
            .is_some())));
    }

    #[test]
    fn lengths_stay_within_their_bounds_and_reach_them() {
        let draws = FaultDraws::new(7, 0, Faults { reordering: 1.0, reorder_frames_max: 3, ..Faults::NONE });
        let mut seen = [0; 5];
        for idx in 0..100 {
            let Hold::Behind(frames) = draws.of(idx).hold else { panic!("every frame is reordered") };
            seen[frames as usize] += 1;
        }
        assert_eq!((seen[0], seen[4]), (0, 0));
        assert!(seen[1..=3].iter().all(|&count| count > 0));
    }

    #[test]
    fn seeds_and_streams_differ() {
        let losses = |seed, stream| {
            let draws = FaultDraws::new(seed, stream, Faults { loss: 0.5, ..Faults::NONE });
            (0..64).map(|idx| draws.of(idx).loss).collect::<Vec<_>>()
        };
        assert_eq!(losses(1, 0), losses(1, 0));
        assert_ne!(losses(1, 0), losses(2, 0));
        assert_ne!(losses(1, 0), losses(1, 1));
    }
}
