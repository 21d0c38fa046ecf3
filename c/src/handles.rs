//! A table whose entries are named by numbers: a slot, and a generation that distinguishes the
//! entry from earlier ones in the same slot, and from those of other stacks.

use core::sync::atomic::{AtomicU16, Ordering};

use crate::abi::Handle;
use crate::error::{Code, Result};

/// Tells the stacks of a process apart, so that the handle of one names nothing in another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StackNumber(u16);

impl StackNumber {
    /// Bits of an id below the number: a slot, and the lower half of its generation.
    const SHIFT: u32 = 48;

    /// The next one; after 65,536 stacks they begin again.
    pub(crate) fn next() -> Self {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// The number in the upper bits of an id, its lowest bit uppermost: where there are few stacks,
    /// generations need years to count up to the bits that differ. An id of the framework, which
    /// counts from one in each stack, is given out with these bits flipped, and taken back by the
    /// same.
    #[inline]
    pub(crate) const fn mark(self) -> u64 {
        (self.0.reverse_bits() as u64) << Self::SHIFT
    }
}

/// The most entries of a table at one time.
const ENTRIES_MAX: usize = 1 << 20;

pub(crate) struct Handles<T> {
    /// The generations of the slots begin here.
    first_generation: u32,
    slots: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Handles<T> {
    pub(crate) const fn new(stack: StackNumber) -> Self {
        Self { first_generation: (stack.mark() >> 32) as u32, slots: Vec::new(), free: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.len() == self.free.len()
    }

    pub(crate) fn insert(&mut self, entry: T) -> Result<Handle> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.slots.len() == ENTRIES_MAX => return Err(Code::Limit.into()),
            None => {
                self.slots.push((self.first_generation, None));
                self.slots.len() as u32 - 1
            }
        };
        let (generation, place) = &mut self.slots[slot as usize];
        *generation = generation.wrapping_add(1);
        *place = Some(entry);
        Ok(Handle { id: (u64::from(*generation) << 32) | (u64::from(slot) + 1) })
    }

    fn slot(&self, handle: Handle) -> Option<usize> {
        let slot = (handle.id as u32).checked_sub(1)? as usize;
        let (generation, _) = self.slots.get(slot)?;
        (*generation == (handle.id >> 32) as u32).then_some(slot)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, handle: Handle) -> Result<&mut T> {
        let slot = self.slot(handle).ok_or(Code::Stale)?;
        self.slots[slot].1.as_mut().ok_or_else(|| Code::Stale.into())
    }

    pub(crate) fn remove(&mut self, handle: Handle) -> Result<T> {
        let slot = self.slot(handle).ok_or(Code::Stale)?;
        let entry = self.slots[slot].1.take().ok_or(Code::Stale)?;
        self.free.push(slot as u32);
        Ok(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_and_forged_names_find_nothing() {
        let mut handles = Handles::new(StackNumber(0));
        let first = handles.insert('a').unwrap();
        assert_eq!(handles.remove(first).unwrap(), 'a');
        let second = handles.insert('b').unwrap();
        for id in [0, 1, u64::MAX, first.id, second.id + 1, second.id + (1 << 32)] {
            assert!(handles.get_mut(Handle { id }).is_err() && handles.remove(Handle { id }).is_err(), "{id:#x}");
        }
        assert_eq!(*handles.get_mut(second).unwrap(), 'b');
    }

    #[test]
    fn name_of_one_stack_finds_nothing_in_another() {
        let [mut first, mut second] = [1, 2].map(|stack| Handles::new(StackNumber(stack)));
        let names = [first.insert('a').unwrap(), second.insert('b').unwrap()];
        assert!(first.get_mut(names[1]).is_err() && second.get_mut(names[0]).is_err());
        assert_eq!((*first.get_mut(names[0]).unwrap(), *second.get_mut(names[1]).unwrap()), ('a', 'b'));
    }
}
