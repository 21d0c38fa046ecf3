//! Two ports of ConnectX NICs that a cable connects, as a rig of the conformance suite: real NICs
//! (`make metal`), or two software NICs in this process. Frames posted at the near end arrive at
//! the far end.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::rc::Rc;
use std::time::Duration;

use wirepath::counters::{Block, Reading, Sample};
use wirepath::device::mlx5::{Feature, Mlx5Config, Mlx5Device, Mlx5Rx, Mlx5Tx};
use wirepath::device::steering::Rule;
use wirepath::device::{Device, Queue};
use wirepath::mem::Pool;
use wirepath::testing::conformance::{LinkUnderTest, Rig};
use wirepath::wire::{EtherType, MacAddr};

use crate::patience::{PatientRx, TIMEOUT};
use crate::{connectx, nic};

/// Bytes of the longest frame: an MTU of 1500 and one VLAN tag.
pub const FRAME_LEN_MAX: usize = 1518;

/// The destination of the suite's frames. The rule makes a NIC that compares addresses accept it.
pub const DESTINATION: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
/// The suite's own EtherType, the first for experiments.
pub const EXPERIMENT: EtherType = EtherType(0x88b5);

/// The one rule of both ends.
pub const RULE: Rule = Rule { ethertype: Some(EXPERIMENT), destination_mac: Some(DESTINATION), ..Rule::ALL };

/// Frames of one step of a software ConnectX: more than a portion of the suite's.
const STEP: usize = 256;

/// Which ports, and how they are driven.
pub struct Cable {
    /// The near end, and the far one.
    pub ends: [String; 2],
    /// How both are driven. `device` is of no account.
    pub config: Mlx5Config,
    /// Bytes of data in a buffer to receive into: less than a frame has is a chain.
    pub data_room: usize,
    /// The longest time that a frame may take. `None` where software NICs move only when they are
    /// polled.
    pub patience: Duration,
}

impl Cable {
    /// Between two ports, with buffers that hold a frame.
    pub fn new(near: &str, far: &str, config: Mlx5Config) -> Self {
        let config = Mlx5Config { frame_len_max: Some(FRAME_LEN_MAX), ..config };
        Self { ends: [near.into(), far.into()], config, data_room: FRAME_LEN_MAX, patience: TIMEOUT }
    }

    /// How one end is driven.
    pub fn config_of(&self, end: usize) -> Mlx5Config {
        Mlx5Config { device: self.ends[end].clone(), ..self.config.clone() }
    }

    /// The buffers of the receive ring do not count for the suite.
    fn pool(&self, buffers: usize, data_room: usize) -> Pool {
        let segments = FRAME_LEN_MAX.div_ceil(data_room);
        connectx::pool((buffers + 2 * self.config.rx_ring_len as usize) * segments, data_room)
    }

    fn open(&self, end: usize, pool: &Pool, block: &Block) -> (Mlx5Device, Mlx5Rx, Mlx5Tx) {
        let mut device = Mlx5Device::open(&self.config_of(end)).unwrap_or_else(|error| panic!("{error}"));
        device.steer(&RULE, 0).unwrap_or_else(|error| panic!("{error}"));
        let queue = device.take_queue(0).unwrap();
        let (rx, tx) = queue.open(pool, &block.scope(["near", "far"][end])).unwrap_or_else(|error| panic!("{error}"));
        (device, rx, tx)
    }
}

impl Rig for Cable {
    fn link(&mut self, buffers: usize) -> LinkUnderTest {
        let block = Block::heap();
        let (tx_pool, rx_pool) = (self.pool(buffers, FRAME_LEN_MAX), self.pool(buffers, self.data_room));
        let (near, near_rx, tx) = self.open(0, &tx_pool, &block);
        // The ring has buffers from the start; one half can be dropped while the other stays.
        drop(near_rx);
        let (far, rx, far_tx) = self.open(1, &rx_pool, &block);
        block.check().unwrap();
        let open = Rc::new((near, far, far_tx));
        let dropped = Box::new(move || {
            let _open = &open;
            drops(&block)
        });
        LinkUnderTest {
            tx: Box::new(tx),
            tx_pool,
            rx: Box::new(PatientRx::new(rx, self.patience, step)),
            rx_pool,
            dropped,
        }
    }

    fn frame_len_max(&self) -> usize {
        FRAME_LEN_MAX
    }

    fn frame_len_min(&self) -> usize {
        60
    }

    /// Four frames in a block where a descriptor has several.
    fn ring_len(&self) -> Option<usize> {
        let blocks = self.config.tx_ring_len as usize;
        Some(if self.config.multi_packet_send == Feature::Off { blocks } else { 4 * blocks })
    }

    fn tx_segments_max(&self) -> usize {
        8
    }

    fn inserts_vlan(&self) -> bool {
        true
    }

    fn preposts(&self) -> bool {
        true
    }
}

/// A software ConnectX moves only when we poll, so that the result does not depend on scheduling.
fn step() {
    nic::step(STEP);
}

/// Frames that both ends dropped, for any reason.
pub fn drops(block: &Block) -> u64 {
    let count = |sample: &Sample| match sample.reading {
        Reading::Counter(count) if sample.class.is_drop() => count,
        _ => 0,
    };
    block.snapshot().samples.iter().map(count).sum()
}
