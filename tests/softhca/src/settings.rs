//! The settings that `softhca run` passes to the preload library, in environment variables, because
//! these reach every process that the command starts. Each type has a text form: `Display` emits
//! it, `FromStr` parses it.

use std::fmt;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::str::FromStr;

use crate::hca::{Config, Hostility};
use crate::uverbs::Protocol;

/// The device that `/dev/infiniband/uverbsN` is, one a line.
pub const DEVICES: &str = "SOFTHCA_DEVICES";
/// `ioctl` or `write`.
pub const ABI: &str = "SOFTHCA_ABI";
/// `thread` or `manual`.
pub const ENGINE: &str = "SOFTHCA_ENGINE";
/// Set where refused commands are to be printed.
pub const VERBOSE: &str = "SOFTHCA_VERBOSE";
/// A directory into which each process writes its counters.
pub const COUNTERS: &str = "SOFTHCA_COUNTERS";

/// Everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// By the number of their uverbs nodes.
    pub devices: Vec<DeviceSettings>,
    /// Which kernel is played.
    pub protocol: Protocol,
    /// The thread that calls the model's `step`.
    pub engine: Engine,
    /// Print refused commands.
    pub verbose: bool,
    /// Where counters are left.
    pub counters: Option<PathBuf>,
}

/// The thread that calls the model's `step`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// A thread of the preload library, as long as a device is open.
    #[default]
    Thread,
    /// The program itself, by `softhca_step`.
    Manual,
}

/// One NIC.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceSettings {
    /// The NIC's features and tolerance.
    pub config: Config,
    /// Its cable.
    pub wire: WireSettings,
    /// The kernel's interface on its port, where it has one: for a packet socket the interface
    /// itself, else a TAP.
    pub netdev: Option<String>,
}

/// A cable, as the command line names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum WireSettings {
    /// `pair`: to the next device that has one, in the same process.
    Pair,
    /// `loop`: sent frames come back.
    #[default]
    Loop,
    /// The name of an interface: a packet socket on it.
    Packet(String),
    /// `tap:NAME`: the kernel is at the other end, on an interface of that name.
    Tap(String),
    /// `pcap:IN,OUT`: arriving frames are read from one file, sent frames are written to the other.
    /// Either may be empty.
    Pcap {
        /// Replayed once a flow rule is there, and a ring that is ready with something posted.
        replay: Option<PathBuf>,
        /// Written anew.
        record: Option<PathBuf>,
    },
}

impl Settings {
    /// The variables to set for a command.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let devices: Vec<_> = self.devices.iter().map(ToString::to_string).collect();
        let abi = match self.protocol {
            Protocol::Ioctl => "ioctl",
            Protocol::Write => "write",
        };
        let engine = match self.engine {
            Engine::Thread => "thread",
            Engine::Manual => "manual",
        };
        let counters = self.counters.as_ref().map(|path| (COUNTERS, path.display().to_string()));
        let variables = [(DEVICES, devices.join("\n")), (ABI, abi.into()), (ENGINE, engine.into())];
        let verbose = self.verbose.then(|| (VERBOSE, "1".to_owned()));
        variables.into_iter().chain(verbose).chain(counters).collect()
    }

    /// Reads the settings back: `variable` returns the value of a name.
    ///
    /// # Errors
    /// Which variable makes no sense.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let of = |name| variable(name).unwrap_or_default();
        let devices = of(DEVICES).lines().map(str::parse).collect::<Result<_, _>>()?;
        let protocol = match of(ABI).as_str() {
            "" | "ioctl" => Protocol::Ioctl,
            "write" => Protocol::Write,
            other => return Err(format!("{ABI} is {other}; ioctl and write are known")),
        };
        let engine = match of(ENGINE).as_str() {
            "" | "thread" => Engine::Thread,
            "manual" => Engine::Manual,
            other => return Err(format!("{ENGINE} is {other}; thread and manual are known")),
        };
        let counters = variable(COUNTERS).map(PathBuf::from);
        Ok(Self { devices, protocol, engine, verbose: variable(VERBOSE).is_some(), counters })
    }
}

/// `name=value` for every field, the wire last, because a path may hold spaces.
impl fmt::Display for DeviceSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Config { name, mac, mtu, strict, lossy, hostility, .. } = &self.config;
        let Config { multi_packet_send, cqe_compression, striding_rq, tso_len_max, flows_max, uars_max, .. } =
            &self.config;
        write!(f, "name={name} mac={} mtu={mtu} strict={strict} lossy={lossy} ", Mac(*mac))?;
        if let Some(address) = self.config.address {
            write!(f, "address={} ", Ipv4Addr::from(address))?;
        }
        if let Some(hostility) = hostility {
            write!(f, "hostile={} ", HostileSettings(hostility.clone()))?;
        }
        write!(f, "multi_packet_send={multi_packet_send} cqe_compression={cqe_compression} ")?;
        write!(f, "striding_rq={striding_rq} tso={tso_len_max} flows={flows_max} uars={uars_max} ")?;
        match self.config.pacing {
            Some((min, max)) => write!(f, "pacing={min}-{max} ")?,
            None => write!(f, "pacing=none ")?,
        }
        let Config { inline_len_min, wqe_len_max, infiniband, .. } = &self.config;
        write!(f, "inline={inline_len_min} wqe={wqe_len_max} infiniband={infiniband} ")?;
        if let Some(netdev) = &self.netdev {
            write!(f, "netdev={netdev} ")?;
        }
        write!(f, "wire={}", self.wire)
    }
}

