//! Queues of a ConnectX: queue pairs and rules for each client.

use std::io;

use super::{LendingPort, OpenPort};
use crate::device::DeviceError;
use crate::device::af_xdp::broker::lend::{QueueOrder, too_large};
use crate::device::af_xdp::broker::message::{Half, Welcome};
use crate::device::mlx5::Mlx5Config;
use crate::device::mlx5::lend::Lender;
use crate::device::steering::{Rule, RuleId, SteerError};
use crate::worker::broker::error::BrokerError;
use crate::worker::broker::orders::Lent;

/// Memory is lent by pages.
const PAGE_LEN: u64 = 4096;

/// A port with an interface.
struct NicPort {
    lender: Lender,
    interface: String,
    interface_idx: u32,
    rules_max: usize,
}

pub(super) fn open(config: &Mlx5Config, forward: bool) -> Result<OpenPort, BrokerError> {
    if forward {
        let name = &config.device;
        return Err(BrokerError(format!(
            "a ConnectX has a queue for each program, so frames of {name} are not passed on: leave out --forward"
        )));
    }
    let lender = Lender::open(config).map_err(|error| BrokerError(error.to_string()))?;
    let Some((interface, interface_idx)) = lender.interface().map(|(name, idx)| (name.to_owned(), idx)) else {
        let sentence =
            format!("the port {} has no network interface, by whose addresses flows are lent", config.device);
        return Err(BrokerError(sentence + ": see `ip link` in this namespace"));
    };
    let frame_len_max = lender.features().frame_len_max as usize;
    let port = NicPort { lender, interface, interface_idx, rules_max: config.rules_max };
    Ok(OpenPort { port: Box::new(port), queues: Vec::new(), frame_len_max })
}

impl LendingPort for NicPort {
    fn interface(&self) -> &str {
        &self.interface
    }

    fn interface_idx(&self) -> u32 {
        self.interface_idx
    }

    fn describe(&self) -> String {
        self.lender.describe()
    }

    fn queues(&self) -> u16 {
        self.lender.queues()
    }

    fn rules_max(&self) -> usize {
        self.rules_max
    }

    fn welcome(&self, forwards: bool) -> Welcome {
        let nic = Some(self.lender.features());
        Welcome { interface_idx: self.interface_idx, native: false, has_rx_hints: false, forwards, nic }
    }

    /// Ring lengths are checked with the rest of a port's configuration.
    fn check(&self, order: &QueueOrder, memory_max: u64) -> Result<(), String> {
        let &QueueOrder { umem_len, chunk_len, address, .. } = order;
        let is_whole = umem_len > 0 && umem_len.is_multiple_of(PAGE_LEN) && address.is_multiple_of(PAGE_LEN);
        if !is_whole || chunk_len == 0 || address == 0 || address.checked_add(umem_len).is_none() {
            return Err(format!("{umem_len} bytes for buffers of {chunk_len} at {address:#x} are no packet buffers"));
        }
        if umem_len > memory_max {
            return Err(too_large(umem_len, memory_max));
        }
        Ok(())
    }

    fn lend(&mut self, idx: u16, order: &QueueOrder) -> Result<Option<Lent>, DeviceError> {
        self.lender.lend(idx, order).map(|lent| Some(Lent::Nic(lent)))
    }

    fn connect(&self, idx: u16, _lent: &Lent) -> io::Result<()> {
        self.lender.connect(idx)
    }

    fn disconnect(&self, idx: u16) {
        self.lender.disconnect(idx);
    }

    fn end(&mut self, idx: u16) {
        self.lender.end(idx);
    }

    fn steer(&mut self, rule: &Rule, idx: u16) -> Result<RuleId, SteerError> {
        self.lender.steer(rule, idx)
    }

    fn unsteer(&mut self, id: RuleId) -> Result<(), SteerError> {
        self.lender.unsteer(id)
    }

    fn descriptors(&self) -> Vec<i32> {
        self.lender.descriptors().collect()
    }

    fn look_after(&mut self) {
        self.lender.look_after();
    }

    fn why_ended(&self) -> Option<String> {
        self.lender.why_ended()
    }

    fn arm(&self, idx: u16, word: u32) -> io::Result<()> {
        self.lender.arm(idx, word)
    }

    fn reset(&mut self, idx: u16, half: Half) -> io::Result<()> {
        self.lender.reset(idx, half)
    }

    fn ready(&mut self, idx: u16, half: Half) -> io::Result<()> {
        self.lender.ready(idx, half)
    }
}
