//! The sections of the page: figures that are measured together, in the same way.

use serde::{Deserialize, Serialize};

/// One section, in the history by its name in kebab case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Section {
    /// Frames in plain memory, on one core.
    Memory,
    /// TCP in plain memory, both ends on one core.
    Tcp,
    /// The mlx5 device.
    Mlx5,
    /// AF_XDP on a veth pair.
    Live,
    /// TCP to the Linux kernel over a veth pair.
    LiveTcp,
    /// The calls of sockets in plain memory.
    Sockets,
    /// Unmodified programs on sockets, over a veth pair.
    LiveSockets,
    /// The libraries of the trading loop in plain memory.
    Trading,
    /// RDMA in plain memory, both ends on one core.
    Rdma,
    /// TCP echoes over a veth pair that loses much.
    LiveEcho,
}

impl Section {
    /// All, in the order of the page.
    pub const ALL: [Self; 10] = [
        Self::Memory,
        Self::Tcp,
        Self::Sockets,
        Self::Trading,
        Self::Rdma,
        Self::Mlx5,
        Self::Live,
        Self::LiveTcp,
        Self::LiveSockets,
        Self::LiveEcho,
    ];

    /// The heading.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Memory => "Frames in memory",
            Self::Tcp => "TCP in memory",
            Self::Mlx5 => "mlx5",
            Self::Live => "AF_XDP on a veth pair",
            Self::LiveTcp => "TCP to the Linux kernel over a veth pair",
            Self::Sockets => "Sockets in memory",
            Self::LiveSockets => "Unmodified programs over a veth pair",
            Self::Trading => "The trading loop in memory",
            Self::Rdma => "RDMA in memory",
            Self::LiveEcho => "TCP over a wire that loses much",
        }
    }

    /// How the section is measured, and which part of the report measures it.
    pub(super) const fn note(self) -> &'static str {
        match self {
            Self::Memory => {
                "One core, from memory device to app or to memory device. `make bench PART=memory`; the counts alone, \
                 which do not depend on what else the machine does: `PART=counts`."
            }
            Self::Tcp => {
                "Both ends on one core, joined by a memory device; smoltcp on the same wire in the same run. \
                 `PART=tcp`."
            }
            Self::Mlx5 => {
                "Instructions from CQE to mbuf and from mbuf to doorbell. *Alone* is the driver over rings of plain \
                 memory, 60 bytes a frame; else 64 bytes in bursts of 32 on the rings of [software \
                 ConnectXs](softhca.md) under an unmodified rdma-core, all drivers in the same way. That shows what a \
                 driver does, and nothing of PCIe, caches or a card's speed. `PART=connectx`."
            }
            Self::Live => {
                "Both ends share the two cores of the machine; medians of runs in turn. [Most of each figure is the \
                 kernel's](decisions/0004-af-xdp-on-veth.md), and it depends on how far the cores are from each other \
                 at the time. As root, `PART=live`, which measures the next section too."
            }
            Self::LiveTcp => {
                "A kernel's client or sender in the other namespace, a kernel in our place in the same run. As root, \
                 `PART=live-tcp`; of it the orders alone: `PART=live-orders`; ticks and their orders: \
                 `PART=live-trade`."
            }
            Self::Sockets => {
                "What the calls of [sockets](sockets.md) add to the framework's own API: both on one core over a \
                 memory device, the same workers. `PART=sockets`."
            }
            Self::LiveSockets => {
                "Programs as they are installed, under [the preload library](run.md) on AF_XDP, and the same on \
                 the kernel in the same run; the other end is a kernel's, unless the figure says otherwise. As root, \
                 `PART=live-sockets`."
            }
            Self::Trading => {
                "From the bytes of a datagram to the books that they make, on one core. `PART=trading`; the \
                 instructions alone: `PART=counts`."
            }
            Self::Rdma => {
                "Two [RoCE devices](rdma.md) in software on one core, without a port between them: what one writes \
                 the other takes. `PART=rdma`; what is counted alone: `PART=counts`."
            }
            Self::LiveEcho => "Ten minutes, so it is measured only where it is asked for. As root, `PART=live-echo`.",
        }
    }

    /// The name of its plot.
    pub(super) const fn plot(self) -> &'static str {
        match self {
            Self::Memory => "memory.svg",
            Self::Tcp => "tcp.svg",
            Self::Mlx5 => "mlx5.svg",
            Self::Live => "live.svg",
            Self::LiveTcp => "live-tcp.svg",
            Self::Sockets => "sockets.svg",
            Self::LiveSockets => "live-sockets.svg",
            Self::Trading => "trading.svg",
            Self::Rdma => "rdma.svg",
            Self::LiveEcho => "live-echo.svg",
        }
    }
}
