//! Memory for tables, allocated at construction. Random reads of a table with a million items miss
//! the TLB as well as the cache. Huge pages save the page walks, but only code that may make system
//! calls can request them, and this floor may not. So the owner of a table may pass a function that
//! gets its address and length before the first byte is written.

/// Gets a table's address and length in bytes. Nothing has been written to that memory yet.
pub(crate) type Madvise = fn(start: *const u8, len: usize);

/// For tables without `madvise`.
pub(crate) fn without_madvise(_: *const u8, _: usize) {}

/// An array of `count` items.
pub(crate) fn allocate_table<T>(count: usize, advise: Madvise, item: impl FnMut(usize) -> T) -> Box<[T]> {
    let mut items = Vec::<T>::with_capacity(count);
    advise(items.as_ptr().cast(), count * size_of::<T>());
    items.extend((0..count).map(item));
    items.into_boxed_slice()
}

/// Whether the kernel grants `bytes` bytes: allocates them at once and frees them untouched. Tables
/// are allocated one by one, and a failure of the last would abort the process. Linux refuses more
/// than memory and swap together (`vm.overcommit_memory` 0), but grants more than is free. So a
/// caller that may read files, such as a live port, checks the free memory first.
pub(crate) fn is_allocatable(bytes: usize) -> bool {
    let mut room = Vec::<u8>::new();
    let is_given = room.try_reserve_exact(bytes).is_ok();
    // Without it the compiler may remove an allocation that is never written, and assume success.
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
