//! The last number received from each matching unit, where a venue numbers by unit (BOE).

use core::fmt;

/// The bit of a message's number in the journal which says that a unit has numbered it. No session
/// with numbers of its own reaches it.
const BY_UNIT: u64 = 1 << 63;

/// The last number from each unit that has sent something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitNumbers(Vec<(u8, u32)>);

impl UnitNumbers {
    /// The number by which the journal has message `sequence` of `unit`; 0, which is none, where
    /// `sequence` is 0.
    pub const fn number(unit: u8, sequence: u32) -> u64 {
        if sequence == 0 { 0 } else { BY_UNIT | (unit as u64) << 32 | sequence as u64 }
    }

    /// The unit and the sequence of a message's number; `None` where no unit has numbered it.
    pub const fn split(number: u64) -> Option<(u8, u32)> {
        if number & BY_UNIT == 0 { None } else { Some(((number >> 32) as u8, number as u32)) }
    }

    /// The unit's message was processed.
    pub(super) fn received(&mut self, unit: u8, sequence: u32) {
        match self.0.iter_mut().find(|(of, _)| *of == unit) {
            Some((_, last)) => *last = sequence.max(*last),
            None => self.0.push((unit, sequence)),
        }
    }

    /// Another session begins: the units number anew.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Each unit with its last number.
    pub fn iter(&self) -> impl Iterator<Item = (u8, u32)> {
        self.0.iter().copied()
    }
}

/// Displays a message's number: `12`, or `12 of unit 3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageNumber(pub u64);

impl fmt::Display for MessageNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match UnitNumbers::split(self.0) {
            Some((unit, sequence)) => write!(f, "{sequence} of unit {unit}"),
            None => self.0.fmt(f),
        }
    }
}
