//! The XDP program: generated from the steering rules, assembled, linked to the kernel's BTF,
//! loaded; and the metadata that it writes before a frame.

pub(super) mod assembler;
#[allow(unsafe_code)]
pub(super) mod bpf;
pub(super) mod btf;
pub(super) mod generate;
pub(super) mod kfuncs;
pub(super) mod metadata;
mod rule_lookup;
pub(super) mod steering;
#[cfg(test)]
mod tests;
