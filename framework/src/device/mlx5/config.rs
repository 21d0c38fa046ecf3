//! Which device, and how: what is asked for, before anybody has looked what the device can do.

use super::error::SetupError;

/// A port of a ConnectX, and what is wanted of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mlx5Config {
    /// The verbs name (`mlx5_0`), the address of the PCI function (`3b:00.0`), or the network
    /// interface (`eth1`).
    pub device: String,
    /// The port, from 1. A function of a ConnectX-4 or later has one. By default 1.
    pub port: u8,
    /// Queues, one for each worker. By default 1.
    pub queues: u16,
    /// What of a rule's frames comes to which queue. By default [`Spread::Rules`].
    pub spread: Spread,
    /// Frames that may wait for the worker: a power of two from 8 to 8192. Too few and a burst is
    /// dropped by the NIC (`out_of_buffer`); too many and the buffers fall out of the cache before
    /// they are used again. By default 2,048.
    pub rx_ring_len: u32,
    /// Frames that may be on their way out: a power of two from 8 to 8192. By default 1,024.
    pub tx_ring_len: u32,
    /// Bytes of the longest frame, Ethernet header to last payload byte; `None` for what the
    /// interface's MTU allows, with one VLAN tag. The MTU is asked once, at
    /// [`Mlx5Device::open`](super::Mlx5Device::open). Where somebody raises it afterwards, each
    /// frame that is longer than its buffers puts the ring into error, is counted as
    /// `rx/drop/error_local_length`, and costs the frames that come until the ring is back. By
    /// default `None`.
    pub frame_len_max: Option<usize>,
    /// Rules at the same time. The kernel keeps a table for each shape of rule in the NIC; tens of
    /// thousands fit. By default 4,096.
    pub rules_max: usize,
    /// Frames bring when they arrived, and those that ask for it tell when they left, by the NIC's
    /// clock. By default off.
    pub timestamps: Feature,
    /// Times are handed on as the NIC's clock counts them
    /// ([`Mbuf::ticks`](crate::mem::Mbuf::ticks),
    /// [`Mlx5Tx::take_ticks`](super::Mlx5Tx::take_ticks)), for who relates clocks himself. By
    /// default off.
    pub raw_timestamps: bool,
    /// The VLAN tag of a received frame is taken off and comes beside it. By default off.
    pub vlan_stripping: Feature,
    /// Several completions in the space of one: less PCIe for small frames at high rates. The
    /// frames of such a session share a time stamp, so [`Feature::WherePossible`] leaves it out
    /// where stamps are taken. By default off.
    pub compression: Feature,
    /// Several frames in a receive buffer of the NIC, each copied out: less PCIe for small frames,
    /// a copy for each. By default off.
    pub striding: Feature,
    /// Several frames in a send descriptor. By default where possible.
    pub multi_packet_send: Feature,
    /// Descriptors of urgent frames are written into the NIC's register itself (BlueFlame). Not
    /// where the device has no register left that is a queue's own, nor where the environment says
    /// `MLX5_SHUT_UP_BF=1`, as libmlx5 has it: `tx/doorbell` of the queue tells. By default on.
    pub blueflame: bool,
    /// What the NIC writes into our memory, and reads from it, may be overtaken on PCIe by what it
    /// does next: more throughput where many such requests are under way, as on AMD's and ARM's. A
    /// completion is written behind its frame all the same. It is a hint: a device, slot or kernel
    /// (before 5.6) without it goes without. Off on Intel's Haswell and Broadwell, which are slower
    /// with it. By default on.
    pub relaxed_ordering: bool,
    /// How fast each queue sends at most; `None` for as fast as it can. By default `None`.
    pub pace: Option<Pace>,
}

/// What is wanted of something that not every device can.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Feature {
    /// Not.
    #[default]
    Off,
    /// Used where the device can. [`Mlx5Device::describe`](super::Mlx5Device::describe) says
    /// whether.
    WherePossible,
    /// Without it there is no device: opening it fails and says why.
    Demanded,
}

