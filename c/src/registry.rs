//! The stacks of a thread, by their handles. A handle contains the number of its thread, so that a
//! call from another thread is refused before it accesses the stack.

use core::cell::{Cell, RefCell};
use core::mem::ManuallyDrop;
use core::sync::atomic::{AtomicU32, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use crate::abi::Handle;
use crate::error::{Code, Result};
use crate::foreign;
use crate::stack::Stack;

/// Bits of a handle below the thread's number: the index and its generation.
const THREAD_SHIFT: u32 = 40;
const GENERATION_SHIFT: u32 = 8;
/// The most stacks of one thread.
const STACKS_MAX: usize = 255;

/// The table of a thread, and its number: 1 for the first that opens a stack. It has no destructor,
/// so that no call has to check whether the destructor has run.
struct Thread {
    number: Cell<u32>,
    slots: RefCell<ManuallyDrop<Vec<Slot>>>,
}

/// One slot of the table.
struct Slot {
    /// The handle of the stack while it may be called, else 0: after a call that panicked, and
    /// without a stack. So one comparison decides.
    callable: u64,
    /// The handle of the stack, or of the last one.
    handle: u64,
    stack: Option<Box<Stack>>,
}

/// Closes the stacks of a thread that ends.
struct AtEnd;

thread_local! {
    static THREAD: Thread =
        const { Thread { number: Cell::new(0), slots: RefCell::new(ManuallyDrop::new(Vec::new())) } };
    static AT_END: AtEnd = const { AtEnd };
}

impl Drop for AtEnd {
    fn drop(&mut self) {
        THREAD.with(|thread| {
            let Ok(mut slots) = thread.slots.try_borrow_mut() else { return };
            for slot in slots.iter_mut() {
                let stack = slot.stack.take();
                slot.callable = 0;
                // A panic in a destructor of a thread's values would abort the process.
                let _ = catch_unwind(AssertUnwindSafe(|| drop(stack)));
            }
        });
    }
}

impl Thread {
    fn number(&self) -> u32 {
        if self.number.get() == 0 {
            self.number.set(NEXT_THREAD.fetch_add(1, Ordering::Relaxed) & 0xff_ffff);
        }
        self.number.get()
    }
}

/// The number of the first thread that this process can have stacks of: lower ones are of the
/// process that forked it.
static FIRST_OF_PROCESS: AtomicU32 = AtomicU32::new(1);
static NEXT_THREAD: AtomicU32 = AtomicU32::new(1);

/// Forgets all stacks in the child of a `fork`: those of other threads by their numbers, and those
/// of the thread that forked, which gets another number for its next stack. Parent and child would
/// write to the same rings, and the child does not have the pool's memory; and what a stack gives
/// back when it is dropped, such as its rules, is still the parent's. What a stack has in memory is
/// lost. Its descriptors are closed, because each copy keeps the queue, the program and the locks,
/// also where the parent has ended.
extern "C" fn forget_in_child() {
    wirepath::port::close_inherited();
    FIRST_OF_PROCESS.store(NEXT_THREAD.load(Ordering::Relaxed), Ordering::Relaxed);
    THREAD.with(|thread| {
        thread.number.set(0);
        let Ok(mut slots) = thread.slots.try_borrow_mut() else { return };
        for slot in slots.iter_mut() {
            slot.callable = 0;
            core::mem::forget(slot.stack.take());
        }
    });
}

/// Whether a handle names a stack of another thread.
#[inline]
pub(crate) fn is_elsewhere(handle: Handle) -> bool {
    let thread = thread_of(handle);
    handle.id != 0
        && THREAD.with(|own| thread != own.number.get())
        && thread >= FIRST_OF_PROCESS.load(Ordering::Relaxed)
}

/// The number of the thread whose stack a handle names.
#[inline]
fn thread_of(handle: Handle) -> u32 {
    (handle.id >> THREAD_SHIFT) as u32
}

/// Adds a stack of this thread, and returns its handle.
pub(crate) fn add(mut stack: Box<Stack>) -> Result<Handle> {
    static AT_FORK: Once = Once::new();
    AT_FORK.call_once(|| foreign::at_fork_in_child(forget_in_child));
    // Registers the destructor. Fails where it has run: the thread is about to end.
    AT_END.try_with(|_| ()).map_err(|_| Code::Thread)?;
    THREAD.with(|thread| {
        let mut slots = thread.slots.borrow_mut();
        let free = slots.iter().position(|slot| slot.stack.is_none());
        let idx = match free {
            Some(idx) => idx,
            None if slots.len() == STACKS_MAX => return Err(Code::Limit.into()),
            None => {
                slots.push(Slot { callable: 0, handle: 0, stack: None });
                slots.len() - 1
            }
        };
        let slot = &mut slots[idx];
        let generation = ((slot.handle >> GENERATION_SHIFT) as u32).wrapping_add(1);
        let id = (u64::from(thread.number()) << THREAD_SHIFT) | (u64::from(generation) << GENERATION_SHIFT);
        slot.handle = id | (idx as u64 + 1);
        stack.named(Handle { id: slot.handle });
        (slot.callable, slot.stack) = (slot.handle, Some(stack));
        Ok(Handle { id: slot.handle })
    })
}

/// The slot that a handle names, whether it has this stack or not.
#[inline]
fn slot(slots: &mut [Slot], handle: Handle) -> Option<&mut Slot> {
    slots.get_mut((handle.id as usize & 0xff).wrapping_sub(1))
}

/// Calls a stack, by one comparison of its handle.
///
/// # Errors
/// The handle names no stack of this thread that may be called.
#[inline(always)]
pub(crate) fn with<T>(handle: Handle, act: impl FnOnce(&mut Stack) -> T) -> core::result::Result<T, Code> {
    THREAD.with(|thread| {
        let Ok(mut slots) = thread.slots.try_borrow_mut() else { return Err(Code::Broken) };
        if let Some(slot) = slot(&mut slots, handle)
            && slot.callable == handle.id
            && let Some(stack) = &mut slot.stack
        {
            return Ok(act(stack));
        }
        Err(why_not(&mut slots, handle, thread.number.get()))
    })
}

/// After a call that has panicked: every later one but [`remove`] is refused.
#[cold]
pub(crate) fn refuse_calls(handle: Handle) {
    THREAD.with(|thread| {
        if let Ok(mut slots) = thread.slots.try_borrow_mut()
            && let Some(slot) = slot(&mut slots, handle).filter(|slot| slot.callable == handle.id)
        {
            slot.callable = 0;
        }
    });
}

/// Why a handle names no stack that may be called.
#[cold]
#[inline(never)]
fn why_not(slots: &mut [Slot], handle: Handle, thread: u32) -> Code {
    match slot(slots, handle) {
        _ if handle.id == 0 => Code::Stale,
        _ if thread_of(handle) < FIRST_OF_PROCESS.load(Ordering::Relaxed) => Code::Stale,
        _ if thread == 0 || thread_of(handle) != thread => Code::Thread,
        Some(slot) if slot.handle == handle.id && slot.stack.is_some() => Code::Broken,
        _ => Code::Stale,
    }
}

/// Takes a stack out, to be dropped. Its handle is stale from now on.
pub(crate) fn remove(handle: Handle) -> Result<Box<Stack>> {
    THREAD.with(|thread| {
        let mut slots = thread.slots.try_borrow_mut().map_err(|_| Code::Broken)?;
        if let Some(slot) = slot(&mut slots, handle).filter(|slot| slot.handle == handle.id)
            && let Some(stack) = slot.stack.take()
        {
            slot.callable = 0;
            return Ok(stack);
        }
        Err(why_not(&mut slots, handle, thread.number.get()).into())
    })
}
