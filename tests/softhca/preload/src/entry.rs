//! The functions of libc that the library replaces, and those that it offers to programs that know
//! it.
//!
//! Invariants:
//! 1. Functions with a name of libc's have the signature that C callers use on Linux (variadic
//!    arguments of `ioctl` are one, in a register), and callers pass arguments that are valid for
//!    libc.
//! 2. An address that dlsym(3) gives for a name is a function of that signature.
//! 3. A call that is not for us is passed on unchanged, and sets errno as libc does.

use std::ffi::{CStr, c_char, c_int, c_ulong, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use softhca::hca::Errno;

use crate::pages::Wish;
use crate::refusal::Refusal;
use crate::sys::{self, Known};
use crate::world;

/// The type of every request on a uverbs descriptor, rdma/rdma_user_ioctl.h.
const RDMA_IOCTL_MAGIC: c_ulong = 0x1b;

/// ioctl(2).
///
/// # Safety
/// As for libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    if (request >> 8) & 0xff == RDMA_IOCTL_MAGIC && is_device(fd) {
        let done = patiently(|| world::with(|world| world.ioctl(fd, request, argument as u64)));
        return answer(done.map(|()| 0), -1);
    }
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    // SAFETY: 2, 3.
    unsafe {
        let next: unsafe extern "C" fn(c_int, c_ulong, *mut c_void) -> c_int = next(&NEXT, c"ioctl");
        next(fd, request, argument)
    }
}

/// write(2).
///
/// # Safety
/// As for libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(fd: c_int, bytes: *const c_void, len: usize) -> isize {
    // The shortest command is a header of 8 bytes; all are words. So few other writes are looked at
    // further.
    if len >= 8 && len.is_multiple_of(4) && is_device(fd) {
        // SAFETY: 1: the caller's bytes.
        let frame = unsafe { std::slice::from_raw_parts(bytes.cast(), len) };
        return answer(patiently(|| world::with(|world| world.write(fd, frame))).map(|len| len as isize), -1);
    }
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    // SAFETY: 2, 3.
    unsafe {
        let next: unsafe extern "C" fn(c_int, *const c_void, usize) -> isize = next(&NEXT, c"write");
        next(fd, bytes, len)
    }
}

/// close(2).
///
/// # Safety
/// As for libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    let is_ours = sys::known(fd) != Known::No && world::is_ours();
    if let Some(world) = is_ours.then(world::lock).as_mut().and_then(|guard| guard.as_mut()) {
        world.close(fd);
    }
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    // SAFETY: 2, 3.
    unsafe {
        let next: unsafe extern "C" fn(c_int) -> c_int = next(&NEXT, c"close");
        next(fd)
    }
}

/// mmap(2).
///
/// # Safety
/// As for libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    address: *mut c_void,
    len: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    // One that has come from another process has its registers in that process's file.
    if fd >= 0 && sys::known(fd) == Known::Device && is_device(fd) {
        let wish = Wish { address: address as usize, protection, flags };
        let done = world::with(|world| world.mmap(fd, offset as u64, len, wish));
        return answer(done.map(|address| address as *mut c_void), libc::MAP_FAILED);
    }
    // Raw: allocators map memory before dlsym(3) works, which allocates.
    // SAFETY: 1, 3.
    unsafe { libc::syscall(libc::SYS_mmap, address, len, protection, flags, fd, offset) as *mut c_void }
}

/// mmap(2), as programs with 64-bit offsets call it.
///
/// # Safety
/// As for libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    address: *mut c_void,
    len: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: the same function.
    unsafe { mmap(address, len, protection, flags, fd, offset) }
}

/// Lets every open NIC do its due work, at most `budget` frames in each direction, and returns how
/// much that was. With `SOFTHCA_ENGINE=manual` only this call moves frames.
#[unsafe(no_mangle)]
pub extern "C" fn softhca_step(budget: usize) -> usize {
    let mut guard = world::lock();
    guard.as_mut().map_or(0, |world| world.step(budget))
}

/// The count of a NIC under this name, such as `mlx5_1.tx_frames`, or of all open NICs together,
/// such as `tx_frames`. `u64::MAX` where there is no such counter.
///
/// # Safety
/// `name` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softhca_counter(name: *const c_char) -> u64 {
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    world::lock().as_ref().and_then(|world| world.counter(&name)).unwrap_or(u64::MAX)
}

