//! The part of a live port that is particular to AF_XDP.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use super::device::{LINK_HEADER_LEN, LiveDevice, LiveDriver, LiveDriverConfig, LostRuleReader};
use super::error::LiveError;
use crate::device::af_xdp::{AfXdpConfig, AfXdpDevice, Mode, chunks_for};
use crate::device::broker::client::lost_rule;
use crate::device::either::Either;
use crate::device::steering::RuleId;
use crate::mem::Layout;
use crate::wire::Protocol;
use crate::worker::kernel::Resolver;

impl LiveDriverConfig for AfXdpConfig {
    fn interface(&self) -> &str {
        &self.interface
    }

    fn set_interface(&mut self, interface: &str) {
        interface.clone_into(&mut self.interface);
    }

    fn open(&self) -> Result<LiveDevice, LiveError> {
        Ok(Either::Left(AfXdpDevice::open(self)?))
    }

    fn ring_lens(&self) -> (u32, u32) {
        (self.rx_ring_len, self.tx_ring_len)
    }

    fn is_behind_the_driver(&self) -> bool {
        self.mode == Mode::Generic
    }

    /// The program on a queue sees only the frames that the NIC steers to that queue.
    fn steers_each_queue(&self) -> bool {
        true
    }

    fn layout(&self, mtu: usize) -> Layout {
        chunks_for(mtu + LINK_HEADER_LEN)
    }
}

impl LiveDriver for AfXdpDevice {
    fn describe(&self) -> String {
        self.describe()
    }

    fn why_ended(&self) -> Option<String> {
        self.why_ended()
    }

    fn is_virtual(&self) -> bool {
        self.is_virtual()
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

    fn set_listening(&self, id: RuleId, listening: bool) {
        self.set_listening(id, listening);
    }

    fn hands_over(&self) -> bool {
        self.hands_over()
    }

    fn why_unsteered(&self) -> Option<String> {
        self.why_unsteered()
    }

    fn interface_queues(&self) -> Option<u16> {
        Some(self.interface_queues())
    }

    fn spreads_by_connection(&self) -> bool {
        true
    }

    fn resolver(&self) -> Option<Resolver> {
        Some(Box::new(self.resolver()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::live::PortConfig;

    #[test]
    fn chunk_holds_a_frame_where_one_can() {
        let port = PortConfig::AfXdp(AfXdpConfig::new("eth1"));
        assert_eq!([port.layout(1500), port.layout(9000)].map(|layout| layout.stride()), [2_048, 4_096]);
    }
}
