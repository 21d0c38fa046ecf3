//! What tests of devices share: the suite that each device passes, and its rig for ports of memory.

pub(crate) mod conformance;
#[cfg(test)]
pub(super) mod wire_rig;
