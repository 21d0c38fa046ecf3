//! bpf(2): maps, programs and links, as file descriptors that close on drop. When the last
//! descriptor of a link is closed the kernel detaches the program from the interface, however the
//! process ends.
//!
//! `unsafe`, because the kernel reads and writes through addresses in the attributes.
//!
//! Invariants:
//! 1. Every address in an attribute comes from a slice that is borrowed until the call has
//!    returned, and the length passed with it is the slice's.
//! 2. If the kernel itself determines the length (keys and values of a map), it is the length that
//!    the map was created with, and we check the slice against it.
//! 3. An attribute is plain data without padding, and the length passed is its own.
//! 4. A descriptor that the kernel returns is new and has no other owner.

use core::ffi::c_long;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use super::assembler::Insn;
use crate::sys::inherited;

const MAP_CREATE: c_long = 0;
const MAP_UPDATE: c_long = 2;
const MAP_DELETE: c_long = 3;
const PROG_LOAD: c_long = 5;
const LINK_GET_FD_BY_ID: c_long = 30;
const OBJ_GET_INFO_BY_FD: c_long = 15;
const LINK_CREATE: c_long = 28;
const LINK_UPDATE: c_long = 29;
const LINK_GET_NEXT_ID: c_long = 31;
#[cfg(test)]
const PROG_TEST_RUN: c_long = 10;

const PROG_TYPE_XDP: u32 = 6;
const ATTACH_TYPE_XDP: u32 = 37;
const LINK_TYPE_XDP: u32 = 6;
/// The program can handle frames in several buffers (Linux 5.18).
const PROG_FLAG_FRAGS: u32 = 1 << 5;
/// The program runs on one interface only, whose driver provides RX metadata (Linux 6.3).
const PROG_FLAG_DEV_BOUND_ONLY: u32 = 1 << 6;
/// The update names the program that it replaces.
const LINK_UPDATE_REPLACE: u32 = 1 << 2;
/// The name in the kernel's character set: letters, digits, `_` and `.`, with a terminating zero.
const NAME: [u8; 16] = *b"wirepath\0\0\0\0\0\0\0\0";
/// The helpers that we call require no particular license; this is the project's.
const LICENSE: &[u8] = b"Dual MIT/GPL\0";

/// Kinds of maps, by their number in linux/bpf.h.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MapKind {
    Hash = 1,
    Sockets = 17,
}

/// A map in the kernel.
pub(crate) struct Map {
    fd: OwnedFd,
    key_len: usize,
    value_len: usize,
}

/// A loaded program.
pub(crate) struct Program {
    fd: OwnedFd,
}

/// A program attached to an interface. Dropping this detaches it.
pub(crate) struct BpfLink {
    fd: OwnedFd,
}

/// The link that attaches a program to an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkInfo {
    pub(crate) id: u32,
    pub(crate) program: u32,
}

/// The capabilities of a program beyond the first buffer of a frame.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LoadOptions {
    /// It supports frames in several buffers.
    pub(crate) frags: bool,
    /// The program may call the driver of this interface, in the calling thread's network
    /// namespace.
    pub(crate) bound_to: Option<u32>,
}

/// Why a program was not loaded: the kernel's error, and the end of the verifier's log.
#[derive(Debug)]
pub(crate) struct LoadError {
    pub(crate) error: io::Error,
    pub(crate) log: String,
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct MapCreate {
    kind: u32,
    key_len: u32,
    value_len: u32,
    entries_max: u32,
    flags: u32,
    inner_map_fd: u32,
    numa_node: u32,
    name: [u8; 16],
}

impl Map {
    /// A map of up to `entries_max` values.
    pub(crate) fn create(kind: MapKind, key_len: usize, value_len: usize, entries_max: u32) -> io::Result<Self> {
        let attribute = MapCreate {
            kind: kind as u32,
            key_len: key_len as u32,
            value_len: value_len as u32,
            entries_max,
            flags: 0,
            inner_map_fd: 0,
            numa_node: 0,
            name: NAME,
        };
        // SAFETY: no address in the attribute.
        let fd = unsafe { new_fd(MAP_CREATE, &attribute) }?;
        Ok(Self { fd, key_len, value_len })
    }

