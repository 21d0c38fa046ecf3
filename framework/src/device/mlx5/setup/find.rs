//! Finds the device: by its verbs name (`mlx5_0`), by the PCI address of its function (`3b:00.0`),
//! or by its network interface (`eth1`).
//!
//! Input: the operator's text and the names that libibverbs lists. Output: one of those names, with
//! its facts from /sys. A device is found by its name even if /sys does not show its slot or
//! interface.

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::counters::environment;
use crate::device::mlx5::error::Mlx5SetupError;
use crate::wire::MacAddr;

/// The facts about a verbs device in /sys, if present.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SysfsDevice {
    /// The verbs name.
    pub(crate) name: String,
    /// The address of the PCI function: `0000:3b:00.0`.
    pub(crate) pci: Option<String>,
    /// The network interfaces of the same function, in the network namespace that /sys was mounted
    /// in.
    pub(crate) interfaces: Vec<String>,
    /// The kernel module behind it.
    pub(crate) driver: Option<String>,
}

/// The root that libibverbs uses: `SYSFS_PATH` (mlx5.md 3.1), else /sys.
pub(crate) fn sysfs_root() -> PathBuf {
    environment("SYSFS_PATH").map_or_else(|| "/sys".into(), PathBuf::from)
}

/// The facts in /sys at `root` about the devices `names`.
pub(crate) fn list(root: &Path, names: impl IntoIterator<Item = String>) -> Vec<SysfsDevice> {
    names.into_iter().map(|name| look_up(root, name)).collect()
}

fn look_up(root: &Path, name: String) -> SysfsDevice {
    let device = root.join("class/infiniband").join(&name).join("device");
    let driver = fs::read_link(device.join("driver")).ok();
    SysfsDevice {
        pci: pci_address(&device),
        interfaces: entries(&device.join("net")),
        driver: driver.and_then(|driver| Some(driver.file_name()?.to_string_lossy().into_owned())),
        name,
    }
}

/// The folder that `device` links to has the name of the PCI function; a device that is not on PCI
/// has another name.
fn pci_address(device: &Path) -> Option<String> {
    let folder = fs::canonicalize(device).ok()?;
    let of_folder = folder.file_name().and_then(|name| full_address(&name.to_string_lossy()));
    of_folder.or_else(|| {
        let lines = fs::read_to_string(device.join("uevent")).ok()?;
        lines.lines().find_map(|line| full_address(line.strip_prefix("PCI_SLOT_NAME=")?))
    })
}

/// The device that `wanted` names.
pub(crate) fn find<'a>(
    root: &Path,
    wanted: &str,
    listed: &'a [SysfsDevice],
) -> Result<&'a SysfsDevice, Mlx5SetupError> {
    let by_name = || listed.iter().find(|device| device.name == wanted);
    let by_address = || {
        let address = full_address(wanted)?;
        listed.iter().find(|device| device.pci.as_deref() == Some(&*address))
    };
    let by_interface = || listed.iter().find(|device| device.interfaces.iter().any(|name| name == wanted));
    by_name().or_else(by_address).or_else(by_interface).ok_or_else(|| missing(root, wanted, listed))
}

/// The error for a missing device, with the most helpful words.
fn missing(root: &Path, wanted: &str, listed: &[SysfsDevice]) -> Mlx5SetupError {
    if listed.is_empty() {
        return Mlx5SetupError::NoDevices { wanted: wanted.into() };
    }
    let interface = root.join("class/net").join(wanted);
    // A name with a slash, or an empty one, would lead out of the folder.
    let is_interface = is_name(wanted) && interface.exists();
    let driver = fs::read_link(interface.join("device/driver")).ok();
    let driver = driver.and_then(|driver| Some(driver.file_name()?.to_string_lossy().into_owned()));
    match is_interface {
        true => Mlx5SetupError::NoConnectX { interface: wanted.into(), driver, there: describe(listed) },
        false => Mlx5SetupError::NoSuchDevice { wanted: wanted.into(), there: describe(listed) },
    }
}

/// `mlx5_0 (0000:3b:00.0, eth1) and mlx5_1`
pub(crate) fn describe(listed: &[SysfsDevice]) -> String {
    let one = |device: &SysfsDevice| {
        let places: Vec<_> = device.pci.iter().chain(&device.interfaces).map(String::as_str).collect();
        if places.is_empty() { device.name.clone() } else { format!("{} ({})", device.name, places.join(", ")) }
    };
    let words: Vec<_> = listed.iter().map(one).collect();
    match words.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => words.concat(),
    }
}

impl SysfsDevice {
    /// The interface of the device: the one that `wanted` names, else the first.
    pub(crate) fn interface(&self, wanted: &str) -> Option<&str> {
        let named = self.interfaces.iter().find(|name| *name == wanted);
        named.or(self.interfaces.first()).map(String::as_str)
    }
}

/// The MTU of an interface.
pub(crate) fn mtu(root: &Path, interface: &str) -> Option<usize> {
    value(root, interface, "mtu")
}

/// The index of an interface.
pub(crate) fn index(root: &Path, interface: &str) -> Option<u32> {
    value(root, interface, "ifindex")
}

/// The MAC address of an interface.
pub(crate) fn mac(root: &Path, interface: &str) -> Option<MacAddr> {
    value(root, interface, "address")
}

fn value<T: FromStr>(root: &Path, interface: &str, file: &str) -> Option<T> {
    fs::read_to_string(root.join("class/net").join(interface).join(file)).ok()?.trim().parse().ok()
}

