//! The devices in sysfs, as a list of files and links below `/sys`: enough for libibverbs, libmlx5,
//! DPDK's PCI bus and PMD, and programs that search the network interface of a device. mlx5.md 3.1.

use std::fs;
use std::path::{Path, PathBuf};

use softhca::hca::Gid;
use softhca::settings::DeviceSettings;

/// A file with its contents, or a relative link with its target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    File(String),
    Link(PathBuf),
}

/// Paths below `/sys`, without a leading slash.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) entries: Vec<(PathBuf, Entry)>,
    /// Directories, below `/sys`, of files that the preload library writes anew while the command
    /// runs.
    pub(super) live: Vec<PathBuf>,
    /// Devices, which are also nodes under `/dev/infiniband`.
    pub(super) devices: usize,
}

/// Directories that show our devices and no others: a real NIC would have their names.
pub(super) const OWN_DIRECTORIES: [&str; 2] = ["class/infiniband", "class/infiniband_verbs"];

/// A ConnectX-5: vendor and device as libmlx5 and DPDK know them.
const MODALIAS: &str = "pci:v000015B3d00001017sv000015B3sd00000016bc02sc00i00";
/// PCI buses that machines rarely have: 0x5c reads a little like "software ConnectX".
const BUSES: std::ops::Range<u8> = 0x5c..0xff;

/// The tree of all devices.
pub(super) fn of(devices: &[DeviceSettings]) -> Tree {
    let is_taken = |bus: &u8| Path::new(&format!("/sys/devices/pci0000:{bus:02x}")).exists();
    let bus = BUSES.into_iter().find(|bus| !is_taken(bus)).unwrap_or(BUSES.start);
    let mut tree = Tree { devices: devices.len(), ..Tree::default() };
    tree.file("class/infiniband_verbs/abi_version", "6");
    for (idx, device) in devices.iter().enumerate() {
        let place = DevicePaths::new(bus, idx, device);
        tree.pci(&place);
        tree.ibdev(&place, device);
        tree.uverbs(&place);
        if let Some(netdev) = &device.netdev {
            tree.netdev(&place, netdev);
        }
    }
    tree
}

/// Where a device stands.
struct DevicePaths {
    idx: usize,
    /// `mlx5_0`.
    name: String,
    /// `0000:5c:00.0`.
    address: String,
    /// `devices/pci0000:5c/0000:5c:00.0`.
    directory: String,
}

impl DevicePaths {
    fn new(bus: u8, idx: usize, device: &DeviceSettings) -> Self {
        let address = format!("0000:{bus:02x}:00.{idx}");
        let directory = format!("devices/pci0000:{bus:02x}/{address}");
        Self { idx, name: device.config.name.clone(), address, directory }
    }
}

impl Tree {
    /// The files that `lspci` and DPDK's bus scan read.
    fn pci(&mut self, place: &DevicePaths) {
        let DevicePaths { address, directory, .. } = place;
        // One line per region: start, end, flags. DPDK wants six; those of an mlx5 device are never
        // mapped.
        let no_regions = "0x0000000000000000 0x0000000000000000 0x0000000000000000\n".repeat(7);
        let facts = [
            ("vendor", "0x15b3"),
            ("device", "0x1017"),
            ("subsystem_vendor", "0x15b3"),
            ("subsystem_device", "0x0016"),
            ("class", "0x020000"),
            ("revision", "0x00"),
            ("irq", "0"),
            ("numa_node", "-1"),
            ("enable", "1"),
            ("modalias", MODALIAS),
            ("resource", no_regions.trim_end()),
        ];
        for (name, value) in facts {
            self.file(&format!("{directory}/{name}"), value);
        }
        let uevent = format!(
            "DRIVER=mlx5_core\nPCI_CLASS=20000\nPCI_ID=15B3:1017\nPCI_SLOT_NAME={address}\nMODALIAS={MODALIAS}"
        );
        self.file(&format!("{directory}/uevent"), &uevent);
        self.link(&format!("{directory}/subsystem"), "bus/pci");
        self.link(&format!("{directory}/driver"), "bus/pci/drivers/mlx5_core");
        self.link(&format!("bus/pci/devices/{address}"), directory);
        self.link(&format!("bus/pci/drivers/mlx5_core/{address}"), directory);
    }

