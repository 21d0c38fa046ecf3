// Written by generate.sh. Do not edit.

structs! {
    union ibv_gid { raw, global.subnet_prefix, global.interface_id }
    struct ibv_alloc_dm_attr { length, log_align_req, comp_mask }
    struct ibv_dm { context, memcpy_to_dm, memcpy_from_dm, comp_mask, handle }
    struct ibv_device_attr { fw_ver, node_guid, sys_image_guid, max_mr_size, page_size_cap, vendor_id, vendor_part_id, hw_ver, max_qp, max_qp_wr, device_cap_flags, max_sge, max_sge_rd, max_cq, max_cqe, max_mr, max_pd, max_qp_rd_atom, max_ee_rd_atom, max_res_rd_atom, max_qp_init_rd_atom, max_ee_init_rd_atom, atomic_cap, max_ee, max_rdd, max_mw, max_raw_ipv6_qp, max_raw_ethy_qp, max_mcast_grp, max_mcast_qp_attach, max_total_mcast_qp_attach, max_ah, max_fmr, max_map_per_fmr, max_srq, max_srq_wr, max_srq_sge, max_pkeys, local_ca_ack_delay, phys_port_cnt }
    struct ibv_query_device_ex_input { comp_mask }
    struct ibv_odp_caps { general_caps, per_transport_caps.rc_odp_caps, per_transport_caps.uc_odp_caps, per_transport_caps.ud_odp_caps }
    struct ibv_tso_caps { max_tso, supported_qpts }
    struct ibv_rss_caps { supported_qpts, max_rwq_indirection_tables, max_rwq_indirection_table_size, rx_hash_fields_mask, rx_hash_function }
    struct ibv_packet_pacing_caps { qp_rate_limit_min, qp_rate_limit_max, supported_qpts }
    struct ibv_tm_caps { max_rndv_hdr_size, max_num_tags, flags, max_ops, max_sge }
    struct ibv_cq_moderation_caps { max_cq_count, max_cq_period }
    struct ibv_pci_atomic_caps { fetch_add, swap, compare_swap }
    struct ibv_device_attr_ex { orig_attr, comp_mask, odp_caps, completion_timestamp_mask, hca_core_clock, device_cap_flags_ex, tso_caps, rss_caps, max_wq_type_rq, packet_pacing_caps, raw_packet_caps, tm_caps, cq_mod_caps, max_dm_size, pci_atomic_caps, xrc_odp_caps, phys_port_cnt_ex }
    struct ibv_port_attr { state, max_mtu, active_mtu, gid_tbl_len, port_cap_flags, max_msg_sz, bad_pkey_cntr, qkey_viol_cntr, pkey_tbl_len, lid, sm_lid, lmc, max_vl_num, sm_sl, subnet_timeout, init_type_reply, active_width, active_speed, phys_state, link_layer, flags, port_cap_flags2 }
    struct ibv_async_event { element.cq, element.qp, element.srq, element.wq, element.port_num, event_type }
    struct ibv_wc { wr_id, status, opcode, vendor_err, byte_len, __bindgen_anon_1.imm_data, __bindgen_anon_1.invalidated_rkey, qp_num, src_qp, wc_flags, pkey_index, slid, sl, dlid_path_bits }
    struct ibv_mw_bind_info { mr, addr, length, mw_access_flags }
    struct ibv_pd { context, handle }
    struct ibv_td_init_attr { comp_mask }
    struct ibv_td { context }
    struct ibv_xrcd_init_attr { comp_mask, fd, oflags }
    struct ibv_xrcd { context }
    struct ibv_mr { context, pd, addr, length, handle, lkey, rkey }
    struct ibv_mw { context, pd, rkey, handle, type_ }
    struct ibv_global_route { dgid, flow_label, sgid_index, hop_limit, traffic_class }
    struct ibv_ah_attr { grh, dlid, sl, src_path_bits, static_rate, is_global, port_num }
    struct ibv_srq_attr { max_wr, max_sge, srq_limit }
    struct ibv_srq_init_attr { srq_context, attr }
    struct ibv_tm_cap { max_num_tags, max_ops }
    struct ibv_srq_init_attr_ex { srq_context, attr, comp_mask, srq_type, pd, xrcd, cq, tm_cap }
    struct ibv_wq_init_attr { wq_context, wq_type, max_wr, max_sge, pd, cq, comp_mask, create_flags }
    struct ibv_wq_attr { attr_mask, wq_state, curr_wq_state, flags, flags_mask }
    struct ibv_rwq_ind_table { context, ind_tbl_handle, ind_tbl_num, comp_mask }
    struct ibv_rwq_ind_table_init_attr { log_ind_tbl_size, ind_tbl, comp_mask }
    struct ibv_qp_cap { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data }
    struct ibv_qp_init_attr { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all }
    struct ibv_rx_hash_conf { rx_hash_function, rx_hash_key_len, rx_hash_key, rx_hash_fields_mask }
    struct ibv_qp_init_attr_ex { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all, comp_mask, pd, xrcd, create_flags, max_tso_header, rwq_ind_tbl, rx_hash_conf, source_qpn, send_ops_flags }
    struct ibv_qp_open_attr { comp_mask, qp_num, xrcd, qp_context, qp_type }
    struct ibv_qp_attr { qp_state, cur_qp_state, path_mtu, path_mig_state, qkey, rq_psn, sq_psn, dest_qp_num, qp_access_flags, cap, ah_attr, alt_ah_attr, pkey_index, alt_pkey_index, en_sqd_async_notify, sq_draining, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer, port_num, timeout, retry_cnt, rnr_retry, alt_port_num, alt_timeout, rate_limit }
    struct ibv_qp_rate_limit_attr { rate_limit, max_burst_sz, typical_pkt_sz, comp_mask }
    struct ibv_sge { addr, length, lkey }
    struct ibv_send_wr { wr_id, next, sg_list, num_sge, opcode, send_flags, __bindgen_anon_1.imm_data, __bindgen_anon_1.invalidate_rkey, wr.rdma.remote_addr, wr.rdma.rkey, wr.atomic.remote_addr, wr.atomic.compare_add, wr.atomic.swap, wr.atomic.rkey, wr.ud.ah, wr.ud.remote_qpn, wr.ud.remote_qkey, qp_type.xrc.remote_srqn, __bindgen_anon_2.bind_mw.mw, __bindgen_anon_2.bind_mw.rkey, __bindgen_anon_2.bind_mw.bind_info, __bindgen_anon_2.tso.hdr, __bindgen_anon_2.tso.hdr_sz, __bindgen_anon_2.tso.mss }
    struct ibv_recv_wr { wr_id, next, sg_list, num_sge }
    struct ibv_ops_wr { wr_id, next, opcode, flags, tm.unexpected_cnt, tm.handle, tm.add.recv_wr_id, tm.add.sg_list, tm.add.num_sge, tm.add.tag, tm.add.mask }
    struct ibv_mw_bind { wr_id, send_flags, bind_info }
    struct ibv_srq { context, srq_context, pd, handle, mutex, cond, events_completed }
    struct ibv_wq { context, wq_context, pd, cq, wq_num, handle, state, wq_type, post_recv, mutex, cond, events_completed, comp_mask }
    struct ibv_qp { context, qp_context, pd, send_cq, recv_cq, srq, handle, qp_num, state, qp_type, mutex, cond, events_completed }
    struct ibv_comp_channel { context, fd, refcnt }
    struct ibv_cq { context, channel, cq_context, handle, cqe, mutex, cond, comp_events_completed, async_events_completed }
    struct ibv_poll_cq_attr { comp_mask }
    struct ibv_wc_tm_info { tag, priv_ }
    struct ibv_cq_ex { context, channel, cq_context, handle, cqe, mutex, cond, comp_events_completed, async_events_completed, comp_mask, status, wr_id, start_poll, next_poll, end_poll, read_opcode, read_vendor_err, read_byte_len, read_imm_data, read_qp_num, read_src_qp, read_wc_flags, read_slid, read_sl, read_dlid_path_bits, read_completion_ts, read_cvlan, read_flow_tag, read_completion_wallclock_ns }
    struct ibv_moderate_cq { cq_count, cq_period }
    struct ibv_modify_cq_attr { attr_mask, moderate }
    struct ibv_ah { context, pd, handle }
    struct ibv_flow_eth_filter { dst_mac, src_mac, ether_type, vlan_tag }
    struct ibv_flow_spec_eth { type_, size, val, mask }
    struct ibv_flow_ipv4_filter { src_ip, dst_ip }
    struct ibv_flow_spec_ipv4 { type_, size, val, mask }
    struct ibv_flow_ipv4_ext_filter { src_ip, dst_ip, proto, tos, ttl, flags }
    struct ibv_flow_spec_ipv4_ext { type_, size, val, mask }
    struct ibv_flow_tcp_udp_filter { dst_port, src_port }
    struct ibv_flow_spec_tcp_udp { type_, size, val, mask }
    struct ibv_flow_spec_action_tag { type_, size, tag_id }
    struct ibv_flow_spec_action_drop { type_, size }
    struct ibv_flow_attr { comp_mask, type_, size, priority, num_of_specs, port, flags }
    struct ibv_flow { comp_mask, context, handle }
    struct ibv_flow_action { context }
    struct _ibv_device_ops { _dummy1, _dummy2 }
    struct ibv_device { _ops, node_type, transport_type, name, dev_name, dev_path, ibdev_path }
    struct ibv_context_ops { _compat_query_device, _compat_query_port, _compat_alloc_pd, _compat_dealloc_pd, _compat_reg_mr, _compat_rereg_mr, _compat_dereg_mr, alloc_mw, bind_mw, dealloc_mw, _compat_create_cq, poll_cq, req_notify_cq, _compat_cq_event, _compat_resize_cq, _compat_destroy_cq, _compat_create_srq, _compat_modify_srq, _compat_query_srq, _compat_destroy_srq, post_srq_recv, _compat_create_qp, _compat_query_qp, _compat_modify_qp, _compat_destroy_qp, post_send, post_recv, _compat_create_ah, _compat_destroy_ah, _compat_attach_mcast, _compat_detach_mcast, _compat_async_event }
    struct ibv_context { device, ops, cmd_fd, async_fd, num_comp_vectors, mutex, abi_compat }
    struct ibv_cq_init_attr_ex { cqe, cq_context, channel, comp_vector, wc_flags, comp_mask, flags, parent_domain }
    struct ibv_parent_domain_init_attr { pd, td, comp_mask, alloc, free, pd_context }
    struct ibv_counters_init_attr { comp_mask }
    struct ibv_counters { context }
    struct ibv_counter_attach_attr { counter_desc, index, comp_mask }
    struct ibv_values_ex { comp_mask, raw_clock }
    struct verbs_context { query_port, advise_mr, alloc_null_mr, read_counters, attach_counters_point_flow, create_counters, reg_dm_mr, alloc_dm, free_dm, modify_flow_action_esp, create_flow_action_esp, modify_qp_rate_limit, alloc_parent_domain, dealloc_td, alloc_td, modify_cq, post_srq_ops, create_rwq_ind_table, destroy_wq, create_wq, query_rt_values, create_cq_ex, priv_, query_device_ex, ibv_destroy_flow, ABI_placeholder2, ABI_placeholder1, open_qp, create_qp_ex, create_srq_ex, open_xrcd, close_xrcd, _ABI_placeholder3, sz, context }
    struct mlx5dv_cqe_comp_caps { max_num, supported_format }
    struct mlx5dv_sw_parsing_caps { sw_parsing_offloads, supported_qpts }
    struct mlx5dv_striding_rq_caps { min_single_stride_log_num_of_bytes, max_single_stride_log_num_of_bytes, min_single_wqe_log_num_of_strides, max_single_wqe_log_num_of_strides, supported_qpts }
    struct mlx5dv_dci_streams_caps { max_log_num_concurent, max_log_num_errored }
    struct mlx5dv_sig_caps { block_size, block_prot, t10dif_bg, crc_type }
    struct mlx5dv_crypto_caps { failed_selftests, crypto_engines, wrapped_import_method, log_max_num_deks, flags }
    struct mlx5dv_context { version, flags, comp_mask, cqe_comp_caps, sw_parsing_caps, striding_rq_caps, tunnel_offloads_caps, max_dynamic_bfregs, max_clock_info_update_nsec, flow_action_flags, dc_odp_caps, hca_core_clock, num_lag_ports, sig_caps, dci_streams_caps, max_wr_memcpy_length, crypto_caps }
    struct mlx5dv_cq_init_attr { comp_mask, cqe_comp_res_format, flags, cqe_size }
    struct mlx5dv_dci_streams { log_num_concurent, log_num_errored }
    struct mlx5dv_dc_init_attr { dc_type, __bindgen_anon_1.dct_access_key, __bindgen_anon_1.dci_streams }
    struct mlx5dv_qp_init_attr { comp_mask, create_flags, dc_init_attr, send_ops_flags }
    struct mlx5dv_qp { dbrec, sq.buf, sq.wqe_cnt, sq.stride, rq.buf, rq.wqe_cnt, rq.stride, bf.reg, bf.size, comp_mask, uar_mmap_offset, tirn, tisn, rqn, sqn, tir_icm_addr }
    struct mlx5dv_cq { buf, dbrec, cqe_cnt, cqe_size, cq_uar, cqn, comp_mask }
    struct mlx5dv_srq { buf, dbrec, stride, head, tail, comp_mask, srqn }
    struct mlx5dv_rwq { buf, dbrec, wqe_cnt, stride, comp_mask }
    struct mlx5dv_dm { buf, length, comp_mask, remote_va }
    struct mlx5dv_ah { av, comp_mask }
    struct mlx5dv_pd { pdn, comp_mask }
    struct mlx5dv_obj { qp.in_, qp.out, cq.in_, cq.out, srq.in_, srq.out, rwq.in_, rwq.out, dm.in_, dm.out, ah.in_, ah.out, pd.in_, pd.out }
    struct mlx5dv_striding_rq_init_attr { single_stride_log_num_of_bytes, single_wqe_log_num_of_strides, two_byte_shift_en }
    struct mlx5dv_wq_init_attr { comp_mask, striding_rq_attrs }
    struct mlx5dv_ctx_allocators { alloc, free, data }
    struct mlx5dv_clock_info { nsec, last_cycles, frac, mult, shift, mask }
    struct mlx5dv_context_attr { flags, comp_mask }
}

