//! The frames that the port steers to the worker: each socket that is bound, listens or connects
//! adds its flow, and removes it when none of its frames can arrive any more.

use core::net::{Ipv4Addr, SocketAddrV4};
use std::collections::VecDeque;

use wirepath::device::steering::SteerError;
use wirepath::proto::Host;
use wirepath::time::{Duration, Instant};
use wirepath::worker::live::{FlowSpec, LiveError, LivePort};

use crate::errno::Errno;

/// How long segments of a connection that has ended may still arrive: TIME-WAIT (RFC 9293 3.4.1).
/// If the flow were removed earlier, the kernel would answer such segments with resets.
const LEAVES_AFTER: Duration = Duration::from_secs(60);

/// A port that steers flows to the worker, and all other frames elsewhere.
pub trait Steering {
    /// Steers a flow to the worker, from the next frame on. System calls; not for the data path.
    ///
    /// # Errors
    /// `ENOBUFS`: the port has no room for the rule. Where the queue is a broker's: its error.
    fn add_flow(&mut self, flow: FlowSpec) -> Result<(), Errno>;

    /// Removes a flow.
    fn remove_flow(&mut self, flow: &FlowSpec);
}

/// A port whose frames all come to the worker.
impl Steering for () {
    fn add_flow(&mut self, _: FlowSpec) -> Result<(), Errno> {
        Ok(())
    }

    fn remove_flow(&mut self, _: &FlowSpec) {}
}

impl Steering for LivePort {
    fn add_flow(&mut self, flow: FlowSpec) -> Result<(), Errno> {
        Self::add_flow(self, flow).map_err(|error| match error {
            // The flow is another's, or the user may not have it.
            LiveError::Steering { error: SteerError::Broker { errno }, .. } => Errno(errno),
            _ => Errno::ENOBUFS,
        })
    }

    /// This fails only if the port is gone, and its rules with it.
    fn remove_flow(&mut self, flow: &FlowSpec) {
        let _ = Self::remove_flow(self, flow);
    }
}

/// The flows of all sockets. Several sockets may need the same flow: data of accepted connections
/// arrives by the listener's flow.
pub(crate) struct Flows {
    steering: Box<dyn Steering>,
    /// Each flow, with the number of sockets that need it.
    held: Vec<(FlowSpec, usize)>,
    /// Flows of closed connections, the oldest first, and the time until which they stay.
    leaving: VecDeque<(Instant, FlowSpec)>,
    /// Flows that were added or removed.
    changes: u64,
}

impl Flows {
    pub(crate) fn new(steering: Box<dyn Steering>) -> Self {
        Self { steering, held: Vec::new(), leaving: VecDeque::new(), changes: 0 }
    }

    /// Adds the flows of a socket: all of them, or none if one fails.
    pub(crate) fn hold(&mut self, flows: &[FlowSpec]) -> Result<(), Errno> {
        for (idx, flow) in flows.iter().enumerate() {
            if let Err(error) = self.hold_one(flow) {
                self.release(&flows[..idx]);
                return Err(error);
            }
        }
        Ok(())
    }

    fn hold_one(&mut self, flow: &FlowSpec) -> Result<(), Errno> {
        if let Some((_, users)) = self.held.iter_mut().find(|(held, _)| held == flow) {
            *users += 1;
            return Ok(());
        }
        self.changes += 1;
        self.steering.add_flow(flow.clone())?;
        self.held.push((flow.clone(), 1));
        Ok(())
    }

    /// Releases the flows of a socket.
    pub(crate) fn release(&mut self, flows: &[FlowSpec]) {
        for flow in flows {
            let Some(idx) = self.held.iter().position(|(held, _)| held == flow) else { continue };
            self.held[idx].1 -= 1;
            if self.held[idx].1 == 0 {
                self.held.swap_remove(idx);
                self.changes += 1;
                self.steering.remove_flow(flow);
            }
        }
    }

    /// Releases the flows of a connection once late segments cannot arrive any more.
    pub(crate) fn release_later(&mut self, flows: Vec<FlowSpec>, now: Instant) {
        self.leaving.extend(flows.into_iter().map(|flow| (now + LEAVES_AFTER, flow)));
    }

    /// Flows that were added or removed so far.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// The time at which the next flow is removed; `Instant::MAX` if there is none.
    pub(crate) fn next_deadline(&self) -> Instant {
        self.leaving.front().map_or(Instant::MAX, |(until, _)| *until)
    }

    /// Removes flows whose time is over; costs one comparison where there are none.
    #[inline]
    pub(crate) fn tick(&mut self, now: Instant) {
        while self.leaving.front().is_some_and(|(until, _)| *until <= now) {
            let Some((_, flow)) = self.leaving.pop_front() else { return };
            self.release(&[flow]);
        }
    }
}

/// The flows of datagrams or segments to `local`; for the unspecified address, one for each of the
/// host's.
pub(crate) fn flows_to(local: SocketAddrV4, host: &Host, flow: fn(Ipv4Addr, u16) -> FlowSpec) -> Vec<FlowSpec> {
    if !local.ip().is_unspecified() {
        return vec![flow(*local.ip(), local.port())];
    }
    host.addresses().iter().map(|prefix| flow(prefix.address(), local.port())).collect()
}

/// The flow of the segments that a connection's peer sends.
pub(crate) fn flow_from(remote: SocketAddrV4, local: SocketAddrV4) -> FlowSpec {
    FlowSpec { destination: local, ..FlowSpec::tcp_from(remote) }
}
