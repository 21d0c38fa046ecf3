//! Ports for tests: AF_XDP devices with one queue, on both ends of a veth pair between two
//! namespaces. For short tests: a failure panics, and the panic is the report.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::sync::Arc;
use std::time::Duration;

use wirepath::counters::Block;
use wirepath::device::af_xdp::{AfXdpConfig, AfXdpDevice, AfXdpRx, AfXdpTx, CopyMode};
use wirepath::device::steering::Rule;
use wirepath::device::{Device, DeviceError, Offload, Queue, RxQueue, TxQueue};
use wirepath::mem::{Burst, Layout, Mbuf, Pool, Region};
use wirepath::time::Instant;
use wirepath::wire::EtherType;

use crate::netns::Namespace;

/// The first EtherType for experiments: no stack on the way answers it.
pub const EXPERIMENT: Rule = Rule { ethertype: Some(EtherType(0x88b5)), ..Rule::ALL };
/// Long enough for a machine whose two cores have a dozen other things to do, short enough to wait
/// for.
pub const TIMEOUT: Duration = Duration::from_secs(40);

/// Two namespaces, joined: `near` with `veth0` and 10.9.0.1, `far` with `veth1` and 10.9.0.2. Says
/// why where there is no such thing.
pub struct Wire {
    /// The end of `veth0`.
    pub near: Namespace,
    /// The end of `veth1`.
    pub far: Namespace,
}

/// A fresh pair; `None`, and why, where this machine gives `test` no namespaces.
pub fn wire(test: &str) -> Option<Wire> {
    match Namespace::new() {
        Ok(near) => {
            let far = Namespace::new().unwrap();
            near.veth("veth0", &far, "veth1").unwrap();
            near.ip(&["addr", "add", "10.9.0.1/24", "dev", "veth0"]).unwrap();
            far.ip(&["addr", "add", "10.9.0.2/24", "dev", "veth1"]).unwrap();
            Some(Wire { near, far })
        }
        Err(why) => {
            println!("SKIPPED {test}: {why}; run as root");
            None
        }
    }
}

/// A pool that can be a umem, on pages of the ordinary kind.
pub fn pool(buffers: usize, chunk_len: usize) -> Pool {
    let layout = Layout::umem(chunk_len);
    Pool::new(Arc::new(Region::heap(layout.region_len(buffers)).unwrap()), layout).unwrap()
}

/// Short rings and copy mode, so that losses happen soon.
pub fn config(interface: &str) -> AfXdpConfig {
    AfXdpConfig { rx_ring_len: 256, tx_ring_len: 256, copying: CopyMode::Copy, ..AfXdpConfig::new(interface) }
}

/// A device with its one queue, opened and polled once, on the calling thread and in its namespace.
pub struct Port {
    /// The receiving half.
    pub rx: AfXdpRx,
    /// The sending half.
    pub tx: AfXdpTx,
    /// Where rules go.
    pub device: AfXdpDevice,
    /// The counters, in the scope `port`.
    pub block: Block,
    /// Where the frames are.
    pub pool: Pool,
    /// The time: it advances only by a second per poll, so that every poll checks the link.
    pub now: Instant,
}

impl Port {
    /// With a pool of 1024 chunks of 2048 bytes.
    pub fn open(config: &AfXdpConfig, rules: &[Rule]) -> Self {
        Self::with_pool(config, rules, pool(1024, 2048))
    }

    /// With a pool of the test's own.
    pub fn with_pool(config: &AfXdpConfig, rules: &[Rule], pool: Pool) -> Self {
        let mut device = open(config);
        for rule in rules {
            device.steer(rule, 0).unwrap();
        }
        let block = Block::heap();
        let (rx, tx) = device.take_queue(0).unwrap().open(&pool, &block.scope("port")).unwrap();
        block.check().unwrap();
        let mut port = Self { rx, tx, device, block, pool, now: Instant::from_nanos(1) };
        assert_eq!(port.receive(), Vec::<Vec<u8>>::new());
        port
    }

    /// One turn: the received frames.
    pub fn burst(&mut self) -> Burst {
        self.now += wirepath::time::Duration::from_secs(1);
        let mut burst = Burst::new();
        self.tx.reap();
        self.rx.receive(&mut burst, 32, &self.pool, self.now);
        self.rx.refresh_counters();
        self.tx.ring_doorbell(self.now);
        burst
    }

    /// One turn: the bytes of the received frames.
    pub fn receive(&mut self) -> Vec<Vec<u8>> {
        self.burst().drain(..).map(|mbuf| (mbuf.segments().flatten().copied().collect(), mbuf.free()).0).collect()
    }

    /// Polls until `count` frames have come, or for as long as patience lasts.
    pub fn receive_some(&mut self, count: usize) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        self.until(|port| {
            frames.extend(port.receive());
            frames.len() >= count
        });
        frames
    }

    /// Polls until `done`; whether that came about.
    pub fn until(&mut self, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let start = std::time::Instant::now();
        while start.elapsed() < TIMEOUT {
            if done(self) {
                return true;
            }
            std::thread::yield_now();
        }
        false
    }

    /// Sends a frame at once; whether the ring took it.
    pub fn send(&mut self, frame: &[u8]) -> bool {
        let mbuf = self.pool.alloc_copy(frame).unwrap();
        let posted = self.tx.post(mbuf, Offload::NONE).map_err(Mbuf::free).is_ok();
        self.tx.ring_doorbell(self.now);
        posted
    }

    /// One of its counters, by the part of the name after `port/`.
    pub fn count(&self, name: &str) -> u64 {
        self.block.snapshot().count(&format!("port/{name}")).unwrap()
    }
}

/// Opens a device, also shortly after another one was dropped: a program that a test of this
/// process is just starting has its descriptors for a moment.
pub fn open(config: &AfXdpConfig) -> AfXdpDevice {
    let start = std::time::Instant::now();
    loop {
        match AfXdpDevice::open(config) {
            Ok(device) => return device,
            Err(error) if start.elapsed() > TIMEOUT => panic!("{error}"),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// A broadcast frame with [`EXPERIMENT`]'s EtherType that carries a number.
pub fn frame(number: u64, len: usize) -> Vec<u8> {
    let mut frame = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 1, 0x88, 0xb5], &number.to_be_bytes()].concat();
    frame.resize(len, number as u8);
    frame
}

/// The number that a [`frame`] carries.
pub fn number(frame: &[u8]) -> u64 {
    u64::from_be_bytes(frame[14..22].try_into().unwrap())
}

/// Waits for an event that another process or the kernel causes.
pub fn wait_until(done: impl Fn() -> bool) {
    let start = std::time::Instant::now();
    while !done() {
        assert!(start.elapsed() < TIMEOUT, "this does not come about");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The sentence of a set-up error.
pub fn sentence<T>(result: Result<T, DeviceError>) -> String {
    result.err().map(|error| error.to_string()).unwrap_or_else(|| panic!("this should have been refused"))
}

/// Whether there is a program on the far end, as `ip` shows it.
pub fn has_program(far: &Namespace) -> bool {
    far.ip(&["link", "show", "dev", "veth1"]).unwrap().contains("xdp")
}
