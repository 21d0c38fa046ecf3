use super::*;
use crate::plan::Bound;
use crate::sysfs::Pool;
use crate::testing::{FakeMachine, unused};

fn target(pages: u64) -> Target {
    Target { page_size: TWO_MIB, node: None, pages, bound: Bound::AtLeast }
}

fn at(name: &str, machine: &FakeMachine) -> String {
    fs::read_to_string(machine.path(name)).unwrap()
}

const TOTAL: &str = "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

/// A kernel with memory for at most `most` pages.
fn kernel_with(most: u64) -> impl Fn(&Path, u64) -> io::Result<()> {
    move |path, pages| write_count(path, pages.min(most))
}

#[test]
fn half_granted_reservation_is_partial_with_advice() {
    let machine = FakeMachine::new();
    machine.pool(unused(3));
    let outcome = reserve_through(&machine.roots(), &target(512), kernel_with(100)).unwrap();
    let Outcome::Partial { asked: 512, before: 3, granted: 100, advice } = outcome else {
        panic!("100 of 512 is partial, not {outcome:?}");
    };
    let boot = Advice::Boot("hugepagesz=2M hugepages=512".to_owned());
    assert_eq!(advice, [Advice::DropCaches, Advice::Compact, boot]);
}

#[test]
fn one_gib_advice_begins_with_the_boot_parameter() {
    let machine = FakeMachine::new();
    machine.pool(Pool { page_size: ONE_GIB, ..unused(0) });
    let target = Target { page_size: ONE_GIB, ..target(2) };
    let outcome = reserve_through(&machine.roots(), &target, kernel_with(0)).unwrap();
    let Outcome::Partial { granted: 0, advice, .. } = outcome else {
        panic!("0 of 2 is partial, not {outcome:?}");
    };
    assert_eq!(advice[0], Advice::Boot("hugepagesz=1G hugepages=2".to_owned()));
}

#[test]
fn reservation_in_use_is_never_shrunk() {
    let machine = FakeMachine::new();
    machine.pool(Pool { free: 9, ..unused(10) });
    assert_eq!(reserve(&machine.roots(), &target(4)).unwrap(), Outcome::Unchanged { total: 10 });
    let exactly = Target { bound: Bound::Exactly, ..target(4) };
    assert!(matches!(reserve(&machine.roots(), &exactly), Err(ReserveError::InUse { in_use: 1, .. })));
    assert_eq!(at(TOTAL, &machine), "10\n");
}

#[test]
fn unused_reservation_is_given_back_only_when_asked() {
    let machine = FakeMachine::new();
    machine.pool(unused(10));
    assert_eq!(reserve(&machine.roots(), &target(4)).unwrap(), Outcome::Unchanged { total: 10 });
    let exactly = Target { bound: Bound::Exactly, ..target(4) };
    assert_eq!(reserve(&machine.roots(), &exactly).unwrap(), Outcome::Done { before: 10, now: 4 });
}

#[test]
fn raise_on_one_node_leaves_the_other() {
    let machine = FakeMachine::new();
    machine.pool(unused(2));
    machine.node(0, unused(1));
    machine.node(1, unused(1));
    let outcome = reserve(&machine.roots(), &Target { node: Some(1), ..target(8) }).unwrap();
    assert_eq!(outcome, Outcome::Done { before: 1, now: 8 });
    let node = |id| format!("sys/devices/system/node/node{id}/hugepages/hugepages-2048kB/nr_hugepages");
    assert_eq!((at(&node(0), &machine), at(&node(1), &machine)), ("1\n".to_owned(), "8\n".to_owned()));
    assert_eq!(at(TOTAL, &machine), "2\n");
}

#[test]
fn another_raise_while_waiting_is_not_undone() {
    let machine = FakeMachine::new();
    machine.pool(unused(0));
    let holder = File::options().write(true).open(machine.path(TOTAL)).unwrap();
    holder.lock().unwrap();
    let roots = machine.roots();
    let waiting = std::thread::spawn(move || reserve(&roots, &target(4)));
    // Long enough that the other thread has read 0 and waits; if it were slower, it would read 8,
    // which must give the same result.
    std::thread::sleep(std::time::Duration::from_millis(50));
    fs::write(machine.path(TOTAL), "8\n").unwrap();
    holder.unlock().unwrap();
    assert_eq!(waiting.join().unwrap().unwrap(), Outcome::Unchanged { total: 8 });
}

#[test]
fn failed_writes_are_sorted_by_remedy() {
    let sort = |errno| ReserveError::from_write(Path::new("/x"), io::Error::from_raw_os_error(errno));
    assert!(matches!(sort(libc::EACCES), ReserveError::NotRoot(_)));
    assert!(matches!(sort(libc::EPERM), ReserveError::NotRoot(_)));
    assert!(matches!(sort(libc::EROFS), ReserveError::ReadOnly(_)));
    assert!(matches!(sort(libc::EINVAL), ReserveError::Write(..)));
}

#[test]
fn node_is_part_of_the_boot_parameters() {
    let target = Target { node: Some(1), page_size: ONE_GIB, ..target(4) };
    assert_eq!(boot_parameters(&target), "hugepagesz=1G hugepages=1:4");
}
