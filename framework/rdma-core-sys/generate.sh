#!/bin/bash
# Writes src/bindings.rs from the headers of libibverbs-dev. Needed only when a newer rdma-core has
# something that we want: the result is checked in, and neither bindgen nor clang nor the headers
# are needed to build.
#
#   apt install libibverbs-dev libclang-dev
#   cargo install bindgen-cli --version 0.73.2
#   PATH=$PATH:~/.cargo/bin ./generate.sh   # as checked in: of rdma-core 44; tests/layout compares with whatever headers are installed
#
# - No comment of the headers is taken over, only what the ABI is.
# - Types of libc are libc's: its crate knows their size on each machine.
# - Functions become types of function pointers: nothing is linked, load.rs looks the symbols up at
#   run time.
set -euo pipefail
cd "$(dirname "$0")"

verbs_types='ibv_(device|context|device_attr_ex|port_attr|pd|mr|comp_channel|cq|cq_ex|cq_init_attr_ex|qp|qp_attr|qp_init_attr|qp_init_attr_ex'
verbs_types="$verbs_types"'|qp_rate_limit_attr|wq|wq_attr|wq_init_attr|rwq_ind_table|rwq_ind_table_init_attr|flow|flow_attr|flow_spec_eth|flow_spec_ipv4'
verbs_types="$verbs_types"'|flow_spec_ipv4_ext|flow_spec_tcp_udp|flow_spec_action_tag|flow_spec_action_drop|ah_attr|srq_init_attr|srq_attr_mask|wc|sge|send_wr|recv_wr|async_event'
verbs_types="$verbs_types"'|values_ex|modify_cq_attr|query_device_ex_input|device_cap_flags|raw_packet_caps|rx_hash_fields|rx_hash_function_flags'
verbs_types="$verbs_types"'|create_cq_wc_flags|create_cq_attr_flags|cq_init_attr_mask|cq_attr_mask|wc_flags|access_flags|wq_flags|wq_attr_mask|wq_init_attr_mask'
verbs_types="$verbs_types"'|qp_init_attr_mask|qp_create_flags|qp_attr_mask|send_flags|flow_flags|flow_spec_type|values_mask)|verbs_context'
mlx5_types='mlx5dv_(context|context_comp_mask|context_flags|cq_init_attr|cq_init_attr_mask|cq_init_attr_flags|qp_init_attr|qp_init_attr_mask|qp_create_flags'
mlx5_types="$mlx5_types"'|wq_init_attr|wq_init_attr_mask|qp|qp_comp_mask|cq|rwq|pd|obj|obj_type|set_ctx_attr_type|ctx_allocators|clock_info|cqe_comp_res_format|context_attr|context_attr_flags|sw_parsing_offloads|tunnel_offloads)'
constants='IBV_(LINK_LAYER|DEVICE_RAW_SCATTER|DEVICE_PCI_WRITE).*'
verbs_functions='ibv_(get_device_list|free_device_list|get_device_guid|open_device|close_device|query_device|query_port|query_gid|get_async_event|ack_async_event'
verbs_functions="$verbs_functions"'|alloc_pd|dealloc_pd|reg_mr|reg_mr_iova2|dereg_mr|create_comp_channel|destroy_comp_channel|get_cq_event|ack_cq_events'
verbs_functions="$verbs_functions"'|create_cq|destroy_cq|create_srq|modify_srq|destroy_srq|create_ah|destroy_ah|create_qp|modify_qp|query_qp|destroy_qp|attach_mcast|detach_mcast)'
mlx5_functions='mlx5dv_(is_supported|query_device|create_cq|create_qp|create_wq|init_obj|set_context_attr|get_clock_info)'
of_libc='pthread_.*|__pthread.*|timespec|(__)?(off|time|syscall_slong)(64)?_t|__atomic_wide_counter.*'
only_pointed_at='ib_uverbs_.*|mlx5_wqe_av|ibv_flow_action_esp_attr'

header=$(mktemp --suffix .h)
trap 'rm -f "$header"' EXIT
printf '#include <infiniband/verbs.h>\n#include <infiniband/mlx5dv.h>\n' > "$header"
bindgen "$header" \
    --rust-edition 2024 --rust-target 1.85 --use-core --no-layout-tests --no-doc-comments --merge-extern-blocks \
    --disable-header-comment --no-prepend-enum-name --default-enum-style consts \
    --blocklist-type "$of_libc" --opaque-type "$only_pointed_at" \
    --allowlist-type "$verbs_types" --allowlist-type "$mlx5_types" --allowlist-var "$constants" \
    --allowlist-function "$verbs_functions" --allowlist-function "$mlx5_functions" \
    --raw-line '//! Types, constants and signatures of <infiniband/verbs.h> and <infiniband/mlx5dv.h>, written by `generate.sh`. Do not edit.' \
    --raw-line '' \
    --raw-line 'use libc::{off_t, pthread_cond_t, pthread_mutex_t, timespec};' |
    perl -0pe 's/unsafe extern "C" \{\n(.*?)\n\}\n/$1\n/sg; s/^ +pub fn (\w+)\(/pub type $1_fn = unsafe extern "C" fn(/mg' |
    sed 's|\b__off_t\b|off_t|' |
    rustfmt --edition 2024 --config max_width=120,use_small_heuristics=Max > src/bindings.rs.new
mv src/bindings.rs.new src/bindings.rs

# For tests/layout.rs: each struct with the paths of its fields, and each constant. Anonymous
# structs and unions are followed.
perl -0ne '
    while (/pub (struct|union) (\w+) \{\n(.*?)\n\}/sg) {
        my ($kind, $name, $body) = ($1, $2, $3);
        push @order, $name;
        $kind{$name} = $kind;
        while ($body =~ /^ +pub (\w+): (\w+)?/mg) { push @{$fields{$name}}, [$1, $2 // ""]; }
    }
    @constants = /^pub const ((?:IBV|MLX5)\w+)/mg;
    sub paths { map { my ($field, $type) = @$_; $type =~ /__bindgen_ty_/ ? map { "$field.$_" } paths($type) : $field } @{$fields{$_[0]}} }
    print "// Written by generate.sh. Do not edit.\n\nstructs! {\n";
    for my $name (grep { !/__bindgen_ty_|^__Bindgen/ } @order) {
        my @paths = paths($name);
        next if !@paths || grep { /^_address$|^_bindgen_opaque_blob$/ } @paths;
        print "    $kind{$name} $name { ", join(", ", @paths), " }\n";
    }
    print "}\n\nconstants! {\n", (map { "    $_,\n" } @constants), "}\n";
' src/bindings.rs > tests/layout/table.rs
