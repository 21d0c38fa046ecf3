//! Which frames the port gives to the worker: each socket that is bound, listens or connects names
//! its flow, and takes it back when nothing of it can arrive any more.

use core::net::{Ipv4Addr, SocketAddrV4};
use std::collections::VecDeque;

use wirepath::proto::Host;
use wirepath::time::{Duration, Instant};
use wirepath::worker::live::{FlowSpec, LivePort};

use crate::errno::Errno;

/// How long segments of a connection that has ended may still arrive: TIME-WAIT (RFC 9293 3.4.1).
/// Taken back before that, its flow would be the kernel's, which answers with resets.
const LEAVES_AFTER: Duration = Duration::from_secs(60);

/// A port that sends flows to the worker and the rest elsewhere.
pub trait Steering {
    /// Sends a flow to the worker, from the next frame on. System calls; not for the data path.
    ///
    /// # Errors
    /// The rule cannot be had: `ENOBUFS`.
    fn add_flow(&mut self, flow: FlowSpec) -> Result<(), Errno>;

    /// Takes a flow back.
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
        Self::add_flow(self, flow).map_err(|_| Errno::ENOBUFS)
    }

    /// Where it fails the port is gone, and its rules with it.
    fn remove_flow(&mut self, flow: &FlowSpec) {
        let _ = Self::remove_flow(self, flow);
    }
}

/// The flows of all sockets. Several sockets may name the same one: what a listener accepted
/// arrives by the listener's.
pub(crate) struct Flows {
    steering: Box<dyn Steering>,
    /// Each with the number of sockets that need it.
    held: Vec<(FlowSpec, usize)>,
    /// Those of connections that were closed, the oldest first, and until when they stay.
    leaving: VecDeque<(Instant, FlowSpec)>,
}

impl Flows {
    pub(crate) fn new(steering: Box<dyn Steering>) -> Self {
        Self { steering, held: Vec::new(), leaving: VecDeque::new() }
    }

    /// Needs flows; all of them, or none where one cannot be had.
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
        self.steering.add_flow(flow.clone())?;
        self.held.push((flow.clone(), 1));
        Ok(())
    }

    /// Needs flows no more.
    pub(crate) fn release(&mut self, flows: &[FlowSpec]) {
        for flow in flows {
            let Some(idx) = self.held.iter().position(|(held, _)| held == flow) else { continue };
            self.held[idx].1 -= 1;
            if self.held[idx].1 == 0 {
                self.held.swap_remove(idx);
                self.steering.remove_flow(flow);
            }
        }
    }

    /// Needs the flows of a connection until late segments of it cannot arrive any more.
    pub(crate) fn release_later(&mut self, flows: Vec<FlowSpec>, now: Instant) {
        self.leaving.extend(flows.into_iter().map(|flow| (now + LEAVES_AFTER, flow)));
    }

    /// Takes back what is due; one comparison where nothing is.
    #[inline]
    pub(crate) fn tick(&mut self, now: Instant) {
        while self.leaving.front().is_some_and(|(until, _)| *until <= now) {
            let Some((_, flow)) = self.leaving.pop_front() else { return };
            self.release(&[flow]);
        }
    }
}

/// Datagrams and segments to `local`; for the unspecified address, to each of the host's.
pub(crate) fn flows_to(local: SocketAddrV4, host: &Host, flow: fn(Ipv4Addr, u16) -> FlowSpec) -> Vec<FlowSpec> {
    if !local.ip().is_unspecified() {
        return vec![flow(*local.ip(), local.port())];
    }
    host.addresses().iter().map(|prefix| flow(prefix.address(), local.port())).collect()
}

/// What the peer of a connection sends.
pub(crate) fn flow_from(remote: SocketAddrV4, local: SocketAddrV4) -> FlowSpec {
    FlowSpec { destination: local, ..FlowSpec::tcp_from(remote) }
}