    /// The files that libibverbs, libmlx5 and `ibstat` read.
    fn ibdev(&mut self, place: &DevicePaths, device: &DeviceSettings) {
        let DevicePaths { name, directory, .. } = place;
        let guid = guid(device.config.mac);
        let ibdev = format!("{directory}/infiniband/{name}");
        let facts = [
            ("node_type", "1: CA"),
            ("node_guid", &guid),
            ("sys_image_guid", &guid),
            ("node_desc", "softhca, a ConnectX made of software"),
            ("fw_ver", "16.35.2000"),
            ("hca_type", "MT4119"),
            ("hw_rev", "0"),
            ("board_id", "SOFT_HCA00000001"),
            ("ports/1/state", "4: ACTIVE"),
            ("ports/1/phys_state", "5: LinkUp"),
            ("ports/1/link_layer", if device.config.infiniband { "InfiniBand" } else { "Ethernet" }),
            ("ports/1/rate", "100 Gb/sec (4X EDR)"),
            ("ports/1/lid", "0x0"),
            ("ports/1/lid_mask_count", "0"),
            ("ports/1/sm_lid", "0x0"),
            ("ports/1/sm_sl", "0"),
            ("ports/1/cap_mask", "0x00010000"),
            ("ports/1/pkeys/0", "0xffff"),
        ];
        for (file, value) in facts {
            self.file(&format!("{ibdev}/{file}"), value);
        }
        for (idx, gid) in device.config.gids().iter().enumerate() {
            self.file(&format!("{ibdev}/ports/1/gids/{idx}"), &gid_text(gid));
            self.file(&format!("{ibdev}/ports/1/gid_attrs/types/{idx}"), "RoCE v2");
            let netdev = device.netdev.as_deref().unwrap_or("");
            self.file(&format!("{ibdev}/ports/1/gid_attrs/ndevs/{idx}"), netdev);
        }
        // The counter of the model in the process that has the device open.
        self.file(&format!("{ibdev}/ports/1/hw_counters/out_of_buffer"), "0");
        self.live.push(format!("{ibdev}/ports/1/hw_counters").into());
        self.link(&format!("{ibdev}/device"), directory);
        self.link(&format!("{ibdev}/subsystem"), "class/infiniband");
        self.link(&format!("class/infiniband/{name}"), &ibdev);
    }

    /// The character node that the device is opened by: 1:5, `/dev/zero`, so that its numbers
    /// agree.
    fn uverbs(&mut self, place: &DevicePaths) {
        let DevicePaths { idx, name, directory, .. } = place;
        let uverbs = format!("{directory}/infiniband_verbs/uverbs{idx}");
        let event = format!("MAJOR=1\nMINOR=5\nDEVNAME=infiniband/uverbs{idx}");
        for (file, value) in [("dev", "1:5"), ("ibdev", name), ("abi_version", "1"), ("uevent", &event)] {
            self.file(&format!("{uverbs}/{file}"), value);
        }
        self.link(&format!("{uverbs}/device"), directory);
        self.link(&format!("{uverbs}/subsystem"), "class/infiniband_verbs");
        self.link(&format!("class/infiniband_verbs/uverbs{idx}"), &uverbs);
    }

    /// The interface of each device: DPDK and others follow these links from one to the other.
    fn netdev(&mut self, place: &DevicePaths, netdev: &str) {
        let real = fs::canonicalize(Path::new("/sys/class/net").join(netdev)).ok();
        let below_sys = real.and_then(|real| Some(real.strip_prefix("/sys").ok()?.to_str()?.to_owned()));
        let interface = below_sys.unwrap_or_else(|| format!("devices/virtual/net/{netdev}"));
        self.link(&format!("{}/net/{netdev}", place.directory), &interface);
        self.link(&format!("{interface}/device"), &place.directory);
    }

    fn file(&mut self, path: &str, value: &str) {
        self.entries.push((path.into(), Entry::File(format!("{value}\n"))));
    }

