//! What goes wrong on purpose: by a chance from a seed, or with a message that a script names.

use std::fmt;
use std::str::FromStr;

use market::truth::Probability;

use crate::random::Random;

/// Something that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A message is processed, and the connection breaks before its answer leaves.
    LostAck,
    /// The venue neither reads nor sends any more, and the connection stays open.
    HalfOpen,
    /// A login is accepted with another number than the one that comes next.
    SequenceSurprise,
    /// An order is refused because too many came.
    Throttle,
    /// A cancel crosses with a fill of the order.
    CrossingFill,
    /// A login that goes on with a session finds another one, whose numbers begin anew: as after a
    /// venue's own restart. The next login finds the right one again.
    NewSession,
}

impl Fault {
    const ALL: [(Self, &'static str); 6] = [
        (Self::LostAck, "lost-ack"),
        (Self::HalfOpen, "half-open"),
        (Self::SequenceSurprise, "sequence-surprise"),
        (Self::Throttle, "throttle"),
        (Self::CrossingFill, "crossing-fill"),
        (Self::NewSession, "new-session"),
    ];
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(fault, _)| fault == self).map_or("", |(_, name)| name);
        f.write_str(name)
    }
}

/// When a fault happens: `lost-ack=1%` by chance, `half-open@250` with the 250th occasion.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FaultRule {
    /// With this chance on each occasion.
    Chance(Fault, f64),
    /// On this occasion alone, counted from 1.
    At(Fault, u64),
}

impl FromStr for FaultRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || {
            let names = Fault::ALL.map(|(_, name)| name).join(", ");
            format!("use FAULT=CHANCE such as lost-ack=1%, or FAULT@NUMBER such as half-open@250; faults: {names}")
        };
        let fault = |name: &str| {
            let found = Fault::ALL.iter().find(|(_, known)| *known == name).map(|&(fault, _)| fault);
            found.ok_or_else(|| format!("no fault '{name}'; {}", form()))
        };
        if let Some((name, chance)) = text.split_once('=') {
            return Ok(Self::Chance(fault(name)?, chance.parse::<Probability>()?.get()));
        }
        let (name, number) = text.split_once('@').ok_or_else(form)?;
        match number.parse() {
            Ok(number) if number > 0 => Ok(Self::At(fault(name)?, number)),
            _ => Err(format!("'{number}' is not a number of 1 or more; {}", form())),
        }
    }
}

/// The faults of a day.
#[derive(Clone, Debug, Default)]
pub struct FaultPlan {
    /// The same seed draws the same faults. By default 0.
    pub seed: u64,
    /// When which fault happens. By default none does.
    pub rules: Vec<FaultRule>,
}

/// The plan at work.
#[derive(Debug)]
pub(super) struct Faults {
    plan: FaultPlan,
    /// A stream of chances for each fault, so that one does not change when another happens.
    random: [Random; Fault::ALL.len()],
    occasions: [u64; Fault::ALL.len()],
}

impl Faults {
    pub(super) fn new(plan: FaultPlan) -> Self {
        let random = std::array::from_fn(|idx| Random::new(plan.seed, 100 + idx as u64));
        Self { plan, random, occasions: [0; Fault::ALL.len()] }
    }

    /// An occasion for a fault: whether it happens.
    pub(super) fn draw(&mut self, fault: Fault) -> bool {
        let idx = fault as usize;
        self.occasions[idx] += 1;
        let (occasion, random) = (self.occasions[idx], &mut self.random[idx]);
        self.plan.rules.iter().fold(false, |happens, rule| match *rule {
            FaultRule::Chance(of, chance) if of == fault => random.chance(chance) || happens,
            FaultRule::At(of, number) if of == fault => number == occasion || happens,
            _ => happens,
        })
    }

    /// How far a number is off: one to three, up or down.
    pub(super) fn surprise(&mut self) -> i64 {
        let random = &mut self.random[Fault::SequenceSurprise as usize];
        let off = 1 + random.below(3) as i64;
        if random.chance(0.5) { off } else { -off }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_a_chance_or_a_number() {
        assert_eq!("lost-ack=50%".parse(), Ok(FaultRule::Chance(Fault::LostAck, 0.5)));
        assert_eq!("half-open@3".parse(), Ok(FaultRule::At(Fault::HalfOpen, 3)));
        for text in ["lost-ack", "lost=1%", "half-open@0", "half-open@x", "lost-ack=2"] {
            assert!(text.parse::<FaultRule>().is_err(), "{text}");
        }
    }

    #[test]
    fn scripted_fault_happens_once_and_the_seed_draws_the_same_chances() {
        let rules = vec![FaultRule::At(Fault::Throttle, 2), FaultRule::Chance(Fault::LostAck, 0.3)];
        let plan = FaultPlan { seed: 4, rules };
        let [mut first, mut second] = [(); 2].map(|()| Faults::new(plan.clone()));
        let throttled = [(); 4].map(|()| first.draw(Fault::Throttle));
        assert_eq!(throttled, [false, true, false, false]);
        // Other faults do not change the chances of this one.
        let draws = |faults: &mut Faults| [(); 50].map(|()| faults.draw(Fault::LostAck));
        assert_eq!(draws(&mut first), draws(&mut second));
    }
}
