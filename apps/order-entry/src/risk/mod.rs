//! Risk checks in line: each order passes all of them before a byte of it is written.
//!
//! ```text
//!  NewOrder, Replace ── RiskGate::check_… ──> Ok: reserved, send    Err(RiskReject): nothing changed
//!                            │ reads                 │
//!         Limits (a block, swapped whole)            └─ RiskGate::traded, replaced, ended, …: released
//! ```
//!
//! Limits are zero until they are set, and a gate is constructed disarmed, so a gate that nobody
//! configured refuses each order. An order reserves position and credit when it is sent, buys and
//! sells apart, and the reservation ends with the order. A replace reserves the most that old and
//! new terms allow, one after the other, until the venue has answered. All sums are integers. The
//! gate allocates when it is constructed, reads no clock, and a check costs some hundred
//! instructions.

mod checks;
mod duplicates;
mod events;
mod exposure;
mod follow;
mod gate;
mod kill;
mod levels;
mod limits;
mod multiplier;
mod order;
mod own_levels;
mod passed;
mod rate;
mod reject;
mod reservation;

pub use gate::{RiskCapacity, RiskCounts, RiskGate};
pub use kill::{KillCause, KillSwitch};
pub use levels::{Level, LevelLimits};
pub use limits::{AccountLimits, Bitmap, InstrumentLimits, Limits, RateLimits, SelfMatch, SingleLimits, StaleLimits};
pub use multiplier::Multiplier;
pub use order::{InstrumentIdx, Market, NewOrder, Replace, Route, StrategyIdx};
pub(crate) use passed::Passed;
pub use rate::Rate;
pub use reject::{Limit, RiskReject};

#[cfg(test)]
mod tests;
