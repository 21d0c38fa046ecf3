//! Our mlx5 device and libmlx5 side by side, on two software ConnectXs back to back:
//! `softhca run --manual --devices 2`.
//!
//! ```text
//!  sender ─▶ rings ─▶ mlx5_0 ═══ mlx5_1 ─▶ rings ─▶ receiver
//!  measured           not measured                 measured
//! ```
//! The NICs belong to this process and advance only between the measured bursts, so the counts are
//! those of a driver's work on its rings. They show neither a NIC's speed nor PCIe.

#[allow(unsafe_code)]
mod calls;
mod dpdk;
mod exchange;
mod libmlx5;
mod lines;
mod mlx5;

use core::net::SocketAddrV4;
use std::time;

pub use calls::Model;
pub use exchange::{OnPorts, exchange};
pub use libmlx5::{Error, VerbsReceiver, VerbsSender};
pub use lines::Lines;
pub use mlx5::{Mlx5Mode, OurReceiver, OurSender};

use crate::frames::{PAYLOAD_LEN, UdpChecksum, frame};
use crate::receiver::ROUND;

/// Frames in a burst.
pub const BURST: usize = 32;
/// Frames that a ring holds: a round arrives while the one before is still there.
const RING: usize = 2 * ROUND;

/// A sender.
pub trait Send {
    /// Prepares a round of frames. Not measured.
    fn prepare(&mut self);

    /// Measured: reaps sent frames, posts a burst, rings the doorbell.
    fn send(&mut self);
}

/// A receiver.
pub trait Receive {
    /// Measured: receives a burst and refills the ring. Returns the number of frames.
    fn receive(&mut self) -> usize;

    /// Frees the frames received last. Not measured.
    fn clear(&mut self, received: usize);
}

/// A sender, the NICs, a receiver.
pub struct Rig<S, R> {
    model: Model,
    sender: S,
    receiver: R,
}

impl<S: Send, R: Receive> Rig<S, R> {
    /// From the sender on `mlx5_0` and the receiver on `mlx5_1`.
    pub fn new(model: Model, sender: S, receiver: R) -> Self {
        Self { model, sender, receiver }
    }

    /// Sends a round and receives it; the measured calls are the caller's.
    pub fn round(&mut self, mut send: impl FnMut(&mut S), mut receive: impl FnMut(&mut R) -> usize) {
        self.sender.prepare();
        (0..ROUND / BURST).for_each(|_| send(&mut self.sender));
        self.model.settle();
        for _ in 0..ROUND / BURST {
            let received = receive(&mut self.receiver);
            assert_eq!(received, BURST, "the wire loses nothing");
            self.receiver.clear(received);
        }
    }

    /// Nanoseconds a frame in the measured calls of a round: receiving, and sending. They include
    /// one reading of the clock.
    pub fn time(&mut self) -> [f64; 2] {
        let [mut receiving, mut sending] = [time::Duration::ZERO; 2];
        self.round(
            |sender| {
                let start = time::Instant::now();
                sender.send();
                sending += start.elapsed();
            },
            |receiver| {
                let start = time::Instant::now();
                let received = receiver.receive();
                receiving += start.elapsed();
                received
            },
        );
        [receiving, sending].map(|spent| spent.as_nanos() as f64 / ROUND as f64)
    }
}

/// The frame that is sent.
fn frame_to(group: SocketAddrV4) -> Vec<u8> {
    frame(group, PAYLOAD_LEN, UdpChecksum::Zero)
}
