//! The device under a live port: the kinds there are, and their differences above the device
//! contract that they share.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use super::error::LiveError;
#[cfg(not(all(feature = "af-xdp", feature = "mlx5")))]
use crate::device::Absent;
#[cfg(feature = "af-xdp")]
use crate::device::af_xdp::{AfXdpConfig, AfXdpDevice};
use crate::device::either::Either;
#[cfg(feature = "mlx5")]
use crate::device::mlx5::{Mlx5Config, Mlx5Device};
use crate::device::steering::RuleId;
use crate::mem::Layout;
use crate::wire::Protocol;
use crate::worker::kernel::Resolver;
use crate::worker::timeline::NicClock;

/// Which kind of device carries the frames, and how it is set up.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum PortConfig {
    /// AF_XDP, on any interface. With the feature `af-xdp`.
    #[cfg(feature = "af-xdp")]
    AfXdp(AfXdpConfig),
    /// The queues of a ConnectX itself. The device is named by its network interface. With the
    /// feature `mlx5`.
    #[cfg(feature = "mlx5")]
    Mlx5(Mlx5Config),
}

#[cfg(feature = "af-xdp")]
type AfXdp = AfXdpDevice;
#[cfg(not(feature = "af-xdp"))]
type AfXdp = Absent;

#[cfg(feature = "mlx5")]
type Mlx5 = Mlx5Device;
#[cfg(not(feature = "mlx5"))]
type Mlx5 = Absent;

/// A device of either kind; a kind that the library was built without has no values.
pub type LiveDevice = Either<AfXdp, Mlx5>;

/// Bytes of an Ethernet header with two tags.
pub(super) const LINK_HEADER_LEN: usize = 14 + 2 * 4;

/// The operations of a live port on a device's configuration: read it, name the interface, open the
/// device. Each device implements this trait in a separate file.
pub(super) trait LiveDriverConfig {
    fn interface(&self) -> &str;

    fn set_interface(&mut self, interface: &str);

    fn open(&self) -> Result<LiveDevice, LiveError>;

    /// Ring lengths of receive and transmit.
    fn ring_lens(&self) -> (u32, u32);

    /// Whether frames pass the kernel's driver first, so that they arrive as frames of the bond
    /// that the driver is part of.
    fn is_behind_the_driver(&self) -> bool {
        false
    }

    /// Whether a rule for several queues is installed on each of them.
    fn steers_each_queue(&self) -> bool;

    /// Buffers that hold a frame of the interface in one piece, if any can.
    fn layout(&self, mtu: usize) -> Layout;
}

/// Reads a message of [`take_icmp_errors`](LiveDriver::take_icmp_errors) that is no packet.
pub(super) type LostRuleReader = fn(&[u8]) -> Option<(RuleId, i32)>;

/// The queries that a live port makes of an open device.
pub(super) trait LiveDriver {
    /// The chosen modes and the capabilities, in words for the operator.
    fn describe(&self) -> String;

    /// Why no frame will arrive again although the interface exists.
    fn why_ended(&self) -> Option<String> {
        None
    }

    /// Whether frames may come from a stack of this same machine, which leaves checksums to a NIC
    /// that is not there.
    fn is_virtual(&self) -> bool {
        false
    }

    /// A socket that brings the ICMP errors about our flows that the kernel receives, if the device
    /// has one; otherwise the port opens one, which needs a capability.
    fn take_icmp_errors(&self) -> Option<OwnedFd> {
        None
    }

    /// Reads what that socket brings beside ICMP errors: the number of a rule that its owner, a
    /// broker, has taken back, and the error number of the reason.
    fn lost_rule_reader(&self) -> LostRuleReader {
        |_| None
    }

    /// Requests neighbors from the kernel for this process; `None` if it may do so itself.
    fn resolver(&self) -> Option<Resolver> {
        None
    }

    /// Shows a broker whose queue the device has a kernel socket that this process has at this
    /// port, where another user has made it. Without effect elsewhere.
    fn claim(&self, socket: BorrowedFd<'_>, protocol: Protocol, port: u16) -> io::Result<()> {
        let _ = (socket, protocol, port);
        Ok(())
    }

    /// Whether connections that begin may come to us by the rule with this number. Without effect,
    /// unless others share the rule.
    fn set_listening(&self, id: RuleId, listening: bool) {
        let _ = (id, listening);
    }

    /// Whether connections can go to another process that listens at their port. By default not.
    fn hands_over(&self) -> bool {
        false
    }

    /// Why frames of a rule may come to another queue than the one that has it; `None` if none do.
    fn why_unsteered(&self) -> Option<String> {
        None
    }

    /// Queues over which the interface spreads frames, where that may be more than ours.
    fn interface_queues(&self) -> Option<u16> {
        None
    }

    /// Whether all frames of a connection come to the queue to which its first one came, where
    /// several queues have a rule for its port.
    fn spreads_by_connection(&self) -> bool {
        false
    }

    /// A reader of the device's own clock, if the device has one that can be read.
    fn nic_clock(&self) -> Option<NicClock> {
        None
    }
}

impl PortConfig {
    /// The network interface.
    pub fn interface(&self) -> &str {
        self.driver().interface()
    }

    /// The same port on another interface.
    pub fn set_interface(&mut self, interface: &str) {
        match *self {
            #[cfg(feature = "af-xdp")]
            Self::AfXdp(ref mut config) => config.set_interface(interface),
            #[cfg(feature = "mlx5")]
            Self::Mlx5(ref mut config) => config.set_interface(interface),
        }
    }

    /// Ring lengths of receive and transmit.
    pub fn ring_lens(&self) -> (u32, u32) {
        self.driver().ring_lens()
    }

    pub(super) fn open(&self) -> Result<LiveDevice, LiveError> {
        self.driver().open()
    }

    pub(super) fn is_behind_the_driver(&self) -> bool {
        self.driver().is_behind_the_driver()
    }

    pub(super) fn steers_each_queue(&self) -> bool {
        self.driver().steers_each_queue()
    }

    /// The number of queues that a rule is installed on.
    pub(super) fn queues_a_rule(&self) -> usize {
        if self.steers_each_queue() { usize::MAX } else { 1 }
    }

    pub(super) fn layout(&self, mtu: usize) -> Layout {
        self.driver().layout(mtu)
    }

    /// The only place that dispatches on the device. `*self`, because with no device built the enum
    /// has no variants.
    fn driver(&self) -> &dyn LiveDriverConfig {
        match *self {
            #[cfg(feature = "af-xdp")]
            Self::AfXdp(ref config) => config,
            #[cfg(feature = "mlx5")]
            Self::Mlx5(ref config) => config,
        }
    }
}

/// The driver of either device.
pub(super) fn driver(device: &LiveDevice) -> &dyn LiveDriver {
    match device {
        Either::Left(device) => device,
        Either::Right(device) => device,
    }
}

#[cfg(not(all(feature = "af-xdp", feature = "mlx5")))]
impl LiveDriver for Absent {
    fn describe(&self) -> String {
        match *self {}
    }
}
