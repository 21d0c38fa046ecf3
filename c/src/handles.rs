//! A table whose entries are named by numbers: a slot, and a generation that distinguishes the
//! entry from earlier ones in the same slot.

use crate::abi::Handle;
use crate::error::{Code, Result};

/// The most entries of a table at one time.
const ENTRIES_MAX: usize = 1 << 20;

pub(crate) struct Handles<T> {
    slots: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Handles<T> {
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }

    pub(crate) fn insert(&mut self, entry: T) -> Result<Handle> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.slots.len() == ENTRIES_MAX => return Err(Code::Limit.into()),
            None => {
                self.slots.push((0, None));
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
        let mut handles = Handles::new();
        let first = handles.insert('a').unwrap();
        assert_eq!(handles.remove(first).unwrap(), 'a');
        let second = handles.insert('b').unwrap();
        for id in [0, 1, u64::MAX, first.id, second.id + 1, second.id + (1 << 32)] {
            assert!(handles.get_mut(Handle { id }).is_err() && handles.remove(Handle { id }).is_err(), "{id:#x}");
        }
        assert_eq!(*handles.get_mut(second).unwrap(), 'b');
    }
}
