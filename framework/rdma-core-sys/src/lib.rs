//! libibverbs and libmlx5 of rdma-core, loaded at run time: a program that uses this crate builds
//! and starts on any machine, and reports "rdma-core is not installed: …" if a device that needs it
//! is requested.
//!
//! - [`bindings`]: types, constants and signatures, generated from the headers of rdma-core 44 and
//!   checked in.
//! - [`load`]: the libraries and their symbols.
//! - [`inline`]: the inline functions of the C headers, which therefore have no symbol.
//! - [`verbs`]: owned handles, built on the three. An object keeps its parents alive, so objects
//!   are destroyed in the right order, for any order in which the handles are dropped.
//!
//! For raw packets the crate is for set-up, and no function of `verbs` is meant to be called per
//! packet: a driver takes the addresses of [`verbs::QpRings`] and the other rings, and makes no
//! further calls. Queue pairs of the RDMA services are posted to and polled through libibverbs.
#![deny(unsafe_code)]

#[allow(missing_docs, non_camel_case_types, non_snake_case, unreachable_pub, unused_qualifications, clippy::all)]
#[rustfmt::skip]
pub mod bindings;
#[allow(unsafe_code)]
pub mod inline;
#[allow(unsafe_code)]
pub mod load;
pub mod verbs;

pub use load::{LoadError, RdmaCore};
