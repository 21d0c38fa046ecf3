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
//! table hold a day's orders. Corrections of trades are not compared: a trade that was corrected
//! before a restart is a difference behind it, for a person.

mod line;
mod ouch;
mod reconciler;

use line::Copied;
pub use line::{DropCopyConfig, DropCopyLine, DropCopyProtocol};
pub use reconciler::{Difference, Reconciler, Trade};
