//! The report as JSON: one object with an array of interfaces and one of verbs devices. Unknown
//! values are null.

use serde_json::{Value, json};
use wirepath::device::mlx5::{Mlx5DeviceInfo, Mlx5Port};

use super::backend::Backend;
use super::table::link;
use super::{Device, Timestamping};

/// One object and a newline.
pub(super) fn render(devices: &[Device], verbs: &Result<Vec<Mlx5DeviceInfo>, String>) -> String {
    let devices: Vec<Value> = devices.iter().map(device).collect();
    let (verbs, no_verbs) = match verbs {
        Ok(verbs) => (verbs.iter().map(verbs_device).collect(), None),
        Err(sentence) => (Vec::new(), Some(sentence)),
    };
    format!("{}\n", json!({ "devices": devices, "verbs_devices": verbs, "no_verbs": no_verbs }))
}

fn verbs_device(device: &Mlx5DeviceInfo) -> Value {
    let capabilities = device.capabilities.as_ref().ok();
    json!({
        "name": device.name,
        "pci": device.pci,
        "interfaces": device.interfaces,
        "why_not": device.capabilities.as_ref().err(),
        "firmware": capabilities.map(|capabilities| &capabilities.firmware),
        "ports": capabilities.map(|capabilities| capabilities.ports.iter().map(port).collect::<Vec<_>>()),
        "features": capabilities.map(|capabilities| capabilities.features.iter().map(feature).collect::<Vec<_>>()),
    })
}

fn port(port: &Mlx5Port) -> Value {
    json!({ "ethernet": port.is_ethernet, "up": port.is_up, "gbps": port.gbps })
}

fn feature((name, can): &(&'static str, Result<String, String>)) -> Value {
    json!({ "name": name, "there": can.is_ok(), "how": can.as_ref().ok(), "why_not": can.as_ref().err() })
}

fn device(device: &Device) -> Value {
    let interface = &device.interface;
    let backends: Vec<Value> = device.backends.iter().map(backend).collect();
    json!({
        "name": interface.name,
        "driver": interface.driver,
        "pci": interface.pci,
        "mac": interface.mac,
        "mtu": interface.mtu,
        "link": link(interface.link),
        "speed_mbit": interface.speed,
        "numa_node": interface.node,
        "queues": device.queues,
        "rdma_device": interface.rdma,
        "xdp_program": device.program,
        "nic_timestamps": device.timestamping.map(timestamps),
        "xdp_timestamps": device.xdp_timestamps,
        "backends": backends,
    })
}

fn backend(backend: &Backend) -> Value {
    json!({
        "name": backend.name,
        "verdict": backend.verdict.word(),
        "why": backend.why,
        "remedy": backend.remedy,
    })
}

fn timestamps(stamping: Timestamping) -> Value {
    json!({ "rx": stamping.rx, "rx_all": stamping.rx_all, "tx": stamping.tx, "ptp_clock": stamping.clock })
}