    /// A link to a `target` that is named as entries are: from `/sys`. Links in sysfs are relative,
    /// and so is this.
    fn link(&mut self, path: &str, target: &str) {
        let depth = path.matches('/').count();
        let relative = format!("{}{target}", "../".repeat(depth));
        self.entries.push((path.into(), Entry::Link(relative.into())));
    }
}

/// EUI-64 of a MAC address, as sysfs writes it.
fn guid(mac: [u8; 6]) -> String {
    let [a, b, c, d, e, f] = mac;
    format!("{:02x}{b:02x}:{c:02x}ff:fe{d:02x}:{e:02x}{f:02x}", a ^ 2)
}

/// A GID as sysfs writes it.
fn gid_text(gid: &Gid) -> String {
    let parts = gid.0.chunks(2).map(|pair| format!("{:02x}{:02x}", pair[0], pair[1]));
    parts.collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::path::Component;

    use super::*;

    fn tree() -> Tree {
        let mut devices = vec![DeviceSettings::default(), DeviceSettings::default()];
        devices[0].config.address = Some([10, 0, 0, 1]);
        devices[1].config.name = "mlx5_1".into();
        devices[1].netdev = Some("veth77".into());
        of(&devices)
    }

    /// `path` with its links followed, as long as they are in the tree.
    fn resolve(tree: &Tree, path: &Path) -> PathBuf {
        let mut resolved = PathBuf::new();
        for component in path.components() {
            match component {
                Component::ParentDir => assert!(resolved.pop(), "{path:?} leads out of /sys"),
                other => resolved.push(other),
            }
            if let Some((_, Entry::Link(target))) = tree.entries.iter().find(|(path, _)| *path == resolved) {
                resolved.pop();
                resolved = resolve(tree, &resolved.join(target));
            }
        }
        resolved
    }

    fn read(tree: &Tree, path: &str) -> String {
        let resolved = resolve(tree, Path::new(path));
        match tree.entries.iter().find(|(path, _)| *path == resolved) {
            Some((_, Entry::File(text))) => text.trim().to_owned(),
            other => panic!("{path} is {resolved:?}: {other:?}"),
        }
    }

    #[test]
    fn links_lead_somewhere() {
        let tree = tree();
        let all: HashSet<_> = tree.entries.iter().flat_map(|(path, _)| path.ancestors().map(Path::to_owned)).collect();
        for (path, entry) in &tree.entries {
            if let Entry::Link(target) = entry {
                let found = resolve(&tree, &path.parent().unwrap().join(target));
                assert!(all.contains(&found), "{path:?} -> {target:?}, which is {found:?}");
            }
        }
    }

    #[test]
    fn what_clients_read_is_found_by_their_paths() {
        let tree = tree();
        assert_eq!(read(&tree, "class/infiniband_verbs/uverbs1/ibdev"), "mlx5_1");
        assert_eq!(read(&tree, "class/infiniband_verbs/uverbs1/dev"), "1:5");
        assert_eq!(read(&tree, "class/infiniband/mlx5_1/device/modalias"), MODALIAS);
        assert_eq!(read(&tree, "class/infiniband/mlx5_0/ports/1/link_layer"), "Ethernet");
        assert_eq!(read(&tree, "bus/pci/devices/0000:5c:00.1/infiniband/mlx5_1/node_guid"), "0000:00ff:fe00:5c00");
        let gid = |idx: usize| read(&tree, &format!("class/infiniband/mlx5_0/ports/1/gids/{idx}"));
        assert_eq!(gid(0), "fe80:0000:0000:0000:0000:00ff:fe00:5c00");
        assert_eq!(gid(1), "0000:0000:0000:0000:0000:ffff:0a00:0001");
        assert_eq!(read(&tree, "devices/virtual/net/veth77/device/vendor"), "0x15b3");
        // libibverbs reads the modalias into a buffer of 128 bytes.
        assert!(MODALIAS.len() < 128);
    }

    #[test]
    fn nothing_is_named_twice() {
        let tree = tree();
        let names: HashSet<_> = tree.entries.iter().map(|(path, _)| path).collect();
        assert_eq!(names.len(), tree.entries.len());
    }
}
