//! What was counted.

/// The packets of a device. Each packet that arrived is in `packets_rx`, and either reached a
/// queue pair, is a congestion notification or a management datagram, or is in one of the drops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounters {
    /// Packets that arrived.
    pub packets_rx: u64,
    /// Packets that were sent.
    pub packets_tx: u64,
    /// Congestion notifications for one of the queue pairs, which sends slower then.
    pub cnps_rx: u64,
    /// Management datagrams for queue pair 1, which wait for
    /// [`Device::next_mad`](crate::roce::Device::next_mad).
    pub mads_rx: u64,
    /// Management datagrams that were sent.
    pub mads_tx: u64,
    /// Dropped: a management datagram of another length, or when 64 waited.
    pub mads_dropped: u64,
    /// Dropped: no packet of RoCE, or of an unknown opcode.
    pub malformed: u64,
    /// Dropped: the ICRC is wrong.
    pub icrc_errors: u64,
    /// Dropped: no queue pair has the number.
    pub unknown_qp: u64,
    /// Dropped: the queue pair's state receives nothing.
    pub qp_state: u64,
    /// Dropped: another partition.
    pub pkey_violations: u64,
    /// Dropped: the opcode is of another service than the queue pair's.
    pub wrong_transport: u64,
    /// Dropped: not from the queue pair's peer.
    pub wrong_address: u64,
    /// Dropped: a datagram with another Q_Key than the queue pair's.
    pub qkey_violations: u64,
    /// Datagrams to a multicast group that reached no queue pair.
    pub unknown_groups: u64,
    /// Events that found no room in their queue.
    pub events_lost: u64,
    /// Completions that found no room in their queue.
    pub cq_overruns: u64,
}

/// The packets of a queue pair.
// The last two are those that each packet counts: they share a line with what it needs, and the
// others do not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct QpCounters {
    /// Requests that were sent again.
    pub retransmits: u64,
    /// Requests that were there already.
    pub duplicates: u64,
    /// Requests that came before an earlier one, and were dropped.
    pub out_of_sequence: u64,
    /// Answers that answer nothing that is under way, and were dropped.
    pub stale_responses: u64,
    /// Messages of a service without acknowledgments that were dropped: there was no receive, or a
    /// shorter one, or no right, or a part of the message was missing.
    pub dropped: u64,
    /// Messages of the peer that reached for memory without the right: a wrong key, range or
    /// domain. Over a reliable connection the first ends it, over an unreliable one each sixteenth.
    pub access_violations: u64,
    /// Times that no answer came in time.
    pub timeouts: u64,
    /// Times that an answer was missing before a later one.
    pub implied_naks: u64,
    /// RNR NAKs that were sent.
    pub rnr_naks_tx: u64,
    /// RNR NAKs that arrived.
    pub rnr_naks_rx: u64,
    /// NAKs that were sent, by their codes: PSN sequence, invalid request, remote access, remote
    /// operational.
    pub naks_tx: [u64; 4],
    /// NAKs that arrived, by their codes.
    pub naks_rx: [u64; 4],
    /// Packets that arrived with the mark of a congested switch (CE).
    pub marked_rx: u64,
    /// Congestion notifications that were sent for them: one in 50 µs at most.
    pub cnps_tx: u64,
    /// Congestion notifications that arrived.
    pub cnps_rx: u64,
    /// Packets that arrived.
    pub packets_rx: u64,
    /// Packets that were sent.
    pub packets_tx: u64,
}
