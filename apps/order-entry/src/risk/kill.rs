//! The kill switch: one number, which the hot core reads with each order.

use core::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bits of the count that say by what the switch was thrown last.
const CAUSE_BITS: u32 = 8;

/// By what a switch was thrown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum KillCause {
    /// A program called [`KillSwitch::throw`].
    #[default]
    Program = 0,
    /// A person gave the command.
    Command = 1,
    /// A signal came.
    Signal = 2,
    /// The kill file appeared.
    File = 3,
}

impl KillCause {
    /// The cause of a byte, as a journal has it; a later version's is a program's.
    pub const fn from_wire(byte: u8) -> Self {
        match byte {
            1 => Self::Command,
            2 => Self::Signal,
            3 => Self::File,
            _ => Self::Program,
        }
    }
}

impl fmt::Display for KillCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Program => "by a program",
            Self::Command => "by a command",
            Self::Signal => "by a signal",
            Self::File => "by the kill file",
        })
    }
}

/// A switch that any thread may throw, and that disarms each gate that shares it. Clones are the
/// same switch.
///
/// It counts how often it was thrown, and an armed gate remembers the count. So nobody has to reset
/// the switch, and a gate stays disarmed until it is armed by hand.
#[derive(Clone, Debug, Default)]
pub struct KillSwitch(Arc<AtomicU64>);

impl KillSwitch {
    /// A switch that was not thrown.
    pub fn new() -> Self {
        Self::default()
    }

    /// Disarms all gates that share the switch, for [`KillCause::Program`].
    pub fn throw(&self) {
        self.throw_for(KillCause::Program);
    }

    /// Disarms all gates that share the switch. Safe in a signal handler.
    pub fn throw_for(&self, cause: KillCause) {
        let next = |value: u64| ((value >> CAUSE_BITS) + 1) << CAUSE_BITS | cause as u64;
        // The closure always gives a value.
        let _ = self.0.fetch_update(Ordering::Release, Ordering::Relaxed, |value| Some(next(value)));
    }

    /// A number that each throw makes greater. One load.
    pub fn throws(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// By what it was thrown last.
    pub fn cause(&self) -> KillCause {
        KillCause::from_wire(self.throws() as u8)
    }
}
