//! A feed handler: market data from a capture or a live port through the whole pipeline, every
//! packet accounted for.
//!
//! ```text
//!  capture or file ─▶ faults? ─▶ tap? ─┐
//!  live port, one worker a queue ──────┴▶ intake ─▶ Ethernet ─▶ IPv4 ─▶ join ─▶ UDP ─▶ feed ─▶ books
//!  [device]                                                            [join]       [feed] ⇅ rings
//!                                                     servers ◀── kernel sockets ──▶ [recovery] thread
//!                               other machines ◀── RDMA READ ── slots ── [expose] thread
//! ```
//!
//! The binary is a thin command line over this library. A user's request is a [`ReplayPlan`] or a
//! [`RunPlan`], from flags and a [`config`] file; [`replay()`] or [`run()`] carries it out and
//! returns a [`Summary`](report::Summary), which is printed as a table or as JSON.
#![forbid(unsafe_code)]

pub mod args;
pub mod config;
pub mod plan;
pub mod values;

pub mod device;
pub mod feed;
pub mod format;
pub mod join;
pub mod recovery;

pub mod expose;

mod channels;
mod event;
mod memory;
mod watch;

pub mod replay;
pub mod run;
pub mod sniff;

pub mod report;

mod error;

pub use channels::{Channels, Place};
pub use error::Error;
pub use event::{Event, Progress};
pub use format::Format;
pub use plan::{FeedPlan, ReplayPlan, RunPlan};
pub use replay::{replay, replay_with};
pub use run::{SinkContext, run, run_with};
