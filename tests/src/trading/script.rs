//! What happens in a run, from its seed.

use crate::mutate::Random;

/// Steps with disturbances.
pub(super) const STEPS: u64 = 3_000;

/// What happens to the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disturbance {
    /// The active gateway's process dies, and starts again.
    Die,
    /// Its machine loses power: the journal is cut, and nobody is told.
    PowerCut,
    /// The standby's process dies, and starts again.
    StandbyDies,
    /// The venue's process starts again.
    VenueRestarts,
    /// All segments of a machine are lost for some time.
    Cut(usize),
    /// A person says it.
    Kill,
    Arm,
    CancelAll,
    Reload,
    HandOver,
}

/// By what the gateway trades.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// OUCH 5.0 over SoupBinTCP.
    Ouch,
    /// OUCH 4.2 over SoupBinTCP.
    Ouch42,
    /// FIX 4.4.
    Fix,
    /// Cboe BOE, version 2.
    Boe2,
    /// Cboe BOE, version 3.
    Boe3,
    /// CME iLink 3.
    Ilink3,
}

impl Protocol {
    /// Each.
    pub const ALL: [Self; 6] = [Self::Ouch, Self::Ouch42, Self::Fix, Self::Boe2, Self::Boe3, Self::Ilink3];
}

/// A run that is determined.
#[derive(Clone, Debug)]
pub(super) struct Script {
    pub seed: u64,
    pub per_mille: [usize; 3],
    pub has_venue_faults: bool,
    /// Of a thousand syncs of a disk, those that take their time.
    pub slow_per_mille: usize,
    /// The gateway has the rates by which it is judged. Otherwise it has none: a defect that must
    /// be found.
    pub has_rates: bool,
    pub disturbances: Vec<(u64, Disturbance)>,
}

impl Script {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x7a5);
        let is_clean = random.below(4) == 0;
        let per_mille = [40, 20, 60].map(|most| if is_clean { 0 } else { random.below(most) });
        let has_venue_faults = random.below(2) == 0;
        let mut disks = Random::new(seed ^ 0xd15c);
        let slow_per_mille = if disks.below(2) == 0 { 0 } else { disks.below(40) };
        let mut disturbances = Vec::new();
        let mut at = 0;
        loop {
            at += 20 + random.below(500) as u64;
            if at >= STEPS {
                return Self { seed, per_mille, has_venue_faults, slow_per_mille, has_rates: true, disturbances };
            }
            let what = match random.below(14) {
                0 | 1 => Disturbance::Die,
                2 | 3 => Disturbance::PowerCut,
                4 => Disturbance::StandbyDies,
                5 => Disturbance::VenueRestarts,
                6..=8 => Disturbance::Cut(random.below(3)),
                9 => Disturbance::Kill,
                10 => Disturbance::Arm,
                11 => Disturbance::CancelAll,
                12 => Disturbance::Reload,
                _ => Disturbance::HandOver,
            };
            disturbances.push((at, what));
        }
    }
}
