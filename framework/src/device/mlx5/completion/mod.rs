//! Completion queues: whose turn a CQE is, what it says, compressed CQEs, and the clock of their
//! time stamps.

pub(super) mod clock;
pub(super) mod compressed;
pub(super) mod cq;
pub(super) mod cqe;
pub(super) mod cqe_parser;
pub(super) mod reader;
