//! Queues of a ConnectX that a broker creates and a process without capabilities polls.
//!
//! ```text
//!  program (no capability)                      broker (root)
//!  LentQueue ──── request: bytes, address ─────▶ Lender: a context for each client
//!            ◀─── memory: buffers, status,      ├ registers the memory, at the client's address
//!                 rings, doorbell records       ├ makes queue pairs, whose rings are there
//!            ◀─── the device's file             └ installs and removes rules
//!  maps both; Mlx5Rx and Mlx5Tx poll and ring   watches the port, relays completion events
//! ```
//!
//! The rings are the same, and so is the code that drives them: nothing of a frame passes the
//! broker. The kernel wants a capability of whoever makes a raw-packet queue pair or a rule, and
//! none of whoever maps the page of a register. What the client can do with the device's file is in
//! SECURITY.md.
//!
//! [`shared`] is the memory as both map it, [`clock`] the NIC's clock in it, [`lender`] the
//! broker's part with the [`halves`] of each queue, [`client`] the program's.

mod client;
mod clock;
mod destructions;
mod halves;
mod lender;
#[allow(unsafe_code)]
mod rings;
#[allow(unsafe_code)]
mod shared;

pub(crate) use crate::device::broker::client::lost_rule;
pub(crate) use client::{LentPort, LentQueue};
pub(crate) use lender::{Lender, LentNic};
pub(crate) use shared::page_len;
