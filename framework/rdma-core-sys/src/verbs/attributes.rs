//! The attributes that a device and its ports report, as plain numbers. An attribute that is not
//! reported is zero, `false` or `None`, and code that needs it refuses with a reason.

use core::ffi::{CStr, c_char, c_int};

use crate::bindings::*;

/// The capabilities of a device (`ibv_query_device_ex`).
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceAttributes {
    /// Version of the firmware: `16.35.2000`.
    pub firmware: String,
    /// GUID of the node.
    pub node_guid: u64,
    /// PCI vendor: 0x02c9 is Mellanox.
    pub vendor_id: u32,
    /// PCI device: 4119 is a ConnectX-5.
    pub part_id: u32,
    /// Revision.
    pub hardware_version: u32,
    /// Number of ports.
    pub port_count: u8,
    /// Maximum number of queue pairs.
    pub qp_count_max: u32,
    /// Maximum number of requests in a ring of a QP.
    pub qp_wr_max: u32,
    /// Maximum number of data segments of a request.
    pub sge_max: u32,
    /// Maximum number of completion queues.
    pub cq_count_max: u32,
    /// Maximum number of entries of a completion queue.
    pub cqe_max: u32,
    /// Maximum number of memory regions.
    pub mr_count_max: u32,
    /// Maximum bytes of a memory region.
    pub mr_len_max: u64,
    /// READs and atomic operations that the peer of a queue pair may have under way.
    pub dest_rd_atomic_max: u8,
    /// READs and atomic operations that a queue pair may have under way.
    pub rd_atomic_max: u8,
    /// Maximum number of receive work queues; 0 without support.
    pub wq_count_max: u32,
    /// Whether flow rules are supported.
    pub flow_steering: bool,
    /// Whether checksum offload for raw packets is supported.
    pub raw_checksum: bool,
    /// Further capabilities of raw-packet QPs.
    pub raw_packet: RawPacketCaps,
    /// Maximum bytes of one TSO request on a raw-packet QP; 0 without TSO.
    pub tso_len_max: u32,
    /// RSS over work queues, if supported for raw packets.
    pub rss: Option<Rss>,
    /// Rate limits of raw-packet QPs, if supported.
    pub pacing: Option<Pacing>,
    /// The valid bits of a timestamp; 0 without timestamps.
    pub timestamp_mask: u64,
    /// Frequency of the timestamp clock, in kHz; 0 if not reported.
    pub core_clock_khz: u64,
    /// Maximum moderation of a CQ's events, in completions and microseconds.
    pub cq_moderation_max: (u16, u16),
}

/// The capabilities of raw-packet queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawPacketCaps {
    /// Strips the VLAN tag.
    pub cvlan_stripping: bool,
    /// Delivers the frame check sequence.
    pub scatter_fcs: bool,
    /// Computes and verifies checksums.
    pub ip_checksum: bool,
    /// Delays packets rather than dropping them when a ring is empty.
    pub delay_drop: bool,
    /// Pads writes to whole cache lines.
    pub pci_write_end_padding: bool,
}

/// RSS: spreading of received packets over work queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rss {
    /// Maximum number of tables.
    pub table_count_max: u32,
    /// Maximum number of entries of a table.
    pub table_len_max: u32,
    /// Supported hash fields: `IBV_RX_HASH_*`.
    pub fields: u64,
    /// Whether the Toeplitz hash is supported.
    pub toeplitz: bool,
}

/// Rate limits of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pacing {
    /// The lowest rate, kbit/s.
    pub min_kbps: u32,
    /// The highest rate, kbit/s.
    pub max_kbps: u32,
}

