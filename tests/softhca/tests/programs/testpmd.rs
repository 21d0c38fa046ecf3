//! DPDK's own mlx5 driver at both ends of a veth: `dpdk-testpmd` sends as fast as it can, and
//! receives with each kind of ring that the driver has. Both sides and the models below them have
//! equal counts.
//!
//! The sender's driver uses multi-packet WQEs, as it does by default. Flow rules go by verbs
//! (`dv_flow_en=0`), because there is no DevX.

use std::time::Duration;

use softhca::testing::testpmd::{RECEIVES, TIMEOUT, await_count, counter, start, total};

use crate::stage::{is_inside, veth};

const PACKETS: u64 = 500_000;

/// A receiving side.
struct Receiver {
    /// The options for the driver.
    device: &'static str,
    /// The options for testpmd.
    options: &'static str,
    /// The options for the model.
    model: &'static str,
    /// Whether its completions are then compressed and its ring has several frames per WQE, by the
    /// model's counters.
    compressed: bool,
    striding: bool,
}

const PLAIN: Receiver =
    Receiver { device: "rxq_cqe_comp_en=0", options: "", model: "", compressed: false, striding: false };

#[test]
fn plain_receive_has_what_was_sent() {
    check("plain_receive_has_what_was_sent", &Receiver { model: "--strict ", ..PLAIN });
}

#[test]
fn compressed_completions_are_read_by_the_vector_code() {
    let device = "rxq_cqe_comp_en=1,rx_vec_en=1";
    check("compressed_completions_are_read_by_the_vector_code", &Receiver { device, compressed: true, ..PLAIN });
}

#[test]
fn compressed_completions_are_read_by_the_scalar_code() {
    let device = "rxq_cqe_comp_en=1,rx_vec_en=0";
    check("compressed_completions_are_read_by_the_scalar_code", &Receiver { device, compressed: true, ..PLAIN });
}

/// The driver wants more descriptors than by default for it.
#[test]
fn striding_ring_has_what_was_sent() {
    let (device, options) = ("mprq_en=1,rxqs_min_mprq=1,rxq_cqe_comp_en=0", " --rxd=1024");
    check("striding_ring_has_what_was_sent", &Receiver { device, options, striding: true, ..PLAIN });
}

fn check(test: &str, receiver: &Receiver) {
    if !is_inside(&format!("testpmd::{test}"), "dpdk-testpmd", "dpdk-dev") {
        return;
    }
    veth();
    let (model, mode) = (format!("{}--wire veth0", receiver.model), format!("rxonly{}", receiver.options));
    let mut there = start(&model, "receiver", receiver.device, &mode);
    assert!(there.says(RECEIVES, TIMEOUT), "{}", there.end(Duration::ZERO).said);
    // The sender's model drops nothing either: frames wait where the cable is busy.
    let here = start("--wire veth1", "sender", "rxq_cqe_comp_en=0", "txonly");
    await_count(&here, "TX-packets:", PACKETS);
    here.interrupt();
    let sent = here.end(TIMEOUT);
    let count = total(&sent, "TX-packets:");
    await_count(&there, "RX-packets:", count);
    there.interrupt();
    let received = there.end(TIMEOUT);

    assert_eq!(total(&received, "RX-packets:"), count, "received and sent");
    assert!(count >= PACKETS, "{count}");
    assert_eq!(counter(&sent, "tx_frames"), count, "{}", sent.said);
    assert_eq!(counter(&received, "rx_frames"), count, "{}", received.said);
    assert!(counter(&sent, "tx_wqes") < count / 8, "multi-packet WQEs: {}", counter(&sent, "tx_wqes"));
    let compressed = counter(&received, "cqes_compressed");
    let is_as_told = if receiver.compressed { compressed > count / 2 } else { compressed == 0 };
    assert!(is_as_told, "{compressed} compressed completions");
    assert_eq!(counter(&received, "striding_rings"), u64::from(receiver.striding));
    for name in ["tx_errors", "rx_errors", "rx_out_of_buffer", "strict_record_late", "strict_register_wrong"] {
        assert_eq!((counter(&sent, name), counter(&received, name)), (0, 0), "{name}");
    }
    assert_eq!((sent.code, received.code), (Some(0), Some(0)));
}
