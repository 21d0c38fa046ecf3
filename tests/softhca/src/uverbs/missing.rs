//! What the NIC does not have yet: each of these is shadowed by the function of that name as soon as `Hca` has it.

use super::refuse;
use crate::hca::{Errno, FlowRequest, Hca, WqChange, WqCreated, WqRequest};

#[allow(dead_code)] // see above
pub(super) trait Missing {
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
}

impl Missing for Hca {}
