//! `wirepath rdma devices`: what speaks RDMA here, by an RNIC, by Linux in software, or by
//! wirepath on an interface; and what the kernel says of the port's flow control.
//!
//! It only asks and changes nothing.

mod hardware;
mod json;
mod software;
mod table;

use std::error::Error;
use std::io::{self, Write};
use std::net::Ipv6Addr;

use clap::Args;
use wirepath::counters::printable_lines;

use crate::dcb::{self, Pfc};
use crate::interface::Interface;
use crate::root::Root;

/// Which devices are shown.
#[derive(Args, Clone, Debug)]
pub(crate) struct DevicesOptions {
    /// Only this device, or those of this interface
    device: Option<String>,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub(super) fn run(options: &DevicesOptions) -> Result<(), Box<dyn Error>> {
    let root = Root::new(None);
    let interfaces = Interface::list(&root);
    let mut devices = hardware::list(&root, &interfaces);
    devices.extend(software::list(&interfaces)?);
    if let Some(name) = &options.device {
        devices.retain(|device| device.name == *name || device.uplink.as_ref() == Some(name));
        if devices.is_empty() {
            return Err(format!("there is no RDMA device or Ethernet interface {name}").into());
        }
    }
    for device in &mut devices {
        device.pfc = device.uplink.as_deref().map(|uplink| dcb::pfc(uplink).map_err(|error| dcb::why(&error)));
    }
    let text = match options.json {
        true => json::render(&devices),
        false => printable_lines(&table::render(&devices)),
    };
    Ok(io::stdout().lock().write_all(text.as_bytes())?)
}

/// A device, in the columns of `esxcli rdma device list` and more.
#[derive(Debug, PartialEq)]
struct RdmaDevice {
    name: String,
    driver: String,
    mode: Mode,
    state: String,
    /// The largest payload of a packet that its interface leaves.
    mtu: Option<u32>,
    rate: String,
    /// The interface that it shares its port with.
    uplink: Option<String>,
    description: String,
    gids: Vec<Gid>,
    /// Priority flow control of the uplink, or why the kernel does not say.
    pfc: Option<Result<Pfc, String>>,
    /// Congestion notification, in words.
    ecn: String,
}

/// Who does the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// An RNIC.
    Hardware,
    /// A processor.
    Software,
}

/// An address of a device.
#[derive(Debug, PartialEq, Eq)]
struct Gid {
    index: u32,
    address: Ipv6Addr,
    /// The version of RoCE that is spoken from it.
    version: String,
}
