//! System calls that the standard library lacks, and that several floors or devices make. The
//! calls of one device alone stand beside the device.

#[allow(unsafe_code)]
pub(crate) mod files;
#[allow(unsafe_code)]
pub(crate) mod helper;
pub(crate) mod inherited;
#[allow(unsafe_code)]
pub(crate) mod interface;
#[cfg(feature = "af-xdp")]
pub(crate) mod netlink;
#[allow(unsafe_code)]
pub(crate) mod process;
#[allow(unsafe_code)]
pub(crate) mod socket;
