//! Completion queues: ownership and parsing of CQEs, compressed CQEs, and the clock of their
//! timestamps.

pub(super) mod clock;
pub(super) mod compressed;
pub(super) mod cq;
pub(super) mod cqe;
pub(super) mod cqe_parser;
pub(super) mod reader;
