//! Buffers that another thread releases: the one that polls a stack may hand bytes that it holds to
//! a thread that takes its time over them.
//!
//! ```text
//!  another thread: wp_release ─▶ the stack's channel ─▶ the stack's next poll ─▶ the pool
//! ```

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, TryLockError};

use crate::abi::Handle;
use crate::error::{Code, Result};

/// Looks at the lock before a call is refused. The lock is held for some 100 ns, except in a child
/// that was forked meanwhile: there it is held for ever.
const LOOKS_MAX: usize = 100_000;

/// The channels of the stacks that are open, by the stack's id.
static STACKS: Mutex<BTreeMap<u64, Sender<Handle>>> = Mutex::new(BTreeMap::new());

/// The stack's end of its channel.
pub(crate) struct Returned {
    stack: u64,
    buffers: Receiver<Handle>,
}

impl Returned {
    /// Opens a stack's channel.
    pub(crate) fn open(stack: Handle) -> Self {
        let (sender, buffers) = channel();
        if let Some(mut stacks) = stacks() {
            stacks.insert(stack.id, sender);
        }
        Self { stack: stack.id, buffers }
    }

    /// The next buffer that was released.
    #[inline]
    pub(crate) fn take(&self) -> Option<Handle> {
        self.buffers.try_recv().ok()
    }
}

impl Drop for Returned {
    fn drop(&mut self) {
        if let Some(mut stacks) = stacks() {
            stacks.remove(&self.stack);
        }
    }
}

/// Hands a buffer to the thread of its stack.
///
/// # Errors
/// [`Code::Stale`]: there is no such stack, or no more. [`Code::Again`]: the lock is held.
pub(crate) fn hand_over(stack: Handle, buffer: Handle) -> Result<()> {
    let stacks = stacks().ok_or(Code::Again)?;
    let channel = stacks.get(&stack.id).ok_or(Code::Stale)?;
    channel.send(buffer).map_err(|_| Code::Stale.into())
}

fn stacks() -> Option<MutexGuard<'static, BTreeMap<u64, Sender<Handle>>>> {
    for _ in 0..LOOKS_MAX {
        match STACKS.try_lock() {
            Ok(stacks) => return Some(stacks),
            Err(TryLockError::Poisoned(stacks)) => return Some(stacks.into_inner()),
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
        }
    }
    None
}
