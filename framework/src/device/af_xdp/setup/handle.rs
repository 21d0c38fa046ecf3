//! The port of a queue: a program of ours on the interface, or a broker's.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::port::Port;
use crate::device::af_xdp::config::Mode;
use crate::device::af_xdp::interface::Interface;
use crate::device::broker::client::LentPort;
use crate::device::steering::{Rule, RuleId, SteerError};

/// The state that a port shares with its queues.
#[derive(Clone)]
pub(crate) enum PortHandle {
    /// The program, its maps and rules are this process's.
    Own(Arc<Port>),
    /// They are a broker's.
    Lent(Arc<LentPort>),
}

/// A taken queue that does not receive yet. While one exists, no queue of the port sends its first
/// frame.
pub(crate) struct PendingQueue(PortHandle);

impl PortHandle {
    pub(in crate::device::af_xdp) fn interface(&self) -> &Interface {
        match self {
            Self::Own(port) => &port.interface,
            Self::Lent(port) => port.interface(),
        }
    }

    /// The port of this process.
    pub(in crate::device::af_xdp) fn own(&self) -> Option<&Port> {
        match self {
            Self::Own(port) => Some(port),
            Self::Lent(_) => None,
        }
    }

    /// The port of a broker.
    pub(in crate::device::af_xdp) fn lent(&self) -> Option<&Arc<LentPort>> {
        match self {
            Self::Own(_) => None,
            Self::Lent(port) => Some(port),
        }
    }

    /// The mode in use.
    pub(in crate::device::af_xdp) fn mode(&self) -> Mode {
        match self {
            Self::Own(port) => port.mode,
            Self::Lent(port) if port.is_native() => Mode::Native,
            Self::Lent(_) => Mode::Generic,
        }
    }

    /// Whether frames may carry metadata.
    #[inline]
    pub(in crate::device::af_xdp) fn has_rx_hints(&self) -> bool {
        match self {
            Self::Own(port) => port.has_rx_hints(),
            Self::Lent(port) => port.has_rx_hints(),
        }
    }

    /// Redirects the frames of `queue` to `socket`.
    pub(in crate::device::af_xdp) fn connect(&self, queue: u16, socket: &OwnedFd) -> io::Result<()> {
        match self {
            Self::Own(port) => port.connect(queue, socket),
            Self::Lent(port) => port.connect(),
        }
    }

    /// From now on the kernel receives the frames of `queue`.
    pub(in crate::device::af_xdp) fn disconnect(&self, queue: u16) {
        match self {
            Self::Own(port) => port.disconnect(queue),
            Self::Lent(port) => port.disconnect(),
        }
    }

    /// Installs a rule.
    pub(in crate::device::af_xdp) fn add(&self, rule: &Rule, queue: u16) -> Result<RuleId, SteerError> {
        match self {
            Self::Own(port) => port.add(rule, queue),
            Self::Lent(port) => port.add(rule),
        }
    }

    /// Removes a rule.
    pub(in crate::device::af_xdp) fn remove(&self, id: RuleId) -> Result<(), SteerError> {
        match self {
            Self::Own(port) => port.remove(id),
            Self::Lent(port) => port.remove(id),
        }
    }

    /// Looks after the program at intervals: puts it back if someone has detached it, or notices
    /// that the broker has ended, and with it the program.
    pub(in crate::device::af_xdp) fn reattach_if_lost(&self) {
        match self {
            Self::Own(port) => port.reattach_if_lost(),
            Self::Lent(port) => port.look(),
        }
    }

    /// Times that someone detached the program, and it was attached again by this process.
    pub(in crate::device::af_xdp) fn reattached_count(&self) -> u64 {
        match self {
            Self::Own(port) => port.reattached_count(),
            Self::Lent(_) => 0,
        }
    }

    /// Rules that the NIC has refused ([`Port::unsteered_rules`]).
    pub(in crate::device::af_xdp) fn unsteered_rules(&self) -> u64 {
        self.own().map_or(0, Port::unsteered_rules)
    }

    /// Rules that someone else's rule in the NIC precedes ([`Port::rules_elsewhere`]).
    pub(in crate::device::af_xdp) fn rules_elsewhere(&self) -> u64 {
        self.own().map_or(0, Port::rules_elsewhere)
    }

    /// Whether the program is detached for good.
    pub(in crate::device::af_xdp) fn is_lost(&self) -> bool {
        match self {
            Self::Own(port) => port.is_lost(),
            Self::Lent(port) => port.is_lost(),
        }
    }

    /// The sentence for it.
    pub(in crate::device::af_xdp) fn lost(&self) -> Option<String> {
        match self {
            Self::Own(port) => port.lost().map(|lost| lost.to_string()),
            Self::Lent(port) => port.lost(),
        }
    }

    /// Whether all taken queues receive.
    pub(in crate::device::af_xdp) fn all_receive(&self) -> bool {
        self.awaited().load(Ordering::Acquire) == 0
    }

    fn awaited(&self) -> &AtomicUsize {
        match self {
            Self::Own(port) => port.awaited(),
            Self::Lent(port) => port.awaited(),
        }
    }
}

impl PendingQueue {
    /// Marks a queue of `port` as taken.
    pub(crate) fn new(port: &PortHandle) -> Self {
        port.awaited().fetch_add(1, Ordering::Relaxed);
        Self(port.clone())
    }

    pub(crate) fn port(&self) -> &PortHandle {
        &self.0
    }
}

impl Drop for PendingQueue {
    /// It receives, or never will.
    fn drop(&mut self) {
        self.0.awaited().fetch_sub(1, Ordering::Release);
    }
}
