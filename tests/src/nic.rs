//! Inside `softhca run`: what the software ConnectX of this process counts and complains of, and
//! its steps. The preload library exports these functions; outside of it they are not there.
//!
//! Invariants:
//! 1. `dlsym` finds symbols by name in what is loaded, and what it finds stays loaded; the
//!    signatures are those of the preload library (tests/softhca/preload/src/entry.rs).
//! 2. Texts are borrowed for the call, with a zero behind them or with their own length.

use std::ffi::{CStr, CString, c_char, c_int, c_void};

/// A count of all open devices together, `tx_frames`, or of one, `mlx5_1.tx_frames`. `None`
/// outside, and where nobody counts that.
pub fn counter(name: &str) -> Option<u64> {
    let function = symbol(c"softhca_counter")?;
    let name = CString::new(name).ok()?;
    // SAFETY: 1, 2.
    let count = unsafe {
        let function: unsafe extern "C" fn(*const c_char) -> u64 = core::mem::transmute(function);
        function(name.as_ptr())
    };
    (count != u64::MAX).then_some(count)
}

/// Everything that the model found wrong with what the program did, oldest first.
pub fn diagnoses() -> Vec<String> {
    let Some(function) = symbol(c"softhca_diagnosis") else { return Vec::new() };
    let mut sentences = Vec::new();
    loop {
        let mut text = [0u8; 512];
        // SAFETY: 1, 2.
        let len = unsafe {
            let function: unsafe extern "C" fn(*mut c_char, usize) -> usize = core::mem::transmute(function);
            function(text.as_mut_ptr().cast(), text.len())
        };
        if len == 0 {
            return sentences;
        }
        sentences.push(String::from_utf8_lossy(&text[..len.min(text.len())]).into_owned());
    }
}

/// Lets every open device do what became due; how much that was. With `--manual` nothing moves
/// otherwise.
pub fn step(budget: usize) -> usize {
    let Some(function) = symbol(c"softhca_step") else { return 0 };
    // SAFETY: 1.
    unsafe {
        let function: extern "C" fn(usize) -> usize = core::mem::transmute(function);
        function(budget)
    }
}

/// Objects that the program has in its devices, open descriptors included: 0 where nothing is left
/// behind, and outside.
pub fn objects() -> usize {
    let Some(function) = symbol(c"softhca_objects") else { return 0 };
    // SAFETY: 1.
    unsafe {
        let function: extern "C" fn() -> usize = core::mem::transmute(function);
        function()
    }
}

/// Has the kernel refuse the command of this number (mlx5.md 3.4; `None`: any but those that
/// destroy) that comes after `skip` of them, by one errno; 0 takes that back. Whether an earlier
/// such wish had not come true. Needs `--abi write`.
pub fn refuse(command: Option<u32>, skip: u32, errno: i32) -> bool {
    let Some(function) = symbol(c"softhca_refuse") else { return false };
    // SAFETY: 1.
    let answer = unsafe {
        let function: extern "C" fn(u32, u32, c_int) -> c_int = core::mem::transmute(function);
        function(command.unwrap_or(u32::MAX), skip, errno)
    };
    answer == 1
}

/// Pulls a device out, as a hot unplug does: whether there was one.
pub fn remove(name: &str) -> bool {
    let (Some(function), Ok(name)) = (symbol(c"softhca_remove"), CString::new(name)) else { return false };
    // SAFETY: 1, 2.
    let answer = unsafe {
        let function: unsafe extern "C" fn(*const c_char) -> c_int = core::mem::transmute(function);
        function(name.as_ptr())
    };
    answer == 1
}

fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: 2.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}