impl FromStr for DeviceSettings {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (fields, wire) = text.split_once("wire=").ok_or_else(|| format!("{DEVICES}: no wire in {text:?}"))?;
        let mut device = Self { wire: wire.parse()?, ..Self::default() };
        for field in fields.split_whitespace() {
            let (name, value) = field.split_once('=').ok_or_else(|| format!("{DEVICES}: {field:?} has no value"))?;
            device.set(name, value).ok_or_else(|| format!("{DEVICES}: {field:?} is not known"))?;
        }
        Ok(device)
    }
}

impl DeviceSettings {
    fn set(&mut self, name: &str, value: &str) -> Option<()> {
        let config = &mut self.config;
        match name {
            "name" => config.name = value.into(),
            "mac" => config.mac = value.parse::<Mac>().ok()?.0,
            "address" => config.address = Some(value.parse::<Ipv4Addr>().ok()?.octets()),
            "mtu" => config.mtu = value.parse().ok()?,
            "strict" => config.strict = value.parse().ok()?,
            "lossy" => config.lossy = value.parse().ok()?,
            "hostile" => config.hostility = Some(value.parse::<HostileSettings>().ok()?.0),
            "multi_packet_send" => config.multi_packet_send = value.parse().ok()?,
            "cqe_compression" => config.cqe_compression = value.parse().ok()?,
            "striding_rq" => config.striding_rq = value.parse().ok()?,
            "tso" => config.tso_len_max = value.parse().ok()?,
            "flows" => config.flows_max = value.parse().ok()?,
            "uars" => config.uars_max = value.parse().ok()?,
            "pacing" if value == "none" => config.pacing = None,
            "pacing" => {
                let (min, max) = value.split_once('-')?;
                config.pacing = Some((min.parse().ok()?, max.parse().ok()?));
            }
            "inline" => config.inline_len_min = value.parse().ok()?,
            "wqe" => config.wqe_len_max = value.parse().ok()?,
            "infiniband" => config.infiniband = value.parse().ok()?,
            "netdev" => self.netdev = Some(value.into()),
            _ => return None,
        }
        Some(())
    }
}

impl fmt::Display for WireSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
        match self {
            Self::Pair => write!(f, "pair"),
            Self::Loop => write!(f, "loop"),
            Self::Packet(interface) => write!(f, "{interface}"),
            Self::Tap(name) => write!(f, "tap:{name}"),
            Self::Pcap { replay, record } => write!(f, "pcap:{},{}", path(replay), path(record)),
        }
    }
}

impl FromStr for WireSettings {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let file = |path: &str| (!path.is_empty()).then(|| PathBuf::from(path));
        match text.split_once(':') {
            None if text == "pair" => Ok(Self::Pair),
            None if text == "loop" => Ok(Self::Loop),
            None if is_interface(text) => Ok(Self::Packet(text.into())),
            Some(("tap", name)) if is_interface(name) => Ok(Self::Tap(name.into())),
            Some(("pcap", files)) if !files.trim_matches(',').is_empty() => {
                let (replay, record) = files.split_once(',').unwrap_or((files, ""));
                Ok(Self::Pcap { replay: file(replay), record: file(record) })
            }
            _ => Err(format!("no wire is called {text:?}: pair, loop, INTERFACE, tap:NAME, pcap:IN,OUT")),
        }
    }
}

/// As dev_valid_name() of the kernel has it, where IFNAMSIZ is 16.
fn is_interface(name: &str) -> bool {
    (1..16).contains(&name.len())
        && !name.starts_with('.')
        && !name.contains(|sign: char| sign.is_whitespace() || "/:".contains(sign))
}

/// A MAC address as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mac(pub [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for Mac {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let byte = |part: &str| if part.len() == 2 { u8::from_str_radix(part, 16).ok() } else { None };
        let bytes: Option<Vec<u8>> = text.split(':').map(byte).collect();
        let mac = bytes.and_then(|bytes| <[u8; 6]>::try_from(bytes).ok()).map(Self);
        mac.ok_or_else(|| format!("{text:?} is no MAC address; write it as 02:00:00:00:5c:00"))
    }
}

/// The hostility of a NIC: the seed, then the values that differ from the defaults, as in
/// `7,loss=20,link=0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostileSettings(pub Hostility);

