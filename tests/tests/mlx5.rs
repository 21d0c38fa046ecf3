//! The suite that every device passes, on the mlx5 device: two software ConnectXs back to back under unmodified rdma-core, strict and
//! hostile, by both kernel interfaces, with each way to receive and to send. Each test starts itself anew under `softhca run`.
//!
//! `MLX5_METAL=mlx5_0,mlx5_1` runs the same on two ports of real NICs that a cable joins.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::rc::Rc;
use std::time::Duration;

use softhca::testing::is_inside;
use wirepath::counters::Block;
use wirepath::device::conformance::{Link, Rig, assert_conforms};
use wirepath::device::mlx5::{Feature, Mlx5Config, Mlx5Device, Mlx5Rx, Mlx5Tx, Pace};
use wirepath::device::steering::Rule;
use wirepath::device::{Device, Queue, RxQueue, RxState};
use wirepath::mem::{Burst, Pool};
use wirepath::time::Instant;
use wirepath::wire::EtherType;
use wirepath_tests::{connectx, nic};

const NEAR: &str = "mlx5_0";
const FAR: &str = "mlx5_1";

/// Of an MTU of 1500 and one VLAN tag.
const FRAME_LEN_MAX: usize = 1518;
/// The suite's own EtherType.
const EXPERIMENT: Rule = Rule { ethertype: Some(EtherType(0x88b5)), ..Rule::ALL };

struct Pair {
    names: [String; 2],
    config: Mlx5Config,
    /// Bytes of data in a buffer to receive into: less than a frame has is a chain.
    data_room: usize,
}

/// The model moves when we poll: nothing depends on who runs when. A hostile one delays by the clock, so dry polls take time.
struct PatientRx {
    rx: Mlx5Rx,
    dry: u32,
}

/// Frames of one step of the model: more than a portion of the suite's.
const STEP: usize = 256;

impl RxQueue for PatientRx {
    fn receive(&mut self, burst: &mut Burst, limit: usize, pool: &Pool, now: Instant) -> usize {
        nic::step(STEP);
        let count = self.rx.receive(burst, limit, pool, now);
        self.dry = if count == 0 { self.dry + 1 } else { 0 };
        if self.dry.is_multiple_of(50) && count == 0 {
            self.rx.refresh_counters();
            std::thread::sleep(Duration::from_micros(5));
        }
        count
    }

    fn state(&self) -> RxState {
        self.rx.state()
    }

    fn refresh_counters(&mut self) {
        self.rx.refresh_counters();
    }
}

impl Pair {
    fn new(change: impl FnOnce(Mlx5Config) -> Mlx5Config) -> Self {
        let config = Mlx5Config { rx_ring_len: 128, tx_ring_len: 128, ..Mlx5Config::new(NEAR) };
        Self { names: [NEAR, FAR].map(String::from), config: change(config), data_room: FRAME_LEN_MAX }
    }

    /// What the receive ring takes does not count for the suite.
    fn pool(&self, buffers: usize, data_room: usize) -> Pool {
        let segments = FRAME_LEN_MAX.div_ceil(data_room);
        connectx::pool((buffers + 2 * self.config.rx_ring_len as usize) * segments, data_room)
    }

    fn open(&self, end: usize, pool: &Pool, block: &Block) -> (Mlx5Device, Mlx5Rx, Mlx5Tx) {
        let config = Mlx5Config { device: self.names[end].clone(), ..self.config.clone() };
        let mut device = Mlx5Device::open(&config).unwrap();
        device.steer(&EXPERIMENT, 0).unwrap();
        let scope = block.scope(["near", "far"][end]);
        let (rx, tx) = device.take_queue(0).unwrap().open(pool, &scope).unwrap();
        (device, rx, tx)
    }
}

impl Rig for Pair {
    fn link(&mut self, buffers: usize) -> Link {
        let block = Block::heap();
        let (tx_pool, rx_pool) = (self.pool(buffers, FRAME_LEN_MAX), self.pool(buffers, self.data_room));
        // Its ring has buffers from the start; one half can go while the other stays.
        let (near, near_rx, tx) = self.open(0, &tx_pool, &block);
        drop(near_rx);
        let (far, rx, far_tx) = self.open(1, &rx_pool, &block);
        block.check().unwrap();
        let open = Rc::new((near, far, far_tx));
        let dropped = Box::new(move || {
            let _open = &open;
            block.snapshot().count("near/tx/drop/too_long").unwrap()
        });
        Link { tx: Box::new(tx), tx_pool, rx: Box::new(PatientRx { rx, dry: 0 }), rx_pool, dropped }
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
}

fn conforms(test: &str, options: &[&str], mut pair: Pair) {
    if let Some((near, far)) = metal() {
        pair.names = [near, far];
        return assert_conforms(&mut pair);
    }
    for abi in ["ioctl", "write"] {
        if is_inside(test, &[&["--devices", "2", "--manual", "--abi", abi], options].concat()) {
            assert_conforms(&mut pair);
            assert_eq!(nic::diagnoses(), Vec::<String>::new());
            return;
        }
    }
}

/// The ports of real NICs to run on, where somebody has named them.
fn metal() -> Option<(String, String)> {
    let names = std::env::var("MLX5_METAL").ok()?;
    let (near, far) = names.split_once(',').expect("MLX5_METAL=NEAR,FAR names two devices");
    Some((near.into(), far.into()))
}

#[test]
fn strict_nic_is_served_to_the_letter() {
    let pair = Pair::new(|config| Mlx5Config { multi_packet_send: Feature::Demanded, ..config });
    conforms("strict_nic_is_served_to_the_letter", &["--strict"], pair);
}

#[test]
fn strict_nic_is_served_with_a_frame_a_descriptor() {
    let pair = Pair::new(|config| Mlx5Config { multi_packet_send: Feature::Off, ..config });
    conforms("strict_nic_is_served_with_a_frame_a_descriptor", &["--strict"], pair);
}

#[test]
fn nic_that_wants_headers_inline_is_served() {
    let options = ["--strict", "--inline", "18", "--without", "multi-packet-send"];
    conforms("nic_that_wants_headers_inline_is_served", &options, Pair::new(|config| config));
}

#[test]
fn plain_doorbells_do_where_blueflame_is_not_wanted() {
    let pair = Pair::new(|config| Mlx5Config { blueflame: false, ..config });
    conforms("plain_doorbells_do_where_blueflame_is_not_wanted", &["--strict"], pair);
}

#[test]
fn compressed_completions_are_read() {
    let pair = Pair::new(|config| Mlx5Config { compression: Feature::Demanded, ..config });
    conforms("compressed_completions_are_read", &["--strict"], pair);
}

#[test]
fn frames_that_are_stamped_and_paced_are_the_same_frames() {
    let pace = Some(Pace { kbps: 100_000_000, ..Pace::default() });
    let pair = Pair::new(|config| Mlx5Config { timestamps: Feature::Demanded, pace, ..config });
    conforms("frames_that_are_stamped_and_paced_are_the_same_frames", &["--strict"], pair);
}

#[test]
fn frames_longer_than_a_buffer_are_scattered() {
    let pair = Pair { data_room: 512, ..Pair::new(|config| config) };
    conforms("frames_longer_than_a_buffer_are_scattered", &["--strict"], pair);
}

#[test]
fn hostile_nic_loses_nothing_that_has_no_name() {
    let options = ["--strict", "--hostile", "7,loss=0,reorder=0,send=0,receive=0,link=0"];
    conforms("hostile_nic_loses_nothing_that_has_no_name", &options, Pair::new(|config| config));
}
