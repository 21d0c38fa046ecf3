//! The objects of a session. Handles are small numbers, in one sequence for all kinds, the lowest
//! free one first, as the kernel assigns them. The users of each object are counted, so that no
//! object is destroyed while it is in use.

use super::uar::Register;
use crate::hca::Errno;
use crate::uverbs::refuse;

/// The kinds of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::uverbs) enum Kind {
    /// A protection domain.
    Pd,
    /// A memory region.
    Mr,
    /// A memory window.
    Mw,
    /// A completion queue.
    Cq,
    /// A queue pair.
    Qp,
    /// A shared receive queue.
    Srq,
    /// An address handle.
    Ah,
    /// A work queue.
    Wq,
    /// An indirection table.
    Table,
    /// A flow rule.
    Flow,
    /// A page of doorbell registers that the client asked for.
    Uar,
}

impl Kind {
    /// All kinds, users before the objects that they use: the order in which a session is torn
    /// down.
    pub(in crate::uverbs) const TEARDOWN: [Self; 11] = [
        Self::Flow,
        Self::Qp,
        Self::Srq,
        Self::Ah,
        Self::Table,
        Self::Wq,
        Self::Cq,
        Self::Mw,
        Self::Mr,
        Self::Pd,
        Self::Uar,
    ];
}

/// One object.
#[derive(Clone, Debug)]
pub(in crate::uverbs) struct Object {
    pub(in crate::uverbs) kind: Kind,
    /// The NIC's handle of it.
    pub(in crate::uverbs) nic: u32,
    /// The value in events of the object.
    pub(in crate::uverbs) user_handle: Option<u64>,
    /// The doorbell register that it was given.
    pub(in crate::uverbs) register: Option<Register>,
    /// Bytes of the client's memory that it pins.
    pub(in crate::uverbs) locked_len: u64,
    /// Handles of the objects that it uses.
    pub(in crate::uverbs) uses: Vec<u32>,
}

impl Object {
    /// An object that uses `uses`.
    pub(crate) fn new(kind: Kind, nic: u32, uses: impl Into<Vec<u32>>) -> Self {
        Self { kind, nic, user_handle: None, register: None, locked_len: 0, uses: uses.into() }
    }
}

/// Objects of one session. More than a client makes, few enough that a mad one does not fill the
/// machine.
const OBJECTS_MAX: usize = 1 << 16;

/// All of a session.
#[derive(Debug, Default)]
pub(in crate::uverbs) struct Objects {
    slots: Vec<Option<Slot>>,
}

#[derive(Debug)]
struct Slot {
    object: Object,
    /// The number of objects that use this one.
    users: u32,
}

impl Objects {
    /// Whether one more may be made; asked before it is made.
    pub(crate) fn room(&self) -> Result<(), Errno> {
        if self.iter().count() < OBJECTS_MAX { Ok(()) } else { refuse(libc::ENOMEM) }
    }

    /// Takes in an object and gives it a handle.
    pub(crate) fn add(&mut self, object: Object) -> u32 {
        for used in &object.uses {
            if let Some(used) = self.slot(*used) {
                used.users += 1;
            }
        }
        let handle = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        if handle == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[handle] = Some(Slot { object, users: 0 });
        handle as u32
    }

    /// The object of that kind and handle.
    pub(crate) fn get(&self, kind: Kind, handle: u32) -> Option<&Object> {
        self.known(kind, handle).map(|slot| &slot.object)
    }

    /// The NIC's handle of an object. Commands that name a missing object are refused with EINVAL.
    pub(crate) fn nic(&self, kind: Kind, handle: u32) -> Result<u32, Errno> {
        self.get(kind, handle).map(|object| object.nic).ok_or(Errno(libc::EINVAL))
    }

    /// The NIC's handle of an object that is about to be destroyed: it must exist (ENOENT) and be
    /// unused (EBUSY).
    pub(crate) fn unused(&self, kind: Kind, handle: u32) -> Result<u32, Errno> {
        let Some(slot) = self.known(kind, handle) else { return refuse(libc::ENOENT) };
        if slot.users > 0 { refuse(libc::EBUSY) } else { Ok(slot.object.nic) }
    }

    /// Forgets an object.
    pub(crate) fn remove(&mut self, handle: u32) -> Option<Object> {
        let object = self.slots.get_mut(handle as usize)?.take()?.object;
        for used in &object.uses {
            if let Some(used) = self.slot(*used) {
                used.users -= 1;
            }
        }
        Some(object)
    }

    /// All with their handles.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Object)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(handle, slot)| Some((handle as u32, &slot.as_ref()?.object)))
    }

    fn known(&self, kind: Kind, handle: u32) -> Option<&Slot> {
        self.slots.get(handle as usize)?.as_ref().filter(|slot| slot.object.kind == kind)
    }

    fn slot(&mut self, handle: u32) -> Option<&mut Slot> {
        self.slots.get_mut(handle as usize)?.as_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handle_of_another_kind_is_no_handle() {
        let mut objects = Objects::default();
        let pd = objects.add(Object::new(Kind::Pd, 7, []));
        assert_eq!(objects.nic(Kind::Cq, pd), refuse(libc::EINVAL));
        assert_eq!(objects.unused(Kind::Cq, pd), refuse(libc::ENOENT));
        assert_eq!(objects.nic(Kind::Pd, pd), Ok(7));
    }

    #[test]
    fn used_object_is_not_destroyed_before_its_user() {
        let mut objects = Objects::default();
        let pd = objects.add(Object::new(Kind::Pd, 0, []));
        let region = objects.add(Object::new(Kind::Mr, 0, [pd]));
        assert_eq!(objects.unused(Kind::Pd, pd), refuse(libc::EBUSY));
        objects.remove(region);
        assert_eq!(objects.unused(Kind::Pd, pd), Ok(0));
    }

    #[test]
    fn lowest_free_handle_is_given_again() {
        let mut objects = Objects::default();
        let handles: Vec<u32> = (0..3).map(|nic| objects.add(Object::new(Kind::Pd, nic, []))).collect();
        objects.remove(1);
        assert_eq!((handles, objects.add(Object::new(Kind::Pd, 9, []))), (vec![0, 1, 2], 1));
    }
}
