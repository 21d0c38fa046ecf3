//! The driver's memory as the NIC sees it: the regions that keys in WQEs refer to (`mr`), and the
//! pages with doorbell registers (`uar`).

mod mr;
mod uar;

pub(super) use mr::{Memory, Purpose, Unreachable};
pub(super) use uar::{HALF_LEN, HALVES, Ring, Uars};
