//! The suite's rig for memory ports and for the devices around them: wrappers, bonds, one of two
//! kinds of device.
#![allow(clippy::unwrap_used)] // a panic here is the report

use core::any::Any;

use super::conformance::{LinkUnderTest, Rig};
use crate::counters::Block;
use crate::device::memory::{MemoryConfig, MemoryDevice, pair};
use crate::device::{Device, Queue, RxOf, TxOf};
use crate::mem::Pool;

/// Slots of a ring.
pub(crate) const SLOTS: u32 = 64;

/// Two ports on a wire in memory.
pub(crate) fn wire() -> (MemoryDevice, MemoryDevice) {
    pair("wire", config())
}

fn config() -> MemoryConfig {
    MemoryConfig { slots: SLOTS, ..MemoryConfig::default() }
}

type Opened<D> = dyn FnMut(&mut RxOf<D>, &Pool) -> Box<dyn Any>;

/// Makes links of which each end is a `D`.
pub(crate) struct WireRig<D: Device> {
    config: MemoryConfig,
    ends: Box<dyn FnMut() -> (D, D)>,
    opened: Box<Opened<D>>,
}

impl<D: Device> WireRig<D> {
    /// `ends` makes both ends, around the ports of [`wire`].
    pub(crate) fn new(ends: impl FnMut() -> (D, D) + 'static) -> Self {
        Self::of(config(), ends)
    }

    /// The same around ports that `config` describes.
    pub(crate) fn of(config: MemoryConfig, ends: impl FnMut() -> (D, D) + 'static) -> Self {
        Self { config, ends: Box::new(ends), opened: Box::new(|_, _| Box::new(())) }
    }

    /// Calls `opened` with the sender's receiving half once both ends are open; its result is kept
    /// as long as the link.
    pub(crate) fn once_open(mut self, opened: impl FnMut(&mut RxOf<D>, &Pool) -> Box<dyn Any> + 'static) -> Self {
        self.opened = Box::new(opened);
        self
    }
}

impl<D: Device> Rig for WireRig<D>
where
    RxOf<D>: 'static,
    TxOf<D>: 'static,
{
    fn link(&mut self, buffers: usize) -> LinkUnderTest {
        let block = Block::heap();
        let (mut near, mut far) = (self.ends)();
        let (tx_pool, rx_pool) = (Pool::heap(buffers).unwrap(), Pool::heap(buffers).unwrap());
        let (mut near_rx, tx) = near.take_queue(0).unwrap().open(&tx_pool, &block.scope("near")).unwrap();
        let (rx, far_tx) = far.take_queue(0).unwrap().open(&rx_pool, &block.scope("far")).unwrap();
        let kept = (self.opened)(&mut near_rx, &tx_pool);
        let dropped = Box::new(move || {
            let _open = (&near_rx, &far_tx, &kept);
            let snapshot = block.snapshot();
            let drops = snapshot.samples.iter().filter(|sample| sample.class.is_drop());
            drops.map(|sample| snapshot.count(&sample.name).unwrap()).sum()
        });
        LinkUnderTest { tx: Box::new(tx), tx_pool, rx: Box::new(rx), rx_pool, dropped }
    }

    fn frame_len_max(&self) -> usize {
        self.config.frame_len_max
    }

    fn ring_len(&self) -> Option<usize> {
        Some(self.config.slots as usize)
    }

    fn tx_segments_max(&self) -> usize {
        usize::MAX
    }

    fn inserts_vlan(&self) -> bool {
        true
    }
}
