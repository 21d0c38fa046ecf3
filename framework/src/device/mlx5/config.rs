//! The configuration of a port: the device, and the features requested before its capabilities are
//! known.

use std::path::PathBuf;

use super::error::Mlx5SetupError;

/// A port of a ConnectX, and its requested features.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mlx5Config {
    /// The verbs name (`mlx5_0`), the address of the PCI function (`3b:00.0`), or the network
    /// interface (`eth1`).
    pub device: String,
    /// The port, from 1. A function of a ConnectX-4 or later has one. By default 1.
    pub port: u8,
    /// Number of queues, one per worker. By default 1.
    pub queues: u16,
    /// How a rule's frames are distributed to the queues. By default [`RxDistribution::Rules`].
    pub rx_distribution: RxDistribution,
    /// Receive ring length in frames: a power of two from 8 to 8192. Too few and the NIC drops part
    /// of a burst (`out_of_buffer`); too many and the buffers fall out of the cache before they are
    /// used again. By default 2,048.
    pub rx_ring_len: u32,
    /// Transmit ring length in frames: a power of two from 8 to 8192. By default 1,024.
    pub tx_ring_len: u32,
    /// Bytes of the longest frame, from the Ethernet header to the last payload byte; `None`
    /// derives it from the interface's MTU with one VLAN tag. The MTU is read once, at
    /// [`Mlx5Device::open`](super::Mlx5Device::open). If it is raised afterwards, each frame that
    /// is longer than its buffers puts the ring into error, counts as `rx/drop/error_local_length`,
    /// and costs the frames that arrive until the ring has recovered. By default `None`.
    pub frame_len_max: Option<usize>,
    /// Maximum number of rules. The kernel keeps a table for each shape of rule in the NIC; tens of
    /// thousands fit. By default 16,384.
    pub rules_max: usize,
    /// Receive timestamps, and transmit timestamps for frames that ask for them, by the NIC's
    /// clock. By default off.
    pub timestamps: Feature,
    /// Timestamps are raw ticks of the NIC's clock ([`Mbuf::ticks`](crate::mem::Mbuf::ticks),
    /// [`Mlx5Tx::take_ticks`](super::Mlx5Tx::take_ticks)), for an application that relates clocks
    /// itself. By default off.
    pub raw_timestamps: bool,
    /// The NIC strips the VLAN tag of a received frame; the tag is in the mbuf's metadata. By
    /// default off.
    pub vlan_stripping: Feature,
    /// CQE compression: several completions in the space of one, less PCIe for small frames at high
    /// rates. The frames of a compressed session share a timestamp, so [`Feature::IfSupported`]
    /// disables it if timestamps are on. By default off.
    pub compression: Feature,
    /// Multi-packet receive (MPRQ): the NIC packs several frames into a receive buffer, and each is
    /// copied out: less PCIe for small frames, at one copy per frame. By default off.
    pub striding: Feature,
    /// Multi-packet WQEs: several frames in one send descriptor. By default where possible.
    pub multi_packet_send: Feature,
    /// BlueFlame: WQEs of urgent frames are written directly into the NIC's register. Not available
    /// if the device has no dedicated register left for the queue, or if the environment sets
    /// `MLX5_SHUT_UP_BF=1`, as with libmlx5. The queue's counter `tx/doorbell` shows the result. By
    /// default on.
    pub blueflame: bool,
    /// Relaxed ordering on PCIe: later writes and reads of the NIC may pass earlier ones. It raises
    /// throughput where many requests are in flight, as on AMD's and ARM's machines. A completion
    /// is still written after its frame. The setting is a hint: a device, slot or kernel (before
    /// 5.6) without support ignores it. Turn it off on Intel's Haswell and Broadwell, which are
    /// slower with it. By default on.
    pub relaxed_ordering: bool,
    /// The rate limit of each queue; `None` for none. By default `None`.
    pub pace: Option<Pace>,
    /// The path of a broker's socket, which lends one queue to a process without capabilities; of
    /// the features above it has those that the broker's port has, and no raw timestamps, strides
    /// or compression. By default `None`: the process has the capabilities itself. With the feature
    /// `af-xdp`, which has the broker.
    pub broker: Option<PathBuf>,
}

/// The request for a feature that not every device has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Feature {
    /// Off.
    #[default]
    Off,
    /// Used if the device supports it. [`Mlx5Device::describe`](super::Mlx5Device::describe) shows
    /// whether.
    IfSupported,
    /// Required: without it opening the device fails with the reason.
    Required,
}

impl Feature {
    /// Whether the feature is requested at all.
    pub(super) fn is_wanted(self) -> bool {
        self != Self::Off
    }
}

/// How a rule's frames are distributed to the queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RxDistribution {
    /// Each rule names its queue.
    #[default]
    Rules,
    /// Frames that match any rule are spread over all queues by a hash of their headers, so that a
    /// flow remains on its queue. They arrive as long as all queues are open.
    Rss(RssConfig),
}

