//! What the NIC does not have yet: each of these is shadowed by the function of that name as soon as `Hca` has it.

use super::refuse;
use crate::hca::{
    Errno, FlowRequest, Hca, QpCapabilities, QpChange, QpCreated, QpRequest, QpState, WqChange, WqCreated, WqRequest,
};

#[allow(dead_code)] // see above
pub(super) trait Missing {
    fn create_qp(&mut self, _: QpRequest) -> Result<QpCreated, Errno> {
        refuse(libc::EOPNOTSUPP)
    }
    fn modify_qp(&mut self, _: u32, _: &QpChange) -> Result<(), Errno> {
        refuse(libc::EOPNOTSUPP)
    }
    fn query_qp(&self, _: u32) -> Result<(QpState, QpCapabilities), Errno> {
        refuse(libc::EOPNOTSUPP)
    }
    fn destroy_qp(&mut self, _: u32) -> Result<u32, Errno> {
        refuse(libc::EOPNOTSUPP)
    }
    fn create_wq(&mut self, _: &WqRequest) -> Result<WqCreated, Errno> {
        refuse(libc::EOPNOTSUPP)
    }
    fn modify_wq(&mut self, _: u32, _: &WqChange) -> Result<(), Errno> {
        refuse(libc::EOPNOTSUPP)
    }
    fn destroy_wq(&mut self, _: u32) -> Result<u32, Errno> {
        refuse(libc::EOPNOTSUPP)
    }
    fn create_table(&mut self, _: &[u32]) -> Result<u32, Errno> {
        refuse(libc::EOPNOTSUPP)
    }
    fn destroy_table(&mut self, _: u32) -> Result<(), Errno> {
        refuse(libc::EOPNOTSUPP)
    }
    fn create_flow(&mut self, _: &FlowRequest) -> Result<u32, Errno> {
        refuse(libc::EOPNOTSUPP)
    }
    fn destroy_flow(&mut self, _: u32) -> Result<(), Errno> {
        refuse(libc::EOPNOTSUPP)
    }
    fn alloc_uar(&mut self) -> u32 {
        0
    }
    fn free_uar(&mut self, _: u32) {}
}

impl Missing for Hca {}
