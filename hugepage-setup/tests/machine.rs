//! The library and the binary on this machine's real hugepages. Reserving needs root; without it a
//! test prints a message.
//!
//! Other processes use the machine: at most 16 pages are reserved beyond the existing ones, and
//! they are released afterwards only if the count is still ours and none is in use.

#![allow(clippy::unwrap_used)] // a panic is the report
use std::fmt::Display;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use hugepages::{
    Bound, Machine, MapError, MapRequest, Mapping, ONE_GIB, Outcome, PageChoice, ReserveError, Roots, ShortageCause,
    TWO_MIB, Target,
};
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_hugepage-setup");
const NOBODY: u32 = 65534;

/// This many more free pages than before; released on drop. Only one test at a time has one, across
/// processes too.
struct Reservation {
    before: u64,
    now: u64,
    _turn: File,
}

impl Reservation {
    /// `None` after printing the reason.
    fn take(test: &str, pages: u64) -> Option<Self> {
        assert!(pages <= 16, "others use this machine");
        // A lock on the kernel's folder leaves nothing behind; reserve() itself locks a file
        // inside.
        let Ok(turn) = File::open("/sys/kernel/mm/hugepages") else {
            println!("SKIPPED {test}: this kernel has no hugepages");
            return None;
        };
        turn.lock().unwrap();
        let before = pool().persistent();
        let why: Box<dyn Display> = match hugepages::reserve(&Roots::default(), &target(before + pages, Bound::AtLeast))
        {
            Ok(Outcome::Done { now, .. }) => return Some(Self { before, now, _turn: turn }),
            Ok(other) => Box::new(format!("no {pages} more hugepages: {other:?}")),
            Err(why @ (ReserveError::NotRoot(_) | ReserveError::ReadOnly(_) | ReserveError::NoSuchPageSize { .. })) => {
                Box::new(why)
            }
            Err(why) => panic!("{why}"),
        };
        println!("SKIPPED {test}: {why}");
        None
    }

