//! The origin of a report: the machine, its kernel, the devices and their features, so that a
//! reader knows on which machine the figures were measured.

use std::fs;
use std::path::Path;

use wirepath::device::Device;
use wirepath::device::mlx5::{Mlx5Capabilities, Mlx5Device, Mlx5DeviceInfo};

use super::Lab;
use super::report::Report;
use crate::nic;

/// The remark about the figures of software ConnectXs.
pub(super) const SOFTWARE: &str =
    "These ConnectXs are made of software: the facts are facts, the figures say nothing about a NIC.";

/// Whether the device is made of software: its model is loaded into this process, or the kernel has
/// no driver for a real one.
pub(super) fn is_software(device: &str) -> bool {
    let model = nic::counter(&format!("{device}.tx_frames")).or_else(|| nic::counter("tx_frames"));
    model.is_some() || !Path::new("/sys/module/mlx5_core").exists()
}

/// The head of the report.
pub(super) fn describe(lab: &Lab, devices: &[Mlx5Device; 2], report: &mut Report<'_>) -> Result<(), String> {
    if is_software(&lab.device) {
        report.line(SOFTWARE)?;
    }
    report.item("wirepath", env!("CARGO_PKG_VERSION"))?;
    report.item("kernel", &read("/proc/sys/kernel/osrelease"))?;
    report.item("processor", &processor())?;
    report.item("boot", &boot(&read("/proc/cmdline")))?;
    let cores = lab.cores.map_or("left to the scheduler".into(), |(near, far)| format!("{near} and {far}"));
    report.item("cores", &cores)?;
    let supports = Mlx5DeviceInfo::list().map_err(|error| error.to_string())?;
    for device in devices {
        report.item("device", &device.describe())?;
        let support = supports.iter().find(|support| support.name == device.name());
        if let Some(pci) = support.and_then(|support| support.pci.as_deref()) {
            report.item("  PCI", &slot(pci))?;
        }
        if let Some(Ok(capabilities)) = support.map(|support| &support.capabilities) {
            describe_abilities(capabilities, report)?;
        }
    }
    Ok(())
}

fn describe_abilities(capabilities: &Mlx5Capabilities, report: &mut Report<'_>) -> Result<(), String> {
    for port in &capabilities.ports {
        report.item("  link", &format!("{} Gbit/s", port.gbps))?;
    }
    for (feature, can) in &capabilities.features {
        let words = match can {
            Ok(how) if how.is_empty() => "yes".into(),
            Ok(how) => how.clone(),
            Err(why) => format!("no: {why}"),
        };
        report.item(&format!("  {feature}"), &words)?;
    }
    Ok(())
}

/// Bits a second of the slower of the two links; `None` where they do not report it.
pub(super) fn link_bits(lab: &Lab) -> Option<f64> {
    let supports = Mlx5DeviceInfo::list().ok()?;
    let named = |support: &&Mlx5DeviceInfo| {
        [&lab.device, &lab.peer].iter().any(|name| {
            support.name == **name || support.pci.as_deref() == Some(name) || support.interfaces.contains(name)
        })
    };
    let ports = supports.iter().filter(named).filter_map(|support| support.capabilities.as_ref().ok()?.ports.first());
    ports.map(|port| f64::from(port.gbps) * 1e9).filter(|bits| *bits > 0.0).reduce(f64::min)
}

/// Where the function is, and how it is connected.
fn slot(pci: &str) -> String {
    let file = |name: &str| read(&format!("/sys/bus/pci/devices/{pci}/{name}"));
    format!(
        "{pci}, {}, {} lanes, NUMA node {}",
        file("current_link_speed"),
        file("current_link_width"),
        file("numa_node")
    )
}

/// The parts of the kernel's command line that change latency.
fn boot(line: &str) -> String {
    let names =
        ["isolcpus", "nohz_full", "rcu_nocbs", "mitigations", "intel_iommu", "amd_iommu", "iommu", "idle", "processor"];
    let is_ours = |word: &&str| names.contains(&word.split(['=', '.']).next().unwrap_or(""));
    let words: Vec<_> = line.split_whitespace().filter(is_ours).collect();
    if words.is_empty() { "nothing that changes latency".into() } else { words.join(" ") }
}

fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ")).map(|(_, name)| name);
    let count = text.lines().filter(|line| line.starts_with("processor")).count();
    format!("{} ({}), {count} cores", model.unwrap_or("unknown"), std::env::consts::ARCH)
}

fn read(path: &str) -> String {
    fs::read_to_string(path).map_or_else(|_| "unknown".into(), |text| text.trim().to_owned())
}
