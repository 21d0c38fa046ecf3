//! The drop copy: the venue's copies of our trades on a connection of their own. Each trade must be
//! in both streams within a time; where one lacks it, or tells other terms, new orders stop. A
//! trade that the drop copy alone has is booked, once.
//!
//! ```text
//!  OUCH 5.0 ─ OuchCopies ──┐
//!                          ├─ DropCopyLine ─ Trade ─> Reconciler <─ Trade ─ session
//!  FIX ────── FixDropCopy ─┘
//! ```
//!
//! After a start the copies of the whole day are compared with the trades that the journal had. A
//! trade of the journal that the copy never had is found while the process runs that booked it, and
//! a trade of an order that the table of orders has forgotten counts as one that we lack: let the
//! table hold a day's orders. A correction is compared with the correction of the same execution,
//! and behind a restart with that of the same name. One that a side lacks stops orders, and is
//! never booked: a person compares. Behind a restart what the journal has with a later correction
//! counts as compared, because its own terms are forgotten; where the venue gives a correction no
//! name of its own (BOE, OUCH 4.2) such a trade is a difference, for a person.

mod line;
mod ouch;
mod reconciler;

use line::Copied;
pub use line::{DropCopyConfig, DropCopyLine, DropCopyProtocol};
pub use reconciler::{Difference, Reconciler, Trade};
