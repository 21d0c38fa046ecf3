//! The table of connections, and the names that the peers have of them.

use std::collections::VecDeque;

use super::connection::Connection;

/// Names a connection: the local communication ID of its messages. The name of one that was
/// destroyed means nothing for as long as possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CmId(pub(super) u32);

/// Names a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListenerId {
    pub(super) idx: u32,
    pub(super) generation: u32,
}

impl CmId {
    /// The number on the wire.
    pub const fn get(self) -> u32 {
        self.0
    }
}

pub(super) struct Slots {
    slots: Vec<Slot>,
    free: VecDeque<u32>,
    bits: u32,
}

struct Slot {
    generation: u32,
    connection: Option<Connection>,
}

impl Slots {
    pub(super) fn new(capacity: u32, seed: u64) -> Self {
        // 0 is nobody's name.
        let bits = (capacity + 1).next_power_of_two().trailing_zeros();
        let generation = (seed ^ seed >> 32) as u32;
        let slots = (0..capacity).map(|_| Slot { generation, connection: None }).collect();
        Self { slots, free: (0..capacity).collect(), bits }
    }

    pub(super) fn insert_with(&mut self, make: impl FnOnce(CmId) -> Connection) -> Option<CmId> {
        let idx = self.free.pop_front()?;
        let slot = &mut self.slots[idx as usize];
        let id = CmId(slot.generation.unbounded_shl(self.bits) | (idx + 1));
        slot.connection = Some(make(id));
        Some(id)
    }

    /// The place of a name, also of one that means nothing now.
    pub(super) fn place(&self, id: CmId) -> Option<usize> {
        let place = (id.0 & ((1 << self.bits) - 1)).checked_sub(1)? as usize;
        (place < self.slots.len()).then_some(place)
    }

    pub(super) fn get(&self, id: CmId) -> Option<&Connection> {
        self.slots[self.place(id)?].connection.as_ref().filter(|connection| connection.id == id)
    }

    pub(super) fn get_mut(&mut self, id: CmId) -> Option<&mut Connection> {
        let place = self.place(id)?;
        self.slots[place].connection.as_mut().filter(|connection| connection.id == id)
    }

    pub(super) fn remove(&mut self, id: CmId) {
        if let Some(place) = self.place(id).filter(|_| self.get(id).is_some()) {
            self.free(place);
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// Removes one connection of which that is true, where there is one. A look at each place.
    pub(super) fn remove_one(&mut self, is_gone: impl Fn(&Connection) -> bool) {
        let mut places = self.slots.iter();
        if let Some(place) = places.position(|slot| slot.connection.as_ref().is_some_and(&is_gone)) {
            self.free(place);
        }
    }

    /// Removes all connections of which that is true. A look at each place.
    pub(super) fn remove_if(&mut self, is_gone: impl Fn(&Connection) -> bool) {
        for place in 0..self.slots.len() {
            if self.slots[place].connection.as_ref().is_some_and(&is_gone) {
                self.free(place);
            }
        }
    }

    fn free(&mut self, place: usize) {
        let slot = &mut self.slots[place];
        slot.connection = None;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push_back(place as u32);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Connection> {
        self.slots.iter().filter_map(|slot| slot.connection.as_ref())
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Connection> {
        self.slots.iter_mut().filter_map(|slot| slot.connection.as_mut())
    }
}