constants! {
    IBV_DEVICE_RAW_SCATTER_FCS,
    IBV_DEVICE_PCI_WRITE_END_PADDING,
    IBV_NODE_UNKNOWN,
    IBV_NODE_CA,
    IBV_NODE_SWITCH,
    IBV_NODE_ROUTER,
    IBV_NODE_RNIC,
    IBV_NODE_USNIC,
    IBV_NODE_USNIC_UDP,
    IBV_NODE_UNSPECIFIED,
    IBV_TRANSPORT_UNKNOWN,
    IBV_TRANSPORT_IB,
    IBV_TRANSPORT_IWARP,
    IBV_TRANSPORT_USNIC,
    IBV_TRANSPORT_USNIC_UDP,
    IBV_TRANSPORT_UNSPECIFIED,
    IBV_DEVICE_RESIZE_MAX_WR,
    IBV_DEVICE_BAD_PKEY_CNTR,
    IBV_DEVICE_BAD_QKEY_CNTR,
    IBV_DEVICE_RAW_MULTI,
    IBV_DEVICE_AUTO_PATH_MIG,
    IBV_DEVICE_CHANGE_PHY_PORT,
    IBV_DEVICE_UD_AV_PORT_ENFORCE,
    IBV_DEVICE_CURR_QP_STATE_MOD,
    IBV_DEVICE_SHUTDOWN_PORT,
    IBV_DEVICE_INIT_TYPE,
    IBV_DEVICE_PORT_ACTIVE_EVENT,
    IBV_DEVICE_SYS_IMAGE_GUID,
    IBV_DEVICE_RC_RNR_NAK_GEN,
    IBV_DEVICE_SRQ_RESIZE,
    IBV_DEVICE_N_NOTIFY_CQ,
    IBV_DEVICE_MEM_WINDOW,
    IBV_DEVICE_UD_IP_CSUM,
    IBV_DEVICE_XRC,
    IBV_DEVICE_MEM_MGT_EXTENSIONS,
    IBV_DEVICE_MEM_WINDOW_TYPE_2A,
    IBV_DEVICE_MEM_WINDOW_TYPE_2B,
    IBV_DEVICE_RC_IP_CSUM,
    IBV_DEVICE_RAW_IP_CSUM,
    IBV_DEVICE_MANAGED_FLOW_STEERING,
    IBV_ATOMIC_NONE,
    IBV_ATOMIC_HCA,
    IBV_ATOMIC_GLOB,
    IBV_RX_HASH_FUNC_TOEPLITZ,
    IBV_RX_HASH_SRC_IPV4,
    IBV_RX_HASH_DST_IPV4,
    IBV_RX_HASH_SRC_IPV6,
    IBV_RX_HASH_DST_IPV6,
    IBV_RX_HASH_SRC_PORT_TCP,
    IBV_RX_HASH_DST_PORT_TCP,
    IBV_RX_HASH_SRC_PORT_UDP,
    IBV_RX_HASH_DST_PORT_UDP,
    IBV_RX_HASH_IPSEC_SPI,
    IBV_RX_HASH_INNER,
    IBV_RAW_PACKET_CAP_CVLAN_STRIPPING,
    IBV_RAW_PACKET_CAP_SCATTER_FCS,
    IBV_RAW_PACKET_CAP_IP_CSUM,
    IBV_RAW_PACKET_CAP_DELAY_DROP,
    IBV_MTU_256,
    IBV_MTU_512,
    IBV_MTU_1024,
    IBV_MTU_2048,
    IBV_MTU_4096,
    IBV_PORT_NOP,
    IBV_PORT_DOWN,
    IBV_PORT_INIT,
    IBV_PORT_ARMED,
    IBV_PORT_ACTIVE,
    IBV_PORT_ACTIVE_DEFER,
    IBV_LINK_LAYER_UNSPECIFIED,
    IBV_LINK_LAYER_INFINIBAND,
    IBV_LINK_LAYER_ETHERNET,
    IBV_EVENT_CQ_ERR,
    IBV_EVENT_QP_FATAL,
    IBV_EVENT_QP_REQ_ERR,
    IBV_EVENT_QP_ACCESS_ERR,
    IBV_EVENT_COMM_EST,
    IBV_EVENT_SQ_DRAINED,
    IBV_EVENT_PATH_MIG,
    IBV_EVENT_PATH_MIG_ERR,
    IBV_EVENT_DEVICE_FATAL,
    IBV_EVENT_PORT_ACTIVE,
    IBV_EVENT_PORT_ERR,
    IBV_EVENT_LID_CHANGE,
    IBV_EVENT_PKEY_CHANGE,
    IBV_EVENT_SM_CHANGE,
    IBV_EVENT_SRQ_ERR,
    IBV_EVENT_SRQ_LIMIT_REACHED,
    IBV_EVENT_QP_LAST_WQE_REACHED,
    IBV_EVENT_CLIENT_REREGISTER,
    IBV_EVENT_GID_CHANGE,
    IBV_EVENT_WQ_FATAL,
    IBV_WC_SUCCESS,
    IBV_WC_LOC_LEN_ERR,
    IBV_WC_LOC_QP_OP_ERR,
    IBV_WC_LOC_EEC_OP_ERR,
    IBV_WC_LOC_PROT_ERR,
    IBV_WC_WR_FLUSH_ERR,
    IBV_WC_MW_BIND_ERR,
    IBV_WC_BAD_RESP_ERR,
    IBV_WC_LOC_ACCESS_ERR,
    IBV_WC_REM_INV_REQ_ERR,
    IBV_WC_REM_ACCESS_ERR,
    IBV_WC_REM_OP_ERR,
    IBV_WC_RETRY_EXC_ERR,
    IBV_WC_RNR_RETRY_EXC_ERR,
    IBV_WC_LOC_RDD_VIOL_ERR,
    IBV_WC_REM_INV_RD_REQ_ERR,
    IBV_WC_REM_ABORT_ERR,
    IBV_WC_INV_EECN_ERR,
    IBV_WC_INV_EEC_STATE_ERR,
    IBV_WC_FATAL_ERR,
    IBV_WC_RESP_TIMEOUT_ERR,
    IBV_WC_GENERAL_ERR,
    IBV_WC_TM_ERR,
    IBV_WC_TM_RNDV_INCOMPLETE,
    IBV_WC_SEND,
    IBV_WC_RDMA_WRITE,
    IBV_WC_RDMA_READ,
    IBV_WC_COMP_SWAP,
    IBV_WC_FETCH_ADD,
    IBV_WC_BIND_MW,
    IBV_WC_LOCAL_INV,
    IBV_WC_TSO,
    IBV_WC_ATOMIC_WRITE,
    IBV_WC_RECV,
    IBV_WC_RECV_RDMA_WITH_IMM,
    IBV_WC_TM_ADD,
    IBV_WC_TM_DEL,
    IBV_WC_TM_SYNC,
    IBV_WC_TM_RECV,
    IBV_WC_TM_NO_TAG,
    IBV_WC_DRIVER1,
    IBV_WC_DRIVER2,
    IBV_WC_DRIVER3,
    IBV_WC_EX_WITH_BYTE_LEN,
    IBV_WC_EX_WITH_IMM,
    IBV_WC_EX_WITH_QP_NUM,
    IBV_WC_EX_WITH_SRC_QP,
    IBV_WC_EX_WITH_SLID,
    IBV_WC_EX_WITH_SL,
    IBV_WC_EX_WITH_DLID_PATH_BITS,
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
    IBV_WC_EX_WITH_CVLAN,
    IBV_WC_EX_WITH_FLOW_TAG,
    IBV_WC_EX_WITH_TM_INFO,
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
    IBV_WC_GRH,
    IBV_WC_WITH_IMM,
    IBV_WC_IP_CSUM_OK,
    IBV_WC_WITH_INV,
    IBV_WC_TM_SYNC_REQ,
    IBV_WC_TM_MATCH,
    IBV_WC_TM_DATA_VALID,
    IBV_ACCESS_LOCAL_WRITE,
    IBV_ACCESS_REMOTE_WRITE,
    IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_ATOMIC,
    IBV_ACCESS_MW_BIND,
    IBV_ACCESS_ZERO_BASED,
    IBV_ACCESS_ON_DEMAND,
    IBV_ACCESS_HUGETLB,
    IBV_ACCESS_RELAXED_ORDERING,
    IBV_MW_TYPE_1,
    IBV_MW_TYPE_2,
    IBV_SRQ_MAX_WR,
    IBV_SRQ_LIMIT,
    IBV_SRQT_BASIC,
    IBV_SRQT_XRC,
    IBV_SRQT_TM,
    IBV_WQT_RQ,
    IBV_WQ_INIT_ATTR_FLAGS,
    IBV_WQ_INIT_ATTR_RESERVED,
    IBV_WQ_FLAGS_CVLAN_STRIPPING,
    IBV_WQ_FLAGS_SCATTER_FCS,
    IBV_WQ_FLAGS_DELAY_DROP,
    IBV_WQ_FLAGS_PCI_WRITE_END_PADDING,
    IBV_WQ_FLAGS_RESERVED,
    IBV_WQS_RESET,
    IBV_WQS_RDY,
    IBV_WQS_ERR,
    IBV_WQS_UNKNOWN,
    IBV_WQ_ATTR_STATE,
    IBV_WQ_ATTR_CURR_STATE,
    IBV_WQ_ATTR_FLAGS,
    IBV_WQ_ATTR_RESERVED,
    IBV_QPT_RC,
    IBV_QPT_UC,
    IBV_QPT_UD,
    IBV_QPT_RAW_PACKET,
    IBV_QPT_XRC_SEND,
    IBV_QPT_XRC_RECV,
    IBV_QPT_DRIVER,
    IBV_QP_INIT_ATTR_PD,
    IBV_QP_INIT_ATTR_XRCD,
    IBV_QP_INIT_ATTR_CREATE_FLAGS,
    IBV_QP_INIT_ATTR_MAX_TSO_HEADER,
    IBV_QP_INIT_ATTR_IND_TABLE,
    IBV_QP_INIT_ATTR_RX_HASH,
    IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
    IBV_QP_CREATE_BLOCK_SELF_MCAST_LB,
    IBV_QP_CREATE_SCATTER_FCS,
    IBV_QP_CREATE_CVLAN_STRIPPING,
    IBV_QP_CREATE_SOURCE_QPN,
    IBV_QP_CREATE_PCI_WRITE_END_PADDING,
    IBV_QP_STATE,
    IBV_QP_CUR_STATE,
    IBV_QP_EN_SQD_ASYNC_NOTIFY,
    IBV_QP_ACCESS_FLAGS,
    IBV_QP_PKEY_INDEX,
    IBV_QP_PORT,
    IBV_QP_QKEY,
    IBV_QP_AV,
    IBV_QP_PATH_MTU,
    IBV_QP_TIMEOUT,
    IBV_QP_RETRY_CNT,
    IBV_QP_RNR_RETRY,
    IBV_QP_RQ_PSN,
    IBV_QP_MAX_QP_RD_ATOMIC,
    IBV_QP_ALT_PATH,
    IBV_QP_MIN_RNR_TIMER,
    IBV_QP_SQ_PSN,
    IBV_QP_MAX_DEST_RD_ATOMIC,
    IBV_QP_PATH_MIG_STATE,
    IBV_QP_CAP,
    IBV_QP_DEST_QPN,
    IBV_QP_RATE_LIMIT,
    IBV_QPS_RESET,
    IBV_QPS_INIT,
    IBV_QPS_RTR,
    IBV_QPS_RTS,
    IBV_QPS_SQD,
    IBV_QPS_SQE,
    IBV_QPS_ERR,
    IBV_QPS_UNKNOWN,
    IBV_MIG_MIGRATED,
    IBV_MIG_REARM,
    IBV_MIG_ARMED,
    IBV_WR_RDMA_WRITE,
    IBV_WR_RDMA_WRITE_WITH_IMM,
    IBV_WR_SEND,
    IBV_WR_SEND_WITH_IMM,
    IBV_WR_RDMA_READ,
    IBV_WR_ATOMIC_CMP_AND_SWP,
    IBV_WR_ATOMIC_FETCH_AND_ADD,
    IBV_WR_LOCAL_INV,
    IBV_WR_BIND_MW,
    IBV_WR_SEND_WITH_INV,
    IBV_WR_TSO,
    IBV_WR_DRIVER1,
    IBV_WR_ATOMIC_WRITE,
    IBV_SEND_FENCE,
    IBV_SEND_SIGNALED,
    IBV_SEND_SOLICITED,
    IBV_SEND_INLINE,
    IBV_SEND_IP_CSUM,
    IBV_WR_TAG_ADD,
    IBV_WR_TAG_DEL,
    IBV_WR_TAG_SYNC,
    IBV_CQ_ATTR_MODERATE,
    IBV_CQ_ATTR_RESERVED,
    IBV_FLOW_ATTR_FLAGS_DONT_TRAP,
    IBV_FLOW_ATTR_FLAGS_EGRESS,
    IBV_FLOW_ATTR_NORMAL,
    IBV_FLOW_ATTR_ALL_DEFAULT,
    IBV_FLOW_ATTR_MC_DEFAULT,
    IBV_FLOW_ATTR_SNIFFER,
    IBV_FLOW_SPEC_ETH,
    IBV_FLOW_SPEC_IPV4,
    IBV_FLOW_SPEC_IPV6,
    IBV_FLOW_SPEC_IPV4_EXT,
    IBV_FLOW_SPEC_ESP,
    IBV_FLOW_SPEC_TCP,
    IBV_FLOW_SPEC_UDP,
    IBV_FLOW_SPEC_VXLAN_TUNNEL,
    IBV_FLOW_SPEC_GRE,
    IBV_FLOW_SPEC_MPLS,
    IBV_FLOW_SPEC_INNER,
    IBV_FLOW_SPEC_ACTION_TAG,
    IBV_FLOW_SPEC_ACTION_DROP,
    IBV_FLOW_SPEC_ACTION_HANDLE,
    IBV_FLOW_SPEC_ACTION_COUNT,
    IBV_CQ_INIT_ATTR_MASK_FLAGS,
    IBV_CQ_INIT_ATTR_MASK_PD,
    IBV_CREATE_CQ_ATTR_SINGLE_THREADED,
    IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN,
    IBV_COUNTER_PACKETS,
    IBV_COUNTER_BYTES,
    IBV_VALUES_MASK_RAW_CLOCK,
    IBV_VALUES_MASK_RESERVED,
    MLX5DV_CONTEXT_MASK_CQE_COMPRESION,
    MLX5DV_CONTEXT_MASK_SWP,
    MLX5DV_CONTEXT_MASK_STRIDING_RQ,
    MLX5DV_CONTEXT_MASK_TUNNEL_OFFLOADS,
    MLX5DV_CONTEXT_MASK_DYN_BFREGS,
    MLX5DV_CONTEXT_MASK_CLOCK_INFO_UPDATE,
    MLX5DV_CONTEXT_MASK_FLOW_ACTION_FLAGS,
    MLX5DV_CONTEXT_MASK_DC_ODP_CAPS,
    MLX5DV_CONTEXT_MASK_HCA_CORE_CLOCK,
    MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS,
    MLX5DV_CONTEXT_MASK_SIGNATURE_OFFLOAD,
    MLX5DV_CONTEXT_MASK_DCI_STREAMS,
    MLX5DV_CONTEXT_MASK_WR_MEMCPY_LENGTH,
    MLX5DV_CONTEXT_MASK_CRYPTO_OFFLOAD,
    MLX5DV_RAW_PACKET_CAP_TUNNELED_OFFLOAD_VXLAN,
    MLX5DV_RAW_PACKET_CAP_TUNNELED_OFFLOAD_GRE,
    MLX5DV_RAW_PACKET_CAP_TUNNELED_OFFLOAD_GENEVE,
    MLX5DV_RAW_PACKET_CAP_TUNNELED_OFFLOAD_CW_MPLS_OVER_GRE,
    MLX5DV_RAW_PACKET_CAP_TUNNELED_OFFLOAD_CW_MPLS_OVER_UDP,
    MLX5DV_CONTEXT_FLAGS_CQE_V1,
    MLX5DV_CONTEXT_FLAGS_OBSOLETE,
    MLX5DV_CONTEXT_FLAGS_MPW_ALLOWED,
    MLX5DV_CONTEXT_FLAGS_ENHANCED_MPW,
    MLX5DV_CONTEXT_FLAGS_CQE_128B_COMP,
    MLX5DV_CONTEXT_FLAGS_CQE_128B_PAD,
    MLX5DV_CONTEXT_FLAGS_PACKET_BASED_CREDIT_MODE,
    MLX5DV_CONTEXT_FLAGS_REAL_TIME_TS,
    MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE,
    MLX5DV_CQ_INIT_ATTR_MASK_FLAGS,
    MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE,
    MLX5DV_CQ_INIT_ATTR_FLAGS_CQE_PAD,
    MLX5DV_CQ_INIT_ATTR_FLAGS_RESERVED,
    MLX5DV_QP_CREATE_TUNNEL_OFFLOADS,
    MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_UC,
    MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_MC,
    MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE,
    MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE,
    MLX5DV_QP_CREATE_PACKET_BASED_CREDIT_MODE,
    MLX5DV_QP_CREATE_SIG_PIPELINING,
    MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS,
    MLX5DV_QP_INIT_ATTR_MASK_DC,
    MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS,
    MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS,
    MLX5DV_DCTYPE_DCT,
    MLX5DV_DCTYPE_DCI,
    MLX5DV_QP_MASK_UAR_MMAP_OFFSET,
    MLX5DV_QP_MASK_RAW_QP_HANDLES,
    MLX5DV_QP_MASK_RAW_QP_TIR_ADDR,
    MLX5DV_OBJ_QP,
    MLX5DV_OBJ_CQ,
    MLX5DV_OBJ_SRQ,
    MLX5DV_OBJ_RWQ,
    MLX5DV_OBJ_DM,
    MLX5DV_OBJ_AH,
    MLX5DV_OBJ_PD,
    MLX5DV_WQ_INIT_ATTR_MASK_STRIDING_RQ,
    MLX5DV_CQE_RES_FORMAT_HASH,
    MLX5DV_CQE_RES_FORMAT_CSUM,
    MLX5DV_CQE_RES_FORMAT_CSUM_STRIDX,
    MLX5DV_SW_PARSING,
    MLX5DV_SW_PARSING_CSUM,
    MLX5DV_SW_PARSING_LSO,
    MLX5DV_CTX_ATTR_BUF_ALLOCATORS,
    MLX5DV_CONTEXT_FLAGS_DEVX,
}
