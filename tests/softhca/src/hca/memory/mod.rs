//! The driver's memory as the NIC sees it: the regions that keys in WQEs refer to (`mr`), windows
//! to them for peers (`mw`), and the pages with doorbell registers (`uar`).

mod mr;
mod mw;
mod uar;

pub(super) use mr::{Memory, Purpose, Unreachable};
pub(super) use mw::{Binding, WindowChange};
pub(super) use uar::{HALF_LEN, HALVES, Ring, Uars};
