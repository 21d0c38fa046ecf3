//! Devices and wrappers: captures, deliberate faults, rings of a ConnectX under a NIC that may
//! behave in any way, steering rules, and the kernel's ABI of the software ConnectX.

pub(super) mod capture;
pub(super) mod fault;
pub(super) mod mlx5;
pub(super) mod steering;
pub(super) mod uverbs;
