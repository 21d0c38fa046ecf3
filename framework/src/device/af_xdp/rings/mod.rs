//! Memory shared with the kernel: the umem, its four rings, and the owner of each buffer. The only
//! AF_XDP modules with `unsafe`, beside the `bpf` system call.

pub(super) mod alarm;
pub(super) mod in_flight;
#[allow(unsafe_code)]
pub(super) mod ring;
pub(super) mod socket;
#[allow(unsafe_code)]
pub(crate) mod sys;
#[allow(unsafe_code)]
pub(super) mod umem;
