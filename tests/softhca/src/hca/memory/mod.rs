//! The driver's memory as the NIC sees it: what a key in a WQE allows and where it leads (`mr`), and
//! the pages of registers that a driver rings (`uar`).

mod mr;
mod uar;

pub(super) use mr::{Memory, Purpose, Unreachable};
pub(super) use uar::{HALF_LEN, HALVES, Ring, Uars};
