//! The sections `[port]` and `[host]`: the interface of a live run, its owner, and our addresses on
//! it.

use std::net::Ipv4Addr;
use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;
use wirepath::device::af_xdp::{AfXdpConfig, CopyMode, Mode};
use wirepath::device::mlx5::{Feature, Mlx5Config};
use wirepath::proto::{HostError, Ipv4Prefix};
use wirepath::wire::igmp::IgmpVersion;
use wirepath::wire::{EtherType, MacAddr, VlanTag, VlanTags};
use wirepath::worker::live::{
    CaptureMode, DedicatedHost, DedicatedHostFault, DedicatedHostPart, IgmpMode, LiveConfig, Owner, PortConfig,
    StaticRoute,
};

use super::problem::ConfigProblem;
use super::words::{parse_sender, within};

/// The interface.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PortSection {
    interface: Spanned<String>,
    #[serde(default)]
    device: DeviceWord,
    #[serde(default)]
    queues: Option<Spanned<Vec<QueueIdx>>>,
    mode: Option<Spanned<ModeWord>>,
    copying: Option<Spanned<CopyModeWord>>,
    rx_ring: Option<Spanned<RingLen>>,
    tx_ring: Option<Spanned<RingLen>>,
    /// Whether the NIC stamps each frame on arrival.
    timestamps: Option<Spanned<StampsWord>>,
    compression: Option<Spanned<FeatureWord>>,
    striding: Option<Spanned<FeatureWord>>,
    #[serde(default)]
    owner: OwnerWord,
    igmp: Option<Spanned<IgmpWord>>,
    /// 3 where all hosts on the link support it.
    igmp_version_min: Option<Spanned<IgmpVersionWord>>,
    /// The VLAN of an interface of our own: `20`, or `"100.5"` for VLAN 5 in a provider's VLAN 100.
    vlan: Option<Spanned<Tags>>,
}

