//! Queues of AF_XDP: a bound socket for each client.

use std::io;

use super::{LendingPort, OpenPort};
use crate::device::af_xdp::{AfXdpConfig, AfXdpDevice, Mode};
use crate::device::broker::message::Welcome;
use crate::device::broker::request::QueueRequest;
use crate::device::steering::{Rule, RuleId, SteerError};
use crate::device::{Device, DeviceError};
use crate::worker::broker::error::BrokerError;
use crate::worker::broker::waiting::Lent;

pub(super) fn open(config: &AfXdpConfig, forward: bool) -> Result<OpenPort, BrokerError> {
    let failed = |error: DeviceError| BrokerError(error.to_string());
    let mut device = AfXdpDevice::open(config).map_err(failed)?;
    let capabilities = device.capabilities();
    let kept = if forward { capabilities.queues } else { 0 };
    let queues = (0..kept).map(|idx| device.take_queue(idx)).collect::<Result<_, _>>().map_err(failed)?;
    Ok(OpenPort { port: Box::new(device), queues, frame_len_max: capabilities.frame_len_max })
}

impl LendingPort for AfXdpDevice {
    fn interface(&self) -> &str {
        self.name()
    }

    fn interface_idx(&self) -> u32 {
        self.interface_idx()
    }

    fn describe(&self) -> String {
        self.describe()
    }

    fn queues(&self) -> u16 {
        self.capabilities().queues
    }

    fn more_queues(&self) -> String {
        let more = self.capabilities().queues.saturating_add(1);
        let interface = self.name();
        format!(
            ", start the broker with --forward, or have the NIC use more queues (`ethtool -L {interface} combined {more}`)"
        )
    }

    fn rules_max(&self) -> usize {
        self.capabilities().rules_max
    }

    fn welcome(&self, forwards: bool) -> Welcome {
        Welcome {
            interface_idx: self.interface_idx(),
            native: self.mode() == Mode::Native,
            has_rx_hints: self.has_rx_hints(),
            forwards,
            steers: self.why_unsteered().is_none(),
            nic: None,
        }
    }

    fn check(&self, request: &QueueRequest, memory_max: u64) -> Result<(), String> {
        request.check(memory_max)
    }

    fn lend(&mut self, idx: u16, request: &QueueRequest) -> Result<Option<Lent>, DeviceError> {
        Ok(Self::lend(self, idx, request)?.map(Lent::Queue))
    }

    fn is_free(&self, idx: u16, request: &QueueRequest) -> Result<bool, DeviceError> {
        self.is_free(idx, request)
    }

    fn connect(&mut self, idx: u16, lent: &Lent) -> io::Result<()> {
        match lent {
            Lent::Queue(lent) => Self::connect(self, idx, lent),
            _ => Ok(()),
        }
    }

    fn disconnect(&mut self, idx: u16) {
        Self::disconnect(self, idx);
    }

    fn steer(&mut self, rule: &Rule, idx: u16) -> Result<RuleId, SteerError> {
        Device::steer(self, rule, idx)
    }

    fn unsteer(&mut self, id: RuleId) -> Result<(), SteerError> {
        Device::unsteer(self, id)
    }

    fn spreads_by_connection(&self) -> bool {
        true
    }

    fn look_after(&mut self) {
        Self::look_after(self);
    }

    fn why_ended(&self) -> Option<String> {
        self.why_ended()
    }

    fn why_unsteered(&self) -> Option<String> {
        self.why_unsteered()
    }
}
