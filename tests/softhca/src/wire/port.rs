//! A port of the NIC: the cable, and the kernel's interface beside the model.

use std::collections::HashSet;
use std::{fs, io};

use super::sys;
use super::tap::Tap;
use crate::hca::{LinkState, Wire};

/// The cable by which frames leave and arrive.
pub trait Cable: Send {
    /// Takes a frame, or says `false`: no room, try again.
    fn send(&mut self, frame: &[u8]) -> bool;

    /// Puts the next frame into `frame`, or says `false`: none at the moment.
    fn receive(&mut self, frame: &mut Vec<u8>) -> bool;

    /// Whether frames pass.
    fn link(&self) -> LinkState;

    /// Gives a frame to the kernel as if the kernel had received it from the cable; `false` where
    /// the kernel is not on this cable.
    fn to_kernel(&mut self, frame: &[u8]) -> bool {
        let _ = frame;
        false
    }

    /// Sends accepted frames that are still here, and reads the state of the link. Called
    /// repeatedly, with the time `now_ns`.
    fn tend(&mut self, now_ns: u64) {
        let _ = now_ns;
    }

    /// Whether it has frames that must wait until a receiver listens.
    fn awaits_start(&self) -> bool {
        false
    }

    /// Somebody listens: a cable that replays may begin.
    fn start(&mut self) {}

    /// Names and values of the counters of its errors.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// A port.
pub struct Port {
    cable: Box<dyn Cable>,
    /// The kernel's interface on a cable that the kernel is not on itself.
    tap: Option<Tap>,
    /// The groups that the kernel's interface has joined.
    groups: Option<Groups>,
    /// A frame that the kernel sent and the cable has no room for.
    waiting: Vec<u8>,
    to_kernel: u64,
    from_kernel: u64,
}

impl Port {
    /// A port without an interface of the kernel's.
    pub fn new(cable: Box<dyn Cable>) -> Self {
        Self { cable, tap: None, groups: None, waiting: Vec::new(), to_kernel: 0, from_kernel: 0 }
    }

    /// Lets the kernel send and receive beside the model, on a TAP.
    pub fn with_tap(mut self, tap: Tap) -> Self {
        self.tap = Some(tap);
        self
    }

    /// Sets the groups of the kernel's interface, whose frames go to it.
    pub fn with_groups(mut self, groups: Groups) -> Self {
        self.groups = Some(groups);
        self
    }

    /// The work between steps, at the time `now_ns`.
    pub fn tend(&mut self, now_ns: u64) {
        self.forward();
        self.cable.tend(now_ns);
        if let Some(groups) = &mut self.groups {
            groups.refresh(now_ns);
        }
    }

    /// See [`Cable::awaits_start`].
    pub fn awaits_start(&self) -> bool {
        self.cable.awaits_start()
    }

    /// See [`Cable::start`].
    pub fn start(&mut self) {
        self.cable.start();
    }

    /// Names and values.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut counters = self.cable.counters();
        counters.extend([("wire_to_kernel", self.to_kernel), ("wire_from_kernel", self.from_kernel)]);
        counters
    }

    /// Forwards frames that the kernel sends on its interface, beside the model's frames, a few at
    /// a time.
    fn forward(&mut self) {
        let Some(tap) = &mut self.tap else { return };
        for _ in 0..FORWARDED_MAX {
            if self.waiting.is_empty() && !tap.receive(&mut self.waiting) || !self.cable.send(&self.waiting) {
                return;
            }
            self.waiting.clear();
            self.from_kernel += 1;
        }
    }
}

/// The most frames forwarded in a turn, so that a kernel that sends much cannot keep the model from
/// its turn.
const FORWARDED_MAX: usize = 64;

impl Wire for Port {
    fn send(&mut self, frame: &[u8]) -> bool {
        self.cable.send(frame)
    }

    fn receive(&mut self, frame: &mut Vec<u8>) -> bool {
        self.cable.receive(frame)
    }

    fn to_kernel(&mut self, frame: &[u8]) {
        // A full TAP drops, as any interface does.
        let given = self.tap.as_mut().is_some_and(|tap| tap.send(frame)) || self.cable.to_kernel(frame);
        self.to_kernel += u64::from(given);
    }

