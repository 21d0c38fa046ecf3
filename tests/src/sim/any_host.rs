//! A host with either stack.

use std::cell::RefCell;
use std::rc::Rc;

use super::host::SimHost;
use super::ledger::Ledger;
use super::script::{Script, Stack};
use super::smoltcp::SmoltcpHost;

/// A host with our stack, or with smoltcp.
pub enum AnyHost {
    /// A worker.
    Wirepath(Box<SimHost>),
    /// smoltcp.
    Smoltcp(Box<SmoltcpHost>),
}

impl AnyHost {
    /// The host `idx` of a script.
    pub fn new(script: &Script, idx: usize, ledger: &Rc<RefCell<Ledger>>) -> Self {
        match script.hosts[idx].stack {
            Stack::Wirepath => Self::Wirepath(Box::new(SimHost::new(script, idx, ledger))),
            Stack::Smoltcp => Self::Smoltcp(Box::new(SmoltcpHost::new(script, idx, ledger))),
        }
    }

    /// One turn. Returns whether it received frames.
    pub fn poll(&mut self, now: u64) -> bool {
        match self {
            Self::Wirepath(host) => host.poll(now),
            Self::Smoltcp(host) => host.poll(now),
        }
    }

    /// Receives a frame from the line.
    pub fn arrive(&mut self, frame: Vec<u8>) {
        match self {
            Self::Wirepath(host) => host.arrive(frame),
            Self::Smoltcp(host) => host.arrive(frame),
        }
    }

    /// Frames that wait for a turn.
    pub fn waiting(&self) -> usize {
        match self {
            Self::Wirepath(host) => host.waiting(),
            Self::Smoltcp(host) => host.waiting(),
        }
    }

    /// The length of the frame that leaves next.
    pub fn next_len(&mut self) -> Option<usize> {
        match self {
            Self::Wirepath(host) => host.tx_mut().next_len(),
            Self::Smoltcp(host) => host.next_len(),
        }
    }

    /// Sends the next frame.
    pub fn leave(&mut self) -> Vec<Vec<u8>> {
        match self {
            Self::Wirepath(host) => host.tx_mut().leave(),
            Self::Smoltcp(host) => host.leave(),
        }
    }

    /// Whether the transmit ring refuses all frames.
    pub fn stall(&mut self, is_stalled: bool) {
        if let Self::Wirepath(host) = self {
            host.tx_mut().stalled = is_stalled;
        }
    }

    /// Takes all buffers except this many; `None` returns them.
    pub fn steal(&mut self, leave: Option<usize>, now: u64) {
        if let Self::Wirepath(host) = self {
            host.steal(leave, now);
        }
    }

    /// Whether no connection is left.
    pub fn is_quiet(&self) -> bool {
        match self {
            Self::Wirepath(host) => host.is_quiet(),
            Self::Smoltcp(host) => host.is_quiet(),
        }
    }

    /// Frees the buffers that the app keeps.
    pub fn let_go(&mut self, now: u64) {
        if let Self::Wirepath(host) = self {
            host.let_go(now);
        }
    }

    /// Errors that may be found at any time.
    pub fn check(&self) -> Result<(), String> {
        match self {
            Self::Wirepath(host) => host.check(),
            Self::Smoltcp(_) => Ok(()),
        }
    }

    /// Errors at the end of a run, when no connection may be left.
    pub fn check_end(&self) -> Result<(), String> {
        match self {
            Self::Wirepath(host) => host.check_end(),
            Self::Smoltcp(_) => Ok(()),
        }
    }

    /// Counters that are not zero.
    pub fn counters(&self) -> String {
        match self {
            Self::Wirepath(host) => host.counters(),
            Self::Smoltcp(_) => "smoltcp keeps none\n".into(),
        }
    }
}
