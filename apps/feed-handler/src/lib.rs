//! A feed handler: market data from a capture through the whole pipeline on one worker, every packet accounted for.
//!
//! ```text
//!  capture or file ─▶ faults? ─▶ tap? ─▶ intake ─▶ Ethernet ─▶ IPv4 ─▶ join ─▶ UDP ─▶ feed ─▶ books
//!  [device]                                                            [join]       [feed]
//! ```
//!
//! The binary is a thin command line over this library. What a user asks for is a [`Plan`], from flags and a [`config`]
//! file; [`replay()`] carries it out and gives a [`Summary`](report::Summary), which is printed as a table or as JSON.
#![forbid(unsafe_code)]

pub mod args;
pub mod config;
pub mod plan;

pub mod device;
pub mod feed;
pub mod format;
pub mod join;

pub mod replay;
pub mod sniff;

pub mod report;

mod error;

pub use error::Error;
pub use format::Format;
pub use plan::Plan;
pub use replay::{Event, Progress, replay};