    fn kernel_wants(&self, frame: &[u8]) -> bool {
        self.groups.as_ref().is_some_and(|groups| groups.wants(frame))
    }

    fn link(&self) -> LinkState {
        self.cable.link()
    }
}

/// What a port takes over from the interface that it is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceFacts {
    /// `None` where it is not an Ethernet interface.
    pub mac: Option<[u8; 6]>,
    /// Bytes of the longest IP packet.
    pub mtu: u32,
    /// Its first IPv4 address, if it has one.
    pub address: Option<[u8; 4]>,
}

/// Looks at an interface of this network namespace.
///
/// # Errors
/// There is no interface of that name.
pub fn look_at(interface: &str) -> io::Result<InterfaceFacts> {
    sys::interface_facts(interface)
}

/// The addresses that an interface of the kernel's listens to: its own, broadcast, and the groups
/// that it has joined.
#[derive(Debug)]
pub struct Groups {
    interface: String,
    own: [u8; 6],
    joined: HashSet<[u8; 6]>,
    refreshed_ns: u64,
}

/// The greatest age of the list of groups. The kernel cannot notify a descriptor of changes without
/// a blocking wait.
const GROUPS_NS: u64 = 100_000_000;

impl Groups {
    /// Opens an interface of this network namespace.
    pub fn new(interface: &str, own: [u8; 6]) -> Self {
        let joined = joined(interface);
        Self { interface: interface.into(), own, joined, refreshed_ns: 0 }
    }

    fn refresh(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.refreshed_ns) >= GROUPS_NS {
            self.refreshed_ns = now_ns;
            self.joined = joined(&self.interface);
        }
    }

    fn wants(&self, frame: &[u8]) -> bool {
        frame.first_chunk().is_some_and(|to| *to == self.own || *to == [0xff; 6] || self.joined.contains(to))
    }
}

fn joined(interface: &str) -> HashSet<[u8; 6]> {
    parse_dev_mcast(&fs::read_to_string("/proc/net/dev_mcast").unwrap_or_default(), interface)
}

/// Lines are: index, interface, users, global users, address in hexadecimal
/// (net/core/dev_addr_lists.c).
fn parse_dev_mcast(text: &str, interface: &str) -> HashSet<[u8; 6]> {
    let of_interface = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        (words.next()? == interface).then_some(())?;
        let address = u64::from_str_radix(words.nth(2)?, 16).ok()?;
        address.to_be_bytes().last_chunk().copied()
    };
    text.lines().filter_map(of_interface).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::PairEnd;

    #[test]
    fn groups_are_read_from_the_kernels_table() {
        let table = "1    lo              1     0     01005e000001\n\
                     2    veth0           2     0     333300000001\n\
                     2    veth0           1     0     01005e000001\n\
                     3    veth01          1     0     01005e7f0001\n\
                     2    veth0           1     0\n";
        let groups = parse_dev_mcast(table, "veth0");
        assert_eq!(groups, HashSet::from([[0x33, 0x33, 0, 0, 0, 1], [1, 0, 0x5e, 0, 0, 1]]));
    }

    #[test]
    fn kernel_wants_its_own_address_and_broadcast_and_nothing_else() {
        let (here, _there) = PairEnd::pair();
        let port = Port::new(Box::new(here)).with_groups(Groups::new("wirepath-none", [2, 0, 0, 0, 0, 1]));
        let frame = |to: [u8; 6]| [&to[..], &[0; 54]].concat();
        assert!(port.kernel_wants(&frame([2, 0, 0, 0, 0, 1])));
        assert!(port.kernel_wants(&frame([0xff; 6])));
        assert!(!port.kernel_wants(&frame([2, 0, 0, 0, 0, 2])));
        assert!(!port.kernel_wants(&[2, 0, 0]));
    }

    #[test]
    fn port_without_the_kernel_gives_it_nothing() {
        let (here, _there) = PairEnd::pair();
        let mut port = Port::new(Box::new(here));
        port.to_kernel(&[0; 60]);
        port.tend(0);
        assert_eq!(port.counters(), [("wire_to_kernel", 0), ("wire_from_kernel", 0)]);
    }
}