/// Copies the oldest sentence about a mistake of the program into `into`, with a final zero, and
/// returns its length: 0 where there is none. A sentence that does not fit is cut off.
///
/// # Safety
/// `into` has room for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softhca_diagnosis(into: *mut c_char, len: usize) -> usize {
    let sentence = world::lock().as_mut().and_then(|world| world.take_diagnosis());
    let Some(sentence) = sentence.filter(|_| len > 0) else { return 0 };
    let shown = sentence.len().min(len - 1);
    // SAFETY: the caller's promise: `shown` and a zero fit.
    unsafe {
        std::ptr::copy_nonoverlapping(sentence.as_ptr().cast(), into, shown);
        into.add(shown).write(0);
    }
    shown
}

/// Removes the device of this name, with the effects that a driver sees: an event for every client
/// that has it open, EIO for every command, and no more frames. Returns 1 where a client had it
/// open, otherwise 0. When all clients have closed it, it can be opened again.
///
/// # Safety
/// `name` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softhca_remove(name: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    world::lock().as_mut().is_some_and(|world| world.remove(&name)).into()
}

/// Objects that the program has in its devices: descriptors, protection domains, regions, queues,
/// tables, rules. 0 where it has given everything back.
#[unsafe(no_mangle)]
pub extern "C" fn softhca_objects() -> usize {
    world::lock().as_ref().map_or(0, world::World::objects)
}

/// Skips `skip` commands of this number and refuses the next one, once, with `errno`. The numbers
/// are those of `write`, so SOFTHCA_ABI must be `write`; 0xffffffff means any command that does not
/// destroy. With `errno` 0 no command is refused. Returns 1 where an earlier refusal was still
/// pending, otherwise 0.
#[unsafe(no_mangle)]
pub extern "C" fn softhca_refuse(command: u32, skip: u32, errno: c_int) -> c_int {
    let command = (command != u32::MAX).then_some(command);
    let refusal = (errno != 0).then_some(Refusal { command, skip, errno: Errno(errno) });
    world::with(|world| Ok(world.refuse(refusal))).unwrap_or(false).into()
}

/// Whether a descriptor is an open device. Not called for our own descriptors while the mutex is
/// held.
fn is_device(fd: c_int) -> bool {
    match sys::known(fd) {
        // A descriptor that was closed behind our back (dup2, close_range) and is another file's by
        // now.
        Known::Device => world::is_ours() && sys::is_node(fd),
        Known::Channel => false,
        Known::No => sys::uverbs_number(fd).is_some(),
    }
}

/// The function that would have been called without us. Looked up once.
///
/// # Safety
/// `F` is the type of the function of this name.
unsafe fn next<F: Copy>(cache: &AtomicUsize, name: &CStr) -> F {
    let mut address = cache.load(Ordering::Relaxed);
    if address == 0 {
        // SAFETY: 1.
        address = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) } as usize;
        assert!(address != 0, "libc has a function of every name that is stood in for");
        cache.store(address, Ordering::Relaxed);
    }
    // SAFETY: 2.
    unsafe { std::mem::transmute_copy(&address) }
}

/// Repeats a command that waits for a neighbor's MAC address, which the kernel asks for meanwhile.
/// The NIC works on between the tries, because frames for the kernel pass through it.
fn patiently<T>(mut command: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    for _ in 0..NEIGHBOR_TRIES {
        match command() {
            Err(Errno(libc::EINPROGRESS)) => sys::nap(NEIGHBOR_NAP_NS),
            done => return done,
        }
    }
    Err(Errno(libc::ETIMEDOUT))
}

/// The kernel waits for a second, too (`rdma_addr_find_l2_eth_by_grh`).
const NEIGHBOR_TRIES: u32 = 500;
const NEIGHBOR_NAP_NS: u32 = 2_000_000;

/// A result as libc gives it.
fn answer<T>(done: Result<T, Errno>, failed: T) -> T {
    done.unwrap_or_else(|errno| {
        // SAFETY: the calling thread's own errno.
        unsafe { *libc::__errno_location() = errno.0 };
        failed
    })
}
