//! The command line of `softhca run`.

use std::ffi::OsString;
use std::net::Ipv4Addr;

use clap::{Args, ValueEnum};
use softhca::hca::Config;
use softhca::settings::{DeviceSettings, Engine, HostileSettings, Mac, Settings, WireSettings};
use softhca::uverbs::Protocol;
use softhca::wire;

use super::Failure;

/// Starts a command that finds mlx5 devices in its sysfs and under /dev/infiniband
#[derive(Args, Debug)]
pub(crate) struct RunOptions {
    /// Devices to show: mlx5_0, mlx5_1 … [default: one for each --wire, or 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=8))]
    devices: Option<u8>,
    /// The cable of the next device: `pair` to the next one, `loop`, INTERFACE, `tap:NAME`,
    /// `pcap:IN,OUT`
    #[arg(long, value_name = "WIRE")]
    wire: Vec<WireSettings>,
    /// The MAC address of the next device [default: the interface's, or 02:00:00:00:5c:0N]
    #[arg(long, value_name = "MAC")]
    mac: Vec<Mac>,
    /// The IPv4 address of the next device, for a GID [default: the interface's, or none]
    #[arg(long, value_name = "ADDRESS")]
    address: Vec<Ipv4Addr>,
    /// Bytes of the longest IP packet [default: the interface's, or 1500]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(68..=9600))]
    mtu: Option<u16>,
    /// Fetch a WQE only after its doorbell was rung, and check every step of it
    #[arg(long)]
    strict: bool,
    /// Drop frames that find no receive WQE, as hardware does; otherwise they wait
    #[arg(long)]
    lossy: bool,
    /// Misbehave as hardware may, from a seed; `7,loss=20,link=5` changes chances, in thousandths
    #[arg(long, value_name = "SEED")]
    hostile: Option<HostileSettings>,
    /// Which of the kernel's two interfaces is played
    #[arg(long, value_enum, default_value = "ioctl")]
    abi: Abi,
    /// Something that this ConnectX cannot do
    #[arg(long, value_enum, value_name = "FEATURE")]
    without: Vec<Feature>,
    /// Flow rules that there is room for
    #[arg(long, value_name = "N")]
    flows: Option<usize>,
    /// Pages of doorbell registers that there are
    #[arg(long, value_name = "N")]
    uars: Option<u32>,
    /// Bytes of header that each WQE must carry inline: 18 as a ConnectX-4 Lx wants it
    #[arg(long, value_name = "BYTES")]
    inline: Option<u8>,
    /// Bytes of the longest send WQE, a multiple of 64
    #[arg(long, value_name = "BYTES", value_parser = wqe_len)]
    wqe: Option<u16>,
    /// Report ports of InfiniBand, to test that programs refuse them
    #[arg(long)]
    infiniband: bool,
    /// The model moves only when the program calls `softhca_step`
    #[arg(long)]
    manual: bool,
    /// Give each device whose wire is not an interface a kernel interface on its port, soft0 …, as
    /// DPDK needs it
    #[arg(long)]
    netdev: bool,
    /// Run in a new network namespace; implies --netdev
    #[arg(long)]
    pub(super) netns: bool,
    /// Print the program's refused commands, with their errno
    #[arg(long)]
    verbose: bool,
    /// Print the model's counters at the end
    #[arg(long)]
    pub(super) stats: bool,
    /// The command and its arguments
    #[arg(last = true, required = true)]
    pub(super) command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Abi {
    /// Linux 4.20 and later
    Ioctl,
    /// Before that: commands are written
    Write,
}

/// The features that a device can be made without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Feature {
    /// Multi-packet send WQEs
    MultiPacketSend,
    /// Compressed CQEs
    CqeCompression,
    /// Striding receive queues
    StridingRq,
    /// Segmentation of TCP
    Tso,
    /// Packet pacing
    Pacing,
}

fn wqe_len(text: &str) -> Result<u16, String> {
    let len = text.parse().ok().filter(|len: &u16| (64..=1024).contains(len) && len.is_multiple_of(64));
    len.ok_or_else(|| "use a multiple of 64 up to 1024".into())
}

impl RunOptions {
    /// The settings that the options result in. Reads interfaces of the network namespace that it
    /// runs in.
    pub(super) fn settings(&self) -> Result<Settings, Failure> {
        let count = self.devices.map_or(self.wire.len().max(1), usize::from);
        if self.wire.len().max(self.mac.len()).max(self.address.len()) > count {
            return Err(Failure::new(format!("more wires or addresses than devices: --devices {count}")));
        }
        let devices =
            (0..count).map(|idx| self.device(idx, self.wire_of(idx, count))).collect::<Result<Vec<_>, _>>()?;
        if devices.iter().filter(|device| device.wire == WireSettings::Pair).count() % 2 != 0 {
            return Err(Failure::new(
                "a device with the wire `pair` has no partner: give it to an even number of devices",
            ));
        }
        let protocol = match self.abi {
            Abi::Ioctl => Protocol::Ioctl,
            Abi::Write => Protocol::Write,
        };
        let engine = if self.manual { Engine::Manual } else { Engine::Thread };
        Ok(Settings { devices, protocol, engine, verbose: self.verbose, counters: None })
    }