/// The RSS configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RssConfig {
    /// Fields of the header. By default [`RssFields::default`], the ports.
    pub by: RssFields,
    /// The secret of the Toeplitz hash. By default 16 bits that repeat, which send both directions
    /// of a flow to the same queue.
    pub key: [u8; Self::KEY_LEN],
}

/// The hashed fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RssFields {
    /// IPv4 addresses.
    Addresses,
    /// IPv4 addresses, and ports if the rule matches UDP or TCP.
    #[default]
    Ports,
}

impl RssConfig {
    /// Bytes of a Toeplitz key.
    pub const KEY_LEN: usize = 40;
}

impl Default for RssConfig {
    /// Over ports, with a key whose 16 bits repeat (0x6d5a; Woo and Park, "Scalable TCP session
    /// monitoring with symmetric receive-side scaling"): both directions of a flow hash to the same
    /// queue.
    fn default() -> Self {
        let mut key = [0; Self::KEY_LEN];
        key.as_chunks_mut().0.iter_mut().for_each(|pair: &mut [u8; 2]| *pair = [0x6d, 0x5a]);
        Self { by: RssFields::default(), key }
    }
}

/// The rate limit of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// Kilobits per second, counting frames with their headers; 0 is no limit.
    pub kbps: u32,
    /// Bytes that may leave back to back; 0 is the device's default.
    pub burst_len_max: u32,
    /// Bytes of a typical frame; 0 is the device's default.
    pub frame_len_typical: u16,
}

impl Mlx5Config {
    /// One queue of `device`: 2048 frames to receive, 1024 to send, and all features without a cost
    /// that the device supports. At 10 Gbit/s 2048 of the shortest frames last 138 µs: longer than
    /// a worker is absent.
    pub fn new(device: &str) -> Self {
        Self {
            device: device.into(),
            port: 1,
            queues: 1,
            rx_distribution: RxDistribution::default(),
            rx_ring_len: 2048,
            tx_ring_len: 1024,
            frame_len_max: None,
            rules_max: 16_384,
            timestamps: Feature::Off,
            raw_timestamps: false,
            vlan_stripping: Feature::Off,
            compression: Feature::Off,
            striding: Feature::Off,
            multi_packet_send: Feature::IfSupported,
            blueflame: true,
            relaxed_ordering: true,
            pace: None,
            broker: None,
        }
    }

    /// Checks for requests that no device can meet, before one is opened.
    pub(super) fn check(&self) -> Result<(), Mlx5SetupError> {
        for (name, len) in [("rx_ring_len", self.rx_ring_len), ("tx_ring_len", self.tx_ring_len)] {
            if !len.is_power_of_two() || !(8..=8192).contains(&len) {
                return Err(Mlx5SetupError::RingLen { name, len });
            }
        }
        let config = |sentence: &str| Err(Mlx5SetupError::Config { sentence: sentence.into() });
        if self.queues == 0 {
            return config("Mlx5Config::queues is 0: use one for each worker");
        }
        if self.frame_len_max.is_some_and(|len| !(60..=16_384).contains(&len)) {
            return config("Mlx5Config::frame_len_max is out of range: use 60 to 16384 bytes");
        }
        let sessions = self.compression == Feature::Required;
        if sessions && self.timestamps == Feature::Required {
            return config(
                "compressed completions have one time stamp for many frames: use timestamps or compression, not both",
            );
        }
        Ok(())
    }

    /// Whether frames are spread by a hash.
    pub(super) fn hash(&self) -> Option<RssConfig> {
        match self.rx_distribution {
            RxDistribution::Rules => None,
            RxDistribution::Rss(hash) => Some(hash),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a panic here is the report

    use super::*;

    fn refused(config: &Mlx5Config, says: &str) {
        let refused = config.check().unwrap_err().to_string();
        assert!(refused.contains(says), "{refused}");
    }

    #[test]
    fn rings_are_powers_of_two_from_8_to_8192() {
        let config = Mlx5Config::new("mlx5_0");
        for len in [0, 4, 7, 12, 16_384, u32::MAX] {
            refused(&Mlx5Config { rx_ring_len: len, ..config.clone() }, "rx_ring_len");
            refused(&Mlx5Config { tx_ring_len: len, ..config.clone() }, "tx_ring_len");
        }
        for len in (3..=13).map(|log| 1 << log) {
            Mlx5Config { rx_ring_len: len, tx_ring_len: len, ..config.clone() }.check().unwrap();
        }
    }

    #[test]
    fn contradictions_are_refused_in_words() {
        let config = Mlx5Config::new("mlx5_0");
        refused(&Mlx5Config { queues: 0, ..config.clone() }, "one for each worker");
        refused(&Mlx5Config { frame_len_max: Some(20), ..config.clone() }, "60 to 16384");
        let both = Mlx5Config { compression: Feature::Required, timestamps: Feature::Required, ..config };
        refused(&both, "not both");
    }
}
