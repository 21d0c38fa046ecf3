//! What the NIC does not have yet: each of these is shadowed by the function of that name as soon as `Hca` has it.

use super::refuse;
use crate::hca::{Errno, FlowRequest, Hca};

#[allow(dead_code)] // see above
pub(super) trait Missing {
    fn create_flow(&mut self, _: &FlowRequest) -> Result<u32, Errno> {
        refuse(libc::EOPNOTSUPP)
    }
    fn destroy_flow(&mut self, _: u32) -> Result<(), Errno> {
        refuse(libc::EOPNOTSUPP)
    }
}

impl Missing for Hca {}
