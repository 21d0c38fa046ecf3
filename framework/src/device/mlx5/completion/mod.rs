//! Completion queues: ownership and parsing of CQEs, compressed CQEs, the clock of their
//! timestamps, and events for loops that sleep.

pub(super) mod arm;
pub(super) mod clock;
pub(super) mod compressed;
pub(super) mod cq;
pub(super) mod cqe;
pub(super) mod cqe_parser;
pub(super) mod reader;
