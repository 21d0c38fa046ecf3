//! The kind of ConnectX, and the mistakes that it tolerates.

/// A NIC's features and tolerance. The default is a ConnectX-5 that tolerates mistakes that libmlx5
/// alone would make on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The name that rdma-core shows: `mlx5_0`.
    pub name: String,
    /// The port's MAC address.
    pub mac: [u8; 6],
    /// The port's IPv4 address, by which it has a GID beside the link-local one. By default none.
    pub address: Option<[u8; 4]>,
    /// Bytes of the longest IP packet.
    pub mtu: u16,
    /// Fetch a WQE only after its UAR register was written, and check doorbell record, its order
    /// and BlueFlame bytes.
    pub strict: bool,
    /// Drop a frame that finds no receive WQE (counted `rx_out_of_buffer`), as hardware does.
    /// Otherwise the frame waits for some seconds, because perftest counts frames and waits for
    /// ever after one loss.
    pub lossy: bool,
    /// Misbehave as far as hardware may, from a seed.
    pub hostility: Option<Hostility>,
    /// Whether multi-packet send WQEs are announced and executed.
    pub multi_packet_send: bool,
    /// Whether compressed CQEs are announced, and written on CQs that ask for them.
    pub cqe_compression: bool,
    /// Whether striding receive queues are announced and made.
    pub striding_rq: bool,
    /// The longest payload of a TSO WQE; 0 where TSO is not announced.
    pub tso_len_max: u32,
    /// Flow rules at the same time: one more is refused with ENOSPC.
    pub flows_max: usize,
    /// Pages of doorbell registers: one more is refused with ENOSPC.
    pub uars_max: u32,
    /// Packet pacing, kbit/s: lowest and highest rate. `None` where there is none.
    pub pacing: Option<(u32, u32)>,
    /// Bytes of header that each WQE must carry inline: 0, or 18 as a ConnectX-4 Lx wants it.
    pub inline_len_min: u8,
    /// Bytes of the longest send WQE, `max_wqe_sz_sq` of the firmware: a longer one fails.
    pub wqe_len_max: u16,
    /// The port reports InfiniBand, with no other effect: Ethernet drivers must refuse it.
    pub infiniband: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            name: "mlx5_0".into(),
            mac: [0x02, 0, 0, 0, 0x5c, 0],
            address: None,
            mtu: 1500,
            strict: false,
            lossy: false,
            hostility: None,
            multi_packet_send: true,
            cqe_compression: true,
            striding_rq: true,
            tso_len_max: 262_144,
            flows_max: 4096,
            // The doorbell pages of a BAR of 32 MiB.
            uars_max: 8192,
            pacing: Some((1_000, 100_000_000)),
            inline_len_min: 0,
            wqe_len_max: 1024,
            infiniband: false,
        }
    }
}

/// How a hostile NIC behaves: everything here is legal for hardware. Chances are in thousandths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hostility {
    /// All random decisions derive from it: the same seed gives the same run.
    pub seed: u64,
    /// Steps that a completion may wait, and then comes with all that waited.
    pub completion_delay_max: u32,
    /// Received frames lost on the wire.
    pub loss: u32,
    /// Received frames that change places with the next one.
    pub reordering: u32,
    /// Send WQEs that fail with an error CQE.
    pub send_errors: u32,
    /// Received frames that fail with an error CQE.
    pub receive_errors: u32,
    /// Steps in which the port goes down for some steps.
    pub link_flaps: u32,
}
