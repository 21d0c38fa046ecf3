//! Decides which frames the kernel sees of an interface on which the model listens with a packet
//! socket.
//!
//! Both would get every frame, and the kernel would answer frames that are the model's (with port
//! unreachable, for example). So no frame passes to the kernel by itself. The model hands on the
//! frames that no flow rule matched: it sends them *out* of the interface with a mark, and a
//! program there turns them around.
//!
//! ```text
//!  cable ──▶ packet socket: everything but marked frames ──▶ model
//!        └─▶ ingress: no mark: dropped. Marked: to the kernel ◀─┐
//!                                                               │ redirected
//!  model ──▶ packet socket with the mark ──▶ egress: marked ────┘
//!  kernel, model's own frames ─────────────▶ egress: no mark ──▶ cable
//! ```
//!
//! Frames that the kernel's other end has left uncut (TSO between two ends of a veth) are not cut
//! here: they go to the kernel. The programs go with their descriptors, however the process ends.

use std::io;
use std::os::fd::OwnedFd;

use super::bpf::{self, Hook};

/// On frames that are the kernel's. Any other number would do: it is not seen outside the
/// interface.
pub(super) const MARK: u32 = 0x5c0f_7ca0;

/// All frames of an interface for the kernel pass here.
#[derive(Debug)]
pub(super) struct Gate {
    _ingress: OwnedFd,
    _egress: OwnedFd,
}

impl Gate {
    /// # Errors
    /// Before Linux 6.6, or without CAP_BPF and CAP_NET_ADMIN.
    pub(super) fn close(ifindex: u32) -> io::Result<Self> {
        // The way around first, or frames would be lost meanwhile.
        let egress = bpf::attach(ifindex, Hook::Egress, &egress(ifindex))?;
        Ok(Self { _ingress: bpf::attach(ifindex, Hook::Ingress, &ingress())?, _egress: egress })
    }
}

/// linux/bpf.h: offsets in `struct __sk_buff`, verdicts, the helper bpf_redirect and its flag.
const SKB_MARK: i16 = 8;
const SKB_GSO_SIZE: i16 = 176;
const TCX_NEXT: i32 = -1;
const TCX_DROP: i32 = 2;
const HELPER_REDIRECT: i32 = 23;
const REDIRECT_INGRESS: i32 = 1;

fn ingress() -> [u64; 8] {
    [
        load(0, 1, SKB_MARK),
        jump_if_equal(0, MARK as i32, 4),
        load(0, 1, SKB_GSO_SIZE),
        jump_if_not_equal(0, 0, 2),
        set(0, TCX_DROP),
        EXIT,
        set(0, TCX_NEXT),
        EXIT,
    ]
}

fn egress(ifindex: u32) -> [u64; 8] {
    [
        load(0, 1, SKB_MARK),
        jump_if_equal(0, MARK as i32, 2),
        set(0, TCX_NEXT),
        EXIT,
        set(1, ifindex as i32),
        set(2, REDIRECT_INGRESS),
        insn(0x85, 0, 0, 0, HELPER_REDIRECT),
        EXIT,
    ]
}

/// Documentation/bpf/standardization/instruction-set.rst
const EXIT: u64 = insn(0x95, 0, 0, 0, 0);

const fn load(to: u8, from: u8, offset: i16) -> u64 {
    insn(0x61, to, from, offset, 0)
}

const fn set(register: u8, value: i32) -> u64 {
    insn(0xb4, register, 0, 0, value)
}

/// As 32-bit words, or a mark with its highest bit set would be compared as a negative number.
const fn jump_if_equal(register: u8, value: i32, offset: i16) -> u64 {
    insn(0x16, register, 0, offset, value)
}

const fn jump_if_not_equal(register: u8, value: i32, offset: i16) -> u64 {
    insn(0x56, register, 0, offset, value)
}

const fn insn(code: u8, to: u8, from: u8, offset: i16, value: i32) -> u64 {
    code as u64 | ((to | from << 4) as u64) << 8 | (offset as u16 as u64) << 16 | (value as u32 as u64) << 32
}

/// The classic program of the model's packet socket: no frame with the mark.
pub(super) fn unmarked() -> [libc::sock_filter; 4] {
    /// linux/filter.h: SKF_AD_OFF and SKF_AD_MARK.
    const OF_MARK: u32 = (-0x1000i32 + 20) as u32;
    let filter = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    [filter(0x20, 0, 0, OF_MARK), filter(0x15, 0, 1, MARK), filter(0x06, 0, 0, 0), filter(0x06, 0, 0, u32::MAX)]
}
