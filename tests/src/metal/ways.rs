//! The ways to drive a port that the suite tries: each thing that a configuration can ask for,
//! alone.

use wirepath::device::mlx5::{Feature, Mlx5Config};

use super::Lab;
use crate::cable::Cable;

/// A way to drive both ports.
#[derive(Clone, Copy)]
pub(super) struct Way {
    pub(super) name: &'static str,
    change: fn(&mut Cable),
    /// Whether its figures have a separate line.
    pub(super) is_measured: bool,
}

/// Frames that wait for the far worker: all that the suite sends before it looks.
const RX_RING_LEN: u32 = 1024;
/// Short, because the suite fills it.
const TX_RING_LEN: u32 = 128;
/// Rings for the figures: as long as those of users, and with more room for a receiver that was
/// interrupted.
const MEASURED_RX_RING_LEN: u32 = 4096;
const MEASURED_TX_RING_LEN: u32 = 1024;

pub(super) fn plain() -> Way {
    Way { name: "plain", change: |_| (), is_measured: true }
}

pub(super) fn all() -> Vec<Way> {
    let measured = |name, change| Way { name, change, is_measured: true };
    let tried = |name, change| Way { name, change, is_measured: false };
    vec![
        plain(),
        measured("multi-packet sends", |cable| cable.config.multi_packet_send = Feature::Required),
        measured("compressed completions", |cable| cable.config.compression = Feature::Required),
        measured("striding receive queue", |cable| cable.config.striding = Feature::Required),
        tried("striding and compressed", |cable| {
            cable.config.striding = Feature::Required;
            cable.config.compression = Feature::Required;
        }),
        tried("doorbells without BlueFlame", |cable| cable.config.blueflame = false),
        tried("time stamps", |cable| cable.config.timestamps = Feature::Required),
        tried("frames over several buffers", |cable| cable.data_room = 512),
    ]
}

impl Way {
    /// For the suite.
    pub(super) fn cable(&self, lab: &Lab) -> Cable {
        self.with_rings(lab, RX_RING_LEN, TX_RING_LEN)
    }

    /// For figures.
    pub(super) fn fast_cable(&self, lab: &Lab) -> Cable {
        self.with_rings(lab, MEASURED_RX_RING_LEN, MEASURED_TX_RING_LEN)
    }

    fn with_rings(&self, lab: &Lab, rx_ring_len: u32, tx_ring_len: u32) -> Cable {
        let config = Mlx5Config { rx_ring_len, tx_ring_len, multi_packet_send: Feature::Off, ..Mlx5Config::new("") };
        let mut cable = Cable::new(&lab.device, &lab.peer, config);
        (self.change)(&mut cable);
        cable
    }
}
