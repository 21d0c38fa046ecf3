//! The output of a script's machine: segments that left are kept with their time, until the script
//! reads them.

use core::net::Ipv4Addr;
use std::collections::VecDeque;

use wirepath::testing::tcp::{Outgoing, Output, Payload, Unsent};
use wirepath::time::Instant;

/// Bytes of payload that one buffer has room for.
const BUFFER_LEN: usize = 2048;

/// The payload of a script's segments.
#[derive(Debug)]
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl Payload for Bytes {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn advance(&mut self, count: usize) {
        self.0.drain(..count);
    }

    fn trim_to(&mut self, len: usize) {
        assert!(len <= self.0.len(), "the machine asks for more than there is");
        self.0.truncate(len);
    }

    fn split_off(&mut self, at: usize) -> Option<Self> {
        Some(Self(self.0.split_off(at)))
    }

    fn append(&mut self, bytes: &[u8]) -> usize {
        self.0.extend_from_slice(bytes);
        bytes.len()
    }

    fn join(&mut self, next: &Self) -> bool {
        let has_room = self.len() + next.len() <= BUFFER_LEN;
        if has_room {
            self.0.extend_from_slice(&next.0);
        }
        has_room
    }
}

/// A segment that left, and when.
#[derive(Debug)]
pub(crate) struct SentSegment {
    pub(crate) at: Instant,
    pub(crate) segment: Outgoing,
    pub(crate) payload: Vec<u8>,
}

/// Where segments leave.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) sent: VecDeque<SentSegment>,
    pub(crate) now: Instant,
    /// The answer to a segment that it refuses.
    pub(super) refuses: Option<Unsent>,
    pub(super) mtu: usize,
    pub(super) cuts: usize,
}

impl Wire {
    pub(crate) fn new(now: Instant) -> Self {
        Self { sent: VecDeque::new(), now, refuses: None, mtu: 1500, cuts: 0 }
    }
}

impl Output<Bytes> for Wire {
    fn send(&mut self, _: Option<u32>, segment: &Outgoing, payload: Option<&mut Bytes>) -> Result<(), Unsent> {
        if let Some(reason) = self.refuses {
            return Err(reason);
        }
        let payload = payload.map_or(Vec::new(), |payload| payload.0.clone());
        self.sent.push_back(SentSegment { at: self.now, segment: *segment, payload });
        Ok(())
    }

    fn mtu(&self, _: Ipv4Addr) -> usize {
        self.mtu
    }

    fn segmentation_len_max(&self) -> usize {
        self.cuts
    }
}
