//! Streams of stdio over offloaded sockets. libc reads, writes and closes a stream's descriptor by
//! internal calls that do not pass our symbols, so a stream over a socket gets functions that call
//! ours (`fopencookie`).
//!
//! Invariants:
//! 1. Those of `abi`: the types are libc's, and the caller keeps the promises of libc's functions.
//! 2. A `va_list` is passed as a pointer to at most `LIST_LEN` bytes, on x86-64 because it is an
//!    array, on aarch64 because it is a structure of more than 16 bytes; a copy of its bytes is a
//!    copy of the list (`va_copy`).
//! 3. The functions of a stream get the cookie that the stream was made with, its descriptor, and
//!    buffers of libc's own.
//! 4. A stream is in the table until it is closed, and libc locks it before it closes it.

#[cfg(target_arch = "x86_64")]
use core::arch::naked_asm;
use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::descriptors::close;
use super::receive::read;
use super::send::write;
use super::{is_ours, made, may_be_ours};
use crate::engine::{table, thread};
use crate::real::{self, Count, fail};

symbols! {
    fn fdopen(fd: c_int, mode: *const c_char) -> *mut libc::FILE {
        if table::find_possible(fd).is_none() || !may_be_ours() {
            return pass!(real::fdopen(fd, mode));
        }
        let functions = Functions { read: read_cookie, write: write_cookie, seek: seek_cookie, close: close_cookie };
        let stream = pass!(fopencookie(fd as usize as *mut c_void, mode, functions));
        if !stream.is_null() {
            with_streams(|streams| streams.push((stream as usize, fd)));
        }
        stream
    }

    fn _IO_fdopen(fd: c_int, mode: *const c_char) -> *mut libc::FILE {
        pass!(fdopen(fd, mode))
    }

    fn fopen(path: *const c_char, mode: *const c_char) -> *mut libc::FILE {
        let stream = pass!(real::fopen(path, mode));
        if !stream.is_null() && may_be_ours() {
            made(pass!(real::fileno(stream)));
        }
        stream
    }

    fn _IO_fopen(path: *const c_char, mode: *const c_char) -> *mut libc::FILE {
        pass!(fopen(path, mode))
    }

    fn fopen64(path: *const c_char, mode: *const c_char) -> *mut libc::FILE {
        pass!(fopen(path, mode))
    }

    fn fileno(stream: *mut libc::FILE) -> c_int {
        descriptor_of(stream).unwrap_or_else(|| pass!(real::fileno(stream)))
    }

    fn vdprintf(fd: c_int, format: *const c_char, arguments: *mut c_void) -> c_int {
        if !is_ours(fd) {
            return pass!(real::vdprintf(fd, format, arguments));
        }
        print(fd, arguments, |into, len, arguments| pass!(vsnprintf(into, len, format, arguments)))
    }

    fn __vdprintf_chk(fd: c_int, flag: c_int, format: *const c_char, arguments: *mut c_void) -> c_int {
        if !is_ours(fd) {
            return pass!(real::__vdprintf_chk(fd, flag, format, arguments));
        }
        print(fd, arguments, |into, len, arguments| pass!(__vsnprintf_chk(into, len, flag, usize::MAX, format, arguments)))
    }

    fn fileno_unlocked(stream: *mut libc::FILE) -> c_int {
        pass!(fileno(stream))
    }
}

/// Bytes of a `va_list`: 24 on x86-64, 32 on aarch64.
const LIST_LEN: usize = 32;

unsafe extern "C" {
    fn vsnprintf(into: *mut c_char, len: usize, format: *const c_char, arguments: *mut c_void) -> c_int;
    fn __vsnprintf_chk(
        into: *mut c_char,
        len: usize,
        flag: c_int,
        room: usize,
        format: *const c_char,
        arguments: *mut c_void,
    ) -> c_int;
}

/// Sends formatted text; `format` formats it as `vsnprintf` does.
fn print(fd: c_int, arguments: *mut c_void, format: impl Fn(*mut c_char, usize, *mut c_void) -> c_int) -> c_int {
    // A list is used up when it is read, and the text's length is needed first.
    let mut copy = [0_usize; LIST_LEN / size_of::<usize>()];
    // SAFETY: invariant 2. The bytes behind a shorter list are the caller's frame, which is there.
    unsafe { core::ptr::copy_nonoverlapping(arguments.cast(), copy.as_mut_ptr(), copy.len()) };
    let Ok(len) = usize::try_from(format(core::ptr::null_mut(), 0, copy.as_mut_ptr().cast())) else { return -1 };
    let mut text = vec![0_u8; len + 1];
    format(text.as_mut_ptr().cast(), text.len(), arguments);
    match write_cookie(fd as usize as *mut c_void, text.as_ptr().cast(), len) {
        sent if sent == len as Count => sent as c_int,
        _ => -1,
    }
}