    /// Devices without a named wire are connected in pairs; a remaining one is connected to itself.
    fn wire_of(&self, idx: usize, count: usize) -> WireSettings {
        let unnamed = count - self.wire.len();
        match self.wire.get(idx) {
            Some(wire) => wire.clone(),
            None if !unnamed.is_multiple_of(2) && idx == count - 1 => WireSettings::Loop,
            None => WireSettings::Pair,
        }
    }

    fn device(&self, idx: usize, wire: WireSettings) -> Result<DeviceSettings, Failure> {
        let mut config =
            Config { name: format!("mlx5_{idx}"), mac: [2, 0, 0, 0, 0x5c, idx as u8], ..Config::default() };
        let mut netdev = None;
        if let WireSettings::Packet(interface) = &wire {
            look_at(interface, &mut config)?;
            netdev = Some(interface.clone());
        }
        if let Some(mac) = self.mac.get(idx) {
            config.mac = mac.0;
        }
        if let Some(address) = self.address.get(idx) {
            config.address = Some(address.octets());
        }
        config.mtu = self.mtu.unwrap_or(config.mtu);
        if netdev.is_none() && (self.netdev || self.netns) {
            netdev = Some(format!("soft{idx}"));
        }
        (config.strict, config.lossy) = (self.strict, self.lossy);
        config.hostility = self.hostile.as_ref().map(|hostile| hostile.0.clone());
        config.flows_max = self.flows.unwrap_or(config.flows_max);
        config.uars_max = self.uars.unwrap_or(config.uars_max);
        config.inline_len_min = self.inline.unwrap_or(config.inline_len_min);
        config.wqe_len_max = self.wqe.unwrap_or(config.wqe_len_max);
        config.infiniband = self.infiniband;
        for feature in &self.without {
            match feature {
                Feature::MultiPacketSend => config.multi_packet_send = false,
                Feature::CqeCompression => config.cqe_compression = false,
                Feature::StridingRq => config.striding_rq = false,
                Feature::Tso => config.tso_len_max = 0,
                Feature::Pacing => config.pacing = None,
            }
        }
        Ok(DeviceSettings { config, wire, netdev })
    }
}

/// Gives a device the MAC address, MTU and IPv4 address of an interface.
fn look_at(interface: &str, config: &mut Config) -> Result<(), Failure> {
    let missing = |_| format!("there is no interface {interface} in this network namespace: see `ip link`");
    let facts = wire::look_at(interface).map_err(missing).map_err(Failure::new)?;
    config.mac = facts
        .mac
        .ok_or_else(|| Failure::new(format!("{interface} is no Ethernet interface: it has no MAC address")))?;
    config.mtu = facts.mtu.min(MTU_MAX).try_into().unwrap_or(u16::MAX);
    config.address = facts.address;
    Ok(())
}

/// The MTU for the longest frame of a cable.
const MTU_MAX: u32 = 9_600;

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        options: RunOptions,
    }

    fn settings(arguments: &[&str]) -> Result<Settings, String> {
        let all = [&["run"], arguments, &["--", "true"]].concat();
        let options = Cli::try_parse_from(all).map_err(|error| error.to_string())?.options;
        options.settings().map_err(|failure| failure.sentence)
    }

    fn wires(arguments: &[&str]) -> Vec<String> {
        settings(arguments).unwrap().devices.iter().map(|device| device.wire.to_string()).collect()
    }

    #[test]
    fn devices_without_a_wire_are_back_to_back() {
        assert_eq!(wires(&[]), ["loop"]);
        assert_eq!(wires(&["--devices", "2"]), ["pair", "pair"]);
        assert_eq!(wires(&["--devices", "3"]), ["pair", "pair", "loop"]);
        assert_eq!(wires(&["--wire", "pair", "--wire", "loop", "--wire", "pair"]), ["pair", "loop", "pair"]);
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        let check = |arguments: &[&str], expected: &str| {
            let error = settings(arguments).unwrap_err();
            assert!(error.contains(expected), "{error}");
        };
        check(&["--wire", "pair"], "no partner");
        check(&["--devices", "1", "--wire", "loop", "--wire", "loop"], "more wires");
        check(&["--wire", "wirepath-none"], "no interface wirepath-none");
        check(&["--wire", "lo:"], "no wire is called");
        check(&["--hostile", "often"], "seed");
        check(&["--mac", "02:00"], "MAC address");
    }

    #[test]
    fn each_device_has_its_own_name_and_address() {
        let devices = settings(&["--devices", "2", "--mac", "02:00:00:00:00:99", "--without", "tso"]).unwrap().devices;
        let seen = devices.iter().map(|device| (device.config.name.as_str(), Mac(device.config.mac).to_string()));
        let expected = [("mlx5_0", "02:00:00:00:00:99".to_owned()), ("mlx5_1", "02:00:00:00:5c:01".to_owned())];
        assert!(seen.eq(expected));
        assert!(devices.iter().all(|device| device.config.tso_len_max == 0));
    }
}
