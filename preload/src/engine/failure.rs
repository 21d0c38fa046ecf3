//! The end of an engine by a panic of its own code: its sockets end, the device goes back to the
//! kernel, and the program goes on.

use core::ffi::{c_int, c_uint};
use core::panic::AssertUnwindSafe;
use core::sync::atomic::{AtomicBool, Ordering};
use std::panic::{self, catch_unwind};
use std::sync::{Mutex, Once, PoisonError};

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
            let _ = catch_unwind(AssertUnwindSafe(|| stack.call(|sockets, cx| sockets.reset_all(cx))));
            let _ = catch_unwind(AssertUnwindSafe(|| stack.call(|sockets, _| sockets.give_port_back())));
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
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for fd in theirs {
        let file = std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap_or_default();
        let file = file.to_string_lossy().into_owned();
        if file.starts_with("socket:") {
            // The rings of an AF_XDP socket keep it alive.
            for line in maps.lines().filter(|line| line.ends_with(&file)) {
                sys::unmap_line(line);
            }
        }
        let _ = sys::dup3(nothing, fd, libc::O_CLOEXEC);
    }
    sys::close(nothing);
}

/// Runs what may panic before there is an engine. Returns the words of the panic.
pub(crate) fn guard<T>(act: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        // A panic within the engine becomes one sentence of ours, and not several lines of std's.
        let default = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if thread::is_inside() {
                let words = info.to_string().replace('\n', " ");
                *LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner) = words;
            } else {
                default(info);
            }
        }));
    });
    catch_unwind(AssertUnwindSafe(act)).map_err(|_| last_panic())
}

/// The words of the last panic within the engine.
static LAST_PANIC: Mutex<String> = Mutex::new(String::new());

fn last_panic() -> String {
    core::mem::take(&mut *LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Panics where a test asks for it.
pub(crate) fn panic_in_tests(place: &str) {
    assert!(!(cfg!(feature = "testing") && config::is_panic_asked_for(place)), "a test asks for it");
}
