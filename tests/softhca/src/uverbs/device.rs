//! The device's description of itself: attributes, port, the asynchronous descriptor; mlx5.md 1.4,
//! 3.4.

use super::abi::Layout;
use super::abi::mlx5::{self, CqeCompCaps, PacketPacingCaps, StridingRqCaps, TsoCaps};
use super::abi::verbs::{
    CqModerationCaps, ExQueryDevice, ExQueryDeviceResp, QueryDevice, QueryDeviceResp, QueryPort, QueryPortResp,
    QueryPortRespEx, RssCaps,
};
use super::calls::memory::nothing_after;
use super::calls::{Bundle, Call, Outputs, Reply};
use super::context::Context;
use super::{Kernel, refuse};
use crate::hca::{Config, Errno, Hca, LinkState};

/// Mellanox.
const VENDOR: u32 = 0x02c9;

/// A ConnectX-5; the device id of sysfs is the same.
const PART: u32 = 0x1017;

/// 16.35.2000: libmlx5 prints major, minor and sub-minor of 16 bits each.
const FIRMWARE: u64 = 16 << 32 | 35 << 16 | 2000;

/// IBV_DEVICE_*: CHANGE_PHY_PORT, PORT_ACTIVE_EVENT, SYS_IMAGE_GUID, RC_RNR_NAK_GEN,
/// MEM_WINDOW_TYPE_2B, RAW_IP_CSUM, MANAGED_FLOW_STEERING.
const FLAGS: u32 = 1 << 5 | 1 << 10 | 1 << 11 | 1 << 12 | 1 << 24 | 1 << 26 | 1 << 29;

/// IBV_DEVICE_RAW_SCATTER_FCS: beyond the bits of the first form.
const FLAGS_EX: u64 = FLAGS as u64 | 1 << 34;

/// IBV_RAW_PACKET_CAP_*: CVLAN_STRIPPING, SCATTER_FCS and IP_CSUM.
const RAW_PACKET_CAPS: u32 = 1 << 0 | 1 << 1 | 1 << 2;

/// IBV_QPT_RAW_PACKET in a set of QP types.
const RAW_PACKET: u32 = 1 << 8;

/// IBV_ATOMIC_HCA: atomic among the queue pairs of this NIC.
const ATOMIC_HCA: u32 = 1;

/// Cycles of the NIC's clock in a millisecond: one a nanosecond.
const CLOCK_KHZ: u64 = 1_000_000;

/// Completions and microseconds that moderation may hold an event back for.
const MODERATION: CqModerationCaps =
    CqModerationCaps { max_cq_moderation_count: 65_535, max_cq_moderation_period: 4_095, reserved: 0 };

/// Where the MAC address is split to become a GUID (EUI-64).
fn guid(mac: [u8; 6]) -> [u8; 8] {
    let [a, b, c, d, e, f] = mac;
    [a ^ 2, b, c, 0xff, 0xfe, d, e, f]
}

/// Pieces of a request, as `mlx5_ib_query_device` of Linux has them of the longest send WQE: 30
/// where that has 512 bytes and more.
fn sge_max(config: &Config) -> u32 {
    (u32::from(config.wqe_len_max).min(512) - 32) / 16
}

/// Limits are those of a ConnectX-5 where nothing smaller follows from this model.
fn attributes(config: &Config) -> QueryDeviceResp {
    QueryDeviceResp {
        fw_ver: FIRMWARE,
        node_guid: guid(config.mac),
        sys_image_guid: guid(config.mac),
        max_mr_size: u64::MAX,
        page_size_cap: 0xffff_ffff_ffff_f000,
        vendor_id: VENDOR,
        vendor_part_id: PART,
        max_qp: 131_072,
        max_qp_wr: 32_768,
        device_cap_flags: FLAGS,
        max_qp_rd_atom: Config::READS_MAX.into(),
        max_res_rd_atom: 131_072 * u32::from(Config::READS_MAX),
        max_qp_init_rd_atom: Config::READS_MAX.into(),
        atomic_cap: ATOMIC_HCA,
        max_srq: 65_536,
        max_srq_wr: 32_767,
        max_srq_sge: 31,
        max_sge: sge_max(config),
        max_sge_rd: 30,
        max_cq: 65_536,
        max_cqe: 4_194_303,
        max_mr: 65_536,
        max_mw: 65_536,
        max_pd: 65_536,
        max_mcast_grp: 2_097_152,
        max_mcast_qp_attach: 240,
        max_total_mcast_qp_attach: 503_316_480,
        max_ah: i32::MAX as u32,
        max_pkeys: 128,
        local_ca_ack_delay: 16,
        phys_port_cnt: 1,
        ..QueryDeviceResp::default()
    }
}

