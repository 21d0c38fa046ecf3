//! Signal handlers of the program. They never run while their thread is within the engine, because
//! they may make calls of ours and would wait for a lock that their own thread holds. The kernel
//! calls our handler. Within the engine it keeps the signal and raises it again when the thread
//! leaves; elsewhere it runs the program's handler.
//!
//! Invariants:
//! 1. The program passed each stored handler for its signal, with the flags that are stored in the
//!    same word: the handler is called as these flags say (man 2 sigaction).
//! 2. Our handler touches only atomics, and cells of its own thread that are never borrowed.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::engine::group::EngineMask;
use crate::engine::{self, sets, thread};
use crate::{probe, real, sys};

/// Signals of Linux (`_NSIG`).
const SIGNALS: usize = 65;

/// The program's handlers; [`Action::NONE`] where it has none.
static ACTIONS: [AtomicUsize; SIGNALS] = [const { AtomicUsize::new(Action::NONE.0) }; SIGNALS];

/// A handler of the program, and those of its flags that the kernel does not have as the program
/// has given them: one word, because a signal may come between two.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Action(usize);

impl Action {
    const NONE: Self = Self(libc::SIG_DFL);
    /// Flags in the highest bits: no address of a program has these.
    const FLAGS: [(usize, c_int); 3] =
        [(1 << 61, libc::SA_SIGINFO), (1 << 62, libc::SA_RESTART), (1 << 63, libc::SA_RESETHAND)];
    const HANDLER: usize = (1 << 61) - 1;

    /// `None`: there is no function at this address.
    fn new(action: &libc::sigaction) -> Option<Self> {
        let bits: usize = Self::FLAGS.iter().filter(|(_, flag)| action.sa_flags & flag != 0).map(|(bit, _)| bit).sum();
        (action.sa_sigaction <= Self::HANDLER).then_some(Self(action.sa_sigaction | bits))
    }

    fn of(place: usize) -> Self {
        Self(ACTIONS[place].load(Ordering::Acquire))
    }

    fn handler(self) -> usize {
        self.0 & Self::HANDLER
    }

    fn has(self, flag: c_int) -> bool {
        Self::FLAGS.iter().any(|(bit, its)| *its == flag && self.0 & bit != 0)
    }

    /// Makes of what the kernel has installed what the program has.
    fn describe(self, installed: &mut libc::sigaction) {
        installed.sa_sigaction = self.handler();
        for (_, flag) in Self::FLAGS {
            installed.sa_flags = if self.has(flag) { installed.sa_flags | flag } else { installed.sa_flags & !flag };
        }
    }
}

/// `sigaction` of the program.
///
/// # Safety
/// As libc's.
pub(crate) unsafe fn sigaction(signal: c_int, action: *const libc::sigaction, before: *mut libc::sigaction) -> c_int {
    if is_of_probes(signal) {
        // SAFETY: as the caller promises.
        return unsafe { action_of_fault(signal, action, before) };
    }
    let place = usize::try_from(signal).ok().filter(|signal| *signal < SIGNALS && !is_fault(*signal as c_int));
    let Some(place) = place else {
        // SAFETY: as the caller promises.
        return unsafe { real::sigaction(signal, action, before) };
    };
    // SAFETY: null, or a structure of the caller's.
    let mut ours = unsafe { action.as_ref() }.copied();
    let has_handler = |action: &&libc::sigaction| ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction);
    let installs = ours.as_ref().filter(has_handler).and_then(Action::new);
    let mut known = Action::of(place);
    if let (Some(action), Some(installs)) = (&mut ours, installs) {
        // Stored first, because the signal may arrive as soon as the kernel has our handler.
        known = Action(ACTIONS[place].swap(installs.0, Ordering::AcqRel));
        let handler: extern "C-unwind" fn(c_int, *mut libc::siginfo_t, *mut c_void) = handle;
        action.sa_sigaction = handler as usize;
        // We implement `SA_RESETHAND` ourselves, because a kept signal is raised twice.
        action.sa_flags = (action.sa_flags | libc::SA_SIGINFO) & !libc::SA_RESETHAND;
    }
    let passed = ours.as_ref().map_or(core::ptr::null(), |action| &raw const *action);
    // SAFETY: a copy of the caller's structure, and the caller's own pointer.
    let done = unsafe { real::sigaction(signal, passed, before) };
    if done != 0 {
        if installs.is_some() {
            ACTIONS[place].store(known.0, Ordering::Release);
        }
        return done;
    }
    if ours.is_some() && installs.is_none() {
        ACTIONS[place].store(Action::NONE.0, Ordering::Release);
    }
    // SAFETY: null, or a structure that the kernel has just filled in.
    if let Some(before) = unsafe { before.as_mut() }
        && known != Action::NONE
    {
        known.describe(before);
    }
    done
}