/// Our address and routes on an interface of our own.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HostSection {
    addresses: Spanned<Vec<Spanned<Prefix>>>,
    gateway: Option<Spanned<Address>>,
    #[serde(default)]
    routes: Vec<RouteSection>,
    #[serde(default)]
    neighbors: Vec<NeighborSection>,
    takes: Option<Spanned<TakesWord>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RouteSection {
    network: Prefix,
    via: Spanned<Address>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NeighborSection {
    address: Spanned<Address>,
    mac: Spanned<Mac>,
}

/// The device that drives the interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
enum DeviceWord {
    #[default]
    #[serde(rename = "af_xdp")]
    AfXdp,
    #[serde(rename = "mlx5")]
    Mlx5,
}

/// `true`: where possible; `"required"`: a start without it fails.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged, expecting = "use true, false, or \"required\"")]
enum StampsWord {
    Wanted(bool),
    Word(RequiredWord),
}

#[derive(Clone, Copy, Debug, Deserialize)]
enum RequiredWord {
    #[serde(rename = "required")]
    Required,
}

/// The use of a firmware feature.
#[derive(Clone, Copy, Debug, Deserialize)]
enum FeatureWord {
    #[serde(rename = "never")]
    Never,
    #[serde(rename = "if supported")]
    IfSupported,
    #[serde(rename = "required")]
    Required,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ModeWord {
    #[default]
    Auto,
    Native,
    Generic,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum CopyModeWord {
    #[default]
    Auto,
    ZeroCopy,
    Copy,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum OwnerWord {
    #[default]
    Shared,
    Dedicated,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum IgmpWord {
    Worker,
    Kernel,
    Off,
}

/// 1, 2 or 3.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "u8")]
struct IgmpVersionWord(IgmpVersion);

impl TryFrom<u8> for IgmpVersionWord {
    type Error = &'static str;

    fn try_from(number: u8) -> Result<Self, Self::Error> {
        match number {
            1 => Ok(Self(IgmpVersion::V1)),
            2 => Ok(Self(IgmpVersion::V2)),
            3 => Ok(Self(IgmpVersion::V3)),
            _ => Err("there are versions 1, 2 and 3 of IGMP"),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum TakesWord {
    #[default]
    Needed,
    Everything,
}

checked! {
    QueueIdx(u16) from "i64" as i64: |value| within(value, 0, 1_023, "a queue").map(|queue| queue as u16);
    RingLen(u32) from "i64" as i64: parse_ring_len;
    Tags(VlanTags) from "TagsWord" as TagsWord: |word| word.tags();
    Prefix(Ipv4Prefix) from "String" as String: |text| text.parse().map_err(|error| format!("{text:?}: {error}"));
    Address(Ipv4Addr) from "String" as String: |text| parse_sender(&text);
    Mac(MacAddr) from "String" as String: |text| text.parse().map_err(|error| format!("{text:?}: {error}"));
}

/// The number of a VLAN, or two of them.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "use the number of a VLAN, or \"100.5\" for VLAN 5 in a provider's VLAN 100")]
enum TagsWord {
    Number(i64),
    Text(String),
}

impl TagsWord {
    fn tags(self) -> Result<VlanTags, String> {
        let vid = |number| within(number, 1, 4_094, "a VLAN").map(|vid| vid as u16);
        let text = match self {
            Self::Number(number) => return Ok(VlanTags::single(VlanTag::new(vid(number)?))),
            Self::Text(text) => text,
        };
        let numbers: Result<Vec<i64>, _> = text.split('.').map(str::parse).collect();
        match numbers.as_deref() {
            Ok([number]) => Ok(VlanTags::single(VlanTag::new(vid(*number)?))),
            Ok([outer, inner]) => {
                let outer = VlanTag::from_tci(EtherType::QINQ, vid(*outer)?);
                Ok(VlanTags::double([outer, VlanTag::new(vid(*inner)?)]))
            }
            _ => Err(format!("{text:?} is no VLAN: use a number, or two as in \"100.5\", the provider's first")),
        }
    }
}

fn parse_ring_len(value: i64) -> Result<u32, String> {
    match u32::try_from(value) {
        Ok(len) if len.is_power_of_two() && (8..=65_536).contains(&len) => Ok(len),
        _ => Err(format!(
            "{value} is no length of a ring: use a power of two from 64 to 65536, with mlx5 from 8 to 8192"
        )),
    }
}

impl PortSection {
    /// Finds errors that no single key shows.
    pub(super) fn check(&self, host: Option<&Spanned<HostSection>>) -> Result<(), ConfigProblem> {
        if !is_interface_name(self.interface.get_ref()) {
            let what =
                format!("{:?} is no name of an interface; `ip link` lists those there are", self.interface.get_ref());
            return Err(ConfigProblem::new(self.interface.span(), what));
        }
        self.check_device()?;
        let igmp = self.igmp.as_ref().map(Spanned::get_ref);
        match (self.owner, host) {
            (OwnerWord::Dedicated, None) => {
                let what = "owner = \"dedicated\" needs [host] with addresses that the kernel does not have";
                return Err(ConfigProblem::new(self.interface.span(), what));
            }
            (OwnerWord::Shared, Some(host)) => {
                let what = "[host] is for owner = \"dedicated\": on a shared interface the kernel says who we are";
                return Err(ConfigProblem::new(host.span(), what));
            }
            (OwnerWord::Dedicated, Some(host)) => host.get_ref().check(igmp)?,
            (OwnerWord::Shared, None) => {
                if let Some(vlan) = &self.vlan {
                    let what =
                        "a VLAN of the port is for owner = \"dedicated\": on a shared interface name it at the lines";
                    return Err(ConfigProblem::new(vlan.span(), what));
                }
            }
        }
        if let Some(version) = self.igmp_version_min.as_ref().filter(|_| self.igmp_by() != IgmpMode::Worker) {
            let what = "of igmp = \"worker\": the kernel has sysctl net.ipv4.conf.INTERFACE.force_igmp_version";
            return Err(ConfigProblem::new(version.span(), what));
        }
        let Some(queues) = &self.queues else { return Ok(()) };
        let named: Vec<u16> = queues.get_ref().iter().map(|queue| queue.0).collect();
        if named.is_empty() || (1..named.len()).any(|idx| named[..idx].contains(&named[idx])) {
            return Err(ConfigProblem::new(queues.span(), "name each queue once, and one at least"));
        }
        if named.len() > 1 && self.igmp_by() == IgmpMode::Worker {
            let what = "queries come on one queue only: with several queues use igmp = \"kernel\"";
            return Err(ConfigProblem::new(queues.span(), what));
        }
        Ok(())
    }

    /// Checks the keys that only one kind of device has.
    fn check_device(&self) -> Result<(), ConfigProblem> {
        let mode = self.mode.as_ref().map(Spanned::span).or(self.copying.as_ref().map(Spanned::span));
        if let (DeviceWord::Mlx5, Some(span)) = (self.device, mode) {
            return Err(ConfigProblem::new(
                span,
                "mode and copying are of device = \"af_xdp\": the rings of a ConnectX need neither",
            ));
        }
        if self.device == DeviceWord::AfXdp {
            if let Some(feature) = self.compression.as_ref().or(self.striding.as_ref()) {
                return Err(ConfigProblem::new(
                    feature.span(),
                    "compression and striding are of device = \"mlx5\": leave them out",
                ));
            }
            if let (Some(stamps), Feature::Required) = (&self.timestamps, self.stamps()) {
                let what =
                    "only device = \"mlx5\" can demand time stamps: use timestamps = true, and see what the start says";
                return Err(ConfigProblem::new(stamps.span(), what));
            }
        }
        if let (Some(compression), true) = (&self.compression, self.stamps() == Feature::Required)
            && feature(self.compression.as_ref()) == Feature::Required
        {
            let what = "compressed completions share their time stamps: demand one of compression and timestamps";
            return Err(ConfigProblem::new(compression.span(), what));
        }
        let lens = match self.device {
            DeviceWord::AfXdp => 64..=65_536,
            DeviceWord::Mlx5 => 8..=8_192,
        };
        for ring in self.rx_ring.iter().chain(&self.tx_ring) {
            if !lens.contains(&ring.get_ref().0) {
                let what = format!("this device's rings have {} to {} frames", lens.start(), lens.end());
                return Err(ConfigProblem::new(ring.span(), what));
            }
        }
        Ok(())
    }

    /// The VLAN of our host: of two the inner one.
    pub(super) fn vlan(&self) -> Option<u16> {
        self.vlan.as_ref()?.get_ref().0.inner().map(|tag| tag.vid())
    }

    fn stamps(&self) -> Feature {
        match self.timestamps.as_ref().map(Spanned::get_ref) {
            Some(StampsWord::Word(RequiredWord::Required)) => Feature::Required,
            Some(StampsWord::Wanted(true)) => Feature::IfSupported,
            Some(StampsWord::Wanted(false)) | None => Feature::Off,
        }
    }

    /// The queues to take.
    pub(super) fn queues(&self) -> Vec<u16> {
        self.queues.as_ref().map_or(vec![0], |queues| queues.get_ref().iter().map(|queue| queue.0).collect())
    }

    fn igmp_by(&self) -> IgmpMode {
        match (self.igmp.as_ref().map(Spanned::get_ref), self.owner) {
            (Some(IgmpWord::Worker), _) | (None, OwnerWord::Dedicated) => IgmpMode::Worker,
            (Some(IgmpWord::Kernel), _) | (None, OwnerWord::Shared) => IgmpMode::Kernel,
            (Some(IgmpWord::Off), _) => IgmpMode::Off,
        }
    }

    /// The port, without its subscriptions. Call it after [`check`](Self::check) has passed.
    pub(super) fn live(&self, host: Option<&HostSection>) -> LiveConfig {
        let live = LiveConfig::new(self.interface.get_ref()).named("feed-handler");
        LiveConfig {
            port: match self.device {
                DeviceWord::AfXdp => PortConfig::AfXdp(self.af_xdp()),
                DeviceWord::Mlx5 => PortConfig::Mlx5(self.mlx5()),
            },
            queues: self.queues(),
            owner: host.map_or(Owner::Shared, |host| Owner::Dedicated(host.own())),
            igmp: self.igmp_by(),
            igmp_version_min: self.igmp_version_min.as_ref().map_or(IgmpVersion::V1, |version| version.get_ref().0),
            vlan: self.vlan.as_ref().map_or(VlanTags::NONE, |vlan| vlan.get_ref().0),
            ..live
        }
    }

    fn af_xdp(&self) -> AfXdpConfig {
        let usual = AfXdpConfig::new(self.interface.get_ref());
        AfXdpConfig {
            mode: match self.mode.as_ref().map_or(ModeWord::default(), |mode| *mode.get_ref()) {
                ModeWord::Auto => Mode::Auto,
                ModeWord::Native => Mode::Native,
                ModeWord::Generic => Mode::Generic,
            },
            copying: match self.copying.as_ref().map_or(CopyModeWord::default(), |copying| *copying.get_ref()) {
                CopyModeWord::Auto => CopyMode::Auto,
                CopyModeWord::ZeroCopy => CopyMode::ZeroCopy,
                CopyModeWord::Copy => CopyMode::Copy,
            },
            rx_ring_len: self.rx_ring.as_ref().map_or(usual.rx_ring_len, |len| len.get_ref().0),
            tx_ring_len: self.tx_ring.as_ref().map_or(usual.tx_ring_len, |len| len.get_ref().0),
            rx_timestamps: self.stamps() != Feature::Off,
            ..usual
        }
    }

    fn mlx5(&self) -> Mlx5Config {
        let usual = Mlx5Config::new(self.interface.get_ref());
        Mlx5Config {
            queues: self.queues().into_iter().max().map_or(1, |last| last + 1),
            rx_ring_len: self.rx_ring.as_ref().map_or(usual.rx_ring_len, |len| len.get_ref().0),
            tx_ring_len: self.tx_ring.as_ref().map_or(usual.tx_ring_len, |len| len.get_ref().0),
            timestamps: self.stamps(),
            compression: feature(self.compression.as_ref()),
            striding: feature(self.striding.as_ref()),
            ..usual
        }
    }
}

fn feature(word: Option<&Spanned<FeatureWord>>) -> Feature {
    match word.map(Spanned::get_ref) {
        None | Some(FeatureWord::Never) => Feature::Off,
        Some(FeatureWord::IfSupported) => Feature::IfSupported,
        Some(FeatureWord::Required) => Feature::Required,
    }
}

/// linux/if.h: at most 15 bytes, and neither a slash nor a blank.
fn is_interface_name(text: &str) -> bool {
    !text.is_empty() && text.len() < 16 && !text.contains(|c: char| c == '/' || c.is_whitespace())
}

impl HostSection {
    fn check(&self, igmp: Option<&IgmpWord>) -> Result<(), ConfigProblem> {
        let addresses = self.addresses.get_ref();
        if addresses.is_empty() {
            return Err(ConfigProblem::new(self.addresses.span(), "give it an address, such as \"10.0.0.2/24\""));
        }
        let vias = self.gateway.iter().chain(self.routes.iter().map(|route| &route.via));
        for via in vias {
            let router = via.get_ref().0;
            if !addresses.iter().any(|own| own.get_ref().0.contains(router)) {
                let what = format!("{router} is on none of our networks, so nothing can be sent to it");
                return Err(ConfigProblem::new(via.span(), what));
            }
            if addresses.iter().any(|own| own.get_ref().0.address() == router) {
                let what =
                    format!("{router} is our own address: name the router, which has another one on our network");
                return Err(ConfigProblem::new(via.span(), what));
            }
        }
        self.check_parts()?;
        if let Some(takes) = &self.takes
            && (*takes.get_ref(), igmp) == (TakesWord::Everything, Some(&IgmpWord::Kernel))
        {
            let what =
                "the kernel gets no queries where we take everything: use igmp = \"worker\", or takes = \"needed\"";
            return Err(ConfigProblem::new(takes.span(), what));
        }
        Ok(())
    }

    /// Applies the values to a host, which knows the valid addresses, routes and neighbors, and its
    /// capacities.
    fn check_parts(&self) -> Result<(), ConfigProblem> {
        let addresses = self.addresses.get_ref();
        for (idx, address) in addresses.iter().enumerate() {
            let address_alone = address.get_ref().0.address();
            if addresses[..idx].iter().any(|other| other.get_ref().0.address() == address_alone) {
                return Err(ConfigProblem::new(
                    address.span(),
                    format!("{address_alone} is named twice: name it once"),
                ));
            }
        }
        for neighbor in &self.neighbors {
            let address = neighbor.address.get_ref().0;
            if addresses.iter().any(|own| own.get_ref().0.address() == address) {
                let what = format!("{address} is our own address: a neighbor is another station");
                return Err(ConfigProblem::new(neighbor.address.span(), what));
            }
        }
        let Err(DedicatedHostFault { part, error }) = self.own().check() else { return Ok(()) };
        let (at, limit) = match (part, error) {
            (DedicatedHostPart::Address(idx), _) => (addresses[idx].span(), "addresses"),
            // The default route is the last one.
            (DedicatedHostPart::Route(idx), _) => (self.via(idx), "routes"),
            (DedicatedHostPart::Neighbor(idx), HostError::NotAStation(_)) => (self.neighbors[idx].mac.span(), ""),
            (DedicatedHostPart::Neighbor(idx), _) => (self.neighbors[idx].address.span(), "neighbors"),
        };
        let what = match error {
            HostError::AddressesFull | HostError::RoutesFull | HostError::NeighborsFull => {
                format!("there is no room for this one: give the host fewer {limit}")
            }
            HostError::NotAHostAddress(_) => format!("{error}: use one of a host, such as 10.0.0.2"),
            HostError::NotAStation(_) => format!("{error}: use one such as 02:00:00:00:00:01"),
            HostError::GatewayUnreachable(_) | HostError::MtuTooSmall(_) => error.to_string(),
        };
        Err(ConfigProblem::new(at, what))
    }

    /// The position of a route's gateway.
    fn via(&self, idx: usize) -> Range<usize> {
        let route = self.routes.get(idx).map(|route| route.via.span());
        route.or(self.gateway.as_ref().map(Spanned::span)).unwrap_or_else(|| self.addresses.span())
    }

    fn own(&self) -> DedicatedHost {
        let default = self.gateway.as_ref().map(|via| StaticRoute { network: Ipv4Prefix::ALL, via: via.get_ref().0 });
        let routes =
            self.routes.iter().map(|route| StaticRoute { network: route.network.0, via: route.via.get_ref().0 });
        DedicatedHost {
            addresses: self.addresses.get_ref().iter().map(|prefix| prefix.get_ref().0).collect(),
            routes: routes.chain(default).collect(),
            neighbors: self
                .neighbors
                .iter()
                .map(|neighbor| (neighbor.address.get_ref().0, neighbor.mac.get_ref().0))
                .collect(),
            takes: match self.takes.as_ref().map_or(TakesWord::default(), |takes| *takes.get_ref()) {
                TakesWord::Needed => CaptureMode::Needed,
                TakesWord::Everything => CaptureMode::Everything,
            },
        }
    }
}