/// The first form of the question.
pub(super) fn query_device(_: &mut Context, kernel: &mut Kernel<'_>, call: &Call<'_>) -> Result<Reply, Errno> {
    call.request::<QueryDevice>()?;
    Ok(Reply::core(&attributes(kernel.hca.config())))
}

/// The extended form, with the driver's capabilities behind it.
pub(super) fn query_device_ex(_: &mut Context, kernel: &mut Kernel<'_>, call: &Call<'_>) -> Result<Reply, Errno> {
    let request: ExQueryDevice = call.request()?;
    if request.comp_mask != 0 || request.reserved != 0 {
        return refuse(libc::EINVAL);
    }
    nothing_after(call.driver, 0)?;
    let config = kernel.hca.config();
    let response = ExQueryDeviceResp {
        base: attributes(config),
        response_length: call.response_length(ExQueryDeviceResp::LEN),
        timestamp_mask: u64::MAX,
        hca_core_clock: CLOCK_KHZ,
        device_cap_flags_ex: FLAGS_EX,
        rss_caps: RssCaps {
            supported_qpts: RAW_PACKET,
            max_rwq_indirection_tables: 1 << 16,
            max_rwq_indirection_table_size: 512,
            reserved: 0,
        },
        max_wq_type_rq: 65_536,
        raw_packet_caps: RAW_PACKET_CAPS,
        cq_moderation_caps: MODERATION,
        ..ExQueryDeviceResp::default()
    };
    Ok(Reply { core: response.bytes(), driver: capabilities(config, call.driver_room)? })
}

/// Bytes of the response's own length and mask: less room makes no sense.
const CAPABILITIES_LEN_MIN: usize = 8;

/// The driver's capabilities. Each is in the response where the whole of it has room.
fn capabilities(config: &Config, room: usize) -> Result<Vec<u8>, Errno> {
    if room == 0 {
        return Ok(Vec::new());
    }
    if room < CAPABILITIES_LEN_MIN {
        return refuse(libc::EINVAL);
    }
    let only = |condition: bool, value: u32| if condition { value } else { 0 };
    let (rate_min, rate_max) = config.pacing.unwrap_or_default();
    let response = mlx5::QueryDeviceResp {
        response_length: room.min(mlx5::QueryDeviceResp::LEN) as u32,
        tso_caps: TsoCaps { max_tso: config.tso_len_max, supported_qpts: only(config.tso_len_max > 0, RAW_PACKET) },
        rss_caps: mlx5::RssCaps { rx_hash_fields_mask: HASH_FIELDS, rx_hash_function: TOEPLITZ, reserved: [0; 7] },
        cqe_comp_caps: CqeCompCaps {
            max_num: only(config.cqe_compression, 64),
            supported_format: only(config.cqe_compression, 1 | 2 | 4),
        },
        packet_pacing_caps: PacketPacingCaps {
            qp_rate_limit_min: rate_min,
            qp_rate_limit_max: rate_max,
            supported_qpts: only(config.pacing.is_some(), RAW_PACKET),
            cap_flags: u8::from(config.pacing.is_some()),
            reserved: [0; 3],
        },
        // ALLOW_MPW and SUPPORT_EMPW.
        mlx5_ib_support_multi_pkt_send_wqes: only(config.multi_packet_send, 2 | 4),
        flags: CQE_128_PAD,
        striding_rq_caps: if config.striding_rq { STRIDING } else { StridingRqCaps::default() },
        ..mlx5::QueryDeviceResp::default()
    };
    Ok(response.bytes())
}

