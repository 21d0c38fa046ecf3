//! Inside `softhca run`: the counters, diagnoses and steps of this process's software ConnectX. The
//! preload library exports these functions; without it they do not exist.
//!
//! Invariants:
//! 1. `dlsym` finds symbols by name in the loaded objects, and these stay loaded; the signatures
//!    are those of the preload library (tests/softhca/preload/src/entry.rs).
//! 2. Texts are borrowed for the call, with a zero behind them or with their own length.

use std::ffi::{CStr, CString, c_char, c_int, c_void};

/// A count of all open devices together, `tx_frames`, or of one, `mlx5_1.tx_frames`. `None` outside
/// of `softhca run`, and where there is no such counter.
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

/// All mistakes of the program that the model has found, the oldest first.
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

/// Lets every open device do its due work; returns how much that was. With `--manual` only this
/// call moves frames.
pub fn step(budget: usize) -> usize {
    let Some(function) = symbol(c"softhca_step") else { return 0 };
    // SAFETY: 1.
    unsafe {
        let function: extern "C" fn(usize) -> usize = core::mem::transmute(function);
        function(budget)
    }
}

/// Objects that the program has in its devices, open descriptors included; 0 where none is left,
/// and outside of `softhca run`.
pub fn objects() -> usize {
    let Some(function) = symbol(c"softhca_objects") else { return 0 };
    // SAFETY: 1.
    unsafe {
        let function: extern "C" fn() -> usize = core::mem::transmute(function);
        function()
    }
}

/// Makes the kernel skip `skip` commands of this number (mlx5.md 3.4; `None`: any that does not
/// destroy) and refuse the next one with an errno; 0 cancels the refusal. Returns whether an
/// earlier refusal was still pending. Needs `--abi write`.
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