    /// Maps reserved pages. `None` after printing that another process took them first.
    fn map(&self, test: &str, request: &MapRequest) -> Option<Mapping> {
        match Mapping::map(&MapRequest { page: PageChoice::TwoMiB, ..request.clone() }) {
            Ok(mapping) => Some(mapping),
            Err(MapError::Shortage(shortage)) => {
                println!("SKIPPED {test}: somebody else took the pages: {shortage}");
                None
            }
            Err(why) => panic!("{why}"),
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if pool().persistent() != self.now {
            println!("hugepages are left as they are: somebody else changed their number meanwhile");
            return;
        }
        if let Err(why) = hugepages::reserve(&Roots::default(), &target(self.before, Bound::Exactly)) {
            println!("hugepages are not given back: {why}");
        }
    }
}

fn target(pages: u64, bound: Bound) -> Target {
    Target { page_size: TWO_MIB, node: None, pages, bound }
}

fn pool() -> hugepages::Pool {
    Machine::discover(&Roots::default()).unwrap().pool(TWO_MIB, None).copied().unwrap_or_default()
}

fn request(page: PageChoice, len: u64) -> MapRequest {
    MapRequest { page, ..MapRequest::new(len as usize) }
}

#[test]
fn mapped_hugepages_are_huge_zeroed_bound_and_locked() {
    let test = "mapped_hugepages_are_huge_zeroed_bound_and_locked";
    let Some(reservation) = Reservation::take(test, 8) else { return };
    let request = MapRequest { node: Some(0), lock: true, ..MapRequest::new(3 * TWO_MIB as usize - 5) };
    let Some(mut mapping) = reservation.map(test, &request) else { return };
    assert_eq!((mapping.len() as u64, mapping.page_size() as u64), (3 * TWO_MIB, TWO_MIB));
    assert_eq!((mapping.node(), mapping.locked()), (Some(0), true));
    assert!(mapping.fallback().is_none() && mapping.lock_warning().is_none());
    assert!(mapping.as_ptr().addr().get().is_multiple_of(TWO_MIB as usize));
    assert!(mapping.as_mut_slice().iter().all(|byte| *byte == 0));
    mapping.as_mut_slice().fill(7);
    // The kernel's view of this range: three huge pages, bound to node 0, all present.
    let numa_maps = fs::read_to_string("/proc/self/numa_maps").unwrap();
    let line = numa_maps.lines().find(|line| line.starts_with(&format!("{:x} ", mapping.as_ptr().addr()))).unwrap();
    assert!(line.contains("bind:0") && line.contains(" huge ") && line.contains("N0=3"), "{line}");
}

#[test]
fn best_takes_hugepages_where_there_are_some() {
    let test = "best_takes_hugepages_where_there_are_some";
    let Some(_reservation) = Reservation::take(test, 8) else { return };
    let mapping = Mapping::map(&request(PageChoice::Best, 1)).unwrap();
    match mapping.fallback() {
        Some(fallback) => println!("SKIPPED {test}: somebody else took the pages: {fallback}"),
        None => assert_eq!(mapping.page_size() as u64, TWO_MIB),
    }
}

#[test]
fn pages_in_use_cannot_be_given_back() {
    let test = "pages_in_use_cannot_be_given_back";
    let Some(reservation) = Reservation::take(test, 4) else { return };
    let Some(_mapping) = reservation.map(test, &MapRequest::new(1)) else { return };
    let result = hugepages::reserve(&Roots::default(), &target(reservation.before, Bound::Exactly));
    assert!(matches!(result, Err(ReserveError::InUse { .. })), "{result:?}");
    assert_eq!(pool().persistent(), reservation.now);
}

#[test]
fn missing_hugepages_fall_back_loudly() {
    // More than exist, even if other processes release or take some meanwhile.
    let wanted = pool().total + 32;
    let len = wanted * TWO_MIB;
    if len > ONE_GIB / 2 {
        println!("SKIPPED missing_hugepages_fall_back_loudly: so many hugepages that the fallback would be too large");
        return;
    }
    let Err(MapError::Shortage(shortage)) = Mapping::map(&request(PageChoice::TwoMiB, len)) else {
        panic!("there are not that many");
    };
    assert_eq!((shortage.wanted, shortage.cause), (wanted, ShortageCause::TooFew));
    let mapping = Mapping::map(&request(PageChoice::Best, len)).unwrap();
    let fallback = mapping.fallback().unwrap();
    println!("{fallback}");
    assert_eq!((mapping.page_size(), mapping.len() as u64), (4096, len));
    assert!(fallback.to_string().contains("hugepage-setup apply --pages"), "{fallback}");
}

#[test]
fn check_passes_where_a_page_can_be_mapped_and_apply_is_idempotent() {
    let test = "check_passes_where_a_page_can_be_mapped_and_apply_is_idempotent";
    let Some(reservation) = Reservation::take(test, 4) else { return };
    let pages = reservation.now.to_string();
    for (verb, words) in [("check", "one was mapped and touched"), ("apply", "Nothing to do")] {
        let output = Command::new(BINARY).args([verb, "--pages", &pages, "--node", "0"]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains(words), "{output:?}");
    }
}

#[test]
fn check_fails_where_pages_are_missing() {
    let pages = (pool().total + 1_000_000).to_string();
    let output = Command::new(BINARY).args(["check", "--pages", &pages]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[test]
fn child_process_does_not_inherit_the_mapping() {
    let mapping = Mapping::map(&request(PageChoice::Small, 1 << 20)).unwrap();
    let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
    let start = format!("{:x}-", mapping.as_ptr().addr());
    let flags = smaps.lines().skip_while(|line| !line.starts_with(&start)).find(|line| line.starts_with("VmFlags:"));
    assert!(flags.unwrap().contains(" dc "), "the kernel's mark for \"do not copy on fork\": {flags:?}");
}

/// True in the process started by [`again`].
fn is_again() -> bool {
    std::env::var_os("AGAIN").is_some()
}

/// Runs the test `name` of this file in a separate process, which `change` may give another user.
fn again(name: &str, change: impl FnOnce(&mut Command) -> &mut Command) {
    let folder = TempDir::new().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = folder.path().join("machine");
    // In a separate process: while we hold a file open for writing, a test that forks beside us
    // makes it "busy" to execute.
    assert!(Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&copy).status().unwrap().success());
    let mut command = Command::new(copy);
    command.args(["--exact", name, "--nocapture"]).env("AGAIN", "1").current_dir("/");
    match change(&mut command).output() {
        Err(why) if why.kind() == ErrorKind::PermissionDenied => {
            println!("SKIPPED {name}: cannot become another user ({why})");
        }
        output => {
            let output = output.unwrap();
            let words = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && words.contains("1 passed"), "{words}");
            for line in words.lines().filter(|line| line.contains("SKIPPED")) {
                println!("{line}");
            }
        }
    }
}

/// A user with a limit on locked memory, and without the privilege to exceed it.
fn as_nobody(command: &mut Command) -> &mut Command {
    command.uid(NOBODY).gid(NOBODY)
}

#[test]
fn refused_lock_is_a_warning_with_the_limit() {
    if !is_again() {
        return again("refused_lock_is_a_warning_with_the_limit", as_nobody);
    }
    let Some(limit) = Machine::discover(&Roots::default()).unwrap().memlock.soft.filter(|limit| *limit < 1 << 28)
    else {
        println!("SKIPPED refused_lock_is_a_warning_with_the_limit: memory may be locked without a limit here");
        return;
    };
    let mapping = Mapping::map(&MapRequest { lock: true, ..request(PageChoice::Small, limit + 4096) }).unwrap();
    let warning = mapping.lock_warning().unwrap().to_string();
    assert!(!mapping.locked());
    for part in ["RLIMIT_MEMLOCK", "ulimit -l", "/etc/security/limits.conf", "LimitMEMLOCK"] {
        assert!(warning.contains(part), "{part} is not in: {warning}");
    }
    // A single page can be locked, so the limit was the cause.
    let mapping = Mapping::map(&MapRequest { lock: true, ..request(PageChoice::Small, 4096) }).unwrap();
    assert!(mapping.locked());
}

#[test]
fn lock_all_names_the_limit_when_refused() {
    if !is_again() {
        return again("lock_all_names_the_limit_when_refused", as_nobody);
    }
    // More memory than may be locked, so that the kernel has to refuse.
    let limit = Machine::discover(&Roots::default()).unwrap().memlock.soft;
    let Some(limit) = limit.filter(|limit| *limit < 1 << 28) else {
        println!("SKIPPED lock_all_names_the_limit_when_refused: memory may be locked without a limit here");
        return;
    };
    let _beyond = Mapping::map(&request(PageChoice::Small, limit + 4096)).unwrap();
    let error = hugepages::lock_all().unwrap_err();
    assert!(error.to_string().contains("mlockall"), "{error}");
}

#[test]
fn process_under_a_limit_can_allocate_after_lock_all() {
    let test = "process_under_a_limit_can_allocate_after_lock_all";
    if !is_again() {
        // With one thread and one heap the process has less memory than the usual limit of 8 MiB,
        // so the kernel itself would lock all of it, and then refuse later allocations.
        return again(test, |command| as_nobody(command.env("MALLOC_ARENA_MAX", "1").arg("--test-threads=1")));
    }
    let limit = Machine::discover(&Roots::default()).unwrap().memlock.soft;
    let Some(limit) = limit.filter(|limit| *limit < 1 << 28) else {
        println!("SKIPPED {test}: memory may be locked without a limit here");
        return;
    };
    let refused = hugepages::lock_all().is_err();
    let allocated = Vec::<u8>::new().try_reserve_exact(limit as usize + 4096).is_ok();
    assert_eq!((refused, allocated), (true, true));
}

#[test]
fn lock_all_locks_what_comes_later_too() {
    if !is_again() {
        return again("lock_all_locks_what_comes_later_too", |command| command);
    }
    if let Err(why) = hugepages::lock_all() {
        println!("SKIPPED lock_all_locks_what_comes_later_too: {why}");
        return;
    }
    let locked_kilobytes = || -> u64 {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmLck:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    let before = locked_kilobytes();
    let _mapping = Mapping::map(&request(PageChoice::Small, 8 << 20)).unwrap();
    assert!(before > 0 && locked_kilobytes() >= before + 8192, "{before} kB, then {} kB", locked_kilobytes());
}

#[test]
fn reservation_without_root_is_refused_as_such() {
    if !is_again() {
        return again("reservation_without_root_is_refused_as_such", as_nobody);
    }
    let pages = pool().persistent() + 1;
    let result = hugepages::reserve(&Roots::default(), &target(pages, Bound::AtLeast));
    match result {
        Err(ReserveError::NotRoot(_)) => {}
        Err(why @ (ReserveError::ReadOnly(_) | ReserveError::NoSuchPageSize { .. })) => {
            println!("SKIPPED reservation_without_root_is_refused_as_such: {why}");
        }
        other => panic!("nobody may not reserve: {other:?}"),
    }
}
