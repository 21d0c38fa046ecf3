//! The part of a live port that is particular to a ConnectX.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use super::device::{LINK_HEADER_LEN, LiveDevice, LiveDriver, LiveDriverConfig, LostRuleReader};
use super::error::LiveError;
use crate::device::either::Either;
use crate::device::mlx5::{Mlx5Config, Mlx5Device, lost_rule};
use crate::mem::Layout;
use crate::wire::Protocol;
use crate::worker::kernel::Resolver;
use crate::worker::timeline::NicClock;

impl LiveDriverConfig for Mlx5Config {
    fn interface(&self) -> &str {
        &self.device
    }

    fn set_interface(&mut self, interface: &str) {
        interface.clone_into(&mut self.device);
    }

    fn open(&self) -> Result<LiveDevice, LiveError> {
        Ok(Either::Right(Mlx5Device::open(self)?))
    }

    fn ring_lens(&self) -> (u32, u32) {
        (self.rx_ring_len, self.tx_ring_len)
    }

    /// With a rule on each queue the NIC would copy a group's frames to all of them.
    fn steers_each_queue(&self) -> bool {
        false
    }

    fn layout(&self, mtu: usize) -> Layout {
        Layout::for_frames(mtu + LINK_HEADER_LEN)
    }
}

impl LiveDriver for Mlx5Device {
    fn describe(&self) -> String {
        self.describe()
    }

    fn why_ended(&self) -> Option<String> {
        self.why_ended()
    }

    fn take_icmp_errors(&self) -> Option<OwnedFd> {
        self.take_icmp_errors()
    }

    fn claim(&self, socket: BorrowedFd<'_>, protocol: Protocol, port: u16) -> io::Result<()> {
        self.claim(socket, protocol, port)
    }

    fn lost_rule_reader(&self) -> LostRuleReader {
        lost_rule
    }

    fn resolver(&self) -> Option<Resolver> {
        self.resolver()
    }

    fn nic_clock(&self) -> Option<NicClock> {
        let mut clock = self.nic_clock();
        clock().is_some().then(|| Box::new(clock) as NicClock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::live::PortConfig;

    #[test]
    fn buffer_of_a_connectx_holds_a_jumbo_frame() {
        let port = PortConfig::Mlx5(Mlx5Config::new("eth1"));
        assert!(port.layout(9000).data_room() >= 9000 + LINK_HEADER_LEN);
    }
}
