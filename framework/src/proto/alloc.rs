//! Room for tables, taken at construction. A table of a million items that is read at random waits
//! for page tables as well as for memory, and large pages spare it that; but to ask the kernel for
//! them takes who may do system calls. So whoever makes a table may bring a function that hears
//! where it will stand, before the first byte is touched.

/// Hears where a table will stand: its first byte, and how many there are. Nothing has been written
/// there yet.
pub(crate) type Madvise = fn(start: *const u8, len: usize);

/// For tables that stand wherever they are put.
pub(crate) fn without_madvise(_: *const u8, _: usize) {}

/// `count` items side by side.
pub(crate) fn allocate_table<T>(count: usize, advise: Madvise, item: impl FnMut(usize) -> T) -> Box<[T]> {
    let mut items = Vec::<T>::with_capacity(count);
    advise(items.as_ptr().cast(), count * size_of::<T>());
    items.extend((0..count).map(item));
    items.into_boxed_slice()
}

/// Whether the kernel grants so many bytes. They are asked for at once and given back untouched.
/// Tables are furnished one by one, and a refusal of the last of them would end the process. Linux
/// refuses more than memory and swap together (`vm.overcommit_memory` 0), and grants what is not
/// left of them: whoever may read files asks the machine before, as a live port does.
pub(crate) fn is_allocatable(bytes: usize) -> bool {
    let mut room = Vec::<u8>::new();
    let is_given = room.try_reserve_exact(bytes).is_ok();
    // Otherwise the compiler may leave out what nothing is written to, and say that it was given.
    core::hint::black_box(&mut room);
    is_given
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use super::*;

    #[test]
    fn items_stand_where_was_told() {
        thread_local!(static HEARD: Cell<(usize, usize)> = const { Cell::new((0, 0)) });
        let items = allocate_table(5, |start, len| HEARD.set((start as usize, len)), |idx| idx as u16);
        assert_eq!((&items[..], HEARD.get()), (&[0, 1, 2, 3, 4][..], (items.as_ptr() as usize, 10)));
    }

    #[test]
    fn more_than_there_are_addresses_cannot_be_had() {
        assert!(is_allocatable(0) && is_allocatable(1 << 20));
        assert!(!is_allocatable(1 << 60) && !is_allocatable(usize::MAX));
    }
}
