//! The objects that a client makes, changes and destroys, one file for each kind; and the handles
//! by which it names them (`handles`).

pub(super) mod ah;
pub(super) mod cq;
pub(super) mod flow;
pub(super) mod handles;
pub(super) mod pd;
pub(super) mod qp;
pub(super) mod qp_state;
pub(super) mod srq;
pub(super) mod uar;
pub(super) mod wq;

pub(super) use handles::{Kind, Objects};
pub(super) use uar::{REGISTERS_A_PAGE, Uars};