/// `sigaction` of a signal by which probes fault: our handler stays, with the mask and the flags of
/// the program's, and takes what is not of a probe to the program's action.
///
/// # Safety
/// As libc's.
unsafe fn action_of_fault(signal: c_int, action: *const libc::sigaction, before: *mut libc::sigaction) -> c_int {
    let place = signal as usize;
    let known = Action::of(place);
    // SAFETY: null, or a structure of the caller's.
    let mut ours = unsafe { action.as_ref() }.copied();
    if let Some(action) = &mut ours {
        // Without a function there, the process ends as by the default action.
        ACTIONS[place].store(Action::new(action).unwrap_or(Action::NONE).0, Ordering::Release);
        let handler: extern "C-unwind" fn(c_int, *mut libc::siginfo_t, *mut c_void) = handle_fault;
        action.sa_sigaction = handler as usize;
        action.sa_flags = (action.sa_flags | libc::SA_SIGINFO) & !libc::SA_RESETHAND;
    }
    let passed = ours.as_ref().map_or(core::ptr::null(), |action| &raw const *action);
    // SAFETY: a copy of the caller's structure, and the caller's own pointer.
    let done = unsafe { real::sigaction(signal, passed, before) };
    // SAFETY: null, or a structure that the kernel has just filled in.
    if let (0, Some(before)) = (done, unsafe { before.as_mut() }) {
        known.describe(before);
    }
    done
}

/// Takes over the handlers that constructors of other libraries have set before ours ran, and
/// installs that of the faults of probes.
pub(crate) fn adopt() {
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        // SAFETY: structures of ours; all zero is the default action with an empty mask.
        unsafe {
            let mut set: libc::sigaction = core::mem::zeroed();
            if real::sigaction(signal, core::ptr::null(), &raw mut set) == 0 {
                action_of_fault(signal, &raw const set, core::ptr::null_mut());
            }
        }
    }
    for signal in (1..SIGNALS as c_int).filter(|signal| !is_fault(*signal)) {
        // SAFETY: structures of ours; all zero is the default action with an empty mask.
        unsafe {
            let mut set: libc::sigaction = core::mem::zeroed();
            let is_known = real::sigaction(signal, core::ptr::null(), &raw mut set) == 0;
            if is_known && set.sa_sigaction != libc::SIG_DFL && set.sa_sigaction != libc::SIG_IGN {
                sigaction(signal, &raw const set, core::ptr::null_mut());
            }
        }
    }
}

/// The handler that the kernel calls.
extern "C-unwind" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: libc's `errno` of this thread. The handler must leave it as it was.
    let errno = unsafe { *libc::__errno_location() };
    if thread::keeps_signals() {
        // SAFETY: the kernel passes both, because we set `SA_SIGINFO`. Its mask is the first word
        // of libc's.
        let (info, context) = unsafe { (&*info, &mut *context.cast::<libc::ucontext_t>()) };
        // SAFETY: as above.
        thread::keep(info, unsafe { &mut *(&raw mut context.uc_sigmask).cast() });
    } else {
        run(signal, info, context);
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// The handler of `SIGSEGV` and `SIGBUS`.
extern "C-unwind" fn handle_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes both, because we set `SA_SIGINFO`.
    let (info_of, context_of) = unsafe { (&*info, &mut *context.cast::<libc::ucontext_t>()) };
    let is_of_instruction = info_of.si_code > 0;
    let instruction = instruction_of(context_of);
    if is_of_instruction && let Some(continuation) = probe::continuation(*instruction as usize) {
        *instruction = continuation as _;
        return;
    }
    match Action::of(signal as usize % SIGNALS).handler() {
        libc::SIG_IGN if !is_of_instruction => (),
        libc::SIG_DFL | libc::SIG_IGN => {
            // The process ends by the signal: the instruction faults again, or the signal comes
            // again, as soon as this handler has returned.
            // SAFETY: a structure of ours; all zero is the default action with an empty mask.
            unsafe {
                let default: libc::sigaction = core::mem::zeroed();
                real::sigaction(signal, &raw const default, core::ptr::null_mut());
            }
            if !is_of_instruction {
                sys::raise_again(signal, info_of);
            }
        }
        _ if !is_of_instruction => handle(signal, info, context),
        _ => run(signal, info, context),
    }
}

