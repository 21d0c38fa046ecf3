//! The control path: devices and ports are found, capabilities read, objects made by verbs, rules
//! installed. System calls, and none of it while packets flow.

pub(super) mod capabilities;
pub(super) mod device;
pub(super) mod filter;
pub(super) mod find;
#[allow(unsafe_code)]
pub(super) mod objects;
pub(super) mod parts;
pub(super) mod port;
pub(super) mod queue;
pub(super) mod steering;
pub(super) mod support;
pub(super) mod table;
