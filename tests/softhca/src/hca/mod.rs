//! The model: control objects (protection domains, memory regions, queues, flows), and [`step`](Hca::step), in which it
//! does what the NIC would have done meanwhile: looks at doorbells, fetches and executes send WQEs, receives frames into
//! receive WQEs, writes CQEs.
//!
//! It has no thread and no I/O. Whoever owns it (an engine thread, a test, a simulation) calls control functions and
//! `step`, never both at once.

mod completion;
mod config;
mod control;
mod outside;

pub use completion::{Completion, CompletionKind, RxHeaders, Syndrome};
pub use config::{Config, Hostility};
pub use control::{
    AccessFlags, Compression, CqCreated, CqEvents, CqRequest, Errno, Event, EventKind, FlowAction, FlowKind,
    FlowRequest, FlowSpec, MrCreated, MrRequest, QpCapabilities, QpChange, QpCreated, QpKind, QpRequest, QpState,
    RqRing, RssRequest, SqRing, Striding, WqChange, WqCreated, WqRequest, WqState,
};
pub use outside::{Clock, Dma, Link, Outside, Unmapped, Wire};

use std::collections::VecDeque;

/// One NIC with one port.
pub struct Hca {
    config: Config,
    events: VecDeque<Event>,
}

impl Hca {
    /// A NIC that has just been switched on.
    pub fn new(config: Config) -> Self {
        Self { config, events: VecDeque::new() }
    }

    /// What it says of itself.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Does what became due: at most `budget` frames a direction. Returns how many frames moved, WQEs were taken or CQEs
    /// written: 0 means that nothing was to be done.
    pub fn step(&mut self, budget: usize, outside: &mut Outside<'_>) -> usize {
        let _ = (budget, outside);
        0
    }

    /// The oldest event that the owner has not taken: completion events for channels, asynchronous ones.
    pub fn take_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}
