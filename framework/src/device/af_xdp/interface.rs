//! The kernel's facts about an interface, and its driver's XDP features. Queried at set-up; the
//! state of the link also at intervals while the queue runs.

use std::io;
use std::os::fd::OwnedFd;

use super::error::AfXdpSetupError;
use crate::sys::interface::{Ethtool, interface_flags, interface_name};
use crate::sys::netlink::{Answer, Netlink, Request, u32_at};
use crate::sys::socket::socket;
use crate::wire::MacAddr;

/// linux/rtnetlink.h, linux/if_link.h
const RTM_GETLINK: u16 = 18;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_NUM_RX_QUEUES: u16 = 32;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_PROGRAM: u16 = 4;
const LINK_INFO_LEN: usize = 16;

/// linux/ethtool.h: ETH_FLAG_RXVLAN
const FLAG_RX_VLAN: u32 = 1 << 8;

/// linux/genetlink.h, linux/netdev.h
const GENERIC_CONTROL: u16 = 16;
const CONTROL_GET_FAMILY: u8 = 3;
const CONTROL_FAMILY_ID: u16 = 1;
const CONTROL_FAMILY_NAME: u16 = 2;
const NETDEV_DEV_GET: u8 = 1;
const NETDEV_IFINDEX: u16 = 1;
const NETDEV_XDP_FEATURES: u16 = 3;
const NETDEV_XDP_ZC_SEGMENTS_MAX: u16 = 4;
const NETDEV_XDP_RX_METADATA: u16 = 5;
const GENERIC_LEN: usize = 4;

const FEATURE_BASIC: u32 = 1;
const FEATURE_REDIRECT: u32 = 2;
const FEATURE_ZERO_COPY: u32 = 8;
const FEATURE_RX_SG: u32 = 32;
/// Bits of the driver's RX metadata, in the order of
/// [`RxHint`](super::program::kfuncs::RxHint).
const RX_METADATA: [u32; 3] = [1, 2, 4];

/// An interface of the calling thread's network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) index: u32,
    pub(crate) name: String,
    /// The interface's MAC address; zero if it has none.
    pub(super) mac: MacAddr,
    /// The MTU.
    pub(super) mtu: usize,
    pub(super) link: LinkState,
    /// Number of receive queues.
    pub(super) queues: u16,
    /// The XDP program already attached.
    pub(super) program: Option<u32>,
    /// Whether the NIC strips VLAN tags (`ethtool -k`: rx-vlan-offload).
    pub(super) strips_vlan: bool,
    pub(super) driver: DriverFeatures,
    /// A virtual link, such as veth or tun; a NIC's driver reports no kind.
    pub(super) is_virtual: bool,
}

/// Whether the link carries frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkState {
    Up,
    Down,
    /// The interface is gone, or in another network namespace.
    Gone,
}

/// The driver's reported features, from the kernel's netdev family (Linux 6.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DriverFeatures {
    /// Whether the query succeeded. If not, the other fields are unknown.
    pub(super) known: bool,
    /// Runs XDP programs and redirects their frames.
    pub(super) native: bool,
    /// Receives into a umem without a copy.
    pub(super) zero_copy: bool,
    /// Passes frames in several buffers to programs.
    pub(super) multi_buffer: bool,
    /// Buffers of a frame in zero-copy mode.
    pub(super) zero_copy_segments_max: u32,
    /// The RX metadata it provides, by [`RxHint`](super::program::kfuncs::RxHint).
    pub(super) rx_hints: [bool; 3],
}

impl Interface {
    /// Finds the interface `name`.
    pub(crate) fn find(name: &str) -> Result<Self, AfXdpSetupError> {
        let asked = |error| AfXdpSetupError::Asking { interface: name.into(), error };
        if name.is_empty() || name.len() >= libc::IFNAMSIZ {
            return Err(AfXdpSetupError::NoInterface { interface: name.into() });
        }
        let mut route = Netlink::open(libc::NETLINK_ROUTE).map_err(asked)?;
        let request =
            Request::new(RTM_GETLINK, &[0; LINK_INFO_LEN]).with(IFLA_IFNAME, &[name.as_bytes(), &[0]].concat());
        let answer = match route.ask(request, LINK_INFO_LEN) {
            Ok(answer) => answer,
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {
                return Err(AfXdpSetupError::NoInterface { interface: name.into() });
            }
            Err(error) => return Err(asked(error)),
        };
        let index = u32_at(answer.fixed, 4).unwrap_or(0);
        Ok(Self {
            index,
            name: answer.get_name(IFLA_IFNAME).unwrap_or_else(|| name.into()),
            mac: answer.get(IFLA_ADDRESS).and_then(|mac| mac.try_into().ok()).map_or(MacAddr::ZERO, MacAddr),
            mtu: answer.get_u32(IFLA_MTU).unwrap_or(0) as usize,
            link: state(u32_at(answer.fixed, 8).unwrap_or(0).cast_signed()),
            queues: queues(name, &answer),
            program: answer.nested(IFLA_XDP).and_then(|xdp| xdp.get_u32(IFLA_XDP_PROGRAM)),
            strips_vlan: strips_vlan(name),
            driver: driver_features(index).unwrap_or_default(),
            is_virtual: answer.nested(IFLA_LINKINFO).and_then(|info| info.get_name(IFLA_INFO_KIND)).is_some(),
        })
    }
}

