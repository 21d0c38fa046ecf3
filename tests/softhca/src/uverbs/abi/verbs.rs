//! The kernel's general structs: `rdma/ib_user_verbs.h`, `rdma/ib_user_ioctl_verbs.h`,
//! `rdma/rdma_user_ioctl_cmds.h`. Names of fields are those of the headers.

use super::layout::layouts;

layouts! {
    /// In front of every `write`.
    struct CmdHdr = ib_uverbs_cmd_hdr { command: u32, in_words: u16, out_words: u16 }

    /// Behind it where the command is an extended one.
    struct ExCmdHdr = ib_uverbs_ex_cmd_hdr {
        response: u64, provider_in_words: u16, provider_out_words: u16, cmd_hdr_reserved: u32,
    }

    /// In front of every `ioctl`.
    struct IoctlHdr = ib_uverbs_ioctl_hdr {
        length: u16, object_id: u16, method_id: u16, num_attrs: u16, reserved1: u64, driver_id: u32, reserved2: u32,
    }

    struct GetContext = ib_uverbs_get_context { response: u64 }

    struct GetContextResp = ib_uverbs_get_context_resp { async_fd: u32, num_comp_vectors: u32 }

    struct QueryDevice = ib_uverbs_query_device { response: u64 }

    struct QueryDeviceResp = ib_uverbs_query_device_resp {
        fw_ver: u64, node_guid: [u8; 8], sys_image_guid: [u8; 8], max_mr_size: u64, page_size_cap: u64,
        vendor_id: u32, vendor_part_id: u32, hw_ver: u32, max_qp: u32, max_qp_wr: u32, device_cap_flags: u32,
        max_sge: u32, max_sge_rd: u32, max_cq: u32, max_cqe: u32, max_mr: u32, max_pd: u32,
        max_qp_rd_atom: u32, max_ee_rd_atom: u32, max_res_rd_atom: u32, max_qp_init_rd_atom: u32, max_ee_init_rd_atom: u32,
        atomic_cap: u32, max_ee: u32, max_rdd: u32, max_mw: u32, max_raw_ipv6_qp: u32, max_raw_ethy_qp: u32,
        max_mcast_grp: u32, max_mcast_qp_attach: u32, max_total_mcast_qp_attach: u32, max_ah: u32,
        max_fmr: u32, max_map_per_fmr: u32, max_srq: u32, max_srq_wr: u32, max_srq_sge: u32,
        max_pkeys: u16, local_ca_ack_delay: u8, phys_port_cnt: u8, reserved: [u8; 4],
    }

    struct ExQueryDevice = ib_uverbs_ex_query_device { comp_mask: u32, reserved: u32 }

    struct RssCaps = ib_uverbs_rss_caps {
        supported_qpts: u32, max_rwq_indirection_tables: u32, max_rwq_indirection_table_size: u32, reserved: u32,
    }

    struct CqModerationCaps = ib_uverbs_cq_moderation_caps {
        max_cq_moderation_count: u16, max_cq_moderation_period: u16, reserved: u32,
    }

    /// On-demand paging and tag matching are not there: zeros.
    struct ExQueryDeviceResp = ib_uverbs_ex_query_device_resp {
        base: QueryDeviceResp, comp_mask: u32, response_length: u32, odp_caps: [u8; 24],
        timestamp_mask: u64, hca_core_clock: u64, device_cap_flags_ex: u64, rss_caps: RssCaps,
        max_wq_type_rq: u32, raw_packet_caps: u32, tm_caps: [u8; 24], cq_moderation_caps: CqModerationCaps,
        max_dm_size: u64, xrc_odp_caps: u32, reserved: u32,
    }

    struct QueryPort = ib_uverbs_query_port { response: u64, port_num: u8, reserved: [u8; 7] }

    struct QueryPortResp = ib_uverbs_query_port_resp {
        port_cap_flags: u32, max_msg_sz: u32, bad_pkey_cntr: u32, qkey_viol_cntr: u32, gid_tbl_len: u32,
        pkey_tbl_len: u16, lid: u16, sm_lid: u16, state: u8, max_mtu: u8, active_mtu: u8, lmc: u8, max_vl_num: u8,
        sm_sl: u8, subnet_timeout: u8, init_type_reply: u8, active_width: u8, active_speed: u8, phys_state: u8,
        link_layer: u8, flags: u8, reserved: u8,
    }

    struct QueryPortRespEx = ib_uverbs_query_port_resp_ex {
        legacy_resp: QueryPortResp, port_cap_flags2: u16, reserved: [u8; 6],
    }

    struct AllocPd = ib_uverbs_alloc_pd { response: u64 }

    struct AllocPdResp = ib_uverbs_alloc_pd_resp { pd_handle: u32 }

    struct DeallocPd = ib_uverbs_dealloc_pd { pd_handle: u32 }

    struct RegMr = ib_uverbs_reg_mr {
        response: u64, start: u64, length: u64, hca_va: u64, pd_handle: u32, access_flags: u32,
    }

    struct RegMrResp = ib_uverbs_reg_mr_resp { mr_handle: u32, lkey: u32, rkey: u32 }

    struct DeregMr = ib_uverbs_dereg_mr { mr_handle: u32 }

    struct AllocMw = ib_uverbs_alloc_mw { response: u64, pd_handle: u32, mw_type: u8, reserved: [u8; 3] }

    struct AllocMwResp = ib_uverbs_alloc_mw_resp { mw_handle: u32, rkey: u32 }

    struct DeallocMw = ib_uverbs_dealloc_mw { mw_handle: u32 }

    struct CreateCompChannel = ib_uverbs_create_comp_channel { response: u64 }

    struct CreateCompChannelResp = ib_uverbs_create_comp_channel_resp { fd: u32 }

    struct CreateCq = ib_uverbs_create_cq {
        response: u64, user_handle: u64, cqe: u32, comp_vector: u32, comp_channel: i32, reserved: u32,
    }

    struct CreateCqResp = ib_uverbs_create_cq_resp { cq_handle: u32, cqe: u32 }

    struct ExCreateCq = ib_uverbs_ex_create_cq {
        user_handle: u64, cqe: u32, comp_vector: u32, comp_channel: i32, comp_mask: u32, flags: u32, reserved: u32,
    }

    struct ExCreateCqResp = ib_uverbs_ex_create_cq_resp { base: CreateCqResp, comp_mask: u32, response_length: u32 }

    struct DestroyCq = ib_uverbs_destroy_cq { response: u64, cq_handle: u32, reserved: u32 }

    struct DestroyCqResp = ib_uverbs_destroy_cq_resp { comp_events_reported: u32, async_events_reported: u32 }

    struct CqModeration = ib_uverbs_cq_moderation { cq_count: u16, cq_period: u16 }

    struct ExModifyCq = ib_uverbs_ex_modify_cq { cq_handle: u32, attr_mask: u32, attr: CqModeration, reserved: u32 }

    struct CreateQp = ib_uverbs_create_qp {
        response: u64, user_handle: u64, pd_handle: u32, send_cq_handle: u32, recv_cq_handle: u32, srq_handle: u32,
        max_send_wr: u32, max_recv_wr: u32, max_send_sge: u32, max_recv_sge: u32, max_inline_data: u32,
        sq_sig_all: u8, qp_type: u8, is_srq: u8, reserved: u8,
    }

    struct CreateQpResp = ib_uverbs_create_qp_resp {
        qp_handle: u32, qpn: u32, max_send_wr: u32, max_recv_wr: u32, max_send_sge: u32, max_recv_sge: u32,
        max_inline_data: u32, reserved: u32,
    }

    struct ExCreateQp = ib_uverbs_ex_create_qp {
        user_handle: u64, pd_handle: u32, send_cq_handle: u32, recv_cq_handle: u32, srq_handle: u32,
        max_send_wr: u32, max_recv_wr: u32, max_send_sge: u32, max_recv_sge: u32, max_inline_data: u32,
        sq_sig_all: u8, qp_type: u8, is_srq: u8, reserved: u8,
        comp_mask: u32, create_flags: u32, rwq_ind_tbl_handle: u32, source_qpn: u32,
    }

    struct ExCreateQpResp = ib_uverbs_ex_create_qp_resp { base: CreateQpResp, comp_mask: u32, response_length: u32 }

    /// The limits of a QP as the ioctl takes and returns them.
    struct QpCap = ib_uverbs_qp_cap {
        max_send_wr: u32, max_recv_wr: u32, max_send_sge: u32, max_recv_sge: u32, max_inline_data: u32,
    }

    struct QueryQp = ib_uverbs_query_qp { response: u64, qp_handle: u32, attr_mask: u32 }

    struct QpDest = ib_uverbs_qp_dest {
        dgid: [u8; 16], flow_label: u32, dlid: u16, reserved: u16, sgid_index: u8, hop_limit: u8, traffic_class: u8,
        sl: u8, src_path_bits: u8, static_rate: u8, is_global: u8, port_num: u8,
    }

    /// `alt_dest` is not decoded, because there are no alternate paths.
    struct QueryQpResp = ib_uverbs_query_qp_resp {
        dest: QpDest, alt_dest: [u8; 32],
        max_send_wr: u32, max_recv_wr: u32, max_send_sge: u32, max_recv_sge: u32, max_inline_data: u32,
        qkey: u32, rq_psn: u32, sq_psn: u32, dest_qp_num: u32, qp_access_flags: u32, pkey_index: u16, alt_pkey_index: u16,
        qp_state: u8, cur_qp_state: u8, path_mtu: u8, path_mig_state: u8, sq_draining: u8, max_rd_atomic: u8,
        max_dest_rd_atomic: u8, min_rnr_timer: u8, port_num: u8, timeout: u8, retry_cnt: u8, rnr_retry: u8,
        alt_port_num: u8, alt_timeout: u8, sq_sig_all: u8, reserved: [u8; 5],
    }

    struct ModifyQp = ib_uverbs_modify_qp {
        dest: QpDest, alt_dest: [u8; 32],
        qp_handle: u32, attr_mask: u32, qkey: u32, rq_psn: u32, sq_psn: u32, dest_qp_num: u32, qp_access_flags: u32,
        pkey_index: u16, alt_pkey_index: u16,
        qp_state: u8, cur_qp_state: u8, path_mtu: u8, path_mig_state: u8, en_sqd_async_notify: u8, max_rd_atomic: u8,
        max_dest_rd_atomic: u8, min_rnr_timer: u8, port_num: u8, timeout: u8, retry_cnt: u8, rnr_retry: u8,
        alt_port_num: u8, alt_timeout: u8, reserved: [u8; 2],
    }

    struct ExModifyQp = ib_uverbs_ex_modify_qp { base: ModifyQp, rate_limit: u32, reserved: u32 }

    struct ExModifyQpResp = ib_uverbs_ex_modify_qp_resp { comp_mask: u32, response_length: u32 }

    struct DestroyQp = ib_uverbs_destroy_qp { response: u64, qp_handle: u32, reserved: u32 }

    struct DestroyQpResp = ib_uverbs_destroy_qp_resp { events_reported: u32 }

    struct GlobalRoute = ib_uverbs_global_route {
        dgid: [u8; 16], flow_label: u32, sgid_index: u8, hop_limit: u8, traffic_class: u8, reserved: u8,
    }

    struct AhAttr = ib_uverbs_ah_attr {
        grh: GlobalRoute, dlid: u16, sl: u8, src_path_bits: u8, static_rate: u8, is_global: u8, port_num: u8,
        reserved: u8,
    }

    struct CreateAh = ib_uverbs_create_ah {
        response: u64, user_handle: u64, pd_handle: u32, reserved: u32, attr: AhAttr,
    }

    struct CreateAhResp = ib_uverbs_create_ah_resp { ah_handle: u32 }

    struct DestroyAh = ib_uverbs_destroy_ah { ah_handle: u32 }

    struct AttachMcast = ib_uverbs_attach_mcast { gid: [u8; 16], qp_handle: u32, mlid: u16, reserved: u16 }

    struct CreateSrq = ib_uverbs_create_srq {
        response: u64, user_handle: u64, pd_handle: u32, max_wr: u32, max_sge: u32, srq_limit: u32,
    }

    struct CreateSrqResp = ib_uverbs_create_srq_resp { srq_handle: u32, max_wr: u32, max_sge: u32, srqn: u32 }

    struct ModifySrq = ib_uverbs_modify_srq { srq_handle: u32, attr_mask: u32, max_wr: u32, srq_limit: u32 }

    struct QuerySrq = ib_uverbs_query_srq { response: u64, srq_handle: u32, reserved: u32 }

    struct QuerySrqResp = ib_uverbs_query_srq_resp { max_wr: u32, max_sge: u32, srq_limit: u32, reserved: u32 }

    struct DestroySrq = ib_uverbs_destroy_srq { response: u64, srq_handle: u32, reserved: u32 }

    struct DestroySrqResp = ib_uverbs_destroy_srq_resp { events_reported: u32 }

    struct FlowSpecHdr = ib_uverbs_flow_spec_hdr { type_: u32, size: u16, reserved: u16 }

    struct FlowAttr = ib_uverbs_flow_attr {
        type_: u32, size: u16, priority: u16, num_of_specs: u8, reserved: [u8; 2], port: u8, flags: u32,
    }

    struct CreateFlow = ib_uverbs_create_flow { comp_mask: u32, qp_handle: u32, flow_attr: FlowAttr }

    struct CreateFlowResp = ib_uverbs_create_flow_resp { comp_mask: u32, flow_handle: u32 }

    struct DestroyFlow = ib_uverbs_destroy_flow { comp_mask: u32, flow_handle: u32 }

    struct ExCreateWq = ib_uverbs_ex_create_wq {
        comp_mask: u32, wq_type: u32, user_handle: u64, pd_handle: u32, cq_handle: u32, max_wr: u32, max_sge: u32,
        create_flags: u32, reserved: u32,
    }

    struct ExCreateWqResp = ib_uverbs_ex_create_wq_resp {
        comp_mask: u32, response_length: u32, wq_handle: u32, max_wr: u32, max_sge: u32, wqn: u32,
    }

    struct ExDestroyWq = ib_uverbs_ex_destroy_wq { comp_mask: u32, wq_handle: u32 }

    struct ExDestroyWqResp = ib_uverbs_ex_destroy_wq_resp {
        comp_mask: u32, response_length: u32, events_reported: u32, reserved: u32,
    }

    struct ExModifyWq = ib_uverbs_ex_modify_wq {
        attr_mask: u32, wq_handle: u32, wq_state: u32, curr_wq_state: u32, flags: u32, flags_mask: u32,
    }

    /// The handles follow.
    struct ExCreateRwqIndTable = ib_uverbs_ex_create_rwq_ind_table { comp_mask: u32, log_ind_tbl_size: u32 }

    struct ExCreateRwqIndTableResp = ib_uverbs_ex_create_rwq_ind_table_resp {
        comp_mask: u32, response_length: u32, ind_tbl_handle: u32, ind_tbl_num: u32,
    }

    struct ExDestroyRwqIndTable = ib_uverbs_ex_destroy_rwq_ind_table { comp_mask: u32, ind_tbl_handle: u32 }
}
