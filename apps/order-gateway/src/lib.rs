//! A template to copy and own: a strategy's orders past risk checks and a journal to a venue, and
//! its answers back.
//!
//! ```text
//!  feed ─ Feed ─ BookEvent ─▶ Strategy ─ Orders ─▶ Core: state ▸ risk ▸ journal ▸ session ─▶ line
//!                                ▲                              │
//!                                └───────── OrderEvent ◀────────┴──── journal ◂ session ◀─── line
//! ```
//!
//! [`Gateway`] has no line and no clock, and a [`Run`] has those of its [`host`]: the same code
//! runs over [`kernel`] sockets, over wirepath's TCP ([`wire`]) and in tests. Where the feed is not
//! ITCH over MoldUDP64, or is to be recovered, [`Quotes`] takes the best prices of a
//! market-gateway. It starts disarmed, with limits of zero where none are set. A request that is
//! refused has written nothing but its reason.

mod audit;
mod config;
pub mod control;
mod core;
pub mod drop_copy;
mod error;
mod feed;
mod feed_line;
mod gateway;
mod helper;
pub mod host;
pub mod kernel;
pub mod latency;
mod limits;
mod logger;
mod memory;
mod orders;
mod quotes;
mod rdma_port;
pub mod remains;
mod run;
mod stamps;
pub mod standby;
mod strategy;
mod sync;
mod text;
pub mod wire;

pub use audit::{Audit, AuditCsv, Direction};
pub use config::{
    Config, JournalConfig, LatencyConfig, MirrorConfig, Sample, StandbyConfig, VenueClient, VenueConfig, VenueNeeds,
};
pub use core::{
    Core, CoreConfig, CoreCounts, Instrument, KillLine, LeftBehind, Notice, OrderAlarm, RefusalCounts, VenueRefusal,
};
pub use error::Error;
pub use feed::{Depth, Feed, FeedConfig, FeedRecovery, RecoveryCounts};
pub use feed_line::{FeedLine, FeedSocket};
pub use gateway::Gateway;
pub use helper::Helper;
pub use limits::LimitsFile;
pub use logger::Logger;
pub use memory::{MappedFile, SyncPolicy};
pub use orders::{OrderRequest, Orders};
pub use quotes::{News, Quotes};
pub use rdma_port::RdmaPort;
pub use run::{LineConfig, Run, Turn};
pub use strategy::{BookEvent, Strategy};
pub use sync::JournalSync;
pub use text::journal_csv;