impl DeviceAttributes {
    pub(super) fn of(raw: &ibv_device_attr_ex) -> Self {
        let plain = &raw.orig_attr;
        Self {
            firmware: text(&plain.fw_ver),
            node_guid: u64::from_be(plain.node_guid),
            vendor_id: plain.vendor_id,
            part_id: plain.vendor_part_id,
            hardware_version: plain.hw_ver,
            port_count: plain.phys_port_cnt,
            qp_count_max: count(plain.max_qp),
            qp_wr_max: count(plain.max_qp_wr),
            sge_max: count(plain.max_sge),
            cq_count_max: count(plain.max_cq),
            cqe_max: count(plain.max_cqe),
            mr_count_max: count(plain.max_mr),
            mr_len_max: plain.max_mr_size,
            dest_rd_atomic_max: count(plain.max_qp_rd_atom).try_into().unwrap_or(u8::MAX),
            rd_atomic_max: count(plain.max_qp_init_rd_atom).try_into().unwrap_or(u8::MAX),
            wq_count_max: raw.max_wq_type_rq,
            flow_steering: plain.device_cap_flags & IBV_DEVICE_MANAGED_FLOW_STEERING != 0,
            raw_checksum: plain.device_cap_flags & IBV_DEVICE_RAW_IP_CSUM != 0,
            raw_packet: RawPacketCaps::of(raw),
            tso_len_max: if for_raw(raw.tso_caps.supported_qpts) { raw.tso_caps.max_tso } else { 0 },
            rss: for_raw(raw.rss_caps.supported_qpts).then_some(Rss {
                table_count_max: raw.rss_caps.max_rwq_indirection_tables,
                table_len_max: raw.rss_caps.max_rwq_indirection_table_size,
                fields: raw.rss_caps.rx_hash_fields_mask,
                toeplitz: u32::from(raw.rss_caps.rx_hash_function) & IBV_RX_HASH_FUNC_TOEPLITZ != 0,
            }),
            pacing: for_raw(raw.packet_pacing_caps.supported_qpts).then_some(Pacing {
                min_kbps: raw.packet_pacing_caps.qp_rate_limit_min,
                max_kbps: raw.packet_pacing_caps.qp_rate_limit_max,
            }),
            timestamp_mask: raw.completion_timestamp_mask,
            core_clock_khz: raw.hca_core_clock,
            cq_moderation_max: (raw.cq_mod_caps.max_cq_count, raw.cq_mod_caps.max_cq_period),
        }
    }
}

impl RawPacketCaps {
    fn of(raw: &ibv_device_attr_ex) -> Self {
        let has = |flag: u32| raw.raw_packet_caps & flag != 0;
        Self {
            cvlan_stripping: has(IBV_RAW_PACKET_CAP_CVLAN_STRIPPING),
            scatter_fcs: has(IBV_RAW_PACKET_CAP_SCATTER_FCS),
            ip_checksum: has(IBV_RAW_PACKET_CAP_IP_CSUM),
            delay_drop: has(IBV_RAW_PACKET_CAP_DELAY_DROP),
            pci_write_end_padding: raw.device_cap_flags_ex & IBV_DEVICE_PCI_WRITE_END_PADDING != 0,
        }
    }
}

/// The attributes that libmlx5 reports (`mlx5dv_query_device`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mlx5Attributes {
    /// CQEs identify queues by user index.
    pub cqe_version_1: bool,
    /// Multi-packet WQEs.
    pub multi_packet_wqe: bool,
    /// Multi-packet WQEs with packets of any length and with inline data (mlx5.md 2.6).
    pub enhanced_multi_packet_wqe: bool,
    /// CQEs of 128 bytes can be compressed.
    pub compressed_cqe_128: bool,
    /// CQEs of 64 bytes can be written padded to 128.
    pub padded_cqe_128: bool,
    /// Timestamps can be seconds and nanoseconds.
    pub real_time_timestamps: bool,
    /// Maximum number of mini-CQEs of a compressed session; 0 without compression.
    pub compression_entries_max: u32,
    /// Supported formats of mini-CQEs: bits of [`super::Compression::bit`].
    pub compression_formats: u32,
    /// Striding receive queues, if supported for raw packets.
    pub striding: Option<Striding>,
    /// Software parser: `MLX5DV_SW_PARSING*`, for raw packets.
    pub software_parsing: u32,
    /// Tunnels whose inner headers are parsed.
    pub tunnel_offloads: u32,
    /// UARs that can be allocated on demand.
    pub dynamic_uar_count_max: u32,
    /// Maximum age of a [`super::ClockInfo`], nanoseconds; 0 if not reported.
    pub clock_info_age_ns_max: u64,
    /// Ports behind a bond; 0 without one.
    pub lag_port_count: u8,
}

