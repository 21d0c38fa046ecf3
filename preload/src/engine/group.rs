//! Several engines at once. A thread takes their locks in the order of their numbers, so no two
//! threads wait for each other.

use crate::engine::{self, Engine, EngineGuard};

/// A set of engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EngineMask(u16);

impl EngineMask {
    pub(crate) const NONE: Self = Self(0);

    /// One engine.
    #[inline]
    pub(crate) const fn one(engine: usize) -> Self {
        Self(1 << engine)
    }

    #[inline]
    pub(crate) const fn has(self, engine: usize) -> bool {
        self.0 & 1 << engine != 0
    }

    #[inline]
    pub(crate) const fn with(self, engine: usize) -> Self {
        Self(self.0 | 1 << engine)
    }

    pub(crate) const fn without(self, engine: usize) -> Self {
        Self(self.0 & !(1 << engine))
    }

    /// The engines of both.
    #[inline]
    pub(crate) const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether `other` has all of these.
    pub(crate) const fn is_within(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    /// Their numbers, in order.
    pub(crate) fn iter(self) -> impl Iterator<Item = usize> {
        (0..u16::BITS as usize).filter(move |engine| self.has(*engine))
    }
}

impl FromIterator<usize> for EngineMask {
    fn from_iter<I: IntoIterator<Item = usize>>(engines: I) -> Self {
        engines.into_iter().fold(Self::NONE, Self::with)
    }
}

/// Engines that a thread has locked: at least one.
pub(crate) struct Engines {
    pub(crate) first: EngineGuard,
    others: Vec<EngineGuard>,
}

impl Engines {
    /// Takes the locks of `engines`; of none that of the thread's own.
    #[inline]
    pub(crate) fn enter(engines: EngineMask) -> Self {
        let mut numbers = engines.iter();
        let first = numbers.next().map_or_else(engine::enter_own, engine::enter_at);
        Self { first, others: numbers.map(engine::enter_at).collect() }
    }

    /// All of them.
    #[inline]
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Engine> {
        core::iter::once(&mut self.first).chain(&mut self.others).map(|engine| &mut **engine)
    }

    /// How many they are.
    pub(crate) fn count(&self) -> usize {
        1 + self.others.len()
    }

    /// The one at this place among them.
    pub(crate) fn at(&mut self, idx: usize) -> Option<&mut Engine> {
        self.iter_mut().nth(idx)
    }

    /// The one of this number, if it is among them.
    #[inline]
    pub(crate) fn of(&mut self, number: usize) -> Option<&mut Engine> {
        self.iter_mut().find(|engine| engine.number == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mask_has_the_engines_that_it_was_made_of_in_order() {
        let mask = EngineMask::one(3).with(0).union(EngineMask::one(14));
        assert_eq!(mask.iter().collect::<Vec<_>>(), [0, 3, 14]);
        assert_eq!(mask.without(3), [14, 0].into_iter().collect());
        assert!(EngineMask::one(3).is_within(mask) && !mask.is_within(EngineMask::one(3)));
        assert!(EngineMask::NONE.is_within(EngineMask::NONE));
    }
}
