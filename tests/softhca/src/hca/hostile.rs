//! The random decisions of a hostile NIC, all from one seed. Without
//! [`Hostility`](super::Hostility) each answer is "no", and no number is drawn.

use super::Hostility;

/// Draws numbers for the whole NIC in the order of events, so the same seed and the same driver
/// give the same run.
pub(super) struct Chance {
    hostility: Hostility,
    state: u64,
    /// Steps for which the port stays down.
    link_down_steps: u32,
}

/// The longest time that the port is down, in steps.
const LINK_DOWN_STEPS_MAX: u32 = 64;

impl Chance {
    pub(super) fn new(hostility: Option<&Hostility>) -> Self {
        let hostility = hostility.cloned().unwrap_or_default();
        // A xorshift generator stands still at 0; the multiplier is an odd number with many bits,
        // so that neighboring seeds begin far apart.
        let state = (hostility.seed ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9) | 1;
        Self { hostility, state, link_down_steps: 0 }
    }

    /// Whether this send WQE fails.
    #[inline]
    pub(super) fn send_fails(&mut self) -> bool {
        self.hits(self.hostility.send_errors)
    }

    /// Whether this received frame fails with an error CQE.
    #[inline]
    pub(super) fn receive_fails(&mut self) -> bool {
        self.hits(self.hostility.receive_errors)
    }

    /// Whether this frame was lost on the wire.
    #[inline]
    pub(super) fn frame_is_lost(&mut self) -> bool {
        self.hits(self.hostility.loss)
    }

    /// Whether this frame changes places with the next one.
    #[inline]
    pub(super) fn frame_is_overtaken(&mut self) -> bool {
        self.hits(self.hostility.reordering)
    }

    /// Steps that a completion waits.
    #[inline]
    pub(super) fn completion_delay(&mut self) -> u32 {
        match self.hostility.completion_delay_max {
            0 => 0,
            max => self.below(max.saturating_add(1)),
        }
    }

    /// Asked once a step: whether the port is down in it by bad luck.
    #[inline]
    pub(super) fn link_is_down(&mut self) -> bool {
        if self.link_down_steps > 0 {
            self.link_down_steps -= 1;
            return true;
        }
        if self.hits(self.hostility.link_flaps) {
            self.link_down_steps = self.below(LINK_DOWN_STEPS_MAX);
            return true;
        }
        false
    }

    #[inline]
    fn hits(&mut self, per_mille: u32) -> bool {
        per_mille > 0 && self.below(1000) < per_mille
    }

    /// A number below `end`, which is not 0.
    fn below(&mut self, end: u32) -> u32 {
        // xorshift64*, Vigna 2016: the upper half is the better one.
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        let drawn = self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        ((drawn * u64::from(end)) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_hostility_nothing_is_drawn() {
        let mut chance = Chance::new(None);
        let before = chance.state;
        assert!(!chance.send_fails() && !chance.receive_fails() && !chance.frame_is_lost());
        assert!(!chance.frame_is_overtaken() && !chance.link_is_down());
        assert_eq!(chance.completion_delay(), 0);
        assert_eq!(chance.state, before);
    }

    #[test]
    fn the_same_seed_draws_the_same() {
        let hostility = Hostility { seed: 7, loss: 300, ..Hostility::default() };
        let run = |hostility: &Hostility| {
            let mut chance = Chance::new(Some(hostility));
            (0..100).map(|_| chance.frame_is_lost()).collect::<Vec<_>>()
        };
        assert_eq!(run(&hostility), run(&hostility));
        assert_ne!(run(&hostility), run(&Hostility { seed: 8, ..hostility.clone() }));
    }

    #[test]
    fn fault_occurs_at_its_rate_per_mille() {
        let mut chance = Chance::new(Some(&Hostility { send_errors: 100, ..Hostility::default() }));
        let hits = (0..100_000).filter(|_| chance.send_fails()).count();
        assert!((9_000..11_000).contains(&hits), "{hits} of 100000 at a tenth");
    }

    #[test]
    fn the_port_comes_up_again() {
        let mut chance = Chance::new(Some(&Hostility { link_flaps: 10, ..Hostility::default() }));
        let down = (0..10_000).map(|_| chance.link_is_down()).collect::<Vec<_>>();
        assert!(down.contains(&true) && down.contains(&false));
    }
}
