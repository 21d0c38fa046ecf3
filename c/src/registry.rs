//! The stacks of a thread, by their handles. A handle contains the number of its thread, so that a
//! call from another thread is refused before it accesses the stack.

use core::cell::{Cell, RefCell};
use core::sync::atomic::{AtomicU32, Ordering};

use crate::abi::Handle;
use crate::error::{Code, Result};
use crate::stack::Stack;

/// Bits of a handle below the thread's number: the slot and its generation.
const THREAD_SHIFT: u32 = 40;
const GENERATION_SHIFT: u32 = 8;
/// The most stacks of one thread.
const STACKS_MAX: usize = 255;

/// One place of the table.
struct Place {
    generation: u32,
    stack: Option<Box<Stack>>,
    /// Set during a call: a call that finds it set comes after a panic.
    is_in_call: bool,
}

thread_local! {
    static THREAD: Cell<u32> = const { Cell::new(0) };
    static STACKS: RefCell<Vec<Place>> = const { RefCell::new(Vec::new()) };
}

/// The number of this thread, 1 for the first that opens a stack.
fn this_thread() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    if THREAD.get() == 0 {
        THREAD.set(NEXT.fetch_add(1, Ordering::Relaxed) & 0xff_ffff);
    }
    THREAD.get()
}

/// Adds a stack of this thread, and returns its handle.
pub(crate) fn add(stack: Box<Stack>) -> Result<Handle> {
    let thread = this_thread();
    STACKS.with_borrow_mut(|places| {
        let free = places.iter().position(|place| place.stack.is_none());
        let slot = match free {
            Some(slot) => slot,
            None if places.len() == STACKS_MAX => return Err(Code::Limit.into()),
            None => {
                places.push(Place { generation: 0, stack: None, is_in_call: false });
                places.len() - 1
            }
        };
        let place = &mut places[slot];
        place.generation = place.generation.wrapping_add(1);
        (place.stack, place.is_in_call) = (Some(stack), false);
        let id = (u64::from(thread) << THREAD_SHIFT) | (u64::from(place.generation) << GENERATION_SHIFT);
        Ok(Handle { id: id | (slot as u64 + 1) })
    })
}

/// The place of a handle.
#[inline]
fn place(places: &mut [Place], handle: Handle) -> Result<&mut Place> {
    let thread = (handle.id >> THREAD_SHIFT) as u32;
    if thread != THREAD.get() || thread == 0 {
        return Err(if handle.id == 0 { Code::Stale } else { Code::Thread }.into());
    }
    let slot = ((handle.id & 0xff) as usize).checked_sub(1).ok_or(Code::Stale)?;
    let place = places.get_mut(slot).ok_or(Code::Stale)?;
    if place.generation != (handle.id >> GENERATION_SHIFT) as u32 || place.stack.is_none() {
        return Err(Code::Stale.into());
    }
    Ok(place)
}

/// Calls a stack. A call that panics leaves the mark set, so every later call except [`remove`] is
/// refused.
#[inline]
pub(crate) fn with<T>(handle: Handle, act: impl FnOnce(&mut Stack) -> Result<T>) -> Result<T> {
    let called = STACKS.try_with(|places| {
        let mut places = places.try_borrow_mut().map_err(|_| Code::Broken)?;
        let place = place(&mut places, handle)?;
        if place.is_in_call {
            return Err(Code::Broken.into());
        }
        place.is_in_call = true;
        let stack = place.stack.as_mut().ok_or(Code::Stale)?;
        let result = act(stack);
        place.is_in_call = false;
        result
    });
    called.unwrap_or_else(|_| Err(Code::Thread.into()))
}

/// Takes a stack out, to be dropped. Its handle is stale from now on.
pub(crate) fn remove(handle: Handle) -> Result<Box<Stack>> {
    let removed = STACKS.try_with(|places| {
        let mut places = places.try_borrow_mut().map_err(|_| Code::Broken)?;
        Ok(place(&mut places, handle)?.stack.take().ok_or(Code::Stale)?)
    });
    removed.unwrap_or_else(|_| Err(Code::Thread.into()))
}