// `dprintf` and `__dprintf_chk` put their arguments into a `va_list`, because Rust defines no
// variadic functions. On x86-64 (System V ABI 3.5.7): the six registers of integers, then the eight
// of floating point where AL says that there are any; the list has the offsets of the first
// argument in both, and where the others are.
#[cfg(target_arch = "x86_64")]
macro_rules! print_to {
    ($name:ident, $list:ident, $into:literal, $named:literal) => {
        #[doc = concat!("`", stringify!($name), "`.\n\n# Safety\nAs libc's.")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name() {
            naked_asm!(
                ".cfi_startproc",
                "sub rsp, 216",
                ".cfi_adjust_cfa_offset 216",
                "mov [rsp + 32], rdi",
                "mov [rsp + 40], rsi",
                "mov [rsp + 48], rdx",
                "mov [rsp + 56], rcx",
                "mov [rsp + 64], r8",
                "mov [rsp + 72], r9",
                "test al, al",
                "je 2f",
                "movaps [rsp + 80], xmm0",
                "movaps [rsp + 96], xmm1",
                "movaps [rsp + 112], xmm2",
                "movaps [rsp + 128], xmm3",
                "movaps [rsp + 144], xmm4",
                "movaps [rsp + 160], xmm5",
                "movaps [rsp + 176], xmm6",
                "movaps [rsp + 192], xmm7",
                "2:",
                concat!("mov dword ptr [rsp], ", $named),
                "mov dword ptr [rsp + 4], 48",
                "lea rax, [rsp + 224]",
                "mov [rsp + 8], rax",
                "lea rax, [rsp + 32]",
                "mov [rsp + 16], rax",
                concat!("mov ", $into, ", rsp"),
                "call {list}",
                "add rsp, 216",
                ".cfi_adjust_cfa_offset -216",
                "ret",
                ".cfi_endproc",
                list = sym $list,
            );
        }
    };
}

#[cfg(target_arch = "x86_64")]
print_to!(dprintf, vdprintf, "rdx", "16");
#[cfg(target_arch = "x86_64")]
print_to!(__dprintf_chk, __vdprintf_chk, "rcx", "24");

/// `cookie_io_functions_t`
#[repr(C)]
struct Functions {
    read: extern "C-unwind" fn(*mut c_void, *mut c_void, usize) -> Count,
    write: extern "C-unwind" fn(*mut c_void, *const c_void, usize) -> Count,
    seek: extern "C-unwind" fn(*mut c_void, *mut i64, c_int) -> c_int,
    close: extern "C-unwind" fn(*mut c_void) -> c_int,
}

unsafe extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> *mut libc::FILE;
    fn ftrylockfile(stream: *mut libc::FILE) -> c_int;
    fn funlockfile(stream: *mut libc::FILE);
}

/// Streams over descriptors that may be offloaded, and the descriptor of each.
type Streams = Vec<(usize, c_int)>;
static STREAMS: Mutex<Streams> = Mutex::new(Vec::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The locked table of streams.
pub(crate) struct StreamTable(MutexGuard<'static, Streams>);

/// Locks the table, so that a child of `fork` finds it unlocked. The caller has blocked signals.
pub(crate) fn lock_streams() -> StreamTable {
    StreamTable(STREAMS.lock().unwrap_or_else(PoisonError::into_inner))
}

impl Drop for StreamTable {
    fn drop(&mut self) {
        COUNT.store(self.0.len(), Ordering::Release);
    }
}

/// Calls `act` with the table. Signals are kept meanwhile, because a handler may ask for a stream's
/// descriptor, or fork.
fn with_streams<T>(act: impl FnOnce(&mut Streams) -> T) -> T {
    thread::enter();
    let done = act(&mut lock_streams().0);
    thread::leave();
    done
}

/// Writes what the streams hold. One that another thread is within is left out: it may wait there
/// for input.
pub(crate) fn flush_streams() {
    if COUNT.load(Ordering::Acquire) == 0 {
        return;
    }
    // Locked before the table is left, so that no other thread closes one of them.
    let locked: Vec<usize> = with_streams(|streams| {
        let all = streams.iter().map(|(stream, _)| *stream);
        // SAFETY: invariant 4.
        all.filter(|stream| unsafe { ftrylockfile(*stream as *mut libc::FILE) } == 0).collect()
    });
    for stream in locked {
        let stream = stream as *mut libc::FILE;
        // SAFETY: invariant 4; this thread has locked the stream.
        unsafe {
            libc::fflush(stream);
            funlockfile(stream);
        }
    }
}

fn descriptor_of(stream: *mut libc::FILE) -> Option<c_int> {
    if COUNT.load(Ordering::Acquire) == 0 {
        return None;
    }
    with_streams(|streams| streams.iter().find(|(known, _)| *known == stream as usize).map(|(_, fd)| *fd))
}

extern "C-unwind" fn read_cookie(cookie: *mut c_void, into: *mut c_void, len: usize) -> Count {
    pass!(read(cookie as usize as c_int, into, len))
}

/// Returns the number of written bytes: libc takes 0 as an error.
extern "C-unwind" fn write_cookie(cookie: *mut c_void, bytes: *const c_void, len: usize) -> Count {
    let mut written = 0;
    while written < len {
        // SAFETY: invariant 3; `written` is less than `len`.
        match unsafe { write(cookie as usize as c_int, bytes.byte_add(written), len - written) } {
            count @ 1.. => written += count as usize,
            _ => break,
        }
    }
    written as Count
}

extern "C-unwind" fn seek_cookie(_: *mut c_void, _: *mut i64, _: c_int) -> c_int {
    fail(sockets::Errno(libc::ESPIPE)) as c_int
}

extern "C-unwind" fn close_cookie(cookie: *mut c_void) -> c_int {
    let fd = cookie as usize as c_int;
    // No other stream over this descriptor is open: to close a descriptor twice is the program's
    // error.
    with_streams(|streams| streams.retain(|(_, other)| *other != fd));
    pass!(close(fd))
}
