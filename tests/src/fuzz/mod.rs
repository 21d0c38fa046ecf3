//! Fuzz targets: functions that take any bytes, and assert properties that must hold for all of
//! them.
//!
//! A target panics where a promise is broken: a parser that panics on some bytes, a loop that does
//! not end, a header that reads differently once it is written, a machine that differs from a model
//! of ten lines, a packet that is lost without a count. The same functions serve three drivers:
//! libFuzzer (`tests/fuzz`), the replay of the corpus and its mutations
//! (`tests/tests/pipeline/fuzz_corpus.rs`), and a person with a file (`corpus::check`).

mod calls;
mod config;
mod counters;
mod device;
mod gateways;
mod input;
mod market;
mod orders;
mod pipeline;
mod proto;
mod ring;
mod seeds;
mod sessions;
mod wire;

pub use input::Input;

/// A target: its name, which is also the folder of its corpus, the function, and inputs that reach
/// far into it.
pub struct Target {
    /// The name on the command line and in `tests/corpus`.
    pub name: &'static str,
    /// Panics where the input breaks a promise.
    pub run: fn(&[u8]),
    /// Inputs from the project's own emitters, where a fuzzer begins.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "ethernet", run: wire::ethernet, seeds: seeds::frames },
    Target { name: "arp", run: wire::arp, seeds: seeds::arp },
    Target { name: "ipv4", run: wire::ipv4, seeds: seeds::ipv4 },
    Target { name: "icmpv4", run: wire::icmpv4, seeds: seeds::icmpv4 },
    Target { name: "igmp", run: wire::igmp, seeds: seeds::igmp },
    Target { name: "udp", run: wire::udp, seeds: seeds::udp },
    Target { name: "tcp", run: wire::tcp, seeds: seeds::tcp },
    Target { name: "tcp_machine", run: proto::tcp_machine::machine, seeds: proto::tcp_machine::seeds },
    Target { name: "pcap", run: device::capture::pcap, seeds: seeds::pcap },
    Target { name: "pcapng", run: device::capture::pcap, seeds: seeds::pcapng },
    Target { name: "pcap_gzip", run: device::capture::gzip, seeds: seeds::pcap_gzip },
    Target { name: "mold_udp64", run: market::formats::mold_udp64, seeds: seeds::mold_udp64 },
    Target { name: "iex_tp", run: market::formats::iex_tp, seeds: seeds::iex_tp },
    Target { name: "cboe_unit", run: market::formats::cboe_unit, seeds: seeds::cboe_unit },
    Target { name: "itch_file", run: market::formats::itch_file, seeds: seeds::itch_file },
    Target { name: "itch50", run: market::formats::itch50, seeds: seeds::itch_file },
    Target { name: "pitch", run: market::formats::pitch, seeds: seeds::pitch },
    Target { name: "pillar", run: market::formats::pillar, seeds: market::formats::pillar_seeds },
    Target { name: "pillar_packet", run: market::formats::pillar_packet, seeds: market::formats::pillar_packet_seeds },
    Target { name: "tops16", run: market::formats::tops16, seeds: seeds::tops16 },
    Target { name: "deep10", run: market::formats::deep10, seeds: seeds::deep10 },
    Target { name: "order_books", run: market::books::order_books, seeds: seeds::plans },
    Target { name: "level_books", run: market::books::level_books, seeds: seeds::plans },
    Target { name: "sequence", run: market::sequence::sequence, seeds: seeds::plans },
    Target { name: "arbitration", run: market::sequence::arbitration, seeds: seeds::plans },
    Target { name: "recovery", run: market::sequence::recovery, seeds: seeds::plans },
    Target { name: "mold_request", run: market::formats::mold_request, seeds: seeds::mold_request },
    Target { name: "mdp3", run: market::recovery::mdp3, seeds: market::recovery::mdp3_seeds },
    Target { name: "mdp3_packet", run: market::recovery::mdp3_packet, seeds: market::recovery::mdp3_packet_seeds },
    Target { name: "b3_umdf", run: market::recovery::b3_umdf, seeds: market::recovery::b3_umdf_seeds },
    Target { name: "b3_packet", run: market::recovery::b3_packet, seeds: market::recovery::b3_packet_seeds },
    Target { name: "eobi", run: market::recovery::eobi, seeds: market::recovery::eobi_seeds },
    Target { name: "eobi_packet", run: market::recovery::eobi_packet, seeds: market::recovery::eobi_packet_seeds },
    Target { name: "memoir_depth", run: market::recovery::memoir_depth, seeds: market::recovery::memoir_depth_seeds },
    Target { name: "memx_packet", run: market::recovery::memx_packet, seeds: market::recovery::memx_packet_seeds },
    Target { name: "recovery_servers", run: market::recovery::servers, seeds: market::recovery::server_seeds },
    Target { name: "image", run: market::recovery::image, seeds: seeds::plans },
    Target { name: "soupbin", run: orders::soupbin, seeds: orders::soupbin_seeds },
    Target { name: "ouch50", run: orders::ouch50, seeds: orders::ouch50_seeds },
    Target { name: "ouch42", run: orders::ouch42, seeds: orders::ouch42_seeds },
    Target { name: "boe2", run: orders::boe2, seeds: orders::boe2_seeds },
    Target { name: "boe3", run: orders::boe3, seeds: orders::boe3_seeds },
    Target { name: "ilink3", run: orders::ilink3, seeds: orders::ilink3_seeds },
    Target { name: "fix", run: orders::fix, seeds: orders::fix_seeds },
    Target { name: "fix_acceptor", run: sessions::fix_acceptor, seeds: sessions::fix_acceptor_seeds },
    Target { name: "ilink3_client", run: sessions::ilink3_client, seeds: sessions::ilink3_client_seeds },
    Target { name: "ouch42_client", run: sessions::ouch42_client, seeds: sessions::ouch42_client_seeds },
    Target { name: "boe2_orders", run: sessions::boe2_orders, seeds: sessions::boe2_orders_seeds },
    Target { name: "boe3_orders", run: sessions::boe3_orders, seeds: sessions::boe3_orders_seeds },
    Target { name: "drop_copy", run: sessions::drop_copy, seeds: sessions::drop_copy_seeds },
    Target { name: "standby", run: sessions::standby, seeds: sessions::standby_seeds },
    Target { name: "primary", run: sessions::primary, seeds: sessions::primary_seeds },
    Target { name: "journal", run: sessions::journal, seeds: sessions::journal_seeds },
    Target { name: "counters", run: counters::snapshot, seeds: seeds::counters },
    Target { name: "feed_config", run: config::feed_config, seeds: seeds::feed_config },
    Target { name: "gateway_config", run: config::gateway_config, seeds: config::gateway_config_seeds },
    Target { name: "gateway_limits", run: config::gateway_limits, seeds: config::gateway_limits_seeds },
    Target { name: "nats_wire", run: gateways::nats_wire, seeds: gateways::nats_wire_seeds },
    Target { name: "batches", run: gateways::batches, seeds: gateways::batches_seeds },
    Target { name: "audit_log", run: gateways::audit_log, seeds: gateways::audit_log_seeds },
    Target { name: "sbe_schema", run: gateways::sbe_schema, seeds: gateways::sbe_schema_seeds },
    Target { name: "socket_rules", run: config::socket_rules, seeds: seeds::socket_rules },
    Target { name: "broker_rules", run: config::broker_rules, seeds: seeds::broker_rules },
    Target { name: "steering", run: device::steering::rule, seeds: seeds::steering },
    Target { name: "reassembly", run: proto::reassembly::reassembly, seeds: seeds::plans },
    Target { name: "demux", run: proto::sockets::demux, seeds: seeds::plans },
    Target { name: "source_filters", run: proto::sockets::source_filters, seeds: seeds::plans },
    Target { name: "ports", run: proto::sockets::ports, seeds: seeds::plans },
    Target { name: "udp_sockets", run: proto::sockets::udp_sockets, seeds: seeds::plans },
    Target { name: "socket_calls", run: calls::socket_calls, seeds: calls::seeds },
    Target { name: "fault", run: device::fault::device, seeds: seeds::fault },
    Target { name: "lossy_ring", run: ring::lossy, seeds: seeds::plans },
    Target { name: "lossless_ring", run: ring::lossless, seeds: seeds::plans },
    Target { name: "pipeline", run: pipeline::udp_stack::pipeline, seeds: seeds::pipeline },
    Target { name: "host_stack", run: pipeline::host::host, seeds: seeds::host },
    Target { name: "host_events", run: pipeline::host::host_events, seeds: seeds::host_events },
    Target { name: "trunk", run: pipeline::trunk::trunk, seeds: seeds::trunk },
    Target { name: "mlx5_rx", run: device::mlx5::rx, seeds: device::mlx5::rx_seeds },
    Target { name: "mlx5_tx", run: device::mlx5::tx, seeds: device::mlx5::tx_seeds },
    Target { name: "rdma_cm", run: rdma::testing::run_cm_hostile, seeds: seeds::plans },
    Target { name: "rdma_exchanges", run: rdma::testing::run_exchanges, seeds: rdma::testing::exchange_seeds },
    Target { name: "rdma_ring", run: rdma::testing::run_ring_hostile, seeds: seeds::plans },
    Target { name: "roce", run: rdma::testing::run_hostile, seeds: seeds::plans },
    Target { name: "roce_frames", run: rdma::testing::run_hostile_frames, seeds: rdma::testing::hostile_frame_seeds },
    Target { name: "uverbs", run: device::uverbs::uverbs, seeds: device::uverbs::seeds },
];

/// The target of that name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
