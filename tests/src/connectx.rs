//! Queues of software ConnectXs for tests that run under `softhca run --manual`: the model moves
//! when a queue is polled, and each turn advances the time, so that each run of a test is the same.
//! For short tests: a failure panics, and the panic is the report.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::sync::Arc;

use wirepath::counters::{Block, Reading, Sample};
use wirepath::device::mlx5::{Mlx5Config, Mlx5Device, Mlx5Rx, Mlx5Tx};
use wirepath::device::steering::Rule;
use wirepath::device::{Device, DeviceError, Offload, Queue, RxQueue, TxQueue};
use wirepath::mem::{Burst, Layout, Mbuf, Pool, Region};
use wirepath::time::{Duration, Instant};

use crate::nic;

/// Frames of one step of the model: more than any test has on the way in one turn.
const STEP: usize = 1024;

/// Short rings, one queue.
pub fn config(device: &str) -> Mlx5Config {
    Mlx5Config { rx_ring_len: 64, tx_ring_len: 64, ..Mlx5Config::new(device) }
}

/// A pool with buffers for frames of `frame_len_max` bytes, on the heap.
pub fn pool(buffers: usize, frame_len_max: usize) -> Pool {
    let layout = Layout::for_frames(frame_len_max);
    Pool::new(Arc::new(Region::heap(layout.region_len(buffers)).unwrap()), layout).unwrap()
}

/// A device that is there.
pub fn open(config: &Mlx5Config) -> Mlx5Device {
    Mlx5Device::open(config).unwrap()
}

/// A queue with its pool.
pub struct End {
    /// The receiving half.
    pub rx: Mlx5Rx,
    /// The sending half.
    pub tx: Mlx5Tx,
    /// The counters, in the scope `port`.
    pub block: Block,
    /// Where the frames are.
    pub pool: Pool,
    now: Instant,
}

impl End {
    /// Queue `idx` of `device`, with a pool of 1024 buffers.
    pub fn open(device: &mut Mlx5Device, idx: u16) -> Self {
        Self::with_pool(device, idx, pool(1024, 1518)).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The same, with a pool of the test's own.
    pub fn with_pool(device: &mut Mlx5Device, idx: u16, pool: Pool) -> Result<Self, DeviceError> {
        let block = Block::heap();
        let (rx, tx) = device.take_queue(idx)?.open(&pool, &block.scope("port"))?;
        block.check().unwrap();
        Ok(Self { rx, tx, block, pool, now: Instant::ZERO + Duration::from_secs(1) })
    }

    /// A device with one queue, for which rules are in place.
    pub fn alone(config: &Mlx5Config, rules: &[Rule]) -> (Mlx5Device, Self) {
        let mut device = open(config);
        rules.iter().for_each(|rule| _ = device.steer(rule, 0).unwrap());
        let end = Self::open(&mut device, 0);
        (device, end)
    }

    /// One turn, a millisecond after the last: the received frames.
    pub fn burst(&mut self) -> Burst {
        self.now += Duration::from_millis(1);
        nic::step(STEP);
        let mut burst = Burst::new();
        self.tx.reap();
        self.rx.receive(&mut burst, 32, &self.pool, self.now);
        self.tx.ring_doorbell(self.now);
        nic::step(STEP);
        burst
    }

    /// One turn: the bytes of the received frames.
    pub fn receive(&mut self) -> Vec<Vec<u8>> {
        self.burst().drain(..).map(|mbuf| (mbuf.segments().flatten().copied().collect(), mbuf.free()).0).collect()
    }

    /// Turns until no frame has come for `turns` of them: the bytes of the received frames.
    pub fn receive_all(&mut self, turns: usize) -> Vec<Vec<u8>> {
        let (mut frames, mut dry) = (Vec::new(), 0);
        while dry < turns {
            let more = self.receive();
            dry = if more.is_empty() { dry + 1 } else { 0 };
            frames.extend(more);
        }
        frames
    }

    /// Posts a frame; whether the ring took it.
    pub fn post(&mut self, frame: &[u8]) -> bool {
        let mbuf = self.pool.alloc_copy(frame).unwrap();
        self.tx.post(mbuf, Offload::NONE).map_err(Mbuf::free).is_ok()
    }

    /// Sends frames, and turns as often as it takes.
    pub fn send<'a>(&mut self, frames: impl IntoIterator<Item = &'a Vec<u8>>) {
        for frame in frames {
            let mut turns = 0;
            while !self.post(frame) {
                turns += 1;
                assert!(turns < 10_000, "the ring stays full");
                let received = self.receive();
                assert_eq!(received, Vec::<Vec<u8>>::new(), "nobody sends to the one who sends");
            }
        }
        self.burst().drain(..).for_each(Mbuf::free);
    }

    /// One of its counters, by the part of the name after `port/`.
    pub fn count(&mut self, name: &str) -> u64 {
        self.rx.refresh_counters();
        self.tx.refresh_counters();
        self.block.snapshot().count(&format!("port/{name}")).unwrap_or_else(|| panic!("nobody counts {name}"))
    }

    /// Frames that this side dropped, for any reason.
    pub fn dropped(&mut self, half: &str) -> u64 {
        self.rx.refresh_counters();
        let prefix = format!("port/{half}/drop/");
        let count = |sample: &Sample| match sample.reading {
            Reading::Counter(count) if sample.name.starts_with(&prefix) => count,
            _ => 0,
        };
        self.block.snapshot().samples.iter().map(count).sum()
    }

    /// All that it counted and that is not zero, for a report.
    pub fn counted(&mut self) -> Vec<(String, u64)> {
        self.rx.refresh_counters();
        let count = |sample: Sample| match sample.reading {
            Reading::Counter(count) if count > 0 => Some((sample.name, count)),
            _ => None,
        };
        self.block.snapshot().samples.into_iter().filter_map(count).collect()
    }

    /// Ends the queue; checks that every buffer is free, and that no drop was without a reason.
    pub fn close(self) {
        let Self { rx, tx, block, pool, .. } = self;
        drop((rx, tx, block));
        assert_eq!(
            (pool.in_use(), pool.drops_without_reason()),
            (0, 0),
            "buffers in use, and those that went without a name"
        );
    }
}
