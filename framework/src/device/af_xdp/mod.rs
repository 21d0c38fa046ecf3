//! AF_XDP: a live port of any Linux NIC, shared with the kernel.

mod assembler;
#[allow(unsafe_code)]
mod bpf;
mod program;
mod steering;

#[cfg(test)]
mod program_tests;
