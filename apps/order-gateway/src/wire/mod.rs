//! The venue's connection over wirepath's own TCP, in the worker that receives the feed: an order
//! leaves in the call that brought its tick.
//!
//! ```text
//!  a turn of the port's worker
//!   on_datagram ─▶ Run::on_packet: books ▸ strategy ▸ risk ▸ journal ─▶ a prepared segment, fired
//!   on_tcp_data ─▶ inbox                                             (Prepared)
//!   tick ───────▶ Run::turn: commands, standby, drop copy, heartbeats; reads the inbox
//!                    └▶ outbox, calls, closes, resets ─▶ TCP, in the same callback
//! ```
//!
//! [`WireGateway`] is the worker's app and owns the [`Run`](crate::Run), whose [`Host`] it made:
//! the venue's connection is a [`Stream`] of plain memory, [`Endpoint`], which the app carries out
//! with TCP. The standby and the drop copy stay on the kernel's sockets.
//!
//! [`Host`]: crate::host::Host
//! [`Stream`]: crate::host::Stream

mod app;
mod endpoint;
mod host;
mod port;
mod prepared;

pub use app::{WireCounts, WireGateway, consumer};
pub use endpoint::Endpoint;
pub use host::WireHost;
pub use port::{WirePort, WirePortConfig};
