//! An interface as /sys shows it: its slot, its driver, and whether it carries frames.

use crate::root::Root;

/// linux/if.h
const FLAG_UP: u32 = 1;
/// linux/if_arp.h: other types have headers that our pipeline does not parse.
const TYPE_ETHERNET: u32 = 1;
const TYPE_LOOPBACK: u32 = 772;
/// IFNAMSIZ without its zero.
const NAME_LEN_MAX: usize = 15;

/// One network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) name: String,
    /// The kernel module behind it. `None` for virtual interfaces.
    pub(crate) driver: Option<String>,
    /// Its slot: `0000:3b:00.0`.
    pub(crate) pci: Option<String>,
    pub(crate) mac: Option<String>,
    /// Bytes of the longest packet behind the Ethernet header.
    pub(crate) mtu: Option<u32>,
    /// Whether frames have Ethernet headers.
    pub(crate) ethernet: bool,
    pub(crate) link: LinkState,
    /// Mbit/s, where the driver reports it.
    pub(crate) speed: Option<u32>,
    /// The NUMA node of its slot, where the firmware reports it.
    pub(crate) node: Option<u32>,
    /// Configured receive queues.
    pub(crate) queues: usize,
    /// The RDMA device of the same port: `mlx5_0`.
    pub(crate) rdma: Option<String>,
}

/// Whether an interface carries frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LinkState {
    /// It does.
    Up,
    /// Set up by the operator, but without cable or link partner.
    NoCarrier,
    /// Not set up.
    #[default]
    Down,
}

impl Interface {
    /// All interfaces, by name, of the network namespace that /sys was mounted in.
    pub(crate) fn list(root: &Root) -> Vec<Self> {
        // The folder also holds a file of the bonding module.
        root.list("sys/class/net").iter().filter_map(|name| Self::find(root, name)).collect()
    }

    /// The interface of a ConnectX by any of its names: its own, that of its verbs device
    /// (`mlx5_0`), or its slot (`3b:00.0`). One that is not found is `name`, for an error to say
    /// so.
    pub(crate) fn of_connectx(root: &Root, name: &str) -> String {
        let slot = if name.matches(':').count() == 1 { format!("0000:{name}") } else { name.to_owned() };
        let is_it = |interface: &Self| interface.rdma.as_deref() == Some(name) || interface.pci.as_ref() == Some(&slot);
        match Self::find(root, name) {
            Some(interface) => interface.name,
            None => Self::list(root).into_iter().find(is_it).map_or_else(|| name.to_owned(), |found| found.name),
        }
    }

    /// The one called `name`.
    pub(crate) fn find(root: &Root, name: &str) -> Option<Self> {
        let folder = format!("sys/class/net/{name}");
        if !is_name(name) || !root.has(&format!("{folder}/address")) {
            return None;
        }
        let file = |file: &str| format!("{folder}/{file}");
        let kind: u32 = root.number(&file("type")).unwrap_or(TYPE_ETHERNET);
        Some(Self {
            name: name.to_owned(),
            driver: root.link_name(&file("device/driver")),
            pci: pci(root, &folder),
            mac: root.read(&file("address")).filter(|mac| !mac.is_empty()),
            mtu: root.number(&file("mtu")),
            ethernet: matches!(kind, TYPE_ETHERNET | TYPE_LOOPBACK),
            link: link(root, &folder),
            // -1 where the driver does not know.
            speed: root.number(&file("speed")).filter(|&speed| speed > 0),
            node: root.number(&file("device/numa_node")),
            queues: root.list(&file("queues")).iter().filter(|queue| queue.starts_with("rx-")).count(),
            rdma: root.list(&file("device/infiniband")).into_iter().next(),
        })
    }
}

fn link(root: &Root, folder: &str) -> LinkState {
    let flags = root.read(&format!("{folder}/flags")).unwrap_or_default();
    let flags = u32::from_str_radix(flags.trim_start_matches("0x"), 16).unwrap_or(0);
    match root.number::<u8>(&format!("{folder}/carrier")) {
        _ if flags & FLAG_UP == 0 => LinkState::Down,
        Some(1) => LinkState::Up,
        _ => LinkState::NoCarrier,
    }
}

/// The slot of the device, or of the virtio device's parent.
fn pci(root: &Root, folder: &str) -> Option<String> {
    ["device/uevent", "device/../uevent"].iter().find_map(|file| {
        let text = root.read(&format!("{folder}/{file}"))?;
        text.lines().find_map(|line| line.strip_prefix("PCI_SLOT_NAME=")).map(str::to_owned)
    })
}

/// A name that the kernel would accept (`dev_valid_name`, net/core/dev.c), so that it cannot lead
/// out of its folder.
fn is_name(name: &str) -> bool {
    let taken = |letter: char| letter == '/' || letter == ':' || letter.is_whitespace();
    !name.is_empty() && name.len() <= NAME_LEN_MAX && name != "." && name != ".." && !name.chars().any(taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::testing::FakeSysfs;

    #[test]
    fn connectx_has_its_interface_by_each_of_its_names() {
        let root = FakeSysfs::new(&[
            ("sys/class/net/eth1/address", "02:00:00:00:00:01"),
            ("sys/class/net/eth1/device/infiniband/mlx5_0/node_type", "1"),
            ("sys/class/net/eth1/device/uevent", "DRIVER=mlx5_core\nPCI_SLOT_NAME=0000:3b:00.0\n"),
            ("sys/class/net/eth0/address", "02:00:00:00:00:02"),
        ]);
        let of = |name: &str| Interface::of_connectx(&root.root(), name);
        for name in ["eth1", "mlx5_0", "3b:00.0", "0000:3b:00.0"] {
            assert_eq!(of(name), "eth1");
        }
        for name in ["eth0", "mlx5_1", "..", ""] {
            assert_eq!(of(name), name);
        }
    }
}