impl HostileSettings {
    /// Whatever a driver has to live with, often enough to be seen within some thousand frames.
    fn new(seed: u64) -> Self {
        Self(Hostility {
            seed,
            completion_delay_max: 8,
            loss: 5,
            reordering: 10,
            send_errors: 1,
            receive_errors: 1,
            link_flaps: 0,
        })
    }
}

impl fmt::Display for HostileSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Hostility { seed, completion_delay_max, loss, reordering, send_errors, receive_errors, link_flaps } =
            &self.0;
        write!(f, "{seed},delay={completion_delay_max},loss={loss},reorder={reordering}")?;
        write!(f, ",send={send_errors},receive={receive_errors},link={link_flaps}")
    }
}

impl FromStr for HostileSettings {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',');
        let seed = parts.next().and_then(|seed| seed.parse().ok());
        let mut hostile = Self::new(seed.ok_or_else(|| format!("{text:?} does not begin with a seed, a number"))?);
        for part in parts {
            let known = part.split_once('=').and_then(|(name, value)| hostile.set(name, value.parse().ok()?));
            known.ok_or_else(|| {
                format!("{part:?} is not known; delay=, loss=, reorder=, send=, receive= and link= are")
            })?;
        }
        Ok(hostile)
    }
}

impl HostileSettings {
    fn set(&mut self, name: &str, value: u32) -> Option<()> {
        *match name {
            "delay" => &mut self.0.completion_delay_max,
            "loss" => &mut self.0.loss,
            "reorder" => &mut self.0.reordering,
            "send" => &mut self.0.send_errors,
            "receive" => &mut self.0.receive_errors,
            "link" => &mut self.0.link_flaps,
            _ => return None,
        } = value;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(wire: &str) -> DeviceSettings {
        let config = Config {
            name: "mlx5_7".into(),
            mac: [2, 0, 0, 0xab, 1, 2],
            address: Some([10, 1, 2, 3]),
            mtu: 9000,
            strict: true,
            lossy: true,
            hostility: "9,loss=77".parse::<HostileSettings>().ok().map(|hostile| hostile.0),
            multi_packet_send: false,
            cqe_compression: false,
            striding_rq: false,
            tso_len_max: 0,
            flows_max: 3,
            uars_max: 9,
            pacing: None,
            inline_len_min: 18,
            wqe_len_max: 512,
            infiniband: true,
        };
        DeviceSettings { config, wire: wire.parse().unwrap(), netdev: Some("soft0".into()) }
    }

    #[test]
    fn variables_are_read_back_as_they_were() {
        let settings = Settings {
            devices: vec![DeviceSettings::default(), device("pair"), device("pcap:a file,out=wire=x")],
            protocol: Protocol::Write,
            engine: Engine::Manual,
            verbose: true,
            counters: Some("/tmp/with space".into()),
        };
        let variables = settings.variables();
        let read = Settings::read(|name| variables.iter().find(|entry| entry.0 == name).map(|entry| entry.1.clone()));
        assert_eq!(read.unwrap(), settings);
    }

    #[test]
    fn no_variables_are_no_devices() {
        assert_eq!(Settings::read(|_| None).unwrap(), Settings::default());
    }

    #[test]
    fn unknown_words_are_named() {
        let check = |name: &'static str, value: &str, expected: &str| {
            let error = Settings::read(|asked| (asked == name).then(|| value.to_owned())).unwrap_err();
            assert!(error.contains(expected), "{error}");
        };
        check(ABI, "netlink", "netlink");
        check(ENGINE, "steam", "steam");
        check(DEVICES, "name=x", "no wire");
        check(DEVICES, "colour=red wire=loop", "colour=red");
        check(DEVICES, "mac=02:0 wire=loop", "mac=02:0");
        check(DEVICES, "hostile wire=loop", "no value");
    }

    #[test]
    fn wires_are_known_by_their_names() {
        let check = |text: &str, expected: WireSettings| {
            assert_eq!(text.parse::<WireSettings>().unwrap(), expected);
            assert_eq!(expected.to_string().parse::<WireSettings>().unwrap(), expected);
        };
        check("pair", WireSettings::Pair);
        check("loop", WireSettings::Loop);
        check("veth0", WireSettings::Packet("veth0".into()));
        check("tap:soft0", WireSettings::Tap("soft0".into()));
        check("pcap:a", WireSettings::Pcap { replay: Some("a".into()), record: None });
        check("pcap:,b", WireSettings::Pcap { replay: None, record: Some("b".into()) });
        for wrong in ["", "tap:", "pcap:", "pcap:,", "x:y", "an interface", "0123456789abcdef"] {
            assert!(wrong.parse::<WireSettings>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn hostility_needs_a_seed() {
        for wrong in ["", "x", "loss=3", "1,loss", "1,loss=x", "1,wind=3"] {
            assert!(wrong.parse::<HostileSettings>().is_err(), "{wrong}");
        }
        assert_eq!("1".parse::<HostileSettings>().unwrap(), HostileSettings::new(1));
    }
}
