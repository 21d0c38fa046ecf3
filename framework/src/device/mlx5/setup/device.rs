//! The port that a program opens: one of its own, or a broker's whose queues it borrows.

use core::net::Ipv4Addr;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use super::own_device::OwnDevice;
use super::queue::{Mlx5Queue, Source};
use crate::device::mlx5::config::Mlx5Config;
use crate::device::mlx5::lend::LentPort;
use crate::device::steering::{Rule, RuleId, SteerError};
use crate::device::{Capabilities, Device, DeviceError, RxState};
use crate::time::UnixTime;
use crate::wire::Protocol;

/// A port of a ConnectX. The kernel shares it, and receives the frames that no rule matches. When
/// the device and its queues are dropped, or the process ends, nothing of ours remains in the NIC.
pub struct Mlx5Device(Port);

/// Asks the kernel for a neighbor.
type NeighborResolver = Box<dyn Fn(Ipv4Addr) -> io::Result<()> + Send>;

/// Whose objects the queues are.
enum Port {
    Own(OwnDevice),
    Lent(LentPort),
}

impl Mlx5Device {
    /// Opens the device that `config` names, and checks that it has the requested features. A port
    /// without a link is opened too: its queues report [`RxState::LinkDown`] until it comes up.
    ///
    /// # Errors
    /// One sentence with the next step: no rdma-core, no such device (with those that exist), not a
    /// ConnectX, an InfiniBand port, no permission, a limit on locked memory, a required feature
    /// that the firmware lacks. No object is left in the device.
    pub fn open(config: &Mlx5Config) -> Result<Self, DeviceError> {
        Ok(Self(match &config.broker {
            None => Port::Own(OwnDevice::open(config)?),
            Some(path) => Port::Lent(LentPort::open(path, config)?),
        }))
    }

    /// The network interface of the same port, if there is one.
    pub fn interface(&self) -> Option<&str> {
        match &self.0 {
            Port::Own(device) => device.interface(),
            Port::Lent(port) => Some(port.interface()),
        }
    }

    /// Returns a reader of the clock that stamps frames, in the same format as the stamps, for
    /// [`TimelineConfig`](../../worker/timeline/struct.TimelineConfig.html). A read goes over PCIe,
    /// takes about a microsecond and makes no system call. The reader returns nothing once the
    /// device is gone. It also returns nothing if stamps are wall clock time already; then use the
    /// interface's PTP hardware clock. A broker's port has none that can be read.
    pub fn nic_clock(&self) -> impl FnMut() -> Option<UnixTime> + Send + use<> {
        let mut clock = match &self.0 {
            Port::Own(device) => Some(device.nic_clock()),
            Port::Lent(_) => None,
        };
        move || clock.as_mut()?()
    }

    /// Whether the port has a link, queried now by firmware commands, so not for a worker. The port
    /// monitor checks ten times a second and informs the queues, also about frames that found no
    /// buffer; this query's result reaches them too.
    pub fn state(&self) -> RxState {
        match &self.0 {
            Port::Own(device) => device.state(),
            Port::Lent(port) => port.state(),
        }
    }

    /// The enabled features and the capabilities, in words for the operator, and the rules so far
    /// whose frames the interface's address filter may block.
    pub fn describe(&self) -> String {
        match &self.0 {
            Port::Own(device) => device.describe(),
            Port::Lent(port) => port.describe(),
        }
    }

    /// Why no frame will come any more although the interface exists: a broker's port has lost the
    /// broker.
    pub(crate) fn why_ended(&self) -> Option<String> {
        self.lent()?.why_ended()
    }

    /// The socket that brings the ICMP errors about our flows, where the port is a broker's; `None`
    /// from the second time on.
    pub(crate) fn take_icmp_errors(&self) -> Option<OwnedFd> {
        self.lent()?.take_icmp_errors()
    }

    /// Shows a broker whose port this is a kernel socket that we have at this port.
    pub(crate) fn claim(&self, socket: BorrowedFd<'_>, protocol: Protocol, port: u16) -> io::Result<()> {
        self.lent().map_or(Ok(()), |lent| lent.claim(socket, protocol, port))
    }

    /// Has the kernel resolve neighbors, where the port is a broker's.
    pub(crate) fn resolver(&self) -> Option<NeighborResolver> {
        self.lent().map(LentPort::resolver)
    }

    fn lent(&self) -> Option<&LentPort> {
        match &self.0 {
            Port::Own(_) => None,
            Port::Lent(port) => Some(port),
        }
    }
}

impl Device for Mlx5Device {
    type Queue = Mlx5Queue;

    fn name(&self) -> &str {
        match &self.0 {
            Port::Own(device) => device.name(),
            Port::Lent(port) => port.interface(),
        }
    }

    /// As read at [`Mlx5Device::open`]. TSO and checksums only if the firmware offers them to raw
    /// packets.
    fn capabilities(&self) -> Capabilities {
        match &self.0 {
            Port::Own(device) => device.capabilities(),
            Port::Lent(port) => port.capabilities(),
        }
    }

    /// A queue may be taken again after both its halves were dropped, which is necessary once its
    /// completions are lost. When it is open again, its rules are installed again; those of a
    /// broker's queue end with it, and are to be set again.
    fn take_queue(&mut self, idx: u16) -> Result<Mlx5Queue, DeviceError> {
        Ok(Mlx5Queue(match &mut self.0 {
            Port::Own(device) => Source::Own(device.take_queue(idx)?),
            Port::Lent(port) => Source::Lent(Box::new(port.take_queue(idx)?)),
        }))
    }

    /// Steers frames that match the rule to queue `idx`; with
    /// [`RxDistribution::Rss`](crate::device::mlx5::RxDistribution::Rss) to all queues, regardless
    /// of `idx`. A rule for a queue that is not open is pending, and meanwhile the kernel receives
    /// its frames. If several rules match a frame, a rule with ports precedes a rule without, and a
    /// rule with more fields precedes one with fewer. The same rule for a group, with the same tag,
    /// may be set for several queues, and each receives the frames.
    ///
    /// The NIC has four restrictions: a rule for a group matches only frames to the group's MAC
    /// address; a VLAN is one of 802.1Q; there is one flow tag less, because the NIC reports 0 for
    /// frames without a tag; and rules of groups have no order. So two rules that match the same
    /// frames and have different queues or tags are refused ([`SteerError::Overlaps`]) if they are
    /// the same rule for a station, two rules for a group, or one rule for a group and another that
    /// would take its frames first.
    ///
    /// The rule is installed at once, by a system call that may take milliseconds; the queues run
    /// meanwhile, and no frame of another rule is lost.
    fn steer(&mut self, rule: &Rule, idx: u16) -> Result<RuleId, SteerError> {
        match &mut self.0 {
            Port::Own(device) => device.steer(rule, idx),
            Port::Lent(port) => port.steer(rule, idx),
        }
    }

    fn unsteer(&mut self, id: RuleId) -> Result<(), SteerError> {
        match &mut self.0 {
            Port::Own(device) => device.unsteer(id),
            Port::Lent(port) => port.unsteer(id),
        }
    }
}
