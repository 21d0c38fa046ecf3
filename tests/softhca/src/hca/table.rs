//! Objects by handle: the lowest free number is given out next, as the kernel's tables do.

/// Objects of one kind.
pub(super) struct Table<T> {
    slots: Vec<Option<T>>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { slots: Vec::new() }
    }
}

impl<T> Table<T> {
    /// Keeps an object and returns its handle.
    pub(super) fn insert(&mut self, object: T) -> u32 {
        let free = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        if free == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[free] = Some(object);
        free as u32
    }

    /// The object of a handle.
    #[inline]
    pub(super) fn get(&self, handle: u32) -> Option<&T> {
        self.slots.get(handle as usize)?.as_ref()
    }

    /// The object of a handle, to change it.
    #[inline]
    pub(super) fn get_mut(&mut self, handle: u32) -> Option<&mut T> {
        self.slots.get_mut(handle as usize)?.as_mut()
    }

    /// Takes the object out; its handle is free again.
    pub(super) fn remove(&mut self, handle: u32) -> Option<T> {
        self.slots.get_mut(handle as usize)?.take()
    }

    /// One more than the highest possible handle: for loops that change the table.
    #[inline]
    pub(super) fn end(&self) -> u32 {
        self.slots.len() as u32
    }

    /// All objects with their handles.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.slots.iter().enumerate().filter_map(|(handle, slot)| Some((handle as u32, slot.as_ref()?)))
    }

    /// All objects with their handles, to change them.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        self.slots.iter_mut().enumerate().filter_map(|(handle, slot)| Some((handle as u32, slot.as_mut()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_free_again_after_its_object_went() {
        let mut table = Table::default();
        assert_eq!((table.insert('a'), table.insert('b')), (0, 1));
        assert_eq!(table.remove(0), Some('a'));
        assert_eq!(table.remove(0), None, "twice");
        assert_eq!(table.get(7), None, "never there");
        assert_eq!(table.insert('c'), 0);
        assert_eq!(table.iter().collect::<Vec<_>>(), [(0, &'c'), (1, &'b')]);
    }
}
