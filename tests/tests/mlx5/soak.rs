//! Rings of every length from 8 to 8192 under load, in each mode of sending and receiving: every
//! frame arrives once and in order, and every buffer is freed. `make soak` is the long run: 10
//! million frames each way.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::time::Instant;

use softhca::testing::is_inside;
use wirepath::device::mlx5::{Feature, Mlx5Config};
use wirepath::device::steering::Rule;
use wirepath::device::{Device, Offload, TxQueue};
use wirepath::mem::Mbuf;
use wirepath::wire::EtherType;
use wirepath_tests::connectx::{End, open, pool};
use wirepath_tests::nic;

const EXPERIMENT: Rule = Rule { ethertype: Some(EtherType(0x88b5)), ..Rule::ALL };
/// Frames over all rings, by default.
const FRAMES: u64 = 200_000;
/// Frames that are posted before one doorbell, at most.
const PORTION: u64 = 48;

fn end(config: &Mlx5Config) -> End {
    let mut device = open(config);
    device.steer(&EXPERIMENT, 0).unwrap();
    let buffers = 2 * (config.rx_ring_len + 4 * config.tx_ring_len) as usize + 256;
    // The queue keeps the device.
    End::with_pool(&mut device, 0, pool(buffers, 1518)).unwrap()
}

/// Sends `count` frames of changing lengths from one to the other. Turns without frames are no
/// reason to stop, but thousands of them are.
fn soak(near: &mut End, far: &mut End, count: u64) {
    let mut bytes = vec![0u8; 1518];
    bytes[12..14].copy_from_slice(&0x88b5u16.to_be_bytes());
    let (mut sent, mut received, mut dry) = (0u64, 0u64, 0);
    while received < count {
        let portion = (sent % 7 * 9 + 1).min(PORTION).min(count - sent);
        for _ in 0..portion {
            bytes[14..22].copy_from_slice(&sent.to_be_bytes());
            let Some(mbuf) = near.pool.alloc_copy(&bytes[..len(sent)]) else { break };
            if let Err(mbuf) = near.tx.post(mbuf, Offload::NONE) {
                mbuf.free();
                break;
            }
            sent += 1;
        }
        near.burst().drain(..).for_each(Mbuf::free);
        let mut burst = far.burst();
        dry = if burst.is_empty() { dry + 1 } else { 0 };
        assert!(dry < 1_000, "{sent} sent, {received} received, and nothing comes any more: {:?}", far.counted());
        for mbuf in burst.drain(..) {
            let number = u64::from_be_bytes(mbuf.bytes()[14..22].try_into().unwrap());
            assert_eq!((number, mbuf.len()), (received, len(received)), "frame {received} is another one");
            mbuf.free();
            received += 1;
        }
    }
}

fn len(number: u64) -> usize {
    60 + (number * 37 % 1_459) as usize
}

fn rings(test: &str, options: &[&str], change: impl Fn(Mlx5Config) -> Mlx5Config) {
    if !is_inside(test, &[&["--devices", "2", "--manual"], options].concat()) {
        return;
    }
    let frames = std::env::var("MLX5_SOAK_FRAMES").ok().and_then(|count| count.parse().ok()).unwrap_or(FRAMES);
    let lens: Vec<u32> = (3..=13).map(|log| 1 << log).collect();
    let begin = Instant::now();
    for &len in &lens {
        let config = |device| change(Mlx5Config { rx_ring_len: len, tx_ring_len: len, ..Mlx5Config::new(device) });
        let (mut near, mut far) = (end(&config("mlx5_0")), end(&config("mlx5_1")));
        soak(&mut near, &mut far, frames.div_ceil(lens.len() as u64));
        near.close();
        far.close();
        assert_eq!(nic::diagnoses(), Vec::<String>::new(), "rings of {len}");
    }
    let count = frames.div_ceil(lens.len() as u64) * lens.len() as u64;
    println!(
        "{count} frames over rings from 8 to 8192, none lost, every mbuf home: {:.1} s",
        begin.elapsed().as_secs_f64()
    );
}

#[test]
fn rings_of_every_length_lose_nothing() {
    rings("rings_of_every_length_lose_nothing", &["--strict"], |config| config);
}

#[test]
fn rings_of_every_length_lose_nothing_with_a_frame_a_descriptor() {
    let test = "rings_of_every_length_lose_nothing_with_a_frame_a_descriptor";
    rings(test, &["--strict"], |config| Mlx5Config { multi_packet_send: Feature::Off, ..config });
}

#[test]
fn rings_of_every_length_lose_nothing_with_compressed_completions() {
    let test = "rings_of_every_length_lose_nothing_with_compressed_completions";
    rings(test, &["--strict"], |config| Mlx5Config { compression: Feature::Required, ..config });
}

#[test]
fn rings_of_every_length_lose_nothing_on_a_hostile_nic() {
    let options = ["--strict", "--hostile", "5,delay=12,loss=0,reorder=0,send=0,receive=0,link=0"];
    rings("rings_of_every_length_lose_nothing_on_a_hostile_nic", &options, |config| config);
}

#[test]
fn rings_of_every_length_lose_nothing_with_strides() {
    let test = "rings_of_every_length_lose_nothing_with_strides";
    rings(test, &["--strict"], |config| Mlx5Config { striding: Feature::Required, ..config });
}
