//! The end of an engine by a panic of its own code: its sockets end, the device goes back to the
//! kernel, and the program goes on.

use core::cell::Cell;
use core::ffi::{c_int, c_uint};
use core::panic::AssertUnwindSafe;
use core::sync::atomic::{AtomicBool, Ordering};
use std::panic::{self, PanicHookInfo, catch_unwind};
use std::sync::Once;

use sockets::Errno;

use super::{Engine, State, sets, table, thread};
use crate::{config, sys};

/// An engine has failed. The device's descriptors and memory are taken back all together, so that
/// the others fail too, when a thread next enters them.
static HAS_FAILED: AtomicBool = AtomicBool::new(false);

impl Engine {
    /// Fails if another engine has.
    #[inline]
    pub(super) fn fail_with_others(&mut self) {
        if HAS_FAILED.load(Ordering::Relaxed) && self.is_open() {
            let _: Result<(), Errno> = self.fail();
        }
    }

    /// Ends the engine, after its code has panicked.
    pub(super) fn fail<T>(&mut self) -> Result<T, Errno> {
        let words = last_panic();
        if let State::Open(stack) = core::mem::replace(&mut self.state, State::Failed) {
            // Peers are reset, if it can do that still.
            let _ = guard(|| stack.call(|sockets, cx| sockets.reset_all(cx)));
            let _ = guard(|| stack.call(|sockets, _| sockets.give_port_back()));
            // Its memory may be inconsistent, so it is not dropped. What it has of the kernel is
            // given back all the same, so that frames are the kernel's, and the queue is free.
            core::mem::forget(stack);
            give_device_back();
        }
        sets::forget_parts(self.number, true);
        self.wake_all();
        if !HAS_FAILED.swap(true, Ordering::Relaxed) {
            config::say(format_args!(
                "wirepath has failed ({words}): its sockets end with EIO, and new ones are the kernel's"
            ));
        }
        Err(Errno(libc::EIO))
    }
}

/// Takes the files of a failed device from its descriptors and mappings. The numbers stay taken,
/// because threads of the device may still use them.
fn give_device_back() {
    let Ok(nothing) = sys::eventfd() else { return };
    let theirs: Vec<c_int> = table::in_range(0, c_uint::MAX).filter(|fd| table::is_of_device(*fd)).collect();
    unmap_rings(&theirs);
    for fd in theirs {
        let _ = sys::dup3(nothing, fd, libc::O_CLOEXEC);
    }
    sys::close(nothing);
}

/// Takes the rings of those AF_XDP sockets among the device's descriptors from this process: they
/// would keep the sockets alive.
pub(crate) fn unmap_rings(fds: &[c_int]) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for fd in fds {
        let file = std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap_or_default();
        let file = file.to_string_lossy().into_owned();
        if file.starts_with("socket:") {
            maps.lines().filter(|line| line.ends_with(&file)).for_each(sys::unmap_line);
        }
    }
}

/// Runs what may panic before there is an engine. Returns the words of the panic.
pub(crate) fn guard<T>(act: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        // A panic within the engine becomes one sentence of ours, and not several lines of std's.
        let default = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let before = last_panic();
            // Unwinding may have left the engine before it came to where it must not go on.
            if !thread::is_inside() && before.is_empty() {
                return default(info);
            }
            let words = info.to_string().replace('\n', " ");
            let words = if before.is_empty() { words } else { format!("{before}; then {words}") };
            if is_the_end(info) {
                config::say(format_args!("wirepath has failed, and the program ends ({words})"));
            } else {
                let _ = LAST_PANIC.try_with(|last| last.set(words));
            }
        }));
    });
    catch_unwind(AssertUnwindSafe(act)).map_err(|_| last_panic())
}

/// Whether nobody will catch the panic: where one must not unwind, std panics once more, in these
/// words, and aborts.
fn is_the_end(info: &PanicHookInfo<'_>) -> bool {
    let words = info.payload_as_str().unwrap_or_default();
    words == "panic in a function that cannot unwind" || words == "panic in a destructor during cleanup"
}

thread_local! {
    /// The words of the panics within the engine since the last one that was caught: several, if
    /// destructors panicked while one unwound.
    static LAST_PANIC: Cell<String> = const { Cell::new(String::new()) };
}

fn last_panic() -> String {
    LAST_PANIC.try_with(Cell::take).unwrap_or_default()
}

/// Panics where a test asks for it.
pub(crate) fn panic_in_tests(place: &str) {
    assert!(!(cfg!(feature = "testing") && config::is_panic_asked_for(place)), "a test asks for it");
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use super::*;

    /// Panics where it cannot unwind: in a function of C's, or in a destructor during the unwinding
    /// of another panic. As a process of its own, because it ends that.
    fn end_of(test: &str, panics: fn()) -> Option<String> {
        if env::var_os("PANICS").is_some() {
            config::note_standard_error();
            thread::enter();
            let _ = guard(panics);
            return None;
        }
        let mut child = Command::new(env::current_exe().unwrap());
        let child = child.args(["--exact", test, "--nocapture"]).env("PANICS", "1").output().unwrap();
        let said = String::from_utf8_lossy(&child.stderr).into_owned();
        assert_eq!(child.status.signal(), Some(libc::SIGABRT), "{said}");
        Some(said.lines().filter(|line| line.starts_with("wirepath: ")).collect())
    }

    #[test]
    fn panic_in_a_function_of_c_is_said_before_the_program_ends() {
        extern "C" fn callback() {
            panic!("one of two");
        }
        let test = "engine::failure::tests::panic_in_a_function_of_c_is_said_before_the_program_ends";
        let Some(said) = end_of(test, || callback()) else { return };
        assert!(said.starts_with("wirepath: wirepath has failed, and the program ends ("), "{said}");
        assert!(said.contains("one of two") && said.contains("cannot unwind"), "{said}");
    }

    #[test]
    fn both_panics_of_a_destructor_during_a_panic_are_said_before_the_program_ends() {
        struct Panics;
        impl Drop for Panics {
            fn drop(&mut self) {
                panic!("two of two");
            }
        }
        let test =
            "engine::failure::tests::both_panics_of_a_destructor_during_a_panic_are_said_before_the_program_ends";
        let panics = || {
            let _panics = Panics;
            panic!("one of two");
        };
        let Some(said) = end_of(test, panics) else { return };
        assert!(said.starts_with("wirepath: wirepath has failed, and the program ends ("), "{said}");
        assert!(said.contains("one of two") && said.contains("two of two"), "{said}");
    }

    #[test]
    fn panic_that_a_destructor_catches_does_not_replace_the_first() {
        struct Catches;
        impl Drop for Catches {
            fn drop(&mut self) {
                let _ = catch_unwind(|| panic!("two of two"));
            }
        }
        thread::enter();
        let words = guard(|| {
            let _catches = Catches;
            panic!("one of two");
        });
        thread::leave();
        let words = words.map(|()| String::new()).unwrap_err();
        assert!(words.contains("one of two") && words.contains("two of two"), "{words}");
    }
}
