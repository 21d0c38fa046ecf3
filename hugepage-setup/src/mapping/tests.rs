//! These tests use this machine's real memory and need no reservation; those that need one are in
//! tests/machine.rs.

use super::*;

fn request(page: PageChoice, len: usize) -> MapRequest {
    MapRequest { page, ..MapRequest::new(len) }
}

#[test]
fn empty_request_is_refused() {
    assert!(matches!(Mapping::map(&MapRequest::new(0)), Err(MapError::Empty)));
}

#[test]
fn endless_request_is_refused() {
    for page in [PageChoice::Best, PageChoice::TwoMiB, PageChoice::Small] {
        assert!(matches!(Mapping::map(&request(page, usize::MAX)), Err(MapError::TooLong { .. })), "{page:?}");
    }
}

#[test]
fn absent_node_is_refused() {
    let request = MapRequest { node: Some(900), ..MapRequest::new(1) };
    assert!(matches!(Mapping::map(&request), Err(MapError::NoSuchNode { node: 900, .. })));
}

#[test]
fn more_small_pages_than_memory_are_refused_before_touching() {
    let result = Mapping::map(&request(PageChoice::Small, 1 << 45));
    assert!(matches!(result, Err(MapError::Memory { .. })), "{result:?}");
}

#[test]
fn more_hugepages_than_memory_are_a_shortage() {
    let Err(MapError::Shortage(shortage)) = Mapping::map(&request(PageChoice::TwoMiB, 1 << 45)) else {
        panic!("nobody has 32 TiB of hugepages");
    };
    assert_eq!(shortage.wanted, 1 << 24);
}

#[test]
fn touch_that_would_raise_sigbus_is_an_error() {
    // Without a reservation mmap promises more pages than the kernel has; the first touch beyond
    // them raises SIGBUS. A node's or a cgroup's limit has the same effect on reserved pages, and
    // this case needs no special machine.
    let machine = Machine::discover(&Roots::default()).unwrap();
    let Some(pool) = machine.pool(TWO_MIB, None) else {
        println!("SKIPPED touch_that_would_raise_sigbus_is_an_error: this kernel has no hugepages");
        return;
    };
    let len = (pool.total + 64) * TWO_MIB;
    let pages = Pages::map(len as usize, huge_flags(TWO_MIB) | libc::MAP_NORESERVE).unwrap();
    let why = pages.populate().unwrap_err();
    assert!(matches!(why.raw_os_error(), Some(libc::EFAULT | libc::ENOMEM)), "{why}");
    assert!(pages.populate_by_lock().is_err(), "the way of old kernels reports it too");
}

#[test]
fn small_pages_are_zeroed_and_writable() {
    let mut mapping = Mapping::map(&request(PageChoice::Small, 5000)).unwrap();
    assert_eq!((mapping.len(), mapping.page_size(), mapping.locked()), (8192, 4096, false));
    assert!(mapping.fallback().is_none(), "small pages were asked for");
    assert!(mapping.as_mut_slice().iter().all(|byte| *byte == 0));
    mapping.as_mut_slice().fill(0xa5);
}

#[test]
fn fallback_is_aligned_for_transparent_pages_and_reported() {
    let machine = Machine::discover(&Roots::default()).unwrap();
    let shortage = Shortage::explain(&Machine::default(), TWO_MIB, None, 2, &io::ErrorKind::OutOfMemory.into());
    let mapping = Mapping::map_small(&MapRequest::new(3 << 20), &machine, Some(shortage)).unwrap();
    assert_eq!((mapping.len(), mapping.page_size()), (4 << 20, 4096));
    assert!(mapping.as_ptr().addr().get().is_multiple_of(TWO_MIB as usize));
    println!("{}", mapping.fallback().unwrap());
}

#[test]
fn splitting_keeps_both_halves_mapped() {
    let pages = Pages::map(3 * 4096, 0).unwrap();
    let (low, high) = pages.split(4096);
    drop(low);
    high.populate().unwrap();
    let (all, nothing) = high.split(2 * 4096);
    drop(nothing);
    all.populate().unwrap();
}

#[test]
fn old_kernels_are_populated_by_lock() {
    Pages::map(4 * 4096, 0).unwrap().populate_by_lock().unwrap();
}

#[test]
fn mapping_can_be_sent_and_shared() {
    fn check<T: Send + Sync>() {}
    check::<Mapping>();
}

#[test]
fn smaps_lines_are_told_apart() {
    assert_eq!(parse_range("1000-2000 rw-p 00000000 00:00 0"), Some((0x1000, 0x2000)));
    assert_eq!(parse_range("AnonHugePages:      2048 kB"), None);
}