/// The full form `0000:3b:00.0` of that or of `3b:00.0`, in any case; `None` for other text.
fn full_address(text: &str) -> Option<String> {
    let text = text.to_ascii_lowercase();
    let (address, function) = text.rsplit_once('.')?;
    let numbers: Vec<&str> = address.split(':').collect();
    let (domain, bus, slot) = match numbers[..] {
        [bus, slot] => ("0000", bus, slot),
        [domain, bus, slot] => (domain, bus, slot),
        _ => return None,
    };
    let is_hex = |digits: &str, len: usize| digits.len() == len && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_address = is_hex(domain, 4) && is_hex(bus, 2) && is_hex(slot, 2) && is_hex(function, 1);
    is_address.then(|| format!("{domain}:{bus}:{slot}.{function}"))
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.contains('/') && text != "." && text != ".."
}

fn entries(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<_> =
        entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned())).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a panic here is the report

    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;

    /// Two ports of a ConnectX, a device without a slot, and a NIC that is not a ConnectX.
    fn sysfs() -> TempDir {
        let root = TempDir::new().unwrap();
        let at = |path: &str| root.path().join(path);
        for folder in ["class/infiniband", "class/net", "bus/pci/drivers/mlx5_core", "bus/pci/drivers/ice"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        for (name, address, interface) in [("mlx5_0", "0000:3b:00.0", "eth1"), ("mlx5_1", "0000:3b:00.1", "eth2")] {
            let device = at("devices").join(address);
            fs::create_dir_all(device.join("net").join(interface)).unwrap();
            fs::create_dir_all(device.join("infiniband").join(name)).unwrap();
            symlink(&device, device.join("infiniband").join(name).join("device")).unwrap();
            symlink(at("bus/pci/drivers/mlx5_core"), device.join("driver")).unwrap();
            symlink(device.join("infiniband").join(name), at("class/infiniband").join(name)).unwrap();
            symlink(device.join("net").join(interface), at("class/net").join(interface)).unwrap();
        }
        fs::write(at("devices/0000:3b:00.0/net/eth1/mtu"), "9000\n").unwrap();
        fs::write(at("devices/0000:3b:00.0/net/eth1/ifindex"), "7\n").unwrap();
        fs::write(at("devices/0000:3b:00.0/net/eth1/address"), "02:00:00:00:00:1f\n").unwrap();
        fs::create_dir_all(at("class/infiniband/rxe0")).unwrap();
        fs::create_dir_all(at("class/net/eth0/device")).unwrap();
        symlink(at("bus/pci/drivers/ice"), at("class/net/eth0/device/driver")).unwrap();
        root
    }

    fn listed(root: &TempDir) -> Vec<SysfsDevice> {
        list(root.path(), ["mlx5_0", "mlx5_1", "rxe0"].map(String::from))
    }

    fn check(wanted: &str, expected: &str) {
        let root = sysfs();
        assert_eq!(find(root.path(), wanted, &listed(&root)).unwrap().name, expected);
    }

    fn missing(wanted: &str) -> String {
        let root = sysfs();
        find(root.path(), wanted, &listed(&root)).unwrap_err().to_string()
    }

    #[test]
    fn device_that_is_not_there_is_told_with_those_that_are() {
        for wanted in ["mlx5_2", "0000:3b:00.2", "eth3", "", "..", "a/b", "\u{e9}"] {
            let said = missing(wanted);
            assert!(said.contains("mlx5_0 (0000:3b:00.0, eth1), mlx5_1 (0000:3b:00.1, eth2) and rxe0"), "{said}");
        }
    }

    #[test]
    fn interface_of_another_nic_is_told_with_its_driver() {
        assert!(missing("eth0").contains("eth0 is no ConnectX but driven by ice"), "{}", missing("eth0"));
    }

    #[test]
    fn machine_without_verbs_devices_is_told_what_makes_them() {
        let root = sysfs();
        let said = find(root.path(), "mlx5_0", &[]).unwrap_err().to_string();
        assert!(said.contains("modprobe mlx5_ib"), "{said}");
    }

    #[test]
    fn name_is_enough_where_sysfs_is_silent() {
        check("rxe0", "rxe0");
        let nowhere = Path::new("/nonexistent");
        let listed = list(nowhere, ["mlx5_7".to_owned()]);
        assert_eq!(find(nowhere, "mlx5_7", &listed).unwrap().pci, None);
    }

    #[test]
    fn each_way_to_say_it_means_the_same() {
        check("mlx5_1", "mlx5_1");
        check("0000:3b:00.1", "mlx5_1");
        check("3B:00.1", "mlx5_1");
        check("eth2", "mlx5_1");
    }

    #[test]
    fn device_without_a_link_of_its_own_is_known_by_its_uevent() {
        let root = TempDir::new().unwrap();
        let device = root.path().join("class/infiniband/mlx5_0/device");
        fs::create_dir_all(&device).unwrap();
        fs::write(device.join("uevent"), "DRIVER=mlx5_core\nPCI_SLOT_NAME=0000:AF:00.1\n").unwrap();
        assert_eq!(list(root.path(), ["mlx5_0".to_owned()])[0].pci.as_deref(), Some("0000:af:00.1"));
    }

    #[test]
    fn driver_and_mtu_come_from_sysfs() {
        let root = sysfs();
        assert_eq!(listed(&root)[0].driver.as_deref(), Some("mlx5_core"));
        assert_eq!(mtu(root.path(), "eth1"), Some(9000));
        assert_eq!(mtu(root.path(), "eth9"), None);
        assert_eq!(index(root.path(), "eth1"), Some(7));
        assert_eq!(mac(root.path(), "eth1"), Some(MacAddr([2, 0, 0, 0, 0, 0x1f])));
        assert_eq!((listed(&root)[0].interface("eth1"), listed(&root)[2].interface("rxe0")), (Some("eth1"), None));
    }
}
