//! A ConnectX made of software: what an mlx5 NIC does with rings and doorbells, done by a library,
//! under *unmodified* rdma-core. It lets a driver for that NIC be tried where there is none, and
//! shares no layout code with the one that wirepath brings: two readings of the same facts have to
//! agree.
//!
//! From the inside out:
//!
//! - [`hca`]: the model. No thread, no system call, no clock: [`hca::Hca::step`] over what is
//!   handed to it.
//! - [`uverbs`]: the kernel's ABI in front of it, as libibverbs speaks it: `write` and `ioctl`.
//! - [`settings`]: what the program tells the library, by environment.
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