/// Queues in use, by ethtool; if the driver does not report them, the configured ones.
fn queues(name: &str, answer: &Answer<'_>) -> u16 {
    let count = match Ethtool::open(name).and_then(|ethtool| ethtool.channels()) {
        // struct ethtool_channels: command, four maxima, then rx, tx, other, combined.
        Ok(words) if words[8].saturating_add(words[5]) > 0 => words[8].saturating_add(words[5]),
        _ => answer.get_u32(IFLA_NUM_RX_QUEUES).unwrap_or(1),
    };
    u16::try_from(count).unwrap_or(u16::MAX).max(1)
}

/// If the kernel does not report it, the driver leaves tags in the frames.
fn strips_vlan(name: &str) -> bool {
    let flags = Ethtool::open(name).and_then(|ethtool| ethtool.flags());
    flags.is_ok_and(|flags| flags & FLAG_RX_VLAN != 0)
}

fn state(flags: i32) -> LinkState {
    let wanted = libc::IFF_UP | libc::IFF_RUNNING;
    if flags & wanted == wanted { LinkState::Up } else { LinkState::Down }
}

/// Queries the state of one link repeatedly. Bound to the network namespace in which it was made.
///
/// Uses ioctl(2) and not netlink, whose RTM_GETLINK waits for the lock that every change of any
/// interface takes: the start of a container elsewhere on the machine blocked a worker for 280 ms.
pub(super) struct LinkWatch {
    socket: OwnedFd,
    index: u32,
}

impl LinkWatch {
    pub(super) fn new(index: u32) -> io::Result<Self> {
        Ok(Self { socket: socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?, index })
    }

    /// The current state: two system calls that take no such lock. `None` if the kernel does not
    /// report it.
    pub(super) fn look(&self) -> Option<LinkState> {
        let name = match interface_name(&self.socket, self.index) {
            Ok(name) => name,
            Err(error) => return (error.raw_os_error() == Some(libc::ENODEV)).then_some(LinkState::Gone),
        };
        // If it is being renamed right now, the next call finds it.
        interface_flags(&self.socket, &name).ok().map(state)
    }
}

fn driver_features(index: u32) -> io::Result<DriverFeatures> {
    let mut generic = Netlink::open(libc::NETLINK_GENERIC)?;
    let request = Request::new(GENERIC_CONTROL, &[CONTROL_GET_FAMILY, 1, 0, 0]).with(CONTROL_FAMILY_NAME, b"netdev\0");
    let family = generic.ask(request, GENERIC_LEN)?.get_u16(CONTROL_FAMILY_ID);
    let family = family.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    let request = Request::new(family, &[NETDEV_DEV_GET, 1, 0, 0]).with(NETDEV_IFINDEX, &index.to_ne_bytes());
    let answer = generic.ask(request, GENERIC_LEN)?;
    let features = answer.get_u32(NETDEV_XDP_FEATURES).unwrap_or(0);
    let has = |feature| features & feature == feature;
    Ok(DriverFeatures {
        known: true,
        native: has(FEATURE_BASIC | FEATURE_REDIRECT),
        zero_copy: has(FEATURE_ZERO_COPY),
        multi_buffer: has(FEATURE_RX_SG),
        zero_copy_segments_max: answer.get_u32(NETDEV_XDP_ZC_SEGMENTS_MAX).unwrap_or(1).max(1),
        rx_hints: RX_METADATA.map(|bit| answer.get_u32(NETDEV_XDP_RX_METADATA).unwrap_or(0) & bit != 0),
    })
}
