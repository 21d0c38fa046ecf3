//! The receiving side: a frame comes from the wire (`ingress`), steering names its rings, and each
//! of them gets its bytes and a completion.
//!
//! ```text
//!  ingress ─▶ verdict ─▶ rq ─┬▶ scatter   a frame in the buffers of one WQE
//!                        ▲   └▶ stride    several frames in one WQE
//!                        wq: rings with a handle, and tables of them
//! ```

pub(super) mod fcs;
#[cfg(test)]
mod frames;
mod ingress;
#[cfg(test)]
pub(super) mod rig;
mod rq;
mod scatter;
mod stride;
pub(super) mod verdict;
mod wq;

#[cfg(test)]
pub(super) use frames::{Frame, TCP};
pub(super) use ingress::Receive;
#[cfg(test)]
pub(super) use rig::RxRig;
pub(super) use rq::{Rq, RqFault, Rqs};
pub(super) use scatter::Pointer;
pub(super) use wq::Wqs;
