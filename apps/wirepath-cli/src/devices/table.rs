//! The report for people: a line an interface, and below it a line a backend; then a line a verbs
//! device, and below it a line a feature.

use wirepath::device::mlx5::{Mlx5DeviceInfo, Mlx5Port};

use super::Device;
use crate::ethtool::Timestamping;
use crate::interface::{Interface, LinkState};

/// Width of the name column below an interface.
const NAME_WIDTH: usize = 16;
const VERDICT_WIDTH: usize = 7;
/// The same below a verbs device.
const FEATURE_WIDTH: usize = 23;

/// The whole report.
pub(super) fn render(devices: &[Device], verbs: &Result<Vec<Mlx5DeviceInfo>, String>) -> String {
    let mut reports: Vec<String> = devices.iter().map(render_device).collect();
    match verbs {
        Ok(verbs) => reports.extend(verbs.iter().map(render_verbs)),
        Err(sentence) => reports.push(format!("no verbs devices: {sentence}\n")),
    }
    reports.join("\n")
}

fn render_verbs(device: &Mlx5DeviceInfo) -> String {
    let mut words = vec![device.name.clone()];
    words.extend(device.pci.clone());
    words.extend(device.interfaces.iter().cloned());
    let capabilities = match &device.capabilities {
        Ok(capabilities) => capabilities,
        Err(sentence) => return format!("{}\n  {sentence}\n", words.join("  ")),
    };
    words.push(format!("firmware {}", capabilities.firmware));
    words.extend(capabilities.ports.iter().map(port));
    let mut text = format!("{}\n", words.join("  "));
    for (feature, can) in &capabilities.features {
        let (verdict, why) = match can {
            Ok(how) => ("yes", how),
            Err(why) => ("no", why),
        };
        let line = format!("  {feature:FEATURE_WIDTH$}  {verdict:VERDICT_WIDTH$}  {why}");
        text.push_str(&format!("{}\n", line.trim_end()));
    }
    text
}

/// `up 100 Gbit/s`
fn port(port: &Mlx5Port) -> String {
    let kind = if port.is_ethernet { "" } else { "InfiniBand " };
    let state = if port.is_up { "up" } else { "no link" };
    if port.gbps > 0.0 { format!("{kind}{state} {} Gbit/s", port.gbps) } else { format!("{kind}{state}") }
}

fn render_device(device: &Device) -> String {
    let mut text = format!("{}\n", head(&device.interface, device.queues));
    for backend in &device.backends {
        let verdict = backend.verdict.word();
        text.push_str(&format!("  {:NAME_WIDTH$}  {verdict:VERDICT_WIDTH$}  {}\n", backend.name, backend.why));
        if let Some(remedy) = &backend.remedy {
            text.push_str(&format!("  {:NAME_WIDTH$}  {:VERDICT_WIDTH$}  -> {remedy}\n", "", ""));
        }
    }
    let program = device.program.as_deref().unwrap_or("none");
    text.push_str(&format!("  {:NAME_WIDTH$}  {program}\n", "XDP program"));
    text.push_str(&format!("  {:NAME_WIDTH$}  {}\n", "NIC timestamps", timestamps(device)));
    text
}

/// `eth0  ena  0000:00:03.0  02:fc:00:00:00:01  mtu 1400  up  10 Gbit/s  NUMA node 0  1 queue`
fn head(interface: &Interface, queues: usize) -> String {
    let mut words = vec![interface.name.clone()];
    words.extend(interface.driver.clone());
    words.extend(interface.pci.clone());
    words.extend(interface.mac.clone());
    words.extend(interface.mtu.map(|mtu| format!("mtu {mtu}")));
    words.push(link(interface.link).to_owned());
    words.extend(interface.speed.map(speed));
    words.extend(interface.node.map(|node| format!("NUMA node {node}")));
    words.push(if queues == 1 { "1 queue".to_owned() } else { format!("{queues} queues") });
    words.join("  ")
}

pub(super) fn link(link: LinkState) -> &'static str {
    match link {
        LinkState::Up => "up",
        LinkState::NoCarrier => "no carrier",
        LinkState::Down => "down",
    }
}

fn speed(megabits: u32) -> String {
    if megabits.is_multiple_of(1000) { format!("{} Gbit/s", megabits / 1000) } else { format!("{megabits} Mbit/s") }
}

fn timestamps(device: &Device) -> String {
    let words = match device.timestamping {
        None => "unknown: the driver does not say".to_owned(),
        Some(Timestamping { rx: false, tx: false, .. }) => "none".to_owned(),
        Some(Timestamping { rx, rx_all, tx, clock }) => {
            let arrivals = if rx_all { "all arrivals" } else { "arrivals of PTP frames" };
            let stamped = [rx.then_some(arrivals), tx.then_some("departures")];
            let clock = clock.map_or(String::new(), |clock| format!(", by /dev/ptp{clock}"));
            stamped.into_iter().flatten().collect::<Vec<_>>().join(" and ") + &clock
        }
    };
    match device.xdp_timestamps {
        Some(true) => words + "; the driver gives XDP programs the arrival time of a frame",
        _ => words,
    }
}
