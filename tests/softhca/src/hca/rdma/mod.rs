//! RDMA: queue pairs of the services RC, UC and UD, over RoCE version 2 on the port's wire.
//!
//! ```text
//!  send queue ─▶ request ─▶ requester ─▶ packet ─▶ frame ─▶ the wire
//!                               ▲ answers
//!  the wire ─▶ frame ─▶ packet ─┴▶ responder ─▶ the peer's READs, WRITEs, atomics; receive WQEs
//!                                      └─▶ answers ─▶ packet ─▶ frame ─▶ the wire
//! ```
//!
//! An `Endpoint` is a queue pair as these files see it. Its sending ring is the [`Sq`] of raw
//! packets, which fetches WQEs and checks doorbells; its receiving ring is an [`Rq`], or a shared
//! receive queue (`srq`).
//!
//! The code is written from the specification, simple rather than fast, and shares nothing with
//! wirepath's own RoCE, which it judges.
//!
//! [`Sq`]: super::send::Sq
//! [`Rq`]: super::receive::Rq

mod answers;
mod attributes;
mod endpoint;
mod frame;
mod ingress;
mod packet;
mod path;
mod receive_wqe;
mod request;
mod requester;
mod responder;
mod srq;

pub(super) use attributes::mask;
pub(super) use endpoint::{Endpoints, Receivers};
pub(super) use requester::Requester;
pub(super) use srq::Srqs;

#[cfg(test)]
mod tests;