/// Bounds of a striding receive queue, each as log2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Striding {
    /// Minimum stride length.
    pub stride_len_log_min: u8,
    /// Maximum stride length.
    pub stride_len_log_max: u8,
    /// Minimum number of strides per WQE.
    pub stride_count_log_min: u8,
    /// Maximum number of strides per WQE.
    pub stride_count_log_max: u8,
}

impl Mlx5Attributes {
    /// The requested attributes; the library clears the bits that it does not know.
    pub(super) const WANTED: u64 = (MLX5DV_CONTEXT_MASK_CQE_COMPRESION
        | MLX5DV_CONTEXT_MASK_SWP
        | MLX5DV_CONTEXT_MASK_STRIDING_RQ
        | MLX5DV_CONTEXT_MASK_TUNNEL_OFFLOADS
        | MLX5DV_CONTEXT_MASK_DYN_BFREGS
        | MLX5DV_CONTEXT_MASK_CLOCK_INFO_UPDATE
        | MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS) as u64;

    pub(super) fn of(raw: &mlx5dv_context) -> Self {
        let flag = |flag: u32| raw.flags & u64::from(flag) != 0;
        let told = |mask: u32| raw.comp_mask & u64::from(mask) != 0;
        let compression = told(MLX5DV_CONTEXT_MASK_CQE_COMPRESION).then_some(raw.cqe_comp_caps);
        let strides = &raw.striding_rq_caps;
        let log = |value: u32| u8::try_from(value).unwrap_or(u8::MAX);
        Self {
            cqe_version_1: flag(MLX5DV_CONTEXT_FLAGS_CQE_V1),
            multi_packet_wqe: flag(MLX5DV_CONTEXT_FLAGS_MPW_ALLOWED),
            enhanced_multi_packet_wqe: flag(MLX5DV_CONTEXT_FLAGS_ENHANCED_MPW),
            compressed_cqe_128: flag(MLX5DV_CONTEXT_FLAGS_CQE_128B_COMP),
            padded_cqe_128: flag(MLX5DV_CONTEXT_FLAGS_CQE_128B_PAD),
            real_time_timestamps: flag(MLX5DV_CONTEXT_FLAGS_REAL_TIME_TS),
            compression_entries_max: compression.map_or(0, |caps| caps.max_num),
            compression_formats: compression.map_or(0, |caps| caps.supported_format),
            striding: (told(MLX5DV_CONTEXT_MASK_STRIDING_RQ) && for_raw(strides.supported_qpts)).then_some(Striding {
                stride_len_log_min: log(strides.min_single_stride_log_num_of_bytes),
                stride_len_log_max: log(strides.max_single_stride_log_num_of_bytes),
                stride_count_log_min: log(strides.min_single_wqe_log_num_of_strides),
                stride_count_log_max: log(strides.max_single_wqe_log_num_of_strides),
            }),
            software_parsing: if told(MLX5DV_CONTEXT_MASK_SWP) && for_raw(raw.sw_parsing_caps.supported_qpts) {
                raw.sw_parsing_caps.sw_parsing_offloads
            } else {
                0
            },
            tunnel_offloads: if told(MLX5DV_CONTEXT_MASK_TUNNEL_OFFLOADS) { raw.tunnel_offloads_caps } else { 0 },
            dynamic_uar_count_max: if told(MLX5DV_CONTEXT_MASK_DYN_BFREGS) { raw.max_dynamic_bfregs } else { 0 },
            clock_info_age_ns_max: if told(MLX5DV_CONTEXT_MASK_CLOCK_INFO_UPDATE) {
                raw.max_clock_info_update_nsec
            } else {
                0
            },
            lag_port_count: if told(MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS) { raw.num_lag_ports } else { 0 },
        }
    }
}

