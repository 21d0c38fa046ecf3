//! The sending side: a ring's doorbell record is read, and a WQE is fetched, checked, executed, and
//! completed; `fault` lists the possible mistakes.
//!
//! ```text
//!  sq ── fetch ─▶ wqe ─▶ transmit ─▶ offload ─▶ outbox ─▶ the wire
//!   ▲ pace, strict                               └─▶ completion
//! ```

mod fault;
pub(super) mod offload;
mod outbox;
mod pace;
#[cfg(test)]
mod rig;
pub(super) mod sq;
pub(super) mod strict;
mod transmit;
mod wqe;

pub(super) use fault::Fault;
#[cfg(test)]
pub(super) use rig::Rig;
pub(super) use sq::{Sq, SqState};
pub(super) use transmit::Transmitter;
pub(super) use wqe::{CompletionMode, Control, Piece, Pieces, Scratch, Source, opcode};
