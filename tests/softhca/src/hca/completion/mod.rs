//! Completions: a result of the sending or the receiving side (`outcome`) becomes an entry in the
//! driver's memory, and an event for a driver that has armed its queue.
//!
//! ```text
//!  outcome ─▶ cq ─┬▶ cqe ─▶ ring       an entry a frame
//!                 ├▶ compress ─▶ ring  sessions of entries that are alike
//!                 └▶ arm               an event
//! ```

mod arm;
mod compress;
mod cq;
mod cqe;
mod outcome;
mod ring;

pub(super) use cq::Cqs;
pub(super) use cqe::FILLER;
pub use outcome::{Completion, CompletionKind, RxHeaders, RxMessage, RxMessageKind, Syndrome};
