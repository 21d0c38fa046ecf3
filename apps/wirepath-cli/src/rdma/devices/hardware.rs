//! The devices of the kernel's RDMA subsystem: RNICs, and Linux's RoCE in software (rxe).

use std::net::Ipv6Addr;

use rdma::port::largest_mtu;

use super::{Gid, Mode, RdmaDevice};
use crate::interface::Interface;
use crate::root::Root;

const CLASS: &str = "sys/class/infiniband";

/// All devices, a line for each port.
pub(super) fn list(root: &Root, interfaces: &[Interface]) -> Vec<RdmaDevice> {
    let ports = |name: String| {
        let ports = root.list(&format!("{CLASS}/{name}/ports"));
        ports.into_iter().map(move |port| Port { root, device: name.clone(), port })
    };
    root.list(CLASS).into_iter().flat_map(ports).map(|port| port.describe(interfaces)).collect()
}

struct Port<'a> {
    root: &'a Root,
    device: String,
    port: String,
}

impl Port<'_> {
    fn describe(&self, interfaces: &[Interface]) -> RdmaDevice {
        let uplink = self.uplink();
        let is_uplink = |interface: &&Interface| Some(&interface.name) == uplink.as_ref();
        let link_mtu = interfaces.iter().find(is_uplink).and_then(|interface| interface.mtu);
        // Software devices say here whose port they took (`parent_show` of rxe).
        let is_software = self.root.has(&self.of_device("parent"));
        let driver = self.root.link_name(&self.of_device("device/driver"));
        RdmaDevice {
            name: self.name(),
            driver: driver.unwrap_or_else(|| (if is_software { "rdma_rxe" } else { "-" }).to_owned()),
            mode: if is_software { Mode::Software } else { Mode::Hardware },
            state: self.word("state").to_lowercase(),
            mtu: link_mtu.and_then(|mtu| largest_mtu(mtu as usize)).map(rdma::roce::Mtu::bytes),
            rate: self.rate(),
            ecn: self.ecn(uplink.as_deref(), is_software),
            uplink,
            description: self.description(),
            gids: self.gids(),
            pfc: None,
        }
    }

    /// The device's name, and the port's number where there are several.
    fn name(&self) -> String {
        match self.root.list(&self.of_device("ports")).len() {
            1 => self.device.clone(),
            _ => format!("{}/{}", self.device, self.port),
        }
    }

    fn of_device(&self, file: &str) -> String {
        format!("{CLASS}/{}/{file}", self.device)
    }

    fn of_port(&self, file: &str) -> String {
        self.of_device(&format!("ports/{}/{file}", self.port))
    }

    /// The word behind a number: `4: ACTIVE`.
    fn word(&self, file: &str) -> String {
        let text = self.root.read(&self.of_port(file)).unwrap_or_default();
        text.split_once(": ").map_or(text.clone(), |(_, word)| word.to_owned())
    }

    /// `100 Gbit/s` of `100 Gb/sec (4X EDR)`.
    fn rate(&self) -> String {
        let text = self.root.read(&self.of_port("rate")).unwrap_or_default();
        text.split(" Gb/sec").next().filter(|rate| !rate.is_empty()).map_or("-".into(), |rate| format!("{rate} Gbit/s"))
    }

    fn description(&self) -> String {
        let layer = self.root.read(&self.of_port("link_layer"));
        let firmware = self.root.read(&self.of_device("fw_ver")).map(|version| format!("firmware {version}"));
        let parts = [self.root.read(&self.of_device("node_desc")), layer, firmware];
        parts.into_iter().flatten().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
    }

    fn uplink(&self) -> Option<String> {
        let ndevs = self.of_port("gid_attrs/ndevs");
        let of_gid = self.root.list(&ndevs).into_iter().find_map(|index| self.root.read(&format!("{ndevs}/{index}")));
        let parent = || self.root.read(&self.of_device("parent"));
        let of_slot = || self.root.list(&self.of_device("device/net")).into_iter().next();
        of_gid.or_else(parent).or_else(of_slot).filter(|name| !name.is_empty())
    }

    fn gids(&self) -> Vec<Gid> {
        let gid = |index: String| {
            let address: Ipv6Addr = self.root.read(&self.of_port(&format!("gids/{index}")))?.parse().ok()?;
            let version = self.root.read(&self.of_port(&format!("gid_attrs/types/{index}")))?;
            let version = version.strip_prefix("IB/").unwrap_or(&version).to_owned();
            Some(Gid { index: index.parse().ok()?, address, version }).filter(|_| !address.is_unspecified())
        };
        self.root.list(&self.of_port("gids")).into_iter().filter_map(gid).collect()
    }

    /// What the vendor's driver says; that of Linux says nothing outside of debugfs.
    fn ecn(&self, uplink: Option<&str>, is_software: bool) -> String {
        if is_software {
            return "none: Linux rxe neither marks its packets nor answers marks".to_owned();
        }
        let priorities = |side: &str| {
            let folder = format!("sys/class/net/{}/ecn/{side}/enable", uplink?);
            let enabled = |priority: &String| self.root.number::<u8>(&format!("{folder}/{priority}")) == Some(1);
            let all = self.root.list(&folder);
            (!all.is_empty()).then(|| all.into_iter().filter(enabled).collect::<Vec<_>>().join(", "))
        };
        let say =
            |list: String| if list.is_empty() { "on no priority".to_owned() } else { format!("priorities {list}") };
        match (priorities("roce_np"), priorities("roce_rp")) {
            (Some(notified), Some(slowed)) => {
                format!("marks answered: {}; notifications obeyed: {}", say(notified), say(slowed))
            }
            _ => "the driver does not say (mlx5: cc_params in debugfs)".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::testing::FakeSysfs;

    #[test]
    fn connectx_is_described_as_the_kernel_does() {
        let tree = FakeSysfs::new(&[
            ("sys/class/infiniband/mlx5_0/device/driver", "mlx5_core"),
            ("sys/class/infiniband/mlx5_0/node_desc", "desk mlx5_0"),
            ("sys/class/infiniband/mlx5_0/fw_ver", "16.35.2000"),
            ("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE"),
            ("sys/class/infiniband/mlx5_0/ports/1/rate", "100 Gb/sec (4X EDR)"),
            ("sys/class/infiniband/mlx5_0/ports/1/link_layer", "Ethernet"),
            ("sys/class/infiniband/mlx5_0/ports/1/gids/0", "0000:0000:0000:0000:0000:ffff:0a00:0001"),
            ("sys/class/infiniband/mlx5_0/ports/1/gids/1", "0000:0000:0000:0000:0000:ffff:0a00:0001"),
            ("sys/class/infiniband/mlx5_0/ports/1/gids/2", "0000:0000:0000:0000:0000:0000:0000:0000"),
            ("sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/0", "IB/RoCE v1"),
            ("sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/1", "RoCE v2"),
            ("sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/2", "RoCE v2"),
            ("sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0", "eth1"),
            ("sys/class/net/eth1/ecn/roce_np/enable/3", "1"),
            ("sys/class/net/eth1/ecn/roce_np/enable/4", "0"),
            ("sys/class/net/eth1/ecn/roce_rp/enable/3", "0"),
        ]);
        let eth1 = Interface { name: "eth1".into(), mtu: Some(4200), ..Interface::default() };
        let address = "::ffff:10.0.0.1".parse().unwrap();
        let expected = RdmaDevice {
            name: "mlx5_0".into(),
            driver: "mlx5_core".into(),
            mode: Mode::Hardware,
            state: "active".into(),
            mtu: Some(4096),
            rate: "100 Gbit/s".into(),
            uplink: Some("eth1".into()),
            description: "desk mlx5_0, Ethernet, firmware 16.35.2000".into(),
            gids: vec![
                Gid { index: 0, address, version: "RoCE v1".into() },
                Gid { index: 1, address, version: "RoCE v2".into() },
            ],
            pfc: None,
            ecn: "marks answered: priorities 3; notifications obeyed: on no priority".into(),
        };
        assert_eq!(list(&tree.root(), &[eth1]), [expected]);
    }

    #[test]
    fn rxe_is_software_on_its_parent() {
        let tree = FakeSysfs::new(&[
            ("sys/class/infiniband/rxe0/parent", "eth1"),
            ("sys/class/infiniband/rxe0/ports/1/state", "1: DOWN"),
        ]);
        let [rxe] = &list(&tree.root(), &[])[..] else { panic!("one device") };
        assert_eq!((rxe.mode, &*rxe.driver, rxe.uplink.as_deref()), (Mode::Software, "rdma_rxe", Some("eth1")));
        assert_eq!((&*rxe.state, &*rxe.rate, rxe.mtu), ("down", "-", None));
    }

    #[test]
    fn machine_without_the_subsystem_has_none() {
        assert_eq!(list(&FakeSysfs::new(&[]).root(), &[]), []);
    }
}
