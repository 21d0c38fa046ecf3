//! The control path: finds devices and ports, reads capabilities, creates verbs objects, installs
//! rules. System calls, and none of it while packets flow.

pub(super) mod capabilities;
pub(super) mod device;
pub(super) mod device_info;
pub(super) mod filter;
pub(super) mod find;
#[allow(unsafe_code)]
pub(super) mod objects;
pub(super) mod own_device;
pub(super) mod own_queue;
pub(super) mod parts;
pub(super) mod port;
pub(super) mod queue;
pub(super) mod rq_shape;
pub(super) mod steering;
pub(super) mod table;
