//! The device under a live port: which kinds there are, and where they differ above the contract that they share.

use super::error::LiveError;
use crate::device::af_xdp::{AfXdpConfig, AfXdpDevice, Mode};
use crate::device::either::Either;
use crate::device::mlx5::{Mlx5Config, Mlx5Device};
use crate::mem::Layout;

/// Which kind of device carries the frames, and how it is set up.
#[derive(Clone, Debug)]
pub enum PortConfig {
    /// AF_XDP, on any interface.
    AfXdp(AfXdpConfig),
    /// The queues of a ConnectX itself. The device is named by its network interface.
    Mlx5(Mlx5Config),
}

/// A device of either kind.
pub type LiveDevice = Either<AfXdpDevice, Mlx5Device>;

/// Bytes of an Ethernet header with two tags.
const LINK_HEADER_LEN: usize = 14 + 2 * 4;

impl PortConfig {
    /// The network interface.
    pub fn interface(&self) -> &str {
        match self {
            Self::AfXdp(config) => &config.interface,
            Self::Mlx5(config) => &config.device,
        }
    }

    /// The same port on another interface.
    pub fn set_interface(&mut self, interface: &str) {
        match self {
            Self::AfXdp(config) => interface.clone_into(&mut config.interface),
            Self::Mlx5(config) => interface.clone_into(&mut config.device),
        }
    }

    pub(super) fn open(&self) -> Result<LiveDevice, LiveError> {
        Ok(match self {
            Self::AfXdp(config) => Either::Left(AfXdpDevice::open(config)?),
            Self::Mlx5(config) => Either::Right(Mlx5Device::open(config)?),
        })
    }

    /// Frames that may wait for the worker, and frames that may be on their way out.
    pub fn ring_lens(&self) -> (u32, u32) {
        match self {
            Self::AfXdp(config) => (config.rx_ring_len, config.tx_ring_len),
            Self::Mlx5(config) => (config.rx_ring_len, config.tx_ring_len),
        }
    }

    /// Whether frames pass the kernel's driver first, so that they come as those of the bond that the driver is part of.
    pub(super) fn is_behind_the_driver(&self) -> bool {
        matches!(self, Self::AfXdp(config) if config.mode == Mode::Generic)
    }

    /// Whether a rule that several queues want is given to each of them. The program on an AF_XDP queue only sees what the NIC put
    /// there; a ConnectX would send a group's frames to all.
    pub(super) fn steers_each_queue(&self) -> bool {
        matches!(self, Self::AfXdp(_))
    }

    /// How many queues get a rule.
    pub(super) fn queues_a_rule(&self) -> usize {
        if self.steers_each_queue() { usize::MAX } else { 1 }
    }

    /// Buffers that hold a frame of the interface in one piece, where any can: for AF_XDP the chunks of a umem, of which there are
    /// two sizes. A longer frame takes several, or is refused where kernel and driver cannot do that.
    pub(super) fn layout(&self, mtu: usize) -> Layout {
        let frame_len = mtu + LINK_HEADER_LEN;
        match self {
            Self::AfXdp(_) if frame_len <= Layout::umem(2_048).data_room() => Layout::umem(2_048),
            Self::AfXdp(_) => Layout::umem(4_096),
            Self::Mlx5(_) => Layout::for_frames(frame_len),
        }
    }
}

/// What was chosen and what it can do, in words, for the operator.
pub(super) fn describe(device: &LiveDevice) -> String {
    match device {
        Either::Left(device) => device.describe(),
        Either::Right(device) => device.describe(),
    }
}

/// Why no frame will come again though the interface is there.
pub(super) fn why_ended(device: &LiveDevice) -> Option<String> {
    match device {
        Either::Left(device) => device.why_ended(),
        Either::Right(_) => None,
    }
}

/// Whether frames may come from a stack of this very machine, which leaves checksums to be finished by a NIC that is not there.
pub(super) fn is_virtual(device: &LiveDevice) -> bool {
    match device {
        Either::Left(device) => device.is_virtual(),
        Either::Right(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunk_holds_a_frame_where_one_can() {
        let port = PortConfig::AfXdp(AfXdpConfig::new("eth1"));
        assert_eq!([port.layout(1500), port.layout(9000)].map(|layout| layout.stride()), [2_048, 4_096]);
    }

    #[test]
    fn buffer_of_a_connectx_holds_a_jumbo_frame() {
        let port = PortConfig::Mlx5(Mlx5Config::new("eth1"));
        assert!(port.layout(9000).data_room() >= 9000 + LINK_HEADER_LEN);
    }
}
