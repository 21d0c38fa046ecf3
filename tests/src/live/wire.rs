//! The cable under test, and the settings of its far end.

use std::net::{Ipv4Addr, UdpSocket};
use std::process::Command;
use std::time::Duration;

use crate::netns::Namespace;

/// Our end of the cable.
pub const NEAR: &str = "veth0";
/// The kernel's end.
pub const FAR: &str = "veth1";
/// Our address, which the kernel of our end does not have unless a test gives it to it.
pub const OURS: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
/// The kernel's address.
pub const THEIRS: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
/// Long enough for a machine with two busy cores, short enough to wait for.
pub const TIMEOUT: Duration = Duration::from_secs(40);

/// Two namespaces and the cable between them. The near end has no address, the far end [`THEIRS`]
/// of a network of 24 bits.
#[derive(Debug)]
pub struct Wire {
    /// Where we are.
    pub near: Namespace,
    /// Where the kernel is.
    pub far: Namespace,
}

impl Wire {
    /// Makes the cable; where it cannot, prints why `test` is skipped.
    pub fn new(test: &str) -> Option<Self> {
        let (near, far) = match (Namespace::new(), Namespace::new()) {
            (Ok(near), Ok(far)) => (near, far),
            (Err(why), _) | (_, Err(why)) => {
                println!("SKIPPED {test}: {why}; run as root");
                return None;
            }
        };
        near.veth(NEAR, &far, FAR).expect("two namespaces can be joined");
        let network = format!("{THEIRS}/24");
        // Multicast without a separate route leaves by the only interface.
        for arguments in [&["addr", "add", &network, "dev", FAR][..], &["route", "add", "default", "dev", FAR]] {
            far.ip(arguments).expect("an interface takes an address and a route");
        }
        Some(Self { near, far })
    }

    /// A socket of the far kernel.
    pub fn socket(&self, address: (Ipv4Addr, u16)) -> UdpSocket {
        let socket = self.far.run(|| UdpSocket::bind(address)).expect("the kernel has the address");
        socket.set_read_timeout(Some(TIMEOUT)).expect("a timeout above zero");
        socket
    }
}

/// Whether a program is installed; where it is not, prints that `test` is skipped.
pub fn has_program(test: &str, program: &str) -> bool {
    let found = Command::new("which").arg(program).output().is_ok_and(|output| output.status.success());
    if !found {
        println!("SKIPPED {test}: there is no {program} here");
    }
    found
}

/// A namespace's setting below `/proc/sys/net/ipv4`.
pub fn set(namespace: &Namespace, name: &str, value: &str) {
    let path = format!("/proc/sys/net/ipv4/{name}");
    namespace.run(|| std::fs::write(&path, value)).unwrap_or_else(|error| panic!("{path}: {error}"));
}

/// Waits until the condition holds.
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !done() {
        assert!(start.elapsed() < TIMEOUT, "this does not come about: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
