//! Queues of a ConnectX: queue pairs and rules for each client.

use std::io;

use super::{LendingPort, OpenPort};
use crate::device::DeviceError;
use crate::device::broker::message::{Half, Welcome};
use crate::device::broker::request::{QueueRequest, too_large};
use crate::device::mlx5::Mlx5Config;
use crate::device::mlx5::lend::{Lender, page_len};
use crate::device::steering::{Rule, RuleId, SteerError};
use crate::worker::broker::clients::CLIENTS_MAX;
use crate::worker::broker::error::BrokerError;
use crate::worker::broker::waiting::Lent;

/// Of the requests that `Mlx5Config` allows.
const RING_LENS: core::ops::RangeInclusive<u32> = 8..=8192;
/// Buffers that hold less would make a frame a long list of them.
const CHUNK_LEN_MIN: u32 = 256;

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
        self.lender.queues().min(CLIENTS_MAX as u16)
    }

    fn rules_max(&self) -> usize {
        self.rules_max
    }

    fn welcome(&self, forwards: bool) -> Welcome {
        let nic = Some(self.lender.features());
        Welcome { interface_idx: self.interface_idx, native: false, has_rx_hints: false, forwards, steers: true, nic }
    }

    fn check(&self, request: &QueueRequest, memory_max: u64) -> Result<(), String> {
        check(request, memory_max, page_len() as u64)
    }

    fn lend(&mut self, idx: u16, request: &QueueRequest) -> Result<Option<Lent>, DeviceError> {
        self.lender.lend(idx, request).map(|lent| Some(Lent::Nic(lent)))
    }

    fn connect(&mut self, idx: u16, _lent: &Lent) -> io::Result<()> {
        self.lender.connect(idx)
    }

    fn disconnect(&mut self, idx: u16) {
        self.lender.disconnect(idx);
    }

    fn disconnects_for_good(&self) -> bool {
        true
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

    fn copies_groups(&self) -> bool {
        true
    }

    fn descriptors(&self) -> Vec<i32> {
        self.lender.descriptors().collect()
    }

    fn look_after(&mut self) {
        self.lender.look_after();
    }

    fn ending(&self) -> usize {
        self.lender.ending()
    }

    fn ring_errors(&self) -> u64 {
        self.lender.ring_errors()
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

/// Whether a request can be met, in whole pages of `page_len` bytes; otherwise one
/// sentence.
fn check(request: &QueueRequest, memory_max: u64, page_len: u64) -> Result<(), String> {
    let &QueueRequest { umem_len, chunk_len, rx_ring_len, tx_ring_len, address } = request;
    if [rx_ring_len, tx_ring_len].iter().any(|len| !len.is_power_of_two() || !RING_LENS.contains(len)) {
        return Err("a ring of a ConnectX has a power of two of entries, from 8 to 8,192".into());
    }
    let is_whole = umem_len > 0 && umem_len.is_multiple_of(page_len) && address.is_multiple_of(page_len);
    if !is_whole || chunk_len < CHUNK_LEN_MIN || address == 0 || address.checked_add(umem_len).is_none() {
        return Err(format!("{umem_len} bytes for buffers of {chunk_len} at {address:#x} are no packet buffers"));
    }
    if umem_len > memory_max {
        return Err(too_large(umem_len, memory_max));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_that_no_client_of_ours_makes_is_refused() {
        let sound =
            QueueRequest { umem_len: 1 << 20, chunk_len: 1600, rx_ring_len: 64, tx_ring_len: 64, address: 1 << 40 };
        let refuse = |request: QueueRequest, says: &str| {
            let refused = check(&request, 1 << 20, 4096).unwrap_err();
            assert!(refused.contains(says), "{refused}");
        };
        check(&sound, 1 << 20, 4096).unwrap();
        // The rings are mapped behind the buffers.
        let small = QueueRequest { umem_len: 3 << 14, ..sound };
        assert!(check(&small, 1 << 20, 4096).is_ok() && check(&small, 1 << 20, 1 << 16).is_err());
        refuse(QueueRequest { rx_ring_len: 0, ..sound }, "power of two");
        refuse(QueueRequest { tx_ring_len: 1 << 31, ..sound }, "power of two");
        refuse(QueueRequest { chunk_len: 1, ..sound }, "no packet buffers");
        refuse(QueueRequest { umem_len: 0, ..sound }, "no packet buffers");
        refuse(QueueRequest { umem_len: 4097, ..sound }, "no packet buffers");
        refuse(QueueRequest { address: 0, ..sound }, "no packet buffers");
        refuse(QueueRequest { address: 8, ..sound }, "no packet buffers");
        refuse(QueueRequest { address: u64::MAX - 4095, ..sound }, "no packet buffers");
        refuse(QueueRequest { umem_len: 2 << 20, ..sound }, "--memory 3");
    }
}