/// The state of a port.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PortAttributes {
    /// Whether it has a link.
    pub state: PortState,
    /// Its link layer.
    pub link_layer: LinkLayer,
    /// MTU of RoCE, 256 to 4096. For raw packets the interface's MTU applies.
    pub active_mtu: u16,
    /// Gigabits per second; 0 if the port's codes are unknown.
    pub speed_gbps: f32,
    /// 5: the physical link is up, 3: it is down.
    pub physical_state: u8,
}

/// Whether a port has a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortState {
    /// No link.
    Down,
    /// Initializing.
    Initializing,
    /// Armed: the last state before active.
    Armed,
    /// Up.
    Active,
    /// Another state, by its number in `enum ibv_port_state`.
    Other(u32),
}

/// The link layer of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkLayer {
    /// Ethernet, as needed for raw packets.
    Ethernet,
    /// InfiniBand. `mlxconfig -d DEVICE set LINK_TYPE_P1=2` turns the port into Ethernet, if the
    /// card supports it.
    InfiniBand,
    /// Not reported.
    Unspecified,
}

impl PortAttributes {
    pub(super) fn of(raw: &ibv_port_attr) -> Self {
        Self {
            state: match raw.state {
                IBV_PORT_DOWN => PortState::Down,
                IBV_PORT_INIT => PortState::Initializing,
                IBV_PORT_ARMED => PortState::Armed,
                IBV_PORT_ACTIVE => PortState::Active,
                other => PortState::Other(other),
            },
            link_layer: match raw.link_layer.into() {
                IBV_LINK_LAYER_ETHERNET => LinkLayer::Ethernet,
                IBV_LINK_LAYER_INFINIBAND => LinkLayer::InfiniBand,
                _ => LinkLayer::Unspecified,
            },
            active_mtu: match raw.active_mtu {
                mtu @ IBV_MTU_256..=IBV_MTU_4096 => 128 << mtu,
                _ => 0,
            },
            speed_gbps: lanes(raw.active_width) * lane_gbps(raw.active_speed),
            physical_state: raw.phys_state,
        }
    }
}

/// Lanes of a link, by their code (InfiniBand specification, PortInfo).
fn lanes(width: u8) -> f32 {
    match width {
        1 => 1.0,
        2 => 4.0,
        4 => 8.0,
        8 => 12.0,
        16 => 2.0,
        _ => 0.0,
    }
}

/// Gigabits per second of a lane, by its code.
fn lane_gbps(speed: u8) -> f32 {
    match speed {
        1 => 2.5,
        2 => 5.0,
        4 | 8 => 10.0,
        16 => 14.0,
        32 => 25.0,
        64 => 50.0,
        128 => 100.0,
        _ => 0.0,
    }
}

/// Whether a capability applies to raw-packet QPs.
fn for_raw(qp_types: u32) -> bool {
    qp_types & (1 << IBV_QPT_RAW_PACKET) != 0
}

/// Counts are signed in C; a negative one counts as zero.
fn count(value: c_int) -> u32 {
    value.try_into().unwrap_or_default()
}

fn text(array: &[c_char]) -> String {
    let bytes: Vec<u8> = array.iter().map(|byte| byte.to_ne_bytes()[0]).collect();
    CStr::from_bytes_until_nul(&bytes).map_or_else(|_| String::new(), |text| text.to_string_lossy().into_owned())
}
