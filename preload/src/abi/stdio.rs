//! Streams of stdio over offloaded sockets. libc reads, writes and closes a stream's descriptor by
//! internal calls that do not pass our symbols, so a stream over a socket gets functions that call
//! ours (`fopencookie`).
//!
//! Invariants:
//! 1. Those of `abi`: the types are libc's, and the caller keeps the promises of libc's functions.
//! 2. The functions of a stream get the cookie that the stream was made with, its descriptor, and
//!    buffers of libc's own.

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::descriptors::close;
use super::receive::read;
use super::send::write;
use super::{made, may_be_ours};
use crate::engine::table;
use crate::real::{self, Count, fail};

symbols! {
    fn fdopen(fd: c_int, mode: *const c_char) -> *mut libc::FILE {
        if table::find_possible(fd).is_none() || !may_be_ours() {
            return pass!(real::fdopen(fd, mode));
        }
        let functions = Functions { read: read_cookie, write: write_cookie, seek: seek_cookie, close: close_cookie };
        let stream = pass!(fopencookie(fd as usize as *mut c_void, mode, functions));
        if !stream.is_null() {
            let mut streams = STREAMS.lock().unwrap_or_else(PoisonError::into_inner);
            streams.push((stream as usize, fd));
            COUNT.store(streams.len(), Ordering::Release);
        }
        stream
    }

    fn fopen(path: *const c_char, mode: *const c_char) -> *mut libc::FILE {
        let stream = pass!(real::fopen(path, mode));
        if !stream.is_null() && may_be_ours() {
            made(pass!(real::fileno(stream)));
        }
        stream
    }

    fn fopen64(path: *const c_char, mode: *const c_char) -> *mut libc::FILE {
        pass!(fopen(path, mode))
    }

    fn fileno(stream: *mut libc::FILE) -> c_int {
        descriptor_of(stream).unwrap_or_else(|| pass!(real::fileno(stream)))
    }

    fn fileno_unlocked(stream: *mut libc::FILE) -> c_int {
        pass!(fileno(stream))
    }
}

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
}

/// Streams over descriptors that may be offloaded, and the descriptor of each.
static STREAMS: Mutex<Vec<(usize, c_int)>> = Mutex::new(Vec::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn descriptor_of(stream: *mut libc::FILE) -> Option<c_int> {
    if COUNT.load(Ordering::Acquire) == 0 {
        return None;
    }
    let streams = STREAMS.lock().unwrap_or_else(PoisonError::into_inner);
    streams.iter().find(|(known, _)| *known == stream as usize).map(|(_, fd)| *fd)
}

extern "C-unwind" fn read_cookie(cookie: *mut c_void, into: *mut c_void, len: usize) -> Count {
    pass!(read(cookie as usize as c_int, into, len))
}

/// Returns the number of written bytes: libc takes 0 as an error.
extern "C-unwind" fn write_cookie(cookie: *mut c_void, bytes: *const c_void, len: usize) -> Count {
    let mut written = 0;
    while written < len {
        // SAFETY: invariant 2; `written` is less than `len`.
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
    {
        let mut streams = STREAMS.lock().unwrap_or_else(PoisonError::into_inner);
        // No other stream over this descriptor is open: to close a descriptor twice is the
        // program's error.
        streams.retain(|(_, other)| *other != fd);
        COUNT.store(streams.len(), Ordering::Release);
    }
    pass!(close(fd))
}
