//! The symbols of libc that stand in front of libc's. Each checks whether the descriptor is an
//! offloaded socket, and else passes the call on. They are `unsafe` to call, because libc's
//! functions are.
//!
//! Invariants:
//! 1. Each has the type of libc's function of that name. Variadic functions (`fcntl`, `ioctl`,
//!    `syscall`) take as many arguments as the longest use: on x86-64 and aarch64 variadic and
//!    fixed arguments of these types are passed in the same registers.
//! 2. The caller keeps the promises of libc's function; `memory` makes slices of its pointers.
//! 3. Nothing is allocated or locked before the constructor has run, nor for a descriptor of the
//!    kernel.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering};

use sockets::Errno;

use crate::address::{self, Address};
use crate::calls::offload::PeerCall;
use crate::calls::{self, Outcome};
use crate::engine::table::{self, FileId};
use crate::engine::{signals, thread};
use crate::real::{self, Count, fail};
use crate::{config, process, sys};

/// Set once the constructor has run, if the environment names an interface.
static IS_ON: AtomicBool = AtomicBool::new(false);

#[unsafe(link_section = ".init_array")]
#[used]
static CONSTRUCTOR: extern "C" fn() = {
    extern "C" fn begin() {
        real::look_up();
        config::note_standard_error();
        if config::get().is_some() {
            process::begin();
            IS_ON.store(true, Ordering::Release);
            signals::adopt();
            calls::inherited::record();
            calls::offload::open_first();
        }
    }
    begin
};

/// The file of an offloaded descriptor; `None` within the engine, whose own calls pass through.
#[inline]
fn ours(fd: c_int) -> Option<FileId> {
    let (file, is_parents) = table::find_offloaded(fd)?;
    if thread::is_inside() {
        return None;
    }
    if is_parents || !process::is_owner() {
        process::say_that_child_has_none(file);
        return None;
    }
    calls::left::take_up_if_left(file);
    Some(file)
}

/// As [`ours`], without epoll sets: what reads or writes bytes of one is the kernel's, an error.
#[inline]
fn our_socket(fd: c_int) -> Option<FileId> {
    ours(fd).filter(|file| !file.is_set())
}

/// The file of a descriptor that is offloaded or may become so.
#[inline]
fn known(fd: c_int) -> Option<FileId> {
    let file = table::find_possible(fd)?;
    if thread::is_inside() || !process::is_owner() {
        return None;
    }
    calls::left::take_up_if_left(file);
    Some(file)
}

/// Whether a rule refuses what a socket of the kernel is to do with this address. The address is
/// read last: what the library has nothing to do with, the kernel reads.
fn is_refused(fd: c_int, (address, len): (*const c_void, u32), call: PeerCall) -> bool {
    let Some(file) = table::find(fd).filter(|file| !file.is_set() && may_be_ours()) else { return false };
    if !config::get().is_some_and(|config| config.may_refuse) {
        return false;
    }
    match memory::address_of(address, len).map(address::parse) {
        Ok(Address::V4(remote)) => calls::offload::is_kept_and_refused(file, remote, call),
        Ok(Address::Unspecified | Address::Other) | Err(_) => false,
    }
}

/// Whether a descriptor of the program may be offloaded, or become so.
fn may_be_ours() -> bool {
    IS_ON.load(Ordering::Acquire) && !thread::is_inside() && process::is_owner()
}

/// Whether a new descriptor may become offloaded. One of a child of `vfork` may not: the child
/// shares our memory, and not our descriptors.
fn new_may_be_ours() -> bool {
    may_be_ours() && process::is_owner_by_pid()
}

/// Converts a result into libc's return value and `errno`.
fn give(result: Result<usize, Errno>) -> Count {
    result.map_or_else(fail, |value| value as Count)
}

fn give_none(result: Result<(), Errno>) -> c_int {
    give(result.map(|()| 0)) as c_int
}

/// Handles a descriptor that the kernel has just returned: the table forgets an older file of that
/// number, and the engine's own descriptors move to high numbers.
fn made(fd: c_int) -> c_int {
    if fd > 2 && IS_ON.load(Ordering::Acquire) && thread::is_inside() {
        return thread::move_high(fd);
    }
    process::given(fd);
    fd
}

/// Defines the symbols: `fn name(arguments) -> type { body }`.
macro_rules! symbols {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty $body:block)*) => {
        $(
            #[doc = concat!("`", stringify!($name), "`.\n\n# Safety\nAs libc's.")]
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result $body
        )*
    };
}

/// Passes a call on with the caller's arguments.
macro_rules! pass {
    ($call:expr) => {{
        // SAFETY: invariants 1 and 2: the caller keeps the promises of libc's function.
        unsafe { $call }
    }};
}

#[allow(unsafe_code)]
pub mod descriptors;
#[allow(unsafe_code)]
pub mod exec;
#[allow(unsafe_code)]
pub mod files;
#[allow(unsafe_code)]
mod memory;
#[allow(unsafe_code)]
pub mod polling;
#[allow(unsafe_code)]
pub mod receive;
#[allow(unsafe_code)]
pub mod rights;
#[allow(unsafe_code)]
pub mod send;
#[allow(unsafe_code)]
pub mod socket;
#[allow(unsafe_code)]
pub mod stdio;

/// Whether a descriptor is an offloaded socket.
fn is_ours(fd: c_int) -> bool {
    ours(fd).is_some_and(is_ours_file)
}

fn is_ours_file(file: FileId) -> bool {
    calls::ours_of(file).is_ok()
}

/// The check of the `_chk` forms: the compiler knew the size of the buffer.
fn check_room(len: usize, room: usize) {
    if len > room {
        config::say("buffer overflow detected: a receive call names more bytes than its buffer has");
        sys::exit_group(134);
    }
}

/// The flags of `recvmsg` or `sendmsg` that those of `preadv2` or `pwritev2` on a socket mean;
/// `None` if there is nothing to do. A socket has no offset, which -1 says.
fn vector_flags(offset: i64, flags: c_int, ended: Option<Result<(), Errno>>) -> Result<Option<c_int>, Errno> {
    /// `RWF_HIPRI` to `RWF_APPEND`, and `RWF_NOAPPEND`: all but the fourth say nothing here.
    const KNOWN: c_int = 0x3f;
    match ended {
        _ if offset != -1 => Err(Errno(libc::ESPIPE)),
        Some(ended) => ended.map(|()| None),
        None if flags & !KNOWN != 0 => Err(Errno::EOPNOTSUPP),
        None if flags & libc::RWF_NOWAIT != 0 => Ok(Some(libc::MSG_DONTWAIT)),
        None => Ok(Some(0)),
    }
}

/// The kernel's mark of a message in the layout of 32 bits, which no program may set. A number that
/// the crate `libc` does not have.
const MSG_CMSG_COMPAT: c_int = c_int::MIN;

fn ours_or_pass<T>(done: Outcome<T>) -> Option<Result<T, Errno>> {
    match done {
        Outcome::Ours(result) => Some(result),
        Outcome::Pass => None,
    }
}