impl Feature {
    /// Whether to use it at all.
    pub(super) fn is_wanted(self) -> bool {
        self != Self::Off
    }
}

/// What of a rule's frames comes to which queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// Each rule names its queue.
    #[default]
    Rules,
    /// What any rule names is spread over all queues by a hash of its header, so that a flow stays
    /// on its queue. It comes once all queues are open, and until one of them is closed.
    Hash(Hash),
}

/// How a flow finds its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hash {
    /// Fields of the header.
    pub by: HashBy,
    /// The secret of the Toeplitz hash.
    pub key: [u8; HASH_KEY_LEN],
}

/// Which fields are hashed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HashBy {
    /// IPv4 addresses.
    Addresses,
    /// IPv4 addresses, and ports where the rule names UDP or TCP.
    #[default]
    Ports,
}

/// Bytes of a Toeplitz key.
pub const HASH_KEY_LEN: usize = 40;

impl Default for Hash {
    /// Over ports, with a key whose 16 bits repeat (0x6d5a; Woo and Park, "Scalable TCP session
    /// monitoring with symmetric receive-side scaling"): both directions of a flow find the same
    /// queue.
    fn default() -> Self {
        let mut key = [0; HASH_KEY_LEN];
        key.as_chunks_mut().0.iter_mut().for_each(|pair: &mut [u8; 2]| *pair = [0x6d, 0x5a]);
        Self { by: HashBy::default(), key }
    }
}

/// How fast a queue sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// Kilobits a second, frames with their headers; 0 is no limit.
    pub kbps: u32,
    /// Bytes that may leave at once; 0 is the device's choice.
    pub burst_len_max: u32,
    /// Bytes of a usual frame; 0 is the device's choice.
    pub frame_len_typical: u16,
}

impl Mlx5Config {
    /// One queue of `device`: 2048 frames to receive, 1024 to send, what costs nothing where the
    /// device can. At 10 Gbit/s 2048 of the shortest frames are 138 µs: longer than a worker is
    /// away.
    pub fn new(device: &str) -> Self {
        Self {
            device: device.into(),
            port: 1,
            queues: 1,
            spread: Spread::default(),
            rx_ring_len: 2048,
            tx_ring_len: 1024,
            frame_len_max: None,
            rules_max: 4096,
            timestamps: Feature::Off,
            raw_timestamps: false,
            vlan_stripping: Feature::Off,
            compression: Feature::Off,
            striding: Feature::Off,
            multi_packet_send: Feature::WherePossible,
            blueflame: true,
            relaxed_ordering: true,
            pace: None,
        }
    }

    /// Finds what no device could, before one is opened.
    pub(super) fn check(&self) -> Result<(), SetupError> {
        for (name, len) in [("rx_ring_len", self.rx_ring_len), ("tx_ring_len", self.tx_ring_len)] {
            if !len.is_power_of_two() || !(8..=8192).contains(&len) {
                return Err(SetupError::RingLen { name, len });
            }
        }
        let config = |sentence: &str| Err(SetupError::Config { sentence: sentence.into() });
        if self.queues == 0 {
            return config("Mlx5Config::queues is 0: use one for each worker");
        }
        if self.frame_len_max.is_some_and(|len| !(60..=16_384).contains(&len)) {
            return config("Mlx5Config::frame_len_max is out of range: use 60 to 16384 bytes");
        }
        let sessions = self.compression == Feature::Demanded;
        if sessions && self.timestamps == Feature::Demanded {
            return config(
                "compressed completions have one time stamp for many frames: use timestamps or compression, not both",
            );
        }
        Ok(())
    }

    /// Whether frames are spread by a hash.
    pub(super) fn hash(&self) -> Option<Hash> {
        match self.spread {
            Spread::Rules => None,
            Spread::Hash(hash) => Some(hash),
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
        let both = Mlx5Config { compression: Feature::Demanded, timestamps: Feature::Demanded, ..config };
        refused(&both, "not both");
    }
}
