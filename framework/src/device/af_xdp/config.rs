//! The options of a port.

use std::path::PathBuf;

/// Ethernet's header and one VLAN tag.
pub(super) const LINK_HEADER_LEN: usize = 14 + 4;

/// The interface, and its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AfXdpConfig {
    /// The interface's name, in the network namespace of the thread that opens it.
    pub interface: String,
    /// Where the program runs. By default the best mode available.
    pub mode: Mode,
    /// Whether frames are copied. By default zero-copy if the driver supports it.
    pub copying: CopyMode,
    /// Receive ring length in frames, and the number of buffers for them in the kernel: a power of
    /// two. Too few and the kernel drops part of a burst (`rx_ring_full`, `kernel_dropped`); too
    /// many and the buffers fall out of the cache before they are used again. By default 2,048.
    pub rx_ring_len: u32,
    /// Transmit ring length in buffers: a power of two. By default 1,024.
    pub tx_ring_len: u32,
    /// Maximum number of rules; 100 bytes of kernel memory each. By default 16,384.
    pub rules_max: usize,
    /// Receive timestamps, by the NIC's clock. Stamping is switched on for all frames of the
    /// interface and restored when the device is dropped. The clock is the unmodified PTP clock of
    /// the NIC: in TAI if `ptp4l` sets it (37 s ahead of UTC since 2017), in UTC if `phc2sys`
    /// copies the system's, free running otherwise. If timestamps are unavailable the device works
    /// without, and [`describe`](super::AfXdpDevice::describe) gives the reason. Costs a driver
    /// call for each of our frames. By default off.
    pub rx_timestamps: bool,
    /// The RSS hash that the NIC distributes frames by, if the driver provides it. By default off.
    pub rx_hash: bool,
    /// VLAN tags that the NIC strips are passed with their frames and matched by rules, if the
    /// driver provides them. Otherwise such frames appear untagged. If the NIC strips tags, each of
    /// our frames costs up to 4 ns more: 26 and 30 ns, the least of 14 runs in turns over veth on a
    /// busy machine. By default on.
    pub rx_vlan: bool,
    /// On an interface of several queues, the NIC brings the frames of a rule that one queue has to
    /// that queue, by a rule of its own (ntuple, `ethtool -N`), where its driver has these.
    /// Without, a queue receives what the NIC's hash brings it. By default on.
    pub ntuple: bool,
    /// The path of a broker's socket ([`broker_of`](super::broker_of)), which lends one
    /// queue to a process without capabilities; mode and metadata are then the broker's. By default
    /// none: the process has the capabilities itself.
    pub broker: Option<PathBuf>,
}

impl AfXdpConfig {
    /// The capabilities that a process without root needs, for setcap(8): cap_net_admin attaches
    /// programs to interfaces, cap_net_raw opens AF_XDP sockets, cap_bpf loads programs,
    /// cap_perfmon lets them compute the end of a header, cap_ipc_lock locks the pool in memory.
    pub const CAPABILITIES: &str = "cap_net_admin,cap_net_raw,cap_bpf,cap_perfmon,cap_ipc_lock";

    /// The best mode of driver and kernel on `interface`: 2048 frames to receive, 1024 to send,
    /// 16,384 rules, VLAN tags. At 10 Gbit/s 2048 of the shortest frames last 138 µs: longer than a
    /// worker is absent.
    pub fn new(interface: &str) -> Self {
        Self {
            interface: interface.into(),
            mode: Mode::default(),
            copying: CopyMode::default(),
            rx_ring_len: 2048,
            tx_ring_len: 1024,
            rules_max: 16_384,
            rx_timestamps: false,
            rx_hash: false,
            rx_vlan: true,
            ntuple: true,
            broker: None,
        }
    }
}

/// The XDP mode of the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// Native if the driver supports it, else generic.
    #[default]
    Auto,
    /// In the driver, before the kernel makes an skb of the frame.
    Native,
    /// Behind the driver (skb mode): works with any driver, at the cost of an skb per frame.
    Generic,
}

/// Whether the kernel copies frames between the driver's buffers and the pool's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CopyMode {
    /// Zero-copy if the driver supports it, otherwise copy.
    #[default]
    Auto,
    /// Zero-copy only.
    ZeroCopy,
    /// Always copy: the NIC's own rings remain as the kernel has set them up.
    Copy,
}