/// MLX5_RX_HASH_*: source and destination of IPv4, IPv6, TCP and UDP.
const HASH_FIELDS: u64 = 0xff;

/// MLX5_RX_HASH_FUNC_TOEPLITZ.
const TOEPLITZ: u8 = 1;

/// MLX5_IB_QUERY_DEV_RESP_FLAGS_CQE_128B_PAD.
const CQE_128_PAD: u32 = 1 << 1;

/// Strides of 64 bytes to 8 KiB. DPDK takes striding queues only where 8 strides a WQE will do
/// (trap 14).
const STRIDING: StridingRqCaps = StridingRqCaps {
    min_single_stride_log_num_of_bytes: 6,
    max_single_stride_log_num_of_bytes: 13,
    min_single_wqe_log_num_of_strides: 3,
    max_single_wqe_log_num_of_strides: 16,
    supported_qpts: RAW_PACKET,
    reserved: 0,
};

fn port(hca: &Hca) -> QueryPortResp {
    let is_up = hca.link() == LinkState::Up;
    QueryPortResp {
        // IP_BASED_GIDS, and statistics.
        port_cap_flags: 1 << 26 | 1 << 16,
        max_msg_sz: 1 << 30,
        // Those that sysfs shows.
        gid_tbl_len: hca.config().gids().len() as u32,
        pkey_tbl_len: 1,
        state: if is_up { 4 } else { 1 },
        max_mtu: 5,
        active_mtu: hca.config().rdma_mtu(),
        // VL 0 alone.
        max_vl_num: 1,
        // Four lanes of 25 Gbit/s.
        active_width: 2,
        active_speed: 32,
        phys_state: if is_up { 5 } else { 3 },
        // IBV_LINK_LAYER_INFINIBAND and _ETHERNET.
        link_layer: if hca.config().infiniband { 1 } else { 2 },
        ..QueryPortResp::default()
    }
}

/// The port, by command.
pub(super) fn query_port(_: &mut Context, kernel: &mut Kernel<'_>, call: &Call<'_>) -> Result<Reply, Errno> {
    let request: QueryPort = call.request()?;
    if request.port_num != 1 {
        return refuse(libc::EINVAL);
    }
    Ok(Reply::core(&port(kernel.hca)))
}

/// Attributes of the method that asks for the port.
pub(super) mod port {
    pub(in crate::uverbs) const NUMBER: u16 = 0;
    pub(in crate::uverbs) const RESPONSE: u16 = 1;
}

/// The port, by method.
pub(super) fn query_port_method(_: &mut Context, kernel: &mut Kernel<'_>, call: &Bundle) -> Result<Outputs, Errno> {
    if call.input::<u8>(port::NUMBER) != 1 {
        return refuse(libc::EINVAL);
    }
    let response = QueryPortRespEx { legacy_resp: port(kernel.hca), ..QueryPortRespEx::default() };
    Ok(Outputs::new().value(port::RESPONSE, &response))
}

/// The asynchronous descriptor of a context that was made by `ioctl`.
pub(super) fn async_events_method(
    context: &mut Context,
    kernel: &mut Kernel<'_>,
    _: &Bundle,
) -> Result<Outputs, Errno> {
    let descriptor = kernel.process.async_events()?;
    context.async_events = Some(descriptor);
    Ok(Outputs::new().descriptor(0, descriptor))
}

/// Commands to the firmware: for contexts that were made with DevX, which none is (trap 4).
pub(super) fn devx_method(_: &mut Context, _: &mut Kernel<'_>, _: &Bundle) -> Result<Outputs, Errno> {
    refuse(libc::EINVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guid_is_the_mac_address_in_eui_64() {
        assert_eq!(guid([0x02, 0, 0, 0, 0x5c, 1]), [0, 0, 0, 0xff, 0xfe, 0, 0x5c, 1]);
    }
}
