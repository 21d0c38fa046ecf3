//! The NIC's counters by name. Each has one line: the field, which is also the printed name, and
//! its meaning.

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// All counters since the NIC was switched on.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        impl Counters {
            /// Names and values, in the order of the list, for printing.
            pub fn snapshot(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)+]
            }
        }
    };
}

counters! {
    /// Frames that went onto the wire.
    tx_frames,
    /// Their bytes, without frame check sequence.
    tx_bytes,
    /// Send WQEs that were fetched and executed.
    tx_wqes,
    /// Send WQEs that failed with an error CQE, flushed ones not counted.
    tx_errors,
    /// Send WQEs that were flushed because their queue was in error.
    tx_flushed,
    /// Frames thrown away because the port was down.
    tx_link_down,
    /// Frames thrown away because they are longer than the MTU allows.
    tx_oversize,
    /// Frames that were to get a checksum, but have none of that kind or are damaged.
    tx_checksum_not_filled,
    /// Send errors that were only the bad luck of hostile mode.
    tx_hostile_errors,
    /// Frames that had to wait because the wire took no more.
    tx_wire_busy,
    /// Frames that a flow rule gave to a queue, each counted once.
    rx_frames,
    /// Their bytes, without frame check sequence.
    rx_bytes,
    /// Frames that no rule had: they went to the kernel's side of the port.
    rx_to_kernel,
    /// Frames that a rule dropped.
    rx_dropped,
    /// Copies thrown away because no receive WQE was posted: of a lossy NIC, and of a ring for
    /// which frames have waited for long.
    rx_out_of_buffer,
    /// Copies thrown away because their queue does not receive: before RTR, or in error.
    rx_not_ready,
    /// Frames too short for an Ethernet header.
    rx_runts,
    /// Receive WQEs that failed with an error CQE, and queues that could not even do that.
    rx_errors,
    /// Receive WQEs that were flushed because their queue was in error.
    rx_flushed,
    /// Receive errors that were only the bad luck of hostile mode.
    rx_hostile_errors,
    /// Hostile mode: frames lost on the wire.
    rx_lost,
    /// Hostile mode: frames that were overtaken by the next one.
    rx_reordered,
    /// RDMA packets that were given to the wire, each time that they were.
    rdma_tx_packets,
    /// Packets that were sent before.
    rdma_retransmitted,
    /// Times that an answer did not come in time.
    rdma_timeouts,
    /// RDMA packets that came, check value right.
    rdma_rx_packets,
    /// Payload of the peer's SENDs and WRITEs that was stored.
    rdma_rx_bytes,
    /// Messages that completed a receive WQE.
    rdma_rx_messages,
    /// Negative acknowledgments that were sent.
    rdma_naks,
    /// Peers that were asked to wait for a receive WQE.
    rdma_rnr_naks,
    /// Requests that had been executed, and answers to nothing that was asked.
    rdma_duplicates,
    /// Packets whose check value is wrong.
    rdma_icrc_errors,
    /// Packets for a queue pair that there is not, that is not ready, or of another peer or key;
    /// and those of unreliable messages of which a part is missing.
    rdma_dropped,
    /// Congestion notifications, which have no effect here.
    rdma_cnps,
    /// Frames that completed in a session of compressed entries.
    cqes_compressed,
    /// Receiving rings that were made with several frames a WQE.
    striding_rings,
    /// Regions that were registered with relaxed ordering.
    regions_relaxed,
    /// Writes to UAR registers that were seen (strict mode only).
    doorbells,
    /// Doorbell writes that carried a whole WQE.
    doorbells_blueflame,
    /// Doorbell writes for WQEs that had been executed already, so the NIC saw the writes late.
    doorbells_late,
    /// Strict mode: a UAR register was written before the doorbell record.
    strict_record_late,
    /// Strict mode: a UAR register was written with bytes that are not the control segment of a
    /// posted WQE, or on another queue's page.
    strict_register_wrong,
    /// Strict mode: BlueFlame carried other bytes than the ring.
    strict_blueflame_differs,
}
