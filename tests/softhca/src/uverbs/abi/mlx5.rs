//! The structs of the kernel's mlx5 driver, which follow the general ones: `rdma/mlx5-abi.h`. Names
//! of fields are those of the header.

use super::layout::layouts;

layouts! {
    struct AllocUcontextReqV2 = mlx5_ib_alloc_ucontext_req_v2 {
        total_num_bfregs: u32, num_low_latency_bfregs: u32, flags: u32, comp_mask: u32, max_cqe_version: u8,
        reserved0: u8, reserved1: u16, reserved2: u32, lib_caps: u64,
    }

    struct AllocUcontextResp = mlx5_ib_alloc_ucontext_resp {
        qp_tab_size: u32, bf_reg_size: u32, tot_bfregs: u32, cache_line_size: u32, max_sq_desc_sz: u16,
        max_rq_desc_sz: u16, max_send_wqebb: u32, max_recv_wr: u32, max_srq_recv_wr: u32, num_ports: u16,
        flow_action_flags: u16, comp_mask: u32, response_length: u32, cqe_version: u8, cmds_supp_uhw: u8,
        eth_min_inline: u8, clock_info_versions: u8, hca_core_clock_offset: u64, log_uar_size: u32,
        num_uars_per_page: u32, num_dyn_bfregs: u32, dump_fill_mkey: u32,
    }

    struct AllocPdResp = mlx5_ib_alloc_pd_resp { pdn: u32 }

    struct TsoCaps = mlx5_ib_tso_caps { max_tso: u32, supported_qpts: u32 }

    struct RssCaps = mlx5_ib_rss_caps { rx_hash_fields_mask: u64, rx_hash_function: u8, reserved: [u8; 7] }

    struct CqeCompCaps = mlx5_ib_cqe_comp_caps { max_num: u32, supported_format: u32 }

    struct PacketPacingCaps = mlx5_packet_pacing_caps {
        qp_rate_limit_min: u32, qp_rate_limit_max: u32, supported_qpts: u32, cap_flags: u8, reserved: [u8; 3],
    }

    struct SwParsingCaps = mlx5_ib_sw_parsing_caps { sw_parsing_offloads: u32, supported_qpts: u32 }

    struct StridingRqCaps = mlx5_ib_striding_rq_caps {
        min_single_stride_log_num_of_bytes: u32, max_single_stride_log_num_of_bytes: u32,
        min_single_wqe_log_num_of_strides: u32, max_single_wqe_log_num_of_strides: u32,
        supported_qpts: u32, reserved: u32,
    }

    struct QueryDeviceResp = mlx5_ib_query_device_resp {
        comp_mask: u32, response_length: u32, tso_caps: TsoCaps, rss_caps: RssCaps, cqe_comp_caps: CqeCompCaps,
        packet_pacing_caps: PacketPacingCaps, mlx5_ib_support_multi_pkt_send_wqes: u32, flags: u32,
        sw_parsing_caps: SwParsingCaps, striding_rq_caps: StridingRqCaps, tunnel_offloads_caps: u32,
        dci_streams_caps: [u8; 2], reserved: u16,
    }

    struct CreateCq = mlx5_ib_create_cq {
        buf_addr: u64, db_addr: u64, cqe_size: u32, cqe_comp_en: u8, cqe_comp_res_format: u8, flags: u16,
        uar_page_index: u16, reserved0: u16, reserved1: u32,
    }

    struct CreateCqResp = mlx5_ib_create_cq_resp { cqn: u32, reserved: u32 }

    struct CreateQp = mlx5_ib_create_qp {
        buf_addr: u64, db_addr: u64, sq_wqe_count: u32, rq_wqe_count: u32, rq_wqe_shift: u32, flags: u32, uidx: u32,
        bfreg_index: u32, sq_buf_addr: u64, ece_options: u32, dci_streams: [u8; 2], reserved: u16,
    }

    struct CreateQpRss = mlx5_ib_create_qp_rss {
        rx_hash_fields_mask: u64, rx_hash_function: u8, rx_key_len: u8, reserved: [u8; 6], rx_hash_key: [u8; 128],
        comp_mask: u32, flags: u32,
    }

    struct CreateQpResp = mlx5_ib_create_qp_resp {
        bfreg_index: u32, ece_options: u32, comp_mask: u32, tirn: u32, tisn: u32, rqn: u32, sqn: u32, reserved1: u32,
        tir_icm_addr: u64,
    }

    struct CreateSrq = mlx5_ib_create_srq {
        buf_addr: u64, db_addr: u64, flags: u32, reserved0: u32, uidx: u32, reserved1: u32,
    }

    struct CreateSrqResp = mlx5_ib_create_srq_resp { srqn: u32, reserved: u32 }

    struct CreateAhResp = mlx5_ib_create_ah_resp { response_length: u32, dmac: [u8; 6], reserved: [u8; 6] }

    struct BurstInfo = mlx5_ib_burst_info { max_burst_sz: u32, typical_pkt_sz: u16, reserved: u16 }

    struct ModifyQp = mlx5_ib_modify_qp { comp_mask: u32, burst_info: BurstInfo, ece_options: u32 }

    struct ModifyQpResp = mlx5_ib_modify_qp_resp { response_length: u32, dctn: u32, ece_options: u32, reserved: u32 }

    struct CreateWq = mlx5_ib_create_wq {
        buf_addr: u64, db_addr: u64, rq_wqe_count: u32, rq_wqe_shift: u32, user_index: u32, flags: u32, comp_mask: u32,
        single_stride_log_num_of_bytes: u32, single_wqe_log_num_of_strides: u32, two_byte_shift_en: u32,
    }

    struct CreateWqResp = mlx5_ib_create_wq_resp { response_length: u32, reserved: u32 }

    struct CreateRwqIndTblResp = mlx5_ib_create_rwq_ind_tbl_resp { response_length: u32, reserved: u32 }

    /// The counters' data would follow.
    struct CreateFlow = mlx5_ib_create_flow { ncounters_data: u32, reserved: u32 }
}