/// The address of the instruction at which a signal has interrupted its thread.
#[cfg(target_arch = "x86_64")]
fn instruction_of(context: &mut libc::ucontext_t) -> &mut i64 {
    &mut context.uc_mcontext.gregs[libc::REG_RIP as usize]
}

/// The address of the instruction at which a signal has interrupted its thread.
#[cfg(target_arch = "aarch64")]
fn instruction_of(context: &mut libc::ucontext_t) -> &mut u64 {
    &mut context.uc_mcontext.pc
}

/// Signals by which the probes of memory fault. Our handler of them is always installed.
fn is_of_probes(signal: c_int) -> bool {
    matches!(signal, libc::SIGSEGV | libc::SIGBUS)
}

fn run(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let place = signal as usize % SIGNALS;
    let action = Action::of(place);
    if action == Action::NONE {
        return;
    }
    if action.has(libc::SA_RESETHAND) {
        ACTIONS[place].store(Action::NONE.0, Ordering::Release);
        if !is_of_probes(signal) {
            // SAFETY: a structure of ours; all zero is the default action with an empty mask.
            unsafe {
                let default: libc::sigaction = core::mem::zeroed();
                real::sigaction(signal, &raw const default, core::ptr::null_mut());
            }
        }
    }
    // The handler ends the wait, or leaves it for good by `siglongjmp`: no other thread may wake
    // this one from now on.
    let engines = thread::waiting_in();
    if engines != EngineMask::NONE {
        // First, because each leave of an engine may run another handler, which may not return.
        sets::forget_sleeper(thread::known_eventfd());
    }
    engines.iter().for_each(|number| engine::enter_at(number).leave_wait());
    let interruption = thread::note_handler(action.has(libc::SA_RESTART));
    // SAFETY: invariant 1.
    unsafe {
        if action.has(libc::SA_SIGINFO) {
            core::mem::transmute::<usize, extern "C-unwind" fn(c_int, *mut libc::siginfo_t, *mut c_void)>(
                action.handler(),
            )(signal, info, context);
        } else {
            core::mem::transmute::<usize, extern "C-unwind" fn(c_int)>(action.handler())(signal);
        }
    }
    // Calls that the handler has made were interrupted or not by themselves.
    thread::note_interruption(interruption);
}

/// Signals that an instruction of the thread causes: they cannot be kept.
pub(crate) const FAULTS: [c_int; 7] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGABRT, libc::SIGSYS];

fn is_fault(signal: c_int) -> bool {
    FAULTS.contains(&signal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::thread::{enter, keep, leave};

    /// The values of a number's signals in the order in which they reached their handler.
    static VALUES: [AtomicUsize; 3] = [const { AtomicUsize::new(0) }; 3];
    static COUNT: AtomicUsize = AtomicUsize::new(0);

    extern "C" fn on_signal(_: c_int, info: &libc::siginfo_t, _: *const c_void) {
        let place = COUNT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: each signal of the test has a value.
        VALUES[place].store(unsafe { info.si_value() }.sival_ptr.addr(), Ordering::Relaxed);
    }

    /// A signal as of sigqueue(3).
    fn signal_of(number: c_int, value: usize) -> libc::siginfo_t {
        let mut words = [0_usize; 16];
        (words[0], words[1], words[3]) = (number as usize, libc::SI_QUEUE as u32 as usize, value);
        // SAFETY: a structure of integers, as long as these.
        unsafe { core::mem::transmute::<[usize; 16], libc::siginfo_t>(words) }
    }

    #[test]
    fn kept_realtime_signals_come_before_those_that_the_kernel_kept() {
        let number = libc::SIGRTMIN() + 7;
        // SAFETY: structures of integers, and a handler that stays.
        unsafe {
            let mut action: libc::sigaction = core::mem::zeroed();
            (action.sa_sigaction, action.sa_flags) = (on_signal as *const () as usize, libc::SA_SIGINFO);
            assert_eq!(libc::sigaction(number, &raw const action, core::ptr::null_mut()), 0);
        }
        let mut mask = 0;
        enter();
        keep(&signal_of(number, 1), &mut mask);
        keep(&signal_of(number, 2), &mut mask);
        // It came while the thread blocked all signals, as one that has no room for more does.
        sys::raise_again(number, &signal_of(number, 3));
        leave();
        sys::set_signal_mask(libc::SIG_UNBLOCK, u64::MAX);
        assert_eq!(VALUES.each_ref().map(|value| value.load(Ordering::Relaxed)), [1, 2, 3]);
    }
}
