//! libibverbs and libmlx5 of rdma-core, looked up at run time: a program that uses this crate
//! builds and starts on any machine, and says "rdma-core is not installed: …" where somebody asks
//! for a device that needs it.
//!
//! - [`bindings`]: types, constants and signatures, generated from the headers of rdma-core 44 and
//!   checked in.
//! - [`load`]: the libraries and their symbols.
//! - [`inline`]: what the C headers define as inline functions, and what has no symbol therefore.
//! - [`verbs`]: owned handles, made of the three. An object keeps its parents, so things are
//!   destroyed in the right order whatever the order is in which the handles go.
//!
//! It sets up. No function of `verbs` is meant for each packet: a driver takes the addresses of
//! [`verbs::QpRings`] and its sisters, and never comes back.
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
