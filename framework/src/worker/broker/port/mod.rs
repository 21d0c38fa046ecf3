//! The port whose queues a broker lends: AF_XDP's on any interface, or a ConnectX's.

mod af_xdp;
#[cfg(feature = "mlx5")]
mod mlx5;

use std::io;

use super::error::{BrokerError, Refusal};
use super::waiting::Lent;
use crate::device::af_xdp::AfXdpDevice;
use crate::device::broker::message::{Half, Reply, Welcome};
use crate::device::broker::request::QueueRequest;
use crate::device::steering::{Rule, RuleId, SteerError};
use crate::device::{Device, DeviceError};
use crate::worker::live::PortConfig;

/// What the broker does with a port. The methods with a body are of one kind of port alone.
pub(super) trait LendingPort {
    /// The network interface.
    fn interface(&self) -> &str;

    fn interface_idx(&self) -> u32;

    /// In words for the operator.
    fn describe(&self) -> String;

    /// Queues that can be lent at the same time.
    fn queues(&self) -> u16;

    /// How there would be more of them, for a refusal: behind a comma, where that is possible.
    fn more_queues(&self) -> String {
        String::new()
    }

    fn rules_max(&self) -> usize;

    /// What a client is told first.
    fn welcome(&self, forwards: bool) -> Welcome;

    /// Whether a request can be met, of `memory_max` bytes at most; otherwise one
    /// sentence.
    fn check(&self, request: &QueueRequest, memory_max: u64) -> Result<(), String>;

    /// Lends queue `idx`; `None` if the kernel does not give it now.
    fn lend(&mut self, idx: u16, request: &QueueRequest) -> Result<Option<Lent>, DeviceError>;

    /// Whether the kernel would give queue `idx`.
    fn is_free(&self, idx: u16, request: &QueueRequest) -> Result<bool, DeviceError> {
        let _ = (idx, request);
        Ok(true)
    }

    /// The client's frames come to queue `idx`, which it has.
    fn connect(&mut self, idx: u16, lent: &Lent) -> io::Result<()>;

    /// They are not.
    fn disconnect(&mut self, idx: u16);

    /// Whether that is for good, and takes each rule of the client: otherwise all frames are the
    /// kernel's at once.
    fn disconnects_for_good(&self) -> bool {
        false
    }

    /// The client of queue `idx` has ended.
    fn end(&mut self, idx: u16) {
        self.disconnect(idx);
    }

    fn steer(&mut self, rule: &Rule, idx: u16) -> Result<RuleId, SteerError>;

    fn unsteer(&mut self, id: RuleId) -> Result<(), SteerError>;

    /// Whether the same rule for a group may be set for several queues, and each gets the frames.
    fn copies_groups(&self) -> bool {
        false
    }

    /// Whether all frames of a connection come to the queue to which its first one came, where
    /// several queues have a rule for its port: a NIC spreads them by a hash of both ends.
    fn spreads_by_connection(&self) -> bool {
        false
    }

    /// Descriptors that are readable once [`look_after`](Self::look_after) has something to do.
    fn descriptors(&self) -> Vec<i32> {
        Vec::new()
    }

    /// How many queues of clients that have ended are not destroyed yet.
    fn ending(&self) -> usize {
        0
    }

    /// Errors of the rings of all clients so far.
    fn ring_errors(&self) -> u64 {
        0
    }

    /// Called in each turn of the broker's loop.
    fn look_after(&mut self);

    /// Why no frame will come any more, if that is so.
    fn why_ended(&self) -> Option<String>;

    /// Why frames of a rule may come to another queue; `None` if none do.
    fn why_unsteered(&self) -> Option<String> {
        None
    }

    /// Arms the completion queue of queue `idx`.
    fn arm(&self, idx: u16, word: u32) -> io::Result<()> {
        let _ = (idx, word);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Has the NIC release a ring of queue `idx`.
    fn reset(&mut self, idx: u16, half: Half) -> io::Result<()> {
        let _ = (idx, half);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Gives it back to the NIC.
    fn ready(&mut self, idx: u16, half: Half) -> io::Result<()> {
        let _ = (idx, half);
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// A port that is open, with its queues where the broker keeps them to pass frames on.
pub(super) struct OpenPort {
    pub(super) port: Box<dyn LendingPort>,
    pub(super) queues: Vec<<AfXdpDevice as Device>::Queue>,
    pub(super) frame_len_max: usize,
}

/// Opens the port of `config`.
pub(super) fn open(config: &PortConfig, forward: bool) -> Result<OpenPort, BrokerError> {
    match config {
        PortConfig::AfXdp(config) => af_xdp::open(config, forward),
        #[cfg(feature = "mlx5")]
        PortConfig::Mlx5(config) => mlx5::open(config, forward),
    }
}

impl Lent {
    /// The reply to the request by which it was lent.
    pub(super) fn reply(&self, request: &QueueRequest) -> Reply {
        let umem_len = request.umem_len;
        match self {
            Self::Queue(queue) => {
                let (zero_copy, multi_buffer) = (queue.zero_copy, queue.multi_buffer);
                Reply::Opened { umem_len, zero_copy, multi_buffer, forwarded: false }
            }
            Self::Forwarded(_) => Reply::Opened { umem_len, zero_copy: false, multi_buffer: true, forwarded: true },
            #[cfg(feature = "mlx5")]
            Self::Nic(nic) => Reply::OpenedNic(nic.queue),
        }
    }
}

/// A refusal of what only a queue of a NIC has.
pub(super) fn refusal(error: &io::Error) -> Refusal {
    let errno = error.raw_os_error().unwrap_or(libc::EOPNOTSUPP);
    Refusal::new(errno, format!("the NIC's queue does not do that now ({error}): see the broker's log"))
}
