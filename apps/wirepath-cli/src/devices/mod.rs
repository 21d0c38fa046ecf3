//! `wirepath devices`: lists the interfaces of this network namespace, with the backends that could
//! drive each, or the reason why they cannot; then the verbs devices of the machine, with the
//! features of each ConnectX.
//!
//! It only queries and changes nothing: it binds no socket and loads no program. `wirepath doctor`
//! reports the kernel's other reasons to refuse (privileges, memory).

pub(crate) mod backend;
mod json;
mod table;

use std::error::Error;
use std::io::{self, Write};

use clap::Args;
use wirepath::counters::printable_lines;
use wirepath::device::af_xdp::AfXdpCapabilities;
use wirepath::device::mlx5::Mlx5DeviceInfo;

use crate::ethtool::{Ethtool, Timestamping};
use crate::interface::Interface;
use crate::root::Root;
use backend::{Backend, BackendInput};

/// Shows the interfaces of this network namespace, with the backends that could drive each, or the
/// reason if none can.
#[derive(Args)]
pub(crate) struct DevicesOptions {
    /// Only this interface
    interface: Option<String>,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub(crate) fn run(options: &DevicesOptions) -> Result<(), Box<dyn Error>> {
    let root = Root::new(None);
    let mut interfaces = Interface::list(&root);
    let mut verbs = Mlx5DeviceInfo::list().map_err(|error| error.to_string());
    if let Some(name) = &options.interface {
        interfaces.retain(|interface| interface.name == *name);
        if interfaces.is_empty() {
            return Err(no_such_interface(name).into());
        }
    }
    let devices: Vec<Device> = interfaces.into_iter().map(|interface| Device::ask(interface, &verbs)).collect();
    if let (Some(name), Ok(verbs)) = (&options.interface, &mut verbs) {
        verbs.retain(|device| device.interfaces.contains(name));
    }
    let text =
        if options.json { json::render(&devices, &verbs) } else { printable_lines(&table::render(&devices, &verbs)) };
    Ok(io::stdout().lock().write_all(text.as_bytes())?)
}

/// The sentence for an interface that does not exist.
pub(crate) fn no_such_interface(name: &str) -> String {
    format!("there is no interface {name} in this network namespace: `ip -brief link` lists those that are")
}

/// The facts about one interface.
struct Device {
    interface: Interface,
    queues: usize,
    /// The XDP program attached to it, in words.
    program: Option<String>,
    /// The NIC's timestamping; `None` where the driver does not report it.
    timestamping: Option<Timestamping>,
    /// Whether the driver gives XDP programs the arrival time of a frame; `None` where the kernel
    /// does not report it.
    xdp_timestamps: Option<bool>,
    backends: Vec<Backend>,
}

impl Device {
    fn ask(mut interface: Interface, verbs: &Result<Vec<Mlx5DeviceInfo>, String>) -> Self {
        let ethtool = Ethtool::of(&interface.name).ok();
        let ethtool = ethtool.as_ref();
        interface.driver = interface.driver.or_else(|| ethtool?.driver().ok());
        let offloads = ethtool.and_then(|ethtool| ethtool.offloads().ok()).unwrap_or_default();
        let support = AfXdpCapabilities::of(&interface.name).map_err(|error| error.to_string());
        let mut backends =
            backend::judge(&BackendInput { interface: &interface, support: &support, offloads: &offloads });
        backends.push(backend::mlx5(&interface, verbs));
        let support = support.ok();
        let program = support.as_ref().and_then(|support| support.program.as_ref());
        Self {
            queues: support.as_ref().map_or(interface.queues, |support| support.queues.into()),
            program: program.map(|program| format!("id {}, {}", program.id, program.holder)),
            timestamping: ethtool.and_then(|ethtool| ethtool.timestamping().ok()),
            xdp_timestamps: support.and_then(|support| support.driver).map(|driver| driver.rx_timestamps),
            backends,
            interface,
        }
    }
}
