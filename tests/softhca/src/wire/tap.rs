//! A TAP: an interface of the kernel's whose cable is a descriptor. As the kernel's side of a port,
//! or as a cable with the kernel at its other end.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;

use super::FRAME_LEN_MAX;
use super::port::Cable;
use super::sys::{self, InterfaceRequest};
use crate::hca::LinkState;

/// linux/if_tun.h: `_IOW('T', n, int)`.
const TUNSETIFF: u64 = 0x4004_54ca;
const TUNSETQUEUE: u64 = 0x4004_54d9;

/// One queue of a TAP. The interface is removed with its last queue, unless it is persistent.
#[derive(Debug)]
pub struct Tap {
    file: File,
    refused: u64,
}

impl Tap {
    /// Joins a TAP of this network namespace, or makes it.
    ///
    /// # Errors
    /// No CAP_NET_ADMIN, no /dev/net/tun, or another kind of interface has the name.
    pub fn open(name: &str) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
        let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_MULTI_QUEUE;
        InterfaceRequest::new(name).with_flags(flags).make(&file, TUNSETIFF)?;
        Ok(Self { file, refused: 0 })
    }

    /// Makes a TAP with this address, which others can join, and brings it up. It exists as long as
    /// this queue, which carries no frames.
    ///
    /// # Errors
    /// As for [`open`](Self::open); or there is an interface of that name.
    pub fn keep(name: &str, mac: [u8; 6], mtu: u16) -> io::Result<Self> {
        if sys::interface_index(name).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let tap = Self::open(name)?;
        InterfaceRequest::new("").with_flags(libc::IFF_DETACH_QUEUE).make(&tap.file, TUNSETQUEUE)?;
        // Only frames of the commands' tests shall be on the cable, not the kernel's own neighbor
        // discovery.
        let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1");
        let any = sys::packet_socket()?;
        InterfaceRequest::new(name).with_mac(mac).make(&any, libc::SIOCSIFHWADDR)?;
        InterfaceRequest::new(name).with_mtu(mtu).make(&any, libc::SIOCSIFMTU)?;
        raise(name)?;
        Ok(tap)
    }

    /// Gives a frame to the kernel: whether it was taken.
    pub fn send(&mut self, frame: &[u8]) -> bool {
        let taken = matches!(sys::write(&self.file, frame), Ok(Some(_)));
        self.refused += u64::from(!taken);
        taken
    }

    /// Takes a frame from the kernel.
    pub fn receive(&mut self, frame: &mut Vec<u8>) -> bool {
        frame.resize(FRAME_LEN_MAX, 0);
        let len = sys::read(&self.file, frame).ok().flatten().unwrap_or(0);
        frame.truncate(len);
        len > 0
    }
}

/// Brings an interface of this network namespace up.
///
/// # Errors
/// There is no interface of that name, or CAP_NET_ADMIN is missing.
pub fn raise(name: &str) -> io::Result<()> {
    let any = sys::packet_socket()?;
    let flags = InterfaceRequest::new(name).make(&any, libc::SIOCGIFFLAGS)?;
    InterfaceRequest::new(name).with_flags(flags | libc::IFF_UP).make(&any, libc::SIOCSIFFLAGS).map(drop)
}

/// A cable to the kernel: frames that the kernel does not take at once (the interface is down, its
/// queue is full) are lost, as they would be on a cable.
impl Cable for Tap {
    fn send(&mut self, frame: &[u8]) -> bool {
        Tap::send(self, frame);
        true
    }

    fn receive(&mut self, frame: &mut Vec<u8>) -> bool {
        Tap::receive(self, frame)
    }

    fn link(&self) -> LinkState {
        LinkState::Up
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![("wire_refused", self.refused)]
    }
}
