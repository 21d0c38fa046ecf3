//! The suite that every device passes, on the mlx5 device: two software ConnectXs back to back
//! under unmodified rdma-core, strict and hostile, by both kernel interfaces, with each way to
//! receive and to send. Each test starts itself anew under `softhca run`.
//!
//! `make metal` runs it on two ports of real NICs that a cable joins.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::time::Duration;

use softhca::testing::is_inside;
use wirepath::device::mlx5::{Feature, Mlx5Config, Pace};
use wirepath::testing::conformance::assert_conforms;
use wirepath_tests::cable::Cable;
use wirepath_tests::nic;

fn pair(change: impl FnOnce(Mlx5Config) -> Mlx5Config) -> Cable {
    let config = Mlx5Config { rx_ring_len: 128, tx_ring_len: 128, ..Mlx5Config::new("") };
    Cable { patience: Duration::ZERO, ..Cable::new("mlx5_0", "mlx5_1", change(config)) }
}

fn conforms(test: &str, options: &[&str], mut pair: Cable) {
    for abi in ["ioctl", "write"] {
        if is_inside(test, &[&["--devices", "2", "--manual", "--abi", abi], options].concat()) {
            assert_conforms(&mut pair);
            assert_eq!(nic::diagnoses(), Vec::<String>::new());
            return;
        }
    }
}

#[test]
fn strict_nic_is_served_to_the_letter() {
    let pair = pair(|config| Mlx5Config { multi_packet_send: Feature::Required, ..config });
    conforms("strict_nic_is_served_to_the_letter", &["--strict"], pair);
}

#[test]
fn strict_nic_with_short_descriptors_is_served_to_the_letter() {
    let test = "strict_nic_with_short_descriptors_is_served_to_the_letter";
    let pair = pair(|config| Mlx5Config { multi_packet_send: Feature::Required, ..config });
    conforms(test, &["--strict", "--wqe", "128"], pair);
}

#[test]
fn strict_nic_is_served_with_a_frame_a_descriptor() {
    let pair = pair(|config| Mlx5Config { multi_packet_send: Feature::Off, ..config });
    conforms("strict_nic_is_served_with_a_frame_a_descriptor", &["--strict"], pair);
}

#[test]
fn nic_that_wants_headers_inline_is_served() {
    let options = ["--strict", "--inline", "18", "--without", "multi-packet-send"];
    conforms("nic_that_wants_headers_inline_is_served", &options, pair(|config| config));
}

#[test]
fn plain_doorbells_do_where_blueflame_is_not_wanted() {
    let pair = pair(|config| Mlx5Config { blueflame: false, ..config });
    conforms("plain_doorbells_do_where_blueflame_is_not_wanted", &["--strict"], pair);
}

#[test]
fn compressed_completions_are_read() {
    let pair = pair(|config| Mlx5Config { compression: Feature::Required, ..config });
    conforms("compressed_completions_are_read", &["--strict"], pair);
}

#[test]
fn striding_rings_are_read() {
    let pair = pair(|config| Mlx5Config { striding: Feature::Required, ..config });
    conforms("striding_rings_are_read", &["--strict"], pair);
}

#[test]
fn compressed_completions_of_striding_rings_are_read() {
    let on = Feature::Required;
    let pair = pair(|config| Mlx5Config { striding: on, compression: on, ..config });
    conforms("compressed_completions_of_striding_rings_are_read", &["--strict"], pair);
}

#[test]
fn frames_that_are_stamped_and_paced_are_the_same_frames() {
    let pace = Some(Pace { kbps: 100_000_000, ..Pace::default() });
    let pair = pair(|config| Mlx5Config { timestamps: Feature::Required, pace, ..config });
    conforms("frames_that_are_stamped_and_paced_are_the_same_frames", &["--strict"], pair);
}

#[test]
fn frames_longer_than_a_buffer_are_scattered() {
    let pair = Cable { data_room: 512, ..pair(|config| config) };
    conforms("frames_longer_than_a_buffer_are_scattered", &["--strict"], pair);
}

#[test]
fn hostile_nic_loses_nothing_that_has_no_name() {
    let options = ["--strict", "--hostile", "7,loss=0,reorder=0,send=0,receive=0,link=0"];
    conforms("hostile_nic_loses_nothing_that_has_no_name", &options, pair(|config| config));
}

#[test]
fn hostile_nic_of_striding_rings_loses_nothing_that_has_no_name() {
    let options = ["--strict", "--hostile", "11,loss=0,reorder=0,send=0,receive=0,link=0"];
    let on = Feature::Required;
    let pair = pair(|config| Mlx5Config { striding: on, compression: on, ..config });
    conforms("hostile_nic_of_striding_rings_loses_nothing_that_has_no_name", &options, pair);
}
