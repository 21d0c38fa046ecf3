//! The report as JSON: one object with an array of interfaces. What is not known is null.

use serde_json::{Value, json};

use super::backend::Backend;
use super::table::link;
use super::{Device, Timestamping};

/// One object and a newline.
pub(super) fn render(devices: &[Device]) -> String {
    let devices: Vec<Value> = devices.iter().map(device).collect();
    format!("{}\n", json!({ "devices": devices }))
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
