//! The drop copy: the venue's copies of our trades on a connection of their own. Each trade must be
//! in both streams within a time; where one lacks it, or tells other terms, new orders stop.
//!
//! After a start the copies of the whole day are compared with the trades that the journal had. A
//! trade of the journal that the copy never had is found while the process runs that booked it, and
//! a trade of an order that the table of orders has forgotten counts as one that we lack: let the
//! table hold a day's orders.

mod line;
mod reconciler;

pub use line::{DropCopyConfig, DropCopyLine};
pub use reconciler::{Difference, Reconciler, Trade};
