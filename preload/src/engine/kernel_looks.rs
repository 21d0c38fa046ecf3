//! How often a call looks at the kernel's side of a socket, which is a system call.

use core::cell::Cell;

use super::ClockReading;

thread_local! {
    /// The thread's attempts since it has checked the kernel, and when that was.
    static LOOKS: Cell<(u32, u64)> = const { Cell::new((0, 0)) };
    /// Calls until the kernel's side has its turn, and the last number of the LCG.
    static TURNS: Cell<(u32, u32)> = const { Cell::new((KERNEL_LOOKS, 0)) };
}

/// Whether a polling thread also checks the kernel now. That is a system call, so it does after at
/// most [`KERNEL_LOOKS`] attempts, and not again within [`LOOK_EVERY_NS`]. The number varies with
/// the time: a constant one could fall on the same socket each time where a program polls some in
/// turn, and what the kernel has for the others would never be reported.
#[inline]
pub(crate) fn looks_at_kernel(now: ClockReading) -> bool {
    LOOKS.with(|looks| {
        let (count, at) = looks.get();
        // A clock that has begun anew is earlier.
        if count < KERNEL_LOOKS || (at..at + LOOK_EVERY_NS).contains(&now.ns) {
            looks.set((count.saturating_add(1), at));
            return false;
        }
        looks.set((now.ns as u32 % (KERNEL_LOOKS / 2), now.ns));
        true
    })
}

/// Whether the twin of a socket with equal rights has its turn before the engine, in this call of
/// the thread: in one of at most [`KERNEL_LOOKS`]. The number varies (by an LCG), as above.
pub(crate) fn is_twins_turn() -> bool {
    TURNS.with(|turns| {
        let (left, random) = turns.get();
        if left > 1 {
            turns.set((left - 1, random));
            return false;
        }
        let random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        turns.set((KERNEL_LOOKS - (random >> 16) % (KERNEL_LOOKS / 2), random));
        true
    })
}

/// Attempts for one system call.
const KERNEL_LOOKS: u32 = 16;
/// Datagrams that reach a socket by the kernel wait this much longer, a fraction of the time in
/// which a thread wakes.
const LOOK_EVERY_NS: u64 = 20_000;
