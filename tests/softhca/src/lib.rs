//! A ConnectX made of software: a library that does the work of an mlx5 NIC on rings and doorbells,
//! under *unmodified* rdma-core. With it a driver for that NIC can be tested without one. It shares
//! no layout code with wirepath's driver, so two readings of the same facts have to agree.
//!
//! From the inside out:
//!
//! - [`hca`]: the model. It has no thread, no system call and no clock: [`hca::Hca::step`] works on
//!   its arguments.
//! - [`uverbs`]: the kernel's ABI in front of it, as libibverbs uses it: `write` and `ioctl`.
//! - [`settings`]: the program's settings for the library, in environment variables.
//! - [`wire`]: where frames go and come from: another model, a packet socket, a TAP, a capture.
//!
//! [`testing`] starts programs, and tests themselves, on such a NIC.
//!
//! `softhca-preload` is the library that puts itself between libibverbs and the kernel; the program
//! `softhca` makes the name spaces and starts a command in them.

pub mod hca;
pub mod settings;
pub mod testing;
pub mod uverbs;
pub mod wire;
