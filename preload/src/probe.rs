//! Whether memory of the program is there, without a system call: an access to each page by
//! instructions of ours, at known addresses. If one faults, the handler of `SIGSEGV` and `SIGBUS`
//! (`engine/signals`) continues where the access returns 1.
//!
//! Invariants:
//! 1. The functions of [`begin`](wirepath_probe_begin) to [`end`](wirepath_probe_end) use no stack
//!    and only registers that a call may change, so they may return from any of their instructions.
//! 2. A write adds 0 to a byte in one atomic step, so no other thread sees a change.

use core::arch::global_asm;
use core::ffi::c_void;
use std::io::IoSliceMut;

#[cfg(target_arch = "x86_64")]
global_asm!(
    ".pushsection .text.wirepath_probe, \"ax\", @progbits",
    ".hidden wirepath_probe_begin, wirepath_probe_read, wirepath_probe_write, wirepath_probe_end",
    ".globl wirepath_probe_begin, wirepath_probe_read, wirepath_probe_write, wirepath_probe_end",
    "wirepath_probe_begin:",
    "wirepath_probe_read:",
    "movzx eax, byte ptr [rdi]",
    "xor eax, eax",
    "ret",
    "wirepath_probe_write:",
    "lock add byte ptr [rdi], 0",
    "xor eax, eax",
    "ret",
    "wirepath_probe_end:",
    "mov eax, 1",
    "ret",
    ".popsection",
);

#[cfg(target_arch = "aarch64")]
global_asm!(
    ".pushsection .text.wirepath_probe, \"ax\", @progbits",
    ".hidden wirepath_probe_begin",
    ".hidden wirepath_probe_read",
    ".hidden wirepath_probe_write",
    ".hidden wirepath_probe_end",
    ".globl wirepath_probe_begin",
    ".globl wirepath_probe_read",
    ".globl wirepath_probe_write",
    ".globl wirepath_probe_end",
    "wirepath_probe_begin:",
    "wirepath_probe_read:",
    "ldrb w1, [x0]",
    "mov w0, 0",
    "ret",
    "wirepath_probe_write:",
    "ldxrb w1, [x0]",
    "stxrb w2, w1, [x0]",
    "cbnz w2, wirepath_probe_write",
    "mov w0, 0",
    "ret",
    "wirepath_probe_end:",
    "mov w0, 1",
    "ret",
    ".popsection",
);

unsafe extern "C" {
    safe fn wirepath_probe_begin();
    safe fn wirepath_probe_read(address: *const u8) -> u32;
    safe fn wirepath_probe_write(address: *const u8) -> u32;
    safe fn wirepath_probe_end();
}

/// The smallest page of these machines. With larger ones a page is probed more often.
const PAGE: usize = 4_096;

/// The end of the addresses that a program can have; the kernel refuses a call that names later
/// ones before it begins.
#[cfg(target_arch = "x86_64")]
const ADDRESS_END: usize = (1 << 47) - PAGE;
#[cfg(not(target_arch = "x86_64"))]
const ADDRESS_END: usize = 1 << 52;

/// Whether a range lies among the addresses of programs (Linux `access_ok`).
pub(crate) fn is_of_programs(address: *const c_void, len: usize) -> bool {
    address.addr().checked_add(len).is_some_and(|end| end <= ADDRESS_END)
}

/// So many bytes of the range are readable, from its begin.
pub(crate) fn readable_len(address: *const c_void, len: usize) -> usize {
    count(address, len, wirepath_probe_read)
}

/// So many bytes of the range are writable, from its begin.
pub(crate) fn writable_len(address: *const c_void, len: usize) -> usize {
    count(address, len, wirepath_probe_write)
}

/// Whether the first bytes of the buffers are writable.
pub(crate) fn are_writable(parts: &[IoSliceMut<'_>], mut len: usize) -> bool {
    parts.iter().all(|part| {
        let count = part.len().min(len);
        len -= count;
        writable_len(part.as_ptr().cast(), count) == count
    })
}

#[inline]
fn count(address: *const c_void, len: usize, access: extern "C" fn(*const u8) -> u32) -> usize {
    let mut at = 0;
    while at < len {
        let here = address.cast::<u8>().wrapping_add(at);
        if access(here) != 0 {
            return at;
        }
        at += PAGE - here.addr() % PAGE;
    }
    len
}

/// Where a thread continues that has faulted at this instruction, if a probe has.
pub(crate) fn continuation(instruction: usize) -> Option<usize> {
    let [begin, end] = [wirepath_probe_begin as extern "C" fn(), wirepath_probe_end].map(|label| label as usize);
    (begin..end).contains(&instruction).then_some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_the_program_is_counted_to_its_end() {
        let mut bytes = vec![7_u8; 3 * PAGE];
        assert_eq!(readable_len(bytes.as_ptr().cast(), bytes.len()), bytes.len());
        assert_eq!(writable_len(bytes.as_ptr().cast(), bytes.len()), bytes.len());
        let mut parts = [IoSliceMut::new(&mut bytes), IoSliceMut::new(&mut [])];
        assert!(are_writable(&parts, 2 * PAGE) && are_writable(&parts, usize::MAX));
        assert!(parts.iter_mut().all(|part| part.iter().all(|byte| *byte == 7)));
    }

    #[test]
    fn fault_of_other_code_is_not_that_of_a_probe() {
        assert_eq!(continuation(wirepath_probe_end as extern "C" fn() as usize), None);
        assert_eq!(continuation(0), None);
        assert!(continuation(wirepath_probe_write as extern "C" fn(*const u8) -> u32 as usize).is_some());
    }
}
