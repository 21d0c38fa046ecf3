//! A device of two lists of frames, as smoltcp wants to see one.

use std::collections::VecDeque;

use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;

/// Bytes of an Ethernet header, which smoltcp counts among those of a frame.
const LINK_LEN: usize = 14;

/// Frames that have come and frames that leave.
pub struct Lists {
    /// The frames for smoltcp, the oldest first.
    pub rx: VecDeque<Vec<u8>>,
    /// The frames that it has sent.
    pub tx: VecDeque<Vec<u8>>,
    /// The most frames that the list to send holds.
    pub tx_max: usize,
    mtu: usize,
}

impl Lists {
    /// Empty lists without end, for packets of `mtu` bytes.
    pub fn new(mtu: usize) -> Self {
        Self { rx: VecDeque::new(), tx: VecDeque::new(), tx_max: usize::MAX, mtu }
    }
}

/// A frame that smoltcp takes.
pub struct Arrived(Vec<u8>);

/// Where it puts one.
pub struct Leaving<'a>(&'a mut VecDeque<Vec<u8>>);

impl Device for Lists {
    type RxToken<'a> = Arrived;
    type TxToken<'a> = Leaving<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Arrived, Leaving<'_>)> {
        let frame = self.rx.pop_front()?;
        Some((Arrived(frame), Leaving(&mut self.tx)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Leaving<'_>> {
        (self.tx.len() < self.tx_max).then_some(Leaving(&mut self.tx))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = self.mtu + LINK_LEN;
        capabilities
    }
}

impl RxToken for Arrived {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, take: F) -> R {
        take(&self.0)
    }
}

impl TxToken for Leaving<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, fill: F) -> R {
        let mut frame = vec![0; len];
        let result = fill(&mut frame);
        self.0.push_back(frame);
        result
    }
}
