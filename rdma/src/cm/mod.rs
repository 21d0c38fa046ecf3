//! RDMA_CM: connections that are made over queue pair 1 of both ports, so that a program names its
//! peer by address and port, as with sockets (InfiniBand chapter 12, Annex A11).
//!
//! ```text
//!  listen, connect, accept -> Manager: Cm <-> MADs <-> queue pair 1 of the Device -> events
//!                               `-> modify_qp: RTR, RTS, ERR
//! ```
//!
//! [`Cm`] is the machine without I/O and clock, and [`Manager`] joins it with a
//! [`Device`](crate::roce::Device). Names are those of the specification and of rdmacm.

mod machine;
mod mad;
mod manager;
mod message;
mod reason;
mod service;

pub use machine::{
    Cm, CmConfig, CmCounters, CmError, CmEvent, CmId, ConnParam, ConnectOptions, ConnectRequest, Delivery,
    ListenOptions, ListenerId, LocalQp,
};
pub use mad::{MadError, MadHeader};
pub use manager::{Manager, Resolved};
pub use message::{
    About, Drep, Dreq, Message, Mra, REJ_DATA_LEN, REP_DATA_LEN, REQ_DATA_LEN, Rej, RejFields, Rep, RepFields, Req,
    ReqFields, Rtu, SIDR_REP_DATA_LEN, SIDR_REQ_DATA_LEN, SidrRep, SidrReq,
};
pub use reason::{RejectReason, SidrStatus};
pub use service::{IpHeader, PortSpace};

#[cfg(test)]
mod tests;
