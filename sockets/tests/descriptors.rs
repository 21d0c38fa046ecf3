//! Descriptors: the state that `dup` shares, and the close that ends a file.
#![allow(clippy::unwrap_used)] // a panic here is the report

use sockets::{Closed, Descriptors, Errno, File};

const FILE: File = File::Epoll(3);

fn one() -> Descriptors {
    let mut table = Descriptors::new();
    assert!(table.open(5, FILE, false, false).unwrap().is_none());
    table
}

fn is_last(closed: Result<Closed, Errno>) -> bool {
    matches!(closed, Ok(Closed::Last(FILE)))
}

#[test]
fn duplicate_shares_the_status_flags_and_not_close_on_exec() {
    let mut table = one();
    table.duplicate(5, 9, true).unwrap();
    table.get(9).unwrap().nonblocking.set(true);
    assert!(table.get(5).unwrap().nonblocking.get());
    assert_eq!([5, 9].map(|fd| table.closes_on_exec(fd)), [Ok(false), Ok(true)]);
}

#[test]
fn last_descriptor_ends_the_file() {
    let mut table = one();
    table.duplicate(5, 9, false).unwrap();
    assert!(matches!(table.close(5), Ok(Closed::Shared)));
    assert!(table.get(5).is_none() && table.get(9).is_some());
    assert!(is_last(table.close(9)));
    assert_eq!(table.close(9).err(), Some(Errno::EBADF));
}

#[test]
fn duplicate_onto_a_descriptor_closes_what_that_named() {
    let mut table = one();
    table.open(9, File::Epoll(4), false, false).unwrap();
    assert!(matches!(table.duplicate(5, 9, false), Ok(Some(Closed::Last(File::Epoll(4))))));
    assert_eq!(table.get(9).unwrap().file, FILE);
}

#[test]
fn duplicate_onto_itself_changes_nothing() {
    let mut table = one();
    assert!(table.duplicate(5, 5, true).unwrap().is_none());
    assert!(is_last(table.close(5)));
}

#[test]
fn number_that_is_not_ours_is_none_of_ours() {
    let mut table = one();
    assert!([-1, 4, 6, i32::MAX].iter().all(|fd| table.get(*fd).is_none()));
    assert_eq!(table.duplicate(4, 9, false).err(), Some(Errno::EBADF));
    assert_eq!(table.open(-1, FILE, false, false).err(), Some(Errno::EBADF));
}

#[test]
fn exec_ends_what_closes_then() {
    let mut table = one();
    table.duplicate(5, 600, true).unwrap();
    let mut ended = Vec::new();
    table.exec(|fd, _| ended.push(fd));
    assert_eq!((ended, table.get(5).is_some()), (vec![600], true));
}

#[test]
fn close_range_ends_ours_within_it() {
    let mut table = one();
    for fd in [2, 3, 255, 256, 9_000] {
        table.open(fd, FILE, false, false).unwrap();
    }
    let mut ended = Vec::new();
    table.close_range(3, i32::MAX, |fd, _| ended.push(fd));
    assert_eq!((ended, table.get(2).is_some()), (vec![3, 5, 255, 256, 9_000], true));
}
