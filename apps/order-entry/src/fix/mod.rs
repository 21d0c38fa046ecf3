//! FIX: tag=value messages, and the session that numbers and recovers them.
//!
//! ```text
//!  bytes ─ codec::frame ─ codec::FieldIndex ─ Message ─ orders (typed messages)
//!  orders ─ codec::Template or codec::Writer ─ bytes
//! ```
//!
//! Versions: FIX 4.2, FIX 4.4, and FIX 5.0 SP2 over FIXT 1.1. A message is indexed in one pass: a
//! value is an offset and a length in the received bytes, and is decoded when it is read.

mod client;
pub mod codec;
mod drop_copy;
pub mod orders;
pub mod session;
mod tag;

pub use client::{FixClient, FixClientConfig};
pub use drop_copy::{CopiedSession, CopiedTrade, DropCopyEvent, FixDropCopy};
pub use tag::tags;