    /// Sets the value of `key`. Programs see the old value or the new one.
    pub(crate) fn update(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        assert!(key.len() == self.key_len && value.len() == self.value_len, "keys and values as the map was made for");
        let attribute = Element::new(&self.fd, key, value.as_ptr() as u64);
        // SAFETY: both slices are borrowed until the call has returned (1) and have the lengths
        // that the kernel copies (2).
        unsafe { bpf(MAP_UPDATE, &attribute) }.map(drop)
    }

    /// Removes `key`.
    pub(crate) fn remove(&self, key: &[u8]) -> io::Result<()> {
        assert!(key.len() == self.key_len, "a key as the map was made for");
        let attribute = Element::new(&self.fd, key, 0);
        // SAFETY: as for `update`; no value is read.
        unsafe { bpf(MAP_DELETE, &attribute) }.map(drop)
    }

    /// From now on only programs can change it; system calls get EPERM.
    #[cfg(test)]
    pub(crate) fn freeze(&self) -> io::Result<()> {
        const MAP_FREEZE: c_long = 22;
        // SAFETY: no address in the attribute.
        unsafe { bpf(MAP_FREEZE, &(self.fd.as_raw_fd() as u32)) }.map(drop)
    }

    /// The raw descriptor, for use in a program.
    pub(crate) fn raw_fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct Element {
    map_fd: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

impl Element {
    fn new(fd: &OwnedFd, key: &[u8], value: u64) -> Self {
        Self { map_fd: fd.as_raw_fd() as u32, padding: 0, key: key.as_ptr() as u64, value, flags: 0 }
    }
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct ProgLoad {
    kind: u32,
    insn_count: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_len: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    ifindex: u32,
    attach_type: u32,
}

impl ProgLoad {
    /// A program of type `kind`, not bound to an interface, without a log. It contains the address
    /// of `insns`, which the caller borrows until the call has returned.
    fn new(kind: u32, insns: &[Insn]) -> Self {
        Self {
            kind,
            insn_count: insns.len() as u32,
            insns: insns.as_ptr() as u64,
            license: LICENSE.as_ptr() as u64,
            log_level: 0,
            log_len: 0,
            log: 0,
            kernel_version: 0,
            flags: 0,
            name: NAME,
            ifindex: 0,
            attach_type: 0,
        }
    }
}

impl Program {
    /// Loads an XDP program.
    pub(crate) fn load(insns: &[Insn], options: LoadOptions) -> Result<Self, LoadError> {
        let flag = |wanted, flag| if wanted { flag } else { 0 };
        let mut attribute = ProgLoad {
            flags: flag(options.frags, PROG_FLAG_FRAGS) | flag(options.bound_to.is_some(), PROG_FLAG_DEV_BOUND_ONLY),
            ifindex: options.bound_to.unwrap_or(0),
            attach_type: ATTACH_TYPE_XDP,
            ..ProgLoad::new(PROG_TYPE_XDP, insns)
        };
        // SAFETY: instructions and license are borrowed until the call has returned, with their
        // count and terminating zero (1).
        let error = match unsafe { new_fd(PROG_LOAD, &attribute) } {
            Ok(fd) => return Ok(Self { fd }),
            Err(error) => error,
        };
        // Tries again with a log. Writing the log takes time, so the first attempt has none.
        let mut log = vec![0u8; 1 << 20];
        (attribute.log_level, attribute.log_len, attribute.log) = (1, log.len() as u32, log.as_mut_ptr() as u64);
        // SAFETY: as above, and the log is borrowed mutably until the call has returned (1).
        let again = unsafe { new_fd(PROG_LOAD, &attribute) };
        match again {
            Ok(fd) => Ok(Self { fd }),
            Err(_) => Err(LoadError { error, log: last_lines(&log) }),
        }
    }
}

fn last_lines(log: &[u8]) -> String {
    let text = String::from_utf8_lossy(log.split(|&byte| byte == 0).next().unwrap_or(&[])).into_owned();
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("processed")).collect();
    lines[lines.len().saturating_sub(3)..].join("; ")
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct LinkCreate {
    prog_fd: u32,
    ifindex: u32,
    attach_type: u32,
    flags: u32,
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct LinkUpdate {
    link_fd: u32,
    prog_fd: u32,
    flags: u32,
    old_prog_fd: u32,
}

impl BpfLink {
    /// Attaches a program to an interface of the calling thread's network namespace. `flags` are
    /// `XDP_FLAGS_*` of linux/if_link.h.
    pub(crate) fn create(program: &Program, ifindex: u32, flags: u32) -> io::Result<Self> {
        let prog_fd = program.fd.as_raw_fd() as u32;
        let attribute = LinkCreate { prog_fd, ifindex, attach_type: ATTACH_TYPE_XDP, flags };
        // SAFETY: no address in the attribute.
        let fd = unsafe { new_fd(LINK_CREATE, &attribute) }?;
        Ok(Self { fd })
    }

    /// Replaces the program atomically: each frame runs through the old one or the new one.
    pub(crate) fn replace(&self, old: &Program, new: &Program) -> io::Result<()> {
        let attribute = LinkUpdate {
            link_fd: self.fd.as_raw_fd() as u32,
            prog_fd: new.fd.as_raw_fd() as u32,
            flags: LINK_UPDATE_REPLACE,
            old_prog_fd: old.fd.as_raw_fd() as u32,
        };
        // SAFETY: no address in the attribute.
        unsafe { bpf(LINK_UPDATE, &attribute) }.map(drop)
    }

    /// Whether the program is detached: someone has detached the link, or the interface is gone. A
    /// system call.
    pub(crate) fn is_detached(&self) -> bool {
        info_of(&self.fd).is_ok_and(|info| info.ifindex == 0)
    }

    /// Detaches the program, as `bpftool link detach` does. The link remains, without effect.
    #[cfg(test)]
    pub(crate) fn detach(&self) -> io::Result<()> {
        const LINK_DETACH: c_long = 34;
        // SAFETY: no address in the attribute.
        unsafe { bpf(LINK_DETACH, &(self.fd.as_raw_fd() as u32)) }.map(drop)
    }
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct ById {
    id: u32,
    next_id: u32,
    open_flags: u32,
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct InfoByFd {
    fd: u32,
    info_len: u32,
    info: u64,
}

/// The fields of `struct bpf_link_info` for XDP links.
#[derive(FromBytes, IntoBytes)]
#[repr(C)]
struct RawLinkInfo {
    kind: u32,
    id: u32,
    program: u32,
    padding: u32,
    /// 0 once the link is detached, or the interface gone.
    ifindex: u32,
    rest: [u32; 11],
}

/// All XDP links of the machine, in every network namespace. Needs CAP_SYS_ADMIN; without it the
/// list is empty.
pub(crate) fn xdp_links() -> Vec<LinkInfo> {
    let mut links = Vec::new();
    let mut id = 0;
    while let Some(next) = next_link(id) {
        id = next;
        links.extend(link_info(id));
    }
    links
}

fn next_link(id: u32) -> Option<u32> {
    let mut attribute = ById { id, next_id: 0, open_flags: 0 };
    // SAFETY: no address in the attribute, which the kernel may write (it is borrowed mutably).
    unsafe { bpf_mut(LINK_GET_NEXT_ID, &mut attribute) }.ok()?;
    Some(attribute.next_id)
}

fn link_info(id: u32) -> Option<LinkInfo> {
    // SAFETY: no address in the attribute.
    let fd = unsafe { new_fd(LINK_GET_FD_BY_ID, &ById { id, next_id: 0, open_flags: 0 }) }.ok()?;
    let info = info_of(&fd).ok()?;
    (info.kind == LINK_TYPE_XDP).then_some(LinkInfo { id, program: info.program })
}

fn info_of(link: &OwnedFd) -> io::Result<RawLinkInfo> {
    let mut info = RawLinkInfo::new_zeroed();
    let info_len = size_of::<RawLinkInfo>() as u32;
    let mut attribute = InfoByFd { fd: link.as_raw_fd() as u32, info_len, info: (&raw mut info) as u64 };
    // SAFETY: `info` is borrowed until the call has returned, with its length (1); any bytes are a
    // `RawLinkInfo`.
    unsafe { bpf_mut(OBJ_GET_INFO_BY_FD, &mut attribute) }?;
    Ok(info)
}

#[cfg(test)]
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct TestRun {
    prog_fd: u32,
    verdict: u32,
    data_in_len: u32,
    data_out_len: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration_ns: u32,
    ctx_in_len: u32,
    ctx_out_len: u32,
    ctx_in: u64,
    ctx_out: u64,
    flags: u32,
    cpu: u32,
    batch_len: u32,
    padding: u32,
}

/// The result of a test run.
#[cfg(test)]
pub(crate) struct Ran {
    pub(crate) verdict: u32,
    pub(crate) ns: u32,
    /// The frame, preceded by the bytes that the program wrote.
    pub(crate) bytes: Vec<u8>,
}

#[cfg(test)]
impl Program {
    /// Runs the program on `frame`, as if received on queue 0.
    pub(crate) fn test_run(&self, frame: &[u8], repeat: u32) -> io::Result<Ran> {
        // XDP metadata has at most 252 bytes.
        let mut bytes = vec![0; frame.len() + 256];
        let mut attribute = TestRun {
            prog_fd: self.fd.as_raw_fd() as u32,
            verdict: 0,
            data_in_len: frame.len() as u32,
            data_out_len: bytes.len() as u32,
            data_in: frame.as_ptr() as u64,
            data_out: bytes.as_mut_ptr() as u64,
            repeat,
            duration_ns: 0,
            ctx_in_len: 0,
            ctx_out_len: 0,
            ctx_in: 0,
            ctx_out: 0,
            flags: 0,
            cpu: 0,
            batch_len: 0,
            padding: 0,
        };
        // SAFETY: the frame and the bytes are borrowed until the call has returned, with their
        // lengths (1).
        unsafe { bpf_mut(PROG_TEST_RUN, &mut attribute) }?;
        bytes.truncate(attribute.data_out_len as usize);
        Ok(Ran { verdict: attribute.verdict, ns: attribute.duration_ns, bytes })
    }

    /// Loads an egress program, and attaches it to `ifindex` (tcx, Linux 6.6).
    pub(crate) fn on_the_way_out(insns: &[Insn], ifindex: u32) -> io::Result<(Self, BpfLink)> {
        const PROG_TYPE_SCHED_CLS: u32 = 3;
        const ATTACH_TYPE_TCX_EGRESS: u32 = 47;
        let attribute = ProgLoad::new(PROG_TYPE_SCHED_CLS, insns);
        // SAFETY: as in `load`.
        let program = Self { fd: unsafe { new_fd(PROG_LOAD, &attribute) }? };
        let prog_fd = program.fd.as_raw_fd() as u32;
        let attribute = LinkCreate { prog_fd, ifindex, attach_type: ATTACH_TYPE_TCX_EGRESS, flags: 0 };
        // SAFETY: no address in the attribute.
        let link = BpfLink { fd: unsafe { new_fd(LINK_CREATE, &attribute) }? };
        Ok((program, link))
    }
}

/// # Safety
/// Addresses in the attribute satisfy invariants 1 and 2.
unsafe fn new_fd<T: IntoBytes + Immutable>(command: c_long, attribute: &T) -> io::Result<OwnedFd> {
    // SAFETY: the caller's promise.
    let fd = unsafe { bpf(command, attribute) }?;
    // SAFETY: the kernel returned a descriptor that is new (4).
    Ok(inherited::note(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// # Safety
/// Addresses in the attribute satisfy invariants 1 and 2, and the command does not write to the
/// attribute.
unsafe fn bpf<T: IntoBytes + Immutable>(command: c_long, attribute: &T) -> io::Result<i32> {
    // SAFETY: plain data with its own length (3); the rest is the caller's promise.
    result(unsafe { libc::syscall(libc::SYS_bpf, command, attribute as *const T, size_of::<T>()) })
}

/// # Safety
/// Addresses in the attribute satisfy invariants 1 and 2.
unsafe fn bpf_mut<T: IntoBytes + Immutable>(command: c_long, attribute: &mut T) -> io::Result<i32> {
    // SAFETY: plain data with its own length (3), borrowed mutably; the rest is the caller's
    // promise.
    result(unsafe { libc::syscall(libc::SYS_bpf, command, attribute as *mut T, size_of::<T>()) })
}

fn result(value: c_long) -> io::Result<i32> {
    if value < 0 { Err(io::Error::last_os_error()) } else { Ok(value as i32) }
}
