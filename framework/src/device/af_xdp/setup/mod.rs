//! The control path: finds the interface, loads and attaches the program, binds sockets, installs
//! rules. System calls and netlink, and none of it while packets flow.

pub(super) mod capabilities;
pub(super) mod device;
pub(super) mod handle;
mod nic_rules;
pub(super) mod port;
mod rule_table;
pub(super) mod stamping;
#[cfg(test)]
pub(super) mod tests;
