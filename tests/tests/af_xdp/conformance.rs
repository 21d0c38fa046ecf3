//! The suite that every device passes, on AF_XDP over a veth pair: in the driver and behind it,
//! with both lengths of chunks.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::rc::Rc;
use std::sync::Arc;

use wirepath::counters::Block;
use wirepath::device::af_xdp::{AfXdpConfig, AfXdpDevice, AfXdpRx, AfXdpTx, CopyMode, Mode};
use wirepath::device::steering::Rule;
use wirepath::device::{Device, Queue, RxQueue};
use wirepath::mem::{Burst, Layout, Pool, Region};
use wirepath::testing::conformance::{LinkUnderTest, Rig, assert_conforms};
use wirepath::time::Instant;
use wirepath::wire::EtherType;
use wirepath_tests::netns::Namespace;
use wirepath_tests::patience::{PatientRx, TIMEOUT};
use wirepath_tests::port;

const RING_LEN: u32 = 64;
const NEAR: &str = "near";
const FAR: &str = "far";

struct VethRig {
    mode: Mode,
    chunk_len: usize,
    mtu: usize,
}

impl VethRig {
    fn pool(&self, buffers: usize) -> Pool {
        let layout = Layout::umem(self.chunk_len);
        // The buffers of the fill ring do not count for the suite.
        let buffers = buffers + 2 * RING_LEN as usize;
        Pool::new(Arc::new(Region::heap(layout.region_len(buffers)).unwrap()), layout).unwrap()
    }

    fn open(&self, interface: &str, pool: &Pool, block: &Block) -> (AfXdpDevice, AfXdpRx, AfXdpTx) {
        let config = AfXdpConfig {
            mode: self.mode,
            copying: CopyMode::Copy,
            rx_ring_len: RING_LEN,
            tx_ring_len: RING_LEN,
            ..AfXdpConfig::new(interface)
        };
        let mut device = port::open(&config);
        assert_eq!(device.mode(), self.mode, "{}", device.describe());
        device.steer(&Rule { ethertype: Some(EtherType(0x88b5)), ..Rule::ALL }, 0).unwrap();
        let (rx, tx) = device.take_queue(0).unwrap().open(pool, &block.scope(interface)).unwrap();
        (device, rx, tx)
    }
}

impl Rig for VethRig {
    fn link(&mut self, buffers: usize) -> LinkUnderTest {
        let block = Block::heap();
        let (tx_pool, rx_pool) = (self.pool(buffers), self.pool(buffers));
        let (near, near_rx, tx) = self.open(NEAR, &tx_pool, &block);
        let (far, mut rx, far_tx) = self.open(FAR, &rx_pool, &block);
        // The first poll opens the way.
        rx.receive(&mut Burst::new(), 1, &rx_pool, Instant::from_nanos(1));
        block.check().unwrap();
        let open = Rc::new((near, near_rx, far, far_tx));
        let dropped = Box::new(move || {
            let _open = &open;
            let snapshot = block.snapshot();
            ["near/tx/drop/too_long", "far/rx/drop/kernel_dropped", "far/rx/drop/rx_ring_full"]
                .iter()
                .map(|name| snapshot.count(name).unwrap())
                .sum()
        });
        LinkUnderTest { tx: Box::new(tx), tx_pool, rx: Box::new(PatientRx::new(rx, TIMEOUT, || ())), rx_pool, dropped }
    }

    fn frame_len_max(&self) -> usize {
        self.mtu + 18
    }

    fn ring_len(&self) -> Option<usize> {
        Some(RING_LEN as usize)
    }

    fn tx_segments_max(&self) -> usize {
        17
    }

    fn buffers_lent(&self) -> usize {
        RING_LEN as usize
    }
}

fn conforms(test: &str, mut rig: VethRig) {
    let namespace = match Namespace::new() {
        Ok(namespace) => namespace,
        Err(why) => return println!("SKIPPED {test}: {why}; run as root"),
    };
    namespace.veth(NEAR, &namespace, FAR).unwrap();
    for interface in [NEAR, FAR] {
        namespace.ip(&["link", "set", interface, "mtu", &rig.mtu.to_string()]).unwrap();
    }
    namespace.run(|| assert_conforms(&mut rig));
}

#[test]
fn native_mode_with_chunks_of_2048_conforms() {
    let rig = VethRig { mode: Mode::Native, chunk_len: 2048, mtu: 1500 };
    conforms("native_mode_with_chunks_of_2048_conforms", rig);
}

#[test]
fn native_mode_with_chunks_of_4096_conforms() {
    let rig = VethRig { mode: Mode::Native, chunk_len: 4096, mtu: 3000 };
    conforms("native_mode_with_chunks_of_4096_conforms", rig);
}

#[test]
fn generic_mode_with_chunks_of_2048_conforms() {
    let rig = VethRig { mode: Mode::Generic, chunk_len: 2048, mtu: 1500 };
    conforms("generic_mode_with_chunks_of_2048_conforms", rig);
}

#[test]
fn generic_mode_with_chunks_of_4096_conforms() {
    let rig = VethRig { mode: Mode::Generic, chunk_len: 4096, mtu: 3000 };
    conforms("generic_mode_with_chunks_of_4096_conforms", rig);
}
